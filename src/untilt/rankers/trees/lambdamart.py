"""LambdaMART on LightGBM, with a table of weights for pairs of positions."""

from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, ClassVar, Self, TypedDict

from untilt._core.arrays import FeatureArray, FloatArray
from untilt._core.restored import check_whole
from untilt._core.threads import thread_count
from untilt.bias.contextual.curves import ContextualCurve
from untilt.bias.curve import PositionBias
from untilt.bias.given import BiasLike
from untilt.catalog import find, method, names, record_of
from untilt.data.clicklog import ClickLog
from untilt.data.grades import Grades
from untilt.data.judged import JudgedLists
from untilt.errors import FileFormatError, OptionError, check_choice
from untilt.facts import note
from untilt.rankers.base import Ranker
from untilt.rankers.learning_data import (
    TrainingLists,
    training_lists,
    validation_bias,
    weighting_for,
)
from untilt.rankers.stacked.parts import PART_TREES
from untilt.rankers.stacked.ranker import AutoChoice, StackedRanker
from untilt.rankers.trees import objectives, scorer
from untilt.rankers.trees.boosting import Boosted, boost, merged_params, set_missing_direction
from untilt.rankers.trees.crossfit import MOST_TREES, PATIENCE, boost_tuned, judged_by
from untilt.rankers.validation import of_positions, validation_for
from untilt.weighting.base import Weighting

LABELS = note("training.labels", "judged lists need no correction")()

PAIRS = "lambda"  # the objective on pairs, which takes a weighting
PRIOR_TREES = 100  # of a model that an objective trains first, where the number is not given
TUNED = "auto"  # the number of trees is chosen by held-out queries


class Trees(TypedDict, total=False):
    """Options of `LambdaMART` that shape the trees, as one record: `trees=Trees(...)`."""

    n_trees: int | str
    learning_rate: float
    n_leaves: int
    min_data_in_leaf: int
    min_sum_hessian_in_leaf: float
    feature_fraction: float
    bagging_fraction: float
    lightgbm_params: dict[str, Any] | None
    early_stopping: int | None


@method(
    "ranker", "lambdamart", title="LambdaMART", order=5, default=True,
    takes=("weighting", "objective", "trees", "threads", "seed"), choose=("train", "select"),
    reference="burges2010lambdamart",
    note="boosted trees on pairs",
)  # fmt: skip
@dataclass(eq=False, repr=False)
class LambdaMART(Ranker):
    r"""Boosted trees on lambdas, each pair weighted by W[position of clicked, position of other].

    .. math:: \lambda_{ij} = -\sigma / (1 + e^{\sigma (s_i - s_j)}) |\Delta Z_{ij}| W[k_i, k_j]

    ([burges2010lambdamart]_, [wu2010adapting]_; sigma, trees, rate, leaves and sampling as in
    [hu2019unbiased]_). Gradient boosting ([friedman2001greedy]_) by LightGBM ([ke2017lightgbm]_).
    Sessions of the same list are collapsed first, so cost grows with distinct lists. Trained on
    `JudgedLists` it is the plain algorithm on labels.

    Parameters
    ----------
    weighting : a table of pair weights such as `PRS(bias)`, "auto", or None for raw clicks
    bias : the position bias, for the pointwise objectives and for "auto", which takes curves for
        each context as well (`ContextualBias().fit(log).curves_`)
    objective : "lambda", or a pointwise companion on the same trees: "pbm-likelihood" (best with
        few sessions), "ips-label" (best with very many), "posterior-label" (between the two)
    metric : what a swap changes: "ndcg", "dcg", "arp", "map", or "none" for plain pairs
    gain : "exponential" (2^y - 1), "linear", "plain", or "auto" (by the kind of labels)
    pair_norm : divide a pair's gradient by 0.01 + |s_i - s_j|
    query_weight : "sessions", "sqrt" or "equal": how a query's traffic counts
    n_trees : a number, or "auto": held-out queries choose it, see `untilt.rankers.trees.crossfit`.
        For weighting="auto" a number is the most trees of each part, and "auto" is 300
    min_data_in_leaf : distinct documents, not impressions; min_sum_hessian_in_leaf is on a scale
        where an average query weighs 1 in all
    lightgbm_params : any further parameter of LightGBM; wins over the ones above
    early_stopping : rounds without improvement on `fit(..., valid=...)` before training stops
    trees, lambdas : several of these as one record, `Trees(n_trees=100, n_leaves=15)` and
        `Lambdas(metric="dcg")`; they are kept under their own names

    Fitted: `booster_`, `n_trees_`, `bias_` and `bias_history_` (joint weightings), `choice_`
    (weighting="auto"), `feature_importances_`, `watched_`, `summary_`.
    """

    weighting: Weighting | str | None = None
    _: KW_ONLY
    bias: BiasLike | ContextualCurve | None = None
    objective: str = PAIRS
    metric: str = "ndcg"
    gain: str = "auto"
    sigma: float = 2.0
    pair_norm: bool = True
    truncation: int | None = None
    query_weight: str = "sessions"
    n_trees: int | str = 300
    learning_rate: float = 0.05
    n_leaves: int = 31
    min_data_in_leaf: int = 20
    min_sum_hessian_in_leaf: float = 1e-3
    feature_fraction: float = 0.9
    bagging_fraction: float = 0.9
    folds: int = 5
    lightgbm_params: dict[str, Any] | None = None
    early_stopping: int | None = None
    n_threads: int | None = None
    seed: int = 0
    trees: InitVar[Trees | None] = None
    lambdas: InitVar[objectives.Lambdas | None] = None
    _records: ClassVar[tuple[str, ...]] = ("trees", "lambdas")
    booster_: Any = field(init=False)
    n_trees_: int = field(init=False)
    watched_: tuple[float, ...] = field(init=False)
    bias_: PositionBias | None = field(init=False)
    bias_history_: list[Any] = field(init=False)
    choice_: AutoChoice = field(init=False)

    def _fit(
        self,
        data: ClickLog | JudgedLists,
        *,
        valid: ClickLog | JudgedLists | None = None,
        labels: Grades | None = None,
    ) -> Self:
        """Learn from clicks or labels; with `early_stopping`, `valid` decides when to stop."""
        self._check()
        if labels is not None and not (self._is_auto and isinstance(data, ClickLog)):
            raise OptionError(
                f"grades beside clicks are learned from by ⟦LambdaMART({_auto()!r})⟧ alone. Leave "
                "labels out, or take that."
            )
        self._check_bias(data)
        lists, training = training_lists(data, self.weighting), self._training()
        if self._is_auto and isinstance(data, ClickLog):
            self.choice_, boosted = StackedRanker(training).fit(data, lists, valid, labels)
            return self._keep(boosted, lists, None)
        if self._is_auto:
            self.choice_ = AutoChoice("labels", LABELS, {})
        if self._tunes_trees and valid is None:
            return self._fit_tuned(data, lists, training)
        objective = self._objective(lists, training)
        rounds = PATIENCE[0] if self._tunes_trees else self.early_stopping
        validation = validation_for(valid, self._validation_bias(valid), rounds)
        boosted = boost(lists, objective, training.boosting, validation=validation)
        return self._keep(boosted, lists, objective)

    def _fit_tuned(
        self, data: ClickLog | JudgedLists, lists: TrainingLists, training: objectives.TreeTraining
    ) -> Self:
        """The number of trees by queries that are held out in turn."""
        made: list[objectives.TreeObjective] = []

        def make(part: TrainingLists) -> objectives.TreeObjective:
            made.append(self._objective(part, training))
            return made[-1]

        bias = self._validation_bias(data)
        options, seed = training.boosting, self.seed
        boosted = boost_tuned(data, lists, make, options, bias=bias, seed=seed)
        self._keep(boosted, lists, made[-1])
        self.summary_["trees_chosen_by"] = judged_by(data, bias)
        return self

    @property
    def feature_importances_(self) -> dict[str, float]:
        """Total gain of each feature's splits, as a share of all."""
        self._check_fitted()
        gains = self.booster_.feature_importance("gain", iteration=self.n_trees_)
        shares = gains / max(float(gains.sum()), 1e-300)
        return dict(zip(self.feature_names_, shares.tolist(), strict=True))

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

    def options(self) -> objectives.LambdaOptions:
        """The options that shape the lambdas."""
        own = {name: getattr(self, name) for name in objectives.Lambdas.__annotations__}
        return objectives.LambdaOptions(**own)

    def _training(self) -> objectives.TreeTraining:
        return objectives.TreeTraining(
            bias=self.bias,
            boosting=objectives.BoostingOptions(
                self.parameters(), self._most_trees, self.n_threads
            ),
            lambdas=self.options(),
            folds=self.folds,
            seed=self.seed,
            prior_trees=PRIOR_TREES if self._tunes_trees else None,
        )

    def _objective(
        self, lists: TrainingLists, training: objectives.TreeTraining
    ) -> objectives.TreeObjective:
        if self.objective == PAIRS or lists.judged:
            given = None if isinstance(self.weighting, str) else self.weighting
            return objectives.lambda_objective(lists, weighting_for(given, lists), training.lambdas)
        objective: objectives.TreeObjective = find("objective", self.objective).load()(
            lists, training
        )
        return objective

    def _keep(
        self, boosted: Boosted, lists: TrainingLists, objective: objectives.TreeObjective | None
    ) -> Self:
        self.booster_ = set_missing_direction(boosted.booster, boosted.n_trees, lists)
        self.n_trees_ = boosted.n_trees
        self.watched_ = boosted.values
        self.feature_names_, self.missing_ = lists.feature_names, lists.missing
        self.bias_, self.bias_history_ = None, []
        if isinstance(objective, objectives.PairTreeObjective):
            # Early stopping drops the last trees; the ratios estimated with them go too.
            self.bias_ = objective.bias(self.n_trees_)
            self.bias_history_ = objective.history[: self.n_trees_]
        self.summary_ = {
            **lists.summary(self.weighting),
            "objective": self.objective,
            "trees": self.n_trees_,
        }
        return self

    def _validation_bias(self, held_out: object) -> BiasLike | None:
        given = None if self.bias is None else of_positions(self.bias)
        return validation_bias(given, self.weighting, held_out)

    def _check_restored(self) -> None:
        import lightgbm

        super()._check_restored()
        if not isinstance(self.booster_, lightgbm.Booster):
            raise FileFormatError("its 'booster_' is no tree model.")
        if self.booster_.num_feature() != len(self.feature_names_):
            raise FileFormatError(
                f"its trees are of {self.booster_.num_feature()} features, and it names "
                f"{len(self.feature_names_)}."
            )
        check_whole("n_trees_", self.n_trees_, low=1, high=self.booster_.num_trees())
        if hasattr(self, "choice_") and not isinstance(self.choice_, AutoChoice):
            raise FileFormatError("its 'choice_' is not one of auto.")
        if self.n_threads is not None:
            check_whole("n_threads", self.n_threads, low=-1, high=2**31 - 1)

    def warm_up(self) -> Self:
        """Read the trees for the scoring kernels, and load or compile those: 0.2 to 3 seconds."""
        super().warm_up()
        scorer.warm_up(self.booster_, self.n_trees_)
        return self

    def _scores(self, features: FeatureArray) -> FloatArray:
        n_threads = thread_count(self.n_threads, values=len(features) * self.n_trees_) or 1
        return scorer.predict(self.booster_, self.n_trees_, features, n_threads)

    @property
    def _tunes_trees(self) -> bool:
        return isinstance(self.n_trees, str)

    @property
    def _most_trees(self) -> int:
        if isinstance(self.n_trees, str):
            return PART_TREES if self._is_auto else MOST_TREES
        return self.n_trees

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.weighting, str) and self.weighting == _auto()

    def _check(self) -> None:
        named = (name for name in names("objective") if name != _auto())
        check_choice("objective", self.objective, (PAIRS, *named))
        if not (self.weighting is None or self._is_auto or isinstance(self.weighting, Weighting)):
            raise OptionError(
                f"weighting must be a table such as ut.PRS(bias), {_auto()!r} or None. "
                f"Got {self.weighting!r} instead."
            )
        if self.objective != PAIRS and self._is_auto:
            raise OptionError(
                f"weighting={_auto()!r} picks the objective itself. Leave "
                f"objective={self.objective!r} out, or leave weighting out to have that one."
            )
        if self.objective != PAIRS and self.weighting is not None:
            raise OptionError(
                f"objective {self.objective!r} takes the bias itself (⟦bias=...⟧), not "
                "a table of pair weights. Leave weighting out, or use "
                f"objective={PAIRS!r}."
            )
        if isinstance(self.n_trees, str) and self.n_trees != TUNED:
            raise OptionError(
                f"n_trees must be a number or {TUNED!r} (held-out queries choose it). "
                f"Got {self.n_trees!r} instead."
            )
        if self._tunes_trees and self.early_stopping is not None:
            raise OptionError(
                f"n_trees={TUNED!r} finds the number of trees itself. Leave early_stopping out, or "
                "give the most trees as a number."
            )
        for name, value in (("n_trees", self._most_trees), ("early_stopping", self.early_stopping)):
            if value is not None and value < 1:
                raise OptionError(f"{name} must be at least 1. Got {value} instead.")

    def _check_bias(self, data: ClickLog | JudgedLists) -> None:
        if not isinstance(data, ClickLog):
            return
        if isinstance(self.bias, ContextualCurve) and not self._is_auto:
            raise OptionError(
                f"a curve for each context is used by weighting={_auto()!r} alone. "
                "Give ⟦bias=curves.average⟧() here, or train each of "
                "curves.groups(log) by its own curve."
            )
        if self._is_auto and self.early_stopping is not None:
            raise OptionError(
                f"weighting={_auto()!r} chooses the number of trees of each part by held-out "
                "clicks, so early_stopping has no meaning there. Leave it out, or choose one "
                "objective yourself."
            )
        if self.objective == PAIRS and self.weighting is None and self.bias is not None:
            raise OptionError(
                "⟦bias=...⟧ alone corrects nothing: raw clicks are learned from. Give "
                f"weighting=ut.PRS(bias) or weighting={_auto()!r}, or a pointwise "
                "objective; weighting=ut.Naive() trains on raw clicks."
            )


def _auto() -> str:
    """The word for choosing by held-out clicks."""
    return record_of(StackedRanker).name
