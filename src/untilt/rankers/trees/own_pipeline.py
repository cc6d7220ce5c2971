"""For a LightGBM, XGBoost or CatBoost pipeline: the objective, or the pairs, and matching rows."""

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
import numpy.typing as npt

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt.bias.contextual.curves import ContextualCurve
from untilt.bias.curve import PositionBias
from untilt.bias.given import BiasLike
from untilt.data.clicklog import ClickLog
from untilt.data.grades import Grades
from untilt.data.judged import JudgedLists
from untilt.errors import NotFittedError, OptionError, ShapeError
from untilt.objectives.hierarchical import fit_hierarchy
from untilt.objectives.pairs import PairObjective
from untilt.rankers.learning_data import (
    TrainingLists,
    metric_gain,
    nothing_to_learn,
    pair_slates,
    training_lists,
)
from untilt.rankers.pooled import pooled_lists
from untilt.rankers.stacked.parts import HierarchicalObjective
from untilt.rankers.trees.boosting import dataset_of
from untilt.rankers.trees.objectives import (
    LambdaOptions,
    LikeAFunction,
    PairTreeObjective,
    lambda_objective,
)
from untilt.rankers.validation import cells_of, graded_logits
from untilt.weighting.base import JointWeighting, Weighting
from untilt.weighting.tables import Naive

if TYPE_CHECKING:
    import lightgbm


def objective(
    log: ClickLog | JudgedLists,
    weighting: Weighting | None = None,
    *,
    metric: str = "ndcg",
    gain: str = "auto",
    sigma: float = 2.0,
    pair_norm: bool = True,
    truncation: int | None = None,
    query_weight: str = "sessions",
) -> PairTreeObjective:
    """The objective that `LambdaMART` trains on, for `lightgbm.train` or `xgboost.train`.

    It expects the rows of `lightgbm_dataset(log)` or `xgboost_matrix(log)`: every document that was
    shown, once, in the order of the log's documents. A joint weighting is learned along the way:
    `.bias()` and `.history` of the objective tell afterwards, until the next training starts.

    ``lightgbm.train({"objective": ut.objective(log, ut.PRS(bias))}, ut.lightgbm_dataset(log))``
    """
    options = LambdaOptions(metric, gain, sigma, pair_norm, truncation, query_weight)
    lists = training_lists(log, weighting)
    return lambda_objective(lists, weighting or Naive(), options)


def xgboost_objective(
    weighting: Weighting,
    *,
    positions: npt.ArrayLike | None = None,
    counts: npt.ArrayLike | None = None,
    **options: Any,
) -> "RowObjective":
    """What takes the place of XGBoost's ``lambdarank_unbiased``, on the same `DMatrix`.

    One row per impression, one group per session, labels that are clicks. The rows of a group stand
    in the order in which they were shown, as ``lambdarank_unbiased`` wants it; else `positions`
    says where each stood.

    ``xgboost.train(params, dtrain, obj=ut.xgboost_objective(ut.PRS(bias)))``

    Where sessions show the same documents again, `objective(log, weighting)` learns the same from
    fewer rows.

    Parameters
    ----------
    weighting : of pairs, such as `PRS(bias)`; `PairwiseDebiasing()` is ``lambdarank_unbiased``'s
    positions : (rows,) from 1
    counts : (groups,) how many equal sessions a group stands for, such as `log.count` with the rows
        ``log.features[log.document]`` of a collapsed log; one each where not given
    options : those of `objective`: metric, gain, sigma, pair_norm, truncation, query_weight
    """
    return RowObjective(weighting, positions, options, counts)


def lightgbm_objective(
    weighting: Weighting,
    *,
    positions: npt.ArrayLike | None = None,
    counts: npt.ArrayLike | None = None,
    **options: Any,
) -> "RowObjective":
    """What takes the place of LightGBM's ``lambdarank``, with or without `position`.

    One row per impression, one group per session, labels that are clicks. The rows of a group stand
    in the order in which they were shown; else `positions` says where each stood. Leave `position`
    out of the data set: LightGBM numbers it anew, by first appearance.

    ``lightgbm.train({"objective": ut.lightgbm_objective(ut.PRS(bias))}, dataset)``
    ``LGBMRanker(objective=ut.lightgbm_objective(ut.PRS(bias))).fit(X, clicks, group=sizes)``

    Parameters are those of `xgboost_objective`.
    """
    return RowObjective(weighting, positions, options, counts)


class _Rows(SimpleNamespace):
    """Labels and group sizes of arrays, as a data set has them."""


class RowObjective(LikeAFunction):
    """A call (scores, data) -> (gradient, hessian) that learns from the labels of that data.

    Built anew for each data set that it is called with. `.bias()` and `.history` tell what a joint
    weighting has learned in the last training.
    """

    def __init__(
        self,
        weighting: Weighting,
        positions: npt.ArrayLike | None,
        options: dict[str, Any],
        counts: npt.ArrayLike | None = None,
    ) -> None:
        self.weighting, self.positions, self.options = weighting, positions, options
        self.counts = counts
        self._data: Any = None
        self._arrays: _Rows | None = None
        self._objective: PairTreeObjective | None = None

    def __call__(
        self, scores: FloatArray, data: Any, weight: Any = None, group: Any = None
    ) -> tuple[FloatArray, FloatArray]:
        """Gradient and hessian at these scores.

        LightGBM's estimators for scikit-learn call (labels, scores, weight, group) instead.
        """
        if isinstance(data, np.ndarray):
            if weight is not None:
                raise OptionError(
                    "sample_weight would multiply summed lambdas, which is not pair weighting. "
                    "Leave it out; query_weight= of the objective weighs queries."
                )
            scores, data = data, self._rows(scores, group)
        if self._objective is None or self._data() is not data:
            self._data = ref(data)
            log = _log_of_rows(data, self.positions, self.counts)
            self._objective = objective(log, self.weighting, **self.options)
        return self._objective(np.asarray(scores, dtype=float).ravel())

    def _rows(self, labels: FloatArray, sizes: Any) -> _Rows:
        """Labels and sizes as a data set; that of the last call where they are the same."""
        known = self._arrays
        if known is None or not all(
            map(np.array_equal, (known.label, known.group), (labels, sizes))
        ):
            label, group = np.array(labels), sizes
            known = _Rows(
                label=label, group=group, get_label=lambda: label, get_group=lambda: group
            )
            self._arrays = known
        return known

    @property
    def history(self) -> list[Any]:
        """The state of a joint weighting after each round."""
        return self._built().history

    def bias(self) -> PositionBias | None:
        """What a joint weighting has learned; None for a given table."""
        return self._built().bias()

    def _built(self) -> PairTreeObjective:
        if self._objective is None:
            raise NotFittedError("nothing was learned yet: train with this objective first.")
        return self._objective


def _log_of_rows(
    data: Any, positions: npt.ArrayLike | None, counts: npt.ArrayLike | None
) -> ClickLog:
    """The log behind a `DMatrix` or a `lightgbm.Dataset`; every row is a document of its own."""
    label = np.asarray(data.get_label(), dtype=float)
    if hasattr(data, "get_uint_info"):
        indptr = np.asarray(data.get_uint_info("group_ptr"), dtype=np.int64)
    else:
        sizes = data.get_group()
        indptr = ragged.indptr_of(np.asarray([] if sizes is None else sizes, dtype=np.int64))
    if len(indptr) < 2 or indptr[-1] != len(label):
        raise OptionError(
            "the rows have no groups, so no session can be told from another. Set the number of "
            "rows of each session: DMatrix(..., qid=...) or set_group; Dataset(..., group=...); "
            "LGBMRanker.fit(..., group=...)."
        )
    n_lists = len(indptr) - 1
    if counts is not None and np.shape(counts) != (n_lists,):
        raise ShapeError(
            f"counts must be one for each of the {n_lists:,} groups. Got shape {np.shape(counts)}."
        )
    return ClickLog(
        query_id=np.arange(n_lists),
        doc_id=np.arange(len(label)),
        doc_query=ragged.list_of_row(indptr),
        indptr=indptr,
        query=np.arange(n_lists),
        document=np.arange(len(label)),
        position=_positions(data, positions, indptr),
        label=label,
        count=None if counts is None else np.asarray(counts),
        features=np.zeros((len(label), 1), dtype=np.float32),
    )


def _positions(data: Any, given: npt.ArrayLike | None, indptr: IntArray) -> IntArray:
    """(rows,) from 1: those given, or the order of the rows."""
    if given is not None:
        found = np.asarray(given)
        if found.shape != (indptr[-1],):
            raise ShapeError(
                f"positions must be one for each of the {indptr[-1]:,} rows. Got shape "
                f"{found.shape} instead."
            )
        return found
    if hasattr(data, "get_position") and data.get_position() is not None:
        raise OptionError(
            "the data set has a `position`, which LightGBM numbers anew by first appearance: it "
            "cannot be read back. Leave it out, and pass lightgbm_objective(..., positions=), from "
            "1, where the rows of a session do not stand in the order shown."
        )
    return ragged.index_in_list(indptr) + 1


def lightgbm_dataset(
    log: ClickLog | JudgedLists, params: dict[str, Any] | None = None
) -> "lightgbm.Dataset":
    """A `lightgbm.Dataset` whose rows are those that `objective(log, ...)` expects."""
    return dataset_of(training_lists(log).features, params)


def catboost_pool(
    log: ClickLog | JudgedLists,
    weighting: Weighting | None = None,
    *,
    gain: str = "auto",
    query_weight: str = "sessions",
) -> Any:
    """A `catboost.Pool` with the weighted pairs of a log, for the loss "PairLogit".

    Its rows are the shown documents, its groups the queries. The weight of a pair is what all
    sessions add up to for "this document above that one"; there is no metric in it, as in
    `objective` with ``metric="none"`` and ``pair_norm=False``.

    ``CatBoost({"loss_function": "PairLogit"}).fit(ut.catboost_pool(log, ut.PRS(bias)))``
    """
    import catboost

    lists = training_lists(log, weighting)
    rows = np.argsort(lists.doc_query, kind="stable")
    place = np.argsort(rows)
    pairs, weights = pair_weights(lists, weighting or Naive(), gain, query_weight)
    return catboost.Pool(
        lists.features[rows],
        group_id=lists.doc_query[rows],
        pairs=place[pairs],
        pairs_weight=weights,
        feature_names=list(lists.feature_names),
    )


def pair_weights(
    lists: TrainingLists, weighting: Weighting, gain: str = "auto", query_weight: str = "sessions"
) -> tuple[IntArray, FloatArray]:
    """(pairs, 2) winner and loser among the documents, and their weights above 0."""
    lists, weighting = pooled_lists(lists, weighting, gain)
    if isinstance(weighting, JointWeighting):
        raise OptionError(
            f"{type(weighting).__name__} is learned along with the ranker, and CatBoost's pairs "
            "are fixed. Use a table of a measured curve, such as ut.PRS(bias), or ut.LambdaMART."
        )
    summed = pair_slates(
        lists, weighting, metric="none", gain=metric_gain(gain, lists), query_weight=query_weight,
        dense=True,
    )  # fmt: skip
    depth = max(1, summed.depth)
    table, offset = weighting.table(depth), weighting.offset(depth)
    slates = PairObjective(summed, "none").with_table(table, offset).slates
    n = ragged.lengths(slates.indptr)
    ptr = ragged.indptr_of(n * (n - 1) // 2)
    p, first = ragged.index_in_list(ptr), np.repeat(slates.indptr[:-1], np.diff(ptr))
    i = ((1 + np.sqrt(1 + 8.0 * p)) / 2).astype(np.int64)  # p = i (i - 1) / 2 + j, j < i
    upper, lower = slates.document[first + i], slates.document[first + p - i * (i - 1) // 2]
    key = np.concatenate([upper * lists.n_documents + lower, lower * lists.n_documents + upper])
    pairs, place = np.unique(key, return_inverse=True)
    weights = sum_by(place, np.concatenate([slates.above, slates.below]), len(pairs))
    kept = weights > 0
    if not kept.any():
        raise nothing_to_learn()
    return np.stack(np.divmod(pairs[kept], lists.n_documents), axis=1), weights[kept]


def xgboost_matrix(log: ClickLog | JudgedLists) -> Any:
    """An `xgboost.DMatrix` whose rows are those that `objective(log, ...)` expects.

    It has the log's feature names, unless XGBoost would refuse one ("[", "]" and "<", or twice).
    """
    import xgboost

    lists = training_lists(log)
    names = list(lists.feature_names)
    refused = len(set(names)) < len(names) or any(set(name) & set("[]<") for name in names)
    return xgboost.DMatrix(lists.features, feature_names=None if refused else names)


def click_objective(
    log: ClickLog, bias: BiasLike | ContextualCurve | None, labels: Grades | None = None
) -> HierarchicalObjective:
    """The likelihood of clicks, and of grades, that `LambdaMART("auto")` boosts on.

    With effects of queries and documents, whose variances are fitted once. It expects the rows of
    `lightgbm_dataset(log)` or `xgboost_matrix(log)`; a score is a logit of relevance.

    ``lightgbm.train({"objective": ut.click_objective(log, bias)}, ut.lightgbm_dataset(log))``
    """
    shown = np.flatnonzero(np.bincount(log.document, minlength=log.n_documents) > 0)
    cells = cells_of(log, bias, shown)
    if labels is not None:
        cells = replace(cells, grades=graded_logits(log, cells, shown, labels).logits)
    fit = fit_hierarchy(cells, np.ones((len(shown), 1)))
    return HierarchicalObjective(fit.model, np.full(len(shown), fit.weights[0]))
