"""Does a learner help on any log, and what does `untilt run` ship: NDCG@10 on human labels.

    python benchmarks/bench_quality.py                       tier 1, about an hour on two cores
    python benchmarks/bench_quality.py --tier 2              everything: larger logs, more seeds
    python benchmarks/bench_quality.py --only "ohsumed, 100" cells whose name contains this
    python benchmarks/bench_quality.py --report              the table of what is known
    python benchmarks/bench_quality.py --check-peers         what the peers lose by fewer rows

Worlds come from `quality_world` (plain NumPy, nothing of `untilt.simulate`), the rows stand in
`quality_rows`, the sums in `quality_report`. A line of results/quality-lines.jsonl is a row on one
world; rows of the package are known by the revision of its source (or `--label`), all by that of
the worlds, so that what older code did is neither mixed in nor done again. Rows that nothing of
ours is in (peers, human labels) take half of the time: results/quality-outside.jsonl keeps them for
all revisions, and is part of the repository. The summary goes to results/quality.json; `make
tables` writes docs/quality.md anew then, `python docs/pictures quality` its picture.
"""

import argparse
import base64
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from _harness import RESULTS, save, table
from quality_report import Line, cell_columns, counts, summary
from quality_rows import (
    OUTSIDE,
    PEERS,
    Fits,
    lightgbm_position,
    rows,
    timed,
    xgboost_unbiased,
)
from quality_world import FOLDS, REAL, Setting, World, make_world

HERE = Path(__file__).resolve().parent
WORLDS = ("quality_world.py", "quality_set.py")
LINES, OUTSIDE_LINES = "quality-lines.jsonl", "quality-outside.jsonl"


@dataclass(frozen=True)
class Cell:
    """One setting with its place in the table, and how many times it is drawn in tiers 1 and 2.

    A real set counts its five folds as one time. `every`: seed 0 has the rarer weightings too.
    """

    group: str
    setting: Setting
    times: tuple[int, int]
    every: bool = False

    def seeds(self, tier: int) -> range:
        folds = FOLDS if self.setting.data in REAL else 1
        return range(folds * self.times[tier - 1])

    @property
    def size(self) -> int:
        """Impressions, about."""
        queries = {"mq2008": 580, "ohsumed": 67, "mslr": 51}.get(self.setting.data)
        length = self.setting.cut or {"ohsumed": 150, "mslr": 115}.get(self.setting.data, 30)
        return (queries or self.setting.queries) * self.setting.sessions * length


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
    sets = [Setting(data=name) for name in REAL]
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
    return [*synthetic, *real, *readers, *large]


# ---- one world


@dataclass(frozen=True)
class Task:
    """Rows to be measured on one world."""

    cell: Cell
    seed: int
    wanted: tuple[str, ...]
    label: str
    world: str
    folder: Path


def measure(task: Task) -> list[str]:
    """Appends a line for each row; says what failed."""
    world = make_world(task.cell.setting, task.seed)
    known = rows(every=True)
    name = hashlib.sha256(
        f"{task.label} {task.world} {task.cell.setting} {task.seed}".encode()
    ).hexdigest()[:16]
    (task.folder / "quality-bias").mkdir(parents=True, exist_ok=True)
    fits, failed = Fits(world, task.folder / "quality-bias" / f"{name}.json"), []
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
    with (task.folder / (OUTSIDE_LINES if row in OUTSIDE else LINES)).open("a") as file:
        file.write(json.dumps(line) + "\n")


def packed(ndcg: Any) -> str:
    """Values in steps of 1/50,000 as base64: 1.3 kB for 500 queries."""
    steps = np.rint(50_000 * np.asarray(ndcg)).astype("<u2")
    return base64.b64encode(steps.tobytes()).decode()


def unpacked(text: str) -> Any:
    return np.frombuffer(base64.b64decode(text), dtype="<u2") / 50_000


def _label(row: str, label: str) -> str:
    """Rows that nothing of ours is in but the table of labels hold for all of our revisions."""
    return "outside" if row in OUTSIDE else label


# ---- what is known, and what is missing


def source_label() -> str:
    """The revision of src, with a mark where files there differ from it."""
    root = HERE.parent

    def git(*arguments: str) -> str:
        asked = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=False, cwd=root
        )
        return asked.stdout.strip()

    changed = git("status", "--porcelain", "--", "src")
    mark = "+" + hashlib.sha256(git("diff", "--", "src").encode()).hexdigest()[:6]
    return git("rev-parse", "HEAD:src")[:10] + (mark if changed else "")


def world_label() -> str:
    """The revision of the worlds, by their text."""
    text = "".join((HERE / name).read_text() for name in WORLDS)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def known_lines(folder: Path, label: str, world: str) -> list[Line]:
    """The lines that hold now; a later one takes the place of an earlier one."""
    paths = [path for name in (LINES, OUTSIDE_LINES) if (path := folder / name).exists()]
    texts = [text for path in paths for text in path.read_text().splitlines()]
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
        for line in known_lines(options.folder, label, world)
        if line.ndcg is not None
    }
    waiting = []
    for cell in chosen_cells(options):
        for seed in cell.seeds(options.tier)[: options.seeds]:
            wanted = rows(every=cell.every and seed == 0)
            missing = tuple(
                row
                for row in wanted
                if (not options.rows or row in options.rows)
                and (cell.setting, seed, row) not in done
            )
            if missing:
                time_ = seed // (FOLDS if cell.setting.data in REAL else 1)
                waiting.append((time_, -cell.size, cell, seed, missing))
    for *_, cell, seed, missing in sorted(waiting, key=lambda each: each[:2]):
        yield Task(cell, seed, missing, label, world, options.folder)


def chosen_cells(options: argparse.Namespace) -> list[Cell]:
    """Those of the tier whose name or group contains one of the texts asked for."""
    return [
        cell
        for cell in cells()
        if len(cell.seeds(options.tier))
        and (not options.only or any(t in _said(cell) for t in options.only))
    ]


def _said(cell: Cell) -> str:
    return f"{cell.group}: {cell.setting.name}"


def run(todo: list[Task], jobs: int) -> None:
    """All tasks, a world in a process with one thread."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
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
    found = []
    for seed in range(seeds):
        world: World = make_world(Setting(), seed)
        fits = Fits(world, Path(os.devnull))
        for name, ways in zip(
            PEERS,
            (
                (
                    lambda w: lightgbm_position(w, merged=False),
                    lambda w: lightgbm_position(w, merged=True),
                ),
                (
                    lambda w: xgboost_unbiased(w, most_rows=10**9),
                    lambda w: xgboost_unbiased(w, most_rows=100_000),
                ),
            ),
            strict=True,
        ):
            found.append([name, seed, *(float(fits.peer(way).ndcg.mean()) for way in ways)])
    table(("peer", "seed", "row per impression", "shorter way"), found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tier", type=int, choices=(1, 2), default=1)
    parser.add_argument("--only", action="append", default=[], help="text of the cell's name")
    parser.add_argument("--rows", action="append", default=[], help="these rows alone")
    parser.add_argument("--seeds", type=int, help="at most so many worlds of a cell")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--label", help="in place of the revision of src")
    parser.add_argument("--report", action="store_true", help="of what is known; measures nothing")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where lines are kept")
    parser.add_argument("--check-peers", action="store_true")
    options = parser.parse_args()
    if options.check_peers:
        check_peers(options.seeds or 2)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    label, world = options.label or source_label(), world_label()
    if not options.report:
        run(list(tasks(options, label, world)), options.jobs)
    order = {cell.setting: cell for cell in chosen_cells(options)}
    lines = [line for line in known_lines(options.folder, label, world) if line.setting in order]
    found = summary(lines, {setting: cell.group for setting, cell in order.items()})
    table(*cell_columns(found))
    for name, value in counts(found).items():
        print(f"{name}: {value}")
    for line in lines:
        if line.error:
            print(f"failed: {line.setting.name}, seed {line.seed}, {line.row}: {line.error}")
    if options.folder == RESULTS and not options.only and not options.rows:
        results = {"label": label, "world": world, "counts": counts(found), "cells": found}
        print(save("quality", results, seed=None, packages=("lightgbm", "xgboost-cpu")))


if __name__ == "__main__":
    main()
