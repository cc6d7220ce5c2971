"""What each loss of `NeuralRanker` learns from: a loss, its batches, and where it starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from untilt._core.arrays import AnyArray, FloatArray
from untilt.errors import OptionError
from untilt.networks.batches import Sampler
from untilt.networks.jax_layers import Layers
from untilt.networks.ranking_losses import listwise_loss, pairwise_loss, pointwise_loss
from untilt.networks.training import Loss
from untilt.objectives.pairs import PairObjective
from untilt.objectives.pbm import PbmCells, PbmLikelihood
from untilt.rankers.linear_model import pair_gain, row_table, row_units
from untilt.rankers.network_model import Inputs, network_scores
from untilt.rankers.neural_batches import PairBatches, cell_batches, list_batches
from untilt.rankers.recipes import affine_curves, click_cells, resolved_gain
from untilt.rankers.training import TrainingLists, nothing_to_learn, pair_units
from untilt.weighting.base import JointWeighting, Weighting

if TYPE_CHECKING:
    from untilt.rankers.neural import NeuralRanker

LOSSES = ("pairwise", "listwise", "pointwise")


class JointTable:
    """A joint weighting beside a network: after each epoch S[k, l] makes the next table."""

    def __init__(
        self,
        weighting: JointWeighting,
        batches: PairBatches,
        features: FloatArray,
        activation: str,
    ) -> None:
        self.weighting = weighting
        self.batches = batches
        self.features = features
        self.activation = activation
        self.history: list[Any] = []
        self._losses: list[FloatArray] = []

    def after_epoch(self, epoch: int, params: Any) -> None:  # noqa: ARG002
        """The next table from the losses of the network as it is now."""
        scores = network_scores(params, self.features, self.activation)
        self._go_on(self.batches.objective.losses_by_place(scores))

    def state(self) -> dict[str, AnyArray]:
        """S of every epoch: all that the states follow from."""
        return {"S": np.array(self._losses)}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """Go through the epochs again."""
        for S in state["S"]:
            self._go_on(S)

    def _go_on(self, S: FloatArray) -> None:
        self._losses.append(S)
        self.history.append(self.weighting.update(S, self.history[-1] if self.history else None))
        self.batches.set_table(self.weighting.table_of(self.history[-1]))


@dataclass(frozen=True, eq=False)
class Task:
    """A loss with everything it needs; `joint` changes the table between epochs."""

    loss: Loss
    batches: Sampler
    start: Layers
    constants: dict[str, AnyArray] = field(default_factory=dict)
    joint: JointTable | None = None


def task_of(
    ranker: "NeuralRanker", lists: TrainingLists, weighting: Weighting, inputs: Inputs
) -> Task:
    """The task of a ranker's loss on these lists."""
    if ranker.loss == "pairwise":
        return _pairwise(ranker, lists, weighting, inputs)
    if ranker.loss == "listwise":
        return _listwise(ranker, lists, weighting, inputs)
    return _pointwise(ranker, lists, inputs)


def _pairwise(
    ranker: "NeuralRanker", lists: TrainingLists, weighting: Weighting, inputs: Inputs
) -> Task:
    units = pair_units(
        lists,
        weighting,
        metric="none",
        gain=pair_gain(ranker.gain, lists),
        query_weight=ranker.query_weight,
    )
    objective, depth = PairObjective(units, metric="none", sigma=ranker.sigma), max(1, lists.depth)
    table, offset = weighting.table(depth), weighting.offset(depth)
    if offset is not None:
        # An offset needs every pair of a slate, so all units are packed and can hold the table.
        objective, table = objective.baked(table, offset), np.ones_like(table)
    batches = PairBatches(objective, table, batch_size=ranker.batch_size, seed=ranker.seed)
    joint = None
    if isinstance(weighting, JointWeighting):
        joint = JointTable(weighting, batches, inputs.features, ranker.activation)
    loss = pairwise_loss(
        ranker.activation,
        sigma=ranker.sigma,
        dropout=ranker.dropout,
        plain=units.plain,
        against_all=units.against_all,
    )
    return Task(loss, batches, inputs.start(ranker), joint=joint)


def _listwise(
    ranker: "NeuralRanker", lists: TrainingLists, weighting: Weighting, inputs: Inputs
) -> Task:
    depth = max(1, lists.depth)
    W = None if isinstance(weighting, JointWeighting) else row_table(weighting.table(depth))
    if W is None or weighting.offset(depth) is not None:
        raise OptionError(
            "loss='listwise' weighs each click by its own position. The weights of "
            f"{type(weighting).__name__} depend on the other document too, or can be negative. "
            "Use ut.IPS(bias), or loss='pairwise'."
        )
    gain = resolved_gain(ranker.gain, lists)
    units = row_units(lists, W, gain=gain, query_weight=ranker.query_weight)
    batches, scale = list_batches(units, batch_size=ranker.batch_size, seed=ranker.seed)
    loss = listwise_loss(ranker.activation, dropout=ranker.dropout)
    return Task(loss, batches, inputs.start(ranker), {"scale": np.asarray(scale, np.float32)})


def _pointwise(ranker: "NeuralRanker", lists: TrainingLists, inputs: Inputs) -> Task:
    alpha, beta = np.ones(max(1, lists.depth)), np.zeros(max(1, lists.depth))
    if ranker.bias is not None and not lists.judged:
        alpha, beta = affine_curves(ranker.bias, lists.depth)
    cells = _cells(ranker, lists)
    likelihood = PbmLikelihood(cells, alpha, beta)
    # As many documents per step as the slates of the other losses show.
    per_step = ranker.batch_size * -(-len(lists.row) // len(lists.query))
    batches, scale = cell_batches(cells, rows_per_step=per_step, seed=ranker.seed)
    start = inputs.start(ranker)
    start["biases"][-1][:] = likelihood.base_score()
    constants = {"scale": scale, "alpha": alpha, "beta": beta}
    return Task(
        pointwise_loss(ranker.activation, dropout=ranker.dropout),
        batches,
        start,
        {name: np.asarray(value, np.float32) for name, value in constants.items()},
    )


def _cells(ranker: "NeuralRanker", lists: TrainingLists) -> PbmCells:
    """Clicks by document and position; a grade y of a judged document is (2^y - 1)/(2^max - 1)."""
    if not lists.label.any():
        raise nothing_to_learn()
    if not lists.judged:
        if not np.all((lists.label == 0) | (lists.label == 1)):
            raise OptionError(
                "loss='pointwise' models clicks, but the log's label is not 0/1. Use another loss, "
                "or log.with_label(...) with a click column."
            )
        cells: PbmCells = click_cells(lists, ranker.query_weight)
        return cells
    grade = np.exp2(lists.label) - 1
    row = np.arange(lists.n_rows)
    ones = np.ones(lists.n_rows)
    return PbmCells(row, np.zeros_like(row), ones, grade / grade.max(), lists.n_rows)
