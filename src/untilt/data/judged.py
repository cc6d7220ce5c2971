"""Lists of documents with human labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from untilt._core import arrays, ragged
from untilt._core.feature_table import with_names
from untilt._core.portable import Portable
from untilt._core.random import Seed, generator
from untilt.errors import OptionError, ShapeError, check_share


@dataclass(frozen=True, eq=False, repr=False, init=False)
class JudgedLists(Portable):
    """Documents with features and human labels, grouped by query.

    Rows indptr[i]:indptr[i + 1] are the documents of query i. All arrays are read-only.

    Parameters
    ----------
    features : (n, d) float32
    labels : (n,) float64, 0 = not relevant; usually 0..2 or 0..4
    indptr : (queries + 1,)
    query_id : (queries,) whole numbers or text
    doc_id : (n,) whole numbers or text; the place in the query where none is given
    missing : as in `ClickLog`
    """

    features: arrays.FeatureArray
    labels: arrays.FloatArray
    indptr: arrays.IntArray
    query_id: arrays.AnyArray
    doc_id: arrays.AnyArray
    feature_names: tuple[str, ...]
    missing: arrays.Missing

    def __init__(
        self,
        features: npt.ArrayLike,
        labels: npt.ArrayLike,
        indptr: npt.ArrayLike,
        query_id: npt.ArrayLike,
        doc_id: npt.ArrayLike | None = None,
        feature_names: Sequence[str] = (),
        missing: arrays.Missing = None,
    ) -> None:
        arrays.check_missing(missing)
        features, feature_names = with_names(features, feature_names)
        table = arrays.frozen(features, np.float32)
        if table.ndim != 2:
            raise ShapeError(f"features must have two dimensions. Got {table.ndim} instead.")
        starts = arrays.whole_numbers(indptr, np.int64, what="indptr")
        ragged.check_indptr(starts, len(table), what="JudgedLists")
        values = {
            "features": table,
            "labels": arrays.frozen(labels, np.float64),
            "indptr": starts,
            "query_id": arrays.identifiers(query_id),
            "doc_id": arrays.identifiers(
                ragged.index_in_list(starts) if doc_id is None else doc_id
            ),
            "feature_names": tuple(feature_names)
            or tuple(f"f{j + 1}" for j in range(table.shape[1])),
            "missing": missing,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        _check_lengths(self)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.indptr) - 1

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.features.shape[1])

    @property
    def groups(self) -> arrays.AnyArray:
        """(n,) the id of each row's query: `groups` of scikit-learn's tools and of `Ranker.fit`."""
        return np.repeat(self.query_id, ragged.lengths(self.indptr))

    def __len__(self) -> int:
        return len(self.labels)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        """No array: tools that want one get an error that says what to pass instead."""
        raise OptionError(
            "JudgedLists are no array. For scikit-learn's tools pass judged.features, "
            "judged.labels and groups=judged.groups; untilt's own take them whole."
        )

    def take(self, queries: npt.ArrayLike) -> "JudgedLists":
        """The queries with these indices, in this order, or where this mask is true."""
        chosen = ragged.chosen_lists(queries, self.n_queries, what="queries")
        rows = ragged.rows_of_lists(self.indptr, chosen)
        return replace(
            self,
            features=self.features[rows],
            labels=self.labels[rows],
            indptr=ragged.indptr_of(ragged.lengths(self.indptr)[chosen]),
            query_id=self.query_id[chosen],
            doc_id=self.doc_id[rows],
        )

    def split(self, share: float, *, seed: Seed = 0) -> "tuple[JudgedLists, JudgedLists]":
        """Two parts by query; the first holds `share` of the queries (rounded, at least one)."""
        check_share("share", share)
        if self.n_queries < 2:
            raise OptionError(f"a split needs at least two queries. Got {self.n_queries}.")
        order = generator(seed).permutation(self.n_queries)
        cut = min(max(1, round(share * self.n_queries)), self.n_queries - 1)
        return self.take(np.sort(order[:cut])), self.take(np.sort(order[cut:]))

    def __repr__(self) -> str:
        grades = np.unique(self.labels)
        shown = ", ".join(f"{g:g}" for g in grades[:6]) + (", ..." if len(grades) > 6 else "")
        return (
            f"JudgedLists({self.n_queries:,} queries, {len(self):,} documents, "
            f"{self.n_features} features, labels {{{shown}}})"
        )


def _check_lengths(judged: JudgedLists) -> None:
    n, d = judged.features.shape
    for what, wanted in (
        ("labels", n),
        ("doc_id", n),
        ("query_id", len(judged.indptr) - 1),
        ("feature_names", d),
    ):
        given = len(getattr(judged, what))
        if given != wanted:
            raise ShapeError(f"{what} must have {wanted} entries. Got {given} instead.")
    labels = judged.labels
    if not np.all(np.isfinite(labels)) or np.any(labels < 0):
        row = int(np.flatnonzero(~np.isfinite(labels) | (labels < 0))[0])
        raise ShapeError(f"labels must be finite and at least 0. Got {labels[row]} in row {row}.")


def check_judged(judged: Any, hint: str) -> None:
    """Raise unless these are judged lists: a click log has no labels."""
    if not isinstance(judged, JudgedLists):
        raise OptionError(
            f"judged lists with labels are needed. Got {type(judged).__name__} instead; {hint}."
        )
