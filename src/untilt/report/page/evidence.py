"""Sections about the log's own evidence: clicks, examination, reading, comparisons, the clip."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from untilt._core.arrays import BoolArray
from untilt.auditing.audit import Audit
from untilt.bias.curve import PositionBias
from untilt.charts.curves import Curve, XAxis, curves_chart
from untilt.charts.graph import graph_chart, positions_words
from untilt.charts.grid import grid_chart
from untilt.charts.intervals import Bar, intervals_chart
from untilt.charts.theme import MOST_SERIES, PAGE
from untilt.charts.tornado import tornado_chart
from untilt.data.layout import Grid
from untilt.data.rates import FEW_CLICKS
from untilt.facts import Fact
from untilt.messages.about_general import NO_INTERVAL
from untilt.report.decision import Decision
from untilt.report.floors import MOST_CURVE_FACTOR
from untilt.report.page import words
from untilt.report.page.words import Figure, Key, Section, Table, specification
from untilt.report.step_results import HeldOut, PairBias, UsedBias

Curves = Mapping[str, Curve]


def position_section(data: Decision) -> Section | None:
    """Click rate and examination by position, one above the other."""
    audit, used = data.audit, data.bias
    if used is not None and isinstance(used.bias.layout, Grid):
        return _grid_section(audit, used, used.bias.layout)
    told, figures, depth = [], [], None
    if audit is not None:
        rates = audit.click_rates
        depth = rates.drawn_depth
        curve = Curve(rates.position, rates.rate, rates.low, rates.high).down_to(depth)
        clicks = {"click rate": curve}
        told.append(_fall(curve, rates.clicks >= FEW_CLICKS, "is clicked"))
        figures.append(
            curve_figure(
                "click-rate",
                "Click rate",
                clicks,
                y_title="clicks per impression",
                description=f"Click rate by position. {_range_words(clicks, percent_values=True)}",
                caption=with_cut(
                    f"All sessions; {rates.level:.0%} intervals, clustered by query.", audit
                ),
                decimals=4,
            )
        )
    if used is not None:
        mean = [used.bias, *used.bias.contexts.values()][-1]
        known = (mean.uncertainty <= MOST_CURVE_FACTOR) | (not mean.has_interval)
        curve = _examination(mean, depth)
        told += [_fall(curve, known, "is looked at"), _how_known(used)]
        figures.append(_examination_figure(used, audit))
    if not figures:
        return None
    paragraph = " ".join(text for text in told if text)
    return Section(
        "positions",
        "Clicks and examination by position",
        paragraphs=(paragraph,) if paragraph else (),
        figures=tuple(figures),
        notes=tuple(words.sentence(each) for each in _where_from(used) if each),
    )


def _grid_section(audit: Audit | None, used: UsedBias, grid: Grid) -> Section:
    """Click rate and examination by cell of a grid, as maps."""
    figures = []
    if audit is not None:
        rates = audit.click_rates
        rate = Curve(rates.position, rates.rate, rates.low, rates.high)
        plain = Grid(grid.rows, grid.columns)
        caption = f"All sessions; {rates.level:.0%} intervals, clustered by query."
        figures.append(_grid_figure("click-rate", "Click rate", plain, rate, caption))
    relative = " Relative to the first cell." if used.bias.relative else ""
    caption = f"By {used.bias.method}.{relative} {words.sentence(used.bias.status)}"
    title = "Examination: how often readers look at a cell"
    figures.append(_grid_figure("examination", title, grid, used.bias.drawn_curve(), caption))
    most, least = (used.bias.layout.name(k) for k in (1, used.bias.known_depth))  # type: ignore[union-attr]
    times = words.number(float(used.bias.at(1) / used.bias.at(used.bias.known_depth)), 1)
    told = f"{most.capitalize()} is looked at {times} times as often as {least}."
    return Section(
        "positions",
        "Clicks and examination by cell",
        paragraphs=(f"{told} {_how_known(used)}".strip(),),
        figures=tuple(figures),
        notes=tuple(words.sentence(each) for each in _where_from(used) if each),
    )


def _grid_figure(name: str, title: str, grid: Grid, curve: Curve, caption: str) -> Figure:
    """A map of the grid with its table, row by row."""
    at = {int(k): rest for k, *rest in curve.points()}
    by_cell = sorted(at, key=lambda k: int(grid.number[k - 1]))
    rows = tuple(
        (str(grid.row[k - 1]), str(grid.column[k - 1]), *(_cell(at[k], j, 4) for j in range(3)))
        for k in by_cell
    )
    known = [k for k in by_cell if at[k][0] is not None]
    most = max(known, key=lambda k: at[k][0] or 0.0)
    least = min(known, key=lambda k: at[k][0] or 0.0)
    description = (
        f"{title} over {grid.rows} rows and {grid.columns} columns: most in {grid.name(most)}, "
        f"{words.number(at[most][0])}, least in {grid.name(least)}, {words.number(at[least][0])}."
    )
    table = Table(("row", "column", "value", "low", "high"), rows, text_columns=())
    chart = grid_chart(grid, curve, theme=PAGE)
    return Figure(name, title, specification(chart, description), description, table, caption, ())


def _where_from(used: UsedBias | None) -> tuple[Fact | None, ...]:
    return () if used is None else (used.why, used.context, used.sessions)


def with_cut(caption: str, audit: Audit | None) -> str:
    """The caption, and which positions are left out for lack of clicks."""
    cut = None if audit is None else audit.click_rates.not_drawn
    return caption if cut is None else f"{caption} {words.sentence(cut)}".strip()


def drawn_depth(audit: Audit | None, deepest: int) -> int:
    """Positions that charts draw: those with clicks, all of them where nothing is known of that."""
    return deepest if audit is None else audit.click_rates.drawn_depth


def _examination(bias: PositionBias, depth: int | None) -> Curve:
    """Down to `depth`, or to the last position that is known."""
    return bias.drawn_curve().down_to(bias.known_depth if depth is None else depth)


def _fall(curve: Curve, known: BoolArray, verb: str) -> str:
    """How many times the value at the first position exceeds that at the last of those known."""
    sure = [(int(k), value) for k, value, *_ in curve.points() if value and known[int(k) - 1]]
    if len(sure) < 2:
        return ""
    (first, top), (last, bottom) = sure[0], sure[-1]
    times = words.number(top / bottom, 1)
    return f"Position {first} {verb} {times} times as often as position {last}."


def _how_known(used: UsedBias) -> str:
    if used.is_assumed:
        return "The curve was given, not measured: the answer is as right as the curve is."
    if not used.bias.has_interval:
        return (
            "The curve was estimated, but it has no interval: how far it is off is not known, and "
            "no interval on this page counts it."
        )
    return (
        "The second is taken out of the first when a ranker learns: what is left is relevance."
        if used.bias.relative
        else ""
    )


def _examination_figure(used: UsedBias, audit: Audit | None) -> Figure:
    """The curve that is used, and the audit's own beside it where that is another."""
    bias, evidence = used.bias, None if audit is None else audit.evidence
    depth = None if audit is None else audit.click_rates.drawn_depth
    own = {**bias.contexts} or {bias.method: bias}
    curves = {name: _examination(each, depth) for name, each in own.items()}
    notes = [words.sentence(bias.status)]
    if (
        not bias.contexts
        and evidence is not None
        and evidence.method != bias.method
        and evidence.low is not None
    ):
        curves[f"{evidence.method}, to compare"] = _examination(evidence, depth)
        notes.append(
            "To compare: by documents that stood at several positions, without a model of "
            "relevance."
        )
    caption = f"Used here: {bias.method}. " if len(curves) > 1 else ""
    if bias.contexts:
        caption = f"By {bias.method}, a curve for each context. "
    if any(curve.low is not None for curve in curves.values()):
        caption += f"Band: {bias.level:.0%} interval."
    if bias.estimated and not bias.has_interval:
        caption += f" {bias.method}: {NO_INTERVAL}."
    relative = " (position 1 counts as 1)" if bias.relative else ""
    return curve_figure(
        "examination",
        "Examination: how often readers look at a position",
        curves,
        y_title="relative to position 1" if bias.relative else "probability",
        description=f"Examination by position{relative}. {_range_words(curves)}",
        caption=with_cut(caption.strip(), audit),
        table_caption=" ".join(notes),
    )


def _range_words(curves: Curves, *, percent_values: bool = False) -> str:
    """The ends of each curve in words, for those who do not see the chart."""
    parts, say = [], words.percent if percent_values else words.number
    for name, curve in curves.items():
        known = [(int(k), value) for k, value, *_ in curve.points() if value is not None]
        if known:
            (first, top), (last, bottom) = known[0], known[-1]
            parts.append(
                f"{name} goes from {say(top)} at position {first} to {say(bottom)} at position "
                f"{last}."
            )
    return " ".join(parts)


def curve_figure(
    name: str,
    title: str,
    curves: Curves,
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
    drawn = dict(list(curves.items())[:MOST_SERIES])
    chart = curves_chart(
        drawn,
        value_title=y_title,
        x=XAxis(x_title),
        from_zero=from_zero,
        decimals=decimals,
        level=level_line,
        diagonal=diagonal,
        theme=PAGE,
    )
    keys = tuple(Key(each, i) for i, each in enumerate(drawn)) if len(drawn) > 1 else ()
    table = replace(curve_table(curves, decimals, x_title), caption=table_caption)
    spec = specification(chart, description)
    return Figure(name, title, spec, description, table, caption, keys)


def curve_table(curves: Curves, decimals: int, first: str) -> Table:
    """A row for each position; value and, where known, the ends of the interval of each curve."""
    header, columns = [first], []
    for name, curve in curves.items():
        at = {int(k): rest for k, *rest in curve.points()}
        wanted = (0,) if curve.low is None else (0, 1, 2)
        header += [name, "low", "high"][: len(wanted)]
        columns += [(at, j) for j in wanted]
    rows = tuple(
        (str(k), *(_cell(at.get(k), j, decimals) for at, j in columns))
        for k in sorted({k for at, _ in columns for k in at})
    )
    return Table(tuple(header), rows, text_columns=())


def _cell(point: Sequence[float | None] | None, j: int, decimals: int) -> str:
    """One figure of a table; a position on the curve without a value is not known."""
    if point is not None and point[0] is None:
        return "not known" if j == 0 else ""
    return words.number(None if point is None else point[j], decimals)


def comparable_section(audit: Audit) -> Section:
    """Which positions share documents, so that their clicks can be compared."""
    graph = audit.graph.top(audit.click_rates.drawn_depth)
    shown = [k for part in graph.components for k in part]
    pieces = "; ".join(positions_words(part) for part in graph.components)
    edges = sorted(graph.edges, key=lambda edge: -edge.weight)
    description = (
        f"Positions {positions_words(shown)} with {words.count_of(len(edges), 'link')} between "
        f"positions that showed the same documents. Groups joined: {pieces or 'none'}."
    )
    figure = Figure(
        "graph",
        "An arc joins positions that showed the same documents",
        specification(graph_chart(graph, theme=PAGE), description),
        description,
        Table(
            ("positions", "shared documents", "evidence"),
            _pair_rows(
                (e.upper, e.lower, words.whole(e.documents), words.whole(e.weight)) for e in edges
            ),
        ),
        with_cut(
            "A wider arc carries more evidence."
            + (" Dashed: swaps that would join the groups." if graph.swaps else ""),
            audit,
        ),
    )
    swaps = Table(
        ("positions", "clicks lost per swap at most"),
        _pair_rows((s.upper, s.lower, words.number(s.most_lost, 4)) for s in graph.swaps),
        "Swaps that would join the groups",
    )
    return Section(
        "comparable",
        "Can the positions be compared?",
        paragraphs=(audit.verdict,),
        figures=(figure,) if shown else (),
        tables=(swaps,) if graph.swaps else (),
    )


def _pair_rows(pairs: Iterable[tuple[int, int, *tuple[str, ...]]]) -> tuple[tuple[str, ...], ...]:
    return tuple((f"{upper} and {lower}", *rest) for upper, lower, *rest in pairs)


def null_section(part: HeldOut) -> Section:
    """Null tests: what was tried, what should come out, and what did."""
    tests, found = part.null_tests, part.comparison[part.chosen]
    assert tests is not None
    failed = {fact.code for fact in tests.failures(found)}
    decimals = words.decimals_for([found.interval])

    def signed(value: float) -> str:
        return words.number(value, decimals, signed=True)

    compared = (
        f"{tests.same_order_queries:,} of {words.count_of(tests.n_queries, 'query', 'queries')}"
    )
    permuted = signed(tests.permuted)
    if np.isfinite(tests.permuted_error):
        permuted += f" \u00b1 {words.number(tests.permuted_error, decimals)}"
    rows = (
        ("The order that was shown, against itself", "0",
         f"{signed(tests.same_order)} ({compared})", {"null.same-order"}),
        ("As large a difference with the names of the two orders drawn at random for each query",
         f"under {1 - tests.level:.0%} of the draws, if decided", words.percent(tests.relabelled_p),
         {"null.relabelled"}),
        ("Clicks that changed places within their position", "0", permuted, {"null.permuted"}),
        ("What the clip and the end of the curve alone make", "less than would decide",
         signed(tests.lean), {"null.lean"}),
    )  # fmt: skip
    text = (
        "Each line puts something without a difference through the same computation. A log that "
        "finds one there breaks an assumption, and then there is no verdict."
    )
    return Section(
        "null-tests",
        "Would this log call the same order better?",
        (text,),
        tables=(
            Table(
                ("test", "should be", "found", ""),
                tuple((*row, "fails" if codes & failed else "passes") for *row, codes in rows),
                f"Null tests of {words.quoted(part.chosen)} against the {found.baseline}",
                text_columns=(0, 1, 3),
                marked=tuple(i for i, (*_, codes) in enumerate(rows) if codes & failed),
            ),
        ),
    )


def sensitivity_section(part: HeldOut) -> Section | None:
    """What would turn the answer: a tornado chart, and the same in sentences."""
    found = part.sensitivity
    if found is None or not found.causes:
        return None
    metric, ends = words.metric_name(found.metric), [found.interval]
    decimals = words.decimals_for(ends)

    def signed(value: float) -> str:
        return words.number(value, decimals, signed=True)

    rows = tuple(
        (
            each.title,
            words.sentence(each.tried),
            words.TO.join(signed(v) for v in sorted((each.at_least, each.at_most))),
            words.sentence(each.answer),
        )
        for each in found
    )
    widest = found.causes[0]
    description = (
        f"The difference is {signed(found.value)}. {widest.title} moves it most: "
        f"{words.TO.join(signed(v) for v in sorted((widest.at_least, widest.at_most)))}."
    )
    chart = tornado_chart(
        found.bars(),
        value=found.value,
        value_title=f"difference in {metric} per session",
        theme=PAGE,
    )
    figure = Figure(
        "sensitivity",
        "The difference, if one thing at a time is wrong",
        specification(chart, description),
        description,
        Table(
            ("what may be wrong", "tried", "difference", "what would turn it"),
            rows,
            text_columns=(0, 1, 3),
        ),
        "Bars: the difference over the range tried. Dashed: as measured. Upright line: no "
        "difference; beyond it the answer is the opposite one.",
    )
    turning = found.turning
    text = (
        "The interval covers chance, not a model that is wrong. Each bar takes one departure from "
        "the model, of a size that is the same for every log, and computes the difference again. "
    )
    text += (
        f"Within these ranges the answer can turn: {', '.join(e.title.lower() for e in turning)}."
        if turning
        else "Within these ranges none turns the answer."
    )
    notes = tuple(words.sentence(each.answer) for each in found if each.turns_at is not None)
    title = "What would turn the answer?"
    return Section("sensitivity", title, (text,), figures=(figure,), notes=notes)


def clip_section(part: HeldOut) -> Section | None:
    """What clipping of weights would change."""
    curve = part.clip_curve
    if curve is None:
        return None
    metric, clip = words.metric_name(curve.metric), part.clip
    estimates = Curve(curve.clip, curve.value, curve.low, curve.high)
    clipped = [words.percent(share) for share in curve.clipped_share]
    description = (
        f"{metric} of {part.chosen} by clip: "
        f"{words.number(curve.value[0])} at {words.number(curve.clip[0])}, "
        f"{words.number(curve.value[-1])} at {words.number(curve.clip[-1])}."
    )
    chart = curves_chart(
        {"estimate": estimates},
        value_title=f"{metric} per session",
        x=XAxis("clip: what is smaller counts as this", "log"),
        from_zero=False,
        marked=clip or None,
        more={"clicks clipped": clipped},
        theme=PAGE,
    )
    rows = tuple(
        (*(words.number(each, 4) for each in point), share)
        for point, share in zip(estimates.points(), clipped, strict=True)
    )
    caption = [f"Band: {curve.level:.0%} interval, which does not know about the bias of a clip."]
    caption += ["Dashed: the clip used."] if clip else []
    if curve.evaluator != part.evaluator:
        caption.append(
            f"This curve is by {words.evaluator_words(curve.evaluator)}, the answer by "
            f"{words.evaluator_words(part.evaluator)}, so the two can lie at different heights."
        )
    figure = Figure(
        "clip",
        f"{metric} of {part.chosen} by clip",
        specification(chart, description),
        description,
        Table(("clip", "estimate", "low", "high", "clicks clipped"), rows, text_columns=()),
        " ".join(caption),
    )
    used = f"The clip used here is {words.number(clip, 3)}. " if clip else ""
    text = (
        f"{used}Rarely examined positions get large weights. A clip caps them: less noise, but the "
        "estimate leans towards raw clicks. Where the curve is flat, the answer does not depend on "
        "the clip."
    )
    title = "Does the answer depend on a few heavy clicks?"
    return Section("clip", title, (text,), figures=(figure,))


def pair_bias_section(learned: PairBias, audit: Audit | None = None) -> Section:
    """t+ and t- by position, as pairwise debiasing learned them."""
    positions = range(1, len(learned.plus) + 1)
    depth = drawn_depth(audit, len(positions))
    curves = {
        "t+ (clicked)": Curve(positions, learned.plus).down_to(depth),
        "t\u2212 (not clicked)": Curve(positions, learned.minus).down_to(depth),
    }
    figure = curve_figure(
        "pair-bias",
        "Bias of clicked and of unclicked documents",
        curves,
        y_title="relative to position 1",
        description=f"Bias by position. {_range_words(curves)}",
        caption=with_cut(
            f"By pairwise debiasing, after {learned.rounds} trees; 1 at position 1.", audit
        ),
        level_line=1.0,
    )
    text = (
        "Pairwise debiasing learns two curves along with its ranker: t+ for clicked documents and "
        "t\u2212 for documents that were not clicked, both 1 at position 1. They have no interval: "
        "the better the logged order was, the steeper they come out, whatever the bias."
    )
    return Section("pair-bias", "Bias learned by pairwise debiasing", (text,), figures=(figure,))


def reading_section(audit: Audit) -> Section | None:
    """Whether people read as the position-based model says; None where nothing was tested."""
    tests = audit.reading
    if tests is None or not tests.tests:
        return None
    rows = tuple((*row, "fails" if test.fails else "fits") for row, test in tests.named())
    description = "Ratios of click rates, 1 where the model is right: " + "; ".join(
        f"{name} {ratio}, p {p}, {said}" for name, ratio, p, said in rows
    )
    chart = intervals_chart(
        {
            row[0]: Bar(test.ratio, test.low, test.high, f"{test.ratio:.2f}", test.fails)
            for row, test in tests.named()
        },
        value_title="ratio of click rates",
        names="above",
        at=1.0,
        value_format=".2f",
        theme=PAGE,
    )
    figure = Figure(
        "reading",
        "Ratios of click rates that are 1 where the model is right",
        specification(chart, description),
        description,
        Table(("compared", "ratio", "p-value", "model"), rows, text_columns=(0, 3)),
        f"Bar: {audit.click_rates.level:.0%} interval. p: of all comparisons together.",
    )
    return Section(
        "reading",
        "Do people read as the model says?",
        paragraphs=(
            "The position-based model says that a click needs a look and a relevant document, and "
            "that looks depend on the position alone. These are things it cannot bend to.",
        ),
        figures=(figure,),
        notes=tuple(words.sentence(each) for each in tests.notes),
        cautions=tuple(words.sentence(each) for each in tests.facts),
    )
