"""The picture of the position graph holds its edges, its components and its missing swaps."""

import numpy as np
import pytest

from untilt.bias.position_graph import position_graph
from untilt.charts.graph import MOST_ARCS, graph_chart, graph_notes, strongest
from untilt.charts.theme import FILE, save_chart
from untilt.data.clicklog import ClickLog


def log_of(lists: list[list[int]], documents: int) -> ClickLog:
    """One query; each list shows these documents at positions 1, 2, ...; -1 leaves a gap."""
    rows = [(i, d, k) for i, each in enumerate(lists) for k, d in enumerate(each, 1) if d >= 0]
    owner, document, position = np.array(rows).T
    return ClickLog(
        query_id=[7],
        doc_id=np.arange(documents),
        doc_query=np.zeros(documents, dtype=int),
        indptr=np.searchsorted(owner, np.arange(len(lists) + 1)),
        query=np.zeros(len(lists), dtype=int),
        document=document,
        position=position,
        label=np.ones(len(rows)),
    )


def two_parts():
    """Positions 1 and 2 exchange documents; 3 and 4 do; 5 stands alone."""
    return position_graph(log_of([[0, 1, 2, 3, 4], [1, 0, 3, 2, 4]], 5))


def data(chart) -> list[list[dict]]:
    """The rows of each layer that has its own, in drawing order."""
    found = []

    def walk(part):
        if "data" in part:
            found.append(part["data"]["values"])
        for layer in part.get("layer", []):
            walk(layer)

    walk(chart.to_dict())
    return found


def test_arcs_are_the_edges_and_their_width_the_weight():
    graph = two_parts()
    arcs = data(graph_chart(graph))[0]
    drawn = {(row["arc"], row["documents"], row["weight"], row["component"]) for row in arcs}
    # Two documents at both positions, once each: 1 * 1 / (1 + 1) from each of them.
    assert drawn == {("1 and 2", 2, 1.0, "1\u20132"), ("3 and 4", 2, 1.0, "3\u20134")}
    ends = [(row["x"], row["y"]) for row in arcs if row["arc"] == "3 and 4"]
    assert ends[0] == pytest.approx((3, 0))
    assert ends[-1] == pytest.approx((4, 0))


def test_positions_are_coloured_by_component():
    *_, nodes = data(graph_chart(two_parts()))
    first, second = "1\u20132", "3\u20134"
    assert [row["component"] for row in nodes] == [first, first, second, second, "5"]
    assert [row["joined"] for row in nodes] == ["2", "1", "4", "3", "no other"]
    scale = graph_chart(two_parts()).to_dict()["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"] == [first, second, "5"]
    assert len(set(scale["range"])) == 3
    assert FILE.series[1] not in scale["range"]  # the colour of swaps


def test_missing_swaps_are_drawn_below_the_line():
    graph = two_parts()
    swaps = data(graph_chart(graph))[1]
    assert {row["arc"] for row in swaps} == {"swap 1 and 3", "swap 1 and 5"}
    assert max(row["y"] for row in swaps) <= 0
    whole = position_graph(log_of([[0, 1], [1, 0]], 2))
    assert "strokeDash" not in graph_chart(whole).to_json()


def test_a_position_never_shown_belongs_to_no_component():
    graph = position_graph(log_of([[0, -1, 1], [1, -1, 0]], 2))
    *_, nodes = data(graph_chart(graph))
    assert [row["component"] for row in nodes] == ["1, 3", None, "1, 3"]
    assert nodes[1]["joined"] == "never shown"


def test_a_single_position_can_be_drawn():
    assert data(graph_chart(position_graph(log_of([[0]], 1))))[-1][0]["x"] == 1


def test_too_many_arcs_keep_what_holds_the_graph_together(rng):
    """40 positions in random order, and a weak link to position 41 that must not get lost."""
    lists = [[*rng.permutation(40), 40] for _ in range(60)]
    lists.append([*range(39), 40, 39])
    graph = position_graph(log_of(lists, 41))
    drawn = strongest(graph.edges)
    assert len(graph.edges) > MOST_ARCS == len(drawn)
    joined = {1}
    for _ in range(41):
        joined |= {
            k
            for edge in drawn
            for k in (edge.upper, edge.lower)
            if {edge.upper, edge.lower} & joined
        }
    assert joined == set(range(1, 42))
    assert f"The {MOST_ARCS} strongest" in " ".join(graph_notes(graph))


@pytest.mark.parametrize("suffix", [".png", ".svg", ".html"])
def test_it_is_written_as_a_file(tmp_path, suffix):
    path = save_chart(graph_chart(two_parts()), tmp_path / f"graph{suffix}")
    assert path.stat().st_size > 1000
