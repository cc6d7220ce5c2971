"""How often a log without any difference is said to have one: "better" and "worse" by chance.

The figures of docs/decisions.md. Logs come from the simulator of tests/wall, in two worlds: in
"equal" all documents are equally relevant; in "unknown" documents differ, but neither features nor
production know anything of it, so that no ranker that learns can be better than another. Each log
goes through the whole of `untilt.run` (small trees, held-out queries) and through `untilt.estimate`
alone with the run's own curve and an order drawn by chance. Counts of the logs done so far are kept
in the result file, so that a run can be broken off and taken up again.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, get_args

from _harness import RESULTS, save, table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.wall.judging import opinion_of_run, opinions_of_estimate, read, without_pages
from tests.wall.logs import WALL
from tests.wall.world import Kind

NAME = "false_decisions"
STRUCTURES = (
    "plain",
    "two_rankers",
    "gaps",
    "mixed_lengths",
    "lost_rows",
    "shuffles",
    "swaps",
    "zipf_traffic",
)
KINDS = [kind for kind in get_args(Kind) if kind != "usual"]
ROUTES = ("run", "estimate")
LOGS_BETWEEN_SAVES = 5


def judged(structure: str, kind: Any, seed: int) -> dict[str, str]:
    """Route -> what was said of a log without a difference."""
    case = next(each for each in WALL if each.name == structure)
    log = case.make(1000 + seed, kind)
    clicks = read(log)
    with tempfile.TemporaryDirectory() as folder:
        run, found = opinion_of_run(log, clicks, Path(folder) / "run")
    said = {"run": run.said}
    if found is not None:
        tried = {each.order: each.said for each in opinions_of_estimate(log, clicks, found.bias)}
        said["estimate"] = tried["chance"]
    return said


def measure(structure: str, kind: Any, before: dict[str, Any], n_logs: int) -> dict[str, Any]:
    """`n_logs` more logs: how often each thing was said, by route."""
    first = before.get("logs", 0)
    counts = {route: Counter(before.get(route, {})) for route in ROUTES}
    for seed in range(first, first + n_logs):
        for route, said in judged(structure, kind, seed).items():
            counts[route][said] += 1
    return {"logs": first + n_logs, **{route: dict(counts[route]) for route in ROUTES}}


def rows(done: dict[str, dict[str, Any]]) -> list[list[object]]:
    """Of a table: each kind of log by each route, and all together."""
    made: list[list[object]] = []
    for route in ROUTES:
        total: Counter[str] = Counter()
        for name, cell in done.items():
            total += Counter(cell[route])
            made.append([route, name, *_shares(cell[route])])
        made.append([route, "all", *_shares(total)])
    return made


def _shares(counts: dict[str, int] | Counter[str]) -> list[object]:
    n = max(1, sum(counts.values()))
    told = [counts.get(said, 0) for said in ("better", "worse", "cannot tell", "refused")]
    return [sum(counts.values()), *(f"{100 * count / n:.1f}%" for count in told)]


def main() -> None:
    """Measure what is wanted and not done yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=25, help="simulated logs of each kind")
    parser.add_argument("--only", default="", help="kinds whose name contains this")
    options = parser.parse_args()
    path = RESULTS / f"{NAME}.json"
    done = json.loads(path.read_text())["results"] if path.exists() else {}
    with without_pages():
        for structure in STRUCTURES:
            for kind in KINDS:
                name = f"{structure}, {kind}"
                while options.only in name and done.get(name, {}).get("logs", 0) < options.logs:
                    done[name] = measure(structure, kind, done.get(name, {}), LOGS_BETWEEN_SAVES)
                    save(NAME, done, seed=1000, packages=["lightgbm"])
    table(["by", "log", "logs", "better", "worse", "cannot tell", "refused"], rows(done))


if __name__ == "__main__":
    main()
