"""Logs without features: no ranker can be trained, but documents with clicks can be reordered."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from untilt import catalog
from untilt._core.arrays import FloatArray
from untilt._core.files import replacing
from untilt.bias.curve import PositionBias
from untilt.clickmodels.compare import advise, compare_click_models
from untilt.data.clicklog import ClickLog
from untilt.data.counts import corrected_clicks
from untilt.errors import UntiltError
from untilt.facts import note, serious
from untilt.report.step_results import ClickModelFigures, ClickModels, HeldOut
from untilt.workflow.candidates import RAW
from untilt.workflow.options import RunOptions
from untilt.workflow.stage_evaluate import chosen_clip, estimated, evaluate_scores
from untilt.workflow.stage_read import PARTS, Data, as_clicks

NO_FEATURES = serious(
    "run.no-features",
    "This log has no features, so no ranker can be trained that scores new documents or queries; "
    "features come with --documents TABLE or --features PATTERN. What a run does then "
    "is to order the documents that were shown often by their own clicks, corrected for position: "
    "the file order.csv.",
)()
CLICK_MODELS_FAILED = note("run.click-models-failed", "Click models could not be compared: {error}")

STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
BY_RELEVANCE = "corrected clicks"


def reorder(data: Data, bias: PositionBias, options: RunOptions, file: Path) -> HeldOut:
    """The documents of each query by clicks of other sessions, raw and corrected, evaluated.

    The better one goes into `file`.
    """
    train, valid, test = (data.cut(name, bias.depth) for name in PARTS)
    learn = data.not_test()
    learn = learn if learn.depth <= bias.depth else learn.top(bias.depth)
    curves = {RAW: PositionBias(np.ones(bias.depth), method="none"), BY_RELEVANCE: bias}
    strength = {name: best_strength(train, valid, curve) for name, curve in curves.items()}

    def scores(log: ClickLog) -> dict[str, FloatArray]:
        return {name: relevance(log, curves[name], strength=strength[name]) for name in curves}

    before = scores(train)
    clip = chosen_clip(valid, before[RAW], bias, options)
    best = estimated(valid, before, bias, options, clip).best.system
    held_out = evaluate_scores(test, scores(learn), bias, options, chosen=best, clip=clip)
    write_order(learn, scores(learn)[best], file)
    return replace(held_out, warnings=(NO_FEATURES, *held_out.warnings))


def write_order(log: ClickLog, scores: FloatArray, file: Path) -> None:
    """The documents that were shown, each query's best first."""
    shown = np.unique(log.document)
    rows = shown[np.lexsort((-scores[shown], log.doc_query[shown]))]
    query, document = log.query_id[log.doc_query[rows]], log.doc_id[rows]
    with replacing(file) as temporary, temporary.open("w", newline="", encoding="utf8") as held:
        writer = csv.writer(held, lineterminator="\n")
        writer.writerow(["query_id", "doc_id", "score"])
        writer.writerows(zip(query.tolist(), document.tolist(), scores[rows].tolist(), strict=True))


def relevance(log: ClickLog, bias: PositionBias, *, strength: float) -> FloatArray:
    r"""(documents,) clicks per examined impression, shrunk towards the mean of all documents.

        g_d = (y_d + m g) / (e_d + m),  y_d = sum (c - beta_k),  e_d = sum alpha_k over impressions

    with m the `strength`, in examined impressions, and g = sum y_d / sum e_d.
    """
    clicks, exposure = corrected_clicks(log, *bias.affine())
    mean = clicks.sum() / max(exposure.sum(), 1e-300)
    return np.clip((clicks + strength * mean) / (exposure + strength), 0, None)


def best_strength(train: ClickLog, valid: ClickLog, bias: PositionBias) -> float:
    """The strength m of the likeliest clicks on other sessions, of 1, 3, 10, ..., 1000."""
    alpha, beta = bias.affine()
    index, weight = valid.position - 1, valid.row_count
    clicked = valid.label > 0

    def log_likelihood(strength: float) -> float:
        g = relevance(train, bias, strength=strength)[valid.document]
        p = np.clip(alpha[index] * g + beta[index], 1e-6, 1 - 1e-6)
        return float(np.dot(weight, np.log(np.where(clicked, p, 1 - p))))

    return max(STRENGTHS, key=log_likelihood)


def click_models(data: Data, options: RunOptions) -> ClickModels:
    """Click models on held-out sessions: is a curve over positions enough?"""
    learn, test = as_clicks(data.not_test()), as_clicks(data.parts["test"])
    try:
        models = catalog.names("click model", choose="run")
        comparison = compare_click_models(
            learn, test, models=models, level=options.level, seed=options.seed
        )
    except UntiltError as error:
        return ClickModels(notes=(CLICK_MODELS_FAILED(error=error.problem),))
    advice = advise(comparison)
    return ClickModels(
        models=tuple(
            ClickModelFigures(
                each.name, each.log_likelihood, each.perplexity, each.conditional_perplexity
            )
            for each in comparison
        ),
        notes=() if advice is None else advice.sentences,
    )
