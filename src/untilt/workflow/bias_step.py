"""Step 3: the position bias, measured where the log allows it, and loudly assumed where not."""

from dataclasses import dataclass
from typing import Any

from untilt.bias.bias_json import to_fields
from untilt.bias.known import as_position_bias
from untilt.bias.position_bias import PositionBias
from untilt.errors import UntiltError
from untilt.logs.clicklog import ClickLog
from untilt.workflow.bias_choice import bias_choice, estimators, given_curve
from untilt.workflow.data import Data, as_clicks
from untilt.workflow.options import RunOptions

# Estimators that need a model of relevance to tell examination from it.
MODELLED = ("RegressionEM", "TrustEM")
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
            "bias": to_fields(self.bias),
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
    kind = {known.__name__: known for known in estimators().values()}[advice["estimator"]]
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
    if kind.__name__ not in MODELLED:
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
    curve = given_curve(options.fallback)
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
