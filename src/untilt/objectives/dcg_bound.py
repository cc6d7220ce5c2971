r"""A smooth lower bound on DCG, for learners that want the metric itself.

The rank of a document is at most

    R_i = 1 + sum_{j != i} b(s_i - s_j),   b(x) = log2(1 + exp(-sigma x)) >= 1[x <= 0]

and 1/log2(1 + rank) falls with the rank, so that with weights r_i (clicks over propensity)

    sum_i r_i / log2(1 + R_i)  <=  sum_i r_i / log2(1 + rank_i) = DCG

([agarwal2019framework]_; "additive metrics" in [oosterhuis2020tutorial]_). The bound is
close for documents near the top, where a click counts most, and loose for a document far below
others, since b grows with the distance. It is not concave: a start at 0 finds a local optimum.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt.errors import OptionError
from untilt.objectives.units import RowUnits, block_bounds


@dataclass(frozen=True, eq=False)
class DcgBound:
    """The bound over slates, for any scores.

    Parameters
    ----------
    units : slates with a weight r_i per document
    sigma : steepness of b: larger is closer to the step for documents that are above, and punishes
        those that are below harder
    """

    units: RowUnits
    sigma: float = 1.0

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise OptionError(f"sigma must be above 0. Got {self.sigma} instead.")

    def evaluate(self, scores: FloatArray) -> tuple[float, FloatArray]:
        """The bound and its gradient, one entry per training row."""
        units = self.units
        bounds = block_bounds(units.query_ptr, units.indptr)
        gradient, values = np.zeros(units.n_rows), np.zeros(len(bounds) - 1)
        _bound_pass(
            np.ascontiguousarray(scores, dtype=np.float64), bounds, units.indptr, units.row,
            units.weight, float(self.sigma), gradient, values,
        )  # fmt: skip
        return float(values.sum()), gradient

    @property
    def best(self) -> float:
        """What no scores can pass: every document with a positive weight at rank 1."""
        return float(np.maximum(self.units.weight, 0).sum())


@nb.njit(parallel=True, cache=True)
def _bound_pass(
    scores: FloatArray, bounds: IntArray, indptr: IntArray, row: IntArray, weight: FloatArray,
    sigma: float, gradient: FloatArray, values: FloatArray,
) -> None:  # fmt: skip
    ln2 = np.log(2.0)
    for block in nb.prange(len(bounds) - 1):
        for u in range(bounds[block], bounds[block + 1]):
            begin, length = indptr[u], indptr[u + 1] - indptr[u]
            s, fall = np.empty(length), np.empty(length)
            for i in range(length):
                s[i] = scores[row[begin + i]]
            for i in range(length):
                r = weight[begin + i]
                if r == 0.0:
                    continue
                rank, slope = 1.0, 0.0
                for j in range(length):
                    if j == i:
                        continue
                    # b and -ln2/sigma b' share one exp; its argument is kept at or below 0.
                    x = sigma * (s[i] - s[j])
                    e = np.exp(-abs(x))
                    rank += (max(-x, 0.0) + np.log1p(e)) / ln2
                    fall[j] = (e if x > 0.0 else 1.0) / (1.0 + e)
                    slope += fall[j]
                log = np.log(1.0 + rank)
                values[block] += r * ln2 / log
                # d/dR of ln2/ln(1 + R), times db/ds: the two ln2 cancel.
                steep = r * sigma / ((1.0 + rank) * log * log)
                gradient[row[begin + i]] += steep * slope
                for j in range(length):
                    if j != i:
                        gradient[row[begin + j]] -= steep * fall[j]
