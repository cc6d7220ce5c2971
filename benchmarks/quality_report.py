"""What the lines of bench_quality.py say: means by cell, paired differences, who is below whom.

A query's value is its mean over the worlds that tested it (a real query may be tested several
times, a synthetic one is drawn once). The error of a difference is the standard deviation of the
queries' differences over the root of their number: it does not count that other training queries
would have given other rankers, so "below by more than two errors" is said rather too often than too
seldom.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from quality_rows import AUTO, LABELS, LIGHTGBM, OLD, OUTSIDE, PEERS, RAW, RUN, XGBOOST
from quality_world import FOLDS, REAL, Array, Setting

OURS = (AUTO, RUN)  # what must never lose; the single methods are what they are measured against
AIM = 0.005  # regret to the best of our own


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
    own = {row: each["ndcg"] for row, each in found.items() if _is_own(row, values)}
    best = max(own, key=lambda row: own[row])
    regret = {row: _difference(values[best], values[row]) for row in OURS if row in found}
    return {
        "cell": setting.name,
        "title": _title(setting, group),
        "group": group,
        "setting": asdict(setting),
        "worlds": len({line.seed for line in lines}),
        "queries": len(values[RAW]),
        "shown": round(float(np.mean([line.shown for line in lines])), 3),
        "best_of_own": best,
        "regret": {
            row: dict(zip(("value", "error"), each, strict=True)) for row, each in regret.items()
        },
        "versus": {
            row: {
                other: dict(
                    zip(("value", "error"), _difference(values[row], values[other]), strict=True)
                )
                for other in (RAW, *PEERS)
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
    named = {"synthetic": "synthetic", "mq2008": "MQ2008", "ohsumed": "OHSUMED", "mslr": "MSLR"}
    words = [f"{setting.queries:,} queries"] if group == "large" else [named[setting.data]]
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


def _is_own(row: str, values: Mapping[str, Mapping[Any, float]]) -> bool:
    """Ours, and measured on every query of the cell: a rarer weighting may lack some worlds."""
    return row not in OUTSIDE and len(values[row]) == len(values[RAW])


def _by_query(lines: list[Line]) -> dict[tuple[int, int], float]:
    """(part, number of the query) -> mean over the worlds that tested it."""
    kept: dict[tuple[int, int], list[float]] = defaultdict(list)
    for line in lines:
        part = line.seed % FOLDS if line.setting.data in REAL else line.seed
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
        "gain": gain,
        "gain_error": error,
        "share": round(gain / gap, 3) if gap > 0 else None,
        "seconds": round(float(np.mean([line.seconds for line in mine])), 1),
    }
    trees = [line.trees for line in mine if line.trees is not None]
    chosen = [line.about["chosen"] for line in mine if "chosen" in line.about]
    if trees:
        told["trees"] = round(float(np.mean(trees)))
    if chosen:
        told["chosen"] = {name: chosen.count(name) for name in sorted(set(chosen))}
        told["bias"] = sorted({f"{line.about['bias']}, {line.about['by']}" for line in mine})
    return told


def counts(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """How often `auto` and `run` lose, and to whom; which cells."""
    told: dict[str, Any] = {"cells": len(cells)}
    for row in OURS:
        here = [cell for cell in cells if row in cell["versus"]]
        for other in (RAW, *PEERS):
            losses = {_short(c): c["versus"][row][other] for c in here if other in c["versus"][row]}
            below = [name for name, d in losses.items() if d["value"] < 0]
            clearly = [name for name in below if losses[name]["value"] < -2 * losses[name]["error"]]
            told[f"{row} below {other}"] = below
            told[f"{row} below {other} by more than 2 errors"] = clearly
        told[f"{row} regret over {AIM}"] = [
            _short(c) for c in here if c["regret"][row]["value"] > AIM
        ]
        gains = [c["versus"][row][RAW]["value"] for c in here]
        told[f"{row} mean gain over raw clicks"] = (
            round(float(np.mean(gains)), 4) if gains else None
        )
    return told


def _short(cell: dict[str, Any]) -> str:
    return f"{cell['group']}: {cell['title']}"


def cell_columns(cells: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table that is printed."""
    columns = (OLD, RAW, LIGHTGBM, XGBOOST, AUTO, RUN, LABELS)
    header = ["cell", "queries", *columns, "auto - raw", "run - raw", "best of own", "regret"]
    return header, [
        [
            cell["cell"],
            str(cell["queries"]),
            *(_number(cell["rows"].get(name)) for name in columns),
            *(_signed(cell["versus"].get(name, {}).get(RAW)) for name in OURS),
            cell["best_of_own"],
            " ".join(f"{each['value']:.4f}" for each in cell["regret"].values()),
        ]
        for cell in cells
    ]


def _number(row: dict[str, Any] | None) -> str:
    return "-" if row is None else f"{row['ndcg']:.4f}"


def _signed(difference: dict[str, float] | None) -> str:
    return "-" if difference is None else f"{difference['value']:+.4f} +- {difference['error']:.4f}"
