"""Clicks and impressions per (query, document, position), however the log is laid out."""

import numpy as np
import pytest

from untilt.data.clicklog import ClickLog
from untilt.data.counts import corrected_clicks, counts_from_rows, position_counts


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


@pytest.fixture
def two_documents():
    """Document 0 at positions 1 and 3, document 2 at position 3; document 1 was not shown."""
    return counts_from_rows(
        np.array([0, 0, 0, 2]),
        np.array([1, 3, 3, 3]),
        np.array([30, 5, 5, 7]),
        np.array([0.5, 1, 0, 1]),
        n_documents=3,
        depth=3,
    )


def test_rows_become_cells(two_documents):
    assert two_documents.document.tolist() == [0, 2]
    assert two_documents.document_index.tolist() == [0, 0, 1]
    assert two_documents.position_index.tolist() == [0, 2, 2]
    assert two_documents.impressions.tolist() == [30, 10, 7]
    assert two_documents.clicks.tolist() == [15, 5, 7]


def test_documents_without_rows_may_stay():
    rows = np.array([0, 2]), np.array([1, 1]), np.array([2.0, 3.0]), np.array([1.0, 0.0])
    counts = counts_from_rows(*rows, n_documents=4, depth=1, keep_unshown=True)
    assert counts.n_documents == 4
    assert counts.n_cells == 2
    assert counts.by_document(counts.impressions).tolist() == [2, 0, 3, 0]


def test_mean_position_weighs_impressions(two_documents):
    assert two_documents.mean_position == pytest.approx([(30 * 1 + 10 * 3) / 40, 3])


def test_corrected_sums_give_back_the_relevance(two_documents):
    alpha, beta = np.array([0.8, 0.5, 0.2]), np.array([0.1, 0.05, 0.02])
    clicks, exposure = two_documents.corrected_sums(alpha, beta)
    assert clicks == pytest.approx([15 - 30 * 0.1 + 5 - 10 * 0.02, 7 - 7 * 0.02])
    assert exposure == pytest.approx([30 * 0.8 + 10 * 0.2, 7 * 0.2])


def test_subsets_of_documents_and_positions(two_documents):
    second = two_documents.where(np.array([False, True]))
    assert second.document.tolist() == [2]
    assert second.clicks.tolist() == [7]
    deep = two_documents.at_positions(np.array([False, True, True]))
    assert deep.depth == 2
    assert deep.position.tolist() == [2, 2]
    assert deep.impressions.tolist() == [10, 7]
    top = two_documents.at_positions(np.array([True, False, False]))
    assert top.indptr.tolist() == [0, 1, 1]


def test_documents_drawn_again(two_documents):
    drawn = two_documents.repeated(np.array([3, 0]))
    assert drawn.document.tolist() == [0]
    assert drawn.impressions.tolist() == [90, 30]
    assert drawn.clicks.tolist() == [45, 15]


def test_groups_add_up(shuffled_log, rng):
    cells = position_counts(shuffled_log)
    group = rng.integers(3, size=cells.n_documents)
    together = cells.grouped(group)
    assert together.n_documents == 3
    for values in ("impressions", "clicks"):
        table = np.zeros((3, cells.depth))
        np.add.at(
            table, (group[cells.document_index], cells.position_index), getattr(cells, values)
        )
        sums = np.zeros((3, cells.depth))
        sums[together.document_index, together.position_index] = getattr(together, values)
        assert sums == pytest.approx(table)


def test_corrected_clicks_of_a_log_are_those_of_its_counts(shuffled_log):
    alpha, beta = np.array([0.8, 0.5, 0.4, 0.2]), np.array([0.1, 0.05, 0.04, 0.02])
    counts = position_counts(shuffled_log)
    for of_log, of_counts in zip(
        corrected_clicks(shuffled_log, alpha, beta),
        counts.corrected_sums(alpha, beta),
        strict=True,
    ):
        assert of_log[counts.document] == pytest.approx(of_counts)
        assert of_log.sum() == pytest.approx(of_counts.sum())
