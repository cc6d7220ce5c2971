"""What every benchmark needs: honest timing, peak memory, and a result file that says where it ran.

A benchmark is a script `bench_NAME.py` in this folder: `from _harness import save, table`.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from untilt._core.files import replacing

RESULTS = Path(__file__).resolve().parent / "results"

# The command runs under a small launcher: on Linux a child's peak starts at the memory of whoever
# forked it, so a big benchmark process would see its own size.
_LAUNCHER = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(f"\\n{code} {peak * (1 if sys.platform == 'darwin' else 1024)}")
"""


@dataclass(frozen=True)
class Run:
    """What a subprocess printed, how long it took and the most memory it held."""

    output: str
    seconds: float
    peak_bytes: int


def run_python(*arguments: str, **environment: str) -> Run:
    """Run `python ARGUMENTS` by itself; `environment` adds variables. Raises if it fails."""
    command = [sys.executable, "-c", _LAUNCHER, sys.executable, *arguments]
    setting = {**os.environ, **environment}
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=setting)
    seconds = time.perf_counter() - start
    output, _, last = done.stdout.rstrip("\n").rpartition("\n")
    code, peak = last.split()
    if code != "0":
        raise RuntimeError(f"python {' '.join(arguments)} ended with code {code}: {output}")
    return Run(output.strip("\n"), seconds, int(peak))


def seconds_of(work: Callable[[], object], *, repeats: int = 5, warm_up: int = 1) -> list[float]:
    """Seconds of each repeat, after warm-up runs that are not counted (compilation, file cache)."""
    for _ in range(warm_up):
        work()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return taken


def save(name: str, results: Any, *, seed: int | None, packages: Iterable[str] = ()) -> Path:
    """Write results/NAME.json whole or not at all, with machine, versions and seed."""
    record = {
        "benchmark": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"system": platform.system(), "cpu": _cpu(), "cores": os.cpu_count()},
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in ("untilt", "numpy", "numba", *packages)},
        },
        "seed": seed,
        "results": results,
    }
    with replacing(RESULTS / f"{name}.json") as temporary:
        temporary.write_text(json.dumps(record, indent=2) + "\n")
    return RESULTS / f"{name}.json"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under a header; floats with three significant digits."""
    shown = [[f"{v:.3g}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    cells = [list(header), *shown]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def _cpu() -> str:
    """The processor's name as Linux tells it, else the architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
