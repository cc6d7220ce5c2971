"""Logs with human labels behind them for bench_quality.py: sets, old rankers, readers, clicks.

Nothing here comes from the package but `ClickLog` and `JudgedLists`, which hold what was drawn.
A `Setting` says what is drawn; `make_world(setting, seed)` draws it:

1. A judged set, `synthetic` (drawn anew for each seed) or real (the seed names the fold).
2. The old rankers, each trained on the labels of a few queries and on two fifths of the features.
   Those queries give no sessions. With three rankers every session is one's by chance.
3. Lists, cut at ten or whole. What is cut off stays in the log's documents: it was not shown.
4. Sessions of a reader, theta_k the examination of position k and gamma the worth of a document:

    pbm       P(click at k) = theta_k gamma
    trust     P(click at k) = theta_k (eps+_k gamma + eps-_k (1 - gamma))
    cascade   reads from the top, clicks with probability gamma, goes on with .9 or, after a click,
              .5; theta is not used

| protocol | theta_k | gamma of label y | lists |
|---|---|---|---|
| dla | eye tracking: .68 .61 .48 .34 .28 .20 .11 .10 .08 .06 | .1 + .9 (2^y - 1)/(2^max - 1) | 10 |
| prs | 1/k | .9 in the upper grades (3, 4 of 4; 1, 2 of 2), else .1 | whole |

Under trust bias gamma has no noise of its own: eps- takes its place.
"""

import gzip
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from quality_set import synthetic_set
from sklearn.ensemble import RandomForestRegressor

from untilt import ClickLog, JudgedLists

Array = np.ndarray[Any, Any]
DATA = Path(os.environ.get("UNTILT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
REAL = ("mq2008", "ohsumed", "mslr")
FOLDS = 5
TEST_QUERIES = 600  # of a synthetic set
EYE_TRACKING = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06])
NOISE = 0.1
GO_ON, GO_ON_AFTER_CLICK = 0.9, 0.5
# Kind of the old ranker and the share of the queries whose labels it learnt from.
OLD_RANKERS = (("linear", 0.02), ("linear", 0.01), ("forest", 0.05))
FEWEST_LABELLED = 6
SEES = 0.4  # of the features
UNEVEN = 1.2  # standard deviation of the logarithm of a query's traffic


@dataclass(frozen=True)
class Setting:
    """What is drawn. `queries` counts for the synthetic set alone; `cut` is 0 for whole lists."""

    data: str = "synthetic"
    queries: int = 500
    sessions: int = 100
    protocol: str = "dla"
    reader: str = "pbm"
    rankers: int = 3
    cut: int = 10
    uneven: bool = False

    @property
    def name(self) -> str:
        """Such as "synthetic 500, 100 sessions, dla, pbm, 3 rankers, cut at 10"."""
        size = f" {self.queries}" if self.data == "synthetic" else ""
        shown = f"cut at {self.cut}" if self.cut else "whole lists"
        traffic = ", uneven traffic" if self.uneven else ""
        rankers = "1 ranker" if self.rankers == 1 else f"{self.rankers} rankers"
        return (
            f"{self.data}{size}, {self.sessions} sessions, {self.protocol}, {self.reader}, "
            f"{rankers}, {shown}{traffic}"
        )


@dataclass(frozen=True)
class World:
    """log : of the training queries; train : their labels in the order of the log's documents.

    shown : (documents,) whether any session showed it; worth : (documents,) gamma;
    old : (rankers, test documents) scores of the old rankers on the test queries.
    """

    setting: Setting
    seed: int
    log: ClickLog
    train: JudgedLists
    test: JudgedLists
    shown: Array
    worth: Array
    old: Array

    @property
    def shown_train(self) -> JudgedLists:
        """The labels of shown documents alone."""
        kept = np.concatenate([[0], np.cumsum(self.shown)])[self.train.indptr]
        features, labels = self.train.features[self.shown], self.train.labels[self.shown]
        return JudgedLists(features, labels, kept, self.train.query_id)


def make_world(setting: Setting, seed: int) -> World:
    """Draws set, old rankers and sessions; the same seed gives the same world."""
    rng = np.random.default_rng([seed, 20_17])
    train, test = judged_parts(setting, seed)
    scorers, used = old_rankers(train, setting, rng)
    test, train = _with_a_relevant_one(test), train.take(np.setdiff1d(_all(train), used))
    worth = relevance(train.labels, setting, top=float(max(train.labels.max(), test.labels.max())))
    log = draw_log(train, np.stack([score(train) for score in scorers]), worth, setting, rng)
    shown = np.zeros(len(train), dtype=bool)
    shown[log.document] = True
    old = np.stack([score(test) for score in scorers])
    return World(setting, seed, log, train, test, shown, worth, old)


def _all(judged: JudgedLists) -> Array:
    return np.arange(judged.n_queries)


def _with_a_relevant_one(judged: JudgedLists) -> JudgedLists:
    """Without the queries in which nothing is relevant: NDCG is not defined there."""
    return judged.take(np.add.reduceat(judged.labels, judged.indptr[:-1]) > 0)


# ---- judged sets


def judged_parts(setting: Setting, seed: int) -> tuple[JudgedLists, JudgedLists]:
    """(training, test): drawn by the seed, or four parts and the fifth by seed modulo 5."""
    if setting.data == "synthetic":
        n_train = setting.queries + sum(
            _labelled(share, setting.queries) for _, share in OLD_RANKERS
        )
        whole = _judged(*synthetic_set(n_train + TEST_QUERIES, np.random.default_rng([seed, 8])))
        return whole.take(np.arange(n_train)), whole.take(np.arange(n_train, whole.n_queries))
    whole, part = real_set(setting.data)
    return whole.take(part != seed % FOLDS), whole.take(part == seed % FOLDS)


@lru_cache(maxsize=1)
def real_set(data: str) -> tuple[JudgedLists, Array]:
    """All queries of a real set, and the part (0..4) of each: its own, or by turns."""
    if data == "mslr":  # 86 queries of web search in two files
        folder = DATA / "mslr-sample"
        whole = _judged(*_read_letor([folder / "train.txt.gz", folder / "test.txt.gz"])[:4])
        return whole, _all(whole) % FOLDS
    paths = [DATA / data / f"S{part + 1}.txt.gz" for part in range(FOLDS)]
    *arrays, part = _read_letor(paths)
    return _judged(*arrays), part


def _read_letor(paths: list[Path]) -> tuple[Array, Array, Array, Array, Array]:
    """(features, labels, indptr, query ids, file of each query) of LETOR text."""
    labels, rows, starts, query_id, part = [], [], [], [], []
    for which, path in enumerate(paths):
        before = None
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            label, query, *pairs = line.partition("#")[0].split()
            if query != before:
                before = query
                starts.append(len(labels))
                query_id.append(f"{which}-{query.partition(':')[2]}")
                part.append(which)
            labels.append(float(label))
            rows.append([float(pair.partition(":")[2]) for pair in pairs])
    features = np.array(rows, dtype=np.float32)
    return (
        features,
        np.array(labels),
        np.append(starts, len(labels)),
        np.array(query_id),
        np.array(part),
    )


def _judged(features: Array, labels: Array, indptr: Array, query_id: Array) -> JudgedLists:
    return JudgedLists(features, labels, indptr, query_id)


# ---- old rankers


def old_rankers(
    judged: JudgedLists, setting: Setting, rng: np.random.Generator
) -> tuple[list[Any], Array]:
    """The first of `OLD_RANKERS` as functions of judged lists, and the queries of all of them."""
    n_queries = setting.queries if setting.data == "synthetic" else judged.n_queries
    taken = rng.permutation(judged.n_queries)
    scorers, start = [], 0
    for kind, share in OLD_RANKERS:
        stop = start + _labelled(share, n_queries)
        features = np.sort(rng.permutation(judged.n_features)[: round(SEES * judged.n_features)])
        scorers.append(_old_ranker(kind, judged.take(np.sort(taken[start:stop])), features, rng))
        start = stop
    return scorers[: setting.rankers], taken[:start]


def _labelled(share: float, n_queries: int) -> int:
    return max(FEWEST_LABELLED, round(share * n_queries))


def _old_ranker(kind: str, few: JudgedLists, features: Array, rng: np.random.Generator) -> Any:
    """Least squares or a small forest on labels centred by query."""
    scaled = few.features[:, features]
    centre, scale = np.median(scaled, axis=0), scaled.std(axis=0) + 1e-6

    def prepared(judged: JudgedLists) -> Array:
        return np.clip((judged.features[:, features] - centre) / scale, -3, 3)

    x, y = _centred(prepared(few), few.indptr), _centred(few.labels[:, None], few.indptr)[:, 0]
    if kind == "linear":
        weights = np.linalg.solve(x.T @ x + 0.1 * len(x) * np.eye(len(features)), x.T @ y)
        return lambda judged: prepared(judged) @ weights
    forest = RandomForestRegressor(
        30, max_depth=4, min_samples_leaf=5, random_state=int(rng.integers(1 << 31)), n_jobs=1
    ).fit(prepared(few), y)
    return lambda judged: forest.predict(prepared(judged))


def _centred(values: Array, indptr: Array) -> Array:
    lengths = np.diff(indptr)
    means = np.add.reduceat(values, indptr[:-1], axis=0) / lengths[:, None]
    return values - np.repeat(means, lengths, axis=0)


# ---- readers


def examination(setting: Setting, depth: int) -> Array:
    """theta of positions 1..depth; below ten the eye-tracking curve falls as 1/k."""
    place = np.arange(1, depth + 1)
    if setting.protocol == "prs":
        return 1 / place
    return EYE_TRACKING[np.minimum(place, 10) - 1] * np.minimum(1, 10 / place)


def relevance(labels: Array, setting: Setting, *, top: float) -> Array:
    """gamma: the probability of a click if the document is looked at."""
    noise = 0.0 if setting.reader == "trust" else NOISE
    if setting.protocol == "prs":
        return np.where(labels > (2 if top > 2 else 0), 1 - noise, noise)
    return noise + (1 - noise) * (2**labels - 1) / (2**top - 1)


def click_given_look(worth: Array, setting: Setting) -> Array:
    """(..., K) probability of a click at positions 1..K, each looked at, of documents so worthy."""
    if setting.reader != "trust":
        return worth
    place = np.arange(1, worth.shape[-1] + 1)
    eps_plus = 1 - (np.minimum(place, 20) + 1) / 100
    eps_minus = 0.65 / np.minimum(place, 10)
    return eps_plus * worth + eps_minus * (1 - worth)


def click_probability(worth: Array, setting: Setting) -> Array:
    """(K,) P(click at k) in a list of documents so worthy, over all that may happen above."""
    click = click_given_look(worth, setting)
    if setting.reader != "cascade":
        return examination(setting, len(worth)) * click
    go_on = click * GO_ON_AFTER_CLICK + (1 - click) * GO_ON
    return np.concatenate([[1.0], np.cumprod(go_on)[:-1]]) * click


def draw_clicks(worth: Array, n: int, setting: Setting, rng: np.random.Generator) -> Array:
    """(n, K) clicks of n sessions on one list."""
    depth = len(worth)
    click = rng.random((n, depth)) < click_given_look(worth, setting)
    if setting.reader != "cascade":
        return click & (rng.random((n, depth)) < examination(setting, depth))
    goes_on = rng.random((n, depth)) < np.where(click, GO_ON_AFTER_CLICK, GO_ON)
    looked = np.cumprod(goes_on[:, :-1], axis=1, dtype=bool)
    return click & np.hstack([np.ones((n, 1), dtype=bool), looked])


# ---- the log


def draw_log(
    judged: JudgedLists, scores: Array, worth: Array, setting: Setting, rng: np.random.Generator
) -> ClickLog:
    """Sessions of every query, equal ones merged. `scores` (rankers, documents) order the lists."""
    lists: list[tuple[int, int, Array, Array, Array]] = []
    traffic = _traffic(judged.n_queries, setting, rng)
    tie = rng.random(len(judged))
    for query, (start, stop) in enumerate(zip(judged.indptr, judged.indptr[1:], strict=False)):
        by_ranker = rng.multinomial(traffic[query], np.full(len(scores), 1 / len(scores)))
        for ranker, n in enumerate(by_ranker):
            if n == 0:
                continue
            order = start + np.lexsort((tie[start:stop], -scores[ranker, start:stop]))
            order = order[: setting.cut or None]
            clicks, count = _merged(draw_clicks(worth[order], n, setting, rng))
            lists.append((query, ranker, order, clicks, count))
    times = [len(count) for *_, count in lists]
    length = np.concatenate([np.full(len(c), len(order)) for _, _, order, _, c in lists])
    named = len(scores) > 1
    return ClickLog(
        query_id=judged.query_id,
        doc_id=judged.doc_id,
        doc_query=np.repeat(_all(judged), np.diff(judged.indptr)),
        indptr=np.concatenate([[0], np.cumsum(length)]),
        query=np.repeat([query for query, *_ in lists], times),
        document=np.concatenate([np.tile(order, len(c)) for _, _, order, _, c in lists]),
        position=np.concatenate([np.arange(1, each + 1) for each in length]),
        label=np.concatenate([clicks.ravel() for _, _, _, clicks, _ in lists]).astype(float),
        count=np.concatenate([count for *_, count in lists]),
        features=judged.features,
        ranker=np.repeat([ranker for _, ranker, *_ in lists], times) if named else None,
    )


def _traffic(n_queries: int, setting: Setting, rng: np.random.Generator) -> Array:
    """Sessions of each query: the same for all, or log-normal with that mean, at least one."""
    if not setting.uneven:
        return np.full(n_queries, setting.sessions)
    share = np.exp(UNEVEN * rng.standard_normal(n_queries))
    return np.maximum(1, np.rint(setting.sessions * share / share.mean())).astype(int)


def _merged(clicks: Array) -> tuple[Array, Array]:
    """Distinct rows and how often each came."""
    packed = np.ascontiguousarray(np.packbits(clicks, axis=1))
    keys = packed.view([("", packed.dtype)] * packed.shape[1])[:, 0]
    _, first, count = np.unique(keys, return_index=True, return_counts=True)
    return clicks[first], count


def ndcg_by_query(judged: JudgedLists, scores: Array, k: int = 10) -> Array:
    """NDCG@k of each query, gain 2^y - 1; equal scores in an order that knows no labels."""
    tie = np.random.default_rng(0).random(len(judged))
    gain = 2**judged.labels - 1
    values = []
    for start, stop in zip(judged.indptr, judged.indptr[1:], strict=False):
        order = start + np.lexsort((tie[start:stop], -np.asarray(scores)[start:stop]))[:k]
        best = np.sort(gain[start:stop])[::-1][:k]
        discount = 1 / np.log2(np.arange(2, 2 + len(order)))
        values.append(np.dot(gain[order], discount) / np.dot(best, discount))
    return np.array(values)
