"""Logs without features: no ranker can be trained, but documents with clicks can be reordered."""

from typing import Any

import numpy as np

from untilt import catalog
from untilt._core.arrays import FloatArray
from untilt.bias.curve import PositionBias
from untilt.clickmodels.compare import compare_click_models
from untilt.data.clicklog import ClickLog
from untilt.errors import UntiltError
from untilt.evaluation.estimate import estimate
from untilt.workflow.candidates import RAW
from untilt.workflow.options import RunOptions
from untilt.workflow.stage_judge import chosen_clip, judged
from untilt.workflow.stage_read import PARTS, Data, as_clicks

STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
BY_RELEVANCE = "corrected clicks"
WHY = (
    "This log has no features, so no ranker can be trained that scores new documents or queries: "
    "give --documents TABLE or --features PATTERN. What can be done is to order the documents that "
    "were shown often by their own clicks, corrected for position."
)


def reorder(data: Data, bias: PositionBias, options: RunOptions) -> dict[str, Any]:
    """The documents of each query by clicks of other sessions, raw and corrected, judged."""
    train, valid, test = (data.cut(name, bias.depth) for name in PARTS)
    learn = data.not_test()
    learn = learn if learn.depth <= bias.depth else learn.top(bias.depth)
    curves = {RAW: PositionBias(np.ones(bias.depth), method="none"), BY_RELEVANCE: bias}
    strength = {name: best_strength(train, valid, curve) for name, curve in curves.items()}

    def scores(log: ClickLog) -> dict[str, FloatArray]:
        return {name: relevance(log, curves[name], strength=strength[name]) for name in curves}

    before = scores(train)
    clip = chosen_clip(valid, before[RAW], bias, options)
    best = estimate(
        valid, before, bias, metric=options.metric, evaluator=options.evaluator, clip=clip,
        among=options.among,
    ).best.system  # fmt: skip
    return judged(test, scores(learn), bias, options, chosen=best, clip=clip)


def relevance(log: ClickLog, bias: PositionBias, *, strength: float) -> FloatArray:
    r"""(documents,) clicks per examined impression, shrunk towards the mean of all documents.

        g_d = (y_d + m g) / (e_d + m),  y_d = sum (c - beta_k),  e_d = sum alpha_k over impressions

    with m the `strength`, in examined impressions, and g = sum y_d / sum e_d.
    """
    alpha, beta = bias.affine()
    place, weight = log.position - 1, log.row_count
    gained = np.bincount(log.document, weight * (log.label - beta[place]), log.n_documents)
    tried = np.bincount(log.document, weight * alpha[place], log.n_documents)
    mean = gained.sum() / max(tried.sum(), 1e-300)
    return np.clip((gained + strength * mean) / (tried + strength), 0, None)


def best_strength(train: ClickLog, valid: ClickLog, bias: PositionBias) -> float:
    """The strength m of the likeliest clicks on other sessions, of 1, 3, 10, ..., 1000."""
    alpha, beta = bias.affine()
    place, weight = valid.position - 1, valid.row_count
    clicked = valid.label > 0

    def log_likelihood(strength: float) -> float:
        g = relevance(train, bias, strength=strength)[valid.document]
        p = np.clip(alpha[place] * g + beta[place], 1e-6, 1 - 1e-6)
        return float(np.dot(weight, np.log(np.where(clicked, p, 1 - p))))

    return max(STRENGTHS, key=log_likelihood)


def click_models(data: Data, options: RunOptions) -> dict[str, Any]:
    """Click models on held-out sessions: is a curve over positions enough?"""
    from untilt.clickmodels.compare import advise

    learn, test = as_clicks(data.not_test()), as_clicks(data.parts["test"])
    try:
        found = compare_click_models(
            learn,
            test,
            models=catalog.names("click model", choose="run"),
            level=options.level,
            seed=options.seed,
        )
    except UntiltError as error:
        return {"models": [], "notes": [f"Click models could not be compared: {error}"]}
    rows = [
        {
            "model": each.name,
            "log_likelihood": each.log_likelihood.value,
            "low": each.log_likelihood.interval.low,
            "high": each.log_likelihood.interval.high,
            "perplexity": each.perplexity.value,
            "conditional_perplexity": each.conditional_perplexity.value,
        }
        for each in found
    ]
    advice = advise(found)
    return {"models": rows, "notes": [] if advice is None else [str(advice)]}
