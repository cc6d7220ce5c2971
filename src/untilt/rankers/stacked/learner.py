"""The stacked learner: one ranker from what clicks say and from what the old ranker knew.

The parts (`parts`) are stacked by the likelihood of held-out clicks into a score A (`stacking`).
The clicks of a document and A together give its posterior relevance

    mu_i = sigmoid(mode of eta_i with A as its prior mean),

and lambdas on it give the second score B (`posterior_pairs`). What is served is A/sd(A) + B/sd(B),
as one booster: the trees of all parts and folds, each with its weight. Where lists are cut, A is a
product of trees (m depends on rho); the part of it that is no sum, A - b pi - k f, is learned by
trees of its own, to which it is a target with hardly any noise.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.random import child_generator
from untilt._core.threads import side_by_side
from untilt.bias.contextual.curves import ContextualCurve
from untilt.bias.given import BiasLike
from untilt.data.clicklog import ClickLog
from untilt.objectives.hierarchical import ClickCells, Hierarchy, HierarchyFit
from untilt.objectives.losses import sigmoid
from untilt.objectives.pairs import GradedSlates
from untilt.rankers.learning_data import QUERY_WEIGHTS, TrainingLists
from untilt.rankers.stacked.parts import (
    EXACT,
    EXACT_TREES,
    OF_CLICKS,
    RATE,
    Likelihood,
    LinearPart,
    PartRows,
    Stack,
    click_part,
    imitation_correlation,
    linear_part,
    mean_log_rank,
    old_ranker_part,
    rows_of,
    slopes,
    stack,
    support_part,
)
from untilt.rankers.trees.boosting import merged
from untilt.rankers.trees.crossfit import (
    MANY_QUERIES,
    CrossFitted,
    FoldTraining,
    TreesTried,
    folds_of,
)
from untilt.rankers.trees.objectives import GradedTreeObjective, LambdaOptions, TreeTraining
from untilt.rankers.validation import cells_of

if TYPE_CHECKING:
    import lightgbm

# Bins of a feature: with a few thousand documents 255 take longer, and hardly say more.
MOST_BINS = 127
# From so many queries on B is trained once on all queries, not once without each fold. Measured
# NDCG@10 with B trained once: .7765 against .7764 with 500 queries, but .348 against .364 and .429
# against .445 with 50 to 70.
ONCE_QUERIES = 300
# From so many on trees of the ranker's own shape take the place of those with random thresholds.
# With 500 to 800 queries held-out clicks refused them in 15 of 16 fits; with 1,500 NDCG@10 was
# .8130 with them and .8096 without (100 sessions each), .7978 and .7950 (10). Random thresholds
# beside them changed it by +.0000 to -.0026 (six logs of 1,500 queries, two of 4,000), for a third
# of the time. The linear part is for fewer. From MANY_QUERIES on there is no other shape: with
# 12,000 NDCG@10 was .8423 without small trees and .8431 with them (30 sessions each), in 60% of
# the time.
RICH_QUERIES = 1000
# A handful of weights is as sure with the clicks of so many queries as with more.
STACKING_QUERIES = 4000
# Trees and lines of equal weight count as much as what this many queries say of their weights.
EQUAL_SHARES = 70
ORDER = "lambdas"
# Lambdas have graded labels without the noise of clicks: from ONCE_QUERIES on B has twice the trees
# of f, and some where clicks allow few. Twice as many changed NDCG@10 by -.0008 to +.0034, +.0012
# in the mean of 13 simulated logs, by +.0018 on MQ2008 (10 logs) and by +.0002 with 50 to 70
# queries (20 logs), where three times as many took .0042.
MORE_OF_ORDER, FEWEST_OF_ORDER = 2, 25
# From MANY_QUERIES on B takes a quarter of them, with steps twice as long: with 12,000 queries
# NDCG@10 changed by -.0003 +- .0011 and -.0011 +- .0008 by half of the trees of f, and the whole
# learner takes a third less time.
LONGER_STEPS = 2


@dataclass(frozen=True, eq=False)
class Shapes:
    """One part in several shapes of trees, added with weights.

    Parameters
    ----------
    trees, weights : by the name of the shape
    scores : (rows,) the weighted sum, cross-fitted, with mean 0 over the shown rows
    shift : what was taken off for that
    """

    trees: dict[str, CrossFitted]
    weights: dict[str, float]
    scores: FloatArray
    shift: float

    @classmethod
    def of(cls, trees: dict[str, CrossFitted], weights: dict[str, float], n: int) -> "Shapes":
        """The weighted sum; the first `n` rows were shown."""
        scores = np.sum([weights[name] * each.scores for name, each in trees.items()], axis=0)
        shift = float(np.mean(scores[:n]))
        return cls(trees, weights, scores - shift, shift)

    def parts(self, weight: float) -> "list[tuple[lightgbm.Booster, int, float]]":
        """What `merged` takes."""
        return [
            part
            for name, each in self.trees.items()
            for part in each.parts(weight * self.weights[name])
        ]


@dataclass(frozen=True, eq=False)
class ClickScore:
    """f = trees * (scores of the shapes) + lines * (scores of the lines) - shift.

    `scores` (rows,) are cross-fitted, with mean 0 over the shown rows.
    """

    trees: float
    lines: float
    shift: float
    scores: FloatArray


@dataclass(frozen=True, eq=False)
class StackedFit:
    """All that the stacked learner has learned, and the booster to serve.

    Parameters
    ----------
    clicks, lines, old, support, lambdas : the parts; no lines with many queries, no support where
        nothing is unshown
    click_score : f, of trees and lines
    tried : trees of the likelihood, also of a shape that is not used
    stack : the weights of the parts in A
    model : v and s2 of the effects that A leaves
    contributions : (rows,) what each part adds to the served score, cross-fitted
    """

    rows: PartRows
    clicks: Shapes
    lines: LinearPart | None
    click_score: ClickScore
    tried: dict[str, TreesTried]
    old: CrossFitted
    support: CrossFitted | None
    lambdas: Shapes
    stack: Stack
    model: Hierarchy
    contributions: dict[str, FloatArray]
    booster: "lightgbm.Booster"

    @property
    def held_out(self) -> dict[str, FloatArray]:
        """(rows,) f, pi and A by trees that have not seen the row's query.

        B is none of them: its labels rest on models that have.
        """
        A = np.sum([own for name, own in self.contributions.items() if name != ORDER], axis=0)
        lines = {} if self.lines is None else {"linear": self.lines.scores}
        return {
            "likelihood": self.clicks.scores, **lines, "old ranker": self.old.scores, "stacked": A
        }  # fmt: skip

    @property
    def trees(self) -> dict[str, TreesTried]:
        """Of each part."""
        shapes = {f"likelihood, {name} trees": each for name, each in self.tried.items()}
        support = {} if self.support is None else {"support": self.support.tried}
        lambdas = {f"lambdas, {name} trees": each.tried
                   for name, each in self.lambdas.trees.items()}  # fmt: skip
        return {**shapes, "old ranker": self.old.tried, **support, **lambdas}


def fit_stacked(
    log: ClickLog,
    lists: TrainingLists,
    training: TreeTraining,
    bias: BiasLike | ContextualCurve | None,
) -> StackedFit:
    """All parts, their weights, and the booster to serve."""
    rows = rows_of(log, lists, training.seed)
    cells = cells_of(log, bias, rows.document[: rows.n_shown])
    fold = folds_of(rows.query, None, training.seed)
    coarse = replace(training.boosting, params={"max_bin": MOST_BINS, **training.boosting.params})
    folds = FoldTraining(rows.features, fold, coarse)
    options = shapes_of(folds.params, rows.n_queries)
    L = mean_log_rank(log, rows)
    sessions = float(log.n_sessions)
    todo: list[Callable[[], Any]] = [
        *(partial(click_part, cells, rows, folds, sessions, params) for params in options.values()),
        partial(old_ranker_part, L, rows, folds),
        *([partial(support_part, rows, folds)] if rows.n_unshown else []),
    ]
    *each_shape, old, support = _side_by_side(todo, folds) + [None] * (not rows.n_unshown)
    likelihoods = dict(zip(options, each_shape, strict=True))
    some, asked = cells.of_some_queries(STACKING_QUERIES)
    clicks, model = chosen_shapes(some, asked, likelihoods, rows.n_shown)
    lines = linear_part(cells, rows, folds, model) if rows.n_queries < RICH_QUERIES else None
    click_score = combine_trees_and_linear(cells, clicks, lines)
    pi, f, n = old.scores * _inverse_std(old.scores), click_score.scores, rows.n_shown
    rho = np.ones(len(f)) if support is None else support.scores
    weights = stack(
        some,
        model,
        pi[asked],
        f[asked],
        None if support is None else rho[asked],
        imitation_correlation(old),
    )
    A = weights.score(pi, f, rho)
    mu, model = posterior(cells, rows, A, slopes(some, [A[asked]]))
    no_sum = None if support is None else A - weights.b * pi - weights.k * f
    lambdas, exact = _lambdas(
        log, rows, L, mu, weights, clicks, folds, training, options, no_sum=no_sum
    )
    to_A, to_B = _inverse_std(A), _inverse_std(lambdas.scores)
    sums = [
        *clicks.parts(to_A * weights.k * click_score.trees),
        *old.parts(to_A * weights.b * _inverse_std(old.scores)),
        *lambdas.parts(to_B),
    ]
    steps = []
    if lines is not None and click_score.lines > 0:
        steps = lines.trees(to_A * weights.k * click_score.lines, rows.features)
    if exact is not None:
        sums.append((exact, EXACT_TREES, to_A))
    believed = to_A * weights.k * weights.believed(rho)
    linear = np.zeros(len(f)) if lines is None else click_score.lines * lines.scores
    linear = believed * (linear - np.mean(linear[:n]))
    return StackedFit(
        rows=rows,
        clicks=clicks,
        lines=lines,
        click_score=click_score,
        tried={name: each.trees.tried for name, each in likelihoods.items()},
        old=old,
        support=support,
        lambdas=lambdas,
        stack=weights,
        model=model,
        contributions={
            "likelihood": believed * f - linear,
            **({} if lines is None else {"linear": linear}),
            "old ranker": to_A * A - believed * f,
            ORDER: to_B * lambdas.scores,
        },
        booster=merged(sums, steps),
    )


def _side_by_side(parts: list[Callable[[], Any]], folds: FoldTraining) -> list[Any]:
    """Each part; at the same time where trees are small, one after the other where they are not."""
    threads = folds.options.n_threads if folds.n_threads == 1 else 1
    return side_by_side(lambda part: part(), parts, n_threads=threads)


def combine_trees_and_linear(
    cells: ClickCells, clicks: Shapes, lines: LinearPart | None
) -> ClickScore:
    """f: trees and linear part, weighted between equal shares and what held-out clicks favour.

    Both say nearly the same, so that few clicks can hardly tell them apart.
    """
    n = cells.n_documents
    if lines is None:
        return ClickScore(1.0, 0.0, 0.0, clicks.scores)
    both = np.column_stack([clicks.scores, lines.scores])
    spread = np.std(both[:n], axis=0)
    slope = slopes(cells, list(both[:n].T)).weights[1:] * spread
    weights = np.array([1.0, 0.0])
    if slope.any():
        told = cells.n_queries / (cells.n_queries + EQUAL_SHARES)
        shares = told * slope + (1 - told) * slope.mean()
        weights = np.divide(shares, spread, out=np.zeros(2), where=spread > 0)
    scores = both @ weights
    shift = float(np.mean(scores[:n]))
    return ClickScore(float(weights[0]), float(weights[1]), shift, scores - shift)


def _inverse_std(scores: FloatArray) -> float:
    """1 / standard deviation; 0 for scores that are all the same."""
    spread = float(np.std(scores))
    return 1 / spread if spread > 1e-9 else 0.0


def shapes_of(params: dict[str, Any], n_queries: int) -> dict[str, dict[str, Any]]:
    """The shapes of trees to try, with their parameters."""
    rate = {"learning_rate": RATE * params["learning_rate"]}
    wanted = {"fine" if n_queries >= RICH_QUERIES else "random"}
    if params["num_leaves"] > OF_CLICKS["small"]["num_leaves"] and n_queries < MANY_QUERIES:
        wanted.add("small")
    return {name: {**rate, **each} for name, each in OF_CLICKS.items() if name in wanted}


def chosen_shapes(
    cells: ClickCells, asked: IntArray, likelihoods: dict[str, Likelihood], n: int
) -> tuple[Shapes, Hierarchy]:
    """The best shape, and each further one that makes the mean of them no worse.

    Best first, a shape is added unless held-out clicks are clearly less likely by the mean with it
    (two standard errors over queries). A shape that is itself clearly behind still helps the mean:
    NDCG@10 .7730 against .7645 (simulated, 500 queries, 10 sessions each). `cells` are the clicks
    of the rows `asked`, the first `n` rows all that were shown.
    """
    trees = {name: each.trees for name, each in likelihoods.items()}

    def fit(names: list[str]) -> HierarchyFit:
        return slopes(cells, [np.mean([trees[name].scores[asked] for name in names], axis=0)])

    alone = {name: fit([name]) for name in trees}
    order = sorted(trees, key=lambda name: -alone[name].log_likelihood)
    kept, best = order[:1], alone[order[0]]
    for name in order[1:]:
        new = fit([*kept, name])
        loss = best.per_query - new.per_query
        if loss.sum() <= 2 * float(np.std(loss)) * np.sqrt(len(loss)):
            kept, best = [*kept, name], new
    parts = {name: trees[name] for name in trees if name in kept}
    return Shapes.of(parts, dict.fromkeys(parts, 1 / len(parts)), n), best.model


def _lambdas(
    log: ClickLog,
    rows: PartRows,
    L: FloatArray,
    mu: FloatArray,
    weights: Stack,
    clicks: Shapes,
    folds: FoldTraining,
    training: TreeTraining,
    options: dict[str, dict[str, Any]],
    *,
    no_sum: FloatArray | None,
) -> "tuple[Shapes, lightgbm.Booster | None]":
    """B in the shapes that the likelihood has, each divided by its spread; at the same time trees
    on the part of A that is no sum, where there is one.
    """
    weight = np.where(rows.is_shown > 0, 1.0, abs(weights.kappa) * rows.weight)
    among = np.flatnonzero(weight)
    traffic = traffic_of(log, rows, training.lambdas)
    slates = posterior_pairs(rows, L, mu, weight, traffic, among)
    once = rows.n_queries >= ONCE_QUERIES
    many = rows.n_queries >= MANY_QUERIES
    more, longer = (1 / LONGER_STEPS, LONGER_STEPS) if many else (MORE_OF_ORDER if once else 1, 1)

    def part(name: str) -> CrossFitted:
        n_trees = int(more * max(FEWEST_OF_ORDER, clicks.trees[name].tried.best))
        params = {**options[name], "learning_rate": longer * options[name]["learning_rate"]}
        return lambda_part(slates, folds, among, training.lambdas, n_trees, params, once=once)

    def exact() -> "lightgbm.Booster | None":
        return None if no_sum is None else folds.regress(no_sum, EXACT_TREES, EXACT)

    todo: list[Callable[[], Any]] = [*(partial(part, name) for name in clicks.trees), exact]
    *at_once, of_product = _side_by_side(todo, folds)
    parts = dict(zip(clicks.trees, at_once, strict=True))
    per = {name: _inverse_std(each.scores) / len(parts) for name, each in parts.items()}
    return Shapes.of(parts, per, rows.n_shown), of_product


def posterior(
    cells: ClickCells, rows: PartRows, A: FloatArray, fit: HierarchyFit
) -> tuple[FloatArray, Hierarchy]:
    """(mu, model): relevance after the clicks, with A as what is known before them.

    `fit` has the constant and the slope of A, and the variances. Unshown candidates have no clicks:
    theirs is what A says at the level of their query.
    """
    n, model = rows.n_shown, replace(fit.model, cells=cells)
    eta = fit.weights[0] + fit.weights[1] * A
    whole = cells is fit.model.cells
    effects = fit.effects if whole else model.modes(eta[:n])
    eta += effects.query[rows.query]
    eta[:n] += effects.document
    return sigmoid(eta), model


# Lambdas on posterior relevance, over documents that were shown and candidates that never were.
#
# Every pair of a query pulls both ways, "i above j" with mu_i and "j above i" with mu_j, times
# |D(rank_i) - D(rank_j)|: the scores settle where their difference is the log of the ratio of the
# relevances. A row that was never shown weighs |kappa| times the documents it stands for: 1 where
# the clicks say nothing of such documents, 0 where they are as good a guide there as anywhere.


def lambda_part(
    slates: GradedSlates,
    folds: FoldTraining,
    among: IntArray,
    options: LambdaOptions,
    n_trees: int,
    params: dict[str, Any],
    *,
    once: bool,
) -> CrossFitted:
    """B of one shape of trees, bagged over the folds or trained once on all rows.

    The number of trees is that of the likelihood. Held-out clicks cannot choose it: labels of other
    folds rest on a model that has seen these clicks, and what B remembers of them comes back.
    """
    if once:
        objective = GradedTreeObjective(_of_rows(slates, among), options)
        return folds.grow_once(objective, among, n_trees, params)
    objectives = [
        GradedTreeObjective(_of_rows(slates, folds.training_rows(k, among)), options)
        for k in range(folds.n_folds)
    ]
    return folds.grow(
        objectives, None, what="ordering documents", among=among, most=n_trees, params=params
    )


def posterior_pairs(
    rows: PartRows,
    L: FloatArray,
    mu: FloatArray,
    weight: FloatArray,
    traffic: FloatArray,
    among: IntArray,
) -> GradedSlates:
    """The rows `among` of each query, with mu as their labels.

    Equal scores rank as the old ranker did, then by a projection of the features: trees leave many
    scores equal, and the order of the documents table must not decide between them.
    """
    direction = child_generator(0, 1).standard_normal(rows.features.shape[1])
    projection = np.nan_to_num(rows.features[among]) @ direction
    order = among[np.lexsort((projection, L[among], rows.query[among]))]
    queries, sizes = np.unique(rows.query[order], return_counts=True)
    return GradedSlates(
        indptr=ragged.indptr_of(sizes),
        query=queries,
        count=traffic[queries],
        document=order,
        position_index=np.zeros(len(order), dtype=np.int64),
        n_documents=len(rows.query),
        label=mu[order],
        weight=weight[order],
    )


def _of_rows(slates: GradedSlates, own: IntArray) -> GradedSlates:
    """The slates of these rows, whole queries, numbered 0, 1, ... in their order."""
    number = np.full(slates.n_documents, -1, dtype=np.int64)
    number[own] = np.arange(len(own))
    part = slates.take(np.flatnonzero(number[slates.document[slates.indptr[:-1]]] >= 0))
    return replace(part, document=number[part.document], n_documents=len(own))


def traffic_of(log: ClickLog, rows: PartRows, options: LambdaOptions) -> FloatArray:
    """(queries,) what each weighs by its sessions: 1 on average."""
    sessions = sum_by(log.query, log.sessions, log.n_queries)
    shown = slice(rows.n_shown)
    traffic = np.zeros(rows.n_queries)
    traffic[rows.query[shown]] = sessions[log.doc_query[rows.document[shown]]]
    share = traffic ** (1 - QUERY_WEIGHTS[options.query_weight])
    return share / share.mean()
