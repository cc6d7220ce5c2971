"""A chart in the document's form: intervals for tables, lines with bands, or bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from untilt.papers.claims import Point, Share, Summary
from untilt.papers.schema import Panel, Row, Value
from untilt.report.charts.charts import PALETTE, configured

# Results as tables: the same ones on the screen and on the page.


@dataclass(frozen=True)
class Table:
    """Columns and rows of text; the first column holds names."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


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
    """Methods down, metrics across; the document's figure and the shares of the gap beside."""
    rows = summary.experiment.rows_of(panel)
    main = metrics[0]
    has_share = any(summary.share(panel, row, main) is not None for row in rows)
    has_report = any(summary.reported(panel, row, main) is not None for row in rows)
    document = summary.experiment.document
    columns = ["method", *metrics]
    columns += [f"{main} in {document}"] if has_report else []
    columns += ["share of the gap"] if has_share else []
    has_both = any(summary.reported_share(panel, row, main) is not None for row in rows)
    columns += [f"share in {document}"] if has_both else []
    lines = []
    for row in rows:
        if summary.point(panel.name, row.name, main) is None:
            continue
        line = [named(row, rows)]
        line += [_shown(summary.point(panel.name, row.name, metric)) for metric in metrics]
        line += [_number(summary.reported(panel, row, main))] if has_report else []
        line += [_share(summary.share(panel, row, main))] if has_share else []
        if has_both:
            line += [_number(summary.reported_share(panel, row, main), digits=2)]
        lines.append(tuple(line))
    return Table(panel.name, tuple(columns), tuple(lines))


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
    return Table(title, ("method", *(shown_x(x) for x in xs)), tuple(lines))


def named(row: Row, rows: Sequence[Row]) -> str:
    """The row's title, with its group where the rows beside it are of several."""
    several = len({other.group for other in rows}) > 1
    return f"{row.group}: {row.title}" if several and row.group else row.title


def shown_x(x: Value) -> str:
    """A value of the x axis as people write it."""
    return x if isinstance(x, str) else f"{x:,.0f}" if x >= 1000 else f"{x:g}"


def _shown(point: Point | None) -> str:
    if point is None:
        return ""
    interval = point.interval
    half = 0.0 if interval is None else (interval.high - interval.low) / 2
    return f"{point.value:.4f}" + (f" ±{half:.4f}" if half >= 5e-5 else "")


def _number(value: float | None, *, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _share(share: Share | None) -> str:
    if share is None:
        return ""
    return f"{share.value:.2f}" + (f" ±{share.half:.2f}" if share.half else "")


WIDTH, HEIGHT = 320, 240
MOST_METRICS = 3  # charts of more metrics than this say the same thing several times


def chart_of(summary: Summary, *, data: str) -> Any:
    """The experiment as one Altair chart, panels side by side, metrics below each other."""
    import altair as alt

    experiment = summary.experiment
    draw = {"table": _intervals, "lines": _lines, "bars": _bars}[experiment.form]
    limit = 1 if experiment.form == "table" else MOST_METRICS
    columns = [
        alt.vconcat(*(draw(summary, panel, metric) for metric in summary.metrics(panel)[:limit]))
        for panel in experiment.panels
        if summary.metrics(panel)
    ]
    several = "s" if summary.n_runs > 1 else ""
    heading = alt.TitleParams(
        experiment.title,
        subtitle=f"{experiment.document}, {experiment.source}; here on {data}, {summary.n_runs} "
        f"run{several}; bands and bars: 95% interval over runs",
        anchor="start",
        subtitleColor="#555555",
    )
    together = alt.hconcat(*columns, spacing=40).properties(title=heading)
    return configured(together.resolve_scale(color="independent", shape="independent"))


def _intervals(summary: Summary, panel: Panel, metric: str) -> Any:
    """Methods one under the other; the document's own figures as open diamonds."""
    import altair as alt

    rows = summary.experiment.rows_of(panel)
    values = [_record(named(row, rows), point) for row in rows
              if (point := summary.point(panel.name, row.name, metric)) is not None]  # fmt: skip
    own = [{"name": named(row, rows), "value": reported} for row in rows
           if (reported := summary.reported(panel, row, metric)) is not None]  # fmt: skip
    names = [named(row, rows) for row in rows]
    y = alt.Y("name:N", title=None, sort=names, axis=alt.Axis(labelLimit=320, ticks=False))
    x: dict[str, Any] = {"title": metric, "scale": alt.Scale(zero=False)}
    base = alt.Chart(alt.Data(values=values)).encode(y=y)
    layers = [
        base.mark_rule(strokeWidth=3, color=PALETTE[2]).encode(x=alt.X("low:Q", **x), x2="high:Q"),
        base.mark_point(filled=True, size=80, color=PALETTE[0], opacity=1).encode(
            x=alt.X("value:Q", **x), tooltip=_tooltip()
        ),
    ]
    if own:
        layers.append(
            alt.Chart(alt.Data(values=own))
            .mark_point(shape="diamond", size=90, color=PALETTE[5], opacity=1)
            .encode(y=y, x=alt.X("value:Q", **x), tooltip=["name:N", "value:Q"])
        )
    beside = f"; diamonds: the figures of {summary.experiment.document}" if own else ""
    return alt.layer(*layers).properties(
        width=WIDTH + 120, height=26 * len(names), title=_small(f"{panel.name}{beside}")
    )


def _lines(summary: Summary, panel: Panel, metric: str) -> Any:
    """Values over the x axis with bands; rows that do not depend on it are dashed lines."""
    import altair as alt

    rows = summary.experiment.rows_of(panel)
    names = [named(row, rows) for row in rows if summary.points_of(panel, row, metric)]
    moving: list[dict[str, Any]] = []
    fixed: list[dict[str, Any]] = []
    for row in rows:
        for point in summary.points_of(panel, row, metric):
            (fixed if point.x is None else moving).append(_record(named(row, rows), point))
    colour = _colour(names)
    y: dict[str, Any] = {"title": metric, "scale": alt.Scale(zero=False)}
    base = alt.Chart(alt.Data(values=moving)).encode(x=_x(panel), color=colour)
    layers = [
        base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", **y), y2="high:Q"),
        base.mark_line(strokeWidth=2).encode(y=alt.Y("value:Q", **y)),
        base.mark_point(filled=True, size=45, opacity=1).encode(
            y=alt.Y("value:Q", **y), shape=_shape(names), tooltip=_tooltip("x:Q")
        ),
    ]
    if fixed:
        layers.append(
            alt.Chart(alt.Data(values=fixed))
            .mark_rule(strokeDash=[5, 4], strokeWidth=2)
            .encode(y=alt.Y("value:Q", **y), color=colour, tooltip=_tooltip())
        )
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=_small(panel.name))


def _bars(summary: Summary, panel: Panel, metric: str) -> Any:
    """Bars with intervals: groups along the x axis, or one bar per method where there is none."""
    import altair as alt

    rows = summary.experiment.rows_of(panel)
    names = [named(row, rows) for row in rows]
    xs = summary.xs(panel, metric)
    values = []
    for row in rows:
        for x in xs or (None,):
            point = summary.point(panel.name, row.name, metric, x)
            if point is not None:
                values.append(
                    {
                        **_record(named(row, rows), point),
                        "x": named(row, rows) if x is None else str(x),
                    }
                )
    title = panel.sweep.title if panel.sweep is not None else None
    order = [str(x) for x in xs] or names
    x = alt.X("x:N", title=title, sort=order, axis=alt.Axis(labelAngle=-30, labelLimit=220))
    base = alt.Chart(alt.Data(values=values)).encode(
        x=x, xOffset=alt.XOffset("name:N", sort=names) if xs else alt.Undefined
    )
    y: dict[str, Any] = {"title": metric, "scale": alt.Scale(zero=False)}
    layers = [
        base.mark_rule(strokeWidth=3).encode(
            y=alt.Y("low:Q", **y), y2="high:Q", color=_colour(names)
        ),
        base.mark_point(filled=True, size=90, opacity=1).encode(
            y=alt.Y("value:Q", **y), color=_colour(names), shape=_shape(names), tooltip=_tooltip()
        ),
    ]
    width = max(WIDTH, 75 * len(order))
    return alt.layer(*layers).properties(width=width, height=HEIGHT, title=_small(panel.name))


def _record(name: str, point: Point) -> dict[str, Any]:
    interval = point.interval
    low, high = (point.value, point.value) if interval is None else (interval.low, interval.high)
    return {"name": name, "x": point.x, "value": point.value, "low": low, "high": high}


def _x(panel: Panel) -> Any:
    import altair as alt

    if panel.sweep is None:
        return alt.X("x:Q", title=panel.unit or "position", axis=alt.Axis(tickMinStep=1))
    kind = (
        alt.Scale(type="log", nice=False) if panel.sweep.scale == "log" else alt.Scale(zero=False)
    )
    return alt.X("x:Q", title=panel.sweep.title, scale=kind, axis=alt.Axis(tickCount=6))


def _colour(names: list[str]) -> Any:
    import altair as alt

    scale = alt.Scale(domain=names, range=list(PALETTE[: len(names)]))
    return alt.Color("name:N", title=None, scale=scale, legend=_legend(names))


def _shape(names: list[str]) -> Any:
    import altair as alt

    return alt.Shape("name:N", title=None, scale=alt.Scale(domain=names), legend=_legend(names))


def _legend(names: list[str]) -> Any:
    import altair as alt

    return alt.Legend(columns=2, labelLimit=0) if len(names) > 1 else None


def _tooltip(*more: str) -> list[Any]:
    import altair as alt

    numbers = [alt.Tooltip(f"{field}:Q", format=".4f") for field in ("value", "low", "high")]
    return [alt.Tooltip("name:N"), *(alt.Tooltip(field) for field in more), *numbers]


def _small(text: str) -> Any:
    import altair as alt

    return alt.TitleParams(text, fontSize=13, fontWeight="normal", anchor="start")
