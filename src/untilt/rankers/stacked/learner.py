"""The stacked learner: one ranker from what clicks say and from what the old ranker knew.

The parts (`parts`) are weighted by the likelihood of clicks that their trees have not seen,

    eta = base + u_q + A + u_i,     A = b pi + k_x x + k_s s,     b, k_x, k_s >= 0,

pi with standard deviation 1. The priors b ~ N(.15 r, .04^2), r the correlation of pi with what it
imitates, and k ~ N(1/2, .3^2) leave few clicks the mean of x and s with some of the old ranker,
who knew something that few clicks cannot tell; many clicks choose. The clicks of a document and A
together give its posterior relevance, that of a candidate which was never shown is A at the level
of its query:

    mu_i = sigmoid(mode of eta_i with A as its prior mean).

Trees on -sum_q sum_i mu_i log softmax_q(B)_i give the second score B. What is served is
A/sd(A) + B/sd(B), as one booster: the trees of all parts and folds, each with its weight.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from untilt._core.arrays import FloatArray, sum_by
from untilt.bias.contextual.curves import ContextualCurve
from untilt.bias.given import BiasLike
from untilt.data.clicklog import ClickLog
from untilt.data.grades import Grades
from untilt.objectives.graded import Judge
from untilt.objectives.hierarchical import ClickCells, HierarchyFit, fit_hierarchy
from untilt.objectives.losses import sigmoid
from untilt.rankers.learning_data import QUERY_WEIGHTS, TrainingLists
from untilt.rankers.stacked.parts import (
    LONG_STEPS,
    Clicks,
    Line,
    PartRows,
    click_trees,
    line_of,
    old_ranker,
    rows_of,
    small_trees,
    steps_of,
)
from untilt.rankers.trees.boosting import merged
from untilt.rankers.trees.crossfit import CrossFitted, FoldTraining, TreesTried, folds_of
from untilt.rankers.trees.objectives import SoftmaxObjective, TreeTraining
from untilt.rankers.validation import cells_of, graded_logits

if TYPE_CHECKING:
    import lightgbm

# Bins of a feature: with a few thousand documents 255 take longer, and hardly say more.
MOST_BINS = 127
# Mean and standard deviation of the priors of b / r and of k.
OLD, OLD_ERROR = 0.15, 0.04
OF_CLICKS, OF_CLICKS_ERROR = 0.5, 0.3
RANDOM, ON_LINE, OLD_RANKER, ORDER = "random trees", "line and trees", "old ranker", "order"


@dataclass(frozen=True, eq=False)
class StackedFit:
    """All that the stacked learner has learned, and the booster to serve.

    Parameters
    ----------
    parts : pi, x, s (without its line) and B
    stack : b, k_x, k_s, v and s2
    scores : (rows,) pi, x, s and A by trees that have not seen the row's query. B is none of them:
        its labels rest on models that have
    spread : of what each part adds to the served score
    """

    rows: PartRows
    line: Line
    parts: dict[str, CrossFitted]
    stack: dict[str, float]
    scores: dict[str, FloatArray]
    spread: dict[str, float]
    booster: "lightgbm.Booster"
    judges: tuple[Judge, ...] = ()

    @property
    def trees(self) -> dict[str, TreesTried]:
        """Of each part."""
        return {name: part.tried for name, part in self.parts.items()}


def fit_stacked(
    log: ClickLog,
    lists: TrainingLists,
    training: TreeTraining,
    bias: BiasLike | ContextualCurve | None,
    labels: Grades | None = None,
) -> StackedFit:
    """All parts, their weights, and the booster to serve."""
    rows = rows_of(log, lists, training.seed)
    cells = cells_of(log, bias, rows.document[: rows.n_shown])
    judges: tuple[Judge, ...] = ()
    if labels is not None:
        grades, judges = graded_logits(log, cells, rows.document, labels)
        rows, grades = rows.with_evidence(grades, grades[1] > 0)
        cells = replace(cells_of(log, bias, rows.document[: rows.n_shown]), grades=grades)
    fold = folds_of(rows.query, None, training.seed)
    coarse = replace(training.boosting, params={"max_bin": MOST_BINS, **training.boosting.params})
    folds = FoldTraining(rows.features, fold, coarse)
    clicks, sessions = Clicks.of(cells, rows, folds), float(log.n_sessions)
    x, model = click_trees(clicks, folds, sessions)
    line = line_of(clicks, rows, folds, model)
    s, _ = click_trees(clicks, folds, sessions, begin=model, line=line)
    pi, r = old_ranker(log, rows, folds)
    unit = _inverse_std(pi.scores)
    columns = np.column_stack([unit * pi.scores, x.scores, line.scores + s.scores])
    fit = stack(cells, columns[: rows.n_shown], r)
    weights = fit.weights[1:]
    A = columns @ weights
    mu = posterior(fit, rows, A)
    traffic = traffic_of(log, rows, training.lambdas.query_weight)
    B = order_part(mu, traffic, rows, folds, x.tried.best)
    to_A, to_B = _inverse_std(A), _inverse_std(B.scores)
    b, k_x, k_s = to_A * weights
    parts = {OLD_RANKER: (pi, b * unit), RANDOM: (x, k_x), ON_LINE: (s, k_s), ORDER: (B, to_B)}
    spread = (*(np.std(columns, axis=0) * to_A * weights), np.std(B.scores) * to_B)
    scores = dict(zip((OLD_RANKER, RANDOM, ON_LINE), columns.T, strict=True))
    return StackedFit(
        rows=rows,
        line=line,
        parts={name: part for name, (part, _) in parts.items()},
        stack=dict(zip(("b", "k_x", "k_s"), weights.tolist(), strict=True))
        | {"v": fit.model.v, "s2": fit.model.s2},
        scores=scores | {"stacked": A},
        spread=dict(zip(parts, map(float, spread), strict=True)),
        booster=merged(
            [each for part, weight in parts.values() for each in part.parts(weight)],
            line.trees(k_s, rows.features) if k_s > 0 else [],
        ),
        judges=judges,
    )


def _inverse_std(scores: FloatArray) -> float:
    """1 / standard deviation; 0 for scores that are all the same."""
    spread = float(np.std(scores))
    return 1 / spread if spread > 1e-9 else 0.0


def stack(cells: ClickCells, columns: FloatArray, r: float) -> HierarchyFit:
    """base, b, k_x and k_s by the clicks of the shown rows; `columns` are pi, x and s."""
    return fit_hierarchy(
        cells,
        np.column_stack([np.ones(len(columns)), columns]),
        low=(-np.inf, 0.0, 0.0, 0.0),
        prior_mean=(0.0, OLD * r, OF_CLICKS, OF_CLICKS),
        prior_precision=(0.0, OLD_ERROR**-2, OF_CLICKS_ERROR**-2, OF_CLICKS_ERROR**-2),
    )


def posterior(fit: HierarchyFit, rows: PartRows, A: FloatArray) -> FloatArray:
    """mu: relevance after clicks and grades, with A as what is known before them."""
    eta = fit.weights[0] + A + fit.effects.query[rows.query]
    eta[: rows.n_shown] += fit.effects.document
    return sigmoid(eta)


def traffic_of(log: ClickLog, rows: PartRows, query_weight: str) -> FloatArray:
    """(rows,) what the query of each weighs by its sessions: 1 on average over queries."""
    sessions = sum_by(log.query, log.sessions, log.n_queries)[log.doc_query[rows.document]]
    share = sessions ** (1 - QUERY_WEIGHTS[query_weight])
    _, first = np.unique(rows.query, return_index=True)
    return share / share[first].mean()


def order_part(
    mu: FloatArray, traffic: FloatArray, rows: PartRows, folds: FoldTraining, n_trees: int
) -> CrossFitted:
    """B, bagged over the folds.

    Held-out clicks cannot choose its number of trees: labels of other folds rest on a model that
    has seen these clicks, and what B remembers of them comes back.
    """
    own = [folds.training_rows(k) for k in range(folds.n_folds)]
    params = small_trees(folds.params, steps_of(LONG_STEPS, rows.n_shown))
    return folds.grow(
        [SoftmaxObjective(rows.query[each], mu[each], traffic[each]) for each in own],
        None, what="ordering documents", most=n_trees, params=params,
    )  # fmt: skip
