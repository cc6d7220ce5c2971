"""`make torture KILLS=100 SEED=0`: SIGKILL at random moments, full disks, read-only folders.

Also two commands at once, and power cuts on a disk that forgets what was not synced.

python -m tests.torture --kills 100 --seed 0
"""

import argparse
import json
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tests.torture.places import Place, closed_places, two_at_once
from tests.torture.runner import torture
from tests.torture.scenarios import SCENARIOS, make_inputs
from tests.torture.test_power import PROMISES, cut

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Kill, look, and let end; 1 where something was lost, touched or left behind."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=sorted(SCENARIOS), help="a command")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "torture")
    given = parser.parse_args()
    start = time.monotonic()
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    make_inputs(given.out / "inputs")
    tallies = torture(
        given.kills, seed=given.seed, inputs=given.out / "inputs", folder=given.out / "work",
        only=tuple(given.only or ()), tell=tell,
    )  # fmt: skip
    places = closed_places(given.out / "inputs", given.out / "places", tuple(given.only or ()))
    places += two_at_once(given.out / "inputs", given.out / "places", tuple(given.only or ()))
    if not given.only:
        places += power_cuts(given.out / "power")
    for place in places:
        tell(f"{place.name:<40}{place.how:<28}{place.problem or 'ok'}")
    told = {
        "seed": given.seed,
        "seconds": round(time.monotonic() - start, 1),
        "commands": {name: asdict(tally) for name, tally in tallies.items()},
        "places": [asdict(place) for place in places],
    }
    (given.out / "torture.json").write_text(json.dumps(told, indent=1))
    tell(f"\n{'command':<12}{'kills':>8}{'rounds':>8}{'ended before':>14}{'problems':>10}")
    for name, tally in tallies.items():
        problems = len(tally.problems)
        tell(f"{name:<12}{tally.kills:>8}{tally.rounds:>8}{tally.ended_before:>14}{problems:>10}")
    tell(f"{told['seconds']} s, seed {given.seed}; {given.out / 'torture.json'}")
    bad = [tally for tally in tallies.values() if tally.problems]
    return int(bool(bad or [place for place in places if place.problem]))


def power_cuts(folder: Path) -> list[Place]:
    """Every promise, cut at each step; where syncs do nothing, each must break."""
    found = []
    for promise in PROMISES:
        steps, broken = cut(promise, folder / promise.__name__)
        _, seen = cut(promise, folder / f"{promise.__name__}-lies", lies=True)
        problem = f"{broken[0]!r}" if broken else None if seen else "held without any sync"
        found.append(Place(f"{promise.__name__}, power cut", f"at {steps} steps", problem))
    return found


def tell(text: str) -> None:
    """A line for people, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
