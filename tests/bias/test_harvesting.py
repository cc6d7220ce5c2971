"""Estimates from natural variation of ranks, by hand; and what is said where there is none."""

import numpy as np
import pytest
from tests.bias.pair_sandwich import sandwich, scores_by_query

from untilt import AdjacentChain, AllPairs, Pivot
from untilt.bias.harvesting.harvesting import maximise, profile, tree_equations
from untilt.bias.harvesting.pairs import (
    inverse_laplacian,
    pair_sums,
    session_noise,
)
from untilt.data.counts import position_counts
from untilt.errors import DepthError, IdentifiabilityError, OptionError

HARVESTERS = [AdjacentChain, Pivot, AllPairs]


@pytest.fixture
def two_positions(make_log):
    """One document. At 1: 6 clicks of 10. At 2: 4 clicks of 20."""
    return make_log(
        [
            (0, [7], [7], 6, "a"),
            (0, [7], [], 4, "a"),
            (0, [None, 7], [7], 4, "b"),
            (0, [None, 7], [], 16, "b"),
        ]
    )


@pytest.fixture
def uneven(make_log):
    """Two documents at positions 1 and 2, one of them shown far more often."""
    return make_log(
        [
            (0, [1], [1], 1, "a"),
            (0, [None, 1], [1], 1, "a"),
            (0, [None, 1], [], 1, "a"),
            (0, [2], [2], 40, "a"),
            (0, [2], [], 60, "a"),
            (0, [None, 2], [2], 30, "a"),
            (0, [None, 2], [], 120, "a"),
        ]
    )


@pytest.mark.parametrize("estimator", HARVESTERS)
@pytest.mark.parametrize("weight", ["session", "document"])
def test_one_document_at_two_positions(estimator, weight, two_positions):
    bias = estimator(weight=weight).fit(two_positions).bias_
    assert bias.examination == pytest.approx([1, (4 / 20) / (6 / 10)], rel=1e-6)
    assert bias.relative
    assert bias.method == estimator.__name__


def test_the_binomial_error_by_hand(two_positions):
    """One query: var(log ratio) = (1 - a)/(n a) at 1 plus the same at 2, at the fitted rates.

    The rates are fitted together: g = 10 clicks / (10 + 20 / 3), so a = 0.6 and 0.2.
    """
    bias = AdjacentChain().fit(two_positions).bias_
    variance = 0.4 / (10 * 0.6) + 0.8 / (20 * 0.2)
    assert bias.std_error[1] / bias.examination[1] == pytest.approx(np.sqrt(variance))
    assert bias.status.part("bias.errors-one-query")


def test_documents_or_sessions_count_alike(uneven):
    by_document = AdjacentChain(weight="document").fit(uneven).bias_
    assert by_document.examination[1] == pytest.approx((1 / 2 + 30 / 150) / (1 + 40 / 100))
    w1, w2 = 1 * 2 / 3, 100 * 150 / 250
    by_session = AdjacentChain().fit(uneven).bias_
    assert by_session.examination[1] == pytest.approx(
        (w1 / 2 + w2 * 30 / 150) / (w1 + w2 * 40 / 100)
    )


def test_a_chain_multiplies_and_a_pivot_divides(shuffled_log):
    C = pair_sums(position_counts(shuffled_log), "session").clicked
    chain = AdjacentChain().fit(shuffled_log).bias_.examination
    assert chain == pytest.approx(np.cumprod([1, *(C[k, k - 1] / C[k - 1, k] for k in (1, 2, 3))]))
    first = Pivot().fit(shuffled_log).bias_.examination
    assert first == pytest.approx([1, *(C[k, 0] / C[0, k] for k in (1, 2, 3))])
    third = Pivot(3).fit(shuffled_log).bias_.examination
    to_third = np.array([C[0, 2] / C[2, 0], C[1, 2] / C[2, 1], 1, C[3, 2] / C[2, 3]])
    assert third == pytest.approx(to_third / to_third[0])


def test_clustered_errors_are_the_delta_method_over_queries(rng, make_log, make_sessions):
    """d_q = c_q[k, k-1] / C[k, k-1] - c_q[k-1, k] / C[k-1, k], summed along the chain."""
    log = make_log(make_sessions(rng, n_sessions=1500, n_queries=40))
    cells = position_counts(log)
    C = pair_sums(cells, "session").clicked
    steps = np.zeros((40, 3))
    for query in range(40):
        c = pair_sums(
            position_counts(log.take(np.flatnonzero(log.query == query))), "session"
        ).clicked
        c = np.pad(c, (0, 4 - len(c)))
        for k in (1, 2, 3):
            steps[query, k - 1] = c[k, k - 1] / C[k, k - 1] - c[k - 1, k] / C[k - 1, k]
    z = np.cumsum(steps, axis=1)
    clustered = np.sqrt(np.diag(z.T @ z) * 40 / 39)
    _, equations = tree_equations(pair_sums(cells, "session"), [(1, 2), (2, 3), (3, 4)])
    M, n = scores_by_query(cells, "session", equations.gain, equations.offset)
    assert n == 40
    mine = np.sqrt(np.diag(sandwich(equations.curvature, M))[1:] * 40 / 39)
    assert mine == pytest.approx(clustered)


@pytest.mark.parametrize("estimator", [AdjacentChain(), Pivot(3), AllPairs()], ids=str)
def test_errors_are_the_jackknife_over_queries_or_session_noise(
    estimator, rng, make_log, make_sessions
):
    """Every query left out in turn and fitted anew, without a formula; the larger counts."""
    n = 30
    log = make_log(make_sessions(rng, n_sessions=3000, n_queries=n))
    bias = estimator.fit(log).bias_
    left = [
        np.log(estimator.fit(log.take(np.flatnonzero(log.query != query))).bias_.examination[1:])
        for query in range(n)
    ]
    change = left - np.log(bias.examination[1:])
    jackknife = np.sqrt((n - 1) / n * np.sum(change**2, axis=0))
    sessions = session_errors(estimator, log, np.log(bias.examination))
    error = bias.std_error[1:] / bias.examination[1:]
    assert error == pytest.approx(np.maximum(jackknife, sessions), rel=0.02)
    assert np.any(jackknife > sessions), "else nothing was checked"


def session_errors(estimator, log, z):
    cells = position_counts(log)
    sums = pair_sums(cells, "session")
    if isinstance(estimator, AllPairs):
        equations = profile(z, sums).equations
    else:
        pivot = isinstance(estimator, Pivot)
        edges = [(1, 3), (2, 3), (3, 4)] if pivot else [(1, 2), (2, 3), (3, 4)]
        _, equations = tree_equations(sums, edges)
    inverse = inverse_laplacian(equations.curvature)
    noise = session_noise(cells, "session", equations.gain, np.exp(z), inverse)
    return np.sqrt(np.diag(noise.covariance))[1:]


def test_all_pairs_clustered_error_is_near_the_jackknife(rng, make_log, make_sessions):
    """Leaving out each query in turn gives the same error without any formula."""
    n = 60
    log = make_log(make_sessions(rng, n_sessions=3000, n_queries=n))
    cells = position_counts(log)
    here = maximise(pair_sums(cells, "session"), tolerance=1e-10, max_steps=50)
    M, _ = scores_by_query(cells, "session", here.at.equations.gain, here.at.equations.offset)
    clustered = np.sqrt(np.diag(sandwich(here.at.equations.curvature, M)))[1:]
    left = []
    for query in range(n):
        part = position_counts(log.take(np.flatnonzero(log.query != query)))
        left.append(maximise(pair_sums(part, "session"), tolerance=1e-10, max_steps=50).x[1:])
    jackknife = np.sqrt((n - 1) / n * np.sum((left - np.mean(left, axis=0)) ** 2, axis=0))
    assert clustered == pytest.approx(jackknife, rel=0.1)


def test_depth_is_the_top_of_the_log(shuffled_log):
    for estimator in HARVESTERS:
        asked = estimator(depth=2).fit(shuffled_log).bias_
        cut = estimator().fit(shuffled_log.top(2)).bias_
        assert asked.examination == pytest.approx(cut.examination)
        assert asked.std_error == pytest.approx(cut.std_error)


@pytest.mark.parametrize("depth", [0, 5, -1])
def test_a_depth_the_log_does_not_have(depth, shuffled_log):
    with pytest.raises(DepthError, match=r"depth must be one of the positions 1\.\.4"):
        AllPairs(depth=depth).fit(shuffled_log)


@pytest.mark.parametrize("estimator", HARVESTERS)
def test_one_position_alone(estimator, shuffled_log):
    for asked, log in ((estimator(), shuffled_log.top(1)), (estimator(depth=1), shuffled_log)):
        with pytest.raises(IdentifiabilityError, match="only position 1 is asked for or shown"):
            asked.fit(log)


@pytest.mark.parametrize("pivot", [0, 5])
def test_a_pivot_the_log_does_not_have(pivot, shuffled_log):
    with pytest.raises(OptionError, match=r"pivot must be one of the positions 1\.\.4"):
        Pivot(pivot).fit(shuffled_log)


@pytest.mark.parametrize("estimator", HARVESTERS)
def test_a_log_of_one_fixed_order_says_which_swap_would_help(estimator, make_log):
    log = make_log([(0, [1, 2, 3], [1], 5, "a"), (1, [1, 2, 3], [1, 2, 3], 5, "a")])
    with pytest.raises(IdentifiabilityError) as error:
        estimator().fit(log)
    assert "cannot compare position 2 with position 1" in str(error.value)
    assert "swap positions 1 and 2" in str(error.value)


def test_a_chain_with_a_gap_points_to_all_pairs(make_log):
    """2 and 3 share nothing, but both are compared with 1."""
    log = make_log(
        [
            (0, [1, 2], [1], 4, "a"),
            (0, [2, 1], [1, 2], 4, "a"),
            (1, [1, None, 2], [1], 4, "a"),
            (1, [2, None, 1], [2, 1], 4, "a"),
        ]
    )
    with pytest.raises(IdentifiabilityError, match=r"compares positions 2 and 3, and 0 documents"):
        AdjacentChain().fit(log)
    both = AllPairs().fit(log).bias_, Pivot().fit(log).bias_
    assert both[0].depth == both[1].depth == 3


def test_a_pair_without_clicks_on_one_side(make_log):
    """At 2 and 3 there are shared documents, but no clicks at 3 on them; by way of 1 there are."""
    log = make_log(
        [
            (0, [1, 2, 3], [1, 2], 4, "a"),
            (0, [2, 1, 3], [2, 1], 4, "a"),
            (1, [1, 2, 3], [1, 3], 4, "a"),
            (1, [3, 2, 1], [3, 1], 4, "a"),
            (2, [None, 5, None], [5], 4, "a"),
            (2, [None, None, 5], [], 4, "a"),
        ]
    )
    with pytest.raises(IdentifiabilityError, match="1 documents were shown at both, with 4 clicks"):
        AdjacentChain().fit(log)
    assert AllPairs().fit(log).bias_.depth == 3


def test_scarce_clicks_are_pointed_out(two_positions, shuffled_log):
    few = AllPairs().fit(two_positions).bias_.status.part("bias.few-clicks")
    assert few.fields == {"positions": (1, 2), "fewer_than": 10}
    assert AllPairs().fit(shuffled_log).bias_.status.part("bias.few-clicks") is None


def test_an_unfinished_search_is_shouted(shuffled_log):
    bias = AllPairs(max_steps=1, tolerance=1e-14).fit(shuffled_log).bias_
    assert bias.status.part("bias.no-maximum").fields["steps"] == 1
    assert bias.status.severity == "serious"
    assert AllPairs().fit(shuffled_log).bias_.status.part("bias.maximum")
