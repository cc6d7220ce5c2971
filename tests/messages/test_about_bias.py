"""The wording of what is said about curves of position bias and how EM ended: each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages import about_bias

RATES = {"relevant": 0.67, "irrelevant": 0.44, "position": 1}
SAID: dict[str, tuple[dict[str, Any], str]] = {
    "em.converged": ({"steps": 12}, "converged in 12 steps"),
    "em.stopped": (
        {"steps": 12},
        "stopped after 12 steps: the M step raised the likelihood no further",
    ),
    "em.out-of-steps": (
        {"steps": 12},
        "not converged after 12 steps; allow more, or a larger tolerance",
    ),
    "bias.curve-is-right": ({}, "the curve is right"),
    "bias.position-based": (
        {},
        "clicks follow the position-based model: P(click) = theta_k gamma",
    ),
    "bias.labels-position-based": ({}, "labels above 0 follow the position-based model"),
    "bias.features-identify": ({}, "the features separate relevance from position"),
    "bias.clicks-proportional": ({}, "clicks are proportional to relevance at each position"),
    "bias.no-clicks-proportional": (
        {},
        "no-clicks are proportional to irrelevance at each position",
    ),
    "bias.trust-model": (
        {},
        "clicks follow P(click) = theta_k (eps+_k gamma + eps-_k (1 - gamma))",
    ),
    "bias.slopes": (
        {"least": 0.3, "steepest": 2.0},
        "where it is not measured, examination falls as position^-slope with a slope from 0.3 to 2",
    ),
    "bias.bounded": (
        {"positions": (4, 5), "level": 0.95},
        "nothing joins positions 4..5 to position 1: bounds there, which hold with 95%, in place "
        "of an estimate",
    ),
    "bias.same-relevance": ({}, "a document is as relevant at one position as at another"),
    "bias.features-explain": (
        {},
        "position depends on relevance through the features alone: whoever ordered the lists knew "
        "nothing else about it",
    ),
    "bias.random-order": (
        {"top": 5},
        "the top 5 were in random order, all orders equally likely",
    ),
    "bias.random-swaps": ({}, "whether a list was swapped was drawn at random"),
    "bias.lists-alike": ({}, "lists of one length are alike, swapped or not"),
    "bias.shuffle-passed": (
        {"p_values": {"positions": 0.31, "orders": 1.0}},
        "random order tested: positions p 0.31, orders p 1",
    ),
    "bias.shuffle-untested": (
        {},
        "random order believed: no two sessions show the same documents, and there is nothing else "
        "to test it by",
    ),
    "bias.shuffle-reloads": (
        {"orders": 980, "sessions": 1000, "expected": 999.9, "share": 0.01, "p_value": 1e-6},
        "the same orders come back a little too often (980 different ones in 1,000 sessions, where "
        "random order gives about 1,000): pages that were loaded again?",
    ),
    "bias.shuffle-positions": (
        {"mean": 1.25, "z": 12.3, "p_value": 1e-30},
        "documents keep to their positions: two sessions with the same documents show 1.250 of "
        "them at the same position on average, where random order gives 1 (z 12.3, p 1e-30)",
    ),
    "bias.shuffle-orders": (
        {"orders": 80, "sessions": 1200, "expected": 1199.6, "share": 0.5, "p_value": 1e-9},
        "the same orders come back: 80 different ones in 1,200 sessions, where random order gives "
        "about 1,200 (p 1e-09)",
    ),
    "bias.shuffle-usual-order": (
        {"correlation": 0.2, "z": 8.0, "p_value": 1e-15},
        "positions follow those of the same documents in other sessions: correlation 0.200, where "
        "random order gives 0 (z 8.0, p 1e-15)",
    ),
    "bias.shuffle-feature": (
        {"feature": "price", "correlation": -0.1, "z": -5.0, "p_value": 1e-6},
        "positions follow the feature price: correlation -0.100, where random order gives 0 (z "
        "-5.0, p 1e-06)",
    ),
    "bias.shuffle-clicked-only": (
        {},
        "nearly every shuffled session has a click, others were left out: tested for large "
        "departures alone",
    ),
    "bias.cut-at-no-click": (
        {"position": 9, "top": 8},
        "positions 1..8 alone: position 9 has no click to compare in these lists",
    ),
    "bias.swaps-passed": ({"p_values": {"lists": 0.5}}, "swaps tested: lists p 0.5"),
    "bias.swaps-untested": (
        {},
        "swaps believed: queries do not repeat, and there is nothing else to test them by",
    ),
    "bias.swap-share-differs": (
        {},
        "the share of swapped sessions differs between queries or lists: right only because "
        "documents are compared with themselves",
    ),
    "bias.swap-arms-by-query": (
        {"statistic": 1234.5, "expected": 200.0, "p_value": 1e-9},
        "the share of swapped sessions differs between queries: chi-square 1,234, where a random "
        "draw gives about 200 (p 1e-09)",
    ),
    "bias.swap-arms-by-list": (
        {"statistic": 1234.5, "expected": 200.0, "p_value": 1e-9},
        "whether a list is swapped depends on its documents: chi-square 1,234, where a random draw "
        "gives about 200 (p 1e-09)",
    ),
    "bias.swap-lists": (
        {"matched": 0.5, "expected": 0.97, "unchanged": 0.48, "z": 20.0, "p_value": 1e-80},
        "swapped lists are not the usual ones with two documents exchanged: swapped back, 50.0% "
        "are a list that the query shows without a swap, where at least 97.0% should be; 48.0% "
        "show the usual list unchanged (z 20.0, p 1e-80)",
    ),
    "bias.swap-feature": (
        {
            "feature": "price",
            "upper": 1,
            "lower": 2,
            "correlation": 0.3,
            "z": 9.0,
            "p_value": 1e-18,
        },
        "whether positions 1 and 2 are swapped depends on the documents: correlation 0.300 with "
        "the feature price, where a random draw gives 0 (z 9.0, p 1e-18)",
    ),
    "bias.power-law": ({}, "theta_k = (1/k)^eta"),
    "bias.never-rises": ({}, "examination never rises with the position"),
    "bias.quadratic": ({}, "examination is quadratic in the position"),
    "bias.constant-below": ({"position": 8}, "constant below position 8"),
    "bias.scale-given": (
        RATES,
        "given: relevant documents are clicked with probability 0.67 at position 1, irrelevant "
        "ones with 0.44",
    ),
    "bias.scale-convention": (
        RATES,
        "a convention: gamma 0 and 1 are the documents at the 1% and 99% quantile of relevance, "
        "so that relevant documents are clicked with probability 0.67 at position 1, irrelevant "
        "ones with 0.44",
    ),
    "bias.even-eps-plus": ({}, "a convention: eps+ is the same at all positions"),
    "bias.examination-given": ({}, "examination as given"),
    "bias.given": ({}, "given"),
    "bias.truth": ({}, "the truth of a simulation"),
    "bias.boosting-rounds": ({"rounds": 50}, "after 50 boosting rounds"),
    "bias.epochs": ({"epochs": 3}, "after 3 epochs"),
    "bias.maximum": (
        {"steps": 4, "residual": 2.4e-10},
        "converged in 4 steps, largest gradient 2e-10 of all clicks",
    ),
    "bias.no-maximum": (
        {"steps": 4, "residual": 0.02},
        "NOT CONVERGED after 4 steps, largest gradient 2e-02 of all clicks",
    ),
    "bias.shared-clicks": (
        {"clicks": 1204.0},
        "1,204 clicks on documents shown at several positions",
    ),
    "bias.few-clicks": (
        {"positions": (8, 9), "fewer_than": 10},
        "fewer than 10 clicks at positions 8..9: rough intervals there",
    ),
    "bias.no-clicks": ({"positions": (9,)}, "no click at position 9: only an upper bound there"),
    "bias.not-examined": (
        {"positions": (9,)},
        "no click at position 9: next to nothing is examined there",
    ),
    "bias.few-impressions": (
        {"mean": 12.3},
        "a document was shown only 12 times on average: expect a curve that is too flat, see "
        "AllPairs",
    ),
    "bias.shuffled": (
        {"sessions": 12_000, "clicks": 3456.0},
        "12,000 shuffled sessions, 3,456 clicks",
    ),
    "bias.left-out": ({"first": 6, "last": 10}, "positions 6..10 left out"),
    "bias.swapped": ({"sessions": 12_000}, "12,000 sessions, swapped or not"),
    "bias.eta": ({"eta": 1.0}, "eta 1.000"),
    "bias.eta-fitted": (
        {"eta": 1.0, "std_error": 0.02, "p_value": 0.31},
        "eta 1.000 +- 0.020; fits with p 0.31",
    ),
    "bias.smoothed": ({"flat": 2, "steps": 9}, "2 of 9 steps held flat"),
    "bias.quadratic-fitted": (
        {"p_value": 0.31, "outliers": (4, 7)},
        "fits with p 0.31; left out as outliers: positions 4, 7",
    ),
    "bias.trees": ({"n_trees": 80}, "80 trees per fold, where held-out clicks are most likely"),
    "bias.trees-used-up": (
        {"n_trees": 500},
        "all 500 trees per fold grown; more could fit held-out clicks better",
    ),
    "bias.networks": (
        {"best": 31, "epochs": 51},
        "networks of epoch 31 of 51, where held-out clicks are most likely",
    ),
    "bias.epochs-used-up": (
        {"best": 99, "epochs": 100},
        "networks of epoch 99 of all 100; more could fit held-out clicks better",
    ),
    "bias.strata": ({"n_strata": 96}, "96 strata"),
    "bias.any-time": (
        {},
        "intervals hold at every look while the experiment runs, so they may be watched",
    ),
    "bias.errors-one-query": ({}, "errors from session noise: one query alone"),
    "bias.errors-by-query": (
        {"n_queries": 1500},
        "errors the larger of clustered by query (1,500 queries) and session noise",
    ),
    "bias.errors-few-queries": (
        {"n_queries": 500, "effective": 8.4},
        "errors the larger of clustered by query (500 queries, worth 8.4 with even traffic: few) "
        "and session noise",
    ),
    "bias.errors-resampled": (
        {"n_resamples": 40, "n_queries": 1500},
        "errors from 40 resamples of 1,500 queries",
    ),
    "bias.errors-bootstrapped": (
        {"n_samples": 20},
        "errors from 20 bootstrap samples of queries",
    ),
    "bias.smooth-grid": ({}, "neighbouring cells of the grid are examined much alike"),
    "bias.grid-step": (
        {"step": 0.4123},
        "smooth over the grid: neighbours differ by about 0.41 on the log scale",
    ),
    "bias.no-interval-smoothed": (
        {},
        "no interval: in one part of the contexts a network is off by as much as it smooths over "
        "its neighbours, and no resampling shows how much; the average over all contexts has one",
    ),
    "bias.no-interval-learned": (
        {},
        "no interval: the curve was learned along with a ranker, so what the ranker does not know "
        "of relevance counts as examination, and no resampling shows how much",
    ),
    "bias.spread-resampled": (
        {"n_resamples": 20, "n_queries": 1250, "deviation": (0.0, 0.081, 0.043)},
        "over 20 resamples of 1,250 queries the curve moved by up to 8% (one standard deviation, "
        "position 2), which is only a part of its error",
    ),
    "bias.errors-unknown": ({}, "errors not known: set n_bootstrap=20"),
    "bias.errors-incidental": (
        {},
        "errors include what the relevance of single documents, fitted to few clicks, may change",
    ),
    "bias.trust-found": (
        {"p_value": 0.0012, "n_queries": 1200},
        "trust bias found: clicks are no product of position and relevance "
        "(p 0.0012, 1,200 queries)",
    ),
    "bias.trust-untold": (
        {"p_value": 0.4, "n_queries": 20},
        "no trust bias to be seen (p 0.4, 20 queries); shifts of the curves may "
        "also mean that queries differ in examination",
    ),
    "bias.trust-untested": (
        {"n_queries": 0},
        "trust bias not tested: 0 queries showed documents at several positions, too few to "
        "compare them",
    ),
    "bias.trust-contrary": (
        {"p_value": 0.01, "n_queries": 50},
        "clicks are no product of position and relevance (p 0.01, 50 queries), "
        "but not as trust in the top makes them: look at `untilt audit`",
    ),
    "bias.too-few-impressions": (
        {"mean": 2.4},
        "a document was shown only 2.4 times on average: trust bias cannot be told from "
        "relevance, and the curve has no interval. Learn relevance from features, or see AllPairs",
    ),
    "bias.no-interval-few-documents": (
        {"n_documents": 200, "least": 360},
        "only 200 documents, and strata of like ones need 360: the curve has no interval. Take a "
        "log of more queries, or see AllPairs",
    ),
    "bias.no-interval-all-clicked": (
        {"share": 0.98},
        "98% of what was shown belongs to documents that are always clicked: their clicks tell no "
        "position from another, and the curve has no interval",
    ),
    "bias.gap": (
        {"positions": (5, 11)},
        "nothing was shown at positions 5, 11: a guess between the neighbours there",
    ),
    "bias.errors-coarser-strata": ({}, "errors include what coarser strata change"),
    "bias.curve-as-steep": (
        {"power": 1.04, "std_error": 0.05, "n_queries": 1200},
        "as steep as the clicks on documents that moved say: its power 1.04 +- 0.05 fits best, "
        "1,200 queries",
    ),
    "bias.curve-too-steep": (
        {"power": 0.5, "std_error": 0.05, "n_queries": 1200},
        "the curve is steeper than the clicks on documents that moved say: its power 0.50 +- 0.05 "
        "fits best (1,200 queries). Estimate the curve from this log: `untilt bias`",
    ),
    "bias.curve-too-flat": (
        {"power": 2.0, "std_error": 0.05, "n_queries": 1200},
        "the curve is flatter than the clicks on documents that moved say: its power 2.00 +- 0.05 "
        "fits best (1,200 queries). Estimate the curve from this log: `untilt bias`",
    ),
    "bias.curve-nothing-moved": (
        {"n_clicks": 12.0},
        "12 clicks on documents shown at several positions: too few to tell a steep curve from a "
        "flat one",
    ),
}


@pytest.mark.parametrize("code", about_bias.MESSAGES)
def test_wording(code):
    fields, sentence = SAID[code]
    assert Fact(code, **fields) == sentence


def test_sentences_without_the_optional_part():
    assert Fact("bias.left-out", first=3, last=3) == "position 3 left out"
    assert Fact("bias.smoothed", flat=0, steps=9) == "never rose"
    assert Fact("bias.quadratic-fitted", p_value=0.31, outliers=()) == "fits with p 0.31"
