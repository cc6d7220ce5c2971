r"""The propensity side of dual learning: slates with their clicks, and the curve that fits them.

Given a ranker's scores s, the propensity loss of [ai2018dla]_ is a softmax regression on positions,

    - sum over clicks of (gamma_1 / gamma_i) log( exp(z_k) / sum over the slate of exp(z_l) ),

convex in z = log theta. Where all slates have the same positions its minimum is theta_k
proportional to the weighted clicks at k.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt.bias.log_ratios import Uncertainty, larger_error
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.networks.mlp import normalised
from untilt.networks.training import Stopping
from untilt.rankers.learning_data import TrainingLists
from untilt.rankers.networks.model import Inputs, NetworkRanker, network_scores, stopping_for
from untilt.rankers.networks.neural_batches import content_hash
from untilt.rankers.validation import held_out_clicks, validation_for

# Where a position has no click; a curve must stay above 0.
FLOOR = 1e-6


@dataclass(frozen=True, eq=False)
class ClickedSlates:
    """Slates of two or more documents with a click, in an order of their own contents.

    Parameters
    ----------
    indptr, query : slates and the query of each
    row, place, clicks : per row: training row, 0-based position, clicks over all sessions
    """

    indptr: IntArray
    query: IntArray
    row: IntArray
    place: IntArray
    clicks: FloatArray
    depth: int

    def drawn(self, weight_of_query: FloatArray) -> "ClickedSlates":
        """The clicks of a query as often as it was drawn."""
        weight = np.repeat(weight_of_query[self.query], ragged.lengths(self.indptr))
        return replace(self, clicks=self.clicks * weight)


def clicked_slates(lists: TrainingLists) -> ClickedSlates:
    """Sum the clicks over the sessions of each slate: both losses are linear in them."""
    slate = np.unique(lists.slate_of_list, return_index=True, return_inverse=True)
    first, of_list = slate[1], slate[2]
    indptr = ragged.indptr_of(ragged.lengths(lists.indptr)[first])
    at = indptr[of_list][ragged.list_of_row(lists.indptr)] + ragged.place_in_list(lists.indptr)
    sessions = np.repeat(lists.count, ragged.lengths(lists.indptr))
    clicks = sum_by(at, sessions * lists.label, int(indptr[-1]))
    rows = ragged.rows_of_lists(lists.indptr, first)
    row, place = lists.document[rows], lists.position_index[rows]
    useful = (ragged.sums_by_list(indptr, clicks) > 0) & (ragged.lengths(indptr) > 1)
    order = np.lexsort((content_hash(indptr, row, place), lists.query[first]))
    order = order[useful[order]]
    kept = ragged.rows_of_lists(indptr, order)
    return ClickedSlates(
        indptr=ragged.indptr_of(ragged.lengths(indptr)[order]),
        query=lists.query[first][order],
        row=row[kept],
        place=place[kept],
        clicks=clicks[kept],
        depth=lists.depth,
    )


@dataclass(frozen=True, eq=False)
class Propensities:
    """z = log(theta / theta_1), its doubt, and the positions without a click."""

    z: FloatArray
    doubt: Uncertainty
    dead: BoolArray


def fit_propensities(
    slates: ClickedSlates, scores: FloatArray, largest_weight: float
) -> Propensities:
    """The minimum of the propensity loss with the ranker held fixed, and its doubt."""
    weighted = slates.clicks * relevance_ratio(slates, scores, largest_weight)
    theta = _softmax_regression(slates, weighted)
    dead = sum_by(slates.place, slates.clicks, slates.depth) == 0
    theta = np.where(dead, FLOOR, theta)
    return Propensities(np.log(theta / theta[0]), _doubt(slates, weighted, theta, dead), dead)


def relevance_ratio(slates: ClickedSlates, scores: FloatArray, largest_weight: float) -> FloatArray:
    """gamma_1 / gamma_i = exp(s_1 - s_i) of each row, at most `largest_weight`."""
    s = scores[slates.row]
    first = np.repeat(s[slates.indptr[:-1]], ragged.lengths(slates.indptr))
    return np.exp(np.minimum(first - s, min(np.log(largest_weight), 60.0)))


def _softmax_regression(slates: ClickedSlates, weighted: FloatArray) -> FloatArray:
    """theta by the fixed point theta_k = clicks_k / sum over slates with k of clicks / Z.

    Each step lowers the loss (it minimises a bound on it that touches at theta); with the same
    positions in all slates the first step is the minimum.
    """
    depth, which = slates.depth, ragged.list_of_row(slates.indptr)
    clicks = sum_by(slates.place, weighted, depth)
    per_slate = ragged.sums_by_list(slates.indptr, weighted)
    theta = np.ones(depth)
    for _ in range(1000):
        Z = ragged.sums_by_list(slates.indptr, theta[slates.place])
        share = (per_slate / Z)[which]
        chance = sum_by(slates.place, share, depth)
        new = np.maximum(clicks / np.maximum(chance, 1e-300), FLOOR)
        new /= new[0]
        settled = np.max(np.abs(np.log(new / theta))) < 1e-12
        theta = new
        if settled:
            break
    return theta


def _doubt(
    slates: ClickedSlates, weighted: FloatArray, theta: FloatArray, dead: BoolArray
) -> Uncertainty:
    """The sandwich H^-1 M H^-1 of the softmax regression, relevance taken as given.

    M sums outer products of the scores of queries, or of single clicks; see `larger_error`.
    """
    which, depth = ragged.list_of_row(slates.indptr), slates.depth
    per_slate = ragged.sums_by_list(slates.indptr, weighted)
    p = theta[slates.place]
    p = p / ragged.sums_by_list(slates.indptr, p)[which]
    P = np.zeros((len(per_slate), depth))
    P[which, slates.place] = p
    H = np.diag(per_slate @ P) - (P * per_slate[:, None]).T @ P
    score = np.zeros((int(slates.query.max()) + 1, depth))
    np.add.at(score, (slates.query[which], slates.place), weighted - per_slate[which] * p)
    score = score[np.unique(slates.query)]
    # One click of weight w at k has the score w (e_k - p): its square, summed over clicks.
    square = np.divide(weighted**2, slates.clicks, out=np.zeros_like(weighted), where=weighted > 0)
    by_slate = ragged.sums_by_list(slates.indptr, square)
    Q = np.zeros_like(P)
    Q[which, slates.place] = square
    noise = np.diag(Q.sum(axis=0)) - Q.T @ P - P.T @ Q + (P * by_slate[:, None]).T @ P
    alive = np.flatnonzero(~dead)[1:]
    by_query, by_click = (_sandwich(H, M, alive) for M in (score.T @ score, noise))
    return larger_error(by_query, len(score), by_click)


def _sandwich(H: FloatArray, M: FloatArray, free: IntArray) -> FloatArray:
    covariance = np.zeros_like(M)
    inverse = np.linalg.pinv(H[np.ix_(free, free)])
    covariance[np.ix_(free, free)] = inverse @ M[np.ix_(free, free)] @ inverse
    return covariance


# Judging dual learning while it trains: held-out clicks are weighted by the curve of the hour.


def dual_stopping(
    valid: ClickLog | JudgedLists | None, inputs: Inputs, ranker: NetworkRanker
) -> Stopping | None:
    """NDCG@10 on judged lists; on a log, DCG@10 per propensity-weighted click.

    The propensities are those learned so far. Per click, because a steeper curve makes every
    weight larger, and with it a plain sum.
    """
    validation = validation_for(valid, None, ranker.early_stopping)
    if validation is None:
        return None
    plain = stopping_for(validation, inputs, ranker.transform, ranker.activation, "ranker")
    if not isinstance(valid, ClickLog):
        return plain
    log: ClickLog = valid

    def value(params: Any) -> float:
        z = np.asarray(params["propensity"], dtype=float)
        depth = max(log.depth, len(z))
        # Positions below those trained on count as the last one.
        theta = np.exp(np.pad(z - z[0], (0, depth - len(z)), mode="edge"))
        clicks = held_out_clicks(log, theta)
        features = normalised(clicks.features, inputs.mean, inputs.scale, ranker.transform)
        scores = network_scores(params["ranker"], features, ranker.activation)
        return float(np.sum(clicks.per_query(scores)) / np.sum(clicks.credit))

    return Stopping(value, validation.rounds)
