r"""Bounds for parts of a curve that nothing joins: their inner ratios are known, their levels not.

Write the true curve as e^{u_p} times `PositionBias.examination` on part p, u_0 = 0 on the part of
position 1. All that is known of the levels are differences,

    u_j - u_i <= most[i, j]

such as that examination never rises from one part to the next. In x_p = e^{-u_p} these are linear,
x_i <= e^{most[i, j]} x_j, and so is what a click counts, 1 / theta: the extremes of an estimate are
those of a linear program.
"""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray, check_same_shape
from untilt._core.portable import Portable
from untilt.catalog import storable
from untilt.errors import ShapeError

MOST_WEIGHT = 1e9  # times the weight of a click: beyond, a level counts as not bounded at all


@storable
@dataclass(frozen=True, eq=False)
class LevelBounds(Portable):
    """What is known about the levels of the parts of a curve.

    Parameters
    ----------
    part : (K,) the part of each position, 0 that of position 1
    most : (P, P) the largest u_j - u_i; infinite where nothing is known
    """

    part: IntArray
    most: FloatArray

    def __post_init__(self) -> None:
        check_same_shape(self, "part")
        check_same_shape(self, "most", ndim=2)
        parts = len(self.most)
        inside = np.all((self.part >= 0) & (self.part < parts))
        if self.most.shape != (parts, parts) or not inside:
            raise ShapeError(f"part must number the {parts} rows and columns of most, from 0.")

    @property
    def bounded(self) -> BoolArray:
        """(K,) whether the level of a position is bounded, not measured."""
        return self.part > 0

    @property
    def hull(self) -> tuple[FloatArray, FloatArray]:
        """(P,) the least and the largest level of each part by itself."""
        return -self.most[:, 0], self.most[0]

    def least(self, cost: FloatArray) -> FloatArray:
        """(P,) levels u within the bounds at which sum_p cost_p e^{-u_p} is least."""
        from scipy.optimize import linprog

        n = len(self.most)
        i, j = np.nonzero(np.isfinite(self.most) & ~np.eye(n, dtype=bool))
        rows, limit = np.zeros((len(i), n)), np.zeros(len(i))
        # Divided by the larger coefficient: levels may lie many orders of magnitude apart.
        scale = np.exp(np.maximum(self.most[i, j], 0))
        rows[np.arange(len(i)), i] = 1 / scale
        rows[np.arange(len(i)), j] = -np.exp(self.most[i, j]) / scale
        ends = [(1.0, 1.0), *[(1 / MOST_WEIGHT, MOST_WEIGHT)] * (n - 1)]
        size = np.abs(cost).max()
        found = linprog(cost / (size if size > 0 else 1.0), rows, limit, bounds=ends)
        assert found.success, found.message
        levels: FloatArray = -np.log(found.x)
        return levels

    def is_open(self, levels: FloatArray) -> bool:
        """Whether these levels lie where nothing bounds them."""
        return bool(np.any(np.abs(levels) > np.log(MOST_WEIGHT) - 1e-3))


def tightest(most: FloatArray) -> FloatArray:
    """All differences that follow from these: u_j - u_i <= most[i, k] + most[k, j] for every k.

    A negative diagonal says that no levels fulfil them.
    """
    closed = most.copy()
    np.fill_diagonal(closed, np.minimum(np.diag(closed), 0.0))
    for k in range(len(closed)):
        closed = np.minimum(closed, closed[:, k : k + 1] + closed[k : k + 1, :])
    return closed
