r"""What few sessions say about a document, drawn to the mean of all: how strongly, and to which.

Rates of documents differ; a document with x successes in n trials says more about itself the larger
n is. With rates from a Beta(m mu, m (1 - mu)) distribution the best guess is

    (x + m mu) / (n + m)

m pseudo trials with the mean rate. m and mu are properties of the log, so they are learned from it
(empirical Bayes): they maximise the likelihood of the counts with the rates integrated out,

    sum_d log B(x_d + m mu, n_d - x_d + m (1 - mu)) - log B(m mu, m (1 - mu))

the beta-binomial likelihood. Where trials are not observed (was the document looked at?) n_d is
their expected number, and need not be whole.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray
from untilt._core.ascent import EMResult, Step, run_em
from untilt.errors import OptionError

State = TypeVar("State")

# Probabilities of a fitted model stay off 0 and 1, where the logarithm of the likelihood ends.
LOW, HIGH = 1e-9, 1 - 1e-9
AUTO = "auto"
# Of m. Below, documents are as good as free; above, as good as equal.
WEAKEST, STRONGEST = 0.01, 1e4
# Documents from which every so-manieth is taken, in the order of their counts: two numbers are
# known to 1% from that many.
MOST_DOCUMENTS = 50_000
FEWEST_DOCUMENTS = 3  # with trials; of fewer nothing is learned about how rates differ


@dataclass(frozen=True)
class Smoothing:
    """`strength` m and `mean` mu of a prior; its rate is the mode under Beta(1 + m mu, 1 + ...).

    With m = 0 it is the plain rate x / n.
    """

    strength: float
    mean: float

    def rate(self, x: FloatArray, n: FloatArray) -> FloatArray:
        """(x + m mu) / (n + m), and mu where there is neither data nor strength."""
        total = n + self.strength
        with np.errstate(invalid="ignore", divide="ignore"):
            rate = np.where(total > 0, (x + self.strength * self.mean) / total, self.mean)
        return np.clip(rate, LOW, HIGH)

    def log_density(self, rate: FloatArray, seen: BoolArray | None = None) -> float:
        """Log of the prior of the documents seen (all where not given), without its constant."""
        if self.strength == 0:
            return 0.0
        p = rate if seen is None else rate[seen]
        return float(self.strength * np.sum(self.mean * np.log(p) + (1 - self.mean) * np.log1p(-p)))


def smoothing_of(
    x: FloatArray, n: FloatArray, strength: float | str, *, default: float = 0.5
) -> Smoothing:
    """The prior of these counts: of the given strength around their mean, or learned ("auto").

    x, n : (documents,) successes and trials; those without trials do not count
    default : the mean where nothing was tried
    """
    if isinstance(strength, str):
        return _most_likely(x, n, default)
    rate = np.divide(x, n, out=np.zeros(len(n)), where=n > 0)
    return Smoothing(strength, mean_rate(np.minimum(rate, 1), n, strength, default=default))


def mean_rate(rate: FloatArray, n: FloatArray, strength: float, *, default: float = 0.5) -> float:
    """Mean over documents with weights n / (n + m): one each, less where little was seen."""
    weight = np.divide(n, n + strength, out=np.zeros_like(rate), where=n > 0)
    total = float(weight.sum())
    mean = float(np.dot(weight, rate)) / total if total > 0 else default
    return float(np.clip(mean, LOW, HIGH))


def check_strength(strength: float | str) -> None:
    """Raise unless it is a number of impressions, or "auto"."""
    if strength == AUTO:
        return
    if isinstance(strength, str) or not 0 <= strength < np.inf:
        raise OptionError(
            f"prior_strength must be at least 0. Got {strength} instead; 0 turns smoothing off, "
            f"and {AUTO!r} learns it from the log."
        )


def fraction(x: float, n: float, default: float = 0.5) -> float:
    """x / n kept off 0 and 1, or a default where n is 0."""
    return float(np.clip(x / n, LOW, HIGH)) if n > 0 else default


def _most_likely(x: FloatArray, n: FloatArray, default: float) -> Smoothing:
    """m and mu of the highest beta-binomial likelihood."""
    from scipy.optimize import minimize  # a quarter of a second to import
    from scipy.special import expit, logit

    tried = n > 0
    x, n = x[tried], np.maximum(n, x)[tried]  # expected trials may be fewer than the successes
    if len(x) < FEWEST_DOCUMENTS or x.sum() == 0 or x.sum() == n.sum():
        return Smoothing(1.0, fraction(float(x.sum()), float(n.sum()), default))
    order = np.lexsort((x, n))[:: -(-len(x) // MOST_DOCUMENTS)]
    x, n = x[order], n[order]
    mean = fraction(float(x.sum()), float(n.sum()))
    found = minimize(
        _minus_log_likelihood,
        [np.log(2.0), logit(mean)],
        args=(x, n - x),
        jac=True,
        method="L-BFGS-B",
        bounds=[(np.log(WEAKEST), np.log(STRONGEST)), (logit(1e-6), logit(1 - 1e-6))],
        options={"ftol": 1e-14, "gtol": 1e-9 * max(1.0, len(x))},
    )
    return Smoothing(float(np.exp(found.x[0])), float(expit(found.x[1])))


def _minus_log_likelihood(
    point: FloatArray, x: FloatArray, rest: FloatArray
) -> tuple[float, FloatArray]:
    """At (log m, logit mu), with its slope."""
    from scipy.special import betaln, digamma, expit

    m, mu = float(np.exp(point[0])), float(expit(point[1]))
    a, b = m * mu, m * (1 - mu)
    value = np.sum(betaln(x + a, rest + b) - betaln(a, b))
    both = digamma(x + rest + m) - digamma(m)
    by_a = float(np.sum(digamma(x + a) - digamma(a) - both))
    by_b = float(np.sum(digamma(rest + b) - digamma(b) - both))
    slope = np.array([by_a * a + by_b * b, (by_a - by_b) * m * mu * (1 - mu)])
    return -float(value), -slope


def climb(
    start: State, step: Step[State], tolerance: float, max_steps: int, what: str
) -> EMResult[State]:
    """`run_em` of probabilities, with jumps ahead and within `LOW` and `HIGH`."""
    return run_em(
        start, step, tolerance=tolerance, max_steps=max_steps, accelerate=True, low=LOW, high=HIGH,
        what=what,
    )  # fmt: skip
