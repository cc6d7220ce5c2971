"""Run the cells of the catalogue that are not finished, on several processes.

    python tools/reproduce_all.py OUT --mq2008 FOLDER [--jobs N] [--seconds S] [--first]
                                  [--only NAME ...] [--rows NAME ...]

Stopped at any moment, the same command goes on where it was. Rows that need JAX are left out where
it is not installed. `--first` runs seed 0 of fold 1 alone: held against earlier results, it shows
which of them another version of the code made.
"""

import argparse
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.util import find_spec
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

from untilt import catalog
from untilt.papers import cells, schema
from untilt.papers.datasets import JudgedSource

Task = tuple[str, JudgedSource, Path, list[cells.Cell], float]


def tasks(given: argparse.Namespace) -> Iterator[Task]:
    """One for each log that cells share."""
    sources = [JudgedSource(), *([JudgedSource("mq2008", given.mq2008)] if given.mq2008 else [])]
    for name in given.names or schema.names():
        for source in sources:
            what = cells.plan(schema.load(name), source, given.out)
            finished = what.finished()
            todo = [each for each in what.cells if each not in finished and runs_here(what, each)]
            todo = [each for each in todo if not given.rows or each.row in given.rows]
            if given.first:
                todo = [each for each in todo if each.run == (0, 1)]
            for group in cells.sharing(what, todo):
                yield name, source, given.out, group, given.start + given.seconds


def runs_here(what: cells.ReproductionPlan, cell: cells.Cell) -> bool:
    """Whether what the row needs is installed."""
    ranker = what.experiment.row(cell.row).ranker
    record = next((each for each in catalog.methods("ranker") if each.name == ranker), None)
    return record is None or "jax" not in record.needs or find_spec("jax") is not None


def work(task: Task) -> tuple[str, int]:
    """Run the cells of a log; each is written as it ends."""
    name, source, out, group, end = task
    if time.time() > end:
        return name, 0
    what = cells.plan(schema.load(name), source, out)
    setting = cells.setting_of(what, group[0], 1)
    done = 0
    for cell in group:
        if time.time() > end:
            break
        what.results.append(cells.result_of(what, setting, cell))
        done += 1
    return name, done


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", dest="names")
    parser.add_argument("--rows", nargs="*", help="of the experiments, all where not given")
    parser.add_argument("--mq2008", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--first", action="store_true")
    given = parser.parse_args()
    given.start = time.time()
    # First seeds of all experiments first: what is stopped early has every table, with fewer runs.
    order = sorted(tasks(given), key=lambda each: (each[1].folds > 1) * each[3][0].seed)
    print(f"{sum(len(each[3]) for each in order):,} cells in {len(order):,} logs", flush=True)
    done = 0
    with ProcessPoolExecutor(given.jobs) as pool:
        for future in as_completed([pool.submit(work, each) for each in order]):
            try:
                done += future.result()[1]
            except Exception as error:  # one cell that fails stops its own log alone
                print(f"failed: {type(error).__name__}: {error}", flush=True)
    print(f"{done:,} cells done in {time.time() - given.start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
