"""RankSVM against LinearSVC on the written-out pair differences."""

import gzip

import numba
import numpy as np
import pytest
from sklearn.svm import LinearSVC

from untilt.bias.given import PowerLaw
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.rankers.linear.svm import RankSVM
from untilt.weighting import IPS, PRS


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Thousands of tiny passes: waking a second thread for each costs more than it saves."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(before)


def read_mq2008(path, n_queries):
    """A reader of its own, so that this test rests on nothing else."""
    labels, queries, rows = [], [], []
    with gzip.open(path, "rt") as file:
        for line in file:
            words = line.partition("#")[0].split()
            labels.append(float(words[0]))
            queries.append(words[1])
            rows.append([float(word.partition(":")[2]) for word in words[2:]])
    names, owner = np.unique(queries, return_inverse=True)
    keep = np.flatnonzero(owner < n_queries)
    keep = keep[np.argsort(owner[keep], kind="stable")]
    indptr = np.append(0, np.cumsum(np.bincount(owner[keep])))
    return JudgedLists(
        np.array(rows, dtype=np.float32)[keep], np.array(labels)[keep], indptr, names[:n_queries]
    )


def made_lists(seed=0, n_queries=40):
    rng = np.random.default_rng(seed)
    length = rng.integers(2, 15, size=n_queries)
    indptr = np.append(0, np.cumsum(length))
    features = rng.normal(size=(indptr[-1], 6)).astype(np.float32) * [1, 5, 0.2, 1, 1, 1]
    noisy = features[:, 0] + features[:, 1] / 5 + rng.normal(size=indptr[-1])
    return JudgedLists(features, np.clip(np.floor(noisy), 0, 2), indptr, np.arange(n_queries))


def clicks_on(judged, sessions=12, depth=10, seed=0):
    """Clicks of the position-based model on lists in a random order, theta_k = 1/k."""
    rng = np.random.default_rng(seed)
    document, position, click, query, indptr = [], [], [], [], [0]
    for q in range(judged.n_queries):
        for _ in range(3):
            slate = rng.permutation(np.arange(judged.indptr[q], judged.indptr[q + 1]))[:depth]
            k = np.arange(1, len(slate) + 1)
            attraction = np.where(judged.labels[slate] > 0, 0.9, 0.2)
            for _ in range(sessions):
                document.extend(slate)
                position.extend(k)
                click.extend(rng.random(len(slate)) < attraction / k)
                query.append(q)
                indptr.append(len(document))
    return ClickLog(
        query_id=judged.query_id,
        doc_id=np.arange(len(judged)),
        doc_query=np.repeat(np.arange(judged.n_queries), np.diff(judged.indptr)),
        indptr=indptr,
        query=query,
        document=document,
        position=position,
        label=np.array(click, dtype=float),
        features=judged.features,
    )


def pairs_of_labels(judged):
    """(winner, loser, weight) for every pair of different labels, and the number of positives."""
    found = [
        (i, j, 1.0)
        for a, b in zip(judged.indptr[:-1], judged.indptr[1:], strict=True)
        for i in range(a, b)
        for j in range(a, b)
        if judged.labels[i] > judged.labels[j]
    ]
    return found, np.sum(judged.labels > 0)


def pairs_of_clicks(log, weighting):
    """Session by session, clicked against unclicked or all; equal pairs summed."""
    W, weights = weighting.table(log.depth), {}
    for a, b in zip(log.indptr[:-1], log.indptr[1:], strict=True):
        for i in range(a, b):
            for j in range(a, b):
                if i == j or not log.label[i] or (weighting.against != "all" and log.label[j]):
                    continue
                pair = (log.document[i], log.document[j])
                w = W[log.position[i] - 1, log.position[j] - 1]
                weights[pair] = weights.get(pair, 0) + w
    return [(*pair, w) for pair, w in weights.items()], log.label.sum()


def reference(x, pairs, n, C):
    """Differences, weights and LinearSVC's optimum. It needs two classes: signs alternate."""
    winner, loser, weight = (np.array(column) for column in zip(*pairs, strict=True))
    difference = x[winner] - x[loser]
    sign = np.where(np.arange(len(weight)) % 2, 1, -1)
    svc = LinearSVC(
        loss="hinge", dual=True, fit_intercept=False, C=C / n, tol=1e-7, max_iter=200_000,
        random_state=0,
    )  # fmt: skip
    svc.fit(difference * sign[:, None], sign, sample_weight=weight)
    return difference, weight, svc.coef_[0]


def value(difference, weight, w, n, C):
    return 0.5 * w @ w + C / n * np.sum(weight * np.maximum(0, 1 - difference @ w))


def standardised(x):
    spread = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(spread > 0, spread, np.inf)


def check(ranker, features, used, pairs, n, C):
    x = np.zeros(features.shape)
    x[used] = standardised(features[used].astype(float))
    difference, weight, w = reference(x, pairs, n, C)
    theirs = value(difference, weight, w, n, C)
    ours = value(difference, weight, ranker.standardised_weights_, n, C)
    assert ours == pytest.approx(ranker.summary_["objective"], rel=1e-9)
    assert ours == pytest.approx(theirs, rel=1e-3)
    # Our bound must hold for their solution as well.
    assert ranker.summary_["bound"] <= theirs * (1 + 1e-9)


@pytest.mark.parametrize("C", [0.05, 1.0])
def test_labels_on_made_lists(C):
    judged = made_lists()
    ranker = RankSVM(C=C).fit(judged)
    pairs, n = pairs_of_labels(judged)
    check(ranker, judged.features, np.arange(len(judged)), pairs, n, C)


@pytest.mark.parametrize(
    "weighting",
    [IPS(PowerLaw(1.0)), IPS(PowerLaw(1.0), against="all"), PRS(PowerLaw(1.0))],
    ids=lambda value: type(value).__name__,
)
def test_weighted_clicks_on_made_lists(weighting):
    log = clicks_on(made_lists(n_queries=15))
    ranker = RankSVM(weighting, C=1.0).fit(log)
    pairs, n = pairs_of_clicks(log, weighting)
    check(ranker, log.features, np.unique(log.document), pairs, n, 1.0)


def test_raw_features_on_made_lists():
    judged = made_lists()
    ranker = RankSVM(C=1.0, scale=False).fit(judged)
    pairs, n = pairs_of_labels(judged)
    difference, weight, w = reference(judged.features.astype(float), pairs, n, 1.0)
    ours = value(difference, weight, ranker.weights_, n, 1.0)
    assert ours == pytest.approx(value(difference, weight, w, n, 1.0), rel=1e-3)


@pytest.mark.parametrize("C", [0.1, 1.0])
def test_labels_of_mq2008(data_dir, C):
    judged = read_mq2008(data_dir / "mq2008" / "S1.txt.gz", 80)
    ranker = RankSVM(C=C).fit(judged)
    pairs, n = pairs_of_labels(judged)
    check(ranker, judged.features, np.arange(len(judged)), pairs, n, C)


@pytest.mark.parametrize(
    "weighting", [IPS(PowerLaw(1.0)), IPS(PowerLaw(1.0), against="all")], ids=repr
)
def test_weighted_clicks_on_mq2008(data_dir, weighting):
    log = clicks_on(read_mq2008(data_dir / "mq2008" / "S1.txt.gz", 60), sessions=6)
    ranker = RankSVM(weighting, C=0.3).fit(log)
    pairs, n = pairs_of_clicks(log, weighting)
    check(ranker, log.features, np.unique(log.document), pairs, n, 0.3)
