"""Requests per second, latency and CPU of `untilt serve`, beside FastAPI with LightGBM.

    python benchmarks/bench_serve.py [--seconds 10] [--connections 8]
    python benchmarks/bench_serve.py --soak 600      # full load, memory by time; nothing else

Loopback, each setting for a few seconds, servers one after the other in the same run, the load from
a process of its own with kept connections, each of which sends the next request once the last is
answered. 100 documents with 136 features, 300 trees of 31 leaves.

- untilt: features in one piece of MessagePack, lists logged and synced before the answer; also with
  JSON, with two workers, and without a sync (a folder in memory) to see what the disk costs.
- FastAPI: what one would write first: pydantic models, JSON, `Booster.predict`; nothing is logged.

And microseconds to score one list: our kernels and LightGBM (bench_score.py has more of that).
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import lightgbm
import msgspec
import numpy as np
from _harness import save, seconds_of, table

import untilt as ut

DOCUMENTS, FEATURES, TREES, LEAVES = 100, 136, 300, 31
PEER = """
import json, os, sys, lightgbm, numpy as np, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

class Candidate(BaseModel):
    id: str
    features: list[float]

class Rank(BaseModel):
    session: str
    query: str
    documents: list[Candidate]

app, booster = FastAPI(), lightgbm.Booster(model_file=sys.argv[1])

@app.post("/rank")
def rank(wanted: Rank):
    scores = booster.predict(np.array([each.features for each in wanted.documents]))
    order = np.argsort(-scores, kind="stable")
    return {"documents": [wanted.documents[i].id for i in order]}

@app.get("/ready")
def ready():
    return {}

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", access_log=False)
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


async def asking(port, requests, content_type, until, taken, wrong):
    """One connection: the next request once the last one is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < until:
        body = requests[number % len(requests)]
        number += 1
        start = time.perf_counter()
        writer.write(
            b"POST /rank HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (content_type, len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        await reader.readexactly(length)
        taken.append(time.perf_counter() - start)
        wrong[0] += b" 200 " not in head.split(b"\r\n")[0]
    writer.close()


async def load(port, requests, content_type, seconds, connections):
    taken, wrong = [], [0]
    until = time.perf_counter() + seconds
    await asyncio.gather(
        *(asking(port, requests, content_type, until, taken, wrong) for _ in range(connections))
    )
    return taken, wrong[0]


def started(command, port):
    """The process, once it listens."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_WAIT_POLICY": "passive"}
    )
    for _ in range(1200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    process.kill()
    raise RuntimeError("the server did not start")


def soak(command, port, requests, seconds, connections):
    """Memory of a server under full load, in MiB, at twenty moments."""
    process, memory, total = started(command, port), [], 0
    try:
        for _ in range(20):
            taken, wrong = asyncio.run(
                load(port, requests, b"application/msgpack", seconds / 20, connections)
            )
            assert wrong == 0
            total += len(taken)
            status = Path(f"/proc/{process.pid}/status").read_text()
            line = next(each for each in status.splitlines() if each.startswith("VmRSS"))
            memory.append(int(line.split()[1]) / 1024)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    grown = memory[-1] / memory[4] - 1  # since a quarter of the time
    return {"requests": total, "memory_mib": memory, "grown_since_a_quarter": grown}


def measured(command, port, requests, content_type, seconds, connections):
    """Start a server, warm it up, load it, and stop it with SIGTERM."""
    process = started(command, port)
    try:
        asyncio.run(load(port, requests, content_type, 1.0, connections))
        before = cpu_of(process.pid)
        taken, wrong = asyncio.run(load(port, requests, content_type, seconds, connections))
        used = cpu_of(process.pid) - before
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    ms = np.sort(taken) * 1000
    return {
        "requests_per_second": len(taken) / seconds,
        "p50_ms": float(np.quantile(ms, 0.5)),
        "p99_ms": float(np.quantile(ms, 0.99)),
        "cpu_ms_per_request": used * 1000 / len(taken),
        "failed": wrong,
    }


def cpu_of(pid):
    """CPU seconds of a process and its children, as Linux tells them."""
    pids = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        pids += [int(each) for each in (task / "children").read_text().split()]
    ticks = 0
    for each in pids:
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def serving(ranker, port, log, workers):
    """The command of a server."""
    code = "from untilt.cli.main import main; main()"
    return [sys.executable, "-c", code, "serve", str(ranker), "--port", str(port), "--log", log,
            "--workers", str(workers), "--explore", "swap-adjacent:0.05"]  # fmt: skip


def trained(folder, rng):
    """A ranker of the size in question, in our file and in LightGBM's."""
    judged = ut.make_judged(n_queries=300, n_features=FEATURES, seed=0)
    ranker = ut.LambdaMART(n_trees=TREES, n_leaves=LEAVES, seed=0).fit(judged)
    ranker.save(folder / "ranker.untilt")
    ranker.booster_.save_model(str(folder / "model.txt"), num_iteration=ranker.n_trees_)
    rows = rng.choice(len(judged.features), (50, DOCUMENTS))
    return ranker, judged.features[rows]


def scoring(folder, ranker, features):
    """Microseconds for one list of documents, one thread."""
    booster = lightgbm.Booster(model_file=str(folder / "model.txt"))
    one = features[0]
    ranker.warm_up()
    works = {
        "untilt": lambda: ranker.predict(one),
        "lightgbm, 1 thread": lambda: booster.predict(one, num_threads=1),
        "lightgbm, its default": lambda: booster.predict(one),
    }
    return {
        name: 1e6 * min(seconds_of(lambda w=work: [w() for _ in range(50)], repeats=7)) / 50
        for name, work in works.items()
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--soak", type=float)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ranker, features = trained(folder, rng)
        ids = [f"d{i}" for i in range(DOCUMENTS)]
        base = [
            {"session": f"s{i}", "query": f"q{i}", "documents": ids, "size": 10}
            for i in range(len(features))
        ]
        packed = [
            msgspec.msgpack.encode({**each, "features": rows.astype("<f4").tobytes()})
            for each, rows in zip(base, features, strict=True)
        ]
        plain = [
            json.dumps({**each, "features": rows.tolist()}).encode()
            for each, rows in zip(base, features, strict=True)
        ]
        peer = [
            json.dumps({
                "session": "s", "query": "q",
                "documents": [
                    {"id": i, "features": f} for i, f in zip(ids, rows.tolist(), strict=True)
                ],
            }).encode()
            for rows in features
        ]  # fmt: skip
        if given.soak is not None:
            port = free_port()
            command = serving(folder / "ranker.untilt", port, str(folder / "log"), 1)
            soaked = soak(command, port, packed, given.soak, given.connections)
            print(json.dumps(soaked, indent=1))
            save("serve-soak", {**soaked, "seconds": given.soak}, seed=0)
            return
        (folder / "peer.py").write_text(PEER)
        results = {}
        memory = Path("/dev/shm") if Path("/dev/shm").is_dir() else folder
        settings = {
            "untilt, MessagePack": (packed, b"application/msgpack", folder, 1),
            "untilt, MessagePack, log in memory": (packed, b"application/msgpack", memory, 1),
            "untilt, MessagePack, 2 workers": (packed, b"application/msgpack", folder, 2),
            "untilt, JSON": (plain, b"application/json", folder, 1),
        }
        for what, (requests, kind, place, workers) in settings.items():
            port = free_port()
            with tempfile.TemporaryDirectory(dir=place) as log:
                command = serving(folder / "ranker.untilt", port, log, workers)
                results[what] = measured(
                    command, port, requests, kind, given.seconds, given.connections
                )
        has_peer = find_spec("fastapi") is not None
        if has_peer:
            port, model = free_port(), str(folder / "model.txt")
            command = [sys.executable, str(folder / "peer.py"), model, str(port)]
            results["FastAPI + LightGBM, JSON"] = measured(
                command, port, peer, b"application/json", given.seconds, given.connections
            )
        else:
            print("FastAPI is not installed (pip install 'untilt[bench]'): no peer beside us.")
        scored = scoring(folder, ranker, features)
    columns = ("requests_per_second", "p50_ms", "p99_ms", "cpu_ms_per_request", "failed")
    table(("server", *columns), [(n, *(r[c] for c in columns)) for n, r in results.items()])
    table(("scoring 100 documents", "microseconds"), list(scored.items()))
    path = save(
        "serve", {"servers": results, "scoring_us": scored, "seconds": given.seconds,
                  "connections": given.connections},
        seed=0, packages=("lightgbm", "starlette", "uvicorn", "msgspec", *["fastapi"] * has_peer),
    )  # fmt: skip
    print(path)


if __name__ == "__main__":
    main()
