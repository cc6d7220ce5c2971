"""What linear rankers share: scaled features, weights, learning a table in turn."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray
from untilt._core.progress import track
from untilt._core.restored import check_array
from untilt.bias.curve import PositionBias
from untilt.errors import ShapeError
from untilt.facts import Fact
from untilt.rankers.base import Ranker
from untilt.rankers.learning_data import TrainingLists
from untilt.weighting.base import LearnedTable

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
    if np.isfinite(features).all():
        return
    row, column = np.argwhere(~np.isfinite(features))[0]
    raise ShapeError(
        f"a linear ranker needs finite features. Got {features[row, column]} for feature "
        f"{names[column]!r} in row {row}. Give "
        "missing values a number on reading (missing=0.0, --missing 0), or use LambdaMART, which "
        "takes them."
    )


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
    code = "training.settled" if learned.settled else "training.not-settled"
    return Fact(code, fits=len(learned.history))
