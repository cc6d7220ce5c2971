r"""Bounded exploration: a few sessions see two documents exchanged, or a shuffled top.

Which *arm* a session gets is a keyed hash of its id, so that it depends on nothing else, a page
that is loaded again shows the same order, and several servers agree:

    u = BLAKE2b(salt, session) / 2^64,    arm a where u falls into its part of [0, 1)

A list takes part only where all arms together are expected to lose no more than the cap,

    sum_a p_a loss_a <= cap,    loss of a swap of a and b = (theta_a - theta_b) (gamma_a - gamma_b)

clicks a session under the position-based model. Whether it takes part depends on the list and never
on the arm that was drawn: among lists that take part, arms stay random with known probabilities.
Their `ranker` is "swap:2-3", "shuffle-top-3" or "base", which `collect` writes with the exploration
behind it ("base@pivot:0.02:10"); all other lists are "production".
"""

from dataclasses import dataclass
from hashlib import blake2b
from math import isfinite

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.experiments.assignment import BASE, SHUFFLE
from untilt.data.read.columns import PRODUCTION
from untilt.errors import OptionError, did_you_mean

OFF = "off"
DEPTH = 10  # positions that swaps reach where nothing else is asked for
_SWAP_ADJACENT, _PIVOT, _SWAPS = "swap-adjacent", "pivot", "swaps"
_KINDS = (_PIVOT, _SWAP_ADJACENT, "shuffle-top-3", _SWAPS, OFF)
_HOW = (
    "Give pivot:0.02, swap-adjacent:0.05 (both down to position 10; pivot:0.02:5 to position 5), "
    "shuffle-top-3:0.01, pairs with separate probabilities as in swaps:1-2=0.02,1-3=0.01, or off."
)


@dataclass(frozen=True)
class Arm:
    """One intervention: the positions that it touches, how often it is drawn, its name in a log.

    swap : the two positions, or None for a shuffle of the first `top`
    """

    name: str
    probability: float
    swap: tuple[int, int] | None = None
    top: int = 0

    @property
    def reach(self) -> int:
        """How many documents a list must show for this arm."""
        return self.swap[1] if self.swap else 2

    def lost(self, theta: FloatArray | None, gamma: FloatArray | None) -> float:
        """Clicks that a session in this arm loses; the most possible where a part is unknown.

        theta, gamma : (shown,) examination by position and relevance in the order of the ranker,
            both between 0 and 1
        """
        if self.swap:
            i, j = self.swap[0] - 1, self.swap[1] - 1
            fall = 1.0 if theta is None else abs(float(theta[i] - theta[j]))
            if theta is None or gamma is None:
                return fall
            return max(0.0, float((theta[i] - theta[j]) * (gamma[i] - gamma[j])))
        if theta is None:
            # The first j positions are read and the first j documents relevant, for the worst j.
            return max(j * (1 - j / self.top) for j in range(1, self.top))
        t = theta[: self.top]
        if gamma is None:
            return float(np.max(np.cumsum(t) - np.arange(1, len(t) + 1) * t.mean()))
        g = gamma[: self.top]
        return max(0.0, float(t @ (g - g.mean())))


@dataclass(frozen=True)
class Drawn:
    """What a list shows: `order` (indices into the order of the ranker), arm and probability."""

    ranker: str
    probability: float
    order: tuple[int, ...] | None = None


NOT_DRAWN = Drawn(PRODUCTION, 1.0)
INTERLEAVED = Drawn("interleaved", 1.0)


@dataclass(frozen=True)
class Exploration:
    """The arms of an experiment and the salt of its hash.

    text : as it was asked for, in full; stands in the log, where `collect` checks the shares
    most_lost : clicks a session that exploration may be expected to cost a list; None for no cap
    """

    text: str
    arms: tuple[Arm, ...]
    salt: bytes = b""
    most_lost: float | None = None

    def __bool__(self) -> bool:
        return bool(self.arms)

    def cost(
        self, n_shown: int, theta: FloatArray | None = None, gamma: FloatArray | None = None
    ) -> float:
        """Expected loss of a list in clicks a session: sum of p_a loss_a over its arms."""
        arms = (arm for arm in self.arms if arm.reach <= n_shown)
        return sum(arm.probability * arm.lost(theta, gamma) for arm in arms)

    def is_affordable(
        self, n_shown: int, theta: FloatArray | None = None, gamma: FloatArray | None = None
    ) -> bool:
        """Whether a list may take part."""
        return self.most_lost is None or self.cost(n_shown, theta, gamma) <= self.most_lost

    def shares(self, n_shown: int) -> dict[str, float]:
        """Name -> probability for lists that show so many documents, "base" among them."""
        shares = {arm.name: arm.probability for arm in self.arms if arm.reach <= n_shown}
        return {**shares, BASE: 1.0 - sum(shares.values())}

    def draw(self, session: str, n_shown: int) -> Drawn:
        """The arm of this session, for a list that takes part and shows so many documents."""
        u = uniform(self.salt, b"arm", session)
        for arm in self.arms:
            u -= arm.probability
            if u < 0 and arm.reach <= n_shown:
                return Drawn(arm.name, arm.probability, self._order(arm, session, n_shown))
            if u < 0:
                break
        return Drawn(BASE, self.shares(n_shown)[BASE])

    def _order(self, arm: Arm, session: str, n_shown: int) -> tuple[int, ...]:
        order = list(range(n_shown))
        if arm.swap:
            i, j = arm.swap[0] - 1, arm.swap[1] - 1
            order[i], order[j] = order[j], order[i]
        else:
            n = min(arm.top, n_shown)
            # By a hash of each place: every order is as likely.
            order[:n] = sorted(
                range(n), key=lambda i: uniform(self.salt, b"order", f"{i}\x00{session}")
            )
        return tuple(order)


def parse_exploration(text: str, *, salt: str = "", most_lost: float | None = None) -> Exploration:
    """From an option such as "swap-adjacent:0.05"; `most_lost` is the cap, clicks a session.

    >>> parse_exploration("pivot:0.02:3").arms[1]
    Arm(name='swap:1-3', probability=0.01, swap=(1, 3), top=0)
    """
    if most_lost is not None and not (isfinite(most_lost) and most_lost >= 0):
        raise OptionError(
            "the largest loss of exploration must be a number of clicks per session, at least 0. "
            f"Got {most_lost} instead."
        )
    key = salt.encode()
    if len(key) > blake2b.MAX_KEY_SIZE:
        key = blake2b(key, digest_size=32).digest()
    kind, _, rest = text.strip().partition(":")
    full, arms = _parsed(text, kind, rest)
    if sum(arm.probability for arm in arms) > 0.5 + 1e-9:
        raise OptionError(
            "exploration may change at most half of the sessions: the others are needed for "
            f"comparison. Got {text!r}."
        )
    return Exploration(full, arms, key, most_lost)


def _parsed(text: str, kind: str, rest: str) -> tuple[str, tuple[Arm, ...]]:
    if kind == OFF and not rest:
        return OFF, ()
    if kind == _SWAPS:
        return text, tuple(_given_swap(text, part) for part in rest.split(","))
    share_text, _, depth_text = rest.partition(":")
    share = _share(text, share_text)
    if kind.startswith(f"{SHUFFLE}-top-") and not depth_text:
        top = _whole(text, kind.removeprefix(f"{SHUFFLE}-top-"), least=2, most=20)
        return f"{SHUFFLE}-top-{top}:{share}", (Arm(f"{SHUFFLE}-top-{top}", share, None, top),)
    depth = _whole(text, depth_text, least=2, most=100) if depth_text else DEPTH
    if kind == _SWAP_ADJACENT:
        pairs = [(k, k + 1) for k in range(1, depth)]
    elif kind == _PIVOT:
        pairs = [(1, k) for k in range(2, depth + 1)]
    else:
        raise OptionError(f"{text!r} is no exploration.{did_you_mean(kind, _KINDS)} {_HOW}")
    each = share / len(pairs)
    return f"{kind}:{share}:{depth}", tuple(Arm(f"swap:{a}-{b}", each, (a, b)) for a, b in pairs)


def _given_swap(text: str, part: str) -> Arm:
    pair, _, share = part.partition("=")
    upper, _, lower = pair.partition("-")
    a = _whole(text, upper, least=1, most=1000)
    b = _whole(text, lower, least=a + 1, most=1000)
    return Arm(f"swap:{a}-{b}", _share(text, share), (a, b))


def _share(text: str, share: str) -> float:
    try:
        value = float(share)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise OptionError(
            f"{text!r} lacks the share of the sessions to explore with, a number between 0 and 1. "
            f"{_HOW}"
        )
    return value


def _whole(text: str, number: str, *, least: int, most: int) -> int:
    if not (number.isascii() and number.isdigit() and least <= int(number) <= most):
        raise OptionError(
            f"{number!r} in {text!r} must be a whole number from {least} to {most}. {_HOW}"
        )
    return int(number)


# Hashes.


def uniform(salt: bytes, what: bytes, session: str) -> float:
    """A number in [0, 1) that depends on these three alone."""
    return hash_of(salt, what, session) / 2.0**64


def hash_of(salt: bytes, what: bytes, text: str) -> int:
    """64 bits that depend on these three alone."""
    digest = blake2b(text.encode(), digest_size=8, key=salt, person=what).digest()
    return int.from_bytes(digest, "little")


# What a list would lose.


@dataclass(frozen=True, eq=False)
class Relevance:
    """Score -> gamma: clicks per examination, made monotone (isotonic regression on a log).

    scores, gamma : the corners; between them straight lines, beyond them constant
    """

    scores: FloatArray
    gamma: FloatArray

    def of(self, scores: FloatArray) -> FloatArray:
        """Gamma of each score."""
        return np.interp(scores, self.scores, self.gamma)


def fit_relevance(
    scores: FloatArray, clicks: FloatArray, theta: FloatArray, count: FloatArray
) -> Relevance:
    """gamma(s) non-decreasing in s, by the Poisson likelihood of clicks ~ theta gamma(s).

    That is isotonic regression of clicks / theta with weights theta. Each array: one entry per
    impression; theta at its position, count the sessions that it stands for.
    """
    from scipy.optimize import isotonic_regression

    seen = theta > 0
    weights = (theta * count)[seen]
    score, place = np.unique(scores[seen], return_inverse=True)
    weight = np.bincount(place, weights)
    mean = np.bincount(place, weights * clicks[seen] / theta[seen]) / weight
    gamma = isotonic_regression(mean, weights=weight).x
    corner = np.ones(len(gamma), dtype=bool)  # what is no end of a flat stretch says nothing
    corner[1:-1] = (gamma[1:-1] != gamma[:-2]) | (gamma[1:-1] != gamma[2:])
    return Relevance(score[corner].astype(float), gamma[corner])
