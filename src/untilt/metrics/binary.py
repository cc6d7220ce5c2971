"""Metrics that know only relevant and not relevant: precision, recall, MAP, MRR."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.catalog import method
from untilt.metrics import kernel
from untilt.metrics.base import Formula, Metric, checked_cut, checked_relevant_from


@dataclass(frozen=True)
class _BinaryMetric(Metric):
    """A document is relevant if its label is at least `relevant_from`."""

    k: int | None = None
    relevant_from: float = 1.0

    def __post_init__(self) -> None:
        if self.k is not None:
            object.__setattr__(self, "k", checked_cut(self.k, self.name))
        object.__setattr__(self, "relevant_from", checked_relevant_from(self.relevant_from))

    def _formula(self, walk: int, norm: int) -> Formula:
        return Formula(walk, kernel.BINARY, norm, self.relevant_from)


@dataclass(frozen=True)
class _CutMetric(_BinaryMetric):
    """A binary metric that means nothing without its cut."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", checked_cut(self.k, self.name))  # type: ignore[arg-type]
        super().__post_init__()


@method(
    "metric", "precision", title="Precision", needs=("cut",), order=14, aliases=("p", "prec"),
    note="the share of relevant documents among the first k",
)  # fmt: skip
@dataclass(frozen=True)
class Precision(_CutMetric):
    r"""P@k = (relevant documents among the first k) / k, also where the list is shorter than k.

    >>> Precision(2).per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3])
    array([0.5])
    """

    name: ClassVar[str] = "precision"

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1 / k."""
        assert self.k is not None
        return np.full(depth, 1 / self.k)

    def formula(self) -> Formula:
        """The sum itself."""
        return self._formula(kernel.EACH_GAIN, kernel.ONE)


@method(
    "metric", "recall", title="Recall", needs=("cut",), order=15, aliases=("r",),
    note="the share of the relevant documents that are among the first k",
)  # fmt: skip
@dataclass(frozen=True)
class Recall(_CutMetric):
    r"""R@k = (relevant documents among the first k) / (relevant documents of the list).

    >>> Recall(2).per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3])
    array([0.5])
    """

    name: ClassVar[str] = "recall"

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1."""
        return np.ones(depth)

    def formula(self) -> Formula:
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

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1 / r, times the relevant documents down to r."""
        return 1 / np.arange(1.0, depth + 1)

    def formula(self) -> Formula:
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

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1 / r."""
        return 1 / np.arange(1.0, depth + 1)

    def formula(self) -> Formula:
        """The first relevant document alone."""
        return self._formula(kernel.FIRST_GAIN, kernel.ONE)
