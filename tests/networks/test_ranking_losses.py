"""The ranking losses: values by plain loops, gradients by finite differences."""

from typing import Any

import jax
import numpy as np
import pytest
from tests.double_precision import double_precision

from untilt.networks.mlp import apply_layers, start_layers
from untilt.networks.ranking_losses import (
    dual_loss,
    listwise_loss,
    pairs_of_gains,
    pairwise_loss,
    pointwise_loss,
)

RNG = np.random.default_rng(5)
N, D, K = 9, 3, 4
LAYERS = start_layers(2, (D, 5, 1), activation="tanh")
LAYERS = {**LAYERS, "biases": [np.full(5, 0.2), np.full(1, 0.7)]}
MASK = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], float)
CLICKS = MASK * RNG.integers(0, 3, (3, 4))
BATCH = {
    "features": RNG.normal(size=(N, D)),
    "l2": np.asarray(0.3),
    "scale": np.asarray(0.25),
    "row": (MASK * RNG.integers(0, N, (3, 4))).astype(int),
    "position_index": (MASK * np.arange(4)).astype(int),
    "mask": MASK,
    "table": RNG.uniform(0.5, 2, (K, K)),
    "pairs": MASK[:, :, None] * MASK[:, None, :] * RNG.uniform(size=(3, 4, 4)),
    "weight": CLICKS,
    "clicks": CLICKS,
}
CELLS = {
    **BATCH,
    "row": np.array([0, 3, 3, 8, 0]),
    "position_index": np.array([0, 1, 2, 3, 0]),
    "mask": np.array([1.0, 1, 1, 1, 0]),
    "impressions": np.array([3.0, 2, 5, 1, 9]),
    "clicks": np.array([1.0, 2, 0, 1, 4]),
    "alpha": np.array([0.9, 0.6, 0.4, 0.3]),
    "beta": np.array([0.05, 0.1, 0.0, 0.2]),
}
SCORES = np.asarray(apply_layers(LAYERS, BATCH["features"].astype(np.float32), "tanh"))[:, 0]
PENALTY = 0.3 / 2 * sum(np.sum(np.asarray(w, float) ** 2) for w in LAYERS["weights"])


def lists():
    for b in range(3):
        there = np.flatnonzero(MASK[b])
        yield b, there, SCORES[BATCH["row"][b, there]], BATCH["position_index"][b, there]


def test_pairwise_by_loops():
    total = 0.0
    for b, there, s, place in lists():
        for i in range(len(there)):
            for j in range(len(there)):
                w = BATCH["table"][place[i], place[j]] * BATCH["pairs"][b, i, j]
                total += w * np.log(1 + np.exp(-2 * (s[i] - s[j])))
    found = pairwise_loss("tanh", sigma=2.0)(LAYERS, BATCH)
    assert float(found) == pytest.approx(0.25 * total + PENALTY, rel=1e-5)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("against_all", [False, True])
def test_pairs_of_gains_by_loops(plain, against_all):
    gain, weight = (
        MASK * np.array([[0, 2, 1, 5], [1, 0, 0, 3], [2, 2, 2, 2]]),
        np.array([2.0, 3, 4]),
    )
    expected = np.zeros((3, 4, 4))
    for b in range(3):
        for i in np.flatnonzero(MASK[b]):
            for j in np.flatnonzero(MASK[b]):
                lead = gain[b, i] - (0 if against_all else gain[b, j])
                if i != j and lead > 0:
                    expected[b, i, j] = weight[b] * (1 if plain else lead)
    batch = {"gain": gain, "weight": weight, "mask": MASK}
    assert np.asarray(pairs_of_gains(batch, plain, against_all)) == pytest.approx(expected)
    own = {name: value for name, value in BATCH.items() if name != "pairs"}
    by_gains = pairwise_loss("tanh", plain=plain, against_all=against_all)(LAYERS, {**own, **batch})
    by_pairs = pairwise_loss("tanh")(LAYERS, {**BATCH, "pairs": expected})
    assert float(by_gains) == pytest.approx(float(by_pairs), rel=1e-6)


def test_listwise_by_loops():
    total = 0.0
    for b, there, s, _ in lists():
        share = np.exp(s) / np.exp(s).sum()
        total -= np.sum(CLICKS[b, there] * np.log(share))
    assert float(listwise_loss("tanh")(LAYERS, BATCH)) == pytest.approx(
        0.25 * total + PENALTY, rel=1e-5
    )


def test_pointwise_by_loops():
    total = 0.0
    for i in range(4):
        k, s = CELLS["position_index"][i], SCORES[CELLS["row"][i]]
        p = CELLS["alpha"][k] / (1 + np.exp(-s)) + CELLS["beta"][k]
        c, n = CELLS["clicks"][i], CELLS["impressions"][i]
        total -= c * np.log(p) + (n - c) * np.log(1 - p)
    assert float(pointwise_loss("tanh")(LAYERS, CELLS)) == pytest.approx(
        0.25 * total + PENALTY, rel=1e-5
    )


def test_dual_by_loops():
    z = np.array([0.3, -0.2, -0.9, -1.5])
    for largest in (1.2, np.inf):
        total = 0.0
        for b, there, s, place in lists():
            if len(there) == 0:
                continue
            gamma, theta = np.exp(s) / np.exp(s).sum(), np.exp(z[place]) / np.exp(z[place]).sum()
            c = CLICKS[b, there]
            total -= np.sum(c * np.minimum(theta[0] / theta, largest) * np.log(gamma))
            total -= np.sum(c * np.minimum(gamma[0] / gamma, largest) * np.log(theta))
        found = dual_loss("tanh", largest_weight=largest)(
            {"ranker": LAYERS, "propensity": z}, BATCH
        )
        assert float(found) == pytest.approx(0.25 * total + PENALTY, rel=1e-5)


def test_a_constant_in_the_scores_is_never_learned():
    for loss in (pairwise_loss("tanh"), listwise_loss("tanh")):
        gradient = jax.grad(loss)(LAYERS, BATCH)
        assert np.all(np.asarray(gradient["biases"][-1]) == 0)
        assert np.any(np.asarray(gradient["biases"][0]) != 0)


@pytest.mark.parametrize("name", ["pairwise", "listwise", "pointwise", "dual"])
def test_gradients_are_finite_differences(name):
    cases: dict[str, Any] = {
        "pairwise": (pairwise_loss("tanh"), BATCH),
        "listwise": (listwise_loss("tanh"), BATCH),
        "pointwise": (pointwise_loss("tanh"), CELLS),
        # Each side with the other's weights held fixed is what its gradient is of.
        "dual": (_dual_with_fixed_weights, BATCH),
    }
    loss, batch = cases[name]
    with double_precision():
        params = jax.tree.map(lambda leaf: np.asarray(leaf, float), LAYERS)
        if name == "dual":
            params = {"ranker": params, "propensity": np.array([0.1, -0.4, -0.8, -1.1])}
        function = dual_loss("tanh", largest_weight=3.0) if name == "dual" else loss
        gradient = jax.tree.leaves(jax.grad(function)(params, batch))
        leaves, tree = jax.tree.flatten(params)
        for place, leaf in enumerate(leaves):
            for at in list(np.ndindex(leaf.shape))[::3]:
                step = np.zeros_like(leaf)
                step[at] = 1e-6
                up, down = (
                    float(loss(jax.tree.unflatten(tree, _changed(leaves, place, d)), batch, params))
                    if name == "dual"
                    else float(loss(jax.tree.unflatten(tree, _changed(leaves, place, d)), batch))
                    for d in (step, -step)
                )
                slope = (up - down) / 2e-6
                if place == _last_bias(name) and name != "pointwise":
                    slope = 0.0
                assert float(gradient[place][at]) == pytest.approx(slope, rel=1e-5, abs=1e-8)


def _last_bias(name):
    """Leaves are in the order of sorted keys: propensity first, then biases, then weights."""
    return 2 if name == "dual" else 1


def _changed(leaves, place, step):
    return [leaf + step if i == place else leaf for i, leaf in enumerate(leaves)]


def _dual_with_fixed_weights(params, batch, at):
    """The two sums of dual learning with the weights of the point `at`."""
    total = 0.0
    for b in range(2):
        there = np.flatnonzero(MASK[b])
        rows, place = BATCH["row"][b, there], BATCH["position_index"][b, there]

        def shares(of, rows=rows, place=place):
            x = batch["features"][rows]
            s = np.asarray(apply_layers(of["ranker"], x, "tanh"))[:, 0]
            z = np.asarray(of["propensity"])[place]
            return np.exp(s) / np.exp(s).sum(), np.exp(z) / np.exp(z).sum()

        (gamma, theta), (gamma_0, theta_0) = shares(params), shares(at)
        c = CLICKS[b, there]
        total -= np.sum(c * np.minimum(theta_0[0] / theta_0, 3.0) * np.log(gamma))
        total -= np.sum(c * np.minimum(gamma_0[0] / gamma_0, 3.0) * np.log(theta))
    penalty = 0.15 * sum(np.sum(np.asarray(w) ** 2) for w in params["ranker"]["weights"])
    return 0.25 * total + penalty


def test_dropout_is_drawn_from_the_batch_and_keeps_the_mean():
    layers = start_layers(0, (D, 2000, 1), activation="identity")
    x = BATCH["features"].astype(np.float32)
    keys = [jax.random.key(seed) for seed in (1, 1, 2)]
    once, again, other = (
        np.asarray(apply_layers(layers, x, "identity", dropout=0.3, key=key))[:, 0] for key in keys
    )
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)
    whole = np.asarray(apply_layers(layers, x, "identity"))[:, 0]
    many = np.mean(
        [
            apply_layers(layers, x, "identity", dropout=0.3, key=jax.random.key(s))
            for s in range(40)
        ],
        axis=0,
    )[:, 0]
    assert many == pytest.approx(whole, abs=0.1)
