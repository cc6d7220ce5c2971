"""Where people stop after a click, a curve fails and weights from a click model recover relevance.

A simulator of its own in plain NumPy. Production orders by a feature that has nothing to do with
relevance; queries differ in how attractive their documents are, so that the same position is looked
at often in one query and rarely in another. Rankers are judged by the true attractiveness of
documents of new queries.

Figures of docs/methods.md: pytest -m slow -s tests/recovery/test_examination_weights.py
"""

import numpy as np
import pytest

import untilt as ut

DEPTH, DOCUMENTS = 10, 12
TASTE = 0.8 * np.array([0, 1, 1, 1, 0.5, 0.5, 0, 0])
NDCG = ut.parse_metric("ndcg@10:gain=linear")


def queries(rng, n):
    """Features and attractiveness, (n, documents, d) and (n, documents)."""
    features = rng.normal(size=(n, DOCUMENTS, len(TASTE)))
    z = features @ TASTE + 1.5 * rng.normal(size=(n, 1)) - 1
    return features, 1 / (1 + np.exp(-z))


def cascade_clicks(rng, gamma, go_on=0.0):
    """From the top down; after a click with probability go_on further."""
    clicks, reads = np.zeros(gamma.shape, dtype=bool), np.ones(len(gamma), dtype=bool)
    for k in range(DEPTH):
        clicks[:, k] = reads & (rng.random(len(gamma)) < gamma[:, k])
        reads &= ~clicks[:, k] | (rng.random(len(gamma)) < go_on)
    return clicks


def browsing_clicks(rng, gamma):
    """theta = k^-0.5 before any click, 0.9 (k - k')^-1.5 after one at k'."""
    clicks, last = np.zeros(gamma.shape, dtype=bool), np.zeros(len(gamma))
    for k in range(1, DEPTH + 1):
        theta = np.where(last == 0, k**-0.5, 0.9 * (k - last) ** -1.5)
        clicks[:, k - 1] = rng.random(len(gamma)) < theta * gamma[:, k - 1]
        last = np.where(clicks[:, k - 1], k, last)
    return clicks


def position_clicks(rng, gamma):
    """theta = k^-0.7 whatever happened above."""
    return rng.random(gamma.shape) < np.arange(1, DEPTH + 1) ** -0.7 * gamma


READERS = {
    "stop at the first click": cascade_clicks,
    "stop after a click in 6 of 10": lambda rng, gamma: cascade_clicks(rng, gamma, 0.4),
    "browse": browsing_clicks,
    "position by position": position_clicks,
}


def world(readers, seed, *, n_queries=150, n_sessions=20_000):
    """(log, labels of the same queries, labels of new ones)."""
    rng = np.random.default_rng(seed)
    features, gamma = queries(rng, n_queries)
    noise = 0.7 * rng.normal(size=(3, *gamma.shape))  # three production rankers
    order = np.argsort(-(features[..., 0] + 0.3 * features[..., 1] + noise), axis=2)[..., :DEPTH]
    query, ranker = rng.integers(n_queries, size=n_sessions), rng.integers(3, size=n_sessions)
    shown = order[ranker, query]
    clicks = READERS[readers](rng, gamma[query[:, None], shown])
    log = ut.ClickLog(
        query_id=np.arange(n_queries), doc_id=np.tile(np.arange(DOCUMENTS), n_queries),
        doc_query=np.repeat(np.arange(n_queries), DOCUMENTS),
        features=features.reshape(-1, len(TASTE)), query=query,
        indptr=np.arange(n_sessions + 1) * DEPTH,
        document=(query[:, None] * DOCUMENTS + shown).ravel(),
        position=np.tile(np.arange(1, DEPTH + 1), n_sessions),
        label=clicks.ravel().astype(float),
    )  # fmt: skip
    return log.collapse(), judged(features, gamma), judged(*queries(rng, 200))


def judged(features, gamma):
    n = len(gamma)
    indptr = np.arange(n + 1) * DOCUMENTS
    return ut.JudgedLists(features.reshape(-1, len(TASTE)), gamma.ravel(), indptr, np.arange(n))


def quality(ranker, test):
    scores = ranker.predict(test.features)
    return float(np.mean(NDCG.per_list(scores, test.labels, test.indptr)))


def linear(weighting=None):
    return ut.LinearRanker(weighting, gain="linear")


def trees(weighting=None):
    return ut.LambdaMART(weighting, gain="linear", n_trees=60, n_threads=1)


def network(weighting=None):
    """As many steps for every weighting: held-out clicks would need a curve to be judged by."""
    return ut.NeuralRanker(
        weighting, gain="linear", widths=(32, 16), epochs=60, batch_size=32, learning_rate=0.01,
        l2=0.001, early_stopping=None,
    )  # fmt: skip


def compared(readers, seeds, make, model, *more, **size):
    """Name -> NDCG by seed: clicks, the curve of PBM, a click model, labels."""
    found: dict[str, list[float]] = {}
    for seed in seeds:
        log, labels, test = world(readers, seed, **size)
        curve, fitted = ut.PBM().fit(log).examination_, model().fit(log)
        weightings = {
            "raw clicks": ut.Naive(),
            "curve": ut.Balanced(curve),
            "click model": ut.ExaminationWeights(fitted),
        } | {", ".join(map(str, each)): ut.ExaminationWeights(fitted, *each) for each in more}
        for name, weighting in weightings.items():
            found.setdefault(name, []).append(quality(make(weighting).fit(log), test))
        found.setdefault("labels", []).append(quality(make().fit(labels), test))
    return {name: np.array(values) for name, values in found.items()}


def gain(found):
    """Click model minus curve: mean, and its standard error over seeds."""
    each = found["click model"] - found["curve"]
    return each.mean(), each.std(ddof=1) / np.sqrt(len(each))


@pytest.mark.parametrize(
    ("readers", "model"), [("stop at the first click", ut.CM), ("browse", ut.UBM)]
)
def test_a_click_model_recovers_what_a_curve_cannot(readers, model):
    found = compared(readers, range(3), linear, model, n_sessions=8_000)
    mean, error = gain(found)
    lost = (found["labels"] - found["curve"]).mean()
    assert found["raw clicks"].mean() < found["curve"].mean() - 0.03
    assert mean > 3 * error
    assert mean > 0.7 * lost > 0.001  # most of what the curve leaves


@pytest.mark.slow
@pytest.mark.parametrize("make", [linear, trees, network])
@pytest.mark.parametrize(
    ("readers", "model", "at_least"),
    [
        ("stop at the first click", ut.CM, 0.7),
        ("stop at the first click", ut.UBM, 0.7),
        ("stop after a click in 6 of 10", ut.DBN, 0.6),
        ("browse", ut.UBM, 0.4),
        ("browse", ut.DBN, 0.3),
        ("position by position", ut.UBM, None),
    ],
)
def test_with_standard_errors(readers, model, at_least, make):
    """Share of what the curve leaves, 6 seeds; under PBM nothing is lost by the click model."""
    others: list[tuple[str, str, float]] = [("list", "inverse", 0.0)] if make is not network else []
    if others and readers != "stop at the first click":  # sessions are refused there
        clips = (1e-4, 0.05) if (readers, model) == ("browse", ut.DBN) else (0.0,)
        others += [("session", form, clip) for form in ("ratio", "inverse") for clip in clips]
    found = compared(readers, range(6), make, model, *others)
    mean, error = gain(found)
    header = f"{readers}, {model.__name__}, {make.__name__}: {mean:+.4f} +- {error:.4f}"
    rows = [f"{each}: {values.mean():.4f}" for each, values in found.items()]
    print("", header, *rows, sep="\n  ")  # noqa: T201  the figures of the page
    if at_least is None:
        assert abs(mean) < 0.002
    else:
        assert mean > 3 * error
        assert mean > at_least * (found["labels"] - found["curve"]).mean()
