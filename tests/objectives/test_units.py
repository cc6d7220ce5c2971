"""Pair statistics by hand: what a slate's sessions leave behind."""

import numpy as np
import pytest

from untilt.errors import OptionError
from untilt.objectives.units import build_units, gains_of, list_norms, pack


def units_of(sessions, weight, **options):
    """Sessions of one slate of three documents at places 0, 1, 2."""
    n = len(sessions)
    return build_units(
        indptr=3 * np.arange(n + 1),
        query=np.zeros(n, dtype=np.int64),
        row=np.tile([4, 2, 7], n),
        place=np.tile([0, 1, 2], n),
        gain=np.concatenate(sessions).astype(float),
        weight=np.asarray(weight, dtype=float),
        slate_of_list=np.zeros(n, dtype=np.int64),
        n_rows=8,
        **options,
    )


def test_clicked_and_unclicked_pairs_are_counted():
    """Sessions 1 0 0 (twice), 0 1 1 (3 times): each pair counts the sessions that prefer it."""
    units = units_of([[1, 0, 0], [0, 1, 1]], [2, 3])
    above = np.array([[0, 2, 2], [3, 0, 0], [3, 0, 0]])  # [i, j]: i clicked, j not
    assert units.n_units == 1
    assert units.start.tolist() == [0]
    assert units.above.tolist() == pack(above).tolist()
    assert units.below.tolist() == pack(above.T).tolist()
    assert units.shown.tolist() == [5]
    assert units.row.tolist() == [4, 2, 7]


def test_against_all_counts_clicks():
    units = units_of([[1, 0, 0], [0, 1, 1]], [2, 3], against_all=True)
    clicks = np.array([2, 3, 3])
    assert units.above.tolist() == pack(np.repeat(clicks[:, None], 3, axis=1)).tolist()
    assert units.below.tolist() == pack(np.repeat(clicks[None, :], 3, axis=0)).tolist()


def test_graded_labels_count_by_their_difference_unless_plain():
    by_difference = units_of([[3, 1, 0], [0, 1, 1]], [1, 1])
    assert by_difference.above.tolist() == [1, 1, 0]  # 2 above 1; 3 above 1; 3 above 2
    assert by_difference.below.tolist() == [2, 3, 1]
    plain = units_of([[3, 1, 0], [0, 1, 1]], [1, 1], plain=True)
    assert plain.above.tolist() == [1, 1, 0]
    assert plain.below.tolist() == [1, 1, 1]


def test_a_slate_seen_once_keeps_its_labels_unless_dense():
    once = units_of([[1, 0, 0]], [2.0])
    assert once.start.tolist() == [-1]
    assert once.scale.tolist() == [2.0]
    assert once.gain.tolist() == [1, 0, 0]
    dense = units_of([[1, 0, 0]], [2.0], dense=True)
    assert dense.start.tolist() == [0]
    assert dense.below.tolist() == [2, 2, 0]


def test_without_collapsing_each_list_is_a_unit():
    units = units_of([[1, 0, 0], [0, 1, 1]], [2, 3], collapse_pairs=False)
    assert units.start.tolist() == [-1, -1]
    assert units.scale.tolist() == [2, 3]
    assert units.row.tolist() == [4, 2, 7] * 2


def test_units_of_a_query_stand_together():
    """Lists of queries 1, 0, 1: threads get whole queries, so no document is written to twice."""
    units = build_units(
        indptr=np.array([0, 2, 4, 6]),
        query=np.array([1, 0, 1]),
        row=np.array([0, 1, 2, 3, 1, 0]),
        place=np.tile([0, 1], 3),
        gain=np.tile([1.0, 0.0], 3),
        weight=np.ones(3),
        slate_of_list=np.array([0, 1, 2]),
        n_rows=4,
    )
    assert units.query_ptr.tolist() == [0, 1, 3]
    assert units.row.tolist() == [2, 3, 0, 1, 1, 0]


def test_gains():
    labels = np.array([0.0, 1.0, 3.0])
    assert gains_of(labels, "exponential").tolist() == [0, 1, 7]
    assert gains_of(labels, "linear").tolist() == [0, 1, 3]
    assert gains_of(labels, "plain").tolist() == [0, 1, 3]
    assert gains_of(np.zeros(0), "exponential").tolist() == []


def test_gains_that_make_no_sense():
    with pytest.raises(OptionError, match=r"gain must be one of exponential, linear, plain\. Got"):
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
