"""Do two curves of position bias differ?"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from untilt._core.arrays import FloatArray, IntArray, handed_over
from untilt._core.statistics import check_level
from untilt.bias.curve import PositionBias
from untilt.bias.log_ratios import log_ratios
from untilt.errors import OptionError

# Directions with less than this share of the largest variance count as known exactly.
NO_VARIANCE = 1e-10


@dataclass(frozen=True, eq=False, repr=False)
class BiasComparison:
    """Two curves, ratio by ratio to position 1, and a test of the hypothesis that they are equal.

    Parameters
    ----------
    first, second : the methods that made them
    position : (K - 1,) positions 2..K that both cover
    difference : (K - 1,) log(theta_k / theta_1) of the first minus that of the second
    std_error : (K - 1,) of the difference
    p_values : (K - 1,) two-sided, each position by itself
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

    def __repr__(self) -> str:
        verdict = "may be the same" if self.equal else "differ"
        where = ", ".join(map(str, self.differing)) or "no single position"
        lines = [
            f"{self.first} and {self.second} {verdict}: chi-square {self.chi_square:.1f} on "
            f"{self.degrees_of_freedom} degrees of freedom, p {self.p_value:.2g}",
            f"  differing at {1 - self.level:.0%}: {where}",
        ]
        for k, gap, error, p in zip(
            self.position, self.difference, self.std_error, self.p_values, strict=True
        ):
            lines.append(
                f"  {k:>3}  ratio of the two {np.exp(gap):.3f}  log +- {error:.3f}  p {p:.2g}"
            )
        return "\n".join(lines)


def compare(first: PositionBias, second: PositionBias, *, level: float = 0.95) -> BiasComparison:
    """Test whether two curves have the same ratios to position 1.

    With d the difference of the log-ratios and V the sum of their covariances, d' V^-1 d is
    chi-square distributed with K - 1 degrees of freedom if the curves are equal. The two must come
    from different sessions: curves from the same log share its noise, and the test then calls them
    different too seldom. Click noise (eps+, eps-) is not compared.
    """
    check_level(level)
    if first.is_known and second.is_known:
        raise OptionError(
            "both curves are given without standard errors, so no test can tell chance from a "
            "difference. Compare an estimate with a given curve, or two estimates."
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
    p_values = _two_sided(d, error)
    return BiasComparison(
        first=first.method,
        second=second.method,
        position=handed_over(position),
        difference=handed_over(d),
        std_error=handed_over(error),
        p_values=handed_over(p_values),
        chi_square=chi_square,
        degrees_of_freedom=rank,
        p_value=float(special.chdtrc(rank, chi_square)) if rank else 1.0,
        differing=tuple(position[_holm(p_values, level)].tolist()),
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


def _two_sided(d: FloatArray, error: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.abs(d) / error
    return np.where(d == 0, 1.0, 2 * special.ndtr(-z))


def _holm(p_values: FloatArray, level: float) -> IntArray:
    """Indices of the hypotheses that Holm's step-down procedure rejects."""
    order = np.argsort(p_values)
    limit = (1 - level) / (len(p_values) - np.arange(len(p_values)))
    passed = np.cumprod(p_values[order] < limit).astype(bool)
    return np.sort(order[passed])
