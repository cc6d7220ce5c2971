"""RankSVM(metric="dcg"): a bound on DCG with the hinge, by convex-concave steps."""

import itertools

import numba
import numpy as np
import pytest

from untilt import (
    IPS,
    PRS,
    AffineIPS,
    BayesIPS,
    ClickLog,
    JudgedLists,
    KnownBias,
    Naive,
    PairwiseDebiasing,
    PowerLaw,
    RankSVM,
)
from untilt.errors import OptionError
from untilt.objectives.losses import HingeDcgBound
from untilt.objectives.pair_slates import RowSlates

THETA = np.array([1.0, 0.5, 0.25])
TRUST = KnownBias(1 / np.arange(1, 6), eps_plus=np.full(5, 0.9), eps_minus=np.full(5, 0.1))


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(before)


def slates_of(*weights):
    """One slate for each row of weights, documents of their own."""
    sizes = [len(each) for each in weights]
    n = sum(sizes)
    return RowSlates(
        indptr=np.concatenate([[0], np.cumsum(sizes)]),
        query=np.arange(len(sizes)),
        count=np.ones(len(sizes)),
        document=np.arange(n),
        position_index=np.concatenate([np.arange(size) for size in sizes]),
        n_documents=n,
        weight=np.concatenate(weights).astype(float),
    )


def slow_ranks(s):
    """1 + sum over the others of max(0, 1 - (s_i - s_j))."""
    return np.array([
        1 + sum(max(0.0, 1 - (s[i] - s[j])) for j in range(len(s)) if j != i) for i in range(len(s))
    ])  # fmt: skip


def dcg_of(weight, rank):
    return np.sum(weight / np.log2(1 + rank))


# ---- the bound


def test_ranks_equal_the_sum_over_pairs(rng):
    bound = HingeDcgBound(slates_of(np.ones(1), np.ones(7), np.ones(12), np.ones(2)))
    for spread in (0.0, 0.3, 1.0, 4.0):
        scores = spread * rng.normal(size=22)
        parts = np.split(scores, [1, 8, 20])
        slow = np.concatenate([slow_ranks(part) for part in parts])
        np.testing.assert_allclose(bound.ranks(scores), slow, rtol=1e-12)


def test_ranks_by_hand():
    bound = HingeDcgBound(slates_of([1.0, 2.0]))
    assert bound.ranks(np.array([0.25, 0.0])) == pytest.approx([1 + 0.75, 1 + 1.25])
    loss = 1 - 1 / np.log2(2.75) + 2 * (1 - 1 / np.log2(3.25))
    assert bound.loss(np.array([0.25, 0.0])) == pytest.approx(loss)
    assert bound.loss(np.array([0.0, 1.0])) == pytest.approx(1 - 1 / np.log2(4))


def test_it_is_a_bound_for_every_order_and_spacing():
    """All 24 orders of four documents, at four distances, and all ways to tie."""
    weight = np.array([3.0, 1.0, 0.0, 2.0])
    bound = HingeDcgBound(slates_of(weight))
    placed = [np.array(order) * gap for order in itertools.permutations(range(4))
              for gap in (0.01, 0.5, 1.0, 30.0)]  # fmt: skip
    tied = [np.array(level, dtype=float) for level in itertools.product(range(3), repeat=4)]
    met = 0
    for scores in (*placed, *tied):
        worst_rank = np.sum(scores[None, :] >= scores[:, None], axis=1)
        assert np.all(bound.ranks(scores) >= worst_rank)
        value = weight.sum() - bound.loss(scores)
        assert value <= dcg_of(weight, worst_rank) + 1e-12
        met += value == pytest.approx(dcg_of(weight, worst_rank))
    assert 0 < met < len(placed)  # it is met at distance 1 where only the first is wanted


def test_a_tangent_touches_the_loss_and_lies_above_it(rng):
    slates = slates_of(rng.exponential(size=6), rng.exponential(size=4))
    bound = HingeDcgBound(slates)
    at = rng.normal(size=10)
    tangent = bound.tangent(at)
    shift = bound.loss(at) - tangent.evaluate(at)[0]
    for scores in (at + size * rng.normal(size=10) for size in (0, 1e-3, 0.3, 3, 30)):
        assert tangent.evaluate(scores)[0] + shift >= bound.loss(scores) - 1e-9
    # And both have the same slope there.
    _, slope = tangent.evaluate(at)
    for row, step in enumerate(1e-6 * np.eye(10)):
        finite = (bound.loss(at + step) - bound.loss(at - step)) / 2e-6
        assert slope[row] == pytest.approx(finite, abs=1e-6)


def test_with_ips_weights_the_bound_is_unbiased():
    """All outcomes of examination; without the weights it is not."""
    relevance, scores = np.array([0.0, 1.0, 1.0]), np.array([0.3, -0.1, 0.5])
    truth = HingeDcgBound(slates_of(relevance)).loss(scores)

    def expected(row):
        return sum(
            np.prod(np.where(seen, THETA, 1 - THETA))
            * HingeDcgBound(slates_of(row * relevance * seen)).loss(scores)
            for seen in itertools.product([0, 1], repeat=3)
        )

    assert expected(IPS(THETA).table(3)[:, 0]) == pytest.approx(truth, rel=1e-12)
    assert expected(Naive().table(3)[:, 0]) < 0.6 * truth


# ---- the ranker


def expected_log(features, relevance):
    """A log whose counts are exactly proportional to the probabilities: 8 sessions in all."""
    outcomes = [np.array(seen) for seen in itertools.product([0.0, 1.0], repeat=3)]
    chances = np.array([np.prod(np.where(seen, THETA, 1 - THETA)) for seen in outcomes])
    kept = chances > 0
    clicks = np.array(outcomes)[kept]
    lists, queries = len(clicks), len(relevance) // 3
    label = np.concatenate(
        [(clicks * relevance[3 * q : 3 * q + 3]).ravel() for q in range(queries)]
    )
    shown = [np.tile(3 * q + np.arange(3), lists) for q in range(queries)]
    return ClickLog(
        query_id=np.arange(queries),
        doc_id=np.arange(3 * queries),
        doc_query=np.repeat(np.arange(queries), 3),
        indptr=3 * np.arange(lists * queries + 1),
        query=np.repeat(np.arange(queries), lists),
        document=np.concatenate(shown),
        position=np.tile([1, 2, 3], lists * queries),
        label=label,
        features=features,
        count=np.tile(np.round(8 * chances[kept]).astype(int), queries),
    )  # fmt: skip


def test_from_expected_clicks_it_learns_what_it_learns_from_relevance(rng):
    features = rng.normal(size=(18, 2)).astype(np.float32)
    # The relevant documents are at the bottom, where raw clicks are rarest.
    relevance = np.tile([0.0, 0.0, 1.0, 0.0, 1.0, 0.0], 3)
    judged = JudgedLists(features, relevance, np.arange(0, 19, 3), np.arange(6))
    log = expected_log(features, relevance)
    # n counts clicks: those of the log are rarer by what was not examined.
    share = log.row_count @ log.label / (8 * relevance.sum())
    by_label = RankSVM(metric="dcg", C=20.0, tolerance=1e-7).fit(judged)
    by_click = RankSVM(IPS(THETA), metric="dcg", C=20.0 * share, tolerance=1e-7).fit(log)
    raw = RankSVM(metric="dcg", C=20.0 * share, tolerance=1e-7).fit(log)
    assert by_click.summary_["objective"] == pytest.approx(by_label.summary_["objective"], rel=1e-6)
    np.testing.assert_allclose(by_click.weights_, by_label.weights_, atol=1e-3)
    assert np.abs(raw.weights_ - by_label.weights_).max() > 0.05


@pytest.mark.parametrize("C", [0.3, 3.0, 100.0])
@pytest.mark.parametrize("weighting", [Naive(), IPS(PowerLaw(1.0)), BayesIPS(TRUST)],
                         ids=lambda value: type(value).__name__)  # fmt: skip
def test_no_step_raises_the_stated_objective(made, weighting, C):
    log = made.log
    ranker = RankSVM(weighting, metric="dcg", C=C).fit(log)
    steps = np.array(ranker.summary_["steps"])
    assert len(steps) >= 3
    assert np.all(np.diff(steps) <= 0)
    assert ranker.summary_["objective"] == steps[-1] < steps[0]
    assert ranker.summary_["converged"]
    v = ranker.standardised_weights_
    assert steps[-1] == pytest.approx(stated_objective(log, weighting, v, C), rel=1e-9)


def stated_objective(log, weighting, v, C):
    """1/2 |v|^2 + C/n sum over clicks of W[k] (1 - 1/log2(1 + R)), session by session."""
    shown = np.unique(log.document)
    x = log.features[shown].astype(float)
    scores = np.zeros(log.n_documents)
    scores[shown] = (x - x.mean(axis=0)) / x.std(axis=0) @ v
    W = weighting.table(log.depth)[:, 0]
    loss = 0.0
    for a, b, count in zip(log.indptr[:-1], log.indptr[1:], log.sessions, strict=True):
        worth = count * log.label[a:b] * W[log.position[a:b] - 1]
        loss += np.sum(worth * (1 - 1 / np.log2(1 + slow_ranks(scores[log.document[a:b]]))))
    clicks = np.sum(log.row_count * (log.label > 0))
    return 0.5 * v @ v + C / clicks * loss


def best_of_grid(objective, centre, reach, n=21):
    axis = np.linspace(-reach, reach, n)
    points = [centre + np.array(each) for each in itertools.product(axis, repeat=2)]
    values = [objective(point) for point in points]
    return points[int(np.argmin(values))], min(values)


def tiny_problem(pbm_log, C, seed):
    """(weights, objective) of a problem with two weights, and its objective as a function."""
    log = pbm_log(n_queries=3, n_documents=4, shown=4, sessions=6, n_features=2, seed=seed).log
    ranker = RankSVM(IPS(PowerLaw(1.0)), metric="dcg", C=C, tolerance=1e-6).fit(log)
    found = ranker.standardised_weights_, ranker.summary_["objective"]
    return *found, lambda v: stated_objective(log, IPS(PowerLaw(1.0)), v, C)


@pytest.mark.parametrize("seed", [0, 1])
def test_it_finds_the_optimum_of_a_tiny_problem(pbm_log, seed):
    """All of a grid, with finer ones around its best point."""
    found, value, objective = tiny_problem(pbm_log, 3.0, seed)
    point, lowest = best_of_grid(objective, np.zeros(2), 4.0)
    for reach in (0.4, 0.15, 0.05, 0.02, 0.005):
        point, lowest = best_of_grid(objective, point, reach, 11)
    assert value <= lowest
    assert lowest == pytest.approx(value, rel=1e-4)
    np.testing.assert_allclose(found, point, atol=0.02)


def test_where_it_ends_is_a_local_optimum_and_not_always_the_best(pbm_log):
    found, value, objective = tiny_problem(pbm_log, 30.0, 2)
    assert best_of_grid(objective, found, 1e-3)[1] >= value * (1 - 1e-6)
    assert best_of_grid(objective, np.zeros(2), 4.0)[1] < 0.98 * value


def test_counts_are_repeated_sessions(made):
    log = made.log
    rng = np.random.default_rng(5)
    count = rng.integers(1, 5, size=log.n_lists)
    counted = log.take(np.arange(log.n_lists), count=count)
    repeated = log.take(rng.permutation(np.repeat(np.arange(log.n_lists), count)))
    one, two = (
        RankSVM(IPS(PowerLaw(1.0)), metric="dcg", C=10.0, tolerance=1e-6).fit(each)
        for each in (counted, repeated)
    )
    assert one.summary_["objective"] == pytest.approx(two.summary_["objective"], rel=1e-6)
    np.testing.assert_allclose(one.weights_, two.weights_, atol=2e-3)


def test_the_search_for_c_goes_by_the_weighted_dcg_of_validation_clicks(pbm_log):
    train, valid = pbm_log(seed=1).log, pbm_log(seed=2).log
    ranker = RankSVM(IPS(PowerLaw(1.0)), metric="dcg", C="search").fit(train, valid=valid)
    best = max(ranker.search_, key=lambda trial: trial.dcg)
    assert ranker.C_ == best.C
    scores = ranker.predict(valid.features)
    total = weight = 0.0
    for a, b in zip(valid.indptr[:-1], valid.indptr[1:], strict=True):
        s, w = scores[valid.document[a:b]], valid.label[a:b] * valid.position[a:b]
        total += dcg_of(w, 1 + np.sum(s[None, :] > s[:, None], axis=1))
        weight += w.sum()
    assert best.dcg == pytest.approx(total / weight, rel=1e-9)


def test_an_early_stop_is_reported(made):
    summary = RankSVM(metric="dcg", C=30.0, max_rounds=1).fit(made.log).summary_
    assert not summary["converged"]
    assert summary["status"].code == "training.not-settled"


@pytest.mark.parametrize("weighting", [PRS(PowerLaw(1.0)), AffineIPS(TRUST), PairwiseDebiasing()],
                         ids=lambda value: type(value).__name__)  # fmt: skip
def test_weights_of_pairs_and_negative_ones_are_refused(made, weighting):
    with pytest.raises(
        OptionError, match=r"metric='dcg' .* Use ut\.IPS\(bias\), .* or metric='arp'"
    ):
        RankSVM(weighting, metric="dcg").fit(made.log)


def test_wrong_options(made):
    with pytest.raises(OptionError, match=r"metric must be one of 'arp', 'dcg'\. Got 'ndcg'"):
        RankSVM(metric="ndcg").fit(made.log)
    with pytest.raises(OptionError, match="ranks among all shown documents, but against is"):
        RankSVM(metric="dcg", against="unclicked").fit(made.log)
    with pytest.raises(OptionError, match="nothing to learn from"):
        RankSVM(metric="dcg").fit(made.log.with_label(np.zeros(len(made.log.label))))
