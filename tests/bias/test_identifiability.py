"""What a log can compare, by hand-made graphs."""

import numpy as np
import pytest

from untilt import AllPairs, position_graph
from untilt.bias.position_graph import joined_depth, most_lost
from untilt.data.counts import position_counts
from untilt.errors import IdentifiabilityError
from untilt.facts import positions_text


@pytest.fixture
def two_islands(make_log):
    """Positions 1-2 share documents, and so do 4-5; 3 stands alone."""
    return make_log(
        [
            (0, [1, 2, 3, 4, 5], [1, 2, 4], 3, "a"),
            (0, [2, 1, 3, 5, 4], [2, 1, 4, 5], 2, "b"),
        ]
    )


def test_tables_by_hand(two_islands):
    graph = position_graph(two_islands)
    assert np.diag(graph.documents).tolist() == [2, 2, 1, 2, 2]
    assert graph.documents[0, 1] == graph.documents[1, 0] == 2
    assert graph.documents[0, 2] == 0
    # At 1: document 1 three times, document 2 twice; both were shown at 2 as well.
    assert graph.impressions[0, 1] == 5
    assert graph.clicks[0].tolist() == [5, 5, 0, 0, 0]
    # Document 4: at position 4 three clicks of 3, at 5 two of 2; document 5: 2 of 2 and 0 of 3.
    assert (graph.clicks[3, 4], graph.clicks[4, 3]) == (5, 2)
    assert graph.weight[0, 1] == pytest.approx(2 * (3 * 2) / (3 + 2))
    assert np.all(np.diag(graph.weight) == 0)
    assert graph.click_rate == pytest.approx([1, 1, 0, 1, 2 / 5])


def test_components_and_edges(two_islands):
    graph = position_graph(two_islands)
    assert graph.components == ((1, 2), (3,), (4, 5))
    assert not graph.is_connected
    assert [(edge.upper, edge.lower) for edge in graph.edges] == [(1, 2), (4, 5)]
    edge = graph.edges[1]
    assert (edge.documents, edge.upper_clicks, edge.lower_clicks) == (2, 5, 2)


def test_the_swaps_that_join_everything(two_islands):
    swaps = position_graph(two_islands).swaps
    assert [(swap.upper, swap.lower) for swap in swaps] == [(1, 3), (1, 4)]
    assert str(swaps[0]) == "swap positions 1 and 3"
    rate = position_graph(two_islands).click_rate
    assert swaps[0].most_lost == pytest.approx((np.sqrt(rate[0]) - np.sqrt(rate[2])) ** 2)


def test_a_position_that_nobody_saw_is_in_no_component(make_log):
    log = make_log([(0, [1, None, 2], [1]), (0, [2, None, 1], [2, 1])])
    graph = position_graph(log)
    assert graph.components == ((1, 3),)
    assert graph.positions == (1, 3)
    assert graph.is_connected
    assert graph.swaps == ()
    graph.require(3, "AllPairs", clicks=False)


def test_without_position_1_the_first_that_is_shown_takes_its_place(make_log):
    graph = position_graph(make_log([(0, [None, 1], [1])]))
    assert graph.positions == (2,)
    graph.require(2, "AllPairs")


def test_the_error_names_the_swap(two_islands):
    with pytest.raises(IdentifiabilityError) as error:
        position_graph(two_islands).require(5, "AllPairs")
    text = str(error.value)
    assert "AllPairs cannot compare position 3 with position 1" in text
    assert "positions 1..2 against position 3" in text
    assert "swap positions 1 and 3" in text
    assert "log.top(2)" in text
    assert "RegressionEM" in text


def test_what_is_connected_passes(two_islands):
    graph = position_graph(two_islands)
    graph.require(2, "AllPairs")
    assert position_graph(two_islands.top(2)).is_connected


def test_shared_documents_without_clicks_on_one_side_are_not_enough(make_log):
    """Nobody clicks at 2: its examination may be anything down to 0."""
    log = make_log([(0, [1, 2], [1], 3, "a"), (0, [2, 1], [2], 3, "b")])
    graph = position_graph(log)
    assert graph.components == ((1, 2),)
    assert graph.clicked_components == ((1,), (2,))
    with pytest.raises(IdentifiabilityError, match=r"too few clicks.*swap positions 1 and 2"):
        graph.require(2, "AllPairs")
    graph.require(2, "AllPairs", clicks=False)


def test_clicks_may_go_round_in_a_circle(make_log):
    """1 gains on 2, 2 on 3 and 3 on 1: each is bounded from both sides, though no pair is."""
    log = make_log(
        [
            (0, [1, None, None], [], 1, "a"),
            (0, [None, 1, None], [1], 1, "a"),
            (1, [None, 1, None], [], 1, "a"),
            (1, [None, None, 1], [1], 1, "a"),
            (2, [None, None, 1], [], 1, "a"),
            (2, [1, None, None], [1], 1, "a"),
        ]
    )
    graph = position_graph(log)
    assert graph.clicked_components == ((1, 2, 3),)
    graph.require(3, "AllPairs")


@pytest.fixture
def joined_from_below(make_log):
    """1 and 2 share documents; 3 shares one with 5 alone, and 5 with 1; nothing joins 4."""
    return make_log(
        [
            (0, [1, 2, None, None, None], [1, 2], 3, "a"),
            (0, [2, 1, None, None, None], [1, 2], 2, "b"),
            (1, [1, None, 2, None, 3], [1, 2, 3], 2, "a"),
            (1, [3, None, 4, 5, 1], [3, 1, 4], 1, "b"),
            (1, [3, None, 4, 5, 2], [3, 2, 4], 1, "b"),
        ]
    )


def test_what_joins_positions_below_the_cut_is_lost_with_it(joined_from_below):
    graph = position_graph(joined_from_below)
    assert graph.clicked_components == ((1, 2, 3, 5), (4,))
    assert joined_depth(graph.clicks.T > 0) == 2
    assert position_graph(joined_from_below.top(3)).clicked_components == ((1, 2), (3,))
    with pytest.raises(IdentifiabilityError, match=r"position 4 with.*log\.top\(2\)"):
        graph.require(5, "AllPairs")
    assert AllPairs().fit(joined_from_below.top(2)).bias_.depth == 2


def test_the_joined_depth_is_the_deepest_cut_that_is_joined(rng):
    """Against every cut, in random graphs; some positions need not be joined."""
    for _ in range(200):
        arcs = rng.random((7, 7)) < 0.25
        needed = rng.random(7) < 0.7
        assert joined_depth(arcs) == deepest_joined(arcs, np.ones(7, dtype=bool))
        assert joined_depth(arcs, needed=needed) == deepest_joined(arcs, needed)


def deepest_joined(arcs, needed):
    def is_joined(n):
        reached = np.linalg.matrix_power(arcs[:n, :n] + np.eye(n), n) > 0
        first = np.argmax(needed[:n])
        return np.all((reached[first] & reached[:, first])[needed[:n]])

    return max(n for n in range(1, len(arcs) + 1) if is_joined(n))


def test_a_swap_never_loses_more_than_the_bound(rng):
    """(theta_k - theta_l)(gamma_k - gamma_l) <= (sqrt(c_k) - sqrt(c_l))^2, equal at best."""
    theta, gamma = rng.uniform(0.01, 1, size=(2, 1000, 2))
    c = theta * gamma
    loss = (theta[:, 0] - theta[:, 1]) * (gamma[:, 0] - gamma[:, 1])
    bound = np.array([most_lost(1, 2, rates) for rates in c])
    assert np.all(loss <= bound + 1e-12)
    both_fall = most_lost(1, 2, np.array([0.9 * 0.9, 0.1 * 0.1]))
    assert both_fall == pytest.approx((0.9 - 0.1) * (0.9 - 0.1))


def spans(n, joined):
    part = list(range(n + 1))
    for a, b in joined:
        part = [part[a] if p == part[b] else p for p in part]
    return len(set(part[1:])) == 1


def test_the_swaps_join_everything_to_position_1(rng, make_log):
    """For gaps in random places."""
    for _ in range(20):
        cuts = np.flatnonzero(rng.random(6) < 0.5)
        order = np.arange(6)
        for part in np.split(order, cuts[cuts > 0]):
            order[part] = np.roll(part, 1)
        both = [(0, list(range(6)), [0, 1], 1, "a"), (0, order.tolist(), [0, 1], 1, "a")]
        graph = position_graph(make_log(both))
        given = [(edge.upper, edge.lower) for edge in graph.edges]
        found = [(swap.upper, swap.lower) for swap in graph.swaps]
        assert spans(6, [*given, *found])
        assert found == [(1, part[0]) for part in graph.components[1:]]


def test_the_graph_of_cells_is_the_graph_of_the_log(two_islands):
    assert repr(position_graph(position_counts(two_islands))) == repr(position_graph(two_islands))


def test_repr_says_the_verdict(two_islands):
    assert repr(position_graph(two_islands)) == (
        "PositionGraph(5 positions, 2 joined pairs, 3 parts: positions 1..2; position 3; "
        "positions 4..5, swap positions 1 and 3, swap positions 1 and 4)"
    )
    assert "connected" in repr(position_graph(two_islands.top(2)))


@pytest.mark.parametrize(
    ("positions", "text"),
    [
        ((3,), "position 3"),
        ((1, 2, 3), "positions 1..3"),
        ((7, 1, 2, 9), "positions 1..2, 7, 9"),
    ],
)
def test_positions_in_words(positions, text):
    assert positions_text(positions) == text
