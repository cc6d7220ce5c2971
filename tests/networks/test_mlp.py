"""Networks as arrays: hand arithmetic, missing values, and the same scores as JAX."""

import os
import subprocess
import sys

import numpy as np
import pytest

from untilt.errors import OptionError, ShapeError
from untilt.networks import mlp
from untilt.networks.mlp import (
    ACTIVATIONS,
    Network,
    apply_layers,
    jax_activation,
    normalisation,
    normalised,
    start_layers,
    to_network,
)


def test_forward_by_hand():
    network = Network(
        weights=(np.array([[1.0, -1.0], [2.0, 0.5]]), np.array([[3.0], [4.0]])),
        biases=(np.array([0.0, 1.0]), np.array([0.5])),
        activation="relu",
        mean=np.array([1.0, 10.0]),
        scale=np.array([2.0, 5.0]),
    )
    # x = (3, 5) -> ((3 - 1)/2, (5 - 10)/5) = (1, -1) -> (1 - 2, -1 - 0.5 + 1) -> (0, 0)
    # x = (3, 15) -> (1, 1) -> (1 + 2, -1 + 0.5 + 1) = (3, 0.5) -> 3 * 3 + 4 * 0.5 + 0.5
    scores = network.forward(np.array([[3.0, 5.0], [3.0, 15.0]]))
    assert scores == pytest.approx(np.array([[0.5], [9 + 2 + 0.5]]))
    assert network.widths == (2, 2, 1)
    assert repr(network) == "Network(2 -> 2 -> 1, relu)"


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_same_scores_as_jax(activation, rng):
    features = rng.normal(3, 7, size=(50, 6)).astype(np.float32)
    mean, scale = normalisation(features)
    layers = start_layers(3, (6, 16, 8, 2), activation=activation)
    network = to_network(layers, activation, mean=mean, scale=scale)
    by_jax = np.asarray(apply_layers(layers, normalised(features, mean, scale), activation))
    assert network.forward(features) == pytest.approx(by_jax, abs=1e-5)
    assert network.forward(features, dtype=np.float32).dtype == np.float32
    assert network.forward(features, dtype=np.float32) == pytest.approx(by_jax, abs=1e-5)


def test_normalisation_is_mean_and_spread_of_what_is_there():
    nan = np.nan
    features = np.array([[1.0, 0.1, nan, 5.0], [3.0, 0.1, nan, nan], [5.0, 0.1, nan, 9.0]])
    mean, scale = normalisation(features)
    assert mean == pytest.approx([3, 0.1, 0, 7])
    # Constant, and nowhere to be seen: both say nothing.
    assert scale == pytest.approx([np.sqrt(8 / 3), 0, 0, 2])
    x = normalised(features, mean, scale)
    assert x[:, 0] == pytest.approx(np.array([-2, 0, 2]) / np.sqrt(8 / 3))
    assert np.all(x[:, 1:3] == 0)
    assert x[:, 3] == pytest.approx([-1, 0, 1])


def test_a_constant_is_constant_whatever_its_rounded_mean():
    features = np.full((1000, 1), 0.1, np.float32)
    assert normalisation(features)[1] == 0


def test_heavy_tails_are_taken_as_logarithms():
    features = np.array([[0.0], [np.e - 1], [-(np.e**3 - 1)]])
    mean, scale = normalisation(features, transform="log1p")
    values = np.array([0.0, 1.0, -3.0])
    assert mean == pytest.approx(values.mean())
    assert scale == pytest.approx(values.std())
    network = Network((np.ones((1, 1)),), (np.zeros(1),), "elu", mean, scale, "log1p")
    assert network.forward(features)[:, 0] == pytest.approx((values - mean) / scale)


def test_chunks_do_not_matter(monkeypatch, rng):
    features = rng.normal(size=(23, 3))
    mean, scale = normalisation(features)
    layers = start_layers(0, (3, 5, 1))
    whole = to_network(layers, "elu", mean=mean, scale=scale).forward(features)
    monkeypatch.setattr(mlp, "_CHUNK_ROWS", 4)
    assert np.array(normalisation(features)) == pytest.approx(np.array([mean, scale]), rel=1e-13)
    again = to_network(layers, "elu", mean=mean, scale=scale).forward(features)
    assert again == pytest.approx(whole, rel=1e-13)


def test_layers_that_do_not_fit_are_told():
    with pytest.raises(ShapeError, match="fit together"):
        Network(
            (np.ones((2, 3)), np.ones((2, 1))), (np.ones(3), np.ones(1)), "elu", *np.ones((2, 2))
        )
    with pytest.raises(OptionError, match=r"activation must be one of .* Got 'selu'"):
        Network((np.ones((2, 1)),), (np.ones(1),), "selu", *np.ones((2, 2)))
    network = Network((np.ones((2, 1)),), (np.ones(1),), "elu", *np.ones((2, 2)))
    with pytest.raises(ShapeError, match=r"takes 2 inputs\. Got an array of shape \(4, 3\)"):
        network.forward(np.ones((4, 3)))


def test_arrays_of_a_network_cannot_be_written_to():
    weight = np.ones((2, 1))
    network = Network((weight,), (np.ones(1),), "elu", *np.ones((2, 2)))
    weight[:] = 7
    assert network.weights[0][0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        network.mean[0] = 3


def test_the_start_has_the_spread_it_says():
    layers = start_layers(0, (400, 300, 200, 1), activation="elu")
    spreads = [w.std() for w in layers["weights"]]
    assert spreads == pytest.approx(np.sqrt([2 / 400, 2 / 300, 2 / 201]), rel=0.1)
    tanh = start_layers(0, (400, 300, 1), activation="tanh")
    assert tanh["weights"][0].std() == pytest.approx(np.sqrt(2 / 700), rel=0.02)
    assert not any(b.any() for b in layers["biases"])
    with pytest.raises(OptionError, match="widths must be"):
        start_layers(0, (3,))


BLOCKED = """
import sys
for name in ("jax", "optax", "numba", "lightgbm", "pyarrow", "sklearn"):
    sys.modules[name] = None
import untilt.networks.mlp, untilt.networks.batches, untilt.networks.training
import untilt.networks.ranking_losses, untilt.networks.training
from untilt.networks.mlp import jax_modules
try:
    jax_modules()
except ValueError as error:
    print(error)
"""


def test_without_jax_the_error_says_what_to_install():
    """And none of the package's heavy dependencies is needed to import the network code."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=True
    )
    assert "networks are trained with JAX and optax" in done.stdout
    assert "pip install 'untilt[neural]'" in done.stdout


def test_a_child_of_a_process_that_used_jax_gets_an_error_and_does_not_wait(monkeypatch):
    mlp.jax_modules()
    process = os.getpid()
    monkeypatch.setattr("os.getpid", lambda: process + 1)
    with pytest.raises(OptionError, match=r"forked [\s\S]*spawn"):
        mlp.jax_modules()


def test_elu_and_its_slope():
    """Also far below 0, where no slope may be lost, and at 0, where it is 1."""
    jax = pytest.importorskip("jax")
    elu = jax_activation("elu")
    x = np.array([-100.0, -2.0, -1e-3, 0.0, 1e-3, 3.0], np.float32)
    slope = jax.vmap(jax.grad(elu))(x)
    np.testing.assert_allclose(elu(x), np.where(x > 0, x, np.expm1(np.minimum(x, 0))), atol=1e-7)
    np.testing.assert_allclose(slope, np.where(x > 0, 1, np.exp(np.minimum(x, 0))), atol=1e-7)
