"""Relevance of documents, of strata of documents, or of a distribution: EM steps in closed form.

Counts are those of `untilt.data.counts`: n impressions and c clicks of a document at a position.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple

import numba as nb
import numpy as np

from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, IntArray, handed_over, sum_by
from untilt._core.ascent import EMResult, run_em
from untilt.bias.em.affine import (
    ERROR_EDGE,
    FLOOR,
    HIGHEST_START,
    AffineFit,
    clustered,
    information,
    inverted,
    is_estimated,
)
from untilt.bias.em.learned_relevance import (
    LearnedFit,
    TreeOptions,
    fold_of_documents,
    predicted_position,
)
from untilt.bias.log_ratios import Uncertainty
from untilt.bias.position_graph import position_graph
from untilt.data.counts import Cells, PositionCounts
from untilt.data.limits import allow_table
from untilt.errors import IdentifiabilityError
from untilt.facts import Fact, joined, note

STRATA = note("bias.strata", "{n_strata} strata")
ERRORS_COARSER_STRATA = note(
    "bias.errors-coarser-strata", "errors include what coarser strata change"
)()

CEILING = 1 - 1e-9
# Of z- against z+ at the start: nearly the position-based model.
START_NOISE = 0.1
LOW = 1 - CEILING


@dataclass(frozen=True, eq=False, kw_only=True)
class RelevanceFit:
    """Curves fitted together with one kind of relevance.

    affine : the curves; gamma of a document as the curves were fitted with it
    learned : gamma of each document to be reported, with curves on its scale
    history, status : of EM
    coarse : `affine` from coarser strata, where there are strata; what changes is an error too
    doubt : why errors would not be honest, if so
    """

    affine: AffineFit
    learned: AffineFit
    history: FloatArray
    status: Fact
    coarse: AffineFit | None = None
    doubt: Fact | None = None

    @abstractmethod
    def uncertainty(
        self, cells: PositionCounts, free: BoolArray, jacobian: FloatArray
    ) -> Uncertainty:
        """(m, m) covariance of m numbers; parameters as in `uncertainty_of_affine`."""


class PositionBased(NamedTuple):
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
) -> EMResult[PositionBased]:
    r"""Maximise sum c log(theta_k gamma_d) + (n - c) log(1 - theta_k gamma_d).

    E step  P(e=1, r=0 | c=0) = theta (1 - gamma) / (1 - theta gamma)
            P(e=0, r=1 | c=0) = (1 - theta) gamma / (1 - theta gamma)
    M step  theta_k = mean of P(e=1 | c) at k,   gamma_d = mean of P(r=1 | c) of d

    ([wang2018regression]_; a click means examined and relevant.) In (log theta, log gamma) the
    likelihood is concave, so the maximum is unique up to the scale, which clicks do not identify.
    """
    theta = start_theta(cells)
    gamma = start_gamma(cells, theta)

    def step(state: PositionBased) -> tuple[PositionBased, float]:
        theta, gamma, likelihood = _position_based_step(cells.arrays, *state)
        return PositionBased(theta, gamma), likelihood

    return run_em(
        PositionBased(theta, gamma), step, tolerance=tolerance, max_steps=max_steps,
        accelerate=True, low=FLOOR, high=CEILING, what="regression EM",
    )  # fmt: skip


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


def click_rates(
    shown: FloatArray,
    clicked: FloatArray,
    relevant: FloatArray,
    both: FloatArray,
    plus: FloatArray,
    minus: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """z+ and z- by position: the share of clicks among the relevant, and among the others.

    Both are the click rate where z+ would be below z-, and stay where one kind was never shown.
    """
    others = shown - relevant
    known = (relevant > 0) & (others > 0)
    plus = np.divide(both, relevant, out=plus.copy(), where=known)
    minus = np.divide(clicked - both, others, out=minus.copy(), where=known)
    rate, turned = clicked / np.maximum(shown, 1e-300), plus < minus
    plus, minus = np.where(turned, rate, plus), np.where(turned, rate, minus)
    return np.clip(plus, LOW, CEILING), np.clip(minus, LOW, CEILING)


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
        z = click_rates(n_k, c_k, r_k, both_k, state.plus, state.minus)
        gamma_next = np.clip(np.bincount(owner, relevant) / n_d, LOW, CEILING)
        return Classes(*z, gamma_next), likelihood

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


# Classes of learned relevance. There are six times as many of predicted position, the one that
# confounds: with 500 queries 5 x 20 strata left 3% of error in theta_10 where 10 x 10 left 4.4%.
CLASSES = (2, 10)
POSITION_CLASSES = 6
# What so much coarser strata lose is a fair guess of what even finer ones would bring, and is
# part of the errors: without it 95% intervals of trust bias covered in 88% to 96% of 200 logs.
COARSE_POSITION_CLASSES = 4
# Trust bias has more to fit: with strata of 17 documents it fitted the noise (beta an eighth too
# low), with 50 not. Without it larger strata only leave more error.
DOCUMENTS_PER_STRATUM = {False: 15, True: 50}
# For as many documents in each of the fewest strata, without trust bias.
FEWEST_DOCUMENTS = CLASSES[0] ** 2 * POSITION_CLASSES * DOCUMENTS_PER_STRATUM[False]


@dataclass(frozen=True, eq=False, kw_only=True)
class StratifiedFit(RelevanceFit):
    """Curves from strata, and the learned relevance that sorted them.

    gamma of a document in `affine` is that of its stratum; stratum : (documents,) of each
    """

    stratum: IntArray

    def uncertainty(
        self, cells: PositionCounts, free: BoolArray, jacobian: FloatArray
    ) -> Uncertainty:
        """The relevance of each stratum being unknown.

        As in `uncertainty_of_affine`, with a stratum instead of a document: its relevance takes

            h / sum w alpha^2,   h = sum over its cells w alpha x,   x = (gamma, 1)

        out of the score of each of its cells, s (x - alpha h / sum w alpha^2). A stratum has
        documents of many queries, so the scores are summed by query. What strata are too coarse to
        undo is no noise: `widened` adds what coarser ones change. 200 simulated logs say whether
        that is enough (benchmarks/bench_em_coverage.py).
        """
        gamma = np.empty(int(self.stratum.max()) + 1)
        gamma[self.stratum] = self.affine.gamma
        together, affine = cells.grouped(self.stratum), self.affine._replace(gamma=gamma)
        J, _ = information(together, affine, np.zeros(len(gamma), dtype=np.int64))
        inverse = inverted(J[np.ix_(free, free)])
        to_numbers = np.zeros(jacobian.T.shape)
        to_numbers[free] = inverse @ jacobian[:, free].T
        query = np.unique(cells.query, return_inverse=True)[1]
        table = _influence_of_a_click(together, affine, to_numbers)
        influence, noise = _sum_influence(cells, self.stratum, query, affine, table)
        by_session = jacobian[:, free] @ inverse @ jacobian[:, free].T
        return clustered(influence, noise, by_session)


def stratified(
    cells: PositionCounts,
    features: FeatureArray,
    fit: LearnedFit,
    *,
    trust: bool,
    options: TreeOptions,
) -> StratifiedFit:
    """The curves of a learned relevance, by strata. `features` has a row per document.

    A learned relevance is never exact, and whoever ordered the lists used the same features. Where
    the model smooths, the position still says which of two documents is the better one, and the
    rest of relevance is taken for examination. So the learned relevance only sorts, and so does the
    position that the features predict: within a stratum, of documents alike in both, the position
    depends on the competing documents (position is the treatment, its prediction the propensity of
    [rosenbaum1983]_). The relevance of each stratum is estimated anew, as if it were one document.

    Right if either sorts well. Figures: benchmarks/bench_em_coverage.py. Strata
    by learned relevance alone, 20 or 60, were no better than that relevance itself.
    """
    position = predicted_position(cells, features, fold_of_documents(cells, options), options)
    stratum, coarser = (
        strata_of(fit.affine.gamma, position, trust=trust, position_classes=classes)
        for classes in (POSITION_CLASSES, COARSE_POSITION_CLASSES)
    )
    return StratifiedFit(
        affine=fit_of_strata(cells, stratum, trust=trust),
        coarse=fit_of_strata(cells, coarser, trust=trust),
        stratum=stratum,
        learned=fit.affine,
        history=fit.history,
        status=joined(fit.status, STRATA(n_strata=int(stratum.max()) + 1)),
    )


def strata_of(
    relevance: FloatArray,
    position: FloatArray,
    *,
    trust: bool,
    position_classes: int = POSITION_CLASSES,
) -> IntArray:
    """(documents,) stratum of each, numbered from 0: classes of both scores, crossed."""
    wanted = len(relevance) / DOCUMENTS_PER_STRATUM[trust]
    n_relevance = int(np.clip(np.sqrt(wanted / POSITION_CLASSES), *CLASSES))
    n_position = position_classes * n_relevance
    pairs = class_of(relevance, n_relevance) * n_position + class_of(position, n_position)
    return np.unique(pairs, return_inverse=True)[1]


def fit_of_strata(cells: PositionCounts, stratum: IntArray, *, trust: bool) -> AffineFit:
    """The curves of maximum likelihood where each stratum has one relevance."""
    together = cells.grouped(stratum)
    _require_mixed(together)
    if trust:
        plus, minus, gamma = class_em(together)
        return AffineFit(plus - minus, minus, handed_over(gamma[stratum]))
    theta, gamma = position_based_em(together, tolerance=1e-6, max_steps=20_000).state
    return AffineFit(theta, np.zeros(cells.depth), handed_over(gamma[stratum]))


def class_of(score: FloatArray, n_classes: int) -> IntArray:
    """(documents,) 0..n_classes - 1 by size, equally many each but for ties."""
    limits = np.quantile(score, np.arange(1, n_classes) / n_classes)
    return np.searchsorted(limits, score)


def _require_mixed(together: PositionCounts) -> None:
    """Raise where features predict the position so well that no two alike were shown at both."""
    first = position_graph(together).components[0]
    lost = [k for k in range(1, together.depth + 1) if k not in first]
    if lost:
        raise IdentifiabilityError(
            f"position {lost[0]} cannot be compared with position 1: documents with "
            "like features were never shown at both, so the features give away the "
            "position. Leave out features that are made from it (an old rank, the "
            f"production score), or swap positions 1 and {lost[0]} in a share of the "
            "sessions and use ⟦relevance='counts'⟧."
        )


def widened(errors: Uncertainty, change: FloatArray) -> Uncertainty:
    """With the change that coarser strata make to the numbers, as a further error."""
    change = np.where(np.isfinite(change), change, 0.0)
    return replace(
        errors,
        covariance=errors.covariance + np.outer(change, change),
        rule=joined(errors.rule, ERRORS_COARSER_STRATA),
    )


def _influence_of_a_click(
    together: PositionCounts, affine: AffineFit, to_numbers: FloatArray
) -> FloatArray:
    """(strata, K, m) what a unit of score of a stratum at k adds to the numbers."""
    depth, alpha, gamma = together.depth, affine.alpha, affine.gamma
    shape = len(gamma), depth, to_numbers.shape[1]
    allow_table("what each position of a stratum adds to each other", *shape, copies=2)
    owner, k = together.document_index, together.position_index
    p = np.clip(alpha[k] * gamma[owner] + affine.beta[k], ERROR_EDGE, 1 - ERROR_EDGE)
    w = together.impressions / (p * (1 - p))
    taken = np.zeros((len(gamma), 2 * depth))
    taken[owner, k], taken[owner, depth + k] = w * alpha[k] * gamma[owner], w * alpha[k]
    own = np.bincount(owner, w * alpha[k] ** 2, len(gamma))
    taken *= (is_estimated(gamma) / np.maximum(own, 1e-300))[:, None]
    by_alpha, by_beta = to_numbers[:depth], to_numbers[depth:]
    direct = gamma[:, None, None] * by_alpha + by_beta
    return direct - alpha[:, None] * (taken @ to_numbers)[:, None, :]


def _sum_influence(
    cells: PositionCounts, stratum: IntArray, query: IntArray, affine: AffineFit, table: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(queries, m) sum of each query's scores, in terms of the numbers, and its variance."""
    owner, k, n = cells.document_index, cells.position_index, cells.impressions
    own, unit, n_queries = stratum[owner], query[owner], int(query.max()) + 1
    p = np.clip(affine.alpha[k] * affine.gamma[own] + affine.beta[k], ERROR_EDGE, 1 - ERROR_EDGE)
    s, w = (cells.clicks - n * p) / (p * (1 - p)), n / (p * (1 - p))
    pushes = (table[own, k, m] for m in range(table.shape[2]))
    sums = [(sum_by(unit, s * x, n_queries), sum_by(unit, w * x**2, n_queries)) for x in pushes]
    influence, noise = (np.column_stack(each) for each in zip(*sums, strict=True))
    return influence, noise


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


@dataclass(frozen=True, eq=False, kw_only=True)
class MixtureFit(RelevanceFit):
    """Curves with the distribution of relevance: gamma of a document is its posterior mean.

    em : where EM ended; group : (documents,)
    """

    em: EMResult[Mixture]
    group: IntArray

    def uncertainty(
        self, cells: PositionCounts, free: BoolArray, jacobian: FloatArray
    ) -> Uncertainty:
        """The distribution of relevance being unknown too.

        A document's score for the curves is E[d log-likelihood / d (alpha, beta) | clicks]; its
        score for the share of a value is w_m / pi_m - 1, and for the value itself w_m
        d log-likelihood / d gamma_m. What these explain of the first, by least squares, is taken
        out: the rest are the efficient scores, whose sum of squares over documents is the
        information about the curves that is left. The larger of clustered by query and session
        noise; parameters as in `uncertainty_of_affine`.
        """
        query = np.unique(cells.query, return_inverse=True)[1]
        efficient = _efficient_scores(cells, self)[:, free]
        inverse = inverted(efficient.T @ efficient)
        influence = efficient @ inverse @ jacobian[:, free].T
        by_session = jacobian[:, free] @ inverse @ jacobian[:, free].T
        return clustered(_sums_by(query, influence), _sums_by(query, influence**2), by_session)


def mixture_em(cells: PositionCounts, *, tolerance: float, max_steps: int) -> MixtureFit:
    r"""Maximise the likelihood of the clicks over z+, z-, the values of gamma and their shares.

    E step  w_dm, the posterior of document d over the values, and within it
            P(r=1 | c=1) = z+ gamma_m / p,   P(r=1 | c=0) = (1 - z+) gamma_m / (1 - p)
    M step  shares = mean w of a group;  gamma_m = mean of P(r=1 | c), weighted by w_dm;
            z+_k = share of clicks among the relevant at k, z-_k among the irrelevant; where z+
            would fall below z-, both are the click rate at k

    P(click) = z+_k gamma + z-_k (1 - gamma),   gamma of a document one of M values, with shares pi

    z+_k = theta_k eps+_k = alpha_k + beta_k and z-_k = theta_k eps-_k = beta_k: the clicks know no
    more than these products. A separate gamma for each document would be fitted to the noise of
    its few clicks, and the more parameters the more documents: with 100 sessions per query such
    curves were off by a fifth, with the distribution by 2%. Values
    and shares are free, so no shape is assumed. Documents are grouped by their mean position, each
    group with its own shares: a good ranker shows relevant documents higher, and one
    distribution for all would take that for examination.
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
        Mixture(theta, START_NOISE * theta, values, even), step, tolerance=tolerance,
        max_steps=max_steps, accelerate=True, low=LOW, high=CEILING, what="trust EM",
    )  # fmt: skip
    end = normalised(em.state)
    gamma, plus, minus = _expect(*data, end)[3], end.plus, end.minus
    affine = AffineFit(plus - minus, minus, handed_over(gamma))
    return MixtureFit(
        affine=affine, learned=affine, history=em.history, status=em.status, em=em, group=group
    )


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
    used = of_values[0] > 0
    values = np.divide(of_values[1], of_values[0], out=before.values.copy(), where=used)
    shown, clicked, relevant, both = sums
    plus, minus = click_rates(shown, clicked, relevant, both, before.plus, before.minus)
    return plus, minus, np.clip(values, LOW, CEILING)


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
    begin: int, end: int, position: IntArray, impressions: FloatArray, clicks: FloatArray,
    log_share: FloatArray, log_p: FloatArray, log_q: FloatArray, weight: FloatArray,
) -> float:  # fmt: skip
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
