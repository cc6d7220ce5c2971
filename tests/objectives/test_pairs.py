"""The pair kernel equals the sum over plain sessions, one after the other."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from untilt import IPS, PRS, AffineIPS, Balanced, KnownBias, Naive, catalog
from untilt._core import threads
from untilt.data.slates import Slates
from untilt.errors import OptionError
from untilt.objectives.pair_slates import sum_pairs
from untilt.objectives.pairs import MapObjective, PairObjective
from untilt.rankers.learning_data import pair_slates, training_lists
from untilt.weighting import SessionWeighting
from untilt.workflow.candidates import weighting_of

# Every weighting as something that takes a bias; one with eps+ and eps- suits them all.
WEIGHTINGS = {
    record.name: partial(weighting_of, record)
    for record in catalog.methods("weighting")
    if not issubclass(record.load(), SessionWeighting)
} | {"prs without a clip": partial(PRS, clip=np.inf)}
METRICS = ("none", "dcg", "ndcg", "arp", "map")
QUERIES, DOCUMENTS, DEPTH = 4, 40, 9
TOLERANCE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}


def a_bias(depth=DEPTH, noise=0.0):
    """No two positions alike; with noise, trust bias that falls with the position."""
    k = np.arange(1, depth + 1)
    return KnownBias(k**-0.7, eps_plus=1 - 0.3 * noise / k, eps_minus=noise * 0.4 / k)


def a_label(rng, n, kind):
    if kind == "click":
        return rng.integers(0, 2, n).astype(float)
    if kind == "graded":
        return rng.integers(0, 4, n).astype(float)
    return np.where(rng.random(n) < 0.5, rng.exponential(size=n), 0.0)


def make_sessions(rng, often=5, label="click"):
    """Several orders of the same documents, gaps between positions, lists of 1 to 6, repeats.

    Half of the slates are shown often and keep summed pairs, the others once and keep labels.
    """
    sessions = []
    for query in range(QUERIES):
        documents = np.arange(query, DOCUMENTS, QUERIES)[:7]
        for length, times in [(1, often), (2, often), (6, often), (2, 1), (4, 1), (6, 1)]:
            shown, places = rng.permutation(documents)[:length], rng.permutation(DEPTH)[:length]
            for _ in range(times):
                alike = (shown, np.sort(places), a_label(rng, length, label))
                sessions += [alike] * int(rng.integers(1, 4))
    return sessions


def make_scores(rng, n=DOCUMENTS):
    """One decimal: plenty of ties."""
    return np.round(rng.normal(size=n), 1)


def objective_of(log, weighting, *, metric, gain="linear", query_weight="sessions", **options):
    """(objective, rows): as rankers build it; rows are the documents behind the training rows."""
    slates = pair_slates(
        training_lists(log),
        weighting,
        metric=metric,
        gain=gain,
        query_weight=query_weight,
        truncation=options.get("truncation"),
    )
    if metric == "map":
        return MapObjective(slates, **options), np.unique(log.document)
    return PairObjective(slates, metric=metric, **options), np.unique(log.document)


def session_weight(log):
    """Rankers scale the weights so that an average query weighs 1."""
    return len(np.unique(log.query)) / log.n_sessions


def assert_same(found, expected, rows, *, S=True):
    assert_allclose(found.gradient, expected.gradient[rows], **TOLERANCE)
    assert_allclose(found.hessian, expected.hessian[rows], **TOLERANCE)
    assert_allclose(found.loss, expected.loss, **TOLERANCE)
    if S:
        deep = len(found.S)
        assert_allclose(found.S, expected.S[:deep, :deep], **TOLERANCE)


def with_and_without_loss(objective, scores, W):
    """The whole pass. Boosting asks for gradients alone, which lists with labels get faster."""
    found = objective.evaluate(scores, W, want_loss=True)
    alone = objective.evaluate(scores, W)
    assert_allclose(alone.gradient, found.gradient, **TOLERANCE)
    assert_allclose(alone.hessian, found.hessian, **TOLERANCE)
    return SimpleNamespace(**vars(found), S=objective.losses_by_position(scores))


def twin_options(weighting, **options):
    return {
        "against": weighting.against,
        "per_session_norm": weighting.per_session_norm,
        **options,
    }


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("make", WEIGHTINGS.values(), ids=WEIGHTINGS)
def test_collapsed_equals_the_sum_over_sessions(rng, slow_twin, as_log, make, metric, loss):
    sessions, scores = make_sessions(rng), make_scores(rng)
    log = as_log(sessions, DOCUMENTS, QUERIES, rng)
    weighting = make(a_bias())
    W = weighting.table(DEPTH)
    objective, rows = objective_of(log, weighting, metric=metric, loss=loss, sigma=1.7)
    expected = slow_twin(
        sessions, scores, W, metric=metric, loss=loss, sigma=1.7,
        session_weight=session_weight(log), **twin_options(weighting),
    )  # fmt: skip
    found = with_and_without_loss(objective, scores[rows], W)
    assert_same(found, expected, rows)
    fixed = objective.with_table(W).evaluate(scores[rows], want_loss=True)
    assert_same(fixed, expected, rows, S=False)


def test_the_log_has_summed_pairs_and_labels_side_by_side(rng, as_log):
    """Or the tests of this file would say nothing about one of the two."""
    log = as_log(make_sessions(rng), DOCUMENTS, QUERIES, rng)
    objective, _ = objective_of(log, Naive(), metric="none")
    packed = objective.slates.start >= 0
    assert packed.sum() >= 4
    assert (~packed).sum() >= 4
    assert log.n_lists > objective.slates.n_slates
    assert 1 in np.diff(objective.slates.indptr)


@pytest.mark.parametrize("gain", ["linear", "exponential", "plain"])
@pytest.mark.parametrize("label", ["graded", "continuous"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("against", ["unclicked", "all"])
def test_graded_and_continuous_labels(rng, slow_twin, as_log, against, metric, label, gain):
    sessions, scores = make_sessions(rng, label=label), make_scores(rng)
    log = as_log(sessions, DOCUMENTS, QUERIES, rng)
    weighting = IPS(a_bias(), clip=0.3, against=against)
    W = weighting.table(DEPTH)
    objective, rows = objective_of(log, weighting, metric=metric, gain=gain)
    found = with_and_without_loss(objective, scores[rows], W)
    expected = slow_twin(
        sessions, scores, W, metric=metric, gain=gain, session_weight=session_weight(log),
        **twin_options(weighting),
    )  # fmt: skip
    assert_same(found, expected, rows)


@pytest.mark.parametrize("truncation", [None, 1, 3])
@pytest.mark.parametrize("pair_norm", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("metric", METRICS)
def test_pair_norm_and_truncation(rng, slow_twin, as_log, metric, loss, pair_norm, truncation):
    sessions, scores = make_sessions(rng, label="graded"), make_scores(rng)
    log = as_log(sessions, DOCUMENTS, QUERIES, rng)
    weighting = PRS(a_bias())
    W = weighting.table(DEPTH)
    options = {"loss": loss, "pair_norm": pair_norm, "truncation": truncation, "sigma": 0.8}
    objective, rows = objective_of(log, weighting, metric=metric, **options)
    found = with_and_without_loss(objective, scores[rows], W)
    expected = slow_twin(
        sessions, scores, W, metric=metric, session_weight=session_weight(log), **options
    )
    assert_same(found, expected, rows)


@pytest.mark.parametrize("make", [Balanced, AffineIPS])
@pytest.mark.parametrize("metric", ["none", "dcg", "ndcg", "arp"])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_an_affine_correction_equals_the_sum_over_sessions(
    rng, slow_twin, as_log, loss, metric, make
):
    sessions, scores = make_sessions(rng), make_scores(rng)
    log = as_log(sessions, DOCUMENTS, QUERIES, rng)
    weighting = make(a_bias(noise=1.0))
    W, offset = weighting.table(DEPTH), weighting.offset(DEPTH)
    assert offset is not None
    objective, rows = objective_of(log, weighting, metric=metric, loss=loss)
    assert np.all(objective.slates.start >= 0), "an offset reaches summed pairs only"
    found = objective.with_table(W, offset).evaluate(scores[rows], want_loss=True)
    expected = slow_twin(
        sessions, scores, W, metric=metric, loss=loss, offset=offset,
        session_weight=session_weight(log), **twin_options(weighting),
    )  # fmt: skip
    assert_same(found, expected, rows, S=False)
    assert_allclose(objective.losses_by_position(scores[rows]), expected.S, **TOLERANCE)
    by_query = np.zeros_like(expected.S)
    for shown, S in objective.losses_by_query(scores[rows], at_once=2):
        assert len(S) <= 2
        by_query[np.ix_(shown, shown)] += S.sum(axis=0)
    assert_allclose(by_query, expected.S, **TOLERANCE)


@pytest.mark.parametrize(
    ("metric", "loss", "times"),
    [(metric, loss, 1) for metric in METRICS for loss in ("logistic", "hinge")]
    + [("none", "hinge", 30), ("ndcg", "logistic", 30)],
)
def test_long_lists_with_ties(rng, slow_twin, as_log, metric, loss, times):
    """300 documents: ranks by sorting instead of counting; summed pairs where shown 30 times."""
    documents, places = rng.permutation(300), np.arange(300)
    sessions = [(documents, places, 1.0 * (rng.random(300) < 0.05)) for _ in range(times)]
    scores = make_scores(rng, 300)
    log = as_log(sessions, 300, 1)
    weighting = PRS(a_bias(300))
    W = weighting.table(300)
    objective, rows = objective_of(log, weighting, metric=metric, loss=loss)
    assert np.all(objective.slates.start >= 0) == (times == 30)
    found = with_and_without_loss(objective, scores[rows], W)
    expected = slow_twin(sessions, scores, W, metric=metric, loss=loss, session_weight=1 / times)
    assert_same(found, expected, rows)


@pytest.mark.parametrize("query_weight", ["sessions", "sqrt", "equal"])
def test_queries_weigh_as_asked(rng, slow_twin, as_log, query_weight):
    """A session weighs 1/traffic^power of its query; on the whole, an average query weighs 1."""
    sessions, scores = make_sessions(rng), make_scores(rng)
    log = as_log(sessions, DOCUMENTS, QUERIES, rng)
    objective, rows = objective_of(log, Naive(), metric="ndcg", query_weight=query_weight)
    found = objective.evaluate(scores[rows], want_loss=True)
    power = {"sessions": 0.0, "sqrt": 0.5, "equal": 1.0}[query_weight]
    of_query = [[s for s in sessions if s[0][0] % QUERIES == q] for q in range(QUERIES)]
    total = sum(len(own) ** (1 - power) for own in of_query) / QUERIES
    expected = sum(
        slow_twin(own, scores, np.ones((DEPTH, DEPTH)), metric="ndcg",
                  session_weight=len(own) ** -power / total).gradient
        for own in of_query
    )  # fmt: skip
    assert_allclose(found.gradient, expected[rows], **TOLERANCE)


@pytest.mark.parametrize("metric", METRICS)
def test_counts_equal_repeated_sessions(rng, as_log, metric):
    sessions, scores = make_sessions(rng), make_scores(rng)
    counted = as_log(sessions, DOCUMENTS, QUERIES)
    again = np.repeat(np.arange(counted.n_lists), counted.sessions)
    repeated = counted.take(again, count=np.ones(len(again), dtype=np.int64))
    assert counted.n_lists < repeated.n_lists == counted.n_sessions
    passes = []
    for log in (counted, repeated):
        objective, rows = objective_of(log, PRS(a_bias()), metric=metric)
        W = PRS(a_bias()).table(DEPTH)
        passes.append(objective.evaluate(scores[rows], W, want_loss=True))
    assert_allclose(passes[0].gradient, passes[1].gradient, **TOLERANCE)
    assert_allclose(passes[0].loss, passes[1].loss, **TOLERANCE)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("metric", METRICS)
def test_gradients_are_finite_differences_of_the_loss(rng, as_log, metric, loss):
    """|dZ| is fixed between changes of rank, so this holds for lambdas too where nothing ties."""
    log = as_log(make_sessions(rng, often=2, label="graded"), DOCUMENTS, QUERIES, rng)
    W = PRS(a_bias()).table(DEPTH)
    objective, rows = objective_of(log, PRS(a_bias()), metric=metric, loss=loss, sigma=1.3)
    scores = rng.normal(size=len(rows))

    def at(step):
        return objective.evaluate(scores + step, W, want_loss=True)

    here, h = at(0), 1e-5
    for row in range(len(rows)):
        step = np.zeros(len(rows))
        step[row] = h
        more, less = at(step), at(-step)
        assert here.gradient[row] == pytest.approx((more.loss - less.loss) / (2 * h), abs=1e-8)
        curve = (more.gradient[row] - less.gradient[row]) / (2 * h)
        assert here.hessian[row] == pytest.approx(curve, abs=1e-8)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_S_adds_up_to_the_unweighted_loss_and_with_the_table_to_the_weighted_one(
    rng, as_log, loss, metric
):
    log = as_log(make_sessions(rng), DOCUMENTS, QUERIES, rng)
    objective, rows = objective_of(log, PRS(a_bias()), metric=metric, loss=loss)
    scores, W = make_scores(rng)[rows], PRS(a_bias()).table(DEPTH)
    plain = objective.evaluate(scores, want_loss=True)
    weighted = objective.evaluate(scores, W, want_loss=True)
    S = objective.losses_by_position(scores)
    assert S.sum() == pytest.approx(plain.loss, rel=1e-12)
    assert np.sum(W * S) == pytest.approx(weighted.loss, rel=1e-12)
    assert np.all(np.diag(S) == 0)


def test_what_is_not_asked_for_is_not_given(rng, as_log):
    log = as_log(make_sessions(rng, often=1), DOCUMENTS, QUERIES, rng)
    for metric in ("ndcg", "map"):
        objective, rows = objective_of(log, Naive(), metric=metric)
        assert np.isnan(objective.evaluate(np.zeros(len(rows))).loss)


@pytest.mark.parametrize("metric", METRICS)
def test_the_number_of_threads_makes_no_difference_at_all(rng, as_log, metric, monkeypatch):
    monkeypatch.setattr(threads, "KERNEL_NUMBERS", 1)  # else so little work gets one thread
    monkeypatch.setattr(threads, "cores", lambda: 3)
    log = as_log(make_sessions(rng, often=20), DOCUMENTS, QUERIES, rng)
    objective, rows = objective_of(log, PRS(a_bias()), metric=metric)
    scores, W = rng.normal(size=len(rows)), PRS(a_bias()).table(DEPTH)
    passes, S = [], []
    for most in (1, 3):
        with threads.kernel_threads(most):
            passes.append(objective.evaluate(scores, W, want_loss=True))
            S.append(objective.losses_by_position(scores))
            passes.append(objective.with_table(W).evaluate(scores, want_loss=True))
    for one, two in zip(passes[:2], passes[2:], strict=True):
        assert np.array_equal(one.gradient, two.gradient)
        assert np.array_equal(one.hessian, two.hessian)
        assert one.loss == two.loss
    assert np.array_equal(*S)


def one_list(gain, **options):
    """The pairs of one list of these gains, shown in order."""
    n = len(gain)
    shown = Slates(
        indptr=np.array([0, n]),
        query=np.array([0]),
        count=np.ones(1),
        document=np.arange(n),
        position_index=np.arange(n),
        n_documents=n,
    )
    gain = np.asarray(gain, dtype=float)
    return sum_pairs(shown, np.array([0]), gain=gain, weight=np.ones(1), **options)


def test_one_pair_by_hand():
    """s = (ln 3, 0), the second clicked: rho = 3/4, |dDCG| = 1 - 1/log2(3)."""
    objective = PairObjective(one_list([0, 1]), metric="dcg")
    table = np.array([[1.0, 1.0], [5.0, 1.0]])
    found = objective.evaluate(np.log([3.0, 1.0]), table, want_loss=True)
    delta = 1 - 1 / np.log2(3)
    assert found.gradient == pytest.approx([5 * delta * 3 / 4, -5 * delta * 3 / 4])
    assert found.hessian == pytest.approx([5 * delta * 3 / 16] * 2)
    assert found.loss == pytest.approx(5 * delta * np.log(4))
    S = objective.losses_by_position(np.log([3.0, 1.0]))
    assert S[1, 0] == pytest.approx(delta * np.log(4))
    assert np.count_nonzero(S) == 1


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("metric", ["none", "dcg", "map"])
def test_one_far_score_leaves_the_other_pairs_alone(metric, dense):
    """exp of the scores would overflow; a pair's own difference does not."""
    if metric == "map":
        objective: Any = MapObjective(one_list([1, 0, 1, 0], collapse=False))
    else:
        objective = PairObjective(one_list([1, 0, 1, 0], dense=dense), metric=metric)
    near = objective.evaluate(np.array([50.0, 1.0, 3.0, 2.0]), want_loss=True)
    for far_off in (2000.0, 1e6):
        far = objective.evaluate(np.array([far_off, 1.0, 3.0, 2.0]), want_loss=True)
        assert far.gradient == pytest.approx(near.gradient, abs=1e-12)
        assert far.hessian == pytest.approx(near.hessian, abs=1e-12)
        assert far.loss == pytest.approx(near.loss)


def test_the_loss_of_a_pair_far_out_of_order_is_its_distance():
    objective = PairObjective(one_list([1, 0]), metric="none", sigma=2.0)
    found = objective.evaluate(np.array([0.0, 5000.0]), want_loss=True)
    assert found.loss == pytest.approx(2 * 5000)
    assert found.gradient == pytest.approx([-2, 2])


@pytest.mark.parametrize("metric", ["none", "dcg", "ndcg", "arp"])
def test_lists_without_a_pair_give_nothing(metric):
    for gain in ([], [1.0], [0, 0, 0], [1, 1, 1]):
        objective = PairObjective(one_list(gain), metric=metric)
        found = objective.evaluate(np.zeros(len(gain)), want_loss=True)
        assert not objective.losses_by_position(np.zeros(len(gain))).any()
        assert not found.gradient.any()
        assert not found.hessian.any()
        assert found.loss == 0


def test_no_lists_at_all():
    empty = np.zeros(0, dtype=np.int64)
    shown = Slates(
        indptr=np.zeros(1, dtype=np.int64), query=empty, count=empty, document=empty,
        position_index=empty, n_documents=3,
    )  # fmt: skip
    slates = sum_pairs(shown, empty, gain=np.zeros(0), weight=np.zeros(0))
    for objective in (PairObjective(slates), MapObjective(slates)):
        found = objective.evaluate(np.zeros(3), want_loss=True)
        assert found.gradient.tolist() == [0, 0, 0]
        assert found.loss == 0


def test_scores_and_table_are_not_written_to(rng, as_log):
    log = as_log(make_sessions(rng), DOCUMENTS, QUERIES, rng)
    objective, rows = objective_of(log, PRS(a_bias()), metric="ndcg")
    scores, W = rng.normal(size=len(rows)), PRS(a_bias()).table(DEPTH)
    above, copies = objective.slates.above.copy(), (scores.copy(), W.copy())
    objective.with_table(W).evaluate(scores)
    objective.evaluate(scores, W)
    objective.losses_by_position(scores)
    assert np.array_equal(objective.slates.above, above)
    assert np.array_equal(scores, copies[0])
    assert np.array_equal(W, copies[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "mrr"}, r"metric must be one of 'none', 'dcg', 'ndcg', 'arp'\. Got 'mrr'"),
        ({"loss": "square"}, r"loss must be one of 'logistic', 'hinge'\. Got 'square'"),
        ({"sigma": 0.0}, r"sigma must be above 0\. Got 0\.0 instead"),
        ({"truncation": 0}, r"truncation must be at least 1\. Got 0 instead; None takes all pairs"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(OptionError, match=message):
        PairObjective(one_list([1, 0]), **options)


@st.composite
def random_sessions(draw):
    """Up to 12 sessions of 2 queries over 5 documents each, labels of any kind."""
    label = draw(st.sampled_from([st.sampled_from([0.0, 1.0]), st.just(0.0) | st.floats(1e-50, 8)]))
    sessions = []
    for _ in range(draw(st.integers(1, 12))):
        query = draw(st.integers(0, 1))
        length = draw(st.integers(1, 5))
        shown = np.array(draw(st.permutations(range(5)))[:length]) * 2 + query
        places = np.sort(draw(st.permutations(range(6)))[:length])
        labels = np.array(draw(st.lists(label, min_size=length, max_size=length)))
        sessions += [(shown, places, labels)] * draw(st.integers(1, 3))
    return sessions


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sessions=random_sessions(),
    scores=st.lists(st.integers(-4, 4), min_size=10, max_size=10),
    make=st.sampled_from(list(WEIGHTINGS.values())),
    metric=st.sampled_from(METRICS),
    loss=st.sampled_from(["logistic", "hinge"]),
    pair_norm=st.booleans(),
    truncation=st.sampled_from([None, 1, 2]),
)
@example(  # the smallest gain
    sessions=[(np.array([0, 2]), np.array([0, 1]), np.array([1e-50, 0.0]))],
    scores=[0] * 10,
    make=IPS,
    metric="ndcg",
    loss="logistic",
    pair_norm=False,
    truncation=None,
)
def test_random_logs(
    slow_twin, as_log, sessions, scores, make, metric, loss, pair_norm, truncation
):  # fmt: skip
    scores = np.array(scores) / 4
    log = as_log(sessions, 10, 2)
    weighting = make(a_bias(6))
    W = weighting.table(6)
    options = {"loss": loss, "pair_norm": pair_norm, "truncation": truncation}
    objective, rows = objective_of(log, weighting, metric=metric, **options)
    found = with_and_without_loss(objective, scores[rows], W)
    expected = slow_twin(
        sessions, scores, W, metric=metric, session_weight=session_weight(log),
        **twin_options(weighting, **options),
    )  # fmt: skip
    assert_same(found, expected, rows)
