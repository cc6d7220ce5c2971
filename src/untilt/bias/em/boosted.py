r"""EM where relevance is learned from features: gamma(x) by boosted trees, cross-fitted by query.

    P(click) = alpha_k gamma(x) + beta_k,   gamma = sigmoid(f),   beta = 0 without trust bias

Each round is one EM step. E step: the posterior relevance t of every impression. M step for gamma:
one more tree per fold on the soft targets t, whose gradient sum n (gamma - t) is that of the
log-likelihood itself (Fisher's identity); Fisher's information is used for the second derivative.
M step for the curves: the fixed point of theta_k = mean P(e=1 | c), by Newton's method.

A tree that has seen a document's clicks would explain them whatever the position, and the curve
would stay where it started: relevance at a query comes from trees grown on the other folds only.
Their likelihood on the held-out fold says when to stop.
"""

from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np

from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, IntArray, handed_over, varies
from untilt._core.progress import progress
from untilt._core.random import child_generator
from untilt._core.threads import thread_count
from untilt.bias.em.affine import EDGE, AffineFit, fit_affine
from untilt.bias.em.documents import FLOOR, HIGHEST_START
from untilt.data.counts import Cells, PositionCounts
from untilt.errors import OptionError
from untilt.facts import Fact

# Rounds before beta is set free: while gamma hardly varies, slope and level are not identified.
ROUNDS_WITHOUT_LEVEL = 20
NEWTON_STEPS_PER_ROUND = 2
NEWTON_STEPS_AT_THE_END = 200


@dataclass(frozen=True)
class TreeOptions:
    """How relevance is learned; LightGBM's names where it has them."""

    n_trees: int = 500
    learning_rate: float = 0.1
    n_leaves: int = 15
    min_data_in_leaf: int = 20
    folds: int = 5
    early_stopping: int = 20
    n_threads: int | None = None
    seed: int = 0

    def check(self) -> None:
        """Raise where an option makes no sense."""
        least = {"n_trees": 1, "n_leaves": 2, "min_data_in_leaf": 1, "folds": 2}
        for name, value in {**least, "early_stopping": 1}.items():
            if getattr(self, name) < value:
                raise OptionError(
                    f"{name} must be at least {value}. Got {getattr(self, name)} instead."
                )
        if not self.learning_rate > 0:
            raise OptionError(f"learning_rate must be above 0. Got {self.learning_rate} instead.")


@dataclass(frozen=True, eq=False)
class LearnedFit:
    """Relevance learned from features, cross-fitted, with curves of its own.

    history : (rounds,) log-likelihood of the held-out queries
    best_round : trees per fold, or epochs of the networks, that were kept
    """

    affine: AffineFit
    history: FloatArray
    best_round: int
    status: Fact


def boosted_em(
    cells: PositionCounts, features: FeatureArray, *, trust: bool, options: TreeOptions
) -> LearnedFit:
    """Learn relevance and the curves together. `features` has a row per document of the cells."""
    trees = CrossFittedTrees(cells, features, options)
    affine = start_affine(cells)
    trees.start(start_score(cells, affine))
    best, best_value, best_round, history = affine, -np.inf, 0, []
    with progress("growing trees of relevance", total=options.n_trees) as advance:
        for round_ in range(options.n_trees + 1):
            level = trust and round_ >= ROUNDS_WITHOUT_LEVEL
            affine, value = fit_affine(
                cells,
                affine._replace(gamma=trees.held_out()),
                level=level,
                steps=NEWTON_STEPS_PER_ROUND,
            )
            history.append(value)
            if value > best_value:
                best, best_value, best_round = affine, value, round_
            if round_ - best_round >= options.early_stopping or round_ == options.n_trees:
                break
            trees.grow(affine)
            advance()
    stopped = len(history) <= options.n_trees
    return LearnedFit(
        affine=at_maximum(cells, best, level=trust),
        history=handed_over(np.array(history)),
        best_round=best_round,
        status=Fact("bias.trees", n_trees=best_round)
        if stopped
        else Fact("bias.trees-used-up", n_trees=options.n_trees),
    )


class CrossFittedTrees:
    """One booster per fold of queries, on one binned dataset; none has seen its own fold."""

    def __init__(self, cells: PositionCounts, features: FeatureArray, options: TreeOptions) -> None:
        import lightgbm

        options.check()
        if not varies(features):
            raise constant_features(features)
        self.cells = cells
        self.fold = fold_of_documents(cells, options)
        binned = lightgbm.Dataset(
            features,
            label=np.zeros(len(features), dtype=np.float32),
            params=tree_params(options, features.size),
            free_raw_data=True,
        ).construct()
        self.boosters = [
            lightgbm.Booster(tree_params(options, features.size), binned)
            for _ in range(int(self.fold.max()) + 1)
        ]
        self.scale = len(features) / float(cells.impressions.sum())
        self.base = 0.0
        self.scores = np.zeros((len(self.boosters), len(features)))

    def start(self, score: float) -> None:
        """The same score for all documents."""
        self.base = score
        self.scores[:] = score

    def held_out(self) -> FloatArray:
        """(documents,) relevance by the trees that have not seen the document's query."""
        return _sigmoid(self.scores[self.fold, np.arange(len(self.fold))])

    def grow(self, affine: AffineFit) -> None:
        """One more tree in each booster, on the clicks of the other folds."""
        for held_out, booster in enumerate(self.boosters):
            own = affine._replace(gamma=_sigmoid(self.scores[held_out]))
            gradient, information = _document_gradient(
                self.cells.arrays, own, self.fold != held_out
            )
            pair = self.scale * gradient, self.scale * information
            booster.update(fobj=lambda *_, pair=pair: pair)
            self.scores[held_out] = self.base + _training_scores(booster)


def fold_of_documents(cells: PositionCounts, options: TreeOptions) -> IntArray:
    """(documents,) fold of each document's query; folds have as many queries as each other."""
    query = np.unique(cells.query, return_inverse=True)[1]
    n_queries = int(query.max()) + 1
    if n_queries < 2:
        raise OptionError(
            "relevance from features is cross-fitted by query, and this log has one query only. "
            "Use relevance='counts', or a log with more queries."
        )
    n_folds = min(options.folds, n_queries)
    shuffled = child_generator(options.seed, 31).permutation(n_queries)
    fold = np.empty(n_queries, dtype=np.int64)
    fold[shuffled] = np.arange(n_queries) % n_folds
    return fold[query]


def at_maximum(cells: PositionCounts, affine: AffineFit, *, level: bool) -> AffineFit:
    """The curves at their maximum, with the relevance of the best round."""
    return fit_affine(cells, affine, level=level, steps=NEWTON_STEPS_AT_THE_END, tolerance=1e-9)[0]


def start_affine(cells: PositionCounts) -> AffineFit:
    """alpha by click rates, beta 0, gamma not known yet."""
    rate = _click_rate(cells)
    alpha = np.maximum(HIGHEST_START * rate / rate.max(), FLOOR)
    return AffineFit(alpha, np.zeros(cells.depth), np.empty(0))


def start_score(cells: PositionCounts, affine: AffineFit) -> float:
    """The score of the one relevance that makes the start fit the click rates."""
    gamma = min(float(_click_rate(cells).max() / affine.alpha.max()), 0.95)
    return float(np.log(gamma / (1 - gamma)))


def _click_rate(cells: PositionCounts) -> FloatArray:
    shown = np.maximum(cells.by_position(cells.impressions), 1e-300)
    return cells.by_position(cells.clicks) / shown


def tree_params(options: TreeOptions, values: int) -> dict[str, Any]:
    """For LightGBM on so many values; the objective is left to the caller."""
    params: dict[str, Any] = {
        "objective": "none",
        "verbosity": -1,
        "deterministic": True,
        "force_row_wise": True,
        "feature_pre_filter": False,
        "learning_rate": options.learning_rate,
        "num_leaves": options.n_leaves,
        "min_data_in_leaf": options.min_data_in_leaf,
        # Gradients are per impression of an average document, so that twice the sessions of
        # the same clicks give the same trees.
        "min_sum_hessian_in_leaf": 1e-3,
        "feature_fraction": 0.9,
        "seed": options.seed,
    }
    n_threads = thread_count(options.n_threads, values=values)
    if n_threads is not None:
        params["num_threads"] = n_threads
    return params


def constant_features(features: FeatureArray) -> OptionError:
    """The error for features that do not vary."""
    return OptionError(
        f"all {features.shape[1]} features are constant over the {len(features)} shown documents, "
        "so relevance cannot be learned from them. Use relevance='counts', or give read_log other "
        "feature columns."
    )


def _training_scores(booster: Any) -> FloatArray:
    """Scores of the training rows, which LightGBM keeps: its public way to them is a metric."""
    kept: list[FloatArray] = []

    def keep(scores: FloatArray, _: Any) -> tuple[str, float, bool]:
        kept.append(scores)
        return "kept", 0.0, True

    booster.eval_train(feval=keep)
    return kept[0]


def _sigmoid(x: FloatArray) -> FloatArray:
    return 0.5 * (1 + np.tanh(0.5 * x))


@nb.njit(cache=True)
def _document_gradient(
    cells: Cells, affine: AffineFit, used: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Of minus the log-likelihood by the score of each document, and its information."""
    indptr, position, impressions, clicks = cells
    alpha, beta, gamma = affine
    gradient, information = np.zeros(len(gamma)), np.zeros(len(gamma))
    for d in range(len(gamma)):
        if not used[d]:
            continue
        for cell in range(indptr[d], indptr[d + 1]):
            k, n, c = position[cell] - 1, impressions[cell], clicks[cell]
            p = min(max(alpha[k] * gamma[d] + beta[k], EDGE), 1 - EDGE)
            slope = alpha[k] * gamma[d] * (1 - gamma[d])
            gradient[d] -= (c - n * p) * slope / (p * (1 - p))
            information[d] += n * slope * slope / (p * (1 - p))
    return gradient, information
