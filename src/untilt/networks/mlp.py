"""A small fully connected network as arrays: normalisation and layers, in NumPy alone.

Networks are trained with JAX and then kept as a `Network`, so that scoring, saving and loading need
nothing but NumPy.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, frozen
from untilt.catalog import storable
from untilt.errors import ShapeError, check_choice

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
            out[chunk] = _layers(x, weights, biases, activation_of(self.activation))
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


def activation_of(name: str) -> Callable[[AnyArray], AnyArray]:
    """The activation as a function of arrays."""
    return _ACTIVATION[name]


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


def _layers(
    x: FloatArray,
    weights: list[FloatArray],
    biases: list[FloatArray],
    activation: Callable[[AnyArray], AnyArray],
) -> FloatArray:
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        x = activation(x @ w + b)
    return x @ weights[-1] + biases[-1]


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
