"""What a run leaves: one value that knows where everything lies."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from untilt.bias.position_bias import PositionBias
from untilt.report.decision import Decision
from untilt.workflow.folder import RunFolder


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
