"""Shapes put on an estimated curve on purpose: a power law, or a curve that never rises.

Both work on the log-ratios z_k = log(theta_k / theta_1) with their covariance V, and both return a
new `PositionBias` whose `method` and `assumes` say what was done.
"""

from dataclasses import replace

import numpy as np
from scipy import special
from scipy.optimize import nnls

from untilt._core.arrays import FloatArray
from untilt.bias.position_bias import PositionBias
from untilt.bias.ratios import from_log_ratios, log_ratios
from untilt.errors import DepthError, OptionError


def fit_power_law(bias: PositionBias, *, depth: int | None = None) -> PositionBias:
    r"""The power law theta_k = (1/k)^eta nearest to a curve.

    Generalised least squares of z_k on x_k = -log k over k = 2..K:

        eta = x' V^-1 z / x' V^-1 x,   var(eta) = 1 / x' V^-1 x

    A curve without standard errors is fitted with equal weights, and eta has none either. The
    result's `status` says how well the law fits: a small p means that the curve is none.
    """
    depth = bias.depth if depth is None else depth
    check_shapeable(bias, "a power law needs at least two positions")
    if depth < 1:
        raise DepthError(f"depth must be at least 1. Got {depth} instead.")
    z, V = log_ratios(bias)
    x = -np.log(np.arange(1, bias.depth + 1))
    root = whitening(V[1:, 1:])
    wx, wz = root @ x[1:], root @ z[1:]
    eta = float(wx @ wz / (wx @ wx))
    method, assumes = f"{bias.method}, then a power law", (*bias.assumes, "theta_k = (1/k)^eta")
    x = -np.log(np.arange(1, depth + 1))
    if bias.is_known:
        theta, status = np.exp(eta * x), f"eta {eta:.3f}"
        return PositionBias(theta, method=method, assumes=assumes, status=status, eta=eta)
    error = float(1 / np.sqrt(wx @ wx))
    misfit, free = float(np.sum((wz - eta * wx) ** 2)), bias.depth - 2
    p = float(special.chdtrc(free, misfit)) if free else 1.0
    fitted = from_log_ratios(
        eta * x,
        error**2 * np.outer(x, x),
        level=bias.level,
        method=method,
        assumes=assumes,
        status=f"eta {eta:.3f} +- {error:.3f}; fits with p {p:.2g}",
    )
    return replace(fitted, eta=eta, eta_std_error=error)


def smooth(bias: PositionBias) -> PositionBias:
    r"""The curve nearest to this one that never rises with the position.

    Isotonic regression with the full covariance: minimise (z - d)' V^-1 (z - d) over d_1 = 0 >= d_2
    >= ... >= d_K. With steps s >= 0 and d = -L s it is a non-negative least squares problem, solved
    exactly. V carries the noise of position 1, which all ratios share: where position 1 itself was
    measured too low, the whole curve is allowed to move. A curve that never rises stays as it is.

    The covariance is that of the steps that remain; that they were chosen from the data is not
    counted, so intervals at flat places are a little short.
    """
    check_shapeable(bias, "there is nothing to smooth in one position")
    z, V = log_ratios(bias)
    root = whitening(V[1:, 1:])
    L = np.tril(np.ones((bias.depth - 1, bias.depth - 1)))
    steps, _ = nnls(-root @ L, root @ z[1:])
    kept = L[:, steps > 0]
    d = np.concatenate([[0.0], -L @ steps])
    method = f"{bias.method}, then smoothed"
    assumes = (*bias.assumes, "examination never rises with the position")
    status = f"{bias.status}; {_flat(steps)}"
    if bias.is_known:
        return PositionBias(
            np.exp(d), method=method, assumes=assumes, status=status, level=bias.level
        )
    # z -> d is linear while the same steps remain: the projection onto their span.
    P = kept @ np.linalg.pinv(root @ kept) @ root if kept.size else np.zeros_like(V[1:, 1:])
    covariance = np.zeros_like(V)
    covariance[1:, 1:] = P @ V[1:, 1:] @ P.T
    return from_log_ratios(
        d, covariance, level=bias.level, method=method, assumes=assumes, status=status
    )


def check_shapeable(bias: PositionBias, why: str) -> None:
    """Raise unless the curve has at least two positions, each with an error or none with one."""
    if bias.has_trust:
        raise OptionError(
            f"{bias.method} has click noise by position (eps+, eps-), which a new shape of the "
            "examination alone would contradict. Shape a curve without it."
        )
    if bias.depth < 2:
        raise OptionError(f"{why}. {bias.method} covers position 1 alone.")
    if not bias.is_known and not np.all(np.isfinite(log_ratios(bias)[1])):
        raise OptionError(
            f"{bias.method} has a position without a standard error, so positions cannot be "
            "weighed against each other. Cut the curve before it."
        )


def whitening(V: FloatArray) -> FloatArray:
    """R with R' R = V^-1; the identity for a known curve.

    Directions without variance (positions held equal, say) get a tiny one: they then stay as they
    are, as nearly as numbers allow.
    """
    variance, direction = np.linalg.eigh(V)
    if variance.max() <= 0:
        return np.eye(len(V))
    return (direction / np.sqrt(np.maximum(variance, 1e-10 * variance.max()))).T


def _flat(steps: FloatArray) -> str:
    held = int(np.count_nonzero(steps == 0))
    return "never rose" if held == 0 else f"{held} of {len(steps)} steps held flat"
