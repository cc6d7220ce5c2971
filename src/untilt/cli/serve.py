"""`untilt serve`, `collect` and `watch`: a ranker behind HTTP, and what it showed."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from untilt._core.addresses import place
from untilt._core.declared import EXPERT
from untilt.cli import arguments
from untilt.cli.console import ALARM, Output, attributes, rates_record
from untilt.cli.declared import Writes, argument, file_option, option, out_option
from untilt.errors import OptionError, check_share
from untilt.serving.options import ServeOptions, Settings

if TYPE_CHECKING:
    from untilt.serving.collect import Collected
    from untilt.serving.watch import Watch


LOG_FOLDER = Path("serving-log")


def serve(
    ranker: Path | None = argument(None, "The file of a ranker: ranker.untilt.", "RANKER"),
    demo: bool = option(False, "Serve a demo shop with simulated data, in the browser."),
    no_open: bool = option(False, "Do not open the browser with --demo.", panel=EXPERT),
    log_folder: Path = option(
        LOG_FOLDER, "Folder of the log of shown lists and feedback.", "--log", metavar="FOLDER",
        writes=Writes(names=("sessions.table",))
    ),
    host: str = option("127.0.0.1", "Address to listen at; 0.0.0.0 for other machines."),
    port: int = option(8080, "Port to listen at.", min=0, max=65535),
    workers: int = option(1, "Number of server processes.", min=1, max=64),
    no_token: bool = option(False, "Answer other machines without a token.", panel=EXPERT),
    *,
    options: ServeOptions,
    out: Output,
) -> None:  # fmt: skip
    """Serve a ranker over HTTP, log what was shown, explore.

    POST /rank orders candidates, POST /feedback takes clicks. GET /model, /metrics, /health and
    /ready report the state. POST /reload, or a new file under the ranker's name, loads a ranker.

    Example: [bold]untilt serve ranker.untilt --documents documents.parquet[/bold]

    With exploration: [bold]untilt serve ranker.untilt --explore pivot:0.02[/bold]

    A demo shop: [bold]untilt serve --demo[/bold]
    """
    start = _serving()
    if demo:
        _demo(out, ranker, host, port, opened=not no_open)
        return
    if ranker is None:
        raise OptionError("no ranker was given. Give its file, or --demo for a demo shop.")
    if options.candidate is None and (options.share or options.interleave or options.shadow):
        raise OptionError(
            "--share, --interleave and --shadow need a second ranker: --candidate RANKER."
        )
    settings = Settings(str(ranker), str(log_folder), **vars(options))
    if not (host in start.LOOPBACK or no_token or start.has_token(settings)):
        raise OptionError(
            f"anyone who reaches {host} could send requests and feedback. Give --token-file FILE, "
            "or --no-token if a proxy checks a token."
        )
    out.record(
        ranker=ranker,
        log=log_folder,
        host=host,
        port=port,
        workers=workers,
        explore=options.explore,
    )
    out.say(f"{ranker} answers at http://{host}:{port}; what it shows is logged in {log_folder}.")
    out.say("Ctrl-C ends it.")
    start.run(settings, host=host, port=port, workers=workers)


def _demo(out: Output, ranker: Path | None, host: str, port: int, *, opened: bool) -> None:
    from untilt._core.files import scratch_folder
    from untilt.serving.demo import run_demo

    if ranker is not None:
        raise OptionError("--demo has its own ranker. Give either a ranker or --demo.")
    with scratch_folder() as folder:
        out.record(demo=True, host=host, port=port)
        out.say(f"The shop is at http://{host}:{port}/. Ctrl-C ends it; nothing of it is kept.")
        run_demo(folder, host=host, port=port, opened=opened)


def collect(
    source: Path = argument(..., "The folder that a server logs to (--log).", "FOLDER"),
    out: Path = out_option(Path("clicks"), "Folder of the daily files.", "FOLDER"),
    label: list[str] | None = option(
        None, "How several events of a label become one number: any, sum, max or last (default: "
        "any for click, sum for others). May be repeated.", metavar="NAME=RULE"
    ),
    close_after: float | None = option(
        None, "Days until the file of a day becomes final (default: never).", metavar="DAYS"
    ),
    remove_closed: bool = option(
        False, "Remove segments of the server's log that hold final days only.", panel=EXPERT
    ),
    set_aside: bool = option(
        False, "Move damaged segments to FOLDER/damaged; their intact records are kept.",
        panel=EXPERT
    ),
    *,
    output: Output,
) -> None:  # fmt: skip
    """Make a click log of what a server showed and its feedback.

    Run it at any time, also while the server runs, and as often as you like: each run writes the
    files again from the whole log. Then: untilt audit clicks.

    Example: [bold]untilt collect serving-log --out clicks[/bold]
    """
    _serving()
    from untilt.serving.collect import collect as collect_folder

    arguments.check_out_folder(out)
    done = collect_folder(
        source,
        out,
        labels=_parse_rules(label),
        close_after=close_after,
        remove_closed=remove_closed,
        set_aside=set_aside,
    )
    output.record(**done.to_dict())
    _report(output, done)


def _serving() -> Any:
    """The part of the package that serves, or a sentence on how to get it."""
    try:
        from untilt.serving import start
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "msgspec", "uvicorn", "pyarrow"):
            raise
        raise OptionError(
            f"{error.name} is not installed. Serving needs it: pip install 'untilt[serve]'."
        ) from error
    return start


def _parse_rules(pairs: list[str] | None) -> dict[str, str]:
    rules = {}
    for pair in pairs or ():
        name, equals, rule = pair.partition("=")
        if not (name and equals and rule):
            raise OptionError(f"--label needs NAME=RULE, such as dwell=sum. Got {pair!r} instead.")
        rules[name] = rule
    return rules


def _report(out: Output, done: "Collected") -> None:
    out.say(
        f"{done.lists:,} lists with {done.impressions:,} impressions and {done.events:,} events, "
        f"from {done.segments:,} segments."
    )
    told = {
        "showings of a list again, counted once": done.reloads,
        "events that came again, counted once": done.duplicates,
        "events whose list or document is not known (yet)": done.orphans,
        "events that came after their day was closed": done.late,
        "bytes of records that were never acknowledged, cut": done.cut,
        "bytes that the disk lost": done.damaged,
        "records that no server writes, left out": done.bad,
        "lists whose features cannot be read: the disk lost their names": done.without_features,
        "segments removed": done.removed,
        "damaged segments moved to the folder damaged": len(done.set_aside),
        "labels and features left out, because there may be only so many": len(done.left_out),
    }
    out.points([f"{count:,} {what}" for what, count in told.items() if count])
    out.points([f"{name} was not read: {why}" for name, why in done.refused.items()])
    if done.refused:
        out.points(["So no day was closed. `--set-aside` moves what is no segment out of the way."])
    out.points([
        f"feature {name!r} is the column {column!r}: the log has a {name.lower()!r} of its own"
        for name, column in done.renamed.items()
    ])  # fmt: skip
    if done.arms:
        out.heading("arms of the exploration")
        rows = [(arm, f"{n:,}", f"{done.expected[arm]:,.1f}") for arm, n in done.arms.items()]
        out.table(("arm", "sessions", "expected"), rows)
        if not math.isnan(done.arms_p_value):
            out.say(f"Shares differ so much by chance with p = {done.arms_p_value:.3g}.")
            if done.arms_p_value < 0.001:
                out.points([
                    "That is no chance: lists or events of some arms are lost on the way. Find out "
                    "before you believe an estimate from them."
                ])  # fmt: skip
    if len(done.experiments) > 1:
        out.points(
            [
                f"Lists are of {len(done.experiments)} explorations "
                f"({', '.join(done.experiments)}), each with probabilities of its own. Estimators "
                "of swaps compare lists within one of them, by what follows @ in their ranker."
            ]
        )
    out.heading("written")
    for day, lists in done.days.items():
        final = ", final" if day in done.closed else ""
        out.path(f"{lists:,} lists{final}", done.out / f"clicks-{day}.parquet")


def watch(
    log: list[Path] = argument(
        ..., "Click logs with times, such as the files of `untilt collect`.", "LOG", parser=place
    ),
    periods: int = option(
        4, "Number of periods with equally many sessions; the last is now.", min=2, max=7
    ),
    new: str | None = option(None, "New live ranker, to compare with --old.", metavar="NAME"),
    old: str | None = option(None, "Live ranker before it.", metavar="NAME"),
    arm: str | None = option(
        None, "Column with the names of --new and --old (default: ranker).", metavar="COLUMN"
    ),
    team: str | None = option(
        None, "Column of interleaved lists: 1 for documents of the new ranker, 2 for the old one.",
        metavar="COLUMN", panel=EXPERT
    ),
    top: int = option(
        3, "Positions 1..N whose first clicks compare two rankers.", min=1, panel=EXPERT
    ),
    estimator: str | None = option(
        None, "Estimator of a curve for each period: {bias} (default: none).", panel=EXPERT
    ),
    level: float = option(
        0.99, "Confidence level: 1 minus the probability of a false alarm.", panel=EXPERT
    ),
    drift: float = option(
        0.2, "Population stability index above which a feature has drifted.", panel=EXPERT
    ),
    most_unseen: float = option(0.5, "Share of new documents that raises an alarm.", panel=EXPERT),
    page: Path | None = file_option("Write an HTML page."),
    prometheus: Path | None = file_option("Write figures for Prometheus (text format)."),
    *,
    reading: arguments.LogOptions,
    output: Output,
) -> None:  # fmt: skip
    """Compare the last period of a log with those before.

    Compares reading depth, clicks, features and documents. Exits with code 3 if there is an alarm.

    Example: [bold]untilt watch clicks --documents documents.parquet --page watch.html[/bold]

    Two live rankers, at any time: [bold]untilt watch clicks --arm model --new 9c41f3b0a7de
    --old 1d0e33a2b5c4[/bold]
    """
    from untilt._core.files import write_text
    from untilt.serving.watch import watch as watched

    arguments.check_out(page)
    arguments.check_out(prometheus)
    check_share("--level", level)
    clicks = reading.read(
        output, log, context=[] if arm is None else [arm], collapse=False,
        labels=[] if team is None else [team],
    )  # fmt: skip
    found = watched(
        clicks, periods=periods, new=new, old=old, arm=arm, team=team, top=top, level=level,
        drift=drift, most_unseen=most_unseen, estimator=_estimator(estimator),
    )  # fmt: skip
    output.show(found.view())
    output.record(**_record_watched(found, output))
    from untilt.serving.watch_page import prometheus_text, watch_page

    for path, text in ((page, watch_page), (prometheus, prometheus_text)):
        if path is not None:
            write_text(path, text(found))
            output.path("Written", path)
    if found.alarms:
        raise typer.Exit(ALARM)


def _estimator(name: str | None) -> Any:
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


def _record_watched(found: "Watch", out: Output) -> dict[str, Any]:
    from dataclasses import asdict

    live = None
    if found.live is not None:
        live = {**attributes(found.live, "new old"), "fact": found.live.fact.record(out.said)}
        if found.live.first_clicks is not None:
            live["first_clicks"] = [asdict(each) for each in found.live.first_clicks]
        if found.live.interleaved is not None:
            live["interleaved"] = asdict(found.live.interleaved)
    return {
        **attributes(found, "level unseen_documents unseen_queries"),
        "quiet": found.is_quiet,
        "alarms": [each.record(out.said) for each in found.alarms],
        "notes": [each.record(out.said) for each in found.notes],
        "changes": [asdict(each) for each in found.changes],
        "reading": None if found.reading is None else vars(found.reading),
        "features": [asdict(each) for each in found.features],
        "live": live,
        "periods": [
            {"start": str(e.start), "end": str(e.end), "sessions": e.n_sessions,
             "click_rates": rates_record(e.rates)}
            for e in found.periods
        ],
    }  # fmt: skip
