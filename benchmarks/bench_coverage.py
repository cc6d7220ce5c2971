"""How often the intervals of the package hold the truth: every interval on six kinds of log.

    python benchmarks/bench_coverage.py                      what is missing of the whole table
    python benchmarks/bench_coverage.py --only PBM --fresh   one method anew

Sums over the logs done so far stand in results/coverage-cells.jsonl, one cell a line, and what they
say in results/coverage.json; a run that is broken off goes on where it was. Clicks are drawn by
`coverage_world`; the rows stand in `coverage_curves` and `coverage_values`. `make tables` writes
docs/evidence.md anew then, and `python docs/pictures coverage` its picture.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from _harness import RESULTS, save, table
from coverage_curves import curve_rows
from coverage_row import Ends, Row
from coverage_values import other_rows, value_rows
from coverage_world import SCENARIOS, Made, Scenario, make

from untilt._core.files import replacing
from untilt.errors import UntiltError

NAME = "coverage"
BLOCK = 10  # logs of one task
LOW, NOMINAL, HIGH = 0.90, 0.95, 0.995
WIDEST = 10.0  # an interval wider than ten times the truth counts as that wide


@dataclass
class Cell:
    """Sums of one row on one kind of log.

    logs : done; refused : where the method raised; without : where it gave no interval
    given, held : by figure of the row (position, system), intervals and those that held the truth
    width : summed (high - low) / |truth|; zero : intervals of no width; commit : of the last log
    """

    group: str
    row: str
    scenario: str
    logs: int = 0
    refused: int = 0
    without: int = 0
    given: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    width: float = 0.0
    zero: int = 0
    seconds: float = 0.0
    commit: str = ""
    refusal: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.row, self.scenario

    def add(self, ends: Ends | None) -> None:
        """One more log; ends that are not numbers are no interval."""
        self.logs += 1
        given = None if ends is None else ~(np.isnan(ends.low) | np.isnan(ends.high))
        if ends is None or given is None or not given.any():
            self.without += 1
            return
        held = given & (ends.low <= ends.truth) & (ends.truth <= ends.high)
        self.given, self.held = _sum(self.given, given), _sum(self.held, held)
        width = (ends.high - ends.low)[given]
        relative = width / np.maximum(np.abs(ends.truth[given]), 1e-12)
        self.width += float(np.minimum(relative, WIDEST).sum())
        self.zero += int(np.sum(width <= 0))

    def merge(self, other: "Cell") -> None:
        for name in ("logs", "refused", "without", "width", "zero", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.given, self.held = _sum(self.given, other.given), _sum(self.held, other.held)
        self.commit, self.refusal = other.commit or self.commit, other.refusal or self.refusal

    def summary(self, *, bounds: bool = False) -> dict[str, Any]:
        """Coverage with its error, and whether it holds; bounds may always."""
        told = {
            "group": self.group,
            "row": self.row,
            "scenario": self.scenario,
            "logs": self.logs,
            "refused": round(self.refused / max(self.logs, 1), 3),
            "without_interval": round(self.without / max(self.logs, 1), 3),
            "commit": self.commit,
        }
        if not sum(self.given):
            verdict = "refused" if self.refused > self.without else "no interval"
            return {**told, "verdict": verdict}
        given, held = np.array(self.given), np.array(self.held)
        often = given >= given.max() / 2
        n = self.logs - self.refused - self.without
        covered, lowest = (
            held.sum() / given.sum(),
            float((held / np.maximum(given, 1))[often].min()),
        )
        low, high = wilson(covered, n)
        return {
            **told,
            "covered": round(float(covered), 4),
            "from": round(low, 4),
            "to": round(high, 4),
            "lowest": round(lowest, 4),
            "width": round(self.width / int(given.sum()), 4),
            "zero_width": self.zero,
            "verdict": _verdict(float(covered), lowest, n, 1.0 if bounds else HIGH),
        }


def _verdict(covered: float, lowest: float, n: int, most: float) -> str:
    """The figure must lie in the band; "unclear" where so few logs may put it outside by chance.

    Below, where the interval of the figure holds the nominal .95; above, where it meets the band.
    A single position may lie below by chance alone.
    """
    low, high = wilson(covered, n)
    if wilson(lowest, n)[1] < LOW or (covered < LOW and high < NOMINAL):
        return "too low"
    if covered > most and low > most:
        return "wide"
    return "holds" if LOW <= covered <= most else "unclear"


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95% interval of a share of n logs."""
    if n == 0:
        return 0.0, 1.0
    z = 1.959964
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))


def _sum(first: Iterable[Any], second: Iterable[Any]) -> list[int]:
    """By index; the shorter one ends in zeros."""
    a, b = np.asarray(list(first), dtype=int), np.asarray(list(second), dtype=int)
    n = max(len(a), len(b))
    return (np.pad(a, (0, n - len(a))) + np.pad(b, (0, n - len(b)))).tolist()


# ---- measuring


def rows() -> list[Row]:
    """All of the table."""
    return [*curve_rows(), *value_rows(), *other_rows()]


@dataclass(frozen=True)
class Task:
    """Rows of one study on some logs of one scenario: (row, first seed) with the logs before it."""

    study: str
    scenario: str
    first: int
    last: int
    wanted: tuple[tuple[str, str], ...]


def measure(task: Task) -> list[Cell]:
    """The sums of these logs."""
    scenario = SCENARIOS[task.scenario]
    chosen = [row for row in rows() if (row.group, row.name) in task.wanted]
    cells = {row: Cell(row.group, row.name, task.scenario) for row in chosen}
    for seed in range(task.first, task.last):
        made = _made(task.study, scenario, seed)
        for row, cell in cells.items():
            start = time.process_time()
            try:
                cell.add(row.measure(made))
            except UntiltError as error:
                cell.logs += 1
                cell.refused += 1
                cell.refusal = str(error)[:200]
            cell.seconds += time.process_time() - start
    return list(cells.values())


def _made(study: str, scenario: Scenario, seed: int) -> Made:
    if study == "judged":
        return Made(study, scenario, seed, None, None)  # type: ignore[arg-type]  no log in it
    return make(study, scenario, seed)


def tasks(
    chosen: list[Row], done: dict[tuple[str, str, str], Cell], scenarios: list[str], n_logs: int
) -> Iterator[Task]:
    """Blocks of logs, all cells a little further at a time; rows of a study share their logs."""
    waiting: dict[tuple[int, int, str, str], list[tuple[str, str]]] = {}
    for row in chosen:
        for scenario in (each for each in scenarios if each in row.scenarios):
            cell = done.get((row.group, row.name, scenario))
            begun, goal = (0 if cell is None else cell.logs), max(1, round(row.share * n_logs))
            for first in range(begun, goal, BLOCK):
                block = (first, min(first + BLOCK, goal), scenario, row.study)
                waiting.setdefault(block, []).append((row.group, row.name))
    for (first, last, scenario, study), wanted in sorted(waiting.items()):
        yield Task(study, scenario, first, last, tuple(wanted))


def run(todo: list[Task], done: dict[tuple[str, str, str], Cell], jobs: int, folder: Path) -> None:
    """All tasks, kept after each."""
    start, commit = time.perf_counter(), _commit()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # of the processes: one for each core is faster
    context = get_context("spawn")  # JAX does not survive a fork
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        futures = {pool.submit(measure, task): task for task in todo}
        for number, future in enumerate(as_completed(futures), 1):
            task = futures[future]
            for cell in future.result():
                cell.commit = commit
                done.setdefault(cell.key, Cell(*cell.key)).merge(cell)
            _keep(done, folder)
            spent = time.perf_counter() - start
            left = spent / number * (len(todo) - number)
            print(
                f"{number}/{len(todo)}  {task.study}, {task.scenario}, logs {task.first + 1} to "
                f"{task.last}; {spent:.0f} s, about {left:.0f} s to go",
                file=sys.stderr,
                flush=True,
            )


# ---- what is kept


def _cells(folder: Path) -> dict[tuple[str, str, str], Cell]:
    path = folder / f"{NAME}-cells.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    cells = [Cell(**json.loads(line)) for line in lines]
    return {cell.key: cell for cell in cells}


def _keep(done: dict[tuple[str, str, str], Cell], folder: Path) -> None:
    lines = [json.dumps(asdict(cell)) for _, cell in sorted(done.items())]
    with replacing(folder / f"{NAME}-cells.jsonl") as temporary:
        temporary.write_text("\n".join(lines) + "\n")


def _commit() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False,
        cwd=Path(__file__).parent,
    )  # fmt: skip
    return asked.stdout.strip()


def summarised(done: dict[tuple[str, str, str], Cell]) -> list[dict[str, Any]]:
    """The cells of rows that there are, in the order of the table."""
    found = []
    for row in rows():
        for scenario in row.scenarios:
            cell = done.get((row.group, row.name, scenario))
            if cell is not None:
                more = {"study": row.study, "covers": row.covers, "bounds": row.bounds}
                found.append({**cell.summary(bounds=row.bounds), **more})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], help="rows whose name contains this")
    parser.add_argument("--group", default="", help="curves, values, differences or other")
    parser.add_argument("--study", default="", help="rows of this kind of log")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS))
    parser.add_argument("--replications", type=int, default=200, help="logs of a cell")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--fresh", action="store_true", help="forget what these rows had")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the results are kept")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    done = _cells(options.folder)
    chosen = [
        row
        for row in rows()
        if (not options.only or any(text.lower() in row.name.lower() for text in options.only))
        and options.group in row.group
        and options.study in ("", row.study)
    ]
    scenarios = options.scenario or list(SCENARIOS)
    if options.fresh:
        for row in chosen:
            for scenario in scenarios:
                done.pop((row.group, row.name, scenario), None)
    todo = list(tasks(chosen, done, scenarios, options.replications))
    run(todo, done, options.jobs, options.folder)
    names = {(row.group, row.name) for row in chosen}
    shown = [
        each
        for each in summarised(done)
        if (each["group"], each["row"]) in names and each["scenario"] in scenarios
    ]
    columns = (
        "row",
        "scenario",
        "covered",
        "lowest",
        "width",
        "refused",
        "without_interval",
        "logs",
        "verdict",
    )
    table(
        ["group", *columns, "seconds a log"],
        [
            [each["group"], *(each.get(name, "") for name in columns), _pace(done, each)]
            for each in shown
        ],
    )
    if options.folder == RESULTS:
        save(NAME, summarised(done), seed=0, packages=["lightgbm", "jax"])


def _pace(done: dict[tuple[str, str, str], Cell], each: dict[str, Any]) -> float:
    cell = done[each["group"], each["row"], each["scenario"]]
    return cell.seconds / max(cell.logs, 1)


if __name__ == "__main__":
    main()
