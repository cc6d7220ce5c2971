"""The doubling search for C ([mao_arxivlogs]_ section 5.2)."""

from dataclasses import dataclass

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray
from untilt._core.progress import progress
from untilt._core.random import Seed
from untilt.errors import OptionError, ShapeError
from untilt.logs.clicklog import ClickLog
from untilt.logs.judged import JudgedLists
from untilt.metrics.arp import ARP
from untilt.rankers.linear_model import row_table, row_units
from untilt.rankers.scaling import centred_scores
from untilt.rankers.svm_problem import SvmProblem
from untilt.rankers.training import TrainingLists
from untilt.weighting.base import theta_up_to

# One value that is no better may be noise; two in a row and the best is behind. Less than a
# ten-thousandth of a rank is no gain worth the ever longer fits of a larger C.
_PATIENCE = 2
_LEAST_GAIN = 1e-4
_MOST_DOUBLINGS = 30


@dataclass(frozen=True)
class Trial:
    """One C of the search: the average rank of validation positives, and the fit's duality gap."""

    C: float
    average_rank: float
    gap: float


def search_parts(
    data: ClickLog | JudgedLists,
    valid: ClickLog | JudgedLists | None,
    share: float,
    seed: Seed,
) -> tuple[ClickLog | JudgedLists, ClickLog | JudgedLists]:
    """What to train on and what to judge by: `valid`, or queries set aside."""
    if valid is not None:
        return data, valid
    if isinstance(data, JudgedLists):
        return data.split(1 - share, seed=seed)
    return data.split(1 - share, by="query", seed=seed)


def doubling_search(problem: SvmProblem, valid: TrainingLists) -> tuple[Trial, ...]:
    """Double C until the average rank of positives has not improved twice in a row.

    Below the first C every pair lies within the margin, so all smaller values give the same order;
    values that still give that order do not count as no better.
    """
    judge = _Judge(problem, valid)
    C = smallest_useful(problem)
    trials: list[Trial] = []
    with progress("searching for C") as advance:
        while len(trials) < _MOST_DOUBLINGS and not _is_over(trials):
            fit = problem.solve(C)
            trials.append(Trial(C, judge.average_rank(fit.solution.weights), fit.solution.gap))
            C *= 2
            advance()
    return tuple(trials)


def _is_over(trials: list[Trial]) -> bool:
    ranks = np.array([trial.average_rank for trial in trials])
    if np.all(ranks == ranks[:1]):
        return False
    better = ranks[1:] < np.minimum.accumulate(ranks)[:-1] - _LEAST_GAIN
    return len(better) >= _PATIENCE and not better[-_PATIENCE:].any()


def smallest_useful(problem: SvmProblem) -> float:
    """The largest power of 2 at which every pair is still within the margin.

    While all pairs are, the optimum is w = -C slope(0), so the order does not depend on C.
    """
    spread = float(np.ptp(problem.X.scores(problem.first_slope())))
    return float(2.0 ** np.floor(-np.log2(spread))) if spread > 0 else 1.0


class _Judge:
    """sum_i r_i rank_i / sum_i r_i over validation positives, r_i = clicks times W[k].

    The weights are the same for every C, or the averages would not compare.
    """

    def __init__(self, problem: SvmProblem, valid: TrainingLists) -> None:
        if valid.features.shape[1] != problem.X.n_features:
            raise ShapeError(
                f"the validation data must have the {problem.X.n_features} features of the "
                f"training data. Got {valid.features.shape[1]} instead."
            )
        self._scaling, self._features = problem.X.scaling, valid.features
        self._units = row_units(
            valid,
            validation_weight(problem, valid),
            gain="plain" if valid.judged else "linear",
            query_weight="sessions",
        )
        if len(self._units.row) == 0:
            raise OptionError(
                "C='search' found no click in a list of two or more documents of the validation "
                "data. Give fit(log, valid=...) more of it, or a number for C."
            )

    def average_rank(self, weights: FloatArray) -> float:
        units = self._units
        raw = self._scaling.to_raw(weights)
        scores = centred_scores(self._features, raw, self._scaling.mean)
        total = ragged.sums_by_list(units.indptr, units.weight)
        return ARP().mean(scores[units.row], units.weight, units.indptr, weights=total).value


def validation_weight(problem: SvmProblem, valid: TrainingLists) -> FloatArray:
    """W[k] for counting validation clicks: the weighting's own, else 1/theta_k, else 1.

    A joint weighting has no curve before a fit; the one it finds at C = 1 is taken.
    """
    depth = max(1, valid.depth)
    if valid.judged:
        return np.ones(depth)
    weighting = problem.weighting
    own = None if weighting.joint else row_table(weighting.table(depth))
    if own is not None:
        return own
    bias = problem.solve(1.0).bias if weighting.joint else weighting.position_bias
    return np.ones(depth) if bias is None else 1 / theta_up_to(bias, depth)
