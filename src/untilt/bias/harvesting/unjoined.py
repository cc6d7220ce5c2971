r"""Bounds for the positions that no chain of shared documents joins to position 1.

Within a part of the positions that documents join, ratios of examination are measured. Between
parts nothing is: relevance can compensate for any level. Three things bound it all the same:

    theta_l <= theta_k (l/k)^-a         for l = k + 1 in another part, a the least slope; 0 says
                                        that examination never rises
    theta_l >= theta_k (l/k)^-b         b the steepest slope, where one is given
    theta_k / theta_1 >= clicks_k / n_k because neither relevance nor examination exceed 1

A bound that rests on measured ratios or rates is moved outwards by z times its standard error, with
z corrected for the number of bounds (Bonferroni): the bounds hold with the probability `level`.
They are no confidence interval: within them nothing says which value is the likelier.
"""

from collections.abc import Callable

import numpy as np

from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.statistics import normal_quantile
from untilt.bias.curve import PositionBias
from untilt.bias.level_bounds import LevelBounds, tightest
from untilt.bias.log_ratios import log_ratios
from untilt.bias.position_graph import position_graph, require_shown
from untilt.data.counts import PositionCounts
from untilt.errors import IdentifiabilityError, OptionError
from untilt.facts import Fact, joined

Fit = Callable[[PositionCounts], PositionBias]


def bounded_bias(
    cells: PositionCounts,
    fit: Fit,
    *,
    slopes: tuple[float, float] | None,
    level: float,
    method: str,
) -> PositionBias:
    """The curve by `fit` on each part, with bounds for the levels of those not joined to 1."""
    least, steepest = _checked(slopes)
    graph = position_graph(cells)
    require_shown(np.diag(graph.documents) > 0)
    parts = graph.clicked_components
    if len(parts) == 1:
        return fit(cells)
    part = np.empty(cells.depth, dtype=np.int64)
    z, ends = np.zeros(cells.depth), np.zeros((2, cells.depth))
    covariance = np.zeros((cells.depth, cells.depth))
    fits: list[PositionBias] = []
    for number, positions in enumerate(parts):
        index = np.array(positions) - 1
        part[index] = number
        if len(positions) > 1:
            found = fit(_only(cells, index))
            fits.append(found)
            z[index], covariance[np.ix_(index, index)] = log_ratios(found)
            ends[:, index] = _ends(found)
    error = np.abs(ends).max(axis=0) / normal_quantile(level)
    most = _differences(cells, part, z, error, (least, steepest), level)
    if np.any(np.diag(most) < -1e-9):
        raise IdentifiabilityError(
            f"no examination with slopes from {least:g} to {steepest:g} fits the ratios that were "
            "measured within the joined positions. Give a wider range (slopes=(0, 3), say), or "
            "join the positions: `untilt plan LOG` says how."
        )
    low, high = -most[:, 0], most[0]
    # Both ends fulfil all differences at once, and so does what lies in the middle.
    middle = np.where(np.isfinite(low), (low + high) / 2, high - np.log(10))
    bounds = LevelBounds(part, most + middle[:, None] - middle[None, :])
    theta = np.exp(middle[part] + z)
    lowest, highest = np.exp(low[part] + z + ends[0]), np.exp(high[part] + z + ends[1])
    unjoined = tuple((np.flatnonzero(part > 0) + 1).tolist())
    shape = Fact("bias.never-rises")
    if slopes is not None:
        shape = Fact("bias.slopes", least=least, steepest=steepest)
    told = Fact("bias.bounded", positions=unjoined, level=level)
    return PositionBias(
        theta,
        covariance=covariance * np.outer(theta, theta),
        method=method,
        assumes=(Fact("bias.position-based"), Fact("bias.same-relevance"), shape),
        status=joined(*(each.status for each in fits), told),
        level=level,
        low=lowest,
        high=highest,
        effective_queries=min(
            (each.effective_queries for each in fits if each.effective_queries), default=None
        ),
        bounds=bounds,
    )


def _checked(slopes: tuple[float, float] | None) -> tuple[float, float]:
    if slopes is None:
        return 0.0, np.inf
    try:
        least, steepest = (float(each) for each in slopes)
    except (TypeError, ValueError):
        least, steepest = np.nan, np.nan
    if not 0 <= least <= steepest:
        raise OptionError(
            "slopes must be the least and the steepest slope of examination, such as (0.3, 2.0): "
            f"theta falls as position^-slope. Got {slopes!r} instead."
        )
    return least, steepest


def _only(cells: PositionCounts, index: IntArray) -> PositionCounts:
    """The documents that were shown at these positions, and nothing else."""
    keep = np.zeros(cells.depth, dtype=bool)
    keep[index] = True
    part = cells.at_positions(keep)
    return part.where(np.diff(part.indptr) > 0)


def _ends(bias: PositionBias) -> FloatArray:
    """(2, K) the ends of the intervals of log theta, from theta; infinite where there are none."""
    if bias.low is None or bias.high is None:
        return np.repeat([[-np.inf], [np.inf]], bias.depth, axis=1)
    with np.errstate(divide="ignore"):
        ends = np.log(np.stack([bias.low, bias.high]) / bias.examination)
    return np.where(np.isnan(ends), np.array([[-np.inf], [np.inf]]), ends)


def _differences(
    cells: PositionCounts,
    part: IntArray,
    z: FloatArray,
    error: FloatArray,
    slopes: tuple[float, float],
    level: float,
) -> FloatArray:
    """(P, P) the largest level_j - level_i, from neighbours in different parts and click rates."""
    n = int(part.max()) + 1
    edges = np.flatnonzero(part[1:] != part[:-1])
    rate, rate_error = _click_rates(cells)
    clicked = np.flatnonzero((part > 0) & (rate > 0))
    bounds = len(edges) * (1 + np.isfinite(slopes[1])) + len(clicked)
    quantile = normal_quantile(1 - (1 - level) / max(bounds, 1))
    most = np.full((n, n), np.inf)
    for k in edges.tolist():
        i, j, step = part[k], part[k + 1], np.log((k + 2) / (k + 1))
        slack = quantile * np.hypot(error[k], error[k + 1])
        most[i, j] = min(most[i, j], z[k] - z[k + 1] - slopes[0] * step + slack)
        most[j, i] = min(most[j, i], z[k + 1] - z[k] + slopes[1] * step + slack)
    for k in clicked.tolist():
        slack = quantile * np.hypot(error[k], rate_error[k])
        most[part[k], 0] = min(most[part[k], 0], z[k] - np.log(rate[k]) + slack)
    return tightest(most)


def _click_rates(cells: PositionCounts) -> tuple[FloatArray, FloatArray]:
    """(K,) clicks per impression, and the error of its logarithm, clustered by query."""
    K = cells.depth
    shown, clicks = cells.by_position(cells.impressions), cells.by_position(cells.clicks)
    rate = clicks / shown
    query = np.unique(cells.query, return_inverse=True)[1]
    at = query[cells.document_index] * K + cells.position_index
    residual = cells.clicks - rate[cells.position_index] * cells.impressions
    by_query = sum_by(at, residual, (int(query.max()) + 1) * K).reshape(-1, K)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(np.sum(by_query**2, axis=0)) / clicks
    return rate, np.where(clicks > 0, error, np.inf)
