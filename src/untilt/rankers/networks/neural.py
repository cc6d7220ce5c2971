"""A network as ranker: pairwise, listwise or pointwise, on collapsed slates in mini-batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np

from untilt._core.arrays import AnyArray, FeatureArray, FloatArray
from untilt.bias.curve import PositionBias
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, check_choice
from untilt.facts import note
from untilt.networks.batches import PaddedRows, Sampler
from untilt.networks.mlp import Layers, Params
from untilt.networks.ranking_losses import (
    listwise_loss,
    pairwise_loss,
    pointwise_loss,
    sided_listwise_loss,
    sided_pointwise_loss,
)
from untilt.networks.training import Loss, Trained
from untilt.objectives.click_losses import PbmLikelihood, SidedPointwise
from untilt.objectives.pairs import PairObjective
from untilt.rankers import learning_data
from untilt.rankers.base import check_positive
from untilt.rankers.learning_data import TrainingLists
from untilt.rankers.networks import network_ranker
from untilt.rankers.networks.neural_batches import (
    PairBatches,
    cell_batches,
    list_batches,
    sided_list_batches,
)
from untilt.rankers.pooled import pooled_lists
from untilt.weighting.base import JointWeighting, LearnedTable, Weighting

EPOCHS = note("bias.epochs", "after {epochs} epochs")

# The penalty of each loss where none is given, for the default widths; small networks bear less. A
# click at one position says less than a pair: the likelihood bends less, and 0.003 would already
# flatten it (docs/neural.md has the figures).
PENALTY = {"pairwise": 1e-2, "listwise": 1e-2, "pointwise": 2e-4}
LOSSES = tuple(PENALTY)


@method(
    "ranker", "neural", title="Neural ranker", order=71, takes=("weighting", "seed"),
    needs=("jax",), cost=10.0, choose=("train", "select", "run"), reference="burges2005ranknet",
    note="a fully connected network on pairs",
)  # fmt: skip
@dataclass(eq=False, repr=False)
class NeuralRanker(network_ranker.DropoutNetworkRanker):
    r"""A fully connected network, trained by mini-batches with JAX; on a GPU where there is one.

        "pairwise"   sum w_ij log(1 + exp(-sigma (s_i - s_j))),  w_ij = W[k_i, k_j] (i over j)
        "listwise"   - sum a_i log softmax(s)_i,                 a_i = W[k_i] (clicks on i)
        "pointwise"  - sum c log p + (n - c) log(1 - p),         p = alpha_k sigmoid(s) + beta_k

    each over the sum of its weights, plus l2/2 |weights|^2. Pairs as in [burges2005ranknet]_ with
    the table of any weighting; softmax with inverse propensities as in [ai2018dla]_, for weightings
    that depend on the clicked position alone; "pointwise" is the position-based likelihood of the
    clicks, or plain cross-entropy where no `bias` is given (alpha = 1, beta = 0). A weighting that
    weighs no-clicks too, ``PRS(bias, clip=tau, clip_of="clicked")`` or `PNS`, makes "listwise" and
    "pointwise" those of `LinearRanker`; any with `sides` does so for "pointwise".

    Sessions of one slate are collapsed first: counts and repeated sessions give the same ranker.
    The same seed gives the same ranker on the same device. Features are standardised inside; a
    missing value (NaN) counts as the mean.

    Parameters
    ----------
    weighting : a table of pair weights such as `PRS(bias)`; None takes clicks as they are. A joint
        one (`PairwiseDebiasing`) is refreshed after every epoch
    bias : the position bias, for loss="pointwise" and for judging held-out clicks
    gain : how labels weigh: "plain", "linear", "exponential", or "auto"
    query_weight : "sessions", "sqrt" or "equal": how a query's traffic counts
    sigma : steepness of the pair loss
    l2 : the penalty, see `NetworkRanker`; None takes 0.01, or 0.0002 for loss="pointwise"
    batch_size : slates per step ("pointwise": as many documents as they show on average)
    widths, activation, transform, epochs, optimiser, learning_rate, schedule, early_stopping,
        checkpoint, seed : see `NetworkRanker`
    dropout, clip_norm : see `DropoutNetworkRanker`

    Fitted: see `NetworkRanker`; `bias_` and `bias_history_` (joint weightings).
    """

    weighting: Weighting | None = None
    _: KW_ONLY
    loss: str = "pairwise"
    bias: Any = None
    gain: str = "auto"
    query_weight: str = "sessions"
    sigma: float = 1.0
    bias_: PositionBias | None = field(init=False)
    bias_history_: list[Any] = field(init=False)

    def _fit(
        self, data: ClickLog | JudgedLists, *, valid: ClickLog | JudgedLists | None = None
    ) -> Self:
        """Learn from clicks or labels; `valid` decides when to stop, or queries set aside."""
        prepared = self._prepared(data, valid)
        prepared.keep(prepared.training.alone())
        return self

    @classmethod
    def fit_together(cls, rankers: Sequence[Self], data: Any) -> list[Exception | None]:
        """`fit(data)` of each; networks of one shape share a program (`networks.together`)."""
        return network_ranker.fit_together(rankers, data)

    def _prepared(
        self, data: ClickLog | JudgedLists, valid: ClickLog | JudgedLists | None = None
    ) -> network_ranker.Prepared:
        self._check()
        parts = network_ranker.set_aside(self, data, valid)
        lists = learning_data.training_lists(parts.train, self.weighting)
        weighting = learning_data.weighting_for(self.weighting, lists)
        self._check_bias(lists)
        inputs = network_ranker.inputs_of(lists, self.transform)
        task = NetworkTasks(self, *pooled_lists(lists, weighting, self.gain), inputs).of_loss()
        trained_on = lists.summary(self.weighting)

        def keep(trained: Trained) -> None:
            self._keep_network(trained.params, inputs)
            self._keep_bias(task.joint, trained.best_epoch)
            self._keep_history(trained)
            self.summary_ = {**trained_on, "loss": self.loss, **self.summary_, **parts.summary}

        held_out = parts.held_out
        stopping = network_ranker.stopping_for(
            self,
            held_out,
            inputs,
            bias=learning_data.validation_bias(self.bias, self.weighting, held_out),
            curve=None if task.joint is None or self.bias is not None else task.joint.curve,
        )
        training = self._training(
            task.loss, task.start, task.batches, inputs, constants=task.constants,
            stopping=stopping, companion=task.joint, what="training a ranking network",
            fingerprint=self._fingerprint(task, inputs, held_out),
        )  # fmt: skip
        return network_ranker.Prepared(training, keep)

    def _fingerprint(
        self,
        task: "NetworkTask",
        inputs: network_ranker.NetworkInputs,
        held_out: network_ranker.Data | None,
    ) -> str:
        first = {} if self.checkpoint is None else next(iter(task.batches.epoch(0)))
        columns = (first[name] for name in sorted(first))
        return network_ranker.fingerprint(self, inputs.features, *columns, held_out=held_out)

    def _keep_bias(self, joint: "JointTable | None", epochs: int) -> None:
        self.bias_, self.bias_history_ = None, []
        if joint is not None:
            # The parameters of the best epoch go with the ratios estimated up to it.
            self.bias_history_ = joint.learned.history[:epochs]
            self.bias_ = joint.learned.bias(epochs, status=EPOCHS(epochs=epochs))

    @property
    def _usual_penalty(self) -> float:
        return PENALTY[self.loss]

    def _check(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        self._check_network()
        check_positive("sigma", self.sigma)

    def _check_bias(self, lists: TrainingLists) -> None:
        unused = self.loss != "pointwise" and self.weighting is None and self.bias is not None
        if unused and not lists.judged:
            raise OptionError(
                "⟦bias=...⟧ alone corrects nothing: raw clicks are learned from. Give "
                "weighting=ut.PRS(bias), or loss='pointwise'; weighting=ut.Naive() "
                "says that raw clicks are meant."
            )


class JointTable:
    """A joint weighting beside a network: after each epoch S[k, l] makes the next table."""

    def __init__(
        self, learned: LearnedTable, batches: PairBatches, features: FeatureArray, activation: str
    ) -> None:
        self.learned = learned
        self.batches = batches
        self.features = features
        self.activation = activation
        self._losses: list[FloatArray] = []

    def after_epoch(self, epoch: int, params: Params) -> None:  # noqa: ARG002
        """The next table from the losses of the network as it is now."""
        scores = network_ranker.network_scores(params, self.features, self.activation)
        self._advance(self.batches.objective.losses_by_position(scores))

    def curve(self, _: Params) -> FloatArray:
        """Examination as the ratios say now, to judge an epoch by."""
        bias = self.learned.bias()
        assert bias is not None
        return bias.examination

    def state(self) -> dict[str, AnyArray]:
        """S of every epoch: all that the states follow from."""
        return {"S": np.array(self._losses)}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """Go through the epochs again."""
        for S in state["S"]:
            self._advance(S)

    def _advance(self, S: FloatArray) -> None:
        self._losses.append(S)
        self.batches.set_table(self.learned.update(S))


@dataclass(frozen=True, eq=False)
class NetworkTask:
    """A loss with everything it needs; `joint` changes the table between epochs."""

    loss: Loss
    batches: Sampler
    start: Layers
    constants: dict[str, AnyArray] = field(default_factory=dict)
    joint: JointTable | None = None


@dataclass(frozen=True, eq=False)
class NetworkTasks:
    """The task of each loss of a ranker on these lists."""

    ranker: NeuralRanker
    lists: TrainingLists
    weighting: Weighting
    inputs: network_ranker.NetworkInputs

    def of_loss(self) -> NetworkTask:
        """That of the ranker's loss."""
        if self.ranker.loss == "pairwise":
            return self._pairwise()
        if self.ranker.loss == "listwise":
            return self._listwise()
        if self.ranker.weighting is not None and not self.lists.judged:
            return self._sided_pointwise()
        return self._pointwise()

    def _pairwise(self) -> NetworkTask:
        ranker, lists, weighting = self.ranker, self.lists, self.weighting
        gain, depth = learning_data.pair_gain(ranker.gain, lists), max(1, lists.depth)
        slates = learning_data.pair_slates(
            lists, weighting, metric="none", gain=gain, query_weight=ranker.query_weight
        )
        objective = PairObjective(slates, metric="none", sigma=ranker.sigma)
        table, offset = weighting.table(depth), weighting.offset(depth)
        if offset is not None:
            # An offset needs every pair of a slate: all slates are packed and can hold the table.
            objective, table = objective.with_table(table, offset), np.ones_like(table)
        batches = PairBatches(objective, table, batch_size=ranker.batch_size, seed=ranker.seed)
        joint = None
        if isinstance(weighting, JointWeighting):
            learned = learning_data.learned_table(weighting, lists, ranker.query_weight)
            joint = JointTable(learned, batches, self.inputs.features, ranker.activation)
        loss = pairwise_loss(
            ranker.activation, sigma=ranker.sigma, dropout=ranker.dropout, plain=slates.plain,
            against_all=slates.against_all,
        )  # fmt: skip
        return NetworkTask(loss, batches, self.inputs.start(ranker), joint=joint)

    def _listwise(self) -> NetworkTask:
        ranker, lists, weighting, W = self.ranker, self.lists, self.weighting, None
        depth = max(1, lists.depth)
        if not isinstance(weighting, JointWeighting):
            W = learning_data.row_weights(weighting, lists)
        if W is None and weighting.sides(depth) is not None:
            return self._sided_listwise()
        if W is None or weighting.offset(depth) is not None:
            raise OptionError(
                "loss='listwise' weighs each click by its own position. The weights of "
                f"{type(weighting).__name__} depend on the other document too, or can be negative. "
                "Use ut.IPS(bias), ut.ExaminationWeights(form='inverse') or loss='pairwise'."
            )
        gain = learning_data.metric_gain(ranker.gain, lists)
        slates = learning_data.row_slates(lists, W, gain=gain, query_weight=ranker.query_weight)
        batches, scale = list_batches(slates, batch_size=ranker.batch_size, seed=ranker.seed)
        return self._task(listwise_loss, batches, scale=scale)

    def _sided_listwise(self) -> NetworkTask:
        """Clicked against unclicked documents, for a weighting that weighs both."""
        ranker = self.ranker
        sided = learning_data.sided_listwise(self.lists, self.weighting, ranker.query_weight)
        batches, scale = sided_list_batches(sided, batch_size=ranker.batch_size, seed=ranker.seed)
        return self._task(sided_listwise_loss, batches, scale=scale)

    def _sided_pointwise(self) -> NetworkTask:
        """Cross-entropy with a weight for clicks and one for no-clicks."""
        up, down = learning_data.sides_of(self.weighting, self.lists)
        cells = learning_data.click_counts(self.lists, self.ranker.query_weight)
        sums = SidedPointwise.of(cells, up, down)
        batches, scale = self._batches_of(cells)
        scale *= float(cells.impressions.sum() / sums.won.sum())  # a mean over weighted clicks
        base = np.log(sums.won.sum() / max(float(sums.lost.sum()), 1e-12))
        return self._task(sided_pointwise_loss, batches, base, scale=scale, up=up, down=down)

    def _pointwise(self) -> NetworkTask:
        lists, bias = self.lists, self.ranker.bias
        alpha, beta = np.ones(max(1, lists.depth)), np.zeros(max(1, lists.depth))
        if bias is not None and not lists.judged:
            alpha, beta = learning_data.affine_curves(bias, lists.depth)
        cells = self._cells()
        batches, scale = self._batches_of(cells)
        base = PbmLikelihood(cells, alpha, beta).base_score()
        return self._task(pointwise_loss, batches, base, scale=scale, alpha=alpha, beta=beta)

    def _cells(self) -> PositionCounts:
        """Clicks by document and position; a grade y of a judged one is (2^y - 1)/(2^max - 1)."""
        lists = self.lists
        if not lists.label.any():
            raise learning_data.nothing_to_learn()
        if lists.judged:
            return learning_data.judged_counts(lists)
        if not np.all((lists.label == 0) | (lists.label == 1)):
            raise OptionError(
                "loss='pointwise' models clicks, but the log's label is not 0/1. Use another loss, "
                "or ⟦log.with_label(...) with a click column|--label NAME⟧."
            )
        return learning_data.click_counts(lists, self.ranker.query_weight)

    def _batches_of(self, cells: PositionCounts) -> tuple[PaddedRows, float]:
        """As many documents per step as the slates of the other losses show."""
        per_step = self.ranker.batch_size * -(-len(self.lists.document) // len(self.lists.query))
        return cell_batches(cells, rows_per_step=per_step, seed=self.ranker.seed)

    def _task(
        self,
        loss: Callable[..., Loss],
        batches: Sampler,
        base: float | None = None,
        **constants: Any,
    ) -> NetworkTask:
        """With these constants of the loss; `base` is the score that all documents start from."""
        start = self.inputs.start(self.ranker)
        if base is not None:
            start["biases"][-1][:] = base
        single = {name: np.asarray(value, np.float32) for name, value in constants.items()}
        compiled = loss(self.ranker.activation, dropout=self.ranker.dropout)
        return NetworkTask(compiled, batches, start, single)
