"""Logs with human labels behind them for bench_quality.py: sets, old rankers, readers, clicks.

Nothing here comes from the package but `ClickLog` and `JudgedLists`, which hold what was drawn.
A `Setting` says what is drawn; `make_world(setting, seed)` draws it:

1. A judged set, `synthetic` (drawn anew for each seed) or real (the seed names the fold).
2. The old rankers, each trained on the labels of other queries, which give no sessions: `few`
   labels and two fifths of the features, or `strong`, trees on 200 and 60 queries and all
   features. With several rankers every session is one's by chance.
3. Lists, cut at ten or whole. What is cut off stays in the log's documents: it was not shown.
   `personal`: each session's scores get normal noise of so many standard deviations.
4. Sessions of a reader, theta_k the examination of position k and gamma the worth of a document:

    pbm       P(click at k) = theta_k gamma
    trust     P(click at k) = theta_k (eps+_k gamma + eps-_k (1 - gamma))
    cascade   reads from the top, clicks with probability gamma, goes on with .9 or, after a click,
              .5; theta is not used
    all       P(click at k) = gamma
    blind     P(click at k) = .3 in the top three, 0 below
    mixed     each session is of one reader: 40% pbm, 30% cascade, 20% all, 10% blind

| protocol | theta_k | gamma of label y | lists |
|---|---|---|---|
| dla | eye tracking: .68 .61 .48 .34 .28 .20 .11 .10 .08 .06 | .1 + .9 (2^y - 1)/(2^max - 1) | 10 |
| prs | 1/k | .9 in the upper grades (3, 4 of 4; 1, 2 of 2), else .1 | whole |
| flat | k^-.3 | as dla | 10 |
| steep | k^-2 | as dla | 10 |
| top | as dla | .02 .02 .03 .08 .90 of labels 0 to 4 | 10 |

.1 is the setting's `noise`. Under trust bias gamma has none: eps- takes its place.
"""

import gzip
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from quality_set import synthetic_set, with_missing

from untilt import ClickLog, JudgedLists

Array = np.ndarray[Any, Any]
DATA = Path(os.environ.get("UNTILT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
FOLDS = 5
TEST_QUERIES = 600  # of a synthetic set
EYE_TRACKING = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06])
TOP_GRADE = np.array([0.02, 0.02, 0.03, 0.08, 0.90])
POWERS = {"prs": 1.0, "flat": 0.3, "steep": 2.0}
MIXED = {"pbm": 0.4, "cascade": 0.3, "all": 0.2, "blind": 0.1}
BLIND = 0.3
GO_ON, GO_ON_AFTER_CLICK = 0.9, 0.5
# Kind of the old ranker and the queries whose labels it learnt from: a number, or a share of all.
OLD_RANKERS = {
    "few": (("linear", 0.02), ("linear", 0.01), ("forest", 0.05)),
    "strong": (("trees", 200), ("trees", 60)),
}
TREES = {
    "forest": {
        "boosting": "rf", "num_iterations": 30, "max_depth": 4, "min_data_in_leaf": 5,
        "bagging_fraction": 0.63, "bagging_freq": 1,
    },
    "trees": {"objective": "lambdarank", "num_iterations": 100, "learning_rate": 0.05},
}  # fmt: skip
FEWEST_LABELLED = 6
SEES = {"few": 0.4, "strong": 1.0}  # of the features
UNEVEN = 1.2  # standard deviation of the logarithm of a query's traffic


@dataclass(frozen=True)
class Setting:
    """What is drawn.

    queries, length : of the synthetic set; 0 for 20 to 40 documents; cut : 0 for whole lists
    adds : "score" or "score rank" of the first old ranker, as further features
    """

    data: str = "synthetic"
    queries: int = 500
    sessions: float = 100
    protocol: str = "dla"
    reader: str = "pbm"
    rankers: int = 3
    cut: int = 10
    uneven: bool = False
    old: str = "few"
    length: int = 0
    adds: str = ""
    noise: float = 0.1
    personal: float = 0.0
    missing: bool = False

    @property
    def name(self) -> str:
        """Such as "synthetic 500, 100 sessions, dla, pbm, 3 rankers, cut at 10"."""
        size = f" {self.queries}" if self.synthetic else ""
        shown = f"cut at {self.cut}" if self.cut else "whole lists"
        rankers = "1 ranker" if self.rankers == 1 else f"{self.rankers} rankers"
        usual = Setting()
        others = [
            f", {each.name} {getattr(self, each.name)}"
            for each in fields(self)[7:]
            if getattr(self, each.name) != getattr(usual, each.name)
        ]
        return (
            f"{self.data}{size}, {self.sessions} sessions, {self.protocol}, {self.reader}, "
            f"{rankers}, {shown}{''.join(others)}"
        )

    @property
    def synthetic(self) -> bool:
        return self.data == "synthetic"

    @property
    def folds(self) -> int:
        """Seeds that test each query of the set once."""
        return 1 if self.synthetic else FOLDS


_USUAL = Setting(queries=400, sessions=30)
# Logs unlike those that the package was built on, each by what is unusual in it.
WORLDS: dict[str, Setting] = {
    "score-and-rank-1": replace(_USUAL, adds="score rank", rankers=1),
    "score-and-rank-3": replace(_USUAL, adds="score rank"),
    "score-and-rank-strong": replace(_USUAL, adds="score rank", old="strong", rankers=2),
    "strong-1": replace(_USUAL, old="strong", rankers=1),
    "strong-2": replace(_USUAL, old="strong", rankers=2),
    "strong-2-sparse": replace(_USUAL, old="strong", rankers=2, sessions=5),
    "candidates-5": replace(_USUAL, length=5, cut=0),
    "candidates-20": replace(_USUAL, length=20, cut=0),
    "candidates-150": replace(_USUAL, length=150),
    "queries-40": replace(_USUAL, queries=40, sessions=3000),
    "queries-5000": replace(_USUAL, queries=5000, sessions=1.4),
    "noise-30": replace(_USUAL, noise=0.3),
    "mixed-readers": replace(_USUAL, reader="mixed"),
    "flat-curve": replace(_USUAL, protocol="flat", rankers=1),
    "steep-curve": replace(_USUAL, protocol="steep", rankers=1),
    "top-grade": replace(_USUAL, protocol="top"),
    "personal": replace(_USUAL, personal=0.8),
    "missing": replace(_USUAL, missing=True),
}


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
        query_id, missing = self.train.query_id, self.train.missing
        return JudgedLists(features, labels, kept, query_id, missing=missing)


def make_world(setting: Setting, seed: int) -> World:
    """Draws set, old rankers and sessions; the same seed gives the same world."""
    rng = np.random.default_rng([seed, 20_17])
    train, test = judged_parts(setting, seed)
    scorers, used = old_rankers(train, setting, rng)
    test, train = _with_a_relevant_one(test), train.take(np.setdiff1d(_all(train), used))
    worth = relevance(train.labels, setting, top=float(max(train.labels.max(), test.labels.max())))
    scores, old = (np.stack([score(part) for score in scorers]) for part in (train, test))
    if setting.adds:
        train, test = _with_old(train, scores[0], setting), _with_old(test, old[0], setting)
    log = draw_log(train, scores, worth, setting, rng)
    shown = np.zeros(len(train), dtype=bool)
    shown[log.document] = True
    return World(setting, seed, log, train, test, shown, worth, old)


def _all(judged: JudgedLists) -> Array:
    return np.arange(judged.n_queries)


def _with_a_relevant_one(judged: JudgedLists) -> JudgedLists:
    """Without the queries in which nothing is relevant: NDCG is not defined there."""
    return judged.take(np.add.reduceat(judged.labels, judged.indptr[:-1]) > 0)


def _with_old(judged: JudgedLists, scores: Array, setting: Setting) -> JudgedLists:
    """With the old ranker's score, and rank in the whole list, as further features."""
    added = {"score": scores, "rank": old_rank(judged, scores)}
    columns = [judged.features, *(added[name] for name in setting.adds.split())]
    features = np.column_stack(columns).astype(np.float32)
    return JudgedLists(
        features, judged.labels, judged.indptr, judged.query_id, missing=judged.missing
    )


def old_rank(judged: JudgedLists, scores: Array) -> Array:
    """(documents,) 1 for the document of a list with the highest score."""
    rank = np.empty(len(judged))
    for start, stop in zip(judged.indptr, judged.indptr[1:], strict=False):
        rank[start + np.argsort(-scores[start:stop], kind="stable")] = 1 + np.arange(stop - start)
    return rank


# ---- judged sets


def judged_parts(setting: Setting, seed: int) -> tuple[JudgedLists, JudgedLists]:
    """(training, test): drawn by the seed, or four parts and the fifth by seed modulo 5."""
    if setting.synthetic:
        n_train = setting.queries + sum(
            _labelled(share, setting.queries) for _, share in OLD_RANKERS[setting.old]
        )
        rng = np.random.default_rng([seed, 8])
        features, *rest = synthetic_set(n_train + TEST_QUERIES, rng, setting.length)
        if setting.missing:
            features = with_missing(features, rng)
        whole = JudgedLists(features, *rest, missing="keep" if setting.missing else None)
        return whole.take(np.arange(n_train)), whole.take(np.arange(n_train, whole.n_queries))
    whole, part = real_set(setting.data)
    return whole.take(part != seed % FOLDS), whole.take(part == seed % FOLDS)


def letor_files(folder: Path) -> list[Path]:
    """The files of LETOR text in a folder, plain or packed."""
    paths = sorted([*folder.glob("*.txt"), *folder.glob("*.txt.gz")])
    return [path for path in paths if re.match(r"\d\S* +qid:", next(_lines(path), ""))]


def real_sets() -> list[str]:
    """The folders of `DATA` with a judged set."""
    folders = sorted(each for each in DATA.glob("*") if each.is_dir())
    return [folder.name for folder in folders if letor_files(folder)]


@lru_cache(maxsize=1)
def real_set(data: str) -> tuple[JudgedLists, Array]:
    """All queries of a real set, and the part (0..4) of each: its file of five, or by turns."""
    paths = letor_files(DATA / data)
    *arrays, part = _read_letor(paths)
    whole = JudgedLists(*arrays)
    return whole, part if len(paths) == FOLDS else _all(whole) % FOLDS


def _read_letor(paths: list[Path]) -> tuple[Array, Array, Array, Array, Array]:
    """(features, labels, indptr, query ids, file of each query) of LETOR text."""
    labels, rows, starts, query_id, part = [], [], [], [], []
    for which, path in enumerate(paths):
        before = None
        for line in _lines(path):
            label, query, *pairs = line.partition("#")[0].split()
            if query != before:
                before = query
                starts.append(len(labels))
                query_id.append(f"{which}-{query.partition(':')[2]}")
                part.append(which)
            labels.append(float(label))
            rows.append({int(j): float(v) for j, v in (pair.split(":") for pair in pairs)})
    features = np.zeros((len(rows), max(map(max, rows))), dtype=np.float32)
    for filled, row in zip(features, rows, strict=True):
        filled[np.array(list(row)) - 1] = list(row.values())
    indptr = np.append(starts, len(labels))
    return features, np.array(labels), indptr, np.array(query_id), np.array(part)


def _lines(path: Path) -> Iterator[str]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
        yield from file


# ---- old rankers


def old_rankers(
    judged: JudgedLists, setting: Setting, rng: np.random.Generator
) -> tuple[list[Any], Array]:
    """The first old rankers as functions of judged lists, and the queries that all learnt from."""
    n_queries = setting.queries if setting.synthetic else judged.n_queries
    taken = rng.permutation(judged.n_queries)
    scorers, start = [], 0
    sees = round(SEES[setting.old] * judged.n_features)
    for kind, share in OLD_RANKERS[setting.old]:
        stop = start + _labelled(share, n_queries)
        features = np.sort(rng.permutation(judged.n_features)[:sees])
        scorers.append(_old_ranker(kind, judged.take(np.sort(taken[start:stop])), features, rng))
        start = stop
    return scorers[: setting.rankers], taken[:start]


def _labelled(share: float, n_queries: int) -> int:
    return max(FEWEST_LABELLED, round(share if share > 1 else share * n_queries))


def _old_ranker(kind: str, few: JudgedLists, features: Array, rng: np.random.Generator) -> Any:
    """Least squares or a small forest on labels centred by query; LightGBM's lambdarank."""
    scaled = few.features[:, features]
    centre, scale = np.nanmedian(scaled, axis=0), np.nanstd(scaled, axis=0) + 1e-6

    def prepared(judged: JudgedLists) -> Array:
        return np.clip((judged.features[:, features] - centre) / scale, -3, 3)

    x, y = (
        _centred(np.nan_to_num(prepared(few)), few.indptr),
        _centred(few.labels[:, None], few.indptr)[:, 0],
    )
    if kind == "linear":
        weights = np.linalg.solve(x.T @ x + 0.1 * len(x) * np.eye(len(features)), x.T @ y)
        return lambda judged: np.nan_to_num(prepared(judged)) @ weights
    params = TREES[kind] | {"seed": int(rng.integers(1 << 31)), "num_threads": 1, "verbosity": -1}
    labels, group = (few.labels, np.diff(few.indptr)) if kind == "trees" else (y, None)
    data = lightgbm.Dataset(prepared(few), labels, group=group)
    booster = lightgbm.train(params, data)
    return lambda judged: booster.predict(prepared(judged), num_threads=1)


def _centred(values: Array, indptr: Array) -> Array:
    lengths = np.diff(indptr)
    means = np.add.reduceat(values, indptr[:-1], axis=0) / lengths[:, None]
    return values - np.repeat(means, lengths, axis=0)


# ---- readers


def examination(setting: Setting, depth: int) -> Array:
    """theta of positions 1..depth; below ten the eye-tracking curve falls as 1/k."""
    place = np.arange(1, depth + 1)
    if setting.protocol in POWERS:
        return place ** -POWERS[setting.protocol]
    return EYE_TRACKING[np.minimum(place, 10) - 1] * np.minimum(1, 10 / place)


def relevance(labels: Array, setting: Setting, *, top: float) -> Array:
    """gamma: the probability of a click if the document is looked at."""
    noise = 0.0 if setting.reader == "trust" else setting.noise
    if setting.protocol == "prs":
        return np.where(labels > (2 if top > 2 else 0), 1 - noise, noise)
    if setting.protocol == "top":
        return TOP_GRADE[labels.astype(int)]
    return noise + (1 - noise) * (2**labels - 1) / (2**top - 1)


def click_given_look(worth: Array, setting: Setting) -> Array:
    """(..., K) probability of a click at positions 1..K, each looked at, of documents so worthy."""
    place = np.arange(1, worth.shape[-1] + 1)
    if setting.reader == "blind":
        return np.where(place <= 3, BLIND, 0.0)
    if setting.reader != "trust":
        return worth
    eps_plus = 1 - (np.minimum(place, 20) + 1) / 100
    eps_minus = 0.65 / np.minimum(place, 10)
    return eps_plus * worth + eps_minus * (1 - worth)


def click_probability(worth: Array, setting: Setting) -> Array:
    """(K,) P(click at k) in a list of documents so worthy, over all that may happen above."""
    if setting.reader == "mixed":
        parts = [(share, replace(setting, reader=each)) for each, share in MIXED.items()]
        return sum(share * click_probability(worth, part) for share, part in parts)
    click = click_given_look(worth, setting)
    if setting.reader != "cascade":
        return _looked(setting, len(worth)) * click
    go_on = click * GO_ON_AFTER_CLICK + (1 - click) * GO_ON
    return np.concatenate([[1.0], np.cumprod(go_on)[:-1]]) * click


def _looked(setting: Setting, depth: int) -> Array:
    return np.ones(depth) if setting.reader in ("all", "blind") else examination(setting, depth)


def draw_clicks(worth: Array, n: int, setting: Setting, rng: np.random.Generator) -> Array:
    """(n, K) clicks of n sessions on one list."""
    if setting.reader == "mixed":
        sizes = rng.multinomial(n, list(MIXED.values()))
        readers = [replace(setting, reader=each) for each in MIXED]
        parts = zip(sizes, readers, strict=True)
        return np.concatenate([draw_clicks(worth, size, part, rng) for size, part in parts])
    depth = len(worth)
    click = rng.random((n, depth)) < click_given_look(worth, setting)
    if setting.reader != "cascade":
        return click & (rng.random((n, depth)) < _looked(setting, depth))
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
            own = scores[ranker, start:stop]
            for size in [1] * n if setting.personal else [n] * min(n, 1):
                noise = setting.personal * own.std() * rng.standard_normal(stop - start)
                order = start + np.lexsort((tie[start:stop], -(own + noise)))
                order = order[: setting.cut or None]
                clicks, count = _merged(draw_clicks(worth[order], size, setting, rng))
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
        missing=judged.missing,
        ranker=np.repeat([ranker for _, ranker, *_ in lists], times) if named else None,
    )


def _traffic(n_queries: int, setting: Setting, rng: np.random.Generator) -> Array:
    """Sessions of each query: the same for all, or log-normal with that mean, at least one."""
    if not setting.uneven:
        return np.floor(setting.sessions + rng.random(n_queries)).astype(int)
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
