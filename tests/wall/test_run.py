"""`untilt.run` on every awkward log: the right decision or none, never a wrong one."""

import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from tests.one_voice import other_orders
from tests.wall.judging import SYSTEMATIC, Opinion, opinion_of_run, opinions_of_estimate, read
from tests.wall.known import marked
from tests.wall.logs import WALL
from tests.wall.world import Kind

from untilt.errors import UntiltError


@dataclass(frozen=True)
class Told:
    """What a run on a log says, and orders on its pages beside its recommendation."""

    opinions: tuple[Opinion, ...]
    orders: dict[str, list[str]] = field(default_factory=dict)


def opinions(name: str, kind: Kind) -> tuple[Opinion, ...]:
    """Of the run on its own ranker, and of `untilt.estimate` with the run's own curve."""
    return told(name, kind).opinions


@cache
def told(name: str, kind: Kind) -> Told:
    """All that is judged of a run."""
    case = next(each for each in WALL if each.name == name)
    log = case.log(kind)
    try:
        clicks = read(log)
    except UntiltError as error:
        return Told((Opinion("run", "refused", 0.0, why=str(error)),))
    with tempfile.TemporaryDirectory() as folder:
        own, found = opinion_of_run(log, clicks, Path(folder) / "run")
    if found is None:
        return Told((own,))
    orders = other_orders(found.decision)
    if found.bias_kind == "assumed":
        return Told((own,), orders)
    return Told((own, *opinions_of_estimate(log, clicks, found.bias)), orders)


# One log of each kind of trouble, tried by `make test`; the others by `make test-slow`.
USUAL = (
    "plain", "two_rankers", "gaps", "lost_rows", "only_clicks", "bots_click_all", "trust",
    "devices", "sixty_sessions", "release_with_drift", "shuffles", "label_leak", "no_features",
)  # fmt: skip


def test_the_usual_logs_are_on_the_wall():
    assert {case.name for case in WALL} >= set(USUAL)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.name,
            marks=[*marked(case.name), *([] if case.name in USUAL else [pytest.mark.slow])],
        )
        for case in WALL
    ],
)
def test_no_wrong_decision_and_one_recommendation(case):
    assert told(case.name, "usual").orders == {}
    found = opinions(case.name, "usual")
    assert not [each for each in found if each.is_wrong]
    run = found[0]
    if case.run == "none":
        assert not run.is_decision
    if case.run == "refused":
        assert run.said == "refused"
    if case.run == "right":
        assert run.is_decision


@pytest.mark.slow
@pytest.mark.parametrize("case", WALL, ids=lambda case: case.name)
def test_no_difference_where_all_documents_are_equal(case):
    for each in opinions(case.name, "equal"):
        assert not (each.is_decision and abs(each.z) > SYSTEMATIC)
