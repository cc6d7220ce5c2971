"""Position bias from swapped documents: the mildest experiment there is."""

from abc import abstractmethod
from dataclasses import dataclass, replace

import numba as nb
import numpy as np
from scipy import special

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray
from untilt.bias.curve import PositionBias
from untilt.bias.curve_tools import check_shapeable, from_log_ratios, log_ratios, whitening
from untilt.bias.estimator import BiasEstimator
from untilt.bias.experiments.recognise import SwapNames, swapped_lists
from untilt.bias.harvesting.harvesting import (
    POSITION_BASED,
    check_edges,
    pivot_edges,
    tree_bias,
    tree_flows,
)
from untilt.bias.harvesting.pairs import Doubt, Flows, larger, pair_sums, sandwich
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, counts_from_rows, position_counts
from untilt.errors import DepthError, IdentifiabilityError, OptionError, check_choice

# Swapped lists against other lists of the same length, where queries do not repeat.
#
# A *unit* is an original rank in lists of one length: what would stand at that place without a
# swap. The draw makes the documents of a unit alike wherever they are shown, so a unit is compared
# with itself at two positions as a document is elsewhere. List lengths are kept apart because a
# list too short for a swap is shown as it is: untouched lists are shorter on average.


@dataclass(frozen=True, eq=False)
class _Units:
    """Cells of units instead of documents, and the cell of each row of the lists."""

    cells: PositionCounts
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
    cells = counts_from_rows(
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


# The arXiv study's curve: a quadratic through the swapped positions, constant below them.

FEWEST_POSITIONS = 4  # position 1, and one more than the two coefficients


@dataclass(frozen=True, eq=False)
class _Fit:
    """y = X b by generalised least squares: b, its root covariance, and the whitened residuals."""

    b: FloatArray
    spread: FloatArray
    residual: FloatArray

    @classmethod
    def of(cls, X: FloatArray, y: FloatArray, V: FloatArray) -> "_Fit":
        root = whitening(V)
        spread: FloatArray = np.linalg.pinv(root @ X).astype(np.float64, copy=False)
        b = spread @ (root @ y)
        return cls(b, spread, root @ (y - X @ b))


def fit_quadratic(bias: PositionBias, *, outlier_limit: float | None = None) -> PositionBias:
    r"""theta_k / theta_1 = 1 + b x + c x^2 with x = k - 1: any quadratic, relative to its start.

    Generalised least squares with the covariance of the ratios [mao_arxivlogs]_. With
    `outlier_limit` the position furthest from the fit, in its own standard errors, is left out and
    the rest fitted again, until none is further than that or three are left. A quadratic may rise
    again; one that falls below 0 is refused.
    """
    check_shapeable(bias, "a quadratic needs more than one position")
    if bias.is_known or bias.depth < FEWEST_POSITIONS:
        raise OptionError(
            f"a quadratic is fitted to an estimate with standard errors at {FEWEST_POSITIONS} "
            f"positions or more. {bias.method} has {bias.depth} positions."
        )
    z, V = log_ratios(bias)
    theta = np.exp(z)
    x = np.arange(bias.depth, dtype=float)
    X = np.stack([x, x**2], axis=1)
    kept, fit = _without_outliers(X, theta - 1, V * np.outer(theta, theta), outlier_limit)
    fitted = 1 + X @ fit.b
    _check_positive(fitted)
    return from_log_ratios(
        np.log(fitted),
        X @ (fit.spread @ fit.spread.T) @ X.T / np.outer(fitted, fitted),
        level=bias.level,
        method=f"{bias.method}, then a quadratic",
        assumes=(*bias.assumes, "examination is quadratic in the position"),
        status=f"{bias.status}; {_how_well(fit, kept, bias.depth)}",
    )


def hold_last(bias: PositionBias, depth: int) -> PositionBias:
    """The curve down to `depth`, its last value standing for all positions below it."""
    if depth < bias.depth:
        raise DepthError(
            f"depth must not lie above the last position of the curve, {bias.depth}. "
            f"Got {depth}; cut the log with log.top({depth}) instead."
        )
    place = np.minimum(np.arange(depth), bias.depth - 1)

    def longer(values: FloatArray | None) -> FloatArray | None:
        return None if values is None else values[place]

    return replace(
        bias,
        examination=bias.examination[place],
        std_error=longer(bias.std_error),
        covariance=None if bias.covariance is None else bias.covariance[np.ix_(place, place)],
        low=longer(bias.low),
        high=longer(bias.high),
        assumes=(*bias.assumes, f"constant below position {bias.depth}"),
    )


def _without_outliers(
    X: FloatArray, y: FloatArray, V: FloatArray, limit: float | None
) -> tuple[IntArray, _Fit]:
    """Indices of the positions kept (never the first, which is 1 by definition), and their fit."""
    kept = np.arange(1, len(y))
    while True:
        fit = _Fit.of(X[kept], y[kept], V[np.ix_(kept, kept)])
        distance = np.abs(y[kept] - X[kept] @ fit.b) / np.sqrt(np.diag(V)[kept])
        worst = int(np.argmax(distance))
        if limit is None or distance[worst] <= limit or len(kept) == FEWEST_POSITIONS - 1:
            return kept, fit
        kept = np.delete(kept, worst)


def _check_positive(fitted: FloatArray) -> None:
    if fitted.min() <= 0:
        raise OptionError(
            f"the quadratic falls to {fitted.min():.3g} at position {np.argmin(fitted) + 1}: this "
            "curve has another shape. Leave shape=None, or use fit_power_law() or smooth()."
        )


def _how_well(fit: _Fit, kept: IntArray, depth: int) -> str:
    p = float(special.chdtrc(len(kept) - 2, float(fit.residual @ fit.residual)))
    outliers = sorted(set(range(2, depth + 1)) - set((kept + 1).tolist()))
    left_out = f"; left out as outliers: position {', '.join(map(str, outliers))}"
    return f"fits with p {p:.2g}{left_out if outliers else ''}"


WITHIN = ("document", "length")
AT_RANDOM = "whether a list was swapped was drawn at random"


class SwapEstimator(BiasEstimator):
    """Base of the two: subclasses say which pairs of positions the curve is built from."""

    ranker: SwapNames
    within: str

    @abstractmethod
    def _edges(self, depth: int) -> list[tuple[int, int]]:
        """Pairs of positions (upper, lower) that join 1..depth."""

    def _estimate(self, log: ClickLog) -> PositionBias:
        check_choice("within", self.within, WITHIN)
        part, swapped = swapped_lists(log, self.ranker)
        swapped = swapped[part]
        depth = int(swapped.max())
        edges = self._edges(depth)
        method = type(self).__name__
        _check_swapped(swapped, edges, method)
        lists = log if part.all() else log.take(part)
        assumes = (POSITION_BASED, AT_RANDOM)
        if self.within == "length":
            return pooled_bias(
                lists, swapped, edges, method=method, level=self.level, assumes=assumes
            )
        cells = position_counts(lists.top(depth) if depth < lists.depth else lists)
        return tree_bias(cells, edges, "session", method=method, level=self.level, assumes=assumes)


@method(
    "bias", "pivot-swap", title="Swaps with a pivot", order=11, rests_on="experiment",
    needs=("ranker",), takes=("pivot", "within"), reference="joachims2017unbiased",
    note="documents swapped with the one at a pivot position",
)  # fmt: skip
class PivotSwap(SwapEstimator):
    r"""The document at a pivot changes places with one at k (RandPair, [joachims2017unbiased]_).

        theta_k / theta_pivot = clicks per impression at k / at the pivot,  of the same documents

    Both documents of a swap are used, each at its usual and at its new position. within="document"
    compares the same document of the same query (Mantel and Haenszel's weights), so queries must
    repeat. within="length" compares swapped with other lists of the same length, as the arXiv
    study did with one-off queries [mao_arxivlogs]_: only the draw makes them alike.

    Parameters
    ----------
    pivot : the position that takes part in every swap
    ranker : tells swapped and untouched lists by the log's `ranker`; names "swap:1-5" and "base"
        where not given. A mapping or function from the name to (1, 5), to "base", or to None
    within : "document" or "length"
    shape : None, or "quadratic": the arXiv study's fit, theta_k / theta_1 = 1 + b x + c x^2 with
        x = k - 1. It says nothing about curves of another shape; `status` tells how well it fits
    outlier_limit : leave out positions further from the quadratic than so many standard errors
    depth : go on to this position with the value of the last one that was swapped
    level : of the intervals
    """

    def __init__(
        self,
        pivot: int = 1,
        *,
        ranker: SwapNames = None,
        within: str = "document",
        shape: str | None = None,
        outlier_limit: float | None = None,
        depth: int | None = None,
        level: float = 0.95,
    ) -> None:
        self.pivot = pivot
        self.ranker = ranker
        self.within = within
        self.shape = shape
        self.outlier_limit = outlier_limit
        self.depth = depth
        self.level = level

    def _edges(self, depth: int) -> list[tuple[int, int]]:
        return pivot_edges(self.pivot, depth)

    def _estimate(self, log: ClickLog) -> PositionBias:
        self._check()
        bias = super()._estimate(log)
        if self.shape == "quadratic":
            bias = fit_quadratic(bias, outlier_limit=self.outlier_limit)
        return bias if self.depth is None else hold_last(bias, self.depth)

    def _check(self) -> None:
        if self.shape is not None:
            check_choice("shape", self.shape, ("quadratic",))
        if self.outlier_limit is not None and not (self.shape and self.outlier_limit > 0):
            raise OptionError(
                "outlier_limit must be a number above 0, and outliers are told by their distance "
                f"from a fit: give shape='quadratic' with it. Got {self.outlier_limit!r}."
            )
        if self.depth is not None and self.depth < 1:
            raise DepthError(f"depth must be at least 1. Got {self.depth} instead.")


@method(
    "bias", "adjacent-swap", title="Swaps of neighbours", order=12, rests_on="experiment",
    needs=("ranker",), takes=("within",), reference="wang2020prs",
    note="neighbouring documents swapped; their ratios are multiplied",
)  # fmt: skip
class AdjacentSwap(SwapEstimator):
    r"""Neighbours change places; the ratios are multiplied up ([wang2020prs]_ section 4.4).

        theta_k / theta_1 = (theta_2 / theta_1) ... (theta_k / theta_{k-1})

    Readers hardly notice a swap of neighbours, but errors add up along the chain.

    Parameters
    ----------
    ranker, within, level : as in `PivotSwap`
    """

    def __init__(
        self, *, ranker: SwapNames = None, within: str = "document", level: float = 0.95
    ) -> None:
        self.ranker = ranker
        self.within = within
        self.level = level

    def _edges(self, depth: int) -> list[tuple[int, int]]:
        return [(k, k + 1) for k in range(1, depth)]


def _check_swapped(swapped: IntArray, edges: list[tuple[int, int]], method: str) -> None:
    # As one number each: a set over millions of lists would take longer than the estimate.
    code = np.unique(swapped[:, 0] * 2**32 + swapped[:, 1])
    done = set(zip((code >> 32).tolist(), (code % 2**32).tolist(), strict=True))
    missing = [edge for edge in edges if edge not in done]
    if missing:
        k, l = missing[0]  # noqa: E741  the formula's symbols
        more = f" ({len(missing)} pairs are missing)" if len(missing) > 1 else ""
        raise IdentifiabilityError(
            f"{method} needs positions {k} and {l} swapped, and no list did that{more}. Swap "
            f"positions {k} and {l} in a share of the sessions, or use AllPairs, which takes any "
            f"swaps that join the positions."
        )
