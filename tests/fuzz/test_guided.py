"""Doors of the guided fuzzer: they take what is good, and damage that it would find by chance."""

import random

import pytest
from tests.fuzz import mutations
from tests.fuzz.guided import DOORS


@pytest.mark.parametrize("name", sorted(DOORS))
def test_a_door_takes_good_and_damaged_bytes(name, tmp_path):
    enter, seeds = DOORS[name]
    rng = random.Random(name)
    for data in seeds():
        enter(data, tmp_path)
        for _ in range(50):
            enter(mutations.damaged(data, rng), tmp_path)


def test_a_door_that_fails_is_seen(tmp_path, monkeypatch):
    """A reader that counts wrong."""
    from untilt.serving import journal

    monkeypatch.setattr(journal.SegmentRead, "records", property(lambda _: -1, lambda *_: None))
    enter, seeds = DOORS["segment"]
    with pytest.raises(AssertionError):
        enter(seeds()[0], tmp_path)
