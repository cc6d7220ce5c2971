"""Discounted cumulative gain, plain and as a share of the best possible."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.catalog import method
from untilt.errors import check_choice
from untilt.metrics import kernel
from untilt.metrics.base import GAINS, Empty, Formula, Gain, Metric, checked_cut


@dataclass(frozen=True)
class _GainMetric(Metric):
    """A sum of discounted gains; `gain` says what a label is worth."""

    k: int | None = None
    gain: Gain = "exponential"

    def __post_init__(self) -> None:
        if self.k is not None:
            object.__setattr__(self, "k", checked_cut(self.k, self.name))
        check_choice("gain", self.gain, tuple(GAINS))

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1 / log2(1 + r)."""
        return 1 / np.log2(np.arange(2, depth + 2))


@method(
    "metric", "dcg", title="Discounted cumulative gain", order=11, reference="jarvelin2002",
    note="the sum of gains, discounted by 1 / log2(1 + rank)",
)  # fmt: skip
@dataclass(frozen=True)
class DCG(_GainMetric):
    r"""DCG@k = sum_{r <= k} gain(y_r) / log2(1 + r), y_r the label at rank r [jarvelin2002]_.

    gain(y) = 2^y - 1 ("exponential", the default of learning to rank, [burges2005ranknet]_) or
    y ("linear"). Right for graded labels; use "linear" for labels that are no grades.

    >>> DCG(2).per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3]).round(4)
    array([1.8928])
    """

    name: ClassVar[str] = "dcg"

    def formula(self) -> Formula:
        """The sum itself."""
        return Formula(kernel.EACH_GAIN, GAINS[self.gain], kernel.ONE)

    def empty_value(self, empty: Empty) -> float:
        """0 or NaN: without a gain the ideal DCG is 0 too."""
        return float("nan") if empty == "skip" else 0.0


@method(
    "metric", "ndcg", title="Normalised DCG", order=10, reference="jarvelin2002", default=True,
    note="DCG as a share of the best possible",
)  # fmt: skip
@dataclass(frozen=True)
class NDCG(_GainMetric):
    r"""NDCG@k = DCG@k / ideal DCG@k, the ideal being the list sorted by label [jarvelin2002]_.

    The gain of a label is 2^y - 1 ("exponential") or y ("linear"), as in `DCG`.

    >>> NDCG(10).per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3]).round(4)
    array([0.659])
    >>> str(NDCG(10, gain="linear"))
    'ndcg@10:gain=linear'
    """

    name: ClassVar[str] = "ndcg"

    def formula(self) -> Formula:
        """The sum as a share of the same sum over the list sorted by label."""
        return Formula(kernel.EACH_GAIN, GAINS[self.gain], kernel.IDEAL)
