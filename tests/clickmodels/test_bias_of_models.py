"""`bias_` of PBM and UBM: what it says and when it declines."""

import numpy as np
import pytest

from untilt import PBM, UBM
from untilt.clickmodels.examination import condition_of
from untilt.clickmodels.examination_curve import comparable, fit_curve
from untilt.data.counts import position_counts
from untilt.errors import IdentifiabilityError

BOTH = pytest.mark.parametrize("model", [PBM, UBM])


def fractions(cells):
    """theta_i with sum_d c_di = sum_d C_d n_di theta_i / sum_j n_dj theta_j, by repeating it.

    cells : (impressions, clicks), both (documents, conditions)
    """
    n, c = (np.array(values, dtype=float) for values in cells)
    theta = np.ones(n.shape[1])
    for _ in range(3000):
        share = c.sum(axis=1) / (n @ theta)
        theta = c.sum(axis=0) / (share @ n)
        theta /= theta[0]
    return theta


def table(log, column, n_columns):
    """(impressions, clicks) by document and a column of each row."""
    n, c = np.zeros((2, log.n_documents, n_columns))
    np.add.at(n, (log.document, column), log.row_count)
    np.add.at(c, (log.document, column), log.label * log.row_count)
    shown = n.sum(axis=1) > 0
    return n[shown], c[shown]


def test_relevance_is_taken_out_and_the_prior_plays_no_part(log):
    curve = fractions(table(log, log.position - 1, 4))
    for strength in (0.0, 5.0):
        model = PBM(prior_strength=strength).fit(log)
        assert model.bias_.examination == pytest.approx(curve, rel=1e-5)
        assert model.bias_.relative
        assert model.bias_.status.part("bias.maximum").fields["residual"] < 1e-6


def test_ubm_averages_over_the_last_click(logs):
    make_log, _ = logs
    # Position 2 is reached 70 times without and 50 times with a click at 1, by documents that both
    # positions showed.
    lists = [
        (0, [0, 1], [1, 1]),
        (0, [1, 0], [0, 1]),
        (0, [0, 1], [0, 1]),
        (0, [1, 0], [0, 0]),
        (0, [1, 0], [1, 0]),
        (0, [1, 0], [1, 1]),
    ]
    log = make_log(lists, count=[30, 20, 20, 30, 10, 10])
    # Documents by conditions (1, 0), (2, 0), (2, 1).
    shown = [[50, 50, 20], [70, 20, 30]]
    clicked = [[30, 20, 10], [20, 20, 30]]
    theta = fractions((shown, clicked))
    mean = (70 * theta[1] + 50 * theta[2]) / 120
    assert UBM().fit(log).bias_.examination[1] == pytest.approx(mean, rel=1e-5)


def deep_documents_are_worse(seed, n_sessions=15, n_queries=60, depth=6):
    """Position-based clicks, theta = 1/k; two rankers that both put better documents first."""
    rng = np.random.default_rng(seed)
    theta = 1 / np.arange(1, depth + 1)
    gamma = np.sort(rng.uniform(0.05, 0.95, (n_queries, depth + 2)), axis=1)[:, ::-1]
    lists = []
    for q in range(n_queries):
        orders = [np.argsort(np.arange(depth + 2) + rng.normal(0, 1.5, depth + 2)) for _ in "ab"]
        for _ in range(n_sessions):
            shown = orders[rng.integers(2)][:depth]
            clicks = rng.random(depth) < theta * gamma[q, shown]
            lists.append((q, q * (depth + 2) + shown, clicks))
    return lists, theta


@BOTH
def test_few_sessions_per_document_do_not_bend_the_curve(model, logs):
    make_log, _ = logs
    curves = []
    for seed in range(12):
        lists, theta = deep_documents_are_worse(seed)
        bias = model().fit(make_log(lists).collapse()).bias_
        curves.append(np.log(bias.examination / theta))
    mean = np.mean(curves, axis=0)[1:]
    error = np.std(curves, axis=0, ddof=1)[1:] / np.sqrt(12)
    assert np.all(np.abs(mean) < 4 * error)
    assert np.all(error < 0.08)  # the prior's pull was a quarter at this depth


def test_leaving_a_query_out_in_one_step_is_nearly_the_refit(logs):
    make_log, _ = logs
    lists, theta = deep_documents_are_worse(0, n_sessions=40, n_queries=25)
    log = make_log(lists)
    curve = fit_curve(position_counts(log), theta)
    for q in range(0, 25, 4):
        rest = log.take(np.flatnonzero(log.query != q))
        without = fit_curve(position_counts(rest), theta).log_mean
        moved = curve.log_mean - without
        assert curve.by_query[q] == pytest.approx(moved, abs=0.1 * np.abs(moved).max())


def test_a_condition_never_clicked_counts_as_never_examined(logs):
    make_log, _ = logs
    # Nobody clicks at 2 after a click at 1: that is half of the sessions, and theta there is 0.
    lists = [(0, [0, 1], [1, 0]), (0, [1, 0], [1, 0]), (0, [0, 1], [0, 1]), (0, [1, 0], [0, 1])]
    log = make_log(lists, count=[30, 20, 20, 30])
    found = comparable(
        position_counts(
            log,
            position=condition_of(log.position, np.array([0, 1, 0, 1, 0, 0, 0, 0])).astype(
                np.int32
            ),
            depth=3,
        )
    )
    assert found.all()
    theta = fractions(([[50, 30, 20], [50, 20, 30]], [[30, 30, 0], [20, 20, 0]]))
    bias = UBM().fit(log).bias_
    assert bias.examination[1] == pytest.approx(theta[1] / 2, rel=1e-5)
    assert bias.high[1] > bias.low[1]


def test_conditions_of_ubm_are_all_different():
    pairs = [(k, last) for k in range(1, 8) for last in range(k)]
    position, last = np.array(pairs).T
    assert condition_of(position, last).tolist() == list(range(1, 29))


@BOTH
def test_fixed_lists_have_no_bias_to_tell(model, logs):
    make_log, _ = logs
    log = make_log([(0, [0, 1], [1, 0]), (0, [0, 1], [0, 1])], count=[5, 3])
    fitted = model().fit(log)
    assert np.all(np.isfinite(fitted.click_probability(log)))  # prediction does not need it
    with pytest.raises(IdentifiabilityError, match="position"):
        fitted.bias_  # noqa: B018


def test_pbm_by_hand(logs):
    make_log, _ = logs
    # Two documents, each 100 times at both positions: rates 0.6, 0.3 and 0.4, 0.2 are products of
    # theta = (1, 0.5) and gamma = (0.6, 0.4), and nothing else fits them as well.
    lists = [
        (0, [0, 1], [1, 1]),
        (0, [0, 1], [1, 0]),
        (0, [0, 1], [0, 0]),
        (0, [1, 0], [1, 1]),
        (0, [1, 0], [1, 0]),
        (0, [1, 0], [0, 0]),
    ]
    log = make_log(lists, count=[20, 40, 40, 30, 10, 60])
    model = PBM(prior_strength=0.0, tolerance=1e-8).fit(log)
    assert model.examination_ == pytest.approx([1, 0.5], abs=1e-4)
    assert model.relevance_ == pytest.approx([0.6, 0.4], abs=1e-4)


def test_a_position_examined_more_than_the_first(logs):
    make_log, _ = logs
    # The same page upside down: position 2 sees twice the clicks of position 1.
    lists = [
        (0, [1, 0], [1, 1]),
        (0, [1, 0], [0, 1]),
        (0, [1, 0], [0, 0]),
        (0, [0, 1], [1, 1]),
        (0, [0, 1], [0, 1]),
        (0, [0, 1], [0, 0]),
    ]
    log = make_log(lists, count=[20, 40, 40, 30, 10, 60])
    model = PBM(prior_strength=0.0, tolerance=1e-8).fit(log)
    assert model.bias_.examination == pytest.approx([1, 2], abs=1e-3)
