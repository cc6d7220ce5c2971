"""Shuffled lists, by hand."""

import itertools

import numpy as np
import pytest

from untilt import ShuffledTop
from untilt.errors import DepthError, IdentifiabilityError


@pytest.fixture
def by_hand(make_log):
    """Eight sessions of full lists (clicks 4 at 1, 2 at 2, 1 at 3) and two of short ones."""
    return make_log(
        [
            (0, [1, 2, 3], [1], 2, "shuffle"),
            (0, [2, 1, 3], [2, 1], 2, "shuffle"),
            (0, [3, 1, 2], [2], 1, "shuffle"),
            (0, [3, 2, 1], [], 3, "shuffle"),
            (1, [1, 2], [1], 1, "shuffle"),
            (1, [2, 1], [1], 1, "shuffle"),
            (0, [1, 2, 3], [1], 100, "base"),
        ]
    )


def test_ratios_by_hand(by_hand):
    bias = ShuffledTop().fit(by_hand).bias_
    # At 2: 2 + 1 clicks against 4 + 1 at 1. At 3 only the full lists: 1 against 4.
    assert bias.examination == pytest.approx([1, 3 / 5, 1 / 4])
    assert bias.status.part("bias.shuffled").fields == {"sessions": 10, "clicks": 9}


def test_errors_by_hand(by_hand):
    """u = clicks at k / all - clicks at 1 / all: by session, and by the two queries."""
    bias = ShuffledTop().fit(by_hand).bias_
    # Sessions for position 2: (click at 1, click at 2) and how often.
    sessions = {(1, 0): 2 + 1, (1, 1): 2, (0, 0): 1 + 3, (0, 1): 1}
    by_session = sum(n * (b / 3 - a / 5) ** 2 for (a, b), n in sessions.items())
    by_query = 2 / 1 * ((2 / 3 - 4 / 5) ** 2 + (1 / 3 - 1 / 5) ** 2)
    error = bias.std_error[1] / bias.examination[1]
    assert error == pytest.approx(np.sqrt(max(by_session, by_query)))


def test_only_the_top_that_was_asked_for(by_hand):
    bias = ShuffledTop(2).fit(by_hand).bias_
    assert bias.examination == pytest.approx([1, 3 / 5])
    assert bias.status.part("bias.left-out").fields == {"first": 3, "last": 3}
    assert bias.assumes[1].code == "bias.random-order"
    assert bias.assumes[1].fields == {"top": 2}


def test_the_lists_can_be_named(by_hand):
    with pytest.raises(IdentifiabilityError, match="position 1 was not shuffled"):
        ShuffledTop(ranker="base").fit(by_hand)


def test_every_order_once_is_exact(make_log):
    """All orders of three documents, expected clicks: the curve comes out to the last digit."""
    relevance, theta = {1: 0.9, 2: 0.4, 3: 0.1}, [1.0, 0.5, 0.2]
    sessions = []
    for order in itertools.permutations([1, 2, 3]):
        for clicks in itertools.product([0, 1], repeat=3):
            chance = np.prod(
                [
                    theta[k] * relevance[d] if c else 1 - theta[k] * relevance[d]
                    for k, (d, c) in enumerate(zip(order, clicks, strict=True))
                ]
            )
            clicked = [d for d, c in zip(order, clicks, strict=True) if c]
            if chance > 0:
                sessions.append((0, list(order), clicked, round(1e6 * chance), "shuffle"))
    bias = ShuffledTop().fit(make_log([s for s in sessions if s[3]])).bias_
    assert bias.examination == pytest.approx(theta, rel=1e-4)


@pytest.fixture
def half_shuffled(make_log, rng):
    """The top two of four are shuffled."""
    return make_log(
        [
            (q, [*rng.permutation([1, 2]).tolist(), 3, 4], [1, 3], 1, "shuffle")
            for q in range(4)
            for _ in range(20)
        ]
    )


def test_places_that_never_change_are_left_out(half_shuffled):
    bias = ShuffledTop().fit(half_shuffled).bias_
    assert bias.depth == 2
    assert bias.status.part("bias.left-out").fields == {"first": 3, "last": 4}


def test_asked_for_a_place_that_never_changes(half_shuffled):
    with pytest.raises(IdentifiabilityError, match=r"position 3 was not shuffled.*top=2"):
        ShuffledTop(4).fit(half_shuffled)


def test_one_off_queries_are_believed(make_log):
    """Each query was shown once: nothing speaks against the shuffle."""
    log = make_log([(q, [1, 2], [1 + q % 2], 1, "shuffle") for q in range(100)])
    assert ShuffledTop().fit(log).bias_.examination == pytest.approx([1, 1])


def test_a_position_without_a_click(make_log):
    """The depth is chosen above it; asked for, it is an error."""
    log = make_log([(0, [1, 2, 3], [1, 2], 4, "shuffle"), (0, [3, 1, 2], [3, 1], 4, "shuffle")])
    bias = ShuffledTop().fit(log).bias_
    assert bias.depth == 2
    assert bias.status.part("bias.cut-at-no-click").fields == {"position": 3, "top": 2}
    with pytest.raises(IdentifiabilityError, match=r"8 clicks at 1 and 0 at 3.*top=2"):
        ShuffledTop(3).fit(log)


def test_no_click_at_2_is_an_error_that_asks_for_sessions(make_log):
    log = make_log([(0, [1, 2], [1], 4, "shuffle"), (0, [2, 1], [2], 4, "shuffle")])
    with pytest.raises(IdentifiabilityError, match="Collect more shuffled sessions"):
        ShuffledTop().fit(log)


def test_lists_without_position_1_say_nothing(make_log):
    with_gap = make_log(
        [
            (0, [1, 2], [1, 2], 4, "shuffle"),
            (0, [2, 1], [2], 4, "shuffle"),
            (0, [None, 1], [1], 50, "shuffle"),
            (0, [None, 1], [], 50, "shuffle"),
        ]
    )
    assert ShuffledTop().fit(with_gap).bias_.examination == pytest.approx([1, 4 / 8])


@pytest.mark.parametrize("top", [0, 4])
def test_a_top_that_is_not_there(top, by_hand):
    with pytest.raises(DepthError, match=r"top must be one of the positions 1\.\.3"):
        ShuffledTop(top).fit(by_hand)
