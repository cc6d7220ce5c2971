"""Context columns of a log: read, kept apart, carried along, written."""

import numpy as np
import pyarrow as pa
import pytest

import untilt as ut
from untilt.errors import BadRowsError, ColumnError, OptionError, ShapeError

NAMES = ["device", "hour", "speed", "member"]


def table(**changes):
    """Eight sessions of two rows: four contexts twice each, all else the same."""
    session = np.repeat(np.arange(8), 2)
    context = session % 4
    columns = {
        "query_id": np.full(16, 7),
        "session_id": session,
        "doc_id": np.tile(["a", "b"], 8),
        "position": np.tile([1, 2], 8),
        "click": np.tile([1, 0], 8),
        "device": np.where(context < 2, "phone", "desktop"),
        "hour": context,
        "speed": context / 4,
        "member": context == 3,
    }
    return pa.table(columns | changes)


def contexts(log):
    columns = (log.context[name].tolist() for name in NAMES)
    return sorted(zip(*columns, log.count.tolist(), strict=True))


FOUR = [
    ("desktop", 2, 0.5, 0, 2),
    ("desktop", 3, 0.75, 1, 2),
    ("phone", 0, 0.0, 0, 2),
    ("phone", 1, 0.25, 0, 2),
]


def test_sessions_of_different_contexts_stay_apart():
    log = ut.read_log(table(), context=NAMES)
    assert contexts(log) == FOUR
    assert ut.read_log(table()).count.tolist() == [8]
    assert [log.context[name].dtype for name in NAMES] == [object, np.int64, np.float64, np.int64]


def test_collapse_in_memory_is_the_collapse_of_the_reader(contents):
    apart = ut.read_log(table(), context=NAMES, collapse=False)
    assert apart.n_lists == 8
    assert contents(apart.collapse()) == contents(ut.read_log(table(), context=NAMES))


def test_names_can_be_mapped():
    log = ut.read_log(table(), context=["kind"], columns={"kind": "device"})
    assert log.context["kind"].tolist() == ["desktop", "phone"]
    assert log.count.tolist() == [4, 4]


def test_context_columns_are_no_features():
    of_document = np.tile([0.5, 0.25], 8)
    log = ut.read_log(table(bm25=of_document), context=NAMES, features="*")
    assert log.feature_names == ("bm25",)


def test_take_top_and_split_keep_the_context():
    log = ut.read_log(table(), context=NAMES)
    phone = log.context["device"] == "phone"
    assert contexts(log.take(phone)) == FOUR[2:]
    assert contexts(log.top(1)) == FOUR
    parts = log.split(0.5, by="session", seed=1)
    sessions = sum(int(part.count[part.context["hour"] == 3].sum()) for part in parts)
    assert sessions == 2
    assert contexts(log.with_label(np.array(log.label))) == FOUR


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_what_is_written_is_read(tmp_path, contents, ending):
    log = ut.read_log(table(), context=NAMES)
    ut.write_log(log, tmp_path / f"log.{ending}")
    again = ut.read_log(tmp_path / f"log.{ending}", context=NAMES)
    assert contents(again) == contents(log)


def test_a_session_has_one_context():
    device = table()["device"].to_pylist()
    device[1] = "tv"
    with pytest.raises(BadRowsError, match="session 0, query 7: device phone and tv"):
        ut.read_log(table(device=device), context=["device"])
    log, report = ut.read_log_report(table(device=device), context=["device"], on_bad="drop")
    assert (log.n_sessions, report.n_dropped) == (7, 2)


def test_a_missing_context_is_a_bad_row():
    speed = [None, *table()["speed"].to_pylist()[1:-1], float("nan")]
    with pytest.raises(BadRowsError, match="2 rows of the log: speed is missing or not finite"):
        ut.read_log(table(speed=pa.array(speed)), context=["speed"])


def test_what_cannot_be_a_context():
    days = pa.array([0] * 16, pa.date32())
    with pytest.raises(ColumnError, match="day must be a column of numbers, true/false or text"):
        ut.read_log(table(day=days), context=["day"])
    with pytest.raises(ColumnError, match="lacks the columns devise"):
        ut.read_log(table(), context=["devise"])
    with pytest.raises(OptionError, match=r"context must be a list of names. Got 'device'"):
        ut.read_log(table(), context="device")
    with pytest.raises(OptionError, match="a name that is not taken"):
        ut.read_log(table(), context=["position"])


def test_a_log_made_by_hand():
    log = ut.read_log(table())
    columns = {name: getattr(log, name) for name in log.__dataclass_fields__}
    made = ut.ClickLog(**columns | {"context": {"device": ["phone"], "hour": [3.5]}})
    assert made.context["device"].tolist() == ["phone"]
    with pytest.raises(TypeError):
        made.context["device"] = np.zeros(1)  # type: ignore[index]
    with pytest.raises(ShapeError, match=r"context\['hour'\] must have 1 entries. Got 2"):
        ut.ClickLog(**columns | {"context": {"hour": [1, 2]}})
    with pytest.raises(BadRowsError, match="List 0 has none"):
        ut.ClickLog(**columns | {"context": {"hour": [np.nan]}})
