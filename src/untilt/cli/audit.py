"""`untilt audit` and `untilt plan`: what is in a click log, and which swaps would tell more."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from untilt._core.addresses import place
from untilt._core.declared import EXPERT
from untilt._core.progress import progress
from untilt.cli import arguments
from untilt.cli.console import Output
from untilt.cli.declared import GRADES, argument, file_option, option
from untilt.data.read.options import DepthOptions
from untilt.errors import IdentifiabilityError, OptionError
from untilt.evaluation.options import LevelOptions, OldScoreOptions
from untilt.facts import Fact, note

if TYPE_CHECKING:
    from untilt.auditing.audit import Audit
    from untilt.data.clicklog import ClickLog

ENDS_EARLY = note(
    "plan.ends-early",
    "Planned for positions 1..{depth}: position {empty} has no clicks in this log, so no number "
    "of sessions can be given for it.",
)
BY_LENGTH = note(
    "plan.by-length",
    "Swapped lists are compared with other lists of the same length: queries hardly repeat in "
    "this log, so the same documents are not shown at two positions.",
)()


def audit(
    log: Path | None = arguments.LOG,
    context: list[str] | None = arguments.CONTEXT,
    plot: Path | None = file_option(
        "Draw which positions can be compared (.png, .svg, .html or .json)."
    ),
    *,
    asked: OldScoreOptions,
    deep: DepthOptions,
    reading: arguments.LogOptions,
    export: arguments.UbiOptions,
    out: Output,
) -> None:
    """Look at a log: clicks, errors, is position bias identified?

    The log has one row per shown document: query_id, session_id, doc_id, position, click.

    The column ranker names experiments: "shuffle..." for lists in random order, "swap:2-5" for
    two positions exchanged, "base" for no swap; --column random=COLUMN names a flag instead.

    Example: [bold]untilt audit clicks.parquet --documents documents.parquet[/bold]

    With a picture: [bold]untilt audit clicks.parquet --plot graph.png[/bold]

    Other column names: [bold]untilt audit log.csv --column query_id=search[/bold]
    """
    from untilt.auditing.audit import audit as audit_log
    from untilt.views import without

    arguments.check_plots(plot)
    read = reading.read(out, export.source(log), context=context or (), collapse="halves")
    with progress("looking at the log"):
        audited = audit_log(read, old_score=asked.old_score, depth=deep.depth)
    out.record(**audited.to_dict(said=out.said))
    out.show(without(audited.view(), "audit.in-python"))
    if plot is not None:
        out.draw(plot, lambda: _graph(audited))


def _graph(audited: "Audit") -> Any:
    from untilt.charts.graph import graph_chart, graph_notes
    from untilt.charts.theme import finished

    rates = audited.click_rates
    graph = audited.graph.top(rates.drawn_depth)
    notes = [*graph_notes(graph), *([] if rates.not_drawn is None else [rates.not_drawn])]
    return finished(graph_chart(graph), title="Which positions can be compared", subtitle=notes)


# `untilt plan`: how many swapped sessions an interval of some width needs, and what they cost.
ASSURANCE = 0.9  # that every interval is as narrow as asked


def plan(
    log: Path | None = argument(
        None, "The click log of the traffic, unless --rates is given.", "[LOG]", parser=place
    ),
    rates: str | None = option(
        None, "Click rates of positions 1, 2, ..., instead of LOG.", metavar="0.3,0.2,..."
    ),
    sessions_per_day: float = option(
        10_000, "Sessions a day that take part in the experiment.", min=0
    ),
    width: float = option(0.2, "Relative width of each interval; 0.2 is about ±10%."),
    *,
    levels: LevelOptions,
    share: float = option(0.1, "Share of the sessions that are swapped."),
    depth: int | None = option(
        None, "Measure positions 1..depth (default: all positions with clicks).", min=2
    ),
    pivot: int = option(
        1, "Position that is swapped with every other position.", min=1, panel=EXPERT
    ),
    examination: str | None = option(
        None, "Guess of the bias: a JSON file, 'power-law:1' or 'eye-tracking:1' (default: the "
        "hardest case).", metavar="FILE|CURVE", panel=EXPERT
    ),
    labels: int | None = option(
        None,
        "Draw this many documents to grade instead of an experiment: those whose grades say most "
        "about --ranker against what was shown.",
        min=1, metavar="N", panel=GRADES,
    ),
    ranker: list[str] | None = option(
        None, "A saved ranker. May be repeated.", metavar="[NAME=]FILE", panel=GRADES
    ),
    metric: str = option(
        "dcg@10", "Metric that grades will estimate; a sum over documents.", panel=GRADES
    ),
    spare: float = option(
        0.0,
        "Share of the grades that is spread over all candidates, for the rankers that `untilt run` "
        "trains; 0.2 is usual there.",
        metavar="SHARE", panel=GRADES,
    ),
    to_grade: Path | None = file_option(
        "Write the documents to this CSV file, for `untilt evaluate --labels`.", GRADES
    ),
    seed: int = arguments.SEED,
    reading: arguments.LogOptions,
    export: arguments.UbiOptions,
    out: Output,
) -> None:  # fmt: skip
    """Plan a swap experiment: positions, sessions, days, clicks lost.

    All intervals are as narrow as asked in nine of ten experiments.

    Example: [bold]untilt plan clicks.parquet --sessions-per-day 50000 --width 0.1[/bold]

    From click rates alone: [bold]untilt plan --rates 0.31,0.2,0.12,0.08 --share 0.05[/bold]

    With a guess of the bias: [bold]untilt plan clicks.parquet --examination power-law:1[/bold]
    """
    from untilt.auditing.plan import plan_swaps

    if labels is not None:
        _plan_labels(out, reading.read(out, export.source(log), to_rank=True), labels, ranker,
                     metric, levels.level, to_grade, spare, seed)  # fmt: skip
        return
    clicks = _clicks(out, log, rates, reading, export)
    depth, notes = _planned_depth(clicks, depth)
    plan_within = partial(
        plan_swaps, clicks, sessions_per_day=sessions_per_day, width=width, level=levels.level,
        pivot=pivot, share=share, depth=depth,
        examination=_mean_curve(arguments.parse_bias(examination)), assurance=ASSURANCE,
    )  # fmt: skip
    try:
        planned = plan_within()
    except IdentifiabilityError:
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
