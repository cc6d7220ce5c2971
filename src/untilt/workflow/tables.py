"""The figures of a report as Parquet, one table for each part."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from untilt._core.files import replacing
from untilt.report.decision import Decision, PositionCurve

Row = Mapping[str, Any]


def write_tables(decision: Decision, folder: Path, **further: list[dict[str, Any]]) -> list[str]:
    """Write each part that has rows; returns the names of the tables."""
    tables = {**_tables(decision), **further}
    written = [name for name, rows in tables.items() if rows]
    for name in written:
        _write(folder / f"{name}.parquet", tables[name])
    return written


def _tables(decision: Decision) -> dict[str, list[dict[str, Any]]]:
    examination = decision.examination.curves if decision.examination else ()
    edges = decision.identifiability.edges if decision.identifiability else ()
    return {
        "click_rates": _curves(decision.click_rates),
        "examination": _curves(examination),
        "moved": _curves(decision.moved),
        "pair_bias": _curves(decision.pair_bias),
        "position_graph": [asdict(edge) for edge in edges],
        "rankers": _rankers(decision),
        "clip_curve": _clips(decision),
        "importances": [asdict(each) for each in decision.importances],
        "changed_queries": [
            {"query": query.query, "sessions": query.sessions, **asdict(document)}
            for query in decision.changed
            for document in query.documents
        ],
        "warnings": [{"warning": each} for each in decision.warnings],
    }


def _curves(curves: Iterable[PositionCurve]) -> list[dict[str, Any]]:
    return [
        {
            "curve": curve.name,
            "position": position,
            "value": curve.value[i],
            "low": curve.low[i] if curve.low else None,
            "high": curve.high[i] if curve.high else None,
        }
        for curve in curves
        for i, position in enumerate(curve.position)
    ]


def _rankers(decision: Decision) -> list[dict[str, Any]]:
    if decision.rankers is None:
        return []
    return [
        {
            "ranker": entry.name,
            "chosen": entry.chosen,
            **asdict(entry.value),
            "difference": entry.difference.value if entry.difference else None,
            "difference_low": entry.difference.low if entry.difference else None,
            "difference_high": entry.difference.high if entry.difference else None,
            "decided": entry.decided,
        }
        for entry in decision.rankers.entries
    ]


def _clips(decision: Decision) -> list[dict[str, Any]]:
    curve = decision.clip_curve
    if curve is None:
        return []
    names = ("tau", "value", "low", "high", "clipped_share")
    columns = {name: getattr(curve, name) for name in names}
    return [
        {name: column[i] for name, column in columns.items() if column}
        for i in range(len(curve.tau))
    ]


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows), temporary, compression="zstd")
