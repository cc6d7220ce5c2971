"""EM for P(click) = theta_i gamma_d on counted cells, and standard errors of theta: PBM and UBM.

The *condition* i of an impression is what examination depends on: the position (PBM), or the
position and the last click above it (UBM). Counts of clicks and impressions per (document,
condition) are sufficient; they are kept as `PositionCounts` whose positions are the conditions.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.em import EMResult, Step, run_em
from untilt._core.threads import Share, parallel_kernel
from untilt.catalog import storable
from untilt.clickmodels.smoothing import HIGH, LOW, Smoothing, mean_rate, smoothing_of
from untilt.data.counts import Cells, PositionCounts

BLOCKS = 16  # sums are taken block by block: the same result whatever the number of threads
FIRST_ROUND = 60  # steps that find the reference condition and the prior mean


@storable
class ExaminationState(NamedTuple):
    """theta : (conditions,); gamma : (shown documents,)."""

    theta: FloatArray
    gamma: FloatArray


@dataclass(frozen=True, eq=False)
class ExaminationFit:
    """theta (conditions,; NaN where never shown), gamma by shown document, and how EM ended."""

    theta: FloatArray
    gamma: FloatArray
    prior: Smoothing
    em: EMResult[ExaminationState]


def fit_examination(
    counts: PositionCounts,
    *,
    prior_strength: float | str,
    tolerance: float,
    max_steps: int,
    what: str,
) -> ExaminationFit:
    """Maximise the likelihood of the counts times the prior of gamma.

    theta and gamma share a scale that clicks do not tell: c theta and gamma / c predict the same.
    A first round without a prior finds the shape; then the most examined condition is held at
    theta = 1, and the prior has its mean where the mean of gamma is on that scale.
    """
    shown = counts.by_position(counts.impressions)
    rough = run_em(
        _start(counts, shown),
        _step(counts, Smoothing(0.0, 0.5), reference=-1),
        tolerance=10 * tolerance,
        max_steps=min(FIRST_ROUND, max_steps),
        accelerate=True,
        low=LOW,
        high=HIGH,
        what=f"{what}, first round",
    ).state
    reference = _reference(rough.theta, shown)
    scale = rough.theta[reference]
    start = ExaminationState(
        np.clip(rough.theta / scale, LOW, HIGH), np.clip(rough.gamma * scale, LOW, HIGH)
    )
    prior = _prior(counts, start, prior_strength)
    em = run_em(
        start,
        _step(counts, prior, reference),
        tolerance=tolerance,
        max_steps=max_steps,
        accelerate=True,
        low=LOW,
        high=HIGH,
        what=what,
    )
    theta = np.where(shown > 0, em.state.theta, np.nan)
    return ExaminationFit(theta, em.state.gamma, prior, em)


def _prior(counts: PositionCounts, state: ExaminationState, strength: float | str) -> Smoothing:
    """Of gamma: with "auto" learned from clicks and the impressions expected to be looked at."""
    if isinstance(strength, str):
        looked = counts.by_document(counts.impressions * state.theta[counts.position_index])
        return smoothing_of(counts.by_document(counts.clicks), looked, strength)
    seen = counts.by_document(counts.impressions)
    return Smoothing(strength, mean_rate(state.gamma, seen, strength))


def _start(counts: PositionCounts, shown: FloatArray) -> ExaminationState:
    """theta by the click rates of conditions, gamma by what is then left for documents."""
    clicks = counts.by_position(counts.clicks)
    rate = np.divide(clicks, shown, out=np.full(len(shown), 0.0), where=shown > 0)
    theta = np.clip(rate / max(rate[_reference(rate, shown)], LOW), 0.01, 0.99)
    expected = counts.by_document(theta[counts.position_index] * counts.impressions)
    gamma = (counts.by_document(counts.clicks) + 0.1) / (expected + 0.2)
    return ExaminationState(theta, np.clip(gamma, 0.01, 0.99))


def _reference(theta: FloatArray, shown: FloatArray) -> int:
    """The most examined condition of those with at least 1% of the impressions of the largest."""
    return int(np.argmax(np.where(shown >= 0.01 * shown.max(), theta, -1.0)))


def _step(counts: PositionCounts, prior: Smoothing, reference: int) -> Step[ExaminationState]:
    """One E and M step, with theta of the reference held at 1 (of none where it is -1).

    P(e=1 | c=0) = theta (1 - gamma) / (1 - theta gamma),
    P(r=1 | c=0) = gamma (1 - theta) / (1 - theta gamma).
    """
    shown, seen = counts.by_position(counts.impressions), counts.by_document(counts.impressions)
    by_condition, by_document = counts.by_position(counts.clicks), counts.by_document(counts.clicks)
    cells = counts.arrays

    def step(state: ExaminationState) -> tuple[ExaminationState, float]:
        relevant = np.empty(counts.n_documents)
        examined, missed = np.zeros((BLOCKS, len(state.theta))), np.zeros(BLOCKS)
        _every_block(BLOCKS, cells, state, examined, relevant, missed)
        # Of clicks, log(theta gamma) is two sums: one by condition, one by document.
        # Not np.dot, whose threads cost more than this sum.
        clicked = np.sum(by_condition * np.log(state.theta)) + np.sum(
            by_document * np.log(state.gamma)
        )
        theta = Smoothing(0.0, 0.5).rate(examined.sum(axis=0), shown)
        if reference >= 0:
            theta[reference] = HIGH
        likelihood = float(missed.sum() + clicked) + prior.log_density(state.gamma)
        return ExaminationState(theta, prior.rate(relevant, seen)), likelihood

    return step


@nb.njit(cache=True)
def _block(
    block: int,
    cells: Cells,
    state: ExaminationState,
    examined: FloatArray,
    relevant: FloatArray,
    missed: FloatArray,
) -> None:
    """Expected examinations and relevance of a block of documents; log-likelihood of non-clicks."""
    n_documents = len(cells.indptr) - 1
    total = 0.0
    for d in range(block * n_documents // BLOCKS, (block + 1) * n_documents // BLOCKS):
        g = state.gamma[d]
        x = 0.0
        for cell in range(cells.indptr[d], cells.indptr[d + 1]):
            k = cells.position[cell] - 1
            t, c = state.theta[k], cells.clicks[cell]
            rest = cells.impressions[cell] - c
            miss = 1.0 - t * g
            share = rest / miss
            examined[block, k] += c + share * t * (1.0 - g)
            x += c + share * g * (1.0 - t)
            if rest > 0:
                total += rest * np.log(miss)
        relevant[d] = x
    missed[block] = total


@parallel_kernel()
def _every_block(
    mine: Share, cells: Cells, state: ExaminationState, examined: FloatArray, *sums: FloatArray
) -> None:
    for block in range(mine[0], mine[1]):
        _block(block, cells, state, examined, *sums)
