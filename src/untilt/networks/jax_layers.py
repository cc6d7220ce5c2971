"""The same layers for JAX, where gradients come from. JAX is imported by the first call."""

from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.random import Seed, generator
from untilt._core.suggest import check_choice
from untilt.errors import OptionError
from untilt.networks.mlp import ACTIVATIONS, Network

# A pytree: {"weights": [(inputs, outputs), ...], "biases": [(outputs,), ...]}.
Layers = dict[str, list[Any]]


class JaxModules(NamedTuple):
    """The modules that network code uses."""

    jax: ModuleType
    numpy: ModuleType
    optax: ModuleType


@cache
def jax_modules() -> JaxModules:
    """JAX, jax.numpy and optax, or an error that says how to install them."""
    try:
        import jax
        import jax.numpy
        import optax
    except ImportError as error:
        raise OptionError(
            f"networks are trained with JAX and optax, which are not installed ({error}). "
            "Install them with: pip install 'untilt[neural]'"
        ) from error
    return JaxModules(jax, jax.numpy, optax)


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
    layers: Layers, x: Any, activation: str, *, dropout: float = 0.0, key: Any = None
) -> Any:
    """(..., outputs) of inputs (..., inputs): `Network.forward` without the normalisation.

    With `dropout` each hidden unit is left out with that probability, drawn from `key`, and the
    others grow by 1/(1 - dropout).
    """
    jax = jax_modules().jax
    act = jax_activation(activation)
    last = len(layers["weights"]) - 1
    for layer, (w, b) in enumerate(zip(layers["weights"], layers["biases"], strict=True)):
        x = x @ w + b
        if layer < last:
            x = act(x)
            if dropout > 0:
                kept = jax.random.bernoulli(jax.random.fold_in(key, layer), 1 - dropout, x.shape)
                x = x * kept / (1 - dropout)
    return x


def jax_activation(name: str) -> Any:
    """The activation as a function of JAX arrays."""
    check_choice("activation", name, ACTIVATIONS)
    nn, jnp = jax_modules().jax.nn, jax_modules().numpy
    known = {"elu": nn.elu, "relu": nn.relu, "tanh": jnp.tanh, "identity": lambda x: x}
    return known.get(name, lambda x: nn.gelu(x, approximate=True))


def sum_of_squares(layers: Layers) -> Any:
    """Sum of squared weights (not biases): what an L2 penalty multiplies."""
    jnp = jax_modules().numpy
    return sum(jnp.sum(w**2) for w in layers["weights"])


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
