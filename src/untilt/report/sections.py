"""Sections of the page: what the log itself shows, and what rankers do with it."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from untilt._core import words
from untilt._core.arrays import BoolArray
from untilt.auditing.audit import Audit
from untilt.auditing.audit_view import click_rate_figure
from untilt.bias.curve import NO_INTERVAL, PositionBias
from untilt.charts.curves import Curve
from untilt.charts.figures import curve_cell, curve_figure, curve_table, range_words, share_figure
from untilt.charts.grid import grid_chart
from untilt.charts.theme import PAGE
from untilt.data.counts import FEW_CLICKS
from untilt.data.layout import Grid
from untilt.evaluation.estimate_view import difference_figure
from untilt.facts import Fact
from untilt.report.decision import Decision
from untilt.report.floors import MOST_CURVE_FACTOR
from untilt.report.step_results import (
    ChangedQuery,
    Learned,
    MovedDocument,
    NewPositions,
    PairBias,
    Training,
    TreeValues,
    UsedBias,
)
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
        figures.append(click_rate_figure(rates))
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
        notes=_where_from(used),
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
        notes=_where_from(used),
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


def _where_from(used: UsedBias | None) -> tuple[Fact, ...]:
    told = () if used is None else (used.why, used.context, used.sessions)
    return tuple(each for each in told if each)


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
        return "The curve was given, not measured: the answer is only as right as the curve."
    if not used.bias.has_interval:
        return (
            "The curve was estimated, but has no interval: its error is unknown and in no "
            "interval on this page."
        )
    return (
        "A ranker that corrects for examination learns what is left: relevance."
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
            "For comparison: from documents shown at several positions, without a model of "
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
    table = bias.table(depth) if len(curves) == 1 else curve_table(curves, 3)
    return curve_figure(
        "examination",
        "Examination: how often readers look at a position",
        curves,
        y_title="relative to position 1" if bias.relative else "probability",
        description=f"Examination by position{relative}. {range_words(curves)}",
        caption=(*caption, cut_of(audit)),
        table=replace(table, caption=" ".join(notes)),
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
        "Pairwise debiasing fits two curves together with its ranker: t+ for clicked documents "
        "and t\u2212 for documents not clicked, both 1 at position 1. They have no interval: the "
        "better the logged order, the steeper they are, whatever the bias."
    )
    return Section("pair-bias", "Bias learned by pairwise debiasing", (text,), figures=(figure,),
                   folded=True)  # fmt: skip


MOST_FEATURES = 20


def choice_section(training: Training) -> Section | None:
    """Why this ranker: paired differences to the default, where rankers are chosen."""
    if training.why is None:
        return None
    comparison, default = training.comparison, training.default
    return Section(
        "choice",
        "Why this ranker was chosen",
        (
            "A candidate replaces the default if it is better by two standard errors of the "
            "paired difference, corrected for the number of candidates. Otherwise the default is "
            "kept: the largest of several uncertain values is often luck.",
            training.why,
        ),
        figures=()
        if comparison is None
        else (
            difference_figure(
                comparison, training.chosen, name="choice", baseline=f"the default, {default}"
            ),
        ),
    )


def moved_section(moved: Mapping[str, NewPositions], audit: Audit | None = None) -> Section:
    """Average new position by old position; on the diagonal nothing moves."""
    deepest = max(len(each.position) for each in moved.values())
    depth = drawn_depth(audit, deepest)
    curves = {
        n: Curve(each.position, each.value, each.low, each.high).down_to(depth)
        for n, each in moved.items()
    }
    ends = {name: (curve.points()[0], curve.points()[-1]) for name, curve in curves.items()}
    description = "Average new position by old position. " + " ".join(
        f"{name}: what stood at position {first[0]:g} stands at {words.number(first[1], 1)}, "
        f"what stood at {last[0]:g} at {words.number(last[1], 1)}."
        for name, (first, last) in ends.items()
    )
    figure = curve_figure(
        "moved",
        "Average new position of what stood at each position",
        curves,
        y_title="new position",
        x_title="old position",
        description=description,
        caption=(
            "Dashed: no change. The flatter a curve, the more a ranker reorders.",
            cut_of(audit),
        ),
        decimals=2,
        from_zero=False,
        diagonal=True,
    )
    text = (
        "A ranker trained on raw clicks tends to repeat the shown order, so its curve stays near "
        "the diagonal. One that corrects for position can move documents."
    )
    return Section("moved", "What moves where", (text,), figures=(figure,))


def importance_section(shares: Mapping[str, float], of: str) -> Section:
    """The largest ones as bars; all that are known in the table."""
    drawn = dict(list(shares.items())[:MOST_FEATURES])
    first = ", ".join(f"{name} ({words.percent(drawn[name], 0)})" for name in list(drawn)[:3])
    rest = len(shares) - len(drawn)
    description = f"Share of each feature{f' in the {of}' if of else ''}: {first} lead."
    caption = [f"Importance is the {of}."] if of else []
    caption += [f"{words.count_of(rest, 'smaller one')} in the table."] if rest else []
    rows = tuple((name, words.percent(each)) for name, each in shares.items())
    figure = share_figure(
        "importance",
        "Features by importance",
        drawn,
        value_title="share of all features",
        description=description,
        table=Table(("feature", "share"), rows),
        caption=caption,
    )
    title = "What the chosen ranker looks at"
    return Section("importance", title, (f"Most important: {first}.",), figures=(figure,))


def changed_section(changed: tuple[ChangedQuery, ...]) -> Section:
    """One table a query, in the new order, the first one open."""
    text = (
        "Someone who knows the queries can see here whether the new order looks right. The "
        "change is the sum over documents of the change of 1/log2(1 + position)."
    )
    tables = tuple(_query_table(query, opened=i == 0) for i, query in enumerate(changed))
    return Section("changed", "Queries whose order changes most", (text,), tables=tables)


def _query_table(query: ChangedQuery, *, opened: bool) -> Table:
    labelled = any(document.label is not None for document in query.documents)
    clicked = any(document.clicks is not None for document in query.documents)
    header = ["document", "new", "old", "moves"]
    header += ["clicks", "shown"] if clicked else []
    header += ["label"] if labelled else []
    rows = tuple(_document_row(d, clicked, labelled) for d in query.documents)
    parts = [f"Query {words.quoted(query.query)}"]
    if query.sessions is not None:
        parts.append(words.count_of(query.sessions, "session"))
    if query.change is not None:
        parts.append(f"change {words.number(query.change, 1)}")
    return Table(tuple(header), rows, " \u00b7 ".join(parts), folded=True, opened=opened)


def _document_row(document: MovedDocument, clicked: bool, labelled: bool) -> tuple[str, ...]:
    old = document.old_position
    cells = [document.document, f"{document.new_position:g}"]
    if old is None:
        cells += ["not shown", ""]
    else:
        cells += [
            words.number(old, 0 if old == round(old) else 1),
            _arrow(old - document.new_position),
        ]
    cells += [words.whole(document.clicks), words.whole(document.impressions)] if clicked else []
    cells += [words.number(document.label, 0)] if labelled else []
    return tuple(cells)


def _arrow(positions_up: float) -> str:
    """Up or down by how many positions, with an arrow so that no colour is needed."""
    if abs(positions_up) < 0.5:
        return "="
    return f"{chr(0x2191) if positions_up > 0 else chr(0x2193)} {abs(positions_up):.0f}"


# What the learner's symbols mean (`untilt.rankers.stacked.learner` has the formulas).
MEANINGS = {
    "b": "weight of the old ranker (b)",
    "k_x": "weight of trees with random thresholds (k_x)",
    "k_s": "weight of the line and its trees (k_s)",
    "v": "spread of documents that features leave (v)",
    "s2": "spread of queries (s2)",
    "unshown": "never shown",
}


def learner_section(found: Learned) -> Section:
    """Weights of the parts, trees by held-out queries, and documents that nobody was shown."""
    tried = {name: each for name, each in found.trees.items() if len(each.trees) > 1}
    tables = (_stacking(found), _support(found))
    told = (found.reason, found.curve)
    return Section(
        "learner",
        "Inside the learner",
        (
            "The ranker has several parts: one from corrected clicks and one from the old "
            "ranker. Clicks on queries that a part was not trained on choose its weight and its "
            "number of trees.",
        ),
        figures=(_weights(found), *([_trees(tried)] if tried else [])),
        small_tables=tuple(table for table in tables if table.rows),
        notes=tuple(each for each in told if each),
        folded=True,
    )


def _weights(found: Learned) -> Figure:
    shares = dict(sorted(found.weights.items(), key=lambda item: -item[1]))
    rows = tuple((name, words.percent(each, 0)) for name, each in shares.items())
    description = "Share of each part in the score: " + ", ".join(
        f"{name} {share}" for name, share in rows
    )
    return share_figure(
        "learner-parts",
        "Parts of the score",
        shares,
        value_title="share of the score",
        description=description,
        table=Table(("part", "share"), rows),
        caption=(
            "The weight of a part is the spread that it gives to the scores of the log's "
            "documents.",
        ),
    )


def _trees(tried: dict[str, TreeValues]) -> Figure:
    """What each part has gained on held-out queries, as a share of the most that it gains."""
    curves = {name: Curve(list(each.trees), _gained(each)) for name, each in tried.items()}
    taken = "; ".join(f"{name}: {each.best:,}" for name, each in tried.items())
    return curve_figure(
        "learner-trees",
        "Gain on held-out queries by the number of trees",
        curves,
        y_title="share of the most gained",
        description=f"Gain on held-out queries by the number of trees. Taken: {taken}.",
        caption=(f"1 is the best number of trees of each part. Taken: {taken}.",),
        x_title="trees",
        from_zero=False,
    )


def _gained(tried: TreeValues) -> list[float]:
    first, best = tried.values[0], max(tried.values)
    return [(value - first) / ((best - first) or 1.0) for value in tried.values]


def _stacking(found: Learned) -> Table:
    rows = tuple(
        (MEANINGS.get(name, name), words.number(each, 3)) for name, each in found.stacking.items()
    )
    return Table(("what", "value"), rows, "How the parts were weighed on held-out clicks")


def _support(found: Learned) -> Table:
    rows = tuple(
        (MEANINGS.get(name, name), words.whole(each)) for name, each in found.support.items()
    )
    return Table(("documents", "number"), rows, "Shown and never shown")
