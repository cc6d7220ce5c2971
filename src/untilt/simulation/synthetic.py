"""Learning-to-rank data made here: nonlinear relevance behind features of many kinds."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FeatureArray, FloatArray, IntArray
from untilt._core.random import Seed, child_generator
from untilt.data.judged import JudgedLists
from untilt.errors import check_least

FEWER_QUERIES = 10_000_000  # a set has fewer than so many: sets of other seeds share no id
N_FACTORS = 8  # hidden properties of a (query, document) pair
N_INTENTS = 2  # hidden properties of a query
SHORTEST_LIST = 5
GRADE_RATIO = 0.52  # each grade is about half as common as the one below it
UTILITY_SPREAD = 1.7  # standard deviation of the noiseless utility
REFERENCE_DOCUMENTS = 40_000  # sets a world's grade limits; quantiles then err by about 0.0025


def make_judged(
    n_queries: int = 2000,
    n_features: int = 50,
    *,
    seed: Seed = 0,
    world: int = 0,
    mean_docs: float = 24.0,
    noise: float = 0.35,
    grades: int = 5,
) -> JudgedLists:
    """Judged lists whose relevance a boosted tree can learn and a linear model only partly.

    Every (query, document) pair has eight hidden factors z, every query two hidden intents t and a
    level. The utility

        u = tanh, threshold, saturation, product and t-gated terms of z + level + noise * N(0, 1)

    is cut into grades at fixed limits. The features show single factors through noise and on
    different scales (plain, [0, 1], log-normal, counts, steps, hill-shaped); some show the intents
    only and are equal within a query, some show nothing.

    Sets with the same `world`, `n_features`, `noise` and `grades` are draws from one distribution,
    so a test set is either a part (`JudgedLists.split`) or a second call with another `seed`.

    Parameters
    ----------
    n_queries, n_features : sizes; at least 1 query and 4 features
    seed : draws queries and documents
    world : draws what the features show; another world is another ranking problem
    mean_docs : mean list length; lengths are skewed, at least 5, at most about 6 times the mean
    noise : the judges' error, in standard deviations of the noiseless utility
    grades : number of grades, 0..grades - 1; each about half as common as the one below

    >>> make_judged(n_queries=100, n_features=10).n_queries
    100
    """
    _check(n_queries, n_features, mean_docs, noise, grades)
    rules = _World.draw(world, n_features, noise, grades)
    rng = child_generator(seed, 0)
    indptr = ragged.indptr_of(_list_lengths(rng, n_queries, mean_docs))
    hidden = _Hidden.draw(rng, indptr)
    return JudgedLists(
        features=_show(rng, hidden, rules),
        labels=np.searchsorted(rules.limits, _judged_utility(rng, hidden, noise)).astype(float),
        indptr=indptr,
        query_id=np.arange(n_queries) + (seed * FEWER_QUERIES if isinstance(seed, int) else 0),
    )


@dataclass(frozen=True)
class _Hidden:
    """Factors z (n, N_FACTORS); the query's intents t (n, N_INTENTS) and level (n), row by row."""

    z: FeatureArray
    t: FeatureArray
    level: FeatureArray

    @classmethod
    def draw(cls, rng: np.random.Generator, indptr: IntArray) -> "_Hidden":
        n_queries, n = len(indptr) - 1, int(indptr[-1])
        owner = ragged.list_of_row(indptr)
        z: FeatureArray = rng.standard_normal((n, N_FACTORS), dtype=np.float32)
        # Candidates of one query are alike: a first stage has chosen them by these very factors.
        z = 0.9 * z + np.float32(0.44) * rng.standard_normal((n_queries, N_FACTORS))[owner]
        t = rng.random((n_queries, N_INTENTS), dtype=np.float32)[owner]
        level = 0.5 * rng.standard_normal(n_queries, dtype=np.float32)[owner]
        return cls(z.astype(np.float32), t, level)


@dataclass(frozen=True)
class _World:
    """What the features show, and where one grade ends and the next begins."""

    columns: tuple["_SyntheticColumn", ...]
    limits: FloatArray

    @classmethod
    def draw(cls, world: int, n_features: int, noise: float, grades: int) -> "_World":
        rng = child_generator(world, 1)
        columns = tuple(_SyntheticColumn.draw(rng, j) for j in range(n_features))
        single = np.arange(REFERENCE_DOCUMENTS + 1)  # one document per query: all levels, all z
        utility = _judged_utility(rng, _Hidden.draw(rng, single), noise)
        share = GRADE_RATIO ** np.arange(grades)
        return cls(columns, np.quantile(utility, np.cumsum(share / share.sum())[:-1]))


def _utility(hidden: _Hidden) -> FloatArray:
    """The noiseless utility. Its weights were set so that boosted trees, a linear model and a
    linear model on 1% of the labels lie clearly apart (docs/simulation.md has the figures).
    """
    z, t = hidden.z, hidden.t
    return (
        0.7 * np.tanh(2.0 * z[:, 0])  # saturates
        + 0.9 * np.maximum(z[:, 1] - 0.5, 0)  # counts only above a threshold
        + 1.0 * z[:, 2] * (z[:, 0] > 0.3)  # counts only where factor 0 is there
        + 3.0 * (t[:, 0] - 0.45) * z[:, 3]  # the query's intent turns it round
        - 1.0 * np.abs(z[:, 4])  # best in the middle
        + 0.9 * np.where(t[:, 1] > 0.5, z[:, 5], -0.6 * z[:, 5])  # by intent
        + 0.8 * z[:, 6] * np.tanh(z[:, 7])  # help only together
        + hidden.level
    )


def _judged_utility(rng: np.random.Generator, hidden: _Hidden, noise: float) -> FloatArray:
    utility = _utility(hidden)
    return utility + np.float32(noise * UTILITY_SPREAD) * rng.standard_normal(
        len(utility), dtype=np.float32
    )


Shape = Callable[[np.random.Generator, FeatureArray], FeatureArray | IntArray]

# x is a noisy view of one factor with mean 0 and standard deviation about 1.
_SHAPES: tuple[Shape, ...] = (
    lambda _, x: x,
    lambda _, x: 1 / (1 + np.exp(-1.7 * x)),
    lambda _, x: np.exp(0.9 * x),
    lambda rng, x: rng.poisson(np.exp(1.2 + 0.7 * x)),
    lambda _, x: np.floor(2 * x) / 2,
    lambda _, x: np.clip(x, -0.5, 1.5),
    lambda _, x: np.exp(-0.5 * (x - 0.4) ** 2),
)


@dataclass(frozen=True)
class _SyntheticColumn:
    """One feature: which hidden value it shows, how clearly, in which shape and on which scale."""

    source: int  # 0..7 a factor, 8.. an intent, -1 nothing
    clarity: float
    shape: int
    scale: float

    @classmethod
    def draw(cls, rng: np.random.Generator, j: int) -> "_SyntheticColumn":
        if j < N_FACTORS + N_INTENTS:
            # The first columns show every hidden value once, so that no set misses one of them.
            source, clarity = j, rng.uniform(0.8, 0.97)
        else:
            views = (int(rng.integers(N_FACTORS)), N_FACTORS + int(rng.integers(N_INTENTS)), -1)
            source = views[rng.choice(3, p=[0.6, 0.1, 0.3])]
            clarity = rng.uniform(0.2, 0.8)
        # Shapes 0 and 1 keep all that a main view shows; an intent must stay equal within a query.
        n_shapes = 2 if j < N_FACTORS else 3 if source >= N_FACTORS else len(_SHAPES)
        scale = 10 ** rng.uniform(-1, 2) if rng.random() < 0.5 else 1.0
        return cls(int(source), float(clarity), int(rng.integers(n_shapes)), float(scale))

    def values(self, rng: np.random.Generator, hidden: _Hidden) -> FeatureArray:
        own = rng.standard_normal(len(hidden.z), dtype=np.float32)
        if self.source < 0:
            shown: FeatureArray = own
        elif self.source >= N_FACTORS:
            shown = 3.0 * (hidden.t[:, self.source - N_FACTORS] - 0.5)  # no noise: query-wide
        else:
            c = np.float32(self.clarity)
            shown = c * hidden.z[:, self.source] + np.sqrt(1 - c**2) * own
        return self.scale * _SHAPES[self.shape](rng, shown)


def _show(rng: np.random.Generator, hidden: _Hidden, rules: _World) -> FeatureArray:
    features = np.empty((len(hidden.z), len(rules.columns)), dtype=np.float32)
    for j, column in enumerate(rules.columns):
        features[:, j] = column.values(rng, hidden)
    return features


def _list_lengths(rng: np.random.Generator, n_queries: int, mean_docs: float) -> IntArray:
    """5 + a log-normal of mean mean_docs - 5; cut at six means, where 0.5% of its mass lies."""
    sigma = 0.7
    mu = np.log(max(mean_docs - SHORTEST_LIST, 0.5)) - sigma**2 / 2
    lengths = SHORTEST_LIST + np.round(rng.lognormal(mu, sigma, n_queries))
    return np.minimum(lengths, round(6 * mean_docs)).astype(np.int64)


def _check(n_queries: int, n_features: int, mean_docs: float, noise: float, grades: int) -> None:
    for what, value, least in (
        ("n_queries", n_queries, 1),
        ("n_features", n_features, 4),
        ("mean_docs", mean_docs, SHORTEST_LIST),
        ("noise", noise, 0),
        ("grades", grades, 2),
    ):
        check_least(what, value, least)
