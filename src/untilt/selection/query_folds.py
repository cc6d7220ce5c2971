"""Folds of whole queries, for scikit-learn's cross-validation and for logs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from untilt._core.arrays import AnyArray, IntArray
from untilt._core.random import generator
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError


class PlainFolds:
    """The part of scikit-learn's `GroupKFold` that is not the split itself."""

    def __init__(self, n_splits: int = 5) -> None:
        self.n_splits = n_splits

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:  # noqa: ARG002
        """The number of folds."""
        return self.n_splits


try:
    from sklearn.model_selection import GroupKFold as GroupFolds
except ImportError:  # whoever hands folds to scikit-learn's tools has it
    GroupFolds = PlainFolds


class QueryKFold(GroupFolds):
    """K folds in which all rows of a query lie on the same side.

    As `cv=` of scikit-learn's tools it takes features, labels and `groups`, the query of each row.
    `split(log)` gives indices of lists, for `log.take`; `split(judged)` those of queries, for
    `judged.take`. The folds hold about as many rows (lists, queries) each.

    Parameters
    ----------
    n_splits : number of folds
    seed : draws the queries of each fold at random; None fills the folds by size alone

    >>> from untilt import make_judged
    >>> judged = make_judged(n_queries=40, n_features=4, seed=0)
    >>> [len(test) for train, test in QueryKFold(4).split(judged)]
    [10, 10, 10, 10]
    """

    def __init__(self, n_splits: int = 5, *, seed: int | None = None) -> None:
        super().__init__(n_splits)
        self.seed = seed

    def split(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002  scikit-learn's signature
        groups: Any = None,
    ) -> Iterator[tuple[AnyArray, AnyArray]]:
        """Indices to train on and to judge by, fold by fold."""
        if isinstance(X, ClickLog):
            groups = X.query
        elif isinstance(X, JudgedLists):
            groups = np.arange(X.n_queries)
        elif groups is None:
            raise OptionError(
                "QueryKFold needs the query of each row: groups=query_of_row; with scikit-learn's "
                "metadata routing params={'groups': query_of_row}."
            )
        _, owner, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        if len(sizes) < self.n_splits:
            raise OptionError(
                f"{self.n_splits} folds need at least as many queries. Got {len(sizes)} instead."
            )
        fold = self._folds(sizes)[owner]
        for number in range(self.n_splits):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)

    def _folds(self, sizes: IntArray) -> IntArray:
        """(queries,) the fold of each: by falling size, dealt out in turn."""
        order = np.arange(len(sizes))
        if self.seed is not None:
            order = generator(self.seed).permutation(order)
        order = order[np.argsort(-sizes[order], kind="stable")]
        fold = np.empty(len(sizes), dtype=np.int64)
        fold[order] = np.arange(len(sizes)) % self.n_splits
        return fold
