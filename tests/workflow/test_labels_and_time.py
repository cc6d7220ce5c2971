"""A run on several kinds of feedback, and a run that is judged on later sessions."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import untilt as ut
from untilt.data.transform import in_parts_of_time
from untilt.errors import ColumnError, OptionError
from untilt.facts import codes
from untilt.workflow.config import config_text, read_config
from untilt.workflow.options import options_of
from untilt.workflow.stage_read import Data, split_of

READING: dict[str, Any] = {"method": ["linear"], "trees": 5, "threads": 1, "folds": 1}


def rows(n=240, *, queries=30):
    """Sessions of three documents each, in the order of their time, with two labels."""
    rng = np.random.default_rng(0)
    order = np.argsort(rng.random((n, 3)), axis=1)
    click = (rng.random((n, 3)) < 0.4 / np.arange(1, 4)).ravel()
    return pa.table(
        {
            "query_id": np.repeat(np.arange(n) % queries, 3),
            "session_id": np.repeat(np.arange(n), 3),
            "doc_id": order.ravel(),
            "position": np.tile([1, 2, 3], n),
            "click": click.astype(int),
            "booked": (click & (rng.random(3 * n) < 0.5)).astype(int),
            "timestamp": np.repeat(1000 + np.arange(n), 3),
            "f_own": order.ravel() / 2.0,
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("labels") / "log.parquet"
    pq.write_table(rows(), path)
    return path


def test_parts_of_time_are_those_of_split_and_collapse_exactly():
    log = ut.read_log(rows(), collapse=False)
    merged, begins = in_parts_of_time(log, (0.6, 0.8))
    learn, test = log.split(0.8, by="time")
    train, valid = learn.split(0.75, by="time")
    assert begins == [1000 + 0.6 * 240, 1000 + 0.8 * 240]
    for number, part in enumerate((train, valid, test)):
        own = merged.take(merged.time == number).collapse()
        expected = part.collapse()
        assert own.n_sessions == expected.n_sessions
        for name in ("query", "indptr", "document", "position", "label", "count"):
            assert np.array_equal(np.sort(getattr(own, name)), np.sort(getattr(expected, name)))
        assert own.label @ own.row_count == expected.label @ expected.row_count
    assert merged.n_lists < log.n_lists


def test_a_run_by_time_learns_from_earlier_sessions_and_says_so(table, tmp_path):
    done = ut.run(table, tmp_path / "run", split="time", features="f_*", **READING)
    split = done.decision.split
    assert split.by == "time"
    assert split.sessions == {"train": 144, "valid": 48, "test": 48}
    assert codes(split.notes) == ["run.held-out-latest"]
    assert done.decision.source.begins == ("1144", "1192")
    page = done.report.read_text()
    assert "The latest 20% of the sessions are held out for the evaluation, from 1192 on" in page
    assert "Sessions by use" in page
    again = ut.run(table, tmp_path / "run", split="time", features="f_*", **READING)
    assert "evaluate" in again.resumed
    # From memory it is the same, and a candidate that was kept aside is not relearned otherwise.
    memory = ut.read_log(table, features="f_*", collapse=False)
    held = ut.run(memory, tmp_path / "memory", split="time", **READING)
    assert held.decision.split == split
    values = [[e.value for e in each.decision.held_out.estimates] for each in (done, held)]
    assert values[0] == pytest.approx(values[1])


def test_later_clicks_never_reach_what_is_judged():
    log = ut.read_log(rows(), features="f_*", collapse=False)
    options = options_of({"split": "time"})
    data = Data(lambda: in_parts_of_time(log, (0.6, 0.8))[0], options)
    assert split_of(data, ("1144", "1192")).sessions["test"] == 48
    assert data.not_test().n_sessions == 192
    assert set(np.unique(data.not_test().time)) == {0, 1}
    assert set(np.unique(data.parts["test"].time)) == {2}
    assert data.n_folds == 1


def test_without_times_or_with_folds_a_split_by_time_is_refused(tmp_path):
    with pytest.raises(OptionError, match="has no time"):
        ut.run(rows().drop_columns("timestamp"), tmp_path / "a", split="time", features="f_*")
    with pytest.raises(OptionError, match="folds are of queries"):
        ut.run(rows(), tmp_path / "b", split="time", folds=5)


def test_a_run_on_weighted_labels_is_a_run_on_the_synthesised_one(table, tmp_path):
    weights = {"click": 1.0, "booked": 5.0}
    done = ut.run(table, tmp_path / "run", label=weights, features="f_*", **READING)
    log = ut.read_log(table, labels=["booked"], features="f_*", collapse=False)
    made = ut.synthesise(log, weights)
    assert done.decision.audit.size.clicks == made.label @ made.row_count
    assert done.decision.audit.label_name == "synthesised"
    config = tmp_path / "run" / "run.toml"
    assert options_of({k: v for k, v in read_config(config).items() if k != "log"}).label == weights
    with pytest.raises(ColumnError, match="bought"):
        ut.run(table, tmp_path / "no", label={"click": 1, "bought": 5}, features="f_*", **READING)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": {"click": 0}}, "weight of 'click' must be a number above 0"),
        ({"label": {}}, "weights must name label columns"),
        ({"label": 3}, "label must be the name of a column, or weights"),
        ({"label": {"click": 1}, "combine": "mean"}, "combine must be one of"),
        ({"labels": [3]}, "labels must be a name or a list of names"),
    ],
)
def test_wrong_labels_are_refused_before_anything_is_read(options, message, tmp_path):
    with pytest.raises(OptionError, match=message):
        ut.run(tmp_path / "no such log", tmp_path / "run", **options)


def test_options_with_labels_survive_the_file(tmp_path):
    options = options_of({"label": {"click": 1, "dwell": 0.5}, "labels": "liked", "split": "time"})
    (tmp_path / "run.toml").write_text(config_text(options))
    assert options_of(read_config(tmp_path / "run.toml")) == options
