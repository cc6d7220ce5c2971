"""A picture of what a log can compare: positions in a row, arcs between those that share documents.

Arcs rather than a free layout of the graph: positions have an order, and a picture should keep it.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree

from untilt.bias.position_graph import Edge, JoiningSwap, PositionGraph, positions_text
from untilt.report.charts.charts import PALETTE, WIDTH, configured

if TYPE_CHECKING:
    import altair as alt


# Arcs over a row of positions.

POINTS = 41  # corners of one arc


def bend(upper: int, lower: int) -> list[dict[str, float]]:
    """Corners of half an ellipse over two positions; `step` is their order."""
    turns = [math.pi * step / (POINTS - 1) for step in range(POINTS)]
    middle, half, top = (upper + lower) / 2, (lower - upper) / 2, arc_height(upper, lower)
    return [
        {"x": middle - half * math.cos(turn), "y": top * math.sin(turn), "step": step}
        for step, turn in enumerate(turns)
    ]


def arc_height(upper: int, lower: int) -> float:
    """The root of the span keeps far arcs on the page."""
    return math.sqrt(lower - upper)


MOST_ARCS = 300  # more than these, the strongest ones, only blacken the picture
NEVER_SHOWN = "#BBBBBB"
SWAP_COLOUR = "#D55E00"
ALONE, ALONE_COLOUR = "compared with no other", "#000000"
NUMBERED = 25  # deeper lists have an axis in place of a number in each point


def graph_chart(
    graph: PositionGraph, *, title: str = "Which positions can be compared"
) -> "alt.LayerChart":
    """Positions as points, coloured by component; an arc's width is the evidence that it carries.

    Dashed arcs below the line are the swaps that would join the components. The width grows with
    the root of the weight (see `PositionGraph`), so that faint links next to strong ones are seen.
    """
    import altair as alt

    arcs = strongest(graph)
    layers = [_arcs(graph, arcs)] if arcs else []
    if graph.swaps:
        layers.append(_swaps(graph))
    layers += _nodes(graph)
    heading = alt.TitleParams(
        title, subtitle=_subtitle(graph, arcs), anchor="start", subtitleColor="#555555"
    )
    chart = alt.layer(*layers).resolve_scale(strokeWidth="independent")
    styled: alt.LayerChart = configured(
        chart.properties(title=heading, width=WIDTH, height=_height(graph, arcs))
    )
    return styled


def strongest(graph: PositionGraph) -> tuple[Edge, ...]:
    """The arcs that are drawn, the heaviest last so that they lie on top.

    Where there are too many, those of the heaviest spanning forest are kept before all others:
    what is joined must look joined.
    """
    edges = sorted(graph.edges, key=lambda edge: edge.weight)
    if len(edges) <= MOST_ARCS:
        return tuple(edges)
    forest = minimum_spanning_tree(-np.triu(graph.weight, 1)).tocoo()
    needed = set(zip((forest.row + 1).tolist(), (forest.col + 1).tolist(), strict=True))
    first = sorted(edges, key=lambda edge: ((edge.upper, edge.lower) not in needed, -edge.weight))
    return tuple(sorted(first[:MOST_ARCS], key=lambda edge: edge.weight))


def _arcs(graph: PositionGraph, arcs: tuple[Edge, ...]) -> "alt.Chart":
    import altair as alt

    name = _component_of(graph)
    rows = [
        {
            "arc": f"{edge.upper}-{edge.lower}",
            "component": name[edge.upper],
            "weight": edge.weight,
            "documents": edge.documents,
            **point,
        }
        for edge in arcs
        for point in bend(edge.upper, edge.lower)
    ]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(opacity=0.5)
        .encode(
            x=_across(graph),
            y=_upright(graph, arcs),
            order="step:O",
            detail="arc:N",
            color=_colour(graph),
            strokeWidth=_width(arcs),
            tooltip=["arc:N", "documents:Q", alt.Tooltip("weight:Q", format=",.0f")],
        )
    )


def _width(arcs: tuple[Edge, ...]) -> "alt.StrokeWidth":
    """Thinner the more arcs there are, so that they can be told apart."""
    import altair as alt

    heaviest = max(edge.weight for edge in arcs)
    widest = float(np.clip(45 / np.sqrt(len(arcs)), 2.0, 10.0))
    legend = alt.Legend(
        orient="right",
        values=[heaviest, heaviest / 10, heaviest / 100],
        format=",.3~r",
        symbolType="stroke",
        symbolSize=400,
        symbolStrokeColor="#777777",
    )
    scale = alt.Scale(type="sqrt", domain=[0, heaviest], range=[0.2, widest])
    return alt.StrokeWidth("weight:Q", title="weight", scale=scale, legend=legend)


def _swaps(graph: PositionGraph) -> "alt.LayerChart":
    """The swaps that would join the components, below the line, with their names."""
    import altair as alt

    rows = [
        {"swap": _label(swap), **point, "y": -point["y"]}
        for swap in graph.swaps
        for point in bend(swap.upper, swap.lower)
    ]
    names = [
        {
            "swap": _label(swap),
            "x": (swap.upper + swap.lower) / 2,
            "y": -arc_height(swap.upper, swap.lower),
        }
        for swap in graph.swaps
    ]
    across, upright = _across(graph), _upright(graph, strongest(graph))
    lines = alt.Chart(alt.Data(values=rows)).mark_line(
        color=SWAP_COLOUR, strokeDash=[5, 4], strokeWidth=2
    )
    text = alt.Chart(alt.Data(values=names)).mark_text(dy=12, color=SWAP_COLOUR, fontSize=12)
    return alt.layer(
        lines.encode(x=across, y=upright, order="step:O", detail="swap:N", tooltip=["swap:N"]),
        text.encode(x=across, y=upright, text=alt.Text("swap:N")),
    )


def _label(swap: JoiningSwap) -> str:
    return f"{swap.upper}-{swap.lower}"


def _nodes(graph: PositionGraph) -> "list[alt.Chart]":
    import altair as alt

    name = _component_of(graph)
    rate = graph.click_rate
    rows = [
        {
            "x": k,
            "y": 0,
            "component": name.get(k),
            "documents": int(graph.documents[k - 1, k - 1]),
            "click rate": float(rate[k - 1]) if np.isfinite(rate[k - 1]) else None,
        }
        for k in range(1, graph.depth + 1)
    ]
    size = 380 if graph.depth <= NUMBERED else max(8, 4000 // graph.depth)
    base = alt.Chart(alt.Data(values=rows)).encode(x=_across(graph), y=alt.Y("y:Q"))
    tip = ["x:Q", "documents:Q", alt.Tooltip("click rate:Q", format=".4f")]
    shown = base.transform_filter("isValid(datum.component)")
    never = base.transform_filter("!isValid(datum.component)")
    nodes = [
        shown.mark_circle(size=size, opacity=1).encode(color=_colour(graph), tooltip=tip),
        never.mark_circle(size=size, opacity=1, color=NEVER_SHOWN),
    ]
    if graph.depth <= NUMBERED:
        nodes.append(base.mark_text(color="white", fontWeight="bold").encode(text="x:Q"))
    return nodes


def _across(graph: PositionGraph) -> "alt.X":
    import altair as alt

    margin = 0.04 * max(1, graph.depth - 1) + 0.1
    values = [1, *range(10, graph.depth + 1, 10 * (1 + graph.depth // 200))]
    axis = alt.Axis(title="position", grid=False, format="d", values=values)
    scale = alt.Scale(domain=(1 - margin, graph.depth + margin), nice=False)
    return alt.X("x:Q", axis=None if graph.depth <= NUMBERED else axis, scale=scale)


def _upright(graph: PositionGraph, arcs: tuple[Edge, ...]) -> "alt.Y":
    import altair as alt

    highest, lowest = _extent(graph, arcs)
    return alt.Y("y:Q", axis=None, scale=alt.Scale(domain=(-lowest, highest), nice=False))


def _extent(graph: PositionGraph, arcs: tuple[Edge, ...]) -> tuple[float, float]:
    """Room above and below the line of positions, in units of an arc's height."""
    highest = max((arc_height(edge.upper, edge.lower) for edge in arcs), default=0.5)
    lowest = max((arc_height(swap.upper, swap.lower) for swap in graph.swaps), default=0.0)
    return highest + 0.2, lowest + (0.5 if graph.swaps else 0.3)


def _height(graph: PositionGraph, arcs: tuple[Edge, ...]) -> int:
    return int(np.clip(95 * sum(_extent(graph, arcs)), 110, 380))


def _component_of(graph: PositionGraph) -> dict[int, str]:
    """Position -> the name of its component; positions by themselves share one."""
    return {
        k: positions_text(found) if len(found) > 1 else ALONE
        for found in graph.components
        for k in found
    }


def _colour(graph: PositionGraph) -> "alt.Color":
    """One colour per component, from the start again after the last; black for what is alone."""
    import altair as alt

    names = list(dict.fromkeys(_component_of(graph).values()))
    free = [colour for colour in PALETTE[::-1] if colour not in (SWAP_COLOUR, ALONE_COLOUR)]
    free = [*free[1:], free[0]]  # blue first
    joined = [name for name in names if name != ALONE]
    by_name = {name: free[i % len(free)] for i, name in enumerate(joined)} | {ALONE: ALONE_COLOUR}
    scale = alt.Scale(domain=names, range=[by_name[name] for name in names])
    legend = alt.Legend(orient="bottom", columns=2, symbolType="circle") if len(names) > 1 else None
    return alt.Color("component:N", title=None, scale=scale, legend=legend)


def _subtitle(graph: PositionGraph, arcs: tuple[Edge, ...]) -> list[str]:
    lines = ["an arc joins positions that showed the same documents; its width is the evidence"]
    if len(arcs) < len(graph.edges):
        lines.append(f"the {len(arcs)} strongest of {len(graph.edges):,} arcs are drawn")
    if graph.swaps:
        lines.append("dashed: swaps that would join what is apart")
    return lines
