"""Step 6: would it have been better? On queries that played no part in learning or choosing."""

from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.progress import track
from untilt.bias.position_bias import PositionBias
from untilt.evaluation.clip_curve import clip_curve
from untilt.evaluation.counterfactual_methods import CLIPS, POOLS_DOCUMENTS
from untilt.evaluation.estimate import estimate
from untilt.evaluation.estimate_result import Estimates
from untilt.evaluation.estimate_systems import shown
from untilt.logs.clicklog import ClickLog
from untilt.workflow.candidates import RAW, SHOWN, system_name
from untilt.workflow.moves import changed_queries, moved
from untilt.workflow.options import RunOptions

LEAST_EFFECTIVE = 0.1  # clicks of equal weight, as a share of the clicks


def judge(
    test: ClickLog, bias: PositionBias, options: RunOptions, rankers: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """All candidates against the logged order on the held-out part, and what the chosen changes."""
    from untilt.rankers.persist import load

    fitted = {
        each["name"]: load(folder / each["file"])
        for each in track(rankers["candidates"], "loading rankers")
    }
    chosen = system_name(rankers["chosen"])
    assert test.features is not None
    scores = {name: np.asarray(each.predict(test.features)) for name, each in fitted.items()}
    return {
        **judged(test, scores, bias, options, chosen=chosen, clip=rankers["clip"]),
        "importances": _importances(fitted[chosen]),
        "importance_of": _importance_of(fitted[chosen]),
        "pair_bias": _pair_bias(fitted),
    }


def judged(
    test: ClickLog,
    scores: dict[str, FloatArray],
    bias: PositionBias,
    options: RunOptions,
    *,
    chosen: str,
    clip: float | None,
) -> dict[str, Any]:
    """The part that needs scores alone."""
    found = estimate(
        test, {SHOWN: shown, **scores}, bias, metric=options.metric, method=options.evaluator,
        tau=clip, among=options.among, level=options.level, seed=options.seed,
    )  # fmt: skip
    return {
        "chosen": chosen,
        "estimates": found.to_dict(),
        "higher_is_better": found.metric.higher_is_better,
        "differences": found.compare(SHOWN).to_dict(),
        "to_raw": _to_raw(found, chosen),
        "check": _check(found),
        "clip_curve": {**clips(test, scores[chosen], bias, options), "chosen": clip},
        "moved": {name: moved(test, each, level=options.level) for name, each in scores.items()},
        "changed": changed_queries(test, scores[chosen]),
    }


def _to_raw(found: Estimates, chosen: str) -> dict[str, Any] | None:
    """The chosen against raw clicks, paired."""
    if RAW not in found.systems or chosen == RAW:
        return None
    return found.compare(RAW).to_dict()[chosen]


def _check(found: Estimates) -> dict[str, Any]:
    """Whether held-out clicks fit the curve that corrects them."""
    check = found.check
    return {
        "possible": check.possible,
        "fits": check.fits,
        "p_value": check.p_value,
        "text": str(check),
        "position": check.position,
        "observed": check.observed,
        "expected": check.expected,
        "z": check.z,
    }


def clips(
    part: ClickLog, scores: FloatArray, bias: PositionBias, options: RunOptions
) -> dict[str, Any]:
    """The estimate of one system by clip; `best` has the least estimated squared error."""
    method = "policy-aware" if options.evaluator in POOLS_DOCUMENTS else "clipped"
    curve = clip_curve(
        part, scores, bias, metric=options.metric, method=method, among=options.among,
        level=options.level,
    )  # fmt: skip
    names = ("tau", "value", "low", "high", "clipped_share", "mse", "best")
    return {name: getattr(curve, name) for name in names}


def chosen_clip(
    valid: ClickLog, scores: FloatArray, bias: PositionBias, options: RunOptions
) -> float | None:
    """The clip to judge by, from the part that nothing is judged by; None for methods without.

    The least estimated squared error, raised until the clicks count like a tenth of them of equal
    weight: with few queries the error cannot see that single clicks carry the value.
    """
    if options.evaluator not in CLIPS:
        return None
    if options.clip != "auto":
        return float(options.clip)
    found = clips(valid, scores, bias, options)
    rising = [float(tau) for tau in found["tau"] if tau >= found["best"]]
    return next((tau for tau in rising if _even(valid, scores, bias, options, tau)), rising[-1])


def _even(
    valid: ClickLog, scores: FloatArray, bias: PositionBias, options: RunOptions, tau: float
) -> bool:
    weights = estimate(
        valid, scores, bias, metric=options.metric, method=options.evaluator, tau=tau,
        among=options.among,
    ).weights  # fmt: skip
    return weights.effective_n >= LEAST_EFFECTIVE * weights.n_clicks


def _importances(ranker: Any) -> list[dict[str, Any]]:
    shares = sorted(ranker.feature_importances_.items(), key=lambda item: (-item[1], item[0]))
    return [{"name": name, "share": share} for name, share in shares if share > 0]


def _importance_of(ranker: Any) -> str:
    return "gain of all splits" if hasattr(ranker, "booster_") else "size of standardised weights"


def _pair_bias(fitted: dict[str, Any]) -> dict[str, Any] | None:
    """t+ and t- of pairwise debiasing, where it was trained."""
    history = getattr(fitted.get("pairwise-debiasing"), "bias_history_", None)
    if not history:
        return None
    last = history[-1]
    return {"plus": last.plus, "minus": last.minus, "rounds": len(history)}
