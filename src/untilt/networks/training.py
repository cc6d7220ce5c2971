"""One training loop for all networks: mini-batches, early stopping, checkpoints that resume.

What is learned is a pure function `loss(params, batch)`; everything else is passed in. The same
seed gives the same result on the same device.
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from untilt._core.arrays import AnyArray
from untilt._core.memory import refusing
from untilt._core.progress import Advance, progress
from untilt.errors import FileFormatError, OptionError
from untilt.facts import Fact
from untilt.networks.batches import Batch, Sampler
from untilt.networks.checkpoints import (
    NUMBERS,
    Checkpoint,
    damaged,
    load_checkpoint,
    save_checkpoint,
)
from untilt.networks.jax_layers import Array, Optimiser, Params, jax_modules

SMALLER_STEPS = "Use a smaller batch_size, or shorter lists: log.top(50)."

# (params, batch) -> scalar. Steps are compiled once per loss *object* and shape: hand in the same
# function again (from an lru_cache, say) instead of a new closure, and the second training starts
# at once.
Loss = Callable[[Params, Mapping[str, Array]], Array]


@dataclass(frozen=True)
class Stopping:
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
        ...

    def state(self) -> dict[str, AnyArray]:
        """As arrays, for a checkpoint."""
        ...

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """Set what `state` gave."""
        ...


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


class _Progress(NamedTuple):
    """The state of training between two epochs."""

    params: Params
    state: Params
    epoch: int
    step: int
    losses: list[float]
    watched: list[float]
    best: Params
    best_epoch: int


def train(
    loss: Loss,
    params: Params,
    batches: Sampler,
    *,
    optimiser: Optimiser,
    epochs: int,
    constants: Mapping[str, AnyArray] | None = None,
    max_steps: int | None = None,
    stopping: Stopping | None = None,
    companion: Companion | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    fingerprint: str = "",
    what: str = "training a network",
) -> Trained:
    """Minimise `loss` by mini-batch steps.

    Parameters
    ----------
    loss : a pure function (params, batch) -> scalar
    params : pytree of arrays to start from
    batches : gives the batches of each epoch, all of a few fixed shapes
    constants : arrays that every batch shares (the table of features): put on the device once and
        seen by the loss as further entries of the batch
    max_steps : stop after this many steps, also inside an epoch
    checkpoint : file written after every epoch; training goes on from it where it exists
    fingerprint : what is trained on what: a checkpoint with another one is refused
    """
    optimiser.check()
    jax = jax_modules().jax
    step = compiled_step(loss, optimiser.without_rate)
    shared = jax.device_put(dict(constants or {}))

    def one(
        params: Params, state: Params, at: Moment, batch: Batch
    ) -> tuple[Params, Params, Array]:
        return step(params, state, at.rate, batch, shared)

    return train_by(
        one,
        params,
        batches,
        optimiser=optimiser,
        epochs=epochs,
        max_steps=max_steps,
        stopping=stopping,
        companion=companion,
        checkpoint=checkpoint,
        fingerprint=fingerprint,
        what=what,
    )


class Moment(NamedTuple):
    """A step's number from 0, and its learning rate."""

    step: int
    rate: np.float32


# (params, state of the optimiser, moment, batch) -> (params, state, loss)
Step = Callable[[Params, Params, Moment, Batch], tuple[Params, Params, Array]]


def train_by(
    step: Step,
    params: Params,
    batches: Sampler,
    *,
    optimiser: Optimiser,
    epochs: int,
    learned: Callable[[Params], Params] = lambda params: params,
    max_steps: int | None = None,
    stopping: Stopping | None = None,
    companion: Companion | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    fingerprint: str = "",
    what: str = "training a network",
) -> Trained:
    """The same for a step of one's own, such as EM beside gradient steps.

    `learned` gives the part of the parameters that the optimiser moves; the rest the step changes
    by itself. Other parameters are as in `train`.
    """
    _check(optimiser, epochs, max_steps)
    params = jax_modules().jax.device_put(params)
    at = _start(params, learned(params), optimiser, companion, checkpoint, fingerprint)
    limit = epochs * batches.steps_per_epoch
    total = limit if max_steps is None else min(limit, max_steps)
    with progress(what, total=total) as advance, refusing(what, SMALLER_STEPS):
        advance(at.step)
        while at.epoch < epochs and at.step < total and not _stopped(at, stopping):
            at = _one_epoch(at, step, batches, optimiser, total, advance)
            if companion is not None:
                companion.after_epoch(at.epoch, at.params)
            at = _judged(at, stopping)
            if checkpoint is not None:
                _save(at, checkpoint, fingerprint, companion)
    return _result(at, stopping)


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


def _one_epoch(
    at: _Progress,
    step: Step,
    batches: Sampler,
    optimiser: Optimiser,
    total: int,
    advance: Advance,
) -> _Progress:
    params, state, n = at.params, at.state, at.step
    values = []
    for batch in batches.epoch(at.epoch):
        if n >= total:
            break
        # Losses stay on the device until the epoch ends, so that the next batch is put together
        # while the step runs.
        moment = Moment(n, np.float32(optimiser.rate(n, total)))
        params, state, value = step(params, state, moment, batch)
        values.append(value)
        n += 1
        advance()
    loss = float(np.mean(jax_modules().jax.device_get(values)))
    if not math.isfinite(loss):
        raise OptionError(
            f"the loss became {loss} in epoch {at.epoch + 1}. Lower learning_rate (now "
            f"{optimiser.learning_rate:g}), or give clip_norm where the optimiser takes one."
        )
    losses = [*at.losses, loss]
    return at._replace(params=params, state=state, epoch=at.epoch + 1, step=n, losses=losses)


def _judged(at: _Progress, stopping: Stopping | None) -> _Progress:
    if stopping is None:
        return at
    value = float(stopping.value(at.params))
    sign = 1 if stopping.higher_is_better else -1
    earlier = [sign * seen for seen in at.watched]
    better = not earlier or sign * value > max(earlier)
    at = at._replace(watched=[*at.watched, value])
    return at._replace(best=at.params, best_epoch=at.epoch) if better else at


def _stopped(at: _Progress, stopping: Stopping | None) -> bool:
    if stopping is None or stopping.patience is None:
        return False
    return at.epoch - at.best_epoch >= stopping.patience


def _start(
    params: Params,
    learned: Params,
    optimiser: Optimiser,
    companion: Companion | None,
    checkpoint: str | os.PathLike[str] | None,
    fingerprint: str,
) -> _Progress:
    fresh = _Progress(params, optimiser.direction().init(learned), 0, 0, [], [], None, 0)
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
    return _Progress(params, state, best=best, **saved.numbers)


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
    at: _Progress,
    path: str | os.PathLike[str],
    fingerprint: str,
    companion: Companion | None,
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


def _result(at: _Progress, stopping: Stopping | None) -> Trained:
    jax = jax_modules().jax
    best_epoch = at.best_epoch if stopping is not None else at.epoch
    status = Fact("network.trained", epochs=at.epoch, steps=at.step)
    if stopping is not None:
        code = "network.stopped" if _stopped(at, stopping) else "network.trained-best"
        status = Fact(code, epochs=at.epoch, steps=at.step, best_epoch=best_epoch)
    chosen = at.params if at.best is None else at.best
    value = None
    if stopping is not None and at.watched:
        value = max(at.watched) if stopping.higher_is_better else -min(at.watched)
    return Trained(
        params=jax.tree.map(np.asarray, jax.device_get(chosen)),
        losses=tuple(at.losses),
        watched=tuple(at.watched),
        epochs=at.epoch,
        best_epoch=best_epoch,
        steps=at.step,
        status=status,
        held_out_value=value,
    )


def _check(optimiser: Optimiser, epochs: int, max_steps: int | None) -> None:
    optimiser.check()
    for name, value in (("epochs", epochs), ("max_steps", max_steps)):
        if value is not None and value < 1:
            raise OptionError(f"{name} must be at least 1. Got {value} instead.")
