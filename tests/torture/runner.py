"""Kills commands at random moments, looks at what they left, and lets them end."""

import os
import random
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.torture.scenarios import SCENARIOS, Scenario, contents, foreign, put_foreign

PATIENCE = 300.0  # a command that takes longer hangs


class TortureError(Exception):
    """Something was lost, mixed, touched or left behind."""


@dataclass
class Tally:
    """What was done to one command."""

    kills: int = 0
    ended_before: int = 0
    rounds: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reference:
    """What undisturbed commands leave, and how long the last one takes to write."""

    old: dict[str, str]
    new: dict[str, str]
    old_folder: Path
    seconds: float


def environment(temp: Path) -> dict[str, str]:
    """One thread, and a place of its own for scratch files."""
    temp.mkdir(parents=True, exist_ok=True)
    calm = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    return {**os.environ, **calm, "TMPDIR": str(temp)}


def end_well(words: list[str], temp: Path) -> None:
    """Run to the end."""
    done = subprocess.run(
        words, capture_output=True, text=True, env=environment(temp), timeout=PATIENCE, check=False
    )
    if done.returncode != 0:
        raise TortureError(f"ended with {done.returncode}: {done.stderr[-600:]}")


def kill_at(words: list[str], temp: Path, moment: Callable[[], bool], *, ready: bool) -> bool:
    """Start it and SIGKILL it at the moment; False where it ended before that."""
    running = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(temp),
        start_new_session=True,
    )  # fmt: skip
    assert running.stdout is not None
    if ready and select.select([running.stdout], [], [], PATIENCE)[0]:
        os.read(running.stdout.fileno(), 100)
    while running.poll() is None and not moment():
        time.sleep(0.0005)
    was_running = running.poll() is None
    with suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGKILL)
    _, said = running.communicate()
    if not was_running and running.returncode != 0:
        raise TortureError(f"ended with {running.returncode}: {said.decode()[-600:]}")
    _check_no_processes(running.pid)
    return was_running


def _check_no_processes(session: int) -> None:
    """A killed command has no children that live on."""
    for _ in range(100):
        left = [pid for pid in _processes() if _session_of(pid) == session]
        if not left:
            return
        time.sleep(0.05)
    raise TortureError(f"processes {left} live on after the kill")


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def after(seconds: float) -> Callable[[], bool]:
    """So long after it is first asked."""
    ends: list[float] = []

    def moment() -> bool:
        if not ends:
            ends.append(time.monotonic() + seconds)
        return time.monotonic() > ends[0]

    return moment


def names_change(out: Path, times: int) -> Callable[[], bool]:
    """When names under the folder have changed so often: files appear, are renamed, go."""
    seen: list[Any] = []

    def moment() -> bool:
        names = {str(path) for path in out.rglob("*")} if out.is_dir() else set()
        if not seen or seen[-1] != names:
            seen.append(names)
        return len(seen) > times

    return moment


def reference(scenario: Scenario, inputs: Path, folder: Path) -> Reference:
    """Undisturbed: the older result, where there is one, and the new one."""
    old: dict[str, str] = {}
    (folder / "old").mkdir(parents=True)
    (folder / "new").mkdir()
    if scenario.prepare is not None:
        end_well(scenario.prepare(inputs, folder / "old"), folder / "temp")
        old = contents(folder / "old")
    words = scenario.command(inputs, folder / "new")
    seconds = _seconds_of_writing(words, folder / "temp", ready=scenario.says_ready)
    return Reference(old, contents(folder / "new"), folder / "old", seconds)


def _seconds_of_writing(words: list[str], temp: Path, *, ready: bool) -> float:
    """How long it takes, from when it is ready where it says so."""
    start: list[float] = []

    def moment() -> bool:
        start[:] = start or [time.monotonic()]
        return False

    kill_at(words, temp, moment, ready=ready)
    return time.monotonic() - start[0]


def round_of_kills(
    scenario: Scenario, known: Reference, inputs: Path, folder: Path, rng: random.Random,
    tally: Tally, *, kills: int,
) -> None:  # fmt: skip
    """An older result and files of others; some kills, each looked at; then the command ends."""
    out, temp = folder / "out", folder / "temp"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(known.old_folder, out)
    others = put_foreign(out)
    words = scenario.command(inputs, out)
    for _ in range(kills):
        moment = after(rng.uniform(0, known.seconds))
        if rng.random() < 0.5:
            moment = names_change(out, rng.randrange(1, 12))
        if kill_at(words, temp, moment, ready=scenario.says_ready):
            tally.kills += 1
        else:
            tally.ended_before += 1
        _check_foreign(out, others)
        if known.old:
            _check_not_mixed(out, known, together=scenario.together)
    end_well(words, temp)
    tally.rounds += 1
    _check_foreign(out, others)
    _check_equal(contents(out), known.new)
    left = sorted(str(path.relative_to(temp)) for path in temp.rglob("*"))
    if left:
        raise TortureError(f"left in the temporary folder: {left[:5]}")


def _check_foreign(out: Path, others: dict[str, Any]) -> None:
    if foreign(out) != others:
        now = foreign(out)
        changed = [name for name in others if now.get(name) != others[name]]
        raise TortureError(f"files of others were touched: {changed}")


def _check_not_mixed(out: Path, known: Reference, *, together: bool) -> None:
    """Each file is whole, old or new; what belongs together is not mixed."""
    found = {n: v for n, v in contents(out).items() if not n.startswith(".untilt-")}
    odd = [n for n, v in found.items() if v not in (known.old.get(n), known.new.get(n))]
    if odd:
        raise TortureError(f"neither old nor new after a kill: {odd}")
    differ = {n for n in found if known.old.get(n) != known.new.get(n)}
    sides = {found[n] == known.new.get(n) for n in differ}
    if together and len(sides) > 1:
        raise TortureError("old and new files lie side by side after a kill")


def _check_equal(found: dict[str, str], wanted: dict[str, str]) -> None:
    if extra := sorted(set(found) - set(wanted)):
        raise TortureError(f"left behind: {extra[:5]}")
    if gone := sorted(set(wanted) - set(found)):
        raise TortureError(f"missing at the end: {gone[:5]}")
    if differ := sorted(name for name in wanted if found[name] != wanted[name]):
        raise TortureError(f"other than undisturbed: {differ[:5]}")


def torture(
    kills: int, *, seed: int, inputs: Path, folder: Path, only: tuple[str, ...] = (),
    tell: Callable[[str], None] = lambda _: None, most_kills: int = 3,
) -> dict[str, Tally]:  # fmt: skip
    """About so many kills, shared over the commands."""
    chosen = [each for each in SCENARIOS.values() if not only or each.name in only]
    whole = sum(each.share for each in chosen)
    tallies = {}
    for scenario in chosen:
        rng, tally = random.Random(f"{seed}:{scenario.name}"), Tally()
        tallies[scenario.name] = tally
        shutil.rmtree(folder / scenario.name, ignore_errors=True)
        known = reference(scenario, inputs, folder / scenario.name / "reference")
        wanted = max(1, round(kills * scenario.share / whole))
        while tally.kills + tally.ended_before < 4 * wanted and tally.kills < wanted:
            number = min(rng.randrange(1, most_kills + 1), wanted - tally.kills)
            place = folder / scenario.name / f"round-{tally.rounds + len(tally.problems)}"
            try:
                round_of_kills(scenario, known, inputs, place, rng, tally, kills=number)
                shutil.rmtree(place)
            except (TortureError, subprocess.TimeoutExpired) as problem:
                tally.problems.append(f"{place.name}: {problem}")
                tell(f"{scenario.name} {place}: {problem}")
                if len(tally.problems) >= 5:
                    break
        tell(f"{scenario.name}: {tally.kills} kills in {tally.rounds} rounds")
    return tallies
