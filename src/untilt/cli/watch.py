"""`untilt watch`: has anything changed, and how does a new ranker do on live traffic?"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from untilt._core.addresses import place
from untilt.cli import arguments, outputs
from untilt.cli.console import Output, rates_record
from untilt.cli.declared import argument, option
from untilt.errors import OptionError

if TYPE_CHECKING:
    from untilt.serving.watch import Watch

ALARM = 3  # the exit code; 1 is a bug of ours, 2 is bad input


def watch(
    log: list[Path] = argument(
        ..., "Click logs with times, such as the files of `untilt collect`.", "LOG", parser=place
    ),
    periods: int = option(
        4, "Parts of the time of equally many sessions; last is now.", min=2, max=7
    ),
    new: str | None = option(None, "A live ranker, to compare with --old.", metavar="NAME"),
    old: str | None = option(None, "The live ranker that was there before.", metavar="NAME"),
    arm: str | None = option(
        None, "Where the names of --new and --old stand; ranker if not given.", metavar="COLUMN"
    ),
    team: str | None = option(
        None,
        "For interleaved lists: 1 where the new ranker put a document, 2 for the old one.",
        metavar="COLUMN",
    ),
    top: int = option(3, "Rankers are compared by first clicks at 1..top.", min=1),
    estimator: str | None = option(None, "Also draw the curve of each period: {bias}."),
    level: float = option(0.99, "1 minus the chance of a false alarm in one look."),
    drift: float = option(0.2, "Stability index from which on a feature has drifted."),
    most_unseen: float = option(0.5, "Share of never shown documents that raises an alarm."),
    page: Path | None = option(
        None, "Write one HTML page with everything.", metavar="FILE", writes=outputs.WRITES
    ),
    prometheus: Path | None = option(
        None,
        "Write figures in the text format of Prometheus.",
        metavar="FILE",
        writes=outputs.WRITES,
    ),
    *,
    reading: arguments.LogOptions,
    output: Output,
) -> None:
    """Compare the last period of a log with those before: reading, clicks, features, documents.

    Ends with code 3 where there is an alarm and 0 where there is none, for schedulers.

    Example: [bold]untilt watch clicks --documents documents.parquet --page watch.html[/bold]

    Two live rankers, at any time: [bold]untilt watch clicks --arm model --new 9c41f3b0a7de
    --old 1d0e33a2b5c4[/bold]
    """
    from untilt._core.files import replacing
    from untilt.serving.watch import watch as watched

    arguments.check_out(page)
    arguments.check_out(prometheus)
    arguments.check_share("--level", level)
    clicks = reading.read(
        output, log, context=[] if arm is None else [arm], collapse=False,
        labels=[] if team is None else [team],
    )  # fmt: skip
    found = watched(
        clicks, periods=periods, new=new, old=old, arm=arm, team=team, top=top, level=level,
        drift=drift, most_unseen=most_unseen, estimator=_made(estimator),
    )  # fmt: skip
    output.show(found.view())
    output.record(**_record(found, output))
    from untilt.serving.watch_page import prometheus_text, watch_page

    for path, text in ((page, watch_page), (prometheus, prometheus_text)):
        if path is not None:
            with replacing(path) as temporary:
                temporary.write_text(text(found), encoding="utf-8")
            output.path("Written", path)
    if found.alarms:
        raise typer.Exit(ALARM)


def _made(name: str | None) -> Any:
    from untilt import catalog

    if name is None:
        return None
    record = catalog.find("bias", name)
    if record.needs:
        raise OptionError(
            f"--estimator {name} needs {', '.join(record.needs)}, which a look does not have. "
            "Choose one that needs clicks alone."
        )
    return record.load()()


def _record(found: "Watch", out: Output) -> dict[str, Any]:
    from dataclasses import asdict

    live: dict[str, Any] | None = None
    if found.live is not None:
        live = {
            "new": found.live.new,
            "old": found.live.old,
            "fact": found.live.fact.record(out.said),
        }
        if found.live.first_clicks is not None:
            live["first_clicks"] = [asdict(each) for each in found.live.first_clicks]
        if found.live.interleaved is not None:
            live["interleaved"] = asdict(found.live.interleaved)
    return {
        "quiet": found.is_quiet,
        "alarms": [each.record(out.said) for each in found.alarms],
        "notes": [each.record(out.said) for each in found.notes],
        "level": found.level,
        "changes": [asdict(each) for each in found.changes],
        "reading": None if found.reading is None else vars(found.reading),
        "features": [asdict(each) for each in found.features],
        "unseen_documents": found.unseen_documents,
        "unseen_queries": found.unseen_queries,
        "live": live,
        "periods": [
            {"start": str(e.start), "end": str(e.end), "sessions": e.n_sessions,
             "click_rates": rates_record(e.rates)}
            for e in found.periods
        ],
    }  # fmt: skip
