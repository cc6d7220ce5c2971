r"""Curves from documents that are alike in what features say: about relevance, and about position.

A learned relevance is never exact, and whoever ordered the lists used the same features. Where the
model smooths, the position still says which of two documents is the better one, and the rest of
relevance is taken for examination. So the learned relevance only sorts, and so does the position
that the features predict: within a stratum, of documents alike in both, the position depends on the
competing documents (position is the treatment, its prediction the propensity of [rosenbaum1983]_).
The relevance of each stratum is estimated anew, as if it were one document.

Right if either sorts well. Figures in docs/estimators/regression-em.md and trust-em.md. Strata by
learned relevance alone, 20 or 60, were no better than that relevance itself.
"""

from dataclasses import dataclass, replace

import numba as nb
import numpy as np

from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, IntArray, handed_over
from untilt.bias.em.affine import (
    ERROR_EDGE,
    AffineFit,
    clustered,
    information,
    inverted,
    is_estimated,
)
from untilt.bias.em.boosted import LearnedFit, TreeOptions, fold_of_documents
from untilt.bias.em.documents import class_em, position_based_em
from untilt.bias.em.predicted_position import predicted_position
from untilt.bias.log_ratios import Uncertainty
from untilt.bias.position_graph import position_graph
from untilt.data.counts import Cells, PositionCounts
from untilt.data.depth import allow_table
from untilt.errors import IdentifiabilityError
from untilt.facts import Fact, joined

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


@dataclass(frozen=True, eq=False)
class StratifiedFit:
    """Curves from strata, and the learned relevance that sorted them.

    Parameters
    ----------
    affine : the curves; gamma of a document is that of its stratum
    coarse : the same from coarser strata
    stratum : (documents,) stratum of each
    learned : what the model of relevance says of each document, with curves of its own
    history, status : of the model
    """

    affine: AffineFit
    coarse: AffineFit
    stratum: IntArray
    learned: AffineFit
    history: FloatArray
    status: Fact


def stratified(
    cells: PositionCounts,
    features: FeatureArray,
    fit: LearnedFit,
    *,
    trust: bool,
    options: TreeOptions,
) -> StratifiedFit:
    """The curves of a learned relevance, by strata. `features` has a row per document."""
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
        status=joined(fit.status, Fact("bias.strata", n_strata=int(stratum.max()) + 1)),
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
    pairs = _class_of(relevance, n_relevance) * n_position + _class_of(position, n_position)
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


def _class_of(score: FloatArray, n_classes: int) -> IntArray:
    """(documents,) 0..n_classes - 1 by size, equally many each but for ties."""
    limits = np.quantile(score, np.arange(1, n_classes) / n_classes)
    return np.searchsorted(limits, score)


def _require_mixed(together: PositionCounts) -> None:
    """Raise where features predict the position so well that no two alike were shown at both."""
    first = position_graph(together).components[0]
    lost = [k for k in range(1, together.depth + 1) if k not in first]
    if lost:
        raise IdentifiabilityError(
            f"position {lost[0]} cannot be compared with position 1: documents with like features "
            "were never shown at both, so the features give away the position. Leave out features "
            "that are made from it (an old rank, the production score), or swap positions 1 and "
            f"{lost[0]} in a share of the sessions and use relevance='counts'."
        )


def uncertainty_of_strata(
    cells: PositionCounts, fit: StratifiedFit, free: BoolArray, jacobian: FloatArray
) -> Uncertainty:
    """(m, m) covariance of m numbers that follow from the curves, strata having unknown relevance.

    As in `uncertainty_of_affine`, with a stratum instead of a document: its relevance takes

        h / sum w alpha^2,   h = sum over its cells w alpha x,   x = (gamma, 1)

    out of the score of each of its cells, s (x - alpha h / sum w alpha^2). A stratum has documents
    of many queries, so the scores are summed by query. What strata are too coarse to undo is no
    noise: `widened` adds what coarser ones change. 200 simulated logs say whether that is enough
    (docs/estimators/regression-em.md and trust-em.md).
    """
    gamma = np.empty(int(fit.stratum.max()) + 1)
    gamma[fit.stratum] = fit.affine.gamma
    together, affine = cells.grouped(fit.stratum), fit.affine._replace(gamma=gamma)
    J, _ = information(together, affine, np.zeros(len(gamma), dtype=np.int64))
    inverse = inverted(J[np.ix_(free, free)])
    to_numbers = np.zeros(jacobian.T.shape)
    to_numbers[free] = inverse @ jacobian[:, free].T
    query = np.unique(cells.query, return_inverse=True)[1]
    table = _influence_of_a_click(together, affine, to_numbers)
    n_queries = int(query.max()) + 1
    influence, noise = _sum_influence(cells.arrays, fit.stratum, query, affine, table, n_queries)
    by_session = jacobian[:, free] @ inverse @ jacobian[:, free].T
    return clustered(influence, noise, by_session)


def widened(errors: Uncertainty, change: FloatArray) -> Uncertainty:
    """With the change that coarser strata make to the numbers, as an error of its own."""
    change = np.where(np.isfinite(change), change, 0.0)
    return replace(
        errors,
        covariance=errors.covariance + np.outer(change, change),
        rule=joined(errors.rule, Fact("bias.errors-coarser-strata")),
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


@nb.njit(cache=True)
def _sum_influence(
    cells: Cells,
    stratum: IntArray,
    query: IntArray,
    affine: AffineFit,
    table: FloatArray,
    n_queries: int,
) -> tuple[FloatArray, FloatArray]:
    """(queries, m) sum of each query's scores, in terms of the numbers, and its variance."""
    indptr, position, impressions, clicks = cells
    alpha, beta, gamma = affine
    influence = np.zeros((n_queries, table.shape[2]))
    noise = np.zeros((n_queries, table.shape[2]))
    for d in range(len(stratum)):
        own, q = stratum[d], query[d]
        for cell in range(indptr[d], indptr[d + 1]):
            k, n, c = position[cell] - 1, impressions[cell], clicks[cell]
            p = min(max(alpha[k] * gamma[own] + beta[k], ERROR_EDGE), 1 - ERROR_EDGE)
            s = (c - n * p) / (p * (1 - p))
            for m in range(table.shape[2]):
                influence[q, m] += s * table[own, k, m]
                noise[q, m] += n / (p * (1 - p)) * table[own, k, m] ** 2
    return influence, noise
