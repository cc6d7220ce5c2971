"""The slow twin of the objectives: plain sessions, one by one, straight from the formulas."""

from types import SimpleNamespace

import numpy as np
import pytest

from untilt import ClickLog
from untilt.objectives.pair_slates import LEAST_GAIN


def _ranks(s):
    """1-based, ties in the order of the rows."""
    before = np.tri(len(s), k=-1, dtype=bool)
    return 1 + np.sum((s[None, :] > s[:, None]) | ((s[None, :] == s[:, None]) & before), axis=1)


def _average_precision(ranks, relevant):
    hits = np.sort(ranks[relevant])
    return sum((n + 1) / r for n, r in enumerate(hits)) / len(hits)


def _swap_changes_ap(ranks, relevant):
    """|dAP| of every pair by really swapping the two."""
    n, out = len(ranks), np.zeros((len(ranks), len(ranks)))
    if not relevant.any():
        return out
    before = _average_precision(ranks, relevant)
    for i in range(n):
        for j in range(i):
            if relevant[i] != relevant[j]:
                swapped = ranks.copy()
                swapped[[i, j]] = swapped[[j, i]]
                out[i, j] = out[j, i] = abs(_average_precision(swapped, relevant) - before)
    return out


def _gain(label, kind):
    return 2.0**label - 1 if kind == "exponential" else np.asarray(label, dtype=float)


def _delta(metric, ranks, gain):
    if metric == "none":
        return np.ones((len(ranks), len(ranks)))
    if metric == "map":
        return _swap_changes_ap(ranks, gain > 0)
    D = np.asarray(ranks, dtype=float) if metric == "arp" else 1 / np.log2(1 + ranks)
    return np.abs(D[:, None] - D[None, :])


def _norm(metric, gain, truncation):
    if metric == "ndcg":
        ordered = np.sort(gain)[::-1][:truncation]
        ideal = sum(g / np.log2(r + 2) for r, g in enumerate(ordered))
    elif metric == "arp":
        ideal = gain.sum()
    else:
        return 1.0
    return 1 / ideal if ideal >= LEAST_GAIN else 0.0


def _preferences(metric, gain, against, kind):
    """A[i, j]: how much the session says "i above j", before any weight."""
    g_i, g_j = gain[:, None], gain[None, :]
    if metric == "map":
        A = 1.0 * ((g_i > 0) & (g_j <= 0))
    else:
        A = np.maximum(g_i - (0 if against == "all" else g_j), 0) + 0 * g_j
        A = 1.0 * (A > 0) if kind == "plain" else A
    return A * (1 - np.eye(len(gain)))


def _phi(loss, sigma, x):
    return np.logaddexp(0, -sigma * x) if loss == "logistic" else np.maximum(0, 1 - x)


def _phi_slope(loss, sigma, x):
    if loss == "logistic":
        return -sigma / (1 + np.exp(sigma * x))
    return -1.0 * (x < 1)


def _phi_curve(loss, sigma, x):
    if loss == "logistic":
        rho = 1 / (1 + np.exp(sigma * x))
        return sigma**2 * rho * (1 - rho)
    return np.zeros_like(x)


def slow_twin(
    sessions, scores, W, *, metric="none", loss="logistic", sigma=1.0, gain="linear",
    against="unclicked", offset=None, pair_norm=False, truncation=None, per_session_norm=True,
    session_weight=1.0,
):  # fmt: skip
    """Loss, gradient, hessian and S of plain sessions (documents, 0-based places, labels).

    Sessions are summed one by one. With an offset, the weights of one slate are summed over its
    sessions first, and what is below 0 is then moved to the other direction.
    """
    out = SimpleNamespace(
        loss=0.0, gradient=np.zeros(len(scores)), hessian=np.zeros(len(scores)), S=np.zeros(W.shape)
    )
    slates = {}
    for documents, places, labels in sessions:
        g = _gain(labels, gain)
        norm = _norm(metric, g, truncation) if per_session_norm else 1.0
        w = session_weight * norm
        A = w * _preferences(metric, g, against, gain)
        weights = A * W[np.ix_(places, places)]
        if offset is not None:
            off = w * offset[np.ix_(places, places)] * (1 - np.eye(len(g)))
            key = (tuple(documents), tuple(places))
            before = slates.get(key, (0, 0))
            slates[key] = before[0] + A, before[1] + weights + off
        else:
            _add(out, documents, places, scores, A, weights, g, metric, loss, sigma,
                 pair_norm, truncation)  # fmt: skip
    for (documents, places), (A, weights) in slates.items():
        w = np.maximum(weights, 0) + np.maximum(-weights.T, 0)
        _add(out, np.array(documents), np.array(places), scores, A, w, None, metric, loss, sigma,
             pair_norm, truncation)  # fmt: skip
    return out


def _add(
    out, documents, places, scores, A, weights, g, metric, loss, sigma, pair_norm, truncation
):  # fmt: skip
    s = scores[documents]
    ranks = _ranks(s)
    delta = _delta(metric, ranks, g)
    if truncation is not None:
        delta = delta * ((ranks[:, None] <= truncation) | (ranks[None, :] <= truncation))
    x = s[:, None] - s[None, :]
    out.loss += np.sum(delta * weights * _phi(loss, sigma, x))
    distance = 0.01 + np.abs(x) if pair_norm else 1.0
    np.add.at(out.S, np.ix_(places, places), delta * A * _phi(loss, sigma, x) / distance)
    lam = delta * weights / distance
    slope, curve = lam * _phi_slope(loss, sigma, x), lam * _phi_curve(loss, sigma, x)
    np.add.at(out.gradient, documents, slope.sum(axis=1) - slope.sum(axis=0))
    np.add.at(out.hessian, documents, curve.sum(axis=1) + curve.sum(axis=0))


def as_log(sessions, n_documents, n_queries, rng=None):
    """The sessions as a log; equal neighbours are sometimes counted, sometimes repeated.

    Document d belongs to query d % n_queries.
    """
    lists, count = [], []
    for session in sessions:
        same = lists and all(np.array_equal(a, b) for a, b in zip(lists[-1], session, strict=True))
        if same and (rng is None or rng.random() < 0.5):
            count[-1] += 1
        else:
            lists.append(session)
            count.append(1)
    return ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.arange(n_documents),
        doc_query=np.arange(n_documents) % n_queries,
        indptr=np.cumsum([0] + [len(documents) for documents, _, _ in lists]),
        query=[documents[0] % n_queries for documents, _, _ in lists],
        document=np.concatenate([documents for documents, _, _ in lists]),
        position=np.concatenate([np.asarray(places) + 1 for _, places, _ in lists]),
        label=np.concatenate([labels for _, _, labels in lists]),
        count=count,
        features=np.zeros((n_documents, 1)),
    )


@pytest.fixture(name="slow_twin")
def _slow_twin():
    return slow_twin


@pytest.fixture(name="as_log")
def _as_log():
    return as_log
