r"""Intervals and standard errors. Queries, not sessions, are the independent units.

Traffic is uneven: a few queries can have most of the sessions. An error from squared residuals is
then too small (a large unit pulls the estimate towards itself), and n - 1 degrees of freedom are
far too many. Three pieces repair that, here and wherever units are queries:

    jackknife_error      what leaving each unit out does to the estimate, in closed form
    effective_units      (sum w)^2 / sum w^2, as many units of equal weight would tell as much
    MeanEstimate         Student's t with effective - 1 degrees of freedom

Coverage of the nominal 95% for a mean over 500 units with Zipf weights of exponent 1.0 / 1.3 / 1.6
(normal units, 1000 draws each): residuals and n - 1 degrees of freedom .92 / .85 / .73, these
pieces .96 / .97 / .96. Roads not taken: effective numbers of squared weights, (sum w^2)^2 /
sum w^4, and Bell and McCaffrey's degrees of freedom for units that differ ([bell2002]_) cover
.998 and more with intervals twice to five times as wide; those from observed squares are many
just when the largest unit happens to lie near the mean. A skewed distribution of few units is
still covered too rarely (.89 with 20 equal units of exponentials, every other one 0).
References: [cameron2015]_, [mackinnon2023]_, [carter2017]_.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special  # not scipy.stats: that is half a second more at every import

from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.random import Seed, generator
from untilt.catalog import storable
from untilt.errors import OptionError


@storable
@dataclass(frozen=True)
class Interval:
    """A confidence interval at a stated level."""

    low: float
    high: float
    level: float = 0.95

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def hull(self, other: "Interval") -> "Interval":
        """The shortest interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high), self.level)

    def __repr__(self) -> str:
        return f"{self:.4g}"

    def __format__(self, spec: str) -> str:
        return f"[{self.low:{spec}}, {self.high:{spec}}]" if spec else repr(self)


def normal_quantile(level: float) -> float:
    """z with P(|Z| <= z) = level."""
    check_level(level)
    return float(special.ndtri(0.5 + level / 2))


def student_quantile(level: float, degrees_of_freedom: float) -> float:
    """t with P(|T| <= t) = level."""
    check_level(level)
    return float(special.stdtrit(degrees_of_freedom, 0.5 + level / 2))


def check_level(level: float) -> None:
    """Raise unless `level` can be the level of an interval."""
    if not 0 < level < 1:
        raise OptionError(f"level must lie between 0 and 1. Got {level} instead; 0.95 is usual.")


def wilson_interval(
    successes: FloatArray | IntArray, trials: FloatArray | IntArray, level: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Wilson's interval for a proportion ([wilson1927]_), right near 0 and 1.

    (0, 1) where nothing was tried.
    """
    z = normal_quantile(level)
    n = np.asarray(trials, dtype=float)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.asarray(successes, dtype=float) / n
        centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)
    return np.where(n > 0, low, 0.0), np.where(n > 0, high, 1.0)


def effective_units(weights: FloatArray | IntArray) -> float:
    """(sum w)^2 / sum w^2: as many units of equal weight tell as much; n where all are equal.

    >>> effective_units(np.array([1.0, 1.0, 1.0, 1.0])), effective_units(np.array([97, 1, 1, 1]))
    (4.0, 1.062473438164046)
    """
    w = np.asarray(weights, dtype=float)
    squares = float(np.sum(w**2))
    return float(np.sum(w)) ** 2 / squares if squares > 0 else 0.0


def jackknife_error(influence: FloatArray, leverage: FloatArray | None = None) -> FloatArray:
    r"""sqrt((n-1)/n sum_u (influence_u / (1 - h_u))^2) of each column; NaN from a single unit.

    `influence` is what each unit adds to the estimate's deviation, (w_u / sum w) (x_u - mean) for a
    weighted mean, and h_u the leverage, w_u / sum w: without unit u the estimate moves by
    -influence_u / (1 - h_u) exactly. That is the jackknife (CR3) error of [mackinnon2023]_; with
    h_u = 1/n it is the textbook's s / sqrt(n).

    Parameters
    ----------
    influence : (units,) or (units, estimates)
    leverage : (units,) below 1 and 1 in sum, or (units, estimates); 1/n each where not given
    """
    n = len(influence)
    if n < 2:
        return np.full(np.shape(influence)[1:], np.nan)
    h = np.full(n, 1 / n) if leverage is None else np.asarray(leverage, dtype=float)
    if h.ndim < influence.ndim:
        h = h[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        # A unit with all of the weight (h = 1) has influence 0, and nothing without it: NaN.
        moved = influence / (1 - h)
    return np.asarray(np.sqrt((n - 1) / n * np.sum(moved**2, axis=0)))


def left_out(unit: IntArray, influence: FloatArray, leverage: FloatArray) -> FloatArray:
    """(units,) what an estimate loses without each unit, from influence and leverage of its parts.

    unit, influence, leverage : (n,) as in `jackknife_error`, units numbered from 0
    """
    return sum_by(unit, influence) / np.maximum(1 - sum_by(unit, leverage), 1e-9)


def two_way_variance(
    by_query: npt.ArrayLike, by_person: npt.ArrayLike, by_both: npt.ArrayLike
) -> FloatArray:
    r"""Clustered by query and by person ([cameron2011multiway]_), from sums of squared influences.

        V = sum_q I_q^2 + sum_u I_u^2 - sum_uq I_uq^2

    I_q, I_u and I_uq are what a query, a person, and the sessions of a person on a query do to the
    estimate. The sums are noisy, and V may even be below 0: so it is at least the larger of the
    first two. As degrees of freedom the smaller number of effective units counts, less one.
    """
    both_ways = np.subtract(np.add(by_query, by_person), by_both)
    return np.maximum(both_ways, np.maximum(by_query, by_person))


def joint_degrees_of_freedom(errors: FloatArray, degrees: FloatArray) -> float:
    r"""Of a sum of independent parts (Satterthwaite): (sum s^2)^2 / sum (s^4 / df).

    errors, degrees : (parts,) standard errors s and their degrees of freedom; inf for a known one
    """
    s2 = np.asarray(errors, dtype=float) ** 2
    spread = float(np.sum(s2**2 / degrees))
    return float(np.sum(s2)) ** 2 / spread if spread > 0 else float(np.max(degrees))


@storable
@dataclass(frozen=True)
class MeanEstimate:
    """A weighted mean over independent units, with its standard error.

    `effective` : as many units of equal weight would tell as much; n where not given.
    """

    value: float
    std_error: float
    n: int
    effective: float = float("nan")

    def __post_init__(self) -> None:
        if np.isnan(self.effective):
            object.__setattr__(self, "effective", float(self.n))

    @property
    def degrees_of_freedom(self) -> float:
        """effective - 1, of Student's t; at least 1."""
        return max(self.effective - 1, 1.0)

    def interval(self, level: float = 0.95) -> Interval:
        """Student's t interval; the whole line from a single unit."""
        check_level(level)
        if self.n < 2 or not np.isfinite(self.std_error):
            return Interval(-np.inf, np.inf, level)
        half = student_quantile(level, self.degrees_of_freedom) * self.std_error
        return Interval(self.value - half, self.value + half, level)

    @property
    def p_value(self) -> float:
        """Of the hypothesis that the mean is 0, two-sided; NaN from a single unit."""
        if self.n < 2 or not np.isfinite(self.std_error):
            return float("nan")
        if self.std_error == 0:
            return 1.0 if self.value == 0 else 0.0
        return float(2 * special.stdtr(self.degrees_of_freedom, -abs(self.value / self.std_error)))

    def __repr__(self) -> str:
        return f"{self.value:.4f} +- {self.std_error:.4f}"


def weighted_mean(
    values: FloatArray, weights: FloatArray | None = None, *, units: IntArray | None = None
) -> MeanEstimate:
    """Weighted mean, its jackknife error and effective number from independent units.

    With equal weights and a unit per value the error is the textbook s/sqrt(n). Values of weight 0
    do not count.

    Parameters
    ----------
    values, weights : (n,)
    units : (n,) which unit each value belongs to (the query of a list, say), 0, 1, ...;
        each value is its own where not given
    """
    x = np.asarray(values, dtype=float)
    w = np.ones_like(x) if weights is None else np.asarray(weights, dtype=float)
    used = w > 0
    x, w = x[used], w[used]
    if len(x) == 0:
        return MeanEstimate(float("nan"), float("nan"), 0)
    total = w.sum()
    mean = float(np.dot(w, x) / total)
    influence: FloatArray = w * (x - mean) / total
    if units is not None:
        unit = np.unique(np.asarray(units)[used], return_inverse=True)[1]
        influence, w = sum_by(unit, influence), sum_by(unit, w)
    error = float(jackknife_error(influence, w / total))
    return MeanEstimate(mean, error, len(w), effective_units(w))


def holm(p_values: FloatArray) -> FloatArray:
    """p-values that take their number into account by Holm's steps [holm1979]_; NaN stays NaN."""
    m = len(p_values)
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(m)
    corrected[order] = np.maximum.accumulate(p_values[order] * (m - np.arange(m)))
    return np.minimum(1.0, corrected)


def bootstrap_weights(n_units: int, n_draws: int, seed: Seed) -> IntArray:
    """How often each unit is drawn in each bootstrap sample, shape (n_draws, n_units)."""
    rng = generator(seed)
    return rng.multinomial(n_units, np.full(n_units, 1 / n_units), size=n_draws)


# The error at which intervals for any time are tightest: a logarithm known to 40%.
TIGHTEST_AT = 0.1


def any_time_factor(error: FloatArray, level: float) -> FloatArray:
    r"""How much wider than normal an interval is that may be watched while sessions come in.

    Robbins' normal mixture ([robbins1970]_), as an asymptotic confidence sequence
    ([waudbysmith2024]_): with v the variance now, v_0 = 8 `TIGHTEST_AT`^2 and r = v_0 / v,

        |z - truth| <= sqrt(v (1 + 1/r) (log(1 + r) + 2 log(1 / (1 - level))))

    at all times at once, with probability `level`. Any v_0 that does not depend on the data will
    do; the sequence is tightest about where v is an eighth of it, 1.55 times as wide as an interval
    for one look.
    """
    r = 8 * TIGHTEST_AT**2 / np.maximum(error, 1e-12) ** 2
    reach = np.sqrt((1 + 1 / r) * (np.log1p(r) + 2 * np.log(1 / (1 - level))))
    return np.where(error > 0, reach / normal_quantile(level), 1.0)


def any_time_p_value(value: float, error: float) -> float:
    """The smallest 1 - level at which the interval for any time leaves 0 out; 1 where none does."""
    if not (np.isfinite(value) and error > 0):
        return float("nan")
    r = 8 * TIGHTEST_AT**2 / error**2
    return float(min(1.0, np.exp(-0.5 * ((value / error) ** 2 / (1 + 1 / r) - np.log1p(r)))))


def any_time_share(wins: int, losses: int, level: float) -> tuple[Interval, float]:
    r"""An interval of a probability that holds at every look, and the p-value of 1/2.

    The mixture of all probabilities p over that of one of them is a martingale under it,

        M(p) = B(wins + 1, losses + 1) / (p^wins (1 - p)^losses),

    and stays below 1 / (1 - level) for ever with probability `level` (Ville; [robbins1970]_).
    The interval holds those p with M(p) below; the p-value is 1 / M(1/2).
    """
    check_level(level)
    mixture = special.betaln(wins + 1, losses + 1)
    most = -np.log1p(-level)

    def beyond(p: float) -> float:
        return float(mixture - special.xlogy(wins, p) - special.xlogy(losses, 1 - p) - most)

    def end(inside: float, outside: float) -> float:
        if beyond(outside) <= 0:
            return outside
        for _ in range(60):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if beyond(middle) <= 0 else (inside, middle)
        return inside

    share = wins / (wins + losses) if wins + losses else 0.5
    p_value = min(1.0, float(np.exp(-(beyond(0.5) + most))))
    return Interval(end(share, 0.0), end(share, 1.0), level), p_value
