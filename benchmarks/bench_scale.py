"""A log of up to a billion impressions on two cores under 8 GiB, and how time grows with its size.

Sessions of ten impressions. A tenth of the queries are the head: their sessions follow Zipf's law
and show one of three rankings of 20 documents, so that many are alike. The others are the tail: ten
documents each, in an order of its own in every session, so that no two lists are alike. `--tail` is
the share of sessions that go there. Clicks follow the position-based model with examination
1 / position.

    python benchmarks/bench_scale.py one [--sessions 100000000] [--queries 1000000] [--tail 0.02]
    python benchmarks/bench_scale.py growth

`one` runs STEPS, DuckDB's GROUP BY of the same rows first, in three processes under
UNTILT_MEMORY_LIMIT, with a watcher that kills them above that. `growth` changes one size at a time;
its `workers` are processes on this machine that train together (`train_part`), a thread each.
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
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _harness import save, table

from untilt._core.memory import VARIABLE, parse_size
from untilt._core.random import child_generator

DEPTH, HEAD_DOCUMENTS, RANKINGS, SEED = 10, 20, 3, 31
CHUNK, PART = 250_000, 5_000_000
# A process for each, as with the commands `untilt train` and `untilt evaluate`.
STEPS = (("group by",), ("read", "bias", "train"), ("read", "evaluate", "click models"))
N_TREES = 100
GROUP_BY = """
    CREATE TEMP TABLE counted AS
    SELECT query_id, doc_id, position, sum(click) AS clicks, count(*) AS impressions
    FROM read_parquet('{folder}/log/*.parquet') GROUP BY query_id, doc_id, position
"""


@dataclass(frozen=True)
class World:
    """A log and its documents."""

    sessions: int
    queries: int
    tail: float = 0.02
    features: int = 4

    @property
    def head(self) -> int:
        """Queries of the head; they come first."""
        return max(1, self.queries // 10)

    def first_document(self, query: np.ndarray) -> np.ndarray:
        """The least document id of each query."""
        head = np.minimum(query, self.head) * HEAD_DOCUMENTS
        return head + np.maximum(query - self.head, 0) * DEPTH

    def write(self, folder: Path) -> None:
        """Write the documents, and the log in parts."""
        (folder / "log").mkdir(parents=True)
        _write(folder / "documents.parquet", (self._documents(*p) for p in _parts(0, self.queries)))
        rankings = self._rankings()
        for first in range(0, self.sessions, PART):
            parts = _parts(first, min(first + PART, self.sessions))
            _write(
                folder / "log" / f"{first // PART:03d}.parquet",
                (self._sessions(*part, rankings) for part in parts),
            )

    def _documents(self, first: int, end: int) -> pa.RecordBatch:
        query = np.arange(first, end)
        n = np.where(query < self.head, HEAD_DOCUMENTS, DEPTH)
        ids = np.arange(*self.first_document(np.array([first, end])), dtype=np.int32)
        noise = child_generator(SEED, 1, first).normal(size=(self.features, len(ids)))
        noise[0] += 8 * _relevance(ids)
        columns = {"query_id": np.repeat(query, n).astype(np.int32), "doc_id": ids}
        columns |= {f"f{j}": column.astype(np.float32) for j, column in enumerate(noise)}
        return pa.RecordBatch.from_pydict(columns)

    def _rankings(self) -> np.ndarray:
        """(head, rankings, 10) which of its documents a query shows."""
        ids = np.arange(self.head * HEAD_DOCUMENTS).reshape(self.head, 1, HEAD_DOCUMENTS)
        noise = child_generator(SEED, 2).random((self.head, RANKINGS, HEAD_DOCUMENTS))
        return np.argsort(-(_relevance(ids) + 0.3 * noise), axis=2)[:, :, :DEPTH].astype(np.int8)

    def _sessions(self, first: int, end: int, rankings: np.ndarray) -> pa.RecordBatch:
        rng, size = child_generator(SEED, 3, first), end - first
        query = (10 * ((self.head + 10) / 10) ** rng.random(size)).astype(np.int64) - 10
        shown = rankings[query, rng.integers(RANKINGS, size=size)]
        rare = np.flatnonzero(rng.random(size) < self.tail)
        query[rare] = rng.integers(self.head, self.queries, size=len(rare))
        shown[rare] = np.argsort(rng.random((len(rare), DEPTH)), axis=1)
        document = (self.first_document(query)[:, None] + shown).astype(np.int32)
        examined = (1 / np.arange(1, DEPTH + 1)).astype(np.float32)
        click = rng.random(document.shape, dtype=np.float32) < examined * _relevance(document)
        return pa.RecordBatch.from_pydict(
            {
                "query_id": np.repeat(query.astype(np.int32), DEPTH),
                "session_id": np.repeat(np.arange(first, end, dtype=np.int32), DEPTH),
                "doc_id": document.ravel(),
                "position": np.tile(np.arange(1, DEPTH + 1, dtype=np.int8), size),
                "click": click.ravel().astype(np.int8),
            }
        )


def _relevance(document: np.ndarray) -> np.ndarray:
    """Attraction, a function of the id: no table of all is kept."""
    return (0.3 * ((document * np.int64(2654435761) + 97) % 65521 / 65521) ** 2).astype(np.float32)


def _parts(first: int, end: int) -> Iterator[tuple[int, int]]:
    return ((each, min(each + CHUNK, end)) for each in range(first, end, CHUNK))


def _write(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    writer = None
    for batch in batches:
        writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


def child(folder: Path, steps: list[str], threads: int) -> None:
    """Run the steps on the log, and print what each took."""
    import untilt as ut

    _warm_up()
    known: dict[str, object] = {}

    def read() -> dict[str, object]:
        documents = folder / "documents.parquet"
        log = known["log"] = ut.read_log(folder / "log", documents=documents, threads=threads)
        return {"lists": log.n_lists, "sessions": log.n_sessions, "documents": log.n_documents}

    def bias() -> dict[str, object]:
        known["bias"] = ut.AllPairs().fit(known["log"]).bias_
        known["bias"].save(folder / "bias.json")
        return {"examination": [round(float(each), 4) for each in known["bias"].examination]}

    def train() -> None:
        bias = known.get("bias") or ut.PowerLaw(1.0)
        ranker = ut.LambdaMART(ut.PRS(bias), n_trees=N_TREES, n_threads=threads)
        ranker.fit(known["log"]).save(folder / "ranker.untilt")

    def evaluate() -> dict[str, object]:
        systems = {"new": ut.load(folder / "ranker.untilt"), "shown": ut.shown}
        bias = ut.PositionBias.load(folder / "bias.json")
        found = ut.estimate(known["log"], systems, bias, unshown=False)
        return {"text": str(found)}

    for step in steps:
        if step == "click models":
            for name in ("RCTR", "DCM", "SDBN", "PBM"):
                _timed(name, lambda name=name: getattr(ut, name)().fit(known["log"]) and None)
        elif step == "group by":
            _timed(step, lambda: _group_by(folder, threads))
        else:
            _timed(step, locals()[step])


def work_together(folder: Path, number: int, n: int, workers: dict[str, str]) -> None:
    """One of n processes: the queries that are its own, trained with the others."""
    import untilt as ut

    _warm_up()
    log = ut.read_log(folder / "log", documents=folder / "documents.parquet", threads=1)
    part = log.take(np.flatnonzero(log.query % n == number))
    ranker = ut.LambdaMART(ut.PRS(ut.PowerLaw(1.0)), n_trees=N_TREES, n_threads=1)
    workers = {**workers, "dmlc_task_id": str(number)}
    _timed("train", lambda: ut.train_part(ranker, part, workers) and None)


def trained_together(folder: Path, n: int) -> dict:
    """The slowest of n processes; CPU time is that of all."""
    import untilt as ut

    with ut.tracker(n_workers=n, host="127.0.0.1") as workers:
        command = [sys.executable, __file__, "together", str(folder), str(n), json.dumps(workers)]
        setting = {**os.environ, "OMP_NUM_THREADS": "1"}
        each = [
            subprocess.Popen([*command, str(k)], stdout=subprocess.PIPE, env=setting, text=True)
            for k in range(n)
        ]
        rows = [json.loads(process.communicate()[0].splitlines()[-1]) for process in each]
    slowest = max(rows, key=lambda row: row["seconds"])
    return {**slowest, "cpu_seconds": sum(row["cpu_seconds"] for row in rows)}


def _warm_up() -> None:
    """Load what was compiled before."""
    import untilt as ut

    names = ("query_id", "session_id", "doc_id", "position", "click")
    ut.read_log(pa.table({name: [1] for name in names}))
    log = ut.simulate(ut.make_judged(50, 4, seed=0), "harvest", n_sessions=2000, seed=0).log
    bias = ut.AllPairs().fit(log).bias_
    ranker = ut.LambdaMART(ut.PRS(bias), n_trees=2).fit(log)
    ut.estimate(log, {"new": ranker, "shown": ut.shown}, bias, unshown=False)


def _group_by(folder: Path, threads: int) -> dict[str, object]:
    import duckdb

    connection = duckdb.connect(config={"threads": threads, "memory_limit": "6GB"})
    connection.execute(GROUP_BY.format(folder=folder))
    (n,) = connection.execute("SELECT count(*) FROM counted").fetchone()
    return {"groups": n}


def _timed(name: str, work) -> None:
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    start, cpu = time.perf_counter(), time.process_time()
    found = work()
    row = {
        "step": name,
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "peak_gib": _status("VmHWM") / 2**20,
    }
    print(json.dumps({**row, **(found or {})}), flush=True)
    print(name, f"{row['seconds']:.0f} s, {row['peak_gib']:.2f} GiB", file=sys.stderr, flush=True)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def measured(folder: Path, steps: tuple[str, ...], limit: int, threads: int = 2) -> list[dict]:
    """The rows of a child process; it is killed above the limit."""
    setting = {**os.environ, VARIABLE: str(limit), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "child", str(folder), str(threads), *steps]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, env=setting, stdout=said)
        killed = False
        while process.poll() is None:
            if _resident(process.pid) > limit:
                process.kill()
                killed = True
            time.sleep(0.05)
        said.seek(0)
        rows = [json.loads(line) for line in said if line.startswith("{")]
    if killed or process.returncode:
        print(f"{'killed' if killed else process.returncode} after {len(rows)} steps")
    return rows


def _resident(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def one(given: argparse.Namespace) -> None:
    world = World(given.sessions, given.queries, given.tail)
    limit, folder = parse_size(given.limit, "--limit"), given.folder
    if not (folder / "documents.parquet").exists():
        world.write(folder)
    rows = [row for steps in STEPS for row in measured(folder, steps, limit)]
    cpu = {row["step"]: row["cpu_seconds"] for row in reversed(rows)}
    columns = ("step", "seconds", "cpu_seconds", "peak_gib")
    table(columns, [[row[name] for name in columns] for row in rows])
    results = {
        "world": asdict(world),
        "impressions": world.sessions * DEPTH,
        "file_gb": sum(each.stat().st_size for each in folder.rglob("*.parquet")) / 1e9,
        "limit_bytes": limit,
        "trees": N_TREES,
        "ratio_read_to_group_by_cpu": cpu["read"] / cpu["group by"],
        "rows": rows,
    }
    print(f"saved to {save('scale', results, seed=SEED, packages=('duckdb', 'lightgbm'))}")


BASE = World(sessions=1_000_000, queries=20_000, tail=0.1, features=4)
CURVES = {
    "sessions": (250_000, 500_000, 1_000_000, 2_000_000),
    "queries": (2_000, 8_000, 32_000, 128_000),
    "features": (2, 8, 32, 128),
    "tail": (0.0, 0.25, 0.5, 1.0),
    "threads": (1, 2),
}
WORKERS = (1, 2)


def growth(given: argparse.Namespace) -> None:
    rows = []
    for curve, values in CURVES.items():
        for value in values:
            world = BASE if curve == "threads" else replace(BASE, **{curve: value})
            threads = value if curve == "threads" else 2
            folder = given.folder / f"{curve}-{value}"
            world.write(folder)
            steps = measured(folder, ("read", "bias", "train"), 1 << 40, threads)
            shutil.rmtree(folder)
            distinct = steps[0]["lists"] / world.sessions
            for step in steps:
                kept = {name: step[name] for name in ("step", "seconds", "cpu_seconds", "peak_gib")}
                x = distinct if curve == "tail" else value
                rows.append({"curve": curve, "value": x, "distinct": distinct, **kept})
            print(json.dumps(rows[-3:]), flush=True)
    folder = given.folder / "workers"
    BASE.write(folder)
    for n in WORKERS:
        rows.append({"curve": "workers", "value": n, **trained_together(folder, n)})
        print(json.dumps(rows[-1]), flush=True)
    shutil.rmtree(folder)
    results = {"base": asdict(BASE), "trees": N_TREES, "rows": rows}
    print(f"saved to {save('growth', results, seed=SEED, packages=('duckdb', 'lightgbm'))}")


def main() -> None:
    if sys.argv[1:2] == ["child"]:
        child(Path(sys.argv[2]), sys.argv[4:], int(sys.argv[3]))
        return
    if sys.argv[1:2] == ["together"]:
        folder, n, workers, number = sys.argv[2:6]
        work_together(Path(folder), int(number), int(n), json.loads(workers))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("one", "growth"))
    parser.add_argument("--sessions", type=int, default=100_000_000)
    parser.add_argument("--queries", type=int, default=1_000_000)
    parser.add_argument("--tail", type=float, default=0.02)
    parser.add_argument("--limit", default="8GiB")
    parser.add_argument("--folder", type=Path, help="where to work; a log that is there is used")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="untilt-bench-scale-") as folder:
        given.folder = given.folder or Path(folder)
        {"one": one, "growth": growth}[given.what](given)


if __name__ == "__main__":
    main()
