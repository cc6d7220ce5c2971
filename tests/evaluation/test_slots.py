"""A list has slots: the same order is worth exactly the same, whatever gaps a log has."""

import itertools
from typing import Any

import numpy as np
import pytest

import untilt as ut
from untilt import catalog
from untilt.bias.curve import PositionBias
from untilt.data.clicklog import ClickLog
from untilt.data.limits import DroppedRowsWarning
from untilt.errors import OptionError

EVALUATORS = [each.name for each in catalog.methods("evaluator") if "propensity" not in each.needs]
DEPTH = 14
THETA = 1 / np.arange(1, DEPTH + 1) ** 0.8
BIAS = PositionBias(
    THETA,
    covariance=np.diag(np.where(np.arange(DEPTH) > 0, 1e-4, 0.0)) + 1e-5,
    eps_plus=np.full(DEPTH, 0.95),
    eps_minus=0.3 / np.arange(1, DEPTH + 1),
)
METRICS = ["dcg@10", "precision@3", "arp", "reciprocal"]


def gappy_log(seed: int, *, same_documents: bool = False, n_queries: int = 25) -> ClickLog:
    """Lists in one order per query, with advertisements, lost rows, counts and several rankers.

    Documents are shuffled in the table, so that their index says nothing about their place.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 9, n_queries)
    first = np.concatenate([[0], np.cumsum(sizes)])
    lists = []
    for q in rng.integers(0, n_queries, 150):
        order = np.arange(sizes[q])
        slots = np.sort(rng.permutation(DEPTH)[: sizes[q]]) + 1
        if not same_documents:
            keep = rng.random(sizes[q]) < 0.7
            keep[rng.integers(sizes[q])] = True
            order, slots = order[keep], slots[keep]
        lists.append((q, first[q] + order, slots))
    number = np.concatenate([first[q] + rng.permutation(sizes[q]) for q in range(n_queries)])
    lengths = [len(slots) for _, _, slots in lists]
    return ClickLog(
        query_id=np.arange(n_queries), doc_id=np.arange(first[-1]),
        doc_query=np.repeat(np.arange(n_queries), sizes),
        indptr=np.concatenate([[0], np.cumsum(lengths)]), query=[q for q, _, _ in lists],
        document=number[np.concatenate([docs for _, docs, _ in lists])],
        position=np.concatenate([slots for _, _, slots in lists]),
        label=(rng.random(sum(lengths)) < 0.4).astype(float), count=rng.integers(1, 4, 150),
        features=-np.argsort(number)[:, None], ranker=rng.integers(0, 3, 150),
        ranker_names=("one", "two", "shuffle"),
    )  # fmt: skip


def logged_order(log: ClickLog) -> Any:
    """Scores that give the logged order: minus the place in its query."""
    assert log.features is not None
    return log.features[:, 0].astype(float)


def assert_identical(difference: Any) -> None:
    assert difference.value == 0.0
    assert difference.std_error == 0.0
    assert (difference.interval.low, difference.interval.high) == (0.0, 0.0)
    assert difference.p_value == difference.corrected_p == 1.0
    assert not difference.decided
    assert difference.identical


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("among", "same_documents"),
    [("list", False), ("list", True), ("shown", True), ("candidates", True)],
)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_the_same_order_differs_by_exactly_zero(evaluator, metric, among, same_documents, seed):
    log = gappy_log(seed, same_documents=same_documents)
    rng = np.random.default_rng(seed)
    systems = {
        "other": rng.normal(size=log.n_documents),
        "shown": ut.shown,
        "ties": rng.integers(0, 2, log.n_documents).astype(float),
        "same": logged_order(log),
    }
    interval: Any = "bootstrap" if seed else "normal"
    found = ut.estimate(
        log, systems, BIAS, metric=metric, evaluator=evaluator, among=among, interval=interval,
        n_draws=50,
    )  # fmt: skip
    comparison = found.compare("shown")
    assert_identical(comparison["same"])
    assert comparison["other"].value != 0
    same, shown = found["same"], found["shown"]
    assert (same.value, same.std_error, same.bias_error) == (
        shown.value, shown.std_error, shown.bias_error,
    )  # fmt: skip
    assert same.interval == shown.interval
    assert found.compare("same")["ties"].value == comparison["ties"].value
    assert "identical" in repr(comparison)


@pytest.mark.parametrize("evaluator", ["clipped", "policy-aware"])
@pytest.mark.parametrize("among", ["list", "shown", "candidates"])
def test_the_clip_curve_of_the_same_order_is_that_of_the_logged_one(evaluator, among):
    log = gappy_log(3, same_documents=among != "list")
    one, two = (
        ut.clip_curve(log, each, BIAS, evaluator=evaluator, among=among)
        for each in (ut.shown, logged_order(log))
    )
    for name in ("clip", "value", "std_error", "low", "high", "bias", "mse"):
        assert getattr(one, name).tolist() == getattr(two, name).tolist(), name


class Fixed:
    """A candidate that multiplies the first feature: the logged order, or its reverse."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def get_params(self, deep: bool = True) -> dict[str, float]:
        return {"factor": self.factor}

    def set_params(self, **params: float) -> "Fixed":
        self.factor = params.get("factor", self.factor)
        return self

    def fit(self, data: Any) -> "Fixed":
        return self

    def predict(self, features: Any) -> Any:
        return self.factor * features[:, 0]


def test_select_finds_no_difference_between_equal_orders():
    log = gappy_log(4)
    found = ut.select(
        {"one": Fixed(1.0), "two": Fixed(2.5), "back": Fixed(-1.0)}, train=log, valid=log, bias=BIAS
    )
    assert found.estimates["one"].value == found.estimates["two"].value
    assert_identical(found.estimates.compare("one")["two"])


def test_one_query_alone_cannot_make_a_difference_of_nothing():
    log = gappy_log(5)
    alone = log.take(log.query == log.query[0])
    found = ut.estimate(alone, {"shown": ut.shown, "same": logged_order(log)}, BIAS)
    assert_identical(found.compare("shown")["same"])


def test_leaving_documents_out_is_no_gain_under_a_cost():
    """Among all documents of the query a page of one slot: what is off the page costs slot 3."""
    log = ClickLog(
        query_id=[0], doc_id=[0, 1], doc_query=[0, 0], indptr=[0, 1, 2], query=[0, 0],
        document=[0, 1], position=[1, 1], label=[1.0, 1.0],
    )  # fmt: skip
    options: dict[str, Any] = {"metric": "arp", "among": "shown"}
    found = ut.estimate(log, {"shown": ut.shown, "new": [1.0, 0.0]}, [1.0], **options)
    # Each document in half of the sessions: rho is 1/2, relevance 1; at slot 1 or at slot 3.
    assert found["shown"].value == found["new"].value == 1 + 3


# ---- exact expectations: every pattern of clicks


@pytest.mark.parametrize("evaluator", ["ips", "affine", "policy-aware", "doubly-robust"])
def test_estimates_are_unbiased_with_gaps_and_experiments_by_enumeration(evaluator):
    """Production shows (0, 1, 2) at 1, 3, 4; a swap shows (1, 0) at 1, 3; another list is (2, 0).

    The truth is over production's lists, in their slots, whatever the experiment showed.
    """
    theta, gamma = np.array([1.0, 0.6, 0.5, 0.25]), np.array([0.3, 0.9, 0.5])
    rows = [[(0, 1), (1, 3), (2, 4)], [(2, 2), (0, 3)], [(1, 1), (0, 3)]]
    ranker, scores = [0, 0, 1], np.array([0.0, 2.0, 1.0])
    lam = 1 / np.log2(1 + np.arange(1, 5))
    # New order of the first list: 1, 2, 0 in slots 1, 3, 4; of the second: 2, 0 in slots 2, 3.
    truth = lam[0] * 0.9 + lam[2] * 0.5 + lam[3] * 0.3 + lam[1] * 0.5 + lam[2] * 0.3
    shown = lam[0] * 0.3 + lam[2] * 0.9 + lam[3] * 0.5 + lam[1] * 0.5 + lam[2] * 0.3
    flat = [row for each in rows for row in each]
    chance = np.array([theta[k - 1] * gamma[d] for d, k in flat])
    expected = {"new": 0.0, "shown": 0.0}
    for clicks in itertools.product([False, True], repeat=len(flat)):
        log = ClickLog(
            query_id=[0], doc_id=[0, 1, 2], doc_query=[0, 0, 0], indptr=[0, 3, 5, 7],
            query=[0, 0, 0], document=[d for d, _ in flat], position=[k for _, k in flat],
            label=np.array(clicks, float), ranker=ranker, ranker_names=("base", "swap:1-3"),
        )  # fmt: skip
        options: dict[str, Any] = {}
        if evaluator == "doubly-robust":
            options["relevance"] = np.array([0.1, 0.2, 0.3])
        found = ut.estimate(
            log, {"new": scores, "shown": ut.shown}, theta, metric="dcg", evaluator=evaluator,
            **options,
        )  # fmt: skip
        for name in expected:
            expected[name] += np.prod(np.where(clicks, chance, 1 - chance)) * found[name].value
    assert expected["new"] == pytest.approx(truth / 2)
    assert expected["shown"] == pytest.approx(shown / 2)


# ---- which sessions are the baseline


def test_the_baseline_is_production_and_can_be_named():
    log = gappy_log(6)
    by_default = ut.estimate(log, ut.shown, BIAS)
    assert by_default.baseline.code == "estimate.baseline-rankers"
    assert tuple(by_default.baseline.fields["rankers"]) == ("one", "two")
    assert log.ranker is not None
    production = int(log.sessions[log.ranker != 2].sum())
    assert by_default.baseline.fields["n_sessions"] == production == by_default.best.n_sessions
    assert by_default.baseline.fields["of"] == log.n_sessions
    for baseline in ("one,two", "ranker=one,two", ["one", "two"]):
        named = ut.estimate(log, ut.shown, BIAS, baseline=baseline)
        assert named.best.value == by_default.best.value
    only = ut.estimate(log, ut.shown, BIAS, baseline="ranker=shuffle")
    assert only.best.n_sessions == log.n_sessions - production
    assert only.baseline.code == "estimate.baseline-experiments"
    with pytest.raises(OptionError, match="Did you mean 'one'"):
        ut.estimate(log, ut.shown, BIAS, baseline="ones")


def test_without_production_all_sessions_are_the_baseline():
    log = gappy_log(7)
    assert log.ranker is not None
    shuffled = log.take(log.ranker == 2)
    found = ut.estimate(shuffled, ut.shown, BIAS)
    assert found.baseline.code == "estimate.baseline-experiments"
    assert found.baseline.severity == "warning"
    assert found.best.n_sessions == shuffled.n_sessions
    plain = ut.simulate(ut.make_judged(n_queries=20, seed=0), n_sessions=200, seed=0).log
    found = ut.estimate(plain, ut.shown, ut.PowerLaw(1.0))
    assert found.baseline.fields["n_sessions"] == 200


def test_experiments_tell_of_documents_but_are_no_traffic():
    """Clicks of an experiment change pooled values only; queries without production drop out."""
    log = gappy_log(8)
    assert log.ranker is not None
    production = log.take(log.ranker != 2)
    for evaluator in EVALUATORS:
        options: dict[str, Any] = {"evaluator": evaluator}
        both = ut.estimate(log, ut.shown, BIAS, **options).best
        alone = ut.estimate(production, ut.shown, BIAS, **options).best
        assert both.n_sessions == alone.n_sessions
        assert both.n_queries == alone.n_queries
        pools = catalog.find("evaluator", evaluator).load().pools_documents
        assert (both.value == pytest.approx(alone.value, rel=1e-12)) is not pools, evaluator


# ---- the logs on which the same order looked better


def frame(rng, n_sessions, *, places=10, positions=None, relevance=None, order=None) -> dict:
    """Columns of a log: 40 queries, one list each, clicks by a power law and relevance."""
    positions = np.arange(1, places + 1) if positions is None else np.asarray(positions)
    query = rng.integers(0, 40, n_sessions)
    gamma = np.full((40, places), 0.5) if relevance is None else relevance
    which = np.tile(np.arange(places), (n_sessions, 1)) if order is None else order
    chance = gamma[query[:, None], which] / positions
    return {
        "query_id": np.repeat(query, places),
        "session_id": np.repeat(np.arange(n_sessions), places),
        "doc_id": which.ravel(),
        "position": np.tile(positions, n_sessions),
        "click": (rng.random((n_sessions, places)) < chance).ravel().astype(int),
    }


def by_document(log: ClickLog) -> Any:
    """The logged order of `frame`: documents are numbered by their place."""
    return -np.asarray(log.doc_id, dtype=float)


def test_an_advertisement_in_the_list_makes_nothing_better():
    """An advertisement at 3, all documents equally relevant: keeping the order gains nothing."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = frame(rng, 4000, places=9, positions=[1, 2, *range(4, 11)])
    log = ut.read_log(pandas.DataFrame(table))
    systems = {
        "shown": ut.shown,
        "same": by_document(log),
        "other": rng.normal(size=log.n_documents),
    }
    for evaluator in EVALUATORS:
        found = ut.estimate(log, systems, ut.PowerLaw(1.0), evaluator=evaluator).compare("shown")
        assert_identical(found["same"])
        if "bias" in catalog.find("evaluator", evaluator).needs:
            # Any order is as good: what is left is noise, not the gap.
            assert not found["other"].decided, evaluator


def test_lost_rows_make_nothing_better():
    """One in twenty rows without a click column, dropped on reading."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    table = pandas.DataFrame(frame(rng, 3000, relevance=rng.random((40, 10))))
    table["click"] = table["click"].astype(float)
    table.loc[rng.random(len(table)) < 0.05, "click"] = np.nan
    with pytest.warns(DroppedRowsWarning):
        log = ut.read_log(table, on_bad="drop")
    assert log.n_impressions < 0.97 * 30_000
    systems = {"shown": ut.shown, "same": by_document(log)}
    for evaluator in EVALUATORS:
        found = ut.estimate(log, systems, ut.PowerLaw(1.0), evaluator=evaluator)
        assert_identical(found.compare("shown")["same"])


def test_shuffled_sessions_are_not_the_order_to_beat():
    """One session in five is shuffled: production unchanged gains nothing over production."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    relevance = -np.sort(-rng.random((40, 10)), axis=1)
    order = np.tile(np.arange(10), (4000, 1))
    shuffled = rng.random(4000) < 0.2
    order[shuffled] = rng.permuted(order[shuffled], axis=1)
    table = pandas.DataFrame(frame(rng, 4000, relevance=relevance, order=order))
    table["ranker"] = np.repeat(np.where(shuffled, "shuffle", "production"), 10)
    log = ut.read_log(table)
    systems = {"shown": ut.shown, "production": by_document(log)}
    for evaluator in EVALUATORS:
        found = ut.estimate(log, systems, ut.PowerLaw(1.0), evaluator=evaluator)
        assert_identical(found.compare("shown")["production"])
        assert found.baseline.fields["n_sessions"] == int((~shuffled).sum())
    everything = ut.estimate(
        log, systems, ut.PowerLaw(1.0), baseline=["production", "shuffle"]
    ).compare("shown")["production"]
    assert everything.decided  # against a mix with shuffles it would look better, as it should
    assert everything.value > 0


def test_hotel_searches_with_gaps_keep_their_order(data_dir):
    """Real searches that nearly all skip a position: minus the position is the logged order."""
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(data_dir / "expedia-sample" / "searches.csv.gz")
    names = {"query_id": "srch_id", "session_id": "srch_id", "doc_id": "prop_id",
             "click": "click_bool"}  # fmt: skip
    log = ut.read_log(table, columns=names)
    lengths = np.diff(log.indptr)
    lowest = log.position[log.indptr[1:] - 1]
    assert np.mean(lowest > lengths) > 0.9  # a gap in nearly every list
    scores = np.empty(log.n_documents)
    scores[log.document] = -log.position
    ways: list[Any] = ["list", "shown"]
    for evaluator, among in itertools.product(EVALUATORS, ways):
        found = ut.estimate(
            log, {"shown": ut.shown, "same": scores}, ut.PowerLaw(0.5), evaluator=evaluator,
            among=among,
        )  # fmt: skip
        assert_identical(found.compare("shown")["same"])
