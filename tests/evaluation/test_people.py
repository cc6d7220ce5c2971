"""Errors where people come back: clustered by query and by person."""

from dataclasses import replace

import numpy as np
import pytest

import untilt as ut
from untilt._core.arrays import FloatArray, IntArray
from untilt.errors import OptionError
from untilt.evaluation.results import Estimates
from untilt.evaluation.systems import System

THETA = np.arange(1, 6) ** -0.8
EVALUATORS = [
    "naive",
    "ips",
    "clipped:clip=0.3",
    "snips",
    "affine",
    "policy-aware",
    "doubly-robust",
]
DISCOUNT = 1 / np.log2(1 + np.arange(1, 6))


def _log(
    seed: int,
    *,
    n_queries: int = 12,
    n_sessions: int = 600,
    each: int = 10,
    spread: float = 0.7,
    person: IntArray | None = None,
) -> tuple[ut.ClickLog, FloatArray]:
    """Five documents a query in one of three orders; people click more or less than others."""
    rng = np.random.default_rng(seed)
    gamma = rng.uniform(0.1, 0.6, size=(n_queries, 5))
    orders = np.argsort(-(gamma + 0.2 * rng.normal(size=(3, n_queries, 5))), axis=2)
    query = rng.integers(n_queries, size=n_sessions)
    shown = orders[rng.integers(3, size=n_sessions), query]
    who = rng.permutation(np.arange(n_sessions) // each) if person is None else person
    inclination = rng.uniform(1 - spread, 1 + spread, size=n_sessions)[who]
    rate = THETA * np.take_along_axis(gamma[query], shown, 1) * inclination[:, None]
    click = rng.random((n_sessions, 5)) < rate
    log = ut.ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.tile(np.arange(5), n_queries),
        doc_query=np.repeat(np.arange(n_queries), 5),
        indptr=np.arange(0, 5 * n_sessions + 1, 5),
        query=query,
        document=(5 * query[:, None] + shown).ravel(),
        position=np.tile(np.arange(1, 6), n_sessions),
        label=click.astype(float).ravel(),
        context={"person": who},
    )
    return log, gamma


def _systems(log: ut.ClickLog) -> dict[str, System]:
    return {"shown": ut.shown, "other": np.random.default_rng(3).normal(size=log.n_documents)}


def _people(estimates: Estimates) -> FloatArray:
    """(systems, systems) what people add to the covariance of values."""
    assert estimates.unbiased is not None
    people = estimates.unbiased.people
    assert people is not None
    return people.by_person - people.by_both


@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_one_session_each_adds_nothing(evaluator: str) -> None:
    log, _ = _log(0, person=np.arange(600))
    estimates = ut.estimate(log, _systems(log), THETA, evaluator=evaluator, people="person")
    np.testing.assert_allclose(_people(estimates), 0, atol=1e-15)


@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_people_of_a_single_query_add_nothing(evaluator: str) -> None:
    log, _ = _log(1)
    log = ut.ClickLog(
        log.query_id, log.doc_id, log.doc_query, log.indptr, log.query, log.document, log.position,
        log.label, context={"person": log.query},
    )  # fmt: skip
    estimates = ut.estimate(log, _systems(log), THETA, evaluator=evaluator, people="person")
    np.testing.assert_allclose(_people(estimates), 0, atol=1e-15)


def test_slow_twin_of_ips() -> None:
    log, _ = _log(2)
    estimates = ut.estimate(log, _systems(log), THETA, evaluator="ips", people="person")
    scores = _systems(log)["other"]
    assert isinstance(scores, np.ndarray)
    value = estimates.sums.value
    expected = np.zeros((2, 2))
    who = [str(each) for each in log.context["person"]]
    both = [f"{u} {q}" for u, q in zip(who, log.query.tolist(), strict=True)]
    for units, sign in ((who, 1), (both, -1)):
        influence: dict[str, FloatArray] = {}
        for i, unit in enumerate(units):
            rows = slice(log.indptr[i], log.indptr[i + 1])
            credit = log.label[rows] / THETA
            new_rank = np.argsort(np.argsort(-scores[log.document[rows]]))
            total = np.array([credit @ DISCOUNT, credit @ DISCOUNT[new_rank]])
            influence[unit] = influence.get(unit, np.zeros(2)) + (total - value) / log.n_lists
        for unit, own in influence.items():
            lost = own / (1 - units.count(unit) / log.n_lists)
            expected += sign * np.outer(lost, lost)
    np.testing.assert_allclose(_people(estimates), expected, atol=1e-12)


@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_counted_lists_equal_repeated_sessions(evaluator: str) -> None:
    log, _ = _log(4)
    both = [
        ut.estimate(each, _systems(log), THETA, evaluator=evaluator, people="person")
        for each in (log, log.collapse())
    ]
    np.testing.assert_allclose(_people(both[0]), _people(both[1]), rtol=1e-9)


def test_values_are_wider_and_equal_systems_stay_equal() -> None:
    log, _ = _log(5, n_queries=100, n_sessions=5000)
    systems = {"shown": ut.shown, "same": ut.shown}
    without = ut.estimate(log, systems, THETA)
    within = ut.estimate(log, systems, THETA, people="person")
    assert within["shown"].value == without["shown"].value
    assert within["shown"].sampling_error > without["shown"].sampling_error
    assert within.compare("shown")["same"].identical


def test_bootstrap_is_wider_too() -> None:
    log, _ = _log(6, n_queries=100, n_sessions=5000)
    width = [
        np.ptp([each.low, each.high])
        for people in (None, "person")
        for each in [
            ut.estimate(log, ut.shown, THETA, interval="bootstrap", people=people)["shown"].interval
        ]
    ]
    assert width[1] > width[0]


def test_the_log_says_who_without_being_asked() -> None:
    log, _ = _log(8)
    named = ut.estimate(log, _systems(log), THETA, people="person")
    known = replace(log, context={}, person=log.context["person"])
    for each in (known, known.collapse()):
        found = ut.estimate(each, _systems(log), THETA)
        assert found["shown"].interval.low == pytest.approx(named["shown"].interval.low)
        assert found["other"].std_error == pytest.approx(named["other"].std_error)


def test_few_people_have_few_degrees_of_freedom() -> None:
    log, _ = _log(9, n_queries=100, n_sessions=2000, person=np.arange(2000) % 8)
    means = ut.estimate(log, ut.shown, THETA, evaluator="ips", people="person").sums.means()
    assert means.degrees_of_freedom[0] == pytest.approx(7)


def test_unknown_column() -> None:
    log, _ = _log(7)
    with pytest.raises(OptionError, match="Did you mean 'person'"):
        ut.estimate(log, ut.shown, THETA, people="persons")


@pytest.mark.slow
def test_coverage_of_values() -> None:
    truth = 0.35  # mean relevance; precision@5 looks at all documents
    held = {None: 0, "person": 0}
    for seed in range(200):
        log, _ = _log(seed, n_queries=100, n_sessions=4000, each=40)
        for people in held:
            found = ut.estimate(log, ut.shown, THETA, metric="precision@5", people=people)
            held[people] += truth in found["shown"].interval
    assert 0.9 * 200 <= held["person"] <= 0.995 * 200
    assert held[None] < 0.9 * 200
