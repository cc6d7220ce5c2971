"""Methods by name: rankers, tables of weights, and what they learn from. More can be registered.

A row of an experiment names one of each, so n weightings and m rankers need n + m entries here.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray, sum_by
from untilt.bias.curve import PositionBias
from untilt.bias.em.regression_em import RegressionEM
from untilt.bias.experiments.shuffled import ShuffledTop
from untilt.bias.experiments.swaps import PivotSwap
from untilt.bias.given import ClickCountGuess, EyeTracking, PageSteps, PowerLaw
from untilt.data.clicklog import ClickLog
from untilt.data.transform import synthesise
from untilt.errors import OptionError, did_you_mean
from untilt.papers.schema import Row
from untilt.papers.setting import Setting
from untilt.rankers.linear.linear import LinearRanker
from untilt.rankers.linear.svm import RankSVM
from untilt.rankers.trees.lambdamart import LambdaMART
from untilt.weighting import IPS, PNS, PRS, AffineIPS, Balanced, BayesIPS, Naive, PairwiseDebiasing

# Where a method's position bias comes from: a name, a builder. More can be registered.

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
    return sum_by(log.position - 1, weights, log.depth)


# Networks as methods of an experiment. JAX is loaded when one of them is fitted.

Builder_of_network_methods = Callable[..., Any]


def neural(setting: Setting, row: Row, weighting: Any) -> Any:
    """A network on pairs, lists or single documents; the table of weights as for trees."""
    from untilt.rankers.networks.neural import NeuralRanker

    options = _options(setting, row)
    if options.get("loss") == "pointwise":
        bias = curve_of(setting, row.bias, row.bias_options) if row.bias else None
        return NeuralRanker(bias=bias, **options)
    return NeuralRanker(weighting, **options)


def dual_learning(setting: Setting, row: Row, _: Any) -> Any:
    """Ranker and propensities that teach each other."""
    from untilt.rankers.networks.dual_learning import DualLearning

    return DualLearning(**_options(setting, row))


def pairwise_trust(setting: Setting, row: Row, _: Any) -> Any:
    """The losses of 001."""
    from untilt.rankers.trust.pairwise_trust import PairwiseTrustRanker

    return PairwiseTrustRanker(**_options(setting, row))


def tower(setting: Setting, row: Row, _: Any) -> Any:
    """A network beside a shallow tower for the position."""
    from untilt.rankers.networks.towers import TowerRanker

    return TowerRanker(**_options(setting, row))


def feedback_towers(setting: Setting, row: Row, _: Any) -> Any:
    """One network with a tower for every kind of feedback: baselines V2 to V4 of 001."""
    from untilt.rankers.networks.towers import FeedbackTowers

    return FeedbackTowers(**_options(setting, row))


NETWORKS: dict[str, Builder_of_network_methods] = {
    "neural": neural,
    "dual-learning": dual_learning,
    "pairwise-trust": pairwise_trust,
    "tower": tower,
    "feedback-towers": feedback_towers,
}


def _options(setting: Setting, row: Row) -> dict[str, Any]:
    """The row's options with the seed; a quick size has few epochs and narrow layers."""
    options = {"seed": setting.seed, **row.options}
    if setting.size.epochs is not None:
        options["epochs"] = setting.size.epochs
    if setting.size.widths:
        options["widths"] = list(setting.size.widths)
    if "widths" in options:
        options["widths"] = tuple(options["widths"])
    return options


Builder = Callable[..., Any]
RANKERS: dict[str, Builder] = dict(NETWORKS)
WEIGHTINGS: dict[str, Builder] = {
    "naive": lambda _, **options: Naive(**options),
    "ips": IPS,
    "ips-all": lambda bias, **options: IPS(bias, against="all", **options),
    "pns": PNS,
    "prs": PRS,
    "bayes-ips": BayesIPS,
    "affine-ips": AffineIPS,
    "balanced": Balanced,
    "pairwise-debiasing": lambda _, **options: PairwiseDebiasing(**options),
}
TRAINING: dict[str, Callable[[Setting], Any]] = {
    "clicks": lambda setting: setting.log,
    "labels": lambda setting: setting.labels(),
    "labels-shown": lambda setting: setting.shown_labels(),
    "click-and-dwell": lambda setting: synthesise(setting.log, {"click": 1.0, "dwell": 1.0}),
    "clicks-against-irrelevant": lambda setting: setting.irrelevant_only(),
}


def register_ranker(name: str) -> Callable[[Builder], Builder]:
    """Add a builder: (setting, row, weighting) -> a ranker that is not fitted yet."""

    def add(builder: Builder) -> Builder:
        RANKERS[name] = builder
        return builder

    return add


def known(table: dict[str, Any], name: str, what: str) -> Any:
    """The entry of that name, or an error with the nearest one."""
    if name not in table:
        raise OptionError(
            f"there is no {what} {name!r} for experiments.{did_you_mean(name, table)} "
            f"There are: {', '.join(sorted(table))}."
        )
    return table[name]


def weighting_of(setting: Setting, row: Row) -> Any:
    """The row's table of pair weights."""
    builder = known(WEIGHTINGS, row.weighting, "weighting")
    bias = curve_of(setting, row.bias, row.bias_options) if row.bias else None
    if bias is None and row.weighting not in ("naive", "pairwise-debiasing"):
        raise OptionError(
            f"row {row.name!r}: the weighting {row.weighting!r} needs a bias. Name one of the "
            "experiment's biases, such as bias = 'true'."
        )
    return builder(bias, **row.weighting_options)


def ranker_of(setting: Setting, row: Row) -> Any:
    """The row's ranker, not fitted yet."""
    return known(RANKERS, row.ranker, "ranker")(setting, row, weighting_of(setting, row))


def fitted(setting: Setting, row: Row) -> Any:
    """The row's ranker, trained on what the row says."""
    data = known(TRAINING, row.train_on, "data to train on")
    ranker = ranker_of(setting, row)
    return ranker if row.ranker in UNTRAINED else ranker.fit(data(setting))


class LabelOrder:
    """Documents by their own labels: the order that people judged to be right."""

    def scores(self, judged: Any) -> Any:
        """The labels."""
        return judged.labels


@register_ranker("production")
def _production(setting: Setting, _: Row, __: Any) -> Any:
    return setting.production


@register_ranker("label-order")
def _label_order(_: Setting, __: Row, ___: Any) -> LabelOrder:
    return LabelOrder()


UNTRAINED = ("production", "label-order")


@register_ranker("lambdamart")
def _lambdamart(setting: Setting, row: Row, weighting: Any) -> LambdaMART:
    options = {"n_trees": setting.size.trees, "n_threads": setting.n_threads, **row.options}
    if "objective" in options:
        bias = curve_of(setting, row.bias, row.bias_options)
        return LambdaMART(bias=bias, seed=setting.seed, **options)
    return LambdaMART(weighting, seed=setting.seed, **options)


@register_ranker("linear")
def _linear(_: Setting, row: Row, weighting: Any) -> LinearRanker:
    return LinearRanker(weighting, **row.options)


@register_ranker("rank-svm")
def _rank_svm(setting: Setting, row: Row, weighting: Any) -> RankSVM:
    return RankSVM(weighting, seed=setting.seed, **row.options)
