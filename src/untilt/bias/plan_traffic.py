"""What a plan must know about the readers: click rates, how much they differ, who comes back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray
from untilt.bias.base import check_clicks
from untilt.bias.cells import Cells, cells_of
from untilt.errors import DepthError, OptionError
from untilt.logs.clicklog import ClickLog
from untilt.logs.rates import ClickRates


@dataclass(frozen=True, eq=False)
class Traffic:
    """Sessions as they are today, position by position.

    Parameters
    ----------
    click_rate : (K,) c_k, clicks per impression at k
    second_moment : (K,) mean of p^2 over what stands at k, p the click probability of one
        (query, document) there; c_k^2 where nothing is known about how much they differ
    reach : (K,) share of the sessions whose list reaches k
    clicks_per_session : over all positions, also those below K
    query_share, queries : (different shares,) of the sessions, and how many queries have each of
        them; None where sessions are not told by query
    new_queries : share of the sessions whose query was not seen before and never will be again
    """

    click_rate: FloatArray
    second_moment: FloatArray
    reach: FloatArray
    clicks_per_session: float
    query_share: FloatArray | None = None
    queries: IntArray | None = None
    new_queries: float = 0.0

    @property
    def depth(self) -> int:
        """The lowest position."""
        return len(self.click_rate)

    def alike(self) -> "Traffic":
        """The same, with all that stands at a position taken as equally relevant.

        Where lists are compared by length alone, differences between queries are noise like any
        other: the variance of a click is then c (1 - c).
        """
        c = self.click_rate
        return Traffic(c, c**2, self.reach, self.clicks_per_session)

    def repeated(self, sessions: float) -> float:
        """Of so many sessions, the share whose query another one of them asked before.

        The first session of each query has nothing to be compared with: of n sessions of a query,
        a share s of them swapped, Mantel and Haenszel's weight is (n - 1) s (1 - s) on average.
        """
        if self.query_share is None or self.queries is None:
            return 1.0
        expected = sessions * (1 - self.new_queries) * self.query_share
        distinct = float(-np.expm1(-expected) @ self.queries)
        # Not 0: plans divide by it, and then ask for more sessions than there are.
        return max(1e-12, 1 - self.new_queries - distinct / sessions)


def traffic_of(clicks: Any, depth: int | None) -> Traffic:
    """From a log, or from click rates by position."""
    if isinstance(clicks, ClickLog):
        return _from_log(clicks, depth)
    rates = _numbers(clicks)
    if rates.ndim != 1 or len(rates) < 2 or not np.all((rates > 0) & (rates < 1)):
        raise OptionError(
            "clicks must be a ClickLog, or the click rates of positions 1, 2, ..., each between 0 "
            f"and 1 and at least two of them. Got {_shown(clicks)}."
        )
    _check_depth(depth, len(rates))
    total, rates = float(rates.sum()), rates[:depth]
    return Traffic(rates, rates**2, np.ones(len(rates)), total)


def _numbers(clicks: Any) -> FloatArray:
    try:
        return np.asarray(clicks.rate if isinstance(clicks, ClickRates) else clicks, np.float64)
    except (TypeError, ValueError):
        return np.empty(0)


def _from_log(log: ClickLog, depth: int | None) -> Traffic:
    check_clicks(log, "plan_swaps")
    _check_depth(depth, log.depth)
    total = float(np.dot(log.label, log.row_count)) / log.n_sessions
    cells = cells_of(log.top(log.depth if depth is None else depth))
    shown, clicked = cells.by_position(cells.impressions), cells.by_position(cells.clicks)
    empty = np.flatnonzero(clicked == 0)
    if len(empty):
        k = int(empty[0]) + 1
        raise OptionError(
            f"nobody clicked at position {k} in this log, so no number of sessions can be "
            f"promised for it. Plan fewer positions: depth={k - 1}."
        )
    asked, queries = np.unique(np.bincount(log.query, weights=log.sessions), return_counts=True)
    asked, queries = asked[asked > 0], queries[asked > 0]
    return Traffic(
        click_rate=clicked / shown,
        second_moment=_second_moment(cells),
        reach=_reach(log, cells.depth),
        clicks_per_session=total,
        query_share=asked / log.n_sessions,
        queries=queries,
        # Good and Turing: what was never seen is as frequent as what was seen once.
        new_queries=float(queries[asked == 1].sum() / log.n_sessions),
    )


def _second_moment(cells: Cells) -> FloatArray:
    """(K,) mean of p^2 over impressions, without the noise of click counts.

    c (c - 1) / (n (n - 1)) is unbiased for p^2 of a cell with n >= 2; it can hardly be below the
    square of the mean, and never is taken so.
    """
    n, c = cells.impressions, cells.clicks
    used = n >= 2
    square = np.where(used, c * (c - 1) / np.maximum(n - 1, 1), 0.0)  # n times the estimate
    weight = cells.by_position(np.where(used, n, 0.0))
    mean = cells.by_position(square) / np.maximum(weight, 1)
    rate = cells.by_position(c) / cells.by_position(n)
    return np.clip(mean, rate**2, rate)


def _reach(log: ClickLog, depth: int) -> FloatArray:
    """(K,) share of the sessions whose list reaches k."""
    filled = ragged.lengths(log.indptr) > 0
    lowest = np.zeros(log.n_lists, dtype=np.int64)
    lowest[filled] = log.position[log.indptr[1:][filled] - 1]
    sessions = np.bincount(np.minimum(lowest, depth), weights=log.sessions, minlength=depth + 1)
    return sessions[::-1].cumsum()[::-1][1:] / log.n_sessions


def _check_depth(depth: int | None, deepest: int) -> None:
    if depth is not None and not 2 <= depth <= deepest:
        raise DepthError(
            f"depth must be one of the positions 2..{deepest} that click rates are known for. "
            f"Got {depth} instead."
        )


def _shown(clicks: Any) -> str:
    many = isinstance(clicks, Sequence | np.ndarray) and len(clicks) > 8
    return f"{type(clicks).__name__} of {len(clicks)}" if many else repr(clicks)
