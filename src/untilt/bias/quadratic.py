"""The arXiv study's curve: a quadratic through the swapped positions, constant below them."""

from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from untilt._core.arrays import FloatArray, IntArray
from untilt.bias.position_bias import PositionBias
from untilt.bias.ratios import from_log_ratios, log_ratios
from untilt.bias.shape import check_shapeable, whitening
from untilt.errors import DepthError, OptionError

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
        spread = np.linalg.pinv(root @ X)
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
