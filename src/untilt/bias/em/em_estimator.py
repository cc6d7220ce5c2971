"""What the two EM estimators share: where relevance comes from, and errors by resampling."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import ClassVar, Self

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray, handed_over
from untilt._core.progress import track
from untilt._core.statistics import bootstrap_weights
from untilt.bias.em.boosted import LearnedFit, TreeOptions, boosted_em
from untilt.bias.em.documents import several_positions
from untilt.bias.em.strata import StratifiedFit, stratified
from untilt.bias.estimator import BiasEstimator
from untilt.bias.log_ratios import Uncertainty
from untilt.bias.position_graph import PositionGraph, joined_depth, position_graph, require_shown
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts
from untilt.errors import IdentifiabilityError, OptionError, check_choice
from untilt.facts import Fact

RELEVANCE = ("auto", "features", "counts")


@dataclass(kw_only=True, eq=False, repr=False)
class EMEstimator(BiasEstimator):
    """Base of `RegressionEM` and `TrustEM`. Their parameters are documented there."""

    _relevance_from: ClassVar[tuple[str, ...]] = RELEVANCE
    relevance_: FloatArray = field(init=False)
    history_: FloatArray = field(init=False)

    relevance: str = "auto"
    depth: int | None = None
    level: float = 0.95
    tolerance: float = 1e-4
    max_steps: int = 5000
    n_trees: int = 500
    learning_rate: float = 0.1
    n_leaves: int = 15
    min_data_in_leaf: int = 20
    folds: int = 5
    early_stopping: int = 20
    n_bootstrap: int = 0
    n_threads: int | None = None
    seed: int = 0

    def fit(self, log: ClickLog) -> Self:
        """Estimate the bias of this log. Raises `IdentifiabilityError` where it cannot be had."""
        super().fit(log)
        if log.item is not None and len(self.relevance_) < log.n_documents:
            self.relevance_ = handed_over(self.relevance_[log.item])
        return self

    @property
    def _uses_features(self) -> bool:
        return self.relevance != "counts"

    def _tree_options(self) -> TreeOptions:
        return TreeOptions(**{each.name: getattr(self, each.name) for each in fields(TreeOptions)})

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

    def _by_features(
        self, cells: PositionCounts, features: FeatureArray, *, trust: bool
    ) -> StratifiedFit:
        """Curves and relevance from the features of the log's documents."""
        own, options = features[cells.document], self._tree_options()
        learned = self._learned(cells, own, trust=trust, options=options)
        return stratified(cells, own, learned, trust=trust, options=options)

    def _learned(
        self, cells: PositionCounts, features: FeatureArray, *, trust: bool, options: TreeOptions
    ) -> LearnedFit:
        """Relevance by boosted trees."""
        return boosted_em(cells, features, trust=trust, options=options)

    def _counted(self, cells: PositionCounts, *, clicked: bool) -> PositionCounts:
        """The documents that relevance from counts can use; raises where positions share too few.

        With `clicked`, only those with a click: the others have no influence on the curve.
        """
        graph, method = position_graph(cells), type(self).__name__
        graph.require(cells.depth, method, clicks=False)
        _require_clicks_joined(graph, method)
        return several_positions(cells, clicked=clicked)

    def _resampled(
        self, cells: PositionCounts, curve: Callable[[PositionCounts], FloatArray]
    ) -> Uncertainty:
        """Covariance of a curve over resamples of the queries."""
        queries, query = np.unique(cells.query, return_inverse=True)
        draws = bootstrap_weights(len(queries), self.n_bootstrap, self.seed)
        curves = [
            curve(cells.repeated(weights[query])) for weights in track(draws, "resampling queries")
        ]
        covariance = np.cov(np.array(curves), rowvar=False)
        rule = Fact("bias.errors-resampled", n_resamples=self.n_bootstrap, n_queries=len(queries))
        return Uncertainty(np.atleast_2d(covariance), rule)

    def _relevance_of(self, log: ClickLog, cells: PositionCounts, gamma: FloatArray) -> FloatArray:
        """(documents,) gamma of the log's documents; NaN where nothing is known."""
        relevance = np.full(log.n_documents, np.nan)
        relevance[cells.document] = gamma
        return handed_over(relevance)


def relevance_assumed(by_features: bool) -> Fact:
    """What must be true of relevance: from features, or from counts of the same document."""
    return Fact("bias.features-explain" if by_features else "bias.same-relevance")


def require_first_clicked(cells: PositionCounts) -> None:
    """Raise unless every position down to the lowest was shown, and the first was clicked."""
    require_shown(cells.by_position(cells.impressions) > 0)
    if not cells.by_position(cells.clicks)[0] > 0:
        raise IdentifiabilityError(
            "position 1 was never clicked, and examination is measured relative to it. Check that "
            "positions are numbered from 1, or leave the first out of the log."
        )


def _require_clicks_joined(graph: PositionGraph, method: str) -> None:
    """Raise unless clicks on shared documents join every position that has any clicks.

    A position without a single click is no matter of missing links: its examination is about 0.
    """
    first = next(part for part in graph.clicked_components if 1 in part)
    clicks = np.diag(graph.clicks)
    lost = [k for k in range(1, graph.depth + 1) if k not in first and clicks[k - 1] > 0]
    if lost:
        swap = graph.joining_swap(first, [lost[0]])
        reach = joined_depth(graph.clicks.T > 0, needed=clicks > 0)
        fewer = f"or ask for fewer positions: log.top({reach}); " if reach > 1 else ""
        raise IdentifiabilityError(
            f"{method} cannot compare position {lost[0]} with position 1: the documents shown on "
            f"both sides have too few clicks there. To join them, {swap} in a share of the "
            f"sessions; {fewer}or learn relevance from features: {method}(relevance='features')."
        )
