"""The other charts of a page as Vega-Lite: intervals by ranker, clip curve, bars, arcs."""

from collections.abc import Sequence
from typing import Any

from untilt.report.charts.graph import arc_height, bend
from untilt.report.decision import (
    ClipCurve,
    FeatureImportance,
    Identifiability,
    RankerResult,
    Value,
)
from untilt.report.page.theme import COLOURS, GRID, INK, MUTED, PAPER
from untilt.report.page.words import number, positions_words

ROW = 44  # pixels of one ranker: its name, and its interval below
BAR = 24
LONGEST = 22  # letters of a feature's name beside its bar
MOST_ARCS = 200
NUMBERED = 12  # deeper lists have an axis in place of a number in each point


def intervals_spec(
    entries: Sequence[tuple[RankerResult, Value]], *, title: str, description: str, decimals: int
) -> dict[str, Any]:
    """Values with intervals, one under the other, names above them so that a phone has room.

    A line at 0: what lies to one side of it with its whole interval is decided.
    """
    rows = [
        {
            "i": i, "name": entry.name, "v": value.value, "l": value.low, "h": value.high,
            "chosen": entry.chosen, "label": _label(entry, value, decimals),
            "t": number(value.value, decimals, signed=True),
            "tl": number(value.low, decimals, signed=True),
            "th": number(value.high, decimals, signed=True),
        }
        for i, (entry, value) in enumerate(entries)
    ]  # fmt: skip
    colour = {"condition": {"test": "datum.chosen", "value": COLOURS[0]}, "value": MUTED}
    tips = [
        {"field": "name", "title": "ranker"}, {"field": "t", "title": "value"},
        {"field": "tl", "title": "low"}, {"field": "th", "title": "high"},
    ]  # fmt: skip
    # Room at both ends, so that 0 and the names do not stand on the edge.
    x = {"type": "quantitative", "title": title, "axis": {"tickCount": 5},
         "scale": {"padding": 16}}  # fmt: skip
    text = {"x": {"value": 0}, "text": {"field": "label"}}
    names = {"type": "text", "align": "left", "yOffset": -10, "limit": 330}
    return {
        "description": description,
        "width": "container",
        "height": ROW * len(rows),
        "data": {"values": rows},
        "encoding": {"y": {"field": "i", "type": "ordinal", "axis": None}, "tooltip": tips},
        "layer": [
            {"data": {"values": [{"v": 0}]}, "mark": {"type": "rule", "stroke": INK},
             "encoding": {"x": {"field": "v", **x}, "y": {"value": 0}, "y2": {"value": "height"},
                          "tooltip": None}},
            {"mark": {"type": "rule", "strokeWidth": 3, "yOffset": 9, "strokeCap": "round"},
             "encoding": {"x": {"field": "l", **x}, "x2": {"field": "h"}, "color": colour}},
            {"mark": {"type": "point", "filled": True, "size": 110, "opacity": 1, "yOffset": 9,
                      "shape": "circle"},
             "encoding": {"x": {"field": "v", **x}, "color": colour}},
            {"mark": {**names, "stroke": PAPER, "strokeWidth": 5, "fill": PAPER},
             "encoding": text},
            {"mark": names, "encoding": text},
        ],
    }  # fmt: skip


def _label(entry: RankerResult, value: Value, decimals: int) -> str:
    """The name, and what the bar below it says in figures."""
    chosen = ", chosen" if entry.chosen else ""
    return f"{entry.name}{chosen}: {number(value.value, decimals, signed=True)}"


def clip_spec(curve: ClipCurve, *, description: str, y_title: str, decimals: int) -> dict[str, Any]:
    """The estimate and its band over the clip, the chosen clip as a dashed line."""
    share = curve.clipped_share or (None,) * len(curve.tau)
    rows = [
        {"tau": t, "v": v, "l": low, "h": high, "share": clipped}
        for t, v, low, high, clipped in zip(
            curve.tau, curve.value, curve.low, curve.high, share, strict=True
        )
        if t > 0
    ]
    tips = [
        {"field": "tau", "type": "quantitative", "title": "clip", "format": ".3~g"},
        *(
            {"field": f, "type": "quantitative", "title": name, "format": f".{decimals}f"}
            for f, name in (("v", "estimate"), ("l", "low"), ("h", "high"))
        ),
        {"field": "share", "type": "quantitative", "title": "clicks clipped", "format": ".1%"},
    ]
    x = {
        "field": "tau", "type": "quantitative", "title": "clip: what is smaller counts as this",
        "scale": {"type": "log", "nice": False}, "axis": {"grid": False, "format": "~g"},
    }  # fmt: skip
    scale = {"zero": False}
    y = {"field": "v", "type": "quantitative", "title": y_title, "scale": scale}
    layers = [
        {"mark": {"type": "area", "opacity": 0.16, "color": COLOURS[0]},
         "encoding": {"y": {**y, "field": "l"}, "y2": {"field": "h"}}},
        {"mark": {"type": "line", "color": COLOURS[0]}, "encoding": {"y": y}},
        {"mark": {"type": "point", "filled": True, "size": 40, "opacity": 1, "color": COLOURS[0]},
         "encoding": {"y": y, "tooltip": tips}},
    ]  # fmt: skip
    if curve.chosen is not None and curve.chosen > 0:
        layers.append(
            {"data": {"values": [{"tau": curve.chosen}]},
             "mark": {"type": "rule", "stroke": COLOURS[1], "strokeDash": [5, 4],
                      "strokeWidth": 2}}
        )  # fmt: skip
    return {
        "description": description,
        "width": "container",
        "height": 240,
        "data": {"values": rows},
        "encoding": {"x": x},
        "layer": layers,
    }


def importance_spec(entries: Sequence[FeatureImportance], *, description: str) -> dict[str, Any]:
    """Bars, the largest on top."""
    labels = _labels([each.name for each in entries])
    rows = [
        {"i": i, "name": each.name, "label": label, "share": each.share}
        for i, (each, label) in enumerate(zip(entries, labels, strict=True))
    ]
    return {
        "description": description,
        "width": "container",
        "height": BAR * len(rows),
        "data": {"values": rows},
        "encoding": {
            "y": {"field": "label", "type": "nominal", "sort": {"field": "i"}, "title": None,
                  "axis": {"labelLimit": 150, "labelColor": INK, "ticks": False}},
            "x": {"field": "share", "type": "quantitative", "title": "share of all features",
                  "axis": {"format": "%", "tickCount": 4}},
            "tooltip": [{"field": "name", "title": "feature"},
                        {"field": "share", "type": "quantitative", "format": ".1%"}],
        },
        "mark": {"type": "bar", "height": {"band": 0.62}, "color": COLOURS[0],
                 "cornerRadiusEnd": 2},
    }  # fmt: skip


def _labels(names: Sequence[str]) -> list[str]:
    """Long names without their middle, because ends tell them apart; whole where they would not."""
    short = [n if len(n) <= LONGEST else f"{n[:8]}\u2026{n[9 - LONGEST :]}" for n in names]
    return short if len(set(short)) == len(set(names)) else list(names)


def graph_spec(graph: Identifiability, *, description: str) -> dict[str, Any]:
    """Positions in a row, arcs between those that showed the same documents.

    An arc's width is the root of the evidence that it carries; dashed arcs below the line are
    swaps that would join what is apart.
    """
    arcs = sorted(graph.edges, key=lambda edge: edge.weight)[-MOST_ARCS:]
    above = max((arc_height(edge.upper, edge.lower) for edge in arcs), default=0.5) + 0.2
    below = max((arc_height(swap.upper, swap.lower) for swap in graph.swaps), default=0.0) + 0.32
    deepest = max(graph.positions, default=1)
    margin = 0.04 * max(1, deepest - 1) + 0.1
    axis = {"title": "position", "grid": False, "format": "d", "tickMinStep": 1}
    x = {
        "field": "x", "type": "quantitative",
        "scale": {"domain": [1 - margin, deepest + margin], "nice": False},
        "axis": None if deepest <= NUMBERED else axis,
    }  # fmt: skip
    y = {
        "field": "y", "type": "quantitative", "axis": None,
        "scale": {"domain": [-below, above], "nice": False},
    }  # fmt: skip
    return {
        "description": description,
        "width": "container",
        "height": int(min(320, max(110, 78 * (above + below)))),
        "encoding": {"x": x, "y": y},
        "layer": [_arcs(graph, arcs), _swaps(graph), *_nodes(graph, deepest)],
        "resolve": {"scale": {"color": "shared", "strokeWidth": "independent"}},
    }


def component_colours(graph: Identifiability) -> dict[int, int]:
    """Position -> number of its component, those of several positions first; the key of colours."""
    order = sorted(graph.components, key=lambda found: (len(found) == 1, min(found)))
    return {k: i for i, found in enumerate(order) for k in found}


def _arcs(graph: Identifiability, arcs: Sequence[Any]) -> dict[str, Any]:
    of = component_colours(graph)
    rows = [
        {"arc": f"{e.upper} and {e.lower}", "c": _colour_of(of.get(e.upper)), "w": e.weight,
         "documents": e.documents, **point}
        for e in arcs for point in bend(e.upper, e.lower)
    ]  # fmt: skip
    heaviest = max((edge.weight for edge in arcs), default=1.0)
    widest = min(9.0, max(2.0, 40 / max(1, len(arcs)) ** 0.5))
    width = {"type": "sqrt", "domain": [0, heaviest], "range": [0.3, widest]}
    return {
        "data": {"values": rows},
        "mark": {"type": "line", "opacity": 0.45},
        "encoding": {
            "order": {"field": "step"},
            "detail": {"field": "arc"},
            "color": {"field": "c", "type": "nominal", "scale": None, "legend": None},
            "strokeWidth": {
                "field": "w", "type": "quantitative", "scale": width, "legend": None,
            },
            "tooltip": [
                {"field": "arc", "title": "positions"},
                {"field": "documents", "type": "quantitative", "format": ",",
                 "title": "shared documents"},
                {"field": "w", "type": "quantitative", "format": ",.0f", "title": "evidence"},
            ],
        },
    }  # fmt: skip


def _swaps(graph: Identifiability) -> dict[str, Any]:
    rows = [
        {"arc": f"swap {swap.upper} and {swap.lower}", **point, "y": -point["y"]}
        for swap in graph.swaps
        for point in bend(swap.upper, swap.lower)
    ]
    return {
        "data": {"values": rows},
        "mark": {"type": "line", "color": COLOURS[1], "strokeDash": [5, 4], "strokeWidth": 2},
        "encoding": {
            "order": {"field": "step"},
            "detail": {"field": "arc"},
            "tooltip": [{"field": "arc", "title": "would join"}],
        },
    }


def _nodes(graph: Identifiability, deepest: int) -> list[dict[str, Any]]:
    of = component_colours(graph)
    rows = [
        {
            "x": k, "y": 0, "c": _colour_of(of.get(k)) if k in graph.positions else GRID,
            "with": _company(graph, k),
        }
        for k in range(1, deepest + 1)
    ]  # fmt: skip
    small = deepest > NUMBERED
    size = max(10, 4000 // deepest) if small else 380
    dots = {
        "data": {"values": rows},
        "mark": {"type": "circle", "size": size, "opacity": 1},
        "encoding": {
            "color": {"field": "c", "type": "nominal", "scale": None, "legend": None},
            "tooltip": [{"field": "x", "title": "position"}, {"field": "with", "title": "joined"}],
        },
    }
    label = {
        "data": {"values": rows},
        "mark": {
            "type": "text",
            "fontWeight": "bold",
            "fontSize": 10 if deepest > 9 else 11,
            "fill": PAPER,
        },
        "encoding": {"text": {"field": "x"}},
    }
    return [dots] if small else [dots, label]


def _company(graph: Identifiability, position: int) -> str:
    for found in graph.components:
        if position in found:
            others = [k for k in found if k != position]
            return positions_words(others) if others else "with no other"
    return "never shown"


def _colour_of(component: int | None) -> str:
    """Blue for the first; vermilion is kept for the swaps, the rest go round."""
    if component is None:
        return MUTED
    free = [colour for i, colour in enumerate(COLOURS) if i != 1]
    return free[component % len(free)]
