"""Judgments against grades and later clicks of CLARA 2: part of bench_real.py, and docs/export.md.

Grades: the share of pairs of documents of one query with different grades that a score has in the
order of their grades; equal scores count half. Later clicks: everything is fitted to the first half
of each query's pages, and the clicks of the second half on documents that both halves show have a
log-likelihood per 1,000 impressions, predictions rescaled to the number of clicks. A document
moved if its mean position changed by 1.5 or more. Errors are bootstrapped by query, paired.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import untilt as ut
from untilt.bias.em.rank_prior import joint_curve

MOVED, LEAST = 1.5, (5, 20)
RESAMPLES = 1000
Curves = dict[str, Any]


def clara2(path: Path) -> pd.DataFrame:
    """The impressions, pages of a query numbered by time."""
    frame = pd.read_parquet(path).rename(columns={"label": "grade"})
    first = frame.groupby(["query_id", "session_id"], as_index=False).time.min()
    first = first.sort_values(["query_id", "time", "session_id"])
    first["page"] = first.groupby("query_id").cumcount()
    first["half"] = 2 * first.page >= first.groupby("query_id").page.transform("size")
    return frame.merge(first.drop(columns="time"), on=["query_id", "session_id"])


def curves(log: ut.ClickLog) -> Curves:
    """The curves of estimators that need no features, and the one fitted along."""
    counted = {"relevance": "counts"}
    return {
        "no bias": None,
        "AllPairs": ut.AllPairs().fit(log).bias_,
        "RegressionEM": ut.RegressionEM(**counted).fit(log).bias_,
        "TrustEM": ut.TrustEM(**counted).fit(log).bias_,
        "joint": joint_curve(log),
    }


def judged(log: ut.ClickLog) -> dict[str, tuple[ut.Judgments, Any]]:
    """Judgments by every curve and prior, with the curve that predicts clicks."""
    return {
        f"{name}, prior {prior}": (ut.click_judgments(log, curve, prior=prior), curve)
        for name, curve in curves(log).items()
        for prior in ("query", "rank")
    }


def documents(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per document: grade, impressions, and the scores that need no model."""
    rate = frame.groupby("position").click.mean()
    frame = frame.assign(expected=frame.position.map(rate))
    keys = frame.groupby(["query_id", "doc_id"])
    made = keys.agg(
        grade=("grade", "first"), n=("click", "size"), clicks=("click", "sum"),
        expected=("expected", "sum"), rank=("position", "mean"),
    )  # fmt: skip
    made["shown order"] = -made["rank"]
    made["click rate"] = made.clicks / made.n
    made["click rate, ties by shown order"] = made["click rate"] - 1e-9 * made["rank"]
    made["COEC"] = made.clicks / made.expected
    return made


def agreement(made: pd.DataFrame, names: list[str], least: int) -> pd.DataFrame:
    """By query: pairs with different grades, and how many each score has in their order."""
    rows = {}
    for query, part in made[(made.n >= least) & made.grade.notna()].groupby("query_id"):
        grade = part.grade.to_numpy()
        above = grade[:, None] > grade[None, :]
        if not above.any():
            continue
        rows[query] = {"pairs": above.sum()}
        for name in names:
            score = part[name].to_numpy()
            gap = score[:, None] - score[None, :]
            rows[query][name] = np.sum((gap > 0)[above]) + 0.5 * np.sum((gap == 0)[above])
    return pd.DataFrame.from_dict(rows, orient="index")


def ratios(by_query: pd.DataFrame, total: str, against: str, seed: int) -> dict[str, Any]:
    """Ratio of each column to `total`, and its difference to `against`, with bootstrap errors."""
    rng = np.random.default_rng(seed)
    weight = rng.multinomial(len(by_query), [1 / len(by_query)] * len(by_query), size=RESAMPLES)
    sums = pd.DataFrame(weight @ by_query.to_numpy(), columns=by_query.columns)
    drawn, value = sums.div(sums[total], axis=0), by_query.sum() / by_query[total].sum()
    return {
        name: {
            "value": float(value[name]), "error": float(drawn[name].std()),
            "gap": float(value[name] - value[against]),
            "gap_error": float((drawn[name] - drawn[against]).std()),
        }
        for name in by_query.columns if name != total
    }  # fmt: skip


def against_grades(frame: pd.DataFrame, log: ut.ClickLog, seed: int) -> dict[str, Any]:
    """Pairs in grade order of all scores."""
    made = documents(frame)
    plain = ["shown order", "click rate", "click rate, ties by shown order", "COEC"]
    scores = {name: found for name, (found, _) in judged(log).items()}
    for name, found in scores.items():
        index = pd.MultiIndex.from_arrays([found.query_id, found.doc_id], names=made.index.names)
        made[name] = pd.Series(found.relevance, index=index)
    told = {}
    for least in LEAST:
        by_query = agreement(made, [*plain, *scores], least)
        told[f"at least {least}"] = {
            "queries": len(by_query), "pairs": int(by_query.pairs.sum()),
            "scores": ratios(by_query, "pairs", "shown order", seed),
        }  # fmt: skip
    told["prior"] = {name: str(found.notes[1]) for name, found in scores.items() if "rank" in name}
    return told


def later_clicks(frame: pd.DataFrame, seed: int) -> dict[str, Any]:
    """Log-likelihood of the second half by what the first half says."""
    early, late = frame[~frame.half], frame[frame.half]
    log = read(early)
    first = early.groupby(["query_id", "doc_id"]).position.mean()
    place = late.groupby(["query_id", "doc_id"]).position.mean()
    late = late.join(
        pd.DataFrame({"moved": (place - first).abs() >= MOVED}), ["query_id", "doc_id"]
    )
    late = late[pd.MultiIndex.from_frame(late[["query_id", "doc_id"]]).isin(first.index)]
    k = late.position.to_numpy()
    chance = {"position alone": early.groupby("position").click.mean().reindex(k).to_numpy()}
    for name, (found, curve) in judged(log).items():
        index = pd.MultiIndex.from_arrays([found.query_id, found.doc_id])
        relevance = pd.Series(found.relevance, index=index)
        mine = relevance.reindex(pd.MultiIndex.from_frame(late[["query_id", "doc_id"]])).to_numpy()
        alpha, beta = (np.ones(10), np.zeros(10)) if curve is None else curve.affine()
        chance[name] = alpha[k - 1] * mine + beta[k - 1]
    told = {}
    for part, keep in {"all": np.ones(len(late), bool), "moved": late.moved.to_numpy()}.items():
        y = late.click.to_numpy()[keep]
        columns = {"impressions": np.full(keep.sum(), 1e-3)}
        for name, each in chance.items():
            p = np.clip(each[keep] * (y.sum() / each[keep].sum()), 1e-6, 1 - 1e-6)
            columns[name] = y * np.log(p) + (1 - y) * np.log1p(-p)
        by_query = pd.DataFrame(columns).groupby(late.query_id.to_numpy()[keep]).sum()
        told[part] = {
            "impressions": int(keep.sum()), "clicks": int(y.sum()),
            "scores": ratios(by_query, "impressions", "AllPairs, prior query", seed),
        }  # fmt: skip
    return told


def read(frame: pd.DataFrame) -> ut.ClickLog:
    """The log of these rows."""
    return ut.read_log(frame[["query_id", "session_id", "doc_id", "position", "click"]])
