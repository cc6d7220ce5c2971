"""Pairwise debiasing inside LambdaMART, against Algorithm 1 of its paper done by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from untilt import PRS, LambdaMART, LinearRanker, PairwiseDebiasing, PositionBias, objective
from untilt.errors import OptionError
from untilt.facts import codes
from untilt.rankers.learning_data import training_lists
from untilt.rankers.trees.objectives import PairTreeObjective

SIGMA = 2.0
SMALL: dict[str, Any] = {
    "n_trees": 6, "n_leaves": 5, "min_data_in_leaf": 3, "bagging_fraction": 1.0, "n_threads": 1,
}  # fmt: skip


def session_pairs(log, scores):
    """(k, l, row i, row j, x, |dNDCG|) of every clicked-unclicked pair, session by session."""
    row = np.unique(log.document, return_inverse=True)[1]
    for i in range(log.n_lists):
        here = slice(log.indptr[i], log.indptr[i + 1])
        click, s, rows, places = log.label[here], scores[row[here]], row[here], log.position[here]
        rank = np.empty(len(s))
        rank[np.argsort(-s, kind="stable")] = np.arange(1, len(s) + 1)
        ideal = sum(1 / np.log2(1 + r) for r in range(1, int(click.sum()) + 1))
        for a in np.flatnonzero(click == 1):
            for b in np.flatnonzero(click == 0):
                delta = abs(1 / np.log2(1 + rank[a]) - 1 / np.log2(1 + rank[b])) / ideal
                yield places[a], places[b], rows[a], rows[b], s[a] - s[b], delta


def losses_by_hand(log, scores, *, normed=False):
    """S[k, l] = sum of log(1 + exp(-sigma x)) |dNDCG|: equation 26's L_ij, summed by position.

    The authors' program divides both the lambdas and these losses by 0.01 + |x|.
    """
    S = np.zeros((log.depth, log.depth))
    for k, l, _, _, x, delta in session_pairs(log, scores):
        norm = 0.01 + abs(x) if normed else 1.0
        S[k - 1, l - 1] += np.log(1 + np.exp(-SIGMA * x)) * delta / norm
    return S


def ratios_by_hand(S, t_plus, t_minus, p):
    """Equations 30 and 31, entry by entry."""
    K = len(S)
    lost = [sum(S[k, l] / t_minus[l] for l in range(K)) for k in range(K)]
    won = [sum(S[k, l] / t_plus[k] for k in range(K)) for l in range(K)]
    root = 1 / (p + 1)
    return (
        np.array([(lost[k] / lost[0]) ** root for k in range(K)]),
        np.array([(won[l] / won[0]) ** root for l in range(K)]),
    )


def gradient_by_hand(log, scores, t_plus, t_minus):
    """Equations 35 and 36; one session weighs 1 over the mean sessions of a query."""
    weight = log.n_queries / log.n_lists
    gradient = np.zeros(len(scores))
    for k, l, i, j, x, delta in session_pairs(log, scores):
        slope = SIGMA / (1 + np.exp(SIGMA * x)) * delta / (t_plus[k - 1] * t_minus[l - 1])
        gradient[i] -= weight * slope
        gradient[j] += weight * slope
    return gradient


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_three_rounds_by_hand(made, rng, p):
    log = made.log
    n = len(np.unique(log.document))
    lambdas = objective(log, PairwiseDebiasing(p=p), sigma=SIGMA, pair_norm=False)
    t_plus = t_minus = np.ones(5)
    assert lambdas(np.zeros(n))[0] == pytest.approx(
        gradient_by_hand(log, np.zeros(n), t_plus, t_minus), abs=1e-10
    )
    scores = np.zeros(n)
    for _ in range(2):
        scores = scores + rng.normal(size=n)
        t_plus, t_minus = ratios_by_hand(losses_by_hand(log, scores), t_plus, t_minus, p)
        gradient, _ = lambdas(scores)
        assert gradient == pytest.approx(gradient_by_hand(log, scores, t_plus, t_minus), abs=1e-10)
        assert lambdas.history[-1].plus == pytest.approx(t_plus, rel=1e-10)
        assert lambdas.history[-1].minus == pytest.approx(t_minus, rel=1e-10)
    assert len(lambdas.history) == 2


@pytest.mark.parametrize("losses", ["sum", "mean"])
def test_positions_from_bins_on_share_a_ratio(losses):
    S = np.arange(1.0, 26.0).reshape(5, 5)
    own = PairwiseDebiasing(bins=None, losses=losses).update(S, None)
    pooled = PairwiseDebiasing(bins=3, losses=losses).update(S, None)
    by_row, by_column = S.sum(axis=1), S.sum(axis=0)
    together = np.sum if losses == "sum" else np.mean
    tail = together(by_row[2:]) / by_row[0], together(by_column[2:]) / by_column[0]
    assert pooled.plus == pytest.approx([1.0, own.plus[1], *[tail[0]] * 3])
    assert pooled.minus == pytest.approx([1.0, own.minus[1], *[tail[1]] * 3])
    assert PairwiseDebiasing(bins=5).update(S, None).plus == pytest.approx(own.plus)
    with pytest.raises(OptionError, match="bins must be at least 2"):
        PairwiseDebiasing(bins=1)


def test_twice_the_hessian_is_half_the_learning_rate(made, monkeypatch):
    """The authors' program has 8 rho (1 - rho), the text's sigma gives 4: half the step."""
    options = {**SMALL, "feature_fraction": 1.0, "min_sum_hessian_in_leaf": 0.0}
    x = made.log.features
    short = LambdaMART(PairwiseDebiasing(), **options, learning_rate=0.05).fit(made.log).predict(x)
    call = PairTreeObjective.__call__

    def doubled(self, scores, dataset=None):
        gradient, hessian = call(self, scores, dataset)
        return gradient, 2 * hessian

    monkeypatch.setattr(PairTreeObjective, "__call__", doubled)
    theirs = LambdaMART(PairwiseDebiasing(), **options, learning_rate=0.1).fit(made.log).predict(x)
    assert theirs == pytest.approx(short, abs=1e-6)


def test_ranker_keeps_the_history_of_both_ratios(made):
    ranker = LambdaMART(PairwiseDebiasing(), **SMALL).fit(made.log)
    assert len(ranker.bias_history_) == 5  # the first of the 6 trees is grown with ratios of 1
    for plus, minus in ranker.bias_history_:
        assert plus.shape == minus.shape == (5,)
        assert plus[0] == minus[0] == 1
    one_tree = LambdaMART(PairwiseDebiasing(), **{**SMALL, "n_trees": 1}).fit(made.log)
    scores = one_tree.predict(made.log.features[np.unique(made.log.document)])
    S = losses_by_hand(made.log, scores, normed=True)
    t_plus, t_minus = ratios_by_hand(S, np.ones(5), np.ones(5), p=0)
    assert ranker.bias_history_[0].plus == pytest.approx(t_plus, rel=1e-6)
    assert ranker.bias_history_[0].minus == pytest.approx(t_minus, rel=1e-6)


def test_bias_is_the_last_t_plus(made):
    ranker = LambdaMART(PairwiseDebiasing(), **SMALL).fit(made.log)
    assert isinstance(ranker.bias_, PositionBias)
    assert ranker.bias_.examination == pytest.approx(ranker.bias_history_[-1].plus)
    assert ranker.bias_.relative
    assert "pairwise debiasing (p=0)" in repr(ranker.bias_)
    assert codes(ranker.bias_.status) == ["bias.boosting-rounds", "bias.no-interval-learned"]
    assert ranker.bias_.status.parts[0].fields["rounds"] == 5
    assert (ranker.bias_.is_known, ranker.bias_.has_interval) == (False, False)
    # What it learned is a bias like any other: it can be given to a table.
    LambdaMART(PRS(ranker.bias_), **SMALL).fit(made.log)


def test_larger_p_holds_the_ratios_closer_to_one(made):
    fitted = [LambdaMART(PairwiseDebiasing(p=p), **SMALL).fit(made.log) for p in (0, 1, 4)]
    distance = [np.abs(np.log(ranker.bias_.examination)).max() for ranker in fitted]
    assert distance[0] > distance[1] > distance[2] > 0


def test_t_plus_falls_where_examination_falls(pbm_log):
    """With strong bias and random orderings the learned curve goes the right way."""
    made = pbm_log(n_queries=30, sessions=60, orderings=5, theta=[1, 0.6, 0.35, 0.2, 0.1])
    ranker = LambdaMART(PairwiseDebiasing(), **{**SMALL, "n_trees": 30}).fit(made.log)
    assert np.all(np.diff(ranker.bias_.examination) < 0)


def test_a_given_table_learns_no_bias(made):
    ranker = LambdaMART(PRS(made.theta), **SMALL).fit(made.log)
    assert ranker.bias_ is None
    assert ranker.bias_history_ == []


def test_early_stopping_drops_the_ratios_of_the_dropped_trees(pbm_log):
    made, valid = pbm_log(seed=1), pbm_log(seed=2)
    options: dict[str, Any] = {**SMALL, "n_trees": 60, "learning_rate": 0.5, "early_stopping": 3}
    ranker = LambdaMART(PairwiseDebiasing(), **options).fit(made.log, valid=valid.log)
    assert ranker.n_trees_ < 57
    assert len(ranker.bias_history_) == ranker.n_trees_
    assert ranker.bias_.examination == pytest.approx(ranker.bias_history_[-1].plus)


def test_no_pair_at_position_one_is_named(made):
    click = np.where(made.log.position == 1, 0.0, made.log.label)
    log = made.log.with_label(click)
    ranker = LambdaMART(PairwiseDebiasing(), **SMALL)
    with pytest.raises(OptionError, match=r"position 1 has no clicked-unclicked pair"):
        ranker.fit(log)


def cut_lists(log, rng, *, shortest=2, gap=False):
    """The same sessions, each list cut after a random number of documents (or a row taken out)."""
    length = rng.integers(shortest, log.depth + 1, log.n_lists)
    keep = log.position <= np.repeat(length, np.diff(log.indptr))
    if gap:
        keep &= (log.position != 2) | np.repeat(rng.random(log.n_lists) < 0.5, np.diff(log.indptr))
    kept = np.add.reduceat(keep, log.indptr[:-1])
    return replace(
        log,
        indptr=np.concatenate([[0], np.cumsum(kept)]),
        document=log.document[keep],
        position=log.position[keep],
        label=log.label[keep],
    )


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("query_weight", ["sessions", "equal"])
def test_sessions_that_showed_two_positions_by_hand(made, rng, gap, query_weight):
    log = cut_lists(made.log, rng, gap=gap)
    lists = training_lists(log)
    expected = np.zeros((log.depth, log.depth))
    for i, weight in enumerate(lists.list_weights(query_weight)):
        places = lists.position_index[lists.indptr[i] : lists.indptr[i + 1]]
        expected[np.ix_(places, places)] += weight
    assert lists.shown_together(query_weight) == pytest.approx(expected)


def test_the_ratios_of_short_lists_by_hand(made, rng):
    """S over the sessions that showed both positions, then equations 30 and 31."""
    log = cut_lists(made.log, rng)
    boosted = objective(log, PairwiseDebiasing())
    scores = rng.normal(size=training_lists(log).n_documents)
    boosted(scores)
    together = np.zeros((log.depth, log.depth))
    for i in range(log.n_lists):
        places = log.position[log.indptr[i] : log.indptr[i + 1]] - 1
        together[np.ix_(places, places)] += 1
    plus, minus = ratios_by_hand(
        losses_by_hand(log, scores, normed=True) / together,
        np.ones(log.depth),
        np.ones(log.depth),
        0,
    )
    assert boosted.history[-1].plus == pytest.approx(plus)
    assert boosted.history[-1].minus == pytest.approx(minus)


def test_lists_of_unequal_length_do_not_look_like_position_bias(pbm_log, rng):
    """Lists in random order, cut at random: few reach position 8, and that is no bias."""
    made = pbm_log(n_queries=60, n_documents=8, shown=8, orderings=30, sessions=400, seed=3)
    log = cut_lists(made.log, rng)
    reaching = np.mean(np.diff(log.indptr) == 8)
    assert reaching < 0.2

    def learned(data, losses):
        found = LambdaMART(PairwiseDebiasing(losses=losses), **SMALL).fit(data)
        return found.bias_.examination[7], found.bias_history_[-1].minus[7]

    whole, mean, summed = (
        learned(*case) for case in ((made.log, "sum"), (log, "mean"), (log, "sum"))
    )
    assert mean == pytest.approx(whole, rel=0.25)
    assert summed[0] < 0.25 * whole[0]
    assert whole[1] > 1.5  # no-clicks grow down the page; sums over cut lists say the opposite
    assert summed[1] < 0.5


def test_a_linear_ranker_finds_the_examination_from_lists_of_unequal_length(pbm_log, rng):
    """Its loss has no |dZ|, which differs between short and long lists."""
    made = pbm_log(n_queries=60, n_documents=8, shown=8, orderings=30, sessions=400, seed=3)
    log = cut_lists(made.log, rng)
    mean, summed = (
        LinearRanker(PairwiseDebiasing(losses=losses)).fit(log).bias_.examination
        for losses in ("mean", "sum")
    )
    assert mean[[1, 3, 5, 7]] == pytest.approx(made.theta[[1, 3, 5, 7]], rel=0.15)
    assert summed[7] < 0.3 * made.theta[7]
