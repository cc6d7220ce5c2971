"""Click models by later clicks on documents that moved: part of bench_real.py.

Models are fitted to the first half of each query's pages. The clicks of the second half on
documents that both halves show have a log-likelihood per 1,000 impressions, by the probability of a
click before the page was seen. Level is taken out: predictions are rescaled to the number of
clicks. A document moved if its mean position changed by 1.5 or more. Errors: bootstrap by query.
"""

from typing import Any

import numpy as np
import pandas as pd
from real_judgments import ratios

import untilt as ut
from untilt import catalog
from untilt.bias.em.rank_prior import joint_curve

MOVED = 1.5
AGAINST = "pbm"
KEYS = ["query_id", "doc_id"]
COLUMNS = [*KEYS, "session_id", "position", "click"]


def in_halves(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The first and the second half of each query's pages, in the order of `page`."""
    pages = frame.groupby("query_id").page.transform("nunique")
    late = 2 * frame.groupby("query_id").page.rank("dense") > pages
    return frame[~late], frame[late]


def chances(early: pd.DataFrame, late: pd.DataFrame, *, joint: bool) -> tuple[pd.DataFrame, dict]:
    """Rows of the second half, and the probability of a click on each by each model."""
    first, place = (part.groupby(KEYS).position.mean() for part in (early, late))
    late = late[pd.MultiIndex.from_frame(late[KEYS]).isin(first.index)]
    train, test = (ut.read_log(part[COLUMNS], text_ids=True) for part in (early, late))
    owner = test.query[np.repeat(np.arange(test.n_lists), np.diff(test.indptr))]
    rows = pd.DataFrame(
        {"query_id": test.query_id[owner], "doc_id": test.doc_id[test.document],
         "position": test.position, "click": test.label, "n": test.row_count}
    )  # fmt: skip
    moved = ((place - first).abs() >= MOVED).rename("moved")
    rows = rows.join(moved, KEYS)
    found: dict[str, Any] = {}
    for record in catalog.methods("click model"):
        if record.name == "ncm":  # a network: minutes of training, and no document is its own
            continue
        try:
            found[record.name] = record.load()().fit(train).click_probability(test)
        except ut.UntiltError as error:
            found[record.name] = str(error).partition(". ")[0]
    if joint:
        found |= _by_judgments(train, rows)
    return rows, found


def _by_judgments(train: ut.ClickLog, rows: pd.DataFrame) -> dict[str, Any]:
    wanted, found = pd.MultiIndex.from_frame(rows[KEYS]), {}
    curves = {"AllPairs, prior query": ut.AllPairs().fit(train).bias_, "joint": joint_curve(train)}
    for name, curve in curves.items():
        prior = "query" if "query" in name else "rank"
        judgments = ut.click_judgments(train, curve, prior=prior)
        index = pd.MultiIndex.from_arrays([judgments.query_id, judgments.doc_id])
        relevance = pd.Series(judgments.relevance, index=index).reindex(wanted).to_numpy()
        alpha, beta = curve.affine()
        k = rows.position.to_numpy() - 1
        found[f"judgments: {name}"] = alpha[k] * relevance + beta[k]
    return found


def scores(rows: pd.DataFrame, found: dict[str, Any], seed: int) -> dict[str, Any]:
    """Log-likelihood per 1,000 impressions of documents that moved and of all."""
    told: dict[str, Any] = {}
    for part, keep in {"moved": rows.moved.to_numpy(bool), "all": np.ones(len(rows), bool)}.items():
        y, n = rows.click.to_numpy()[keep], rows.n.to_numpy()[keep]
        columns = {"impressions": n / 1000}
        for name, each in found.items():
            if isinstance(each, str):
                continue
            p = each[keep] * ((n @ y) / (n @ each[keep]))
            p = np.clip(p, 1e-6, 1 - 1e-6)
            columns[name] = n * (y * np.log(p) + (1 - y) * np.log1p(-p))
        by_query = pd.DataFrame(columns).groupby(rows.query_id.to_numpy()[keep]).sum()
        told[part] = {
            "impressions": int(n.sum()), "clicks": int(n @ y), "queries": len(by_query),
            "scores": ratios(by_query, "impressions", AGAINST, seed),
        }  # fmt: skip
    told["refused"] = {name: each for name, each in found.items() if isinstance(each, str)}
    return told


def click_models(frames: dict[str, pd.DataFrame], seed: int) -> dict[str, Any]:
    """The logs in which documents move; TREC by topic, because its queries hardly come again."""
    told = {}
    for name, frame in frames.items():
        early, late = in_halves(frame)
        rows, found = chances(early, late, joint=name != "trec")
        print(f"{name}: {len(rows):,} rows", flush=True)
        told[name] = scores(rows, found, seed)
    return told
