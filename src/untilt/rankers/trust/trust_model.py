r"""Pairwise trust bias: who was examined, who is preferred, given two labels ([ren2021pairwise]_).

Two documents i and j stand at two positions. Each is examined independently, with probability
theta_i and theta_j; i is the more relevant one with probability gamma; i is relevant at all with
probability beta_i. Then (equations 9, 12 to 14)

    both examined      c_i > c_j with probability eps+ if i is preferred, else eps-
    i alone examined   c_i > c_j where i is relevant: beta_i
    i not examined     never

    P(c_i > c_j) = theta_i theta_j (eps+ gamma + eps- (1 - gamma)) + theta_i (1 - theta_j) beta_i

eps+ and eps- belong to the pair of positions. The two orders of a pair are two observations: one of
(i, j), one of (j, i). Preference and relevance are hidden variables of their own, independent given
the documents, as the document's formulas have it.

Every function is plain arithmetic on arrays that broadcast, so NumPy and JAX both run it.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray, frozen
from untilt._core.random import Seed
from untilt.bias.curve import GIVEN, NO_INTERVAL_LEARNED, PositionBias
from untilt.catalog import storable
from untilt.errors import ShapeError, check_choice
from untilt.facts import Fact, as_fact, joined, note
from untilt.networks import mlp
from untilt.networks.mlp import Network

LABELS_POSITION_BASED = note(
    "bias.labels-position-based", "labels above 0 follow the position-based model"
)()
FEATURES_IDENTIFY = note(
    "bias.features-identify", "the features separate relevance from position"
)()

Values = Any  # a number or an array, of NumPy or of JAX

LOSSES = ("opt", "bayes-ipw", "ipw", "naive")


class PairParameters(NamedTuple):
    """Of one ordered pair, as the module has them."""

    theta_i: Values
    theta_j: Values
    eps_plus: Values
    eps_minus: Values
    gamma: Values
    beta_i: Values


class PairPosterior(NamedTuple):
    """What is hidden behind the labels of one ordered pair; the five parts sum to 1.

    Parameters
    ----------
    preferred : both examined, r_i > r_j
    not_preferred : both examined, r_i <= r_j
    alone_relevant : i alone examined, r_i > 0
    alone_irrelevant : i alone examined, r_i <= 0
    unexamined : i not examined
    """

    preferred: Values
    not_preferred: Values
    alone_relevant: Values
    alone_irrelevant: Values
    unexamined: Values


class ItemPosterior(NamedTuple):
    """What is hidden behind the label of one document; the four parts sum to 1."""

    examined_relevant: Values
    examined_irrelevant: Values
    unexamined_relevant: Values
    unexamined_irrelevant: Values

    @property
    def examined(self) -> Values:
        """P(e = 1)."""
        return self.examined_relevant + self.examined_irrelevant

    @property
    def relevant(self) -> Values:
        """P(r > 0)."""
        return self.examined_relevant + self.unexamined_relevant


def above_if_examined(eps_plus: Values, eps_minus: Values, gamma: Values) -> Values:
    """P(c_i > c_j | both examined) = eps+ gamma + eps- (1 - gamma)."""
    return eps_plus * gamma + eps_minus * (1 - gamma)


def above(pair: PairParameters) -> Values:
    """P(c_i > c_j), equation 14."""
    theta_i, theta_j, eps_plus, eps_minus, gamma, beta_i = pair
    both = theta_i * theta_j * above_if_examined(eps_plus, eps_minus, gamma)
    return both + theta_i * (1 - theta_j) * beta_i


def posterior_above(pair: PairParameters) -> PairPosterior:
    """Given c_i > c_j: lines 1, 2, 3 and 6 of Figure 1.

    >>> seen = posterior_above(PairParameters(1.0, 0.5, 0.8, 0.2, 0.5, 0.5))
    >>> round(seen.preferred, 3), round(seen.not_preferred, 3), round(seen.alone_relevant, 3)
    (0.4, 0.1, 0.5)
    """
    theta_i, theta_j, eps_plus, eps_minus, gamma, beta_i = pair
    preferred = theta_i * theta_j * eps_plus * gamma
    not_preferred = theta_i * theta_j * eps_minus * (1 - gamma)
    alone = theta_i * (1 - theta_j) * beta_i
    p = preferred + not_preferred + alone
    nothing = 0 * p
    return PairPosterior(preferred / p, not_preferred / p, alone / p, nothing, nothing)


def posterior_not_above(pair: PairParameters) -> PairPosterior:
    """Given c_i <= c_j: lines 4 and 5 of Figure 1, and what they leave over."""
    theta_i, theta_j, eps_plus, eps_minus, gamma, beta_i = pair
    p = 1 - above(pair)
    return PairPosterior(
        preferred=theta_i * theta_j * (1 - eps_plus) * gamma / p,
        not_preferred=theta_i * theta_j * (1 - eps_minus) * (1 - gamma) / p,
        alone_relevant=0 * p,
        alone_irrelevant=theta_i * (1 - theta_j) * (1 - beta_i) / p,
        unexamined=(1 - theta_i) / p,
    )


def preference(posterior: PairPosterior, gamma: Values) -> Values:
    """P(r_i > r_j | labels): where one was not examined, the labels say nothing new of it."""
    seen = posterior.preferred + posterior.not_preferred
    return posterior.preferred + (1 - seen) * gamma


def posterior_zero(theta: Values, beta: Values) -> ItemPosterior:
    """Given c = 0: the last lines of Figure 1. Given c > 0 it was examined and is relevant."""
    p = 1 - theta * beta
    return ItemPosterior(
        examined_relevant=0 * p,
        examined_irrelevant=theta * (1 - beta) / p,
        unexamined_relevant=(1 - theta) * beta / p,
        unexamined_irrelevant=(1 - theta) * (1 - beta) / p,
    )


def trusted(eps_plus: Values, eps_minus: Values, gamma: Values) -> Values:
    """m_ij = P(r_i > r_j | c_i > c_j, both examined), equation 15."""
    return eps_plus * gamma / above_if_examined(eps_plus, eps_minus, gamma)


def examined_zero(
    theta_minus_j: Values, eps_plus: Values, eps_minus: Values, gamma: Values, beta_i: Values
) -> Values:
    """h_ij = P(e_j = 1 | c_i > c_j, c_j = 0), equation 17; theta_i cancels.

    As the document has it: theta-_j is the mean over documents at j's position, and the order given
    that both are examined is taken as if c_j = 0 were not known. The exact posterior of clicks that
    follow the position-based model is larger (.255, not .215, at theta_j .3, relevance .7 and .2).
    """
    both = theta_minus_j * above_if_examined(eps_plus, eps_minus, gamma)
    return both / (both + (1 - theta_minus_j) * beta_i)


def pair_weights(
    pair: PairParameters, theta_minus_j: Values, *, clip: float = 0.0
) -> tuple[Values, Values]:
    """(weight where c_j > 0, weight where c_j = 0), without |dZ|, of the pair losses.

    loss = sum over c_i > c_j of w_ij log(1 + exp(-(s_i - s_j))), with the weights

                    c_j > 0                            c_j = 0
        ipw         1 / (theta_i theta_j)              h_ij / (theta_i theta_j)               eq. 11
        bayes-ipw   m_ij / (theta_i theta_j)           m_ij h_ij / (theta_i theta_j)          eq. 16
        opt         m_ij |dZ_ij| / (theta_i theta_j)   m_ij h_ij |dZ_ij| / (theta_i theta_j)  eq. 18

    `ipw` is the case eps+ = 1, eps- = 0 of `bayes-ipw`: then m_ij = 1 and h_ij depends on gamma.
    `clip` is the smallest theta_i theta_j that is divided by.
    """
    theta_i, theta_j, eps_plus, eps_minus, gamma, beta_i = pair
    product = theta_i * theta_j
    inverse = 1 / (product * (product >= clip) + clip * (product < clip))
    positive = trusted(eps_plus, eps_minus, gamma) * inverse
    return positive, positive * examined_zero(theta_minus_j, eps_plus, eps_minus, gamma, beta_i)


def logistic_loss(difference: Values, xp: Values = np) -> Values:
    """log(1 + exp(-d)), without overflow; `xp` is numpy or jax.numpy."""
    return xp.logaddexp(0.0, -difference)


def rank_change(scores: Values, mask: Values, xp: Values = np) -> Values:
    """|1 / log2(1 + rank_i) - 1 / log2(1 + rank_j)| of documents ranked by score, (..., K, K).

    Times (gain_i - gain_j) / idealDCG it is |dZ_ij|, the change of NDCG when i and j swap. Equal
    scores are ranked in their order in the list; masked places rank last and count nothing.
    """
    s = xp.where(mask, scores, -xp.inf)
    earlier = xp.arange(s.shape[-1])[None, :] < xp.arange(s.shape[-1])[:, None]
    higher = (s[..., None, :] > s[..., :, None]) | ((s[..., None, :] == s[..., :, None]) & earlier)
    discount = 1 / xp.log2(2.0 + higher.sum(axis=-1))
    return xp.abs(discount[..., :, None] - discount[..., None, :])


@storable
@dataclass(frozen=True, eq=False, repr=False)
class PairTrust:
    """Examination and trust bias by position ([ren2021pairwise]_); row and column k - 1 is k.

    Parameters
    ----------
    examination : (K,) theta_k = P(examined at k)
    examination_zero : (K,) theta-_k = P(examined at k | label 0)
    eps_plus, eps_minus : (K, K) [k, l] = P(c_i > c_j | both examined, i at k, j at l), where i is
        the more relevant one, and where it is not
    status : how the fit ended
    """

    examination: FloatArray
    examination_zero: FloatArray
    eps_plus: FloatArray
    eps_minus: FloatArray
    status: Fact = field(default_factory=lambda: GIVEN)

    def __post_init__(self) -> None:
        for name in ("examination", "examination_zero", "eps_plus", "eps_minus"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))
        object.__setattr__(self, "status", as_fact(self.status))  # older files hold the sentence

    @property
    def depth(self) -> int:
        """The lowest position, K."""
        return len(self.examination)

    def to_bias(self) -> PositionBias:
        """Examination relative to position 1, the only part that labels alone tell for sure.

        Trust bias of pairs is no trust bias of positions, so `eps_plus` and `eps_minus` stay empty.
        """
        return PositionBias(
            self.examination / self.examination[0],
            method="PairwiseTrustRanker",
            assumes=(LABELS_POSITION_BASED, FEATURES_IDENTIFY),
            status=joined(self.status, NO_INTERVAL_LEARNED),
            estimated=True,
        )

    def __repr__(self) -> str:
        k = self.depth
        off = ~np.eye(k, dtype=bool) if k > 1 else np.ones((k, k), dtype=bool)
        lines = [f"PairTrust of positions 1..{k} ({self.status})"]
        for name, table in (("eps+", self.eps_plus), ("eps-", self.eps_minus)):
            lines.append(f"  {name} {table[off].min():.3f} to {table[off].max():.3f}")
        for at in range(k):
            theta, minus = self.examination[at], self.examination_zero[at]
            lines.append(f"  {at + 1:>3}  theta {theta:.4f}  theta- {minus:.4f}")
        return "\n".join(lines)


@dataclass(frozen=True)
class TrustStart:
    """Where EM starts. Of equally good answers the start decides which one EM ends at."""

    theta: float = 0.9
    eps_plus: float = 0.95
    eps_minus: float = 0.05


@storable
@dataclass(frozen=True)
class TrustEpoch:
    """One pass over the log: log-likelihoods and ranking loss, per session."""

    item_likelihood: float
    pair_likelihood: float
    ranking_loss: float


# Preference gamma_ij = P(r_i > r_j | x_i, x_j) as a function of the features of two documents.
#
#     "scores"   z_ij = g(x_i) - g(x_j)              g a network on one document
#     "pairs"    z_ij = f(x_i, x_j) - f(x_j, x_i)    f a network on both ([ren2021pairwise]_)
#     gamma_ij = sigmoid(z_ij - tie)
#
# Of three documents, "scores" cannot prefer the first to the second, the second to the third and
# the third to the first; "pairs" can. The document leaves its network free; here z_ij = -z_ji, and
# with "pairs" tie >= 0, so that r_i > r_j, r_i < r_j and a tie are three cases whose probabilities
# gamma_ij, gamma_ji and 1 - gamma_ij - gamma_ji are never negative.
#
# Preferences may go in circles, and then no order agrees with all of them. Documents are ranked by
# the score of the ranker, never by gamma, as in the document: gamma only weighs the ranker's pairs.

PREFERENCES = ("scores", "pairs")
_FIRST_TIE = -2.0  # softplus of it is 0.13: of two alike documents one is preferred in 94%


def start_preference(
    seed: Seed, n_features: int, widths: tuple[int, ...], *, form: str, activation: str
) -> dict[str, mlp.Params]:
    """{"layers", "tie"} before the first step."""
    inputs = 2 * n_features if form == "pairs" else n_features
    layers = mlp.start_layers(seed, (inputs, *widths, 1), activation=activation)
    tie = _FIRST_TIE if form == "pairs" else 0.0
    return {"layers": layers, "tie": np.asarray(tie, np.float32)}


def logits_of_lists(
    layers: mlp.Layers, tie: mlp.Array, x: mlp.Array, form: str, act: str
) -> mlp.Array:
    """z_ij - tie, (lists, K, K), of documents x (lists, K, d), by JAX."""
    jnp = mlp.jax_modules().numpy
    if form == "scores":
        g = mlp.apply_layers(layers, x, act)[..., 0]
        return g[:, :, None] - g[:, None, :] - tie
    first, second = _first_layer(layers, x)
    f = _rest(layers, first[:, :, None] + second[:, None, :], act)
    return f - jnp.swapaxes(f, 1, 2) - _at_least_0(tie)


def logits_of_cells(
    layers: mlp.Layers,
    tie: mlp.Array,
    x: mlp.Array,
    i: mlp.Array,
    j: mlp.Array,
    form: str,
    act: str,
) -> mlp.Array:
    """z - tie, (cells,), of pairs of rows i and j of x (rows, d), by JAX."""
    if form == "scores":
        g = mlp.apply_layers(layers, x, act)[:, 0]
        return g[i] - g[j] - tie
    first, second = _first_layer(layers, x)
    f = [_rest(layers, first[a] + second[b], act) for a, b in ((i, j), (j, i))]
    return f[0] - f[1] - _at_least_0(tie)


def _first_layer(layers: mlp.Layers, x: mlp.Array) -> tuple[mlp.Array, mlp.Array]:
    """What either document adds to the first layer: computed once a document, not once a pair."""
    w, d = layers["weights"][0], x.shape[-1]
    return x @ w[:d] + layers["biases"][0], x @ w[d:]


def _rest(layers: mlp.Layers, first: mlp.Array, act: str) -> mlp.Array:
    rest = {name: layers[name][1:] for name in ("weights", "biases")}
    if not rest["weights"]:
        return first[..., 0]
    hidden = mlp.jax_activation(act)(first)
    return mlp.apply_layers(rest, hidden, act)[..., 0]


def _at_least_0(tie: mlp.Array) -> mlp.Array:
    return mlp.jax_modules().jax.nn.softplus(tie)


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


def preference_of(
    params: mlp.Params,
    form: str,
    activation: str,
    *,
    mean: FloatArray,
    scale: FloatArray,
    transform: str = "none",
) -> PairPreference:
    """Trained {"layers", "tie"} in NumPy, with the normalisation of a document's features."""
    both = 2 if form == "pairs" else 1
    network = mlp.to_network(
        params["layers"],
        activation,
        mean=np.tile(mean, both),
        scale=np.tile(scale, both),
        transform=transform,
    )
    tie = float(params["tie"])
    return PairPreference(form, network, float(np.logaddexp(0, tie)) if form == "pairs" else tie)
