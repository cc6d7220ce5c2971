"""Metrics that clicks can estimate: sums over documents of a function of rank times relevance."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from untilt._core.arrays import FloatArray
from untilt.bias.curve import PositionBias
from untilt.catalog import methods
from untilt.errors import OptionError, did_you_mean
from untilt.metrics.metric import Metric, checked_cut, parse_metric

RECIPROCAL = "reciprocal"  # 1 / rank has a name, though it is no metric of labels
EXAMINATION = "examination"  # the curve itself: expected clicks


@dataclass(frozen=True)
class RankMetric:
    r"""An additive metric: sum_i lambda(rank_i) y_i over the documents of a list.

    Additive metrics are the ones whose expectation an inverse-propensity sum has
    ([oosterhuis2020tutorial]_): each document adds its own part, whatever the others are. NDCG, MAP
    and MRR divide by or look at other documents' labels, so no sum over clicks estimates them.

    Parameters
    ----------
    name : how results call it
    discount : lambda, from an array of 1-based ranks to an array of numbers
    cut : the last rank that counts, or None
    higher_is_better : False for costs such as a sum of ranks

    >>> RankMetric("top 3", lambda rank: rank <= 3).weights(4)
    array([1., 1., 1., 0.])
    """

    name: str
    discount: Callable[[FloatArray], npt.ArrayLike]
    cut: int | None = None
    higher_is_better: bool = True

    def weights(self, depth: int) -> FloatArray:
        """lambda(r) for r = 1..depth, 0 below the cut."""
        rank = np.arange(1.0, depth + 1)
        values = np.asarray(self.discount(rank), dtype=float)
        if values.shape != rank.shape or not np.all(np.isfinite(values)):
            raise OptionError(
                f"the metric {self.name!r} must give one finite number for each rank. Got shape "
                f"{values.shape} for ranks 1..{depth}. Write it with NumPy functions of an array."
            )
        return np.where(rank <= (depth if self.cut is None else self.cut), values, 0.0)

    def __str__(self) -> str:
        return self.name


MetricLike = str | Metric | RankMetric | Callable[[FloatArray], npt.ArrayLike]


def as_rank_metric(metric: MetricLike, bias: PositionBias | None = None) -> RankMetric:
    """A metric by name, a `Metric` that is additive, a `RankMetric`, or a function of rank.

    "dcg@k" and "dcg", "precision@k", "arp" and "reciprocal@k" (lambda = 1/r) have names. The label
    enters as it is: for clicks that is what 2^y - 1 gives too. ARP is the *sum* of the ranks of
    relevant documents; divided by their number, as `snips` does, it is their average rank.
    "examination" has the curve `bias` itself as lambda: sum_i theta(slot_i) gamma_i, the clicks
    that a session would have (the scale of the curve cancels). It needs no idea of what a rank is
    worth, and so it is the metric of a grid.
    """
    if _is_examination(metric):
        return RankMetric(EXAMINATION, _Theta(() if bias is None else tuple(bias.examination)))
    if isinstance(metric, RankMetric):
        return metric
    if isinstance(metric, str) and metric.strip().lower().partition("@")[0] == RECIPROCAL:
        return _reciprocal(metric.strip().lower())
    if callable(metric) and not isinstance(metric, Metric):
        return RankMetric(getattr(metric, "__name__", "function of rank"), metric)
    known = parse_metric(metric)
    if not known.additive:
        cut = "" if known.cut is None else f"@{known.cut}"
        near = known.nearest_additive and known.nearest_additive + cut
        additive = [each.name for each in methods("metric") if each.load().additive]
        raise OptionError(
            f"clicks can estimate sums of lambda(rank) times relevance only, and {known} is none: "
            "it divides by or depends on the labels of other documents."
            f"{did_you_mean(near, [near])} There are: "
            f"{', '.join([*additive, RECIPROCAL, EXAMINATION])}, or any function of rank."
        )
    return RankMetric(
        str(known),
        _DiscountOf(known),
        cut=known.cut,
        higher_is_better=known.higher_is_better,
    )


@dataclass(frozen=True)
class _DiscountOf:
    """lambda of a metric; a class, since functions made on the way cannot be pickled."""

    metric: Metric

    def __call__(self, rank: FloatArray) -> FloatArray:
        return self.metric.discount(len(rank))


def _is_examination(metric: MetricLike) -> bool:
    """Whether it is the curve itself, by its name or made without knowing the curve."""
    if isinstance(metric, RankMetric):
        return isinstance(metric.discount, _Theta)
    return isinstance(metric, str) and metric.strip().lower() == EXAMINATION


@dataclass(frozen=True)
class _Theta:
    """The curve as a function of rank, 0 below its end; empty until the curve is known."""

    theta: tuple[float, ...]

    def __call__(self, rank: FloatArray) -> FloatArray:
        if not self.theta:
            raise OptionError(f"the metric {EXAMINATION!r} needs the position bias: give bias=...")
        index = rank.astype(np.int64) - 1
        inside = index < len(self.theta)
        return np.where(inside, np.array(self.theta)[np.where(inside, index, 0)], 0.0)


def _one_over(rank: FloatArray) -> FloatArray:
    return 1 / rank


def _reciprocal(name: str) -> RankMetric:
    _, at, cut = name.partition("@")
    if at and not cut.isdecimal():
        raise OptionError(f"{RECIPROCAL}@k needs a whole number k of at least 1. Got {name!r}.")
    return RankMetric(name, _one_over, cut=checked_cut(int(cut), name) if at else None)
