"""The process that takes the blows: reads cases from stdin, answers one JSON line for each.

    python -m tests.fuzz.worker CORPUS MEMORY_MB

It is warmed up first (compiled kernels, libraries). Then the address space that it may use beyond
what is mapped by then is limited, so an allocation that explodes fails here and not on the machine.
"""

import json
import os
import random
import resource
import shutil
import sys
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from tests.fuzz.doors_runs import warm_up
from tests.fuzz.targets import RefusedError, all_targets

from untilt.errors import UntiltError


def attempt(corpus: Path, folder: Path, name: str, key: str) -> dict[str, Any]:
    """Try one input; its folder stays only where it fails."""
    target = all_targets()[name]
    folder.mkdir(parents=True)
    start, error = time.process_time(), None
    try:
        target.attempt(corpus, folder, random.Random(key))
        outcome = "accepted"
    except BaseException as raised:
        fine = isinstance(raised, (UntiltError, RefusedError, *target.documented))
        outcome = "refused" if fine else "failed"
        error = type(raised).__name__ if fine else _told(raised)
    if outcome != "failed":
        shutil.rmtree(folder, ignore_errors=True)
    return {"outcome": outcome, "error": error, "seconds": time.process_time() - start}


def _told(failure: BaseException) -> str:
    frames = traceback.extract_tb(failure.__traceback__)
    ours = [f for f in frames if "/untilt/" in f.filename.replace(os.sep, "/")]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}" if ours else "?"
    return f"{type(failure).__name__} at {where}: {str(failure)[:200]!r}"


def peak_mb() -> float:
    """Most resident memory since the last call of `reset_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def reset_peak() -> None:
    """Linux counts the peak anew; elsewhere it is that of the process."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def limit_memory(more_mb: int) -> None:
    """Allow this much address space beyond what is mapped now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, 2**30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def serve(corpus: Path, more_mb: int, answers: TextIO) -> None:
    """Answer cases until stdin ends."""
    warnings.simplefilter("ignore")
    warm_up(corpus)
    limit_memory(more_mb)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        reset_peak()
        answer = attempt(corpus, Path(case["folder"]), case["target"], case["key"])
        print(json.dumps({**answer, "peak_mb": peak_mb()}), file=answers, flush=True)


if __name__ == "__main__":
    # What libraries print must not stand between the answers.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    serve(Path(sys.argv[1]), int(sys.argv[2]), channel)
