"""Does a learner help on any log, and what does `untilt run` ship: NDCG@10 on human labels.

    python benchmarks/bench_quality.py --worlds --ship --jobs 16   eighteen worlds, what `run` ships
    python benchmarks/bench_quality.py --worlds a1 c150 --seeds 1  two of them, once
    python benchmarks/bench_quality.py --sets FOLDER               judged sets of a folder (LETOR)
    python benchmarks/bench_quality.py --ship                      all groups
    python benchmarks/bench_quality.py --tier 2 --ship             larger logs, more seeds
    python benchmarks/bench_quality.py --only "ohsumed, 100"       cells whose name contains this
    python benchmarks/bench_quality.py --report                    the table of what is known
    python benchmarks/bench_quality.py --check-peers               what peers lose by fewer rows

Worlds come from `quality_world` (plain NumPy and LightGBM, nothing of `untilt.simulate`), the rows
stand in `quality_rows`, the sums in `quality_report`. A line of `--lines` is a row on one world: it
is kept with the revision of the worlds, and rows that something of ours is in with that of the
package (or `--label`), so that a later start goes on where this one stopped. A row that nothing of
ours is in holds for all revisions of the package. `--sets` is a folder with a folder for each
judged set; one that is not there is left out. With `--save` the summary goes to
results/quality.json; `make tables` writes docs/evidence.md anew then, `python docs/pictures
quality` its picture. CatBoost takes part where it is installed (`pip install 'untilt[bench]'`).
"""

import argparse
import base64
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import packages_distributions
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import quality_world
from _harness import RESULTS, save, table
from quality_report import NAMES, OURS, Line, counts, summary, table_of
from quality_rows import (
    LIGHTGBM,
    OUTSIDE,
    RUN,
    XGBOOST,
    Fits,
    lightgbm_lambdarank,
    rows,
    timed,
    xgboost_unbiased,
)
from quality_world import WORLDS, Setting, World, make_world, real_sets

HERE = Path(__file__).resolve().parent
WORLD_FILES = ("quality_world.py", "quality_set.py")


@dataclass(frozen=True)
class Cell:
    """One setting with its place in the table, and how many times it is drawn in tiers 1 and 2.

    A real set counts its five folds as one time. The synthetic group has single methods too, and
    with `every` seed 0 the rarer ones.
    """

    group: str
    setting: Setting
    times: tuple[int, int]
    every: bool = False

    def seeds(self, tier: int) -> range:
        return range(self.setting.folds * self.times[tier - 1])

    @property
    def size(self) -> float:
        """Impressions, about."""
        length = self.setting.cut or self.setting.length or 30
        return self.setting.queries * (self.setting.sessions + 10) * length


def cells() -> list[Cell]:
    """The whole design; (0, n) are those of tier 2 alone."""
    dla, prs = Setting(), Setting(protocol="prs", cut=0)
    synthetic = [
        Cell("synthetic", replace(protocol, rankers=n, sessions=sessions), (2, 5), every=n == 3)
        for protocol in (dla, prs)
        for n in (1, 3)
        for sessions in (10, 100, 1000)
    ]
    synthetic += [Cell("synthetic", replace(dla, uneven=True), (1, 3))]
    sets = [Setting(data=name) for name in real_sets()]
    real = [
        Cell("real", replace(each, sessions=sessions), (1, 3))
        for each in sets
        for sessions in (10, 100, 1000)
    ]
    real += [Cell("real", replace(each, rankers=1), (1, 3)) for each in sets]
    real += [Cell("real", replace(each, protocol="prs", cut=0), (1, 2)) for each in sets]
    real += [Cell("real", replace(each, uneven=True, sessions=30), (0, 2)) for each in sets]
    readers = [
        Cell("readers", replace(each, reader=reader), (1, 3))
        for each in (dla, *sets)
        for reader in ("trust", "cascade")
    ]
    readers += [
        Cell("readers", replace(dla, reader=reader, **changes), (0, 3))
        for reader in ("trust", "cascade")
        for changes in ({"sessions": 10}, {"sessions": 1000}, {"rankers": 1})
    ]
    large = [
        Cell("large", replace(protocol, queries=1500, sessions=sessions), (1, 2))
        for protocol in (dla, prs)
        for sessions in (10, 100)
    ]
    large += [
        Cell("large", replace(protocol, queries=queries, sessions=sessions), (0, 1))
        for protocol in (dla, prs)
        for queries, sessions in ((1500, 1000), (4000, 10), (4000, 100), (4000, 1000))
    ]
    worlds = [Cell("worlds", setting, (3, 5)) for setting in WORLDS.values()]
    return [*worlds, *synthetic, *real, *readers, *large]


# ---- one world


@dataclass(frozen=True)
class Task:
    """Rows to be measured on one world."""

    cell: Cell
    seed: int
    wanted: tuple[str, ...]
    label: str
    world: str
    lines: Path


def measure(task: Task) -> list[str]:
    """Appends a line for each row; says what failed."""
    world = make_world(task.cell.setting, task.seed)
    known = rows(every=True)
    fits, failed = Fits(world), []
    for row in task.wanted:
        about: dict[str, Any] = {}
        try:
            scored, seconds = timed(known[row], fits)
            found = {"ndcg": packed(scored.ndcg), "trees": scored.trees, "seconds": seconds}
            about = scored.about
        except Exception as error:  # a row that breaks is a finding, not the end of the table
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
            failed.append(f"{row}: {found['error']}")
        _append(task, row, {**found, "about": about, "shown": float(world.shown.mean())})
    return failed


def _append(task: Task, row: str, found: dict[str, Any]) -> None:
    line = {
        "label": _label(row, task.label),
        "world": task.world,
        "setting": asdict(task.cell.setting),
        "seed": task.seed,
        "row": row,
        **found,
    }
    with task.lines.open("a") as file:
        file.write(json.dumps(line) + "\n")


def packed(ndcg: Any) -> str:
    """Values in steps of 1/50,000 as base64: 1.3 kB for 500 queries."""
    steps = np.rint(50_000 * np.asarray(ndcg)).astype("<u2")
    return base64.b64encode(steps.tobytes()).decode()


def unpacked(text: str) -> Any:
    return np.frombuffer(base64.b64decode(text), dtype="<u2") / 50_000


def _label(row: str, label: str) -> str:
    """Rows that nothing of ours is in hold for all of our revisions."""
    return "outside" if row in OUTSIDE else label


# ---- what is known, and what is missing


def source_label() -> str:
    """The revision of src, by its text."""
    return _digest(sorted((HERE.parent / "src").rglob("*.py")))


def world_label() -> str:
    """The revision of the worlds, by their text."""
    return _digest([HERE / name for name in WORLD_FILES])


def _digest(paths: list[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:10]


def known_lines(path: Path, label: str, world: str) -> list[Line]:
    """The lines that hold now; a later one takes the place of an earlier one."""
    texts = path.read_text().splitlines() if path.exists() else []
    held: dict[Any, Line] = {}
    for each in map(json.loads, texts):
        if each["world"] != world or each["label"] != _label(each["row"], label):
            continue
        line = Line(
            setting=Setting(**each["setting"]),
            seed=each["seed"],
            row=each["row"],
            ndcg=unpacked(each["ndcg"]) if "ndcg" in each else None,
            trees=each.get("trees"),
            seconds=each.get("seconds", 0.0),
            error=each.get("error", ""),
            about=each["about"],
            shown=each["shown"],
        )
        held[line.setting, line.seed, line.row] = line
    return list(held.values())


def tasks(options: argparse.Namespace, label: str, world: str) -> Iterator[Task]:
    """What is missing: first every world once, within that the largest first."""
    done = {
        (line.setting, line.seed, line.row)
        for line in known_lines(options.lines, label, world)
        if line.ndcg is not None
    }
    waiting = []
    for cell in chosen_cells(options):
        for seed in cell.seeds(options.tier)[: options.seeds]:
            single = cell.group == "synthetic"
            missing = tuple(
                row
                for row in rows(single=single, every=cell.every and seed == 0)
                if (row in options.rows if options.rows else options.ship or row != RUN)
                and (cell.setting, seed, row) not in done
            )
            if missing:
                waiting.append((seed // cell.setting.folds, -cell.size, cell, seed, missing))
    for *_, cell, seed, missing in sorted(waiting, key=lambda each: each[:2]):
        yield Task(cell, seed, missing, label, world, options.lines)


def chosen_cells(options: argparse.Namespace) -> list[Cell]:
    """Those of the tier and groups whose name contains one of the texts asked for."""
    groups = {"worlds": options.worlds is not None, "real": options.sets is not None}
    kept = [WORLDS[name] for name in options.worlds or WORLDS]
    return [
        cell
        for cell in cells()
        if len(cell.seeds(options.tier))
        and (groups.get(cell.group) or not any(groups.values()))
        and (cell.group != "worlds" or cell.setting in kept)
        and (not options.only or any(text in _said(cell) for text in options.only))
    ]


def _said(cell: Cell) -> str:
    return f"{cell.group}: {NAMES.get(cell.setting, cell.setting.name)}"


def run(todo: list[Task], jobs: int) -> None:
    """All tasks, a world in a process with one thread."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[variable] = "1"
    start = time.perf_counter()
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=os.nice, initargs=(5,)) as pool:
        futures = {pool.submit(measure, task): task for task in todo}
        for number, future in enumerate(as_completed(futures), 1):
            task, spent = futures[future], time.perf_counter() - start
            print(
                f"{number}/{len(todo)}  {_said(task.cell)}, seed {task.seed}; {spent:.0f} s, about "
                f"{spent / number * (len(todo) - number):.0f} s to go",
                *(f"\n    failed: {each}" for each in future.result()),
                file=sys.stderr,
                flush=True,
            )


def check_peers(seeds: int) -> None:
    """NDCG@10 of the peers with a row per impression and in the shorter way, on the same clicks."""
    ways = {
        LIGHTGBM: [partial(lightgbm_lambdarank, merged=merged) for merged in (False, True)],
        XGBOOST: [partial(xgboost_unbiased, most_rows=most) for most in (10**9, 100_000)],
    }
    found = []
    for seed in range(seeds):
        world: World = make_world(Setting(), seed)
        for name, both in ways.items():
            values = [float(Fits(world).peer(way).ndcg.mean()) for way in both]
            found.append([name, seed, *values])
    table(("peer", "seed", "row per impression", "shorter way"), found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--worlds", nargs="*", choices=WORLDS, help="the worlds alone, or those named"
    )
    parser.add_argument("--sets", type=Path, help="the judged sets of this folder alone")
    parser.add_argument("--ship", action="store_true", help="what `untilt.run` ships, too")
    parser.add_argument("--tier", type=int, choices=(1, 2), default=1)
    parser.add_argument("--only", action="append", default=[], help="text of the cell's name")
    parser.add_argument("--rows", action="append", default=[], help="these rows alone")
    parser.add_argument("--seeds", type=int, help="at most so many worlds of a cell")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--label", help="in place of the revision of src")
    parser.add_argument("--lines", type=Path, default=RESULTS / "quality-lines.jsonl")
    parser.add_argument("--report", action="store_true", help="of what is known; measures nothing")
    parser.add_argument("--save", action="store_true", help="the summary as results/quality.json")
    parser.add_argument("--check-peers", action="store_true")
    options = parser.parse_args()
    if options.check_peers:
        check_peers(options.seeds or 2)
        return
    if options.sets:
        os.environ["UNTILT_DATA"] = str(options.sets)
        quality_world.DATA = options.sets
    label, world = options.label or source_label(), world_label()
    if not options.report:
        run(list(tasks(options, label, world)), options.jobs)
    order = {cell.setting: cell.group for cell in chosen_cells(options)}
    lines = [line for line in known_lines(options.lines, label, world) if line.setting in order]
    report(found := summary(lines, order), lines)
    if options.save:
        results = {"label": label, "world": world, "counts": counts(found), "cells": found}
        installed = packages_distributions()
        packages = [
            installed[each][0] for each in ("lightgbm", "xgboost", "catboost") if each in installed
        ]
        print(save("quality", results, seed=None, packages=packages))


def report(found: list[dict[str, Any]], lines: list[Line]) -> None:
    """Every cell, who is below whom, the CPU time of rows, and what failed."""
    for row in OURS:
        if any(row in cell["versus"] for cell in found):
            table(*table_of(row, found))
            print()
    for name, value in counts(found).items():
        if not isinstance(value, list):
            print(f"{name}: {value}")
        elif name.endswith("errors"):
            print(f"{name}: {len(value)}", *([f"({'; '.join(value)})"] if value else []))
    spent: dict[str, float] = {}
    for line in lines:
        spent[line.row] = spent.get(line.row, 0.0) + line.seconds
        if line.error:
            print(f"failed: {line.setting.name}, seed {line.seed}, {line.row}: {line.error}")
    print("CPU seconds:", ", ".join(f"{row} {seconds:.0f}" for row, seconds in spent.items()))


if __name__ == "__main__":
    main()
