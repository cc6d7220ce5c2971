"""Where a method's position bias comes from: a name, a builder. More can be registered."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.suggest import did_you_mean
from untilt.bias.known import ClickCountGuess, EyeTracking, PageSteps, PowerLaw
from untilt.bias.position_bias import PositionBias
from untilt.bias.randomized import ShuffledTop
from untilt.bias.regression_em import RegressionEM
from untilt.bias.swaps import PivotSwap
from untilt.errors import OptionError
from untilt.experiments.setting import Setting
from untilt.logs.clicklog import ClickLog

Curve = Callable[..., Any]
CURVES: dict[str, Curve] = {}
FEWEST_CLICKS = 5  # at a position of the shuffled lists, for a rate of its own


def register_curve(name: str) -> Callable[[Curve], Curve]:
    """Add a builder: (setting, **bias_options) -> a position bias or a given curve."""

    def add(builder: Curve) -> Curve:
        CURVES[name] = builder
        return builder

    return add


def curve_of(setting: Setting, name: str, options: dict[str, Any]) -> Any:
    """The curve of that name in this setting; estimated once, however many methods use it."""
    if name not in CURVES:
        raise OptionError(
            f"there is no bias {name!r} for experiments.{did_you_mean(name, CURVES)} "
            f"There are: {', '.join(sorted(CURVES))}."
        )
    key = json.dumps([name, options], sort_keys=True)
    if key not in setting.kept:
        setting.kept[key] = CURVES[name](setting, **options)
    return setting.kept[key]


@register_curve("true")
def _true(setting: Setting) -> PositionBias:
    """Examination as the clicks were made with it, without click noise."""
    return PositionBias(setting.sim.truth.examination, method="the truth", relative=False)


@register_curve("true-with-noise")
def _true_with_noise(setting: Setting) -> PositionBias:
    """The truth with its eps+ and eps-."""
    return setting.sim.truth.bias


@register_curve("power-law")
def _power_law(_: Setting, eta: float = 1.0) -> PowerLaw:
    return PowerLaw(eta)


@register_curve("eye-tracking")
def _eye_tracking(_: Setting, theta: float = 1.0) -> EyeTracking:
    return EyeTracking(theta)


@register_curve("randomization")
def _randomization(setting: Setting, top: int = 10) -> PositionBias:
    """Click rates of shuffled lists, 003 section 5.1.2; below `top` as a power law goes on.

    The first position with fewer clicks than FEWEST_CLICKS ends what is measured, too.
    """
    log, depth = setting.shuffled.log, setting.log.depth
    few = _clicks_by_position(log) < FEWEST_CLICKS
    top = max(2, min(top, int(np.argmax(few)) if few.any() else depth))
    measured = ShuffledTop(top=top).fit(log).bias_
    if depth <= top:
        return measured
    law = measured.fit_power_law(depth=depth).examination
    theta = np.concatenate([measured.examination, law[top:]])
    return PositionBias(theta, method=f"ShuffledTop to {top}, then its power law")


@register_curve("regression-em")
def _regression_em(setting: Setting, **options: Any) -> PositionBias:
    """Regression-EM on the very log that is learned from, by boosted trees."""
    estimator = RegressionEM(
        relevance="features", n_threads=setting.n_threads, seed=setting.seed, **options
    )
    return estimator.fit(setting.log).bias_


@register_curve("swap")
def _swap(setting: Setting) -> PositionBias:
    """Swaps of the top document with 1..21, as measured (002 section 3)."""
    return PivotSwap(within="length").fit(setting.swapped.log).bias_


@register_curve("swap-quadratic")
def _swap_quadratic(setting: Setting, outlier_limit: float = 3.0) -> PositionBias:
    """The same without outliers, as a quadratic function of the rank; constant below 21."""
    estimator = PivotSwap(within="length", shape="quadratic", outlier_limit=outlier_limit)
    found = estimator.fit(setting.swapped.log).bias_.examination
    depth = max(setting.log.depth, len(found))
    theta = np.concatenate([found, np.full(depth - len(found), found[-1])])
    return PositionBias(np.maximum(theta, 1e-3), method="PivotSwap, quadratic")


@register_curve("rank")
def _rank(_: Setting) -> PowerLaw:
    """1/j: the first rough guess of 002."""
    return PowerLaw(1.0)


@register_curve("clicks")
def _clicks(setting: Setting) -> ClickCountGuess:
    """1/(clicks + 1): the second rough guess of 002."""
    return ClickCountGuess(tuple(_clicks_by_position(setting.log).tolist()))


@register_curve("slight")
def _slight(_: Setting) -> PageSteps:
    return PageSteps.slight()


@register_curve("rough")
def _rough(_: Setting) -> PageSteps:
    return PageSteps.rough()


@register_curve("counterfactual")
def _counterfactual(_: Setting) -> PageSteps:
    return PageSteps.counterfactual()


def _clicks_by_position(log: ClickLog) -> FloatArray:
    weights = log.label * log.row_count
    return np.bincount(log.position - 1, weights=weights, minlength=log.depth)
