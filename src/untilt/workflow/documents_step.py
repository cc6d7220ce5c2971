"""Logs without features: no ranker can be trained, but documents with clicks can be reordered."""

from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.position_bias import PositionBias
from untilt.clickmodels.compare import compare_click_models
from untilt.errors import UntiltError
from untilt.evaluation.counterfactual_methods import shrunken_relevance
from untilt.evaluation.counterfactual_pool import pool_of
from untilt.logs.clicklog import ClickLog
from untilt.workflow.candidates import RAW
from untilt.workflow.data import Data, as_clicks
from untilt.workflow.evaluation_step import judged
from untilt.workflow.options import RunOptions

BY_RELEVANCE = "clicks per examined impression"
WHY = (
    "This log has no features, so no ranker can be trained that scores new documents or queries: "
    "give --documents TABLE or --features PATTERN. What can be done is to order the documents that "
    "were shown often by their own clicks, corrected for position."
)


def reorder(data: Data, bias: PositionBias, options: RunOptions) -> dict[str, Any]:
    """The documents of each query by clicks of other sessions, raw and corrected, judged."""
    learn = data.not_test()
    learn = learn if learn.depth <= bias.depth else learn.top(bias.depth)
    flat = PositionBias(np.ones(learn.depth), method="none")
    scores = {RAW: _relevance(learn, flat), BY_RELEVANCE: _relevance(learn, bias)}
    test = data.cut("test", bias.depth)
    return judged(test, scores, bias, options, chosen=BY_RELEVANCE)


def _relevance(learn: ClickLog, bias: PositionBias) -> FloatArray:
    """(documents,) relevance by each document's own clicks; documents never shown come last."""
    pool = pool_of(learn, "shown")
    scores = np.full(learn.n_documents, -1.0)
    scores[pool.document] = shrunken_relevance(pool, bias)
    return scores


def click_models(data: Data, options: RunOptions) -> dict[str, Any]:
    """All click models on held-out sessions: is a curve over positions enough?"""
    from untilt.clickmodels.advice import advise

    learn, test = as_clicks(data.not_test()), as_clicks(data.parts["test"])
    try:
        found = compare_click_models(learn, test, level=options.level, seed=options.seed)
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
