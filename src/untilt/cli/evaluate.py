"""`untilt evaluate`: would these rankers have been better than what was shown?"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from untilt.cli.arguments import (
    AsJson,
    BiasOption,
    LogOptions,
    PlotIntervals,
    Seed,
    Verbose,
    check_plots,
    check_share,
    parse_bias,
)
from untilt.cli.console import Output, speaking
from untilt.errors import OptionError


class Documents(StrEnum):
    """Which documents a system ranks."""

    SHOWN = "shown"
    CANDIDATES = "candidates"


class IntervalKind(StrEnum):
    """How intervals are made."""

    NORMAL = "normal"
    BOOTSTRAP = "bootstrap"


MetricOption = Annotated[
    str, typer.Option(help="dcg@k, precision@k, arp or reciprocal@k; with --letor any metric.")
]
EvaluatorOption = Annotated[
    str | None,
    typer.Option(
        "--evaluator",
        "--method",
        metavar="NAME",
        help="How position bias is taken out ({default evaluator} where not given): {evaluator}.",
    ),
]
AmongOption = Annotated[
    Documents, typer.Option(help="Rank the documents the log shows, or all candidates of a query.")
]


def evaluate(
    reading: LogOptions,
    data: Annotated[
        Path, typer.Argument(metavar="LOG", help="A click log; or a LETOR file, with --letor.")
    ],
    ranker: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="A saved ranker. May be repeated."),
    ] = None,
    bias: BiasOption = None,
    metric: MetricOption = "dcg@10",
    evaluator: EvaluatorOption = None,
    clip: Annotated[
        float | None,
        typer.Option(
            "--clip",
            "--tau",
            min=0,
            help="Least propensity that a click is divided by; the evaluator's own if not given.",
        ),
    ] = None,
    among: AmongOption = Documents.SHOWN,
    baseline: Annotated[
        str, typer.Option(help="The system that the others are compared with.")
    ] = "shown",
    interval: Annotated[
        IntervalKind, typer.Option(help="Student's t over queries, or bootstrap.")
    ] = IntervalKind.NORMAL,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    plot: PlotIntervals = None,
    clip_plot: Annotated[
        Path | None,
        typer.Option(
            "--clip-plot",
            "--clip-chart",
            metavar="FILE",
            help="Draw the first ranker's value over the clip.",
        ),
    ] = None,
    letor: Annotated[
        bool, typer.Option("--letor", help="LOG is a LETOR file: judge by its labels.")
    ] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Say how good rankers would have been, from clicks on what was shown, with intervals.

    Example: [bold]untilt evaluate clicks.parquet --documents documents.parquet --bias bias.json
    --ranker new=ranker.untilt[/bold]

    On human labels: [bold]untilt evaluate judged.txt --letor --ranker ranker.untilt[/bold]
    """
    with speaking(as_json=as_json, verbose=verbose) as output:
        check_plots(plot, clip_plot)
        check_share("--level", level)
        systems = load_rankers(ranker)
        if letor:
            _by_labels(output, data, systems, metric, level)
            return
        from untilt.evaluation.estimate import estimate
        from untilt.evaluation.rank_metric import as_rank_metric
        from untilt.evaluation.systems import shown

        curve, wanted = parse_bias(bias), as_rank_metric(metric)
        log = reading.read(output, data, to_rank=bool(systems))
        named = {"shown": shown, **systems}
        found = estimate(
            log, named, curve, metric=wanted, evaluator=evaluator, clip=clip, among=among.value,
            interval=interval.value, level=level, seed=seed,
        )  # fmt: skip
        report_estimates(output, found)
        if len(found) > 1:
            _report_comparison(output, found.compare(baseline))
        if plot is not None:
            _draw(output, found, plot)
        if clip_plot is not None:
            _draw_clips(output, log, named, curve, metric, among.value, clip_plot)


def load_rankers(files: list[str] | None) -> dict[str, Any]:
    """NAME=FILE or FILE as rankers by name; a file alone is named after itself."""
    from untilt.rankers.persist import load

    found: dict[str, Any] = {}
    for text in files or ():
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            name, path = Path(text).stem, text
        if name in found or name == "shown":
            raise OptionError(
                f"--ranker {text!r}: there is a system {name!r} already. Name it: NAME={path}."
            )
        found[name] = load(path)
    return found


def report_estimates(out: Output, found: Any) -> None:
    """Values with intervals, and what to beware of."""
    out.record(**found.to_dict())
    better = "higher" if found.metric.higher_is_better else "lower"
    clip = f", clip {found.clip:.3g}" if found.clip > 0 else ""
    out.heading(f"{found.metric} per session by {found.evaluator}{clip} ({better} is better)")
    out.table(
        ("system", "value", "std error", f"{found.level:.0%} interval", "from bias"),
        [
            (
                each.system,
                f"{each.value:.4f}",
                f"{each.std_error:.4f}",
                f"[{each.interval.low:.4f}, {each.interval.high:.4f}]",
                f"{each.bias_error:.4f}",
            )
            for each in found
        ],
    )
    first = found.entries[0]
    out.say(
        f"{found.scale}; {first.n_sessions:,} sessions of {first.n_queries:,} queries, "
        f"{found.weights.n_clicks:,.0f} clicks"
    )
    notes = [note.removeprefix("! ") for note in found.notes()]
    if notes:
        out.heading("Beware")
        out.points(notes)


def _report_comparison(out: Output, comparison: Any) -> None:
    out.record(baseline=comparison.baseline, differences=comparison.to_dict())
    out.heading(f"Difference to {comparison.baseline!r}, paired by query")
    out.table(
        ("system", "difference", f"{comparison.level:.0%} interval", "p", "more sessions needed"),
        comparison.rows(),
    )


def _by_labels(out: Output, path: Path, systems: dict[str, Any], metric: str, level: float) -> None:
    from untilt.data.letor.letor import read_letor
    from untilt.evaluation.judged import evaluate as by_labels

    if not systems:
        raise OptionError("nothing to evaluate on labels: give --ranker FILE.")
    judged = read_letor(path)
    found = {name: by_labels(judged, each, [metric], level=level) for name, each in systems.items()}
    out.record(judged=path, systems={name: each.to_dict() for name, each in found.items()})
    out.heading(f"{metric} by labels, {judged.n_queries:,} queries")
    out.table(
        ("system", "mean", "std error", f"{level:.0%} interval"),
        [
            (
                name,
                f"{each[metric].value:.4f}",
                f"{each[metric].std_error:.4f}",
                f"[{each[metric].interval.low:.4f}, {each[metric].interval.high:.4f}]",
            )
            for name, each in found.items()
        ],
    )


def _draw(out: Output, found: Any, path: Path) -> None:
    from untilt.charts.intervals import Bar, intervals_chart
    from untilt.charts.theme import finished, save_chart

    chart = intervals_chart(
        {each.system: Bar(each.value, each.interval.low, each.interval.high) for each in found},
        value_title=f"{found.metric} per session",
    )
    drawn = finished(
        chart,
        title=f"{found.metric} as if each had been deployed",
        subtitle=f"by {found.evaluator}; {found.level:.0%} intervals, clustered by query",
    )
    out.record(plot=save_chart(drawn, path))
    out.say(f"Chart: {path}")


def _draw_clips(
    out: Output, log: Any, named: dict[str, Any], bias: Any, metric: str, among: Any, path: Path
) -> None:
    from untilt.charts.theme import save_chart
    from untilt.evaluation.clip_curve import clip_curve

    name = next((name for name in named if name != "shown"), "shown")
    curve = clip_curve(log, named[name], bias, metric=metric, among=among)
    save_chart(curve.plot(title=f"{name}: {metric} by clip"), path)
    out.record(clip_plot=path, clip=curve.best)
    out.say(f"Clip curve of {name}: {path}; least estimated squared error at {curve.best:.3g}")
