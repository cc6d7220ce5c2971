"""Curves, judgments, click models, rankers and propensities held against what real readers did.

    python benchmarks/bench_real.py --data FOLDER                 all parts
    python benchmarks/bench_real.py --data FOLDER --only rankers  one part; the others stay

FOLDER holds the logs, of which nothing is shipped or fetched; what is not there is left out:
clara2/impressions.parquet (query_id, session_id, doc_id, position, click, time, label),
expedia-sample/searches.csv.gz, thuir-news/impressions.parquet, trec-sessions/impressions.parquet,
yandex-sample/train.txt.gz, obd/impressions.parquet. The tables are in docs/real-evidence.md; each
part says in its own file how it is measured.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from _harness import RESULTS, save
from real_bandit import bandit
from real_clicks import click_models
from real_curves import curves
from real_judgments import against_grades, clara2, later_clicks, read
from real_rankers import rankers

import untilt as ut


def yandex(path: Path) -> pd.DataFrame:
    """The impressions, pages of a query numbered in their order."""
    log = ut.datasets.read_yandex(path, collapse=False)
    lists = pd.Series(range(log.n_lists)).repeat(log.indptr[1:] - log.indptr[:-1]).to_numpy()
    return pd.DataFrame(
        {"query_id": log.query_id[log.query[lists]], "session_id": lists, "page": lists,
         "doc_id": log.doc_id[log.document], "position": log.position, "click": log.label}
    )  # fmt: skip


def trec(path: Path) -> pd.DataFrame:
    """The first ten results by topic: what was typed hardly comes again."""
    frame = pd.read_parquet(path).query("position <= 10")
    page = pd.factorize(frame.session_id)[0]
    topic = frame.year.astype(str) + "-" + frame.topic
    kept = frame.assign(query_id=topic, page=page)
    return kept.drop_duplicates(["query_id", "session_id", "doc_id"])


def advice(logs: dict[str, ut.ClickLog]) -> list[dict[str, str]]:
    """What the audit recommends for each log: one rule, one estimator, one command."""
    steps = {name: ut.audit(log).next_step for name, log in logs.items()}
    return [
        {"log": name, "rule": step.rule, "estimator": step.method or "none",
         "command": f"`{step.command}`" if step.command else ""}
        for name, step in steps.items()
    ]  # fmt: skip


def all_logs(data: Path) -> dict[str, ut.ClickLog]:
    """The logs as a user would read them."""
    hotels = data / "expedia-sample" / "searches.csv.gz"
    found = {
        "CLARA 2": read(clara2(data / "clara2" / "impressions.parquet")),
        "Yandex": ut.datasets.read_yandex(data / "yandex-sample" / "train.txt.gz"),
        "Expedia": ut.datasets.read_expedia(hotels),
        "Expedia, by destination": ut.datasets.read_expedia(hotels, by="destination"),
        "THUIR news": ut.datasets.read_thuir_news(data / "thuir-news" / "impressions.parquet"),
        "TREC sessions": read(pd.read_parquet(data / "trec-sessions" / "impressions.parquet")),
        "Open Bandit": ut.read_log(data / "obd" / "impressions.parquet"),
    }
    usual = found["Expedia"]
    production = usual.take(usual.ranker == usual.ranker_names.index("production"))
    return found | {"Expedia, usual order alone": production}


def parts(data: Path, seed: int) -> dict[str, Callable[[], Any]]:
    """What is measured, by name."""

    def frames() -> dict[str, pd.DataFrame]:
        return {
            "clara2": clara2(data / "clara2" / "impressions.parquet"),
            "yandex": yandex(data / "yandex-sample" / "train.txt.gz"),
            "trec": trec(data / "trec-sessions" / "impressions.parquet"),
        }

    def judgments() -> dict[str, Any]:
        frame = clara2(data / "clara2" / "impressions.parquet")
        grades = against_grades(frame, read(frame), seed)
        return {"grades": grades, "later clicks": later_clicks(frame, seed)}

    return {
        "advice": lambda: advice(all_logs(data)),
        "curves": lambda: curves(frames(), data, seed),
        "judgments": judgments,
        "click models": lambda: click_models(frames(), seed),
        "rankers": lambda: rankers(data, seed),
        "bandit": lambda: bandit(data / "obd" / "impressions.parquet", seed),
    }


def main() -> None:
    """Measure the parts that are wanted, save all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the logs")
    parser.add_argument("--only", nargs="+", default=None, help="parts; all without it")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    measured = parts(options.data, options.seed)
    file = RESULTS / "real.json"
    for name in options.only or measured:
        try:
            found = measured[name]()
        except FileNotFoundError as error:
            print(f"{name} is left out: {error.filename} is missing")
            continue
        print(f"{name}\n{json.dumps(found, indent=1)}", flush=True)
        results = json.loads(file.read_text())["results"] if file.exists() else {}
        save("real", {**results, name: found}, seed=options.seed, packages=["pandas"])


if __name__ == "__main__":
    main()
