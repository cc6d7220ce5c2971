"""Methods by name: rankers, tables of weights, and what they learn from. More can be registered.

A row of an experiment names one of each, so n weightings and m rankers need n + m entries here.
"""

from collections.abc import Callable
from typing import Any

from untilt._core.suggest import did_you_mean
from untilt.errors import OptionError
from untilt.experiments.curves import curve_of
from untilt.experiments.network_methods import NETWORKS
from untilt.experiments.schema import Row
from untilt.experiments.setting import Setting
from untilt.logs.synthesise import synthesise
from untilt.rankers.lambdamart import LambdaMART
from untilt.rankers.linear import LinearRanker
from untilt.rankers.svm import RankSVM
from untilt.weighting import (
    IPS,
    PNS,
    PRS,
    AffineIPS,
    Balanced,
    BayesIPS,
    Naive,
    PairwiseDebiasing,
)

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
