"""An experiment as tables, for the screen and the page alike, and as a chart in its own form."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from untilt.charts.curves import Curve, XAxis, curves_chart
from untilt.charts.intervals import Bar, groups_chart, intervals_chart
from untilt.charts.theme import finished, panel_title
from untilt.papers.claims import Summary, SummaryPoint
from untilt.papers.schema import Panel, Value, named
from untilt.views import Table

if TYPE_CHECKING:
    import altair as alt


def tables_of(summary: Summary) -> list[Table]:
    """One table per panel, or per panel and metric where something varies along an axis."""
    tables: list[Table] = []
    for panel in summary.experiment.panels:
        metrics = summary.metrics(panel)
        along = [metric for metric in metrics if summary.xs(panel, metric)]
        plain = [metric for metric in metrics if metric not in along]
        if plain:
            tables.append(_by_metric(summary, panel, plain))
        tables += [_by_x(summary, panel, metric) for metric in along]
    return tables


def _by_metric(summary: Summary, panel: Panel, metrics: list[str]) -> Table:
    """Methods down, metrics across; the document's figure of the first beside."""
    rows = summary.experiment.rows_of(panel)
    main = metrics[0]
    theirs = {row.name: summary.reported(panel, row, main) for row in rows}
    has_report = any(value is not None for value in theirs.values())
    several = len({each.source for each in summary.experiment.reported}) > 1
    document = summary.experiment.document
    document += f" ({summary.reported_on})" if several else ""
    columns = ["method", *metrics, *([f"{main} in {document}"] if has_report else [])]
    lines = []
    for row in rows:
        if summary.point(panel.name, row.name, main) is not None:
            line = [named(row, rows)]
            line += [_shown(summary.point(panel.name, row.name, metric)) for metric in metrics]
            lines.append((*line, *([_number(theirs[row.name])] if has_report else [])))
    return Table(tuple(columns), tuple(lines), panel.name)


def compared(summaries: Sequence[Summary]) -> list[Table]:
    """Methods down, data sets across, by the main metric of each panel without an axis."""
    experiment = summaries[0].experiment
    tables = []
    for panel in experiment.panels:
        main, rows = panel.metrics[0], experiment.rows_of(panel)
        theirs = [summaries[0].reported(panel, row, main) for row in rows]
        source = f" ({summaries[0].reported_on})" if any(theirs) else ""
        head = (
            f"{panel.name}, {main}",
            f"{experiment.document}{source}",
            *(s.data for s in summaries),
        )
        lines = [
            (
                named(row, rows),
                _number(figure),
                *(_shown(s.point(panel.name, row.name, main)) for s in summaries),
            )
            for row, figure in zip(rows, theirs, strict=True)
        ]
        if panel.sweep is None and not summaries[0].xs(panel, main):
            tables.append(Table(head, tuple(lines), panel.name))
    return tables


def _by_x(summary: Summary, panel: Panel, metric: str) -> Table:
    """Methods down, the values of the x axis across."""
    xs = summary.xs(panel, metric)
    axis = panel.sweep.title if panel.sweep is not None else panel.unit or "position"
    rows = summary.experiment.rows_of(panel)
    lines = [
        (named(row, rows), *(_shown(summary.point(panel.name, row.name, metric, x)) for x in xs))
        for row in rows
        if summary.point(panel.name, row.name, metric, xs[0]) is not None
    ]
    title = f"{panel.name}: {metric} by {axis}"
    return Table(("method", *(shown_x(x) for x in xs)), tuple(lines), title)


def shown_x(x: Value) -> str:
    """A value of the x axis as people write it."""
    return x if isinstance(x, str) else f"{x:,.0f}" if x >= 1000 else f"{x:g}"


def _shown(point: SummaryPoint | None) -> str:
    if point is None:
        return ""
    interval = point.interval
    half = 0.0 if interval is None else (interval.high - interval.low) / 2
    return f"{point.value:.4f}" + (f" ±{half:.4f}" if half >= 5e-5 else "")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


WIDTH = 320
MOST_METRICS = 3  # charts of more metrics than this say the same thing several times


def chart_of(summary: Summary, *, data: str) -> "alt.HConcatChart":
    """The experiment as one Altair chart, panels side by side, metrics below each other."""
    import altair as alt

    experiment = summary.experiment
    limit = 1 if experiment.form == "table" else MOST_METRICS
    columns = [
        alt.vconcat(*(_drawn(summary, panel, metric) for metric in summary.metrics(panel)[:limit]))
        for panel in experiment.panels
        if summary.metrics(panel)
    ]
    together = alt.hconcat(*columns, spacing=40)
    several = "s" if summary.n_runs > 1 else ""
    return finished(
        together.resolve_scale(color="independent", shape="independent", strokeDash="independent"),
        title=experiment.title,
        subtitle=f"{experiment.document}, {experiment.source}; here on {data}, {summary.n_runs} "
        f"run{several}; bands and bars: 95% interval over runs",
    )


def _drawn(summary: Summary, panel: Panel, metric: str) -> "alt.LayerChart":
    """In the experiment's form; what has no axis cannot be a line."""
    form = summary.experiment.form
    if form == "lines":
        form = "lines" if summary.xs(panel, metric) else "table"
    return {"table": _intervals, "lines": _curves, "bars": _groups}[form](summary, panel, metric)


def _intervals(summary: Summary, panel: Panel, metric: str) -> "alt.LayerChart":
    """Methods one under the other; the document's own figures as open diamonds."""
    rows = summary.experiment.rows_of(panel)
    points = {named(row, rows): summary.point(panel.name, row.name, metric) for row in rows}
    reported = {
        named(row, rows): figure
        for row in rows
        if points[named(row, rows)] is not None
        and (figure := summary.reported(panel, row, metric)) is not None
    }
    chart = intervals_chart(
        {name: _bar(point) for name, point in points.items() if point is not None},
        value_title=metric,
        reported=reported,
        row=36,
    )
    beside = f"; diamonds: the figures of {summary.experiment.document}" if reported else ""
    return chart.properties(width=WIDTH + 120, title=panel_title(f"{panel.name}{beside}"))


def _curves(summary: Summary, panel: Panel, metric: str) -> "alt.LayerChart":
    """Values over the x axis with bands; rows that do not depend on it are level."""
    rows = summary.experiment.rows_of(panel)
    xs = summary.xs(panel, metric)
    curves = {}
    for row in rows:
        points = {point.x: _bar(point) for point in summary.points_of(panel, row, metric)}
        if None in points:
            points = dict.fromkeys(xs, points[None])
        if points:
            value, low, high, *_ = zip(*points.values(), strict=True)
            at = [float(x) for x in points if x is not None]
            curves[named(row, rows)] = Curve(at, value, low, high)
    sweep = panel.sweep
    title = sweep.title if sweep is not None else panel.unit or "position"
    scale: Literal["log", "linear"] = "log" if sweep and sweep.scale == "log" else "linear"
    chart = curves_chart(
        curves, value_title=metric, x=XAxis(title, scale), from_zero=False, legend_columns=2
    )
    return chart.properties(width=WIDTH, title=panel_title(panel.name))


def _groups(summary: Summary, panel: Panel, metric: str) -> "alt.LayerChart":
    """Values with intervals in groups along the x axis, or one by one where there is none."""
    rows = summary.experiment.rows_of(panel)
    groups: dict[str, dict[str, Bar]] = {}
    for x in summary.xs(panel, metric) or (None,):
        for row in rows:
            point = summary.point(panel.name, row.name, metric, x)
            if point is not None:
                name = named(row, rows)
                groups.setdefault(name if x is None else str(x), {})[name] = _bar(point)
    title = panel.sweep.title if panel.sweep is not None else None
    chart = groups_chart(groups, value_title=metric, group_title=title)
    return chart.properties(title=panel_title(panel.name))


def _bar(point: SummaryPoint) -> Bar:
    ends = point.interval
    low, high = (point.value, point.value) if ends is None else (ends.low, ends.high)
    return Bar(point.value, low, high)
