"""Places that cannot be written to: a full disk, a read-only folder. A sentence, and nothing lost.

And a folder that two commands write to at once: each ends well or is refused, and the result is
that of one.

A small tmpfs where this process may mount one, else a limit on the size of files; a read-only
tmpfs where it may, else a folder without the right to write (which does not bind root).
"""

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.torture.runner import PATIENCE, environment
from tests.torture.scenarios import SCENARIOS, Scenario, contents, foreign, put_foreign


@dataclass(frozen=True)
class Place:
    """One command at one place: how the place was made, and what was wrong, if anything."""

    name: str
    how: str
    problem: str | None


def closed_places(inputs: Path, folder: Path, only: tuple[str, ...] = ()) -> list[Place]:
    """Every command, or some, at every place."""
    tried = []
    for scenario in (each for each in SCENARIOS.values() if not only or each.name in only):
        own = folder / scenario.name.replace(" ", "-")
        shutil.rmtree(own, ignore_errors=True)
        old = _older_result(scenario, inputs, own)
        for what, place in (("full disk", full_disk), ("read-only", read_only)):
            base = own / what.replace(" ", "-")
            (base / "out").mkdir(parents=True)
            how, problem = _tried(scenario, inputs, old, base, place)
            tried.append(Place(f"{scenario.name}, {what}", how, problem))
    return tried


def two_at_once(inputs: Path, folder: Path, only: tuple[str, ...] = ()) -> list[Place]:
    """Every command, or some, beside itself over an older result; then once more alone."""
    tried = []
    for scenario in (each for each in SCENARIOS.values() if not only or each.name in only):
        own = folder / "at-once" / scenario.name.replace(" ", "-")
        shutil.rmtree(own, ignore_errors=True)
        out, temp = own / "out", own / "temp"
        shutil.copytree(_older_result(scenario, inputs, own), out)
        others, words = foreign(out), scenario.command(inputs, out)
        both = [
            subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=environment(temp),
            )
            for _ in range(2)
        ]  # fmt: skip
        said = [each.communicate(timeout=PATIENCE)[1] for each in both]
        codes = [each.returncode for each in both]
        alone = subprocess.run(words, capture_output=True, env=environment(temp), check=False)
        wanted = own / "wanted"
        wanted.mkdir()
        subprocess.run(
            scenario.command(inputs, wanted), capture_output=True, env=environment(temp), check=True
        )
        wrong = {
            f"codes {codes}": 0 not in codes,
            **{
                _answered_badly(code, text, by_script=scenario.says_ready): True
                for code, text in zip(codes, said, strict=True)
                if code
            },
            "not so once more": alone.returncode != 0,
            "files of others were touched": foreign(out) != others,
            "other than that of one": contents(out) != contents(wanted),
        }
        problem = "; ".join(what for what, is_so in wrong.items() if is_so and what) or None
        how = "one was refused" if any(codes) else "both ended well"
        tried.append(Place(f"{scenario.name}, two at once", how, problem))
    return tried


Maker = Callable[[Path, Path], Iterator[tuple[str, Callable[[], None] | None]]]


def _older_result(scenario: Scenario, inputs: Path, own: Path) -> Path:
    """A folder with files of others and an older result, where there is one."""
    old = own / "old"
    old.mkdir(parents=True)
    if scenario.prepare is not None:
        words = scenario.prepare(inputs, old)
        calm = environment(own / "temp-before")
        subprocess.run(words, capture_output=True, env=calm, timeout=PATIENCE, check=True)
    put_foreign(old)
    return old


def _tried(
    scenario: Scenario, inputs: Path, old: Path, base: Path, place: Maker
) -> tuple[str, str | None]:
    """The command over the older result, in a place that then closes."""
    out, temp = base / "out", base / "temp"
    with contextmanager(place)(old, out) as (how, before):
        others, whole = foreign(out), contents(out)
        done = subprocess.run(
            scenario.command(inputs, out), capture_output=True, text=True, env=environment(temp),
            timeout=PATIENCE, preexec_fn=before, check=False,
        )  # fmt: skip
        now = contents(out)
        kept = {name: value for name, value in now.items() if name in whole}
        left = [name for name in now if "/.untilt-" in f"/{name}"]
        wrong = {
            _answered_badly(done.returncode, done.stderr, by_script=scenario.says_ready): True,
            "files of others were touched": foreign(out) != others,
            f"old files changed: {[n for n in whole if kept.get(n) != whole[n]]}": kept != whole,
            f"left behind: {left}": bool(left),
            "something left in the temporary folder": any(temp.iterdir()),
        }
    return how, "; ".join(what for what, is_so in wrong.items() if is_so and what) or None


def _answered_badly(code: int, said: str, *, by_script: bool) -> str:
    """A program of Python ends with a `WriteError`, a command with a sentence and exit code 2."""
    good = "WriteError" in said if by_script else "error: " in said and "Traceback" not in said
    if code == (1 if by_script else 2) and good:
        return ""
    return f"exit code {code}: {said[-300:]}"


def full_disk(old: Path, out: Path) -> Iterator[tuple[str, Callable[[], None] | None]]:
    """A disk with what lies there and one large file that leaves a few bytes."""
    if _mounted(out, "size=4m"):
        try:
            shutil.copytree(old, out, dirs_exist_ok=True)
            _fill(out / "film.mp4")
            yield "tmpfs with 4 kB left", None
        finally:
            subprocess.run(["umount", str(out)], check=True)
        return
    shutil.copytree(old, out, dirs_exist_ok=True)
    yield (
        "RLIMIT_FSIZE of 1,000 bytes",
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000,) * 2),
    )


def _fill(file: Path) -> None:
    """Write until nothing goes in, then give one page back."""
    with file.open("wb", buffering=0) as film, suppress(OSError):
        while film.write(b"0" * 4096):
            pass
    os.truncate(file, max(0, file.stat().st_size // 4096 - 1) * 4096)


def read_only(old: Path, out: Path) -> Iterator[tuple[str, Callable[[], None] | None]]:
    """A disk that was mounted read-only."""
    if _mounted(out, "size=50m"):
        try:
            shutil.copytree(old, out, dirs_exist_ok=True)
            subprocess.run(["mount", "-o", "remount,ro", str(out)], check=True)
            yield "tmpfs, remounted read-only", None
        finally:
            subprocess.run(["umount", str(out)], check=True)
        return
    shutil.copytree(old, out, dirs_exist_ok=True)
    out.chmod(0o555)
    try:
        yield "folder without the right to write", None
    finally:
        out.chmod(0o755)


def _mounted(out: Path, options: str) -> bool:
    """Whether a tmpfs could be mounted there; only root may, and not everywhere."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    assert not os.path.ismount(out)
    assert not os.path.samefile(out, tempfile.gettempdir())
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(out)], capture_output=True, check=False
    )
    return done.returncode == 0
