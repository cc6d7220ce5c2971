"""Randomness is an argument: one seed becomes a generator at the border and is passed down."""

import numpy as np

Seed = int | np.random.SeedSequence | np.random.Generator | None


def generator(seed: Seed) -> np.random.Generator:
    """A generator for this seed; a generator is handed through."""
    return np.random.default_rng(seed)


def child_generator(seed: Seed, *path: int) -> np.random.Generator:
    """The generator of one named part of the work.

    Parts with different paths are independent, and each depends on the seed and its path alone, so
    the result does not change with the number of threads or the size of a chunk.
    """
    if isinstance(seed, np.random.Generator):
        return seed
    root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return np.random.default_rng(
        np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, *path))
    )
