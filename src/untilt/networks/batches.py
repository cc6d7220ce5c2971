"""Mini-batches of fixed shapes, so that a training step is compiled once per shape.

A sampler gives the batches of epoch 0, 1, 2, ...; what it gives depends on its seed and the epoch
alone, so that training can resume anywhere. It gives them in two ways: made here one by one
(`epoch`), or as numbers of lists (`picks`) by which the device cuts the same batches from columns
that it holds (`resident`), so that nothing is sent in between.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, IntArray
from untilt._core.random import child_generator
from untilt.errors import OptionError
from untilt.networks.mlp import jax_modules

Batch = dict[str, AnyArray]


# (columns, picks, length) -> a batch, made on the device: of these lists (-1: an empty one), padded
# to this length.
Cut = Callable[[Any, Any, int], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Resident:
    """Columns that a device holds for the whole training, and how batches are cut from them.

    Parameters
    ----------
    columns : pytree of arrays
    cut : the same function for all samplers of a kind, since steps are compiled for it
    lengths : the padded lengths of batches
    """

    columns: Any
    cut: Cut
    lengths: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Picks:
    """The batches of one epoch in numbers.

    Parameters
    ----------
    picks : (steps, batch_size) lists or rows, -1 where there is none
    kind : (steps,) which of the lengths each batch has
    per_step : name -> (steps, ...), one entry for each batch
    """

    picks: IntArray
    kind: IntArray
    per_step: Mapping[str, AnyArray] = field(default_factory=dict)


class Sampler(Protocol):
    """Where a training loop gets its batches from."""

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one epoch."""

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of one epoch, in order."""

    @property
    def resident(self) -> Resident | None:
        """What the device needs to cut the batches itself; None where only `epoch` can."""

    def picks(self, epoch: int) -> Picks:
        """The batches of one epoch as the device cuts them; may be asked for ahead of time."""

    @property
    def shared(self) -> Mapping[str, AnyArray]:
        """What all batches of the coming epoch have in common beside the resident columns."""


@dataclass(frozen=True, eq=False)
class PaddedLists:
    """Batches of ragged lists, padded to the length of their bucket.

    A batch holds each row column as (batch_size, length, ...), each list column as
    (batch_size, ...), and "mask" (batch_size, length) float32: 1 where there is a row. Padding is 0
    in every column; the last batch of a bucket is filled with empty lists.

    Parameters
    ----------
    indptr : (lists + 1,)
    row_columns, list_columns : name -> one entry per row or per list
    lengths : padded lengths, rising (see `bucket_lengths`); one compilation each
    seed : lists are shuffled anew in every epoch; None keeps them in order
    more : (lists of the batch, -1 where empty; length) -> further columns, for what is too large
        to hold padded
    """

    indptr: IntArray
    row_columns: Mapping[str, AnyArray]
    batch_size: int
    lengths: tuple[int, ...]
    list_columns: Mapping[str, AnyArray] = field(default_factory=dict)
    seed: int | None = 0
    more: Callable[[IntArray, int], Batch] | None = None

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one epoch."""
        members = np.bincount(self._buckets, minlength=len(self.lengths))
        return int(np.sum(-(-members // self.batch_size)))

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Every list once, lists of one bucket together, batches of all buckets mixed."""
        for chosen, length in self.plan(epoch):
            yield self.batch(chosen, length)

    def plan(self, epoch: int) -> list[tuple[IntArray, int]]:
        """(lists, padded length) of each batch of the epoch."""
        n_lists = len(self.indptr) - 1
        draw = None if self.seed is None else child_generator(self.seed, 1, epoch)
        order = np.arange(n_lists) if draw is None else draw.permutation(n_lists)
        bucket = self._buckets[order]
        plan = []
        for b, length in enumerate(self.lengths):
            members = order[bucket == b]
            for start in range(0, len(members), self.batch_size):
                plan.append((members[start : start + self.batch_size], length))
        if draw is not None and len(self.lengths) > 1:
            plan = [plan[i] for i in draw.permutation(len(plan))]
        return plan

    @property
    def resident(self) -> Resident | None:
        """The columns; None where some are made list by list (`more`)."""
        if self.more is not None:
            return None
        columns = {
            "indptr": self.indptr, "rows": dict(self.row_columns), "lists": dict(self.list_columns)
        }  # fmt: skip
        return Resident(columns, cut_lists, self.lengths)

    def picks(self, epoch: int) -> Picks:
        """The lists of each batch of the epoch."""
        plan = self.plan(epoch)
        picks = np.full((len(plan), self.batch_size), -1, dtype=np.int32)
        for step, (chosen, _) in enumerate(plan):
            picks[step, : len(chosen)] = chosen
        kind = np.searchsorted(self.lengths, [length for _, length in plan])
        return Picks(picks, kind.astype(np.int32))

    @property
    def shared(self) -> Batch:
        """Nothing."""
        return {}

    def batch(self, chosen: IntArray, length: int) -> Batch:
        """The padded columns of these lists."""
        lists = np.full(self.batch_size, -1)
        lists[: len(chosen)] = chosen
        rows, mask = padded_rows(self.indptr, lists, length)
        batch: Batch = {
            name: _zeroed(column[rows], mask) for name, column in self.row_columns.items()
        }
        for name, column in self.list_columns.items():
            filled = np.zeros((self.batch_size, *column.shape[1:]), column.dtype)
            filled[: len(chosen)] = column[chosen]
            batch[name] = filled
        batch["mask"] = mask.astype(np.float32)
        if self.more is not None:
            batch.update(self.more(lists, length))
        return batch

    @cached_property
    def _buckets(self) -> IntArray:
        return np.searchsorted(self.lengths, ragged.lengths(self.indptr))


@dataclass(frozen=True, eq=False)
class PaddedRows:
    """Batches of single rows: columns (batch_size, ...) and "mask" (batch_size,) float32.

    The last batch is filled with zeros.
    """

    columns: Mapping[str, AnyArray]
    batch_size: int
    seed: int | None = 0

    @property
    def n_rows(self) -> int:
        """Rows in all."""
        return len(next(iter(self.columns.values())))

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one epoch."""
        return -(-self.n_rows // self.batch_size)

    @property
    def resident(self) -> Resident:
        """The columns; a batch has one length, which is not used."""
        return Resident(dict(self.columns), cut_rows, (1,))

    @property
    def shared(self) -> Batch:
        """Nothing."""
        return {}

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Every row once, shuffled."""
        for picks in self.picks(epoch).picks:
            there = picks >= 0
            rows = np.where(there, picks, 0)
            batch = {name: _zeroed(column[rows], there) for name, column in self.columns.items()}
            yield {**batch, "mask": there.astype(np.float32)}

    def picks(self, epoch: int) -> Picks:
        """The rows of each batch of the epoch."""
        order = np.arange(self.n_rows)
        if self.seed is not None:
            order = child_generator(self.seed, 1, epoch).permutation(self.n_rows)
        picks = np.full(self.steps_per_epoch * self.batch_size, -1, dtype=np.int32)
        picks[: self.n_rows] = order
        kind = np.zeros(self.steps_per_epoch, dtype=np.int32)
        return Picks(picks.reshape(self.steps_per_epoch, self.batch_size), kind)


def padded_rows(indptr: IntArray, lists: IntArray, length: int) -> tuple[IntArray, AnyArray]:
    """(rows, mask), each (lists, length): row indices of the lists, 0 under a false mask.

    A list of -1 is empty.
    """
    there = lists >= 0
    start = np.where(there, indptr[:-1][lists], 0)
    n_rows = np.where(there, ragged.lengths(indptr)[lists], 0)
    at = np.arange(length)
    mask = at[None, :] < n_rows[:, None]
    return np.where(mask, start[:, None] + at[None, :], 0), mask


def cut_lists(columns: Any, picks: Any, length: int) -> dict[str, Any]:
    """`PaddedLists.batch` in JAX."""
    jnp = jax_modules().numpy
    there = picks >= 0
    lists = jnp.where(there, picks, 0)
    start, end = columns["indptr"][lists], columns["indptr"][lists + 1]
    rows = start[:, None] + jnp.arange(length)
    mask = there[:, None] & (rows < end[:, None])
    rows = jnp.where(mask, rows, 0)
    batch = {name: _kept(mask, column[rows]) for name, column in columns["rows"].items()}
    own = {name: _kept(there, column[lists]) for name, column in columns["lists"].items()}
    return {**batch, **own, "mask": mask.astype(jnp.float32)}


def cut_rows(columns: Any, picks: Any, length: int) -> dict[str, Any]:  # noqa: ARG001
    """A batch of `PaddedRows` in JAX."""
    jnp = jax_modules().numpy
    there = picks >= 0
    rows = jnp.where(there, picks, 0)
    batch = {name: _kept(there, column[rows]) for name, column in columns.items()}
    return {**batch, "mask": there.astype(jnp.float32)}


def _kept(mask: Any, values: Any) -> Any:
    """0 where the mask is false."""
    jnp = jax_modules().numpy
    wide = mask.reshape(mask.shape + (1,) * (values.ndim - mask.ndim))
    return jnp.where(wide, values, 0)


def _zeroed(values: AnyArray, mask: AnyArray) -> AnyArray:
    """A copy made here with 0 where the mask is false."""
    if not mask.all():
        values[~mask] = 0
    return values


def bucket_lengths(lengths: IntArray, *, most: int = 4) -> tuple[int, ...]:
    """Padded lengths for lists of these lengths: at most `most` of them, the longest included.

    Halves of the longest: a list is padded to less than twice its length, down to the shortest
    bucket. Empty buckets are left out.
    """
    if most < 1:
        raise OptionError(f"at least one padded length is needed. Got most={most} instead.")
    longest = max(1, int(np.max(lengths, initial=1)))
    candidates = sorted({max(1, -(-longest // 2**step)) for step in range(most)})
    used = np.unique(np.searchsorted(candidates, lengths)) if len(lengths) else [-1]
    return tuple(candidates[b] for b in used)
