"""What a report says, as data: JSON and back, and errors that say where."""

import json
from dataclasses import replace

import numpy as np
import pytest

from untilt.errors import FileFormatError
from untilt.report.decision import Decision, PositionCurve, Value, verdict_of, write_report


def test_json_round_trip(decision, tmp_path):
    decision.save(tmp_path / "figures.json")
    assert Decision.load(tmp_path / "figures.json") == decision


def test_an_empty_decision_round_trips():
    empty = Decision("nothing")
    assert Decision.from_dict(json.loads(json.dumps(empty.to_dict()))) == empty


def test_numpy_becomes_python_and_what_is_not_finite_null():
    curve = PositionCurve(
        "c", np.array([1, 2]), np.array([0.5, np.nan]), (np.float32(0.25), np.inf)
    )
    plain = Decision("t", click_rates=(curve,)).to_dict()
    text = json.dumps(plain, allow_nan=False)
    (read,) = Decision.from_dict(json.loads(text)).click_rates
    assert read.position == (1, 2)
    assert read.value == (0.5, None)
    assert read.low == (0.25, None)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("title",), 3, r"figures\.title must be text\. Found 3"),
        (("answer", "verdict"), "great", r"answer\.verdict must be one of better, worse, und"),
        (("answer", "value", "low"), "x", r"answer\.value\.low must be a number\. Found 'x'"),
        (("click_rates",), {}, r"click_rates must be a list"),
        (("click_rates", 0, "position", 1), 1.5, r"position\[1\] must be a whole number"),
        (("log", "sessions"), True, r"log\.sessions must be a whole number\. Found True"),
        (("log", "rankers"), [], r"log\.rankers must be an object"),
        (("rankers",), "none", r"rankers must be an object"),
        (("rankers", "extra"), 1, r"Unknown: extra\. Write it again with untilt run"),
        (("version",), 99, r"version 99 of the format; this untilt reads version 1"),
        (("format",), "other", r"holds no figures of a report"),
    ],
)
def test_a_damaged_file_says_where(decision, path, value, message):
    plain = decision.to_dict()
    *way, last = path
    place = plain
    for step in way:
        place = place[step]
    place[last] = value
    with pytest.raises(FileFormatError, match=message):
        Decision.from_dict(plain)


def test_a_missing_part_says_which(decision):
    plain = decision.to_dict()
    del plain["rankers"]["metric"]
    with pytest.raises(FileFormatError, match=r"figures\.rankers .* Missing: metric"):
        Decision.from_dict(plain)


def test_a_file_that_is_no_json(tmp_path):
    (tmp_path / "figures.json").write_text("{half")
    with pytest.raises(FileFormatError, match=r"cannot be read as JSON"):
        Decision.load(tmp_path / "figures.json")
    with pytest.raises(FileFormatError, match=r"cannot be read as JSON"):
        Decision.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("difference", "higher", "verdict"),
    [
        (Value(0.2, 0.1, 0.3), True, "better"),
        (Value(0.2, 0.1, 0.3), False, "worse"),
        (Value(-0.2, -0.3, -0.1), True, "worse"),
        (Value(-0.2, -0.3, -0.1), False, "better"),
        (Value(0.2, -0.1, 0.5), True, "undecided"),
        (Value(0.2), True, "undecided"),
        (Value(0.2, 0.0, 0.5), True, "undecided"),
    ],
)
def test_the_verdict_is_what_the_interval_says(difference, higher, verdict):
    assert verdict_of(difference, higher_is_better=higher) == verdict


def test_a_failed_report_leaves_the_old_file(decision, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    bad = replace(decision, changed=(replace(decision.changed[0], documents=None),))
    with pytest.raises(TypeError):
        write_report(bad, path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
