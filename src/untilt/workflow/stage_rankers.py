"""Steps 4 and 5: plan what the time allows, train the candidates, choose by held-out clicks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from untilt import catalog
from untilt.bias.curve import PositionBias
from untilt.data.clicklog import ClickLog
from untilt.errors import UntiltError
from untilt.facts import Fact
from untilt.report.step_results import Candidate, Training, TrainingPlan
from untilt.selection.fitting import Fitted, fit_all
from untilt.weighting.tables import Balanced
from untilt.workflow import candidates
from untilt.workflow.options import RunOptions, duration_text
from untilt.workflow.stage_evaluate import chosen_clip, estimated

AT_LEAST = 2  # candidates that are trained even when the time is over
FOR_RANKERS = 0.75  # of the time that is left; the rest is for evaluation and report
FEWER = 3  # trees are cut to a third before a candidate is dropped
FEWEST_TREES = 10
PROBE = (2, 10)  # trees


@dataclass(frozen=True)
class Speed:
    """Seconds of one training before its first tree, and per tree."""

    before: float
    per_tree: float

    def trees_in(self, seconds: float, method: Sequence[str]) -> int:
        """Trees that these candidates can have in so many seconds; may be negative."""
        units = sum(candidates.candidate(name).cost for name in method)
        return int((seconds / units - self.before) / self.per_tree)


def make_plan(
    train: ClickLog, bias: PositionBias, options: RunOptions, *, spent: float
) -> TrainingPlan:
    """Everything where there is no limit; else what two short trainings say can be done."""
    wanted = TrainingPlan(options.method, options.trees)
    if options.time_limit is None:
        return wanted
    speed = _probe(train, bias, options)
    left = max(0.0, options.time_limit - spent) * FOR_RANKERS
    return plan_within(wanted, speed, left, limit=options.time_limit)


def plan_within(
    wanted: TrainingPlan, speed: Speed, seconds: float, *, limit: float
) -> TrainingPlan:
    """The largest plan that takes so long: fewer trees, then fewer candidates, then fewer trees.

    Two candidates, raw clicks among them, are always left, with ten trees at least.
    """
    method = list(wanted.method)
    enough = min(wanted.trees, max(FEWEST_TREES, wanted.trees // FEWER))
    for name in candidates.dropped_first():
        if len(method) > 2 and name in method and speed.trees_in(seconds, method) < enough:
            method.remove(name)
    least = min(wanted.trees, FEWEST_TREES)
    trees = min(wanted.trees, max(least, speed.trees_in(seconds, method)))
    limit_text, warnings = duration_text(limit), []
    if trees < wanted.trees:
        warnings.append(Fact("run.fewer-trees", limit=limit_text, trees=trees, wanted=wanted.trees))
    dropped = tuple(name for name in wanted.method if name not in method)
    if dropped:
        warnings.append(Fact("run.candidates-dropped", limit=limit_text, candidates=dropped))
    return TrainingPlan(tuple(method), trees, tuple(warnings))


def _probe(train: ClickLog, bias: PositionBias, options: RunOptions) -> Speed:
    """By two short trainings, after one that compiles and is not counted."""
    taken, method = [], catalog.record_of(Balanced).name
    for trees in (PROBE[0], *PROBE):
        start = time.monotonic()
        candidates.make_candidate(
            method, bias, trees=trees, threads=options.threads, seed=options.seed
        ).fit(train)
        taken.append(time.monotonic() - start)
    per_tree = max(1e-4, (taken[2] - taken[1]) / (PROBE[1] - PROBE[0]))
    return Speed(max(0.0, taken[1] - PROBE[0] * per_tree), per_tree)


def train_and_choose(
    train: ClickLog,
    valid: ClickLog,
    bias: PositionBias,
    options: RunOptions,
    plan: TrainingPlan,
    *,
    folder: Path,
    seconds_left: float | None,
) -> Training:
    """Finished candidates lie in `folder`, so that a run that is stopped trains only the rest."""
    fitted: dict[str, Fitted] = {}
    warnings: list[Fact] = []
    late: list[str] = []
    for method in plan.method:
        used = sum(each.seconds for each in fitted.values())
        if seconds_left is not None and used > seconds_left and len(fitted) >= AT_LEAST:
            late.append(method)
            continue
        try:
            candidate = candidates.make_candidate(
                method, bias, trees=plan.trees, threads=options.threads, seed=options.seed
            )
            fitted |= fit_all({method: candidate}, train, valid, folder=folder, n_jobs=1)
        except UntiltError as error:
            warnings.append(Fact("run.candidate-failed", candidate=method, error=str(error)))
    if late and options.time_limit is not None:
        limit = duration_text(options.time_limit)
        warnings.append(Fact("run.candidates-late", limit=limit, candidates=tuple(late)))
    if not fitted:
        return Training(warnings=tuple(warnings))
    return _chosen(fitted, valid, bias, options, tuple(warnings))


def _chosen(
    fitted: dict[str, Fitted],
    valid: ClickLog,
    bias: PositionBias,
    options: RunOptions,
    warnings: tuple[Fact, ...],
) -> Training:
    scores = {candidates.system_name(method): each.scores for method, each in fitted.items()}
    clip = chosen_clip(valid, next(iter(scores.values())), bias, options)
    estimates = estimated(valid, scores, bias, options, clip)
    best = estimates.best.system
    undecided = {best}
    if len(estimates) > 1:
        undecided |= {each.system for each in estimates.compare(best) if not each.decided}

    def trained(method: str, each: Fitted) -> Candidate:
        name = candidates.system_name(method)
        assert each.path is not None  # every ranker of this package can be saved
        return Candidate(
            method=method,
            name=name,
            note=candidates.candidate_note(method),
            file=each.path.name,
            estimate=estimates[name],
            within_noise=name in undecided,
        )

    entries = tuple(trained(method, each) for method, each in fitted.items())
    return Training(entries, best, clip, warnings)
