"""Step 5: train the candidates one by one and choose by held-out clicks."""

from pathlib import Path
from typing import Any

from untilt.bias.position_bias import PositionBias
from untilt.errors import UntiltError
from untilt.evaluation.estimate import estimate
from untilt.evaluation.select_fit import Fitted, fit_all
from untilt.logs.clicklog import ClickLog
from untilt.workflow.candidates import NOTES, make_candidate, system_name
from untilt.workflow.duration import duration_text
from untilt.workflow.evaluation_step import chosen_clip
from untilt.workflow.options import RunOptions

AT_LEAST = 2  # candidates that are trained even when the time is over


def train_and_choose(
    train: ClickLog,
    valid: ClickLog,
    bias: PositionBias,
    options: RunOptions,
    plan: dict[str, Any],
    *,
    folder: Path,
    seconds_left: float | None,
) -> dict[str, Any]:
    """Finished candidates lie in `folder`, so that a run that is stopped trains only the rest."""
    fitted: dict[str, Fitted] = {}
    failed: dict[str, str] = {}
    late: list[str] = []
    for method in plan["method"]:
        used = sum(each.seconds for each in fitted.values())
        if seconds_left is not None and used > seconds_left and len(fitted) >= AT_LEAST:
            late.append(method)
            continue
        candidate = make_candidate(
            method, bias, trees=plan["trees"], threads=options.threads, seed=options.seed
        )
        try:
            fitted |= fit_all({method: candidate}, train, valid, folder=folder, n_jobs=1)
        except UntiltError as error:
            failed[method] = str(error)
    warnings = _warnings(failed, late, options)
    if not fitted:
        return {"chosen": None, "candidates": [], "warnings": warnings}
    return {**_chosen(fitted, valid, bias, options), "warnings": warnings}


def _chosen(
    fitted: dict[str, Fitted], valid: ClickLog, bias: PositionBias, options: RunOptions
) -> dict[str, Any]:
    scores = {name: each.scores for name, each in fitted.items()}
    clip = chosen_clip(valid, next(iter(scores.values())), bias, options)
    found = estimate(
        valid, scores, bias, metric=options.metric, method=options.evaluator, tau=clip,
        among=options.among, level=options.level,
    )  # fmt: skip
    best = found.best.system
    gaps = {entry.system: entry for entry in found.compare(best)} if len(found) > 1 else {}
    return {
        "chosen": best,
        "clip": clip,
        "metric": str(found.metric),
        "candidates": [
            {
                "method": name,
                "name": system_name(name),
                "note": NOTES[name],
                "file": _file(fitted[name]),
                "value": found[name].value,
                "low": found[name].interval.low,
                "high": found[name].interval.high,
                "within_noise": name == best or not gaps[name].decided,
            }
            for name in fitted
        ],
    }


def _file(fitted: Fitted) -> str:
    """Where a candidate lies; every ranker of this package can be saved."""
    assert fitted.path is not None
    return fitted.path.name


def _warnings(failed: dict[str, str], late: list[str], options: RunOptions) -> list[str]:
    found = [f"The candidate {name} could not be trained: {why}" for name, why in failed.items()]
    if late and options.time_limit is not None:
        found.append(
            f"The time limit of {duration_text(options.time_limit)} was over before these "
            f"candidates were trained: {', '.join(late)}."
        )
    return found
