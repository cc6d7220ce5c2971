"""Hints for names that are nearly right."""

import pytest

from untilt.errors import OptionError, check_choice, did_you_mean


def test_the_nearest_name_or_nothing() -> None:
    assert did_you_mean("NDGC", ["ndcg", "map"]) == " Did you mean 'ndcg'?"
    assert did_you_mean("zzz", ["ndcg", "map"]) == ""


def test_choices() -> None:
    check_choice("gain", "linear", ("linear", "exponential"))
    with pytest.raises(
        OptionError,
        match=r"gain must be one of 'linear', 'exponential'\. Got 'liner' instead\. Did you mean",
    ):
        check_choice("gain", "liner", ("linear", "exponential"))
    with pytest.raises(OptionError, match=r"Got 3 instead\.$"):
        check_choice("gain", 3, ("linear", "exponential"))
