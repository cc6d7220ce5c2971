"""What floors of evidence and null tests do to small logs on which two orders are equally good.

Logs are drawn from sizes that are hard: few queries, few sessions, steep examination, most traffic
on a few queries. Two rankers made the lists and a third one, as good as they are, is the new order,
so that every "better" and every "worse" is false. The curve comes from one part of the queries by
harvested clicks, as deep as they allow, and the other part judges: without a clip, and with the one
that a run chooses. Figures of docs/decisions.md.
"""

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from _harness import save, table

import untilt as ut
from untilt.report.decision import Decision
from untilt.report.floors import below_floors
from untilt.report.step_results import HeldOut, UsedBias, verdict_of
from untilt.workflow.options import RunOptions
from untilt.workflow.stage_evaluate import chosen_clip

DEPTH = 10
CLIPS = ("none", "chosen")


def drawn_log(
    rng: np.random.Generator, queries: int, sessions: int, eta: float, zipf: float
) -> tuple[pd.DataFrame, Any]:
    """Rows of a log, and the scores (queries, documents) of a third ranker like the two of it."""
    relevance = rng.beta(1, 4, (queries, DEPTH))
    scores = relevance + 0.3 * rng.normal(size=(3, queries, DEPTH))
    traffic = np.arange(1, queries + 1) ** -zipf
    query = rng.choice(queries, sessions, p=traffic / traffic.sum())
    ranker = rng.integers(2, size=sessions)
    order = np.argsort(-scores[ranker, query], axis=1)
    seen = np.arange(1, DEPTH + 1) ** -eta * np.take_along_axis(relevance[query], order, 1)
    rows = {
        "query_id": np.repeat(query, DEPTH),
        "session_id": np.repeat(np.arange(sessions), DEPTH),
        "doc_id": order.ravel(),
        "position": np.tile(np.arange(1, DEPTH + 1), sessions),
        "click": (rng.random((sessions, DEPTH)) < seen).astype(int).ravel(),
        "ranker": np.repeat(np.array(["a", "b"])[ranker], DEPTH),
    }
    return pd.DataFrame(rows), scores[2]


def scores_of(log: ut.ClickLog, scores: Any) -> Any:
    """(documents,) in the order of the log's documents."""
    query = np.array([int(q) for q in log.query_id])[log.doc_query]
    return scores[query, np.array([int(d) for d in log.doc_id])]


def harvested(log: ut.ClickLog) -> ut.PositionBias | None:
    """The curve of as many positions as repeated documents can compare."""
    for depth in range(DEPTH, 1, -1):
        try:
            return ut.AllPairs(depth=depth).fit(log).bias_
        except ut.UntiltError:
            continue
    return None


def outcomes(seed: int, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """What is said of one log, by clip; nothing where no curve can be estimated."""
    size = {
        "queries": int(rng.choice([15, 30, 60, 120, 300])),
        "sessions": int(rng.choice([400, 1000, 3000, 8000])),
        "eta": float(rng.choice([0.7, 1.2, 2.0])),
        "zipf": float(rng.choice([0.0, 1.0, 1.5])),
    }
    rows, scores = drawn_log(np.random.default_rng(seed), **size)
    held_out = rows.query_id < size["queries"] // 3
    try:
        train, test = ut.read_log(rows[~held_out]), ut.read_log(rows[held_out])
    except ut.UntiltError:
        return
    bias = harvested(train)
    if bias is None:
        return
    new = scores_of(test, scores)
    for name in CLIPS:
        options = RunOptions()
        clip = 0.0
        if name == "chosen":
            clip = chosen_clip(train, scores_of(train, scores), bias, options)
        systems: dict[str, Any] = {"shown": ut.shown, "new": new}
        part = HeldOut.of(ut.estimate(test, systems, bias, clip=clip), "new")
        data = Decision("", bias=UsedBias(bias, "measured"), held_out=part)
        found = part.comparison["new"]
        yield {
            **size,
            "clip": name,
            "interval": verdict_of(found.interval),
            "floors": [fact.code for fact in below_floors(data)],
            "null": [f.code for f in ut.null_tests(test, new, bias, clip=clip).failures(found)],
        }


def row(name: str, cells: list[dict[str, Any]]) -> list[object]:
    """Of a table: how many logs, and the share of false verdicts."""
    n = max(1, len(cells))
    said = [sum(cell["interval"] == word for cell in cells) for word in ("better", "worse")]
    return [name, len(cells), *(f"{100 * count / n:.1f}%" for count in said)]


def main() -> None:
    """Simulate, save and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=700)
    n_logs = parser.parse_args().logs
    rng = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = [each for i in range(n_logs) for each in outcomes(9000 + i, rng)]
    rows = []
    for clip in CLIPS:
        cells = [cell for cell in done if cell["clip"] == clip]
        above = [cell for cell in cells if not cell["floors"]]
        rows += [
            row(f"clip {clip}: the interval alone", cells),
            row("above the floors", above),
            row("and null tests pass", [cell for cell in above if not cell["null"]]),
        ]
    header = ["verdicts", "logs", "better", "worse"]
    save("evidence", [dict(zip(header, each, strict=True)) for each in rows], seed=1)
    table(header, rows)


if __name__ == "__main__":
    main()
