"""`untilt.estimate` with the true curve, on every awkward log: never a wrong decision."""

from functools import cache

import pytest
from tests.wall.judging import SYSTEMATIC, Opinion, opinions_of_estimate, read
from tests.wall.logs import WALL
from tests.wall.world import Kind

import untilt as ut
from untilt.errors import UntiltError

KINDS: tuple[Kind, ...] = ("usual", "equal")


@cache
def opinions(name: str, kind: Kind) -> tuple[Opinion, ...]:
    """On the orders of a log, by its true curve; none where it has no such curve."""
    case = next(each for each in WALL if each.name == name)
    log = case.log(kind)
    if log.theta is None:
        return ()
    try:
        clicks = read(log)
    except UntiltError as error:
        return tuple(Opinion(each, "refused", 0.0, why=str(error)) for each in log.candidates())
    return tuple(opinions_of_estimate(log, clicks, ut.KnownBias(log.theta[: clicks.depth])))


every_case = pytest.mark.parametrize("case", WALL, ids=lambda case: case.name)


@every_case
def test_no_wrong_decision(case):
    found = opinions(case.name, "usual")
    assert not [each for each in found if each.is_wrong]
    if case.estimate == "none":
        assert not [each for each in found if each.is_decision]
    if case.estimate == "refused":
        assert {each.said for each in found} <= {"refused"}
    if case.estimate == "right":
        said = {each.order: each.said for each in found}
        assert (said["relevance"], said["reverse"]) == ("better", "worse")


@every_case
def test_the_logged_order_is_never_better_than_itself(case):
    for kind in KINDS:
        for each in opinions(case.name, kind):
            if each.order == "same" and abs(each.truth) == 0:
                assert not each.is_decision


@every_case
def test_no_difference_where_all_documents_are_equal(case):
    for each in opinions(case.name, "equal"):
        assert not (each.is_decision and abs(each.z) > SYSTEMATIC)
