"""What every ranker shares: it is fitted on a log or on judged lists, and scores features."""

import os
from abc import abstractmethod
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from untilt._core import saved
from untilt._core.arrays import FeatureArray, FloatArray, Missing, check_missing
from untilt._core.declared import is_whole
from untilt._core.estimator import BaseEstimator
from untilt._core.feature_table import OLD_RANK, OLD_RANK_IS, feature_array, known_values
from untilt._core.files import write_text
from untilt._core.saved import Saved
from untilt._core.seen_queries import SeenQueries
from untilt._core.threads import one_blas_thread
from untilt.bias.given import BiasLike, numbered_for
from untilt.data.clicklog import ClickLog
from untilt.data.grades import Grades
from untilt.data.judged import JudgedLists
from untilt.data.limits import check_room
from untilt.data.seen import seen_in
from untilt.errors import FileFormatError, NotFittedError, OptionError, ShapeError
from untilt.rankers import learning_data
from untilt.rankers.card import ranker_card
from untilt.rankers.validation import validation_for

BYTES_PER_ROW = 80  # of working memory, measured for trees on lists that are all different


class Ranker(BaseEstimator, Saved):
    """Base of all rankers. The constructor stores, `fit` checks and learns, `predict` scores.

    Fitted attributes: `feature_names_`, `missing_` (what `predict` does with NaN: None refuses it,
    "keep" leaves it to the model, a number is put in its place), `summary_` (what it was trained on
    and how it went), `trained_on_` and `validated_on_` (hashes of the ids of the queries that it
    learned from, and of those that decided when to stop; None where there were none).

    A ranker of your own gives `_fit`, which sets `feature_names_` and what is learned, and
    `_scores`. Where several learn faster at once, its class may have a class method
    `fit_together(rankers, data)`: `fit(data)` of each, and a list of the errors, None for a ranker
    that is fitted. `untilt.select` then uses it; a subclass must define it anew.
    """

    saved_as = "ranker"
    # Parameters that hold others: trees=Trees(n_trees=100) is n_trees=100.
    _records: ClassVar[tuple[str, ...]] = ()
    feature_names_: tuple[str, ...]
    missing_: Missing = None
    summary_: dict[str, Any]
    trained_on_: SeenQueries
    validated_on_: SeenQueries | None
    # Of scikit-learn's metadata routing: `groups` goes to fit and to score without being asked for.
    # A pipeline hands sample_weight=None to every score, so that its name must be known.
    __metadata_request__fit: ClassVar[dict[str, bool | None]] = {"groups": True}
    __metadata_request__score: ClassVar[dict[str, bool | None]] = {
        "groups": True,
        "sample_weight": None,
    }

    def __new__(cls, *_: Any, **given: Any) -> Self:
        """Raise where an option is given by itself and in a record as well."""
        cls._one_by_one(given)
        return super().__new__(cls)

    def __post_init__(self, *given: Mapping[str, Any] | None) -> None:
        self.set_params(**dict(zip(self._records, given, strict=True)))

    def set_params(self, **params: Any) -> Self:
        """Set parameters by their names; a record such as `trees` sets those that it holds."""
        super().set_params(**self._one_by_one(params))
        return self

    @classmethod
    def _one_by_one(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters given, with those in records by their own names."""
        flat = {name: value for name, value in given.items() if name not in cls._records}
        for record in cls._records:
            held = given.get(record) or {}
            if not isinstance(held, Mapping):
                raise OptionError(f"{record} must be a record of options. Got {held!r} instead.")
            for name, value in held.items():
                if name in flat:
                    raise OptionError(
                        f"{name} is given twice, by itself and in {record}. Give it once."
                    )
                flat[name] = value
        return flat

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return [name for name in super()._get_param_names() if name not in cls._records]

    def fit(
        self,
        data: Any,
        labels: npt.ArrayLike | Grades | None = None,
        *,
        groups: npt.ArrayLike | None = None,
        valid: ClickLog | JudgedLists | None = None,
    ) -> Self:
        """Learn from clicks, or from labels where `data` is judged (the skyline).

        Parameters
        ----------
        data : a `ClickLog` or `JudgedLists`; or features, (rows, d) or a data frame, together with
            `labels` and `groups`
        labels : (rows,) human labels of the features. Clicks are no such labels: they need their
            positions, and so a `ClickLog`. Beside a click log `Grades` of some of its documents,
            which `LambdaMART("auto")` learns from as well
        groups : (rows,) the query of each row, in any order; scikit-learn's name for it
        valid : held-out data, for rankers that stop early or choose a parameter by it
        """
        more: dict[str, Any] = {}
        takes = signature(self._fit).parameters
        if isinstance(labels, Grades):
            labels, more["labels"] = None, labels
        lists = self._checked(data, labels, groups)
        if more and "labels" not in takes:
            raise OptionError(f"{type(self).__name__} learns from no grades. Leave labels out.")
        if valid is not None:
            if "valid" not in takes:
                raise OptionError(f"{type(self).__name__} takes no held-out data. Leave valid out.")
            valid = learning_data.with_features_of(valid, lists.feature_names)
            more["valid"] = self._numbered(valid)
        with one_blas_thread:
            self._fit(lists, **more)
        if "labels" in more:
            self.summary_["grades"] = len(more["labels"])
        self._remember(lists, valid)
        return self

    def _checked(
        self, data: Any, labels: npt.ArrayLike | None = None, groups: npt.ArrayLike | None = None
    ) -> ClickLog | JudgedLists:
        """What `fit` was given, as `_fit` takes it."""
        lists = self._numbered(learning_data.as_lists(data, labels, groups))
        if isinstance(lists, ClickLog):
            check_room(lists, type(self).__name__, per_row=BYTES_PER_ROW)
        return lists

    def _remember(
        self, lists: ClickLog | JudgedLists, valid: ClickLog | JudgedLists | None = None
    ) -> None:
        """The queries that a fitted ranker has seen."""
        self.trained_on_ = seen_in(lists, self)
        self.validated_on_ = None if valid is None else seen_in(valid, self)

    def _numbered(self, data: ClickLog | JudgedLists) -> ClickLog | JudgedLists:
        """A log with its positions numbered as the ranker's curve has them, by context say."""
        if not isinstance(data, ClickLog):
            return data
        held = (getattr(self, name, None) for name in ("weighting", "bias", "valid_bias"))
        for each in held:
            data = numbered_for(data, getattr(each, "position_bias", each))
        return data

    @abstractmethod
    def _fit(self, *data: Any, **held_out: Any) -> Any:
        """_fit(data): learn from a `ClickLog` or `JudgedLists`; held-out data comes as valid=."""

    @abstractmethod
    def _scores(self, features: FeatureArray) -> FloatArray:
        """Scores of checked features."""

    def predict(self, features: Any) -> FloatArray:
        """Scores, one per row of features; a higher score ranks higher.

        The columns of a table (pandas, Polars, Arrow), of a `ClickLog` or of `JudgedLists` are
        found by their names, in whatever order they stand; a missing or further one is an error. An
        array has no names: its columns must be in the order of `feature_names_`.

        A missing feature (NaN) is treated as in training; where training had none, it is refused.
        """
        self._check_fitted()
        rows = feature_array(features, self.feature_names_)
        if rows.ndim != 2 or rows.shape[1] != len(self.feature_names_):
            raise ShapeError(
                f"this ranker was trained on {len(self.feature_names_)} features. "
                f"Got an array of shape {rows.shape} instead."
                f"{f' {OLD_RANK_IS}' if OLD_RANK in self.feature_names_ else ''}"
            )
        return self._scores(known_values(rows, self.feature_names_, self.missing_))

    def save(
        self, path: str | os.PathLike[str], *, card: str | os.PathLike[str] | None = None
    ) -> None:
        """Write it to one file that `untilt.load` reads; no pickle inside.

        With `card`, also write a model card there: Markdown with the YAML header of the Hugging
        Face Hub, about what the ranker was trained on and how, its features, position bias and
        limits. It has no evaluation, which a ranker does not know: see `untilt.model_card`.
        """
        if card is not None and os.path.realpath(card) == os.path.realpath(path):
            raise OptionError(f"card must be another file than the ranker's. Got {card} for both.")
        super().save(path)
        if card is not None:
            write_text(card, ranker_card(self, Path(path).name))

    def warm_up(self) -> Self:
        """Do now what else the first calls of `predict` would do, such as to compile kernels.

        For a service, before its first request. Scores are the same without it.
        """
        self._check_fitted()
        return self

    def score(
        self,
        data: Any,
        labels: npt.ArrayLike | None = None,
        *,
        groups: npt.ArrayLike | None = None,
        bias: BiasLike | None = None,
    ) -> float:
        """How good the order is; more is better. For a value with its error see `untilt.evaluate`.

        The mean NDCG@10 on judged lists, or on features with `labels` and `groups` as in `fit`. On
        a `ClickLog` the propensity-weighted DCG@10 per session, which needs the position `bias`:
        clicks as they are would praise the ranker that repeats the shown order.
        """
        self._check_fitted()
        lists = learning_data.as_lists(data, labels, groups)
        if isinstance(lists, ClickLog) and bias is None:
            raise OptionError(
                "the score on a click log needs the position bias: score(log, ⟦bias=...⟧). "
                "ut.estimate gives the value with its error, and compares rankers."
            )
        lists = numbered_for(lists, bias) if isinstance(lists, ClickLog) else lists
        judge = validation_for(
            learning_data.with_features_of(lists, self.feature_names_), bias, None
        )
        assert judge is not None
        judge = judge.like_training(self.feature_names_, self.missing_)
        return judge.value(self._scores(judge.features))

    def _check_restored(self) -> None:
        names = self.feature_names_
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise FileFormatError("its 'feature_names_' must be a tuple of names.")
        check_missing(self.missing_)

    def _check_fitted(self) -> None:
        if not hasattr(self, "feature_names_"):
            name = type(self).__name__
            raise NotFittedError(f"this {name} has not been fitted. Call fit(log) first.")


def check_positive(what: str, value: Any, *, or_zero: bool = False) -> None:
    """Raise unless an option is a finite number above 0 (or 0)."""
    known = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (known and np.isfinite(value) and (value > 0 or (or_zero and value == 0))):
        least = "at least 0" if or_zero else "above 0"
        raise OptionError(f"{what} must be a number {least}. Got {value!r} instead.")


def check_rounds(what: str, value: object) -> None:
    """Raise unless an option is a whole number of at least 1."""
    if not is_whole(value, 1):
        raise OptionError(f"{what} must be a whole number of at least 1. Got {value!r} instead.")


def load(path: str | os.PathLike[str]) -> Any:
    """The ranker that `save` wrote. Raises `FileFormatError` if the file is anything else."""
    return load_data(path)[0]


def load_data(path: str | os.PathLike[str]) -> tuple["Ranker", bytes]:
    """The same, and the bytes that it was read from."""
    found, data = saved.load_data(path)
    if not isinstance(found, Ranker):
        raise FileFormatError(
            f"{path} cannot be loaded: it holds a {type(found).__name__}, which is no ranker. Give "
            "the file of a ranker, written with ranker.save(path)."
        )
    return found, data
