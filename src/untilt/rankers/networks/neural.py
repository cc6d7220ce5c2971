"""A network as ranker: pairwise, listwise or pointwise, on collapsed slates in mini-batches.

From collapsed slates to the padded batches of each loss of `NeuralRanker`.

Slates are put in an order of their own contents first: batches are drawn by index, and the order in
which a log was read must not matter.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import Any, Self

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, IntArray
from untilt._core.grouping import splitmix64
from untilt.bias.curve import PositionBias
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts
from untilt.data.judged import JudgedLists
from untilt.data.limits import allow_table
from untilt.errors import OptionError, check_choice
from untilt.facts import note
from untilt.networks.batches import (
    Batch,
    Cut,
    PaddedLists,
    PaddedRows,
    Picks,
    Resident,
    Sampler,
    bucket_lengths,
    cut_lists,
)
from untilt.networks.mlp import Layers, Params, jax_modules
from untilt.networks.ranking_losses import (
    listwise_loss,
    pairs_of_gains,
    pairwise_loss,
    pointwise_loss,
    sided_listwise_loss,
    sided_pointwise_loss,
)
from untilt.networks.training import Loss, Trained
from untilt.objectives.losses import PbmLikelihood, SidedListwise, SidedPointwise
from untilt.objectives.pair_kernels import pair_weights
from untilt.objectives.pair_slates import PairSlates, RowSlates
from untilt.objectives.pairs import PairObjective
from untilt.rankers import learning_data
from untilt.rankers.base import check_positive
from untilt.rankers.learning_data import TrainingLists, nothing_to_learn
from untilt.rankers.networks import network_ranker
from untilt.rankers.pooled import pooled_lists
from untilt.weighting.base import JointWeighting, LearnedTable, Weighting


class PairBatches:
    """Slates with a weight for each of their pairs. `table` may be exchanged between epochs.

    Where every slate keeps its labels (judged lists, or slates shown once) batches hold these and
    the pairs are made on the device; else they hold the collapsed pairs.
    """

    def __init__(
        self, objective: PairObjective, table: FloatArray, *, batch_size: int, seed: int
    ) -> None:
        self.objective = objective
        self.slates = objective.slates
        self.order = _useful_slates(self.slates)
        if len(self.order) == 0:
            raise nothing_to_learn()
        columns: dict[str, AnyArray] = {
            "row": self.slates.document,
            "position_index": self.slates.position_index,
        }
        options: dict[str, Any] = {"more": self._pairs}
        if np.all(self.slates.start < 0):
            columns["gain"] = self.slates.gain.astype(np.float32)
            options = {"per_list": {"weight": self.slates.scale.astype(np.float32)}}
        self.lists = padded_lists(
            self.slates.indptr, self.order, columns, batch_size=batch_size, seed=seed, **options
        )
        # The pairs of a step, their weights and losses, and the gradients of these, as float32.
        longest = self.lists.lengths[-1]
        allow_table("a step of pairs", self.lists.batch_size, longest, longest, copies=3)
        self.set_table(table)

    def set_table(self, table: FloatArray) -> None:
        """W from now on; losses are means under it."""
        self.table = np.asarray(table, np.float32)
        total = total_weight(self.objective, table)
        if not total > 0:
            raise nothing_to_learn()
        self.scale = np.float32(_mean_factor(self.lists, total))

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one epoch."""
        return self.lists.steps_per_epoch

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of one epoch, in order."""
        for batch in self.lists.epoch(epoch):
            yield {**batch, **self.shared}

    @property
    def resident(self) -> Resident | None:
        """The lists with their labels, or with the pairs that their sessions were summed to."""
        labels = self.lists.resident
        if labels is not None:
            return labels
        slates, most = self.slates, np.iinfo(np.int32).max
        if len(slates.above) > most:
            return None
        rows = {**self.lists.row_columns, "gain": self._of_order(slates.gain)}
        own = {"weight": slates.scale[self.order].astype(np.float32),
               "start": slates.start[self.order].astype(np.int32)}  # fmt: skip
        columns = {
            "indptr": self.lists.indptr, "rows": rows, "lists": own,
            "above": slates.above.astype(np.float32), "below": slates.below.astype(np.float32),
        }  # fmt: skip
        return Resident(columns, cut_pairs(slates.plain, slates.against_all), self.lists.lengths)

    def picks(self, epoch: int) -> Picks:
        """The lists of each batch of the epoch."""
        return self.lists.picks(epoch)

    @property
    def shared(self) -> Batch:
        """The table as it is now."""
        return {"table": self.table, "scale": np.asarray(self.scale)}

    def _of_order(self, column: FloatArray) -> AnyArray:
        return column[ragged.rows_of_lists(self.slates.indptr, self.order)].astype(np.float32)

    def _pairs(self, lists: IntArray, length: int) -> Batch:
        slates = self.slates
        pairs = np.zeros((len(lists), length, length), np.float32)
        _fill_pairs(
            np.where(lists >= 0, self.order[lists], -1),
            slates.indptr, slates.start, slates.above, slates.below, slates.gain, slates.scale,
            slates.plain, slates.against_all, pairs,
        )  # fmt: skip
        return {"pairs": pairs}


@lru_cache(maxsize=4)
def cut_pairs(plain: bool, against_all: bool) -> Cut:
    """`PairBatches._pairs` in JAX: packed pairs where a slate has them, else those of its labels.

    Packed are the pairs of rows i > j, at start + i (i - 1) / 2 + j: "i above j" and "j above i".
    """

    def cut(columns: Any, picks: Any, length: int) -> dict[str, Any]:
        jnp = jax_modules().numpy
        batch = cut_lists(columns, picks, length)
        row = np.arange(length)
        high, low = np.maximum(row[:, None], row), np.minimum(row[:, None], row)
        packed = (batch["start"] >= 0)[:, None, None]
        at = jnp.where(packed, batch["start"][:, None, None] + high * (high - 1) // 2 + low, 0)
        is_first = (row[:, None] > row)[None]
        pairs = jnp.where(is_first, columns["above"][at], columns["below"][at])
        there = batch["mask"][:, :, None] * batch["mask"][:, None, :] * (high != low)
        of_labels = pairs_of_gains(batch, plain, against_all)
        return {**batch, "pairs": jnp.where(packed, pairs * there, of_labels)}

    return cut


def list_batches(slates: RowSlates, *, batch_size: int, seed: int) -> tuple[PaddedLists, float]:
    """Slates with a weight per row, and the scale that makes the loss a mean over all weights."""
    total = float(slates.weight.sum())
    if not total > 0:
        raise nothing_to_learn()
    query = np.repeat(np.arange(len(slates.query_ptr) - 1), np.diff(slates.query_ptr))
    # Weights only settle ties: their last bits depend on the order of summation.
    weight = ragged.sums_by_list(slates.indptr, slates.weight)
    order = np.lexsort((weight, content_hash(slates.indptr, slates.document), query))
    columns = {"row": slates.document, "weight": slates.weight.astype(np.float32)}
    lists = padded_lists(slates.indptr, order, columns, batch_size=batch_size, seed=seed)
    return lists, _mean_factor(lists, total)


def cell_batches(
    counts: PositionCounts, *, rows_per_step: int, seed: int
) -> tuple[PaddedRows, float]:
    """Cells (document, position), and the scale that makes the loss a mean over impressions."""
    columns = {
        "row": counts.document_index,
        "position_index": counts.position_index.astype(np.int64),
        "impressions": counts.impressions.astype(np.float32),
        "clicks": counts.clicks.astype(np.float32),
    }
    batches = PaddedRows(columns, min(rows_per_step, counts.n_cells), seed)
    per_batch = counts.n_cells / batches.batch_size
    return batches, per_batch / float(counts.impressions.sum())


def sided_list_batches(
    lists: SidedListwise, *, batch_size: int, seed: int
) -> tuple[PaddedLists, float]:
    """Lists with their clicks, and the scale that makes the loss a mean over weighted clicks."""
    shown = lists.lists
    k, clicked = shown.position_index, lists.clicked > 0
    count = np.repeat(shown.count, ragged.lengths(shown.indptr))
    columns = {
        "row": shown.document,
        "weight": (lists.clicked * lists.up[k] * count).astype(np.float32),
        "log_down": np.where(clicked, -1e30, np.log(lists.down[k])).astype(np.float32),
    }
    keys = content_hash(shown.indptr, shown.document, k, lists.clicked)
    order = np.lexsort((keys, shown.query))
    batches = padded_lists(shown.indptr, order, columns, batch_size=batch_size, seed=seed)
    return batches, _mean_factor(batches, lists.total)


def total_weight(objective: PairObjective, table: FloatArray) -> float:
    """Sum of w_ij over all pairs: with all scores equal every pair costs log 2."""
    at_zero = objective.evaluate(np.zeros(objective.slates.n_documents), table, want_loss=True)
    return at_zero.loss / float(np.log(2.0))


def content_hash(indptr: IntArray, *columns: AnyArray) -> AnyArray:
    """(lists,) a number that depends on the rows of a list alone, whatever stands around it."""
    words = np.zeros(int(indptr[-1]), np.uint64)
    for column in columns:
        bits = np.ascontiguousarray(column, np.float64).view(np.uint64)
        words = splitmix64(words ^ bits)
    words = splitmix64(words + ragged.index_in_list(indptr).astype(np.uint64))
    sums = np.zeros(len(indptr) - 1, np.uint64)
    filled = ragged.lengths(indptr) > 0
    if filled.any():
        sums[filled] = np.add.reduceat(words, indptr[:-1][filled])
    return sums


def padded_lists(
    indptr: IntArray,
    order: IntArray,
    columns: dict[str, AnyArray],
    *,
    batch_size: int,
    seed: int,
    per_list: dict[str, AnyArray] | None = None,
    more: Any = None,
) -> PaddedLists:
    """Batches of lists in this order; `columns` are by row of all lists."""
    lengths = ragged.lengths(indptr)[order]
    rows = ragged.rows_of_lists(indptr, order)
    return PaddedLists(
        indptr=ragged.indptr_of(lengths),
        row_columns={name: column[rows] for name, column in columns.items()},
        list_columns={name: column[order] for name, column in (per_list or {}).items()},
        batch_size=min(batch_size, len(order)),
        lengths=bucket_lengths(lengths),
        seed=seed,
        more=more,
    )


def _mean_factor(lists: PaddedLists, total: float) -> float:
    """What makes a batch's sum an estimate of the mean over `total`."""
    return (len(lists.indptr) - 1) / (lists.batch_size * total)


def _useful_slates(slates: PairSlates) -> IntArray:
    """Slates with a pair that weighs something, by query and contents."""
    weight = _slate_weights(
        slates.indptr, slates.start, slates.above, slates.below, slates.gain, slates.scale,
        slates.plain, slates.against_all,
    )  # fmt: skip
    query = np.repeat(np.arange(len(slates.query_ptr) - 1), np.diff(slates.query_ptr))
    # A packed slate's gain is that of whichever list came first.
    own_labels = np.repeat(slates.start < 0, np.diff(slates.indptr))
    gain = np.where(own_labels, slates.gain, 0.0)
    keys = content_hash(slates.indptr, slates.document, slates.position_index, gain)
    order = np.lexsort((slates.scale, keys, query))
    return order[weight[order] > 0]


@nb.njit(cache=True)
def _slate_weights(
    indptr: IntArray, start: IntArray, above: FloatArray, below: FloatArray, gain: FloatArray,
    scale: FloatArray, plain: bool, against_all: bool,
) -> FloatArray:  # fmt: skip
    weight = np.zeros(len(start))
    for u in range(len(start)):
        for i in range(indptr[u + 1] - indptr[u]):
            for j in range(i):
                w_ij, w_ji = pair_weights(
                    u, i, j, indptr, start, above, below, gain, scale, plain, against_all
                )
                weight[u] += w_ij + w_ji
    return weight


@nb.njit(cache=True)
def _fill_pairs(
    chosen: IntArray, indptr: IntArray, start: IntArray, above: FloatArray, below: FloatArray,
    gain: FloatArray, scale: FloatArray, plain: bool, against_all: bool, pairs: FloatArray,
) -> None:  # fmt: skip
    """pairs[b, i, j] = weight of "i above j" in slate chosen[b]; -1 stays empty."""
    for b in range(len(chosen)):
        u = chosen[b]
        if u < 0:
            continue
        for i in range(indptr[u + 1] - indptr[u]):
            for j in range(i):
                pairs[b, i, j], pairs[b, j, i] = pair_weights(
                    u, i, j, indptr, start, above, below, gain, scale, plain, against_all
                )


EPOCHS = note("bias.epochs", "after {epochs} epochs")

# The penalty of each loss where none is given, for the default widths; small networks bear less. A
# click at one position says less than a pair: the likelihood bends less, and 0.003 would already
# flatten it (NDCG@10 .628, with 0.0001 .714, one log of 300 queries).
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
        first = {} if self.checkpoint is None else next(iter(task.batches.epoch(0)))
        training = self._training(
            task.loss, task.start, task.batches, inputs, constants=task.constants,
            stopping=stopping, companion=task.joint, what="training a ranking network",
            fingerprint=network_ranker.fingerprint(
                self, inputs.features, *(first[name] for name in sorted(first)), held_out=held_out
            ),
        )  # fmt: skip
        return network_ranker.Prepared(training, keep)

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
                "⟦bias=...⟧ alone corrects nothing: the ranker would learn from raw clicks. Give "
                "weighting=ut.PRS(bias), or loss='pointwise'; weighting=ut.Naive() asks for raw "
                "clicks."
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
            raise learning_data.needs_rows("loss='listwise'", weighting, "loss='pairwise'")
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
        learning_data.check_clicks(lists, "loss='pointwise'", "another loss")
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
