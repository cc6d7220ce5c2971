"""Steps 4 and 5: plan what the time allows, train the candidates, choose by held-out clicks.

The default candidate is kept unless another is better by two standard errors: the largest of
several noisy values is often that of a candidate with luck.

Logs without features: no ranker can be trained, but documents with clicks can be reordered.
"""

import csv
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from untilt import catalog
from untilt._core.arrays import FloatArray
from untilt._core.files import replacing
from untilt._core.progress import part
from untilt._core.threads import cores, side_by_side, thread_count
from untilt.bias.curve import PositionBias
from untilt.clickmodels.compare import advise, compare_click_models
from untilt.data.clicklog import ClickLog
from untilt.data.counts import corrected_clicks
from untilt.errors import UntiltError
from untilt.evaluation.results import Estimates, SystemComparison
from untilt.facts import Fact, as_fact, note, serious, warning
from untilt.rankers.base import Ranker
from untilt.rankers.stacked.ranker import NO_CLICKS, StackedRanker
from untilt.rankers.trees.stepped import stepped
from untilt.report.decision import Decision
from untilt.report.step_results import (
    ClickModelFigures,
    ClickModels,
    HeldOut,
    Learned,
    Shipped,
    ShippedFile,
    TrainedCandidate,
    Training,
    TrainingPlan,
    TreeValues,
)
from untilt.selection.fitting import CandidateStore, Fitted, fit_all, fit_alone
from untilt.weighting.tables import Balanced
from untilt.workflow import candidates
from untilt.workflow.candidates import RAW
from untilt.workflow.folder import RunFolder
from untilt.workflow.options import RunOptions, duration_text
from untilt.workflow.stage_evaluate import chosen_clip, estimated, evaluate_scores
from untilt.workflow.stage_read import PARTS, Data, Judged, as_clicks

FEWER_TREES = warning(
    "run.fewer-trees",
    "To meet the time limit of {limit}, rankers have {trees} trees instead of {wanted}.",
)

DEFAULT_BEATEN = note(
    "run.default-beaten",
    "{chosen} replaced the default, {default}: it is better by {difference:+.4f} {metric}, "
    "standard error {std_error:.4f}, p {p_value:.1g} after correction for {tried} comparisons.",
)
DEFAULT_KEPT = note(
    "run.default-kept",
    "The default, {default}, was kept: no other candidate is better by two standard errors. The "
    "nearest is {other}: {difference:+.4f} {metric}, standard error {std_error:.4f}.",
)
REFIT_LATE = warning(
    "run.refit-late",
    "There was no time within {limit} to train {system} again on all queries: {file} is the "
    "ranker that was judged, trained on {queries:,} queries.",
)
CANDIDATES_DROPPED = warning(
    "run.candidates-dropped",
    "To meet the time limit of {limit}, these candidates were not trained: {candidates:all}.",
)
CANDIDATES_LATE = warning(
    "run.candidates-late",
    "The time limit of {limit} ended before these candidates were trained: {candidates:all}.",
)
ONLY_CANDIDATE = note("run.only-candidate", "Only one candidate was trained: {chosen}.")
REFIT = note(
    "run.refit",
    "The file {file} is {system}, trained again on all {queries:,} queries. The figures are of "
    "the same method, trained without the queries that judge it.",
)
CANDIDATE_FAILED = warning(
    "run.candidate-failed", "The candidate {candidate} could not be trained: {error}"
)
REFIT_FAILED = warning(
    "run.refit-failed",
    "{system} could not be trained again on all queries ({error}): {file} is the ranker that was "
    "judged, trained on {queries:,} queries.",
)

AT_LEAST = 2  # candidates that are trained even when the time is over
FOR_RANKERS = 0.75  # of the time that is left; the rest is for evaluation and report
FEWER = 3  # trees are cut to a third before a candidate is dropped
FEWEST_TREES = 10
PROBE = (2, 10)  # trees
USUAL_TREES = 300
TUNING = 3.0  # trainings that the choice of the number of trees takes: folds of the queries
TWO_ERRORS = math.erf(2 / math.sqrt(2))  # the level of an interval of two standard errors


@dataclass(frozen=True)
class Speed:
    """Seconds of one training before its first tree, and per tree.

    `rounds` are the trainings of each candidate, `last` those of the one that is trained again at
    the end, both in trainings of the length that was measured.
    """

    before: float
    per_tree: float
    rounds: float = 1.0
    last: float = 0.0

    def trees_in(self, seconds: float, method: Sequence[str]) -> int:
        """Trees that these candidates can have in so many seconds; may be negative."""
        costs = [candidates.candidate(name).cost for name in method]
        units = self.rounds * sum(costs)
        units += self.last * candidates.candidate(candidates.default_of(method)).cost
        return int((seconds / units - self.before) / self.per_tree)


def make_plan(data: Data, bias: PositionBias, options: RunOptions, *, spent: float) -> TrainingPlan:
    """Everything where there is no limit; else what two short trainings say can be done."""
    method, unfit = for_label(options.method, data.log)
    wanted = TrainingPlan(method, options.trees, unfit)
    if options.time_limit is None:
        return wanted
    train = data.training(0, bias.depth)
    again = data.log.n_sessions / max(1, train.n_sessions)
    rounds = data.n_folds / _at_once(data, options)
    speed = _probe(train, bias, options, rounds=rounds, last=again)
    left = max(0.0, options.time_limit - spent) * FOR_RANKERS
    return plan_within(wanted, speed, left, limit=options.time_limit)


def for_label(method: tuple[str, ...], log: ClickLog) -> tuple[tuple[str, ...], tuple[Fact, ...]]:
    """The candidates that can learn from this label, and why they are others than those given.

    `Balanced` takes the place of the stacked learner where the label is no click.
    """
    stacked, spare = (catalog.record_of(each).name for each in (StackedRanker, Balanced))
    if log.is_binary or stacked not in method:
        return method, ()
    fit = dict.fromkeys(spare if each == stacked else each for each in method)
    return tuple(fit), (NO_CLICKS(label=log.label_name),)


def plan_within(
    wanted: TrainingPlan, speed: Speed, seconds: float, *, limit: float
) -> TrainingPlan:
    """The largest plan that takes so long: fewer trees, then fewer candidates, then fewer trees.

    Two candidates, raw clicks among them, are always left, with ten trees at least. Where there is
    no time to choose the number of trees by held-out queries, it is a number.
    """
    if wanted.trees == "auto":
        if speed.trees_in(seconds / TUNING, wanted.method) >= USUAL_TREES:
            return wanted
        found = plan_within(replace(wanted, trees=USUAL_TREES), speed, seconds, limit=limit)
        limited = duration_text(limit)
        wish = "a number chosen on held-out queries"
        fewer = FEWER_TREES(limit=limited, trees=found.trees, wanted=wish)
        others = (each for each in found.warnings if each.code != fewer.code)
        return replace(found, warnings=(fewer, *others))
    enough = min(wanted.trees, max(FEWEST_TREES, wanted.trees // FEWER))
    smaller = list(_smaller(wanted.method))
    method = next((m for m in smaller if speed.trees_in(seconds, m) >= enough), None)
    if method is None:  # the cheapest, of equal ones that which a run would rather keep
        method = max(smaller, key=lambda each: speed.trees_in(seconds, each))
    least = min(wanted.trees, FEWEST_TREES)
    trees = min(wanted.trees, max(least, speed.trees_in(seconds, method)))
    limit_text, warnings = duration_text(limit), list(wanted.warnings)
    if trees < wanted.trees:
        warnings.append(FEWER_TREES(limit=limit_text, trees=trees, wanted=wanted.trees))
    dropped = tuple(name for name in wanted.method if name not in method)
    if dropped:
        warnings.append(CANDIDATES_DROPPED(limit=limit_text, candidates=dropped))
    return TrainingPlan(tuple(method), trees, tuple(warnings))


def _smaller(method: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """All candidates, then without those given up first; at last raw clicks and one other.

    Where only the default is left, the other is `Balanced`, which takes a fifth of its time.
    """
    order = [name for name in candidates.dropped_first() if name in method]
    for gone in range(len(order)):
        yield tuple(name for name in method if name not in order[:gone])
    if not order:
        yield method
        return
    for other in order[-2::-1] or [catalog.record_of(Balanced).name]:
        yield (*(name for name in method if name not in order), other)


def _probe(train: ClickLog, bias: PositionBias, options: RunOptions, **trainings: float) -> Speed:
    """By two short trainings, after one that compiles and is not counted."""
    taken, method = [], catalog.record_of(Balanced).name
    for trees in (PROBE[0], *PROBE):
        start = time.monotonic()
        candidates.make_candidate(
            method, bias, trees=trees, threads=options.threads, seed=options.seed
        ).fit(train)
        taken.append(time.monotonic() - start)
    per_tree = max(1e-4, (taken[2] - taken[1]) / (PROBE[1] - PROBE[0]))
    return Speed(max(0.0, taken[1] - PROBE[0] * per_tree), per_tree, **trainings)


Fit = Callable[[str], list[Fitted] | Fact]  # a candidate, for each fold


@dataclass(frozen=True)
class Trainer:
    """Trains the candidates of a plan.

    Finished ones lie in the store, so that a run that is stopped trains only the rest.
    """

    data: Data
    bias: PositionBias
    options: RunOptions
    plan: TrainingPlan
    store: CandidateStore

    def train_and_choose(self, seconds_left: float | None) -> Training:
        """Every candidate for which there is time, and the one that held-out clicks choose."""
        options, method = self.options, self.plan.method
        judged = self.data.judged("valid", self.bias.depth)
        at_once = seconds_left is None and self._is_small()
        # Rankers of large data do not stay in memory.
        store = self.store if at_once else CandidateStore(self.store.folder)

        def fit(method: str) -> list[Fitted] | Fact:
            try:
                with part(self.work(method)):
                    return self._in_folds(method, judged, store)
            except UntiltError as error:
                return CANDIDATE_FAILED(candidate=method, error=str(error))

        late: list[str] = []
        if at_once:
            outcome = self._at_the_same_time(fit)
        else:
            outcome, late = self._one_by_one(fit, seconds_left)
        fitted = {name: each for name, each in outcome.items() if isinstance(each, list)}
        failed = {name: each for name, each in outcome.items() if isinstance(each, Fact)}
        warnings = [failed[name] for name in method if name in failed]
        if late and options.time_limit is not None:
            limit = duration_text(options.time_limit)
            warnings.append(CANDIDATES_LATE(limit=limit, candidates=tuple(late)))
        if not fitted:
            return Training(warnings=tuple(warnings))
        in_order = {name: fitted[name] for name in method if name in fitted}
        return _chosen(in_order, judged, self.bias, options, tuple(warnings))

    def work(self, *method: str) -> float:
        """Trees that the training of these candidates counts, about."""
        trees = USUAL_TREES if self.plan.trees == "auto" else int(self.plan.trees)
        return trees * self.data.n_folds * sum(candidates.candidate(each).cost for each in method)

    def on_all_queries(self, method: str) -> Fitted:
        """A candidate that nothing is held out from; one that the store has is taken."""
        name, log = candidates.system_name(method), self.data.all(self.bias.depth)
        return fit_alone(name, self._candidate(method), log, store=self.store)

    def _candidate(self, method: str) -> Ranker:
        own = self.options
        return candidates.make_candidate(
            method, self.bias, trees=self.plan.trees, threads=own.threads, seed=own.seed
        )

    def _is_small(self) -> bool:
        """Whether trees get one thread each, so that candidates can be trained at the same time."""
        train = self.data.training(0, self.bias.depth)
        return thread_count(None, values=train.n_documents * train.n_features) == 1

    def _at_the_same_time(self, fit: Fit) -> dict[str, list[Fitted] | Fact]:
        """What came of each candidate, the longest training first.

        The default is also trained on all queries, which keeps idle cores busy: it is nearly always
        what `refit` asks for, and then is in the store.
        """
        method, n_threads = self.plan.method, self.options.threads

        def on_all() -> None:
            with suppress(UntiltError):  # `refit` meets it again, and says so
                self.on_all_queries(candidates.default_of(method))

        longest_first = sorted(method, key=lambda each: -candidates.candidate(each).cost)
        ahead = [on_all] if (n_threads or cores()) > 1 else []
        todo: list[Callable[[], Any]] = [*ahead, *(partial(fit, each) for each in longest_first)]
        at_once = side_by_side(lambda each: each(), todo, n_threads=n_threads)
        return dict(zip(longest_first, at_once[len(ahead) :], strict=True))

    def _one_by_one(
        self, fit: Fit, seconds_left: float | None
    ) -> tuple[dict[str, list[Fitted] | Fact], list[str]]:
        """What came of each candidate, and those for which no time was left."""
        outcome: dict[str, list[Fitted] | Fact] = {}
        late: list[str] = []
        seconds = cost = 0.0  # so far
        trained = 0
        for method in candidates.default_first(self.plan.method):
            own = candidates.candidate(method).cost
            # What the next one takes by those before it; as much again for the last training.
            needed = seconds / cost * 2 * own if cost else 0.0
            if seconds_left is not None and trained >= AT_LEAST and seconds + needed > seconds_left:
                late.append(method)
                continue
            outcome[method] = folds = fit(method)
            if isinstance(folds, list):
                seconds += sum(each.seconds for each in folds) / _at_once(self.data, self.options)
                cost, trained = cost + own, trained + 1
        return outcome, late

    def _in_folds(self, method: str, judged: Judged, store: CandidateStore) -> list[Fitted]:
        """One candidate, trained for each fold, several at once; finished ones are in the store."""
        candidate = self._candidate(method)

        def fit(fold: int) -> Fitted:
            train, part = self.data.training(fold, self.bias.depth), judged.part(fold)
            return fit_all({method: candidate}, train, part, store=store, n_jobs=1)[method]

        return side_by_side(fit, range(self.data.n_folds), n_threads=self.options.threads)


def _at_once(data: Data, options: RunOptions) -> int:
    """How many folds are trained at the same time."""
    return min(data.n_folds, options.threads or cores())


def _chosen(
    fitted: dict[str, list[Fitted]],
    judged: Judged,
    bias: PositionBias,
    options: RunOptions,
    warnings: tuple[Fact, ...],
) -> Training:
    scores = {
        candidates.system_name(method): judged.pooled([each.scores for each in folds])
        for method, folds in fitted.items()
    }
    default = candidates.system_name(candidates.default_of(tuple(fitted)))
    clip = chosen_clip(judged.log, next(iter(scores.values())), bias, options)
    estimates = estimated(judged.log, scores, bias, options, clip)
    best, why, comparison = choose(estimates, default)
    undecided = {best}
    if len(estimates) > 1:
        undecided |= {each.system for each in estimates.compare(best) if not each.decided}

    def trained(method: str, folds: list[Fitted]) -> TrainedCandidate:
        name = candidates.system_name(method)
        files = [each.path.name for each in folds if each.path is not None]
        assert len(files) == len(folds)  # every ranker of this package can be saved
        return TrainedCandidate(
            method=method,
            name=name,
            note=candidates.candidate_note(method),
            file=files[0],
            estimate=estimates[name],
            within_noise=name in undecided,
            more_files=tuple(files[1:]),
        )

    return Training(
        candidates=tuple(trained(method, folds) for method, folds in fitted.items()),
        chosen=best,
        clip=clip,
        warnings=warnings,
        default=default,
        comparison=comparison,
        why=why,
        by_fold=_by_fold(judged, scores, default, bias, options, clip),
    )


def _by_fold(
    judged: Judged,
    scores: dict[str, FloatArray],
    default: str,
    bias: PositionBias,
    options: RunOptions,
    clip: float | None,
) -> tuple[str, ...]:
    """What the other folds choose for each one; nothing where there are no folds."""
    if len(judged.rows) == 1:
        return ()
    others = (judged.without(fold) for fold in range(len(judged.rows)))
    return tuple(
        choose(estimated(each, scores, bias, options, clip, unshown=False), default)[0]
        for each in others
    )


def choose(estimates: Estimates, default: str) -> tuple[str, Fact, SystemComparison | None]:
    """The default, or the best of those that are better by two standard errors; and why.

    Differences are paired, and their p-values corrected for how many candidates are tried.
    """
    if len(estimates) < 2:
        return default, ONLY_CANDIDATE(chosen=default), None
    comparison = estimates.compare(default, level=TWO_ERRORS)
    sign = 1 if comparison.higher_is_better else -1
    gains = {each: sign * each.value for each in comparison}
    nearest = max(gains, key=lambda each: gains[each])
    better = [each for each in gains if each.decided and gains[each] > 0]
    if not better:
        fact = DEFAULT_KEPT(default=default, other=nearest.system, difference=nearest.value,
            std_error=nearest.std_error, metric=comparison.metric,
        )  # fmt: skip
        return default, fact, comparison
    best = max(better, key=lambda each: gains[each])
    fact = DEFAULT_BEATEN(default=default, chosen=best.system, difference=best.value,
        std_error=best.std_error, metric=comparison.metric, p_value=best.corrected_p,
        tried=len(comparison),
    )  # fmt: skip
    return best.system, fact, comparison


def refit(
    trainer: Trainer, training: Training, *, file: Path, seconds_left: float | None
) -> Shipped:
    """Train the chosen candidate again, on all queries, and write it to `file`.

    Where the time is over, or the training fails, `file` gets the ranker that was judged.
    """
    best, data, store = training.best, trainer.data, trainer.store
    log, part = data.all(trainer.bias.depth), data.training(0, trainer.bias.depth)
    assert best is not None
    longer = log.n_sessions / max(1, part.n_sessions)
    expected = longer * store.seconds(Path(best.file).stem)
    told, source = {"system": best.name, "file": file.name}, store.folder / best.file
    shipped = Shipped(best.method, False, len(np.unique(part.query)), part.n_sessions)
    if seconds_left is not None and expected > seconds_left:
        limit = duration_text(trainer.options.time_limit or 0.0)
        note = REFIT_LATE(limit=limit, queries=shipped.queries, **told)
    else:
        try:
            again = trainer.on_all_queries(best.method)
            assert again.path is not None  # every ranker of this package can be saved
            source = again.path
            shipped = Shipped(best.method, True, len(np.unique(log.query)), log.n_sessions)
            note = REFIT(queries=shipped.queries, **told)
        except UntiltError as error:
            note = REFIT_FAILED(error=str(error), queries=shipped.queries, **told)
    with replacing(file) as temporary:
        shutil.copyfile(source, temporary)
    ranker = store.ranker(source)
    store.keep(file, ranker)
    return replace(shipped, note=note, learned=learned_of(ranker))


def ship(
    decision: Decision, folder: RunFolder, log: ClickLog, store: CandidateStore
) -> ShippedFile:
    """Write the ranker to use: the candidate, or a step towards it; none keeps the old order."""
    part, w = decision.held_out, decision.ships
    if part is None or part.step is None or not w:
        folder.ranker.unlink(missing_ok=True)
    elif w == 1:
        with replacing(folder.ranker) as temporary:
            shutil.copyfile(folder.candidate, temporary)
    else:
        step, candidate = part.step, store.ranker(folder.candidate)
        stepped(candidate, w, log, old=step.old, old_spread=step.old_spread).save(folder.ranker)
    return ShippedFile(w)


def learned_of(ranker: Any) -> Learned | None:
    """What a learner of many parts saw; None for other rankers, which have no such parts."""
    choice: Any = getattr(ranker, "choice_", None)
    if not getattr(choice, "weights", None):
        return None
    return Learned(
        reason=as_fact(choice.reason),
        weights=choice.weights,
        trees={
            name: TreeValues(tuple(each.trees), tuple(each.values), each.best)
            for name, each in choice.trees.items()
        },
        stacking=choice.stacking,
        support=choice.support,
        curve=choice.curve,
    )


NO_FEATURES = serious(
    "run.no-features",
    "This log has no features, so no ranker for new documents or queries can be trained; "
    "features come with --documents TABLE or --features PATTERN. The run orders the documents "
    "that were shown often by their corrected clicks: the file order.csv.",
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
