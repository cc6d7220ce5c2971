"""Hashes of 64-bit words modulo 2^64, for arrays; `nb.njit` makes the same of them for kernels."""

import numpy as np

from untilt._core.arrays import AnyArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, the step of splitmix64
MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def splitmix64(word: AnyArray) -> AnyArray:
    """The finaliser of splitmix64: each bit of the word changes half of the result's bits.

    No two words have the same result.
    """
    word = (word ^ (word >> np.uint64(30))) * MULTIPLIER
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    return word ^ (word >> np.uint64(31))


def multiply_shift(word: AnyArray) -> AnyArray:
    """A cheaper hash of two multiplications, for what is compared afterwards."""
    word = word * GOLDEN
    word = (word ^ (word >> np.uint64(29))) * MULTIPLIER
    return word ^ (word >> np.uint64(32))
