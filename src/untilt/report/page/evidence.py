"""Sections about the log's own evidence: clicks, examination, what can be compared, the clip."""

from collections.abc import Sequence
from dataclasses import replace

from untilt.charts.curves import Curve, XAxis, curves_chart
from untilt.charts.graph import graph_chart, positions_words
from untilt.charts.theme import MOST_SERIES, PAGE
from untilt.report.decision import ClipCurve, Decision, Examination, Identifiability, PositionCurve
from untilt.report.page.parts import Figure, Key, Section, Table, specification
from untilt.report.page.words import (
    count_of,
    method_words,
    metric_name,
    number,
    percent,
    ratio_of_ends,
    sentence,
    whole,
)


def position_section(data: Decision) -> Section | None:
    """Click rate and examination by position, one above the other."""
    curves, examination = _known(data.click_rates), data.examination
    looked = _known(examination.curves) if examination else ()
    said, figures = [], []
    if curves:
        said.append(_fall(curves[0], "is clicked", "as often as"))
        figures.append(_click_figure(curves))
    if examination and looked:
        said.append(_fall(looked[0], "is looked at", "as often as"))
        said.append(_how_known(examination))
        figures.append(_examination_figure(examination, looked))
    if not figures:
        return None
    paragraph = " ".join(sentence for sentence in said if sentence)
    return Section(
        "positions",
        "Clicks and examination by position",
        paragraphs=(paragraph,) if paragraph else (),
        figures=tuple(figures),
        notes=(sentence(examination.why),) if examination and examination.why else (),
    )


def _known(curves: Sequence[PositionCurve]) -> tuple[PositionCurve, ...]:
    return tuple(curve for curve in curves if curve.position)


def _fall(curve: PositionCurve, verb: str, than: str) -> str:
    found = ratio_of_ends(curve)
    if found is None:
        return ""
    first, last, times = found
    return f"Position {first} {verb} {number(times, 1)} times {than} position {last}."


def _how_known(examination: Examination) -> str:
    if examination.assumed:
        return "The curve was given, not measured: the answer is as right as the curve is."
    return (
        "The second is taken out of the first when a ranker learns: what is left is relevance."
        if examination.relative
        else ""
    )


def _click_figure(curves: tuple[PositionCurve, ...]) -> Figure:
    description = f"Click rate by position. {_range_words(curves, percent_values=True)}"
    return curve_figure(
        "click-rate",
        "Click rate",
        curves,
        y_title="clicks per impression",
        description=description,
        caption=_notes(curves) or "Band: interval.",
        decimals=4,
    )


def _examination_figure(examination: Examination, curves: tuple[PositionCurve, ...]) -> Figure:
    relative = " (position 1 counts as 1)" if examination.relative else ""
    return curve_figure(
        "examination",
        "Examination: how often readers look at a position",
        curves,
        y_title="relative to position 1" if examination.relative else "probability",
        description=f"Examination by position{relative}. {_range_words(curves)}",
        caption=_examination_caption(examination, curves),
        table_caption=_notes(curves),
    )


def _examination_caption(examination: Examination, curves: Sequence[PositionCurve]) -> str:
    banded = any(curve.low for curve in curves)
    band = f"Band: {examination.level:.0%} interval. " if banded else ""
    used = f"Used here: {curves[0].name}. " if len(curves) > 1 else ""
    return f"{used}{band}".strip()


def _notes(curves: Sequence[PositionCurve]) -> str:
    return " ".join(dict.fromkeys(sentence(c.note) for c in curves if c.note not in ("", c.name)))


def _range_words(curves: Sequence[PositionCurve], *, percent_values: bool = False) -> str:
    """The ends of each curve in words, for those who do not see the chart."""
    parts = []
    for curve in curves:
        known = [(k, v) for k, v in zip(curve.position, curve.value, strict=True) if v is not None]
        if not known:
            continue
        (first, top), (last, bottom) = known[0], known[-1]
        say = percent if percent_values else number
        parts.append(
            f"{curve.name or 'It'} goes from {say(top)} at position {first} to {say(bottom)} at "
            f"position {last}."
        )
    return " ".join(parts)


def curve_figure(
    name: str,
    title: str,
    curves: Sequence[PositionCurve],
    *,
    y_title: str,
    description: str,
    caption: str = "",
    decimals: int = 3,
    x_title: str = "position",
    from_zero: bool = True,
    diagonal: bool = False,
    level_line: float | None = None,
    table_caption: str = "",
) -> Figure:
    """Curves with their legend and their table; the table has all, however many."""
    if len(curves) > MOST_SERIES:
        caption = f"The first {MOST_SERIES} of {len(curves)} curves are drawn. {caption}".strip()
    drawn = curves[:MOST_SERIES]
    chart = curves_chart(
        {curve.name: _drawable(curve) for curve in drawn},
        value_title=y_title,
        x=XAxis(x_title),
        from_zero=from_zero,
        decimals=decimals,
        level=level_line,
        diagonal=diagonal,
        theme=PAGE,
    )
    spec = specification(chart, description)
    keys = tuple(Key(curve.name, i) for i, curve in enumerate(drawn))
    table = replace(curve_table(curves, decimals, x_title), caption=table_caption)
    shown = keys if len(keys) > 1 else ()
    return Figure(name, title, spec, description, table, caption, shown)


def _drawable(curve: PositionCurve) -> Curve:
    return Curve(curve.position, curve.value, curve.low or None, curve.high or None)


def curve_table(curves: Sequence[PositionCurve], decimals: int, first: str) -> Table:
    """A row for each position; value and, where known, the ends of the interval of each curve."""
    header, columns = [first], []
    for curve in curves:
        at = {k: rest for k, *rest in _drawable(curve).points()}
        wanted = (0, 1, 2) if curve.low else (0,)
        name = curve.name or "value"
        header += [name, "low", "high"][: len(wanted)]
        columns += [(at, j) for j in wanted]
    rows = tuple(
        (str(k), *(number(at[k][j] if k in at else None, decimals) for at, j in columns))
        for k in sorted({k for curve in curves for k in curve.position})
    )
    return Table(tuple(header), rows, text_columns=())


def identifiability_section(graph: Identifiability) -> Section:
    """Which positions share documents, so that their clicks can be compared."""
    joined = [found for found in graph.components if len(found) > 1]
    pieces = "; ".join(positions_words(found) for found in graph.components)
    description = (
        f"Positions {positions_words(graph.positions)} with {count_of(len(graph.edges), 'link')} "
        f"between positions that showed the same documents. Groups joined: {pieces or 'none'}."
    )
    edges = sorted(graph.edges, key=lambda edge: -edge.weight)
    table = Table(
        ("positions", "shared documents", "evidence"),
        tuple((f"{e.upper} and {e.lower}", whole(e.documents), whole(e.weight)) for e in edges),
    )
    figure = Figure(
        "graph",
        "An arc joins positions that showed the same documents",
        specification(graph_chart(graph, theme=PAGE), description),
        description,
        table,
        _graph_caption(graph),
    )
    swaps = _swap_table(graph)
    default = (
        "Every position can be compared with every other."
        if graph.identified
        else f"The positions fall into {count_of(len(joined) or len(graph.components), 'group')} "
        "that cannot be compared without a model of relevance."
    )
    return Section(
        "comparable",
        "Can the positions be compared?",
        paragraphs=(graph.verdict or default,),
        figures=(figure,) if graph.positions else (),
        tables=(swaps,) if swaps else (),
    )


def _graph_caption(graph: Identifiability) -> str:
    text = "A wider arc carries more evidence."
    return f"{text} Dashed: swaps that would join what is apart." if graph.swaps else text


def _swap_table(graph: Identifiability) -> Table | None:
    if not graph.swaps:
        return None
    rows = tuple(
        (f"{swap.upper} and {swap.lower}", number(swap.most_lost, 4)) for swap in graph.swaps
    )
    caption = "Swaps that would join what is apart"
    return Table(("positions", "clicks lost per swap at most"), rows, caption)


def clip_section(curve: ClipCurve, method: str = "") -> Section:
    """What clipping of weights would change; `method` is the one that gave the answer."""
    metric = metric_name(curve.metric)
    chosen = f"The clip used here is {number(curve.chosen, 3)}. "
    low, high = min(curve.tau, default=0.0), max(curve.tau, default=0.0)
    first, last = (curve.value or (None,))[0], (curve.value or (None,))[-1]
    description = (
        f"{metric} of {curve.system} by clip: {number(first)} at {number(low)}, "
        f"{number(last)} at {number(high)}."
    )
    clipped = [percent(share) for share in curve.clipped_share or (None,) * len(curve.tau)]
    estimates = Curve(curve.tau, curve.value, curve.low, curve.high)
    rows = tuple(
        (*(number(each, 4) for each in point), share)
        for point, share in zip(estimates.points(), clipped, strict=True)
    )
    chart = curves_chart(
        {"estimate": estimates},
        value_title=f"{metric} per session",
        x=XAxis("clip: what is smaller counts as this", "log"),
        from_zero=False,
        marked=curve.chosen or None,
        more={"clicks clipped": clipped},
        theme=PAGE,
    )
    figure = Figure(
        "clip",
        f"{metric} of {curve.system} by clip",
        specification(chart, description),
        description,
        Table(("clip", "estimate", "low", "high", "clicks clipped"), rows, text_columns=()),
        _clip_caption(curve, method),
    )
    said = (
        f"{chosen if curve.chosen else ''}Rarely examined positions get large weights. A clip caps "
        "them: less noise, but the estimate leans towards raw clicks. Where the curve is flat, the "
        "answer does not hang on it."
    )
    return Section(
        "clip", "Does the answer hang on a few heavy clicks?", (said,), figures=(figure,)
    )


def _clip_caption(curve: ClipCurve, method: str) -> str:
    parts = [f"Band: {curve.level:.0%} interval, which does not know about the bias of a clip."]
    if curve.chosen:
        parts.append("Dashed: the clip used.")
    if curve.method and method and curve.method != method:
        parts.append(
            f"This curve is by {method_words(curve.method)}, the answer by {method_words(method)}, "
            "so the two can lie at different heights."
        )
    return " ".join(parts)


def pair_bias_section(curves: tuple[PositionCurve, ...]) -> Section | None:
    """t+ and t- by position, as pairwise debiasing learned them."""
    known = _known(curves)
    if not known:
        return None
    figure = curve_figure(
        "pair-bias",
        "Bias of clicked and of unclicked documents",
        known,
        y_title="relative to position 1",
        description=f"Bias by position. {_range_words(known)}",
        caption=_notes(known),
        level_line=1.0,
    )
    said = (
        "Pairwise debiasing learns two curves along with its ranker: t+ for clicked documents and "
        "t\u2212 for documents that were not clicked, both 1 at position 1."
    )
    return Section("pair-bias", "Bias learned by pairwise debiasing", (said,), figures=(figure,))
