"""Step 3: the position bias, measured where the log allows it, else assumed with a warning."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from untilt import catalog
from untilt.auditing.audit import Audit
from untilt.auditing.next_step import (
    CONTEXTS_KEPT_TOGETHER,
    CONTEXTS_NOT_FITTED,
    context_fact,
    doubt,
    lists_by_context,
)
from untilt.auditing.reading import explains_trust
from untilt.bias.contextual.contextual import ContextualBias
from untilt.bias.contextual.curves import LinearCurves
from untilt.bias.curve import PositionBias
from untilt.bias.estimator import AskedEstimator, BiasEstimator, parse_estimator
from untilt.bias.given import (
    Examination,
    as_position_bias,
    best_cells_first,
    numbered_for,
    parse_bias,
    parse_curve,
)
from untilt.bias.harvesting.harvesting import AllPairs
from untilt.data.layout import places_of
from untilt.errors import OptionError, UntiltError
from untilt.facts import Fact, joined, note, serious, warning
from untilt.report.step_results import BiasKind, UsedBias
from untilt.workflow.options import RunOptions
from untilt.workflow.stage_read import Data, as_clicks

CURVE_HELD_OUT = note(
    "run.curve-held-out", "The curve was estimated without the sessions that judge the rankers."
)()

BIAS_MODELLED = serious(
    "run.bias-modelled",
    "The position bias is modelled by {estimator:method}, not measured: it is right only if "
    "{assumes}. Swaps of positions in a share of the sessions would measure it.",
)
BIAS_ASSUMED = serious(
    "run.bias-assumed",
    "This log cannot measure its position bias: {why:stopped} The curve {curve} is assumed "
    "instead, and every corrected figure depends on it. Swaps of positions in a share of the "
    "sessions would measure the bias. All pairs with bounds (--bias all-pairs:unjoined=bounds) "
    "assume no curve.",
)
BIAS_GIVEN = note("run.bias-given", "the curve was given")()
BIAS_ENDS_EARLY = warning(
    "run.bias-ends-early",
    "The bias is known for positions 1..{known} of {depth}: impressions below are left out of "
    "training and evaluation. All pairs with bounds (--bias all-pairs:unjoined=bounds) assume no "
    "curve.",
)
ESTIMATOR_FAILED = warning(
    "run.estimator-failed", "{estimator:method}, which the audit advises, failed: {error}"
)
CURVE_OF_ALL = note(
    "run.curve-of-all",
    "The curve was estimated on all sessions, including those that judge the rankers.",
)()
BIAS_FROM_ALL_QUERIES = warning(
    "run.bias-from-all-queries",
    "The bias was estimated on all queries, including those held out for evaluation, because the "
    "log is too small without them. Intervals are a little too narrow.",
)()


def estimators() -> tuple[str, ...]:
    """The names of the estimators that need nothing but the log."""
    return tuple(
        each.name for each in catalog.methods("bias") if not {"context", "labels"} & {*each.needs}
    )


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
    if str(given).partition(":")[0] in estimators():
        return parse_estimator(str(given))
    return parse_bias(str(given), also=("auto", *estimators()))


def used_bias(data: Data, audited: Audit, options: RunOptions) -> UsedBias:
    """The bias as `_used` finds it; of a grid with its cells in order of examination."""
    used = _used(data, audited, options)
    used = _doubted(
        replace(used, explains_trust=explains_trust(as_clicks(data.log), used.bias)), audited
    )
    return replace(used, bias=best_cells_first(used.bias))


def _used(data: Data, audited: Audit, options: RunOptions) -> UsedBias:
    """The bias by the audit's advice or as asked for; `sessions` says from which ones.

    A curve of a log that fails a reading test says so in its status, wherever it is used.
    """
    choice = bias_choice(options.bias)
    if choice == "auto":
        advice = audited.advice
        return _by_context(
            data, _advised(data, audited, options), advice.estimator, audited, options
        )
    if isinstance(choice, AskedEstimator):
        name = choice.kind.__name__
        why = note("run.bias-asked-for", "{estimator:method} was asked for")(estimator=name)
        used = _estimated(data, choice.kind, dict(choice.options), why, options, audited)
        ranker = choice.options.get("ranker")
        return _by_context(data, used, name, audited, options, ranker)
    depth = data.log.depth
    reach = choice.depth if isinstance(choice, PositionBias) else depth
    if isinstance(choice, PositionBias) and choice.layout is not None:
        depth = reach
    bias = as_position_bias(choice, min(reach, depth))
    if bias.layout is not None:
        numbered_for(data.log, bias)  # says clearly where the log lacks its context
    kind: BiasKind = "given" if bias.rests_on in ("", "experiment") else _kind(bias, audited)
    return UsedBias(bias, kind, BIAS_GIVEN, _ends_early(data, bias))


def _kind(bias: PositionBias, audited: Audit) -> BiasKind:
    """What a curve rests on, in this log."""
    if bias.rests_on in ("relevance model", "labels"):
        return "modelled" if bias.rests_on == "relevance model" else "labels"
    varies = "" if audited.variation is None else audited.variation.source
    return "experiment" if bias.rests_on == "experiment" else varies or "harvested"


def _doubted(used: UsedBias, audited: Audit) -> UsedBias:
    finding = doubt(
        audited.reading, audited.interventions, explains_trust=used.explains_trust,
        asked_for=used.asked_for,
    )  # fmt: skip
    if finding is None or used.kind in ("assumed", "given"):
        return used
    return replace(used, bias=replace(used.bias, status=joined(used.bias.status, finding)))


def _advised(data: Data, audited: Audit, options: RunOptions) -> UsedBias:
    advice = audited.advice
    if not advice.estimator:
        return _assumed(data, options, advice.why)
    estimator = catalog.find("bias", advice.estimator).load()
    if estimator is ContextualBias:  # one curve first, which tells how deep the log reaches
        estimator = AllPairs
    try:
        return _estimated(data, estimator, dict(advice.options), advice.why, options, audited)
    except UntiltError as error:
        failed = ESTIMATOR_FAILED(estimator=estimator.__name__, error=error.problem)
        return _assumed(data, options, failed)


def _estimated(
    data: Data,
    estimator: type[BiasEstimator],
    advised: dict[str, Any],
    why: Fact,
    options: RunOptions,
    audited: Audit,
) -> UsedBias:
    """From training and validation; from the whole log with folds, or where they are too small."""
    wanted = {
        **advised, "level": options.level, "seed": options.seed, "n_threads": options.threads,
    }  # fmt: skip
    known = estimator().get_params()
    unfitted = estimator(**{name: value for name, value in wanted.items() if name in known})
    warnings: list[Fact] = []
    sessions = CURVE_OF_ALL if data.n_folds > 1 else CURVE_HELD_OUT
    try:
        bias = unfitted.fit(as_clicks(data.not_test())).bias_
    except UntiltError:
        if data.n_folds > 1:
            raise
        bias = unfitted.fit(data.clicks).bias_
        sessions = CURVE_OF_ALL
        warnings.append(BIAS_FROM_ALL_QUERIES)
    warnings += _ends_early(data, bias)
    kind = _kind(bias, audited)
    if kind == "modelled":
        modelled = BIAS_MODELLED(estimator=estimator.__name__, assumes="; ".join(bias.assumes))
        warnings.insert(0, modelled)
    return UsedBias(bias, kind, why, tuple(warnings), sessions)


def _by_context(
    data: Data, used: UsedBias, estimator: str, audited: Audit, options: RunOptions,
    ranker: Any = None,
) -> UsedBias:  # fmt: skip
    """A curve for each context where the reading tests say that they are read differently.

    It is of the same lists, so it rests on the same evidence.
    """
    if not options.context or used.kind == "assumed":
        return used
    fact = context_fact(audited.reading, options.context)
    if fact.code != "run.context-differs":
        more = (fact,) if fact.severity == "warning" else ()
        return replace(used, warnings=(*used.warnings, *more), context=None if more else fact)
    lists = lists_by_context(as_clicks(data.not_test()), estimator, ranker)
    if lists is None:
        kept = CONTEXTS_KEPT_TOGETHER(columns=options.context, estimator=estimator)
        return replace(used, warnings=(*used.warnings, kept))
    depth = min(used.bias.depth, data.log.depth)
    try:
        curves = ContextualBias(level=options.level, depth=depth).fit(lists).curves_
        assert isinstance(curves, LinearCurves)
        bias = curves.by_context()
    except UntiltError as error:
        untold = CONTEXTS_NOT_FITTED(columns=options.context, error=error.problem)
        return replace(used, warnings=(*used.warnings, untold))
    if used.bias.rests_on == "experiment":
        method = f"{used.bias.method} ({bias.method})"
        bias = replace(bias, method=method, assumes=used.bias.assumes)
    return replace(used, bias=bias, context=fact)


def _assumed(data: Data, options: RunOptions, why: Fact) -> UsedBias:
    """The fallback: a curve that nobody measured, with a warning wherever it is used."""
    bias = replace(parse_curve(options.fallback).to_bias(data.log.depth), layout=data.log.layout)
    warning = BIAS_ASSUMED(why=why, curve=options.fallback)
    return UsedBias(bias, "assumed", why, (warning, *_ends_early(data, bias)))


def _ends_early(data: Data, bias: PositionBias) -> tuple[Fact, ...]:
    """A warning where the curve ends above the lowest position shown."""
    known = int(places_of(bias.layout, bias.depth)[-1])
    if known >= data.log.depth:
        return ()
    return (BIAS_ENDS_EARLY(known=known, depth=data.log.depth),)
