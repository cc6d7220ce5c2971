"""Which positions a log can compare: positions in a row, arcs between those that share documents.

Arcs rather than a free layout of the graph: positions have an order, and the chart keeps it.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree

from untilt.charts.curves import position_ticks
from untilt.charts.theme import FILE, Theme
from untilt.facts import stretches

if TYPE_CHECKING:
    import altair as alt

MOST_ARCS = 300  # more than these, the strongest ones, only blacken the chart
NUMBERED = 20  # deeper lists have an axis in place of a number in each point
CORNERS = 41  # of one arc


class Pair(Protocol):
    """Two positions."""

    @property
    def upper(self) -> int: ...  # noqa: D102
    @property
    def lower(self) -> int: ...  # noqa: D102


class Link(Pair, Protocol):
    """Two positions that showed the same documents; `weight` is the evidence about their ratio."""

    @property
    def documents(self) -> int: ...  # noqa: D102
    @property
    def weight(self) -> float: ...  # noqa: D102


class Graph(Protocol):
    """Positions joined by shared documents; `untilt.bias.position_graph.PositionGraph` is one."""

    @property
    def edges(self) -> Sequence[Link]: ...  # noqa: D102
    @property
    def components(self) -> Sequence[Sequence[int]]: ...  # noqa: D102
    @property
    def swaps(self) -> Sequence[Pair]: ...  # noqa: D102


def graph_chart(graph: Graph, *, theme: Theme = FILE) -> "alt.LayerChart":
    """Positions as points, coloured by component; an arc's width is the root of its evidence.

    Dashed arcs below the line are the swaps that would join the components. Positions that were
    never shown are grey.
    """
    import altair as alt

    arcs = strongest(graph.edges)
    deepest = max((max(each) for each in graph.components), default=1)
    above = max((_height(arc) for arc in arcs), default=0.5) + 0.2
    below = max((_height(swap) for swap in graph.swaps), default=0.0) + 0.32
    margin = 0.04 * max(1, deepest - 1) + 0.1
    axis = alt.Axis(title="position", grid=False, format="d", values=position_ticks(deepest))
    x = alt.X(
        "x:Q",
        axis=None if deepest <= NUMBERED else axis,
        scale=alt.Scale(domain=(1 - margin, deepest + margin), nice=False),
    )
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=(-below, above), nice=False))
    names = {k: positions_words(each) for each in graph.components for k in each}
    colour = _colour(graph, names, theme)
    layers = [
        *([_arcs(arcs, names).encode(x=x, y=y, color=colour)] if arcs else []),
        *([_swaps(graph.swaps, theme).encode(x=x, y=y)] if graph.swaps else []),
        *_positions(deepest, names, colour, x, y, theme),
    ]
    return (
        alt.layer(*layers)
        .resolve_scale(strokeWidth="independent")
        .properties(width=theme.width, height=int(min(320, max(110, 78 * (above + below)))))
    )


def graph_notes(graph: Graph) -> list[str]:
    """What the arcs of the chart are, in sentences."""
    drawn = len(strongest(graph.edges))
    notes = ["An arc joins positions that showed the same documents; a wider one is more evidence."]
    if drawn < len(graph.edges):
        notes.append(f"The {drawn} strongest of {len(graph.edges):,} arcs are drawn.")
    if graph.swaps:
        notes.append("Dashed: swaps that would join the components.")
    return notes


def strongest(edges: Sequence[Link]) -> list[Link]:
    """The arcs that are drawn, the heaviest last so that they lie on top.

    Where there are too many, those of the heaviest spanning forest are kept before all others:
    joined positions must look joined.
    """
    if len(edges) > MOST_ARCS:
        # 32 bits: csgraph of SciPy 1.11 takes no other indices.
        ends = np.array([(edge.upper, edge.lower) for edge in edges], dtype=np.int32).T
        weight = -np.array([edge.weight for edge in edges])
        side = int(ends.max()) + 1
        forest = minimum_spanning_tree(coo_array((weight, ends), (side, side)).tocsr()).tocoo()
        needed = set(zip(forest.row.tolist(), forest.col.tolist(), strict=True))
        edges = sorted(edges, key=lambda e: ((e.upper, e.lower) not in needed, -e.weight))
    return sorted(edges[:MOST_ARCS], key=lambda edge: edge.weight)


def _height(pair: Pair) -> float:
    """The root of the span keeps far arcs on the page."""
    return math.sqrt(pair.lower - pair.upper)


def _bend(pair: Pair) -> list[dict[str, float]]:
    """Corners of half an ellipse over two positions; `step` is their order."""
    middle, half = (pair.upper + pair.lower) / 2, (pair.lower - pair.upper) / 2
    turns = [math.pi * step / (CORNERS - 1) for step in range(CORNERS)]
    return [
        {"x": middle - half * math.cos(turn), "y": _height(pair) * math.sin(turn), "step": step}
        for step, turn in enumerate(turns)
    ]


def _colour(graph: Graph, names: dict[int, str], theme: Theme) -> "alt.Color":
    """Blue for the first component; vermilion is kept for the swaps, the rest go round."""
    import altair as alt

    order = sorted(graph.components, key=lambda each: (len(each) == 1, min(each)))
    domain = [names[min(each)] for each in order]
    free = [colour for i, colour in enumerate(theme.series) if i != 1]
    scale = alt.Scale(domain=domain, range=[free[i % len(free)] for i in range(len(domain))])
    legend = None
    if theme.legend and len(domain) > 1:
        legend = alt.Legend(title="positions", orient="bottom", symbolType="circle", columns=4)
    return alt.Color("component:N", scale=scale, legend=legend)


def _arcs(arcs: Sequence[Link], names: dict[int, str]) -> "alt.Chart":
    """Thinner the more arcs there are, so that each can be seen."""
    import altair as alt

    rows = [
        {"arc": f"{e.upper} and {e.lower}", "component": names.get(e.upper), "weight": e.weight,
         "documents": e.documents, **point}
        for e in arcs for point in _bend(e)
    ]  # fmt: skip
    heaviest = max(edge.weight for edge in arcs)
    widest = min(9.0, max(2.0, 40 / len(arcs) ** 0.5))
    width = alt.Scale(type="sqrt", domain=[0, heaviest], range=[0.3, widest])
    return (
        alt.Chart(alt.Data(values=tuple(rows)))
        .mark_line(opacity=0.45)
        .encode(
            order=alt.Order("step:Q"),
            detail=alt.Detail("arc:N"),
            strokeWidth=alt.StrokeWidth("weight:Q", scale=width, legend=None),
            tooltip=[
                alt.Tooltip("arc:N", title="positions"),
                alt.Tooltip("documents:Q", title="shared documents", format=","),
                alt.Tooltip("weight:Q", title="evidence", format=",.0f"),
            ],
        )
    )


def _swaps(swaps: Sequence[Pair], theme: Theme) -> "alt.Chart":
    import altair as alt

    rows = [
        {"arc": f"swap {swap.upper} and {swap.lower}", **point, "y": -point["y"]}
        for swap in swaps
        for point in _bend(swap)
    ]
    return (
        alt.Chart(alt.Data(values=tuple(rows)))
        .mark_line(color=theme.series[1], strokeDash=[5, 4], strokeWidth=2)
        .encode(
            order=alt.Order("step:Q"),
            detail=alt.Detail("arc:N"),
            tooltip=alt.Tooltip("arc:N", title="would join"),
        )
    )


def _positions(
    deepest: int, names: dict[int, str], colour: "alt.Color", x: "alt.X", y: "alt.Y", theme: Theme
) -> "list[alt.Chart]":
    import altair as alt

    rows = [
        {"x": k, "y": 0, "component": names.get(k), "joined": _joined(k, names)}
        for k in range(1, deepest + 1)
    ]
    small = deepest > NUMBERED
    base = alt.Chart(alt.Data(values=tuple(rows))).encode(x=x, y=y)
    never = alt.value(theme.colours["grid"])
    tips = [alt.Tooltip("x:Q", title="position"), alt.Tooltip("joined:N", title="joined with")]
    points = base.mark_circle(size=max(10, 4000 // deepest) if small else 380, opacity=1).encode(
        color=alt.condition("isValid(datum.component)", colour, never), tooltip=tips
    )
    size = 10 if deepest > 9 else 11
    numbers = base.mark_text(fontWeight="bold", fontSize=size, fill=theme.colours["paper"])
    return [points] if small else [points, numbers.encode(text=alt.Text("x:Q"))]


def _joined(position: int, names: dict[int, str]) -> str:
    if position not in names:
        return "never shown"
    others = [k for k, name in names.items() if name == names[position] and k != position]
    return positions_words(others) if others else "no other"


def positions_words(positions: Sequence[int]) -> str:
    """
    >>> positions_words([1, 2, 3, 7, 9, 10])
    '1–3, 7, 9–10'
    """
    runs = stretches(positions)
    return ", ".join(f"{r[0]}\u2013{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)
