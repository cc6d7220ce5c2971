"""Trees from the collapsed log are those of one row per impression; counts are repeats."""

import lightgbm
import numpy as np
import pytest

from untilt import IPS, PNS, PRS, Balanced, KnownBias, LambdaMART, Naive, PairwiseDebiasing

TREES = 8
# As many bins as values: LightGBM then cuts repeated rows where it cuts distinct ones.
BINS = {"max_bin": 1000, "min_data_in_bin": 1, "enable_bundle": False}
# The honest limit on small leaves: it grows with counts, where LightGBM's min_data_in_leaf counts
# rows. Large leaves also keep splits of exactly the same gain out, where rounding decides.
LEAST_HESSIAN = 1.0


def small(weighting=None, **options):
    options = {
        "n_trees": TREES, "learning_rate": 0.2, "n_leaves": 6, "min_data_in_leaf": 0,
        "min_sum_hessian_in_leaf": LEAST_HESSIAN,
        "feature_fraction": 1.0, "bagging_fraction": 1.0, "n_threads": 1,
        "lightgbm_params": BINS, **options,
    }  # fmt: skip
    return LambdaMART(weighting, **options)


def plain_sessions(log):
    """(rows, labels) of every session, one by one."""
    for i in range(log.n_lists):
        rows = np.arange(log.indptr[i], log.indptr[i + 1])
        for _ in range(int(log.sessions[i])):
            yield rows, log.label[rows]


def session_lambdas(label, position, s, weighting, sigma, pair_norm):
    """Gradient, hessian and S of one session, straight from the formula."""
    n, W = len(s), weighting.table(int(position.max()))
    rank = np.empty(n)
    rank[np.argsort(-s, kind="stable")] = np.arange(1, n + 1)
    ideal = np.sum(1 / np.log2(2 + np.arange(int(label.sum()))))
    norm = 1 / ideal if weighting.per_session_norm and ideal > 0 else 1.0
    gradient, hessian = np.zeros(n), np.zeros(n)
    for i in np.flatnonzero(label):
        for j in range(n):
            if j == i or (label[j] and weighting.against != "all"):
                continue
            x = s[i] - s[j]
            delta = norm * abs(1 / np.log2(1 + rank[i]) - 1 / np.log2(1 + rank[j]))
            delta *= W[position[i] - 1, position[j] - 1] / (0.01 + abs(x) if pair_norm else 1)
            rho = 1 / (1 + np.exp(sigma * x))
            gradient[i] -= sigma * rho * delta
            gradient[j] += sigma * rho * delta
            hessian[np.array([i, j])] += sigma**2 * rho * (1 - rho) * delta
    return gradient, hessian


def per_impression(log, weighting, *, sigma=2.0, pair_norm=True):
    """Boosting with one row per impression of every session, lambdas session by session."""
    sessions = list(plain_sessions(log))
    rows = np.concatenate([rows for rows, _ in sessions])
    bounds = np.cumsum([0] + [len(rows) for rows, _ in sessions])

    def lambdas(scores, dataset):
        parts = [
            session_lambdas(
                label, log.position[rows], scores[begin:end], weighting, sigma, pair_norm
            )
            for (rows, label), begin, end in zip(sessions, bounds, bounds[1:], strict=False)
        ]
        gradient, hessian = (np.concatenate(part) for part in zip(*parts, strict=True))
        return gradient, hessian

    # One session weighs 1 here; LambdaMART counts so that an average query weighs 1.
    per_query = log.n_sessions / len(np.unique(log.query))
    params = {
        "learning_rate": 0.2, "num_leaves": 6, "min_data_in_leaf": 0,
        "min_sum_hessian_in_leaf": LEAST_HESSIAN * per_query, "verbosity": -1, "num_threads": 1,
        "force_row_wise": True, "objective": lambdas, **BINS,
    }  # fmt: skip
    features = log.features[log.document[rows]]
    return lightgbm.train(params, lightgbm.Dataset(features, np.zeros(len(features))), TREES)


def splits(booster):
    frame = booster.dump_model()["tree_info"]

    def walk(node):
        if "split_feature" not in node:
            return []
        here = (node["split_feature"], round(node["threshold"], 9))
        return [here, *walk(node["left_child"]), *walk(node["right_child"])]

    return [walk(tree["tree_structure"]) for tree in frame]


@pytest.mark.parametrize(
    "weighting",
    [Naive(), PRS([1, 0.5, 0.3, 0.25, 0.2]), IPS([1, 0.5, 0.3, 0.25, 0.2], against="all"),
     Balanced([1, 0.5, 0.3, 0.25, 0.2])],
    ids=lambda w: type(w).__name__ + "-" + w.against,
)  # fmt: skip
@pytest.mark.parametrize("pair_norm", [True, False])
def test_same_trees_as_one_row_per_impression(pbm_log, weighting, pair_norm):
    made = pbm_log(n_queries=30, sessions=20)
    slow = per_impression(made.log, weighting, pair_norm=pair_norm)
    fast = small(weighting, pair_norm=pair_norm).fit(made.log)
    assert fast.summary_["distinct_lists"] < fast.summary_["sessions"] == 600
    expected = slow.predict(made.log.features)
    assert np.ptp(expected) > 0.5
    assert fast.predict(made.log.features) == pytest.approx(expected, abs=1e-5)
    assert splits(fast.booster_) == splits(slow)


# ---- counts


def counted(log, rng):
    """Each list of the log taken 1 to 4 times, as counts and as repeats in another order."""
    count = rng.integers(1, 5, log.n_lists)
    repeats = np.repeat(np.arange(log.n_lists), count)
    return log.take(np.arange(log.n_lists), count=count), log.take(rng.permutation(repeats))


EVERY_OBJECTIVE = {
    "raw clicks": {},
    "PRS": {"weighting": PRS([1, 0.5, 0.3, 0.25, 0.2])},
    "PNS, map": {"weighting": PNS([1, 0.5, 0.3, 0.25, 0.2]), "metric": "map"},
    "Balanced, trust": {
        "weighting": Balanced(
            KnownBias([1, 0.5, 0.3, 0.25, 0.2], eps_plus=[0.9] * 5, eps_minus=[0.2] * 5)
        )
    },
    "joint": {"weighting": PairwiseDebiasing()},
    "sqrt": {"query_weight": "sqrt"},
    "equal": {"query_weight": "equal"},
    "likelihood": {"objective": "pbm-likelihood", "bias": [1, 0.5, 0.3, 0.25, 0.2]},
    "ips label": {"objective": "ips-label", "bias": [1, 0.5, 0.3, 0.25, 0.2]},
    "posterior": {"objective": "posterior-label", "bias": [1, 0.5, 0.3, 0.25, 0.2], "folds": 2},
}


@pytest.mark.parametrize("options", EVERY_OBJECTIVE.values(), ids=EVERY_OBJECTIVE)
def test_counts_equal_repeated_sessions_and_their_collapse(made, rng, options):
    counts, repeats = counted(made.log, rng)
    assert counts.n_sessions == repeats.n_lists > counts.n_lists
    expected = small(**options).fit(repeats).predict(made.log.features)
    assert np.ptp(expected) > 0.1
    for log in (counts, repeats.collapse(), counts.collapse()):
        # Sums over sessions run in another order, so the last bits may differ.
        assert small(**options).fit(log).predict(made.log.features) == pytest.approx(
            expected, abs=1e-6
        )


def test_counts_do_matter(made, rng):
    counts, _ = counted(made.log, rng)
    scores = [small(PRS([1, 0.5, 0.3, 0.25, 0.2])).fit(log) for log in (made.log, counts)]
    a, b = (ranker.predict(made.log.features) for ranker in scores)
    assert np.abs(a - b).max() > 0.01


def test_ten_times_the_sessions_is_the_same_model(made):
    """Weights are on a scale where an average query weighs 1, so limits keep their meaning."""
    every = np.arange(made.log.n_lists)
    tenfold = made.log.take(every, count=np.full(made.log.n_lists, 10))
    once, tens = small().fit(made.log), small().fit(tenfold)
    assert tens.summary_["sessions"] == 10 * once.summary_["sessions"]
    assert tens.predict(made.log.features) == pytest.approx(
        once.predict(made.log.features), abs=1e-6
    )
