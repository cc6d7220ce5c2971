"""Random numbers by counter: each is a hash of (key, session, number of the draw).

No draw depends on another one, so threads, chunks and the order of work change nothing, and any
session can be made again by itself. The hash is the finaliser of splitmix64; a session's draws are
one splitmix64 stream that starts at a hashed place.
"""

import numba as nb
import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, the step of splitmix64
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)

# Draws of a session as a whole, then eight for each place of its list.
QUERY, VARIANT = 0, 1
DRAWS_PER_PLACE = 8
CLICK, SATISFIED, GO_ON, SHUFFLE, RADIUS, ANGLE = 0, 1, 2, 3, 4, 5


@nb.njit(cache=True)
def mixed(word: np.uint64) -> np.uint64:
    """The finaliser of splitmix64: every bit of the word changes half of the result's bits."""
    z = (word ^ (word >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@nb.njit(cache=True)
def stream_of(key: np.uint64, session: int) -> np.uint64:
    """Where the session's stream starts."""
    return mixed(key + (np.uint64(session) + np.uint64(1)) * GOLDEN)


@nb.njit(cache=True)
def uniform(stream: np.uint64, draw: int) -> float:
    """The stream's draw with this number: uniform on [0, 1), 53 bits."""
    word = mixed(stream + (np.uint64(draw) + np.uint64(1)) * GOLDEN)
    return np.float64(word >> np.uint64(11)) * 2.0**-53


@nb.njit(cache=True)
def at_place(place: int, purpose: int) -> int:
    """The number of the draw that serves this purpose at this 0-based place of the list."""
    return (place + 1) * DRAWS_PER_PLACE + purpose
