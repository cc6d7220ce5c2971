"""Feeds a worker with cases, restarts it when it dies or hangs, keeps what failed, and counts."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.targets import all_targets

ROOT = Path(__file__).resolve().parents[2]
MEMORY_MB = 2000
DEADLINE = 10.0
SILENT = "no answer"
PATIENT = 500  # inputs that a worker takes: what libraries keep mapped adds up
START = 300.0  # to compile kernels on a machine that never did
# One thread each, and few malloc arenas: an arena maps 64 MB of address space by itself.
CALM = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2",
        "OMP_WAIT_POLICY": "passive", "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip


@dataclass
class Count:
    """What became of the inputs of one target."""

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    failed: int = 0
    slowest: float = 0.0
    peak_mb: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)


class Worker:
    """A process that can be fed, or killed."""

    def __init__(self, corpus: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", str(corpus), str(MEMORY_MB)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=ROOT, env={**os.environ, **CALM}, text=True, errors="replace",
        )  # fmt: skip
        os.set_blocking(self.process.stderr.fileno(), False)
        if self.answer(START) is None:
            raise RuntimeError(f"the worker did not start:\n{self.stderr()}")

    def ask(self, case: dict[str, Any]) -> None:
        """Send one case."""
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """The next answer; None where none came in time or the process is dead.

        Time is the process's own, so that a busy machine does not look like a hang; a process that
        sleeps is given six times as long by the clock, without the time that it waits for its turn.
        """
        began, used = time.monotonic() - self._waited(), self._used()
        while (
            time.monotonic() - self._waited() - began < 6 * seconds
            and self._used() - used < seconds
        ):
            if select.select([self.process.stdout], [], [], 0.2)[0]:
                line = self.process.stdout.readline()
                return json.loads(line) if line.endswith("\n") else None
        return None

    def _used(self) -> float:
        """Seconds of processor time so far; of the clock where the system does not tell."""
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        except OSError:
            return time.monotonic()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def _waited(self) -> float:
        """Seconds in which its thread that waited most was ready and had no processor."""
        waits = [0]
        for file in Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"):
            with suppress(OSError, ValueError, IndexError):
                waits.append(int(file.read_text().split()[1]))
        return max(waits) / 1e9

    def stderr(self) -> str:
        """What it said last; also keeps its pipe from filling up."""
        try:
            return (self.process.stderr.read() or "")[-2000:]
        except (OSError, TypeError):
            return ""

    def end(self) -> str:
        """Kill it; tells how it had ended by itself, where it had."""
        try:
            code = self.process.wait(0.2)
        except subprocess.TimeoutExpired:
            code = None
        self.process.kill()
        self.process.wait()
        said = self.stderr()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(OSError):
                stream.close()
        if code is None:
            return f"{SILENT} in {DEADLINE:g} s"
        name = signal.Signals(-code).name if code < 0 else f"exit {code}"
        return f"the process died ({name}) {' '.join(said.split())[-200:]}"


def cases(
    number: int, *, only: tuple[str, ...] = (), quick: bool = False
) -> Iterator[tuple[str, int]]:
    """Targets with the number of their case, by weight, one of each in turn."""
    chosen = [
        t for t in all_targets().values() if (not only or t.name in only) and (t.quick or not quick)
    ]
    weights = sum(t.weight for t in chosen)
    shares = {t.name: max(1, round(number * t.weight / weights)) for t in chosen}
    for case in range(max(shares.values(), default=0)):
        yield from ((name, case) for name, share in shares.items() if case < share)


def fuzz(
    work: list[tuple[str, int]], *, seed: int, corpus: Path, out: Path, tell: Any = None
) -> dict[str, Count]:
    """Try all cases; what fails is kept under `out`/failures with how to see it again."""
    scratch, kept = out / "scratch", out / "failures"
    shutil.rmtree(scratch, ignore_errors=True)
    counts: dict[str, Count] = {name: Count() for name in dict.fromkeys(n for n, _ in work)}
    worker: Worker | None = None
    for done, (name, number) in enumerate(work):
        folder = scratch / f"{name.replace(' ', '-').replace(',', '')}-{number}"
        case = {"target": name, "key": f"{seed}:{name}:{number}", "folder": str(folder)}
        answer: dict[str, Any] | None = None
        for _ in range(2):  # a second time where it was silent: the machine may be busy
            if worker is not None and done % PATIENT == PATIENT - 1:
                worker.end()
                worker = None
            if worker is None:
                worker = Worker(corpus)
            shutil.rmtree(folder, ignore_errors=True)
            worker.ask(case)
            answer = worker.answer(DEADLINE)
            worker.stderr()
            if answer is not None:
                break
            how, worker = worker.end(), None
            if not how.startswith(SILENT):
                break
        if answer is None:
            answer = {"outcome": "failed", "error": how, "seconds": DEADLINE, "peak_mb": 0.0}
        elif answer["peak_mb"] > MEMORY_MB:
            answer |= {"outcome": "failed", "error": f"{answer['peak_mb']:.0f} MB of memory"}
        _count(counts[name], answer)
        if answer["outcome"] == "failed":
            place = kept / folder.name
            shutil.rmtree(place, ignore_errors=True)
            if folder.exists():
                shutil.move(folder, place)
            again = f"python -m tests.fuzz --seed {seed} --only '{name}' --case {number}"
            counts[name].failures.append({"case": number, "error": answer["error"], "again": again})
            if tell:
                tell(f"{name} {number}: {answer['error']}\n    {again}")
        shutil.rmtree(folder, ignore_errors=True)
        if tell and done % 500 == 499:
            tell(f"{done + 1:,} of {len(work):,}")
    if worker is not None:
        worker.end()
    shutil.rmtree(scratch, ignore_errors=True)
    return counts


def _count(count: Count, answer: dict[str, Any]) -> None:
    count.inputs += 1
    setattr(count, answer["outcome"], getattr(count, answer["outcome"]) + 1)
    count.slowest = max(count.slowest, answer["seconds"])
    count.peak_mb = max(count.peak_mb, answer["peak_mb"])


def table(counts: dict[str, Count]) -> str:
    """A line for each target."""
    names = ("inputs", "accepted", "refused", "failed", "slowest", "peak")
    head = f"{'target':<24}" + "".join(f"{name:>10}" for name in names)
    every = list(counts.values())
    total = Count(*(sum(getattr(c, name) for c in every) for name in names[:4]))
    total.slowest = max(c.slowest for c in every)
    total.peak_mb = max(c.peak_mb for c in every)
    rows = [
        f"{name:<24}{c.inputs:>10,}{c.accepted:>10,}{c.refused:>10,}{c.failed:>10,}"
        f"{c.slowest:>8.1f} s{c.peak_mb:>7.0f} MB"
        for name, c in [*sorted(counts.items()), ("all", total)]
    ]
    return "\n".join([head, *rows])


def record(counts: dict[str, Count], *, seed: int, seconds: float) -> dict[str, Any]:
    """The same for machines."""
    return {
        "seed": seed,
        "seconds": round(seconds, 1),
        "limits": {"deadline_s": DEADLINE, "memory_mb": MEMORY_MB},
        "targets": {name: asdict(count) for name, count in sorted(counts.items())},
    }
