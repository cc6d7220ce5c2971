"""The mini-batch form: EM and the ranker's loss in one step (`untilt.rankers.trust.mini_batch`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, IntArray
from untilt._core.random import Seed, child_generator
from untilt.facts import note
from untilt.networks import mlp
from untilt.networks.batches import PaddedLists, bucket_lengths
from untilt.networks.training import Moment, NetworkTraining, Trained
from untilt.rankers.trust import trust_model
from untilt.rankers.trust.slates import TrustSlates
from untilt.rankers.trust.trust_model import TrustStart, logits_of_lists, start_preference

if TYPE_CHECKING:
    from untilt.rankers.trust.pairwise_trust import PairwiseTrustRanker

MINI_BATCH_EM = note("network.mini-batch-em", "{epochs} epochs of mini-batch EM, {steps} steps")

# One compiled step of mini-batch EM: posteriors, tables and networks ([ren2021pairwise]_, eq. 20).
#
# Three networks share a batch of slates: gamma_ij (`untilt.rankers.trust.trust_model`), beta_i =
# sigmoid(b(x_i)), and the ranker s(x_i). The E step takes them and the tables as they are; gamma
# and beta are fitted to the posteriors (their expectation, or a draw from them), the tables go
# towards the batch's own estimates, eps <- (1 - rate) eps + rate eps^, and the ranker goes down its
# loss.

Batch = Mapping[str, mlp.Array]

# Single precision: probabilities this near to 0 or 1 still leave 1 - p with three digits.
_FLOOR = 1e-4


class TrustTables(NamedTuple):
    """theta and theta- by position, (K,), eps+ and eps- by pair of positions, (K, K)."""

    theta: mlp.Array
    theta_minus: mlp.Array
    eps_plus: mlp.Array
    eps_minus: mlp.Array


@dataclass(frozen=True)
class StepSettings:
    """What a compiled step depends on, beside shapes."""

    loss: str
    activation: str
    sampled: bool
    known_theta: bool
    first: float | None
    clip: float
    preference: str = "scores"

    @property
    def known_eps(self) -> bool:
        """IPW is the model without trust bias: eps+ = 1, eps- = 0."""
        return self.loss == "ipw"


class _Observed(NamedTuple):
    """A batch in the model's symbols; counts are sessions."""

    positive: mlp.Array
    zero: mlp.Array
    above: mlp.Array
    below: mlp.Array
    position_index: mlp.Array
    pair: trust_model.PairParameters
    theta_minus_j: mlp.Array


@lru_cache(maxsize=64)
def compiled_em_step(settings: StepSettings, optimiser: mlp.Optimiser) -> Callable[..., Any]:
    """A step, compiled per shape: the next (params, state, tables), and the sums of `_sums`."""
    jax = mlp.jax_modules().jax
    direction = optimiser.direction()

    def step(
        params: mlp.Params,
        state: mlp.Params,
        tables: TrustTables,
        rate: mlp.Array,
        em_rate: mlp.Array,
        key: mlp.Array,
        batch: Batch,
        constants: Batch,
    ) -> tuple[mlp.Params, mlp.Params, TrustTables, mlp.Array]:
        whole = {**constants, **batch}
        (_, (tables, sums)), gradient = jax.value_and_grad(em_loss, argnums=1, has_aux=True)(
            settings, params, tables, whole, key, em_rate
        )
        update, state = direction.update(gradient, state, params)
        return jax.tree.map(lambda p, u: p - rate * u, params, update), state, tables, sums

    return jax.jit(step)


def em_loss(
    settings: StepSettings,
    params: mlp.Params,
    tables: TrustTables,
    batch: Batch,
    key: mlp.Array,
    em_rate: Any,
) -> tuple[mlp.Array, tuple[TrustTables, mlp.Array]]:
    """The three networks' losses per session, summed; the next tables; the sums of `_sums`."""
    jax, jnp, _ = mlp.jax_modules()
    x = batch["features"][batch["row"]]
    b, s = (
        mlp.apply_layers(params[part], x, settings.activation)[..., 0]
        for part in ("beta", "ranker")
    )
    d = logits_of_lists(params["gamma"], params["tie"], x, settings.preference, settings.activation)
    seen = _observed(batch, tables)
    stop = jax.lax.stop_gradient
    gamma, beta = (stop(jnp.clip(jax.nn.sigmoid(z), _FLOOR, 1 - _FLOOR)) for z in (d, b))
    pair = seen.pair._replace(gamma=gamma, beta_i=beta[:, :, None])
    yes, no = trust_model.posterior_above(pair), trust_model.posterior_not_above(pair)
    item = trust_model.posterior_zero(tables.theta[seen.position_index], beta)
    keys = jax.random.split(key, 3)
    draw = _draw if settings.sampled else _expect
    preferred = draw(keys[0], seen.above, trust_model.preference(yes, gamma))
    preferred += draw(keys[1], seen.below, trust_model.preference(no, gamma))
    relevant = seen.positive + draw(keys[2], seen.zero, item.relevant)
    pair_loss = _cross_entropy(d, preferred, seen.above + seen.below)
    item_loss = _cross_entropy(b, relevant, seen.positive + seen.zero)
    weight = _pair_weight(settings, pair, seen.theta_minus_j, batch, stop(s))
    rank_loss = jnp.sum(weight * trust_model.logistic_loss(s[:, :, None] - s[:, None, :], jnp))
    sessions = batch["scale"] * batch["sessions"].shape[0]
    squares = sum(mlp.sum_of_squares(params[p]) for p in ("gamma", "beta", "ranker"))
    penalty = batch["l2"] / 2 * squares
    following = _next_tables(settings, tables, seen, yes, no, item, em_rate)
    sums = _sums(seen, pair, tables.theta[seen.position_index] * beta, rank_loss)
    return (pair_loss + item_loss + rank_loss) / sessions + penalty, (following, sums)


def _observed(batch: Batch, tables: TrustTables) -> _Observed:
    jnp = mlp.jax_modules().numpy
    mask, k, n = batch["mask"], batch["position_index"], batch["sessions"][:, None]
    positive = batch["positive"] * mask
    pair = mask[:, :, None] * mask[:, None, :] * (1 - jnp.eye(mask.shape[1]))
    above = batch["above_positive"] + batch["above_zero"]
    i, j = k[:, :, None], k[:, None, :]
    of_pair = trust_model.PairParameters(
        tables.theta[i], tables.theta[j], tables.eps_plus[i, j], tables.eps_minus[i, j], None, None
    )
    return _Observed(
        positive=positive, zero=n * mask - positive, above=above,
        below=pair * n[:, :, None] - above, position_index=k, pair=of_pair,
        theta_minus_j=tables.theta_minus[j],
    )  # fmt: skip


def _pair_weight(
    settings: StepSettings, pair: trust_model.PairParameters, theta_minus_j: mlp.Array,
    batch: Batch, scores: Any,
) -> mlp.Array:  # fmt: skip
    """w_ij of the loss, summed over the sessions of the slate."""
    jnp = mlp.jax_modules().numpy
    positive, zero = trust_model.pair_weights(pair, theta_minus_j, clip=settings.clip)
    if settings.loss != "opt":
        return positive * batch["above_positive"] + zero * batch["above_zero"]
    gain = positive * batch["gain_positive"] + zero * batch["gain_zero"]
    return gain * trust_model.rank_change(scores, batch["mask"] > 0, jnp)


def _next_tables(
    settings: StepSettings, tables: TrustTables, seen: _Observed, yes: trust_model.PairPosterior,
    no: trust_model.PairPosterior, item: trust_model.ItemPosterior, em_rate: mlp.Array,
) -> TrustTables:  # fmt: skip
    """Equation 20 for every table; an entry without sessions in the batch stays."""
    jnp = mlp.jax_modules().numpy
    k = seen.position_index

    def by_position(values: mlp.Array) -> mlp.Array:
        return jnp.zeros_like(tables.theta).at[k].add(values)

    def by_pair(values: mlp.Array) -> mlp.Array:
        return jnp.zeros_like(tables.eps_plus).at[k[:, :, None], k[:, None, :]].add(values)

    def towards(old: mlp.Array, part: mlp.Array, whole: mlp.Array) -> mlp.Array:
        batch = jnp.clip(part / jnp.maximum(whole, 1e-12), _FLOOR, 1 - _FLOOR)
        return jnp.where(whole > 0, (1 - em_rate) * old + em_rate * batch, old)

    zero, positive = by_position(seen.zero), by_position(seen.positive)
    examined = by_position(seen.zero * item.examined)
    following = tables._replace(theta_minus=towards(tables.theta_minus, examined, zero))
    if not settings.known_theta:
        theta = towards(tables.theta, positive + examined, positive + zero)
        held = theta if settings.first is None else theta.at[0].set(settings.first)
        following = following._replace(theta=held)
    if settings.known_eps:
        return following
    plus, minus = by_pair(seen.above * yes.preferred), by_pair(seen.above * yes.not_preferred)
    eps_plus = towards(tables.eps_plus, plus, plus + by_pair(seen.below * no.preferred))
    eps_minus = towards(tables.eps_minus, minus, minus + by_pair(seen.below * no.not_preferred))
    crossed, middle = eps_minus > eps_plus, (eps_plus + eps_minus) / 2
    return following._replace(
        eps_plus=jnp.where(crossed, middle, eps_plus),
        eps_minus=jnp.where(crossed, middle, eps_minus),
    )


def _sums(
    seen: _Observed, pair: trust_model.PairParameters, chance: mlp.Array, rank_loss: mlp.Array
) -> mlp.Array:
    """(log-likelihood of documents, of pairs, the ranker's loss), summed over the batch."""
    jnp = mlp.jax_modules().numpy
    p = jnp.clip(trust_model.above(pair), 1e-7, 1 - 1e-7)
    chance = jnp.clip(chance, 1e-7, 1 - 1e-7)
    items = jnp.sum(seen.positive * jnp.log(chance) + seen.zero * jnp.log1p(-chance))
    pairs = jnp.sum(seen.above * jnp.log(p) + seen.below * jnp.log1p(-p))
    return jnp.stack([items, pairs, rank_loss])


def _cross_entropy(z: mlp.Array, successes: mlp.Array, trials: mlp.Array) -> mlp.Array:
    jnp = mlp.jax_modules().numpy
    return jnp.sum(
        successes * trust_model.logistic_loss(z, jnp)
        + (trials - successes) * trust_model.logistic_loss(-z, jnp)
    )


def _expect(_: mlp.Array, n: mlp.Array, p: mlp.Array) -> mlp.Array:
    return n * p


def _draw(key: mlp.Array, n: mlp.Array, p: mlp.Array) -> mlp.Array:
    """One coin per session: a binomial of the sessions that are alike."""
    return mlp.jax_modules().jax.random.binomial(key, n, p)


@dataclass(frozen=True, eq=False)
class MiniBatchFit:
    """Where mini-batch EM ended: the ranker's layers, those of gamma, the tables, the way there."""

    layers: mlp.Layers
    gamma: dict[str, mlp.Params]
    trust: trust_model.PairTrust
    history: tuple[trust_model.TrustEpoch, ...]
    trained: Trained


class _History:
    """The sums of `_sums` over each epoch, per session; they go into a checkpoint."""

    def __init__(self, sessions: float) -> None:
        self.sessions = sessions
        self.epochs: list[FloatArray] = []
        self.steps: list[mlp.Array] = []

    def after_epoch(self, epoch: int, params: mlp.Params) -> None:  # noqa: ARG002
        """Sum up the steps since the last epoch."""
        sums = np.sum(mlp.jax_modules().jax.device_get(self.steps), axis=0)
        self.epochs.append(sums / self.sessions)
        self.steps = []

    def state(self) -> dict[str, AnyArray]:
        """(epochs, 3)."""
        return {"sums": np.array(self.epochs)}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """Set what `state` gave."""
        sums = np.asarray(state["sums"], dtype=float)
        self.epochs = list(sums.reshape(len(sums), 3))

    @property
    def as_epochs(self) -> tuple[trust_model.TrustEpoch, ...]:
        """As the ranker keeps them."""
        return tuple(trust_model.TrustEpoch(*map(float, sums)) for sums in self.epochs)


def fit_mini_batches(
    ranker: "PairwiseTrustRanker",
    slates: TrustSlates,
    training: NetworkTraining,
    theta: FloatArray | None,
) -> MiniBatchFit:
    """Run mini-batch EM. `training` has no loss and no start yet; `theta` is a known curve or None.

    What is judged and kept are {"networks": {"gamma", "beta", "ranker", "tie"}, "tables"}.
    """
    jax = mlp.jax_modules().jax
    settings = StepSettings(
        loss=ranker.loss, activation=ranker.activation, sampled=ranker.posteriors == "sampled",
        known_theta=theta is not None, first=ranker.first_examination, clip=ranker.clip,
        preference=ranker.preference,
    )  # fmt: skip
    compiled = compiled_em_step(settings, training.optimiser)
    scale = np.float32(slates.count.mean())
    constants = jax.device_put({**(training.constants or {}), "scale": scale})
    params = {
        "networks": _start_params(ranker, constants["features"].shape[1]),
        "tables": start_tables(slates.depth, TrustStart(), theta, known_eps=settings.known_eps),
    }
    key = jax.random.key(int(child_generator(ranker.seed, 3).integers(2**31)))
    history = _History(float(slates.count.sum()))

    def step(
        params: mlp.Params, state: mlp.Params, at: Moment, batch: Batch
    ) -> tuple[mlp.Params, mlp.Params, mlp.Array]:
        em_rate = np.float32(ranker.em_rate * (1 + at.step) ** -ranker.em_decay)
        networks, state, tables, sums = compiled(
            params["networks"], state, params["tables"], at.rate, em_rate,
            jax.random.fold_in(key, at.step), batch, constants,
        )  # fmt: skip
        history.steps.append(sums)
        return {"networks": networks, "tables": tables}, state, sums.sum()

    em = replace(training, params=params, companion=history, what="pairwise trust by mini-batches")
    trained = em.by(step, learned=lambda params: params["networks"])
    networks, tables = trained.params["networks"], trained.params["tables"]
    gamma = {"layers": networks["gamma"], "tie": networks["tie"]}
    ended = MINI_BATCH_EM(epochs=trained.epochs, steps=trained.steps)
    trust = trust_model.PairTrust(
        tables.theta, tables.theta_minus, tables.eps_plus, tables.eps_minus, status=ended
    )
    return MiniBatchFit(networks["ranker"], gamma, trust, history.as_epochs, trained)


def theta_now(params: mlp.Params) -> FloatArray:
    """(K,) examination at the parameters of `fit_mini_batches`."""
    return np.asarray(params["tables"].theta, dtype=float)


def ranker_layers(params: mlp.Params) -> mlp.Layers:
    """The ranker among them."""
    layers: mlp.Layers = params["networks"]["ranker"]
    return layers


def slate_batches(
    slates: TrustSlates, batch_size: int, seed: Seed, **more: FloatArray
) -> PaddedLists:
    """Batches of slates with their pair counts; `more` are further columns by pair, flat."""

    def pairs(chosen: IntArray, length: int) -> dict[str, FeatureArray]:
        return slates.padded(chosen, length, **more)

    size = np.diff(slates.indptr)
    return PaddedLists(
        indptr=slates.indptr,
        row_columns={
            "row": slates.document.astype(np.int32),
            "position_index": slates.position_index.astype(np.int32),
            "positive": slates.positive.astype(np.float32),
        },
        list_columns={"sessions": slates.count.astype(np.float32)},
        batch_size=min(batch_size, slates.n_slates),
        lengths=bucket_lengths(size, most=3),
        seed=int(child_generator(seed, 2).integers(2**31)),
        more=pairs,
    )


def start_tables(
    depth: int, start: TrustStart, theta: FloatArray | None, *, known_eps: bool
) -> TrustTables:
    """The tables before the first step."""
    plus, minus = (1.0, 0.0) if known_eps else (start.eps_plus, start.eps_minus)
    curve = np.full(depth, start.theta) if theta is None else theta[:depth]
    return TrustTables(
        theta=curve.astype(np.float32),
        theta_minus=(0.9 * curve).astype(np.float32),
        eps_plus=np.full((depth, depth), plus, np.float32),
        eps_minus=np.full((depth, depth), minus, np.float32),
    )


def _start_params(ranker: "PairwiseTrustRanker", n_features: int) -> dict[str, mlp.Params]:
    widths, act = tuple(ranker.widths), ranker.activation
    of_gamma, of_beta, of_ranker = (child_generator(ranker.seed, 0, at) for at in range(3))
    beta, scores = (
        mlp.start_layers(draw, (n_features, *widths, 1), activation=act)
        for draw in (of_beta, of_ranker)
    )
    gamma = start_preference(of_gamma, n_features, widths, form=ranker.preference, activation=act)
    return {"gamma": gamma["layers"], "beta": beta, "ranker": scores, "tie": gamma["tie"]}
