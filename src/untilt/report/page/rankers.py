"""Sections about rankers: compared, what they move, what they look at, what changes."""

from collections.abc import Sequence

from untilt.charts.intervals import Bar, bars_chart, intervals_chart
from untilt.charts.theme import PAGE
from untilt.report.decision import (
    ChangedQuery,
    FeatureImportance,
    MovedDocument,
    PositionCurve,
    RankerResult,
    Rankers,
    Value,
)
from untilt.report.page.evidence import curve_figure
from untilt.report.page.parts import Figure, Section, Table, specification
from untilt.report.page.words import (
    count_of,
    interval,
    method_words,
    metric_name,
    metric_words,
    number,
    percent,
    places,
    quoted,
    sentence,
    stopped,
    whole,
)

MOST_FEATURES = 20


def rankers_section(rankers: Rankers) -> Section:
    """Differences to the baseline as a chart, values and differences as a table."""
    compared = [(entry, entry.difference) for entry in rankers.entries if entry.difference]
    better = "Higher" if rankers.higher_is_better else "Lower"
    counts = metric_words(rankers.metric)
    said = (
        f"All were estimated on the same held-out queries"
        f"{f' by {method_words(rankers.method)}' if rankers.method else ''}. {better} is better"
        f"{f': {counts}' if counts else ''}."
    )
    figures = (_differences(rankers, compared),) if compared else ()
    return Section(
        "rankers", "Rankers compared", (said,), figures=figures, tables=(_table(rankers),),
        notes=tuple(stopped(f"{e.name}: {e.note}") for e in rankers.entries if e.note),
    )  # fmt: skip


def _differences(rankers: Rankers, compared: Sequence[tuple[RankerResult, Value]]) -> Figure:
    metric = metric_name(rankers.metric)
    decimals = places([value for _, value in compared])
    description = f"{metric} minus that of the {rankers.baseline}: " + "; ".join(
        f"{entry.name} {number(value.value, decimals, signed=True)} "
        f"({interval(value, decimals, signed=True)})"
        for entry, value in compared
    )
    chart = intervals_chart(
        {
            e.name: Bar(v.value, v.low, v.high, number(v.value, decimals, signed=True), e.chosen)
            for e, v in compared
        },
        value_title=f"{metric} per session, minus the {rankers.baseline}",
        names="above",
        at=0.0,
        value_format=f"+.{decimals}f",
        theme=PAGE,
    )
    rows = tuple(
        (e.name, *(number(x, decimals, signed=True) for x in (v.value, v.low, v.high)))
        for e, v in compared
    )
    return Figure(
        "rankers",
        f"Difference to the {rankers.baseline}",
        specification(chart, description),
        description,
        Table(("ranker", "difference", "low", "high"), rows),
        f"Bar: {rankers.level:.0%} interval of the paired difference. What lies on one side of 0 "
        "with its whole bar is more than chance.",
    )


def _table(rankers: Rankers) -> Table:
    decimals = places([entry.value for entry in rankers.entries])
    other = places([entry.difference for entry in rankers.entries if entry.difference])
    rows = tuple(
        (
            f"{entry.name} (chosen)" if entry.chosen else entry.name,
            number(entry.value.value, decimals),
            interval(entry.value, decimals),
            number(entry.difference.value, other, signed=True) if entry.difference else "",
            interval(entry.difference, other, signed=True) if entry.difference else "",
            {True: "yes", False: "no", None: ""}[entry.decided],
        )
        for entry in rankers.entries
    )
    ends = f"{rankers.level:.0%} interval"
    header = ("ranker", metric_name(rankers.metric), ends, "difference", ends, "decided")
    keep = [j for j in range(len(header)) if j < 3 or any(row[j] for row in rows)]
    return Table(
        tuple(header[j] for j in keep),
        tuple(tuple(row[j] for j in keep) for row in rows),
        "Estimates per session",
        text_columns=tuple(i for i, j in enumerate(keep) if j in (0, 5)),
        marked=tuple(i for i, entry in enumerate(rankers.entries) if entry.chosen),
    )


def moved_section(curves: tuple[PositionCurve, ...]) -> Section | None:
    """Average new position by old position; on the diagonal nothing moves."""
    known = tuple(curve for curve in curves if curve.position)
    if not known:
        return None
    description = "Average new position by old position. " + " ".join(
        f"{curve.name}: what stood at position {curve.position[0]} stands at "
        f"{number(curve.value[0], 1)}, what stood at {curve.position[-1]} at "
        f"{number(curve.value[-1], 1)}."
        for curve in known
    )
    figure = curve_figure(
        "moved",
        "Average new position of what stood at each position",
        known,
        y_title="new position",
        x_title="old position",
        description=description,
        caption="Dashed: nothing moves. The flatter a curve, the more a ranker reorders.",
        decimals=2,
        from_zero=False,
        diagonal=True,
    )
    said = (
        "A ranker that takes clicks as they are tends to repeat the order that was shown, so its "
        "curve stays near the diagonal. One that corrects for position is free to move documents."
    )
    return Section("moved", "What moves where", (said,), figures=(figure,))


def importance_section(entries: tuple[FeatureImportance, ...], of: str) -> Section:
    """The largest ones as bars; all that are known in the table."""
    drawn = entries[:MOST_FEATURES]
    first = ", ".join(f"{each.name} ({percent(each.share, 0)})" for each in drawn[:3])
    rest = len(entries) - len(drawn)
    description = f"Share of each feature{f' in the {of}' if of else ''}: {first} lead."
    table = Table(("feature", "share"), tuple((each.name, percent(each.share)) for each in entries))
    chart = bars_chart(
        {each.name: each.share for each in drawn}, value_title="share of all features", theme=PAGE
    )
    figure = Figure(
        "importance",
        "Features by importance",
        specification(chart, description),
        description,
        table,
        " ".join(
            text
            for text in (
                f"Importance is the {of}." if of else "",
                f"{count_of(rest, 'smaller one')} in the table." if rest else "",
            )
            if text
        ),
    )
    said = f"Most important: {first}."
    return Section("importance", "What the chosen ranker looks at", (said,), figures=(figure,))


def changed_section(changed: tuple[ChangedQuery, ...]) -> Section:
    """One table a query, in the new order, the first one open."""
    note = next((query.note for query in changed if query.note), "")
    said = "Read some of them: does the new order look right to someone who knows the queries?"
    tables = tuple(_query_table(query, opened=i == 0) for i, query in enumerate(changed))
    extra = f" {sentence(note)}" if note else ""
    return Section(
        "changed", "Queries whose order changes most", (said + extra,), tables=tables
    )  # fmt: skip


def _query_table(query: ChangedQuery, *, opened: bool) -> Table:
    labelled = any(document.label is not None for document in query.documents)
    clicked = any(document.clicks is not None for document in query.documents)
    header = ["document", "new", "old", "moves"]
    header += ["clicks", "shown"] if clicked else []
    header += ["label"] if labelled else []
    rows = tuple(_document_row(d, clicked, labelled) for d in query.documents)
    parts = [f"Query {quoted(query.query)}"]
    if query.sessions is not None:
        parts.append(count_of(query.sessions, "session"))
    if query.change is not None:
        parts.append(f"change {number(query.change, 1)}")
    return Table(tuple(header), rows, " \u00b7 ".join(parts), folded=True, opened=opened)


def _document_row(document: MovedDocument, clicked: bool, labelled: bool) -> tuple[str, ...]:
    old = document.old_position
    decimals = 0 if old is None or old == round(old) else 1
    cells = [document.document, str(document.new_position)]
    cells += ["not shown", ""] if old is None else [number(old, decimals), _moves(document)]
    cells += [whole(document.clicks), whole(document.impressions)] if clicked else []
    cells += [number(document.label, 0)] if labelled else []
    return tuple(cells)


def _moves(document: MovedDocument) -> str:
    """Up or down by how many places, with an arrow so that no colour is needed."""
    assert document.old_position is not None
    places_up = document.old_position - document.new_position
    if abs(places_up) < 0.5:
        return "="
    arrow = "\u2191" if places_up > 0 else "\u2193"
    return f"{arrow} {abs(places_up):.0f}"
