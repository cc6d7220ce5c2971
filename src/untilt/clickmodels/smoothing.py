"""Smoothing of what few sessions say about a document."""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray
from untilt.errors import OptionError

# Probabilities of a fitted model stay off 0 and 1, where the logarithm of the likelihood ends.
LOW, HIGH = 1e-9, 1 - 1e-9


@dataclass(frozen=True)
class Smoothing:
    """`strength` impressions of pseudo data with the rate `mean`, added to every document.

    The rate of a document becomes (x + m mu) / (n + m): the mode under a
    Beta(1 + m mu, 1 + m (1 - mu)) prior. With m = 0 it is the plain rate x / n.
    """

    strength: float
    mean: float

    def rate(self, x: FloatArray, n: FloatArray) -> FloatArray:
        """(x + m mu) / (n + m), and mu where there is neither data nor strength."""
        total = n + self.strength
        with np.errstate(invalid="ignore"):
            rate = np.where(total > 0, (x + self.strength * self.mean) / total, self.mean)
        return np.clip(rate, LOW, HIGH)

    def log_density(self, rate: FloatArray, seen: BoolArray | None = None) -> float:
        """Log of the prior of the documents seen (all where not given), without its constant."""
        if self.strength == 0:
            return 0.0
        p = rate if seen is None else rate[seen]
        return float(self.strength * np.sum(self.mean * np.log(p) + (1 - self.mean) * np.log1p(-p)))

    def centred(self, rate: FloatArray, n: FloatArray) -> "Smoothing":
        """The same strength around the mean of these rates: see `mean_rate`."""
        return Smoothing(self.strength, mean_rate(rate, n, self.strength, default=self.mean))


def mean_rate(rate: FloatArray, n: FloatArray, strength: float, *, default: float = 0.5) -> float:
    """Mean over documents with weights n / (n + m): one each, less where little was seen."""
    weight = np.divide(n, n + strength, out=np.zeros_like(rate), where=n > 0)
    total = float(weight.sum())
    mean = float(np.dot(weight, rate)) / total if total > 0 else default
    return float(np.clip(mean, LOW, HIGH))


def smoothed_rates(x: FloatArray, n: FloatArray, strength: float) -> tuple[FloatArray, float]:
    """Counted rates smoothed towards their own mean, and that mean."""
    raw = np.divide(x, n, out=np.zeros(len(n)), where=n > 0)
    prior = Smoothing(strength, mean_rate(raw, n, strength))
    return prior.rate(x, n), prior.mean


def check_strength(strength: float) -> None:
    """Raise unless it is a number of impressions."""
    if not 0 <= strength < np.inf:
        raise OptionError(
            f"prior_strength must be at least 0. Got {strength} instead; 0 turns smoothing off."
        )
