"""`untilt bias`: the position bias of a click log, by any estimator."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from untilt import catalog
from untilt._core.progress import progress
from untilt.cli import arguments, outputs
from untilt.cli.console import Output, speaking
from untilt.cli.declared import method_option
from untilt.errors import IdentifiabilityError, OptionError
from untilt.evaluation.options import LevelOptions
from untilt.facts import phrase
from untilt.views import bar

if TYPE_CHECKING:
    from untilt.bias.curve import PositionBias
    from untilt.bias.estimator import BiasEstimator
    from untilt.data.clicklog import ClickLog


Shape = Literal["none", "smooth", "power-law"]


def bias(
    log: arguments.LogPath = None,
    method: Annotated[
        str,
        method_option("auto (what the audit advises), {bias}."),
    ] = "auto",
    pivot: Annotated[
        int | None, typer.Option(min=1, help="Position that others are compared with.")
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            metavar="document|length", help="What swapped lists are compared with (swaps only)."
        ),
    ] = None,
    relevance: Annotated[
        str | None,
        typer.Option(metavar="features|counts|network", help="How EM models relevance (EM only)."),
    ] = None,
    context: arguments.ContextOption = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of what is drawn at random (EM only).")
    ] = None,
    depth: Annotated[int | None, typer.Option(min=1, help="Positions 1..depth only.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Any other option of the estimator's constructor, as in top=10 or check=false; "
            "JSON in brackets. May be repeated.",
        ),
    ] = None,
    *,
    levels: LevelOptions,
    shape: Annotated[
        Shape, typer.Option(help="Then make the curve one that never rises, or a power law.")
    ] = "none",
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the curve: .png, .svg, .html or .json."),
        outputs.WRITES,
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write it as JSON, for untilt train."),
        outputs.WRITES,
    ] = None,
    reading: arguments.LogOptions,
    export: arguments.UbiOptions,
    as_json: arguments.AsJson = False,
    verbose: arguments.Verbose = False,
) -> None:
    """Estimate how likely each position is examined, with intervals.

    Example: [bold]untilt bias clicks.parquet --plot bias.png --out bias.json[/bold]

    By one estimator: [bold]untilt bias clicks.parquet --method all-pairs --depth 8[/bold]

    Experiments are known by the column ranker: names that begin with "shuffle" for random order,
    "swap:2-5" for two positions exchanged, "base" for no swap. A flag for random order:
    [bold]--column random=random_bool[/bold]. Other names: [bold]--option ranker=NAME[/bold].

    A curve for each device: [bold]untilt bias clicks.parquet --context device[/bold]

    Which one suits the log: [bold]untilt audit clicks.parquet[/bold]
    """
    given = {
        "pivot": pivot,
        "within": within,
        "relevance": relevance,
        "seed": seed,
        "depth": depth,
    }
    options = {name: value for name, value in given.items() if value is not None}
    with speaking(as_json=as_json, verbose=verbose) as output:
        arguments.check_out(out)
        arguments.check_plots(plot)
        chosen = None if method == "auto" else _named(method)
        _check_context(method, context)
        clicks = reading.read(output, export.source(log), context=context or ())
        clicks = reading.without_leaks(output, clicks)
        if chosen is None:
            chosen, options, clicks = _advised(output, clicks, options, context or ())
        options = _with_options(chosen, options, option or [])
        estimator = _made(chosen, {"level": levels.level, **options})
        named = phrase("{method:method}", method=chosen.__name__)
        with progress(f"estimating the bias by {output.said(named)}"):
            found = _shaped(estimator.fit(clicks).bias_, shape)
        _report(output, found, clicks)
        by_context = _report_contexts(output, estimator)
        if by_context and shape == "none":
            found = _in_one(estimator.curves_) or found
        if out is not None:
            found.save(out)
            output.record(out=out)
            output.say(f"\nWritten: {out}")
        if plot is not None:
            _draw(output, found, clicks, plot, by_context)


def _check_context(method: str, context: list[str] | None) -> None:
    """Raise unless context is given to the methods that need it, and to no others."""
    needed = method != "auto" and "context" in catalog.find("bias", method).needs
    if needed and not context:
        raise OptionError(
            f"--method {method} needs to know what examination may depend on. Name a column of "
            "the log, such as --context device."
        )
    if context and not needed and method != "auto":
        other = _contextual()
        raise OptionError(
            f"--method {method} has no use for --context. Leave it out, or take --method {other}."
        )


def _contextual() -> str:
    """The method that needs a context."""
    return next(each.name for each in catalog.methods("bias") if "context" in each.needs)


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

    with progress("looking at the log"):
        found = audit(log)
    advice = found.advice
    if context and advice.estimator:
        fact = context_fact(found.reading, context)
        out.record(context=fact.record(out.said))
        out.points([fact])
    if advice.context:
        lists = lists_by_context(log, advice.estimator)
        return _named(_contextual()), options, log if lists is None else lists
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


def _with_options(
    kind: "type[BiasEstimator]", options: dict[str, Any], pairs: list[str]
) -> dict[str, Any]:
    """What --option says, besides the options that have a name of their own here."""
    from untilt.bias.options import estimator_options

    given = estimator_options(kind, pairs)
    return {**options, **given}


def _made(kind: "type[BiasEstimator]", options: dict[str, Any]) -> "BiasEstimator":
    known = kind().get_params()
    unknown = [name for name in options if name not in known]
    if unknown:
        raise OptionError(
            f"⟦{kind.__name__}⟧ has no option --{unknown[0]}. Leave it out. Its options, as "
            f"--option NAME=VALUE: {', '.join(known)}."
        )
    return kind(**options)


def _shaped(found: "PositionBias", shape: Shape) -> "PositionBias":
    if shape == "smooth":
        return found.smooth()
    return found.fit_power_law() if shape == "power-law" else found


def _report(out: Output, found: "PositionBias", log: "ClickLog") -> None:
    out.record(
        method=found.method,
        positions=found.positions(),
        examination=found.examination,
        std_error=found.std_error,
        low=found.low,
        high=found.high,
        has_interval=found.has_interval,
        eps_plus=found.eps_plus,
        eps_minus=found.eps_minus,
        level=found.level,
        relative=found.relative,
        eta=found.eta,
        effective_queries=found.effective_queries,
        effective_queries_by_position=found.effective_at,
        assumes=found.assumes,
        status=found.status,
    )
    from untilt.bias.curve import NO_INTERVAL

    scale = f"relative to position {found.positions()[0]}" if found.relative else "absolute"
    interval = f"{found.level:.0%} interval" if found.has_interval else NO_INTERVAL
    out.heading(
        phrase(
            "examination by {method:method}, {scale} ({interval})",
            method=found.method,
            scale=scale,
            interval=interval,
        )
    )
    from untilt._core.words import sentence

    rates = log.ctr_by_position()
    out.table(*_table(found, rates.drawn_depth))
    out.heading("worth knowing")
    status = sentence(out.said(found.status))
    cut = [] if rates.not_drawn is None else [sentence(out.said(rates.not_drawn))]
    beliefs = [phrase("It assumes that {belief}.", belief=each) for each in found.assumes]
    out.points([status, *cut, *beliefs])


def _in_one(curves: Any) -> "PositionBias | None":
    """All curves as one bias; None where there are too many, or they are a network's."""
    from untilt.bias.contextual.curves import MOST_CONTEXTS, LinearCurves

    few = isinstance(curves, LinearCurves) and len(curves.contexts) <= MOST_CONTEXTS
    return curves.by_context() if few else None


def _report_contexts(out: Output, estimator: Any) -> "dict[str, PositionBias]":
    """A curve for each context, or for thirds of the sessions where there are many contexts."""
    from untilt.bias.contextual.curves import ContextualCurve

    if not isinstance(getattr(estimator, "curves_", None), ContextualCurve):
        return {}
    examples = estimator.curves_.examples()
    out.record(
        contexts=[
            {
                "name": name,
                "sessions": sessions,
                "examination": curve.examination,
                "std_error": curve.std_error,
                "low": curve.low,
                "high": curve.high,
            }
            for name, (sessions, curve) in examples.items()
        ]
    )
    for name, (sessions, curve) in examples.items():
        out.heading(f"{name} ({sessions:,.0f} sessions)")
        out.table(*_table(curve))
    return {name: curve for name, (_, curve) in examples.items()}


def _place(found: "PositionBias", position: int) -> str:
    """A position as the table names it."""
    layout = found.layout
    return (layout.name(position) if layout else str(position)).rjust(8)


def _table(
    found: "PositionBias", depth: int | None = None
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows of positions 1..depth; the JSON has all."""
    trust = found.has_trust
    drawn = [theta for _, theta, *_ in found.drawn_curve().points()]
    queries = found.effective_at
    named = (*(("eps+", "eps-") if trust else ()), *(("queries",) if queries is not None else ()))
    columns = ("position", "theta", "interval", *named, "")
    largest = max((theta for theta in drawn if theta is not None), default=0.0)
    rows = []
    for k in found.positions(depth or found.known_depth):
        theta, ends = found.text(k)
        noise: tuple[str, ...] = ()
        if found.eps_plus is not None and found.eps_minus is not None:
            noise = (f"{found.eps_plus[k - 1]:.3f}", f"{found.eps_minus[k - 1]:.3f}")
        if queries is not None:
            noise += (f"{queries[k - 1]:,.1f}",)
        value = drawn[k - 1]
        length = "" if value is None else bar(value, largest)
        rows.append((_place(found, k), theta, ends, *noise, length))
    return columns, rows


def _draw(
    out: Output,
    found: "PositionBias",
    log: "ClickLog",
    path: Path,
    by_context: "dict[str, PositionBias]",
) -> None:
    """The curve beside those by context, or the click rate, which is what it would be taken for."""
    from untilt.bias.curve import PositionBias
    from untilt.charts.theme import save_chart

    rate = log.ctr_by_position().rate[: found.known_depth]
    others = dict(by_context)
    if not others and (rate > 0).all():
        others["click rate"] = PositionBias(rate / rate[0], method="click rate")
    with progress("drawing"):
        save_chart(found.plot(others), path)
    out.record(plot=path)
    out.say(f"\nDrawn: {path}")
