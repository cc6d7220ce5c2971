"""`untilt judgments`: what the clicks say of each document, for tools that judge rankings."""

from pathlib import Path

from untilt.cli import arguments
from untilt.cli.console import Output
from untilt.cli.declared import option, out_option
from untilt.errors import OptionError
from untilt.evaluation.options import LevelOptions


def judgments(
    out: Path = out_option(..., "Where they are written: .json, .qrels or .csv.", "FILE"),
    log: arguments.LogPath = None,
    bias: arguments.BiasOption = None,
    to: str | None = option(
        None,
        "The Search Relevance Workbench of OpenSearch (.json), TREC's qrels in whole "
        "percent (.qrels, .txt), or CSV with intervals; by the ending if not given.",
        metavar="opensearch|qrels|csv",
    ),
    name: str | None = option(
        None, "What the workbench calls them; the file's name if not given.", metavar="LIST"
    ),
    *,
    levels: LevelOptions,
    reading: arguments.ColumnOptions,
    export: arguments.UbiOptions,
    output: Output,
) -> None:
    """Write how relevant each document is to its query, by clicks without their position bias.

    Clicks over the click rate of a rank take what stood high for relevant. Here every document gets
    the posterior mean of its relevance with an interval, by the curve of --bias. Lists in random
    order need none: --bias none.

    Example: [bold]untilt judgments clicks.parquet --bias bias.json --out judgments.json[/bold]
    """  # fmt: skip
    from untilt.exports.judgments import click_judgments, judgment_format

    arguments.check_out(out)
    form = judgment_format(out, to)
    if bias is None:
        raise OptionError(
            "judgments need the position bias (--bias FILE, or a curve such as "
            "power-law:1): without it they would be click rates. Estimate it: "
            "`untilt bias LOG --out bias.json`. For lists in random order give "
            "--bias none."
        )
    curve = arguments.parse_bias(bias)
    context = arguments.context_of(curve)
    clicks = reading.read(output, export.source(log), context=context)
    found = click_judgments(clicks, curve, level=levels.level)
    found.write(out, form, name=name)
    output.record(
        judgments=out, to=form, queries=found.n_queries, documents=len(found),
        level=levels.level, notes=[note.record(output.said) for note in found.notes],
    )  # fmt: skip
    output.say(f"\n{len(found):,} documents of {found.n_queries:,} queries judged: {out} ({form}).")
    output.points(list(found.notes))
