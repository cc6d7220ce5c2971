"""Bin edges of features that lie on many machines: exact quantiles, found digit by digit.

XGBoost merges sketches of the workers' features, so that its edges depend on who holds what. Here
they do not. The bits of a single float, its sign turned, are a whole number that is ordered as the
float is. Values are counted by their first 8 bits, over all workers; where a wanted quantile lies,
by the next 8, and so on: four passes, whole numbers only, and the quantiles are values of the data.
A feature with no more distinct values than bins has one bin for each.
"""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, IntArray
from untilt.cluster.group import Group

MAX_BIN = 255
_BITS, _PASSES = 8, 4


@dataclass(frozen=True)
class Edges:
    """Where bins begin: value x of feature j has bin number #{edges of j that are <= x}.

    Parameters
    ----------
    of_feature : for each feature its edges, rising float32
    median : (features,) the lower median of what is known
    missing : (features,) whether any value is NaN
    """

    of_feature: tuple[AnyArray, ...]
    median: FloatArray
    missing: AnyArray

    def bins(self, features: FeatureArray) -> FeatureArray:
        """The bin of each value; NaN stays NaN."""
        binned = np.empty(features.shape, dtype=np.float32)
        for j, edges in enumerate(self.of_feature):
            column = features[:, j]
            binned[:, j] = np.searchsorted(edges, column, side="right")
            binned[np.isnan(column), j] = np.nan
        return binned

    def threshold(self, feature: int, bin: int) -> float:
        """A double between the last single float below bin number `bin` and the first in it."""
        first = self.of_feature[feature][bin - 1]
        return (float(np.nextafter(first, np.float32(-np.inf))) + float(first)) / 2


def global_edges(features: FeatureArray, group: Group, max_bin: int = MAX_BIN) -> Edges:
    """The edges of all workers' rows together."""
    found, medians, missing = [], [], []
    for j in range(features.shape[1]):
        column = features[:, j]
        known = ordered(column[~np.isnan(column)])
        n_known, n_missing = group.sum(np.array([len(known), len(column) - len(known)]))
        missing.append(bool(n_missing))
        values, median = _quantiles(known, int(n_known), group, max_bin)
        found.append(np.unique(values)[1:])
        medians.append(float(median))
    return Edges(tuple(found), np.array(medians), np.array(missing))


def ordered(values: AnyArray) -> AnyArray:
    """Single floats as uint32 of the same order; -0 and 0 are the same."""
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)
    sign = np.uint32(1 << 31)
    return np.where(bits & sign, ~bits, bits | sign).astype(np.uint32)


def floats(numbers: AnyArray) -> AnyArray:
    """The single floats that `ordered` made these numbers of."""
    numbers = np.asarray(numbers, dtype=np.uint32)
    sign = np.uint32(1 << 31)
    return np.where(numbers & sign, numbers & ~sign, ~numbers).astype(np.uint32).view(np.float32)


def _quantiles(
    known: AnyArray, n_known: int, group: Group, max_bin: int
) -> tuple[AnyArray, AnyArray]:
    """The least value of each bin, all distinct values where they are few; and the median."""
    if n_known == 0:
        return np.zeros(0, dtype=np.float32), np.zeros((), dtype=np.float32)
    firsts, middle = np.arange(max_bin) * n_known // max_bin, (n_known - 1) // 2
    ranks = np.unique(np.append(firsts, middle))
    cells, before = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    every = True
    for step in range(1, _PASSES + 1):
        shift = np.uint32(32 - _BITS * step)
        counts = group.sum(_counts(known >> shift, cells))
        first = before[:, None] + np.cumsum(counts, axis=1) - counts
        filled = counts > 0
        wanted = filled
        if not every or filled.sum() > max_bin:
            every = False
            last = first + counts
            wanted = filled & (np.searchsorted(ranks, first) < np.searchsorted(ranks, last))
        children = (cells[:, None] << _BITS) + np.arange(1 << _BITS)
        cells, before = children[wanted], first[wanted]
    at = np.searchsorted(before, np.append(firsts, middle), side="right") - 1
    return floats(cells if every else cells[at[:-1]]), floats(cells[at[-1]])


def _counts(prefix: AnyArray, cells: IntArray) -> IntArray:
    """(cells, 256) how many of these prefixes lie in each cell, by their last 8 bits."""
    parent = (prefix >> np.uint32(_BITS)).astype(np.int64)
    place = np.searchsorted(cells, parent)
    place[place == len(cells)] = 0
    inside = cells[place] == parent
    digit = (prefix & np.uint32((1 << _BITS) - 1)).astype(np.int64)
    flat = (place << _BITS)[inside] + digit[inside]
    return np.bincount(flat, minlength=len(cells) << _BITS).reshape(len(cells), 1 << _BITS)
