"""Peak memory and seconds of each command on logs of 2, 20 and 100 million impressions.

Three logs of each size, ten documents a page, clicks by the position-based model, ten features a
document:

- `collapsed`: 20,000 queries, three production rankings each: sessions are often alike.
- `distinct`: 50 sessions a query, each in an order of its own: no two lists are alike.
- `own-query`: every session has a query of its own: as many documents as impressions.

Each command runs in a process of its own with UNTILT_MEMORY_LIMIT set. A watcher looks at its
resident memory every 20 ms and kills it above that limit, as a container would. A command finishes,
is refused (a sentence that says how much memory it needs), or was killed or crashed: a defect.

    python benchmarks/bench_memory.py [--millions 2 20 100] [--logs collapsed distinct]
        [--commands read audit bias train evaluate run] [--limit 4GiB] [--folder DIR] [--keep]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _harness import RESULTS, save, table

from untilt._core.memory import parse_size
from untilt._core.random import child_generator

DEPTH, N_DOCUMENTS, N_FEATURES, N_RANKINGS, SEED = 10, 20, 10, 3, 16
LOGS = ("collapsed", "distinct", "own-query")
COMMANDS = ("read", "audit", "bias", "train", "evaluate", "run")
CHUNK = 100_000
CLI = "from untilt.cli.main import main; main()"
READ = """
import sys, untilt as ut
try:
    ut.read_log(sys.argv[1], documents=sys.argv[2])
except ut.UntiltError as error:
    sys.exit(str(error))
"""


class Files:
    """A log and its documents on disk, written chunk by chunk."""

    def __init__(self, folder: Path, kind: str, millions: float) -> None:
        self.kind, self.n_sessions = kind, int(millions * 1_000_000) // DEPTH
        self.folder = folder / f"{kind}-{millions:g}M"
        self.log, self.documents = self.folder / "log.parquet", self.folder / "documents.parquet"

    def make(self) -> None:
        """Write both files, where they are not there yet."""
        done = self.folder / "done"
        if done.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.documents, (self._documents(*part) for part in _parts(self.n_queries)))
        _write(self.log, (self._sessions(*part) for part in _parts(self.n_sessions)))
        done.touch()

    @property
    def n_queries(self) -> int:
        """One for 50 sessions or for each; 20,000 in the log that collapses."""
        return {
            "collapsed": 20_000,
            "distinct": max(1, self.n_sessions // 50),
            "own-query": self.n_sessions,
        }[self.kind]

    @property
    def per_query(self) -> int:
        """Documents of a query."""
        return DEPTH if self.kind == "own-query" else N_DOCUMENTS

    def _relevance(self, query: np.ndarray) -> np.ndarray:
        """(queries, documents) attraction, a function of the ids: no table of all is kept."""
        document = query[:, None] * self.per_query + np.arange(self.per_query)
        return 0.9 * ((document * 2654435761 + 97) % 65521 / 65521.0) ** 2

    def _documents(self, first: int, size: int) -> pa.RecordBatch:
        query = np.arange(first, first + size)
        rng = child_generator(SEED, 1, first)
        noise = rng.normal(size=(size * self.per_query, N_FEATURES)).astype(np.float32)
        noise[:, 0] += 2 * self._relevance(query).ravel()
        ids = {
            "query_id": np.repeat(query, self.per_query),
            "doc_id": (query[:, None] * self.per_query + np.arange(self.per_query)).ravel(),
        }
        return pa.RecordBatch.from_pydict({**ids, **{f"f{j}": c for j, c in enumerate(noise.T)}})

    def _sessions(self, first: int, size: int) -> pa.RecordBatch:
        rng = child_generator(SEED, 2, first)
        session = np.arange(first, first + size)
        query = session if self.kind == "own-query" else rng.integers(self.n_queries, size=size)
        relevance = self._relevance(query)
        ranking = rng.integers(N_RANKINGS, size=size)
        noise = rng.random(relevance.shape)
        if self.kind == "collapsed":
            document = query[:, None] * self.per_query + np.arange(self.per_query)
            noise = (document * 40503 + ranking[:, None] * 7919) % 9973 / 9973.0
        shown = np.argsort(-(relevance + noise), axis=1)[:, :DEPTH]
        examined = 1 / np.arange(1, DEPTH + 1)
        click = rng.random(shown.shape) < examined * np.take_along_axis(relevance, shown, axis=1)
        return pa.RecordBatch.from_pydict(
            {
                "query_id": np.repeat(query, DEPTH),
                "session_id": np.repeat(session, DEPTH),
                "doc_id": (query[:, None] * self.per_query + shown).ravel(),
                "position": np.tile(np.arange(1, DEPTH + 1, dtype=np.int32), size),
                "click": click.ravel().astype(np.int8),
                "ranker": pa.DictionaryArray.from_arrays(
                    np.repeat(ranking.astype(np.int8), DEPTH),
                    [f"r{number}" for number in range(N_RANKINGS)],
                ),
            }
        )

    def arguments(self, command: str) -> list[str]:
        """The command line after `python`."""
        log, documents, bias = str(self.log), str(self.documents), str(self.folder / "bias.json")
        ranker = str(self.folder / "ranker.untilt")
        with_documents = [log, "--documents", documents]
        few_trees = ["--trees", "20", "--threads", "2"]
        run = ["run", *with_documents, "--out", str(self.folder / "run"), *few_trees]
        given = {
            "audit": ["audit", *with_documents],
            "bias": ["bias", log, "--method", "all-pairs", "--out", bias],
            "train": [
                *("train", *with_documents, "--method", "balanced", "--bias", "power-law:1"),
                *("--out", ranker, *few_trees),
            ],
            "evaluate": [
                *("evaluate", *with_documents, "--bias", "power-law:1"),
                *("--ranker", f"new={ranker}"),
            ],
            "run": [*run, "--method", "balanced"],
        }
        if command == "evaluate" and not Path(ranker).exists():  # training was refused
            measured(["-c", CLI, *given["train"], "--sample-queries", "0.02"], 1 << 40)
        return ["-c", READ, log, documents] if command == "read" else ["-c", CLI, *given[command]]


def _parts(total: int):
    return ((first, min(CHUNK, total - first)) for first in range(0, total, CHUNK))


def _write(path: Path, batches) -> None:
    writer = None
    for batch in batches:
        writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


def measured(arguments: list[str], limit: int) -> dict:
    """Run `python ARGUMENTS` under the limit and say how it ended."""
    setting = {**os.environ, "UNTILT_MEMORY_LIMIT": str(limit), "OMP_WAIT_POLICY": "passive"}
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(
            [sys.executable, *arguments], env=setting, stdout=subprocess.DEVNULL, stderr=said
        )
        killed, status, usage = False, 0, None
        while usage is None or not status:
            pid, code, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                status = code
                break
            if not killed and _resident(child.pid) > limit:
                child.kill()
                killed = True
            time.sleep(0.02)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        words = said.read()
    code = child.returncode
    refused = code in (1, 2) and "memory" in words and "Traceback" not in words
    end = "killed" if killed else "finished" if code == 0 else "refused" if refused else "crashed"
    return {
        "outcome": end,
        "code": code,
        "peak_gib": usage.ru_maxrss * 1024 / 2**30,
        "seconds": time.perf_counter() - start,
        "said": "" if code == 0 else words[-600:],
    }


def _resident(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millions", type=float, nargs="+", default=[2.0])
    parser.add_argument("--logs", nargs="+", choices=LOGS, default=list(LOGS))
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--limit", default="4GiB")
    parser.add_argument("--folder", type=Path, help="where to work; a temporary one by default")
    parser.add_argument("--keep", action="store_true", help="keep the logs for another time")
    parser.add_argument("--no-save", action="store_true", help="only print")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="untilt-bench-memory-"))
    limit = parse_size(given.limit, "--limit")
    rows = []
    for kind in given.logs:
        for millions in given.millions:
            rows += _rows(Files(folder, kind, millions), millions, given, limit)
    header = ("log", "million", "command", "outcome", "peak_gib", "seconds")
    table(header, [[row.get(name, row["log"]) for name in header] for row in rows])
    if not given.no_save:
        print(f"saved to {save('memory', _merged(rows, limit), seed=SEED, packages=('duckdb',))}")
    if given.folder is None:
        shutil.rmtree(folder)
    if defects := [row for row in rows if row["outcome"] in ("killed", "crashed")]:
        sys.exit(f"{len(defects)} commands were killed or crashed: {defects}")


def _rows(files: Files, millions: float, given: argparse.Namespace, limit: int) -> list[dict]:
    files.make()
    rows = []
    for command in given.commands:
        shutil.rmtree(files.folder / "run", ignore_errors=True)
        found = measured(files.arguments(command), limit)
        rows.append({"log": files.kind, "million": millions, "command": command, **found})
        print(json.dumps(rows[-1]), flush=True)
    if not given.keep:
        shutil.rmtree(files.folder)
    return rows


def _merged(rows: list[dict], limit: int) -> dict:
    """These rows in place of older ones of the same log, size and command, if the limit is one."""
    path, old = RESULTS / "memory.json", []
    if path.exists():
        known = json.loads(path.read_text())["results"]
        old = known["rows"] if known["limit_bytes"] == limit else []
    key = ("log", "million", "command")
    every = {tuple(row[name] for name in key): row for row in (*old, *rows)}
    order = sorted(every, key=lambda each: (LOGS.index(each[0]), each[1], COMMANDS.index(each[2])))
    return {"limit_bytes": limit, "rows": [every[each] for each in order]}


if __name__ == "__main__":
    main()
