"""Tables of what sessions show and of what users do with it: all that the sampler needs."""

from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.special import ndtr

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, frozen
from untilt._core.portable import Portable
from untilt.bias.curve import affine_curves
from untilt.errors import OptionError


@dataclass(frozen=True, eq=False)
class DwellTimes:
    """Normal factors of the dwell time: delta by position (K,), omega by document (n,).

    Each factor is cut at 0, because time is not negative.
    """

    delta_mean: FloatArray
    delta_spread: FloatArray
    omega_mean: FloatArray
    omega_spread: FloatArray

    def __post_init__(self) -> None:
        _freeze_arrays(self)

    @property
    def delta(self) -> FloatArray:
        """(K,) the mean of delta, cut at 0."""
        return mean_above_zero(self.delta_mean, self.delta_spread)

    @property
    def omega(self) -> FloatArray:
        """(n,) the mean of omega, cut at 0."""
        return mean_above_zero(self.omega_mean, self.omega_spread)


@dataclass(frozen=True, eq=False)
class Stopping:
    """Reading from the top: stop when satisfied after a click (n,), else go on with probability."""

    satisfaction: FloatArray
    go_on: float

    def __post_init__(self) -> None:
        _freeze_arrays(self)


@dataclass(frozen=True, eq=False)
class Behaviour(Portable):
    """P(click at k) = theta_k (eps+_k gamma + eps-_k (1 - gamma)) if the reader got that far.

    Parameters
    ----------
    relevance : (n,) gamma of each document
    examination : (K,) theta; ones where a reader stops instead
    eps_plus, eps_minus : (K,) click noise, or None for 1 and 0
    stopping : how a reader stops (cascade), or None: positions are examined independently
    dwell : how long a click lasts, or None
    """

    relevance: FloatArray
    examination: FloatArray
    eps_plus: FloatArray | None = None
    eps_minus: FloatArray | None = None
    stopping: Stopping | None = None
    dwell: DwellTimes | None = None

    def __post_init__(self) -> None:
        _freeze_arrays(self)

    def affine(self) -> tuple[FloatArray, FloatArray]:
        """(alpha, beta) with P(click at k | got there) = alpha_k gamma + beta_k."""
        return affine_curves(self.examination, self.eps_plus, self.eps_minus)

    def of_documents(self, documents: IntArray) -> "Behaviour":
        """The tables of these documents alone, in this order."""
        stopping, dwell = self.stopping, self.dwell
        if stopping is not None:
            stopping = replace(stopping, satisfaction=stopping.satisfaction[documents])
        if dwell is not None:
            dwell = replace(
                dwell,
                omega_mean=dwell.omega_mean[documents],
                omega_spread=dwell.omega_spread[documents],
            )
        return replace(self, relevance=self.relevance[documents], stopping=stopping, dwell=dwell)

    def click_probability(self, document: IntArray, position: IntArray) -> FloatArray:
        """P(click) of the document at the 1-based position, whatever else is shown."""
        if self.stopping is not None:
            raise OptionError(
                "in a cascade a click depends on the documents above it, so a document and a "
                "position have no fixed click probability. Ask truth.click_probabilities"
                "(log): it knows the lists."
            )
        return self._if_reached(document, position)

    def click_probabilities(
        self, indptr: IntArray, document: IntArray, position: IntArray
    ) -> FloatArray:
        """(rows,) P(click) of every row of these lists, sorted by position."""
        return self.reached(indptr, document) * self._if_reached(document, position)

    def reached(self, indptr: IntArray, document: IntArray) -> FloatArray:
        """(rows,) probability that the reader gets to this row: 1 without `stopping`.

        In a cascade prod_{j above} go_on (1 - gamma_j phi_j).
        """
        reached = np.ones(len(document))
        if self.stopping is None:
            return reached
        gamma, phi = self.relevance[document], self.stopping.satisfaction[document]
        stays = self.stopping.go_on * (1 - gamma * phi)
        row_in_list = ragged.index_in_list(indptr)
        for k in range(1, int(row_in_list.max(initial=0)) + 1):
            rows = np.flatnonzero(row_in_list == k)
            reached[rows] = reached[rows - 1] * stays[rows - 1]
        return reached

    def _if_reached(self, document: IntArray, position: IntArray) -> FloatArray:
        alpha, beta = self.affine()
        k = np.asarray(position) - 1
        return alpha[k] * self.relevance[document] + beta[k]


def _freeze_arrays(tables: DwellTimes | Stopping | Behaviour) -> None:
    for each in fields(tables):
        value = getattr(tables, each.name)
        if isinstance(value, np.ndarray):
            object.__setattr__(tables, each.name, frozen(value, np.float64))


def mean_above_zero(mean: FloatArray, spread: FloatArray) -> FloatArray:
    """E max(0, N(m, s)) = m Phi(m/s) + s phi(m/s); max(0, m) where s is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = mean / spread
    cut = mean * ndtr(z) + spread * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return np.where(spread > 0, cut, np.maximum(mean, 0))


@dataclass(frozen=True)
class Page:
    """What a protocol may know of the lists: positions of the longest one, and who makes them."""

    depth: int
    rankers: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Display:
    """Variants of the shown list. A session draws one; where its list is too short, variant 0.

    Parameters
    ----------
    names : (V,) what the log calls them, as `ranker`
    probability : (V,)
    order : (V,) index of the production ranker whose order is shown
    swap : (V, 2) the two 1-based positions that are swapped, 0 for none
    shuffle : (V,) so many from the top are shuffled, 0 for none
    """

    names: tuple[str, ...]
    probability: FloatArray
    order: IntArray
    swap: IntArray
    shuffle: IntArray

    @classmethod
    def of_orders(cls, names: tuple[str, ...], probability: FloatArray) -> "Display":
        """Each ranker's own order, untouched."""
        n = len(names)
        none = np.zeros(n, dtype=np.int64)
        return cls(names, probability, np.arange(n), np.zeros((n, 2), dtype=np.int64), none)

    @classmethod
    def of_swaps(cls, pairs: list[tuple[int, int]], share: float) -> "Display":
        """The base order with probability 1 - share, else one of the swaps, all alike."""
        names = ("base", *(f"swap:{a}-{b}" for a, b in pairs))
        each = np.full(len(pairs), share / max(1, len(pairs)))
        none = np.zeros(len(names), dtype=np.int64)
        swap = np.array([(0, 0), *pairs], dtype=np.int64)
        return cls(names, np.concatenate([[1 - each.sum()], each]), none, swap, none)

    @classmethod
    def of_shuffle(cls, top: int, share: float) -> "Display":
        """The base order with probability 1 - share, else its top documents shuffled."""
        none = np.zeros(2, dtype=np.int64)
        swap = np.zeros((2, 2), dtype=np.int64)
        return cls(
            ("base", "shuffle"), np.array([1 - share, share]), none, swap, np.array([0, top])
        )
