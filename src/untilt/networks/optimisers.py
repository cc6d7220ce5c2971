"""Which way and how far a step goes: optax optimisers by name, rates on a schedule."""

import math
from dataclasses import dataclass, replace
from typing import Any

from untilt._core.suggest import check_choice
from untilt.errors import OptionError
from untilt.networks.jax_layers import jax_modules

OPTIMISERS = ("adam", "adamw", "adagrad", "rmsprop", "sgd", "momentum")
SCHEDULES = ("constant", "cosine")


@dataclass(frozen=True)
class Optimiser:
    """An optimiser: p <- p - rate * multiplier * direction(gradient).

    Parameters
    ----------
    name : "adam", "adamw", "adagrad", "rmsprop", "sgd" or "momentum" (sgd with decay 0.9)
    learning_rate : the rate at the start
    schedule : "constant", or "cosine": falls to 0 over the whole training
    weight_decay : with "adamw" only: p also shrinks by rate * weight_decay * p in every step
    clip_norm : a longer gradient is cut to this length
    multipliers : ((top-level key of the parameters, factor), ...) for parts with another rate
    """

    name: str = "adam"
    learning_rate: float = 1e-3
    schedule: str = "constant"
    weight_decay: float = 0.0
    clip_norm: float | None = None
    multipliers: tuple[tuple[str, float], ...] = ()

    def check(self) -> None:
        """Raise where an option makes no sense."""
        check_choice("optimiser", self.name, OPTIMISERS)
        check_choice("schedule", self.schedule, SCHEDULES)
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise OptionError(f"learning_rate must be above 0. Got {self.learning_rate} instead.")
        if self.weight_decay and self.name != "adamw":
            raise OptionError(f"weight_decay belongs to 'adamw', not to {self.name!r}.")

    @property
    def without_rate(self) -> "Optimiser":
        """What a compiled step depends on: the rate is handed to it."""
        return replace(self, learning_rate=1.0, schedule="constant")

    def rate(self, step: int, total: int) -> float:
        """The learning rate of a step (0-based) of `total`."""
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, step / max(1, total))))

    def direction(self) -> Any:
        """The optax transformation from a gradient to what is subtracted, before the rate."""
        optax = jax_modules().optax
        parts = [] if self.clip_norm is None else [optax.clip_by_global_norm(self.clip_norm)]
        parts.append(
            {
                "adam": optax.scale_by_adam,
                "adamw": optax.scale_by_adam,
                "adagrad": optax.scale_by_rss,
                "rmsprop": optax.scale_by_rms,
                "sgd": optax.identity,
                "momentum": lambda: optax.trace(decay=0.9),
            }[self.name]()
        )
        if self.weight_decay:
            parts.append(optax.add_decayed_weights(self.weight_decay))
        return optax.chain(*parts)

    def multiplied(self, updates: Any) -> Any:
        """Updates with the parts' own factors."""
        if not self.multipliers:
            return updates
        factors = dict(self.multipliers)
        return {part: _times(factors.get(part, 1.0), tree) for part, tree in updates.items()}


def _times(factor: float, tree: Any) -> Any:
    return jax_modules().jax.tree.map(lambda leaf: factor * leaf, tree)
