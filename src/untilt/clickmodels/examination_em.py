"""EM for P(click) = theta_place gamma_document on counted cells: PBM and UBM share it.

A *place* is a position (PBM), or a position with the distance to the last click above it (UBM).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numba as nb
import numpy as np
from scipy.sparse.csgraph import connected_components

from untilt._core.arrays import BoolArray, FloatArray, IntArray, handed_over
from untilt._core.em import EMResult, run_em
from untilt.bias.curve import PositionBias
from untilt.bias.harvesting.pairs import Doubt, larger, sandwich
from untilt.clickmodels.base import HIGH, LOW, ClickModel, Smoothing, mean_rate
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, counts_from_rows
from untilt.errors import IdentifiabilityError

BLOCKS = 16  # sums are taken block by block: the same result whatever the number of threads
# Cells from which threads pay: on a busy machine waking them costs 5 ms, and so many cells 6 ms.
WORTH_THREADS = 500_000
FIRST_ROUND = 60  # steps that find the reference place and the prior mean


class PlaceState(NamedTuple):
    """theta : (places,); gamma : (shown documents,)."""

    theta: FloatArray
    gamma: FloatArray


@dataclass(frozen=True, eq=False)
class PlaceFit:
    """theta (places,; NaN where never shown), gamma by shown document, and how EM ended."""

    theta: FloatArray
    gamma: FloatArray
    prior_mean: float
    em: EMResult[PlaceState]


def place_cells(log: ClickLog, place: IntArray, n_places: int) -> PositionCounts:
    """Clicks and impressions per (document, place), documents in the order of their queries.

    `place` is 0-based; the cells' `position` is place + 1.
    """
    by_query = np.argsort(log.doc_query, kind="stable")
    rank = np.empty(log.n_documents, dtype=np.int64)
    rank[by_query] = np.arange(log.n_documents)
    found = counts_from_rows(
        rank[log.document],
        (place + 1).astype(np.int32),
        log.row_count,
        log.label,
        log.n_documents,
        n_places,
    )
    document = by_query[found.document]
    return PositionCounts(
        indptr=found.indptr,
        query=log.doc_query[document],
        document=document,
        position=found.position,
        impressions=found.impressions,
        clicks=found.clicks,
        depth=n_places,
    )


def fit_places(
    cells: PositionCounts, *, prior_strength: float, tolerance: float, max_steps: int, what: str
) -> PlaceFit:
    """Maximise the likelihood of the cells times the prior of gamma.

    theta and gamma share a scale that clicks do not tell: c theta and gamma / c predict the same.
    A first round without a prior finds the shape; then the most examined place is held at
    theta = 1, and the prior has its mean where the mean of gamma is on that scale.
    """
    sums = _Sums.of(cells)
    flat = Smoothing(0.0, 0.5)
    rough = run_em(
        _start(cells, sums),
        _Step(cells, sums, flat, reference=-1),
        tolerance=10 * tolerance,
        max_steps=min(FIRST_ROUND, max_steps),
        accelerate=True,
        low=LOW,
        high=HIGH,
        what=f"{what}, first round",
    ).state
    reference = _reference(rough.theta, sums.shown)
    start = _rescaled(rough, reference)
    prior = Smoothing(prior_strength, mean_rate(start.gamma, sums.seen, prior_strength))
    em = run_em(
        start,
        _Step(cells, sums, prior, reference),
        tolerance=tolerance,
        max_steps=max_steps,
        accelerate=True,
        low=LOW,
        high=HIGH,
        what=what,
    )
    theta = np.where(sums.shown > 0, em.state.theta, np.nan)
    return PlaceFit(theta, em.state.gamma, prior.mean, em)


@dataclass(frozen=True, eq=False)
class _Sums:
    """Impressions and clicks by place and by document."""

    shown: FloatArray
    seen: FloatArray
    clicks_by_place: FloatArray
    clicks_by_document: FloatArray

    @classmethod
    def of(cls, cells: PositionCounts) -> "_Sums":
        start = cells.indptr[:-1]
        return cls(
            cells.by_position(cells.impressions),
            np.add.reduceat(cells.impressions, start),
            cells.by_position(cells.clicks),
            np.add.reduceat(cells.clicks, start),
        )


@dataclass(frozen=True, eq=False)
class _Step:
    """One E and M step.

    P(e=1 | c=0) = theta (1 - gamma) / (1 - theta gamma),
    P(r=1 | c=0) = gamma (1 - theta) / (1 - theta gamma).
    """

    cells: PositionCounts
    sums: _Sums
    prior: Smoothing
    reference: int

    def __call__(self, state: PlaceState) -> tuple[PlaceState, float]:
        examined, relevant, likelihood = _e_step(
            self.cells, self.sums.clicks_by_place, self.sums.clicks_by_document, state
        )
        theta = Smoothing(0.0, 0.5).rate(examined, self.sums.shown)
        if self.reference >= 0:
            theta[self.reference] = HIGH
        gamma = self.prior.rate(relevant, self.sums.seen)
        density = self.prior.log_density(state.gamma)
        return PlaceState(theta, gamma), likelihood + density


def _start(cells: PositionCounts, sums: _Sums) -> PlaceState:
    """theta by the click rates of places, gamma by what is then left for documents."""
    shown = sums.shown
    rate = np.divide(sums.clicks_by_place, shown, out=np.full(len(shown), 0.0), where=shown > 0)
    theta = np.clip(rate / max(rate[_reference(rate, shown)], LOW), 0.01, 0.99)
    expected = np.add.reduceat(theta[cells.position - 1] * cells.impressions, cells.indptr[:-1])
    gamma = (sums.clicks_by_document + 0.1) / (expected + 0.2)
    return PlaceState(theta, np.clip(gamma, 0.01, 0.99))


def _reference(theta: FloatArray, shown: FloatArray) -> int:
    """The most examined place of those with at least 1% of the impressions of the largest."""
    return int(np.argmax(np.where(shown >= 0.01 * shown.max(), theta, -1.0)))


def _rescaled(state: PlaceState, reference: int) -> PlaceState:
    scale = state.theta[reference]
    return PlaceState(
        np.clip(state.theta / scale, LOW, HIGH), np.clip(state.gamma * scale, LOW, HIGH)
    )


def _e_step(
    cells: PositionCounts, by_place: FloatArray, by_document: FloatArray, state: PlaceState
) -> tuple[FloatArray, FloatArray, float]:
    """Expected examinations by place, expected relevance by document, log-likelihood.

    by_place, by_document : sums of clicks
    """
    relevant = np.empty(len(cells.indptr) - 1)
    examined, likelihood = np.zeros((BLOCKS, len(state.theta))), np.zeros(BLOCKS)
    kernel = _all_blocks if cells.n_cells >= WORTH_THREADS else _each_block
    kernel(
        cells.indptr,
        cells.position,
        cells.impressions,
        cells.clicks,
        *state,
        examined,
        relevant,
        likelihood,
    )
    # Of clicks, log(theta gamma) is two sums: one by place, one by document.
    # Not np.dot, whose threads cost more than this sum.
    clicked = np.sum(by_place * np.log(state.theta)) + np.sum(by_document * np.log(state.gamma))
    return examined.sum(axis=0), relevant, float(likelihood.sum() + clicked)


@nb.njit(cache=True)
def _block(
    block: int,
    indptr: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    theta: FloatArray,
    gamma: FloatArray,
    examined: FloatArray,
    relevant: FloatArray,
    likelihood: FloatArray,
) -> None:
    n_documents = len(indptr) - 1
    total = 0.0
    for d in range(block * n_documents // BLOCKS, (block + 1) * n_documents // BLOCKS):
        g = gamma[d]
        x = 0.0
        for cell in range(indptr[d], indptr[d + 1]):
            place = position[cell] - 1
            t, c = theta[place], clicks[cell]
            rest = impressions[cell] - c
            miss = 1.0 - t * g
            share = rest / miss
            examined[block, place] += c + share * t * (1.0 - g)
            x += c + share * g * (1.0 - t)
            if rest > 0:
                total += rest * np.log(miss)
        relevant[d] = x
    likelihood[block] = total


@nb.njit(cache=True)
def _each_block(
    indptr: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    theta: FloatArray,
    gamma: FloatArray,
    examined: FloatArray,
    relevant: FloatArray,
    likelihood: FloatArray,
) -> None:
    for b in range(BLOCKS):
        _block(
            b, indptr, position, impressions, clicks, theta, gamma, examined, relevant, likelihood
        )


@nb.njit(parallel=True, cache=True)
def _all_blocks(
    indptr: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    theta: FloatArray,
    gamma: FloatArray,
    examined: FloatArray,
    relevant: FloatArray,
    likelihood: FloatArray,
) -> None:
    for b in nb.prange(BLOCKS):
        _block(
            b, indptr, position, impressions, clicks, theta, gamma, examined, relevant, likelihood
        )


# Standard errors of examination in models with P(click) = theta_place gamma_document.
#
# With a = log theta and b = log gamma, a cell of n impressions and c clicks has the score
# u = (c - n p) / (1 - p) and the information w = n p / (1 - p), p = theta gamma. Taking the
# documents out (Schur complement) leaves on a
#
#     J = diag(sum_d w_d) - sum_d w_d w_d' / (1' w_d)
#
# a Laplacian: documents are wires between the places where they were shown, and only ratios have a
# finite error. The scores of a query with the documents taken out are
# s_q = sum_{d in q} (u_d - w_d (1' u_d) / (1' w_d)). Errors are the larger of J^-1, right if the
# model is, and J^-1 (sum_q s_q s_q') J^-1, clustered by query.


def doubt_of_places(cells: PositionCounts, theta: FloatArray, gamma: FloatArray) -> Doubt:
    """Covariance of log theta with place 0 held fixed, for cells whose places are all joined."""
    conductance, M = _information(
        cells.indptr,
        cells.query,
        cells.position,
        cells.impressions,
        cells.clicks,
        theta,
        gamma,
    )
    laplacian = np.diag(conductance.sum(axis=1)) - conductance
    return larger(
        sandwich(conductance, M),
        len(np.unique(cells.query)),
        sandwich(conductance, laplacian),
    )


def joined_to_first(cells: PositionCounts) -> BoolArray:
    """(places,) whether a place shares clicked documents, over any others, with place 0."""
    clicked = np.repeat(np.add.reduceat(cells.clicks, cells.indptr[:-1]) > 0, np.diff(cells.indptr))
    first = np.repeat(cells.position[cells.indptr[:-1]] - 1, np.diff(cells.indptr))
    graph = np.zeros((cells.depth, cells.depth))
    graph[first[clicked], cells.position[clicked] - 1] = 1
    _, label = connected_components(graph, directed=False)
    has_clicks = cells.by_position(cells.clicks) > 0
    return (label == label[0]) & has_clicks


@nb.njit(cache=True)
def _information(
    indptr: IntArray,
    query: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    theta: FloatArray,
    gamma: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Conductances between places, and the sum over queries of s_q s_q'."""
    n_places = len(theta)
    conductance = np.zeros((n_places, n_places))
    M = np.zeros((n_places, n_places))
    score = np.zeros(n_places)
    w, u = np.zeros(n_places), np.zeros(n_places)
    for d in range(len(indptr) - 1):
        all_w, all_u = 0.0, 0.0
        for cell in range(indptr[d], indptr[d + 1]):
            k = position[cell] - 1
            p = min(theta[k] * gamma[d], 1 - 1e-9)
            w[k] = impressions[cell] * p / (1 - p)
            u[k] = (clicks[cell] - impressions[cell] * p) / (1 - p)
            all_w += w[k]
            all_u += u[k]
        for cell in range(indptr[d], indptr[d + 1]):
            k = position[cell] - 1
            score[k] += u[k] - w[k] * all_u / all_w
            for other in range(indptr[d], indptr[d + 1]):
                j = position[other] - 1
                if j != k:
                    conductance[k, j] += w[k] * w[j] / all_w
        if d + 1 == len(indptr) - 1 or query[d + 1] != query[d]:
            for k in range(n_places):
                if score[k] != 0.0:
                    for j in range(n_places):
                        M[k, j] += score[k] * score[j]
            score[:] = 0.0
    return conductance, M


# What the models with P(click) = theta_place gamma_document share: `PBM` and `UBM`.


class PlaceModel(ClickModel):
    """Options, EM, and a curve over positions that the log may not be able to tell."""

    examination_: FloatArray
    em_: EMResult[PlaceState]
    _bias: PositionBias | IdentifiabilityError

    def __init__(
        self,
        *,
        prior_strength: float = 1.0,
        level: float = 0.95,
        tolerance: float = 1e-3,
        max_steps: int = 1000,
    ) -> None:
        self.prior_strength = prior_strength
        self.level = level
        self.tolerance = tolerance
        self.max_steps = max_steps

    @property
    def bias_(self) -> PositionBias:
        """The curve relative to position 1. Raises where the log cannot compare its positions."""
        if isinstance(self._bias, IdentifiabilityError):
            raise self._bias
        return self._bias

    def _fit_places(
        self, log: ClickLog, place: IntArray, n_places: int
    ) -> tuple[PositionCounts, PlaceFit]:
        """EM on clicks and impressions per (document, place); sets what documents have learned."""
        cells = place_cells(log, place, n_places)
        fit = fit_places(
            cells,
            prior_strength=self.prior_strength,
            tolerance=self.tolerance,
            max_steps=self.max_steps,
            what=type(self).__name__,
        )
        relevance = np.full(log.n_documents, fit.prior_mean)
        relevance[cells.document] = fit.gamma
        self.relevance_, self.prior_mean_ = handed_over(relevance), fit.prior_mean
        self.em_ = fit.em
        return cells, fit
