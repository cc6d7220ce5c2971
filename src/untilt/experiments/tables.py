"""Results as tables: the same ones on the screen and on the page."""

from collections.abc import Sequence
from dataclasses import dataclass

from untilt.experiments.schema import Panel, Row, Value
from untilt.experiments.summary import Point, Share, Summary


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
