"""Judgments, and the curve fitted along with them, where the truth is known: docs/export.md.

The old ranker knows relevance by a correlation and adds noise of its own to each session. Worlds: a
good ranker, the same with fewer sessions, one that knows little, documents of two grades, few that
move, and documents that are out of stock at times, which production then ranks lower. Shares of
95% intervals that hold the truth: of judgments by the true curve and by the one fitted along, of
that curve's clustered errors at positions 2 to 10, and of `AllPairs`.
"""

import argparse
from collections import defaultdict
from typing import Any

import numpy as np
from _harness import save, table

import untilt as ut
from untilt.bias.em.rank_prior import Documents, fit_prior
from untilt.data.counts import position_counts

Array = np.ndarray[Any, Any]
THETA = np.array([1.0, 0.73, 0.42, 0.30, 0.25, 0.19, 0.15, 0.13, 0.11, 0.10])
WORLDS: dict[str, dict[str, Any]] = {
    "good": {}, "small": {"queries": 30, "sessions": 30}, "weak": {"knows": 0.2},
    "two grades": {"grades": True}, "few move": {"moves": 0.1}, "stock": {"stock": True},
}  # fmt: skip


def world(
    seed: int, *, queries: int = 50, sessions: int = 45, documents: int = 14, knows: float = 0.85,
    moves: float = 0.35, grades: bool = False, stock: bool = False,
) -> tuple[ut.ClickLog, Array]:  # fmt: skip
    """A log, and the relevance of its documents in stock."""
    rng, depth, sd = np.random.default_rng(seed), len(THETA), 1.4
    level, size = rng.normal(0, 0.6, (queries, 1)), (queries, documents)
    worth = np.where(rng.random(size) < 0.25, 1.6, -0.55) if grades else rng.normal(size=size)
    eta = -1.2 + level + sd * worth
    known = knows * worth + np.sqrt(1 - knows**2) * rng.normal(size=size)
    query = np.repeat(
        np.arange(queries), rng.multinomial(queries * sessions, [1 / queries] * queries)
    )
    out = rng.random((*size, 6)) < 0.3
    lost = np.where(out[query, :, rng.integers(6, size=len(query))], -2.0, 0.0) * stock
    score = known[query] + moves * rng.normal(size=lost.shape) + 0.8 * lost / sd
    shown = np.argsort(-score, axis=1)[:, :depth]
    gamma = 1 / (1 + np.exp(-np.take_along_axis(eta[query] + lost, shown, axis=1)))
    log = ut.ClickLog(
        query_id=np.arange(queries), doc_id=np.arange(eta.size),
        doc_query=np.repeat(np.arange(queries), documents),
        indptr=np.arange(len(query) + 1) * depth, query=query,
        document=(shown + documents * query[:, None]).ravel(),
        position=np.tile(np.arange(1, depth + 1), len(query)),
        label=(rng.random(gamma.shape) < THETA * gamma).ravel().astype(float),
    )  # fmt: skip
    return log.collapse(), 1 / (1 + np.exp(-eta.ravel()))


def in_order(query: Array, score: Array, truth: Array) -> float:
    """Share of the pairs of a query that are in the order of the truth; ties count half."""
    right = pairs = 0.0
    for q in np.unique(query):
        above = truth[query == q][:, None] > truth[query == q]
        gap = score[query == q][:, None] - score[query == q]
        right += np.sum((gap > 0)[above]) + 0.5 * np.sum((gap == 0)[above])
        pairs += above.sum()
    return right / pairs


def measured(log: ut.ClickLog, relevance: Array) -> dict[str, float]:
    """What is measured of one log."""
    cells = position_counts(log)
    fit = fit_prior(Documents.of(cells), np.ones(10), np.zeros(10), joint=True)
    error = np.sqrt(np.diag(fit.covariance))
    chain = ut.AllPairs().fit(log).bias_
    found = {
        "b": fit.model.b, "b error": error[1],
        "curve": np.mean(np.abs(np.log(fit.alpha / THETA))[1:] < 1.96 * error[4:]),
        "AllPairs": np.mean(((chain.low <= THETA) & (chain.high >= THETA))[1:]),
    }  # fmt: skip
    rank = np.exp(cells.by_document(cells.impressions * np.log(cells.position))
                  / cells.by_document(cells.impressions))  # fmt: skip
    of = np.zeros(log.n_documents)
    of[cells.document] = rank
    true = ut.PositionBias(THETA, relative=False)
    asked = {"by query": (true, "query"), "true curve": (true, "rank"), "joint": ("joint", "rank")}
    for name, (curve, prior) in asked.items():
        judged = ut.click_judgments(log, curve, prior=prior)
        truth, top = relevance[judged.doc_id], of[judged.doc_id] < 3.5
        holds = (judged.low <= truth) & (truth <= judged.high)
        found[f"{name} holds"], found[f"{name} top"] = holds.mean(), holds[top].mean()
        found[f"{name} pairs"] = in_order(judged.query_id, judged.relevance, truth)
    found["shown pairs"] = in_order(judged.query_id, -of[judged.doc_id], truth)
    found["rate pairs"] = in_order(judged.query_id, judged.clicks / judged.impressions, truth)
    return found


def main() -> None:
    """Simulate, judge, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=5000, help="of the first log")
    options = parser.parse_args()
    results = {}
    for name, more in WORLDS.items():
        rows = defaultdict(list)
        for seed in range(options.seed, options.seed + options.logs):
            for key, value in measured(*world(seed, **more)).items():
                rows[key].append(float(value))
        means = {key: round(float(np.mean(each)), 4) for key, each in rows.items()}
        errors = {key: float(np.std(each) / len(each) ** 0.5) for key, each in rows.items()}
        results[name] = {"mean": means, "error": errors, "b spread": float(np.std(rows["b"]))}
        print(f"\n{name}: b of one log +- {results[name]['b spread']:.3f}")
        table(["", "mean", "error"], [(key, means[key], errors[key]) for key in means])
    save("judgments", results, seed=options.seed)


if __name__ == "__main__":
    main()
