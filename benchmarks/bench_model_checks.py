"""How often the tests of the model of reading reject: a true model (size), and others (power).

The figures of docs/audit.md. People of tests/auditing/people.py read simulated pages in a
known way; `untilt.audit`'s tests look at the log. "any" is the share of logs in which a test fails
after Holm's correction, "serious" those in which a run would give no verdict, "named" those whose
first finding names the true cause; the other columns are single tests at 5%. Counts of the logs
done so far are kept in the result file, so that a run can be broken off and taken up again.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from _harness import RESULTS, save, table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.auditing.people import fixed_lists, people

from untilt.auditing.reading import SIZE, reading_tests

NAME = "model_checks"
LOGS_BETWEEN_SAVES = 20
ASKS = ("relevance", "features", "clicks-above", "time", "ranker", "context")
SIZE_LOGS, POWER_LOGS = 200, 100
# People who read by position alone: nothing may be found.
TRUE_MODEL: dict[str, dict[str, Any]] = {
    "even traffic": {},
    "Zipf 1.3": {"zipf": 1.3},
    "50 queries": {"n_queries": 50},
    "20 queries": {"n_queries": 20, "sessions": 4000},
    "20 queries, Zipf 1.3": {"n_queries": 20, "sessions": 4000, "zipf": 1.3},
    "1% clicks": {"rate": 0.05},
    "lists of 3 to 10": {"lists": (3, 10)},
    "good production": {"quality": 0.9},
    "queries read differently": {"queries_differ": 0.2},
    "one fixed order, features": {"fixed": True},
    "one fixed order, poor features": {"fixed": True, "noise": 2.0},
    "one fixed order, good production": {"fixed": True, "quality": 0.9},
}
# Name -> how they read, and the finding that names the cause.
OTHER_MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "trust, weak": ({"trust": 0.1}, "reading.trust"),
    "trust, strong": ({"trust": 0.5}, "reading.trust"),
    "trust, strong, 1% clicks": ({"trust": 0.025, "rate": 0.05}, "reading.trust"),
    "trust, strong, Zipf 1.3": ({"trust": 0.5, "zipf": 1.3}, "reading.trust"),
    "trust, strong, 20 queries": (
        {"trust": 0.5, "n_queries": 20, "sessions": 4000},
        "reading.trust",
    ),
    "trust, strong, one fixed order": ({"fixed": True, "trust": 0.5}, "reading.trust"),
    "trust, weak, one fixed order": ({"fixed": True, "trust": 0.1}, "reading.trust"),
    "cascade": ({"cascade": True}, "reading.clicks-above"),
    "saturation 0.1": ({"saturation": 0.1}, "reading.clicks-above"),
    "saturation 0.3": ({"saturation": 0.3}, "reading.clicks-above"),
    "drift, half": ({"drift": 0.5}, "reading.time"),
    "drift, full": ({"drift": 1.0}, "reading.time"),
    "readers change, 0.8 to 1.0": ({"late": 1.0}, "reading.time"),
    "two devices, 0.7 and 0.9": ({"devices": (0.7, 0.9)}, "reading.context"),
    "two devices, 0.4 and 1.2": ({"devices": (0.4, 1.2)}, "reading.context"),
    "people differ": ({"people_differ": 0.5}, "reading.clicks-above-more"),
}


def measure(way: dict[str, Any], cause: str, before: Counter[str], n_logs: int) -> Counter[str]:
    """Counts over `n_logs` more logs: rejections, and seconds of the tests."""
    counts = Counter(before)
    for seed in range(before["logs"], before["logs"] + n_logs):
        options = {name: value for name, value in way.items() if name != "fixed"}
        log = (fixed_lists if "fixed" in way else people)(1000 + seed, **options)
        start = time.perf_counter()
        tests = reading_tests(log)
        counts["seconds"] += time.perf_counter() - start
        facts = tests.facts
        counts["any"] += not tests.fits
        counts["serious"] += any(fact.severity == "serious" for fact in facts)
        counts["named"] += bool(cause and facts and facts[0].code.startswith(cause))
        for test in tests.tests:
            counts[test.question] += test.p_value < SIZE
    counts["logs"] += n_logs
    return counts


def main() -> None:
    """Measure the cases that are wanted and not done yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    path = RESULTS / f"{NAME}.json"
    done = json.loads(path.read_text())["results"] if path.exists() else {}
    cases = {name: (way, "", SIZE_LOGS) for name, way in TRUE_MODEL.items()}
    cases |= {name: (way, cause, POWER_LOGS) for name, (way, cause) in OTHER_MODELS.items()}
    for name, (way, cause, wanted) in cases.items():
        while options.only in name and done.get(name, {}).get("logs", 0) < wanted:
            done[name] = dict(measure(way, cause, Counter(done.get(name, {})), LOGS_BETWEEN_SAVES))
            save(NAME, done, seed=1000)
    columns = ("any", "serious", "named", *ASKS)
    table(
        ["case", "logs", *columns, "seconds"],
        [
            [name, row["logs"]]
            + [round(row.get(each, 0) / row["logs"], 3) for each in (*columns, "seconds")]
            for name, row in ((name, done[name]) for name in cases if name in done)
        ],
    )


if __name__ == "__main__":
    main()
