r"""EM for trust bias from counts: relevance has a distribution, learned with the curves.

    P(click) = z+_k gamma + z-_k (1 - gamma),   gamma of a document one of M values, with shares pi

z+_k = theta_k eps+_k = alpha_k + beta_k and z-_k = theta_k eps-_k = beta_k: the clicks know no more
than these products. A gamma of its own for each document would be fitted to the noise of its few
clicks, and the more parameters the more documents: with 100 sessions per query such curves were off
by a fifth, with the distribution by 2% (docs/estimators/trust-em.md). Values and
shares are free, so no shape is assumed. Documents are grouped by their mean position, each group
with shares of its own: a good ranker shows relevant documents higher, and one distribution for all
would take that for examination.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numba as nb
import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray, handed_over
from untilt._core.em import EMResult, run_em
from untilt.bias.em.affine import AffineFit, clustered, inverted
from untilt.bias.em.documents import CEILING, LOW, START_NOISE, start_theta
from untilt.bias.log_ratios import Uncertainty
from untilt.data.counts import Cells, PositionCounts
from untilt.data.depth import allow_table
from untilt.facts import Fact

# Posteriors below this are left out of the M step: most values of most documents, at no loss.
NEGLIGIBLE = 1e-12
# Values that relevance may take: at least the first, at most the second; see `start_values`.
N_VALUES = (15, 101)
# Documents of a group have one distribution of relevance. With 100 documents each, 20 queries
# made two groups, the better documents of a group stood higher, and that was taken for examination:
# 34% too little at position 10 with 50 sessions per query. With 20 documents each, 4%.
MOST_GROUPS = 20
DOCUMENTS_PER_GROUP = 20
# Values with a smaller share are no part of the distribution; their scores are all noise.
LEAST_SHARE = 1e-3


class Mixture(NamedTuple):
    """z+ and z- by position (K,), values of gamma (M,), and their shares in each group (groups, M).

    The values are estimated too: with fixed ones no step could change the scale of relevance, and
    curves stopped where z- of some position met 0.
    """

    plus: FloatArray
    minus: FloatArray
    values: FloatArray
    shares: FloatArray


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """Where EM ended. `affine.gamma` is each document's posterior mean; group : (documents,)."""

    em: EMResult[Mixture]
    affine: AffineFit
    group: IntArray

    @property
    def history(self) -> FloatArray:
        """Log-likelihood by step."""
        return self.em.history

    @property
    def status(self) -> Fact:
        """How EM ended."""
        return self.em.status


def mixture_em(cells: PositionCounts, *, tolerance: float, max_steps: int) -> MixtureFit:
    r"""Maximise the likelihood of the clicks over z+, z-, the values of gamma and their shares.

    E step  w_dm, the posterior of document d over the values, and within it
            P(r=1 | c=1) = z+ gamma_m / p,   P(r=1 | c=0) = (1 - z+) gamma_m / (1 - p)
    M step  shares = mean w of a group;  gamma_m = mean of P(r=1 | c), weighted by w_dm;
            z+_k = share of clicks among the relevant at k, z-_k among the irrelevant; where z+
            would fall below z-, both are the click rate at k
    """
    group, values = groups_by_position(cells), start_values(cells)
    theta = start_theta(cells)
    even = np.full((int(group.max()) + 1, len(values)), 1 / len(values))
    data = cells.arrays, group

    def step(state: Mixture) -> tuple[Mixture, float]:
        sums, of_values, by_group, _, likelihood = _expect(*data, normalised(state))
        following = Mixture(*_maximise(sums, of_values, state), by_group)
        return normalised(following), likelihood

    em = run_em(
        Mixture(theta, START_NOISE * theta, values, even),
        step,
        tolerance=tolerance,
        max_steps=max_steps,
        accelerate=True,
        low=LOW,
        high=CEILING,
        what="trust EM",
    )
    end = normalised(em.state)
    gamma, plus, minus = _expect(*data, end)[3], end.plus, end.minus
    return MixtureFit(em, AffineFit(plus - minus, minus, handed_over(gamma)), group)


def start_values(cells: PositionCounts) -> FloatArray:
    """Evenly from 0 to 1, more where documents have many impressions and are known better.

    n impressions determine relevance to about 1 / sqrt(n): that is the step, for the 90% of
    documents with the fewest. Twice as many changed no curve by more than 1%. Away from 0 and 1,
    where EM would hold them.
    """
    shown = cells.by_document(cells.impressions)
    wanted = 1 + np.ceil(np.sqrt(np.quantile(shown, 0.9)))
    return np.linspace(0.01, 0.99, int(np.clip(wanted, *N_VALUES)))


def groups_by_position(cells: PositionCounts) -> IntArray:
    """(documents,) group by mean position: equally many documents each, at least 20."""
    mean = cells.mean_position
    n_groups = int(np.clip(len(mean) // DOCUMENTS_PER_GROUP, 1, MOST_GROUPS))
    limits = np.quantile(mean, np.arange(1, n_groups) / n_groups)
    # Limits may coincide where many documents have one mean: groups without any are dropped.
    return np.unique(np.searchsorted(limits, mean), return_inverse=True)[1]


def normalised(mixture: Mixture) -> Mixture:
    """Shares that sum to 1 in each group and z+ >= z-; a jump of the EM loop keeps neither."""
    floored = np.maximum(mixture.shares, LOW)
    plus, minus = mixture.plus, mixture.minus
    middle = (plus + minus) / 2
    return mixture._replace(
        plus=np.maximum(plus, middle),
        minus=np.minimum(minus, middle),
        shares=floored / floored.sum(axis=1, keepdims=True),
    )


def _maximise(
    sums: FloatArray, of_values: FloatArray, before: Mixture
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """z+, z- and gamma from sums of posteriors.

    sums : (4, K) shown, clicked, relevant, clicked and relevant; of_values : (2, M) shown, relevant
    """
    shown, clicked, relevant, both = sums
    irrelevant = shown - relevant
    known = (relevant > 0) & (irrelevant > 0)
    plus = np.divide(both, relevant, out=before.plus.copy(), where=known)
    minus = np.divide(clicked - both, irrelevant, out=before.minus.copy(), where=known)
    turned = plus < minus
    rate = clicked / np.maximum(shown, 1e-300)
    plus, minus = np.where(turned, rate, plus), np.where(turned, rate, minus)
    used = of_values[0] > 0
    values = np.divide(of_values[1], of_values[0], out=before.values.copy(), where=used)
    return tuple(np.clip(part, LOW, CEILING) for part in (plus, minus, values))


@nb.njit(cache=True)
def tables(
    plus: FloatArray, minus: FloatArray, values: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(K, M): p, log p and log(1 - p)."""
    p = np.empty((len(plus), len(values)))
    for k in range(len(plus)):
        for m in range(len(values)):
            p[k, m] = values[m] * plus[k] + (1 - values[m]) * minus[k]
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
    """Fill `weight` with the posterior over the values; the log-likelihood of the document."""
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
    cells: Cells, group: IntArray, mixture: Mixture
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, float]:
    """Sums for z+ and z- (4, K) and for gamma (2, M), posteriors by group, posterior mean of each
    document, log-likelihood.
    """
    indptr, position, impressions, clicks = cells
    plus, minus, values, shares = mixture
    p, log_p, log_q = tables(plus, minus, values)
    depth, size = p.shape
    # Posterior relevance of an impression with and without a click, at each value of gamma.
    with_click, without = np.empty((depth, size)), np.empty((depth, size))
    for k in range(depth):
        for m in range(size):
            with_click[k, m] = values[m] * plus[k] / p[k, m]
            without[k, m] = values[m] * (1 - plus[k]) / (1 - p[k, m])
    log_shares = np.log(shares)
    sums, of_values, by_group = np.zeros((4, depth)), np.zeros((2, size)), np.zeros(shares.shape)
    weight, means = np.empty(size), np.empty(len(group))
    likely = np.empty(size, dtype=np.int64)
    likelihood = 0.0
    for d in range(len(group)):
        begin, end = indptr[d], indptr[d + 1]
        likelihood += posterior(
            begin, end, position, impressions, clicks, log_shares[group[d]], log_p, log_q, weight
        )
        n_likely = 0
        means[d] = 0.0
        for m in range(size):
            if weight[m] > NEGLIGIBLE:
                likely[n_likely] = m
                n_likely += 1
                by_group[group[d], m] += weight[m]
                means[d] += weight[m] * values[m]
        for cell in range(begin, end):
            k, n, c = position[cell] - 1, impressions[cell], clicks[cell]
            clicked, relevant = 0.0, 0.0
            for i in range(n_likely):
                m = likely[i]
                r1 = weight[m] * c * with_click[k, m]
                both = r1 + weight[m] * (n - c) * without[k, m]
                clicked += r1
                relevant += both
                of_values[0, m] += weight[m] * n
                of_values[1, m] += both
            sums[0, k] += n
            sums[1, k] += c
            sums[2, k] += relevant
            sums[3, k] += clicked
    return sums, of_values, by_group, means, likelihood


def uncertainty_of_mixture(
    cells: PositionCounts, fit: MixtureFit, free: BoolArray, jacobian: FloatArray
) -> Uncertainty:
    """(m, m) covariance of m numbers that follow from the curves, the distribution unknown too.

    A document's score for the curves is E[d log-likelihood / d (alpha, beta) | clicks]; its score
    for the share of a value is w_m / pi_m - 1, and for the value itself w_m d log-likelihood /
    d gamma_m. What these explain of the first, by least squares, is taken out: the rest are the
    efficient scores, whose sum of squares over documents is the information about the curves that
    is left. The larger of clustered by query and session noise; parameters as in
    `uncertainty_of_affine`.
    """
    query = np.unique(cells.query, return_inverse=True)[1]
    efficient = _efficient_scores(cells, fit)[:, free]
    inverse = inverted(efficient.T @ efficient)
    influence = efficient @ inverse @ jacobian[:, free].T
    by_session = jacobian[:, free] @ inverse @ jacobian[:, free].T
    return clustered(_sums_by(query, influence), _sums_by(query, influence**2), by_session)


def _efficient_scores(cells: PositionCounts, fit: MixtureFit) -> FloatArray:
    """(documents, 2K). Shares belong to a group each, values to all: taken out in that order."""
    mixture = normalised(fit.em.state)
    allow_table("the score of each document", cells.n_documents, 2 * cells.depth, copies=4)
    curves, of_values, of_shares = _scores(cells.arrays, fit.group, mixture)
    used = mixture.shares >= LEAST_SHARE
    both = np.hstack([curves, of_values[:, used.any(axis=0)]])
    for g in range(len(used)):
        rows = np.flatnonzero(fit.group == g)
        both[rows] = _unexplained(both[rows], of_shares[rows][:, used[g]])
    width = curves.shape[1]
    return _unexplained(both[:, :width], both[:, width:])


def _unexplained(scores: FloatArray, by: FloatArray) -> FloatArray:
    """What is left of the scores after a least-squares fit on others.

    A fit of r numbers to n documents also explains r / n of the noise: what is left is scaled by
    sqrt(n / (n - r)), so that its squares are as large as those of other documents would be.
    """
    weights, _, rank, _ = np.linalg.lstsq(by, scores, rcond=1e-6)
    n = len(scores)
    return np.sqrt(n / max(n - int(rank), 1)) * (scores - by @ weights)


def _sums_by(query: IntArray, values: FloatArray) -> FloatArray:
    return np.column_stack([np.bincount(query, weights=column) for column in values.T])


@nb.njit(cache=True)
def _scores(
    cells: Cells, group: IntArray, mixture: Mixture
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scores of each document for (alpha, beta), (documents, 2K), for values and for shares."""
    indptr, position, impressions, clicks = cells
    plus, minus, values, shares = mixture
    p, log_p, log_q = tables(plus, minus, values)
    depth, size = p.shape
    log_shares = np.log(shares)
    curves = np.zeros((len(group), 2 * depth))
    of_values, of_shares = np.zeros((len(group), size)), np.empty((len(group), size))
    weight = np.empty(size)
    for d in range(len(group)):
        g, begin, end = group[d], indptr[d], indptr[d + 1]
        posterior(begin, end, position, impressions, clicks, log_shares[g], log_p, log_q, weight)
        for m in range(size):
            of_shares[d, m] = weight[m] / shares[g, m] - 1
        for cell in range(begin, end):
            k, n, c = position[cell] - 1, impressions[cell], clicks[cell]
            for m in range(size):
                s = weight[m] * (c / p[k, m] - (n - c) / (1 - p[k, m]))
                curves[d, k] += s * values[m]
                curves[d, depth + k] += s
                of_values[d, m] += s * (plus[k] - minus[k])
    return curves, of_values, of_shares
