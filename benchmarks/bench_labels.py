"""Grades beside clicks: coverage, widths, planned widths, learners and curves.

    python benchmarks/bench_labels.py values --runs 200
    python benchmarks/bench_labels.py curves --runs 60
    python benchmarks/bench_labels.py learners --seeds 5
    python benchmarks/bench_labels.py clara2 --data impressions.parquet

`values`: DCG@10 of a new ranker and its difference to the shown order. People grade a drawn sample
without error; a judge grades everything with errors and is, like the clicks, a prediction. Worlds:
200 queries with even or Zipf traffic, 20 queries, and a click rate of 1%. Judges: good, noisy,
leaning to the old ranker, adversarial. `curves`: one fixed order, examination 1/k, half of the
documents graded by one judge and a third of these by another like it. `learners`: worlds of
quality_world.py, grades with an error of one grade on documents drawn evenly, against the same
learner on the grades alone; the true curve is given. `clara2`: NAVER's log by grade and position,
beside curves from clicks alone; its path is given and nothing of it is kept.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _harness import RESULTS, save, table
from quality_world import WORLDS, Setting, World, examination, make_world, ndcg_by_query

import untilt as ut
from untilt.bias.labelled import ClicksByGrade

N, METRIC, BUDGET = 15, "dcg@10:gain=linear", 150
PLACES = {"even": (200, 0.0, 1.0), "zipf": (200, 1.0, 1.0), "20 queries": (20, 0.0, 1.0),
          "1% clicks": (200, 0.0, 0.12)}  # fmt: skip
JUDGES = ("good", "noisy", "leaning", "adversarial")
THETA = 1.0 / np.arange(1, N + 1)


@dataclass
class Drawn:
    """A log of one fixed order, its grades that nobody has seen, and two orders."""

    log: ut.ClickLog
    grade: Any
    old: Any
    new: Any
    random: Any

    def judged(self, kind: str) -> Any:
        """What this judge says of every document."""
        g, lean = self.grade, (self.old - self.old.mean()) / self.old.std()
        error = self.random.normal(0, {"good": 0.5, "noisy": 1.5}.get(kind, 0.5), len(g))
        told = {"leaning": 0.6 * g + lean + 0.5, "adversarial": 4 - g}.get(kind, g)
        return np.clip(np.round(told + error), 0, 4)

    def grades(
        self, rows: Any, value: Any, plan: Any = None, judge: Any = None
    ) -> ut.labels.Grades:
        p, drawn = (None, None) if plan is None else (plan.probability, plan.drawn)
        return ut.labels.Grades(rows // N, rows, value, judge, p, drawn)


def drawn(place: str, seed: int, sessions: int = 100) -> Drawn:
    """Documents of a query in the old order: document q N + k stands at position k + 1."""
    n_queries, zipf, rate = PLACES[place]
    random = np.random.default_rng([n_queries, seed, int(100 * zipf), int(1000 * rate)])
    grade = random.choice(5, size=(n_queries, N), p=[0.5, 0.23, 0.14, 0.08, 0.05]).astype(float)
    old = grade + random.normal(0, 2.2, grade.shape)
    order = np.argsort(-old, axis=1)
    grade, old = (np.take_along_axis(each, order, 1) for each in (grade, old))
    new = grade + random.normal(0, 1.8, grade.shape)
    share = np.arange(1, n_queries + 1) ** -zipf
    count = np.maximum(sessions * share / share.mean(), 1).astype(int)
    query = np.repeat(np.arange(n_queries), count)
    attractive = np.clip(np.exp(random.normal(0, 0.3, grade.shape)) * (grade + 0.4) / 4.4, 0, 1)
    clicked = random.random((len(query), N)) < rate * (THETA * attractive)[query]
    log = ut.ClickLog(
        query_id=np.arange(n_queries), doc_id=np.arange(n_queries * N),
        doc_query=np.repeat(np.arange(n_queries), N), indptr=np.arange(len(query) + 1) * N,
        query=query, document=(query[:, None] * N + np.arange(N)).ravel(),
        position=np.tile(np.arange(1, N + 1), len(query)), label=clicked.ravel().astype(float),
    ).collapse()  # fmt: skip
    return Drawn(log, grade.ravel(), old.ravel(), new.ravel(), random)


def width(interval: Any) -> float:
    return float("nan") if interval is None else interval.high - interval.low


def values(runs: int) -> list[dict[str, Any]]:
    """Coverage and width of value and difference, and the planned width."""
    found = []
    for place in PLACES:
        rows: dict[str, list[dict[str, float]]] = {}
        for seed in range(runs):
            world = drawn(place, seed)
            systems = {"shown": ut.shown, "new": world.new}
            clicks = ut.labels.estimate_labels  # one name for what follows
            every = np.arange(len(world.grade))
            census = ut.labels.Grades(
                every // N, every, world.grade, None, np.ones(len(every)), "documents"
            )
            truth = clicks(world.log, systems, census, METRIC, top_grade=4)
            curve = ut.KnownBias(THETA)
            by_clicks = ut.click_judgments(world.log, curve, prior="query")
            for aim, name in (("difference", "new - shown"), ("values", "new")):
                plan = ut.labels.plan_labels(
                    world.log, systems if aim == "difference" else {"new": world.new}, BUDGET,
                    METRIC, aim=aim, seed=seed, known=census,
                )  # fmt: skip
                at = np.asarray(plan.doc_id)
                sample = world.grades(at, world.grade[at], plan)
                for kind in ("nothing", "clicks", *JUDGES):
                    given = {} if kind == "nothing" else {"clicks": by_clicks}
                    if kind in JUDGES:
                        given["judge"] = world.judged(kind)
                    who = systems if aim == "difference" else {"new": world.new}
                    one = clicks(
                        world.log, who, sample, METRIC, predictions=given, top_grade=4
                    )[name]  # fmt: skip
                    t = truth[name].value
                    rows.setdefault(f"{name}|{kind}", []).append({
                        "these": t in one.interval_these, "like": width(one.interval),
                        "width": width(one.interval_these), "planned": 2 * plan.half_width,
                        "worth": one.worth, "alone": width(one.alone[1]),
                        "predicted": np.nan if one.predicted is None else one.predicted - t,
                    })  # fmt: skip
        for key, each in rows.items():
            name, kind = key.split("|")
            mean = {
                field: float(np.nanmean([row[field] for row in each])) if any(
                    np.isfinite(row[field]) for row in each) else None
                for field in each[0]
            }  # fmt: skip
            found.append({"world": place, "what": name, "predictions": kind, "runs": runs, **mean})
    return found


def curves(runs: int) -> list[dict[str, Any]]:
    """Coverage of the curve from grades on one fixed order."""
    found = []
    for place in PLACES:
        for kind in (*JUDGES, "good, one judge alone"):
            held, bias, half, refused = [], [], [], 0
            for seed in range(runs):
                world = drawn(place, 1000 + seed)
                alone = kind.startswith("good, ")
                rows = world.random.choice(len(world.grade), len(world.grade) // 2, replace=False)
                again = rows[:0] if alone else rows[: len(rows) // 3]
                both = np.r_[rows, again]
                first, second = (world.judged(kind.partition(",")[0]) for _ in range(2))
                value = np.r_[first[rows], second[again]]
                judge = np.repeat(["a", "b"], [len(rows), len(again)])
                try:
                    labels = world.grades(both, value, judge=judge)
                    curve = ClicksByGrade(labels).fit(world.log).bias_
                except ut.UntiltError:
                    refused += 1
                    continue
                k = curve.depth
                held.append(np.mean((curve.low <= THETA[:k]) & (THETA[:k] <= curve.high), where=
                                    np.arange(k) > 0))  # fmt: skip
                bias.append(np.log(curve.examination[4] / THETA[4]) if k > 4 else np.nan)
                half.append(np.log(curve.high[4] / curve.low[4]) / 2 if k > 4 else np.nan)
            found.append({
                "world": place, "judge": kind, "runs": runs, "refused": refused,
                "coverage": float(np.mean(held)) if held else None,
                "log bias at 5": float(np.nanmean(bias)) if np.isfinite(bias).any() else None,
                "half width at 5": float(np.nanmean(half)) if np.isfinite(half).any() else None,
            })  # fmt: skip
    return found


LEARNERS = {
    "usual": Setting(queries=400, sessions=30),
    "few sessions": Setting(queries=400, sessions=5),
    "strong-1": WORLDS["strong-1"],
}


def learner(world: World, labels: Any) -> Any:
    bias = ut.KnownBias(examination(world.setting, world.log.depth))
    ranker = ut.LambdaMART("auto", bias=bias, n_trees=100, n_threads=1, seed=world.seed)
    return ndcg_by_query(world.test, ranker.fit(world.log, labels=labels).predict(world.test))


def learners(seeds: int) -> list[dict[str, Any]]:
    """NDCG@10 with 0, 100 and 1,000 grades, and of the grades alone."""
    found = []
    for name, setting in LEARNERS.items():
        rows: dict[str, list[Any]] = {}
        for seed in range(seeds):
            world = make_world(setting, seed)
            random, train = np.random.default_rng([seed, 42]), world.train
            rows.setdefault("clicks", []).append(learner(world, None).mean())
            for n in (100, 1000):
                row = np.sort(random.choice(len(train), n, replace=False))
                grade = np.maximum(np.round(train.labels[row] + random.normal(0, 1, n)), 0)
                log = world.log
                labels = ut.labels.Grades(log.query_id[log.doc_query[row]], log.doc_id[row], grade)
                rows.setdefault(f"clicks and {n}", []).append(learner(world, labels).mean())
                query = log.doc_query[row]
                asked, sizes = np.unique(query, return_counts=True)
                lists = ut.JudgedLists(
                    train.features[row], grade, np.r_[0, np.cumsum(sizes)], asked,
                    missing=train.missing,
                )  # fmt: skip
                alone = ut.LambdaMART(n_trees=100, n_threads=1, min_data_in_leaf=5, seed=seed)
                try:
                    scores = alone.fit(lists).predict(world.test)
                    rows.setdefault(f"{n} alone", []).append(
                        ndcg_by_query(world.test, scores).mean()
                    )
                except ut.UntiltError:  # no query has two different grades
                    rows.setdefault(f"{n} alone", []).append(np.nan)
        base = np.array(rows["clicks"])
        for kind, each in rows.items():
            gap = np.array(each) - base
            found.append({
                "world": name, "learner": kind, "seeds": seeds, "ndcg@10": float(np.mean(each)),
                "against clicks": float(np.mean(gap)),
                "error": float(np.std(gap, ddof=1) / len(gap) ** 0.5) if len(gap) > 1 else None,
            })  # fmt: skip
        print(name, {kind: round(float(np.mean(each)), 4) for kind, each in rows.items()})
    return found


def clara2(path: Path) -> list[dict[str, Any]]:
    """Curves by grade beside AllPairs and TrustEM; click rates by position."""
    import pandas as pd

    frame = pd.read_parquet(path)
    log = ut.read_log(frame[["query_id", "session_id", "doc_id", "position", "click"]])
    graded = frame.dropna(subset="label").groupby(["query_id", "doc_id"], as_index=False).first()
    labels = ut.labels.Grades(graded.query_id, graded.doc_id, graded.label)
    made = {
        "grades taken as exact": ClicksByGrade(labels, noise=0.0).fit(log).bias_,
        "grades of unknown noise": ClicksByGrade(labels).fit(log).bias_,
        "AllPairs": ut.AllPairs().fit(log).bias_,
        "TrustEM": ut.TrustEM(relevance="counts").fit(log).bias_,
    }
    rate, places = log.ctr_by_position().rate, (2, 5, 10)
    found: list[dict[str, Any]] = []
    for name, curve in made.items():
        known = [k for k in places if k <= curve.depth]
        ends = [k for k in known if curve.has_interval]
        found.append({
            "curve": name, "depth": int(curve.depth), "status": str(curve.status),
            **{f"theta_{k}": float(curve.examination[k - 1]) for k in known},
            **{f"interval_{k}": [float(curve.low[k - 1]), float(curve.high[k - 1])] for k in ends},
        })  # fmt: skip
    return [
        *found,
        {"curve": "click rate", **{f"theta_{k}": float(rate[k - 1] / rate[0]) for k in places}},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("values", "curves", "learners", "clara2"))
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    if given.part == "clara2" and given.data is None:
        parser.error("clara2 needs --data FILE")
    found = {
        "values": lambda: values(given.runs), "curves": lambda: curves(given.runs),
        "learners": lambda: learners(given.seeds), "clara2": lambda: clara2(given.data),
    }[given.part]()  # fmt: skip
    kept = RESULTS / "labels.json"
    known = json.loads(kept.read_text())["results"] if kept.exists() else {}
    save("labels", {**known, given.part: found}, seed=0)
    columns = [name for name in found[0] if name != "status"]
    table(columns, [[row.get(name, "") for name in columns] for row in found])


if __name__ == "__main__":
    main()
