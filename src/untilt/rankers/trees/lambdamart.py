"""LambdaMART on LightGBM, with a table of weights for pairs of positions."""

from typing import Any, Self

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, check_choice
from untilt.rankers.base import Ranker
from untilt.rankers.held_out import watch_for
from untilt.rankers.learning_data import (
    TrainingLists,
    affine_curves,
    click_counts,
    training_lists,
)
from untilt.rankers.trees.boosting import Boosted, boost
from untilt.rankers.trees.labels import ips_labels, posterior_objective, relevance_counts
from untilt.rankers.trees.objectives import (
    LambdaOptions,
    PairTreeObjective,
    TreeObjective,
    label_objective,
    lambda_objective,
    pbm_objective,
)
from untilt.weighting.base import Weighting
from untilt.weighting.tables import Naive

# LightGBM's parameters under one name each, so that a user's own always win.
#
# LightGBM takes a parameter under several names and silently keeps one of them: with `num_leaves`
# already set, `max_leaves` would be ignored. So names are made equal before they meet.

_ALIASES = {
    "learning_rate": "eta shrinkage_rate",
    "num_leaves": "num_leaf max_leaves max_leaf max_leaf_nodes",
    "min_data_in_leaf": "min_data_per_leaf min_data min_child_samples min_samples_leaf",
    "min_sum_hessian_in_leaf": (
        "min_sum_hessian_per_leaf min_sum_hessian min_hessian min_child_weight"
    ),
    "feature_fraction": "sub_feature colsample_bytree",
    "bagging_fraction": "sub_row subsample bagging",
    "bagging_freq": "subsample_freq",
    "seed": "random_seed random_state",
    "num_threads": "num_thread nthread nthreads n_jobs",
    "verbosity": "verbose",
}
_NAME = {alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()}

# What LambdaMART decides itself, by the option that does so.
_OURS = {
    "n_trees": (
        "num_iterations num_iteration n_iter num_tree num_trees num_round num_rounds nrounds "
        "num_boost_round n_estimators max_iter"
    ),
    "objective": "objective objective_type app application loss",
    "early_stopping": (
        "early_stopping_round early_stopping_rounds early_stopping n_iter_no_change"
    ),
}
_OPTION = {name: option for option, names in _OURS.items() for name in names.split()}


def merged_params(own: dict[str, Any], given: dict[str, Any] | None) -> dict[str, Any]:
    """Our parameters with the user's over them; bagging is switched on where a fraction asks."""
    theirs = {_NAME.get(name, name): value for name, value in (given or {}).items()}
    for name in theirs:
        if name in _OPTION:
            raise OptionError(
                f"lightgbm_params cannot set {name!r}. Give LambdaMART({_OPTION[name]}=...) itself."
            )
    params = {**own, **theirs}
    if "bagging_freq" not in params:
        params["bagging_freq"] = 1 if params["bagging_fraction"] < 1 else 0
    return params


OBJECTIVES = ("lambda", "pbm-likelihood", "ips-label", "posterior-label")


@method(
    "ranker", "lambdamart", title="LambdaMART", order=5, default=True,
    takes=("weighting", "objective", "trees", "threads", "seed"), choose=("train", "select"),
    reference="burges2010lambdamart",
    note="boosted trees on pairs",
)  # fmt: skip
class LambdaMART(Ranker):
    r"""Boosted trees on lambdas, each pair weighted by W[position of clicked, position of other].

    .. math:: \lambda_{ij} = -\sigma / (1 + e^{\sigma (s_i - s_j)}) |\Delta Z_{ij}| W[k_i, k_j]

    ([burges2010lambdamart]_; sigma, trees, rate, leaves and sampling as in [hu2019unbiased]_).
    Sessions of the same list are collapsed first, so cost grows with distinct lists. Trained on
    `JudgedLists` it is the plain algorithm on labels.

    Parameters
    ----------
    weighting : a table of pair weights such as `PRS(bias)`, "auto", or None for raw clicks
    bias : the position bias, for the pointwise objectives and for "auto"
    objective : "lambda", or a pointwise companion on the same trees: "pbm-likelihood" (best with
        few sessions), "ips-label" (best with very many), "posterior-label" (between the two)
    metric : what a swap changes: "ndcg", "dcg", "arp", "map", or "none" for plain pairs
    gain : "exponential" (2^y - 1), "linear", "plain", or "auto" (by the kind of labels)
    pair_norm : divide a pair's gradient by 0.01 + |s_i - s_j|
    query_weight : "sessions", "sqrt" or "equal": how a query's traffic counts
    min_data_in_leaf : distinct documents, not impressions; min_sum_hessian_in_leaf is on a scale
        where an average query weighs 1 in all
    lightgbm_params : any further parameter of LightGBM; wins over the ones above
    early_stopping : rounds without improvement on `fit(..., valid=...)` before training stops

    Fitted: `booster_`, `n_trees_`, `bias_` and `bias_history_` (joint weightings), `choice_`
    (weighting="auto"), `feature_importances_`, `watched_`, `summary_`.
    """

    def __init__(
        self,
        weighting: Weighting | str | None = None,
        *,
        bias: Any = None,
        objective: str = "lambda",
        metric: str = "ndcg",
        gain: str = "auto",
        sigma: float = 2.0,
        pair_norm: bool = True,
        truncation: int | None = None,
        query_weight: str = "sessions",
        n_trees: int = 300,
        learning_rate: float = 0.05,
        n_leaves: int = 31,
        min_data_in_leaf: int = 20,
        min_sum_hessian_in_leaf: float = 1e-3,
        feature_fraction: float = 0.9,
        bagging_fraction: float = 0.9,
        folds: int = 5,
        lightgbm_params: dict[str, Any] | None = None,
        early_stopping: int | None = None,
        n_threads: int | None = None,
        seed: int = 0,
    ) -> None:
        self.weighting = weighting
        self.bias = bias
        self.objective = objective
        self.metric = metric
        self.gain = gain
        self.sigma = sigma
        self.pair_norm = pair_norm
        self.truncation = truncation
        self.query_weight = query_weight
        self.n_trees = n_trees
        self.learning_rate = learning_rate
        self.n_leaves = n_leaves
        self.min_data_in_leaf = min_data_in_leaf
        self.min_sum_hessian_in_leaf = min_sum_hessian_in_leaf
        self.feature_fraction = feature_fraction
        self.bagging_fraction = bagging_fraction
        self.folds = folds
        self.lightgbm_params = lightgbm_params
        self.early_stopping = early_stopping
        self.n_threads = n_threads
        self.seed = seed

    def fit(
        self, data: ClickLog | JudgedLists, *, valid: ClickLog | JudgedLists | None = None
    ) -> Self:
        """Learn from clicks or labels; with `early_stopping`, `valid` decides when to stop."""
        self._check()
        self._check_bias(data)
        if isinstance(self.weighting, str):
            from untilt.rankers.trees.auto import fit_auto

            return fit_auto(self, data, valid)
        lists = training_lists(data)
        objective = self._objective(lists)
        watch = watch_for(valid, self._watch_bias(), self.early_stopping)
        boosted = boost(
            lists,
            objective,
            params=self.parameters(),
            n_trees=self.n_trees,
            n_threads=self.n_threads,
            watch=watch,
        )
        return self._keep(boosted, lists, objective)

    def parameters(self) -> dict[str, Any]:
        """The LightGBM parameters this ranker trains with."""
        own = {
            "learning_rate": self.learning_rate,
            "num_leaves": self.n_leaves,
            "min_data_in_leaf": self.min_data_in_leaf,
            "min_sum_hessian_in_leaf": self.min_sum_hessian_in_leaf,
            "feature_fraction": self.feature_fraction,
            "bagging_fraction": self.bagging_fraction,
            "seed": self.seed,
        }
        return merged_params(own, self.lightgbm_params)

    @property
    def feature_importances_(self) -> dict[str, float]:
        """Total gain of each feature's splits, as a share of all."""
        self._check_fitted()
        gains = self.booster_.feature_importance("gain", iteration=self.n_trees_)
        shares = gains / max(float(gains.sum()), 1e-300)
        return dict(zip(self.feature_names_, shares.tolist(), strict=True))

    def options(self) -> LambdaOptions:
        """The options that shape the lambdas."""
        return LambdaOptions(
            metric=self.metric,
            gain=self.gain,
            sigma=self.sigma,
            pair_norm=self.pair_norm,
            truncation=self.truncation,
            query_weight=self.query_weight,
        )

    def _objective(self, lists: TrainingLists) -> TreeObjective:
        if self.objective == "lambda" or lists.judged:
            weighting = self.weighting
            if lists.judged or not isinstance(weighting, Weighting):
                weighting = Naive()
            return lambda_objective(lists, weighting, self.options())
        if self.objective == "pbm-likelihood":
            return pbm_objective(lists, self.bias, self.query_weight)
        if self.objective == "ips-label":
            curves = affine_curves(self.bias, lists.depth)
            labels = ips_labels(relevance_counts(click_counts(lists), *curves))
            return label_objective(lists, labels, self.options())
        return posterior_objective(self, lists)

    def _keep(self, boosted: Boosted, lists: TrainingLists, objective: Any) -> Self:
        self.booster_, self.n_trees_ = boosted.booster, boosted.n_trees
        self.watched_ = boosted.watched
        self.feature_names_ = lists.feature_names
        self.bias_, self.bias_history_ = None, []
        if isinstance(objective, PairTreeObjective):
            # Early stopping drops the last trees; the ratios estimated with them go too.
            self.bias_ = objective.bias(self.n_trees_)
            self.bias_history_ = objective.history[: self.n_trees_]
        self.summary_ = {
            "trained_on": "judged lists" if lists.judged else "clicks",
            "objective": self.objective,
            "weighting": repr(self.weighting),
            "queries": len(np.unique(lists.query)),
            "documents": lists.n_documents,
            "sessions": int(lists.count.sum()),
            "distinct_lists": len(lists.query),
            "trees": self.n_trees_,
        }
        return self

    def _watch_bias(self) -> Any:
        if self.bias is not None:
            return self.bias
        return self.weighting.position_bias if isinstance(self.weighting, Weighting) else None

    def _scores(self, features: FeatureArray) -> FloatArray:
        scores = self.booster_.predict(
            features, num_iteration=self.n_trees_, num_threads=self.n_threads or 0
        )
        return np.asarray(scores, dtype=float)

    def _check(self) -> None:
        check_choice("objective", self.objective, OBJECTIVES)
        auto = isinstance(self.weighting, str) and self.weighting == "auto"
        if not (self.weighting is None or auto or isinstance(self.weighting, Weighting)):
            raise OptionError(
                f"weighting must be a table such as ut.PRS(bias), 'auto' or None. "
                f"Got {self.weighting!r} instead."
            )
        if self.objective != "lambda" and auto:
            raise OptionError(
                f"weighting='auto' picks the objective itself. Leave objective={self.objective!r} "
                "out, or leave weighting out to have that one."
            )
        if self.objective != "lambda" and self.weighting is not None:
            raise OptionError(
                f"objective {self.objective!r} takes the bias itself (bias=...), not a table of "
                "pair weights. Leave weighting out, or use objective='lambda'."
            )
        for name in ("n_trees", "early_stopping"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} must be at least 1. Got {value} instead.")

    def _check_bias(self, data: ClickLog | JudgedLists) -> None:
        unused = self.objective == "lambda" and self.weighting is None and self.bias is not None
        if unused and isinstance(data, ClickLog):
            raise OptionError(
                "bias=... alone corrects nothing: raw clicks are learned from. Give "
                "weighting=ut.PRS(bias) or weighting='auto', or a pointwise objective; "
                "weighting=ut.Naive() says that raw clicks are meant."
            )
