r"""Trust bias as two curves, E[click at k] = alpha_k gamma + beta_k, on a scale of relevance.

For any a > 0 and b, the curves (alpha_k / a, beta_k - b alpha_k / a) with relevance a gamma + b
give the same clicks. So clicks identify 2K - 2 numbers of the 2K: the affine map

    P(click at k) = slope_k P(click at 1) + shift_k,
    slope_k = alpha_k / alpha_1,   shift_k = beta_k - slope_k beta_1

from the click probability of a document at position 1 to the one at position k. The missing two are
a choice of scale: which documents have gamma 0 and which have gamma 1.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from untilt._core.arrays import FloatArray, frozen
from untilt._core.statistics import normal_quantile
from untilt.errors import DepthError, OptionError


@dataclass(frozen=True)
class TrustAnchor:
    """What fixes the scale of relevance: two click rates at one position.

    For instance, show judged documents at position 1 and count: relevant ones (gamma 1) were
    clicked in 67% of the sessions, irrelevant ones (gamma 0) in 44%: TrustAnchor(0.67, 0.44).

    Parameters
    ----------
    relevant : theta eps+ = alpha + beta at the position
    irrelevant : theta eps- = beta at the position
    position : 1-based
    """

    relevant: float
    irrelevant: float
    position: int = 1

    def check(self, depth: int) -> None:
        """Raise unless these are click rates at a position down to `depth`."""
        if not 0 <= self.irrelevant < self.relevant <= 1:
            raise OptionError(
                "an anchor must have 0 <= irrelevant < relevant <= 1: relevant documents are "
                f"clicked more often. Got irrelevant={self.irrelevant}, relevant={self.relevant}."
            )
        if not 1 <= self.position <= depth:
            raise DepthError(
                f"the anchor's position must be one of 1..{depth}. Got {self.position} instead."
            )


class CurveIntervals(NamedTuple):
    """Of alpha and beta at each position, (K,) each."""

    alpha_low: FloatArray
    alpha_high: FloatArray
    beta_low: FloatArray
    beta_high: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class AffineCurves:
    """alpha and beta with their covariance, on the scale that `anchor` sets.

    Parameters
    ----------
    alpha, beta : (K,)
    covariance : (2K, 2K) of (alpha, beta); 0 at the anchor's position, where both are given
    anchor : the scale of relevance
    """

    alpha: FloatArray
    beta: FloatArray
    covariance: FloatArray
    anchor: TrustAnchor

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "covariance"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))

    @property
    def depth(self) -> int:
        """The lowest position, K."""
        return len(self.alpha)

    @property
    def alpha_std_error(self) -> FloatArray:
        """(K,)"""
        return np.sqrt(np.maximum(np.diag(self.covariance)[: self.depth], 0))

    @property
    def beta_std_error(self) -> FloatArray:
        """(K,)"""
        return np.sqrt(np.maximum(np.diag(self.covariance)[self.depth :], 0))

    def intervals(self, level: float = 0.95) -> CurveIntervals:
        r"""alpha exp(-+ q se / alpha), and beta along with it.

        alpha is a slope, whose error grows with it: +- q se covers too little where the estimate
        happens to be low (86% of 200 logs at position 10, relevance from features). The click rate
        at k is known well, so beta is low where alpha is high: the part of its error that goes with
        alpha follows alpha's interval, the rest is symmetric.
        """
        q, depth = normal_quantile(level), self.depth
        variance, together = np.diag(self.covariance), np.diag(self.covariance[:depth, depth:])
        # Beyond e^10 an interval says nothing.
        reach = np.exp(np.minimum(q * self.alpha_std_error / self.alpha, 10))
        low, high = self.alpha / reach, self.alpha * reach
        of_alpha = np.maximum(variance[:depth], 0)
        b = np.divide(together, of_alpha, out=np.zeros(depth), where=of_alpha > 0)
        rest = np.maximum(variance[depth:] - b * together, 0)
        ends = np.sort([b * (low - self.alpha), b * (high - self.alpha)], axis=0)
        below, above = np.sqrt(ends**2 + q**2 * rest)
        return CurveIntervals(low, high, self.beta - below, self.beta + above)

    def anchored(self, anchor: TrustAnchor) -> "AffineCurves":
        """The same clicks on another scale of relevance; nothing is fitted again."""
        anchor.check(self.depth)
        alpha, beta = re_anchored(self.alpha, self.beta, anchor)
        jacobian = anchor_jacobian(self.alpha, self.beta, anchor)
        return AffineCurves(alpha, beta, jacobian @ self.covariance @ jacobian.T, anchor)

    def relative(self) -> "AffineCurves":
        """What clicks identify without any scale: alpha is slope, beta is shift.

        P(click at k) = slope_k P(click at 1) + shift_k; without trust bias all shifts are 0.
        """
        return self.anchored(TrustAnchor(relevant=1.0, irrelevant=0.0, position=1))

    lines = relative  # its former name

    def __repr__(self) -> str:
        where = self.anchor
        lines = [
            f"AffineCurves, scale by position {where.position}: relevant clicked "
            f"{where.relevant:.4f}, irrelevant {where.irrelevant:.4f}"
        ]
        columns = (self.alpha, self.alpha_std_error, self.beta, self.beta_std_error)
        for k, (alpha, alpha_error, beta, beta_error) in enumerate(zip(*columns, strict=True), 1):
            lines.append(
                f"  {k:>3}  alpha {alpha:.4f} +- {alpha_error:.4f}  "
                f"beta {beta:.4f} +- {beta_error:.4f}"
            )
        return "\n".join(lines)


def re_anchored(
    alpha: FloatArray, beta: FloatArray, anchor: TrustAnchor
) -> tuple[FloatArray, FloatArray]:
    """(alpha, beta) moved to the scale of an anchor."""
    r = anchor.position - 1
    slope = alpha / alpha[r]
    return (
        slope * (anchor.relevant - anchor.irrelevant),
        beta + slope * (anchor.irrelevant - beta[r]),
    )


def anchor_jacobian(alpha: FloatArray, beta: FloatArray, anchor: TrustAnchor) -> FloatArray:
    """(2K, 2K) derivatives of `re_anchored` by (alpha, beta)."""
    depth, r = len(alpha), anchor.position - 1
    slope = alpha / alpha[r]
    d_slope = np.eye(depth) / alpha[r]
    d_slope[:, r] -= slope / alpha[r]
    d_beta = np.eye(depth)
    d_beta[:, r] -= slope
    return np.block(
        [
            [(anchor.relevant - anchor.irrelevant) * d_slope, np.zeros((depth, depth))],
            [(anchor.irrelevant - beta[r]) * d_slope, d_beta],
        ]
    )
