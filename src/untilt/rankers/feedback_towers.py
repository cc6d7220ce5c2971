"""Several kinds of feedback, one model each, summed at ranking."""

from collections.abc import Mapping
from typing import Self

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.suggest import check_choice, did_you_mean
from untilt.errors import ColumnError, OptionError
from untilt.logs.clicklog import ClickLog
from untilt.logs.judged import JudgedLists
from untilt.networks.jax_layers import to_network
from untilt.networks.mlp import Network
from untilt.rankers.network_model import NetworkRanker, check_not_infinite, importances, inputs_of
from untilt.rankers.towers import COMBINE, TowerShape, feedback, fit_tower, tower_summary
from untilt.rankers.training import training_lists

# The baselines of [ren2021pairwise]_; V1 is TowerRanker("sum") on the synthesised label.
BASELINES: dict[str, dict[str, str]] = {
    "V2": {"click": "sum", "dwell": "none"},
    "V3": {"click": "product", "dwell": "none"},
    "V4": {"click": "product", "dwell": "sum"},
}


class FeedbackTowers(NetworkRanker):
    r"""One network with a tower for each feedback column; the predictions are summed.

    score = sum over columns of w_c E[feedback c | x], each expected at a position that does nothing
    (`TowerRanker`). Clicks and other shares are fitted by cross-entropy, other numbers by squared
    error. The document's baselines are `FeedbackTowers(BASELINES["V2"])`, "V3" and "V4".

    Parameters
    ----------
    towers : label column -> "sum", "product" or "none"; the default is baseline V3
    weights : label column -> its weight in the sum; 1 each where not given
    widths, activation, transform, epochs, batch_size, optimiser, learning_rate, schedule, l2 :
        as in `TowerRanker`, for every column alike

    Fitted: `networks_`, `tower_` (column -> b_1..b_K), `targets_`, `feature_importances_`.
    """

    def __init__(
        self,
        towers: Mapping[str, str] | None = None,
        *,
        weights: Mapping[str, float] | None = None,
        widths: tuple[int, ...] = (512, 256, 128),
        activation: str = "elu",
        transform: str = "none",
        epochs: int = 50,
        batch_size: int = 256,
        optimiser: str = "adam",
        learning_rate: float = 1e-3,
        schedule: str = "constant",
        l2: float = 2e-4,
        seed: int = 0,
    ) -> None:
        self.towers = towers
        self.weights = weights
        self.widths = widths
        self.activation = activation
        self.transform = transform
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimiser = optimiser
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.l2 = l2
        self.seed = seed

    dropout = 0.0
    early_stopping = None
    networks_: dict[str, Network]

    def fit(self, data: ClickLog | JudgedLists) -> Self:
        """Learn each column, or the labels where `data` is judged (the skyline)."""
        towers = self._check()
        lists = training_lists(data)
        inputs = inputs_of(lists, self.transform)
        self.networks_, self.tower_, self.targets_ = {}, {}, {}
        told, shares = [], []
        for column, combine in {"label": "none"}.items() if lists.judged else towers.items():
            if isinstance(data, ClickLog):
                lists = training_lists(_with_column(data, column))
            fitted = fit_tower(lists, inputs, combine, "auto", TowerShape.of(self))
            self.networks_[column] = to_network(
                fitted.layers,
                self.activation,
                mean=inputs.mean,
                scale=inputs.scale,
                transform=self.transform,
            )
            self.tower_[column], self.targets_[column] = fitted.tower, fitted.target
            told.append(f"{column}: {fitted.status}")
            shares.append(importances(fitted.layers, inputs.features, self.activation))
        self.importances_ = np.mean(shares, axis=0)
        self.feature_names_ = lists.feature_names
        self.summary_ = tower_summary(lists, "; ".join(told))
        return self

    def _scores(self, features: FloatArray) -> FloatArray:
        check_not_infinite(features, self.feature_names_)
        weights = self.weights or {}
        return np.sum(
            [
                weights.get(column, 1.0)
                * feedback(network.forward(features)[:, 0], self.targets_[column])
                for column, network in self.networks_.items()
            ],
            axis=0,
        )

    def _check(self) -> dict[str, str]:
        towers = BASELINES["V3"] if self.towers is None else self.towers
        if not isinstance(towers, Mapping) or not towers:
            raise OptionError(
                "towers must say how each label column is corrected, such as {'click': 'product', "
                f"'dwell': 'none'}}. Got {towers!r} instead."
            )
        for column, combine in towers.items():
            check_choice(f"the tower of {column!r}", combine, COMBINE)
        for column in self.weights or {}:
            if column not in towers:
                raise OptionError(
                    f"there is a weight for {column!r}, which has no tower. "
                    f"Towers: {', '.join(towers)}."
                )
        self._check_network()
        TowerShape.of(self).optimiser.check()
        return dict(towers)


def _with_column(log: ClickLog, column: str) -> ClickLog:
    if column == log.label_name:
        return log
    if column not in log.extra_labels:
        have = [log.label_name, *log.extra_labels]
        raise ColumnError(
            f"there is no label column {column!r}. This log has: {', '.join(have)}."
            f"{did_you_mean(column, have)} Read it with read_log(..., labels=[...]), or say "
            "towers={...} for the columns that are there."
        )
    return log.with_label(column)
