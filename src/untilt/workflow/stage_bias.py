"""Step 3: the position bias, measured where the log allows it, else assumed with a warning."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from untilt import catalog
from untilt.auditing.advice import Advice
from untilt.auditing.reading import ReadingTests
from untilt.bias.contextual.contextual import ContextualBias
from untilt.bias.contextual.curves import LinearCurves
from untilt.bias.curve import PositionBias
from untilt.bias.estimator import BiasEstimator
from untilt.bias.given import (
    Examination,
    as_position_bias,
    best_cells_first,
    curve_names,
    numbered_for,
    parse_curve,
)
from untilt.bias.options import AskedEstimator, parse_estimator
from untilt.data.layout import ranks_of
from untilt.errors import OptionError, UntiltError, did_you_mean
from untilt.facts import Fact, joined
from untilt.report.step_results import UsedBias
from untilt.workflow.options import RunOptions
from untilt.workflow.stage_read import Data, as_clicks


def estimators() -> tuple[str, ...]:
    """The names of the estimators that need nothing but the log."""
    return tuple(each.name for each in catalog.methods("bias") if "context" not in each.needs)


def bias_choice(given: Any) -> AskedEstimator | Examination | Literal["auto"]:
    """What `bias` asks for: "auto" (the audit's advice), an estimator with options, or a curve."""
    if given is None or given == "auto":
        return "auto"
    if isinstance(given, Examination):
        return given
    if not isinstance(given, str | Path):
        raise OptionError(
            "bias must be 'auto', the name of an estimator, a curve such as 'power-law:1', a file "
            f"or a PositionBias. Got {type(given).__name__} instead."
        )
    text = str(given)
    name = text.partition(":")[0]
    if name in estimators():
        return parse_estimator(text)
    if name in curve_names():
        return parse_curve(text)
    if Path(text).is_file():
        return PositionBias.load(text)
    names = ["auto", *estimators(), *curve_names()]
    raise OptionError(
        f"bias must be a file of an estimate, a curve such as power-law:1, or one of "
        f"{', '.join(names)}. Got {text!r}, and there is no such file.{did_you_mean(name, names)}"
    )


def used_bias(
    data: Data, advice: Advice, options: RunOptions, *, reading: ReadingTests | None = None
) -> UsedBias:
    """The bias as `_used` finds it; of a grid with its cells in order of examination."""
    used = _used(data, advice, options, reading=reading)
    return replace(used, bias=best_cells_first(used.bias))


def _used(
    data: Data, advice: Advice, options: RunOptions, *, reading: ReadingTests | None = None
) -> UsedBias:
    """The bias by the audit's advice or as asked for; `sessions` says from which ones.

    A curve of a log that fails a test of `reading` says so in its status, wherever it is used.
    """
    choice = bias_choice(options.bias)
    if choice == "auto":
        used = _by_context(data, _advised(data, advice, options), options)
        return _doubted(used, reading)
    if isinstance(choice, AskedEstimator):
        why = Fact("run.bias-asked-for", estimator=choice.kind.__name__)
        used = _estimated(data, choice.kind, dict(choice.options), why, options)
        return _doubted(_by_context(data, used, options), reading)
    depth = data.log.depth
    reach = choice.depth if isinstance(choice, PositionBias) else depth
    if isinstance(choice, PositionBias) and choice.layout is not None:
        depth = reach
    bias = as_position_bias(choice, min(reach, depth))
    if bias.layout is not None:
        numbered_for(data.log, bias)  # says clearly where the log lacks its context
    return UsedBias(bias, "given", Fact("run.bias-given"), _ends_early(data, bias))


def _doubted(used: UsedBias, reading: ReadingTests | None) -> UsedBias:
    finding = None if reading is None else reading.veto(knows_trust=used.bias.has_trust)
    if finding is None or used.kind == "assumed":
        return used
    return replace(used, bias=replace(used.bias, status=joined(used.bias.status, finding)))


def _advised(data: Data, advice: Advice, options: RunOptions) -> UsedBias:
    if not advice.estimator:
        return _assumed(data, options, advice.why)
    estimator = catalog.find("bias", advice.estimator).load()
    try:
        return _estimated(data, estimator, dict(advice.options), advice.why, options)
    except UntiltError as error:
        failed = Fact("run.estimator-failed", estimator=estimator.__name__, error=str(error))
        return _assumed(data, options, failed)


def _estimated(
    data: Data,
    estimator: type[BiasEstimator],
    advised: dict[str, Any],
    why: Fact,
    options: RunOptions,
) -> UsedBias:
    """From training and validation; from the whole log with folds, or where they are too small."""
    wanted = {
        **advised, "level": options.level, "seed": options.seed, "n_threads": options.threads,
    }  # fmt: skip
    known = estimator().get_params()
    unfitted = estimator(**{name: value for name, value in wanted.items() if name in known})
    warnings: list[Fact] = []
    sessions = Fact("run.curve-of-all" if data.n_folds > 1 else "run.curve-held-out")
    try:
        bias = unfitted.fit(as_clicks(data.not_test())).bias_
    except UntiltError:
        if data.n_folds > 1:
            raise
        bias = unfitted.fit(data.clicks).bias_
        sessions = Fact("run.curve-of-all")
        warnings.append(Fact("run.bias-from-all-queries"))
    warnings += _ends_early(data, bias)
    if catalog.record_of(estimator, "bias").rests_on != "relevance model":
        return UsedBias(bias, "measured", why, tuple(warnings), sessions)
    modelled = Fact(
        "run.bias-modelled", estimator=estimator.__name__, assumes="; ".join(bias.assumes)
    )
    return UsedBias(bias, "modelled", why, (modelled, *warnings), sessions)


def _by_context(data: Data, used: UsedBias, options: RunOptions) -> UsedBias:
    """A curve for each context where a test says that they are read differently."""
    if not options.context or used.kind == "assumed":
        return used
    columns = ", ".join(options.context)
    depth = min(used.bias.depth, data.log.depth)
    estimator = ContextualBias(level=options.level, depth=depth)
    try:
        curves = estimator.fit(as_clicks(data.not_test())).curves_
        assert isinstance(curves, LinearCurves)
        test, bias = curves.context_test(), curves.by_context()
    except UntiltError as error:
        untold = Fact("run.context-untold", columns=columns, error=str(error))
        return replace(used, warnings=(*used.warnings, untold))
    if test.p_value >= 1 - options.level:
        alike = Fact("run.context-alike", columns=columns, p_value=test.p_value)
        return replace(used, context=alike)
    differ = Fact("run.context-differs", columns=columns, p_value=test.p_value)
    return replace(used, bias=bias, kind="measured", context=differ)


def _assumed(data: Data, options: RunOptions, why: Fact) -> UsedBias:
    """The fallback: a curve that nobody measured, with a warning wherever it is used."""
    bias = replace(parse_curve(options.fallback).to_bias(data.log.depth), layout=data.log.layout)
    warning = Fact("run.bias-assumed", why=why, curve=options.fallback)
    return UsedBias(bias, "assumed", why, (warning, *_ends_early(data, bias)))


def _ends_early(data: Data, bias: PositionBias) -> tuple[Fact, ...]:
    """A warning where the curve ends above the lowest position shown."""
    known = int(ranks_of(bias.layout, bias.depth)[-1])
    if known >= data.log.depth:
        return ()
    return (Fact("run.bias-ends-early", known=known, depth=data.log.depth),)
