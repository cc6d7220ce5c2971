"""Several trainings at once: one compiled program for networks of one shape, by `jax.vmap`.

Each gives what `train` gives by itself, up to the rounding of sums: its own start, shuffle, rate,
constants and data, its own early stopping.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from untilt._core import memory
from untilt._core.arrays import AnyArray
from untilt._core.progress import Advance, progress
from untilt.errors import MemoryLimitError
from untilt.networks.batches import Cut, Picks, Resident
from untilt.networks.mlp import Array, Optimiser, Params, jax_modules, rounded
from untilt.networks.training import (
    SMALLER_STEPS,
    Loss,
    NetworkTraining,
    Trained,
    after_epoch,
    is_stopped,
    judged,
    many_steps,
    n_weights,
    part_of,
    result_of,
    start_of,
    steps_at_once,
)

# The largest networks that a CPU trains together. Eight of 26,000 weights took .86 to .96 times as
# long as one by one, eight of 235,000 took 1.0 to 1.2 times (bench_neural.py --together 8).
CPU_WEIGHTS: float = 50_000


def train_together(trainings: Sequence[NetworkTraining]) -> list[Trained | Exception]:
    """What `train` gives for each, or the error that it raises; one error leaves the others alone.

    Those of one shape are trained in one program. One by one are trained: those with a checkpoint
    or a companion, those whose batches the device cannot cut, on a CPU those that it would slow
    down, and all where memory does not suffice for several.
    """
    groups: dict[Any, list[int]] = {}
    for number, training in enumerate(trainings):
        groups.setdefault(_shape(training) or number, []).append(number)
    results: dict[int, Trained | Exception] = {}
    for numbers in groups.values():
        members = [trainings[number] for number in numbers]
        results.update(zip(numbers, _trained(members), strict=True))
    return [results[number] for number in range(len(trainings))]


def _shape(training: NetworkTraining) -> Any:
    """Trainings with the same value can share a program; None has to be trained alone."""
    resident = training.resident
    if training.checkpoint is not None or training.companion is not None or resident is None:
        return None
    jax = jax_modules().jax
    on_cpu = jax.default_backend() == "cpu"
    if on_cpu and n_weights(training.params) > CPU_WEIGHTS:
        return None
    first = training.batches.picks(0)
    batch_size = first.picks.shape[1]
    kinds = None
    if len(resident.lengths) > 1:
        if first.per_step:
            return None  # What dropout draws depends on the shape of the batch.
        # The lists of a step are padded to the longest of them, whichever training they are for.
        # That costs a GPU little; a CPU needs the more time, up to what it saves otherwise.
        kinds = first.kind.tobytes() if on_cpu else None
    leaves, tree = jax.tree.flatten(training.params)
    return (
        *(training.loss, training.optimiser.without_rate, training.precision, resident.cut, kinds),
        *(tree, tuple(np.shape(leaf) for leaf in leaves)),
        *(jax.tree.structure(resident.columns), jax.tree.structure(dict(training.constants or {}))),
        # Empty lists fill the smaller batch, to less than twice its size.
        (resident.lengths, batch_size) if first.per_step else batch_size.bit_length(),
    )


def _trained(trainings: list[NetworkTraining]) -> list[Trained | Exception]:
    if len(trainings) > 1:
        try:
            return _in_one_program(trainings)
        except MemoryLimitError:
            pass
    return [_tried(training.alone) for training in trainings]


def _tried(work: Callable[[], Trained]) -> Trained | Exception:
    try:
        return work()
    except Exception as error:
        return error


def _in_one_program(trainings: list[NetworkTraining]) -> list[Trained | Exception]:
    what = trainings[0].what
    memory.allow(2.0 * sum(each.nbytes for each in trainings), what, SMALLER_STEPS)
    members = [_Member(training) for training in trainings]
    with (
        progress(what, total=sum(member.total for member in members)) as advance,
        memory.refusing(what, SMALLER_STEPS),
        rounded(trainings[0].precision),
    ):
        group = _Program(members)
        while live := [member for member in group.members if member.goes_on]:
            # Those that have ended are computed along: a smaller program must be compiled anew.
            if 2 * len(live) <= len(group.members):
                group = _Program(live)
            group.one_epoch(live, advance)
    return [member.result for member in members]


class _Member:
    """One of several trainings, and how far it is."""

    def __init__(self, training: NetworkTraining) -> None:
        self.training = training
        self.total = training.epochs * training.batches.steps_per_epoch
        self.error: Exception | None = None
        params = jax_modules().jax.device_put(training.params)
        self.at = start_of(params, params, training.optimiser)

    @property
    def resident(self) -> Resident:
        assert self.training.resident is not None
        return self.training.resident

    @property
    def constants(self) -> dict[str, AnyArray]:
        return {**(self.training.constants or {}), **self.training.batches.shared}

    @property
    def goes_on(self) -> bool:
        ended = self.at.epoch >= self.training.epochs
        return self.error is None and not ended and not is_stopped(self.at, self.training.stopping)

    @property
    def result(self) -> Trained | Exception:
        return self.error or result_of(self.at, self.training.stopping)

    def rates(self, steps: int) -> AnyArray:
        """Of the next steps."""
        at, optimiser = self.at.step, self.training.optimiser
        return np.array([optimiser.rate(at + n, self.total) for n in range(steps)], np.float32)

    def after_epoch(self, params: Params, state: Params, losses: AnyArray) -> None:
        try:
            at = after_epoch(self.at, params, state, losses, self.training.optimiser)
            self.at = judged(at, self.training.stopping)
        except MemoryLimitError:
            raise
        except Exception as error:
            self.error = error


class _Program:
    """Trainings whose arrays lie on the device side by side."""

    def __init__(self, members: list[_Member]) -> None:
        self.members = members
        self.lengths = max((each.resident.lengths for each in members), key=lambda each: each[-1])
        columns, column_axes = side_by_side([each.resident.columns for each in members])
        constants, constant_axes = side_by_side([each.constants for each in members])
        self.columns, self.constants = jax_modules().jax.device_put((columns, constants))
        self.axes = (column_axes, constant_axes)
        self.drawn = {each: each.training.batches.picks(each.at.epoch) for each in members}
        shapes = np.array([each.picks.shape for each in self.drawn.values()])
        steps, batch_size = shapes.max(axis=0).tolist()
        weights = len(members) * n_weights(members[0].at.params)
        self.size = steps_at_once(weights, steps, batch_size * self.lengths[-1])

    def one_epoch(self, live: list[_Member], advance: Advance) -> None:
        """The next epoch of those that go on; the others stay as they are."""
        jax = jax_modules().jax
        steps, axes = self._steps(live)
        run = self._compiled(axes)
        params, state = _stack()([(each.at.params, each.at.state) for each in self.members])
        values: list[Array] = []
        drawn = self.drawn
        # The next epoch is drawn meanwhile, as where one is trained alone.
        with ThreadPoolExecutor(1) as beside:
            ahead = beside.submit(_next_picks, live)
            for start in range(0, len(steps["kind"]), self.size):
                part = jax.tree.map(partial(part_of, start, self.size), steps)
                params, state, losses = run(params, state, part, self.columns, self.constants)
                values.append(losses)
                advance(int(part["is_step"].sum()))
        self.drawn = ahead.result()
        losses = np.concatenate(jax.device_get(values), axis=1)
        ends = _unstack(len(self.members))((params, state))
        for member, (params, state), found in zip(self.members, ends, losses, strict=True):
            if member in live:
                member.after_epoch(params, state, found[: len(drawn[member].picks)])

    def _steps(self, live: list[_Member]) -> tuple[Params, Params]:
        """The steps of all for `many_steps`, and the axes along which they lie side by side.

        The lists of a step are padded to the longest of them, whichever training it belongs to.
        """
        # In place of one that has ended, steps of another that change nothing.
        shown = [each if each in live else live[0] for each in self.members]
        picks = [self.drawn[each] for each in shown]
        n_steps = np.array([len(each.picks) for each in picks])
        longest = np.zeros(n_steps.max(), int)
        for each, drawn in zip(shown, picks, strict=True):
            own = np.take(each.resident.lengths, drawn.kind)
            longest[: len(own)] = np.maximum(longest[: len(own)], own)
        drawn, drawn_axes = side_by_side([each.picks for each in picks], axis=1, fill=-1)
        noise, noise_axes = side_by_side([dict(each.per_step) for each in picks], axis=1)
        is_live = np.array([each in live for each in self.members])
        steps = {
            "picks": drawn,
            "per_step": noise,
            "kind": np.searchsorted(self.lengths, longest).astype(np.int32),
            "rate": np.stack([each.rates(len(longest)) for each in shown], axis=1),
            "is_step": np.arange(len(longest))[:, None] < n_steps * is_live,
        }
        axes = {"picks": drawn_axes, "per_step": noise_axes, "kind": None, "rate": 1, "is_step": 1}
        return steps, axes

    def _compiled(self, axes: Params) -> Callable[..., tuple[Params, Params, Array]]:
        flat, structure = jax_modules().jax.tree.flatten(
            (0, 0, axes, *self.axes), is_leaf=lambda axis: axis is None
        )
        first = self.members[0]
        return compiled_together(
            first.training.loss,
            first.training.optimiser.without_rate,
            first.resident.cut,
            self.lengths,
            tuple(flat),
            structure,
        )


def _next_picks(live: list[_Member]) -> dict[_Member, Picks]:
    ahead = ((each.training, each.at.epoch + 1, each) for each in live)
    return {each: t.batches.picks(epoch) for t, epoch, each in ahead if epoch < t.epochs}


@lru_cache(maxsize=32)
def compiled_together(
    loss: Loss,
    optimiser: Optimiser,
    cut: Cut,
    lengths: tuple[int, ...],
    axes: tuple[int | None, ...],
    structure: Any,
) -> Callable[..., tuple[Params, Params, Array]]:
    """`many_steps` of several trainings, which lie along these axes of its arguments."""
    jax = jax_modules().jax
    steps = many_steps(loss, optimiser, cut, lengths, whole=False)
    return jax.jit(jax.vmap(steps, in_axes=jax.tree.unflatten(structure, axes)))


def side_by_side(trees: Sequence[Params], *, axis: int = 0, fill: int = 0) -> tuple[Params, Params]:
    """(arrays, axes): the trees' arrays along a new axis, filled up to one shape.

    An array that is the same in all is taken once, and its axis is None.
    """
    jax = jax_modules().jax
    structure = jax.tree.structure(trees[0])
    columns = zip(*(jax.tree.leaves(tree) for tree in trees), strict=True)
    joined = [_joined([np.asarray(each) for each in column], axis, fill) for column in columns]
    arrays = jax.tree.unflatten(structure, [array for array, _ in joined])
    return arrays, jax.tree.unflatten(structure, [axis for _, axis in joined])


def _joined(arrays: list[AnyArray], axis: int, fill: int) -> tuple[AnyArray, int | None]:
    first = arrays[0]
    if all(each is first or np.array_equal(each, first) for each in arrays):
        return first, None
    shape = (len(arrays), *np.max([each.shape for each in arrays], axis=0).astype(int))
    joined = np.full(shape, fill, first.dtype)
    for number, each in enumerate(arrays):
        corner: tuple[Any, ...] = (number, *(slice(n) for n in each.shape))
        joined[corner] = each
    return np.moveaxis(joined, 0, axis), axis


@cache
def _stack() -> Callable[[list[Params]], Params]:
    jax, jnp, _ = jax_modules()
    return jax.jit(lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees))


@cache
def _unstack(n: int) -> Callable[[Params], list[Params]]:
    jax = jax_modules().jax
    return jax.jit(lambda tree: [jax.tree.map(lambda leaf, k=k: leaf[k], tree) for k in range(n)])
