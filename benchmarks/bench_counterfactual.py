"""Many systems on one log: one call that sums the log once, against one pass per system.

    python benchmarks/bench_counterfactual.py [--sessions 10000000] [--systems 100] [--queries N]

Each way runs in a process of its own, which reads the same log from disk; `peak` is its memory.
"straightforward" is a pass of NumPy over the rows of the collapsed log for each system: look up
scores, rank them within the query's shown documents, weigh the clicks, sum. "each alone" calls
`estimate` once per system. Both are timed on a few systems and multiplied, and say so.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _harness import run_python, save, table

import untilt as ut

BIAS = ut.EyeTracking()
FEW = 3


def make(folder: Path, n_queries: int, n_sessions: int) -> dict[str, int]:
    judged = ut.make_judged(n_queries, 4, seed=0)
    production = judged.labels + 2 * np.random.default_rng(0).standard_normal(len(judged.labels))
    sim = ut.simulate(judged, "dla", n_sessions=n_sessions, ranker=production, keep_unshown=False)
    log = sim.log
    columns = {name: getattr(log, name) for name in COLUMNS}
    np.savez(folder / "log.npz", **columns)
    return {
        "sessions": log.n_sessions,
        "distinct lists": log.n_lists,
        "rows": len(log.position),
        "documents": log.n_documents,
    }


COLUMNS = (
    "query_id", "doc_id", "doc_query", "indptr", "query", "document", "position", "label", "count",
)  # fmt: skip


def read(folder: Path) -> ut.ClickLog:
    with np.load(folder / "log.npz") as columns:
        return ut.ClickLog(**{name: columns[name] for name in COLUMNS})


def systems_of(log: ut.ClickLog, n_systems: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {f"s{i}": rng.random(log.n_documents, dtype=np.float32) for i in range(n_systems)}


def straightforward(log: ut.ClickLog, scores: np.ndarray) -> float:
    """IPS DCG@10, row by row of the collapsed log."""
    shown = np.unique(log.document)
    order = np.lexsort((-scores[shown], log.doc_query[shown]))
    queries = log.doc_query[shown][order]
    first = np.searchsorted(queries, queries)
    rank = np.empty(log.n_documents)
    rank[shown[order]] = np.arange(len(order)) - first + 1
    at = rank[log.document]
    discount = np.where(at <= 10, 1 / np.log2(1 + at), 0.0)
    value = np.sum(log.row_count * log.label / BIAS.at(log.position) * discount)
    return float(value / log.n_sessions)


def work(way: str, folder: Path, n_systems: int) -> dict[str, float]:
    log = read(folder)
    systems = systems_of(log, n_systems if way in ("one call", "bootstrap") else FEW)
    if way != "straightforward":  # compile first
        small = log.take(np.arange(200))
        ut.estimate(small, {f"{i}": np.arange(log.n_documents) for i in range(40)}, BIAS)
    start = time.perf_counter()
    if way == "straightforward":
        values = [straightforward(log, scores) for scores in systems.values()]
    elif way == "each alone":
        values = [ut.estimate(log, scores, BIAS).best.value for scores in systems.values()]
    else:
        interval = "bootstrap" if way == "bootstrap" else "normal"
        found = ut.estimate(log, systems, BIAS, interval=interval, n_draws=200)
        values = [each.value for each in found]
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "systems": len(systems), "first": values[0], "third": values[2]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=10_000_000)
    parser.add_argument("--systems", type=int, default=100)
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(options.work[0], Path(options.work[1]), options.systems)))
        return
    with tempfile.TemporaryDirectory() as name:
        size = make(Path(name), options.queries, options.sessions)
        results = [_run(way, name, options.systems) for way in WAYS]
    print(", ".join(f"{count:,} {what}" for what, count in size.items()))
    table(("way", "seconds", "measured", "peak MB"), [
        (r["way"], r["seconds"], f"{r['measured']} systems", r["peak_mb"]) for r in results
    ])  # fmt: skip
    values = np.array([[r["first"], r["third"]] for r in results])
    assert np.allclose(values, values[0]), values
    save("counterfactual", {"size": size, "ways": results}, seed=0)


WAYS = ("one call", "bootstrap", "each alone", "straightforward")


def _run(way: str, folder: str, n_systems: int) -> dict[str, object]:
    done = run_python(__file__, "--work", way, folder, "--systems", str(n_systems))
    found = json.loads(done.output.splitlines()[-1])
    return {
        "way": way,
        "seconds": found["seconds"] * n_systems / found["systems"],
        "measured": found["systems"],
        "peak_mb": round(done.peak_bytes / 2**20),
        "first": found["first"],
        "third": found["third"],
    }


if __name__ == "__main__":
    sys.exit(main())
