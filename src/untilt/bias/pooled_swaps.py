"""Swapped lists against other lists of the same length, where queries do not repeat.

A *unit* is an original rank in lists of one length: what would stand at that place without a swap.
The draw makes the documents of a unit alike wherever they are shown, so a unit is compared with
itself at two positions as a document is elsewhere. List lengths are kept apart because a list too
short for a swap is shown as it is: untouched lists are shorter on average.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray
from untilt.bias.cells import Cells, cells_from_rows
from untilt.bias.harvesting import check_edges, tree_flows
from untilt.bias.inference import Doubt, Flows, larger, sandwich
from untilt.bias.pair_sums import pair_sums
from untilt.bias.position_bias import PositionBias
from untilt.bias.ratios import from_log_ratios
from untilt.logs.clicklog import ClickLog


@dataclass(frozen=True, eq=False)
class _Units:
    """Cells of units instead of documents, and the cell of each row of the lists."""

    cells: Cells
    cell_of_row: IntArray


def pooled_bias(
    log: ClickLog,
    swapped: IntArray,
    edges: list[tuple[int, int]],
    *,
    method: str,
    level: float,
    assumes: tuple[str, ...],
) -> PositionBias:
    """The curve along a tree of pairs; swapped : (lists, 2) positions, 0 for none."""
    units = _units(log, swapped, depth=int(swapped.max()))
    sums = pair_sums(units.cells, "session")
    check_edges(units.cells, edges, sums, method)
    z, flows = tree_flows(sums, edges)
    doubt = _doubt(log, units, flows)
    return from_log_ratios(
        z,
        doubt.covariance,
        level=level,
        method=method,
        assumes=(*assumes, "lists of one length are alike, swapped or not"),
        status=f"{log.n_sessions:,} sessions, swapped or not; {doubt.rule}",
    )


def _units(log: ClickLog, swapped: IntArray, depth: int) -> _Units:
    lengths = ragged.lengths(log.indptr)
    a, b = np.repeat(swapped, lengths, axis=0).T
    rank = np.where(log.position == a, b, np.where(log.position == b, a, log.position))
    # Below the lowest swap nothing is compared; those rows go to units that no pair uses.
    deepest = np.repeat(np.maximum.reduceat(log.position, log.indptr[:-1]), lengths)
    code = deepest.astype(np.int64) * (log.depth + 1) + rank
    there = np.zeros((log.depth + 1) ** 2, dtype=np.int64)
    there[code] = 1
    unit = (np.cumsum(there) - 1)[code]
    near = log.position <= depth
    cells = cells_from_rows(
        unit[near], log.position[near], log.row_count[near], log.label[near], there.sum(), depth
    )
    key = np.repeat(cells.document, np.diff(cells.indptr)) * (depth + 1) + cells.position
    cell_of_row = np.full(len(unit), -1)
    cell_of_row[near] = np.searchsorted(key, unit[near] * (depth + 1) + log.position[near])
    return _Units(cells, cell_of_row)


def _doubt(log: ClickLog, units: _Units, flows: Flows) -> Doubt:
    """Each row pushes by (label - rate of its cell) times the push of its cell, summed by query.

    Unlike a document, a unit has many queries, so the rate of its cell is no query's own.
    """
    order = np.argsort(log.query, kind="stable")
    unit = log.query[order]
    cells = units.cells
    push = _push(cells.indptr, cells.position, cells.impressions, flows.gain)
    rows = (log.indptr, log.label, log.sessions, order, unit, units.cell_of_row, cells.rate, push)
    return larger(
        sandwich(flows.conductance, _scores(*rows, False)),
        len(np.unique(unit)),
        sandwich(flows.conductance, _scores(*rows, True)),
    )


@nb.njit(cache=True)
def _push(
    indptr: IntArray, position: IntArray, impressions: FloatArray, gain: FloatArray
) -> FloatArray:
    """(cells, K) how one more click in a cell moves the estimating equations."""
    push = np.zeros((len(position), len(gain)))
    for i in range(len(indptr) - 1):
        for a in range(indptr[i], indptr[i + 1]):
            k = position[a] - 1
            for b in range(indptr[i], indptr[i + 1]):
                if a != b:
                    l = position[b] - 1  # noqa: E741  the formula's symbol
                    # w / n_k with Mantel and Haenszel's w = n_k n_l / (n_k + n_l)
                    step = gain[k, l] * impressions[b] / (impressions[a] + impressions[b])
                    push[a, k] += step
                    push[a, l] -= step
    return push


@nb.njit(cache=True)
def _scores(
    indptr: IntArray,
    label: FloatArray,
    count: IntArray,
    order: IntArray,
    unit: AnyArray,
    cell_of_row: IntArray,
    rate: FloatArray,
    push: FloatArray,
    by_session: bool,
) -> FloatArray:
    depth = push.shape[1]
    M, u = np.zeros((depth, depth)), np.zeros(depth)
    for n in range(len(order)):
        i = order[n]
        sessions = 1.0 if by_session else float(count[i])
        for row in range(indptr[i], indptr[i + 1]):
            cell = cell_of_row[row]
            if cell >= 0:
                surplus = sessions * (label[row] - rate[cell])
                for k in range(depth):
                    u[k] += surplus * push[cell, k]
        if by_session or n + 1 == len(order) or unit[n + 1] != unit[n]:
            times = float(count[i]) if by_session else 1.0
            for k in range(depth):
                for l in range(depth):  # noqa: E741  the formula's symbol
                    M[k, l] += times * u[k] * u[l]
            u[:] = 0
    return M
