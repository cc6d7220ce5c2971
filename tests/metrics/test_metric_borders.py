"""What is refused, and what it says."""

from typing import Any

import numpy as np
import pytest

from untilt.errors import OptionError, ShapeError
from untilt.metrics import ARP, DCG, MAP, NDCG

GOOD: dict[str, Any] = {"scores": [3.0, 2.0, 1.0], "labels": [0, 1, 0], "indptr": [0, 3]}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"scores": [1, np.nan, 2, np.nan], "labels": [0, 1, 0, 0], "indptr": [0, 1, 4]},
            OptionError,
            "scores must not be NaN: 2 are, first in row 1 of list 1. Use -inf",
        ),
        ({"labels": [0, -1, 0]}, OptionError, "labels must be finite.* Got -1.0 in row 1"),
        ({"labels": [0, 1, np.nan]}, OptionError, "labels must be finite.* Got nan in row 2"),
        ({"labels": [0, 1]}, ShapeError, r"same length. Got shapes \(3,\) and \(2,\)"),
        ({"scores": [[3.0], [2.0], [1.0]]}, ShapeError, r"Got shapes \(3, 1\) and \(3,\)"),
        ({"scores": ["a", "b", "c"]}, ShapeError, "scores must be an array of numbers"),
        ({"labels": [0, "x", 0]}, ShapeError, "labels must be an array of numbers"),
        ({"indptr": [0, 2]}, ShapeError, "indptr must end at the number of rows, 3. Got 2"),
        ({"indptr": [1, 3]}, ShapeError, "indptr must be a flat array that starts at 0"),
        ({"indptr": [0, 2, 1, 3]}, ShapeError, "indptr must never fall"),
        ({"indptr": [0, 1.5, 3]}, ShapeError, "indptr must hold whole numbers.* Got 1.5"),
        ({"ties": "averge"}, OptionError, "ties must be one of 'average'.* Did you mean"),
        ({"ties": None}, OptionError, "ties must be one of .* Got None"),
        ({"empty": "null"}, OptionError, "empty must be one of 'zero', 'one', 'skip'. Got 'null'"),
    ],
)  # fmt: skip
def test_bad_input_of_per_list(change: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        NDCG(10).per_list(**(GOOD | change))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"weights": [1, 2]}, ShapeError, r"weights must have shape \(1,\). Got \(2,\)"),
        ({"weights": [-1]}, OptionError, "weights must be numbers >= 0. Got -1.0 for list 0"),
        ({"weights": [np.inf]}, OptionError, "weights must be numbers >= 0. Got inf"),
        ({"weights": "many"}, ShapeError, "weights must be an array of numbers"),
        ({"units": [0, 1]}, ShapeError, "units must have 1 entries. Got 2"),
    ],
)
def test_bad_input_of_mean(options: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        MAP().mean(**GOOD, **options)


def test_exponential_gain_refuses_labels_that_are_no_grades() -> None:
    dwell = [0.0, 1001.0, 3.0]
    for metric in (NDCG(10), DCG()):
        with pytest.raises(OptionError, match=r"for the label 1001\. Use gain='linear'"):
            metric.per_list([3, 2, 1], dwell, [0, 3])
    assert np.isfinite(NDCG(10).per_list([3, 2, 1], [0, 1000, 1000], [0, 3])).all()
    assert NDCG(gain="linear").per_list([3, 9, 4], dwell, [0, 3]).tolist() == [1]
    assert ARP().per_list([3, 2, 1], dwell, [0, 3]) == pytest.approx((2 * 1001 + 3 * 3) / 1004)
