"""Sessions merged within each half of the time: what is left of it when a log is collapsed."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from untilt import ClickLog, read_log
from untilt.data.transform import later_half
from untilt.data.write_log import write_log
from untilt.errors import OptionError

# Six sessions of one query and two documents, all alike but for their time and last click.
ROWS: dict[str, Any] = {
    "query_id": [1] * 12,
    "session_id": np.repeat(range(6), 2),
    "doc_id": [10, 11] * 6,
    "position": [1, 2] * 6,
    "click": [1, 0] * 5 + [0, 1],
    "timestamp": np.repeat([5, 3, 9, 1, 8, 7], 2),  # in order: 1, 3, 5 | 7, 8, 9
}


def test_equal_sessions_of_each_half_are_one_list():
    log = read_log(pa.table(ROWS), collapse="halves")
    assert sorted(zip(log.time.tolist(), log.sessions.tolist(), strict=True)) == [
        (0, 3), (1, 1), (1, 2),
    ]  # fmt: skip
    apart = read_log(pa.table(ROWS), collapse=False).collapse(halves=True)
    assert sorted(apart.time.tolist()) == [0, 1, 1]
    assert sorted(apart.sessions.tolist()) == [1, 2, 3]


def test_merging_the_halves_gives_the_log_without_a_time():
    merged, plain = read_log(pa.table(ROWS), collapse="halves").collapse(), read_log(pa.table(ROWS))
    assert merged.time is plain.time is None
    for name in ("query", "indptr", "document", "position", "label", "count"):
        assert np.array_equal(getattr(merged, name), getattr(plain, name))


@pytest.mark.parametrize("times", [None, "missing", "text"])
def test_a_log_without_times_has_no_halves_and_loses_no_row(times):
    rows = {name: column for name, column in ROWS.items() if name != "timestamp"}
    if times == "missing":
        rows["timestamp"] = [None, *ROWS["timestamp"][1:].tolist()]
    if times == "text":
        rows["timestamp"] = ["soon"] * 12
    log = read_log(pa.table(rows), collapse="halves")
    assert log.time is None
    assert log.sessions.tolist() == read_log(pa.table(rows)).sessions.tolist()


def test_halves_are_written_and_read_again(tmp_path):
    log = read_log(pa.table(ROWS), collapse="halves")
    write_log(log, tmp_path / "log.parquet")
    again = read_log(tmp_path / "log.parquet", collapse="halves")
    assert np.array_equal(again.time, log.time)
    assert np.array_equal(again.sessions, log.sessions)


@pytest.mark.parametrize(
    ("times", "later"),
    [
        ([1, 2, 3, 4], [False, False, True, True]),
        ([0, 1, 1, 1], [False, True, True, True]),
        ([2, 2, 2, 1], [True, True, True, False]),
        ([5, 5, 5, 5], [False] * 4),
    ],
)
def test_halves_are_as_even_as_times_allow(times, later):
    log = ClickLog([1], [1], [0], [0, 1, 2, 3, 4], [0] * 4, [0] * 4, [1] * 4, [0.0] * 4, time=times)
    assert later_half(log).tolist() == later


def test_what_has_no_halves_says_so():
    with pytest.raises(OptionError, match="no halves"):
        later_half(read_log(pa.table(ROWS)))
    with pytest.raises(OptionError, match="collapse must be"):
        read_log(pa.table(ROWS), collapse="half")  # type: ignore[arg-type]
