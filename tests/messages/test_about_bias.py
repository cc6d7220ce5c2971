"""The wording of what is said about curves of position bias and how EM ended: each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages import about_bias, about_em

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
    "bias.errors-one-query": ({}, "errors from session noise: one query alone"),
    "bias.errors-by-query": (
        {"n_queries": 1500},
        "errors the larger of clustered by query (1,500 queries) and session noise",
    ),
    "bias.errors-few-queries": (
        {"n_queries": 9},
        "errors the larger of clustered by query (9 queries, too few to trust) and session noise",
    ),
    "bias.errors-resampled": (
        {"n_resamples": 40, "n_queries": 1500},
        "errors from 40 resamples of 1,500 queries",
    ),
    "bias.errors-bootstrapped": (
        {"n_samples": 20},
        "errors from 20 bootstrap samples of queries",
    ),
    "bias.errors-given-relevance": ({}, "the learned relevance taken as given"),
    "bias.errors-unknown": ({}, "errors not known: set n_bootstrap=20"),
    "bias.errors-coarser-strata": ({}, "errors include what coarser strata change"),
}


@pytest.mark.parametrize("code", about_bias.MESSAGES | about_em.MESSAGES)
def test_wording(code):
    fields, sentence = SAID[code]
    assert Fact(code, **fields) == sentence


def test_sentences_without_the_optional_part():
    assert Fact("bias.left-out", first=3, last=3) == "position 3 left out"
    assert Fact("bias.smoothed", flat=0, steps=9) == "never rose"
    assert Fact("bias.quadratic-fitted", p_value=0.31, outliers=()) == "fits with p 0.31"
