import numpy as np

from untilt._core.sorting import falling_order


def test_rows_fall_and_equal_values_keep_their_order(rng):
    for length in (*range(45), 79, 80, 81, 160, 161, 1000):
        for values in (
            rng.normal(size=length),
            rng.integers(4, size=length).astype(float),
            np.where(rng.random(length) < 0.3, -np.inf, rng.integers(3, size=length)),
            np.arange(length) / 7,
        ):
            wanted = np.argsort(-values, kind="stable")
            np.testing.assert_array_equal(falling_order(values), wanted)
