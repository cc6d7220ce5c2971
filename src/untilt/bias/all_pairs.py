"""The likelihood of all interventional pairs, its maximum, and its curvature in closed form."""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray
from untilt.bias.inference import Flows, potentials
from untilt.bias.pair_sums import PairSums

# Where all documents of a set were clicked at every single impression, p_k r_kl would reach 1.
LEAST_UNCLICKED = 1e-9


@dataclass(frozen=True, eq=False)
class Profile:
    """The likelihood at z = log p, with the best r for it.

    value : the log-likelihood; gradient : (K,) by z
    clicked : (K, K) x_kl = p_k r_kl, the click probability at k of documents of S_kl
    flows : conductances (the curvature) and gains (how data push z)
    """

    value: float
    gradient: FloatArray
    clicked: FloatArray
    flows: Flows


@dataclass(frozen=True, eq=False)
class Maximum:
    """Where the search ended. `residual` is the largest |gradient|, in shares of all clicks."""

    z: FloatArray
    profile: Profile
    steps: int
    residual: float
    converged: bool


def profile(z: FloatArray, sums: PairSums) -> Profile:
    r"""sum_{k != l} C_kl log x_kl + N_kl log(1 - x_kl) with x_kl = p_k r_kl, r at its best.

    For given p the best r of a pair is the smaller root of

        p_k p_l (C + N) r^2 - (C (p_k + p_l) + N_k p_k + N_l p_l) r + C = 0

    where C = C_kl + C_lk and N = N_k + N_l = N_kl + N_lk. It lies between 0 and 1 / max(p_k, p_l),
    so every x is a probability without any constraint on z. In logs each term is concave in
    z_k + log r_kl, hence the profile is concave in z: there is one maximum, and any start finds it.
    The curvature -d2/dz2 is a Laplacian with conductances h_kl h_lk / (h_kl + h_lk), where
    h = N x / (1 - x)^2.
    """
    C, used = sums.clicked, _used(sums)
    N = np.maximum(sums.weight - C, LEAST_UNCLICKED * sums.weight)
    p = np.exp(z)
    total = C + C.T
    B = total * (p[:, None] + p) + N * p[:, None] + (N * p[:, None]).T
    A = np.outer(p, p) * (total + N + N.T)
    with np.errstate(invalid="ignore", divide="ignore"):
        r = 2 * total / (B + np.sqrt(np.maximum(B**2 - 4 * A * total, 0)))
        x = np.where(used, p[:, None] * r, 0.5)
    slope = np.where(used, C - N * x / (1 - x), 0.0)
    value = float(np.sum(np.where(used, C * np.log(x) + N * np.log1p(-x), 0.0)))
    return Profile(value, slope.sum(axis=1), x, _flows(x, N, used))


def maximise(
    sums: PairSums, *, tolerance: float, max_steps: int, start: FloatArray | None = None
) -> Maximum:
    """Newton's method with halved steps; the curvature is in closed form, so steps are cheap.

    Ends when no derivative by log p_k exceeds `tolerance` times all clicks (weighted as the sums
    are): examination then fits the clicks of every position to that share.
    """
    all_clicks = float(sums.clicked.sum())
    z = np.zeros(len(sums.weight)) if start is None else np.asarray(start, float) - start[0]
    here = profile(z, sums)
    for step in range(max_steps):
        residual = float(np.abs(here.gradient).max()) / all_clicks
        if residual <= tolerance:
            return Maximum(z, here, step, residual, converged=True)
        z, here = _uphill(z, here, sums)
    residual = float(np.abs(here.gradient).max()) / all_clicks
    return Maximum(z, here, max_steps, residual, residual <= tolerance)


def _uphill(z: FloatArray, here: Profile, sums: PairSums) -> tuple[FloatArray, Profile]:
    step = potentials(here.flows.conductance, here.gradient)
    # Two log units at most: far from the maximum the quadratic model may point anywhere.
    step *= min(1.0, 2 / max(np.abs(step).max(), 1e-300))
    gain = float(here.gradient @ step)
    for halving in range(40):
        new = profile(z + step / 2**halving, sums)
        if new.value >= here.value + 1e-4 * gain / 2**halving:
            return z + step / 2**halving, new
    # No gain that can be seen in double precision: the maximum, up to rounding.
    return z + step, profile(z + step, sums)


def _flows(x: FloatArray, N: FloatArray, used: BoolArray) -> Flows:
    """Scores with r taken out: f_kl = (s_kl h_lk - s_lk h_kl) / (h_kl + h_lk).

    s_kl = C_kl - N_kl x / (1 - x) is the score by log x_kl; a document's part of it is
    w (rate_k - x_kl) / (1 - x_kl).
    """
    h = np.where(used, N * x / (1 - x) ** 2, 0.0)
    share = np.divide(h.T, h + h.T, out=np.zeros_like(h), where=used)
    gain = np.where(used, share / (1 - x), 0.0)
    constant = np.where(used, share * x / (1 - x), 0.0)
    return Flows(conductance=share * h, gain=gain, offset=constant.T - constant)


def _used(sums: PairSums) -> BoolArray:
    """Pairs with a click at either end: others say nothing about ratios."""
    return (sums.clicked + sums.clicked.T) > 0
