"""One seed, one stream for each part of the work."""

from itertools import product

import numpy as np

from untilt._core.random import child_generator, generator


def draw(rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(rng.integers(0, 2**60, 3).tolist())


def test_the_same_seed_gives_the_same_stream() -> None:
    assert draw(generator(5)) == draw(generator(5)) == draw(np.random.default_rng(5))
    assert draw(generator(5)) != draw(generator(6))
    assert draw(generator(None)) != draw(generator(None))


def test_a_generator_is_handed_through() -> None:
    rng = np.random.default_rng(5)
    assert generator(rng) is rng
    assert child_generator(rng, 1, 2) is rng


def test_children_depend_on_seed_and_path_alone() -> None:
    assert draw(child_generator(5, 1, 2)) == draw(child_generator(5, 1, 2))
    sequence = np.random.SeedSequence(5)
    before = draw(child_generator(sequence, 1, 2))
    sequence.spawn(3)
    assert draw(child_generator(sequence, 1, 2)) == before == draw(child_generator(5, 1, 2))


def test_children_of_different_paths_differ() -> None:
    paths = [path for n in range(4) for path in product(range(4), repeat=n)]
    streams = {draw(child_generator(seed, *path)) for seed in (0, 1) for path in paths}
    assert len(streams) == 2 * len(paths)


def test_paths_grow_under_a_spawned_sequence() -> None:
    child = np.random.SeedSequence(5, spawn_key=(1,))
    assert draw(child_generator(child, 2)) == draw(child_generator(5, 1, 2))


def test_children_are_uncorrelated() -> None:
    x = np.array([child_generator(0, i).normal(size=400) for i in range(60)])
    correlation = np.corrcoef(x)[np.triu_indices(60, 1)]
    # 1770 pairs with a standard deviation of 1/20 each; five of those hold all but 1e-3 of the time
    assert np.abs(correlation).max() < 5 / 20
    assert abs(correlation.mean()) < 4 / 20 / np.sqrt(1770)
