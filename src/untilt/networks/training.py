"""One training loop for all networks: mini-batches, early stopping, checkpoints that resume.

What is learned is a pure function `loss(params, batch)`; everything else is passed in. The same
seed gives the same result on the same device.

The state of a training in one file of arrays, written whole or not at all; never pickle.
"""

import json
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Protocol

import numpy as np

from untilt._core.archive import Archive, from_npy_bytes, read_whole
from untilt._core.arrays import AnyArray
from untilt._core.files import replacing
from untilt._core.memory import refusing
from untilt._core.progress import Advance, progress
from untilt._core.restored import fits
from untilt.errors import FileFormatError, MemoryLimitError, OptionError, check_least
from untilt.facts import Fact, note, phrase
from untilt.networks.batches import Batch, Cut, Picks, Resident, Sampler
from untilt.networks.mlp import Array, Optimiser, Params, jax_modules, rounded

_FORMAT = 1  # of a checkpoint
_HEAD: dict[str, Any] = {
    "format": int, "fingerprint": str, "n_leaves": int, "n_best": int, "told": dict,
}  # fmt: skip
NUMBERS: dict[str, Any] = {
    "epoch": int, "step": int, "losses": list[float], "watched": list[float], "best_epoch": int,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of training after an epoch.

    Parameters
    ----------
    fingerprint : what is trained on what; a checkpoint of something else is refused
    leaves : the arrays of parameters and optimiser state, in the order of the pytree
    best : the leaves of the best parameters so far, or none
    companion : arrays of whatever else changes from epoch to epoch
    numbers : epoch, step, losses, watched values: numbers and lists of them
    """

    fingerprint: str
    leaves: tuple[AnyArray, ...]
    best: tuple[AnyArray, ...]
    companion: Mapping[str, AnyArray]
    numbers: Mapping[str, Any]


def save_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write it whole or not at all."""
    head = {
        "format": _FORMAT,
        "fingerprint": checkpoint.fingerprint,
        "n_leaves": len(checkpoint.leaves),
        "n_best": len(checkpoint.best),
        "told": dict(checkpoint.numbers),
    }
    arrays = {f"leaf_{i}": leaf for i, leaf in enumerate(checkpoint.leaves)}
    arrays |= {f"best_{i}": leaf for i, leaf in enumerate(checkpoint.best)}
    arrays |= {f"companion_{name}": array for name, array in checkpoint.companion.items()}
    arrays["head"] = np.frombuffer(json.dumps(head).encode(), dtype=np.uint8)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load_checkpoint(path: str | os.PathLike[str], *, fingerprint: str) -> Checkpoint | None:
    """The checkpoint at this path, or None where there is no file."""
    if not Path(path).exists():
        return None
    arrays = _arrays(path)
    head = _head(path, arrays)
    if head["fingerprint"] != fingerprint:
        raise FileFormatError(
            f"the checkpoint {os.fspath(path)!r} belongs to another training: other data, options "
            "or seed. Delete it to start anew, or give checkpoint= another name."
        )
    prefix = "companion_"
    try:
        leaves = tuple(arrays[f"leaf_{i}"] for i in range(head["n_leaves"]))
        best = tuple(arrays[f"best_{i}"] for i in range(head["n_best"]))
    except KeyError as error:
        raise damaged(path) from error
    return Checkpoint(
        fingerprint=fingerprint,
        leaves=leaves,
        best=best,
        companion={
            name.removeprefix(prefix): array
            for name, array in arrays.items()
            if name.startswith(prefix)
        },
        numbers=head["told"],
    )


def _arrays(path: str | os.PathLike[str]) -> dict[str, AnyArray]:
    try:
        parts = Archive(read_whole(path))
        return {
            name.removesuffix(".npy"): from_npy_bytes(parts.read(name)) for name in parts.unread
        }
    except MemoryLimitError:
        raise
    except (OSError, ValueError, RuntimeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise damaged(path) from error


def _head(path: str | os.PathLike[str], arrays: dict[str, AnyArray]) -> dict[str, Any]:
    try:
        head: Any = json.loads(arrays["head"].tobytes())
    except (KeyError, ValueError, RecursionError) as error:
        raise damaged(path) from error
    if isinstance(head, dict) and head.get("format", _FORMAT) != _FORMAT:
        raise FileFormatError(
            f"the checkpoint {os.fspath(path)!r} has format {head['format']!r:.20}; this untilt "
            f"reads {_FORMAT}. Delete it to start anew."
        )
    if not _are(head, _HEAD) or not _are(head["told"], NUMBERS):
        raise damaged(path)
    known: dict[str, Any] = head
    return known


def _are(values: Any, kinds: Mapping[str, Any]) -> bool:
    """Whether values of a file have exactly these names and types."""
    same = isinstance(values, dict) and values.keys() == kinds.keys()
    return same and all(fits(values[name], kind) for name, kind in kinds.items())


def damaged(path: str | os.PathLike[str]) -> FileFormatError:
    """The error for a file that does not hold what it should."""
    return FileFormatError(
        f"{os.fspath(path)!r} is no checkpoint that can be read. Delete it to start anew."
    )


STOPPED = note(
    "network.stopped", "stopped after {epochs} epochs, {steps} steps; best after epoch {best_epoch}"
)

TRAINED_BEST = note(
    "network.trained-best",
    "trained for {epochs} epochs, {steps} steps; best after epoch {best_epoch}",
)

TRAINED = note("network.trained", "trained for {epochs} epochs, {steps} steps")
PART = note("network.part", "{part}: {status}")

SMALLER_STEPS = phrase("Use a smaller batch_size, or shorter lists: ⟦log.top(50)|--depth 50⟧.")

# (params, batch) -> scalar. Steps are compiled once per loss *object* and shape: hand in the same
# function again (from an lru_cache, say) instead of a new closure, and the second training starts
# at once.
Loss = Callable[[Params, Mapping[str, Array]], Array]


@dataclass(frozen=True)
class StoppingRule:
    """Judges the parameters after every epoch; the best are kept.

    Training stops when the value has not improved for `patience` epochs, or never where it is None.
    """

    value: Callable[[Params], float]
    patience: int | None
    higher_is_better: bool = True


class Companion(Protocol):
    """What changes from epoch to epoch beside the parameters, such as a table of pair weights."""

    def after_epoch(self, epoch: int, params: Params) -> None:
        """Look at the parameters after an epoch and change."""

    def state(self) -> dict[str, AnyArray]:
        """As arrays, for a checkpoint."""

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """Set what `state` gave."""


@dataclass(frozen=True, eq=False)
class Trained:
    """Parameters as NumPy arrays (the best where they were judged), and how it went.

    `held_out_value` is that of the best epoch, higher is better: minus a loss where losses judge.
    """

    params: Params
    losses: tuple[float, ...]
    watched: tuple[float, ...]
    epochs: int
    best_epoch: int
    steps: int
    status: Fact
    held_out_value: float | None = None


class Progress(NamedTuple):
    """The state of training between two epochs."""

    params: Params
    state: Params
    epoch: int
    step: int
    losses: list[float]
    watched: list[float]
    best: Params
    best_epoch: int


class Moment(NamedTuple):
    """A step's number from 0, and its learning rate."""

    step: int
    rate: np.float32


# (params, state of the optimiser, moment, batch) -> (params, state, loss)
Step = Callable[[Params, Params, Moment, Batch], tuple[Params, Params, Array]]


@dataclass(frozen=True, eq=False)
class NetworkTraining:
    """One training by mini-batch steps.

    Parameters
    ----------
    loss : a pure function (params, batch) -> scalar; None for a step of one's own (`by`)
    params : pytree of arrays to start from
    batches : gives the batches of each epoch, all of a few fixed shapes
    constants : arrays that every batch shares (the table of features): put on the device once and
        seen by the loss as further entries of the batch
    max_steps : stop after this many steps, also inside an epoch
    checkpoint : file written after every epoch; training goes on from it where it exists
    fingerprint : what is trained on what: a checkpoint with another one is refused
    precision : of layers' inputs and products, "float32" or "bfloat16" (see `mlp.rounded`)
    """

    loss: Loss | None
    params: Params
    batches: Sampler
    optimiser: Optimiser
    epochs: int
    constants: Mapping[str, AnyArray] | None = None
    max_steps: int | None = None
    stopping: StoppingRule | None = None
    companion: Companion | None = None
    checkpoint: str | os.PathLike[str] | None = None
    fingerprint: str = ""
    precision: str = "float32"
    what: str = "training a network"

    @cached_property
    def resident(self) -> Resident | None:
        """That of the batches."""
        return self.batches.resident

    @property
    def nbytes(self) -> int:
        """What the device holds of it beside parameters."""
        columns = {} if self.resident is None else self.resident.columns
        leaves = jax_modules().jax.tree.leaves((columns, dict(self.constants or {})))
        return sum(np.asarray(leaf).nbytes for leaf in leaves)

    def alone(self) -> Trained:
        """Minimise the loss."""
        self._check()
        assert self.loss is not None
        shared = jax_modules().jax.device_put(dict(self.constants or {}))
        step = compiled_step(self.loss, self.optimiser.without_rate)

        def one(
            params: Params, state: Params, at: Moment, batch: Batch
        ) -> tuple[Params, Params, Array]:
            return step(params, state, at.rate, batch, shared)

        run = _one_by_one(one, self.batches)
        if self.resident is not None:
            run = _scanned(self.loss, self.batches, self.resident, shared, self.params)
        with rounded(self.precision):
            return self._trained(run, lambda params: params)

    def by(self, step: Step, learned: Callable[[Params], Params]) -> Trained:
        """Take steps of one's own, such as EM beside gradient steps.

        `learned` gives the part of the parameters that the optimiser moves; the rest the step
        changes by itself.
        """
        return self._trained(_one_by_one(step, self.batches), learned)

    def _trained(self, run: "Run", learned: Callable[[Params], Params]) -> Trained:
        self._check()
        params, stopping = jax_modules().jax.device_put(self.params), self.stopping
        at = start_of(
            params, learned(params), self.optimiser, self.companion, self.checkpoint,
            self.fingerprint,
        )  # fmt: skip
        limit = self.epochs * self.batches.steps_per_epoch
        total = limit if self.max_steps is None else min(limit, self.max_steps)
        with progress(self.what, total=total) as advance, refusing(self.what, SMALLER_STEPS):
            advance(at.step)
            while at.epoch < self.epochs and at.step < total and not is_stopped(at, stopping):
                at = _one_epoch(at, run, self.optimiser, total, advance)
                if self.companion is not None:
                    self.companion.after_epoch(at.epoch, at.params)
                at = judged(at, stopping)
                if self.checkpoint is not None:
                    _save(at, self.checkpoint, self.fingerprint, self.companion)
        return result_of(at, stopping)

    def _check(self) -> None:
        self.optimiser.check()
        for name, value in (("epochs", self.epochs), ("max_steps", self.max_steps)):
            if value is not None:
                check_least(name, value, 1)


Given = ParamSpec("Given")


def _trained_alone(make: Callable[Given, NetworkTraining]) -> Callable[Given, Trained]:
    return lambda *given, **options: make(*given, **options).alone()


train = _trained_alone(NetworkTraining)


@lru_cache(maxsize=128)
def compiled_step(loss: Loss, optimiser: Optimiser) -> Callable[..., tuple[Params, Params, Array]]:
    """(params, state, rate, batch, constants) -> (params, state, loss), compiled per shape."""
    jax = jax_modules().jax
    direction = optimiser.direction()

    def step(
        params: Params,
        state: Params,
        rate: Array,
        batch: dict[str, Array],
        constants: dict[str, Array],
    ) -> tuple[Params, Params, Array]:
        value, gradient = jax.value_and_grad(loss)(params, {**constants, **batch})
        update, state = direction.update(gradient, state, params)
        update = optimiser.multiplied(update)
        return jax.tree.map(lambda p, u: p - rate * u, params, update), state, value

    return jax.jit(step)


@lru_cache(maxsize=128)
def compiled_value(loss: Loss) -> Callable[..., Array]:
    """(params, batch, constants) -> what the function gives, compiled: to look without learning."""
    return jax_modules().jax.jit(
        lambda params, batch, constants: loss(params, {**constants, **batch})
    )


@lru_cache(maxsize=128)
def compiled_steps(
    loss: Loss, optimiser: Optimiser, cut: Cut, lengths: tuple[int, ...], whole: bool
) -> Callable[..., tuple[Params, Params, Array]]:
    """`many_steps`, compiled."""
    return jax_modules().jax.jit(many_steps(loss, optimiser, cut, lengths, whole))


def many_steps(
    loss: Loss, optimiser: Optimiser, cut: Cut, lengths: tuple[int, ...], whole: bool
) -> Callable[..., tuple[Params, Params, Array]]:
    """(params, state, steps, columns, constants) -> (params, state, losses), to be compiled.

    `steps` is a dict of arrays with one entry for each step: "rate", "kind", "picks", "is_step" and
    "per_step". The device cuts the batches itself, so that it never waits for the host. Where
    `is_step` is false nothing changes: so the last call of an epoch has the shape of the others.
    `whole` says that it is true everywhere.
    """
    jax, jnp, _ = jax_modules()
    direction = optimiser.direction()

    def one(
        length: int, params: Params, state: Params, step: Any, columns: Any, constants: Any
    ) -> tuple[Params, Params, Array]:
        batch = {**constants, **cut(columns, step["picks"], length), **step["per_step"]}
        value, gradient = jax.value_and_grad(loss)(params, batch)
        update, moved = direction.update(gradient, state, params)
        update = optimiser.multiplied(update)

        def kept(new: Array, old: Array) -> Array:
            return new if whole else jnp.where(step["is_step"], new, old)

        params = jax.tree.map(lambda p, u: kept(p - step["rate"] * u, p), params, update)
        return params, jax.tree.map(kept, moved, state), value

    def steps(
        params: Params, state: Params, steps: Any, columns: Any, constants: Any
    ) -> tuple[Params, Params, Array]:
        # One branch for each padded length; a device that must choose waits for the choice.
        branches: list[Callable[..., Any]] = [partial(one, length) for length in lengths]

        def body(carry: Any, step: Any) -> Any:
            given = (*carry, step, columns, constants)
            if len(branches) == 1:
                params, state, value = branches[0](*given)
            else:
                params, state, value = jax.lax.switch(step["kind"], branches, *given)
            return (params, state), value

        (params, state), losses = jax.lax.scan(body, (params, state), steps)
        return params, state, losses

    return steps


# (params, state, epoch, first step, total, optimiser, advance) -> (params, state, losses)
Run = Callable[
    [Params, Params, int, int, int, Optimiser, Advance], tuple[Params, Params, list[Array]]
]


def _one_by_one(step: Step, batches: Sampler) -> Run:
    """Epochs of batches that are made here. A batch is put together while the step before runs."""

    def run(
        params: Params, state: Params, epoch: int, n: int, total: int, optimiser: Optimiser,
        advance: Advance,
    ) -> tuple[Params, Params, list[Array]]:  # fmt: skip
        values: list[Array] = []
        for batch in batches.epoch(epoch):
            if n + len(values) >= total:
                break
            # Losses stay on the device until the epoch ends, so that nothing waits for them.
            at = n + len(values)
            moment = Moment(at, np.float32(optimiser.rate(at, total)))
            params, state, value = step(params, state, moment, batch)
            values.append(value)
            advance()
        return params, state, values

    return run


# What one call may do before it looks at the keyboard again: some tenths of a second.
_OPERATIONS = {"cpu": 5e10, "other": 4e12}
_MOST_STEPS = 1024


def _scanned(
    loss: Loss, batches: Sampler, resident: Resident, constants: Mapping[str, Array], params: Params
) -> Run:
    """Epochs of batches that the device cuts itself, many steps in one call."""
    jax = jax_modules().jax
    columns = jax.device_put(resident.columns)
    drawn: dict[int, Picks] = {0: batches.picks(0)}
    per_epoch, batch_size = drawn[0].picks.shape
    size = steps_at_once(n_weights(params), per_epoch, batch_size * max(resident.lengths))

    def run(
        params: Params, state: Params, epoch: int, n: int, total: int, optimiser: Optimiser,
        advance: Advance,
    ) -> tuple[Params, Params, list[Array]]:  # fmt: skip
        now = drawn.pop(epoch) if epoch in drawn else batches.picks(epoch)
        drawn.clear()
        shared = {**constants, **jax.device_put(dict(batches.shared))}
        n_steps = min(len(now.picks), total - n)
        steps = {
            "picks": now.picks[:n_steps],
            "kind": now.kind[:n_steps],
            "rate": np.array([optimiser.rate(n + at, total) for at in range(n_steps)], np.float32),
            "is_step": np.ones(n_steps, bool),
            "per_step": {name: each[:n_steps] for name, each in now.per_step.items()},
        }
        compiled = compiled_steps(
            loss, optimiser.without_rate, resident.cut, resident.lengths, n_steps % size == 0
        )
        values: list[Array] = []
        # The next epoch is drawn meanwhile: a loop on a GPU keeps the thread that called it.
        with ThreadPoolExecutor(1) as beside:
            ahead = beside.submit(batches.picks, epoch + 1) if n + n_steps < total else None
            for start in range(0, n_steps, size):
                part = jax.tree.map(partial(part_of, start, size), steps)
                params, state, losses = compiled(params, state, part, columns, shared)
                stop = min(start + size, n_steps)
                values.append(losses[: stop - start])
                advance(stop - start)
        if ahead is not None:
            drawn[epoch + 1] = ahead.result()
        return params, state, values

    return run


def part_of(start: int, size: int, column: AnyArray) -> AnyArray:
    """So many entries from the start on, filled up with zeros."""
    found = column[start : start + size]
    if len(found) == size:
        return found
    more = np.zeros((size - len(found), *column.shape[1:]), column.dtype)
    return np.concatenate([found, more])


def steps_at_once(weights: int, steps: int, rows: int) -> int:
    """As many as keep the device at work for some tenths of a second, and no more than an epoch."""
    device = "cpu" if jax_modules().jax.default_backend() == "cpu" else "other"
    fit = int(_OPERATIONS[device] / (6.0 * rows * max(1, weights)))
    # Calls of equal length: mostly the last one then needs nothing to fill it up.
    return -(-steps // -(-steps // max(1, min(fit, _MOST_STEPS))))


def n_weights(params: Params) -> int:
    """Numbers among the parameters."""
    return sum(np.size(leaf) for leaf in jax_modules().jax.tree.leaves(params))


def _one_epoch(
    at: Progress, run: Run, optimiser: Optimiser, total: int, advance: Advance
) -> Progress:
    params, state, values = run(at.params, at.state, at.epoch, at.step, total, optimiser, advance)
    losses = np.concatenate([np.atleast_1d(v) for v in jax_modules().jax.device_get(values)])
    return after_epoch(at, params, state, losses, optimiser)


def after_epoch(
    at: Progress, params: Params, state: Params, losses: AnyArray, optimiser: Optimiser
) -> Progress:
    """What an epoch's steps led to; an error where its loss is no number."""
    n, loss = at.step + len(losses), float(np.mean(losses))
    if not math.isfinite(loss):
        raise OptionError(
            f"the loss became {loss} in epoch {at.epoch + 1}. Lower learning_rate (now "
            f"{optimiser.learning_rate:g}), or give clip_norm where the optimiser takes one."
        )
    return at._replace(
        params=params, state=state, epoch=at.epoch + 1, step=n, losses=[*at.losses, loss]
    )


def judged(at: Progress, stopping: StoppingRule | None) -> Progress:
    """With the value on held-out data, and the best parameters so far."""
    if stopping is None:
        return at
    value = float(stopping.value(at.params))
    sign = 1 if stopping.higher_is_better else -1
    earlier = [sign * seen for seen in at.watched]
    better = not earlier or sign * value > max(earlier)
    at = at._replace(watched=[*at.watched, value])
    return at._replace(best=at.params, best_epoch=at.epoch) if better else at


def is_stopped(at: Progress, stopping: StoppingRule | None) -> bool:
    """Whether the value has not improved for too long."""
    if stopping is None or stopping.patience is None:
        return False
    return at.epoch - at.best_epoch >= stopping.patience


def start_of(
    params: Params,
    learned: Params,
    optimiser: Optimiser,
    companion: Companion | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    fingerprint: str = "",
) -> Progress:
    """Before the first epoch, or where the checkpoint ends."""
    fresh = Progress(params, optimiser.direction().init(learned), 0, 0, [], [], None, 0)
    saved = None if checkpoint is None else load_checkpoint(checkpoint, fingerprint=fingerprint)
    if saved is None:
        return fresh
    params, state = _filled((fresh.params, fresh.state), saved.leaves)
    best = _filled(fresh.params, saved.best) if saved.best else None
    if companion is not None:
        try:
            companion.restore(saved.companion)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise damaged(str(checkpoint)) from error
    return Progress(params, state, best=best, **saved.numbers)


def _filled(template: Params, leaves: tuple[AnyArray, ...]) -> Params:
    """The pytree of the template with these leaves."""
    jax = jax_modules().jax
    expected, tree = jax.tree.flatten(template)
    kinds = [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in expected]
    if kinds != [(leaf.shape, leaf.dtype) for leaf in leaves]:
        raise FileFormatError(
            "the checkpoint holds a network of another shape. Delete it to start anew."
        )
    return jax.device_put(jax.tree.unflatten(tree, leaves))


def _save(
    at: Progress, path: str | os.PathLike[str], fingerprint: str, companion: Companion | None
) -> None:
    save_checkpoint(
        path,
        Checkpoint(
            fingerprint=fingerprint,
            leaves=_leaves((at.params, at.state)),
            best=() if at.best is None else _leaves(at.best),
            companion={} if companion is None else companion.state(),
            numbers={name: getattr(at, name) for name in NUMBERS},
        ),
    )


def _leaves(tree: Params) -> tuple[AnyArray, ...]:
    jax = jax_modules().jax
    return tuple(np.asarray(leaf) for leaf in jax.device_get(jax.tree.leaves(tree)))


def result_of(at: Progress, stopping: StoppingRule | None) -> Trained:
    """What is kept of a training that has ended."""
    jax = jax_modules().jax
    best_epoch = at.best_epoch if stopping is not None else at.epoch
    status = TRAINED(epochs=at.epoch, steps=at.step)
    if stopping is not None:
        ended = STOPPED if is_stopped(at, stopping) else TRAINED_BEST
        status = ended(epochs=at.epoch, steps=at.step, best_epoch=best_epoch)
    chosen = at.params if at.best is None else at.best
    value = None
    if stopping is not None and at.watched:
        value = max(at.watched) if stopping.higher_is_better else -min(at.watched)
    return Trained(
        params=jax.tree.map(np.asarray, jax.device_get(chosen)), losses=tuple(at.losses),
        watched=tuple(at.watched), epochs=at.epoch, best_epoch=best_epoch, steps=at.step,
        status=status, held_out_value=value,
    )  # fmt: skip
