"""What every ranker shares: it is fitted on a log or on judged lists, and scores features."""

import os
from abc import abstractmethod
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, Missing
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import NotFittedError, OptionError, ShapeError


class Ranker(BaseEstimator):
    """Base of all rankers. The constructor stores, `fit` checks and learns, `predict` scores.

    Fitted attributes: `feature_names_`, `missing_` (what `predict` does with NaN: None refuses it,
    "keep" leaves it to the model, a number is put in its place), `summary_` (what it was trained on
    and how it went).
    """

    feature_names_: tuple[str, ...]
    missing_: Missing = None
    summary_: dict[str, Any]

    @abstractmethod
    def fit(self, data: ClickLog | JudgedLists) -> Self:
        """Learn from clicks, or from labels where `data` is judged (the skyline)."""

    @abstractmethod
    def _scores(self, features: FeatureArray) -> FloatArray:
        """Scores of checked features."""

    def predict(self, features: npt.ArrayLike) -> FloatArray:
        """Scores, one per row of features; a higher score ranks higher.

        A missing feature (NaN) is treated as in training; where training had none, it is refused.
        """
        self._check_fitted()
        rows = np.ascontiguousarray(features, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != len(self.feature_names_):
            raise ShapeError(
                f"this ranker was trained on {len(self.feature_names_)} features. "
                f"Got an array of shape {rows.shape} instead."
            )
        return self._scores(known_values(rows, self.feature_names_, self.missing_))

    def _check_fitted(self) -> None:
        if not hasattr(self, "feature_names_"):
            name = type(self).__name__
            raise NotFittedError(f"this {name} has not been fitted. Call fit(log) first.")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ranker to one file that `untilt.load` reads; no pickle inside."""
        from untilt.rankers.persist import save

        save(self, path)

    def _state(self) -> dict[str, Any]:
        """What was learned: every attribute whose name ends in an underscore.

        Values of any kind that `rankers.persist` can write; a ranker that holds something else
        turns it into such values here, and back in `_restore`.
        """
        learned = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {name: value for name, value in learned.items() if name.endswith("_")}

    def _restore(self, state: dict[str, Any]) -> None:
        """Set what `_state` gave."""
        for name, value in state.items():
            setattr(self, name, value)


def known_values(features: FeatureArray, names: tuple[str, ...], missing: Missing) -> FeatureArray:
    """The features as a ranker trained with `missing` takes them.

    Raises ShapeError where one is infinite, or is missing and training knew of no missing ones.
    """
    finite = np.isfinite(features)
    if finite.all():
        return features
    lost = np.isnan(features)
    _refuse_cell(features, names, ~finite & ~lost, "Replace it by a number.")
    if missing == "keep":
        return features
    if missing is None:
        _refuse_cell(
            features, names, lost,
            "Fill it in, or train on data that has missing values: read with missing='keep' (for "
            "trees), or with missing=0.0, which the ranker then puts in their place itself.",
        )  # fmt: skip
    return np.where(lost, np.float32(missing), features)


def _refuse_cell(features: FeatureArray, names: tuple[str, ...], bad: BoolArray, fix: str) -> None:
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ShapeError(
            f"this ranker needs finite features. Got {features[row, column]} for feature "
            f"{names[column]!r} in row {row}. {fix}"
        )


def check_positive(what: str, value: object, *, or_zero: bool = False) -> None:
    """Raise unless an option is a finite number above 0 (or 0)."""
    if (
        isinstance(value, (int, float, np.number))
        and not isinstance(value, bool)
        and np.isfinite(value)
        and (value > 0 or (or_zero and value == 0))
    ):
        return
    least = "at least 0" if or_zero else "above 0"
    raise OptionError(f"{what} must be a number {least}. Got {value!r} instead.")


def check_rounds(what: str, value: object) -> None:
    """Raise unless an option is a whole number of at least 1."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1:
        return
    raise OptionError(f"{what} must be a whole number of at least 1. Got {value!r} instead.")
