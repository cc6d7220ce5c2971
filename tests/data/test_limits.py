"""Lists end at a documented depth, whoever made the log, and what that leaves out is counted."""

import numpy as np
import pyarrow as pa
import pytest

import untilt as ut
from untilt.data.limits import DEEPEST, DroppedRowsWarning
from untilt.errors import BadRowsError, OptionError, ShapeError
from untilt.simulation.protocols import PRS

COLUMNS = ("query_id", "session_id", "doc_id", "position", "click", "count")
# Two lists; a third below.
ROWS = [
    (1, 10, 5, 1, 1, 2),
    (1, 10, 6, 2, 0, 2),
    (1, 11, 6, 1, 1, 1),
    (1, 11, 5, 2, 0, 1),
]


def table(rows):
    return pa.table(
        {name: list(values) for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=True)}
    )


def read(rows, **options):
    return ut.read_log_report(table(rows), **options)


def test_a_row_at_the_limit_is_read():
    log, report = read([*ROWS, (1, 10, 7, DEEPEST, 1, 2)])
    assert (log.depth, report.bad) == (DEEPEST, ())


@pytest.mark.parametrize("position", [DEEPEST + 1, 30_000, 1_000_000, 2**31 - 1])
def test_a_log_is_read_as_if_deeper_rows_were_not_there(position, contents):
    log, report = read([*ROWS, (1, 10, 7, position, 1, 2)])
    assert contents(log) == contents(read(ROWS)[0])
    (deep,) = report.bad
    assert (deep.what.code, deep.n_rows, report.n_rows, report.n_dropped) == (
        "log.too-deep",
        1,
        5,
        1,
    )
    # Two of 2 + 1 + 2 clicks, in a list that keeps its rows above.
    assert deep.what.fields == {
        "most": DEEPEST,
        "deepest": position,
        "impressions": 2,
        "share": 2 / 5,
        "sessions": 0,
    }
    assert str(position) in deep.examples[0]


def test_a_session_with_nothing_above_is_counted():
    log, report = read([*ROWS, (1, 12, 7, DEEPEST + 1, 0, 4), (1, 12, 8, DEEPEST + 2, 0, 4)])
    assert log.n_sessions == 3
    assert report.bad[0].what.fields["sessions"] == 4
    assert report.bad[0].what.fields["impressions"] == 8


def test_rules_are_for_the_rows_above():
    deep = [(1, 10, 7, 5_000, None, 2), (1, 10, 8, 5_000, 1, 3)]
    log, report = read([*ROWS, *deep])
    assert [bad.what.code for bad in report.bad] == ["log.too-deep"]
    with pytest.raises(BadRowsError) as refused:
        read([*ROWS, *deep, (1, 11, 7, 3, -1, 1)])
    assert "5000" not in str(refused.value)
    log, report = read([*ROWS, *deep, (1, 11, 7, 3, -1, 1)], on_bad="drop")
    assert [bad.what.code for bad in report.bad] == ["log.too-deep", "log.bad-label"]
    assert (report.n_rows, report.n_dropped, log.n_impressions) == (7, 3, 6)


def test_reading_warns_whatever_becomes_of_bad_rows():
    with pytest.warns(DroppedRowsWarning, match="below position 1,000"):
        ut.read_log(table([*ROWS, (1, 10, 7, 30_000, 1, 2)]))


@pytest.mark.parametrize("position", [2**31, 2**63 - 1])
def test_a_position_that_is_no_number_of_a_row_is_a_bad_row(position):
    with pytest.raises(BadRowsError):
        read([*ROWS, (1, 10, 7, position, 1, 2)])


def from_arrays(position):
    return ut.ClickLog(
        query_id=[1],
        doc_id=[5, 6, 7],
        doc_query=[0, 0, 0],
        indptr=[0, 2, 3],
        query=[0, 0],
        document=[0, 1, 2],
        position=position,
        label=[1, 0, 1],
        count=[3, 2],
    )


def test_a_log_of_arrays_is_cut_too():
    with pytest.warns(DroppedRowsWarning, match="1 row of the log") as said:
        log = from_arrays([1, 2, 30_000])
    assert said[0].filename == __file__
    assert "2 impressions with 40.00% of the clicks" in str(said[0].message)
    assert "2 sessions" in str(said[0].message)
    np.testing.assert_array_equal(log.position, [1, 2])
    np.testing.assert_array_equal(log.count, [3])
    # As `top` does it: the document stays as a candidate.
    assert (log.n_documents, log.depth) == (3, 2)


def test_the_limit_itself_is_no_cut():
    assert from_arrays([DEEPEST, 2, DEEPEST]).depth == DEEPEST


@pytest.mark.parametrize("position", [2**31, 2**63 - 1])
def test_arrays_with_impossible_positions_are_refused(position):
    with pytest.raises(ShapeError):
        from_arrays([1, 2, position])


def test_simulated_lists_end_there():
    n = DEEPEST + 5
    judged = ut.JudgedLists(np.zeros((n, 1)), np.arange(n) % 2, [0, n], [1])
    scores = np.arange(n, dtype=float)
    assert ut.simulate(judged, PRS(), n_sessions=4, ranker=scores).log.depth == DEEPEST
    with pytest.raises(OptionError, match="1,000"):
        ut.simulate(judged, n_sessions=4, ranker=scores, depth=DEEPEST + 1)
