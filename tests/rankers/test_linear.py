"""LinearRanker: optimal for its stated objective, count-invariant, and honest in its errors."""

import numba
import numpy as np
import pytest
from sklearn.base import clone

from untilt import (
    IPS,
    PNS,
    PRS,
    AffineIPS,
    Balanced,
    BayesIPS,
    ClickLog,
    JudgedLists,
    KnownBias,
    LinearRanker,
    Naive,
    PairwiseDebiasing,
    PowerLaw,
)
from untilt.errors import DepthError, NotFittedError, OptionError, ShapeError
from untilt.rankers.linear.linear import ScaledFeatures, Scaling

TRUST = KnownBias(1 / np.arange(1, 6), eps_plus=np.full(5, 0.9), eps_minus=np.full(5, 0.1))
TABLES = [
    Naive(), IPS(PowerLaw(1.0)), IPS(PowerLaw(1.0), against="all"), PNS(PowerLaw(1.0)),
    PRS(PowerLaw(1.0)), Balanced(PowerLaw(1.0)), Balanced(TRUST), BayesIPS(TRUST),
    AffineIPS(TRUST),
]  # fmt: skip
ROW_TABLES = [TABLES[i] for i in (0, 1, 2, 7, 8)]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Thousands of tiny passes: waking a second thread for each costs more than it saves."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(before)


def standardised(features):
    x = features.astype(float)
    return (x - x.mean(axis=0)) / x.std(axis=0)


def pair_objective(log, weighting, v, l2):
    """Every session, every pair: the docstring's formula, nothing collapsed."""
    shown = np.unique(log.document)
    scores = np.zeros(log.n_documents)
    scores[shown] = standardised(log.features[shown]) @ v
    W, offset = weighting.table(log.depth), weighting.offset(log.depth)
    above = {}
    for a, b, count in zip(log.indptr[:-1], log.indptr[1:], log.sessions, strict=True):
        key = tuple(log.document[a:b])
        for i in range(a, b):
            for j in range(a, b):
                k, l = log.position[i] - 1, log.position[j] - 1
                loser = 0 if weighting.against == "all" else log.label[j]
                if i == j:
                    continue
                w = W[k, l] * max(log.label[i] - loser, 0)
                w += 0 if offset is None else offset[k, l]
                pair = (key, log.document[i], log.document[j])
                above[pair] = above.get(pair, 0) + w * count
    loss = total = 0.0
    for (_, i, j), weight in above.items():
        # A negative sum counts for the other direction.
        sign = np.sign(weight)
        loss += abs(weight) * np.log1p(np.exp(-sign * (scores[i] - scores[j])))
        total += abs(weight)
    return loss / total + l2 / 2 * v @ v


def slope(function, v):
    steps = 1e-5 * np.eye(len(v))
    return np.array([(function(v + step) - function(v - step)) / 2e-5 for step in steps])


@pytest.mark.parametrize("weighting", TABLES, ids=lambda value: type(value).__name__)
def test_the_weights_are_the_optimum_of_the_stated_objective(pbm_log, weighting):
    log = pbm_log(n_queries=6, sessions=8).log
    ranker = LinearRanker(weighting, l2=0.01).fit(log)
    v = ranker.standardised_weights_
    objective = pair_objective(log, weighting, v, 0.01)
    assert ranker.summary_["objective"] == pytest.approx(objective, rel=1e-6)
    assert ranker.summary_["converged"]
    # Convex, so a vanishing slope of the written-out formula is the proof.
    assert np.abs(slope(lambda u: pair_objective(log, weighting, u, 0.01), v)).max() < 1e-5


@pytest.mark.parametrize("weighting", ROW_TABLES, ids=lambda value: type(value).__name__)
def test_the_dcg_bound_ends_where_its_slope_vanishes(made, weighting):
    log = made.log

    def bound(v):
        shown = np.unique(log.document)
        scores = np.zeros(log.n_documents)
        scores[shown] = standardised(log.features[shown]) @ v
        W, offset = weighting.table(log.depth)[:, 0], weighting.offset(log.depth)
        value, best = 0.0, {}
        for a, b, count in zip(log.indptr[:-1], log.indptr[1:], log.sessions, strict=True):
            key = tuple(log.document[a:b])
            for i in range(a, b):
                k = log.position[i] - 1
                worth = count * log.label[i] * W[k]
                worth += 0 if offset is None else count * offset[k, 0]
                s = scores[log.document[a:b]]
                other = np.delete(scores[log.document[i]] - s, i - a)
                rank = 1 + np.log2(1 + np.exp(-2.0 * other)).sum()
                value += worth / np.log2(1 + rank)
                best[key, i - a] = best.get((key, i - a), 0) + worth
        # The best there is: every document with a positive sum at rank 1.
        return -value / sum(max(r, 0) for r in best.values()) + 0.005 * v @ v

    ranker = LinearRanker(weighting, loss="dcg-bound", l2=0.01, sigma=2.0).fit(log)
    v = ranker.standardised_weights_
    assert ranker.summary_["objective"] == pytest.approx(bound(v), rel=1e-9)
    assert np.abs(slope(bound, v)).max() < 1e-5
    assert bound(v) < bound(np.zeros_like(v))


@pytest.mark.parametrize("loss", ["logistic", "dcg-bound"])
def test_counts_are_repeated_sessions(made, loss):
    log = made.log
    rng = np.random.default_rng(5)
    count = rng.integers(1, 5, size=log.n_lists)
    counted = log.take(np.arange(log.n_lists), count=count)
    repeated = log.take(rng.permutation(np.repeat(np.arange(log.n_lists), count)))
    make = LinearRanker(IPS(PowerLaw(1.0)), loss=loss)
    np.testing.assert_allclose(
        clone(make).fit(counted).weights_, clone(make).fit(repeated).weights_, atol=1e-5
    )


@pytest.mark.parametrize("loss", ["logistic", "dcg-bound"])
def test_neither_traffic_nor_the_scale_of_the_curve_matters(made, loss):
    log = made.log
    usual = LinearRanker(IPS(1 / np.arange(1, 6)), loss=loss).fit(log)
    scaled = LinearRanker(IPS(0.3 / np.arange(1, 6)), loss=loss).fit(log)
    tenfold = LinearRanker(IPS(1 / np.arange(1, 6)), loss=loss).fit(
        log.take(np.arange(log.n_lists), count=np.full(log.n_lists, 10))
    )
    np.testing.assert_allclose(usual.weights_, scaled.weights_, atol=1e-5)
    np.testing.assert_allclose(usual.weights_, tenfold.weights_, atol=1e-5)


@pytest.mark.parametrize("loss", ["logistic", "dcg-bound"])
def test_equal_queries_weigh_the_same_whatever_their_traffic(made, loss):
    log = made.log
    busy = log.take(np.arange(log.n_lists), count=np.where(log.query == 3, 50, 1))
    fits = [LinearRanker(loss=loss, query_weight="equal").fit(data) for data in (log, busy)]
    np.testing.assert_allclose(fits[0].weights_, fits[1].weights_, atol=1e-5)
    by_traffic = LinearRanker(loss=loss).fit(busy)
    assert np.abs(by_traffic.weights_ - fits[0].weights_).max() > 0.01


def test_units_of_the_features_do_not_matter(made):
    log = made.log
    stretch = np.array([1000.0, 0.01, 1.0, 7.0], dtype=np.float32)
    moved = ClickLog(
        **{name: getattr(log, name) for name in log.__dataclass_fields__}
        | {"features": log.features * stretch + np.float32(3.0)}
    )
    usual, other = LinearRanker().fit(log), LinearRanker().fit(moved)
    np.testing.assert_allclose(usual.standardised_weights_, other.standardised_weights_, atol=1e-4)
    np.testing.assert_allclose(usual.weights_, other.weights_ * stretch, atol=1e-4)
    np.testing.assert_allclose(
        usual.predict(log.features), other.predict(moved.features), atol=1e-3
    )


def test_a_constant_feature_gets_no_weight(made):
    log = made.log
    features = np.column_stack([log.features, np.full(log.n_documents, 0.1, dtype=np.float32)])
    arrays = {name: getattr(log, name) for name in log.__dataclass_fields__}
    ranker = LinearRanker().fit(ClickLog(**arrays | {"features": features, "feature_names": ()}))
    assert ranker.weights_[-1] == ranker.standardised_weights_[-1] == ranker.scale_[-1] == 0
    # A value never seen in training then moves no score.
    strange = features.copy()
    strange[:, -1] = 1e6
    assert np.array_equal(ranker.predict(features), ranker.predict(strange))


def test_correction_finds_the_relevant_direction_that_raw_clicks_miss(pbm_log):
    """Shown always in the order of a feature that says nothing: only raw clicks believe in it."""
    rng = np.random.default_rng(0)
    n_queries, n = 300, 6
    features = rng.normal(size=(n_queries * n, 2)).astype(np.float32)
    document = np.arange(n_queries * n).reshape(n_queries, n)
    for q in range(n_queries):
        document[q] = document[q][np.argsort(-features[document[q], 1])]
    relevance = 1 / (1 + np.exp(-2 * features[:, 0]))
    theta = 1 / np.arange(1, n + 1)
    sessions = 40
    shown = np.repeat(document, sessions, axis=0).ravel()
    position = np.tile(np.arange(1, n + 1), n_queries * sessions)
    click = rng.random(len(shown)) < theta[position - 1] * relevance[shown]
    log = ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.arange(n_queries * n),
        doc_query=np.repeat(np.arange(n_queries), n),
        indptr=np.arange(n_queries * sessions + 1) * n,
        query=np.repeat(np.arange(n_queries), sessions),
        document=shown,
        position=position,
        label=click.astype(float),
        features=features,
    )
    raw = LinearRanker().fit(log).standardised_weights_
    assert raw[1] > 0.5 * raw[0]
    for loss in ("logistic", "dcg-bound"):
        fair = LinearRanker(IPS(theta, against="all"), loss=loss).fit(log).standardised_weights_
        assert abs(fair[1]) < 0.1 * fair[0]


def test_a_joint_weighting_settles_and_leaves_its_bias(made):
    ranker = LinearRanker(PairwiseDebiasing()).fit(made.log)
    assert ranker.summary_["joint_settled"]
    assert ranker.bias_.examination[0] == 1.0
    assert not ranker.bias_.has_interval
    settled = ranker.bias_.status.parts[0]
    assert settled.code == "training.settled"
    assert settled.fields["fits"] == len(ranker.bias_history_)
    # At rest: one more update from the ranker's own losses changes the ratios no more.
    before, after = ranker.bias_history_[-2:]
    np.testing.assert_allclose(after.plus, before.plus, rtol=2e-3)
    np.testing.assert_allclose(after.minus, before.minus, rtol=2e-3)


def test_a_joint_weighting_says_when_it_did_not_settle(made):
    ranker = LinearRanker(PairwiseDebiasing(), max_rounds=1).fit(made.log)
    assert not ranker.summary_["joint_settled"]
    assert ranker.summary_["joint"].code == "training.not-settled"
    assert ranker.summary_["joint"].fields["fits"] == 1


def test_judged_lists_need_no_weighting(made):
    rng = np.random.default_rng(1)
    features = rng.normal(size=(60, 3)).astype(np.float32)
    labels = np.clip(np.round(features[:, 0] + 1), 0, 2)
    judged = JudgedLists(features, labels, np.arange(0, 61, 6), np.arange(10))
    plain = LinearRanker().fit(judged)
    biased = LinearRanker(IPS(PowerLaw(1.0))).fit(judged)
    assert np.array_equal(plain.weights_, biased.weights_)
    assert plain.summary_["trained_on"] == "judged lists"
    for loss in ("logistic", "dcg-bound"):
        v = LinearRanker(loss=loss).fit(judged).standardised_weights_
        assert v[0] > 3 * np.abs(v[1:]).max()


def test_an_early_stop_is_reported(made):
    ranker = LinearRanker(max_iter=2).fit(made.log)
    assert not ranker.summary_["converged"]
    assert ranker.summary_["status"].code == "training.stopped-early"


def test_it_is_a_scikit_learn_estimator(made):
    ranker = LinearRanker(PRS(PowerLaw(0.5)), l2=0.5, max_iter=7)
    copy = clone(ranker)
    assert copy.get_params() == ranker.get_params()
    assert repr(ranker).startswith("LinearRanker(")
    copy.fit(made.log)
    assert copy.get_params() == ranker.get_params()
    assert not hasattr(clone(copy), "weights_")


def test_importances_are_shares(made):
    shares = LinearRanker().fit(made.log).feature_importances_
    assert list(shares) == ["f1", "f2", "f3", "f4"]
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["f1"] == max(shares.values())


def test_inputs_stay_as_they_are_and_the_same_data_gives_the_same_ranker(made):
    before = made.log.features.copy()
    one, two = LinearRanker().fit(made.log), LinearRanker().fit(made.log)
    assert np.array_equal(one.weights_, two.weights_)
    assert np.array_equal(before, made.log.features)


def test_scaling_is_the_textbook_one(rng):
    x = (1e4 + rng.normal(size=(20_000, 3)) * [1, 10, 0]).astype(np.float32)
    scaling = Scaling.of(x)
    np.testing.assert_allclose(scaling.mean, x.astype(float).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scaling.scale[:2], x.astype(float).std(axis=0)[:2], rtol=1e-9)
    assert scaling.scale[2] == 0
    X = ScaledFeatures(x, scaling)
    z = np.where(
        scaling.scale > 0, (x - scaling.mean) / np.where(scaling.scale > 0, scaling.scale, 1), 0
    )
    v, g = rng.normal(size=3), rng.normal(size=20_000)
    np.testing.assert_allclose(X.scores(v), z @ v, atol=1e-8)
    np.testing.assert_allclose(X.pull(g), z.T @ g, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "Got 'hinge' instead; RankSVM minimises it"),
        ({"loss": "logistc"}, r"loss must be one of .*Got 'logistc' instead.*mean 'logistic'\?"),
        ({"l2": -1}, "l2 must be a number at least 0. Got -1 instead."),
        ({"sigma": 0}, "sigma must be a number above 0. Got 0 instead."),
        ({"tolerance": float("nan")}, "tolerance must be a number above 0. Got nan"),
        ({"max_iter": True}, "max_iter must be a whole number of at least 1. Got True"),
        ({"max_rounds": 0}, "max_rounds must be a whole number of at least 1. Got 0"),
        ({"weighting": "ips"}, "weighting must be a table of pair weights .* Got 'ips' instead"),
        ({"gain": "cubic"}, "gain must be one of 'exponential', 'linear', 'plain'. Got 'cubic'"),
        ({"query_weight": "all"}, "query_weight must be one of 'sessions', 'sqrt', 'equal'"),
        (
            {"weighting": PRS(PowerLaw(1.0)), "loss": "dcg-bound"},
            "weights of PRS depend on the other document too, or can be negative. Use ut.IPS",
        ),
        (
            {"weighting": PairwiseDebiasing(), "loss": "dcg-bound"},
            "weights of PairwiseDebiasing depend",
        ),
    ],
)
def test_wrong_options(made, options, message):
    with pytest.raises(OptionError, match=message):
        LinearRanker(**options).fit(made.log)


def test_wrong_data(made):
    log = made.log
    with pytest.raises(OptionError, match="nothing to learn from: no list holds two documents"):
        LinearRanker().fit(log.with_label(np.zeros(len(log.label))))
    with pytest.raises(OptionError, match="nothing to learn from"):
        LinearRanker(loss="dcg-bound").fit(log.with_label(np.zeros(len(log.label))))
    with pytest.raises(DepthError, match="position 5 has no examination estimate"):
        LinearRanker(IPS([1.0, 0.5])).fit(log)
    with pytest.raises(NotFittedError, match="this LinearRanker has not been fitted"):
        LinearRanker().predict(log.features)
    with pytest.raises(ShapeError, match=r"trained on 4 features\. Got an array of shape"):
        LinearRanker().fit(log).predict(log.features[:, :2])
    hole = log.features.copy()
    hole[3, 1] = np.nan
    with pytest.raises(ShapeError, match=r"Got nan for feature 'f2' in row 3\. Fill"):
        LinearRanker().fit(log).predict(hole)
