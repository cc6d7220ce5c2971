"""`untilt audit` and `untilt plan`: what is in a click log, and which swaps would tell more."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from untilt._core.addresses import place
from untilt._core.progress import progress
from untilt.cli import arguments
from untilt.cli.console import Output
from untilt.cli.declared import argument, file_option, option
from untilt.errors import IdentifiabilityError, OptionError, check_share
from untilt.evaluation.options import LevelOptions, OldScoreOptions
from untilt.facts import Fact, note

if TYPE_CHECKING:
    from untilt.auditing.audit import Audit
    from untilt.data.clicklog import ClickLog

ENDS_EARLY = note(
    "plan.ends-early",
    "Planned for positions 1..{depth}: nobody clicked at position {empty} in this log, so no "
    "number of sessions can be promised for it.",
)
BY_LENGTH = note(
    "plan.by-length",
    "Swapped lists are compared with others of their length: queries hardly ever repeat in this "
    "log, so the same documents are not shown at two positions.",
)()


def audit(
    log: Path | None = arguments.LOG,
    context: list[str] | None = arguments.CONTEXT,
    plot: Path | None = file_option(
        "Draw which positions can be compared: .png, .svg, .html or .json."
    ),
    *,
    asked: OldScoreOptions,
    reading: arguments.LogOptions,
    export: arguments.UbiOptions,
    out: Output,
) -> None:
    """Look at a click log: who clicks where, what is odd, and does it identify position bias?

    The log has one row per shown document: query_id, session_id, doc_id, position, click.

    Experiments are named by the column ranker: "shuffle..." for lists in random order, "swap:2-5"
    for two positions exchanged, "base" for no swap; or by a flag, --column random=COLUMN.

    Example: [bold]untilt audit clicks.parquet --documents documents.parquet[/bold]

    With a picture: [bold]untilt audit clicks.parquet --plot graph.png[/bold]

    Other column names: [bold]untilt audit log.csv --column query_id=search[/bold]
    """
    from untilt.auditing.audit import audit as audit_log
    from untilt.views import without

    arguments.check_plots(plot)
    read = reading.read(out, export.source(log), context=context or (), collapse="halves")
    with progress("looking at the log"):
        audited = audit_log(read, old_score=asked.old_score)
    out.record(**audited.to_dict(said=out.said))
    out.show(without(audited.view(), "audit.in-python"))
    if plot is not None:
        _draw(out, audited, plot)


def _draw(out: Output, audited: "Audit", path: Path) -> None:
    from untilt.charts.graph import graph_chart, graph_notes
    from untilt.charts.theme import finished, save_chart

    with progress("drawing"):
        rates = audited.click_rates
        graph = audited.graph.top(rates.drawn_depth)
        cut = [] if rates.not_drawn is None else [rates.not_drawn]
        chart = finished(
            graph_chart(graph),
            title="Which positions can be compared",
            subtitle=[*graph_notes(graph), *cut],
        )
        save_chart(chart, path)
    out.record(plot=path)
    out.say(f"\nDrawn: {path}")


# `untilt plan`: how many swapped sessions an interval of some width needs, and what they cost.


def plan(
    log: Path | None = argument(
        None, "A click log of the traffic; or give --rates.", "[LOG]", parser=place
    ),
    rates: str | None = option(None, "Click rates of positions 1, 2, ...", metavar="0.3,0.2,..."),
    sessions_per_day: float = option(
        10_000, "Sessions a day that take part in the experiment.", min=0
    ),
    width: float = option(0.2, "Wished width of each interval, relative: 0.2 is about +-10%."),
    *,
    levels: LevelOptions,
    pairs: Literal["pivot", "adjacent"] = option(
        "pivot", "Swap one pivot with every other position, or neighbours."
    ),
    pivot: int = option(1, "The pivot's position.", min=1),
    share: float = option(0.1, "Share of the sessions that are swapped."),
    depth: int | None = option(None, "Positions to measure; all where not given.", min=2),
    examination: str | None = option(
        None,
        "A guess of the bias: a JSON file, 'power-law:1' or 'eye-tracking:1'. Without one "
        "the hardest case is planned for.",
        metavar="FILE|CURVE",
    ),
    within: Literal["document", "length"] | None = option(
        None,
        "Compare the same documents (queries repeat), or lists of a length; without, the "
        "first where it can be.",
    ),
    assurance: float | None = option(
        None,
        "Probability that all intervals are as narrow as wished, such as 0.9; without it "
        "the mean width is planned.",
    ),
    labels: int | None = option(
        None,
        "In place of an experiment: draw so many documents whose grades tell most about --ranker "
        "against what was shown.",
        min=1,
        metavar="NUMBER",
    ),
    ranker: list[str] | None = option(
        None, "With --labels: a saved ranker. May be repeated.", metavar="[NAME=]FILE"
    ),
    metric: str = option("dcg@10", "With --labels: what grades are to tell; a sum over documents."),
    spare: float = option(
        0.0,
        "With --labels: share of the grades that is spread over all candidates, for the rankers "
        "that `untilt run` trains; 0.2 is usual there.",
        metavar="SHARE",
    ),
    to_grade: Path | None = file_option(
        "With --labels: the CSV file to be graded; `untilt evaluate --labels` reads it."
    ),
    seed: int = arguments.SEED,
    reading: arguments.LogOptions,
    export: arguments.UbiOptions,
    out: Output,
) -> None:
    """Plan a swap experiment: which positions, how many sessions, how many days and clicks.

    Example: [bold]untilt plan clicks.parquet --sessions-per-day 50000 --width 0.1[/bold]

    From click rates alone: [bold]untilt plan --rates 0.31,0.2,0.12,0.08 --share 0.05[/bold]

    With a guess of the bias: [bold]untilt plan clicks.parquet --examination power-law:1[/bold]

    All intervals as narrow, nine times in ten: [bold]untilt plan LOG --assurance 0.9[/bold]
    """
    from untilt.auditing.plan import plan_swaps

    if labels is not None:
        _plan_labels(out, reading.read(out, export.source(log), to_rank=True), labels, ranker,
                     metric, levels.level, to_grade, spare, seed)  # fmt: skip
        return
    if assurance is not None:
        check_share("--assurance", assurance)
    clicks = _clicks(out, log, rates, reading, export)
    depth, notes = _planned_depth(clicks, depth)
    plan_within = partial(
        plan_swaps, clicks, sessions_per_day=sessions_per_day, width=width, level=levels.level,
        pairs=pairs, pivot=pivot, share=share, depth=depth,
        examination=_mean_curve(arguments.parse_bias(examination)), assurance=assurance,
    )  # fmt: skip
    try:
        planned = plan_within(within=within or "document")
    except IdentifiabilityError:
        if within is not None:
            raise
        planned = plan_within(within="length")
        notes.append(BY_LENGTH)
    out.record(**planned.to_dict(said=out.said))
    out.record(notes=[*notes, *planned.notes])
    out.points(notes)
    out.show(planned.view())


def _plan_labels(
    out: Output, log: "ClickLog", budget: int, rankers: list[str] | None, metric: str,
    level: float, path: Path | None, spare: float, seed: int,
) -> None:  # fmt: skip
    from untilt.cli.evaluate import load_rankers
    from untilt.evaluation.labels.plan import plan_labels
    from untilt.evaluation.systems import shown

    if path is None:
        raise OptionError("--labels draws documents to be graded: give --to-grade FILE for them.")
    systems = {"shown": shown, **load_rankers(rankers)}
    planned = plan_labels(log, systems, budget, metric, spare=spare, level=level, seed=seed)
    out.record(grades=len(planned), pool=planned.pool, half_width=planned.half_width)
    out.record(to_grade=planned.write(path))
    out.show(planned.view())
    out.path("To grade", path)


def _mean_curve(guess: Any) -> Any:
    """The curve itself; of curves by context the one for any other, their mean."""
    return [guess, *getattr(guess, "contexts", {}).values()][-1]


def _planned_depth(
    clicks: "ClickLog | list[float]", depth: int | None
) -> tuple[int | None, list[Fact]]:
    """As deep as there are clicks, where nothing else was asked for, and what to say of it."""
    if depth is not None or isinstance(clicks, list):
        return depth, []
    clicked = list(clicks.ctr_by_position().clicks > 0)
    planned = clicked.index(False) if False in clicked else len(clicked)
    if planned < 2 or planned == len(clicked):
        return None, []
    return planned, [ENDS_EARLY(depth=planned, empty=planned + 1)]


def _clicks(
    out: Output,
    log: Path | None,
    rates: str | None,
    reading: arguments.ColumnOptions,
    export: arguments.UbiOptions,
) -> "ClickLog | list[float]":
    if (log is None and export.ubi is None) == (rates is None):
        raise OptionError(
            "a plan starts from a log or from click rates. Give either: untilt plan LOG, or "
            "untilt plan --rates 0.3,0.2,0.1."
        )
    if rates is None:
        return reading.read(out, export.source(log))
    try:
        return [float(rate) for rate in rates.split(",")]
    except ValueError:
        raise OptionError(
            f"--rates needs numbers between 0 and 1 with commas between them, such as 0.3,0.2,0.1. "
            f"Got {rates!r} instead."
        ) from None
