r"""EM where relevance is learned from features by a network, in mini-batches (online EM).

    P(click) = theta_k gamma(x),   gamma = sigmoid(f(x))

For each batch of (document, position) with n impressions and c clicks:

    E step   relevant = c + (n - c) gamma (1 - theta) / (1 - theta gamma)
             examined = c + (n - c) theta (1 - gamma) / (1 - theta gamma)
    M step   f: one gradient step on the cross-entropy with `relevant` as soft labels
             theta_k = E_k / N_k, running sums of `examined` and of impressions at k:
             sums <- (1 - rho) sums + rho (sums of the batch), rho = (t + 2)^-0.6

([wang2018regression]_ with the stepwise sums of [cappe2009online]_.) A network that has seen a
document's clicks would explain them whatever the position, so each fold of queries has a network
that has not seen it, whose gamma is the one that theta is estimated with. The likelihood of the
clicks under those says which epoch to keep.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray, IntArray, handed_over
from untilt._core.progress import progress
from untilt._core.random import child_generator
from untilt.bias.em import boosted
from untilt.bias.em.affine import AffineFit, fit_affine
from untilt.data.counts import PositionCounts
from untilt.errors import OptionError, check_choice, did_you_mean
from untilt.facts import Fact
from untilt.networks import jax_layers
from untilt.networks.batches import PaddedRows
from untilt.networks.mlp import ACTIVATIONS, TRANSFORMS, normalisation, normalised
from untilt.networks.training import compiled_value

# theta and gamma are kept this far from 0 and 1 (single precision).
_EDGE = 1e-5
_FORGETTING = 0.6  # between 0.5 (fastest that converges) and 1 (never forgets)
_NEWTON_STEPS_PER_EPOCH = 2


@dataclass(frozen=True)
class NetworkOptions:
    """How relevance is learned; see `NeuralRanker`."""

    widths: tuple[int, ...] = (64, 32)
    activation: str = "elu"
    transform: str = "none"
    epochs: int = 100
    batch_size: int = 1024
    optimiser: str = "adam"
    learning_rate: float = 3e-3
    l2: float = 0.0

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> "NetworkOptions":
        """The options of a mapping; raises for a name or value that makes no sense."""
        known = [field.name for field in fields(cls)]
        for name in given or {}:
            if name not in known:
                raise OptionError(
                    f"network has the options {', '.join(known)}. Got {name!r} instead."
                    f"{did_you_mean(name, known)}"
                )
        options = cls(**(given or {}))
        options.check()
        return options

    def check(self) -> None:
        """Raise where an option makes no sense."""
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("transform", self.transform, TRANSFORMS)
        jax_layers.Optimiser(self.optimiser, self.learning_rate).check()
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1. Got {getattr(self, name)} instead.")
        if not self.l2 >= 0:
            raise OptionError(f"l2 must be at least 0. Got {self.l2} instead.")


class _State(NamedTuple):
    """What a step changes: stacked networks, their optimiser, and the running sums (2, K)."""

    networks: Any
    optimiser: Any
    sums: Any


def network_em(
    cells: PositionCounts,
    features: FeatureArray,
    *,
    options: NetworkOptions,
    trees: boosted.TreeOptions,
) -> boosted.LearnedFit:
    """Learn relevance and the curve together; folds, patience and seed are those of `trees`."""
    fold = boosted.fold_of_documents(cells, trees)
    mean, scale = normalisation(features, transform=options.transform)
    if not scale.any():
        raise boosted.constant_features(features)
    inputs = normalised(features, mean, scale, options.transform)
    batches = _batches(cells, fold, options, trees.seed)
    state, affine = _start(cells, inputs, int(fold.max()) + 1, options, trees.seed)
    step = em_step(options.activation, jax_layers.Optimiser(options.optimiser))
    constants = {"features": inputs, "l2": np.float32(options.l2), "mean": _mean_factor(batches)}
    constants = jax_layers.jax_modules().jax.device_put(constants)
    best, best_value, best_epoch, t, history = affine, -np.inf, 0, 0, []
    with progress("training networks of relevance", total=options.epochs) as advance:
        for epoch in range(options.epochs):
            for batch in batches.epoch(epoch):
                rates = np.array([options.learning_rate, (t + 2.0) ** -_FORGETTING], np.float32)
                state, t = _State(*step(state, rates, batch, constants)), t + 1
            affine, value = fit_affine(
                cells,
                affine._replace(
                    gamma=held_out_relevance(state.networks, inputs, fold, options.activation)
                ),
                level=False,
                steps=_NEWTON_STEPS_PER_EPOCH,
            )
            history.append(value)
            if value > best_value:
                best, best_value, best_epoch = affine, value, epoch + 1
            advance()
            if epoch + 1 - best_epoch >= trees.early_stopping:
                break
    stopped = len(history) < options.epochs
    return boosted.LearnedFit(
        affine=boosted.at_maximum(cells, best, level=False),
        history=handed_over(np.array(history)),
        best_round=best_epoch,
        status=Fact(
            f"bias.{'networks' if stopped else 'epochs-used-up'}",
            best=best_epoch,
            epochs=len(history),
        ),
    )


@lru_cache(maxsize=32)
def em_step(activation: str, optimiser: jax_layers.Optimiser) -> Any:
    """(state, (rate, rho), batch, constants) -> state: one E and M step, compiled."""
    jax, jnp, _ = jax_layers.jax_modules()
    direction = optimiser.direction()

    def step(state: _State, rates: Any, batch: Any, constants: Any) -> tuple[Any, Any, Any]:
        theta = jnp.clip(state.sums[0] / state.sums[1], _EDGE, 1 - _EDGE)[batch["position"]]
        # Networks (F, cells): each learns from all folds but its own.
        seen = batch["fold"][None, :] != jnp.arange(len(state.networks["biases"][-1]))[:, None]
        x = constants["features"][batch["document"]]
        n, c = batch["impressions"], batch["clicks"]

        def loss(networks: Any) -> Any:
            s = _scores(networks, x, activation)
            relevant, _ = posteriors(theta, jax.lax.stop_gradient(jax.nn.sigmoid(s)), n, c)
            entropy = n * jax.nn.softplus(s) - relevant * s
            penalty = 0.5 * constants["l2"] * jax_layers.sum_of_squares(networks)
            return constants["mean"] * jnp.sum(seen * entropy) + penalty

        gradient = jax.grad(loss)(state.networks)
        update, inner = direction.update(gradient, state.optimiser, state.networks)
        networks = jax.tree.map(lambda p, u: p - rates[0] * u, state.networks, update)
        held_out = jnp.sum(
            jnp.where(seen, 0.0, jax.nn.sigmoid(_scores(networks, x, activation))), 0
        )
        _, examined = posteriors(theta, held_out, n, c)
        now = jnp.stack([examined, n]) @ jax.nn.one_hot(batch["position"], state.sums.shape[1])
        return networks, inner, (1 - rates[1]) * state.sums + rates[1] * now

    return jax.jit(step)


def posteriors(theta: Any, gamma: Any, n: Any, c: Any) -> tuple[Any, Any]:
    """Expected relevant and examined impressions, of n with c clicks."""
    unclicked = (n - c) / (1 - theta * gamma)
    return c + unclicked * gamma * (1 - theta), c + unclicked * theta * (1 - gamma)


def held_out_relevance(
    networks: Any, inputs: FloatArray, fold: IntArray, activation: str
) -> FloatArray:
    """(documents,) gamma by the network that has not seen the document's query."""
    jax, jnp, _ = jax_layers.jax_modules()
    gamma = np.empty(len(inputs))
    score = compiled_value(_one_network(activation))
    for f in range(int(fold.max()) + 1):
        one = jax.tree.map(lambda leaf, f=f: leaf[f], networks)
        mine = np.asarray(jnp.asarray(score(one, {"features": inputs}, {})), dtype=float)
        gamma[fold == f] = mine[fold == f]
    return np.clip(0.5 * (1 + np.tanh(0.5 * gamma)), _EDGE, 1 - _EDGE)


@lru_cache(maxsize=32)
def _one_network(activation: str) -> Any:
    def score(layers: Any, batch: Mapping[str, Any]) -> Any:
        return jax_layers.apply_layers(layers, batch["features"], activation)[:, 0]

    return score


def _scores(networks: Any, x: Any, activation: str) -> Any:
    """(F, cells) scores of all networks."""
    jax = jax_layers.jax_modules().jax
    return jax.vmap(lambda layers: jax_layers.apply_layers(layers, x, activation)[:, 0])(networks)


def _batches(
    cells: PositionCounts, fold: IntArray, options: NetworkOptions, seed: int
) -> PaddedRows:
    document = cells.document_index
    # Impressions in units of their mean: twice the sessions of the same clicks change nothing.
    unit = float(cells.impressions.mean())
    columns = {
        "document": document,
        "fold": fold[document],
        "position": cells.position.astype(np.int64) - 1,
        "impressions": (cells.impressions / unit).astype(np.float32),
        "clicks": (cells.clicks / unit).astype(np.float32),
    }
    return PaddedRows(columns, min(options.batch_size, cells.n_cells), seed)


def _mean_factor(batches: PaddedRows) -> FloatArray:
    return np.asarray(1 / batches.batch_size, np.float32)


def _start(
    cells: PositionCounts, inputs: FloatArray, n_networks: int, options: NetworkOptions, seed: int
) -> tuple[_State, AffineFit]:
    """Networks of the mean relevance, and sums that give the click rates as a curve."""
    jax = jax_layers.jax_modules().jax
    widths = (inputs.shape[1], *options.widths, 1)
    layers = [
        jax_layers.start_layers(child_generator(seed, 32, f), widths, activation=options.activation)
        for f in range(n_networks)
    ]
    networks = jax.tree.map(lambda *leaves: np.stack(leaves), *layers)
    affine = boosted.start_affine(cells)
    networks["biases"][-1] += np.float32(boosted.start_score(cells, affine))
    sums = np.stack([affine.alpha, np.ones_like(affine.alpha)]).astype(np.float32)
    optimiser = jax_layers.Optimiser(options.optimiser).direction().init(networks)
    return _State(networks, optimiser, sums), affine
