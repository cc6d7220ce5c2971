"""LambdaMART as an estimator: what it stores, what it learns from, what it refuses."""

import re
from dataclasses import replace
from typing import Any

import lightgbm
import numpy as np
import pytest
from sklearn.base import clone

from untilt import (
    IPS,
    PRS,
    Balanced,
    KnownBias,
    LambdaMART,
    Naive,
    PairwiseDebiasing,
    PowerLaw,
    make_judged,
    parse_metric,
)
from untilt.errors import DepthError, NotFittedError, OptionError, ShapeError

SMALL: dict[str, Any] = {"n_trees": 8, "n_leaves": 5, "min_data_in_leaf": 3, "n_threads": 1}
THETA = 1 / np.arange(1.0, 6)


@pytest.fixture(scope="module")
def judged():
    return make_judged(60, 8, seed=1, mean_docs=10)


def ndcg(ranker, judged):
    scores = ranker.predict(judged.features)
    return parse_metric("ndcg@10").per_list(scores, judged.labels, judged.indptr).mean()


# ---- an estimator


def test_defaults_are_those_of_the_paper():
    """Three hundred trees at 0.05, 31 leaves, nine tenths of features and rows, sigma 2."""
    ranker = LambdaMART()
    assert (ranker.n_trees, ranker.learning_rate, ranker.n_leaves) == (300, 0.05, 31)
    assert (ranker.feature_fraction, ranker.bagging_fraction, ranker.sigma) == (0.9, 0.9, 2.0)


def test_constructor_only_stores():
    """Nonsense is refused by fit, not by the constructor."""
    ranker = LambdaMART("nonsense", metric=3, n_trees=-1)  # type: ignore[arg-type]
    assert (ranker.weighting, ranker.metric, ranker.n_trees) == ("nonsense", 3, -1)


def test_clone_and_params(made):
    ranker = LambdaMART(PRS(THETA), **SMALL, seed=3).fit(made.log)
    fresh = clone(ranker)
    assert fresh.get_params()["n_trees"] == 8
    assert not hasattr(fresh, "booster_")
    assert np.array_equal(
        fresh.fit(made.log).predict(made.log.features), ranker.predict(made.log.features)
    )
    fresh.set_params(n_trees=2, weighting=None)
    assert fresh.fit(made.log).n_trees_ == 2
    with pytest.raises(ValueError, match="Invalid parameter 'leaves'"):
        fresh.set_params(leaves=2)


def test_repr_shows_what_was_changed():
    assert repr(LambdaMART(Naive(), n_trees=5)) == "LambdaMART(n_trees=5, weighting=Naive())"


def test_same_seed_same_ranker_and_another_seed_another(made):
    def scores(seed):
        return LambdaMART(**SMALL, seed=seed).fit(made.log).predict(made.log.features)

    assert np.array_equal(scores(0), scores(0))
    assert np.abs(scores(0) - scores(1)).max() > 1e-3


@pytest.mark.parametrize("weighting", [PRS(THETA), PairwiseDebiasing()])
def test_threads_change_nothing(made, weighting):
    scores = [
        LambdaMART(weighting, **{**SMALL, "n_threads": threads, "n_trees": 5})
        .fit(made.log)
        .predict(made.log.features)
        for threads in (1, 2)
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-12)


def test_inputs_are_untouched(made):
    theta = THETA.copy()
    params = {"lambda_l2": 1.0}
    before = [made.log.label.copy(), made.log.features.copy(), made.log.sessions.copy()]
    LambdaMART(PRS(theta), lightgbm_params=params, **SMALL).fit(made.log)
    for now, then in zip(
        [made.log.label, made.log.features, made.log.sessions], before, strict=True
    ):
        assert np.array_equal(now, then)
    assert np.array_equal(theta, THETA)
    assert params == {"lambda_l2": 1.0}


def test_order_of_lists_and_documents_does_not_matter(pbm_log, rng):
    """Bagging and the choice of features are off: LightGBM draws rows by their place."""
    log = pbm_log(n_queries=20, sessions=25).log
    mixed = log.take(rng.permutation(log.n_lists))
    perm = rng.permutation(log.n_documents)
    mixed = replace(
        mixed, doc_id=log.doc_id[perm], doc_query=log.doc_query[perm],
        features=log.features[perm], document=np.argsort(perm)[mixed.document],
    )  # fmt: skip
    for options in (
        {"weighting": PRS(THETA)},
        {"objective": "pbm-likelihood", "bias": THETA},
        {"objective": "ips-label", "bias": THETA},
    ):
        ranker = LambdaMART(
            **{**SMALL, "n_trees": 20}, **options, bagging_fraction=1.0, feature_fraction=1.0
        )
        expected = clone(ranker).fit(log).predict(log.features)
        assert np.ptp(expected) > 0.5
        assert clone(ranker).fit(mixed).predict(log.features) == pytest.approx(expected, abs=1e-8)


def test_order_of_judged_queries_does_not_matter(judged, rng):
    ranker = LambdaMART(**SMALL, bagging_fraction=1.0)
    expected = clone(ranker).fit(judged).predict(judged.features)
    mixed = judged.take(rng.permutation(judged.n_queries))
    assert clone(ranker).fit(mixed).predict(judged.features) == pytest.approx(expected, abs=1e-8)


def test_unshown_documents_change_nothing(made):
    """Documents that no list shows are candidates, not training rows."""
    log = made.log
    shown = np.zeros(log.n_documents, dtype=bool)
    shown[log.document] = True
    assert not shown.all()
    only = replace(
        log, doc_id=log.doc_id[shown], doc_query=log.doc_query[shown],
        features=log.features[shown], document=(np.cumsum(shown) - 1)[log.document],
    )  # fmt: skip
    ranker = LambdaMART(PRS(THETA), **SMALL)
    assert np.array_equal(
        clone(ranker).fit(log).predict(log.features), clone(ranker).fit(only).predict(log.features)
    )


# ---- what is known after fit


def test_summary_tells_what_it_was_trained_on(made, judged):
    on_clicks = LambdaMART(PRS(THETA), **SMALL).fit(made.log).summary_
    assert on_clicks["trained_on"] == "clicks"
    assert on_clicks["weighting"].startswith("PRS(bias=Examination, relative")
    assert on_clicks["sessions"] == 180
    assert on_clicks["distinct_lists"] == made.log.collapse().n_lists
    assert on_clicks["queries"] == 12
    assert on_clicks["documents"] == len(np.unique(made.log.document))
    assert on_clicks["trees"] == 8
    on_labels = LambdaMART(**SMALL).fit(judged).summary_
    assert on_labels["trained_on"] == "judged lists"
    assert on_labels["sessions"] == on_labels["queries"] == 60


def test_feature_importances_are_shares(made):
    ranker = LambdaMART(**SMALL).fit(made.log)
    shares = ranker.feature_importances_
    assert list(shares) == ["f1", "f2", "f3", "f4"]
    assert sum(shares.values()) == pytest.approx(1)
    # Relevance is made of the first two features.
    assert shares["f1"] > max(shares["f3"], shares["f4"])


def test_a_feature_that_is_noise_to_all_trees_has_no_share(made):
    constant = np.column_stack([made.log.features, np.ones(made.log.n_documents)])
    log = replace(made.log, features=constant, feature_names=())
    assert LambdaMART(**SMALL).fit(log).feature_importances_["f5"] == 0


def test_feature_names_may_hold_anything(made):
    """LightGBM refuses such names; they are kept beside it."""
    names = ("bm25[title]", 'say "hi"', "a,b:{}", "größe")
    ranker = LambdaMART(**SMALL).fit(replace(made.log, feature_names=names))
    assert ranker.feature_names_ == names
    assert tuple(ranker.feature_importances_) == names


def test_missing_features_are_taken_as_missing(made):
    holes = made.log.features.copy()
    holes[::3, 0] = np.nan
    log = replace(made.log, features=holes)
    cases: tuple[dict[str, Any], ...] = ({}, {"objective": "ips-label", "bias": THETA})
    for options in cases:
        assert np.all(np.isfinite(LambdaMART(**SMALL, **options).fit(log).predict(holes)))


def test_fitting_again_forgets_the_first_fit(made, judged):
    ranker = LambdaMART(PairwiseDebiasing(), **SMALL).fit(made.log)
    assert ranker.bias_ is not None
    ranker.set_params(weighting=None).fit(judged)
    assert ranker.bias_ is None
    assert ranker.bias_history_ == []
    assert len(ranker.feature_names_) == 8


# ---- LightGBM's parameters


def test_lightgbm_params_win_over_our_names(made):
    ranker = LambdaMART(**SMALL, lightgbm_params={"num_leaves": 2}).fit(made.log)
    leaves = [tree["num_leaves"] for tree in ranker.booster_.dump_model()["tree_info"]]
    assert leaves == [2] * 8


@pytest.mark.parametrize(
    ("alias", "name", "value"),
    [
        ("max_leaves", "num_leaves", 2),
        ("eta", "learning_rate", 0.7),
        ("min_child_samples", "min_data_in_leaf", 11),
        ("min_child_weight", "min_sum_hessian_in_leaf", 40.0),
        ("colsample_bytree", "feature_fraction", 0.3),
        ("subsample", "bagging_fraction", 0.2),
        ("random_state", "seed", 77),
    ],
)
def test_lightgbm_params_win_under_all_their_names(made, alias, name, value):
    """LightGBM drops an alias silently where the parameter itself is set."""
    by_alias = LambdaMART(**SMALL, lightgbm_params={alias: value})
    by_name = LambdaMART(**SMALL, lightgbm_params={name: value})
    assert by_alias.parameters() == by_name.parameters()
    assert by_alias.parameters()[name] == value
    scores = [ranker.fit(made.log).predict(made.log.features) for ranker in (by_alias, by_name)]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.array_equal(
        scores[0], LambdaMART(**SMALL).fit(made.log).predict(made.log.features)
    )


def test_aliases_are_those_of_lightgbm():
    from untilt.rankers.trees import boosting as tree_params

    for name, aliases in {
        **tree_params._ALIASES,
        "num_iterations": tree_params._OURS["n_trees"],
    }.items():
        known = lightgbm.basic._ConfigAliases.get(name)
        assert known == {name, *aliases.split()}


def test_a_bagging_fraction_switches_bagging_on():
    assert LambdaMART(bagging_fraction=1.0).parameters()["bagging_freq"] == 0
    assert LambdaMART(bagging_fraction=0.8).parameters()["bagging_freq"] == 1
    given = LambdaMART(bagging_fraction=1.0, lightgbm_params={"subsample": 0.5}).parameters()
    assert given["bagging_freq"] == 1
    given = LambdaMART(lightgbm_params={"subsample_freq": 5}).parameters()
    assert given["bagging_freq"] == 5


@pytest.mark.parametrize(
    ("name", "option"),
    [("n_estimators", "n_trees"), ("objective", "objective"),
     ("early_stopping_round", "early_stopping")],
)  # fmt: skip
def test_what_lambdamart_decides_itself_is_refused(made, name, option):
    ranker = LambdaMART(**SMALL, lightgbm_params={name: 5})
    message = rf"lightgbm_params cannot set '{name}'\. Give LambdaMART\({option}=\.\.\.\)"
    with pytest.raises(OptionError, match=message):
        ranker.fit(made.log)


def test_what_lightgbm_refuses_is_passed_on(made):
    ranker = LambdaMART(**SMALL, lightgbm_params={"num_leaves": 1})
    with pytest.raises(
        OptionError, match=r"LightGBM refused to train: .*\(num_leaves\) > \(1\).*Check its"
    ):
        ranker.fit(made.log)


def test_n_threads_are_given_to_lightgbm_and_taken_back_from_numba(made):
    import numba

    before = numba.get_num_threads()
    ranker = LambdaMART(**{**SMALL, "n_threads": 1}).fit(made.log)
    assert ranker.booster_.params["num_threads"] == 1
    assert numba.get_num_threads() == before


# ---- learning


def test_skyline_learns_from_labels(judged):
    tied = parse_metric("ndcg@10").per_list(
        np.zeros(len(judged)), judged.labels, judged.indptr
    ).mean()  # fmt: skip
    assert ndcg(LambdaMART(**{**SMALL, "n_trees": 30}).fit(judged), judged) > tied + 0.2


def test_weighting_plays_no_part_on_labels(judged):
    """Judged lists have no position."""
    plain = LambdaMART(**SMALL).fit(judged).predict(judged.features)
    for options in (
        {"weighting": PRS(PowerLaw(1.0))},
        {"weighting": PairwiseDebiasing()},
        {"bias": THETA},
        {"bias": THETA, "objective": "pbm-likelihood"},
        {"bias": THETA, "objective": "posterior-label"},
    ):
        other = LambdaMART(**SMALL, **options).fit(judged)
        assert np.array_equal(other.predict(judged.features), plain)
        assert other.bias_ is None


@pytest.mark.parametrize("metric", ["ndcg", "dcg", "arp", "map", "none"])
def test_every_metric_learns_relevance_from_clicks(pbm_log, metric):
    made = pbm_log(n_queries=30, sessions=60, theta=[1, 0.8, 0.7, 0.6, 0.5])
    ranker = LambdaMART(IPS(made.theta), metric=metric, **{**SMALL, "n_trees": 40}).fit(made.log)
    scores = ranker.predict(made.log.features)
    assert np.corrcoef(scores, made.relevance)[0, 1] > 0.75


@pytest.mark.parametrize("objective", ["pbm-likelihood", "ips-label", "posterior-label"])
def test_every_objective_learns_relevance_from_clicks(pbm_log, objective):
    made = pbm_log(n_queries=30, sessions=60)
    options: dict[str, Any] = {**SMALL, "n_trees": 40, "folds": 2}
    ranker = LambdaMART(objective=objective, bias=made.theta, **options).fit(made.log)
    scores = ranker.predict(made.log.features)
    assert np.corrcoef(scores, made.relevance)[0, 1] > 0.75


def test_auto_gain_is_by_the_kind_of_labels(made, judged):
    """2^y - 1 for whole grades, the label itself for clicks and measured feedback."""

    def scores(data, gain):
        return LambdaMART(gain=gain, **SMALL).fit(data).predict(data.features)

    assert np.array_equal(scores(judged, "auto"), scores(judged, "exponential"))
    assert not np.array_equal(scores(judged, "auto"), scores(judged, "linear"))
    measured = replace(judged, labels=judged.labels + 0.5)
    assert np.array_equal(scores(measured, "auto"), scores(measured, "linear"))
    dwell = made.log.with_label(made.log.label * np.linspace(1, 90, len(made.log.label)))
    assert np.array_equal(scores(dwell, "auto"), scores(dwell, "linear"))


def test_query_weight_equal_undoes_traffic(pbm_log):
    """One query ten times as often: under "equal" it weighs no more than before."""
    log = pbm_log().log
    often = log.take(np.arange(log.n_lists), count=np.where(log.query == 0, 10, 1))

    def scores(data, query_weight):
        ranker = LambdaMART(query_weight=query_weight, **SMALL, bagging_fraction=1.0)
        return ranker.fit(data).predict(log.features)

    assert scores(often, "equal") == pytest.approx(scores(log, "equal"), abs=1e-8)
    for query_weight in ("sessions", "sqrt"):
        assert np.abs(scores(often, query_weight) - scores(log, query_weight)).max() > 0.01


def test_pair_norm_changes_the_trees_after_the_first(made):
    """At equal scores it divides every pair by the same 0.01."""

    def scores(n_trees, pair_norm):
        options: dict[str, Any] = {**SMALL, "n_trees": n_trees, "min_sum_hessian_in_leaf": 0.0}
        ranker = LambdaMART(pair_norm=pair_norm, **options)
        return ranker.fit(made.log).predict(made.log.features)

    assert scores(1, True) == pytest.approx(scores(1, False), abs=1e-7)
    assert np.abs(scores(5, True) - scores(5, False)).max() > 1e-3


# ---- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "lamda"}, r"objective must be one of 'lambda', .* Did you mean 'lambda'\?"),
        ({"metric": "ndgc"}, r"metric must be one of 'ndcg', .*'map'.* Did you mean 'ndcg'\?"),
        ({"gain": "square"}, r"gain must be one of 'auto', 'exponential', 'linear', 'plain'"),
        ({"query_weight": "log"}, r"query_weight must be one of 'sessions', 'sqrt', .* Got 'log'"),
        ({"sigma": 0.0}, r"sigma must be above 0\. Got 0\.0"),
        ({"truncation": 0}, r"truncation must be at least 1\. Got 0"),
        ({"n_trees": 0}, r"n_trees must be at least 1\. Got 0"),
        ({"early_stopping": 0}, r"early_stopping must be at least 1\. Got 0"),
        ({"weighting": "PRS"}, r"weighting must be a table such as .* Got 'PRS' instead"),
        ({"weighting": PowerLaw(1.0)}, r"weighting must be a table such as .* Got PowerLaw\(eta=1"),
        ({"weighting": np.ones((5, 5))}, r"weighting must be a table such as"),
        ({"bias": THETA}, r"bias=\.\.\. alone corrects nothing.*weighting=ut\.PRS\(bias\)"),
        ({"weighting": "auto"}, r"weighting='auto' needs the position bias: give bias="),
        ({"weighting": "auto", "bias": THETA, "objective": "ips-label"},
         r"weighting='auto' picks the objective itself\. Leave objective='ips-label' out"),
        ({"weighting": PRS(THETA), "objective": "ips-label", "bias": THETA},
         r"objective 'ips-label' takes the bias itself"),
        ({"objective": "pbm-likelihood"}, r"this objective needs the position bias: give bias="),
        ({"objective": "ips-label"}, r"this objective needs the position bias: give bias="),
        ({"objective": "posterior-label"}, r"this objective needs the position bias: give bias="),
        ({"objective": "ips-label", "bias": THETA, "metric": "map"}, r"cannot use graded labels"),
        ({"weighting": Balanced(KnownBias(THETA, eps_plus=[0.9] * 5, eps_minus=[0.1] * 5)),
          "metric": "map"}, r"metric='map' cannot take an affine correction"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_by_fit(made, options, message):
    ranker = LambdaMART(**{**SMALL, **options})
    with pytest.raises(OptionError, match=message):
        ranker.fit(made.log)


@pytest.mark.parametrize("objective", ["lambda", "pbm-likelihood", "ips-label"])
def test_bias_that_is_too_short_is_refused(made, objective):
    short = [1.0, 0.5, 0.3]
    options = {"weighting": IPS(short)} if objective == "lambda" else {"bias": short}
    with pytest.raises(DepthError, match=r"position 5 has no examination estimate.*log\.top\(3\)"):
        LambdaMART(objective=objective, **options, **SMALL).fit(made.log)


@pytest.mark.parametrize("objective", ["pbm-likelihood", "ips-label", "posterior-label"])
def test_click_objectives_refuse_other_feedback(made, objective):
    log = made.log.with_label(made.log.label * 3)
    with pytest.raises(OptionError, match=r"models clicks, but the log's label is not 0/1"):
        LambdaMART(objective=objective, bias=THETA, **SMALL).fit(log)


@pytest.mark.parametrize(
    "options",
    [{}, {"weighting": Balanced(THETA)}, {"weighting": PairwiseDebiasing()}, {"metric": "map"},
     {"objective": "pbm-likelihood", "bias": THETA}, {"objective": "ips-label", "bias": THETA},
     {"objective": "posterior-label", "bias": THETA}],
    ids=str,
)  # fmt: skip
def test_a_log_without_clicks_is_refused(made, options):
    log = made.log.with_label(np.zeros(len(made.log.label)))
    with pytest.raises(OptionError, match="there is nothing to learn from"):
        LambdaMART(**SMALL, **options).fit(log)


def test_judged_lists_without_relevant_documents_are_refused(judged):
    flat = replace(judged, labels=np.zeros(len(judged)))
    with pytest.raises(OptionError, match="there is nothing to learn from"):
        LambdaMART(**SMALL).fit(flat)


def test_constant_features_are_refused(made):
    log = replace(made.log, features=np.ones((made.log.n_documents, 3)), feature_names=())
    with pytest.raises(OptionError, match="all 3 features are constant"):
        LambdaMART(**SMALL).fit(log)


def test_exponential_gain_of_long_dwell_is_refused(made):
    log = made.log.with_label(made.log.label * 31)
    with pytest.raises(OptionError, match=r"out of all proportion\. Use gain='linear'"):
        LambdaMART(gain="exponential", **SMALL).fit(log)


def test_data_of_another_kind_is_refused():
    with pytest.raises(OptionError, match=r"needs a ClickLog or JudgedLists\. Got str instead"):
        LambdaMART(**SMALL).fit("clicks.parquet")


def test_a_log_without_features_or_sessions_is_refused(made):
    bare = replace(made.log, features=None, feature_names=())
    with pytest.raises(OptionError, match=r"this log has no features.*documents="):
        LambdaMART(**SMALL).fit(bare)
    with pytest.raises(OptionError, match="this log has no sessions to train on"):
        LambdaMART(**SMALL).fit(made.log.take(np.zeros(0, dtype=int)))


def test_unfitted_and_misfitting_calls_are_refused(made):
    with pytest.raises(NotFittedError, match=r"this LambdaMART has not been fitted\. Call fit"):
        LambdaMART().predict(made.log.features)
    with pytest.raises(NotFittedError, match="has not been fitted"):
        _ = LambdaMART().feature_importances_
    ranker = LambdaMART(**SMALL).fit(made.log)
    with pytest.raises(
        ShapeError, match=re.escape("trained on 4 features. Got an array of shape (7, 3)")
    ):
        ranker.predict(np.zeros((7, 3)))
    with pytest.raises(ShapeError, match=re.escape("shape (4,)")):
        ranker.predict(np.zeros(4))
