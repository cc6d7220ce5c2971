"""`untilt serve` and `untilt collect`: a ranker behind HTTP, and the log of what it showed."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from untilt.cli import arguments, outputs
from untilt.cli.console import Output, speaking
from untilt.errors import OptionError
from untilt.serving.options import ServeOptions, Settings

if TYPE_CHECKING:
    from untilt.serving.collect import Collected

LOG_FOLDER = Path("serving-log")


def serve(
    ranker: Annotated[
        Path | None,
        typer.Argument(metavar="RANKER", help="The file of a ranker: ranker.untilt."),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="A small shop in the browser, with data made here.")
    ] = False,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="With --demo: do not open the browser.")
    ] = False,
    log_folder: Annotated[
        Path,
        typer.Option("--log", metavar="FOLDER", help="Where shown lists and feedback are logged."),
        outputs.Writes(names=("sessions.table",)),
    ] = LOG_FOLDER,
    host: Annotated[
        str, typer.Option(help="The address to listen at; other machines reach 0.0.0.0.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen at.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that answer.")] = 1,
    *,
    options: ServeOptions,
    as_json: arguments.AsJson = False,
    verbose: arguments.Verbose = False,
) -> None:
    """Answer over HTTP with a ranker, log what was shown, and explore a little where asked to.

    POST /rank orders candidates, POST /feedback takes clicks. GET /model, /metrics, /health and
    /ready say how it is; POST /reload, or a new file in the ranker's place, brings a new ranker.

    Example: [bold]untilt serve ranker.untilt --documents documents.parquet[/bold]

    With exploration: [bold]untilt serve ranker.untilt --explore pivot:0.02[/bold]

    To look at: [bold]untilt serve --demo[/bold]
    """
    start = _serving()
    with speaking(as_json=as_json, verbose=verbose) as out:
        if demo:
            _demo(out, ranker, host, port, opened=not no_open)
            return
        if ranker is None:
            raise OptionError("which ranker? Give its file, or --demo for a shop of ours.")
        if options.candidate is None and (options.share or options.interleave or options.shadow):
            raise OptionError(
                "--share, --interleave and --shadow are about a second ranker: --candidate RANKER."
            )
        settings = Settings(str(ranker), str(log_folder), **vars(options))
        out.record(
            ranker=ranker,
            log=log_folder,
            host=host,
            port=port,
            workers=workers,
            explore=options.explore,
        )
        out.say(
            f"{ranker} answers at http://{host}:{port}; what it shows is logged in {log_folder}."
        )
        if host not in start.LOOPBACK and not start.has_token(settings):
            out.points([
                "Everybody who reaches this address can ask and send feedback: there is no token. "
                "Give --token-file FILE, or let a proxy ask for one."
            ])  # fmt: skip
        out.say("Ctrl-C ends it.")
        start.run(settings, host=host, port=port, workers=workers)


def _demo(out: Output, ranker: Path | None, host: str, port: int, *, opened: bool) -> None:
    from untilt._core.files import scratch_folder
    from untilt.serving.demo import run_demo

    if ranker is not None:
        raise OptionError("--demo brings a ranker of its own. Give either a ranker or --demo.")
    with scratch_folder() as folder:
        out.record(demo=True, host=host, port=port)
        out.say(f"The shop is at http://{host}:{port}/. Ctrl-C ends it; nothing of it is kept.")
        run_demo(folder, host=host, port=port, opened=opened)


def collect(
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that a server logs to (--log).")
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", help="Where the files of the days go."),
        outputs.WRITES,
    ] = Path("clicks"),
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=RULE",
            help="How several events of a label become one number: any, sum, max or last. Without: "
            "any for click, sum for others. May be repeated.",
        ),
    ] = None,
    close_after: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS", help="Days after its end at which a day's file becomes final."
        ),
    ] = None,
    remove_closed: Annotated[
        bool,
        typer.Option("--remove-closed", help="Remove what holds nothing but final days."),
    ] = False,
    as_json: arguments.AsJson = False,
    verbose: arguments.Verbose = False,
) -> None:
    """Join what a server showed with its feedback: a click log, one Parquet file a day.

    May be run at any time, also while the server runs, and again: files are written anew from all
    that was logged. Afterwards: untilt audit clicks.

    Example: [bold]untilt collect serving-log --out clicks[/bold]
    """
    _serving()
    from untilt.serving.collect import collect as collect_folder

    with speaking(as_json=as_json, verbose=verbose) as output:
        arguments.check_out_folder(out)
        done = collect_folder(
            source,
            out,
            labels=_parse_rules(label),
            close_after=close_after,
            remove_closed=remove_closed,
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
        "lists whose features cannot be read: the disk lost their names": done.without_features,
        "segments removed": done.removed,
    }
    out.points([f"{count:,} {what}" for what, count in told.items() if count])
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
