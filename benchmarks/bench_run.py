"""`untilt run` with default options and 50 features: seconds and peak memory, step by step.

A harvest log (three production rankers), ten documents a page, is written to Parquet first; that is
not timed. Then `untilt run` in a process of its own, without any environment variable that tells
threads how to wait. A second call on the finished folder shows what a look costs.

    python benchmarks/bench_run.py                    # a million sessions over 20,000 queries
    python benchmarks/bench_run.py --small            # 32,000 sessions over 800 queries
    python benchmarks/bench_run.py --small --busy 2   # beside two processes that never rest
    python benchmarks/bench_run.py --threads-by-work  # LightGBM on 1 and 2 threads, by size

Further: --share 0.05 of the million, --trees 300, --threads 2, --folder DIR. Each is kept in
results/run.json beside the others, with the load of the machine at the end. The first run on a
machine compiles kernels, so a small log is run twice and the second is the one that counts.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _harness import RESULTS, run_python, save, seconds_of, table

import untilt as ut
from untilt._core.threads import thread_count

SESSIONS, QUERIES, FEATURES, SEED = 1_000_000, 20_000, 50, 2026
SMALL = 0.04  # of the queries; 40 sessions each
SMALL_SESSIONS = 32_000
LIMIT_GIB = 4.0
LIMIT_SECONDS = {"whole": 300.0, "small": 12.0, "small beside 2 busy processes": 25.0}
CALL = "from untilt.cli.main import main; main()"
HOW_TO_WAIT = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")
UNLIKE_USERS = "PYTHONDONTWRITEBYTECODE"  # 400 modules would be compiled in every run, 2 s
SIZES = (2_500, 10_000, 40_000, 160_000)  # rows of FEATURES values


def made_log(folder: Path, share: float, n_sessions: int):
    """The log on disk; made once for a folder and share."""
    judged = ut.make_judged(int(QUERIES * share), FEATURES, seed=SEED)
    return ut.simulate_to_parquet(judged, folder, "harvest", n_sessions=n_sessions, seed=SEED)


@contextmanager
def busy(n: int) -> Iterator[None]:
    """So many processes that never rest, ended with the block."""
    beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for each in beside:
            each.kill()
            each.wait()


def timed_run(log: Path, documents: Path, out: Path, arguments: list[str]) -> dict[str, Any]:
    """One call of the program: seconds, peak and what it says of its steps."""
    done = run_python(
        *("-c", CALL, "run", str(log), "--documents", str(documents), "--out", str(out), "--json"),
        *arguments,
    )
    steps = json.loads((out / "provenance.json").read_text())["provenance"]["steps"]
    answer = json.loads(done.output)["answer"]
    return {
        "seconds": done.seconds,
        "peak_gib": done.peak_bytes / 2**30,
        "steps": {step["name"]: step["seconds"] for step in steps},
        "difference": {"value": answer["difference"]["value"], **answer["difference"]["interval"]},
        "chosen": answer["new"]["system"],
    }


def whole_run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The log, the run and a look at it, as the arguments say."""
    share, sessions = given.share, int(SESSIONS * given.share)
    if given.small:
        share, sessions = SMALL, SMALL_SESSIONS
    files = made_log(folder / "log", share, sessions)
    out = folder / "run"
    arguments = [] if given.trees is None else ["--trees", str(given.trees)]
    arguments += [] if given.threads is None else ["--threads", str(given.threads)]
    if given.small:
        shutil.rmtree(out, ignore_errors=True)
        timed_run(files.log, files.documents, out, arguments)
    shutil.rmtree(out, ignore_errors=True)
    with busy(given.busy):
        first = timed_run(files.log, files.documents, out, arguments)
        again = timed_run(files.log, files.documents, out, arguments)
    table(("step", "seconds"), [*first["steps"].items()])
    table(
        ("", "seconds", "peak GiB"),
        [
            ("run", first["seconds"], first["peak_gib"]),
            ("again", again["seconds"], again["peak_gib"]),
        ],
    )
    return {
        "sessions": files.n_sessions,
        "queries": int(QUERIES * share),
        "features": FEATURES,
        "trees": given.trees,
        "threads": given.threads,
        "busy": given.busy,
        "first": first,
        "again": again,
    }


def tree_seconds(rows: int, threads: int) -> float:
    """Seconds of a tree of LightGBM on so many rows and threads, the least of three times 20."""
    import lightgbm

    X = np.random.default_rng(SEED).normal(size=(rows, FEATURES)).astype(np.float32)
    params = {"objective": "l2", "verbosity": -1, "num_threads": threads, "deterministic": True,
              "force_row_wise": True, "num_leaves": 31}  # fmt: skip
    data = lightgbm.Dataset(X, X[:, 0] + X[:, 1] ** 2, params=params).construct()
    return min(seconds_of(lambda: lightgbm.train(params, data, 20), repeats=3)) / 20


def threads_by_work(n_busy: int) -> list[dict[str, Any]]:
    """Milliseconds of a tree with 1 and 2 threads by rows x features, and what is used."""
    found = []
    with busy(n_busy):
        for rows in SIZES:
            values = rows * FEATURES
            ms = {n: 1000 * tree_seconds(rows, n) for n in (1, 2)}
            used = thread_count(None, values=values)
            found.append({"rows": rows, "values": values, "ms": ms, "used": used})
    table(
        ("rows", "values", "1 thread, ms", "2 threads, ms", "used"),
        [(e["rows"], e["values"], e["ms"][1], e["ms"][2], e["used"]) for e in found],
    )
    return found


def kept(name: str, results: Any) -> Path:
    """results/run.json with this part in it; the others stay."""
    path = RESULTS / "run.json"
    before = json.loads(path.read_text())["results"] if path.exists() else {}
    parts = {"whole": before} if "first" in before else before  # of an earlier version
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    parts = {**parts, name: {**results, "load": load, "date": time.strftime("%Y-%m-%d")}}
    return save("run", parts, seed=SEED, packages=("lightgbm", "duckdb"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the sessions and queries")
    parser.add_argument("--small", action="store_true", help="32,000 sessions, 800 queries")
    parser.add_argument("--busy", type=int, default=0, help="processes beside it that never rest")
    parser.add_argument("--threads-by-work", action="store_true", help="time trees alone")
    parser.add_argument("--trees", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--folder", type=Path, help="where to work; a temporary one by default")
    given = parser.parse_args()
    for name in (*HOW_TO_WAIT, UNLIKE_USERS):
        os.environ.pop(name, None)
    beside = f" beside {given.busy} busy processes" if given.busy else ""
    if given.threads_by_work:
        print(kept(f"threads by work{beside}", {"sizes": threads_by_work(given.busy)}))
        return
    folder = given.folder or Path(tempfile.mkdtemp(prefix="untilt-bench-run-"))
    results = whole_run(given, folder)
    name = ("small" if given.small else "whole") + beside
    first = results["first"]
    if name in LIMIT_SECONDS and (given.small or given.share == 1.0):
        within = first["seconds"] <= LIMIT_SECONDS[name] and first["peak_gib"] <= LIMIT_GIB
        said = f"within {LIMIT_SECONDS[name]:g} s and {LIMIT_GIB:g} GiB"
        print(f"{said}: {'yes' if within else 'NO'}")
        print(kept(name, results))
    if given.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
