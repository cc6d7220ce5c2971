"""Commands that are killed: what each writes, and what must be true after a kill and at the end."""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

PROGRAM = [sys.executable, "-c", "from untilt.cli.main import main; main()"]
# Files of other people in the folder, with names that look like ours at first sight.
FOREIGN = {
    ".backup-20261115.tar.gz": b"a backup", ".my-settings": b"settings", "notes.txt": b"notes",
    ".notes-my_notes.md": b"more notes", ".untilt-notes": b"about untilt", "photos/one.png": b"one",
    ".untilt-unfinished-mine.parquet": b"not by untilt",
}  # fmt: skip
OLD_SEED, NEW_SEED = "1", "2"


@dataclass(frozen=True)
class Scenario:
    """One command.

    Parameters
    ----------
    command : its words, for inputs and a folder
    prepare : puts an older result into the folder, or nothing
    says_ready : whether it prints a line when the writing begins; kills come after that
    share : of all kills
    together : whether its files are one result, old or new
    """

    name: str
    command: Callable[[Path, Path], list[str]]
    share: int
    prepare: Callable[[Path, Path], list[str]] | None = None
    says_ready: bool = False
    together: bool = False


def script(text: str, *words: object) -> list[str]:
    """A program of Python with arguments."""
    return [sys.executable, "-c", text, *map(str, words)]


def _run(inputs: Path, out: Path) -> list[str]:
    log, documents = inputs / "log" / "clicks.parquet", inputs / "log" / "documents.parquet"
    return [
        *(*PROGRAM, "run", str(log), "--documents", str(documents), "-o", str(out), "--force"),
        *("--trees", "8", "--threads", "1", "--method", "balanced", "--method", "linear"),
    ]


def _simulate(seed: str) -> Callable[[Path, Path], list[str]]:
    words = ("--queries", "30", "--features", "5", "--sessions", "3000", "--seed", seed, "--force")
    return lambda _, out: [*PROGRAM, "simulate", "-o", str(out), *words]


def _reproduce(inputs: Path, out: Path) -> list[str]:
    return [*PROGRAM, "reproduce", str(inputs / "tiny.toml"), "--quick", "-o", str(out)]


WRITE = """
import sys, untilt as ut
log = ut.read_log(sys.argv[1] + "/clicks.parquet", documents=sys.argv[1] + "/documents.parquet")
log = log.split(0.5, seed=0)[sys.argv[3] == "old"]
print("ready", flush=True)
for _ in range(int(sys.argv[4])):
    ut.write_log(log, sys.argv[2] + "/log.parquet", documents=sys.argv[2] + "/documents.parquet")
"""
SAVE = """
import sys, untilt as ut
bias = ut.PowerLaw(1.0 if sys.argv[3] == "old" else 0.5).to_bias(10)
model = ut.load(sys.argv[1])
model.set_params(lightgbm_params={"seed": 1 if sys.argv[3] == "old" else 2})
print("ready", flush=True)
for _ in range(int(sys.argv[4])):
    model.save(sys.argv[2] + "/ranker.untilt")
    bias.save(sys.argv[2] + "/bias.json")
"""


def _write_log(which: str, times: int) -> Callable[[Path, Path], list[str]]:
    return lambda inputs, out: script(WRITE, inputs / "log", out, which, times)


def _save(which: str, times: int) -> Callable[[Path, Path], list[str]]:
    return lambda inputs, out: script(SAVE, inputs / "trees.untilt", out, which, times)


SCENARIOS = {
    each.name: each
    for each in (
        Scenario("run", _run, 30),
        Scenario("simulate", _simulate(NEW_SEED), 20, _simulate(OLD_SEED), together=True),
        Scenario("reproduce", _reproduce, 14),
        Scenario("write_log", _write_log("new", 30), 18, _write_log("old", 1), says_ready=True),
        Scenario("save", _save("new", 30), 18, _save("old", 1), says_ready=True),
    )
}


def make_inputs(folder: Path) -> None:
    """What the commands read."""
    from tests.fuzz.corpus import EXPERIMENT

    import untilt as ut

    judged = ut.make_judged(n_queries=60, n_features=5, seed=5)
    made = ut.simulate_to_parquet(
        judged, folder / "log", "harvest", n_sessions=4000, seed=5, n_threads=1
    )
    log = ut.read_log(made.log, documents=made.documents)
    ut.LambdaMART(n_trees=5, n_threads=1).fit(log).save(folder / "trees.untilt")
    (folder / "tiny.toml").write_text(EXPERIMENT)


# What a folder holds


def put_foreign(out: Path) -> dict[str, tuple[bytes, int]]:
    """Files of other people; what to compare them with."""
    for name, data in FOREIGN.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(10**18, 10**18))
    return foreign(out)


def foreign(out: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of the files of other people that are there."""
    paths = {name: out / name for name in FOREIGN if (out / name).is_file()}
    return {name: (path.read_bytes(), path.stat().st_mtime_ns) for name, path in paths.items()}


def contents(out: Path) -> dict[str, str]:
    """Every file that is not of other people -> a digest of what it says, without times."""
    files = (f for f in sorted(out.rglob("*")) if f.is_file())
    named = {str(f.relative_to(out)): f for f in files}
    return {name: meaning(file) for name, file in named.items() if name not in FOREIGN}


def meaning(file: Path) -> str:  # noqa: PLR0911  one for each kind of file
    """A digest; of files that tell when they were made, of all the rest in them."""
    import untilt as ut

    if file.name in ("lock", "provenance.json") or file.suffix == ".html" or "steps" in file.parts:
        return ""  # times of this very run, and the page that is made of figures.json
    if file.name == "figures.json":
        return _digest(replace(ut.Decision.load(file), provenance=None).to_dict())
    if file.suffix == ".untilt":
        return _digest(_plain(ut.load(file)))
    if file.suffix == ".jsonl":
        lines = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
        # A cell that two commands computed at once has two lines and counts once.
        return _digest(sorted({json.dumps([line["cell"], line["values"]]) for line in lines}))
    if file.suffix in (".json", ".md", ".toml") and "candidates" not in file.parts:
        return _digest([line for line in file.read_text().splitlines() if "second" not in line])
    if file.suffix == ".json":
        return ""  # the times of training
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _plain(model: Any) -> Any:
    """Parameters and what was learned, trees as their text."""
    state = {
        name: value.model_to_string() if hasattr(value, "model_to_string") else repr(value)
        for name, value in model._state().items()
    }
    return [type(model).__name__, repr(model.get_params(deep=False)), state]


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
