"""SIGKILL under load: a server is killed again and again while readers search and click.

python -m tests.serving.killing --kills 20 --seed 0

One server in three has a disk that is slow to sync, one in three a disk whose syncs fail now and
then; two commands collect at once while a server writes. Prints what was sent, acknowledged and
found, and ends with 1 where an acknowledged record was lost, or one was counted twice or although
it was refused. Loopback alone; `--seconds` bounds the load between two kills.
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
MAIN = "from untilt.cli.main import main; main()"
# What the disk of a server does, before it starts.
DISKS = {
    "good": "",
    "slow": """
import time
from untilt.serving import journal
real = journal.sync_handle
journal.sync_handle = lambda handle: (time.sleep(0.05), real(handle))
""",
    "failing": """
import errno, random
from untilt.serving import journal
real, rng = journal.sync_handle, random.Random(0)
def sync(handle):
    if rng.random() < 0.1:
        raise OSError(errno.EIO, "Input/output error")
    real(handle)
journal.sync_handle = sync
""",
}


def free_port() -> int:
    """A port of the loopback that nobody uses just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Running:
    """`untilt serve` as a process of its own."""

    def __init__(self, *arguments: str | Path, disk: str = "good") -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-c", DISKS[disk] + MAIN, "serve", *map(str, arguments),
             "--port", str(self.port)],
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
    lists_refused_and_found: int
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
        disk, stop = list(DISKS)[number % 3], threading.Event()
        server = Running(ranker, "--log", log, "--explore", "swap-adjacent:0.3", disk=disk)
        threads = [
            threading.Thread(
                target=reader, args=(f"{number}-{i}", server.port, sent, stop, rng.randrange(2**32))
            )
            for i in range(readers)
        ]
        for thread in threads:
            thread.start()
        if number % 5 == 4:
            collected_at_once(log, folder / "clicks")
        time.sleep(seconds * (0.2 + 0.8 * rng.random()))
        server.kill()
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    done = collect(log, folder / "clicks")
    again = collect(log, folder / "clicks")
    assert done.to_dict() == again.to_dict()
    return compared(kills, sent, folder / "clicks", done.cut, readers)


def collected_at_once(log: Path, out: Path) -> None:
    """Two commands collect: both end well, or one is refused with a sentence."""
    words = [sys.executable, "-c", MAIN, "collect", str(log), "--out", str(out)]
    both = [
        subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(2)
    ]
    said = [each.communicate(timeout=PATIENCE)[1].decode() for each in both]
    codes = sorted(each.returncode for each in both)
    assert codes in ([0, 0], [0, 2]), said
    assert codes[1] == 0 or any("another `untilt collect`" in each for each in said), said


def compared(kills: int, sent: Sent, clicks: Path, cut: int, readers: int) -> Tally:
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
        # A killed server owes each reader one answer at most; all others are known.
        lists_refused_and_found=max(0, len(lists.keys() - sent.lists.keys()) - kills * readers),
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
    wrong = (tally.lists_lost, tally.lists_refused_and_found, tally.events_lost)
    return int(any((*wrong, tally.counted_twice, tally.changed)))


if __name__ == "__main__":
    sys.exit(main())
