"""Folds of whole queries, for scikit-learn's cross-validation and for logs."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold

from untilt._core.arrays import AnyArray
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError


class QueryKFold(GroupKFold):
    """K folds in which all rows of a query lie on the same side.

    As `cv=` of scikit-learn's tools it takes features, labels and `groups`, the query of each row.
    `split(log)` gives indices of lists, for `log.take`; `split(judged)` those of queries, for
    `judged.take`. The folds hold about as many rows (lists, queries) each.

    Parameters
    ----------
    n_splits : number of folds
    seed : draws the queries of each fold at random; None fills the folds by size alone

    >>> from untilt import make_judged
    >>> judged = make_judged(n_queries=40, n_features=3, seed=0)
    >>> [len(test) for train, test in QueryKFold(4).split(judged)]
    [10, 10, 10, 10]
    """

    def __init__(self, n_splits: int = 5, *, seed: int | None = None) -> None:
        super().__init__(n_splits, shuffle=seed is not None, random_state=seed)
        self.seed = seed

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[AnyArray, AnyArray]]:
        """Indices to train on and to judge by, fold by fold."""
        if isinstance(X, ClickLog):
            X, y, groups = np.empty(X.n_lists), None, X.query
        elif isinstance(X, JudgedLists):
            X, y, groups = np.empty(X.n_queries), None, np.arange(X.n_queries)
        elif groups is None:
            raise OptionError(
                "QueryKFold needs the query of each row: groups=query_of_row; with scikit-learn's "
                "metadata routing params={'groups': query_of_row}."
            )
        n_queries = len(np.unique(groups))
        if n_queries < self.n_splits:
            raise OptionError(
                f"{self.n_splits} folds need at least as many queries. Got {n_queries} instead."
            )
        yield from super().split(X, y, groups)
