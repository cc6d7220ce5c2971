"""A small fully connected network: as arrays for NumPy, and its layers and optimisers for JAX.

Networks are trained with JAX and then kept as a `Network`, so that scoring, saving and loading need
nothing but NumPy.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, frozen
from untilt._core.random import Seed, generator
from untilt.catalog import storable
from untilt.errors import OptionError, ShapeError, check_choice

ACTIVATIONS = ("elu", "relu", "tanh", "gelu", "identity")
TRANSFORMS = ("none", "log1p")
_CHUNK_ROWS = 4096  # 512 wide in double precision: 16 MB a layer


@storable
@dataclass(frozen=True, eq=False)
class Network:
    """Normalise, then layers x -> a(x W + b); the last layer has no activation.

    Parameters
    ----------
    weights, biases : one (inputs, outputs) and one (outputs,) array per layer
    activation : "elu", "relu", "tanh", "gelu" (its tanh form) or "identity"
    mean, scale : (inputs,) subtracted and divided by; scale 0 marks a feature that never varies,
        which becomes 0. A missing value (NaN) becomes 0 too, that is, the mean.
    transform : before that, "none" or "log1p": sign(x) log(1 + |x|), for heavy tails
    """

    weights: tuple[FloatArray, ...]
    biases: tuple[FloatArray, ...]
    activation: str
    mean: FloatArray
    scale: FloatArray
    transform: str = "none"

    def __post_init__(self) -> None:
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("transform", self.transform, TRANSFORMS)
        for name in ("weights", "biases"):
            layers = tuple(frozen(array) for array in getattr(self, name))
            object.__setattr__(self, name, layers)
        for name in ("mean", "scale"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))
        _check_widths(self)

    @property
    def widths(self) -> tuple[int, ...]:
        """Inputs, hidden layers, outputs."""
        return (len(self.mean), *(len(bias) for bias in self.biases))

    def forward(self, features: FeatureArray, *, dtype: type = np.float64) -> FloatArray:
        """(n, outputs), a few thousand rows at a time; `dtype` is the precision of the pass.

        In double precision a row's output does not depend on its neighbours beyond 1e-12.
        """
        rows = np.asarray(features)
        if rows.ndim != 2 or rows.shape[1] != self.widths[0]:
            raise ShapeError(
                f"this network takes {self.widths[0]} inputs. "
                f"Got an array of shape {rows.shape} instead."
            )
        weights: list[FloatArray] = [np.asarray(w, dtype) for w in self.weights]
        biases: list[FloatArray] = [np.asarray(b, dtype) for b in self.biases]
        out: FloatArray = np.empty((len(rows), self.widths[-1]), dtype)
        for chunk in _chunks(len(rows)):
            x = normalised(rows[chunk], self.mean, self.scale, self.transform, dtype=dtype)
            for w, b in zip(weights[:-1], biases[:-1], strict=True):
                x = _ACTIVATION[self.activation](x @ w + b)
            out[chunk] = x @ weights[-1] + biases[-1]
        return out

    def __repr__(self) -> str:
        shape = " -> ".join(str(width) for width in self.widths)
        return f"Network({shape}, {self.activation})"


def normalisation(
    features: FeatureArray, *, transform: str = "none"
) -> tuple[FloatArray, FloatArray]:
    """(mean, scale) of each column: mean and standard deviation of the values that are there.

    The scale of a column that never varies, or has no value at all, is 0.
    """
    check_choice("transform", transform, TRANSFORMS)
    d = features.shape[1]
    there, total = np.zeros(d), np.zeros(d)
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    for chunk in _chunks(len(features)):
        x = transformed(features[chunk].astype(np.float64), transform)
        known = ~np.isnan(x)
        there += known.sum(axis=0)
        total += np.where(known, x, 0.0).sum(axis=0)
        low = np.fmin(low, np.fmin.reduce(x, axis=0))
        high = np.fmax(high, np.fmax.reduce(x, axis=0))
    mean = total / np.maximum(there, 1)
    square = np.zeros(d)
    for chunk in _chunks(len(features)):
        x = transformed(features[chunk].astype(np.float64), transform) - mean
        square += np.square(np.where(np.isnan(x), 0.0, x)).sum(axis=0)
    # A constant such as 0.1 has a rounded mean, hence a spread of 1e-17: ask the values.
    return mean, np.where(high > low, np.sqrt(square / np.maximum(there, 1)), 0.0)


def normalised(
    features: FeatureArray,
    mean: FloatArray,
    scale: FloatArray,
    transform: str = "none",
    *,
    dtype: type = np.float32,
) -> FloatArray:
    """(x - mean) / scale; 0 where the value is missing or the feature never varies."""
    out: FloatArray = np.empty(features.shape, dtype)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    for chunk in _chunks(len(features)):
        x = (transformed(features[chunk].astype(np.float64), transform) - mean) * inverse
        x[np.isnan(x)] = 0.0
        out[chunk] = x
    return out


def transformed(x: FloatArray, transform: str) -> FloatArray:
    """The values themselves, or sign(x) log(1 + |x|)."""
    return np.sign(x) * np.log1p(np.abs(x)) if transform == "log1p" else x


def _elu(x: AnyArray) -> AnyArray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def _gelu(x: AnyArray) -> AnyArray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


_ACTIVATION: dict[str, Callable[[AnyArray], AnyArray]] = {
    "elu": _elu,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "gelu": _gelu,
    "identity": lambda x: x,
}


def _chunks(n: int) -> Iterator[slice]:
    for start in range(0, n, _CHUNK_ROWS):
        yield slice(start, start + _CHUNK_ROWS)


def _check_widths(network: Network) -> None:
    flat = all(array.ndim == 1 for array in (*network.biases, network.mean, network.scale))
    if not flat or any(array.dtype.kind != "f" for array in (*network.weights, *network.biases)):
        raise ShapeError("the layers of a network must hold numbers, its biases one per output.")
    widths = network.widths
    shapes = [weight.shape for weight in network.weights]
    if shapes != list(pairwise(widths)) or len(network.scale) != widths[0]:
        raise ShapeError(
            f"the layers of a network must fit together. Got {widths[0]} inputs and weights of "
            f"shapes {shapes}."
        )


# The same layers for JAX, where gradients come from. JAX is imported by the first call.

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
    known = {"elu": _jax_elu(), "relu": nn.relu, "tanh": jnp.tanh, "identity": lambda x: x}
    return known.get(name, lambda x: nn.gelu(x, approximate=True))


@cache
def _jax_elu() -> Callable[[Array], Array]:
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
    layers: Layers, activation: str, *, mean: FloatArray, scale: FloatArray, transform: str = "none"
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
    clip_norm : a longer gradient is cut to this length
    multipliers : ((top-level key of the parameters, factor), ...) for parts with another rate
    """

    name: str = "adam"
    learning_rate: float = 1e-3
    schedule: str = "constant"
    clip_norm: float | None = None
    multipliers: tuple[tuple[str, float], ...] = ()

    def check(self) -> None:
        """Raise where an option makes no sense."""
        check_choice("optimiser", self.name, OPTIMISERS)
        check_choice("schedule", self.schedule, SCHEDULES)
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise OptionError(f"learning_rate must be above 0. Got {self.learning_rate} instead.")

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
        return optax.chain(*parts)

    def multiplied(self, updates: Params) -> Params:
        """Updates with the parts' own factors."""
        if not self.multipliers:
            return updates
        factors = dict(self.multipliers)
        return {part: _times(factors.get(part, 1.0), tree) for part, tree in updates.items()}


def _times(factor: float, tree: Params) -> Params:
    return jax_modules().jax.tree.map(lambda leaf: factor * leaf, tree)
