"""The same layers for JAX, where gradients come from. JAX is imported by the first call."""

import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.random import Seed, generator
from untilt.errors import OptionError, check_choice
from untilt.networks.mlp import ACTIVATIONS, Network

# JAX is imported when it is used, and carries no types then.
Array = Any  # an array of JAX, or of NumPy
Params = Any  # a pytree of arrays
# {"weights": [(inputs, outputs), ...], "biases": [(outputs,), ...]}
Layers = dict[str, list[Array]]


class JaxModules(NamedTuple):
    """The modules that network code uses."""

    jax: ModuleType
    numpy: ModuleType
    optax: ModuleType


def jax_modules() -> JaxModules:
    """JAX, jax.numpy and optax, or an error where they are missing or cannot work."""
    modules, process = _first_use()
    if process != os.getpid():
        raise OptionError(
            "networks cannot be trained here: this process was forked from one that had used JAX, "
            "and JAX would wait for ever for threads that a fork does not copy. Start the process "
            "with multiprocessing.get_context('spawn'), or fork before the first network."
        )
    return modules


@cache
def _first_use() -> tuple[JaxModules, int]:
    """The modules, and the process that was the first to use them; a fork copies both."""
    try:
        import jax
        import jax.numpy
        import optax
    except ImportError as error:
        raise OptionError(
            f"networks are trained with JAX and optax, which are not installed ({error}). "
            "Install them with: pip install 'untilt[neural]'"
        ) from error
    return JaxModules(jax, jax.numpy, optax), os.getpid()


def start_layers(seed: Seed, widths: tuple[int, ...], *, activation: str = "elu") -> Layers:
    """Random layers of these widths: inputs, hidden layers, outputs. Biases are 0.

    Weights are normal with variance 2/inputs (He) before relu, elu and gelu, and 2/(inputs +
    outputs) (Glorot) before tanh and identity and in the last layer. They are drawn by NumPy, so
    the start is the same on every device and with every version of JAX.
    """
    check_choice("activation", activation, ACTIVATIONS)
    if len(widths) < 2 or min(widths) < 1:
        raise OptionError(f"widths must be inputs, hidden layers, outputs >= 1. Got {widths}.")
    draw = generator(seed)
    weights, biases = [], []
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        he = activation in ("relu", "elu", "gelu") and layer < len(widths) - 2
        spread = np.sqrt(2 / inputs if he else 2 / (inputs + outputs))
        weights.append((spread * draw.standard_normal((inputs, outputs))).astype(np.float32))
        biases.append(np.zeros(outputs, np.float32))
    return {"weights": weights, "biases": biases}


def apply_layers(
    layers: Layers, x: Array, activation: str, *, dropout: float = 0.0, key: Array | None = None
) -> Array:
    """(..., outputs) of inputs (..., inputs): `Network.forward` without the normalisation.

    With `dropout` each hidden unit is left out with that probability, drawn from `key`, and the
    others grow by 1/(1 - dropout).
    """
    jax, jnp, _ = jax_modules()
    act = jax_activation(activation)
    last = len(layers["weights"]) - 1
    # As one table of rows: products of three axes take a sixth longer on a CPU.
    shape, x = x.shape[:-1], x.reshape(-1, x.shape[-1])
    half = jnp.bfloat16 if _is_rounded() else None
    for layer, (w, b) in enumerate(zip(layers["weights"], layers["biases"], strict=True)):
        if half is None:
            x = x @ w + b
        else:
            kind = half if layer < last else w.dtype
            product = jnp.dot(x.astype(half), w.astype(half), preferred_element_type=kind)
            x = product + b.astype(kind)
        if layer < last:
            x = act(x)
            if dropout > 0:
                kept = jax.random.bernoulli(jax.random.fold_in(key, layer), 1 - dropout, x.shape)
                x = x * kept / (1 - dropout)
    return x.reshape(*shape, x.shape[-1])


PRECISIONS = ("float32", "bfloat16")


def rounded(precision: str) -> AbstractContextManager[Any]:
    """Networks inside the block compute in this precision; parameters stay in single precision.

    With "bfloat16" the inputs of each layer have 8 bits, products are summed in single precision,
    and so are the last layer and the loss. It is JAX's own setting of the precision of products,
    for which JAX compiles anew. "float32" leaves it as the user has set it.
    """
    check_choice("precision", precision, PRECISIONS)
    if precision == "float32":
        return nullcontext()
    return jax_modules().jax.default_matmul_precision("bfloat16")


def _is_rounded() -> bool:
    return bool(jax_modules().jax.config.jax_default_matmul_precision == "bfloat16")


def jax_activation(name: str) -> Callable[[Array], Array]:
    """The activation as a function of JAX arrays."""
    check_choice("activation", name, ACTIVATIONS)
    nn, jnp = jax_modules().jax.nn, jax_modules().numpy
    known = {"elu": _elu(), "relu": nn.relu, "tanh": jnp.tanh, "identity": lambda x: x}
    return known.get(name, lambda x: nn.gelu(x, approximate=True))


@cache
def _elu() -> Callable[[Array], Array]:
    """x where x > 0, else exp(x) - 1; its slope is min(elu(x), 0) + 1.

    jax.nn.elu takes expm1, exact to the last digit near 0 where exp(x) - 1 errs by 6e-8, and more
    functions for the slope: a step takes 10 to 15% longer with it on a CPU.
    """
    jax, jnp = jax_modules()[:2]

    @jax.custom_jvp
    def elu(x: Array) -> Array:
        return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0)) - 1)

    def with_slope(point: tuple[Array], step: tuple[Array]) -> tuple[Array, Array]:
        value = elu(*point)
        return value, step[0] * (jnp.minimum(value, 0) + 1)

    elu.defjvp(with_slope)
    return elu


def sum_of_squares(layers: Layers) -> Array:
    """Sum of squared weights (not biases): what an L2 penalty multiplies.

    Over all weights at once: a GPU takes 7% longer for a step with one sum for each layer.
    """
    jnp = jax_modules().numpy
    return jnp.sum(jnp.concatenate([w.ravel() for w in layers["weights"]]) ** 2)


def to_network(
    layers: Layers,
    activation: str,
    *,
    mean: FloatArray,
    scale: FloatArray,
    transform: str = "none",
) -> Network:
    """Trained layers as NumPy arrays, with the normalisation their inputs went through."""
    return Network(
        weights=tuple(np.asarray(w) for w in layers["weights"]),
        biases=tuple(np.asarray(b) for b in layers["biases"]),
        activation=activation,
        mean=mean,
        scale=scale,
        transform=transform,
    )


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

    def multiplied(self, updates: Params) -> Params:
        """Updates with the parts' own factors."""
        if not self.multipliers:
            return updates
        factors = dict(self.multipliers)
        return {part: _times(factors.get(part, 1.0), tree) for part, tree in updates.items()}


def _times(factor: float, tree: Params) -> Params:
    return jax_modules().jax.tree.map(lambda leaf: factor * leaf, tree)
