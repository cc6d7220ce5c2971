"""What a session shows: a table of variants, one of which each session draws."""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class Page:
    """What a protocol may know of the lists: places of the longest one, and who can make them."""

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
    swap : (V, 2) the two 1-based positions that change places, 0 for none
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
