"""Slates: merging, taking, and blocks of work."""

import numpy as np

from untilt.data.slates import Slates, merge_slates


def four_lists():
    """Two lists of one slate, one of another of the same query, and a lone document."""
    lists = Slates(
        indptr=np.array([0, 2, 4, 6, 7]),
        query=np.array([0, 0, 0, 1]),
        count=np.array([1, 2, 4, 8]),
        document=np.array([5, 3, 5, 3, 3, 5, 8]),
        position_index=np.array([0, 1, 0, 1, 0, 1, 0]),
        n_documents=9,
    )
    return lists, np.array([0, 0, 1, 2])


def test_merged_slates_count_the_sessions_of_their_lists():
    lists, slate = four_lists()
    merged, row = merge_slates(lists, slate)
    assert merged.count.tolist() == [3, 4, 8]
    assert merged.indptr.tolist() == [0, 2, 4, 5]
    assert merged.document.tolist() == [5, 3, 3, 5, 8]
    assert row.tolist() == [0, 1, 0, 1, 2, 3, 4]
    assert merged.row_count.tolist() == [3, 3, 4, 4, 8]
    assert merged.query_ptr.tolist() == [0, 2, 3]
    assert merged.depth == 2


def test_merged_slates_come_by_query_then_by_number():
    lists, slate = four_lists()
    mixed = lists.take(np.array([3, 2, 0, 1]))
    merged, row = merge_slates(mixed, slate[[3, 2, 0, 1]])
    assert merged.query.tolist() == [0, 0, 1]
    assert merged.count.tolist() == [3, 4, 8]
    assert row.tolist() == [4, 2, 3, 0, 1, 0, 1]


def test_taken_slates_keep_their_rows():
    lists, _ = four_lists()
    taken = lists.take(np.array([3, 0]))
    assert taken.query.tolist() == [1, 0]
    assert taken.count.tolist() == [8, 1]
    assert taken.document.tolist() == [8, 5, 3]
    assert taken.n_documents == 9


def test_no_slates():
    lists, _ = four_lists()
    none = lists.take(np.zeros(0, dtype=np.int64))
    assert none.n_slates == none.depth == 0
    assert none.query_ptr.tolist() == [0]
    assert none.blocks(np.zeros(0, dtype=np.int64)).tolist() == [0, 0]
    assert merge_slates(none, np.zeros(0, dtype=np.int64))[0].n_slates == 0


def test_blocks_never_cut_a_query(rng):
    lengths = rng.integers(2, 30, size=500)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    shown = Slates(
        indptr=indptr,
        query=np.sort(rng.integers(0, 180, size=500)),
        count=np.ones(500),
        document=np.arange(indptr[-1]),
        position_index=np.zeros(indptr[-1], dtype=np.int64),
        n_documents=int(indptr[-1]),
    )
    bounds = shown.blocks(lengths)
    assert set(bounds) <= set(shown.query_ptr)
    assert len(bounds) == 65
    assert bounds[0] == 0
    assert bounds[-1] == 500
    assert np.all(np.diff(bounds) >= 0)
