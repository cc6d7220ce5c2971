"""EM for P(click) = theta_place gamma_document on counted cells: PBM and UBM share it.

A *place* is a position (PBM), or a position with the distance to the last click above it (UBM).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt._core.em import EMResult, run_em
from untilt.bias.cells import Cells, cells_from_rows
from untilt.clickmodels.smoothing import HIGH, LOW, Smoothing, mean_rate
from untilt.logs.clicklog import ClickLog

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


def place_cells(log: ClickLog, place: IntArray, n_places: int) -> Cells:
    """Clicks and impressions per (document, place), documents in the order of their queries.

    `place` is 0-based; the cells' `position` is place + 1.
    """
    by_query = np.argsort(log.doc_query, kind="stable")
    rank = np.empty(log.n_documents, dtype=np.int64)
    rank[by_query] = np.arange(log.n_documents)
    found = cells_from_rows(
        rank[log.document],
        (place + 1).astype(np.int32),
        log.row_count,
        log.label,
        log.n_documents,
        n_places,
    )
    document = by_query[found.document]
    return Cells(
        indptr=found.indptr,
        query=log.doc_query[document],
        document=document,
        position=found.position,
        impressions=found.impressions,
        clicks=found.clicks,
        depth=n_places,
    )


def fit_places(
    cells: Cells, *, prior_strength: float, tolerance: float, max_steps: int, what: str
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
    def of(cls, cells: Cells) -> "_Sums":
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

    cells: Cells
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


def _start(cells: Cells, sums: _Sums) -> PlaceState:
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
    cells: Cells, by_place: FloatArray, by_document: FloatArray, state: PlaceState
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
