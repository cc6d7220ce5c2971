"""Average relevance position."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.catalog import method
from untilt.metrics import kernel
from untilt.metrics.base import Empty, Formula, Metric


@method(
    "metric", "arp", title="Average relevance position", order=12,
    reference="joachims2017unbiased",
    note="the mean rank of a relevant document; lower is better",
)  # fmt: skip
@dataclass(frozen=True)
class ARP(Metric):
    r"""ARP = sum_i rank_i y_i / sum_i y_i: the mean rank of a relevant document. Lower is better.

    The literature sums rank_i y_i without the denominator [oosterhuis2020tutorial]_ or divides by
    the length of the list [wang2020prs]_. Divided by the labels it is a rank, 1 at best, and
    lists of different size compare. The average rank of *all* relevant documents of a data set
    [joachims2017unbiased]_ is the mean with each list's summed label as its weight.
    A list without a relevant document has no ARP and is left out, whatever `empty` says: 0 or 1
    would praise it.

    >>> ARP().per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3]).round(4)
    array([2.3333])
    """

    name: ClassVar[str] = "arp"
    higher_is_better: ClassVar[bool] = False

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = r."""
        return np.arange(1.0, depth + 1)

    def formula(self) -> Formula:
        """Ranks weighted by label."""
        return Formula(kernel.EACH_GAIN, kernel.LINEAR, kernel.TOTAL_GAIN)

    def empty_value(self, empty: Empty) -> float:  # noqa: ARG002
        """NaN: there is no rank to speak of."""
        return float("nan")
