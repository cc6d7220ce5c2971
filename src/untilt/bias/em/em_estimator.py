"""What the two EM estimators share: where relevance comes from, and errors by resampling."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray, handed_over
from untilt._core.progress import track
from untilt._core.statistics import bootstrap_weights
from untilt.bias.em.boosted import TreeOptions, boosted_em
from untilt.bias.em.strata import Learned, StratifiedFit, stratified
from untilt.bias.estimator import BiasEstimator
from untilt.bias.harvesting.pairs import Doubt
from untilt.bias.position_graph import PositionGraph
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, position_counts
from untilt.errors import DepthError, IdentifiabilityError, OptionError, check_choice

RELEVANCE = ("auto", "features", "counts")
FEATURES_EXPLAIN = (
    "position depends on relevance through the features alone: whoever ordered the lists knew "
    "nothing else about it"
)
SAME_RELEVANCE = "a document is as relevant at one position as at another"


class EMEstimator(BiasEstimator):
    """Base of `RegressionEM` and `TrustEM`. Their parameters are documented there."""

    _relevance_from: ClassVar[tuple[str, ...]] = RELEVANCE
    relevance_: FloatArray
    history_: FloatArray

    relevance: str
    depth: int | None
    tolerance: float
    max_steps: int
    n_trees: int
    learning_rate: float
    n_leaves: int
    min_data_in_leaf: int
    folds: int
    early_stopping: int
    n_bootstrap: int
    n_threads: int | None
    network: Mapping[str, Any] | None = None
    seed: int

    def _tree_options(self) -> TreeOptions:
        return TreeOptions(
            n_trees=self.n_trees,
            learning_rate=self.learning_rate,
            n_leaves=self.n_leaves,
            min_data_in_leaf=self.min_data_in_leaf,
            folds=self.folds,
            early_stopping=self.early_stopping,
            n_threads=self.n_threads,
            seed=self.seed,
        )

    def _check_options(self) -> None:
        check_choice("relevance", self.relevance, self._relevance_from)
        self._tree_options().check()
        if self.n_bootstrap < 0 or self.n_bootstrap == 1:
            raise OptionError(
                f"n_bootstrap must be 0 (no resampling) or at least 2. Got {self.n_bootstrap} "
                "instead; 100 is usual."
            )

    def _features(self, log: ClickLog) -> FeatureArray | None:
        """The features to learn relevance from, or None where counts are to be used."""
        if self.relevance in ("features", "network") and log.features is None:
            raise OptionError(
                f"relevance={self.relevance!r} needs features, and this log has none. Give "
                "read_log a table of documents with features, or use relevance='counts'."
            )
        return None if self.relevance == "counts" else log.features

    def _cells(self, log: ClickLog) -> PositionCounts:
        if self.depth is None:
            return position_counts(log)
        if not 1 <= self.depth <= log.depth:
            raise DepthError(
                f"depth must be one of the positions 1..{log.depth} of the log. "
                f"Got {self.depth} instead."
            )
        return position_counts(log.top(self.depth))

    def _by_features(
        self, cells: PositionCounts, features: FeatureArray, *, trust: bool
    ) -> StratifiedFit:
        """Curves and relevance from the features of the log's documents."""
        own, options = features[cells.document], self._tree_options()
        learned: Learned
        if self.relevance == "network":
            from untilt.bias.em.network import NetworkOptions, network_em

            wanted = NetworkOptions.of(self.network)
            learned = network_em(cells, own, options=wanted, trees=options)
        else:
            learned = boosted_em(cells, own, trust=trust, options=options)
        return stratified(cells, own, learned, trust=trust, options=options)

    def _resampled(
        self, cells: PositionCounts, curve: Callable[[PositionCounts], FloatArray]
    ) -> Doubt:
        """Covariance of a curve over logs whose queries are drawn anew from those of the log."""
        queries, query = np.unique(cells.query, return_inverse=True)
        draws = bootstrap_weights(len(queries), self.n_bootstrap, self.seed)
        curves = [
            curve(cells.repeated(weights[query])) for weights in track(draws, "resampling queries")
        ]
        covariance = np.cov(np.array(curves), rowvar=False)
        rule = f"errors from {self.n_bootstrap} resamples of {len(queries):,} queries"
        return Doubt(np.atleast_2d(covariance), rule)

    def _relevance_of(self, log: ClickLog, cells: PositionCounts, gamma: FloatArray) -> FloatArray:
        """(documents,) gamma of the log's documents; NaN where nothing is known."""
        relevance = np.full(log.n_documents, np.nan)
        relevance[cells.document] = gamma
        return handed_over(relevance)


def require_shown(cells: PositionCounts) -> None:
    """Raise unless every position down to the lowest was shown, and the first was clicked."""
    shown = cells.by_position(cells.impressions) > 0
    if not shown.all():
        missing = int(np.argmin(shown)) + 1
        fix = f"Ask for fewer positions: log.top({missing - 1})."
        if missing == 1:
            fix = "Examination is measured relative to it: number the positions from 1."
        raise IdentifiabilityError(
            f"position {missing} was never shown, so nothing is known about it. {fix}"
        )
    if not cells.by_position(cells.clicks)[0] > 0:
        raise IdentifiabilityError(
            "position 1 was never clicked, and examination is measured relative to it. Check that "
            "positions are numbered from 1, or leave the first out of the log."
        )


def require_clicks_joined(graph: PositionGraph, method: str) -> None:
    """Raise unless clicks on shared documents join every position that has any clicks.

    A position without a single click is no matter of missing links: its examination is about 0.
    """
    first = next(found for found in graph.clicked_components if 1 in found)
    clicks = np.diag(graph.clicks)
    lost = [k for k in range(1, graph.depth + 1) if k not in first and clicks[k - 1] > 0]
    if lost:
        swap = graph.joining_swap(first, [lost[0]])
        raise IdentifiabilityError(
            f"{method} cannot compare position {lost[0]} with position 1: the documents shown on "
            f"both sides have too few clicks there. To join them, {swap} in a share of the "
            f"sessions; or ask for fewer positions: log.top({lost[0] - 1}); or learn relevance "
            f"from features: {method}(relevance='features')."
        )
