"""A ladder of questions: yes leads to the box on the right, no leads down."""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from untilt.charts.theme import LIGHT, finished

ROW, GAP = 62, 22  # pixels: height of a box, and between boxes
LEFT, RIGHT, BETWEEN = 330, 330, 70


@dataclass(frozen=True)
class Step:
    """A question, what to take where the answer is yes, and a line on why.

    The last step has no question: it is what is left. `names` are the public names in the box.
    """

    question: str
    take: str
    why: str
    names: tuple[str, ...] = ()


def ladder(steps: Sequence[Step], *, title: str, subtitle: str):
    """The whole picture."""
    boxes, texts, arrows = [], [], []
    for row, step in enumerate(steps):
        top = row * (ROW + GAP)
        middle = top + ROW / 2
        if step.question:
            boxes.append(_box(0, top, LEFT, LIGHT["grid"]))
            texts.append(_text(14, middle, step.question, LIGHT["ink"], 13))
            arrows.append({"x": LEFT, "x2": LEFT + BETWEEN - 3, "y": middle, "y2": middle})
            texts.append(_text(LEFT + 24, middle - 9, "yes", LIGHT["muted"], 12))
            down = {"x": 40, "x2": 40, "y": top + ROW, "y2": top + ROW + GAP - 3}
            arrows.append(down)
            texts.append(_text(48, top + ROW + GAP / 2, "no", LIGHT["muted"], 12))
        left = LEFT + BETWEEN if step.question else 0
        boxes.append(_box(left, top, RIGHT, LIGHT["c1"]))
        texts.append(_text(left + 14, middle - 11, step.take, LIGHT["c1"], 13, bold=True))
        texts.append(_text(left + 14, middle + 10, step.why, LIGHT["ink"], 12))
    width, height = LEFT + BETWEEN + RIGHT, len(steps) * (ROW + GAP) - GAP
    layers = [_rects(boxes), *_written(texts), *_lines(arrows)]
    chart = alt.layer(*layers).properties(width=width, height=height)
    scaled = chart.encode(
        x=alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, width], nice=False)),
        y=alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[height, 0], nice=False)),
    )
    return finished(scaled, title=title, subtitle=subtitle)


def _box(left, top, width, colour):
    return {"x": left, "x2": left + width, "y": top, "y2": top + ROW, "colour": colour}


def _text(x, y, text, colour, size, *, bold=False):
    # Vega centres the first line at y; the others follow below, 1.15 sizes apart.
    higher = 0.575 * size * text.count("\n")
    return {
        "x": x, "y": y - higher, "text": text, "colour": colour, "size": size, "bold": bold,
    }  # fmt: skip


def _rects(rows):
    mark = alt.Chart(alt.Data(values=rows)).mark_rect(fill="white", strokeWidth=1.5, cornerRadius=6)
    return mark.encode(x2="x2:Q", y2="y2:Q", stroke=alt.Stroke("colour:N", scale=None))


def _written(rows):
    """A layer for each size and weight: Vega-Lite's text has one font weight a mark."""
    looks = dict.fromkeys((row["size"], row["bold"]) for row in rows)
    for size, bold in looks:
        mine = [row for row in rows if (row["size"], row["bold"]) == (size, bold)]
        mark = alt.Chart(alt.Data(values=mine)).mark_text(
            align="left",
            baseline="middle",
            fontSize=size,
            fontWeight="bold" if bold else "normal",
            lineBreak="\n",
        )
        yield mark.encode(text="text:N", fill=alt.Fill("colour:N", scale=None))


def _lines(rows):
    lines = alt.Chart(alt.Data(values=rows)).mark_rule(stroke=LIGHT["muted"], strokeWidth=1.5)
    yield lines.encode(x2="x2:Q", y2="y2:Q")
    for shape, across in (("triangle-right", True), ("triangle-down", False)):
        ends = [
            {"x": row["x2"], "y": row["y2"]} for row in rows if (row["y"] == row["y2"]) == across
        ]
        heads = alt.Chart(alt.Data(values=ends)).mark_point(
            shape=shape, filled=True, size=60, fill=LIGHT["muted"], opacity=1, strokeWidth=0
        )
        yield heads.encode()
