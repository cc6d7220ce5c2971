"""Step 3: the position bias, measured where the log allows it, and loudly assumed where not."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from untilt import catalog
from untilt._core import codec
from untilt.bias.curve import PositionBias
from untilt.bias.given import Examination, as_position_bias, curve_names, parse_curve
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, UntiltError, did_you_mean
from untilt.workflow.options import RunOptions
from untilt.workflow.stage_read import Data, as_clicks

# What "bias" may be: what the audit advises, an estimator, a curve, or a saved estimate.


def estimators() -> tuple[str, ...]:
    """The names of the estimators that need nothing but the log."""
    return tuple(each.name for each in catalog.methods("bias") if "context" not in each.needs)


def bias_choice(given: Any) -> Any:
    """ "auto", the class of an estimator, or the curve itself."""
    if given is None or given == "auto":
        return "auto"
    if not isinstance(given, str | Path):
        return _curve_object(given)
    text = str(given)
    name = text.partition(":")[0]
    known = estimators()
    if text in known:
        return catalog.find("bias", text).load()
    if name in curve_names():
        return parse_curve(text)
    if Path(text).is_file():
        return PositionBias.load(text)
    names = ["auto", *known, *curve_names()]
    raise OptionError(
        f"bias must be a file of an estimate, a curve such as power-law:1, or one of "
        f"{', '.join(names)}. Got {text!r}, and there is no such file.{did_you_mean(name, names)}"
    )


def _curve_object(given: Any) -> Any:
    if isinstance(given, Examination):
        return given
    raise OptionError(
        "bias must be 'auto', the name of an estimator, a curve such as 'power-law:1', a file or "
        f"a PositionBias. Got {type(given).__name__} instead."
    )


SWAPS = "To measure it, swap positions in a share of the sessions: `untilt plan` says how many."


@dataclass(frozen=True)
class Found:
    """A curve and how far it can be believed.

    kind : "measured", "modelled" (rests on a model of relevance), "given" or "assumed"
    """

    bias: PositionBias
    kind: str
    why: str
    warnings: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "kind": self.kind,
            "why": self.why,
            "warnings": self.warnings,
            "bias": codec.to_plain(self.bias),
        }


def find_bias(data: Data, audit: dict[str, Any], options: RunOptions) -> Found:
    """The bias by the audit's advice or as asked for; from sessions that nothing is judged by."""
    choice = bias_choice(options.bias)
    if choice == "auto":
        return _advised(data, audit, options)
    if isinstance(choice, type):
        return _estimated(data, choice, {}, f"{choice.__name__} was asked for", options)
    depth = data.log.depth
    reach = choice.depth if isinstance(choice, PositionBias) else depth
    return Found(as_position_bias(choice, min(reach, depth)), "given", "the curve was given")


def _advised(data: Data, audit: dict[str, Any], options: RunOptions) -> Found:
    advice = audit["advice"]
    if not advice["estimator"]:
        return assumed(data, options, f"{advice['why']}.")
    kind = catalog.find("bias", advice["estimator"]).load()
    try:
        return _estimated(data, kind, advice["options"], advice["why"], options)
    except UntiltError as error:
        return assumed(data, options, f"{kind.__name__}, which the audit advises, failed: {error}")


def _estimated(
    data: Data, kind: Any, advised: dict[str, Any], why: str, options: RunOptions
) -> Found:
    known = kind().get_params()
    wanted = {
        **advised, "level": options.level, "seed": options.seed, "n_threads": options.threads,
    }  # fmt: skip
    estimator = kind(**{name: value for name, value in wanted.items() if name in known})
    bias, warnings = _fitted(estimator, data)
    if catalog.record_of(kind, "bias").rests_on != "relevance model":
        return Found(bias, "measured", why, warnings)
    believed = "; ".join(bias.assumes)
    loud = (
        f"The position bias is not measured but modelled by {kind.__name__}: it is right only if "
        f"{believed}. {SWAPS}"
    )
    return Found(bias, "modelled", why, (loud, *warnings))


def _fitted(estimator: Any, data: Data) -> tuple[PositionBias, tuple[str, ...]]:
    """From training and validation; where they are too thin, from the whole log."""
    try:
        return estimator.fit(as_clicks(data.not_test())).bias_, ()
    except UntiltError:
        bias = estimator.fit(data.clicks).bias_
    note = (
        "The bias was estimated on all queries, those held out for judging too: without them the "
        "log is too thin for it. Intervals are a little too narrow for that."
    )
    return bias, (note,)


def assumed(data: Data, options: RunOptions, why: str) -> Found:
    """The fallback: a curve that nobody measured, said so in every place that uses it."""
    curve = parse_curve(options.fallback)
    loud = (
        f"This log cannot tell its position bias: {why} The curve {options.fallback} is assumed in "
        f"its place; every corrected figure is as right as that guess. {SWAPS}"
    )
    return Found(curve.to_bias(data.log.depth), "assumed", why, (loud,))


def cut_warning(bias: PositionBias, log: ClickLog) -> tuple[str, ...]:
    """Said where the curve ends above the lowest position shown."""
    if bias.depth >= log.depth:
        return ()
    return (
        f"The bias is known for positions 1..{bias.depth} of {log.depth}: what was shown below is "
        "left out of training and judging.",
    )
