"""Sections about the log's own evidence: clicks, examination, learned bias."""

from dataclasses import replace
from functools import partial

from untilt._core import words
from untilt._core.arrays import BoolArray
from untilt.auditing.audit import Audit
from untilt.auditing.audit_view import click_rate_figure
from untilt.bias.curve import NO_INTERVAL, PositionBias
from untilt.charts.curves import Curve
from untilt.charts.figures import curve_cell, curve_figure, curve_table, range_words
from untilt.charts.grid import grid_chart
from untilt.charts.theme import PAGE
from untilt.data.counts import FEW_CLICKS
from untilt.data.layout import Grid
from untilt.facts import Fact
from untilt.report.decision import Decision
from untilt.report.floors import MOST_CURVE_FACTOR
from untilt.report.step_results import PairBias, UsedBias
from untilt.views import Figure, Section, Table


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
        told.append(_fall(curve, rates.clicks >= FEW_CLICKS, "is clicked"))
        figures.append(click_rate_figure(audit))
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
        notes=tuple(each for each in _where_from(used) if each),
    )


def _grid_section(audit: Audit | None, used: UsedBias, grid: Grid) -> Section:
    """Click rate and examination by cell of a grid, as maps."""
    figures = []
    if audit is not None:
        rates = audit.click_rates
        rate = Curve(rates.position, rates.rate, rates.low, rates.high)
        plain = Grid(grid.rows, grid.columns)
        caption = f"All sessions; {rates.level:.0%} intervals, clustered by query."
        figures.append(_grid_figure("click-rate", "Click rate", plain, rate, (caption,)))
    relative = " Relative to the first cell." if used.bias.relative else ""
    told = (f"By {used.bias.method}.{relative}", used.bias.status)
    title = "Examination: how often readers look at a cell"
    figures.append(_grid_figure("examination", title, grid, used.bias.drawn_curve(), told))
    most, least = (used.bias.layout.name(k) for k in (1, used.bias.known_depth))  # type: ignore[union-attr]
    times = words.number(float(used.bias.at(1) / used.bias.at(used.bias.known_depth)), 1)
    fall = f"{most.capitalize()} is looked at {times} times as often as {least}."
    return Section(
        "positions",
        "Clicks and examination by cell",
        paragraphs=(f"{fall} {_how_known(used)}".strip(),),
        figures=tuple(figures),
        notes=tuple(each for each in _where_from(used) if each),
    )


def _grid_figure(
    name: str, title: str, grid: Grid, curve: Curve, caption: tuple[str, ...]
) -> Figure:
    """A map of the grid with its table, row by row."""
    at = {int(k): rest for k, *rest in curve.points()}
    by_cell = sorted(at, key=lambda k: int(grid.number[k - 1]))
    rows = tuple(
        (
            str(grid.row[k - 1]),
            str(grid.column[k - 1]),
            *(curve_cell(at[k], j, 4) for j in range(3)),
        )
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
    draw = partial(grid_chart, grid, curve, theme=PAGE)
    return Figure(name, title, draw, description, table, caption)


def _where_from(used: UsedBias | None) -> tuple[Fact | None, ...]:
    return () if used is None else (used.why, used.context, used.sessions)


def cut_of(audit: Audit | None) -> Fact | None:
    """Which positions are left out of charts for lack of clicks."""
    return None if audit is None else audit.click_rates.not_drawn


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
    notes, caption = [words.sentence(bias.status)], []
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
    if bias.contexts:
        caption = [f"By {bias.method}, a curve for each context."]
    elif len(curves) > 1:
        caption = [f"Used here: {bias.method}."]
    if any(curve.low is not None for curve in curves.values()):
        caption.append(f"Band: {bias.level:.0%} interval.")
    if bias.estimated and not bias.has_interval:
        caption.append(f"{bias.method}: {NO_INTERVAL}.")
    relative = " (position 1 counts as 1)" if bias.relative else ""
    return curve_figure(
        "examination",
        "Examination: how often readers look at a position",
        curves,
        y_title="relative to position 1" if bias.relative else "probability",
        description=f"Examination by position{relative}. {range_words(curves)}",
        caption=(*caption, cut_of(audit)),
        table=replace(curve_table(curves, 3), caption=" ".join(notes)),
    )


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
        description=f"Bias by position. {range_words(curves)}",
        caption=(
            f"By pairwise debiasing, after {learned.rounds} trees; 1 at position 1.",
            cut_of(audit),
        ),
        level=1.0,
    )
    text = (
        "Pairwise debiasing learns two curves along with its ranker: t+ for clicked documents and "
        "t\u2212 for documents that were not clicked, both 1 at position 1. They have no interval: "
        "the better the logged order was, the steeper they come out, whatever the bias."
    )
    return Section("pair-bias", "Bias learned by pairwise debiasing", (text,), figures=(figure,))
