"""How often a firm answer is wrong, by why positions vary: the worlds of tests/wall/varying.py.

Each log goes through `untilt.run`; its ranker and five orders that nobody learned are judged by the
run's curve, evaluator and rules. Logs run side by side in processes. Figures of docs/evidence.md.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from _harness import save, table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.wall.judging import DECISIONS, without_pages
from tests.wall.varying import WORLDS
from tests.wall.verdicts import line, verdicts

Told = dict[str, Any]


def judged(task: tuple[str, int]) -> list[str]:
    """What is said of one log."""
    name, seed = task
    with tempfile.TemporaryDirectory() as folder, without_pages():
        return [
            line(name, seed, each) for each in verdicts(WORLDS[name], seed, Path(folder) / "run")
        ]


def summary(told: list[Told]) -> dict[str, Any]:
    """Shares of the orders of a world."""
    n = len(told)
    truth = np.array([each["truth"] for each in told])
    said = np.array([each["said"] for each in told])
    if_so = np.array([each["if_so"] for each in told])
    covered = [each["covered"] for each in told if each["covered"] is not None]
    curves = [
        each["curve"] for each in told if each["curve"] is not None and each["order"] == "run"
    ]

    def share(mask: Any) -> float:
        return round(float(np.sum(mask)) / n, 3)

    def turned(word: Any) -> Any:
        return ((word == "better") & (truth <= 0)) | ((word == "worse") & (truth >= 0))

    return {
        "kinds": dict(Counter(each["kind"] for each in told)),
        "orders": n,
        "logs": len({each["seed"] for each in told}),
        "wrong": share(turned(said)),
        "right better": share((said == "better") & (truth > 0)),
        "right worse": share((said == "worse") & (truth < 0)),
        "if so wrong": share(turned(if_so)),
        "if so right": share((if_so != "") & ~turned(if_so)),
        "difference covered": round(float(np.mean(covered)), 3) if covered else None,
        "curve covered": round(float(np.mean(curves)), 3) if curves else None,
        "firm covered": _covered([each for each in told if each["said"] in DECISIONS]),
    }  # fmt: skip


def _covered(told: list[Told]) -> float | None:
    return round(float(np.mean([each["covered"] for each in told])), 3) if told else None


def main() -> None:
    """Judge logs of every world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=8, help="simulated logs of each world")
    parser.add_argument("--seed", type=int, default=100, help="of the first log")
    parser.add_argument("--only", default="", help="worlds whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--lines", type=Path, default=None, help="file of what was said of each")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.logs)
    tasks = [(name, seed) for seed in seeds for name in WORLDS if options.only in name]
    told: dict[str, list[Told]] = defaultdict(list)
    with ProcessPoolExecutor(options.jobs) as pool:
        for lines in pool.map(judged, tasks):
            for text in lines:
                told[json.loads(text)["world"]].append(json.loads(text))
    if options.lines is not None:
        rows = (json.dumps(each) for world in told.values() for each in world)
        options.lines.write_text("\n".join(rows) + "\n")
    results = {name: {"sound": WORLDS[name].sound, **summary(each)} for name, each in told.items()}
    if not options.only:
        save("varying", results, seed=options.seed, packages=["lightgbm"])
    names = [name for name in next(iter(results.values())) if name not in ("orders", "logs")]
    table(["world", *names], [[w, *(str(r[n]) for n in names)] for w, r in results.items()])


if __name__ == "__main__":
    main()
