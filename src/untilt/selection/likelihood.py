"""Candidates judged by how likely their scores make the held-out clicks."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.statistics import MeanEstimate, weighted_mean
from untilt.bias.given import BiasLike
from untilt.data.clicklog import ClickLog
from untilt.rankers.click_likelihood import held_out_likelihood


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """Gain in log-likelihood over scores that say nothing, of each candidate.

    Parameters
    ----------
    gain : name -> (queries,) summed over the sessions of each query
    sessions : (queries,)
    """

    gain: Mapping[str, FloatArray]
    sessions: FloatArray

    def value(self, name: str) -> MeanEstimate:
        """Gain per session."""
        return weighted_mean(self.gain[name] / self.sessions, self.sessions)

    @property
    def order(self) -> tuple[str, ...]:
        """Names, best first."""
        return tuple(sorted(self.gain, key=lambda name: -float(np.sum(self.gain[name]))))

    @property
    def best(self) -> str:
        """The candidate that makes the clicks most likely."""
        return self.order[0]

    def to_best(self, name: str) -> MeanEstimate:
        """The gain per session minus that of the best, paired by query."""
        gap = self.gain[name] - self.gain[self.best]
        return weighted_mean(gap / self.sessions, self.sessions)

    def within_noise(self, level: float) -> tuple[str, ...]:
        """Candidates whose difference to the best may be 0."""
        others = (name for name in self.gain if name != self.best)
        return tuple(name for name in others if 0 in self.to_best(name).interval(level))


def likelihoods(
    valid: ClickLog, scores: Mapping[str, FloatArray], bias: BiasLike | None
) -> Likelihoods:
    """Judge scores, one per document of the held-out log."""
    judge = held_out_likelihood(valid, bias)
    shown = np.flatnonzero(np.bincount(valid.document, minlength=valid.n_documents) > 0)
    gain = {name: judge.per_query(score[shown]) for name, score in scores.items()}
    return Likelihoods(gain, judge.sessions)
