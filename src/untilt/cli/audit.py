"""`untilt audit`: what is in a click log, before anything is learned from it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from untilt._core.progress import progress
from untilt.cli.arguments import AsJson, LogOptions, LogPath, Verbose, check_plots
from untilt.cli.console import Output, rates_table, speaking

if TYPE_CHECKING:
    from untilt.auditing.audit import Audit

MOST_ROWS = 40


def audit(
    reading: LogOptions,
    log: LogPath,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw which positions can be compared: .png, .svg, .html or .json."
        ),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Look at a click log: who clicks where, what is odd, and does it identify position bias?

    The log has one row per shown document: query_id, session_id, doc_id, position, click.

    Example: [bold]untilt audit clicks.parquet --documents documents.parquet[/bold]

    With a picture: [bold]untilt audit clicks.parquet --plot graph.png[/bold]

    Other column names: [bold]untilt audit log.csv --column query_id=search[/bold]
    """
    from untilt.auditing.audit import audit as audit_log

    with speaking(as_json=as_json, verbose=verbose) as out:
        check_plots(plot)
        read = reading.read(out, log)
        with progress("looking at the log"):
            audited = audit_log(read)
        out.record(**audited.to_dict())
        _report(out, audited, log)
        if plot is not None:
            _draw(out, audited, plot)


def _report(out: Output, audited: "Audit", log: Path) -> None:
    sizes = asdict(audited.size).items()
    out.table(("", ""), [(name.replace("_", " "), f"{value:,.12g}") for name, value in sizes])
    what = f"{audited.label_name} rate" if audited.is_binary else f"mean {audited.label_name}"
    level = audited.click_rates.level
    out.heading(f"{what} by position ({level:.0%} interval, clustered by query)")
    out.table(*rates_table(audited.click_rates))
    out.heading("worth knowing")
    out.points(audited.notes)
    if audited.warnings:
        out.heading("warnings")
        out.points(audited.warnings)
    out.heading("is position bias identified?")
    out.points([audited.verdict])
    _joined(out, audited)
    out.heading("what to do")
    out.points([line.replace(" LOG", f" {log}") for line in audited.next_steps])


def _joined(out: Output, audited: "Audit") -> None:
    """Positions that share documents, by the weight of what they share; the JSON has them all."""
    edges = sorted(audited.graph.edges, key=lambda edge: (edge.upper, -edge.weight, edge.lower))
    best = {edge.upper: edge for edge in reversed(edges)}
    rows = [
        (
            f"{edge.upper} and {edge.lower}",
            f"{edge.documents:,}",
            f"{edge.weight:,.0f}",
            f"{edge.upper_clicks:,.0f}",
            f"{edge.lower_clicks:,.0f}",
        )
        for edge in sorted(best.values(), key=lambda edge: edge.upper)
    ]
    if not rows:
        return
    n, pairs = len(audited.graph.edges), "pairs" if len(audited.graph.edges) > 1 else "pair"
    out.heading(f"{n:,} {pairs} of positions share documents; the strongest of each position")
    columns = ("positions", "documents", "weight", "clicks at the upper", "at the lower")
    out.table(columns, rows[:MOST_ROWS])


def _draw(out: Output, audited: "Audit", path: Path) -> None:
    from untilt.charts.graph import graph_chart, graph_notes
    from untilt.charts.theme import finished, save_chart

    with progress("drawing"):
        chart = finished(
            graph_chart(audited.graph),
            title="Which positions can be compared",
            subtitle=graph_notes(audited.graph),
        )
        save_chart(chart, path)
    out.record(plot=path)
    out.say(f"\nDrawn: {path}")
