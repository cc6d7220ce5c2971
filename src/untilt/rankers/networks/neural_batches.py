"""From collapsed slates to the padded batches of each loss of `NeuralRanker`.

Slates are put in an order of their own contents first: batches are drawn by index, and the order in
which a log was read must not matter.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray
from untilt._core.hashing import splitmix64
from untilt.data.counts import PositionCounts
from untilt.data.limits import allow_table
from untilt.networks.batches import (
    Batch,
    Cut,
    PaddedLists,
    PaddedRows,
    Picks,
    Resident,
    bucket_lengths,
    cut_lists,
)
from untilt.networks.mlp import jax_modules
from untilt.networks.ranking_losses import pairs_of_gains
from untilt.objectives.click_losses import SidedListwise
from untilt.objectives.pair_kernels import pair_weights
from untilt.objectives.pair_slates import PairSlates, RowSlates
from untilt.objectives.pairs import PairObjective
from untilt.rankers.learning_data import nothing_to_learn


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
        self.lists = _padded(
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
    lists = _padded(slates.indptr, order, columns, batch_size=batch_size, seed=seed)
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
    batches = _padded(shown.indptr, order, columns, batch_size=batch_size, seed=seed)
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


def _padded(
    indptr: IntArray,
    order: IntArray,
    columns: dict[str, AnyArray],
    *,
    batch_size: int,
    seed: int,
    per_list: dict[str, AnyArray] | None = None,
    more: Any = None,
) -> PaddedLists:
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
