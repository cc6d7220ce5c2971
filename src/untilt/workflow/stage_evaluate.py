"""Step 6: would it have been better? On queries that played no part in learning or choosing."""

from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.progress import track
from untilt.bias.curve import PositionBias
from untilt.catalog import record_of
from untilt.data.clicklog import ClickLog
from untilt.evaluation.clip_curve import ClipCurve, clip_curve, clip_curve_evaluator
from untilt.evaluation.credit import parse_evaluator
from untilt.evaluation.estimate import estimate
from untilt.evaluation.results import Estimates
from untilt.evaluation.systems import shown
from untilt.rankers.base import Ranker
from untilt.rankers.persist import load
from untilt.report.step_results import HeldOut, PairBias, Training
from untilt.weighting import PairwiseDebiasing
from untilt.workflow.candidates import RAW, SHOWN
from untilt.workflow.changes import changed_queries, new_positions
from untilt.workflow.options import RunOptions

LEAST_EFFECTIVE = 0.1  # clicks of equal weight, as a share of the clicks


def evaluate_rankers(
    test: ClickLog, bias: PositionBias, options: RunOptions, training: Training, folder: Path
) -> HeldOut:
    """All candidates against the logged order on the held-out part, and what the chosen changes."""
    rankers: dict[str, Ranker] = {
        each.name: load(folder / each.file)
        for each in track(training.candidates, "loading rankers")
    }
    assert training.chosen is not None
    assert test.features is not None
    scores = {name: np.asarray(each.predict(test.features)) for name, each in rankers.items()}
    chosen: Any = rankers[training.chosen]
    shares = getattr(chosen, "feature_importances_", {}).items()
    gain = "gain of all splits"
    return evaluate_scores(
        test,
        scores,
        bias,
        options,
        chosen=training.chosen,
        clip=training.clip,
        importances={
            name: float(share)
            for name, share in sorted(shares, key=lambda item: (-item[1], item[0]))
            if share > 0
        },
        importance_of=gain if hasattr(chosen, "booster_") else "size of standardised weights",
        pair_bias=_pair_bias(rankers.get(record_of(PairwiseDebiasing).name)),
    )


def evaluate_scores(
    test: ClickLog,
    scores: dict[str, FloatArray],
    bias: PositionBias,
    options: RunOptions,
    *,
    chosen: str,
    clip: float | None,
    **more: Any,
) -> HeldOut:
    """Systems by their scores against the logged order; `more` goes into the result."""
    estimates = estimated(test, {SHOWN: shown, **scores}, bias, options, clip)
    return HeldOut.of(
        estimates,
        chosen,
        baseline=SHOWN,
        to_raw=estimates.compare(RAW)[chosen] if RAW in scores and chosen != RAW else None,
        clip=clip,
        clip_curve=_clip_curve(test, scores[chosen], bias, options),
        new_positions={
            name: new_positions(test, each, level=options.level) for name, each in scores.items()
        },
        changed=changed_queries(test, scores[chosen]),
        **more,
    )


def estimated(
    part: ClickLog, systems: Any, bias: PositionBias, options: RunOptions, clip: float | None
) -> Estimates:
    """`untilt.estimate` as the options of a run say."""
    return estimate(
        part, systems, bias, metric=options.metric, evaluator=options.evaluator, clip=clip,
        among=options.among, level=options.level, seed=options.seed,
    )  # fmt: skip


def chosen_clip(
    valid: ClickLog, scores: FloatArray, bias: PositionBias, options: RunOptions
) -> float | None:
    """The clip to evaluate with, from the validation part; None for evaluators without.

    The least estimated squared error, raised until the clicks count like a tenth of them of equal
    weight: with few queries the error cannot see that single clicks carry the value.
    """
    if not parse_evaluator(options.evaluator).takes("clip"):
        return None
    if options.clip != "auto":
        return float(options.clip)
    curve = _clip_curve(valid, scores, bias, options)
    rising = [float(clip) for clip in curve.clip if clip >= curve.best]

    def is_even(clip: float) -> bool:
        weights = estimated(valid, scores, bias, options, clip).weights
        return weights.effective_n >= LEAST_EFFECTIVE * weights.n_clicks

    return next((clip for clip in rising if is_even(clip)), rising[-1])


def _clip_curve(
    part: ClickLog, scores: FloatArray, bias: PositionBias, options: RunOptions
) -> ClipCurve:
    return clip_curve(
        part, scores, bias, metric=options.metric, among=options.among, level=options.level,
        evaluator=clip_curve_evaluator(options.evaluator),
    )  # fmt: skip


def _pair_bias(ranker: Any) -> PairBias | None:
    """t+ and t- of pairwise debiasing, where it was trained."""
    history = getattr(ranker, "bias_history_", None)
    if not history:
        return None
    return PairBias(history[-1].plus, history[-1].minus, len(history))
