"""From a log to a decision: the main job, step by step, resumable."""

import os
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from untilt._core import codec
from untilt._core.declared import taking
from untilt._core.files import write_text
from untilt._core.places import refuse_inputs
from untilt._core.store import locked
from untilt.auditing.audit import Audit, audit
from untilt.auditing.sort_keys import left_out_of_curve
from untilt.bias.curve import PositionBias
from untilt.bias.experiments.assignment import baseline_lists
from untilt.bias.given import parse_curve
from untilt.data.grades import Grades, read_labels
from untilt.data.read.columns import named_features
from untilt.errors import UntiltError
from untilt.evaluation.results import SystemDifference
from untilt.facts import Fact, warning
from untilt.rankers.base import Ranker
from untilt.report import step_results as r
from untilt.report.decision import Decision, write_figures, write_page
from untilt.selection.fitting import CandidateStore
from untilt.views import Section, View
from untilt.workflow.config import config_text, with_title
from untilt.workflow.folder import Done, RunFolder, Steps
from untilt.workflow.options import RunOptions, RunSettings, settled
from untilt.workflow.stage_bias import bias_choice, used_bias
from untilt.workflow.stage_evaluate import evaluate_rankers
from untilt.workflow.stage_rankers import (
    Trainer,
    click_models,
    make_plan,
    refit,
    reorder,
    ship,
)
from untilt.workflow.stage_read import Data, read_step, split_of
from untilt.workflow.stage_report import provenance, table_path, write_tables

AUDITED = ("level", "assigned", "old_score")  # options of the audit
STEPS_DO_NOT_FIT = warning(
    "run.steps-do-not-fit",
    "The results of earlier runs in this folder do not fit together, so every step is done again "
    "({error})",
)

TOLD_SECONDS = 0.5  # of a step; shorter ones are in the report alone


@dataclass(frozen=True, eq=False, repr=False)
class RunResult(View):
    """A finished run.

    Parameters
    ----------
    folder : where everything lies
    decision : every figure of the report
    resumed : steps that an earlier run had done
    times : what each step took, and within the training each candidate
    """

    folder: Path
    decision: Decision
    resumed: tuple[str, ...] = ()
    times: tuple[r.StepTime, ...] = ()

    @property
    def report(self) -> Path:
        """The page to look at."""
        return RunFolder(self.folder).report

    @property
    def bias(self) -> PositionBias:
        """The position bias that was used."""
        assert self.decision.bias is not None
        return self.decision.bias.bias

    @property
    def bias_kind(self) -> r.BiasKind:
        """What the curve rests on; see `untilt.report.floors.EVIDENCE`."""
        assert self.decision.bias is not None
        return self.decision.bias.kind

    @property
    def ranker(self) -> Ranker | None:
        """The ranker to use: the candidate, or a step towards it from the old order.

        None where nothing is shown to be better than the old order, which then is to be kept. A
        step scores a further feature `old_rank`: the rank of each document in the old order.
        """
        return None if self.decision.shipped is None else _load(RunFolder(self.folder).ranker)

    @property
    def candidate(self) -> Ranker | None:
        """The chosen method, trained again on all queries; None where none could be trained."""
        return None if self.decision.candidate is None else _load(RunFolder(self.folder).candidate)

    @property
    def candidates(self) -> dict[str, Ranker]:
        """Every candidate as it was judged, by its name in the report; none without features.

        They were trained without the queries that they were judged by. With several folds these
        are the rankers of the first one; `fold_candidates` has all.
        """
        return {name: folds[0] for name, folds in self._candidates(1).items()}

    @property
    def fold_candidates(self) -> dict[str, tuple[Ranker, ...]]:
        """The rankers of each fold of queries, by the candidate's name; one without folds."""
        return self._candidates(None)

    def _candidates(self, folds: int | None) -> dict[str, tuple[Ranker, ...]]:
        training, folder = self.decision.training, RunFolder(self.folder).candidates
        entries = () if training is None else training.candidates
        return {e.name: tuple(_load(folder / file) for file in e.files[:folds]) for e in entries}

    @property
    def warnings(self) -> tuple[Fact, ...]:
        """Every warning, the gravest first."""
        return self.decision.warnings

    @property
    def time(self) -> str:
        """Where the time went, the longest step first; empty where no step was done now."""
        own = [step for step in self.times if not step.resumed]
        if not own:
            return ""
        told = [f"{sum(each.seconds for each in own if not each.of):.1f} s in all"]
        for step in sorted(own, key=lambda each: -each.seconds):
            if not step.of and step.seconds >= TOLD_SECONDS:
                parts = [f"{e.name} {e.seconds:.1f}" for e in own if e.of == step.name]
                told.append(
                    f"{step.name} {step.seconds:.1f}" + f" ({', '.join(parts)})" * bool(parts)
                )
        return ", ".join(told)

    def rows(self) -> list[tuple[str, ...]]:
        """Cells of a table: ranker, value, difference to the logged order and its interval."""
        part = self.decision.held_out
        found = {} if part is None else {each.system: each for each in part.comparison}
        rows: list[tuple[str, ...]] = []
        for each in () if part is None else part.estimates:
            chosen = " *" if part is not None and each.system == part.chosen else ""
            told = _difference(found.get(each.system))
            rows.append((each.system + chosen, f"{each.value:.4f}", *told))
        return rows

    def view(self) -> list[Section]:
        """The answer, and why; the report has more."""
        return self.decision.view()

    def __repr__(self) -> str:
        answer = self.decision.answer
        verdict: str = self.decision.no_answer or ""
        if answer is not None:
            value, interval = _difference(answer.difference)
            new = answer.new
            said = f"{new.system} is {answer.verdict}"
            if answer.verdict == "cannot tell":
                said = f"undecided whether {new.system} is better"
            verdict = f"{said}: {value} {new.metric} {interval} to the {answer.shown.system}"
        file = self.decision.told_of_file
        return (
            f"RunResult({verdict}; bias {self.bias_kind}; {len(self.warnings)} warnings; "
            f"{self.report})" + ("" if file is None else f"\n{file}")
        )


def _load(path: Path) -> Ranker:
    from untilt.rankers.base import load

    ranker: Ranker = load(path)
    return ranker


def _difference(difference: SystemDifference | None) -> tuple[str, str]:
    if difference is None:
        return "", ""
    ends = difference.interval
    return f"{difference.value:+.4f}", f"[{ends.low:+.4f}, {ends.high:+.4f}]"


@dataclass(frozen=True)
class RunRequest(RunSettings):
    """What `run` was called with."""

    FIRST: ClassVar[tuple[str, ...]] = (
        "log",
        "folder",
        "tell",
        "command",
        "force",
        *RunSettings.FIRST,
    )

    log: Any
    folder: str | os.PathLike[str]
    _: KW_ONLY
    tell: Callable[[str], None] | None = None
    command: str = ""
    force: bool = False


@taking(RunRequest)
def run(request: RunRequest) -> RunResult:
    """The main job: read, audit, estimate the bias, train, choose, evaluate on held-out queries.

    The chosen method is trained again on all queries: that is the candidate. The estimate is of
    the same method without the queries that it was judged by. The ranker to use goes from the old
    order towards the candidate as far as clicks show to be safe; there is none where no step is.

    The folder gets `report.html`, `figures.json` (every figure), `tables/` (the same as Parquet),
    `candidate.untilt` and its model card `ranker.md`, `ranker.untilt`, `bias.json`, `audit.json`,
    `run.toml` (the options) and `provenance.json` (when and where). Stopped at any moment, the
    same call goes on where it was and ends with the same result; changed options redo just what
    depends on them. See docs/run.md.

    Where the log cannot tell its position bias, a curve is assumed and every place that uses it
    says so. Where it has no features, documents are reordered by their own clicks instead.

    Parameters
    ----------
    log : a `ClickLog`, or any source of `untilt.read_log`
    tell : called with a sentence after each step
    command : how the run was started, for the record
    force : use a folder that holds other files, too; only files of our own names are replaced
    further options : see `untilt.workflow.options.RunSettings`
    """
    log, tell, command = request.log, request.tell, request.command
    chosen = with_title(settled(request), log)
    grades = (
        chosen.grades if isinstance(chosen.grades, Grades | None) else read_labels(chosen.grades)
    )
    bias_choice(chosen.bias), parse_curve(chosen.fallback)  # wrong ones before long work
    place = RunFolder(Path(request.folder))
    place.check(force=request.force)
    refuse_inputs(
        place.written, (log, chosen.documents, *_files(chosen.bias), *_files(chosen.grades))
    )
    place.mark_as_run_folder()
    with locked(place.work / "lock"):
        place.clear_unfinished()
        place.remove_blockers()
        say = tell or (lambda _: None)
        steps = Steps(place, say)
        try:
            return _Run(log, place, chosen, steps, command, grades).result()
        except (UntiltError, MemoryError):
            raise
        except codec.DO_NOT_FIT as error:
            # A checksum has no key: steps of somebody else may carry a right one and not fit.
            if not steps.resumed:
                raise
            say(STEPS_DO_NOT_FIT(error=repr(error)))
        return _Run(log, place, chosen, Steps(place, say, anew=True), command, grades).result()


def _files(bias: object) -> list[str]:
    """The file that a bias is read from, where it is one and no name or curve."""
    found = isinstance(bias, str | os.PathLike) and os.path.isfile(bias)
    return [os.fspath(bias)] if found else []  # type: ignore[call-overload]


@dataclass(frozen=True)
class _Written:
    """What the last step leaves besides its files; `tables` are their names."""

    provenance: r.Provenance
    tables: tuple[str, ...]


@dataclass
class _Run:
    """The steps of one run, each a call of a function that knows nothing of the others."""

    source: Any
    folder: RunFolder
    options: RunOptions
    steps: Steps
    command: str
    grades: Grades | None

    @property
    def _judging(self) -> tuple[RunOptions, list[Grades]]:
        """The options with the grades that were read, and what a key has of these."""
        options = replace(self.options, grades=self.grades)
        return options, [] if self.grades is None else [self.grades]

    def result(self) -> RunResult:
        """All steps, in order."""
        read, data = read_step(self.source, self.folder, self.options, self.steps)
        if self.options.baseline is not None:
            baseline_lists(data.log, self.options.baseline)  # a wrong name before long work
        seen = self._audit(read, data)
        named = named_features(self.options.features)
        kept_out = seen.result.kept_out(named)
        data = data.merged().without(kept_out)
        if seen.result.shown is not None:
            seen.result.shown.check()
        split = self.steps.run(
            "split",
            r.Split,
            lambda: split_of(data, read.result.begins),
            read.key,
            self.options.pick("split", "valid_share", "test_share", "folds", "seed"),
            what="holding out queries for the evaluation",
        )
        used = self._bias(seen, split, data)
        known = Decision(
            title=self.options.title or "click log",
            source=read.result,
            audit=seen.result,
            split=split.result,
            bias=used.result,
            kept_out=kept_out,
        )
        has_features = seen.result.size.features > len(kept_out)
        steps = self._rankers if has_features else self._documents
        decision = self._report(steps(known, used, data), split.result)
        times = self._times(decision.training)
        return RunResult(self.folder.path, decision, self.steps.resumed, times)

    def _times(self, training: r.Training | None) -> tuple[r.StepTime, ...]:
        store, found = CandidateStore(self.folder.candidates), []
        for step in self.steps.times:
            found.append(step)
            for each in () if training is None or step.name != "rankers" else training.candidates:
                seconds = sum(store.seconds(Path(file).stem) for file in each.files)
                found.append(r.StepTime(each.name, seconds, step.resumed, of=step.name))
        return tuple(found)

    def _audit(self, read: Done[r.LogSource], data: Data) -> Done[Audit]:
        def compute() -> Audit:
            options = self.options
            audited = audit(data.log, depth=data.log.depth, **options.pick(*AUDITED))
            codec.write_json(self.folder.audit, audited.to_dict())
            return audited

        return self.steps.run(
            "audit",
            Audit,
            compute,
            read.key,
            self.options.pick(*AUDITED),
            what="auditing the log",
            files=lambda _: [self.folder.audit],
        )

    def _bias(self, seen: Done[Audit], split: Done[r.Split], data: Data) -> Done[r.UsedBias]:
        def compute() -> r.UsedBias:
            audited = seen.result
            scores = left_out_of_curve(data.log, audited.sort_keys)
            used = used_bias(data.without(scores), audited, self.options)
            used.bias.save(self.folder.bias)
            return used

        wanted = self.options.pick("bias", "fallback", "level", "seed", "context")
        wanted["bias"] = bias_choice(wanted["bias"])
        return self.steps.run(
            "bias",
            r.UsedBias,
            compute,
            seen.key,
            split.key,
            wanted,
            what="estimating the position bias",
            files=lambda _: [self.folder.bias],
        )

    def _rankers(self, known: Decision, used: Done[r.UsedBias], data: Data) -> Decision:
        """Rankers, for a log with features."""
        options, bias, spent = self.options, used.result.bias, self.steps.seconds
        store = CandidateStore(self.folder.candidates, {})
        self.folder.order.unlink(missing_ok=True)  # of an earlier run on a log without features
        data = data.numbered_for(bias)
        plan = self.steps.run(
            "plan",
            r.TrainingPlan,
            lambda: make_plan(data, bias, options, spent=spent),
            used.key,
            options.pick("method", "trees", "time_limit", "threads", "seed"),
            what="planning the training",
        )
        trainer = Trainer(data, bias, options, plan.result, store)
        training = self.steps.run(
            "rankers",
            r.Training,
            lambda: trainer.train_and_choose(self._seconds_left()),
            plan.key,
            options.pick("metric", "evaluator", "clip", "among", "baseline", "level"),
            what="training rankers and choosing one by held-out clicks",
            files=self._ranker_files,
            work=trainer.work(*plan.result.method),
        )
        known = replace(known, plan=plan.result, training=training.result)
        if training.result.best is None:
            self._remove_rankers()
            return known
        candidate = self.steps.run(
            "refit",
            r.Shipped,
            lambda: refit(
                trainer, training.result, file=self.folder.candidate,
                seconds_left=self._seconds_left(),
            ),
            plan.key,
            training.result.best.method,
            what=f"training {training.result.best.name} again on all queries",
            files=lambda _: [self.folder.candidate],
            work=trainer.work(training.result.best.method) / data.n_folds,
        )  # fmt: skip
        known = replace(known, candidate=candidate.result)
        old_score = None if known.audit is None else known.audit.old_score
        judging, graded = self._judging
        held_out = self.steps.run(
            "evaluate",
            r.HeldOut,
            lambda: evaluate_rankers(
                data.judged("test", bias.depth), bias, judging, training.result,
                store, self.folder.candidate, old_score=old_score,
                assumed=used.result.kind == "assumed",
            ),
            training.key,
            candidate.key,
            old_score,
            *graded,
            what="evaluating on held-out queries",
        )  # fmt: skip
        known = replace(known, held_out=held_out.result)
        self.steps.run(
            "ship",
            r.ShippedFile,
            lambda: ship(known, self.folder, data.all(bias.depth), store),
            held_out.key,
            what="writing the ranker to use",
            files=lambda written: [self.folder.ranker] if written.w else [],
        )
        return known

    def _remove_rankers(self) -> None:
        """Those of an earlier run on another log."""
        self.folder.ranker.unlink(missing_ok=True)
        self.folder.candidate.unlink(missing_ok=True)

    def _seconds_left(self) -> float | None:
        limit = self.options.time_limit
        return None if limit is None else limit - self.steps.seconds

    def _ranker_files(self, training: r.Training) -> list[Path]:
        return [self.folder.candidates / f for each in training.candidates for f in each.files]

    def _documents(self, known: Decision, used: Done[r.UsedBias], data: Data) -> Decision:
        """Documents by their own clicks, for a log without features."""
        options, (judging, graded) = self.options, self._judging
        models = self.steps.run(
            "clickmodels",
            r.ClickModels,
            lambda: click_models(data, options),
            used.key,
            what="comparing click models",
        )

        def compute() -> r.HeldOut:
            self._remove_rankers()
            bias = used.result.bias
            return reorder(data.numbered_for(bias), bias, judging, self.folder.order)

        held_out = self.steps.run(
            "evaluate",
            r.HeldOut,
            compute,
            used.key,
            options.pick("metric", "evaluator", "clip", "among", "baseline", "level", "seed"),
            *graded,
            what="evaluating on held-out sessions",
            files=lambda _: [self.folder.order],
        )
        return replace(known, click_models=models.result, held_out=held_out.result)

    def _report(self, known: Decision, split: r.Split) -> Decision:
        def compute() -> _Written:
            from untilt.report.card import model_card
            from untilt.report.page import page

            times = self._times(known.training)
            how = provenance(self.options, times, split, command=self.command)
            decision = replace(known, provenance=how)
            tables = write_tables(decision, self.folder.tables)
            write_text(self.folder.options, config_text(self.options, log=self.source))
            write_figures(decision, self.folder.figures)
            write_page(page(decision), self.folder.report)
            if known.candidate is None:
                self.folder.card.unlink(missing_ok=True)  # of an earlier run on another log
            else:
                write_page(model_card(known), self.folder.card)
            return _Written(how, tables)

        written = self.steps.run(
            "report",
            _Written,
            compute,
            {step.name: step.key for step in self.steps.done},
            self.options.title,
            what="writing the report",
            files=lambda written: self._report_files(written, known),
        )
        return replace(known, provenance=written.result.provenance)

    def _report_files(self, written: _Written, known: Decision) -> list[Path]:
        own = self.folder
        cards = [] if known.candidate is None else [own.card]
        tables = [table_path(own.tables, name) for name in written.tables]
        return [own.report, own.figures, own.provenance, own.options, *cards, *tables]
