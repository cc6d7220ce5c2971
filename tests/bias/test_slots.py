"""Positions that hold no results: a curve is over the others, whatever the gaps between them."""

from functools import cache

import numpy as np
import pytest

from untilt import (
    AllPairs,
    ClickLog,
    ContextualBias,
    LambdaMART,
    PivotSwap,
    PositionBias,
    PowerLaw,
    RegressionEM,
    ShuffledTop,
    TrustEM,
    audit,
    estimate,
)
from untilt.clickmodels import PBM, UBM
from untilt.data.layout import Slots
from untilt.errors import IdentifiabilityError
from untilt.weightings import PRS

DENSE = np.arange(1, 7)
GAP = np.array([1, 2, 4, 5, 6, 7])  # an advertisement at 3
PAGE_2 = np.array([11, 12, 14, 15, 16, 17])
THETA = GAP**-0.8


@cache
def sessions(n, seed):
    rng = np.random.default_rng(seed)
    shown = rng.permuted(np.tile(np.arange(6), (n, 1)), axis=1)
    query = rng.integers(0, 40, n)
    liked = 0.2 + 0.1 * ((shown + query[:, None]) % 6)
    return query, shown, (rng.random((n, 6)) < THETA * liked).astype(float), rng.integers(0, 2, n)


def log_at(slots, *, n=4000, seed=0, ranker="shuffle", keep=None):
    """Lists in random order with position-based clicks, shown at these slots of a page."""
    query, shown, click, device = sessions(n, seed)
    keep = np.ones((n, 6), bool) if keep is None else keep
    document = np.repeat(np.arange(40), 6), np.tile(np.arange(6), 40)
    return ClickLog(
        query_id=np.arange(40),
        doc_id=np.arange(240),
        doc_query=document[0],
        indptr=np.concatenate([[0], np.cumsum(keep.sum(axis=1))]),
        query=query,
        document=(query[:, None] * 6 + shown)[keep],
        position=np.tile(slots, (n, 1))[keep],
        label=click[keep],
        features=np.stack([(document[1] + document[0]) % 6, document[1]], axis=1),
        ranker=np.zeros(n, int),
        ranker_names=[ranker],
        context={"device": device},
    )


ESTIMATORS = [
    ShuffledTop(),
    AllPairs(),
    AllPairs(unjoined="bounds"),
    RegressionEM(relevance="counts"),
    TrustEM(relevance="counts"),
    ContextualBias(),
]


@pytest.mark.parametrize("slots", [GAP, PAGE_2], ids=["gap", "second page"])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_only_the_numbers_of_the_positions_change(estimator, slots):
    dense, found = (estimator.fit(log_at(each)).bias_ for each in (DENSE, slots))
    at = slots - 1
    assert found.positions() == slots.tolist()
    assert found.at(slots).tolist() == dense.examination.tolist()
    assert found.low[at].tolist() == dense.low.tolist()
    assert found.covariance[np.ix_(at, at)].tolist() == dense.covariance.tolist()
    left_out = sorted(set(range(1, slots[-1])) - set(slots.tolist()))
    assert found.status.part("bias.slots-left-out").fields["positions"] == tuple(left_out)


def test_the_truth_is_recovered_on_both_sides_of_an_advertisement():
    """Wald's statistic over 20 logs is chi-square with 5 degrees of freedom each."""
    squares = 0.0
    for seed in range(20):
        bias = ShuffledTop().fit(log_at(GAP, n=2000, seed=seed)).bias_
        theta = bias.at(GAP)[1:]
        V = bias.covariance[np.ix_(GAP[1:] - 1, GAP[1:] - 1)] / np.outer(theta, theta)
        gap = np.log(theta / THETA[1:])
        squares += float(gap @ np.linalg.solve(V, gap))
    assert 63 < squares < 145  # 0.1% at either side of chi-square with 100


def test_rankers_and_estimates_are_those_without_the_gap():
    scores = np.random.default_rng(0).random(240)
    values, rankers = [], []
    for slots in (DENSE, GAP):
        log = log_at(slots)
        bias = AllPairs().fit(log).bias_
        values.append(estimate(log, {"new": scores}, bias, metric="dcg@5")["new"])
        ranker = LambdaMART(weighting=PRS(bias), n_trees=5, seed=0).fit(log)
        rankers.append(ranker.predict(log.features).tolist())
    assert rankers[0] == rankers[1]
    assert values[0].value == values[1].value
    assert values[0].interval == values[1].interval


def test_a_place_that_seldom_shows_a_result_is_left_out_not_the_end():
    keep = np.ones((4000, 6), bool)
    keep[20:, 2] = False  # 20 of 4,000 sessions show one there
    log = log_at(DENSE, keep=keep)
    bias = AllPairs().fit(log).bias_
    assert bias.positions() == [1, 2, 4, 5, 6]
    scores, without = {"new": np.arange(240.0)}, log.at_positions(np.arange(1, 7) != 3)
    assert estimate(log, scores, bias)["new"].value == estimate(without, scores, bias)["new"].value
    assert audit(log).is_identified
    assert audit(log).comparable == (1, 2, 4, 5, 6)


def test_names_of_experiments_mean_positions_of_the_page():
    """Swaps "1-k" over the slots 1, 2, 4, 5 against the same swaps over 1, 2, 3, 4."""

    def swapped(slots):
        rng = np.random.default_rng(3)
        names = ["base", *(f"swap:1-{k}" for k in slots[1:])]
        arm, query = rng.integers(0, 4, 8000), rng.integers(0, 20, 8000)
        order = np.tile(np.arange(4), (8000, 1))
        for a in range(1, 4):
            order[arm == a, 0], order[arm == a, a] = a, 0
        click = rng.random((8000, 4)) < THETA[:4] * (0.3 + 0.15 * order)
        return ClickLog(
            np.arange(20), np.arange(80), np.repeat(np.arange(20), 4), np.arange(8001) * 4, query,
            (query[:, None] * 4 + order).ravel(), np.tile(slots, 8000), click.ravel().astype(float),
            ranker=arm, ranker_names=names,
        )  # fmt: skip

    slots = GAP[:4]
    dense, found = (PivotSwap().fit(swapped(each)).bias_ for each in (DENSE[:4], slots))
    assert found.at(slots).tolist() == dense.examination.tolist()
    to_4 = PivotSwap(depth=7).fit(swapped(slots)).bias_
    assert to_4.at([5, 6, 7]).tolist() == [found.at(5)] * 3


def test_options_name_positions_of_the_page():
    log = log_at(GAP)
    assert AllPairs(depth=5).fit(log).bias_.positions() == [1, 2, 4, 5]
    assert ShuffledTop(top=5).fit(log).bias_.positions() == [1, 2, 4, 5]
    named = log_at(GAP, ranker="shuffle-top-4")
    assert ShuffledTop().fit(named).bias_.positions() == [1, 2, 4]
    with pytest.raises(IdentifiabilityError, match=r"counted without position 3"):
        AllPairs().fit(log_at(GAP, n=3))


def test_a_power_law_is_one_of_the_page():
    """theta_k = k^-0.8 at the slots that were measured: eta is 0.8, also of the second page."""
    assert AllPairs().fit(log_at(GAP, n=20_000)).bias_.fit_power_law().eta == pytest.approx(
        0.8, abs=0.05
    )
    exact = PositionBias(PowerLaw(0.8).at(np.arange(1, 8)))

    gap = PositionBias([*exact.at([1, 2]), 0.9, *exact.at([4, 5, 6, 7])], layout=Slots((3,)))
    assert gap.fit_power_law().eta == pytest.approx(0.8)
    assert gap.smooth().at([1, 2, 4]).tolist() == pytest.approx(exact.at([1, 2, 4]).tolist())


def test_files_keep_the_gaps(tmp_path):
    bias = AllPairs().fit(log_at(GAP)).bias_
    bias.save(tmp_path / "bias.json")
    again = PositionBias.load(tmp_path / "bias.json")
    assert again.positions() == GAP.tolist()
    assert again.covariance.tolist() == bias.covariance.tolist()
    assert again.effective_at.tolist() == bias.effective_at.tolist()


def test_curves_by_context_keep_the_gaps():
    dense, found = (
        ContextualBias().fit(log_at(each)).curves_.by_context() for each in (DENSE, GAP)
    )
    for name, curve in found.contexts.items():
        assert curve.positions() == GAP.tolist()
        assert curve.at(GAP).tolist() == dense.contexts[name].examination.tolist()
    scores = {"new": np.arange(240.0)}
    assert (
        estimate(log_at(GAP), scores, found)["new"].value
        == estimate(log_at(DENSE), scores, dense)["new"].value
    )


def test_the_anchor_and_the_curves_of_trust_have_the_numbers_of_the_page():
    from untilt.bias.em.trust_em import TrustAnchor

    def curves(slots, position):
        anchor = TrustAnchor(0.9, 0.05, position)
        return TrustEM(relevance="counts", anchor=anchor).fit(log_at(slots)).curves_

    dense, found = curves(DENSE, 3), curves(GAP, 4)
    assert found.anchor.position == 4
    assert found.alpha[GAP - 1].tolist() == dense.alpha.tolist()


def test_effective_queries_are_those_of_their_position():
    """Only 4 of 40 queries have a fourth result: position 4 counts like 4, position 2 like 40."""
    query = sessions(4000, 0)[0]
    keep = np.ones((4000, 6), bool)
    keep[:, 4:] = False
    keep[:, 3] = query < 4
    bias = ShuffledTop(check=False).fit(log_at(DENSE, keep=keep)).bias_
    assert bias.effective_at[0] == 40
    assert bias.effective_at[1] == pytest.approx(40, rel=0.05)
    assert bias.effective_at[3] == pytest.approx(4, rel=0.05)
    assert bias.effective_queries == bias.effective_at.min()
    rule = bias.status.part("bias.errors-few-queries")
    assert "at position 4" in str(rule)


@pytest.mark.parametrize("model", [PBM(), UBM()], ids=repr)
def test_curves_of_click_models_keep_the_gaps(model):
    dense, found = (model.fit(log_at(each)).bias_ for each in (DENSE, GAP))
    assert found.positions() == GAP.tolist()
    assert found.at(GAP) == pytest.approx(dense.examination, rel=1e-9)
