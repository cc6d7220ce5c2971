r"""Pointwise networks with a shallow tower for position: the baselines of recommender systems.

    combine="sum"       z = f(x) + b_k    ([zhao2019video]_): the tower's output is added
    combine="product"   p = sigmoid(f(x)) sigmoid(b_k)    (PAL, [guo2019pal]_): examined times liked
    combine="none"      z = f(x)    no correction

with cross-entropy on p = sigmoid(z) for labels of 0 and 1 (and shares between them), and squared
error on z for numbers. The tower sees the position alone and is thrown away at ranking.
"""

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import ClassVar, NamedTuple, Self

import numpy as np

from untilt._core.arrays import AnyArray, FeatureArray, FloatArray
from untilt._core.random import child_generator
from untilt._core.restored import check_number
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, counts_from_rows
from untilt.data.judged import JudgedLists
from untilt.errors import ColumnError, FileFormatError, OptionError, check_choice, did_you_mean
from untilt.facts import joined
from untilt.networks import mlp
from untilt.networks.batches import PaddedRows
from untilt.networks.mlp import Network, normalised
from untilt.networks.training import PART, Loss, StoppingRule, Trained, compiled_value
from untilt.rankers.base import Ranker
from untilt.rankers.learning_data import TrainingLists, nothing_to_learn, training_lists
from untilt.rankers.networks import network_ranker
from untilt.rankers.validation import as_in_training, check_held_out

COMBINE = ("sum", "product", "none")
PROBABILITY = "probability"  # a target: the sigmoid of the output is the expected label
TARGETS = ("auto", PROBABILITY, "number")


@method(
    "ranker", "tower", title="Position tower", order=74, takes=("seed",), needs=("jax",),
    cost=10.0, choose=("train", "select", "run"),
    note="a network for relevance beside a shallow tower for position, added up",
)  # fmt: skip
@method(
    "ranker", "pal", title="PAL", order=75, takes=("seed",), needs=("jax",), cost=10.0,
    choose=("train", "select", "run"), options={"combine": "product"},
    note="a network for relevance times a shallow tower for position",
)  # fmt: skip
@dataclass(eq=False, repr=False)
class TowerRanker(network_ranker.NetworkRanker):
    r"""A network f(x) for relevance beside a shallow tower b_k for position, fitted together.

    Simple, and wrong where relevance and position go together: then either can explain a part
    of the other, and nothing in the loss says which (the document's reason for pairwise debiasing).
    Sessions of equal (document, position) sum up exactly.

    Parameters
    ----------
    combine : "sum", "product" (PAL; probabilities only) or "none"
    target : "probability" (cross-entropy), "number" (squared error), or "auto": by the labels
    widths, activation, transform, epochs, batch_size, optimiser, learning_rate, schedule, l2,
        early_stopping, checkpoint : of the network f, see `NetworkRanker`; a batch is of distinct
        (document, position). Held-out feedback is judged by the same loss, tower and all

    Fitted: `tower_` (b_1..b_K; 0 at position 1 with "sum"), `target_`, and what `NetworkRanker`
    has. `predict` gives f(x), `predict_feedback` the expected label without the tower.
    """

    combine: str = "sum"
    _: KW_ONLY
    target: str = "auto"
    batch_of: ClassVar[str] = "rows"
    l2: float | None = 2e-4
    tower_: FloatArray = field(init=False)
    target_: str = field(init=False)

    def _fit(
        self, data: ClickLog | JudgedLists, *, valid: ClickLog | JudgedLists | None = None
    ) -> Self:
        """Learn from feedback, or from labels where `data` is judged (the skyline)."""
        self._check()
        parts = network_ranker.set_aside(self, data, valid)
        lists = training_lists(parts.train)
        inputs = network_ranker.inputs_of(lists, self.transform)
        fitted = fit_tower(
            self, lists, inputs, self.combine, self.target, parts.held_out, self.checkpoint
        )
        self._keep_network(fitted.layers, inputs)
        self.tower_, self.target_ = fitted.tower, fitted.target
        self._keep_history(fitted.trained)
        self.summary_ = {**network_ranker.trained_on(lists), **self.summary_, **parts.summary}
        return self

    def _check_restored(self) -> None:
        super()._check_restored()
        check_choice("target_", self.target_, TARGETS)

    def predict_feedback(self, features: FeatureArray) -> FloatArray:
        """The expected label at a position that does nothing: sigmoid(f(x)), or f(x)."""
        return feedback(self.predict(features), self.target_)

    def _check(self) -> None:
        check_choice("combine", self.combine, COMBINE)
        check_choice("target", self.target, TARGETS)
        self._check_network()


class FittedTower(NamedTuple):
    """Trained layers, their tower, and how it went."""

    layers: mlp.Layers
    tower: FloatArray
    target: str
    trained: Trained


def fit_tower(
    ranker: network_ranker.NetworkRanker,
    lists: TrainingLists,
    inputs: network_ranker.NetworkInputs,
    combine: str,
    target: str,
    held_out: network_ranker.Data | None,
    checkpoint: str | os.PathLike[str] | None,
) -> FittedTower:
    """Fit a network and a tower, with the options of a ranker, to the labels of the lists."""
    target = _target(lists.label, combine, target, judged=lists.judged)
    counts = label_counts(lists)
    weight, mean = counts.impressions / counts.impressions.mean(), counts.rate
    shift, unit = (0.0, 1.0) if target == "probability" else _scale(mean, weight)
    params = {"f": inputs.start(ranker), "b": np.zeros(counts.depth, np.float32)}
    batches = PaddedRows(
        _columns(counts, shift, unit),
        min(ranker.batch_size, counts.n_cells),
        seed=int(child_generator(ranker.seed, 1).integers(2**31)),
    )
    loss = tower_loss(combine, target, ranker.activation)
    scale = _LabelScale(counts.depth, shift, unit)
    trained = ranker._training(
        loss, params, batches, inputs, checkpoint=checkpoint, what="training a tower",
        stopping=_stopping(ranker, held_out, inputs, loss, scale),
        fingerprint=network_ranker.fingerprint(
            ranker, inputs.features, *batches.columns.values(), held_out=held_out
        ),
    ).alone()  # fmt: skip
    tower = np.asarray(trained.params["b"], dtype=np.float64) * unit
    if combine == "sum":
        # A constant may stand on either side; the tower of position 1 is 0.
        shift, tower = shift + tower[0], tower - tower[0]
    layers = _scaled_output(trained.params["f"], unit, shift)
    return FittedTower(layers, tower, target, trained)


class _LabelScale(NamedTuple):
    """Positions of a tower (deeper ones count as the last), and of its labels (y - shift)/unit."""

    depth: int
    shift: float
    unit: float


def _columns(counts: PositionCounts, shift: float, unit: float) -> dict[str, AnyArray]:
    """The cells (document, position) of a batch, labels on the network's scale."""
    return {
        "row": counts.document[counts.document_index].astype(np.int32),
        "position_index": counts.position_index.astype(np.int32),
        "weight": (counts.impressions / counts.impressions.mean()).astype(np.float32),
        "mean": ((counts.rate - shift) / unit).astype(np.float32),
    }


def _stopping(
    ranker: network_ranker.NetworkRanker,
    held_out: network_ranker.Data | None,
    inputs: network_ranker.NetworkInputs,
    loss: Loss,
    scale: "_LabelScale",
) -> StoppingRule | None:
    """Labels by NDCG@10; feedback by the loss, which for clicks is minus their likelihood."""
    if not isinstance(held_out, ClickLog):
        return network_ranker.stopping_for(ranker, held_out, inputs, layers=itemgetter("f"))
    check_held_out(held_out)
    lists = training_lists(held_out)
    columns = _columns(label_counts(lists), scale.shift, scale.unit)
    rows = as_in_training(lists.features, inputs.names, inputs.missing)
    batch = mlp.jax_modules().jax.device_put(
        {
            **columns,
            "position_index": np.minimum(columns["position_index"], scale.depth - 1),
            "mask": np.ones(len(columns["row"]), np.float32),
            "features": normalised(rows, inputs.mean, inputs.scale, ranker.transform),
            "l2": np.zeros((), np.float32),
        }
    )
    judge = compiled_value(loss)

    def value(params: mlp.Params) -> float:
        return float(judge(params, batch, {}))

    return StoppingRule(value, ranker.early_stopping, higher_is_better=False)


def label_counts(lists: TrainingLists) -> PositionCounts:
    """Sessions and summed labels of every (document, position)."""
    return counts_from_rows(
        lists.document,
        lists.position_index + 1,
        lists.row_count.astype(float),
        lists.label,
        lists.n_documents,
        max(1, lists.depth),
    )


@lru_cache(maxsize=32)
def tower_loss(combine: str, target: str, activation: str) -> Loss:
    """loss(params, batch): per session, with the batch's L2 penalty on the network alone."""
    jax, jnp, _ = mlp.jax_modules()

    def loss(params: mlp.Params, batch: Mapping[str, mlp.Array]) -> mlp.Array:
        f = mlp.apply_layers(params["f"], batch["features"][batch["row"]], activation)[:, 0]
        b = params["b"][batch["position_index"]]
        y, weight = batch["mean"], batch["weight"] * batch["mask"]
        if target == "number":
            each = (y - f - (b if combine == "sum" else 0.0)) ** 2
        elif combine == "product":
            log_p = jax.nn.log_sigmoid(f) + jax.nn.log_sigmoid(b)
            each = -y * log_p - (1 - y) * jnp.log1p(-jnp.exp(jnp.minimum(log_p, -1e-6)))
        else:
            z = f + b if combine == "sum" else f
            each = y * jax.nn.softplus(-z) + (1 - y) * jax.nn.softplus(z)
        penalty = batch["l2"] / 2 * mlp.sum_of_squares(params["f"])
        return jnp.sum(weight * each) / len(batch["mask"]) + penalty

    return loss


def feedback(score: FloatArray, target: str) -> FloatArray:
    """The expected label of a network's output."""
    return 1 / (1 + np.exp(-np.clip(score, -500, 500))) if target == PROBABILITY else score


def _target(label: FloatArray, combine: str, target: str, *, judged: bool) -> str:
    if len(label) == 0 or not np.any(label != label[0]):
        raise nothing_to_learn()
    shares = bool(label.max() <= 1)
    chosen = target if target != "auto" else ("probability" if shares else "number")
    if chosen == "probability" and not shares:
        raise OptionError(
            f"a probability must lie between 0 and 1. Got a label of {label.max():g}. Use "
            "target='number', or a log of clicks."
        )
    if chosen == "number" and combine == "product" and not judged:
        raise OptionError(
            "⟦combine='product'⟧ takes a label apart into examined and liked, so it "
            f"needs clicks. Got labels up to {label.max():g}; use ⟦combine='sum'⟧."
        )
    return chosen


def _scale(mean: FloatArray, weight: FloatArray) -> tuple[float, float]:
    """Mean and spread of the labels by (document, position).

    A fresh network's outputs have a spread of about 1. Labels of 0.03 would drown in what is left
    of that after some epochs, and the L2 penalty in labels of 1000.
    """
    middle = float(np.average(mean, weights=weight))
    spread = float(np.sqrt(np.average((mean - middle) ** 2, weights=weight)))
    return middle, max(spread, 1e-12)


def _scaled_output(layers: mlp.Layers, unit: float, shift: float) -> mlp.Layers:
    """The same network with the output z unit + shift in place of z."""
    weights, biases = list(layers["weights"]), list(layers["biases"])
    weights[-1], biases[-1] = weights[-1] * unit, biases[-1] * unit + shift
    return {"weights": weights, "biases": biases}


# The baselines of [ren2021pairwise]_; V1 is TowerRanker("sum") on the synthesised label.
BASELINES: dict[str, dict[str, str]] = {
    "V2": {"click": "sum", "dwell": "none"},
    "V3": {"click": "product", "dwell": "none"},
    "V4": {"click": "product", "dwell": "sum"},
}


@method(
    "ranker", "feedback-towers", title="Towers for several kinds of feedback", order=76,
    takes=("seed",), needs=("jax", "feedback"), cost=20.0, choose=("train", "select", "run"),
    reference="ren2021pairwise",
    note="a network and a position tower for each kind of feedback, summed",
)  # fmt: skip
@dataclass(eq=False, repr=False)
class FeedbackTowers(network_ranker.NetworkRanker):
    r"""One network with a tower for each feedback column; the predictions are summed.

    score = sum over columns of w_c E[feedback c | x], each expected at a position that does nothing
    (`TowerRanker`). Clicks and other shares are fitted by cross-entropy, other numbers by squared
    error. The document's baselines are `FeedbackTowers(BASELINES["V2"])`, "V3" and "V4".

    Parameters
    ----------
    towers : label column -> "sum", "product" or "none"; the default is baseline V3
    weights : label column -> its weight in the sum; 1 each where not given
    widths, activation, transform, epochs, batch_size, optimiser, learning_rate, schedule, l2,
        early_stopping : as in `TowerRanker`, for every column alike
    checkpoint : one file for each column, the path with .1, .2, ... added

    Fitted: `networks_`, `tower_` (column -> b_1..b_K), `targets_`, `feature_importances_`.
    """

    towers: Mapping[str, str] | None = None
    _: KW_ONLY
    weights: Mapping[str, float] | None = None
    l2: float | None = 2e-4
    batch_of: ClassVar[str] = "rows"
    networks_: dict[str, Network] = field(init=False)
    tower_: dict[str, FloatArray] = field(init=False)
    targets_: dict[str, str] = field(init=False)

    def _fit(
        self, data: ClickLog | JudgedLists, *, valid: ClickLog | JudgedLists | None = None
    ) -> Self:
        """Learn each column, or the labels where `data` is judged (the skyline)."""
        towers = self._check()
        train, held_out, fact = network_ranker.set_aside(self, data, valid)
        lists = training_lists(train)
        inputs = network_ranker.inputs_of(lists, self.transform)
        self.networks_, self.tower_, self.targets_ = {}, {}, {}
        status, shares, trained = [], [], []
        if lists.judged:
            towers = {"label": "none"}
        for number, (column, combine) in enumerate(towers.items(), start=1):
            if isinstance(train, ClickLog):
                lists = training_lists(_with_column(train, column))
            judge = held_out
            if isinstance(held_out, ClickLog):
                judge = _with_column(held_out, column)
            path = None if self.checkpoint is None else f"{os.fspath(self.checkpoint)}.{number}"
            fitted = fit_tower(self, lists, inputs, combine, "auto", judge, path)
            self.networks_[column] = inputs.network(self, fitted.layers)
            self.tower_[column], self.targets_[column] = fitted.tower, fitted.target
            trained.append(fitted.trained)
            status.append(PART(part=column, status=fitted.trained.status))
            shares.append(
                network_ranker.importances(fitted.layers, inputs.features, self.activation)
            )
        self.importances_ = np.mean(shares, axis=0)
        self.feature_names_, self.missing_ = lists.feature_names, lists.missing
        self.summary_ = {
            **network_ranker.trained_on(lists), **network_ranker.length_of(*trained),
            "status": joined(*status), "held_out": fact,
        }  # fmt: skip
        return self

    def _check_restored(self) -> None:
        Ranker._check_restored(self)
        self._check_networks(self.networks_)
        if not self.networks_ or self.targets_.keys() != self.networks_.keys():
            raise FileFormatError("its networks and targets are not of the same columns.")
        for target in self.targets_.values():
            check_choice("a target", target, TARGETS)
        for column, weight in (self.weights or {}).items():
            check_number(f"weight of {column}", weight)

    def _scores(self, features: FeatureArray) -> FloatArray:
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
        return dict(towers)


def _with_column(log: ClickLog, column: str) -> ClickLog:
    if column == log.label_name:
        return log
    if column not in log.extra_labels:
        have = [log.label_name, *log.extra_labels]
        raise ColumnError(
            f"there is no label column {column!r}. This log has: "
            f"{', '.join(have)}.{did_you_mean(column, have)} Read it with "
            "⟦read_log(..., labels=[...])|--label NAME⟧, or say towers={...} for "
            "the columns that are there."
        )
    return log.with_label(column)
