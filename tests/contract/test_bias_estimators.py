"""What holds for every estimator of position bias there is."""

from dataclasses import fields, replace

import numpy as np
import pytest
from sklearn.base import clone

import untilt
from untilt import catalog
from untilt.bias.curve import PositionBias
from untilt.data.clicklog import ClickLog
from untilt.errors import IdentifiabilityError, OptionError
from untilt.facts import codes

DEPTH = 4
# What needs more than a log has its own tests: tests/bias/test_contextual.py, test_labelled.py.
ESTIMATORS = [
    record for record in catalog.methods("bias") if not {"context", "labels"} & {*record.needs}
]
ORDERS = {
    "base": [0, 1, 2, 3, 4],
    "swap:1-2": [1, 0, 2, 3, 4],
    "swap:1-3": [2, 1, 0, 3, 4],
    "swap:1-4": [3, 1, 2, 0, 4],
    "swap:2-3": [0, 2, 1, 3, 4],
    "swap:3-4": [0, 1, 3, 2, 4],
    "shuffle": None,
}


def make_log(n_sessions=4000, n_queries=25, seed=0):
    """Base lists, pivot swaps, adjacent swaps and shuffles: a log that suits every estimator.

    Features tell the relevance, up to noise.
    """
    rng = np.random.default_rng(seed)
    relevance = rng.uniform(0.1, 0.9, size=(n_queries, 5))
    names = tuple(ORDERS)
    query = rng.integers(n_queries, size=n_sessions)
    ranker = rng.integers(len(names), size=n_sessions)
    order = np.array(
        [rng.permutation(5) if ORDERS[names[r]] is None else ORDERS[names[r]] for r in ranker]
    )[:, :DEPTH]
    theta = np.array([1.0, 0.7, 0.5, 0.4])
    clicks = rng.random((n_sessions, DEPTH)) < theta * relevance[query[:, None], order]
    noise = rng.normal(scale=0.1, size=(n_queries * 5, 2))
    return ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.tile(np.arange(5), n_queries),
        doc_query=np.repeat(np.arange(n_queries), 5),
        features=relevance.reshape(-1, 1) + noise,
        indptr=np.arange(0, DEPTH * n_sessions + 1, DEPTH),
        query=query,
        document=(query[:, None] * 5 + order).ravel(),
        position=np.tile(np.arange(1, DEPTH + 1), n_sessions),
        label=clicks.ravel().astype(float),
        ranker=ranker,
        ranker_names=names,
    )


LOG = make_log()
# Where the defaults are for real logs: settings that are quick on this one.
SMALL = {"DualLearning": {"widths": (8,), "epochs": 20, "learning_rate": 0.02}}


def small(estimator, **options):
    return estimator(**SMALL.get(estimator.__name__, {}), **options)


@pytest.fixture(params=ESTIMATORS, ids=lambda record: record.name)
def estimator(request):
    return request.param.load()


def same(one: PositionBias, two: PositionBias, rel=1e-9):
    assert one.method == two.method
    for field in fields(one):
        first, second = getattr(one, field.name), getattr(two, field.name)
        if isinstance(first, np.ndarray):
            assert second == pytest.approx(first, rel=rel, abs=1e-12), field.name


def test_it_is_a_public_name(estimator):
    assert getattr(untilt, estimator.__name__) is estimator


def test_fit_returns_itself_with_a_curve_of_the_whole_depth(estimator):
    made = small(estimator)
    assert made.fit(LOG) is made
    bias = made.bias_
    assert isinstance(bias, PositionBias)
    assert bias.depth == DEPTH
    assert bias.examination[0] == pytest.approx(1)
    assert bias.relative
    assert bias.assumes
    assert bias.status != "given"
    assert estimator.__name__ in bias.method


def test_it_carries_its_doubt(estimator):
    bias = small(estimator).fit(LOG).bias_
    assert not bias.is_known
    if not bias.has_interval:
        assert any(code.startswith("bias.no-interval") for code in codes(bias.status))
        return
    assert np.all(bias.std_error[1:] > 0)
    assert np.all(bias.std_error[1:] < 0.5)
    assert np.all((bias.low <= bias.examination) & (bias.examination <= bias.high))


def test_the_constructor_only_stores(estimator):
    made = estimator()
    parameters = list(made.get_params(deep=False))
    assert set(vars(made)) == set(parameters)
    marked = {name: object() for name in parameters}
    assert vars(estimator(**marked)) == marked


def test_clone(estimator):
    first = small(estimator, level=0.8).fit(LOG)
    copy = clone(first)
    assert copy.get_params() == first.get_params()
    assert not hasattr(copy, "bias_")
    same(copy.fit(LOG).bias_, first.bias_)


def test_level_is_that_of_the_intervals(estimator):
    narrow, wide = (
        small(estimator, level=0.5).fit(LOG).bias_,
        small(estimator, level=0.99).fit(LOG).bias_,
    )
    assert narrow.level == 0.5
    if narrow.has_interval:
        assert np.all(narrow.high[1:] < wide.high[1:])
        assert np.all(narrow.low[1:] > wide.low[1:])
    with pytest.raises(OptionError, match="level must lie between 0 and 1"):
        small(estimator, level=2).fit(LOG)


def test_the_same_twice(estimator):
    same(small(estimator).fit(LOG).bias_, small(estimator).fit(LOG).bias_, rel=0)


def test_counts_are_repeats(estimator):
    counted = LOG.collapse()
    assert counted.n_lists < LOG.n_lists
    same(small(estimator).fit(counted).bias_, small(estimator).fit(LOG).bias_)


def test_twice_the_sessions_same_curve_less_doubt(estimator):
    believed = small(estimator)
    if "check" in believed.get_params():  # every session twice is no random order, and is found
        believed.set_params(check=False)
    once = small(estimator).fit(LOG).bias_
    twice = believed.fit(LOG.take(np.arange(LOG.n_lists), count=2 * LOG.sessions)).bias_
    assert twice.examination == pytest.approx(once.examination, rel=1e-3)
    if once.has_interval:
        # Errors from the spread of queries stay as they are, to where EM stops.
        assert np.all(twice.std_error <= once.std_error * (1 + 1e-4) + 1e-12)


def test_the_order_of_lists_does_not_matter(estimator, rng):
    mixed = LOG.take(rng.permutation(LOG.n_lists))
    same(small(estimator).fit(mixed).bias_, small(estimator).fit(LOG).bias_)


def test_names_of_queries_and_documents_do_not_matter(estimator):
    renamed = replace(
        LOG,
        query_id=np.array([f"query {i}" for i in LOG.query_id]),
        doc_id=np.array([f"document {i}" for i in LOG.doc_id]),
    )
    same(small(estimator).fit(renamed).bias_, small(estimator).fit(LOG).bias_)


def test_the_log_is_left_as_it_was(estimator):
    before = {
        field.name: np.array(getattr(LOG, field.name))
        for field in fields(LOG)
        if isinstance(getattr(LOG, field.name), np.ndarray)
    }
    small(estimator).fit(LOG)
    for name, values in before.items():
        assert np.array_equal(getattr(LOG, name), values), name


def test_save_and_load(estimator, tmp_path):
    bias = small(estimator).fit(LOG).bias_
    bias.save(tmp_path / "bias.json")
    same(PositionBias.load(tmp_path / "bias.json"), bias, rel=0)


def test_it_can_be_compared_shaped_and_drawn(estimator):
    bias = small(estimator).fit(LOG).bias_
    if bias.has_interval:
        assert bias.compare(bias).p_value == pytest.approx(1)
    assert bias.plot().to_dict()["data"]["values"]
    if not bias.has_trust:
        assert np.all(np.diff(bias.smooth().examination) <= 1e-12)
        assert (bias.fit_power_law().eta_std_error is not None) == bias.has_interval


def test_only_clicks(estimator):
    dwell = LOG.with_label(LOG.label * 2.5)
    with pytest.raises(OptionError, match=rf"{estimator.__name__} needs clicks, 0 or 1"):
        small(estimator).fit(dwell)


def test_only_click_logs(estimator):
    # One that is a ranker too could take features with their labels.
    said = r"needs a ClickLog\. Got ndarray instead|features need the label and the query"
    with pytest.raises(OptionError, match=said):
        small(estimator).fit(np.zeros(3))


def test_nobody_clicked(estimator):
    with pytest.raises(IdentifiabilityError, match="has no clicks"):
        small(estimator).fit(LOG.with_label(np.zeros(len(LOG.label))))


def test_repr_shows_what_was_set(estimator):
    assert repr(estimator(level=0.8)) == f"{estimator.__name__}(level=0.8)"


def test_features_of_each_impression_change_nothing(estimator, with_versions):
    """Relevance belongs to the document: a price that never repeats must not hide that."""
    if estimator.__name__ == "DualLearning":
        pytest.skip("learns relevance from features alone")
    plain = replace(LOG, features=None, feature_names=())
    changing = with_versions(plain)
    assert changing.n_documents == len(plain.document)
    options = {"relevance": "counts"} if "relevance" in estimator().get_params() else {}
    want, made = estimator(**options).fit(plain), estimator(**options).fit(changing)
    for field in fields(want.bias_):
        value = getattr(want.bias_, field.name)
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(made.bias_, field.name), value, field.name)
    if options:
        np.testing.assert_array_equal(made.relevance_, want.relevance_[changing.item])
