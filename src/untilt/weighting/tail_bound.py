"""How far chance alone can move a weighted pair loss: a tail bound before any training.

Chance is who looked and clicked; documents, lists and weights are held fixed, as in proposition 4.1
of [wang2020prs]_.
"""

from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from untilt._core.arrays import BoolArray, FloatArray, IntArray, frozen
from untilt._core.portable import Portable
from untilt._core.statistics import check_level
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, ShapeError
from untilt.weighting.base import JointWeighting, SessionWeighting, Weighting


def proposition_bound(
    table: npt.ArrayLike,
    theta: npt.ArrayLike,
    relevance: npt.ArrayLike,
    delta: npt.ArrayLike,
    *,
    level: float = 0.95,
) -> float:
    r"""Proposition 4.1 of [wang2020prs]_ as written, for one list whose relevance is known.

    .. math:: \frac{1}{N} \sqrt{\frac{\log(2/\xi)}{2} \sum_{i=1}^{N} \rho_i^2}, \quad
        \rho_i = \sum_{j: r_j = 0} W[k_i, k_j] \delta_{ij}, \quad \xi = 1 - level

    over the N relevant documents i, rho_i = 0 where theta is 1 (nothing is left to chance there).
    With W = theta_l/theta_k it is the bound of PRS, with 1/theta_k that of IPS, whose tau_i the
    paper sums over all unclicked documents.

    By Hoeffding's inequality it holds for the loss *over N*, a mean over the relevant documents,
    where equation 9 of the paper is a sum; and for losses without pairs of two relevant documents,
    which are no sum of independent terms. `tail_bound` holds for the loss as it is.

    Parameters
    ----------
    table, delta : (n, n) W and the pair losses, rows = the clicked document
    theta, relevance : (n,) examination, and 0 or 1
    """
    check_level(level)
    W, d = np.asarray(table, dtype=float), np.asarray(delta, dtype=float)
    o, r = np.asarray(theta, dtype=float), np.asarray(relevance)
    n = len(r)
    if not (W.shape == d.shape == (n, n) and o.shape == (n,)):
        raise ShapeError(
            f"table and delta must be square, with theta and relevance as long as they are. Got "
            f"shapes {W.shape}, {d.shape}, {o.shape} and {r.shape} instead."
        )
    relevant = r > 0
    if not relevant.any():
        return 0.0
    rho = np.where(relevant & (o < 1), (W * d) @ ~relevant, 0.0)
    return float(np.sqrt(np.log(2 / (1 - level)) / 2 * np.sum(rho**2)) / relevant.sum())


@dataclass(frozen=True, eq=False, repr=False)
class TailBound(Portable):
    """The weighted pair loss of a log per session, and how far it may be from its expectation.

    With probability `level` or more the loss lies within `bound` of its expectation; `relative` is
    the bound over the loss. `by_position` is the part of the squared bound that clicks at each
    position cause; what is large there is what a clip would lower.
    """

    weighting: str
    loss: float
    bound: float
    level: float
    n_sessions: int
    by_position: FloatArray

    @property
    def relative(self) -> float:
        """bound / loss; inf where no pair has a click."""
        return self.bound / self.loss if self.loss > 0 else float("inf")

    def __repr__(self) -> str:
        worst = int(np.argmax(self.by_position))
        return (
            f"{self.weighting}: loss {self.loss:.4g} per session, with {self.level:.0%} "
            f"probability within {self.bound:.3g} ({self.relative:.1%}) of its expectation over "
            f"{self.n_sessions:,} sessions; position {worst + 1} makes "
            f"{self.by_position[worst]:.0%} of it"
        )


def tail_bound(
    log: ClickLog,
    weighting: Weighting,
    *,
    scores: npt.ArrayLike | None = None,
    clickable: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> TailBound:
    r"""How far the weighted pair loss of a log may be from its expectation, whatever is relevant.

    Let L be the mean over S sessions of sum W[k_i, k_j] delta_ij, i clicked and j not. Clicks are
    independent, given the lists (the position-based model). One click more or less at document i
    moves the loss of its session by at most

    .. math:: b_i = \max(\sum_j W[k_i, k_j] \delta_{ij}, \; \sum_j W[k_j, k_i] \delta_{ji})

    (the first sum alone for weightings against all others), so by McDiarmid's inequality
    ([mcdiarmid1989]_)

    .. math:: P(|L - E L| \ge t) \le \xi, \quad
        t = \frac{1}{S} \sqrt{\frac{\log(2/\xi)}{2} \sum_{sessions} \sum_i b_i^2}

    Proposition 4.1 of [wang2020prs]_ is this idea for one list with known relevance
    (`untilt.weighting.tail_bound.proposition_bound`). The bound needs neither relevance nor a true
    curve and is loose: it takes every click for as uncertain as a coin. Compare weightings by
    `relative`: on simulated logs it was 2.5 to 5.5 times too wide. It says nothing of bias, nor of
    how queries differ. Of a weighting that pools sessions it is that of its table.

    Parameters
    ----------
    scores : (documents,) at which delta_ij = log(1 + exp(-(s_i - s_j))); 1 for every pair without
    clickable : (documents,) False for documents that cannot be clicked, such as irrelevant ones in
        a simulation; all can where not given
    level : 1 - xi
    """
    check_level(level)
    unknown = isinstance(weighting, JointWeighting | SessionWeighting)
    if unknown or not isinstance(weighting, Weighting):
        raise OptionError(
            "tail_bound needs a weighting whose table is known before training, such as "
            f"ut.PRS(bias). Got {weighting!r} instead."
        )
    if not log.is_binary:
        raise OptionError(
            "tail_bound is about clicks, but the log's label is not 0/1. Use "
            "⟦log.with_label(...) with a click column|--label NAME⟧."
        )
    s = _per_document(log, scores, "scores", float)
    may = _per_document(log, clickable, "clickable", bool)
    log, depth = log.collapse(), max(1, log.depth)
    loss, squares = np.zeros(1), np.zeros(depth)
    _sum_bounds(
        log.indptr, log.document, log.position - 1, log.sessions.astype(float), log.label,
        np.zeros(0) if s is None else s, np.zeros(0, dtype=bool) if may is None else may,
        weighting.table(depth), weighting.against == "all", loss, squares,
    )  # fmt: skip
    S, total = max(log.n_sessions, 1), float(squares.sum())
    return TailBound(
        weighting=type(weighting).__name__,
        loss=float(loss[0]) / S,
        bound=float(np.sqrt(np.log(2 / (1 - level)) / 2 * total)) / S,
        level=level,
        n_sessions=int(log.n_sessions),
        by_position=frozen(squares / total if total > 0 else squares),
    )


def _per_document(log: ClickLog, given: npt.ArrayLike | None, what: str, dtype: type) -> Any:
    if given is None:
        return None
    array: npt.NDArray[Any] = np.ascontiguousarray(given, dtype=dtype)
    if array.shape != (log.n_documents,):
        raise ShapeError(
            f"{what} must have one entry for each of the {log.n_documents:,} documents of the log. "
            f"Got shape {array.shape} instead."
        )
    return array


@nb.njit(cache=True)
def _sum_bounds(
    indptr: IntArray, document: IntArray, position_index: IntArray, count: FloatArray,
    label: FloatArray, scores: FloatArray, clickable: BoolArray, table: FloatArray,
    against_all: bool, loss: FloatArray, squares: FloatArray,
) -> None:  # fmt: skip
    """Add up the loss, and b_i^2 by position."""
    for u in range(len(indptr) - 1):
        for i in range(indptr[u], indptr[u + 1]):
            k = position_index[i]
            won, lost = 0.0, 0.0
            for j in range(indptr[u], indptr[u + 1]):
                if i == j:
                    continue
                l = position_index[j]  # noqa: E741  the formula's symbol
                d_ij, d_ji = 1.0, 1.0
                if len(scores):
                    x = scores[document[i]] - scores[document[j]]
                    d_ij = max(-x, 0.0) + np.log1p(np.exp(-abs(x)))
                    d_ji = d_ij + x
                won += table[k, l] * d_ij
                if len(clickable) == 0 or clickable[document[j]]:
                    lost += table[l, k] * d_ji
                if label[i] > 0 and (against_all or label[j] == 0):
                    loss[0] += count[u] * table[k, l] * d_ij
            if len(clickable) == 0 or clickable[document[i]]:
                b = won if against_all else max(won, lost)
                squares[k] += count[u] * b * b
