"""What every ranker promises, with every kind of weighting."""

from dataclasses import replace
from functools import partial
from typing import Any

import numba
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone

from untilt import catalog
from untilt.data.clicklog import ClickLog
from untilt.data.seen import overlap_of
from untilt.errors import ColumnError, NotFittedError, OptionError, ShapeError, UntiltError
from untilt.evaluation.estimate import estimate
from untilt.rankers.base import Ranker, load
from untilt.rankers.pooled import DoublyRobust, PolicyAware
from untilt.simulation.synthetic import make_judged
from untilt.weighting import IPS, PNS, PRS, Balanced, Naive, PairwiseDebiasing

THETA = np.array([1.0, 0.6, 0.4, 0.3])
WEIGHTINGS = {
    "none": lambda: None,
    "IPS": lambda: IPS(THETA, clip=0.2),
    "PRS": lambda: PRS(THETA),
    "Balanced": lambda: Balanced(THETA),
    "PolicyAware": lambda: PolicyAware(THETA),
    "DoublyRobust": lambda: DoublyRobust(THETA, trees=4, folds=2),
    "joint": PairwiseDebiasing,
}
# A small one of each: few trees, few rounds, few epochs. What is not named here is taken as it is.
FEW_EPOCHS = {"widths": (8,), "epochs": 40, "learning_rate": 0.02}
SMALL: dict[str, dict[str, Any]] = {
    "lambdamart": {
        "n_trees": 10, "n_leaves": 5, "min_data_in_leaf": 3, "n_threads": 1, "folds": 2,
    },
    "linear": {"max_rounds": 4},
    "svm": {"max_rounds": 4},
    "svm-dcg": {"max_rounds": 4, "C": 30.0},
    "neural": FEW_EPOCHS,
    "dual-learning": FEW_EPOCHS,
    "pairwise-trust": {**FEW_EPOCHS, "epochs": 12, "bias": THETA},
    "tower": FEW_EPOCHS,
    "pal": FEW_EPOCHS,
    "feedback-towers": {**FEW_EPOCHS, "towers": {"click": "product"}},
}  # fmt: skip
RANKERS = {
    record.name: partial(record.make, **SMALL.get(record.name, {}))
    for record in catalog.methods("ranker")
}
WITH_A_TABLE = {
    record.name: RANKERS[record.name]
    for record in catalog.methods("ranker")
    if "weighting" in record.takes
}
# Losses that the option of a ranker chooses.
one_sided = partial(PRS, THETA, clip=0.3, clip_of="clicked")
LOSSES = {
    "dcg-bound": lambda: RANKERS["linear"](IPS(THETA), loss="dcg-bound"),
    "listwise": lambda: RANKERS["neural"](IPS(THETA), loss="listwise"),
    "pointwise": lambda: RANKERS["neural"](loss="pointwise", bias=THETA),
    "trust on pairs": lambda: RANKERS["pairwise-trust"](preference="pairs"),
    "linear by document": lambda: RANKERS["linear"](one_sided(), loss="pointwise"),
    "linear by list": lambda: RANKERS["linear"](one_sided(), loss="listwise"),
    "network by list": lambda: RANKERS["neural"](one_sided(), loss="listwise"),
}
OBJECTIVES = {
    record.name: partial(RANKERS["lambdamart"], **record.options, bias=THETA)
    for record in catalog.methods("objective")
}
# Of the tables only those whose weights depend on the clicked position alone.
ROWS_ALONE = {"svm-dcg": ("none", "IPS", "PolicyAware", "DoublyRobust")}
ALONE = {name: make for name, make in RANKERS.items() if name not in WITH_A_TABLE}
MAKERS = {
    f"{name} with {table}": lambda make=make, weighting=weighting: make(weighting())
    for name, make in WITH_A_TABLE.items()
    for table, weighting in WEIGHTINGS.items()
    if table in ROWS_ALONE.get(name, WEIGHTINGS)
} | {**ALONE, **OBJECTIVES, **LOSSES}
# `make test` tries every ranker with one table, every table with trees and with a linear ranker,
# and the one that is learned along, which takes long, with trees alone; `make test-slow` all pairs.
TABLE_OF = {name: tables[1] for name, tables in ROWS_ALONE.items()}  # where it is not PRS


def is_usual(name: str) -> bool:
    """Whether a maker is tried by `make test`."""
    ranker, _, table = name.partition(" with ")
    if not table or ranker == "lambdamart":
        return True
    return table == TABLE_OF.get(ranker, "PRS") or (ranker == "linear" and table != "joint")


PAIRS = [
    pytest.param(make, id=name, marks=[] if is_usual(name) else pytest.mark.slow)
    for name, make in MAKERS.items()
]
# One weighting is enough where weightings play no part.
EACH_ONCE = {
    name: make for name, make in MAKERS.items() if name.split(" with ")[-1] in (name, "PRS")
}
# LightGBM draws bagged rows by their place; without bagging order can play no part.
WHOLE = {"bagging_fraction": 1.0, "feature_fraction": 1.0}


@pytest.fixture(scope="module")
def log():
    """Sixteen queries, six documents each, four of them shown in one of several orders."""
    rng = np.random.default_rng(4)
    n_queries, n_sessions = 16, 20
    features = rng.normal(size=(6 * n_queries, 3)).astype(np.float32)
    relevance = 1 / (1 + np.exp(-2 * features[:, 0] + features[:, 1]))
    slates = [[6 * q + rng.permutation(6)[:4] for _ in range(4)] for q in range(n_queries)]
    query = rng.permutation(np.repeat(np.arange(n_queries), n_sessions))
    document = np.concatenate([slates[q][rng.integers(4)] for q in query])
    position = np.tile([1, 2, 3, 4], len(query))
    return ClickLog(
        query_id=np.arange(n_queries), doc_id=np.arange(6 * n_queries), features=features,
        doc_query=np.repeat(np.arange(n_queries), 6), indptr=4 * np.arange(len(query) + 1),
        query=query, document=document, position=position,
        label=(rng.random(len(document)) < THETA[position - 1] * relevance[document]) * 1.0,
        feature_names=("title match", "age", "noise"),
    )  # fmt: skip


@pytest.fixture(params=PAIRS)
def make(request):
    return request.param


@pytest.fixture(params=EACH_ONCE)
def make_each(request):
    return EACH_ONCE[request.param]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Waking a second thread takes longer than these kernels run."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(before)


@pytest.fixture(scope="module")
def fitted(log):
    """The ranker of a maker fitted on the log, once for all tests that only look at it."""
    cache = {}

    def get(make):
        if make not in cache:
            cache[make] = make().fit(log)
        return cache[make]

    return get


def without_sampling(ranker):
    takes = ranker.get_params()
    return ranker.set_params(**{name: value for name, value in WHOLE.items() if name in takes})


def assert_close(a, b, share):
    """Equal up to a share of the spread of the scores."""
    assert np.abs(a - b).max() <= share * np.ptp(a)


# ---- estimators


def test_fit_returns_itself_and_tells_what_it_learned_from(log, make):
    ranker = make()
    assert isinstance(ranker, Ranker)
    assert ranker.fit(log) is ranker
    assert ranker.feature_names_ == ("title match", "age", "noise")
    assert ranker.summary_["trained_on"] == "clicks"
    assert ranker.summary_["sessions"] == 320
    assert ranker.summary_["queries"] == 16
    scores = ranker.predict(log.features)
    assert scores.shape == (96,)
    assert scores.dtype == np.float64
    assert np.all(np.isfinite(scores))


def test_relevance_is_learned(fitted, make):
    """Relevance rises with the first feature and falls with the second; the third is noise."""
    ranker = fitted(make)
    shares = ranker.feature_importances_
    assert sum(shares.values()) == pytest.approx(1)
    assert max(shares, key=shares.get) == "title match"
    steps = np.linspace(-1.5, 1.5, 9)
    along = [
        np.column_stack([x, y, 0 * steps]) for x, y in ((steps, 0 * steps), (0 * steps, steps))
    ]
    rising, falling = (ranker.predict(rows) for rows in along)
    assert rising[-1] - rising[0] > 0 > falling[-1] - falling[0]


def test_clone_is_unfitted_and_learns_the_same(log, fitted, make):
    ranker = fitted(make)
    fresh = clone(ranker)
    assert not hasattr(fresh, "feature_names_")
    assert repr(fresh) == repr(ranker)
    assert fresh.get_params().keys() == ranker.get_params().keys()
    assert np.array_equal(fresh.fit(log).predict(log.features), ranker.predict(log.features))


def test_same_seed_same_result(log, fitted, make):
    again = make().fit(log).predict(log.features)
    assert np.array_equal(again, fitted(make).predict(log.features))


def test_fitting_twice_is_fitting_once(log, fitted, make_each):
    once = fitted(make_each).predict(log.features)
    twice = make_each().fit(log.take(np.arange(100))).fit(log).predict(log.features)
    assert np.array_equal(once, twice)


def test_inputs_are_untouched(log, make):
    arrays = ("label", "position", "document", "features", "count", "indptr", "query")
    before = {name: getattr(log, name).copy() for name in arrays}
    ranker = make()
    told = repr(ranker)
    rows = log.features.copy()
    ranker.fit(log).predict(rows)
    assert repr(ranker) == told
    assert np.array_equal(rows, log.features)
    for name, array in before.items():
        assert np.array_equal(getattr(log, name), array)


def test_labels_train_a_skyline(make_each):
    judged = make_judged(40, 5, seed=2, mean_docs=8)
    ranker = make_each().fit(judged)
    assert ranker.summary_["trained_on"] == "judged lists"
    scores = ranker.predict(judged.features)
    assert np.corrcoef(scores, judged.labels)[0, 1] > 0.2


# ---- what must not matter


def test_order_of_lists_does_not_matter(log, make, rng):
    expected = without_sampling(make()).fit(log).predict(log.features)
    mixed = log.take(rng.permutation(log.n_lists))
    scores = without_sampling(make()).fit(mixed).predict(log.features)
    assert_close(expected, scores, 1e-5)


def test_counts_equal_repeats(log, make, rng):
    count = rng.integers(1, 4, log.n_lists)
    counted = log.take(np.arange(log.n_lists), count=count)
    repeated = log.take(np.repeat(np.arange(log.n_lists), count))
    expected = without_sampling(make()).fit(repeated).predict(log.features)
    for same in (counted, repeated.collapse()):
        scores = without_sampling(make()).fit(same).predict(log.features)
        assert_close(expected, scores, 1e-5)


@pytest.mark.parametrize("ranker", WITH_A_TABLE.values(), ids=WITH_A_TABLE)
@pytest.mark.parametrize("weighting", [IPS, PNS, PRS])
def test_examination_of_ones_is_naive(log, ranker, weighting):
    if weighting is not IPS and ranker in [WITH_A_TABLE[name] for name in ROWS_ALONE]:
        with pytest.raises(OptionError, match="depend on the other document too"):
            ranker(weighting(THETA)).fit(log)
        return
    naive = ranker(Naive()).fit(log).predict(log.features)
    ones = ranker(weighting(np.ones(4))).fit(log).predict(log.features)
    assert np.array_equal(ranker(None).fit(log).predict(log.features), naive)
    assert_close(naive, ones, 1e-9)
    # And a real curve does change what is learned.
    curve = ranker(weighting(THETA)).fit(log).predict(log.features)
    assert np.abs(curve - naive).max() > 1e-3 * np.ptp(naive)


def test_scores_of_a_row_do_not_depend_on_its_neighbours(log, fitted, make_each):
    ranker = fitted(make_each)
    whole = ranker.predict(log.features)
    single = [ranker.predict(log.features[i : i + 1])[0] for i in range(5)]
    assert single == pytest.approx(whole[:5], rel=1e-12, abs=1e-12)
    assert ranker.predict(np.asfortranarray(log.features.astype(float))) == pytest.approx(whole)
    assert ranker.predict(np.zeros((0, 3))).shape == (0,)


# ---- saved


def test_a_saved_ranker_is_the_same_ranker(log, fitted, make, tmp_path):
    ranker = fitted(make)
    ranker.save(tmp_path / "ranker.untilt")
    again = load(tmp_path / "ranker.untilt")
    assert type(again) is type(ranker)
    assert np.array_equal(again.predict(log.features), ranker.predict(log.features))
    assert again.feature_names_ == ranker.feature_names_
    assert again.summary_ == ranker.summary_
    assert repr(again) == repr(ranker)
    assert np.array_equal(again.trained_on_.query, ranker.trained_on_.query)


def test_a_ranker_remembers_its_queries(log, fitted, make_each):
    known = overlap_of(log, fitted(make_each))
    assert (known.trained, known.same_documents, known.n_queries) == (16, 16, 16)
    others = replace(log, query_id=np.arange(100, 116))
    assert overlap_of(others, fitted(make_each)).trained == 0


def test_features_are_found_by_their_names(log, fitted, make_each):
    ranker = fitted(make_each)
    expected = ranker.predict(log.features)
    columns = {name: log.features[:, j] for j, name in enumerate(log.feature_names)}
    backwards = dict(reversed(columns.items()))
    turned = replace(log, features=log.features[:, ::-1], feature_names=log.feature_names[::-1])
    for table in (pd.DataFrame(backwards), pa.table(backwards), log, turned):
        assert np.array_equal(ranker.predict(table), expected)
    values = [estimate(each, ranker, THETA)["system"].value for each in (log, turned)]
    assert values[0] == values[1]
    with pytest.raises(ColumnError, match="Missing: 'age'"):
        ranker.predict(pd.DataFrame(backwards).drop(columns="age"))
    with pytest.raises(ColumnError, match="Not among them: 'doc_id'"):
        ranker.predict(pd.DataFrame(backwards).assign(doc_id=1))


def test_a_loaded_ranker_has_the_same_card(fitted, make, tmp_path):
    file, cards = tmp_path / "ranker.untilt", (tmp_path / "first.md", tmp_path / "again.md")
    fitted(make).save(file, card=cards[0])
    load(file).save(file, card=cards[1])
    first, again = (each.read_text(encoding="utf-8") for each in cards)
    assert first == again
    assert "title match, age, noise" in first
    assert "| sessions | 320 |" in first  # 16 queries, 20 sessions each


def test_a_saved_ranker_can_be_trained_again(log, fitted, make_each, tmp_path):
    fitted(make_each).save(tmp_path / "ranker.untilt")
    again = clone(load(tmp_path / "ranker.untilt")).fit(log)
    assert np.array_equal(again.predict(log.features), fitted(make_each).predict(log.features))


# ---- errors


def test_unfitted_is_told(log, make_each, tmp_path):
    ranker = make_each()
    message = rf"this {type(ranker).__name__} has not been fitted\. Call fit\(log\) first"
    with pytest.raises(NotFittedError, match=message):
        ranker.predict(log.features)
    with pytest.raises(NotFittedError, match=message):
        ranker.save(tmp_path / "ranker.untilt")
    with pytest.raises(NotFittedError, match=message):
        _ = ranker.feature_importances_
    assert not list(tmp_path.iterdir())


def test_a_missing_feature_is_what_it_was_in_training(log, fitted, make_each, tmp_path):
    """Refused where there was none; else the value that the log got, in a saved ranker too."""
    gaps = log.features.copy()
    gaps[1::2, 0] = np.nan
    with pytest.raises(ShapeError, match="Got nan for feature 'title match' in row 1"):
        fitted(make_each).predict(gaps)
    filled = np.nan_to_num(gaps, nan=0.25)
    ranker = make_each().fit(replace(log, features=filled, missing=0.25))
    ranker.save(tmp_path / "ranker.untilt")
    assert np.array_equal(ranker.predict(gaps), ranker.predict(filled))
    assert np.array_equal(load(tmp_path / "ranker.untilt").predict(gaps), ranker.predict(filled))


def test_wrong_number_of_features_is_told(fitted, make_each):
    ranker = fitted(make_each)
    with pytest.raises(ShapeError, match=r"trained on 3 features\. Got an array of shape \(9, 2\)"):
        ranker.predict(np.zeros((9, 2)))
    with pytest.raises(ShapeError, match=r"Got an array of shape \(3,\)"):
        ranker.predict(np.zeros(3))


def test_a_log_that_nothing_can_be_learned_from_is_told(log, make_each):
    bare = replace(log, features=None, feature_names=())
    with pytest.raises(OptionError, match="this log has no features"):
        make_each().fit(bare)
    with pytest.raises(UntiltError, match="nothing to learn from"):
        make_each().fit(log.with_label(np.zeros(len(log.label))))
    with pytest.raises(OptionError, match=r"Got dict instead"):
        make_each().fit({})


@pytest.mark.parametrize("ranker", WITH_A_TABLE.values(), ids=WITH_A_TABLE)
def test_a_weighting_of_another_type_is_told(log, ranker):
    with pytest.raises(OptionError, match=r"weighting must be a table .* Got \[1, 2\] instead"):
        ranker([1, 2]).fit(log)
