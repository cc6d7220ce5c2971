"""What the lines of bench_quality.py say: means by cell, paired differences, who is below whom.

The error of a value is over the worlds of a cell. A query's value is its mean over the worlds that
tested it (a real query may be tested several times, a synthetic one is drawn once). The error of a
difference is the standard deviation of the queries' differences over the root of their number: it
does not count that other training queries would have given other rankers, so "below by more than
two errors" is said rather too often than too seldom.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from quality_rows import AUTO, BEST_LOGGED, LABELS, PEERS, RAW, RUN
from quality_world import WORLDS, Array, Setting

OURS = (RUN, AUTO)  # what must never lose
OTHERS = (RAW, *PEERS, BEST_LOGGED)
NAMES = {setting: name for name, setting in WORLDS.items()}


@dataclass(frozen=True)
class Line:
    """A row on one world; no NDCG where it broke, with the error."""

    setting: Setting
    seed: int
    row: str
    ndcg: Array | None
    trees: int | None = None
    seconds: float = 0.0
    error: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    shown: float = 1.0


def summary(lines: Iterable[Line], group: Mapping[Setting, str]) -> list[dict[str, Any]]:
    """A record for each cell, in the order of `group`; seeds that lack raw clicks are left out."""
    by_cell: dict[Setting, list[Line]] = defaultdict(list)
    for line in lines:
        by_cell[line.setting].append(line)
    return [
        _cell(setting, group[setting], by_cell[setting])
        for setting in group
        if any(line.row == RAW for line in by_cell[setting])
    ]


def _cell(setting: Setting, group: str, lines: list[Line]) -> dict[str, Any]:
    values = {row: _by_query([each for each in lines if each.row == row]) for row in _names(lines)}
    found = {row: _row(row, values, lines) for row in values if len(values[row])}
    return {
        "cell": setting.name,
        "title": _title(setting, group),
        "group": group,
        "setting": asdict(setting),
        "worlds": len({line.seed for line in lines}),
        "queries": len(values[RAW]),
        "shown": round(float(np.mean([line.shown for line in lines])), 3),
        "versus": {
            row: {
                other: dict(
                    zip(("value", "error"), _difference(values[row], values[other]), strict=True)
                )
                for other in OTHERS
                if other in found
            }
            for row in OURS
            if row in found
        },
        "failed": sorted({f"{line.row}: {line.error}" for line in lines if line.error}),
        "rows": found,
    }


def _title(setting: Setting, group: str) -> str:
    """The cell in a few words, without what all cells of its group share."""
    if group == "worlds":
        return NAMES.get(setting, setting.name)
    words = [f"{setting.queries:,} queries" if group == "large" else setting.data]
    if group == "synthetic":
        words = [setting.protocol, "1 ranker" if setting.rankers == 1 else "3 rankers"]
    if group == "readers":
        words += [setting.reader, *(["1 ranker"] if setting.rankers == 1 else [])]
    if group == "large":
        words += [setting.protocol]
    if group == "real":
        words += ["1 ranker"] if setting.rankers == 1 else []
        words += [] if setting.cut else ["whole lists"]
    words += ["uneven"] if setting.uneven else []
    return ", ".join([*words, f"{setting.sessions:,}"])


def _names(lines: list[Line]) -> list[str]:
    return list(dict.fromkeys(line.row for line in lines))


def _by_query(lines: list[Line]) -> dict[tuple[int, int], float]:
    """(part, number of the query) -> mean over the worlds that tested it."""
    kept: dict[tuple[int, int], list[float]] = defaultdict(list)
    for line in lines:
        part = line.seed if line.setting.synthetic else line.seed % line.setting.folds
        for number, value in enumerate(() if line.ndcg is None else line.ndcg):
            kept[part, number].append(float(value))
    return {query: float(np.mean(each)) for query, each in kept.items()}


def _difference(first: Mapping[Any, float], second: Mapping[Any, float]) -> tuple[float, float]:
    """Mean of first - second over the queries of both, and its standard error."""
    d = np.array([first[query] - second[query] for query in first.keys() & second.keys()])
    return round(float(d.mean()), 5), round(float(d.std(ddof=1) / np.sqrt(len(d))), 5)


def _row(row: str, values: Mapping[str, Mapping[Any, float]], lines: list[Line]) -> dict[str, Any]:
    """NDCG, gain over raw clicks on the same queries, share of the gap to labels."""
    mine = [line for line in lines if line.row == row and line.ndcg is not None]
    gain, error = _difference(values[row], values[RAW])
    labels = {query: each for query, each in values.get(LABELS, {}).items() if query in values[row]}
    gap = _difference(labels, values[RAW])[0] if labels else 0.0
    told = {
        "ndcg": round(float(np.mean(list(values[row].values()))), 5),
        "ndcg_error": _error_over_worlds(mine),
        "gain": gain,
        "gain_error": error,
        "share": round(gain / gap, 3) if gap > 0 else None,
        "seconds": round(float(np.mean([line.seconds for line in mine])), 1),
    }
    trees = [line.trees for line in mine if line.trees is not None]
    chosen = [str(line.about["chosen"]) for line in mine if "chosen" in line.about]
    if trees:
        told["trees"] = round(float(np.mean(trees)))
    if chosen:
        told["chosen"] = {name: chosen.count(name) for name in sorted(set(chosen))}
        told["ships"] = round(float(np.mean([line.about["ships"] for line in mine])), 3)
        told["bias"] = sorted({f"{line.about['bias']}, {line.about['by']}" for line in mine})
    return told


def _error_over_worlds(lines: list[Line]) -> float | None:
    """Of the mean over worlds; None for one world."""
    means = [float(line.ndcg.mean()) for line in lines if line.ndcg is not None]
    if len(means) == 1:
        return None
    return round(float(np.std(means, ddof=1) / np.sqrt(len(means))), 5)


def counts(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """How often `run` and `auto` lose, and to whom; which cells."""
    told: dict[str, Any] = {"cells": len(cells)}
    for row in OURS:
        here = {
            f"{cell['group']}: {cell['title']}": cell["versus"][row]
            for cell in cells
            if row in cell["versus"]
        }
        if not here:
            continue
        for other in OTHERS:
            if any(other in versus for versus in here.values()):
                below = [
                    n for n, each in here.items() if other in each and each[other]["value"] < 0
                ]
                told[f"{row} below {other}"] = below
                told[f"{row} below {other} by more than 2 errors"] = [
                    name for name in below if clearly_below(here[name][other])
                ]
        told[f"{row} below any of them by more than 2 errors"] = [
            name for name, each in here.items() if any(map(clearly_below, each.values()))
        ]
        gains = [each[RAW]["value"] for each in here.values()]
        told[f"{row} mean gain over raw clicks"] = round(float(np.mean(gains)), 4)
    return told


def clearly_below(difference: Mapping[str, float]) -> bool:
    """By more than two errors."""
    return difference["value"] < -2 * difference["error"]


def table_of(row: str, cells: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and lines: NDCG of a row of ours, and its difference to every other.

    `**`: below by more than two errors. The last line is the mean over cells.
    """
    here = [cell for cell in cells if row in cell["versus"]]
    lines = [
        [
            cell["title"],
            str(cell["queries"]),
            str(round(sum(each["seconds"] for each in cell["rows"].values()))),
            _plus_minus(cell["rows"][row]["ndcg"], cell["rows"][row]["ndcg_error"], ".4f"),
            *(_signed(cell["versus"][row].get(other)) for other in OTHERS),
        ]
        for cell in here
    ]
    means = [
        _mean([cell["versus"][row][other] for cell in here if other in cell["versus"][row]])
        for other in OTHERS
    ]
    value = float(np.mean([cell["rows"][row]["ndcg"] for cell in here] or [np.nan]))
    lines.append(["mean", "", "", f"{value:.4f}", *map(_signed, means)])
    return ["cell", "queries", "CPU s", row, *(f"- {other}" for other in OTHERS)], lines


def _mean(differences: list[dict[str, float]]) -> dict[str, float] | None:
    if not differences:
        return None
    errors = np.array([each["error"] for each in differences])
    value = float(np.mean([each["value"] for each in differences]))
    return {"value": value, "error": float(np.sqrt((errors**2).sum()) / len(errors))}


def _signed(difference: Mapping[str, float] | None) -> str:
    if difference is None:
        return "-"
    mark = " **" if clearly_below(difference) else ""
    return _plus_minus(difference["value"], difference["error"], "+.4f") + mark


def _plus_minus(value: float, error: float | None, form: str) -> str:
    return f"{value:{form}}" + ("" if error is None else f" +- {error:.4f}")
