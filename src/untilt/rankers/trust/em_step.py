"""One compiled step of mini-batch EM: posteriors, tables and networks ([ren2021pairwise]_, eq. 20).

Three networks share a batch of slates: gamma_ij (`untilt.rankers.trust.preference`), beta_i =
sigmoid(b(x_i)), and the ranker s(x_i). The E step takes them and the tables as they are; gamma and
beta are fitted to the posteriors (their expectation, or a draw from them), the tables go towards
the batch's own estimates, eps <- (1 - rate) eps + rate eps^, and the ranker goes down its loss.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from untilt.networks import jax_layers
from untilt.rankers.trust import trust_model
from untilt.rankers.trust import trust_model as model
from untilt.rankers.trust.preference import logits_of_lists

Batch = Mapping[str, jax_layers.Array]

# Single precision: probabilities this near to 0 or 1 still leave 1 - p with three digits.
_FLOOR = 1e-4


class TrustTables(NamedTuple):
    """theta and theta- by position, (K,), eps+ and eps- by pair of positions, (K, K)."""

    theta: jax_layers.Array
    theta_minus: jax_layers.Array
    eps_plus: jax_layers.Array
    eps_minus: jax_layers.Array


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

    positive: jax_layers.Array
    zero: jax_layers.Array
    above: jax_layers.Array
    below: jax_layers.Array
    position_index: jax_layers.Array
    theta_i: jax_layers.Array
    theta_j: jax_layers.Array
    theta_minus_j: jax_layers.Array
    eps_plus: jax_layers.Array
    eps_minus: jax_layers.Array


@lru_cache(maxsize=64)
def compiled_em_step(settings: StepSettings, optimiser: jax_layers.Optimiser) -> Callable[..., Any]:
    """A step, compiled per shape: the next (params, state, tables), and the sums of `_sums`."""
    jax = jax_layers.jax_modules().jax
    direction = optimiser.direction()

    def step(
        params: jax_layers.Params,
        state: jax_layers.Params,
        tables: TrustTables,
        rate: jax_layers.Array,
        em_rate: jax_layers.Array,
        key: jax_layers.Array,
        batch: Batch,
        constants: Batch,
    ) -> tuple[jax_layers.Params, jax_layers.Params, TrustTables, jax_layers.Array]:
        whole = {**constants, **batch}
        (_, (tables, sums)), gradient = jax.value_and_grad(em_loss, argnums=1, has_aux=True)(
            settings, params, tables, whole, key, em_rate
        )
        update, state = direction.update(gradient, state, params)
        return jax.tree.map(lambda p, u: p - rate * u, params, update), state, tables, sums

    return jax.jit(step)


def em_loss(
    settings: StepSettings,
    params: jax_layers.Params,
    tables: TrustTables,
    batch: Batch,
    key: jax_layers.Array,
    em_rate: Any,
) -> tuple[jax_layers.Array, tuple[TrustTables, jax_layers.Array]]:
    """The three networks' losses per session, summed; the next tables; the sums of `_sums`."""
    jax, jnp, _ = jax_layers.jax_modules()
    x = batch["features"][batch["row"]]
    b, s = (
        jax_layers.apply_layers(params[part], x, settings.activation)[..., 0]
        for part in ("beta", "ranker")
    )
    d = logits_of_lists(params["gamma"], params["tie"], x, settings.preference, settings.activation)
    seen = _observed(batch, tables)
    stop = jax.lax.stop_gradient
    gamma, beta = (stop(jnp.clip(jax.nn.sigmoid(z), _FLOOR, 1 - _FLOOR)) for z in (d, b))
    given = (seen.theta_i, seen.theta_j, seen.eps_plus, seen.eps_minus, gamma, beta[:, :, None])
    yes, no = model.posterior_above(*given), model.posterior_not_above(*given)
    item = model.posterior_zero(tables.theta[seen.position_index], beta)
    keys = jax.random.split(key, 3)
    draw = _draw if settings.sampled else _expect
    preferred = draw(keys[0], seen.above, model.preference(yes, gamma))
    preferred += draw(keys[1], seen.below, model.preference(no, gamma))
    relevant = seen.positive + draw(keys[2], seen.zero, item.relevant)
    pair_loss = _cross_entropy(d, preferred, seen.above + seen.below)
    item_loss = _cross_entropy(b, relevant, seen.positive + seen.zero)
    weight = _pair_weight(settings, seen, gamma, beta[:, :, None], batch, stop(s))
    rank_loss = jnp.sum(weight * trust_model.logistic_loss(s[:, :, None] - s[:, None, :], jnp))
    sessions = batch["scale"] * batch["sessions"].shape[0]
    squares = sum(jax_layers.sum_of_squares(params[p]) for p in ("gamma", "beta", "ranker"))
    penalty = batch["l2"] / 2 * squares
    following = _next_tables(settings, tables, seen, yes, no, item, em_rate)
    sums = _sums(seen, given, tables.theta[seen.position_index] * beta, rank_loss)
    return (pair_loss + item_loss + rank_loss) / sessions + penalty, (following, sums)


def _observed(batch: Batch, tables: TrustTables) -> _Observed:
    jnp = jax_layers.jax_modules().numpy
    mask, k, n = batch["mask"], batch["position_index"], batch["sessions"][:, None]
    positive = batch["positive"] * mask
    pair = mask[:, :, None] * mask[:, None, :] * (1 - jnp.eye(mask.shape[1]))
    above = batch["above_positive"] + batch["above_zero"]
    i, j = k[:, :, None], k[:, None, :]
    return _Observed(
        positive=positive,
        zero=n * mask - positive,
        above=above,
        below=pair * n[:, :, None] - above,
        position_index=k,
        theta_i=tables.theta[i],
        theta_j=tables.theta[j],
        theta_minus_j=tables.theta_minus[j],
        eps_plus=tables.eps_plus[i, j],
        eps_minus=tables.eps_minus[i, j],
    )


def _pair_weight(
    settings: StepSettings,
    seen: _Observed,
    gamma: jax_layers.Array,
    beta_i: jax_layers.Array,
    batch: Batch,
    scores: Any,
) -> jax_layers.Array:
    """w_ij of the loss, summed over the sessions of the slate."""
    jnp = jax_layers.jax_modules().numpy
    positive, zero = trust_model.pair_weights(
        seen.theta_i, seen.theta_j, seen.theta_minus_j, seen.eps_plus, seen.eps_minus,
        gamma, beta_i, clip=settings.clip,
    )  # fmt: skip
    if settings.loss != "opt":
        return positive * batch["above_positive"] + zero * batch["above_zero"]
    gain = positive * batch["gain_positive"] + zero * batch["gain_zero"]
    return gain * trust_model.rank_change(scores, batch["mask"] > 0, jnp)


def _next_tables(
    settings: StepSettings,
    tables: TrustTables,
    seen: _Observed,
    yes: model.PairPosterior,
    no: model.PairPosterior,
    item: model.ItemPosterior,
    em_rate: jax_layers.Array,
) -> TrustTables:
    """Equation 20 for every table; an entry without sessions in the batch stays."""
    jnp = jax_layers.jax_modules().numpy
    k = seen.position_index

    def by_position(values: jax_layers.Array) -> jax_layers.Array:
        return jnp.zeros_like(tables.theta).at[k].add(values)

    def by_pair(values: jax_layers.Array) -> jax_layers.Array:
        return jnp.zeros_like(tables.eps_plus).at[k[:, :, None], k[:, None, :]].add(values)

    def towards(
        old: jax_layers.Array, part: jax_layers.Array, whole: jax_layers.Array
    ) -> jax_layers.Array:
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
    seen: _Observed,
    given: tuple[jax_layers.Array, ...],
    chance: jax_layers.Array,
    rank_loss: jax_layers.Array,
) -> jax_layers.Array:
    """(log-likelihood of documents, of pairs, the ranker's loss), summed over the batch."""
    jnp = jax_layers.jax_modules().numpy
    p = jnp.clip(model.above(*given), 1e-7, 1 - 1e-7)
    chance = jnp.clip(chance, 1e-7, 1 - 1e-7)
    items = jnp.sum(seen.positive * jnp.log(chance) + seen.zero * jnp.log1p(-chance))
    pairs = jnp.sum(seen.above * jnp.log(p) + seen.below * jnp.log1p(-p))
    return jnp.stack([items, pairs, rank_loss])


def _cross_entropy(
    z: jax_layers.Array, successes: jax_layers.Array, trials: jax_layers.Array
) -> jax_layers.Array:
    jnp = jax_layers.jax_modules().numpy
    return jnp.sum(
        successes * trust_model.logistic_loss(z, jnp)
        + (trials - successes) * trust_model.logistic_loss(-z, jnp)
    )


def _expect(_: jax_layers.Array, n: jax_layers.Array, p: jax_layers.Array) -> jax_layers.Array:
    return n * p


def _draw(key: jax_layers.Array, n: jax_layers.Array, p: jax_layers.Array) -> jax_layers.Array:
    """One coin per session: a binomial of the sessions that are alike."""
    return jax_layers.jax_modules().jax.random.binomial(key, n, p)
