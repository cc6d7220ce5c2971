"""`untilt plan`: how many swapped sessions an interval of some width needs, and what they cost."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from untilt.cli.arguments import AsJson, ColumnOptions, Verbose, check_share, parse_bias
from untilt.cli.console import Output, speaking
from untilt.errors import OptionError

if TYPE_CHECKING:
    from untilt.auditing.plan import Plan
    from untilt.auditing.swap_design import Clicks


class Pairs(StrEnum):
    """Which positions are swapped."""

    PIVOT = "pivot"
    ADJACENT = "adjacent"


class Within(StrEnum):
    """What swapped lists are compared with."""

    DOCUMENT = "document"
    LENGTH = "length"


def plan(
    reading: ColumnOptions,
    log: Annotated[
        Path | None,
        typer.Argument(metavar="[LOG]", help="A click log of the traffic; or give --rates."),
    ] = None,
    rates: Annotated[
        str | None, typer.Option(metavar="0.3,0.2,...", help="Click rates of positions 1, 2, ...")
    ] = None,
    sessions_per_day: Annotated[
        float, typer.Option(min=0, help="Sessions a day that take part in the experiment.")
    ] = 10_000,
    width: Annotated[
        float, typer.Option(help="Wished width of each interval, relative: 0.2 is about +-10%.")
    ] = 0.2,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    pairs: Annotated[
        Pairs, typer.Option(help="Swap one pivot with every other position, or neighbours.")
    ] = Pairs.PIVOT,
    pivot: Annotated[int, typer.Option(min=1, help="The pivot's position.")] = 1,
    share: Annotated[float, typer.Option(help="Share of the sessions that are swapped.")] = 0.1,
    depth: Annotated[
        int | None, typer.Option(min=2, help="Positions to measure; all where not given.")
    ] = None,
    examination: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|CURVE",
            help="A guess of the bias: a JSON file, 'power-law:1' or 'eye-tracking:1'. Without one "
            "the hardest case is planned for.",
        ),
    ] = None,
    within: Annotated[
        Within,
        typer.Option(help="Compare the same documents (queries repeat), or lists of a length."),
    ] = Within.DOCUMENT,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Plan a swap experiment: which positions, how many sessions, how many days and clicks.

    Example: [bold]untilt plan clicks.parquet --sessions-per-day 50000 --width 0.1[/bold]

    From click rates alone: [bold]untilt plan --rates 0.31,0.2,0.12,0.08 --share 0.05[/bold]

    With a guess of the bias: [bold]untilt plan clicks.parquet --examination power-law:1[/bold]
    """
    from untilt.auditing.plan import plan_swaps

    with speaking(as_json=as_json, verbose=verbose) as out:
        check_share("--level", level)
        planned = plan_swaps(
            _clicks(out, log, rates, reading),
            sessions_per_day=sessions_per_day,
            width=width,
            level=level,
            pairs=pairs.value,
            pivot=pivot,
            share=share,
            depth=depth,
            examination=parse_bias(examination),
            within=within.value,
        )
        out.record(**planned.to_dict())
        _report(out, planned)


def _clicks(out: Output, log: Path | None, rates: str | None, reading: ColumnOptions) -> "Clicks":
    if (log is None) == (rates is None):
        raise OptionError(
            "a plan starts from a log or from click rates. Give either: untilt plan LOG, or "
            "untilt plan --rates 0.3,0.2,0.1."
        )
    if log is not None:
        return reading.read(out, log)
    assert rates is not None
    try:
        return [float(rate) for rate in rates.split(",")]
    except ValueError:
        raise OptionError(
            f"--rates needs numbers between 0 and 1 with commas between them, such as 0.3,0.2,0.1. "
            f"Got {rates!r} instead."
        ) from None


def _report(out: Output, planned: "Plan") -> None:
    most = "at most " if planned.is_bound else ""
    out.say(
        f"{planned.sessions:,} sessions, {planned.swapped_sessions:,} of them swapped: "
        f"{planned.days:,.1f} days of {planned.sessions_per_day:,.0f} sessions. It costs {most}"
        f"{planned.clicks_lost:,.0f} clicks, {planned.lost_share:.2%} of all in that time."
    )
    out.heading(f"swaps to draw, each session at random ({planned.level:.0%} intervals afterwards)")
    out.table(
        ("positions", "probability", "sessions", f"{most}clicks lost", "interval"), _rows(planned)
    )
    out.heading("notes")
    out.points(planned.notes)


def _rows(planned: "Plan") -> list[tuple[str, ...]]:
    """One row per swap, beside the interval of the position that it serves."""
    return [
        (
            f"{swap.upper} and {swap.lower}",
            f"{swap.probability:.3%}",
            f"{swap.sessions:,}",
            f"{swap.clicks_lost:,.1f}",
            f"position {swap.serves}: {planned.expected_width[swap.serves - 1]:.0%} wide",
        )
        for swap in planned.swaps
    ]
