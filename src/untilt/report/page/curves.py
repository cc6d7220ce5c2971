"""Curves over positions as Vega-Lite: line, points, band, and one tooltip for all at a position.

Specifications are written as they are, not through Altair: user's text stands only in data and
titles, never in an expression or in the name of a field.
"""

from collections.abc import Sequence
from typing import Any

from untilt.report.decision import PositionCurve
from untilt.report.page.theme import COLOURS, DASHES, MUTED, SHAPES
from untilt.report.page.words import number

MOST_CURVES = len(COLOURS)
HEIGHT = 260


def curves_spec(
    curves: Sequence[PositionCurve],
    *,
    y_title: str,
    description: str,
    decimals: int = 3,
    x_title: str = "position",
    from_zero: bool = True,
    diagonal: bool = False,
    level_line: float | None = None,
) -> dict[str, Any]:
    """All curves in one frame. `diagonal`: x and y are both positions, 1 at the top."""
    drawn = list(curves)[:MOST_CURVES]
    deepest = max(max(curve.position) for curve in drawn)
    y = _upright(y_title, from_zero=from_zero, depth=deepest if diagonal else None)
    layers = [
        *([_diagonal(deepest)] if diagonal else []),
        *([_level(level_line)] if level_line is not None else []),
        *([_band(y_title, drawn)] if any(curve.low for curve in drawn) else []),
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"strokeDash": _dash(drawn)}},
        {"mark": {"type": "point", "filled": True, "size": 46 if deepest <= 30 else 12,
                  "opacity": 1}, "encoding": {"shape": _shape(drawn)}},
    ]  # fmt: skip
    shared = {"y": y, "color": _colour(drawn)}
    for layer in layers[-2:]:
        layer["encoding"] = {**shared, **layer["encoding"]}
    return {
        "description": description,
        "width": "container",
        "height": HEIGHT,
        "data": {"values": _rows(drawn)},
        "encoding": {"x": _across(x_title, deepest)},
        "layer": [*layers, _reader(drawn, decimals, deepest)],
    }


def _rows(curves: Sequence[PositionCurve]) -> list[dict[str, Any]]:
    return [
        {"c": str(i), "position": k, "v": v, "l": low, "h": high}
        for i, curve in enumerate(curves)
        for k, v, low, high in points(curve)
    ]


def points(
    curve: PositionCurve,
) -> list[tuple[int, float | None, float | None, float | None]]:
    """(position, value, low, high) at each position; a curve without ends has None there."""
    low = curve.low or (None,) * len(curve.position)
    high = curve.high or (None,) * len(curve.position)
    return list(zip(curve.position, curve.value, low, high, strict=True))


def _across(title: str, deepest: int) -> dict[str, Any]:
    return {
        "field": "position",
        "type": "quantitative",
        "title": title,
        "scale": {"domain": list(_domain(deepest)), "nice": False},
        "axis": {
            "values": _ticks(deepest), "format": "d", "grid": False,
            "labelOverlap": True,
        },
    }  # fmt: skip


def _domain(deepest: int) -> tuple[float, float]:
    margin = 0.03 * max(1, deepest - 1)
    return 1 - margin, deepest + margin


def _ticks(deepest: int) -> list[int]:
    """1, and whole numbers in steps of 1, 2, 5, 10, ... so that a phone can show them."""
    step = next(s * 10**e for e in range(9) for s in (1, 2, 5) if deepest <= 12 * s * 10**e)
    return sorted({1, *range(step, deepest + 1, step)})


def _upright(title: str, *, from_zero: bool, depth: int | None) -> dict[str, Any]:
    scale: dict[str, Any] = {"zero": from_zero}
    if depth is not None:
        scale = {"zero": False, "reverse": True, "nice": False, "domain": [0.5, depth + 0.5]}
    axis = {"tickCount": 5} if depth is None else {"values": _ticks(depth), "format": "d"}
    return {"field": "v", "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _band(title: str, curves: Sequence[PositionCurve]) -> dict[str, Any]:
    return {
        "transform": [{"filter": "isValid(datum.l) && isValid(datum.h)"}],
        "mark": {"type": "area", "opacity": 0.16, "strokeWidth": 0},
        "encoding": {
            "y": {"field": "l", "type": "quantitative", "title": title},
            "y2": {"field": "h"},
            "color": _colour(curves),
        },
    }


def _colour(curves: Sequence[PositionCurve]) -> dict[str, Any]:
    return _by_curve(curves, COLOURS)


def _shape(curves: Sequence[PositionCurve]) -> dict[str, Any]:
    return _by_curve(curves, SHAPES)


def _dash(curves: Sequence[PositionCurve]) -> dict[str, Any]:
    return _by_curve(curves, DASHES)


def _by_curve(curves: Sequence[PositionCurve], looks: Sequence[Any]) -> dict[str, Any]:
    domain = [str(i) for i in range(len(curves))]
    scale = {"domain": domain, "range": list(looks[: len(curves)])}
    return {"field": "c", "type": "nominal", "scale": scale, "legend": None}


def _diagonal(deepest: int) -> dict[str, Any]:
    """Where the new position is the old one."""
    ends = [{"position": 1, "v": 1}, {"position": deepest, "v": deepest}]
    return {
        "data": {"values": ends},
        "mark": {"type": "line", "color": MUTED, "strokeDash": [3, 4], "strokeWidth": 1},
        "encoding": {"y": {"field": "v", "type": "quantitative"}},
    }


def _level(value: float) -> dict[str, Any]:
    return {
        "data": {"values": [{"v": value}]},
        "mark": {"type": "rule", "strokeDash": [3, 4]},
        "encoding": {
            "x": {"value": 0},
            "x2": {"value": "width"},
            "y": {"field": "v", "type": "quantitative"},
        },
    }


def _reader(curves: Sequence[PositionCurve], decimals: int, deepest: int) -> dict[str, Any]:
    """A column at each position, seen when pointed at, whose tooltip has all curves' values.

    Columns rather than a selection of the nearest point: there, Vega-Lite 6 looks for the text of a
    tooltip in the wrong place and finds "undefined".
    """
    found = [{k: (v, low, high) for k, v, low, high in points(curve)} for curve in curves]
    start, end = _domain(deepest)
    rows = [
        {
            "position": k, "from": max(start, k - 0.5), "to": min(end, k + 0.5),
            **{f"t{i}": _words(each.get(k), decimals) for i, each in enumerate(found)},
        }
        for k in sorted({k for each in found for k in each})
    ]  # fmt: skip
    tips = [{"field": f"t{i}", "title": curve.name or "value"} for i, curve in enumerate(curves)]
    pointed = {"type": "point", "on": "pointerover", "clear": "pointerout"}
    return {
        "data": {"values": rows},
        "params": [{"name": "at", "select": pointed}],
        "mark": {"type": "rect", "color": MUTED},
        "encoding": {
            "x": {"field": "from", "type": "quantitative"},
            "x2": {"field": "to"},
            "y": {"value": 0},
            "y2": {"value": "height"},
            "opacity": {"condition": {"param": "at", "empty": False, "value": 0.1}, "value": 0},
            "tooltip": [{"field": "position", "title": "position"}, *tips],
        },
    }


def _words(point: tuple[float | None, ...] | None, decimals: int) -> str:
    if point is None:
        return number(None)
    value, low, high = (number(each, decimals) for each in point)
    return value if point[1] is None else f"{value}  [{low}, {high}]"
