"""What `LambdaMART` boosts on: objectives made of lists, a weighting and a bias.

An objective is called each round, `objective(scores, dataset) -> (gradient, hessian)`, which is the
signature of LightGBM and XGBoost alike. The dataset is not looked at: rows are the documents of the
training lists. An objective that is chosen by its name is a function `(lists, training)` with a
record, see `pbm_objective`.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, Self, TypedDict, TypeVar

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt.bias.contextual.curves import ContextualCurve
from untilt.bias.curve import PositionBias
from untilt.bias.given import BiasLike
from untilt.catalog import method
from untilt.errors import OptionError, ShapeError, check_choice
from untilt.objectives.losses import PbmLikelihood
from untilt.objectives.pair_slates import GAINS, PairSlates, list_norms, sum_pairs
from untilt.objectives.pairs import MapObjective, PairObjective
from untilt.rankers import learning_data
from untilt.rankers.learning_data import TrainingLists
from untilt.rankers.pooled import PooledTable, pooled_lists, whole_queries
from untilt.rankers.validation import of_positions
from untilt.weighting.base import JointWeighting, LearnedTable, Weighting
from untilt.weighting.tables import Naive

METRICS = ("ndcg", "dcg", "arp", "map", "none")


class TreeObjective(Protocol):
    """What boosting needs each round."""

    def __call__(self, scores: FloatArray, dataset: object = None) -> tuple[FloatArray, FloatArray]:
        """Gradient and hessian of the loss, one entry per document."""
        ...


T = TypeVar("T", bound=TreeObjective)


class LikeAFunction:
    """A copy of a function is the function itself.

    `lightgbm.train` copies its parameters deeply: the history of a joint weighting would be
    written to a copy that nobody sees, and all pair statistics would be held twice.
    """

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self


class PairTreeObjective(LikeAFunction):
    """Lambdas with a table of pair weights; `learned`, of a joint one, is refreshed each round."""

    def __init__(
        self,
        objective: PairObjective | MapObjective,
        weighting: Weighting,
        learned: LearnedTable | None = None,
    ) -> None:
        self.weighting = weighting
        self._learned = learned
        self._objective = objective
        if learned is None:
            depth = max(1, objective.slates.depth)
            table, offset = weighting.table(depth), weighting.offset(depth)
            self._objective = objective.with_table(table, offset)

    def __call__(self, scores: FloatArray, dataset: object = None) -> tuple[FloatArray, FloatArray]:
        """Gradient and hessian at these scores."""
        if isinstance(dataset, np.ndarray):  # scikit-learn's interface: (labels, scores)
            scores = dataset
        if len(scores) != self._objective.slates.n_documents:
            raise ShapeError(
                f"the data has {len(scores):,} rows, and this objective learns from "
                f"{self._objective.slates.n_documents:,}, one for each shown document. Train on "
                "ut.lightgbm_dataset(log) or ut.xgboost_matrix(log). Rows of impressions take "
                "ut.lightgbm_objective(weighting) or ut.xgboost_objective(weighting)."
            )
        if self._learned is not None:
            self._refresh(self._learned, scores)
        result = self._objective.evaluate(scores, self._table)
        return result.gradient, result.hessian

    def _refresh(self, learned: LearnedTable, scores: FloatArray) -> None:
        """The next table, by the scores so far. Equal scores say nothing: a training begins.

        XGBoost begins from a constant that is not 0.
        """
        if np.all(scores == scores[:1]):
            learned.restart()
        else:
            learned.update(self._objective.losses_by_position(scores))

    @property
    def _table(self) -> FloatArray | None:
        return None if self._learned is None else self._learned.table

    @property
    def history(self) -> list[Any]:
        """The state of a joint weighting after each round."""
        return [] if self._learned is None else self._learned.history

    def loss(self, scores: FloatArray) -> float:
        """The weighted loss at these scores, with the present table."""
        return self._objective.evaluate(scores, self._table, want_loss=True).loss

    def bias(self, n_trees: int | None = None) -> PositionBias | None:
        """What a joint weighting has learned (by the first `n_trees`); None for a given table."""
        return None if self._learned is None else self._learned.bias(n_trees)


class PbmTreeObjective(LikeAFunction):
    """The position-based likelihood, starting from the best constant score."""

    def __init__(self, likelihood: PbmLikelihood) -> None:
        self.likelihood = likelihood
        self.base_score = likelihood.base_score()

    def __call__(self, scores: FloatArray, dataset: object = None) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """Gradient and Fisher information at these scores."""
        return self.likelihood.gradient(scores + self.base_score)

    def loss(self, scores: FloatArray) -> float:
        """Negative log-likelihood."""
        return self.likelihood.loss(scores + self.base_score)


class Lambdas(TypedDict, total=False):
    """Options of `LambdaMART` that shape the lambdas, as one record: `lambdas=Lambdas(...)`."""

    metric: str
    gain: str
    sigma: float
    pair_norm: bool
    truncation: int | None
    query_weight: str


@dataclass(frozen=True)
class LambdaOptions:
    """What shapes the lambdas; see `LambdaMART`."""

    metric: str = "ndcg"
    gain: str = "auto"
    sigma: float = 2.0
    pair_norm: bool = True
    truncation: int | None = None
    query_weight: str = "sessions"

    def check(self) -> None:
        """Raise where an option is unknown."""
        check_choice("metric", self.metric, METRICS)
        check_choice("gain", self.gain, ("auto", *GAINS))

    def objective(self, slates: PairSlates) -> PairObjective | MapObjective:
        """The pair objective of these options."""
        kind = MapObjective if self.metric == "map" else partial(PairObjective, metric=self.metric)
        return kind(slates, sigma=self.sigma, pair_norm=self.pair_norm, truncation=self.truncation)


class SoftmaxObjective(LikeAFunction):
    """-sum_q t_q sum_i mu_i log softmax_q(s)_i: at its best s_i - s_j = log(mu_i / mu_j)."""

    def __init__(self, query: IntArray, mu: FloatArray, traffic: FloatArray) -> None:
        self._order = np.argsort(query, kind="stable")
        _, self._sizes = np.unique(query, return_counts=True)
        self._indptr = ragged.indptr_of(self._sizes)
        self._mu, self._traffic = mu[self._order], traffic[self._order]
        self._M = np.repeat(ragged.sums_by_list(self._indptr, self._mu), self._sizes)

    def __call__(self, scores: FloatArray, dataset: object = None) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """t (M p_i - mu_i) and t M p_i (1 - p_i), p the softmax and M the sum of mu in a query."""
        s = scores[self._order]
        e = np.exp(s - np.repeat(np.maximum.reduceat(s, self._indptr[:-1]), self._sizes))
        p = e / np.repeat(ragged.sums_by_list(self._indptr, e), self._sizes)
        gradient, hessian = np.empty(len(s)), np.empty(len(s))
        gradient[self._order] = self._traffic * (self._M * p - self._mu)
        hessian[self._order] = self._traffic * self._M * p * (1 - p)
        return gradient, hessian


@dataclass(frozen=True)
class BoostingOptions:
    """How trees are grown: LightGBM's parameters, the number of trees, and threads (None: all)."""

    params: dict[str, Any]
    n_trees: int
    n_threads: int | None = None


@dataclass(frozen=True)
class TreeTraining:
    """What an objective may ask of the ranker that it is made for; see `LambdaMART`.

    `prior_trees` are those of a model that an objective trains first; as many as of its own where
    not given.
    """

    bias: BiasLike | ContextualCurve | None
    boosting: BoostingOptions
    lambdas: LambdaOptions = field(default_factory=LambdaOptions)
    folds: int = 5
    seed: int = 0
    prior_trees: int | None = None


def lambda_objective(
    lists: TrainingLists, weighting: Weighting, options: LambdaOptions
) -> PairTreeObjective:
    """Pairs of the sessions, weighted by a table, or of what a weighting pools them to."""
    return _with_pairs(PairTreeObjective(*lambda_parts(lists, weighting, options)), lists)


def lambda_parts(
    lists: TrainingLists, weighting: Weighting, options: LambdaOptions
) -> tuple[PairObjective | MapObjective, Weighting, LearnedTable | None]:
    """What a `PairTreeObjective` is made of. These lists may have no pair: others may."""
    options.check()
    lists, weighting = pooled_lists(lists, weighting, options.gain)
    if isinstance(weighting, PooledTable):
        check_graded(options)
    slates = learning_data.pair_slates(
        lists,
        weighting,
        metric=options.metric,
        gain=learning_data.metric_gain(options.gain, lists),
        query_weight=options.query_weight,
        truncation=options.truncation,
    )
    learned = None
    if isinstance(weighting, JointWeighting):
        learned = learning_data.learned_table(weighting, lists, options.query_weight)
    return options.objective(slates), weighting, learned


def label_objective(
    lists: TrainingLists, labels: FloatArray, options: LambdaOptions
) -> TreeObjective:
    """One list per query over all its shown documents, with a graded label for each."""
    check_graded(options)
    shown = whole_queries(lists, labels)
    gain = shown.label
    traffic = sum_by(lists.query, lists.list_weights(options.query_weight))[shown.query]
    traffic = traffic * list_norms(shown.indptr, gain, options.metric, options.truncation)
    slates = sum_pairs(shown, shown.slate_of_list, gain=gain, weight=traffic, collapse=False)
    return _with_pairs(PairTreeObjective(options.objective(slates), Naive()), lists)


def softmax_objective(
    lists: TrainingLists, labels: FloatArray, options: LambdaOptions
) -> TreeObjective:
    """The softmax over the shown documents of each query, with these labels.

    The scores settle at the logs of the labels, instead of running apart on the sign of a noisy
    difference as lambdas on these labels do.
    """
    check_graded(options)
    traffic = sum_by(lists.query, lists.list_weights(options.query_weight))[lists.doc_query]
    return _with_pairs(SoftmaxObjective(lists.doc_query, labels, traffic), lists)


def check_graded(options: LambdaOptions) -> None:
    """Raise where an option is unknown, or the metric has no use for graded labels."""
    options.check()
    if options.metric == "map":
        raise OptionError(
            "⟦metric='map'⟧ knows relevant and irrelevant alone and cannot use graded "
            "labels, which are made here. Use ⟦metric='ndcg'⟧, or a table such as "
            "ut.PRS(bias)."
        )


def _with_pairs(objective: T, lists: TrainingLists) -> T:
    """The objective, unless no pair has any weight: trees would then all be empty."""
    _, hessian = objective(np.zeros(lists.n_documents))
    if not hessian.any():
        raise learning_data.nothing_to_learn()
    return objective


@method(
    "objective", "pbm-likelihood", options={"objective": "pbm-likelihood"},
    title="Position-based likelihood", order=60, drop=40,
    needs=("bias",), choose=("train", "select", "run"), public=False,
    note="boosted trees on the likelihood of clicks under the position-based model",
)  # fmt: skip
def pbm_objective(lists: TrainingLists, training: TreeTraining) -> PbmTreeObjective:
    """The position-based likelihood of the clicks."""
    alpha, beta = learning_data.affine_curves(of_positions(training.bias), lists.depth)
    if not lists.label.any():
        raise learning_data.nothing_to_learn()
    counts = learning_data.click_counts(lists, training.lambdas.query_weight)
    return PbmTreeObjective(PbmLikelihood(counts, alpha, beta))
