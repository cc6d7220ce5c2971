"""A position bias as JSON: exact, readable, and refused when it is something else."""

import json
from dataclasses import fields

import numpy as np
import pytest

from untilt.bias.curve import PositionBias
from untilt.bias.given import KnownBias, PowerLaw
from untilt.errors import FileFormatError

FULL = PositionBias(
    np.array([1.0, 0.1 + 0.2, 1 / 3]),
    covariance=np.array([[0.0, 0, 0], [0, 0.01, 0.002], [0, 0.002, 0.04]]),
    eps_plus=np.array([0.9, 0.8, 0.7]),
    eps_minus=np.array([0.1, 0.05, 1e-300]),
    method="trust EM",
    assumes=("the position-based model", "größer"),
    status="converged after 12 steps",
    relative=False,
    level=0.9,
)
UNSURE = PositionBias(np.array([1.0, 0.5]), std_error=np.array([0.0, np.nan]))


@pytest.mark.parametrize("bias", [FULL, UNSURE, KnownBias([1.0, 0.5]), PowerLaw(0.7).to_bias(20)])
def test_every_field_survives_to_the_last_bit(bias, tmp_path):
    bias.save(tmp_path / "deep" / "bias.json")
    for again in (
        PositionBias.load(tmp_path / "deep" / "bias.json"),
        PositionBias.from_json(bias.to_json()),
    ):
        for field in fields(bias):
            one, two = getattr(bias, field.name), getattr(again, field.name)
            if isinstance(one, np.ndarray):
                assert np.array_equal(one, two, equal_nan=True), field.name
            else:
                assert one == two, field.name
        assert repr(again) == repr(bias)


def test_people_can_read_it():
    values = json.loads(FULL.to_json())
    assert values["kind"] == "untilt position bias"
    assert values["examination"] == [1.0, 0.1 + 0.2, 1 / 3]
    assert values["method"] == "trust EM"


def changed(**changes):
    values = json.loads(FULL.to_json()) | changes
    return json.dumps({name: value for name, value in values.items() if value is not ...})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"this text is no JSON .*Write it again with bias\.save"),
        (FULL.to_json()[:-10], "this text is no JSON"),
        ("[" * 100_000, "this text is no JSON"),
        ("[1, 2]", "is JSON, but no position bias"),
        ('{"examination": [1.0]}', r"but no position bias of untilt.*ut\.KnownBias"),
        (changed(kind="other"), "but no position bias"),
        (changed(version=2), r"this text has version 2 of the format.*Upgrade untilt"),
        (changed(version=...), "has version None of the format"),
        (changed(examination=...), "this text: a position bias must have the field 'examination'"),
        (changed(surprise=1), "this text: a position bias has no field 'surprise'"),
        (changed(examination=[1.0, -1.0, 0.5]), "examination must be above 0 everywhere"),
        (changed(examination=[1.0]), r"std_error must have shape \(1,\)"),
        (changed(examination=[[1.0], [2.0, 3.0]]), "this is no position bias"),
        (changed(examination={"a": 1}), "this is no position bias"),
        (changed(method=3), "method must be str. Got 3 instead"),
        (changed(relative="yes"), "relative must be bool. Got 'yes' instead"),
        (changed(assumes="one"), "assumes must be list. Got 'one' instead"),
        (changed(level="high"), "level must be float. Got 'high' instead"),
    ],
)
def test_other_texts_are_refused(text, message):
    with pytest.raises(FileFormatError, match=message):
        PositionBias.from_json(text)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "bias.json"
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(FileFormatError, match=r"bias\.json is no JSON"):
        PositionBias.load(path)


@pytest.mark.parametrize("cut", range(0, 600, 25))
def test_a_cut_file_is_refused(tmp_path, cut):
    text = FULL.to_json().rstrip()
    path = tmp_path / "bias.json"
    path.write_text(text[: min(cut, len(text) - 1)], encoding="utf-8")
    with pytest.raises(FileFormatError):
        PositionBias.load(path)
