r"""Weighted pairwise hinge, and its most violated constraint, in O(n log n) per list.

    loss = sum over pairs of w_ij max(0, 1 - (s_i - s_j))

Where the weight of a pair is a product of one number per side or a difference of two,

    w_ij = strength_i (up_i - down_j)   for level_i > level_j,

all pairs with s_i - s_j < 1 are found by one sort and running sums ([joachims2006linear]_ does so
for plain pairs). Tables of pair weights that depend on both positions have no such form:
`PairHinge` visits every pair.
"""

from dataclasses import dataclass, replace

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray
from untilt.objectives.pairs import PairObjective
from untilt.objectives.units import PairUnits, RowUnits, block_bounds


@dataclass(frozen=True, eq=False)
class SortedHinge:
    """Lists whose pair weights factor.

    Parameters
    ----------
    query_ptr, indptr, row : as in `RowUnits`
    strength, up : (rows,) of a row on the winning side
    down : (rows,) of a row on the losing side
    wins, loses : (rows,) levels: i is set above j where wins_i > loses_j; loses >= 1
    against_self : True where wins_i > loses_i may hold, so that a row must be kept from itself
    """

    query_ptr: IntArray
    indptr: IntArray
    row: IntArray
    strength: FloatArray
    up: FloatArray
    down: FloatArray
    wins: IntArray
    loses: IntArray
    n_rows: int
    against_self: bool

    def evaluate(self, scores: FloatArray) -> tuple[float, FloatArray]:
        """The loss and its gradient, one entry per training row."""
        bounds = block_bounds(self.query_ptr, self.indptr)
        gradient, losses = np.zeros(self.n_rows), np.zeros(len(bounds) - 1)
        _sorted_pass(
            np.ascontiguousarray(scores, dtype=np.float64), bounds, self.indptr, self.row,
            self.strength, self.up, self.down, self.wins, self.loses, self.against_self,
            gradient, losses,
        )  # fmt: skip
        return float(losses.sum()), gradient


def hinge_against_all(units: RowUnits) -> SortedHinge:
    """Every document with its weight against every other document of the slate."""
    n = len(units.row)
    return SortedHinge(
        query_ptr=units.query_ptr,
        indptr=units.indptr,
        row=units.row,
        strength=units.weight,
        up=np.ones(n),
        down=np.zeros(n),
        wins=np.where(units.weight > 0, 2, 1),
        loses=np.ones(n, dtype=np.int64),
        n_rows=units.n_rows,
        against_self=True,
    )


def hinge_by_labels(units: PairUnits, row_weight: FloatArray) -> SortedHinge:
    """Larger against smaller labels, for units that keep labels and W[k, l] = row_weight[k]."""
    owner = ragged.list_of_row(units.indptr)
    order = np.lexsort((units.gain, owner))
    gain, unit = units.gain[order], owner[order]
    new_level = np.concatenate([[True], (gain[1:] != gain[:-1]) | (unit[1:] != unit[:-1])])
    level = np.empty(len(order), dtype=np.int64)
    counted = np.cumsum(new_level)
    starts = units.indptr[:-1][ragged.lengths(units.indptr) > 0]
    level[order] = counted - np.repeat(counted[starts] - 1, np.bincount(owner)[unit[starts]])
    plain = units.plain
    return SortedHinge(
        query_ptr=units.query_ptr,
        indptr=units.indptr,
        row=units.row,
        strength=units.scale[owner] * row_weight[units.place],
        up=np.ones(len(order)) if plain else units.gain,
        down=np.zeros(len(order)) if plain else units.gain,
        wins=level,
        loses=level,
        n_rows=units.n_rows,
        against_self=False,
    )


@dataclass(frozen=True, eq=False)
class PairHinge:
    """Every pair of every unit, for tables that depend on both positions: O(n^2) per list."""

    objective: PairObjective
    table: FloatArray

    @classmethod
    def of(cls, units: PairUnits, table: FloatArray, offset: FloatArray | None) -> "PairHinge":
        """With the table multiplied into the pairs once."""
        return cls(PairObjective(units, metric="none", loss="hinge").baked(table, offset), table)

    def evaluate(self, scores: FloatArray) -> tuple[float, FloatArray]:
        """The loss and its gradient, one entry per training row."""
        result = self.objective.evaluate(scores, self.table, want_loss=True, packed_weighted=True)
        return result.loss, result.gradient


def split_units(units: PairUnits) -> tuple[PairUnits, PairUnits]:
    """Units that store pairs, and units that store labels."""
    return _take(units, units.start >= 0), _take(units, units.start < 0)


def _take(units: PairUnits, keep: BoolArray) -> PairUnits:
    chosen = np.flatnonzero(keep)
    rows = ragged.rows_of_lists(units.indptr, chosen)
    ends = np.concatenate([[0], np.cumsum(keep)])[units.query_ptr]
    return replace(
        units,
        query_ptr=np.unique(ends),
        indptr=ragged.indptr_of(ragged.lengths(units.indptr)[chosen]),
        row=units.row[rows],
        place=units.place[rows],
        gain=units.gain[rows],
        start=units.start[chosen],
        scale=units.scale[chosen],
        shown=units.shown[chosen],
    )


@nb.njit(cache=True, inline="always")
def _add(tree: FloatArray, level: int, first: float, second: float) -> None:
    """Add to a level of a Fenwick tree of two sums."""
    while level < len(tree):
        tree[level, 0] += first
        tree[level, 1] += second
        level += level & -level


@nb.njit(cache=True, inline="always")
def _upto(tree: FloatArray, level: int) -> tuple[float, float]:
    """Both sums over the levels 1..level."""
    first, second = 0.0, 0.0
    while level > 0:
        first += tree[level, 0]
        second += tree[level, 1]
        level -= level & -level
    return first, second


@nb.njit(parallel=True, cache=True)
def _sorted_pass(
    scores: FloatArray, bounds: IntArray, indptr: IntArray, row: IntArray, strength: FloatArray,
    up: FloatArray, down: FloatArray, wins: IntArray, loses: IntArray, against_self: bool,
    gradient: FloatArray, losses: FloatArray,
) -> None:  # fmt: skip
    for block in nb.prange(len(bounds) - 1):
        for u in range(bounds[block], bounds[block + 1]):
            begin, length = indptr[u], indptr[u + 1] - indptr[u]
            s, g = np.empty(length), np.zeros(length)
            top = 1
            for i in range(length):
                s[i] = scores[row[begin + i]]
                top = max(top, wins[begin + i], loses[begin + i])
            order = np.argsort(s)
            violated = 0.0

            # Winners from the highest score down: the losers within their margin only grow. Both
            # sweeps must ask s_i - s_j < 1 in the same words, or a pair at the edge of rounding
            # would stand in one sum and not in the other.
            tree = np.zeros((top + 1, 2))
            next_loser = length - 1
            for place in range(length - 1, -1, -1):
                i = order[place]
                while next_loser >= 0 and s[i] - s[order[next_loser]] < 1.0:
                    j = begin + order[next_loser]
                    _add(tree, loses[j], 1.0, down[j])
                    next_loser -= 1
                at = begin + i
                if strength[at] == 0.0 or wins[at] <= 1:
                    continue
                losers, their_down = _upto(tree, wins[at] - 1)
                if against_self:
                    losers, their_down = losers - 1.0, their_down - down[at]
                amount = strength[at] * (up[at] * losers - their_down)
                violated += amount
                g[i] -= amount

            # Losers from the lowest score up: the winners that fail to clear them only grow.
            tree[:] = 0.0
            total_up, total = 0.0, 0.0
            next_winner = 0
            for place in range(length):
                j = order[place]
                while next_winner < length and s[order[next_winner]] - s[j] < 1.0:
                    i = begin + order[next_winner]
                    _add(tree, wins[i], strength[i] * up[i], strength[i])
                    total_up += strength[i] * up[i]
                    total += strength[i]
                    next_winner += 1
                at = begin + j
                below_up, below = _upto(tree, loses[at])
                pull_up, pull = total_up - below_up, total - below
                if against_self and wins[at] > loses[at]:
                    pull_up, pull = pull_up - strength[at] * up[at], pull - strength[at]
                g[j] += pull_up - down[at] * pull

            for i in range(length):
                violated += g[i] * s[i]
                gradient[row[begin + i]] += g[i]
            losses[block] += violated
