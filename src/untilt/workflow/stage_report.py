"""Step 7: how it was computed, and every figure as Parquet, one table for each part."""

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from untilt._core.addresses import without_secrets
from untilt._core.arrays import FloatArray
from untilt._core.clock import time_is_fixed, time_of_writing
from untilt._core.files import replacing
from untilt._version import __version__
from untilt.data.write_log import column_of, write_columns
from untilt.report.decision import Decision
from untilt.report.step_results import HeldOut, Provenance, Split, StepTime
from untilt.workflow.options import RunOptions

PACKAGES = ("numpy", "scipy", "numba", "lightgbm", "duckdb")
Cell = str | float | int | bool | None
Rows = list[dict[str, Cell]]
_NONE_HELD_OUT: dict[str, Rows] = {
    "moved": [], "pair_bias": [], "rankers": [], "clip_curve": [], "importances": [],
    "changed_queries": [],
}  # fmt: skip


def provenance(
    options: RunOptions, steps: tuple[StepTime, ...], split: Split, *, command: str
) -> Provenance:
    """Versions, options, machine and the seconds of each step."""
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    return Provenance(
        command=without_secrets(command),
        finished=time_of_writing(),
        seed=options.seed,
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        versions={
            "untilt": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in PACKAGES},
        },
        options={name: _text(value) for name, value in values.items() if value is not None},
        sizes={f"{name} sessions": n for name, n in split.sessions.items()},
        # Where the time is fixed, so that two runs give the same bytes, none is measured either.
        steps=() if time_is_fixed() else steps,
    )


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return without_secrets(", ".join(map(str, value)))
    text = without_secrets(str(value))
    return text if len(text) <= 200 and "\n" not in text else f"a {type(value).__name__}"


def write_tables(decision: Decision, folder: Path) -> tuple[str, ...]:
    """Write each part that has rows; returns the names of the tables.

    Those of an earlier run with other options, which this one has no rows for, are removed.
    """
    tables = _tables(decision)
    for name, rows in tables.items():
        if not rows:
            table_path(folder, name).unlink(missing_ok=True)
            continue
        columns = {column: column_of(row[column] for row in rows) for column in rows[0]}
        with replacing(table_path(folder, name)) as temporary:
            write_columns(temporary, table_path(folder, name), [columns])
    return tuple(name for name, rows in tables.items() if rows)


def table_path(folder: Path, name: str) -> Path:
    """Where a table lies."""
    return folder / f"{name}.parquet"


def _tables(decision: Decision) -> dict[str, Rows]:
    audit, bias = decision.audit, decision.bias
    curves = {} if bias is None else bias.bias.contexts or {bias.bias.method: bias.bias}
    models = decision.click_models.models if decision.click_models else ()
    return {
        "click_rates": _curves({} if audit is None else {"click rate": audit.click_rates}, "rate"),
        "examination": _curves(curves, "examination"),
        "position_graph": [
            {name: getattr(edge, name) for name in ("upper", "lower", "documents", "weight")}
            for edge in (audit.graph.edges if audit else ())
        ],
        "click_models": [
            {
                "model": each.model,
                "log_likelihood": each.log_likelihood.value,
                "low": each.log_likelihood.interval.low,
                "high": each.log_likelihood.interval.high,
                "perplexity": each.perplexity.value,
                "conditional_perplexity": each.conditional_perplexity.value,
            }
            for each in models
        ],
        "choice": []
        if decision.training is None or decision.training.comparison is None
        else [
            {
                "ranker": each.system,
                "default": each.baseline,
                "difference": each.value,
                "low": each.interval.low,
                "high": each.interval.high,
                "corrected_p": each.corrected_p,
            }
            for each in decision.training.comparison
        ],
        **(_NONE_HELD_OUT if decision.held_out is None else _held_out(decision.held_out)),
        "warnings": [
            {"code": each.code, "severity": each.severity, "warning": str(each)}
            for each in decision.warnings
        ],
    }


def _held_out(part: HeldOut) -> dict[str, Rows]:
    clips, pairs = part.clip_curve, part.pair_bias
    return {
        "moved": _curves(part.new_positions, "value"),
        "pair_bias": []
        if pairs is None
        else [*_curve("t+ (clicked)", pairs.plus), *_curve("t- (not clicked)", pairs.minus)],
        "rankers": _rankers(part),
        "clip_curve": []
        if clips is None
        else _columns(
            clip=clips.clip, value=clips.value, low=clips.low, high=clips.high,
            clipped_share=clips.clipped_share,
        ),
        "importances": [{"name": name, "share": each} for name, each in part.importances.items()],
        "changed_queries": [
            {"query": query.query, "sessions": query.sessions, **asdict(document)}
            for query in part.changed
            for document in query.documents
        ],
    }  # fmt: skip


def _curves(named: Mapping[str, Any], value: str) -> Rows:
    """Rows of each curve by its name; `value` is the attribute with its values."""
    return [
        row
        for name, each in named.items()
        for row in _curve(name, getattr(each, value), each.low, each.high)
    ]


def _curve(
    name: str, value: FloatArray, low: FloatArray | None = None, high: FloatArray | None = None
) -> Rows:
    none = [None] * len(value)
    rows = _columns(
        position=range(1, len(value) + 1), value=value, low=none if low is None else low,
        high=none if high is None else high,
    )  # fmt: skip
    return [{"curve": name, **row} for row in rows]


def _columns(**columns: Iterable[Any]) -> Rows:
    """Rows from columns of equal length; NumPy's numbers become Python's."""
    lists: Mapping[str, list[Any]] = {
        name: column.tolist() if hasattr(column, "tolist") else list(column)
        for name, column in columns.items()
    }
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _rankers(part: HeldOut) -> Rows:
    rows: Rows = []
    differences = {each.system: each for each in part.comparison}
    for each in part.estimates:
        gap = differences.get(each.system)
        rows.append(
            {
                "ranker": each.system,
                "chosen": each.system == part.chosen,
                "value": each.value,
                "low": each.interval.low,
                "high": each.interval.high,
                "difference": gap.value if gap else None,
                "difference_low": gap.interval.low if gap else None,
                "difference_high": gap.interval.high if gap else None,
                "decided": gap.decided if gap else None,
            }
        )
    return rows
