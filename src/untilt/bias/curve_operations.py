"""Shapes put on an estimated curve (power law, never rising, quadratic), and a test of two curves.

Shapes work on the log-ratios z_k = log(theta_k / theta_1) with their covariance V and return a new
`PositionBias`, whose `method` and `assumes` say what was done.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg, optimize, special
from scipy.optimize import nnls

from untilt._core.arrays import FloatArray, IntArray, handed_over
from untilt._core.portable import Portable
from untilt._core.statistics import check_level, holm, normal_quantile
from untilt.bias.curve import NEVER_RISES, PositionBias
from untilt.bias.log_ratios import (
    degrees_of_freedom,
    from_log_ratios,
    log_ratios,
    on_queries,
    wald_p_value,
    whitening,
)
from untilt.data.layout import Grid, Layout, Slots
from untilt.errors import DepthError, OptionError
from untilt.facts import Fact, joined, note, warning
from untilt.views import Section, Table, View

QUADRATIC_WITHOUT = note(
    "bias.quadratic-fitted", "fits with p {p_value:.2g}; left out as outliers: {outliers:positions}"
)

QUADRATIC_FITTED = note("bias.quadratic-fitted", "fits with p {p_value:.2g}")

NEVER_ROSE = note("bias.smoothed", "never rose")

SMOOTHED = note("bias.smoothed", "{flat} of {steps} steps held flat")

POWER_LAW = note("bias.power-law", "theta_k = (1/k)^eta")()
ETA_FITTED = note("bias.eta-fitted", "eta {eta:.3f} +- {std_error:.3f}; fits with p {p_value:.2g}")
SMOOTH_GRID = warning(
    "bias.smooth-grid", "neighbouring cells of the grid are examined much alike"
)()
GRID_STEP = warning(
    "bias.grid-step", "smooth over the grid: neighbours differ by about {step:.2g} on the log scale"
)
QUADRATIC = note("bias.quadratic", "examination is quadratic in the position")()
CONSTANT_BELOW = note("bias.constant-below", "constant below position {position}")

FEWEST_POSITIONS = 4  # of a quadratic: position 1, and one more than the two coefficients


def fit_power_law(bias: PositionBias, *, depth: int | None = None) -> PositionBias:
    r"""The power law theta_k = (1/k)^eta nearest to a curve.

    Generalised least squares of z_k on x_k = -log k over k = 2..K:

        eta = x' V^-1 z / x' V^-1 x,   var(eta) = 1 / x' V^-1 x

    A curve without standard errors is fitted with equal weights, and eta has none either; an
    estimate without an interval stays one. The `status` of the result tells how well the law fits:
    a small p means that the curve is not a power law.
    """
    depth = bias.depth if depth is None else depth
    check_shapeable(bias, "a power law needs at least two positions")
    if depth < 1:
        raise DepthError(f"depth must be at least 1. Got {depth} instead.")
    page, (bias, at) = bias.layout, _measured(bias)
    z, V = _weighable(bias)
    x = -np.log(at / at[0])
    root = whitening(V[1:, 1:])
    wx, wz = root @ x[1:], root @ z[1:]
    eta = float(wx @ wz / (wx @ wx))
    x = -np.log(np.arange(1, depth + 1))
    if bias.std_error is None:
        status = note("bias.eta", "eta {eta:.3f}")(eta=eta)
        fitted = _shaped(bias, eta * x, None, "a power law", POWER_LAW, status)
        return replace(fitted, eta=eta, layout=page)
    error = float(1 / np.sqrt(wx @ wx))
    misfit, free = float(np.sum((wz - eta * wx) ** 2)), bias.depth - 2
    p = wald_p_value(misfit, free, degrees_of_freedom(bias)[1:])
    status = ETA_FITTED(eta=eta, std_error=error, p_value=p)
    fitted = _shaped(bias, eta * x, error**2 * np.outer(x, x), "a power law", POWER_LAW, status)
    layout = page if isinstance(page, Slots) else None
    return replace(fitted, eta=eta, eta_std_error=error, layout=layout)


def smooth(bias: PositionBias) -> PositionBias:
    r"""The curve nearest to this one that never rises with the position.

    Isotonic regression with the full covariance: minimise (z - d)' V^-1 (z - d) over d_1 = 0 >= d_2
    >= ... >= d_K. With steps s >= 0 and d = -L s it is a non-negative least squares problem, solved
    exactly. V carries the noise of position 1, which all ratios share: where position 1 itself was
    measured too low, the whole curve is allowed to move. A curve that never rises stays as it is.

    The covariance is that of the steps that remain; that they were chosen from the data is not
    counted, so intervals where it is flat are a little short.
    """
    check_shapeable(bias, "there is nothing to smooth in one position")
    page, (bias, _) = bias.layout, _measured(bias)
    z, V = _weighable(bias)
    root = whitening(V[1:, 1:])
    L = np.tril(np.ones((bias.depth - 1, bias.depth - 1)))
    steps, _ = nnls(-root @ L, root @ z[1:])
    kept = L[:, steps > 0]
    d = np.concatenate([[0.0], -L @ steps])
    flat = int(np.count_nonzero(steps == 0))
    told = (SMOOTHED if flat else NEVER_ROSE)(flat=flat, steps=len(steps))
    status = joined(bias.status, told)
    # z -> d is linear while the same steps remain: the projection onto their span.
    P = kept @ np.linalg.pinv(root @ kept) @ root if kept.size else np.zeros_like(V[1:, 1:])
    covariance = np.zeros_like(V)
    covariance[1:, 1:] = P @ V[1:, 1:] @ P.T
    known = None if bias.std_error is None else covariance
    return _on_page_of(page, _shaped(bias, d, known, "smoothed", NEVER_RISES, status))


def _shaped(
    bias: PositionBias,
    z: FloatArray,
    covariance: FloatArray | None,
    then: str,
    assumed: Fact,
    status: Fact,
) -> PositionBias:
    """The curve of log ratios z that came from another; its covariance is None without errors."""
    method, assumes = f"{bias.method}, then {then}", (*bias.assumes, assumed)
    if covariance is None:
        about: dict[str, Any] = {"method": method, "assumes": assumes, "status": status}
        return replace(bias, examination=np.exp(z), relative=True, effective_at=None, **about)
    return from_log_ratios(
        z,
        covariance,
        level=bias.level,
        method=method,
        assumes=assumes,
        status=status,
        **on_queries(bias),
    )


def smooth_grid(bias: PositionBias) -> PositionBias:
    r"""The curve of a grid with cells drawn towards their neighbours, as far as the data allow.

    A random walk over neighbouring cells is the prior: with L the graph of cells side by side and
    below each other (its Laplacian without position 1, where z = 0), the log-ratios z have
    precision L / sigma^2, and their estimate has covariance V:

        z | estimate  ~  N(A V^-1 z^, A),   A = (V^-1 + L / sigma^2)^-1

    sigma^2 is the one that makes the estimate likeliest, z^ ~ N(0, V + sigma^2 L^-1). Where cells
    are known well nothing changes; where little is known they take after their neighbours
    ([rue2005gaussian]_). Intervals are those of the posterior: they hold on average over the cells
    of a grid, not at each cell.
    """
    layout = bias.layout
    if not isinstance(layout, Grid):
        raise OptionError("only the curve of a grid has neighbouring cells. Use bias.smooth().")
    check_shapeable(bias, "a grid needs at least two cells")
    if bias.std_error is None:
        raise OptionError(
            "this curve has no standard errors, so the amount of smoothing is unknown. Use an "
            "estimate that has them, such as ⟦ut.AllPairs()⟧."
        )
    z, V = log_ratios(bias)
    L = _laplacian(layout, bias.depth)[1:, 1:]
    inverse_L = np.linalg.inv(L)
    # Directions without variance get a tiny one, as in `whitening`, and so do those of a matrix
    # that is no covariance (a curve of somebody's own): there the estimate stays as it is.
    variance, direction = np.linalg.eigh(V[1:, 1:])
    variance = np.maximum(variance, max(1e-12, 1e-10 * variance.max()))
    V, precision = (direction * variance) @ direction.T, (direction / variance) @ direction.T

    def unlikely(log_variance: float) -> float:
        factor, lower = linalg.cho_factor(V + np.exp(log_variance) * inverse_L, lower=True)
        fit = z[1:] @ linalg.cho_solve((factor, lower), z[1:])
        return float(fit / 2 + np.sum(np.log(np.diag(factor))))

    found = optimize.minimize_scalar(unlikely, bounds=(-14, 6), method="bounded")
    A = np.linalg.inv(precision + L / np.exp(found.x))
    covariance = np.zeros((len(z), len(z)))
    covariance[1:, 1:] = A
    smoothed = np.concatenate([[0.0], A @ precision @ z[1:]])
    shaped = from_log_ratios(
        smoothed,
        covariance,
        level=bias.level,
        method=f"{bias.method}, then smooth over the grid",
        assumes=(*bias.assumes, SMOOTH_GRID),
        status=joined(bias.status, GRID_STEP(step=float(np.exp(found.x / 2)))),
        effective_queries=bias.effective_queries,
    )
    return replace(shaped, layout=layout)


def _laplacian(layout: Grid, depth: int) -> FloatArray:
    """(depth, depth) of the graph of neighbouring cells."""
    one, two = layout.neighbours()
    inside = (one <= depth) & (two <= depth)
    L = np.zeros((depth, depth))
    for i, j in zip(one[inside] - 1, two[inside] - 1, strict=True):
        L[i, i] += 1
        L[j, j] += 1
        L[i, j] = L[j, i] = -1
    # A cell without neighbours on the log's part of the grid is left as it is.
    L[np.diag_indices(depth)] += np.where(np.diag(L) == 0, 1e-9, 0)
    return L


def fit_quadratic(bias: PositionBias, *, outlier_limit: float | None = None) -> PositionBias:
    r"""theta_k / theta_1 = 1 + b x + c x^2 with x = k - 1: any quadratic, relative to its start.

    Generalised least squares with the covariance of the ratios [mao_arxivlogs]_. With
    `outlier_limit` the position furthest from the fit, in its own standard errors, is left out and
    the rest fitted again, until none is further than that or three are left. A quadratic may rise
    again; one that falls below 0 is refused.
    """
    check_shapeable(bias, "a quadratic needs more than one position")
    if bias.std_error is None or bias.depth < FEWEST_POSITIONS:
        raise OptionError(
            f"a quadratic is fitted to an estimate with standard errors at {FEWEST_POSITIONS} "
            f"positions or more. {bias.method} has {bias.depth} positions."
        )
    page, (bias, at) = bias.layout, _measured(bias)
    z, V = log_ratios(bias)
    theta = np.exp(z)
    x = (at - at[0]).astype(float)
    X = np.stack([x, x**2], axis=1)
    kept, fit = _without_outliers(X, theta - 1, V * np.outer(theta, theta), outlier_limit)
    fitted = 1 + X @ fit.b
    _check_positive(fitted)
    covariance = X @ (fit.spread @ fit.spread.T) @ X.T / np.outer(fitted, fitted)
    status = joined(bias.status, _quality(fit, kept, bias, at))
    shaped = _shaped(bias, np.log(fitted), covariance, "a quadratic", QUADRATIC, status)
    return _on_page_of(page, shaped)


def on_page(bias: PositionBias, slots: Slots) -> PositionBias:
    """A curve of the positions that hold results, by their numbers on the page.

    log theta of the others lies on the straight line between the neighbours above and below. How
    the line bends is not known: half of the difference of the two counts as a further error.
    """
    at = np.flatnonzero(slots.has(bias.depth + len(slots.absent)))[: bias.depth]
    every = np.arange(at[-1] + 1)
    shown = np.isin(every, at)
    above = np.maximum(np.searchsorted(at, every, side="right") - 1, 0)
    below = np.minimum(above + (every > at[above]), len(at) - 1)
    share = (every - at[above]) / np.maximum(at[below] - at[above], 1)
    to_all = np.zeros((len(every), len(at)))
    to_all[every, above] += 1 - share
    to_all[every, below] += share
    known = bias.examination
    bend = np.where(shown, 0.0, np.abs(np.log(known[above] / known[below])) / 2)
    theta = np.where(shown, known[above], np.exp(to_all @ np.log(known)))
    held: Any = bias._part(above)
    about: dict[str, Any] = {"examination": theta, "layout": slots}
    if bias.covariance is not None and bias.low is not None and bias.high is not None:
        relative = to_all @ (bias.covariance / np.outer(known, known)) @ to_all.T
        covariance = (relative + np.diag(bend**2)) * np.outer(theta, theta)
        covariance[np.ix_(at, at)] = bias.covariance
        reach = np.log(bias.high / known)
        half = np.hypot(np.maximum(reach[above], reach[below]), normal_quantile(bias.level) * bend)
        about |= {
            "covariance": covariance,
            "std_error": np.where(shown, held.std_error, np.sqrt(np.diag(covariance))),
            "low": np.where(shown, held.low, theta * np.exp(-half)),
            "high": np.where(shown, held.high, theta * np.exp(half)),
        }
    shaped: PositionBias = replace(held, **about)
    return shaped


def _measured(bias: PositionBias) -> tuple[PositionBias, IntArray]:
    """The curve of the positions that hold results, without gaps, and their numbers."""
    at = np.flatnonzero(bias.holds_results)
    return (bias if len(at) == bias.depth else bias._part(at)), at + 1


def _on_page_of(layout: Layout | None, bias: PositionBias) -> PositionBias:
    """What `_measured` made of a curve, as that curve was."""
    return on_page(bias, layout) if isinstance(layout, Slots) else bias


def hold_last(bias: PositionBias, depth: int) -> PositionBias:
    """The curve down to `depth`, its last value held for all positions below it."""
    if depth < bias.depth:
        raise DepthError(
            f"depth must not lie above the last position of the curve, {bias.depth}. "
            f"Got {depth}; cut the log with ⟦log.top({depth})|--depth {depth}⟧ "
            "instead."
        )
    held = bias._part(np.minimum(np.arange(depth), bias.depth - 1))
    assumes = (*bias.assumes, CONSTANT_BELOW(position=bias.depth))
    return replace(held, layout=bias.layout, assumes=assumes)


def check_shapeable(bias: PositionBias, why: str) -> None:
    """Raise unless the curve has at least two positions, each with an error or none with one."""
    if bias.has_trust:
        raise OptionError(
            f"{bias.method} has click noise by position (eps+, eps-), which a new shape of the "
            "examination alone would contradict. Shape a curve without it."
        )
    if bias.depth < 2:
        raise OptionError(f"{why}. {bias.method} covers position 1 alone.")
    if not np.all(np.isfinite(_weighable(bias)[1])):
        raise OptionError(
            f"{bias.method} has a position without a standard error, so positions cannot be "
            "weighed against each other. Cut the curve before it."
        )


def _weighable(bias: PositionBias) -> tuple[FloatArray, FloatArray]:
    """z and V; all positions weigh the same where the curve has no errors."""
    z, V = log_ratios(bias)
    return z, V if bias.std_error is not None else np.zeros_like(V)


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
            f"the quadratic falls to {fitted.min():.3g} at position "
            f"{np.argmin(fitted) + 1}: this curve has another shape. Leave "
            "⟦shape=None⟧, or use fit_power_law() or smooth()."
        )


def _quality(fit: _Fit, kept: IntArray, bias: PositionBias, at: IntArray) -> Fact:
    misfit = float(fit.residual @ fit.residual)
    p = wald_p_value(misfit, len(kept) - 2, degrees_of_freedom(bias)[kept])
    outliers = np.setdiff1d(at[1:], at[kept]).tolist()
    return quadratic_fact(p, tuple(outliers))


def quadratic_fact(p_value: float, outliers: tuple[int, ...]) -> Fact:
    """How well a quadratic fits, and which positions it was fitted without."""
    told = QUADRATIC_WITHOUT if outliers else QUADRATIC_FITTED
    return told(p_value=p_value, outliers=outliers)


# Do two curves of position bias differ?

# Directions with less than this share of the largest variance count as known exactly.
NO_VARIANCE = 1e-10


@dataclass(frozen=True, eq=False, repr=False)
class BiasComparison(Portable, View):
    """Two curves, ratio by ratio to position 1, and a test of the hypothesis that they are equal.

    Parameters
    ----------
    first, second : the methods that made them
    position : (K - 1,) positions 2..K that both cover
    difference : (K - 1,) log(theta_k / theta_1) of the first minus that of the second
    std_error : (K - 1,) of the difference
    p_values : (K - 1,) two-sided, for each position alone
    chi_square, degrees_of_freedom, p_value : Wald's test of all positions together
    differing : positions that differ at this level, Holm's correction for testing them all
    level : 1 minus the probability of calling equal curves different
    """

    first: str
    second: str
    position: IntArray
    difference: FloatArray
    std_error: FloatArray
    p_values: FloatArray
    chi_square: float
    degrees_of_freedom: int
    p_value: float
    differing: tuple[int, ...]
    level: float

    @property
    def equal(self) -> bool:
        """Whether the test leaves it possible that the curves are the same."""
        return self.p_value >= 1 - self.level

    def view(self) -> list[Section]:
        """Whether they differ, and the ratio of the two at each position."""
        verdict = "may be the same" if self.equal else "differ"
        where = ", ".join(map(str, self.differing)) or "no single position"
        title = (
            f"{self.first} and {self.second} {verdict}: chi-square {self.chi_square:.1f} on "
            f"{self.degrees_of_freedom} degrees of freedom, p {self.p_value:.2g}"
        )
        columns = (self.position, self.difference, self.std_error, self.p_values)
        rows = tuple(
            (str(k), f"{np.exp(gap):.3f}", f"{error:.3f}", f"{p:.2g}")
            for k, gap, error, p in zip(*columns, strict=True)
        )
        table = Table(("position", "ratio", "std error of its log", "p"), rows, text_columns=())
        differing = f"differing at {1 - self.level:.0%}: {where}"
        return [Section("compared", title, (differing,), tables=(table,))]


def compare(first: PositionBias, second: PositionBias, *, level: float = 0.95) -> BiasComparison:
    """Test whether two curves have the same ratios to position 1.

    With d the difference of the log-ratios and V the sum of their covariances, d' V^-1 d is
    chi-square distributed with K - 1 degrees of freedom if the curves are equal; where their errors
    rest on few effective queries, d' V^-1 d / (K - 1) is taken as F, and each position has
    Student's t. The two must come
    from different sessions: curves from the same log share its noise, and the test then calls them
    different too seldom. Click noise (eps+, eps-) is not compared.
    """
    check_level(level)
    if first.is_known and second.is_known:
        raise OptionError(
            "both curves are given without standard errors, so their difference cannot be "
            "tested. Compare an estimate with a given curve, or two estimates."
        )
    for each in (first, second):
        if each.estimated and each.std_error is None:
            raise OptionError(
                f"{each.method} is an estimate without an interval, so no test can tell chance "
                "from a difference. Compare estimates that have one (bias.has_interval), or a "
                "curve that was given."
            )
    depth = min(first.depth, second.depth)
    z_first, V_first = log_ratios(first)
    z_second, V_second = log_ratios(second)
    d = (z_first[:depth] - z_second[:depth])[1:]
    V = (V_first[:depth, :depth] + V_second[:depth, :depth])[1:, 1:]
    known = np.isfinite(np.diag(V))
    d, V, position = d[known], V[np.ix_(known, known)], np.arange(2, depth + 1)[known]
    chi_square, rank = _wald(d, V)
    error = np.sqrt(np.diag(V))
    free = _joint_degrees(first, second, V_first, V_second)[1:depth][known]
    p_values = _two_sided(d, error, free)
    return BiasComparison(
        first=first.method,
        second=second.method,
        position=handed_over(position),
        difference=handed_over(d),
        std_error=handed_over(error),
        p_values=handed_over(p_values),
        chi_square=chi_square,
        degrees_of_freedom=rank,
        p_value=wald_p_value(chi_square, rank, free),
        differing=tuple(position[holm(p_values) < 1 - level].tolist()),
        level=level,
    )


def _wald(d: FloatArray, V: FloatArray) -> tuple[float, int]:
    """d' V^-1 d and the rank of V; infinite where d leaves the directions in which V varies."""
    if len(d) == 0:
        return 0.0, 0
    variance, direction = np.linalg.eigh(V)
    varies = variance > NO_VARIANCE * variance.max()
    along = direction.T @ d
    if np.any(np.abs(along[~varies]) > np.sqrt(NO_VARIANCE * variance.max()) * 10):
        return float("inf"), int(varies.sum())
    return float(np.sum(along[varies] ** 2 / variance[varies])), int(varies.sum())


def _joint_degrees(
    first: PositionBias, second: PositionBias, V_first: FloatArray, V_second: FloatArray
) -> FloatArray:
    """(K,) of the sum of both errors, by Satterthwaite."""
    depth = min(first.depth, second.depth)
    spread = np.zeros(depth)
    total = np.zeros(depth)
    for bias, V in ((first, V_first), (second, V_second)):
        variance = np.diag(V)[:depth]
        spread += variance**2 / degrees_of_freedom(bias)[:depth]
        total += variance
    return np.divide(total**2, spread, out=np.full(depth, np.inf), where=spread > 0)


def _two_sided(d: FloatArray, error: FloatArray, free: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.abs(d) / error
    known = np.isfinite(free)
    tail = np.where(known, special.stdtr(np.where(known, free, 1.0), -z), special.ndtr(-z))
    return np.where(d == 0, 1.0, 2 * tail)
