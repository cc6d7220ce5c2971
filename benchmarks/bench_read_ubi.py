"""Reading an export of User Behavior Insights, against DuckDB's bare reading of the same two files.

The export: 200 thousand queries with ten hits each, an impression event for every hit and a click
event for every click, as JSON lines (about 540 MB), made here in a temporary folder from the log of
bench_read_log.py. Bare reading is `count` of every column, so that each value is parsed. Every
measurement has a process of its own.

    python benchmarks/bench_read_ubi.py [--sessions 200000] [--repeats 3]
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from _harness import run_python, save, table
from bench_read_log import SEED, make_log

from untilt.simulation.simulate import EVENTS, QUERIES, write_ubi

# What is measured: DuckDB alone, with as much memory as there is, and with little.
BARE, LITTLE = "read_json", "read_ubi, 300 MB"
CASES = {BARE: None, "read_ubi": None, LITTLE: "300MB"}


def measure(what: str, folder: str) -> dict[str, float]:
    """Seconds of one reading, imports and compilation aside."""
    import duckdb

    from untilt.data.read.read_log import read_log, read_ubi

    files = [str(Path(folder, name)) for name in (QUERIES, EVENTS)]
    tiny = {"query_id": [1], "session_id": [1], "doc_id": [1], "position": [1], "click": [0]}
    read_log(pa.table(tiny))
    start, cpu = time.perf_counter(), time.process_time()
    if what == BARE:
        rows = [duckdb.sql(f"SELECT count(COLUMNS(*)) FROM read_json('{f}')") for f in files]
        queries, events = (max(each.fetchall()[0]) for each in rows)
        found = {"queries": queries, "events": events}
    else:
        log = read_ubi(files[0], files[1], memory_limit=CASES[what])
        clicks = int((log.label * log.row_count).sum())
        found = {"queries": log.n_sessions, "events": log.n_impressions + clicks}
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    with tempfile.TemporaryDirectory(prefix="untilt-bench-") as folder:
        path = Path(folder) / "log.parquet"
        make_log(path, options.sessions)
        files = write_ubi(path, folder)
        runs: dict[str, list[dict[str, float]]] = {what: [] for what in CASES}
        for _ in range(options.repeats):
            for what, taken in runs.items():
                run = run_python(__file__, "--measure", what, folder)
                taken.append({**json.loads(run.output), "peak_gib": run.peak_bytes / 2**30})
        report(sum(file.stat().st_size for file in files), runs)


def report(file_bytes: int, runs: dict[str, list[dict[str, float]]]) -> None:
    totals = {(run["queries"], run["events"]) for taken in runs.values() for run in taken}
    if len(totals) > 1:
        raise SystemExit(f"they disagree on queries and events: {totals}")
    ((queries, events),) = totals
    median = {
        what: {key: statistics.median(run[key] for run in taken) for key in taken[0]}
        for what, taken in runs.items()
    }
    table(
        ("", "seconds", "cpu seconds", "peak GiB"),
        [(what, m["seconds"], m["cpu_seconds"], m["peak_gib"]) for what, m in median.items()],
    )
    ratio, ratio_cpu = (
        median["read_ubi"][key] / median[BARE][key] for key in ("seconds", "cpu_seconds")
    )
    print(f"read_ubi takes {ratio:.2f} times DuckDB's bare reading ({ratio_cpu:.2f} in cpu time)")
    results = {
        "queries": queries,
        "events": events,
        "files_mb": file_bytes / 1e6,
        "ratio": ratio,
        "ratio_cpu": ratio_cpu,
        "peak_gib": median["read_ubi"]["peak_gib"],
        "peak_gib_with_little": median[LITTLE]["peak_gib"],
        "runs": runs,
    }
    print(f"saved to {save('read_ubi', results, seed=SEED, packages=('duckdb', 'pyarrow'))}")


if __name__ == "__main__":
    main()
