"""Arcs over a row of positions."""

import math

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
