"""Reading and collapsing a large Parquet log, against DuckDB's own GROUP BY on the same file.

The log: sessions of ten impressions over 20 thousand queries, three rankings per query, clicks by
the position-based model with examination 1 / position. Half a million, 2 and 10 million sessions by
default, made here in a temporary folder (up to 300 MB). Every measurement has a process of its own.

    python benchmarks/bench_read_log.py [--sessions 500000 2000000 10000000] [--repeats 3]
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _harness import run_python, save, table

from untilt._core.random import child_generator

DEPTH, N_QUERIES, N_RANKINGS, N_DOCUMENTS, SEED = 10, 20_000, 3, 20, 0
CHUNK = 500_000
GROUP_BY = """
    CREATE TEMP TABLE counted AS
    SELECT query_id, doc_id, position, sum(click) AS clicks, count(*) AS impressions
    FROM read_parquet('{path}') GROUP BY query_id, doc_id, position
"""


def make_log(path: Path, n_sessions: int) -> None:
    """Write the log, chunk by chunk."""
    rng = child_generator(SEED, 0)
    relevance = rng.beta(0.5, 1.5, size=(N_QUERIES, N_DOCUMENTS))
    noise = rng.gumbel(size=(N_RANKINGS, N_QUERIES, N_DOCUMENTS))
    rankings = np.argsort(-(2 * relevance + noise), axis=2)[:, :, :DEPTH]
    writer = None
    for chunk, first in enumerate(range(0, n_sessions, CHUNK), start=1):
        size = min(CHUNK, n_sessions - first)
        batch = _sessions(child_generator(SEED, chunk), first, size, relevance, rankings)
        writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


def _sessions(
    rng: np.random.Generator, first: int, size: int, relevance: np.ndarray, rankings: np.ndarray
) -> pa.RecordBatch:
    query = rng.integers(N_QUERIES, size=size)
    shown = rankings[rng.integers(N_RANKINGS, size=size), query]
    examination = 1 / np.arange(1, DEPTH + 1)
    click = rng.random((size, DEPTH)) < examination * relevance[query[:, None], shown]
    return pa.RecordBatch.from_pydict(
        {
            "query_id": np.repeat(query, DEPTH),
            "session_id": np.repeat(np.arange(first, first + size), DEPTH),
            "doc_id": (query[:, None] * N_DOCUMENTS + shown).ravel(),
            "position": np.tile(np.arange(1, DEPTH + 1, dtype=np.int32), size),
            "click": click.ravel().astype(np.int8),
        }
    )


def measure(what: str, path: str) -> dict[str, float]:
    """Seconds of one reading, imports and compilation aside."""
    import duckdb

    from untilt.data.read.read_log import read_log

    found: dict[str, float] = {}
    connection = duckdb.connect()
    tiny = {"query_id": [1], "session_id": [1], "doc_id": [1], "position": [1], "click": [0]}
    read_log(pa.table(tiny))
    start, cpu = time.perf_counter(), time.process_time()
    if what == "group by":
        connection.execute(GROUP_BY.format(path=path))
    else:
        log = read_log(path)
        found = {"lists": log.n_lists, "sessions": log.n_sessions, "clicks": _clicks(log)}
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    if what == "group by":
        clicks, impressions = connection.execute(
            "SELECT sum(clicks), sum(impressions) FROM counted"
        ).fetchone()
        found = {"sessions": impressions // DEPTH, "clicks": int(clicks)}
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, **found}


def _clicks(log: object) -> int:
    return int(np.dot(log.label, log.row_count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, nargs="+", default=[500_000, 2_000_000, 10_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    sizes = [measure_size(n_sessions, options.repeats) for n_sessions in options.sessions]
    results = {"queries": N_QUERIES, "target": {"ratio_cpu": 1.7, "peak_gib": 6}, "sizes": sizes}
    print(f"saved to {save('read_log', results, seed=SEED, packages=('duckdb', 'pyarrow'))}")


def measure_size(n_sessions: int, repeats: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="untilt-bench-") as folder:
        path = Path(folder) / "log.parquet"
        make_log(path, n_sessions)
        runs: dict[str, list[dict[str, float]]] = {"group by": [], "read_log": []}
        for _ in range(repeats):
            for what, taken in runs.items():
                run = run_python(__file__, "--measure", what, str(path))
                taken.append({**json.loads(run.output), "peak_gib": run.peak_bytes / 2**30})
        return report(n_sessions, path.stat().st_size, runs)


def report(
    n_sessions: int, file_bytes: int, runs: dict[str, list[dict[str, float]]]
) -> dict[str, object]:
    totals = {(run["sessions"], run["clicks"]) for taken in runs.values() for run in taken}
    if len(totals) > 1:
        raise SystemExit(f"the two disagree on sessions and clicks: {totals}")
    median = {
        what: {key: statistics.median(run[key] for run in taken) for key in taken[0]}
        for what, taken in runs.items()
    }
    ratio = median["read_log"]["seconds"] / median["group by"]["seconds"]
    cpu_ratio = median["read_log"]["cpu_seconds"] / median["group by"]["cpu_seconds"]
    peak = max(run["peak_gib"] for run in runs["read_log"])
    table(
        ("", "seconds", "cpu seconds", "peak GiB"),
        [(what, m["seconds"], m["cpu_seconds"], m["peak_gib"]) for what, m in median.items()],
    )
    print(f"read_log takes {ratio:.2f} times DuckDB's GROUP BY ({cpu_ratio:.2f} in cpu time)")
    return {
        "impressions": n_sessions * DEPTH,
        "file_mb": file_bytes / 1e6,
        "distinct_lists": int(median["read_log"]["lists"]),
        "ratio": ratio,
        "ratio_cpu": cpu_ratio,
        "peak_gib": peak,
        "runs": runs,
    }


if __name__ == "__main__":
    main()
