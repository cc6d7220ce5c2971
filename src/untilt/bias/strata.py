r"""Curves from documents that are alike in what features say: about relevance, and about position.

A learned relevance is never exact, and whoever ordered the lists used the same features. Where the
model smooths, the position still tells which of two documents is the better one, and the rest of
relevance is taken for examination. So the learned relevance only sorts, and so does the position
that the features predict: within a stratum, documents alike in both, where a document stood is left
to its competitors (position is the treatment, its prediction the propensity of [rosenbaum1983]_).
The relevance of each stratum is estimated anew, as if it were one document.

Right if either sorts well. Figures in docs/estimators/regression-em.md and trust-em.md. Strata by
learned relevance alone, 20 or 60, were no better than that relevance itself.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from untilt._core.arrays import FloatArray, IntArray, handed_over
from untilt.bias.boosted_em import TreeOptions, fold_of_documents
from untilt.bias.cells import Cells
from untilt.bias.class_em import class_em
from untilt.bias.count_em import position_based_em
from untilt.bias.identifiability import position_graph
from untilt.bias.lines import Lines
from untilt.bias.predicted_position import predicted_position
from untilt.errors import IdentifiabilityError

# Classes of learned relevance. There are six times as many of predicted position, the one that
# confounds: with 500 queries 5 x 20 strata left 3% of error in theta_10 where 10 x 10 left 4.4%.
CLASSES = (2, 10)
POSITION_CLASSES = 6
# What is lost by so much coarser strata is an honest guess of what even finer ones would bring, and
# is part of the errors: without it 95% intervals of trust bias covered in 88% to 96% of 200 logs.
COARSE_POSITION_CLASSES = 4
# Trust bias has more to fit: with strata of 17 documents it fitted the noise (beta an eighth too
# low), with 50 not. Without it larger strata only leave more error.
DOCUMENTS_PER_STRATUM = {False: 15, True: 50}


class Learned(Protocol):
    """Relevance learned from features, with curves of its own; see `BoostedFit`."""

    @property
    def lines(self) -> Lines:
        """The curves, and gamma of each document."""

    @property
    def history(self) -> FloatArray:
        """Log-likelihood of held-out clicks by step."""

    @property
    def status(self) -> str:
        """How it ended."""


@dataclass(frozen=True, eq=False)
class StratifiedFit:
    """Curves from strata, and the learned relevance that sorted them.

    Parameters
    ----------
    lines : the curves; gamma of a document is that of its stratum
    coarse : the same from coarser strata
    number : (documents,) stratum of each
    learned : what the model of relevance says of each document, with curves of its own
    history, status : of the model
    """

    lines: Lines
    coarse: Lines
    number: IntArray
    learned: Lines
    history: FloatArray
    status: str


def stratified(
    cells: Cells, features: FloatArray, fit: Learned, *, trust: bool, options: TreeOptions
) -> StratifiedFit:
    """The curves of a learned relevance, by strata. `features` has a row per document."""
    position = predicted_position(cells, features, fold_of_documents(cells, options), options)
    number, coarser = (
        strata_of(fit.lines.gamma, position, trust=trust, position_classes=classes)
        for classes in (POSITION_CLASSES, COARSE_POSITION_CLASSES)
    )
    return StratifiedFit(
        lines=lines_of_strata(cells, number, trust=trust),
        coarse=lines_of_strata(cells, coarser, trust=trust),
        number=number,
        learned=fit.lines,
        history=fit.history,
        status=f"{fit.status}; {int(number.max()) + 1} strata",
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


def lines_of_strata(cells: Cells, number: IntArray, *, trust: bool) -> Lines:
    """The curves of maximum likelihood where each stratum has one relevance."""
    together = pooled(cells, number)
    _require_mixed(together)
    if trust:
        plus, minus, gamma = class_em(together)
        return Lines(plus - minus, minus, handed_over(gamma[number]))
    theta, gamma = position_based_em(together, tolerance=1e-6, max_steps=20_000).state
    return Lines(theta, np.zeros(cells.depth), handed_over(gamma[number]))


def pooled(cells: Cells, number: IntArray) -> Cells:
    """The cells of each stratum as if it were one document."""
    n_strata, depth = int(number.max()) + 1, cells.depth
    key = np.repeat(number, np.diff(cells.indptr)) * depth + cells.position - 1
    impressions = np.bincount(key, cells.impressions, n_strata * depth)
    clicks = np.bincount(key, cells.clicks, n_strata * depth)
    used = np.flatnonzero(impressions)
    per_stratum = np.bincount(used // depth, minlength=n_strata)
    return Cells(
        indptr=handed_over(np.concatenate([[0], np.cumsum(per_stratum)])),
        query=handed_over(np.arange(n_strata)),
        document=handed_over(np.arange(n_strata)),
        position=handed_over((used % depth + 1).astype(np.int32)),
        impressions=handed_over(impressions[used]),
        clicks=handed_over(clicks[used]),
        depth=depth,
    )


def _class_of(score: FloatArray, n_classes: int) -> IntArray:
    """(documents,) 0..n_classes - 1 by size, equally many each but for ties."""
    limits = np.quantile(score, np.arange(1, n_classes) / n_classes)
    return np.searchsorted(limits, score)


def _require_mixed(together: Cells) -> None:
    """Raise where features tell the position so well that no two alike stood at both."""
    first = position_graph(together).components[0]
    lost = [k for k in range(1, together.depth + 1) if k not in first]
    if lost:
        raise IdentifiabilityError(
            f"position {lost[0]} cannot be compared with position 1: documents with like features "
            "never stood at both, so the features tell the position itself. Leave out features "
            "that are made from it (an old rank, the production score), or swap positions 1 and "
            f"{lost[0]} in a share of the sessions and use relevance='counts'."
        )
