"""RankSVM: its stated objective, its gap, its search for C, and its errors."""

import itertools

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
    JudgedLists,
    KnownBias,
    Naive,
    PairwiseDebiasing,
    PowerLaw,
    RankSVM,
)
from untilt.errors import DepthError, IdentifiabilityError, OptionError, ShapeError
from untilt.objectives.losses import PairHinge, SortedHinge
from untilt.rankers.learning_data import training_lists

TRUST = KnownBias(1 / np.arange(1, 6), eps_plus=np.full(5, 0.9), eps_minus=np.full(5, 0.1))
TABLES = [
    Naive(), IPS(PowerLaw(1.0)), IPS(PowerLaw(1.0), against="all"), PNS(PowerLaw(1.0)),
    PRS(PowerLaw(1.0)), Balanced(PowerLaw(1.0)), Balanced(TRUST), BayesIPS(TRUST),
    AffineIPS(TRUST),
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Thousands of tiny passes: waking a second thread for each costs more than it saves."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(before)


def pair_weights(log, weighting):
    """(slate, i, j) -> summed weight of "i above j", session by session."""
    W, offset = weighting.table(log.depth), weighting.offset(log.depth)
    above = {}
    for a, b, count in zip(log.indptr[:-1], log.indptr[1:], log.sessions, strict=True):
        for i in range(a, b):
            for j in range(a, b):
                k, l = log.position[i] - 1, log.position[j] - 1
                loser = 0 if weighting.against == "all" else log.label[j]
                if i != j:
                    w = W[k, l] * max(log.label[i] - loser, 0)
                    w += 0 if offset is None else offset[k, l]
                    pair = (tuple(log.document[a:b]), log.document[i], log.document[j])
                    above[pair] = above.get(pair, 0) + w * count
    return above


def objective(log, weighting, v, C):
    """1/2 |v|^2 + C/n sum of hinge losses, n = clicks, as the docstring says."""
    shown = np.unique(log.document)
    x = log.features[shown].astype(float)
    scores = np.zeros(log.n_documents)
    scores[shown] = (x - x.mean(axis=0)) / x.std(axis=0) @ v
    loss = 0.0
    for (_, i, j), w in pair_weights(log, weighting).items():
        loss += abs(w) * max(0, 1 - np.sign(w) * (scores[i] - scores[j]))
    clicks = np.sum(log.row_count * (log.label > 0))
    return 0.5 * v @ v + C / clicks * loss


@pytest.mark.parametrize("weighting", TABLES, ids=lambda value: type(value).__name__)
def test_the_objective_is_the_stated_one_and_its_gap_is_closed(pbm_log, weighting):
    log = pbm_log(n_queries=8, sessions=10).log
    ranker = RankSVM(weighting, C=2.0, tolerance=1e-5).fit(log)
    v = ranker.standardised_weights_
    assert ranker.summary_["objective"] == pytest.approx(
        objective(log, weighting, v, 2.0), rel=1e-9
    )
    assert ranker.summary_["converged"]
    assert ranker.summary_["gap"] <= 1e-5
    # Convex: nothing nearby may lie below the reported bound.
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(5):
            nearby = objective(log, weighting, v + size * rng.normal(size=len(v)), 2.0)
            assert nearby >= ranker.summary_["bound"]


@pytest.mark.parametrize(
    ("weighting", "against", "kinds"),
    [
        (Naive(), None, {SortedHinge, PairHinge}),
        (IPS(PowerLaw(1.0)), None, {SortedHinge, PairHinge}),
        (IPS(PowerLaw(1.0), against="all"), None, {SortedHinge}),
        (Naive(), "all", {SortedHinge}),
        (PRS(PowerLaw(1.0)), None, {PairHinge}),
        (AffineIPS(TRUST), None, {PairHinge}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_row_tables_sort_and_others_visit_pairs(pbm_log, weighting, against, kinds):
    # 5 shown out of 8 in 15 orderings: some slates come once and keep labels, some often.
    log = pbm_log(orderings=15, sessions=15).log
    problem = RankSVM(weighting, against=against)._problem(training_lists(log))
    assert {type(part) for part in problem.risk.parts} == kinds


def test_against_overrides_the_weighting(made):
    log = made.log
    asked = RankSVM(Naive(), against="all", tolerance=1e-6).fit(log)
    meant = RankSVM(IPS(np.ones(5), against="all"), tolerance=1e-6).fit(log)
    other = RankSVM(Naive(), tolerance=1e-6).fit(log)
    np.testing.assert_allclose(asked.weights_, meant.weights_, atol=1e-3)
    assert np.abs(asked.weights_ - other.weights_).max() > 0.01
    assert asked.summary_["against"] == "all"
    assert asked.weighting.against == "unclicked"  # the caller's weighting is left alone


@pytest.mark.parametrize(
    "weighting",
    [Naive(), IPS(PowerLaw(1.0), against="all")],
    ids=lambda value: type(value).__name__,
)
def test_counts_are_repeated_sessions(made, weighting):
    log = made.log
    rng = np.random.default_rng(5)
    count = rng.integers(1, 5, size=log.n_lists)
    counted = log.take(np.arange(log.n_lists), count=count)
    repeated = log.take(rng.permutation(np.repeat(np.arange(log.n_lists), count)))
    one = RankSVM(weighting, tolerance=1e-7).fit(counted)
    two = RankSVM(weighting, tolerance=1e-7).fit(repeated)
    assert one.summary_["objective"] == pytest.approx(two.summary_["objective"], rel=1e-6)
    np.testing.assert_allclose(one.weights_, two.weights_, atol=2e-3)


def test_the_log_twice_over_is_the_same_problem(made):
    log = made.log
    one = RankSVM().fit(log)
    two = RankSVM().fit(log.take(np.arange(log.n_lists), count=np.full(log.n_lists, 2)))
    assert one.summary_["objective"] == pytest.approx(two.summary_["objective"], rel=1e-12)


def test_equal_queries_weigh_the_same_whatever_their_traffic(made):
    log = made.log
    busy = log.take(np.arange(log.n_lists), count=np.where(log.query == 3, 50, 1))
    equal, same, by_traffic = (
        RankSVM(query_weight=how, tolerance=1e-6).fit(data).summary_["objective"]
        for how, data in (("equal", log), ("equal", busy), ("sessions", busy))
    )
    assert equal == pytest.approx(same, rel=1e-9)
    assert by_traffic != pytest.approx(equal, rel=1e-3)


def test_a_tighter_tolerance_closes_the_gap(made):
    gaps = [RankSVM(C=10.0, tolerance=t).fit(made.log).summary_["gap"] for t in (0.1, 1e-3, 1e-6)]
    assert gaps[0] <= 0.1
    assert gaps[1] <= 1e-3
    assert gaps[2] <= 1e-6


def test_an_early_stop_is_reported(made):
    summary = RankSVM(C=100.0, tolerance=1e-9, max_iter=2).fit(made.log).summary_
    assert not summary["converged"]
    assert summary["status"].code == "training.gap-open"


def test_search_doubles_from_the_last_trivial_value_and_picks_the_best(pbm_log):
    log = pbm_log(n_queries=40).log
    ranker = RankSVM(IPS(PowerLaw(1.0), against="all"), C="search", seed=3).fit(log)
    tried = [trial.C for trial in ranker.search_]
    assert all(later == 2 * earlier for earlier, later in itertools.pairwise(tried))
    best = min(ranker.search_, key=lambda trial: trial.average_rank)
    assert ranker.C_ == best.C == ranker.summary_["C"]
    # The last two were no better than the best before them, which is why it stopped.
    assert min(t.average_rank for t in ranker.search_[-2:]) >= best.average_rank
    assert ranker.C == "search"
    # The ranker itself is fitted on all of the log.
    alone = RankSVM(IPS(PowerLaw(1.0), against="all"), C=ranker.C_).fit(log)
    assert ranker.summary_["objective"] == pytest.approx(alone.summary_["objective"], rel=1e-3)


def test_below_the_first_c_of_the_search_the_order_does_not_change(pbm_log):
    log = pbm_log(n_queries=40).log
    weighting = IPS(PowerLaw(1.0), against="all")
    first = RankSVM(weighting, C="search").fit(log, valid=log).search_[0].C
    scores = [
        RankSVM(weighting, C=C, tolerance=1e-9).fit(log).predict(log.features) / C
        for C in (first / 100, first / 3, first)
    ]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(scores[0], scores[2], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("weighting", "valid_bias"),
    [(IPS(PowerLaw(1.0)), None), (IPS(PowerLaw(0.5)), PowerLaw(1.0)), (None, PowerLaw(1.0))],
)
def test_average_rank_of_the_search_is_propensity_weighted(pbm_log, weighting, valid_bias):
    """By the weighting's own curve, or by the one given for the validation data."""
    train, valid = pbm_log(seed=1).log, pbm_log(seed=2).log
    searched = RankSVM(weighting, C="search", tolerance=1e-6, valid_bias=valid_bias)
    searched.fit(train, valid=valid)
    trial = next(t for t in searched.search_ if t.C == searched.C_)
    alone = RankSVM(weighting, C=trial.C, tolerance=1e-6).fit(train)
    np.testing.assert_allclose(searched.weights_, alone.weights_, atol=1e-3)
    scores = searched.predict(valid.features)
    total = weight = 0.0
    for a, b in zip(valid.indptr[:-1], valid.indptr[1:], strict=True):
        s = scores[valid.document[a:b]]
        for i in range(b - a):
            w = valid.label[a + i] * valid.position[a + i]  # 1/theta_k = k
            total += w * (1 + np.sum(s > s[i]))
            weight += w
    assert trial.average_rank == pytest.approx(total / weight, rel=2e-3)


@pytest.mark.parametrize(
    "weighting",
    [None, PRS(PowerLaw(1.0)), PairwiseDebiasing()],
    ids=lambda value: type(value).__name__,
)
def test_search_works_with_every_kind_of_weighting(pbm_log, weighting):
    ranker = RankSVM(weighting, C="search").fit(pbm_log(n_queries=20).log)
    assert len(ranker.search_) >= 3
    assert ranker.summary_["converged"]


def test_search_on_judged_lists(rng):
    features = rng.normal(size=(240, 3)).astype(np.float32)
    labels = np.clip(np.round(features[:, 0] + 0.3 * rng.normal(size=240) + 1), 0, 2)
    judged = JudgedLists(features, labels, np.arange(0, 241, 6), np.arange(40))
    ranker = RankSVM(IPS(PowerLaw(1.0)), C="search").fit(judged)
    v = ranker.standardised_weights_
    assert v[0] > 3 * np.abs(v[1:]).max()
    assert ranker.search_[0].average_rank >= 1


def test_a_joint_weighting_settles(made):
    ranker = RankSVM(PairwiseDebiasing(), tolerance=1e-5).fit(made.log)
    assert ranker.summary_["joint_settled"]
    assert ranker.bias_.examination[0] == 1.0
    assert len(ranker.bias_history_) >= 2


def test_scale_false_takes_features_as_they_are(made):
    ranker = RankSVM(scale=False).fit(made.log)
    assert np.array_equal(ranker.weights_, ranker.standardised_weights_)
    assert np.array_equal(ranker.mean_, np.zeros(4))
    np.testing.assert_allclose(
        ranker.predict(made.log.features), made.log.features.astype(float) @ ranker.weights_
    )


def test_it_is_a_scikit_learn_estimator(made):
    ranker = RankSVM(PRS(PowerLaw(0.5)), C=3.0, against="all", seed=4)
    copy = clone(ranker).fit(made.log)
    assert copy.get_params() == ranker.get_params()
    assert not hasattr(clone(copy), "weights_")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": "best"}, r"C must be a number above 0 or 'search'\. Got 'best'"),
        ({"C": 0}, r"C must be a number above 0\. Got 0 instead"),
        ({"C": float("inf")}, r"C must be a number above 0\. Got inf"),
        ({"against": "some"}, r"against must be one of 'unclicked', 'all'\. Got 'some'"),
        ({"tolerance": 0}, r"tolerance must be a number above 0\. Got 0"),
        ({"max_iter": -1}, r"max_iter must be a whole number of at least 1\. Got -1"),
        ({"max_rounds": 0}, r"max_rounds must be a whole number of at least 1\. Got 0"),
        ({"validation_share": 1.5}, r"validation_share must lie between 0 and 1\. Got 1\.5"),
        ({"weighting": 3}, r"weighting must be a table of pair weights .* Got 3 instead"),
    ],
)
def test_wrong_options(made, options, message):
    with pytest.raises(OptionError, match=message):
        RankSVM(**options).fit(made.log)


def test_wrong_data(made, pbm_log):
    log = made.log
    silent = log.with_label(np.zeros(len(log.label)))
    with pytest.raises(OptionError, match="nothing to learn from"):
        RankSVM().fit(silent)
    with pytest.raises(OptionError, match="nothing to learn from"):
        RankSVM(against="all").fit(silent)
    with pytest.raises(IdentifiabilityError, match="holds clicks alone"):
        RankSVM().fit(log.with_label(np.ones(len(log.label))))
    with pytest.raises(OptionError, match="nothing to learn from"):
        RankSVM().fit(log.with_label(np.full(len(log.label), 2.0)))  # alike against alike
    with pytest.raises(OptionError, match="found no click in a list of two or more documents"):
        RankSVM(C="search").fit(log, valid=silent)
    with pytest.raises(ShapeError, match="must have the 4 features that are trained on"):
        RankSVM(C="search").fit(log, valid=pbm_log(n_features=3).log)
    with pytest.raises(DepthError, match="position 5 has no examination estimate"):
        RankSVM(IPS([1.0, 0.5])).fit(log)
