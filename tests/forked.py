"""Python code in processes of its own that start with the package loaded.

A process for each page of the documentation takes longer to import numba and to load kernels than
to run the page. So one process does that, and a fork of it runs the code: as alone as a new one,
but for what was imported.

    python -W error -m tests.forked      # requests and answers are lines of JSON
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
import types
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Done:
    returncode: int
    stderr: str


class Forks:
    """The process that forks; ended by `close`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.forked"],
            cwd=Path(__file__).resolve().parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, code: str, *, cwd: Path, warned: str = "error") -> Done:
        """What came of the code, run as a script in this folder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.NamedTemporaryFile("r", suffix=".txt") as said:
            asked = {"code": code, "cwd": str(cwd), "warned": warned, "said": said.name}
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            return Done(json.loads(answer) if answer else -1, said.read())

    def close(self) -> None:
        self._process.communicate(timeout=60)


def load() -> None:
    """Kernels and libraries that most pages use; nothing that keeps a thread."""
    import untilt as ut

    judged = ut.make_judged(n_queries=30, n_features=6, seed=0)
    log = ut.simulate(judged, "dla", sessions_per_query=3, seed=0).log
    bias = ut.EyeTracking()
    for weighting in (ut.Balanced(bias), "auto"):
        options: dict[str, Any] = {"bias": bias} if weighting == "auto" else {}
        ranker = ut.LambdaMART(weighting, n_trees=2, n_threads=1, **options).fit(log)
    ut.evaluate(judged, ranker, metrics=["ndcg@10"])


def answer(asked: dict[str, Any]) -> int:
    """The exit status of a fork that runs the code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        said = os.open(asked["said"], os.O_WRONLY | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.chdir(asked["cwd"])
        warnings.simplefilter(asked["warned"])
        script = sys.modules["__main__"] = types.ModuleType("__main__")
        sys.argv = ["-c"]
        exec(compile(asked["code"], "<page>", "exec"), script.__dict__)
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0) if not isinstance(ended.code, str) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


if __name__ == "__main__":
    load()
    for line in sys.stdin:
        sys.stdout.write(f"{answer(json.loads(line))}\n")
        sys.stdout.flush()
