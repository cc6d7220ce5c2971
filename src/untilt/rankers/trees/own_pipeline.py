"""For people with their own LightGBM or XGBoost pipeline: the objective, and matching rows."""

from typing import TYPE_CHECKING, Any

from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.rankers.learning_data import training_lists
from untilt.rankers.trees.boosting import dataset_of
from untilt.rankers.trees.objectives import LambdaOptions, PairTreeObjective, lambda_objective
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
    options = LambdaOptions(
        metric=metric,
        gain=gain,
        sigma=sigma,
        pair_norm=pair_norm,
        truncation=truncation,
        query_weight=query_weight,
    )
    lists = training_lists(log, weighting)
    return lambda_objective(lists, weighting or Naive(), options)


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
