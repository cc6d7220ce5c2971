r"""EM for trust bias from counts: relevance has a distribution, learned with the curves.

    P(click) = z+_k gamma + z-_k (1 - gamma),   gamma of a document drawn from shares pi over a grid

z+_k = theta_k eps+_k = alpha_k + beta_k and z-_k = theta_k eps-_k = beta_k: the clicks know no more
than these products. A gamma of its own for each document would be fitted to the noise of its few
clicks, and the more parameters the more documents: with 100 sessions per query such curves were off
by a fifth, with the distribution in their place by 2% (docs/estimators/trust-em.md). The shares are
free, so no shape is assumed. Documents are grouped by their mean position, each group with shares
of its own: a good ranker shows relevant documents higher, and one distribution for all would take
that for examination.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray, handed_over
from untilt._core.em import EMResult, run_em
from untilt.bias.cells import Cells
from untilt.bias.count_em import CEILING, start_theta
from untilt.bias.lines import Lines

GRID = np.linspace(0, 1, 31)
MOST_GROUPS = 10
DOCUMENTS_PER_GROUP = 100
LOW = 1 - CEILING
# Of the M step's z- against z+ at the start: nearly the position-based model.
START_NOISE = 0.1


class Mixture(NamedTuple):
    """z+ and z- by position (K,), and the shares of the grid in each group (groups, grid)."""

    plus: FloatArray
    minus: FloatArray
    shares: FloatArray


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """Where EM ended. `lines.gamma` is each document's posterior mean; group : (documents,)."""

    em: EMResult[Mixture]
    lines: Lines
    group: IntArray

    @property
    def history(self) -> FloatArray:
        """Log-likelihood by step."""
        return self.em.history

    @property
    def status(self) -> str:
        """How EM ended."""
        return self.em.status


def mixture_em(cells: Cells, *, tolerance: float, max_steps: int) -> MixtureFit:
    r"""Maximise the likelihood of the clicks over z+, z- and the shares.

    E step  w_dm, the posterior of document d over the grid, and within it
            P(r=1 | c=1) = z+ gamma_m / p,   P(r=1 | c=0) = (1 - z+) gamma_m / (1 - p)
    M step  shares = mean w of a group;  z+_k = share of clicks among the relevant at k, z-_k among
            the irrelevant; where z+ would fall below z-, both are the click rate at k
    """
    group = groups_by_position(cells)
    theta = start_theta(cells)
    n_groups = int(group.max()) + 1
    even = np.full((n_groups, len(GRID)), 1 / len(GRID))
    data = (cells.indptr, cells.position, cells.impressions, cells.clicks, group)

    def step(state: Mixture) -> tuple[Mixture, float]:
        shares = normalised(state.shares)
        sums, following, _, likelihood = _expect(*data, state.plus, state.minus, shares, GRID)
        return Mixture(*_maximise(sums, state), normalised(following)), likelihood

    em = run_em(
        Mixture(theta, START_NOISE * theta, even),
        step,
        tolerance=tolerance,
        max_steps=max_steps,
        accelerate=True,
        low=LOW,
        high=CEILING,
        what="trust EM",
    )
    plus, minus, shares = em.state
    _, _, gamma, _ = _expect(*data, plus, minus, normalised(shares), GRID)
    return MixtureFit(em, Lines(plus - minus, minus, handed_over(gamma)), group)


def groups_by_position(cells: Cells) -> IntArray:
    """(documents,) group by mean position: equally many documents each, at least 100."""
    begin = cells.indptr[:-1]
    shown = np.add.reduceat(cells.impressions, begin)
    mean = np.add.reduceat(cells.impressions * cells.position, begin) / shown
    n_groups = int(np.clip(len(mean) // DOCUMENTS_PER_GROUP, 1, MOST_GROUPS))
    limits = np.quantile(mean, np.arange(1, n_groups) / n_groups)
    # Limits may coincide where many documents have one mean: groups without any are dropped.
    return np.unique(np.searchsorted(limits, mean), return_inverse=True)[1]


def normalised(shares: FloatArray) -> FloatArray:
    """Shares that sum to 1 in each group; a jump of the EM loop does not keep that."""
    floored = np.maximum(shares, LOW)
    return floored / floored.sum(axis=1, keepdims=True)


def _maximise(sums: FloatArray, before: Mixture) -> tuple[FloatArray, FloatArray]:
    """z+ and z- from (shown, clicked, relevant, clicked and relevant) by position."""
    shown, clicked, relevant, both = sums
    irrelevant = shown - relevant
    told = (relevant > 0) & (irrelevant > 0)
    plus = np.divide(both, relevant, out=before.plus.copy(), where=told)
    minus = np.divide(clicked - both, irrelevant, out=before.minus.copy(), where=told)
    turned = plus < minus
    rate = clicked / np.maximum(shown, 1e-300)
    plus, minus = np.where(turned, rate, plus), np.where(turned, rate, minus)
    return np.clip(plus, LOW, CEILING), np.clip(minus, LOW, CEILING)


@nb.njit(cache=True)
def tables(
    plus: FloatArray, minus: FloatArray, grid: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(K, grid): p, log p and log(1 - p)."""
    p = np.empty((len(plus), len(grid)))
    for k in range(len(plus)):
        for m in range(len(grid)):
            p[k, m] = grid[m] * plus[k] + (1 - grid[m]) * minus[k]
    return p, np.log(p), np.log1p(-p)


@nb.njit(cache=True)
def posterior(
    begin: int,
    end: int,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    log_share: FloatArray,
    log_p: FloatArray,
    log_q: FloatArray,
    weight: FloatArray,
) -> float:
    """Fill `weight` with the posterior over the grid; the log-likelihood of the document."""
    for m in range(len(weight)):
        weight[m] = log_share[m]
    for cell in range(begin, end):
        k, n, c = position[cell] - 1, impressions[cell], clicks[cell]
        for m in range(len(weight)):
            weight[m] += c * log_p[k, m] + (n - c) * log_q[k, m]
    highest = -np.inf
    for m in range(len(weight)):
        highest = max(highest, weight[m])
    total = 0.0
    for m in range(len(weight)):
        weight[m] = np.exp(weight[m] - highest)
        total += weight[m]
    for m in range(len(weight)):
        weight[m] /= total
    return highest + np.log(total)


@nb.njit(cache=True)
def _expect(
    indptr: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    group: IntArray,
    plus: FloatArray,
    minus: FloatArray,
    shares: FloatArray,
    grid: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Sums for z+ and z- (4, K), posteriors by group, posterior means, log-likelihood."""
    p, log_p, log_q = tables(plus, minus, grid)
    depth, size = p.shape
    # Posterior relevance of an impression with and without a click, at each grid point.
    with_click, without = np.empty((depth, size)), np.empty((depth, size))
    for k in range(depth):
        for m in range(size):
            with_click[k, m] = grid[m] * plus[k] / p[k, m]
            without[k, m] = grid[m] * (1 - plus[k]) / (1 - p[k, m])
    log_shares = np.log(shares)
    sums, following = np.zeros((4, depth)), np.zeros(shares.shape)
    weight, means = np.empty(size), np.empty(len(group))
    likelihood = 0.0
    for d in range(len(group)):
        begin, end = indptr[d], indptr[d + 1]
        likelihood += posterior(
            begin, end, position, impressions, clicks, log_shares[group[d]], log_p, log_q, weight
        )
        means[d] = 0.0
        for m in range(size):
            following[group[d], m] += weight[m]
            means[d] += weight[m] * grid[m]
        for cell in range(begin, end):
            k, n, c = position[cell] - 1, impressions[cell], clicks[cell]
            r1, r0 = 0.0, 0.0
            for m in range(size):
                r1 += weight[m] * with_click[k, m]
                r0 += weight[m] * without[k, m]
            sums[0, k] += n
            sums[1, k] += c
            sums[2, k] += c * r1 + (n - c) * r0
            sums[3, k] += c * r1
    return sums, following, means, likelihood
