"""EM where each document, or class of documents, has a relevance of its own: closed forms.

Counts are those of `untilt.data.counts`: n impressions and c clicks of a document at a position.
"""

from typing import NamedTuple

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.em import EMResult, run_em
from untilt.data.counts import Cells, PositionCounts

# A position that is never clicked falls towards 0 without end; an estimate of 0 would be no
# examination at all, which no weighting can divide by.
FLOOR = 1e-6
CEILING = 1 - 1e-9
# Where theta starts, at the most clicked position. At 1 EM would not move: the posterior of an
# examination that was certain is certain.
HIGHEST_START = 0.9
# Of z- against z+ at the start: nearly the position-based model.
START_NOISE = 0.1
LOW = 1 - CEILING


class Examined(NamedTuple):
    """theta (K,) and gamma (documents,), both in (0, 1); only products mean anything."""

    theta: FloatArray
    gamma: FloatArray


def several_positions(cells: PositionCounts, *, clicked: bool) -> PositionCounts:
    """The documents shown at two positions or more; with `clicked`, those with a click too.

    The others fit any curve equally well, so they hold no information about it.
    """
    keep = np.diff(cells.indptr) > 1
    if clicked:
        keep &= cells.by_document(cells.clicks) > 0
    return cells.where(keep)


def position_based_em(
    cells: PositionCounts, *, tolerance: float, max_steps: int
) -> EMResult[Examined]:
    r"""Maximise sum c log(theta_k gamma_d) + (n - c) log(1 - theta_k gamma_d).

    E step  P(e=1, r=0 | c=0) = theta (1 - gamma) / (1 - theta gamma)
            P(e=0, r=1 | c=0) = (1 - theta) gamma / (1 - theta gamma)
    M step  theta_k = mean of P(e=1 | c) at k,   gamma_d = mean of P(r=1 | c) of d

    ([wang2018regression]_; a click means examined and relevant.) In (log theta, log gamma) the
    likelihood is concave, so the maximum is unique up to the scale, which clicks do not identify.
    """
    theta = start_theta(cells)
    gamma = start_gamma(cells, theta)

    def step(state: Examined) -> tuple[Examined, float]:
        theta, gamma, likelihood = _position_based_step(cells.arrays, *state)
        return Examined(theta, gamma), likelihood

    return run_em(
        Examined(theta, gamma),
        step,
        tolerance=tolerance,
        max_steps=max_steps,
        accelerate=True,
        low=FLOOR,
        high=CEILING,
        what="regression EM",
    )


def start_theta(cells: PositionCounts) -> FloatArray:
    """Click rates. They overstate the top, where a good ranker puts relevant documents."""
    rate = cells.by_position(cells.clicks) / np.maximum(cells.by_position(cells.impressions), 1)
    return np.maximum(HIGHEST_START * rate / rate.max(), 1e-3)


def start_gamma(cells: PositionCounts, theta: FloatArray) -> FloatArray:
    """Clicks over what theta alone would have brought."""
    clicks, examined = cells.corrected_sums(theta, np.zeros(cells.depth))
    return np.clip(clicks / examined, 0.01, 0.95)


@nb.njit(cache=True)
def _position_based_step(
    cells: Cells, theta: FloatArray, gamma: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """(next theta, next gamma, log-likelihood of the ones that came in)."""
    indptr, position, impressions, clicks = cells
    depth = len(theta)
    examined, shown = np.zeros(depth), np.zeros(depth)
    next_gamma = np.empty(len(gamma))
    likelihood = 0.0
    for d in range(len(gamma)):
        g = gamma[d]
        relevant, total = 0.0, 0.0
        for cell in range(indptr[d], indptr[d + 1]):
            k, n, c = position[cell] - 1, impressions[cell], clicks[cell]
            p = theta[k] * g
            if c > 0:
                likelihood += c * np.log(p)
            likelihood += (n - c) * np.log1p(-p)
            unclicked = (n - c) / (1 - p)
            examined[k] += c + unclicked * theta[k] * (1 - g)
            relevant += c + unclicked * (1 - theta[k]) * g
            shown[k] += n
            total += n
        next_gamma[d] = min(max(relevant / total, FLOOR), CEILING)
    next_theta = theta.copy()
    for k in range(depth):
        if shown[k] > 0:
            next_theta[k] = min(max(examined[k] / shown[k], FLOOR), CEILING)
    return next_theta, next_gamma, likelihood


class Classes(NamedTuple):
    """z+ and z- by position (K,), and gamma of each class."""

    plus: FloatArray
    minus: FloatArray
    gamma: FloatArray


def class_em(cells: PositionCounts) -> Classes:
    r"""Maximise sum c log p + (n - c) log(1 - p) with p = z+_k gamma_d + z-_k (1 - gamma_d).

    E step  P(r=1 | c=1) = z+ gamma / p,   P(r=1 | c=0) = (1 - z+) gamma / (1 - p)
    M step  gamma_d = mean of P(r=1 | c) of d;  z+_k = share of clicks among the relevant at k,
            z-_k among the irrelevant; where z+ would be below z-, both are the click rate at k
    """
    k, owner = cells.position_index, cells.document[cells.document_index]
    n, c = cells.impressions, cells.clicks
    n_k, c_k, n_d = cells.by_position(n), cells.by_position(c), np.bincount(owner, n)

    def step(state: Classes) -> tuple[Classes, float]:
        plus, gamma = state.plus[k], state.gamma[owner]
        p = plus * gamma + state.minus[k] * (1 - gamma)
        both = c * plus * gamma / p
        relevant = both + (n - c) * (1 - plus) * gamma / (1 - p)
        likelihood = float(np.sum(c * np.log(p) + (n - c) * np.log1p(-p)))
        r_k, both_k = cells.by_position(relevant), cells.by_position(both)
        above = both_k / r_k
        below = (c_k - both_k) / (n_k - r_k)
        turned = above < below
        parts = (
            np.where(turned, c_k / n_k, above),
            np.where(turned, c_k / n_k, below),
            np.bincount(owner, relevant) / n_d,
        )
        return Classes(*(np.clip(part, LOW, CEILING) for part in parts)), likelihood

    theta = start_theta(cells)
    start = Classes(theta, START_NOISE * theta, np.clip(start_gamma(cells, theta), 0.02, 0.98))
    return run_em(
        start,
        step,
        tolerance=1e-6,
        max_steps=20_000,
        accelerate=True,
        low=LOW,
        high=CEILING,
        what="trust EM",
    ).state
