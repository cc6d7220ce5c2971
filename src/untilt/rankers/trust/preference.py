r"""Preference gamma_ij = P(r_i > r_j | x_i, x_j) as a function of the features of two documents.

    "scores"   z_ij = g(x_i) - g(x_j)              g a network on one document
    "pairs"    z_ij = f(x_i, x_j) - f(x_j, x_i)    f a network on both ([ren2021pairwise]_)
    gamma_ij = sigmoid(z_ij - tie)

Of three documents, "scores" cannot prefer the first to the second, the second to the third and the
third to the first; "pairs" can. The document leaves its network free; here z_ij = -z_ji, and with
"pairs" tie >= 0, so that r_i > r_j, r_i < r_j and a tie are three cases whose probabilities
gamma_ij, gamma_ji and 1 - gamma_ij - gamma_ji are never negative.

Preferences may go in circles, and then no order agrees with all of them. Documents are ranked by
the score of the ranker, never by gamma, as in the document: gamma only weighs the ranker's pairs.
"""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray
from untilt._core.random import Seed
from untilt.catalog import storable
from untilt.errors import ShapeError, check_choice
from untilt.networks import jax_layers
from untilt.networks.mlp import Network

PREFERENCES = ("scores", "pairs")
_FIRST_TIE = -2.0  # softplus of it is 0.13: of two alike documents one is preferred in 94%


def start_preference(
    seed: Seed, n_features: int, widths: tuple[int, ...], *, form: str, activation: str
) -> dict[str, jax_layers.Params]:
    """{"layers", "tie"} before the first step."""
    inputs = 2 * n_features if form == "pairs" else n_features
    layers = jax_layers.start_layers(seed, (inputs, *widths, 1), activation=activation)
    tie = _FIRST_TIE if form == "pairs" else 0.0
    return {"layers": layers, "tie": np.asarray(tie, np.float32)}


def logits_of_lists(
    layers: jax_layers.Layers, tie: jax_layers.Array, x: jax_layers.Array, form: str, act: str
) -> jax_layers.Array:
    """z_ij - tie, (lists, K, K), of documents x (lists, K, d), by JAX."""
    jnp = jax_layers.jax_modules().numpy
    if form == "scores":
        g = jax_layers.apply_layers(layers, x, act)[..., 0]
        return g[:, :, None] - g[:, None, :] - tie
    first, second = _first_layer(layers, x)
    f = _rest(layers, first[:, :, None] + second[:, None, :], act)
    return f - jnp.swapaxes(f, 1, 2) - _at_least_0(tie)


def logits_of_cells(
    layers: jax_layers.Layers,
    tie: jax_layers.Array,
    x: jax_layers.Array,
    i: jax_layers.Array,
    j: jax_layers.Array,
    form: str,
    act: str,
) -> jax_layers.Array:
    """z - tie, (cells,), of pairs of rows i and j of x (rows, d), by JAX."""
    if form == "scores":
        g = jax_layers.apply_layers(layers, x, act)[:, 0]
        return g[i] - g[j] - tie
    first, second = _first_layer(layers, x)
    f = [_rest(layers, first[a] + second[b], act) for a, b in ((i, j), (j, i))]
    return f[0] - f[1] - _at_least_0(tie)


def _first_layer(
    layers: jax_layers.Layers, x: jax_layers.Array
) -> tuple[jax_layers.Array, jax_layers.Array]:
    """What either document adds to the first layer: computed once a document, not once a pair."""
    w, d = layers["weights"][0], x.shape[-1]
    return x @ w[:d] + layers["biases"][0], x @ w[d:]


def _rest(layers: jax_layers.Layers, first: jax_layers.Array, act: str) -> jax_layers.Array:
    rest = {name: layers[name][1:] for name in ("weights", "biases")}
    if not rest["weights"]:
        return first[..., 0]
    hidden = jax_layers.jax_activation(act)(first)
    return jax_layers.apply_layers(rest, hidden, act)[..., 0]


def _at_least_0(tie: jax_layers.Array) -> jax_layers.Array:
    return jax_layers.jax_modules().jax.nn.softplus(tie)


@storable
@dataclass(frozen=True, eq=False)
class PairPreference:
    """gamma as it was learned, in NumPy alone.

    Parameters
    ----------
    form : "scores" or "pairs"
    network : g of one document, or f of two, the features of the first before the second's
    tie : what is taken off z_ij
    """

    form: str
    network: Network
    tie: float

    def __post_init__(self) -> None:
        check_choice("form", self.form, PREFERENCES)

    def gamma(self, first: FeatureArray, second: FeatureArray) -> FloatArray:
        """(n,) P(first is more relevant than second) of rows of features, (n, d) each."""
        first, second = np.asarray(first), np.asarray(second)
        if first.shape != second.shape:
            raise ShapeError(
                "preferences are between rows of the same number and width. Got arrays of shapes "
                f"{first.shape} and {second.shape} instead."
            )
        if self.form == "scores":
            z = self.network.forward(first)[:, 0] - self.network.forward(second)[:, 0]
        else:
            one, other = np.hstack([first, second]), np.hstack([second, first])
            z = self.network.forward(one)[:, 0] - self.network.forward(other)[:, 0]
        gamma: FloatArray = 1 / (1 + np.exp(-np.clip(z - self.tie, -30, 30)))
        return gamma


def learned(
    params: jax_layers.Params,
    form: str,
    activation: str,
    *,
    mean: FloatArray,
    scale: FloatArray,
    transform: str = "none",
) -> PairPreference:
    """Trained {"layers", "tie"} in NumPy, with the normalisation of a document's features."""
    both = 2 if form == "pairs" else 1
    network = jax_layers.to_network(
        params["layers"],
        activation,
        mean=np.tile(mean, both),
        scale=np.tile(scale, both),
        transform=transform,
    )
    tie = float(params["tie"])
    return PairPreference(form, network, float(np.logaddexp(0, tie)) if form == "pairs" else tie)
