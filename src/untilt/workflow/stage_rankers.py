"""Step 5: train the candidates one by one and choose by held-out clicks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from untilt import catalog
from untilt.bias.curve import PositionBias
from untilt.data.clicklog import ClickLog
from untilt.errors import UntiltError
from untilt.evaluation.estimate import estimate
from untilt.selection.fitting import Fitted, fit_all
from untilt.weighting.tables import Balanced
from untilt.workflow.candidates import (
    candidate,
    candidate_note,
    dropped_first,
    make_candidate,
    system_name,
)
from untilt.workflow.options import RunOptions, duration_text
from untilt.workflow.stage_judge import chosen_clip

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
        valid, scores, bias, metric=options.metric, evaluator=options.evaluator, clip=clip,
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
                "note": candidate_note(name),
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


# Step 4: how many trees and which candidates, so that the run ends in time.

FOR_RANKERS = 0.75  # of the time that is left; the rest is for evaluation and report
FEWER = 3  # trees are cut to a third before a candidate is dropped
FEWEST_TREES = 10
PROBE = (2, 10)  # trees


@dataclass(frozen=True)
class Plan:
    """What is trained; `cut` says in sentences what was left out for lack of time."""

    method: tuple[str, ...]
    trees: int
    cut: tuple[str, ...] = ()


@dataclass(frozen=True)
class Speed:
    """Seconds of one training before its first tree, and per tree."""

    before: float
    per_tree: float

    def trees_in(self, seconds: float, method: Sequence[str]) -> int:
        """Trees that these candidates can have in so many seconds; may be negative."""
        units = sum(candidate(name).cost for name in method)
        return int((seconds / units - self.before) / self.per_tree)


def make_plan(
    train: ClickLog, bias: PositionBias, options: RunOptions, *, spent: float
) -> dict[str, Any]:
    """Everything where there is no limit; else what two short trainings say can be done."""
    wanted = Plan(options.method, options.trees)
    if options.time_limit is None:
        return vars(wanted)
    speed = _probe(train, bias, options)
    left = max(0.0, options.time_limit - spent) * FOR_RANKERS
    return vars(fitted_plan(wanted, speed, left, limit=options.time_limit))


def fitted_plan(wanted: Plan, speed: Speed, seconds: float, *, limit: float) -> Plan:
    """The largest plan that takes so long: fewer trees, then fewer candidates, then fewer trees.

    Two candidates, raw clicks among them, are always left, with ten trees at least.
    """
    method = list(wanted.method)
    enough = min(wanted.trees, max(FEWEST_TREES, wanted.trees // FEWER))
    for name in dropped_first():
        if len(method) > 2 and name in method and speed.trees_in(seconds, method) < enough:
            method.remove(name)
    least = min(wanted.trees, FEWEST_TREES)
    trees = min(wanted.trees, max(least, speed.trees_in(seconds, method)))
    plan = Plan(tuple(method), trees)
    return replace(plan, cut=_cut(plan, wanted, limit))


def _cut(plan: Plan, wanted: Plan, limit: float) -> tuple[str, ...]:
    """What the limit cost, in sentences."""
    found = []
    if plan.trees < wanted.trees:
        found.append(
            f"For the time limit of {duration_text(limit)} rankers have {plan.trees} trees in "
            f"place of {wanted.trees}."
        )
    dropped = [name for name in wanted.method if name not in plan.method]
    if dropped:
        found.append(
            f"For the time limit of {duration_text(limit)} these candidates were not trained: "
            f"{', '.join(dropped)}."
        )
    return tuple(found)


def _probe(train: ClickLog, bias: PositionBias, options: RunOptions) -> Speed:
    """By two short trainings, after one that compiles and is not counted."""
    taken = []
    for trees in (PROBE[0], *PROBE):
        start = time.monotonic()
        make_candidate(
            catalog.record_of(Balanced).name,
            bias,
            trees=trees,
            threads=options.threads,
            seed=options.seed,
        ).fit(train)
        taken.append(time.monotonic() - start)
    per_tree = max(1e-4, (taken[2] - taken[1]) / (PROBE[1] - PROBE[0]))
    return Speed(max(0.0, taken[1] - PROBE[0] * per_tree), per_tree)
