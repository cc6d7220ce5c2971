"""`untilt evaluate`: would these rankers have been better than what was shown?"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from untilt._core.addresses import place
from untilt._core.declared import EXPERT, Option
from untilt.cli import arguments
from untilt.cli.console import Output, attributes
from untilt.cli.declared import GRADES, PLOT, argument, file_option, option
from untilt.errors import OptionError
from untilt.evaluation.options import JudgingOptions, LevelOptions

if TYPE_CHECKING:
    from untilt.data.clicklog import ClickLog
    from untilt.evaluation.results import Estimates


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(JudgingOptions):
    """What rankers are judged by, on clicks or on labels."""

    FIRST: ClassVar[tuple[str, ...]] = ("metric", "evaluator", "clip")

    clip: Annotated[
        float | Literal["auto"] | None,
        Option(
            "Smallest propensity that a click is divided by; auto: chosen from the data (default: "
            "the evaluator's).",
            metavar="NUMBER|auto", panel=EXPERT, least=0,
        ),
    ] = None  # fmt: skip


def evaluate(
    data: Path = argument(..., "The click log, or a LETOR file with --letor.", "LOG", parser=place),
    ranker: list[str] | None = option(
        None, "A saved ranker. May be repeated.", metavar="[NAME=]FILE"
    ),
    bias: str | None = arguments.BIAS,
    *,
    judging: EvaluateOptions,
    baseline: list[str] | None = option(
        None, "System that the others are compared with (default: shown), or ranker=NAME[,NAME]: "
        "rankers of the log that count as production (default: all except experiments). May be "
        "repeated.", metavar="SYSTEM|ranker=NAME"
    ),
    people: str | None = option(
        None, "Column of the person behind a session; intervals then allow for people who come "
        "back (default: none).", metavar="COLUMN", panel=EXPERT
    ),
    interval: Literal["normal", "bootstrap"] = option(
        "normal", "Kind of interval: Student's t over queries, or bootstrap.", panel=EXPERT
    ),
    levels: LevelOptions,
    plot: Path | None = PLOT,
    clip_plot: Path | None = file_option("Draw the first ranker's value over the clip.", EXPERT),
    sensitivity_plot: Path | None = file_option(
        "Draw what would flip the best ranker's difference (a tornado chart).", EXPERT
    ),
    letor: bool = option(
        False, "Judge by the labels of LOG, a LETOR file; any metric.", panel=GRADES
    ),
    held_out: bool = option(False, "Use only queries that no given ranker was trained on."),
    shown_log: Path | None = option(
        None, "Click log with the same ids, to see which documents of --letor were never shown.",
        "--shown", metavar="LOG", panel=GRADES
    ),
    labels: Path | None = option(
        None, "Grades of the documents that `untilt plan --labels` drew; clicks under --bias "
        "predict the other grades.", metavar="FILE", panel=GRADES
    ),
    predict: list[str] | None = option(
        None, "Another judge's grades of all documents, as a prediction for --labels. May be "
        "repeated.", metavar="[NAME=]FILE", panel=GRADES
    ),
    seed: int = arguments.SEED,
    reading: arguments.LogOptions,
    output: Output,
) -> None:  # fmt: skip
    """Estimate from clicks how good rankers would have been.

    LOG must be a part that no ranker was trained on, such as one of `untilt split`.

    Example: [bold]untilt evaluate parts/test.parquet --documents parts/test-documents.parquet
    --bias bias.json --ranker new=ranker.untilt[/bold]

    On human labels: [bold]untilt evaluate test.txt --letor --ranker ranker.untilt[/bold]
    """
    arguments.check_plots(plot, clip_plot, sensitivity_plot)
    metric, among, level = judging.metric, judging.among, levels.level
    systems = load_rankers(ranker)
    if letor:
        logged = None if shown_log is None else reading.read(output, shown_log, to_rank=False)
        _by_labels(output, data, systems, metric, level, held_out=held_out, shown=logged)
        return
    if shown_log is not None:
        raise OptionError(
            "--shown goes with --letor: it says which judged documents were shown. A click log "
            "says so itself; give all candidates with --documents."
        )
    from untilt.evaluation.estimate import estimate
    from untilt.evaluation.slots import as_rank_metric
    from untilt.evaluation.systems import shown

    curve, wanted = arguments.parse_bias(bias), as_rank_metric(metric)
    whose = () if people is None else (people,)
    context = dict.fromkeys([*arguments.context_of(curve), *whose])
    log = reading.read(output, data, to_rank=bool(systems), context=list(context))
    log = _held_out_part(output, log, systems) if held_out else log
    named = {"shown": shown, **systems}
    if labels is not None:
        by_grades(output, log, named, labels, named_files(predict), curve, metric, level)
        return
    compared_with, rankers = _baselines(baseline or [], named)
    estimates = estimate(
        log, named, curve, metric=wanted, evaluator=judging.evaluator, clip=judging.clip,
        among=among, baseline=rankers, people=people, interval=interval, level=level, seed=seed,
    )  # fmt: skip
    _report(output, estimates, compared_with)
    if len(estimates) > 1:
        _report_sensitivity(output, estimates, compared_with, sensitivity_plot)
    if plot is not None:
        title = f"{metric} as if each had been deployed"
        draw_estimates(output, estimates, estimates.systems, plot, title=title)
    if clip_plot is not None:
        options = {"metric": metric, "among": among, "baseline": rankers}
        _draw_clips(output, log, named, curve, clip_plot, options)


def _baselines(given: list[str], systems: dict[str, Any]) -> tuple[str, str | None]:
    """The system to compare with, and the log's rankers whose sessions are the baseline."""
    of_log = [each for each in given if each not in systems]
    compared = [each for each in given if each in systems]
    if len(of_log) > 1 or len(compared) > 1:
        raise OptionError(
            f"--baseline {', '.join(given)}: give one system to compare with ({', '.join(systems)})"
            " and the log's rankers in one go, as in --baseline ranker=one,two."
        )
    return compared[0] if compared else "shown", of_log[0] if of_log else None


def _held_out_part(out: Output, data: Any, systems: dict[str, Any]) -> Any:
    """The sessions or judged lists of queries that no ranker has seen; says how many there are."""
    from untilt.data.seen import held_out_part, seen_in

    part = held_out_part(data, systems)
    kept, all_of_them = len(seen_in(part)), len(seen_in(data))
    out.record(held_out_queries=kept, queries=all_of_them)
    out.say(f"Held out: {kept:,} of {all_of_them:,} queries; no ranker was trained on them.")
    return part


def load_rankers(files: list[str] | None) -> dict[str, Any]:
    """NAME=FILE or FILE as rankers by name; a file alone is named after itself."""
    from untilt.rankers.base import load

    return {name: load(path) for name, path in named_files(files, "--ranker", "shown").items()}


def named_files(given: list[str] | None, option: str = "--predict", *taken: str) -> dict[str, str]:
    """NAME=FILE or FILE by name; a file alone is named after itself."""
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            name, path = Path(text).stem, text
        if name in found or name in taken:
            raise OptionError(
                f"{option} {text!r}: there is a system {name!r} already. Name it: NAME={path}."
            )
        found[name] = path
    return found


def by_grades(
    out: Output, log: "ClickLog", systems: dict[str, Any], labels: Path, predict: dict[str, str],
    curve: Any, metric: str, level: float,
) -> None:  # fmt: skip
    """Values by a sample of grades, with clicks and other judges as predictions."""
    from untilt.data.grades import read_labels
    from untilt.evaluation.labels.estimate import estimate_labels
    from untilt.exports.judgments import click_judgments

    predictions: dict[str, Any] = {name: read_labels(path) for name, path in predict.items()}
    if curve is not None:
        predictions["clicks"] = click_judgments(log, curve)
    found = estimate_labels(
        log, systems, read_labels(labels), metric, predictions=predictions, level=level
    )
    out.record(metric=str(found.metric), share=found.share, level=level, facts=found.facts)
    out.record(systems={each.name: asdict(each) for each in found})
    out.record(agreements=[asdict(each) for each in found.agreements])
    out.show(found.view())


def record_estimates(out: Output, estimates: "Estimates") -> None:
    """The estimates for machines."""
    from untilt.evaluation.pool import parse_evaluator

    out.record(
        metric=str(estimates.metric),
        clip=estimates.clip if parse_evaluator(estimates.evaluator).takes("clip") else None,
        **attributes(estimates, "evaluator clip_chosen among scale level warnings"),
        baseline_sessions=estimates.baseline,
        systems={each.system: asdict(each) for each in estimates},
    )


def _report(out: Output, estimates: "Estimates", baseline: str) -> None:
    """Values with intervals, differences, and what to beware of."""
    from untilt.evaluation.estimate_view import estimate_sections

    record_estimates(out, estimates)
    comparison = estimates.compare(baseline) if len(estimates) > 1 else None
    out.show(estimate_sections(estimates, comparison))
    if comparison is not None:
        out.record(baseline=baseline, differences={e.system: asdict(e) for e in comparison})


def _report_sensitivity(
    out: Output, estimates: "Estimates", baseline: str, path: Path | None
) -> None:
    """What would flip the difference of the best system to the baseline."""
    found = estimates.sensitivity(baseline=baseline)
    out.record(sensitivity=asdict(found))
    if not found.causes:
        return
    out.show(found.view())
    if path is not None:
        out.draw(path, found.plot, "Sensitivity", "sensitivity_plot")


def _by_labels(
    out: Output, path: Path, systems: dict[str, Any], metric: str, level: float, *, held_out: bool,
    shown: "ClickLog | None",
) -> None:  # fmt: skip
    from untilt.data.letor.read_letor import read_letor
    from untilt.evaluation.judged import evaluate as by_labels
    from untilt.evaluation.judged import systems_by_labels

    if not systems:
        raise OptionError("nothing to evaluate on labels: give --ranker FILE.")
    judged = read_letor(path)
    judged = _held_out_part(out, judged, systems) if held_out else judged
    results = {
        name: by_labels(judged, each, metric, level=level, shown=shown)
        for name, each in systems.items()
    }
    out.record(judged=path, systems={name: each.to_dict() for name, each in results.items()})
    out.record(warnings={name: each.warnings for name, each in results.items() if each.warnings})
    out.show(systems_by_labels(results, metric))


def draw_estimates(
    out: Output, estimates: "Estimates", names: Sequence[str], path: Path, *, title: str
) -> None:
    """A chart of the systems by name, with their intervals."""
    from untilt.charts.intervals import Bar, intervals_chart
    from untilt.charts.theme import finished

    entries = [estimates[name] for name in names]
    chart = intervals_chart(
        {each.system: Bar(each.value, each.interval.low, each.interval.high) for each in entries},
        value_title=f"{estimates.metric} per session",
    )
    subtitle = f"by {estimates.evaluator}; {estimates.level:.0%} intervals, clustered by query"
    out.draw(path, lambda: finished(chart, title=title, subtitle=subtitle))


def _draw_clips(
    out: Output, log: Any, named: dict[str, Any], bias: Any, path: Path, options: dict[str, Any]
) -> None:
    from untilt.evaluation.clip_curve import clip_curve

    name = next((name for name in named if name != "shown"), "shown")
    curve = clip_curve(log, named[name], bias, **options)
    out.draw(path, lambda: curve.plot(title=f"{name}: {curve.metric} by clip"), "Clip", "clip_plot")
    out.record(best_clip=curve.best)
    out.say(f"Least estimated squared error of {name}: at a clip of {curve.best:.3g}")
