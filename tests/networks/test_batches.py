"""Padded batches: every list once, whatever the shape, and the same again for the same epoch."""

from itertools import pairwise

import numpy as np
import pytest

from untilt.errors import OptionError
from untilt.networks.batches import PaddedLists, PaddedRows, bucket_lengths, padded_rows
from untilt.networks.mlp import jax_modules

INDPTR = np.array([0, 3, 4, 9, 11, 11, 14])  # lengths 3, 1, 5, 2, 0, 3
VALUES = np.arange(1.0, 15.0)


def sampler(**changes):
    given = {
        "indptr": INDPTR, "row_columns": {"value": VALUES}, "batch_size": 2, "lengths": (2, 5),
        "list_columns": {"weight": 10.0 * np.arange(1, 7)}, **changes,
    }  # fmt: skip
    return PaddedLists(**given)


def test_rows_and_mask_by_hand():
    rows, mask = padded_rows(INDPTR, np.array([3, -1, 0]), 4)
    assert rows.tolist() == [[9, 10, 0, 0], [0, 0, 0, 0], [0, 1, 2, 0]]
    assert mask.tolist() == [[True, True, False, False], [False] * 4, [True, True, True, False]]


def test_every_list_once_in_a_batch_of_its_bucket():
    batches = list(sampler().epoch(0))
    assert len(batches) == sampler().steps_per_epoch == 4  # 3 lists up to 2 rows, 3 up to 5
    seen = []
    for batch in batches:
        assert batch["value"].shape == batch["mask"].shape
        assert batch["value"].shape in ((2, 2), (2, 5))
        assert np.all(batch["value"][batch["mask"] == 0] == 0)
        for row, mask, weight in zip(batch["value"], batch["mask"], batch["weight"], strict=True):
            if weight > 0:
                seen.append((weight, row[mask > 0].tolist()))
            else:
                assert not mask.any()
    lists = [VALUES[a:b].tolist() for a, b in pairwise(INDPTR)]
    assert sorted(seen) == sorted(zip(10.0 * np.arange(1, 7), lists, strict=True))


def test_an_epoch_is_the_same_again_and_another_one_is_not():
    many = sampler(indptr=np.arange(0, 300, 3), row_columns={"value": np.arange(297)},
                   list_columns={}, lengths=(3,), batch_size=10)  # fmt: skip
    first, again, second = (np.concatenate([b["value"] for b in many.epoch(e)]) for e in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)
    still = sampler(seed=None, lengths=(5,), batch_size=6)
    assert next(still.epoch(3))["weight"].tolist() == [10, 20, 30, 40, 50, 60]


def test_more_columns_know_their_lists():
    def more(lists, length):
        return {"list": lists, "length": np.asarray(length)}

    for batch in sampler(more=more).epoch(1):
        there = batch["list"] >= 0
        assert np.array_equal(batch["weight"][there], 10.0 * (batch["list"][there] + 1))
        assert batch["length"] == batch["value"].shape[1]


def test_rows_one_by_one():
    rows = PaddedRows({"value": VALUES, "pair": np.column_stack([VALUES, -VALUES])}, 5)
    batches = list(rows.epoch(0))
    assert rows.steps_per_epoch == len(batches) == 3
    assert all(batch["pair"].shape == (5, 2) for batch in batches)
    values = np.concatenate([batch["value"][batch["mask"] > 0] for batch in batches])
    assert sorted(values) == VALUES.tolist()
    assert batches[-1]["mask"].tolist() == [1, 1, 1, 1, 0]
    assert batches[-1]["value"][-1] == 0
    assert VALUES[0] == 1


@pytest.mark.parametrize(
    ("lengths", "most", "expected"),
    [([10, 10], 4, (10,)), ([100, 40, 3], 4, (13, 50, 100)), ([100, 40, 3], 1, (100,)),
     ([7, 1], 4, (1, 7)), ([], 4, (1,))],
)  # fmt: skip
def test_buckets_hold_every_list_and_the_longest_closely(lengths, most, expected):
    assert bucket_lengths(np.array(lengths, int), most=most) == expected


def test_no_bucket_is_told():
    with pytest.raises(OptionError, match="at least one padded length"):
        bucket_lengths(np.array([3]), most=0)


def cut_on_device(batches, epoch):
    """The batches of an epoch as a device cuts them."""
    jax, resident, drawn = jax_modules().jax, batches.resident, batches.picks(epoch)
    columns = jax.device_put(resident.columns)
    for step, picks in enumerate(drawn.picks):
        length = resident.lengths[drawn.kind[step]]
        per_step = {name: column[step] for name, column in drawn.per_step.items()}
        yield {**resident.cut(columns, picks, length), **per_step, **batches.shared}


@pytest.mark.parametrize(
    "batches",
    [
        sampler(),
        sampler(lengths=(5,), batch_size=4, seed=None),
        PaddedRows({"value": VALUES, "pair": np.ones((14, 2))}, 4),
    ],
    ids=["lists", "one length", "rows"],
)
def test_a_device_cuts_the_same_batches(batches):
    for epoch in range(2):
        made, cut = list(batches.epoch(epoch)), list(cut_on_device(batches, epoch))
        assert len(made) == len(cut) == batches.steps_per_epoch
        for here, there in zip(made, cut, strict=True):
            assert set(here) == set(there)
            for name, values in here.items():
                assert np.array_equal(values, np.asarray(there[name])), name


def test_columns_that_are_made_list_by_list_stay_here():
    assert sampler(more=lambda lists, _: {"list": lists}).resident is None
