"""SIGKILL under load: a server is killed again and again while readers search and click.

python -m tests.serving.killing --kills 20 --seed 0

Prints what was sent, acknowledged and found, and ends with 1 where an acknowledged record was lost
or one was counted twice. Loopback alone; `--seconds` bounds the load between two kills.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from tests.serving.asking import saved_ranker

from untilt.serving.collect import collect

PATIENCE = 120.0


def free_port() -> int:
    """A port of the loopback that nobody uses just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Running:
    """`untilt serve` as a process of its own."""

    def __init__(self, *arguments: str | Path) -> None:
        self.port = free_port()
        code = "from untilt.cli.main import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "serve", *map(str, arguments), "--port", str(self.port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with Client(self.port) as client:
                    if client.get("/ready")[0] == 200:
                        return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"the server did not start: {self.said}")
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.said = self.process.communicate(timeout=PATIENCE)[1].decode()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.said = self.process.communicate(timeout=PATIENCE)[1].decode()
        return self.process.returncode


class Client:
    """One connection that is kept alive."""

    def __init__(self, port: int, timeout: float = 30.0) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def get(self, path: str) -> tuple[int, bytes]:
        self.connection.request("GET", path)
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def post(self, path: str, body: object) -> tuple[int, dict]:
        data = json.dumps(body).encode()
        self.connection.request("POST", path, data, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())


@dataclass
class Sent:
    """What readers sent, and what they were told is on the disk."""

    lists_sent: int = 0
    events_sent: int = 0
    lists: dict[str, list[str]] = field(default_factory=dict)
    events: dict[str, tuple[str, str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


def reader(name: str, port: int, sent: Sent, stop: threading.Event, seed: int) -> None:
    """Search and click until the server is gone."""
    try:
        with Client(port) as client:
            search_and_click(name, client, sent, stop, random.Random(seed))
    except (OSError, http.client.HTTPException, ValueError):
        return


def search_and_click(
    name: str, client: Client, sent: Sent, stop: threading.Event, rng: random.Random
) -> None:
    n = 0
    while not stop.is_set():
        n += 1
        documents = [f"d{i}" for i in rng.sample(range(100), 8)]
        request = {"session": f"{name}-{n}", "query": f"q{n % 7}", "documents": documents,
                   "features": [[rng.random(), rng.random()] for _ in documents]}  # fmt: skip
        with sent.lock:
            sent.lists_sent += 1
        status, shown = client.post("/rank", request)
        if status != 200 or shown["list"] is None:
            continue
        event, clicked = f"e-{name}-{n}", rng.choice(documents)
        with sent.lock:
            sent.lists[shown["list"]] = shown["documents"]
            sent.events_sent += 1
        body = {"events": [{"event": event, "list": shown["list"], "document": clicked}]}
        for _ in range(rng.choice((1, 1, 2))):  # some clients send everything twice
            status, _ = client.post("/feedback", body)
            if status == 200:
                with sent.lock:
                    sent.events[event] = (shown["list"], clicked)


@dataclass(frozen=True)
class Tally:
    """Counts over all kills."""

    kills: int
    lists_sent: int
    lists_acknowledged: int
    lists_found: int
    lists_lost: int
    events_sent: int
    events_acknowledged: int
    events_found: int
    events_lost: int
    counted_twice: int
    changed: int
    bytes_cut: int


def killed_again_and_again(
    kills: int, *, seed: int, folder: Path, seconds: float = 1.0, readers: int = 4
) -> Tally:
    """Kill a server so often under load, collect, and compare with what readers were told."""
    ranker, log = saved_ranker(folder / "r.untilt"), folder / "log"
    rng, sent = random.Random(seed), Sent()
    for number in range(kills):
        server, stop = (
            Running(ranker, "--log", log, "--explore", "swap-adjacent:0.3"),
            threading.Event(),
        )
        threads = [
            threading.Thread(
                target=reader, args=(f"{number}-{i}", server.port, sent, stop, rng.randrange(2**32))
            )
            for i in range(readers)
        ]
        for thread in threads:
            thread.start()
        time.sleep(seconds * (0.2 + 0.8 * rng.random()))
        server.kill()
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    done = collect(log, folder / "clicks")
    again = collect(log, folder / "clicks")
    assert done.to_dict() == again.to_dict()
    return compared(kills, sent, folder / "clicks", done.cut)


def compared(kills: int, sent: Sent, clicks: Path, cut: int) -> Tally:
    rows = pq.read_table(clicks).to_pylist()
    lists: dict[str, list[dict]] = {}
    for row in rows:
        lists.setdefault(row["session_id"], []).append(row)
    orders = {
        name: [row["doc_id"] for row in sorted(found, key=lambda row: row["position"])]
        for name, found in lists.items()
    }
    clicked = [(row["session_id"], row["doc_id"]) for row in rows if row["click"]]
    twice = len(rows) - len({(row["session_id"], row["position"]) for row in rows})
    twice += len(clicked) - len(set(clicked)) + sum(row["click"] > 1 for row in rows)
    found = set(clicked)
    return Tally(
        kills=kills,
        lists_sent=sent.lists_sent,
        lists_acknowledged=len(sent.lists),
        lists_found=len(lists),
        lists_lost=len(sent.lists.keys() - lists.keys()),
        events_sent=sent.events_sent,
        events_acknowledged=len(sent.events),
        events_found=len(found),
        events_lost=len(set(sent.events.values()) - found),
        counted_twice=twice,
        changed=sum(orders.get(name) != order for name, order in sent.lists.items()),
        bytes_cut=cut,
    )


def main() -> int:
    """Kill, collect, compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.serving.killing")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="untilt-killing-"))
    try:
        tally = killed_again_and_again(
            given.kills, seed=given.seed, folder=folder, seconds=given.seconds
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write(json.dumps(asdict(tally), indent=1) + "\n")
    return int(bool(tally.lists_lost or tally.events_lost or tally.counted_twice or tally.changed))


if __name__ == "__main__":
    sys.exit(main())
