"""Clicks and impressions per (query, document, position), however the log is laid out."""

import numpy as np
import pytest

from untilt.data.clicklog import ClickLog
from untilt.data.counts import position_counts


def as_dict(cells):
    return {
        (int(cells.query[i]), int(cells.document[i]), int(cells.position[c])): (
            cells.impressions[c],
            cells.clicks[c],
        )
        for i in range(len(cells.document))
        for c in range(cells.indptr[i], cells.indptr[i + 1])
    }


def test_a_log_by_hand(make_log):
    log = make_log(
        [
            (0, [5, 7], [5], 3, "a"),
            (0, [7, 5], [5], 2, "a"),
            (0, [5, 7], [], 1, "a"),
            (1, [None, 5], [5], 4, "a"),
        ]
    )
    # Documents by index: (0, 5), (0, 7), (1, 5).
    assert as_dict(position_counts(log)) == {
        (0, 0, 1): (4, 3),
        (0, 0, 2): (2, 2),
        (0, 1, 1): (2, 0),
        (0, 1, 2): (4, 0),
        (1, 2, 2): (4, 4),
    }


def test_equal_to_a_plain_sum_over_rows(shuffled_log, cells_by_hand):
    plain = {
        (q, d, k): tuple(cell)
        for (q, d), places in cells_by_hand(shuffled_log).items()
        for k, cell in places.items()
    }
    assert as_dict(position_counts(shuffled_log)) == plain


def test_documents_need_not_be_sorted_by_query():
    log = ClickLog(
        query_id=[0, 1],
        doc_id=[0, 1, 2],
        doc_query=[1, 0, 1],
        indptr=[0, 1, 3],
        query=[0, 1],
        document=[1, 2, 0],
        position=[1, 1, 2],
        label=[1, 0, 1],
    )
    cells = position_counts(log)
    assert cells.query.tolist() == [0, 1, 1]
    assert cells.document.tolist() == [1, 0, 2]
    assert as_dict(cells) == {(0, 1, 1): (1, 1), (1, 0, 2): (1, 1), (1, 2, 1): (1, 0)}


def test_documents_never_shown_have_no_cells(make_log):
    log = make_log([(0, [1, 2], [1]), (1, [1], [1])])
    assert position_counts(log.take([1])).document.tolist() == [2]


def test_counts_are_repeats(shuffled_log):
    log = shuffled_log
    repeated = log.take(np.repeat(np.arange(log.n_lists), log.sessions))
    single = repeated.take(np.arange(repeated.n_lists), count=np.ones(repeated.n_lists, int))
    assert (
        as_dict(position_counts(single))
        == as_dict(position_counts(log))
        == as_dict(position_counts(log.collapse()))
    )


def test_sums_by_position(shuffled_log):
    cells, rates = position_counts(shuffled_log), shuffled_log.ctr_by_position()
    assert cells.by_position(cells.impressions) == pytest.approx(rates.impressions)
    assert cells.by_position(cells.clicks) == pytest.approx(rates.clicks)
