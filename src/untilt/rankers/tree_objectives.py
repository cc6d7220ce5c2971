"""Objectives for gradient boosting: called each round with the scores, they give the gradient.

All have one signature, `objective(scores, dataset) -> (gradient, hessian)`, which is LightGBM's and
XGBoost's alike. The dataset is not looked at: rows are the training rows of the lists.
"""

from typing import Any, Protocol, Self

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.position_bias import PositionBias
from untilt.objectives.pairs import PairObjective
from untilt.objectives.pbm import PbmLikelihood
from untilt.weighting.base import JointWeighting, Weighting


class TreeObjective(Protocol):
    """What boosting needs each round."""

    def __call__(self, scores: FloatArray, dataset: Any) -> tuple[FloatArray, FloatArray]:
        """Gradient and hessian of the loss, one entry per training row."""
        ...


class LikeAFunction:
    """A copy of a function is the function itself.

    `lightgbm.train` copies its parameters deeply: the history of a joint weighting would be
    written to a copy that nobody sees, and all pair statistics would be held twice.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class PairTreeObjective(LikeAFunction):
    """Lambdas with a table of pair weights; a joint weighting refreshes its table each round.

    `history` holds the state of a joint weighting after each round.
    """

    def __init__(self, objective: PairObjective, weighting: Weighting) -> None:
        self.weighting = weighting
        depth = max(1, objective.units.depth)
        self._table = self._start = weighting.table(depth)
        self.history: list[Any] = []
        self._joint = weighting if isinstance(weighting, JointWeighting) else None
        # A table that never changes is multiplied into the pairs once.
        offset = weighting.offset(depth)
        self._objective = objective.baked(self._table, offset) if self._joint is None else objective

    def __call__(self, scores: FloatArray, dataset: Any = None) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """Gradient and hessian at these scores."""
        if self._joint is not None:
            self._refresh(self._joint, scores)
        result = self._objective.evaluate(scores, self._table, packed_weighted=self._joint is None)
        return result.gradient, result.hessian

    def _refresh(self, joint: JointWeighting, scores: FloatArray) -> None:
        """Estimate the ratios anew with the ranker so far; while it tells nothing they are 1."""
        if np.all(scores == scores[:1]):  # a training begins; XGBoost's constant is not 0
            self._table, self.history = self._start, []
            return
        S = self._objective.losses_by_place(scores)
        state = joint.update(S, self.history[-1] if self.history else None)
        self.history.append(state)
        self._table = joint.table_of(state)

    def loss(self, scores: FloatArray) -> float:
        """The weighted loss at these scores, with the present table."""
        return self._objective.evaluate(
            scores, self._table, want_loss=True, packed_weighted=self._joint is None
        ).loss

    def bias(self, n_trees: int | None = None) -> PositionBias | None:
        """What a joint weighting has learned (by the first `n_trees`); None for a given table."""
        history = self.history[:n_trees]
        if self._joint is None or not history:
            return None
        return self._joint.bias_of(history[-1], history)


class PbmTreeObjective(LikeAFunction):
    """The position-based likelihood, starting from the best constant score."""

    def __init__(self, likelihood: PbmLikelihood) -> None:
        self.likelihood = likelihood
        self.base_score = likelihood.base_score()

    def __call__(self, scores: FloatArray, dataset: Any = None) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """Gradient and Fisher information at these scores."""
        return self.likelihood.gradient(scores + self.base_score)

    def loss(self, scores: FloatArray) -> float:
        """Negative log-likelihood."""
        return self.likelihood.loss(scores + self.base_score)
