"""Position bias from documents shown at several positions: all pairs, neighbours, or a pivot."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from untilt._core import ascent
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.statistics import normal_quantile
from untilt.bias.curve import (
    NEVER_RISES,
    POSITION_BASED,
    SAME_RELEVANCE,
    LevelBounds,
    PositionBias,
    tightest,
)
from untilt.bias.estimator import BiasEstimator, place_of
from untilt.bias.harvesting import pairs
from untilt.bias.harvesting.pairs import PairEquations, PairSums
from untilt.bias.log_ratios import MAXIMUM, NO_MAXIMUM, from_log_ratios, log_ratios
from untilt.bias.position_graph import position_graph
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts
from untilt.errors import IdentifiabilityError, OptionError, check_choice
from untilt.facts import Fact, joined, note, warning

BOUNDED = warning(
    "bias.bounded",
    "nothing joins {positions:positions} to position 1: bounds there, which hold with {level:.0%}, "
    "in place of an estimate",
)
SLOPES = note(
    "bias.slopes",
    "where it is not measured, examination falls as position^-slope with a slope from {least:g} to "
    "{steepest:g}",
)

# Where all documents of a set were clicked at every single impression, p_k r_kl would reach 1 and
# the likelihood get a kink: one impression in a thousand counts as unclicked then.
LEAST_UNCLICKED = 1e-3


@method(
    "bias", "all-pairs", title="All pairs of positions", order=22, rests_on="repeated positions",
    takes=("depth",), reference="agarwal2019estimating",
    note="maximum likelihood over the documents seen at two positions or more",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class AllPairs(BiasEstimator):
    r"""Maximum likelihood over all pairs of positions ([agarwal2019estimating]_).

        max  sum_{k != l} C[k, l] log(p_k r_kl) + N[k, l] log(1 - p_k r_kl),   r_kl = r_lk

    C and N are the weighted clicks and non-clicks at k of documents shown at both k and l, r_kl
    their mean relevance. The maximum is unique (see `profile`); the search ends when no
    derivative by log p_k exceeds `tolerance` times all clicks. Standard errors are a sandwich,
    because the same clicks are part of several pairs; see `larger_error`.

    Parameters
    ----------
    weight : "document" weighs each click at k by 1 / (times its document was shown at k), so that
        all documents count alike. "session" weighs the documents of S_kl by n_k n_l / (n_k + n_l):
        the same curve, but documents shown more often count for more. Its errors were half as large
        under Zipf traffic and a tenth smaller under even traffic (40 logs of 1,000 queries)
    depth, level : as in `AdjacentChain`
    tolerance, max_steps : of the search
    unjoined : what to do where no chain of shared documents joins a position to position 1:
        "error"; or "bounds": the joined positions are estimated, the levels of the others bounded,
        because examination never rises and nothing is looked at less often than it is clicked; see
        `untilt.bias.harvesting.harvesting`
    slopes : narrower bounds, where you believe them: the least and the steepest slope of
        examination where it is not measured, theta_l / theta_k = (l / k)^-slope, such as (0.3, 2.0)
    """

    weight: str = "session"
    depth: int | None = None
    level: float = 0.95
    tolerance: float = 1e-9
    max_steps: int = 200
    unjoined: str = "error"
    slopes: tuple[float, float] | None = None

    def _estimate(self, log: ClickLog) -> PositionBias:
        check_choice("unjoined", self.unjoined, ("error", "bounds"))
        cells = pairs.counts_of_pairs(log, self.depth)
        if self.unjoined == "bounds":
            return bounded_bias(
                cells,
                lambda part: self._joined(part, log if part is cells else None),
                slopes=self.slopes, level=self.level, method="AllPairs",
            )  # fmt: skip
        if self.slopes is not None:
            raise OptionError(
                "slopes are those of unjoined positions: give ⟦unjoined='bounds'⟧ too."
            )
        position_graph(cells).require(cells.depth, "AllPairs")
        return self._joined(cells, log)

    def _joined(self, cells: PositionCounts, log: ClickLog | None) -> PositionBias:
        """The curve of positions that are all joined; `log` where the cells are all of it."""
        sums = pairs.pair_sums(cells, self.weight)
        best = maximise(sums, tolerance=self.tolerance, max_steps=self.max_steps)
        errors = pairs.uncertainty_of_pairs(
            cells,
            self.weight,
            best.at.equations,
            best.x,
            lambda left: maximise(left, tolerance=1e-6, max_steps=5, start=best.x).x,
            log,
        )
        ended = MAXIMUM if best.converged else NO_MAXIMUM
        ending = ended(steps=best.steps, residual=best.residual)
        return from_log_ratios(
            best.x,
            errors,
            level=self.level,
            method="AllPairs",
            assumes=(POSITION_BASED, SAME_RELEVANCE),
            status=joined(ending, *pairs.click_evidence(cells), errors.rule),
        )


@dataclass(frozen=True, eq=False)
class Profile:
    """The likelihood at z = log p, with the best r for it.

    value : the log-likelihood; gradient : (K,) by z
    clicked : (K, K) x_kl = p_k r_kl, the click probability at k of documents of S_kl
    equations : the score of each pair with r taken out, and the curvature
    """

    value: float
    gradient: FloatArray
    clicked: FloatArray
    equations: PairEquations


def profile(z: FloatArray, sums: PairSums) -> Profile:
    r"""sum_{k != l} C_kl log x_kl + N_kl log(1 - x_kl) with x_kl = p_k r_kl, r at its best.

    In logs each term is concave in z_k + log r_kl, hence the profile is concave in z: there is one
    maximum, and any start finds it. The best r for given p solves a quadratic (see `_best`), so
    every x is a probability without any constraint on z. The curvature -d2/dz2 is a Laplacian with
    weights h_kl h_lk / (h_kl + h_lk), where h = N x / (1 - x)^2.
    """
    C, used = sums.clicked, _used(sums)
    N = np.maximum(sums.weight - C, LEAST_UNCLICKED * sums.weight)
    x, y = _best(np.exp(z), C, N, used)
    slope = np.where(used, C - N * x / y, 0.0)
    value = float(np.sum(np.where(used, C * np.log(x) + N * np.log(y), 0.0)))
    return Profile(value, slope.sum(axis=1), x, _equations(x, y, N, used))


def _best(
    p: FloatArray, C: FloatArray, N: FloatArray, used: BoolArray
) -> tuple[FloatArray, FloatArray]:
    r"""x = p_k r and 1 - x for the most likely r of each pair; 1/2 for pairs not used.

    With c = C_kl + C_lk, the derivative by log r is 0 at the smaller root of

        p_k p_l (c + N_kl + N_lk) r^2 - (a_kl + a_lk) r + c = 0,   a_kl = p_k (c + N_kl)

    which lies between 0 and 1 / max(p_k, p_l). Its discriminant (a_kl - a_lk)^2 + 4 p_k p_l N_kl
    N_lk and 1 - x are written without differences of nearly equal numbers: where nearly every
    impression was clicked, x is 1 up to rounding and 1 - x would be lost.
    """
    c = np.where(used, C + C.T, 1.0)
    N = np.where(used, N, 1.0)
    a = p[:, None] * (c + N)
    D = a - a.T
    product = 4 * np.outer(p, p) * N * N.T
    root = np.sqrt(D**2 + product)
    both = a + a.T + root
    x = 2 * p[:, None] * c / both
    above = np.where(D > 0, product / (root + np.abs(D)), root - D)  # root - D
    y = (2 * p[:, None] * N + above) / both
    return np.where(used, x, 0.5), np.where(used, y, 0.5)


def maximise(
    sums: PairSums, *, tolerance: float, max_steps: int, start: FloatArray | None = None
) -> ascent.Maximum:
    """The z with no derivative by log p_k above `tolerance` times all clicks, and its `Profile`.

    Clicks are weighted as the sums are: examination then fits those of every position to that
    share. The curvature is in closed form, so Newton's steps are cheap.
    """
    return ascent.maximise(
        lambda z: profile(z, sums),
        lambda _, here: pairs.solve_laplacian(here.equations.curvature, here.gradient),
        _start(sums) if start is None else np.asarray(start, float) - start[0],
        scale=float(sums.clicked.sum()),
        tolerance=tolerance,
        max_steps=max_steps,
        largest=2.0,
    )


def _start(sums: PairSums) -> FloatArray:
    """Least squares of all log ratios, weighted by the clicks behind them."""
    C, used = sums.clicked, _used(sums)
    weight = np.divide(C * C.T, C + C.T, out=np.zeros_like(C), where=used)
    ratio = np.divide(C, C.T, out=np.ones_like(C), where=weight > 0)
    # A tiny weight where only one end has clicks: without it the equations would be singular.
    weight += np.where(used, 1e-6 * C.max(), 0.0)
    return pairs.solve_laplacian(weight, (weight * np.log(ratio)).sum(axis=1))


def _equations(x: FloatArray, y: FloatArray, N: FloatArray, used: BoolArray) -> PairEquations:
    """Scores with r taken out: f_kl = (s_kl h_lk - s_lk h_kl) / (h_kl + h_lk).

    s_kl = C_kl - N_kl x / (1 - x) is the score by log x_kl; a document's part of it is
    w (rate_k - x_kl) / (1 - x_kl). Here y = 1 - x.
    """
    h = np.where(used, N * x / y**2, 0.0)
    share = np.divide(h.T, h + h.T, out=np.zeros_like(h), where=used)
    gain = np.where(used, share / y, 0.0)
    constant = np.where(used, share * x / y, 0.0)
    return PairEquations(curvature=share * h, gain=gain, offset=constant.T - constant)


def _used(sums: PairSums) -> BoolArray:
    """Pairs with a click at either end: others say nothing about ratios."""
    return (sums.clicked + sums.clicked.T) > 0


# Position bias from ratios along a tree of position pairs: neighbours, or all against a pivot.
#
# Several rankers share the traffic, or ranks vary by themselves from day to day: then the same
# document of the same query is shown at several positions, and its clicks there differ by
# examination alone [agarwal2019estimating]_. No list has to be changed for it.


@method(
    "bias", "adjacent-chain", title="Chain of neighbours", order=20,
    rests_on="repeated positions", takes=("depth",), reference="agarwal2019estimating",
    note="documents seen at neighbouring positions; their ratios are multiplied",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class AdjacentChain(BiasEstimator):
    r"""Ratios of neighbouring positions, multiplied up.

        theta_k / theta_{k-1} = C[k, k-1] / C[k-1, k],   theta_k / theta_1 = product of these

    with C[k, l] the weighted clicks at k of documents shown at both k and l (see `pair_sums`).
    Simple and local, but errors add up along the chain, and each neighbouring pair needs documents
    of its own; `AllPairs` uses every pair.

    Parameters
    ----------
    weight : "session" or "document"; see `AllPairs`
    depth : positions 1..depth; all of the log where not given
    level : of the intervals
    """

    weight: str = "session"
    depth: int | None = None
    level: float = 0.95

    def _estimate(self, log: ClickLog) -> PositionBias:
        cells = pairs.counts_of_pairs(log, self.depth)
        edges = [(k, k + 1) for k in range(1, cells.depth)]
        return tree_bias(
            cells, edges, self.weight, method="AdjacentChain", level=self.level, log=log
        )


@method(
    "bias", "pivot", title="Pivot position", order=21, rests_on="repeated positions",
    takes=("pivot", "depth"), reference="agarwal2019estimating",
    note="documents seen both at a position and at the pivot",
)  # fmt: skip
@dataclass(eq=False, repr=False)
class Pivot(BiasEstimator):
    r"""Every position against one pivot.

        theta_k / theta_pivot = C[k, pivot] / C[pivot, k],  then relative to position 1

    Right where one position shares documents with all others, as in logs of pivot swaps.

    Parameters
    ----------
    pivot : the position that all others are compared with
    weight, depth, level : as in `AdjacentChain`
    """

    pivot: int = 1
    _: KW_ONLY
    weight: str = "session"
    depth: int | None = None
    level: float = 0.95

    def _estimate(self, log: ClickLog) -> PositionBias:
        cells = pairs.counts_of_pairs(log, self.depth)
        edges = pivot_edges(place_of(log, self.pivot), cells.depth)
        return tree_bias(cells, edges, self.weight, method="Pivot", level=self.level, log=log)


def tree_bias(
    cells: PositionCounts,
    edges: Sequence[tuple[int, int]],
    weight: str,
    *,
    method: str,
    level: float,
    identified_by: Fact | None = None,
    any_time: bool = False,
    log: ClickLog | None = None,
    cell_of_row: IntArray | None = None,
) -> PositionBias:
    """The curve from ratios along a tree of position pairs, log C_kl - log C_lk on each.

    `identified_by` is assumed beside the position-based model: that relevance does not depend on
    the position where not given. `any_time` : as in `from_log_ratios`.
    `log`, `cell_of_row` : as in `uncertainty_of_pairs`.
    """
    sums = pairs.pair_sums(cells, weight)
    check_edges(cells, edges, sums, method)
    z, equations = tree_equations(sums, edges)
    errors = pairs.uncertainty_of_pairs(
        cells, weight, equations, z, lambda left: tree_equations(left, edges)[0], log, cell_of_row
    )
    return from_log_ratios(
        z,
        errors,
        level=level,
        method=method,
        assumes=(POSITION_BASED, identified_by or SAME_RELEVANCE),
        status=joined(*pairs.click_evidence(cells), errors.rule),
        any_time=any_time,
    )


def tree_equations(
    sums: PairSums, edges: Sequence[tuple[int, int]]
) -> tuple[FloatArray, PairEquations]:
    """z with z_k - z_l = log C_kl - log C_lk along each edge of a tree, and its equations."""
    tree = np.zeros_like(sums.weight)
    for k, l in edges:  # noqa: E741  the formula's symbols
        tree[k - 1, l - 1] = tree[l - 1, k - 1] = 1
    C = np.where(tree > 0, sums.clicked, 1.0)
    z = pairs.solve_laplacian(tree, np.log(C / C.T).sum(axis=1))
    return z, PairEquations(curvature=tree, gain=tree / C, offset=np.zeros_like(tree))


def pivot_edges(pivot: int, depth: int) -> list[tuple[int, int]]:
    """The pairs (pivot, k) of all other positions k."""
    if not 1 <= pivot <= depth:
        raise OptionError(f"pivot must be one of the positions 1..{depth}. Got {pivot} instead.")
    return [(min(pivot, k), max(pivot, k)) for k in range(1, depth + 1) if k != pivot]


def check_edges(
    cells: PositionCounts, edges: Sequence[tuple[int, int]], sums: PairSums, method: str
) -> None:
    """Each pair needs clicks at both ends, else its ratio is 0, infinite or nothing at all."""
    for k, l in edges:  # noqa: E741  the formula's symbols
        if sums.clicked[k - 1, l - 1] > 0 and sums.clicked[l - 1, k - 1] > 0:
            continue
        graph = position_graph(cells)
        graph.require(cells.depth, method)
        edge = graph.edge(k, l)
        evidence = f"{edge.documents} documents were shown at both"
        if edge.documents:
            evidence += (
                f", with {edge.upper_clicks:g} clicks at {k} and {edge.lower_clicks:g} at {l}"
            )
        raise IdentifiabilityError(
            f"⟦{method}⟧ compares positions {k} and {l}, and {evidence}. To have more, "
            "swap these two positions in a share of the sessions; or use ⟦AllPairs⟧, "
            "which also compares them by way of other positions."
        )


Fit = Callable[[PositionCounts], PositionBias]


def bounded_bias(
    cells: PositionCounts,
    fit: Fit,
    *,
    slopes: tuple[float, float] | None,
    level: float,
    method: str,
) -> PositionBias:
    """The curve by `fit` on each part, with bounds for the levels of those not joined to 1.

    Within a part of the positions that documents join, ratios of examination are measured. Between
    parts nothing is: relevance can compensate for any level. Three things bound it all the same:

        theta_l <= theta_k (l/k)^-a         for l = k + 1 in another part, a the least slope; 0 says
                                            that examination never rises
        theta_l >= theta_k (l/k)^-b         b the steepest slope, where one is given
        theta_k / theta_1 >= clicks_k / n_k because neither relevance nor examination exceed 1

    A bound that rests on measured ratios or rates is moved outwards by z times its standard error,
    with z corrected for the number of bounds (Bonferroni): the bounds hold with the probability
    `level`. They are no confidence interval: within them nothing says which value is the likelier.
    """
    least, steepest = _checked(slopes)
    graph = position_graph(cells)
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
            f"no examination with slopes from {least:g} to {steepest:g} fits the "
            "ratios that were measured within the joined positions. Give a wider "
            "range (slopes=(0, 3), say), or join the positions: `untilt plan LOG` "
            "says how."
        )
    low, high = -most[:, 0], most[0]
    # Both ends fulfil all differences at once, and so does what lies in the middle.
    middle = np.where(np.isfinite(low), (low + high) / 2, high - np.log(10))
    bounds = LevelBounds(part, most + middle[:, None] - middle[None, :])
    theta = np.exp(middle[part] + z)
    lowest, highest = np.exp(low[part] + z + ends[0]), np.exp(high[part] + z + ends[1])
    unjoined = tuple((np.flatnonzero(part > 0) + 1).tolist())
    shape = NEVER_RISES
    if slopes is not None:
        shape = SLOPES(least=least, steepest=steepest)
    told = BOUNDED(positions=unjoined, level=level)
    return PositionBias(
        theta,
        covariance=covariance * np.outer(theta, theta),
        method=method,
        assumes=(POSITION_BASED, SAME_RELEVANCE, shape),
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
    """(2, K) the ends of the intervals of log theta, from theta; infinite without an interval."""
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
