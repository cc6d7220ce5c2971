"""Pair statistics by hand: what a slate's sessions leave behind."""

import numpy as np
import pytest

from untilt.data.slates import Slates
from untilt.errors import OptionError
from untilt.objectives.pair_slates import LEAST_GAIN, gains_of, list_norms, sum_pairs


def summed(sessions, weight, **options):
    """Sessions of one slate of three documents at positions 1, 2, 3."""
    n = len(sessions)
    lists = Slates(
        indptr=3 * np.arange(n + 1),
        query=np.zeros(n, dtype=np.int64),
        count=np.asarray(weight, dtype=float),
        document=np.tile([4, 2, 7], n),
        position_index=np.tile([0, 1, 2], n),
        n_documents=8,
    )
    return sum_pairs(
        lists,
        np.zeros(n, dtype=np.int64),
        gain=np.concatenate(sessions).astype(float),
        weight=lists.count,
        **options,
    )


def pack(values):
    """The lower triangle of a square matrix, row by row: the order in which pairs are stored."""
    return values[np.tril_indices(len(values), -1)]


def test_clicked_and_unclicked_pairs_are_counted():
    """Sessions 1 0 0 (twice), 0 1 1 (3 times): each pair counts the sessions that prefer it."""
    slates = summed([[1, 0, 0], [0, 1, 1]], [2, 3])
    above = np.array([[0, 2, 2], [3, 0, 0], [3, 0, 0]])  # [i, j]: i clicked, j not
    assert slates.n_slates == 1
    assert slates.start.tolist() == [0]
    assert slates.above.tolist() == pack(above).tolist()
    assert slates.below.tolist() == pack(above.T).tolist()
    assert slates.count.tolist() == [5]
    assert slates.document.tolist() == [4, 2, 7]


def test_against_all_counts_clicks():
    slates = summed([[1, 0, 0], [0, 1, 1]], [2, 3], against_all=True)
    clicks = np.array([2, 3, 3])
    assert slates.above.tolist() == pack(np.repeat(clicks[:, None], 3, axis=1)).tolist()
    assert slates.below.tolist() == pack(np.repeat(clicks[None, :], 3, axis=0)).tolist()


def test_graded_labels_count_by_their_difference_unless_plain():
    by_difference = summed([[3, 1, 0], [0, 1, 1]], [1, 1])
    assert by_difference.above.tolist() == [1, 1, 0]  # 2 above 1; 3 above 1; 3 above 2
    assert by_difference.below.tolist() == [2, 3, 1]
    plain = summed([[3, 1, 0], [0, 1, 1]], [1, 1], plain=True)
    assert plain.above.tolist() == [1, 1, 0]
    assert plain.below.tolist() == [1, 1, 1]


def test_a_slate_shown_once_keeps_its_labels_unless_dense():
    once = summed([[1, 0, 0]], [2.0])
    assert once.start.tolist() == [-1]
    assert once.scale.tolist() == [2.0]
    assert once.gain.tolist() == [1, 0, 0]
    dense = summed([[1, 0, 0]], [2.0], dense=True)
    assert dense.start.tolist() == [0]
    assert dense.below.tolist() == [2, 2, 0]


def test_without_collapsing_each_list_stands_alone():
    slates = summed([[1, 0, 0], [0, 1, 1]], [2, 3], collapse=False)
    assert slates.start.tolist() == [-1, -1]
    assert slates.scale.tolist() == [2, 3]
    assert slates.document.tolist() == [4, 2, 7] * 2


def test_slates_of_a_query_stand_together():
    """Lists of queries 1, 0, 1: threads get whole queries, so no document is written to twice."""
    lists = Slates(
        indptr=np.array([0, 2, 4, 6]),
        query=np.array([1, 0, 1]),
        count=np.ones(3),
        document=np.array([0, 1, 2, 3, 1, 0]),
        position_index=np.tile([0, 1], 3),
        n_documents=4,
    )
    slates = sum_pairs(lists, np.array([0, 1, 2]), gain=np.tile([1.0, 0.0], 3), weight=np.ones(3))
    assert slates.query_ptr.tolist() == [0, 1, 3]
    assert slates.document.tolist() == [2, 3, 0, 1, 1, 0]


def test_gains():
    labels = np.array([0.0, 1.0, 3.0])
    assert gains_of(labels, "exponential").tolist() == [0, 1, 7]
    assert gains_of(labels, "linear").tolist() == [0, 1, 3]
    assert gains_of(labels, "plain").tolist() == [0, 1, 3]
    assert gains_of(np.zeros(0), "exponential").tolist() == []


def test_gains_that_make_no_sense():
    with pytest.raises(OptionError, match=r"gain must be one of 'exponential'.*Got 'square'"):
        gains_of(np.ones(2), "square")
    with pytest.raises(OptionError, match=r"a label of 40 is out of all proportion.*gain='linear'"):
        gains_of(np.array([1.0, 40.0]), "exponential")


def test_norms_by_hand():
    """Lists 0 1 3, 0 0 and an empty one."""
    indptr, gain = np.array([0, 3, 5, 5]), np.array([0.0, 1.0, 3.0, 0.0, 0.0])
    ideal = 3 / np.log2(2) + 1 / np.log2(3)
    assert list_norms(indptr, gain, "ndcg") == pytest.approx([1 / ideal, 0, 0])
    assert list_norms(indptr, gain, "ndcg", truncation=1) == pytest.approx([1 / 3, 0, 0])
    assert list_norms(indptr, gain, "arp") == pytest.approx([1 / 4, 0, 0])
    for metric in ("none", "dcg", "map"):
        assert list_norms(indptr, gain, metric).tolist() == [1, 1, 1]


@pytest.mark.parametrize("metric", ["ndcg", "arp"])
def test_gains_too_small_to_divide_by_count_as_none(metric):
    """1/5e-324 overflows; the norm of such a list is 0, as if nothing in it was clicked."""
    gain = np.array([5e-324, 0.0, LEAST_GAIN / 4, LEAST_GAIN / 4, 1e-100, 0.0])
    norms = list_norms(np.array([0, 2, 4, 6]), gain, metric)
    assert norms == pytest.approx([0, 0, 1e100])
