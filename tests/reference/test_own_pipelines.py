"""LightGBM's estimators for scikit-learn, and CatBoost, learn from the same pairs."""

from collections import Counter

import lightgbm
import numpy as np
import pytest

import untilt as ut
from untilt.errors import OptionError, ShapeError
from untilt.rankers.learning_data import training_lists
from untilt.rankers.trees.own_pipeline import pair_weights

PARAMS = {
    "num_leaves": 7, "learning_rate": 0.2, "min_child_samples": 2, "verbosity": -1, "n_jobs": 1,
    "deterministic": True, "force_row_wise": True,
}  # fmt: skip
BIAS = ut.PowerLaw(1.0)


@pytest.fixture(scope="module")
def log():
    judged = ut.make_judged(n_queries=20, n_features=5, seed=1, mean_docs=8)
    return ut.simulate(judged, protocol="dla", sessions_per_query=15, seed=0).log


def impressions(log):
    """Rows of impressions with a group for each session, and where each row was shown."""
    apart = np.repeat(np.arange(log.n_lists), log.count)
    rows = np.concatenate([np.arange(log.indptr[i], log.indptr[i + 1]) for i in apart])
    X = log.features[log.document[rows]]
    return X, log.label[rows], np.diff(log.indptr)[apart], log.position[rows]


def test_lgbm_ranker_trains_on_the_objective_of_impressions(log):
    X, y, sizes, position = impressions(log)
    objective = ut.lightgbm_objective(ut.PRS(BIAS), positions=position)
    ranker = lightgbm.LGBMRanker(objective=objective, n_estimators=8, **PARAMS)
    ranker.fit(X, y, group=sizes)
    objective = ut.lightgbm_objective(ut.PRS(BIAS), positions=position)
    plain = lightgbm.train(
        {**PARAMS, "objective": objective}, lightgbm.Dataset(X, y, group=sizes), 8
    )
    assert np.array_equal(ranker.predict(X), plain.predict(X))
    with pytest.raises(OptionError, match=r"LGBMRanker.fit\(..., group=...\)"):
        objective(y, np.zeros(len(y)), None, None)
    with pytest.raises(OptionError, match="sample_weight would multiply summed lambdas"):
        objective(y, np.zeros(len(y)), np.ones(len(y)), sizes)


def test_lgbm_ranker_learns_a_joint_table_anew_each_training(log):
    X, y, sizes, position = impressions(log)
    objective = ut.lightgbm_objective(ut.PairwiseDebiasing(), positions=position)
    ranker = lightgbm.LGBMRanker(objective=objective, n_estimators=5, **PARAMS)
    once = ranker.fit(X, y, group=sizes).predict(X)
    steps = len(objective.history)
    assert np.array_equal(ranker.fit(X, y, group=sizes).predict(X), once)
    assert len(objective.history) == steps
    other = 1 - y  # other labels are other data
    assert not np.array_equal(ranker.fit(X, other, group=sizes).predict(X), once)


def test_counts_of_groups_are_repeated_groups(log):
    """The rows of a collapsed log, once each, with the sessions that each list stands for."""
    X, y, sizes, position = impressions(log)
    once = log.features[log.document], log.label, np.diff(log.indptr)
    scores = np.random.default_rng(0).normal(size=log.n_documents)
    repeated = ut.lightgbm_objective(ut.PRS(BIAS), positions=position)
    counted = ut.lightgbm_objective(ut.PRS(BIAS), positions=log.position, counts=log.count)
    many = repeated(y, scores[np.searchsorted(*by_row(log, X))], None, sizes)
    few = counted(once[1], scores[np.searchsorted(*by_row(log, once[0]))], None, once[2])
    apart = np.repeat(np.arange(log.n_lists), log.count)
    rows = np.concatenate([np.arange(log.indptr[i], log.indptr[i + 1]) for i in apart])
    for a, b in zip(many, few, strict=True):
        summed = np.bincount(rows, a, minlength=len(b))
        np.testing.assert_allclose(summed / summed.std(), b / b.std(), rtol=1e-9, atol=1e-12)
    with pytest.raises(ShapeError, match=r"counts must be one for each of the \d+ groups"):
        ut.lightgbm_objective(ut.PRS(BIAS), counts=[1, 2])(once[1], once[1], None, once[2])


def by_row(log, X):
    """The documents by their first feature, which tells them apart."""
    known = np.sort(log.features[:, 0])
    assert len(np.unique(known)) == len(known)
    return known, X[:, 0]


def test_the_objective_of_a_log_takes_its_own_rows_alone(log):
    objective, data = ut.objective(log, ut.PRS(BIAS)), ut.lightgbm_dataset(log)
    plain = lightgbm.train({**PARAMS, "objective": objective}, data, 8)
    shown = np.unique(log.document)
    X = log.features[shown]
    ranker = lightgbm.LGBMRanker(
        objective=ut.objective(log, ut.PRS(BIAS)), n_estimators=8, **PARAMS
    )
    ranker.fit(X, np.zeros(len(X)), group=np.bincount(log.doc_query[shown]))
    assert np.array_equal(ranker.predict(X), plain.predict(X))
    rows, y, sizes, _ = impressions(log)
    with pytest.raises(ShapeError, match=r"has 1,\d+ rows.*ut.lightgbm_objective\(weighting\)"):
        ranker.fit(rows, y, group=sizes)


def slow_pairs(log, weighting):
    """Pair by pair of every session: a click counts W[k, l] against each document without one."""
    table, offset = weighting.table(log.depth), weighting.offset(log.depth)
    shown = np.unique(log.document)
    own = {int(document): row for row, document in enumerate(shown)}
    total = Counter()
    for i in range(log.n_lists):
        rows = range(log.indptr[i], log.indptr[i + 1])
        for a in rows:
            for b in rows:
                k, l = log.position[a] - 1, log.position[b] - 1
                weight = table[k, l] * (log.label[a] > log.label[b])
                weight += 0.0 if offset is None else offset[k, l]
                if a != b and weight:
                    pair = own[int(log.document[a])], own[int(log.document[b])]
                    total[pair] += weight * log.count[i]
    return total


@pytest.mark.parametrize("weighting", [None, ut.PRS(BIAS), ut.IPS(BIAS)])
def test_pair_weights_are_sums_over_sessions(log, weighting):
    pairs, weights = pair_weights(training_lists(log, weighting), weighting or ut.Naive())
    expected = slow_pairs(log, weighting or ut.Naive())
    assert {tuple(pair) for pair in pairs.tolist()} == set(expected)
    ours = np.array([expected[tuple(pair)] for pair in pairs.tolist()])
    # Queries have as many sessions each: one scale for all.
    np.testing.assert_allclose(weights / weights.sum(), ours / ours.sum(), rtol=1e-9)
    apart = training_lists(ut.ClickLog(**{
        name: getattr(log, name) for name in log.__dataclass_fields__}), weighting)  # fmt: skip
    assert np.array_equal(pair_weights(apart, weighting or ut.Naive())[1], weights)


def test_learned_tables_are_refused(log):
    with pytest.raises(OptionError, match="PairwiseDebiasing is learned along with the ranker"):
        pair_weights(training_lists(log), ut.PairwiseDebiasing())


def test_catboost_minimises_the_weighted_pair_loss(log):
    """PairLogit at the scores it starts from, 0: log 2 of every pair, by weight."""
    catboost = pytest.importorskip("catboost")
    pool = ut.catboost_pool(log, ut.PRS(BIAS))
    params = {"loss_function": "PairLogit", "iterations": 20, "thread_count": 1, "verbose": False}
    model = catboost.CatBoost({**params, "allow_writing_files": False, "random_seed": 0}).fit(pool)
    pairs, weights = pair_weights(training_lists(log), ut.PRS(BIAS))
    rows = np.argsort(log.doc_query[np.unique(log.document)], kind="stable")
    scores = model.predict(pool)[np.argsort(rows)]
    apart = scores[pairs[:, 0]] - scores[pairs[:, 1]]
    loss = np.average(np.log1p(np.exp(-apart)), weights=weights)
    assert loss < np.log(2)
    history = model.get_evals_result()["learn"]["PairLogit"]
    assert history[-1] == pytest.approx(loss, rel=1e-6)
