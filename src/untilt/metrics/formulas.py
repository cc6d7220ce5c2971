"""The ranking metrics: DCG and its share of the ideal, ARP, MAP, precision, recall and MRR."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.catalog import method
from untilt.errors import check_choice
from untilt.metrics import kernel, metric


@dataclass(frozen=True)
class _CutMetric(metric.Metric):
    """A metric with a cut: the last rank that counts, or None for all of them."""

    k: int | None = None
    needs_cut: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.k is not None or self.needs_cut:
            object.__setattr__(self, "k", metric.checked_cut(self.k, self.name))


@dataclass(frozen=True)
class _GainMetric(_CutMetric):
    """A sum of discounted gains; `gain` says what a label is worth."""

    gain: metric.Gain = "exponential"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("gain", self.gain, tuple(metric.GAINS))

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1 / log2(1 + r)."""
        return 1 / np.log2(np.arange(2, depth + 2))


@dataclass(frozen=True)
class _BinaryMetric(_CutMetric):
    """A document is relevant if its label is at least `relevant_from`."""

    relevant_from: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "relevant_from", metric.checked_relevant_from(self.relevant_from))

    def _formula(self, walk: int, norm: int) -> metric.Formula:
        return metric.Formula(walk, kernel.BINARY, norm, self.relevant_from)


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
    nearest_additive: ClassVar[str] = "dcg"

    def formula(self) -> metric.Formula:
        """The sum as a share of the same sum over the list sorted by label."""
        return metric.Formula(kernel.EACH_GAIN, metric.GAINS[self.gain], kernel.IDEAL)


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
    additive: ClassVar[bool] = True

    def formula(self) -> metric.Formula:
        """The sum itself."""
        return metric.Formula(kernel.EACH_GAIN, metric.GAINS[self.gain], kernel.ONE)

    def empty_value(self, empty: metric.Empty) -> float:
        """0 or NaN: without a gain the ideal DCG is 0 too."""
        return float("nan") if empty == "skip" else 0.0


@method(
    "metric", "arp", title="Average relevance position", order=12,
    reference="joachims2017unbiased",
    note="the mean rank of a relevant document; lower is better",
)  # fmt: skip
@dataclass(frozen=True)
class ARP(metric.Metric):
    r"""ARP = sum_i rank_i y_i / sum_i y_i: the mean rank of a relevant document. Lower is better.

    As in [wang2018lambdaloss]_. Others sum rank_i y_i without the denominator
    [oosterhuis2020tutorial]_ or divide by the length of the list [wang2020prs]_. Divided by the
    labels it is a rank, 1 at best, and lists of different size compare. The average rank of *all*
    relevant documents of a data set [joachims2017unbiased]_ is the mean with each list's summed
    label as its weight.
    A list without a relevant document has no ARP and is left out, whatever `empty` says: 0 or 1
    would praise it.

    >>> ARP().per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3]).round(4)
    array([2.3333])
    """

    name: ClassVar[str] = "arp"
    additive: ClassVar[bool] = True
    higher_is_better: ClassVar[bool] = False

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = r."""
        return np.arange(1.0, depth + 1)

    def formula(self) -> metric.Formula:
        """Ranks weighted by label."""
        return metric.Formula(kernel.EACH_GAIN, kernel.LINEAR, kernel.TOTAL_GAIN)

    def empty_value(self, empty: metric.Empty) -> float:  # noqa: ARG002
        """NaN: there is no rank to speak of."""
        return float("nan")


@method(
    "metric", "precision", title="Precision", needs=("cut",), order=14, aliases=("p", "prec"),
    note="the share of relevant documents among the first k",
)  # fmt: skip
@dataclass(frozen=True)
class Precision(_BinaryMetric):
    r"""P@k = (relevant documents among the first k) / k, also where the list is shorter than k.

    >>> Precision(2).per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3])
    array([0.5])
    """

    name: ClassVar[str] = "precision"
    additive: ClassVar[bool] = True
    needs_cut: ClassVar[bool] = True

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1 / k."""
        assert self.k is not None
        return np.full(depth, 1 / self.k)

    def formula(self) -> metric.Formula:
        """The sum itself."""
        return self._formula(kernel.EACH_GAIN, kernel.ONE)


@method(
    "metric", "recall", title="Recall", needs=("cut",), order=15, aliases=("r",),
    note="the share of the relevant documents that are among the first k",
)  # fmt: skip
@dataclass(frozen=True)
class Recall(_BinaryMetric):
    r"""R@k = (relevant documents among the first k) / (relevant documents of the list).

    >>> Recall(2).per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3])
    array([0.5])
    """

    name: ClassVar[str] = "recall"
    nearest_additive: ClassVar[str] = "precision"
    needs_cut: ClassVar[bool] = True

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1."""
        return np.ones(depth)

    def formula(self) -> metric.Formula:
        """A share of the relevant documents."""
        return self._formula(kernel.EACH_GAIN, kernel.TOTAL_GAIN)


@method(
    "metric", "map", title="Mean average precision", order=13, aliases=("ap",),
    note="precision at each relevant document, averaged",
)  # fmt: skip
@dataclass(frozen=True)
class MAP(_BinaryMetric):
    r"""Average precision, AP@k = 1/R sum over relevant ranks r <= k of P@r, and its mean.

    R counts all relevant documents of the list, also those that do not fit above the cut, as in
    trec_eval; so AP@k may stay below 1 for the best ranking.

    >>> MAP().per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3]).round(4)
    array([0.5833])
    """

    name: ClassVar[str] = "map"
    nearest_additive: ClassVar[str] = "dcg"

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1 / r, times the relevant documents down to r."""
        return 1 / np.arange(1.0, depth + 1)

    def formula(self) -> metric.Formula:
        """Precision at each relevant document, as a mean over all of them."""
        return self._formula(kernel.PRECISION_AT_GAIN, kernel.TOTAL_GAIN)


@method(
    "metric", "mrr", title="Mean reciprocal rank", order=16, aliases=("rr",),
    note="1 / rank of the first relevant document",
)  # fmt: skip
@dataclass(frozen=True)
class MRR(_BinaryMetric):
    r"""Reciprocal rank, RR@k = 1 / (rank of the first relevant document), 0 below k; its mean.

    >>> MRR().per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3])
    array([0.5])
    """

    name: ClassVar[str] = "mrr"
    nearest_additive: ClassVar[str] = "reciprocal"

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1 / r."""
        return 1 / np.arange(1.0, depth + 1)

    def formula(self) -> metric.Formula:
        """The first relevant document alone."""
        return self._formula(kernel.FIRST_GAIN, kernel.ONE)
