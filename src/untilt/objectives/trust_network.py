"""A network as the regression of an EM step: gradient steps, kept where they climb."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt._core.random import Seed
from untilt.networks.jax_layers import apply_layers, jax_modules, start_layers, to_network
from untilt.objectives.trust_regressions import expected_likelihood

_FLOOR = 1e-6
_RATE = 1e-3


@dataclass(frozen=True, eq=False)
class NetworkRegression:
    """p = sigmoid(f(x_i)), or sigmoid(f(x_i) - f(x_j) - tie) for pairs, f a network.

    A refit is `steps` Adam steps on the whole data, taken only if Q in double precision is not
    lower than before: EM then never falls, though single precision cannot promise it.

    Parameters
    ----------
    features : (rows, d) normalised, single precision
    i, j : (cells,) rows of a cell; j is None for single documents
    """

    features: FloatArray
    i: IntArray
    j: IntArray | None
    widths: tuple[int, ...]
    activation: str
    seed: Seed
    steps: int = 20
    _start: dict[str, Any] = field(default_factory=dict)

    def start(self) -> dict[str, Any]:
        """Random layers, the same at every call."""
        if not self._start:
            widths = (self.features.shape[1], *self.widths, 1)
            layers = start_layers(self.seed, widths, activation=self.activation)
            self._start.update({"layers": layers, "tie": np.zeros((), np.float32)})
        return dict(self._start)

    def values(self, state: dict[str, Any]) -> FloatArray:
        """Probabilities by NumPy in double precision."""
        width = self.features.shape[1]
        network = to_network(
            state["layers"], self.activation, mean=np.zeros(width), scale=np.ones(width)
        )
        f = network.forward(self.features)[:, 0]
        z = f[self.i] if self.j is None else f[self.i] - f[self.j] - float(state["tie"])
        return np.clip(1 / (1 + np.exp(-np.clip(z, -30, 30))), _FLOOR, 1 - _FLOOR)

    def refit(self, state: Any, successes: FloatArray, trials: FloatArray) -> dict[str, Any]:
        """A few steps uphill; where they led down, shorter ones."""
        jax = jax_modules().jax
        before = expected_likelihood(self.values(state), successes, trials)
        climb = _compiled_climb(self.activation, self.steps, self.j is not None)
        data = {
            "features": self.features,
            "i": self.i,
            "j": self.i if self.j is None else self.j,
            "successes": (successes / trials.sum()).astype(np.float32),
            "trials": (trials / trials.sum()).astype(np.float32),
        }
        for rate in (_RATE, _RATE / 4, _RATE / 16):
            moved = jax.tree.map(np.asarray, jax.device_get(climb(state, data, np.float32(rate))))
            if expected_likelihood(self.values(moved), successes, trials) >= before:
                return dict(moved)
        return dict(state)


@lru_cache(maxsize=16)
def _compiled_climb(activation: str, steps: int, paired: bool) -> Callable[..., Any]:
    jax, jnp, optax = jax_modules()
    direction = optax.scale_by_adam()

    def loss(state: Any, data: Any) -> Any:
        f = apply_layers(state["layers"], data["features"], activation)[:, 0]
        z = f[data["i"]] - f[data["j"]] - state["tie"] if paired else f[data["i"]]
        fail = data["trials"] - data["successes"]
        return jnp.sum(data["successes"] * jax.nn.softplus(-z) + fail * jax.nn.softplus(z))

    def climb(state: Any, data: Any, rate: Any) -> Any:
        def one(carry: Any, _: Any) -> Any:
            at, memory = carry
            update, memory = direction.update(jax.grad(loss)(at, data), memory)
            return (jax.tree.map(lambda p, u: p - rate * u, at, update), memory), None

        return jax.lax.scan(one, (state, direction.init(state)), None, length=steps)[0][0]

    return jax.jit(climb)
