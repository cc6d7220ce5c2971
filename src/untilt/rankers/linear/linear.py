"""A linear ranker: pairwise logistic regression, or a lower bound on DCG."""

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, TypeVar

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray
from untilt._core.feature_table import refuse_cell
from untilt._core.progress import track
from untilt._core.restored import check_array
from untilt.bias.curve import PositionBias
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, check_choice
from untilt.facts import Fact, note, phrase, warning
from untilt.objectives.losses import DcgBound
from untilt.objectives.pairs import PairObjective
from untilt.rankers import learning_data
from untilt.rankers.base import Ranker, check_positive, check_rounds
from untilt.rankers.learning_data import TrainingLists
from untilt.rankers.pooled import pooled_lists
from untilt.weighting.base import JointWeighting, LearnedTable, Weighting

NOT_SETTLED = warning("training.not-settled", "not settled after {fits} fits")

SETTLED = note("training.settled", "settled after {fits} fits")

CONVERGED = note(
    "training.converged", "converged (largest slope {slope:.1e} after {iterations} iterations)"
)
STOPPED_EARLY = warning(
    "training.stopped-early",
    "stopped early: {message} (largest slope {slope:.1e} after {iterations} iterations)",
)

# What linear rankers share: scaled features, weights, learning a table in turn.

Fit = TypeVar("Fit")

_BLOCK_ROWS = 8192  # 46 features in double precision: 3 MB, which stays in the cache


@dataclass(frozen=True, eq=False)
class Scaling:
    """(x - mean) / scale per feature; scale 0 marks a feature that never varies and is left out.

    Mean and spread are over distinct documents, so they do not change with traffic.
    """

    mean: FloatArray
    scale: FloatArray

    @classmethod
    def of(cls, features: FeatureArray) -> "Scaling":
        """Mean and standard deviation of each feature."""
        n, d = features.shape
        mean = np.zeros(d)
        for block in _blocks(features):
            mean += block.sum(axis=0) / n
        square = np.zeros(d)
        for block in _blocks(features):
            square += np.square(block - mean).sum(axis=0) / n
        # A constant such as 0.1 has a rounded mean, hence a spread of 1e-17: ask the values.
        varies = features.max(axis=0) > features.min(axis=0)
        return cls(mean, np.where(varies, np.sqrt(square), 0.0))

    @classmethod
    def none(cls, features: FeatureArray) -> "Scaling":
        """Features as they are."""
        d = features.shape[1]
        return cls(np.zeros(d), np.ones(d))

    def to_raw(self, weights: FloatArray) -> FloatArray:
        """Weights of features as they are, from weights of scaled features."""
        return np.divide(weights, self.scale, out=np.zeros_like(weights), where=self.scale > 0)


@dataclass(frozen=True, eq=False)
class ScaledFeatures:
    """The linear map from weights v of scaled features to scores, and back.

    A linear ranker's penalty treats all weights alike, so features must have the same spread. The
    scaling is folded into the weights: s = X (v / scale) - mean . (v / scale), so the table of
    features stays as it is, in single precision, and only one block of it at a time is widened.
    """

    features: FeatureArray
    scaling: Scaling

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.features.shape[1])

    def scores(self, v: FloatArray) -> FloatArray:
        """One score per row."""
        return centred_scores(self.features, self.scaling.to_raw(v), self.scaling.mean)

    def pull(self, gradient: FloatArray) -> FloatArray:
        """From a gradient per row to one per weight: the transpose of `scores`."""
        raw, start = np.zeros(self.n_features), 0
        for block in _blocks(self.features):
            raw += gradient[start : start + len(block)] @ block
            start += len(block)
        return self.scaling.to_raw(raw - gradient.sum() * self.scaling.mean)


def centred_scores(features: FeatureArray, raw: FloatArray, mean: FloatArray) -> FloatArray:
    """(x - mean) . raw for each row, in double precision."""
    if len(features) == 0:
        return np.zeros(0)
    return np.concatenate([block @ raw for block in _blocks(features)]) - mean @ raw


def check_finite(features: FeatureArray, names: tuple[str, ...]) -> None:
    """Raise where a feature is missing or infinite: a linear score would be too."""
    fix = phrase(
        "Give missing values a number on reading (⟦missing=0.0⟧), or use LambdaMART, which takes "
        "them."
    )
    refuse_cell(features, names, ~np.isfinite(features), fix, "a linear ranker")


def _blocks(features: FeatureArray) -> Iterator[FloatArray]:
    for start in range(0, len(features), _BLOCK_ROWS):
        yield features[start : start + _BLOCK_ROWS].astype(np.float64)


class LinearModel(Ranker):
    """score = sum_j weight_j (x_j - mean_j), in the features' own units.

    Fitted: `weights_` (raw units), `standardised_weights_` (what one standard deviation of a
    feature adds to the score; comparable between features), `mean_`, `scale_` (0 for a feature that
    never varied in training: its weight is 0), `bias_` and `bias_history_` (joint weightings).
    """

    weights_: FloatArray
    standardised_weights_: FloatArray
    mean_: FloatArray
    scale_: FloatArray
    bias_: PositionBias | None
    bias_history_: list[Any]

    @property
    def feature_importances_(self) -> dict[str, float]:
        """Size of each standardised weight, as a share of all."""
        self._check_fitted()
        size = np.abs(self.standardised_weights_)
        shares = size / max(float(size.sum()), 1e-300)
        return dict(zip(self.feature_names_, shares.tolist(), strict=True))

    def _keep_weights(self, v: FloatArray, scaling: Scaling, lists: TrainingLists) -> None:
        self.standardised_weights_ = np.where(scaling.scale > 0, v, 0.0)
        self.weights_ = scaling.to_raw(v)
        self.mean_, self.scale_ = scaling.mean, scaling.scale
        self.feature_names_, self.missing_ = lists.feature_names, lists.missing

    def _check_restored(self) -> None:
        super()._check_restored()
        for name in ("weights_", "standardised_weights_", "mean_", "scale_"):
            check_array(name, getattr(self, name), (len(self.feature_names_),), finite=True)

    def _scores(self, features: FeatureArray) -> FloatArray:
        return centred_scores(features, self.weights_, self.mean_)


def fit_in_turn(
    learned: LearnedTable,
    *,
    learn: Callable[[FloatArray, Fit | None], Fit],
    losses: Callable[[Fit], FloatArray],
    max_rounds: int,
) -> Fit:
    """Fit with a table, let the losses of the fit make the next table, fit again, and so on.

    Boosting refreshes the table after every tree; here every round is a whole fit, started from the
    one before. It ends when no pair weight changes by more than 0.1%, or after `max_rounds`.

    Parameters
    ----------
    learn : (table, fit before or None) -> fit
    losses : fit -> S[k, l], the summed unweighted loss per pair of positions
    """
    fit = None
    for _ in track(range(max_rounds), "fitting ranker and bias in turn"):
        fit = learn(learned.table, fit)
        learned.update(losses(fit))
        if learned.settled:
            break
    assert fit is not None
    return fit


def joint_status(learned: LearnedTable) -> Fact:
    """How fitting in turn ended."""
    return (SETTLED if learned.settled else NOT_SETTLED)(fits=len(learned.history))


LOSSES = ("logistic", "dcg-bound", "pointwise", "listwise")
Loss = Callable[[FloatArray], tuple[float, FloatArray]]


@method(
    "ranker", "linear", title="Linear ranker", order=36, drop=30, takes=("weighting",),
    choose=("train", "select", "run"), reference="burges2005ranknet",
    note="a linear score on the same pairs as 'balanced'",
)  # fmt: skip
@dataclass(eq=False, repr=False)
class LinearRanker(LinearModel):
    r"""A linear score, fitted by L-BFGS with an L2 penalty.

    With ``loss="logistic"`` it minimises the weighted mean pair loss ([burges2005ranknet]_)

    .. math:: \frac{\sum w_{ij} \log(1 + e^{-(s_i - s_j)})}{\sum w_{ij}} + \frac{\lambda}{2} |v|^2,
        \quad w_{ij} = W[k_i, k_j] \cdot \text{(sessions that prefer i to j)}

    convex, for every weighting. With ``loss="dcg-bound"`` it maximises a lower bound on the
    propensity-weighted DCG ([agarwal2019framework]_),

    .. math:: \sum_i r_i / \log_2(1 + R_i), \quad
        R_i = 1 + \sum_{j \ne i} \log_2(1 + e^{-\sigma (s_i - s_j)})

    over its best value, where r_i is the document's clicks times W[k]. The bound needs weights that
    depend on the clicked position alone (`Naive`, `IPS`, `BayesIPS`, `AffineIPS`), ranks among all
    shown documents whatever `against` says, and has local optima; it starts from 0.

    "pointwise" and "listwise" weigh a click at k by up_k and a no-click by down_k: 1/theta and
    theta for propensity ratios, ``PRS(bias, clip=tau, clip_of="clicked")`` ([wang2020prs]_ section
    6; such a clip leaves most of their pull against the shown order),

    .. math:: \sum_{i: c} up_i \log(1 + e^{-s_i}) + \sum_{j: \bar c} down_j \log(1 + e^{s_j}), \quad
        \sum_{i: c} up_i \log(1 + \sum_{j: \bar c} down_j e^{s_j - s_i})

    the first with the best constant added to the scores, each over the weight of its clicks.

    v are weights of standardised features. All losses are means, so neither traffic nor, but for
    "pointwise" and "listwise", the scale of the propensities changes what `l2` means. Sessions of
    the same list are collapsed first: counts and repeated sessions give the same ranker. A joint
    weighting (`PairwiseDebiasing`) is fitted in turn with the ranker until its ratios settle.

    Parameters
    ----------
    weighting : a table of pair weights such as `IPS(bias)`; None takes clicks as they are
    loss : "logistic", "dcg-bound", "pointwise" or "listwise"
    l2 : the penalty's lambda
    gain : how labels weigh: "plain", "linear", "exponential", or "auto": for pairs plain on
        judged lists and linear on logs, for DCG 2^y - 1 on judged lists and linear on logs
    query_weight : "sessions", "sqrt" or "equal": how a query's traffic counts
    sigma : steepness of the bound on ranks ("dcg-bound" alone)
    max_iter, tolerance : of L-BFGS; it stops when no slope is larger than the tolerance
    max_rounds : fits of ranker and bias in turn (joint weightings alone)

    Fitted: see `LinearModel`; `summary_` says how the fit ended.
    """

    weighting: Weighting | None = None
    _: KW_ONLY
    loss: str = "logistic"
    l2: float = 1e-3
    gain: str = "auto"
    query_weight: str = "sessions"
    sigma: float = 1.0
    max_iter: int = 1000
    tolerance: float = 1e-6
    max_rounds: int = 50

    def _fit(self, data: ClickLog | JudgedLists) -> Self:
        """Learn from clicks, or from labels where `data` is judged (the skyline)."""
        self._check()
        lists = learning_data.training_lists(data, self.weighting)
        check_finite(lists.features, lists.feature_names)
        weighting = learning_data.weighting_for(self.weighting, lists)
        X = ScaledFeatures(lists.features, Scaling.of(lists.features))
        self.bias_, self.bias_history_ = None, []
        if isinstance(weighting, JointWeighting):
            fitted, extra = self._fit_joint(X, lists, weighting)
        else:
            loss = self._loss(*pooled_lists(lists, weighting, self.gain))
            fitted, extra = self._descend(X, loss), {}
        self._keep_weights(fitted.v, X.scaling, lists)
        self.summary_ = {
            **lists.summary(weighting),
            "loss": self.loss,
            "objective": fitted.objective,
            "iterations": fitted.iterations,
            "converged": fitted.converged,
            "status": fitted.status,
            **extra,
        }
        return self

    def _loss(self, lists: TrainingLists, weighting: Weighting) -> Loss:
        """The mean loss by score, and its gradient."""
        if self.loss == "dcg-bound":
            return _dcg_loss(lists, weighting, self.gain, self.query_weight, self.sigma)
        if self.loss == "pointwise":
            by_document = learning_data.sided_pointwise(lists, weighting, self.query_weight)
            return _divided(by_document.evaluate, float(by_document.won.sum()))
        if self.loss == "listwise":
            by_list = learning_data.sided_listwise(lists, weighting, self.query_weight)
            return _divided(by_list.evaluate, by_list.total)
        objective = self._pair_objective(lists, weighting)
        depth = max(1, lists.depth)
        table = weighting.table(depth)
        return _pair_loss(objective.with_table(table, weighting.offset(depth)))

    def _pair_objective(self, lists: TrainingLists, weighting: Weighting) -> PairObjective:
        slates = learning_data.pair_slates(
            lists,
            weighting,
            metric="none",
            gain=learning_data.pair_gain(self.gain, lists),
            query_weight=self.query_weight,
        )
        return PairObjective(slates, metric="none")

    def _fit_joint(
        self, X: ScaledFeatures, lists: TrainingLists, weighting: JointWeighting
    ) -> tuple["_Descent", dict[str, Any]]:
        if self.loss == "dcg-bound":
            raise learning_data.needs_rows("loss='dcg-bound'", weighting, "loss='logistic'")
        if self.loss != "logistic":
            learning_data.sides_of(weighting, lists)
        objective = self._pair_objective(lists, weighting)

        def learn(table: FloatArray, before: _Descent | None) -> _Descent:
            start = None if before is None else before.v
            return self._descend(X, _pair_loss(objective, table), start)

        def losses(fitted: _Descent) -> FloatArray:
            return objective.losses_by_position(X.scores(fitted.v))

        learned = learning_data.learned_table(weighting, lists, self.query_weight)
        fitted = fit_in_turn(learned, learn=learn, losses=losses, max_rounds=self.max_rounds)
        status = joint_status(learned)
        self.bias_, self.bias_history_ = learned.bias(status=status), learned.history
        return fitted, {"joint": status, "joint_settled": learned.settled}

    def _descend(
        self, X: ScaledFeatures, loss: Loss, start: FloatArray | None = None
    ) -> "_Descent":
        from scipy.optimize import minimize

        def objective(v: FloatArray) -> tuple[float, FloatArray]:
            value, slope = loss(X.scores(v))
            return value + 0.5 * self.l2 * float(v @ v), X.pull(slope) + self.l2 * v

        result = minimize(
            objective,
            np.zeros(X.n_features) if start is None else start,
            jac=True,
            method="L-BFGS-B",
            # ftol stops where rounding hides any progress; the slope is the real criterion.
            options={"maxiter": self.max_iter, "gtol": self.tolerance, "ftol": 1e-15},
        )
        slope = float(np.abs(result.jac).max(initial=0.0))
        ended = {"slope": slope, "iterations": int(result.nit)}
        converged = slope <= self.tolerance
        status = CONVERGED(**ended)
        if not converged:
            status = STOPPED_EARLY(message=str(result.message), **ended)
        return _Descent(result.x, float(result.fun), int(result.nit), converged, status)

    def _check(self) -> None:
        if self.loss == "hinge":
            raise OptionError(
                f"loss must be one of {', '.join(LOSSES)}. Got 'hinge' instead; "
                "RankSVM minimises it."
            )
        check_choice("loss", self.loss, LOSSES)
        check_positive("l2", self.l2, or_zero=True)
        check_positive("sigma", self.sigma)
        check_positive("tolerance", self.tolerance)
        check_rounds("max_iter", self.max_iter)
        check_rounds("max_rounds", self.max_rounds)


@dataclass(frozen=True, eq=False)
class _Descent:
    v: FloatArray
    objective: float
    iterations: int
    converged: bool
    status: Fact


def _pair_loss(objective: PairObjective, table: FloatArray | None = None) -> Loss:
    def at(scores: FloatArray) -> tuple[float, FloatArray]:
        result = objective.evaluate(scores, table, want_loss=True)
        return result.loss, result.gradient

    # With all scores equal every pair costs log 2, so the loss there counts the pairs' weight.
    total = at(np.zeros(objective.slates.n_documents))[0] / np.log(2.0)
    if not total > 0:
        raise learning_data.nothing_to_learn()
    return _divided(at, total)


def _dcg_loss(
    lists: TrainingLists, weighting: Weighting, gain: str, query_weight: str, sigma: float
) -> Loss:
    depth = max(1, lists.depth)
    W, offset = learning_data.row_weights(weighting, lists), weighting.offset(depth)
    if W is None:
        raise learning_data.needs_rows("loss='dcg-bound'", weighting, "loss='logistic'")
    slates = learning_data.row_slates(
        lists,
        W,
        gain=learning_data.metric_gain(gain, lists),
        query_weight=query_weight,
        row_offset=None if offset is None else offset[:, 0],
    )
    bound = DcgBound(slates, sigma=sigma)
    if not bound.best > 0:
        raise learning_data.nothing_to_learn()
    return _divided(bound.evaluate, -bound.best)


def _divided(loss: Loss, total: float) -> Loss:
    def at(scores: FloatArray) -> tuple[float, FloatArray]:
        value, slope = loss(scores)
        return value / total, slope / total

    return at
