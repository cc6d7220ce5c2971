"""For people with their own LightGBM or XGBoost pipeline: the objective, and matching rows."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
import numpy.typing as npt

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray
from untilt.bias.contextual.curves import ContextualCurve
from untilt.bias.curve import PositionBias
from untilt.bias.given import BiasLike
from untilt.data.clicklog import ClickLog
from untilt.data.grades import Grades
from untilt.data.judged import JudgedLists
from untilt.errors import NotFittedError, OptionError, ShapeError
from untilt.objectives.hierarchical import fit_hierarchy
from untilt.rankers.learning_data import training_lists
from untilt.rankers.stacked.parts import HierarchicalObjective
from untilt.rankers.trees.boosting import dataset_of
from untilt.rankers.trees.objectives import (
    LambdaOptions,
    LikeAFunction,
    PairTreeObjective,
    lambda_objective,
)
from untilt.rankers.validation import cells_of, graded_logits
from untilt.weighting.base import Weighting
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
    weighting: Weighting, *, positions: npt.ArrayLike | None = None, **options: Any
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
    options : those of `objective`: metric, gain, sigma, pair_norm, truncation, query_weight
    """
    return RowObjective(weighting, positions, options)


def lightgbm_objective(
    weighting: Weighting, *, positions: npt.ArrayLike | None = None, **options: Any
) -> "RowObjective":
    """What takes the place of LightGBM's ``lambdarank``, with or without `position`.

    One row per impression, one group per session, labels that are clicks. The rows of a group stand
    in the order in which they were shown; else `positions` says where each stood. Leave `position`
    out of the data set: LightGBM numbers it anew, by first appearance.

    ``lightgbm.train({"objective": ut.lightgbm_objective(ut.PRS(bias))}, dataset)``

    Parameters are those of `xgboost_objective`.
    """
    return RowObjective(weighting, positions, options)


class RowObjective(LikeAFunction):
    """A call (scores, data) -> (gradient, hessian) that learns from the labels of that data.

    Built anew for each data set that it is called with. `.bias()` and `.history` tell what a joint
    weighting has learned in the last training.
    """

    def __init__(
        self, weighting: Weighting, positions: npt.ArrayLike | None, options: dict[str, Any]
    ) -> None:
        self.weighting, self.positions, self.options = weighting, positions, options
        self._data: Any = None
        self._objective: PairTreeObjective | None = None

    def __call__(self, scores: FloatArray, data: Any) -> tuple[FloatArray, FloatArray]:
        """Gradient and hessian at these scores."""
        if self._objective is None or self._data() is not data:
            self._data = ref(data)
            log = _log_of_rows(data, self.positions)
            self._objective = objective(log, self.weighting, **self.options)
        return self._objective(np.asarray(scores, dtype=float).ravel())

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


def _log_of_rows(data: Any, positions: npt.ArrayLike | None) -> ClickLog:
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
            "rows of each session: DMatrix(..., qid=...) or set_group; Dataset(..., group=...)."
        )
    n_lists = len(indptr) - 1
    return ClickLog(
        query_id=np.arange(n_lists),
        doc_id=np.arange(len(label)),
        doc_query=ragged.list_of_row(indptr),
        indptr=indptr,
        query=np.arange(n_lists),
        document=np.arange(len(label)),
        position=_positions(data, positions, indptr),
        label=label,
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
    return dataset_of(training_lists(log), params)


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
