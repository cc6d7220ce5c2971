"""`untilt bias` and `clickmodels`: where people look, by any estimator, and how they read."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from untilt import catalog
from untilt._core.declared import EXPERT
from untilt._core.progress import progress
from untilt.catalog import find
from untilt.cli import arguments
from untilt.cli.console import Output, attributes
from untilt.cli.declared import GRADES, file_option, option, out_option
from untilt.errors import IdentifiabilityError, OptionError, check_share
from untilt.evaluation.options import LevelOptions, OldScoreOptions
from untilt.facts import codes, phrase

if TYPE_CHECKING:
    from untilt.bias.curve import PositionBias
    from untilt.bias.estimator import BiasEstimator
    from untilt.clickmodels.compare import Measured, ModelComparison, ModelQuality
    from untilt.data.clicklog import ClickLog


def bias(
    log: Path | None = arguments.LOG,
    method: str = option("auto", "Estimator: {bias}; auto: the audit chooses."),
    labels: Path | None = option(
        None, "Grades of documents, for clicks-by-grade.", metavar="FILE", panel=GRADES
    ),
    context: list[str] | None = arguments.CONTEXT,
    depth: int | None = option(
        None, "Estimate positions 1..depth only (default: all positions).", min=1
    ),
    plot: Path | None = file_option("Draw the curve (.png, .svg, .html or .json)."),
    out: Path | None = out_option(None, "Write the curve to a JSON file.", "FILE"),
    pivot: int | None = option(
        None, "Position that others are compared with (default: 1).", min=1, panel=EXPERT
    ),
    seed: int | None = option(
        None, "Random seed of EM estimators (default: 0).", min=0, panel=EXPERT
    ),
    option: list[str] | None = option(
        None, "Further option of the estimator, such as top=10, relevance=counts or check=false; "
        "lists in JSON. May be repeated.", metavar="NAME=VALUE", panel=EXPERT
    ),
    *,
    levels: LevelOptions,
    asked: OldScoreOptions,
    reading: arguments.LogOptions,
    export: arguments.UbiOptions,
    output: Output,
) -> None:  # fmt: skip
    """Estimate how often each position is examined, with intervals.

    Example: [bold]untilt bias clicks.parquet --plot bias.png --out bias.json[/bold]

    With another estimator: [bold]untilt bias clicks.parquet --method all-pairs --depth 8[/bold]

    The column ranker names experiments: "shuffle..." for random order, "swap:2-5" for two
    positions exchanged, "base" for no swap. [bold]--column random=random_bool[/bold] names a flag
    for random order, [bold]--option ranker=NAME[/bold] another ranker.

    By grades of some documents: [bold]untilt bias clicks.parquet --labels grades.csv[/bold]

    A curve for each device: [bold]untilt bias clicks.parquet --context device[/bold]

    Which estimator suits the log: [bold]untilt audit clicks.parquet[/bold]
    """
    from untilt.bias.estimator import estimator_options

    given: dict[str, Any] = {"pivot": pivot, "seed": seed, "depth": depth}
    given["labels"] = None if labels is None else str(labels)
    method = _needing("labels") if labels is not None and method == "auto" else method
    options = {name: value for name, value in given.items() if value is not None}
    arguments.check_out(out)
    arguments.check_plots(plot)
    chosen = None if method == "auto" else _named(method)
    _check_context(method, context)
    clicks = reading.read(output, export.source(log), context=context or ())
    clicks = reading.without_leaks(output, clicks, curve=True, old_score=asked.old_score)
    if chosen is None:
        chosen, options, clicks = _advised(output, clicks, options, context or ())
    options = {**options, **estimator_options(chosen, option or [])}
    estimator = _made(chosen, {"level": levels.level, **options})
    named = phrase("{method:method}", method=chosen.__name__)
    with progress(f"estimating the bias by {output.said(named)}"):
        found = estimator.fit(clicks).bias_
    names = "method examination std_error low high has_interval eps_plus eps_minus level relative"
    output.record(
        positions=found.positions(),
        effective_queries_by_position=found.effective_at,
        **attributes(found, f"{names} eta effective_queries assumes status"),
    )
    rates = clicks.ctr_by_position()
    by_context = _by_context(output, estimator)
    curve = estimator.curves_ if by_context else found
    output.show(curve.view(rates.drawn_depth))
    found = _in_one(curve) or found if by_context else found
    output.points([] if rates.not_drawn is None else [rates.not_drawn])
    if out is not None:
        found.save(out)
        output.record(out=out)
        output.say(f"\nWritten: {out}")
    if plot is not None:
        output.draw(plot, lambda: found.plot(_beside(found, clicks, by_context)))


def _check_context(method: str, context: list[str] | None) -> None:
    """Raise unless context is given to the methods that need it, and to no others."""
    needed = method != "auto" and "context" in catalog.find("bias", method).needs
    if needed and not context:
        raise OptionError(
            f"--method {method} needs to know what examination may depend on. Name a column of "
            "the log, such as --context device."
        )
    if context and not needed and method != "auto":
        other = _needing("context")
        raise OptionError(
            f"--method {method} has no use for --context. Leave it out, or take --method {other}."
        )


def _needing(what: str) -> str:
    """The method that needs this."""
    return next(each.name for each in catalog.methods("bias") if what in each.needs)


def _named(method: str) -> "type[BiasEstimator]":
    """The estimator of this name; dashes and capitals do not matter."""
    kind: type[BiasEstimator] = catalog.find("bias", method, what="--method", also=("auto",)).load()
    return kind


def _advised(
    out: Output, log: "ClickLog", options: dict[str, Any], context: Sequence[str]
) -> "tuple[type[BiasEstimator], dict[str, Any], ClickLog]":
    """What the audit advises, with its options, and the lists for it; the user's own come first."""
    from untilt.auditing.audit import audit
    from untilt.auditing.next_step import context_fact, lists_by_context
    from untilt.data.transform import to_evidence

    log, left_out = to_evidence(log, options.get("depth"))
    out.points([left_out] if left_out else [])
    with progress("looking at the log"):
        found = audit(log, depth=log.depth)
    advice = found.advice
    if context and advice.estimator:
        fact = context_fact(found.reading, context)
        out.record(context=fact.record(out.said))
        out.points([fact])
    if advice.context:
        lists = lists_by_context(log, advice.estimator)
        return _named(_needing("context")), options, log if lists is None else lists
    out.record(why=advice.why)
    if not advice.estimator:
        raise IdentifiabilityError(
            phrase(
                "this log cannot tell its position bias: {why}.{then}",
                why=advice.why,
                then=phrase(f" Run `{advice.command}`.") if advice.command else "",
            )
        )
    step = found.next_step
    if step.fact.code != "audit.use":
        out.points([step.fact])
    out.points([phrase("{estimator:method}: {why}.", estimator=advice.estimator, why=advice.why)])
    return _named(advice.estimator), {**advice.options, **options}, log


def _made(kind: "type[BiasEstimator]", options: dict[str, Any]) -> "BiasEstimator":
    known = kind().get_params()
    unknown = [name for name in options if name not in known]
    if unknown:
        raise OptionError(
            f"⟦{kind.__name__}⟧ has no option --{unknown[0]}. Leave it out. Its options, as "
            f"--option NAME=VALUE: {', '.join(known)}."
        )
    return kind(**options)


def _in_one(curves: Any) -> "PositionBias | None":
    """All curves as one bias; None where there are too many, or they are a network's."""
    from untilt.bias.contextual.curves import MOST_CONTEXTS, LinearCurves

    few = isinstance(curves, LinearCurves) and len(curves.contexts) <= MOST_CONTEXTS
    return curves.by_context() if few else None


def _by_context(out: Output, estimator: Any) -> "dict[str, PositionBias]":
    """A curve for each context, or for thirds of the sessions where there are many contexts."""
    from untilt.bias.contextual.curves import ContextualCurve

    if not isinstance(getattr(estimator, "curves_", None), ContextualCurve):
        return {}
    examples = estimator.curves_.examples()
    out.record(
        contexts=[
            {"name": name, "sessions": sessions}
            | attributes(curve, "examination std_error low high")
            for name, (sessions, curve) in examples.items()
        ]
    )
    return {name: curve for name, (_, curve) in examples.items()}


def _beside(
    found: "PositionBias", log: "ClickLog", by_context: "dict[str, PositionBias]"
) -> "dict[str, PositionBias]":
    """What the curve is drawn beside: those by context, or the click rate."""
    from untilt.bias.curve import PositionBias

    rate = log.ctr_by_position().rate[: found.known_depth]
    if by_context or not (rate > 0).all():
        return by_context
    return {"click rate": PositionBias(rate / rate[0], method="click rate")}


SplitBy = Literal["session", "time"]
Unit = Literal["auto", "query", "session"]


def clickmodels(
    log: Path | None = arguments.LOG,
    model: list[str] | None = option(
        None, "Click model to compare: {click model} (default: all). May be repeated."
    ),
    train: float = option(0.75, "Share of the sessions to learn from.", metavar="SHARE"),
    split: SplitBy = option(
        "session", "Hold out random sessions, or the latest ones (time; needs timestamp)."
    ),
    intervals: Unit = option(
        "auto", "Unit that is independent in the intervals: queries or sessions.", panel=EXPERT
    ),
    draws: int = option(300, "Bootstrap samples of the intervals.", min=20, panel=EXPERT),
    plot: Path | None = file_option("Draw perplexity by position (.html, .png, .svg or .json)."),
    seed: int = arguments.SEED,
    *,
    reading: arguments.ColumnOptions,
    export: arguments.UbiOptions,
    out: Output,
) -> None:
    """Compare click models on held-out sessions.

    Tests whether a curve over positions describes how people look at the pages, or whether clicks
    and documents above matter too. Lower perplexity is better: 1 is perfect, 2 is a coin toss.

    Example: [bold]untilt clickmodels clicks.parquet --split time --plot models.html[/bold]
    """
    check_share("--train", train)
    arguments.check_plots(plot)
    for name in model or ():
        find("click model", name, what="--model")
    # Merged sessions have no time.
    read = reading.read(out, export.source(log), collapse=split == "session")
    comparison = _compare(out, read, model, train, split, by=intervals, n_draws=draws, seed=seed)
    _report_models(out, comparison)
    if plot is not None:
        from untilt.clickmodels.compare import perplexity_chart

        out.draw(plot, lambda: perplexity_chart(comparison))


def _compare(
    out: Output, log: "ClickLog", models: list[str] | None, share: float, split: SplitBy, *,
    by: str, n_draws: int, seed: int,
) -> "ModelComparison":  # fmt: skip
    from untilt.clickmodels.compare import compare_click_models

    train, test = log.split(share, by=split, seed=seed)
    if not (train.n_sessions and test.n_sessions):
        raise OptionError(
            f"{log.n_sessions:,} sessions leave none to hold out beside --train {share:g}: models "
            "are compared on sessions that they were not fitted on. Give more sessions."
        )
    out.record(train_sessions=train.n_sessions, test_sessions=test.n_sessions)
    out.say(f"{train.n_sessions:,} sessions to learn from, {test.n_sessions:,} held out")
    comparison = compare_click_models(
        train.collapse(), test, models=models or None, by=by, n_draws=n_draws, seed=seed
    )
    for entry in comparison:
        status = getattr(getattr(entry.model, "em_", None), "status", "counted")
        out.detail(f"{entry.name}: {out.said(status)}, {entry.seconds:.2f} s")
    return comparison


def _report_models(out: Output, comparison: "ModelComparison") -> None:
    from untilt.clickmodels.compare import advise

    advice = advise(comparison)
    out.record(
        models={entry.name: _entry_record(entry) for entry in comparison},
        intervals={"level": comparison.level, "by": comparison.unit, "n": comparison.n_units},
        left_out=comparison.left_out,
        best=comparison.best.name,
        sessions_per_query=comparison.sessions_per_query,
        order_notes=comparison.order_notes,
        advice=None
        if advice is None
        else {
            "pbm_is_enough": advice.enough,
            "share_of_excess_perplexity": advice.share,
            "sentences": advice.sentences,
            "codes": codes(advice.sentences),
        },
    )
    out.show(comparison.view())


def _entry_record(entry: "ModelQuality") -> dict[str, object]:
    figures = {
        "log_likelihood": entry.log_likelihood,
        "perplexity": entry.perplexity,
        "conditional_perplexity": entry.conditional_perplexity,
        "gain_over_pbm": entry.gain,
    }
    return {
        **{name: _measured_record(figure) for name, figure in figures.items()},
        "perplexity_at": vars(entry.perplexity_at),
        "conditional_perplexity_at": vars(entry.conditional_perplexity_at),
        **attributes(entry, "ruled_out seconds"),
    }


def _measured_record(figure: "Measured | None") -> dict[str, float] | None:
    if figure is None:
        return None
    return {"value": figure.value, "low": figure.interval.low, "high": figure.interval.high}
