"""From a log to a decision: the main job, step by step, resumable."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from untilt._core import codec
from untilt._core.files import replacing
from untilt.auditing.audit import audit
from untilt.bias.curve import PositionBias
from untilt.bias.given import parse_curve
from untilt.report.decision import Decision, write_report
from untilt.report.plain import to_plain
from untilt.workflow.decide import decision_of, how_computed
from untilt.workflow.folder import RunFolder, locked
from untilt.workflow.options import Options, RunOptions, config_text, options_of, with_title
from untilt.workflow.stage_bias import bias_choice, cut_warning, find_bias
from untilt.workflow.stage_documents import WHY, click_models, reorder
from untilt.workflow.stage_judge import judge
from untilt.workflow.stage_rankers import make_plan, train_and_choose
from untilt.workflow.stage_read import PARTS, Data, log_path, part_of_queries, read_step
from untilt.workflow.steps import Done, Steps
from untilt.workflow.tables import write_tables

# What a run leaves: one value that knows where everything lies.


@dataclass(frozen=True, eq=False, repr=False)
class RunResult:
    """A finished run.

    Parameters
    ----------
    folder : where everything lies
    decision : every figure of the report
    bias_kind : "measured", "modelled" (rests on a model of relevance), "given" or "assumed"
    resumed : steps that an earlier run had done
    """

    folder: Path
    decision: Decision
    bias_kind: str
    resumed: tuple[str, ...]

    @property
    def report(self) -> Path:
        """The page to look at."""
        return RunFolder(self.folder).report

    @property
    def bias(self) -> PositionBias:
        """The position bias that was used."""
        return PositionBias.load(RunFolder(self.folder).bias)

    @property
    def ranker(self) -> Any:
        """The ranker that was chosen; None where none could be trained."""
        from untilt.rankers.persist import load

        path = RunFolder(self.folder).ranker
        return load(path) if path.exists() else None

    @property
    def candidates(self) -> dict[str, Any]:
        """Every ranker that was trained, by its name in the report; none without features."""
        from untilt.rankers.persist import load

        folder = RunFolder(self.folder)
        record = folder.work / "steps" / "rankers.json"
        if not (folder.ranker.exists() and record.exists()):
            return {}
        found = json.loads(record.read_text(encoding="utf-8"))["result"]["candidates"]
        return {each["name"]: load(folder.candidates / each["file"]) for each in found}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Every warning, the gravest first."""
        return self.decision.warnings

    def rows(self) -> list[tuple[str, ...]]:
        """Cells of a table: ranker, value, difference to the logged order and its interval."""
        if self.decision.rankers is None:
            return []
        return [
            (
                entry.name + (" *" if entry.chosen else ""),
                _number(entry.value.value),
                "" if entry.difference is None else _number(entry.difference.value, sign="+"),
                "" if entry.difference is None else _interval(entry.difference, sign="+"),
            )
            for entry in self.decision.rankers.entries
        ]

    def __repr__(self) -> str:
        answer = self.decision.answer
        verdict = self.decision.no_answer
        if answer is not None:
            verdict = (
                f"{answer.new} is {answer.verdict}: {_number(answer.difference.value, sign='+')} "
                f"{answer.metric} {_interval(answer.difference, sign='+')} to the {answer.shown}"
            )
        return (
            f"RunResult({verdict}; bias {self.bias_kind}; {len(self.warnings)} warnings; "
            f"{self.report})"
        )


def _number(value: float | None, *, sign: str = "") -> str:
    return "unknown" if value is None else f"{value:{sign}.4f}"


def _interval(value: Any, *, sign: str = "") -> str:
    return f"[{_number(value.low, sign=sign)}, {_number(value.high, sign=sign)}]"


def run(
    log: Any,
    folder: str | os.PathLike[str],
    *,
    tell: Callable[[str], None] | None = None,
    command: str = "",
    **options: Unpack[Options],
) -> RunResult:
    """The main job: read, audit, estimate the bias, train, choose, judge on held-out queries.

    The folder gets `report.html`, `figures.json` (every figure), `tables/` (the same as Parquet),
    `ranker.untilt`, `bias.json`, `audit.json` and `run.toml` (the options). Stopped at any moment,
    the same call goes on where it was and ends with the same result; changed options redo just what
    depends on them. See docs/run.md.

    Where the log cannot tell its position bias, a curve is assumed and every place that uses it
    says so. Where it has no features, documents are reordered by their own clicks instead.

    Parameters
    ----------
    log : a `ClickLog`, or any source of `untilt.read_log`
    tell : called with a sentence after each step
    command : how the run was started, for the record
    options : see `untilt.workflow.options.RunOptions`
    """
    chosen = with_title(options_of(options), log)
    bias_choice(chosen.bias), parse_curve(chosen.fallback)  # wrong ones before long work
    place = RunFolder(Path(folder))
    place.check()
    with locked(place.work / "lock"):
        place.clear_unfinished()
        steps = Steps(place.work / "steps", tell or _silent)
        return _Run(log, place, chosen, steps, command).result()


def _silent(_: str) -> None:
    """Nobody listens."""


@dataclass
class _Run:
    """The steps of one run, each a call of a function that knows nothing of the others."""

    source: Any
    folder: RunFolder
    options: RunOptions
    steps: Steps
    command: str

    def result(self) -> RunResult:
        """All steps, in order."""
        read, data = read_step(self.source, self.folder, self.options, self.steps)
        seen = self._audit(read, data)
        split = self._split(read, data)
        found = self._bias(seen, split, data)
        bias = codec.from_plain(PositionBias, found.result["bias"], where="bias")
        if seen.result["features"]:
            facts = self._rankers(found, data, bias)
        else:
            facts = self._documents(found, data, bias)
        done = [read, seen, split, found, *facts]
        decision = self._report({step.name: step for step in done})
        resumed = tuple(step.name for step in self.steps.done if step.resumed)
        return RunResult(self.folder.path, decision, found.result["kind"], resumed)

    def _audit(self, read: Done, data: Data) -> Done:
        def compute() -> dict[str, Any]:
            found = audit(data.log, level=self.options.level).to_dict()
            _write_json(self.folder.audit, found)
            return found

        return self.steps.run(
            "audit",
            compute,
            read.key,
            self.options.level,
            what="auditing the log",
            files=lambda _: [self.folder.audit],
        )

    def _split(self, read: Done, data: Data) -> Done:
        def compute() -> dict[str, Any]:
            return part_of_queries(data)

        wanted = self.options.pick("split", "valid_share", "test_share", "seed")
        return self.steps.run(
            "split", compute, read.key, wanted, what="setting queries aside to judge by"
        )

    def _bias(self, seen: Done, split: Done, data: Data) -> Done:
        def compute() -> dict[str, Any]:
            found = find_bias(data, seen.result, self.options)
            found.bias.save(self.folder.bias)
            record = found.record()
            return {**record, "warnings": [*found.warnings, *cut_warning(found.bias, data.log)]}

        wanted = self.options.pick("bias", "fallback", "level", "seed")
        wanted["bias"] = bias_choice(wanted["bias"])
        return self.steps.run(
            "bias",
            compute,
            seen.key,
            split.key,
            wanted,
            what="estimating the position bias",
            files=lambda _: [self.folder.bias],
        )

    def _rankers(self, found: Done, data: Data, bias: PositionBias) -> list[Done]:
        options, depth, spent = self.options, bias.depth, self.steps.seconds
        plan = self.steps.run(
            "plan",
            lambda: make_plan(data.cut("train", depth), bias, options, spent=spent),
            found.key,
            options.pick("method", "trees", "time_limit", "threads", "seed"),
            what="planning the training",
        )
        rankers = self.steps.run(
            "rankers",
            lambda: self._train(plan, data, bias),
            plan.key,
            options.pick("metric", "evaluator", "clip", "among", "level"),
            what="training rankers and choosing one by held-out clicks",
            files=self._ranker_files,
        )
        if rankers.result["chosen"] is None:
            return [plan, rankers]
        judged = self.steps.run(
            "judge",
            lambda: judge(
                data.cut("test", depth), bias, options, rankers.result, self.folder.candidates
            ),
            rankers.key,
            what="judging on held-out queries",
        )
        return [plan, rankers, judged]

    def _train(self, plan: Done, data: Data, bias: PositionBias) -> dict[str, Any]:
        limit = self.options.time_limit
        found = train_and_choose(
            data.cut("train", bias.depth),
            data.cut("valid", bias.depth),
            bias,
            self.options,
            plan.result,
            folder=self.folder.candidates,
            seconds_left=None if limit is None else limit - self.steps.seconds,
        )
        chosen = next((e for e in found["candidates"] if e["method"] == found["chosen"]), None)
        if chosen is None:
            self.folder.ranker.unlink(missing_ok=True)
        else:
            with replacing(self.folder.ranker) as temporary:
                shutil.copyfile(self.folder.candidates / chosen["file"], temporary)
        return found

    def _ranker_files(self, result: dict[str, Any]) -> list[Path]:
        if result["chosen"] is None:
            return []
        files = [self.folder.candidates / each["file"] for each in result["candidates"]]
        return [*files, self.folder.ranker]

    def _documents(self, found: Done, data: Data, bias: PositionBias) -> list[Done]:
        options = self.options
        models = self.steps.run(
            "clickmodels",
            lambda: click_models(data, options),
            found.key,
            what="comparing click models",
        )

        def compute() -> dict[str, Any]:
            self.folder.ranker.unlink(missing_ok=True)  # of an earlier run on another log
            return {**reorder(data, bias, options), "warnings": [WHY]}

        judged = self.steps.run(
            "judge",
            compute,
            found.key,
            options.pick("metric", "evaluator", "clip", "among", "level", "seed"),
            what="judging on held-out sessions",
        )
        return [models, judged]

    def _report(self, done: dict[str, Done]) -> Decision:
        facts = {name: step.result for name, step in done.items()}

        def compute() -> dict[str, Any]:
            sizes = {f"{name} sessions": facts["split"]["sessions"][name] for name in PARTS}
            how = how_computed(self.options, self.steps.done, sizes, command=self.command)
            decision = decision_of(facts, self.options, how)
            models = facts.get("clickmodels", {}).get("models", [])
            tables = write_tables(decision, self.folder.tables, click_models=models)
            self._write_options()
            decision.save(self.folder.figures)
            write_report(decision, self.folder.report)
            return {"tables": tables}

        self.steps.run(
            "report",
            compute,
            {name: step.key for name, step in done.items()},
            self.options.title,
            what="writing the report",
            files=lambda _: [self.folder.report, self.folder.figures, self.folder.options],
        )
        return Decision.load(self.folder.figures)

    def _write_options(self) -> None:
        places = {"log": log_path(self.source), "out": None}
        with replacing(self.folder.options) as temporary:
            temporary.write_text(config_text(self.options, **places), encoding="utf-8")


def _write_json(path: Path, record: dict[str, Any]) -> None:
    with replacing(path) as temporary:
        text = json.dumps(to_plain(record), indent=1, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")
