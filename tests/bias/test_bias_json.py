"""A position bias as JSON: exact, readable, and refused when it is something else."""

import json
from dataclasses import fields

import numpy as np
import pytest

from untilt import KnownBias, PositionBias, PowerLaw
from untilt.errors import FileFormatError
from untilt.facts import as_fact, as_facts, codes, joined, note, warning

CONVERGED = note("em.converged", "converged in {steps} steps")

FULL = PositionBias(
    np.array([1.0, 0.1 + 0.2, 1 / 3]),
    covariance=np.array([[0.0, 0, 0], [0, 0.01, 0.002], [0, 0.002, 0.04]]),
    eps_plus=np.array([0.9, 0.8, 0.7]),
    eps_minus=np.array([0.1, 0.05, 1e-300]),
    method="trust EM",
    assumes=as_facts(("the position-based model", "größer")),
    status=as_fact("converged after 12 steps"),
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
    """Without its checksum, as by somebody who edits it on purpose."""
    values = json.loads(FULL.to_json()) | {"sha256": ...} | changes
    return json.dumps({name: value for name, value in values.items() if value is not ...})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"this text is no JSON .*Write it with bias\.save"),
        (FULL.to_json()[:-10], "this text is no JSON"),
        ("[" * 100_000, "this text is no JSON"),
        ("[1, 2]", "is JSON, but lacks"),
        ('{"examination": [1.0]}', r'lacks "kind": "untilt position bias".*ut\.KnownBias'),
        (changed(kind="other"), "but lacks"),
        (changed(version=2), r"this text has version 2 of the format; this untilt reads version 1"),
        (changed(version=...), "has version None of the format"),
        (changed(examination=...), "this text is no PositionBias .* Missing: examination"),
        (changed(surprise=1), "this text is no PositionBias .* Unknown: surprise"),
        (changed(examination=[1.0, -1.0, 0.5]), "examination must be above 0 everywhere"),
        (changed(examination=[1.0]), r"std_error must have shape \(1,\)"),
        (changed(examination=[[1.0], [2.0, 3.0]]), "examination must be an array of numbers"),
        (changed(examination={"a": 1}), "examination must be an array of numbers"),
        (changed(method=3), "this text.method must be text. Found 3"),
        (changed(relative="yes"), "relative must be true or false. Found 'yes'"),
        (changed(assumes="one"), "assumes must be a list. Found 'one'"),
        (changed(level="high"), "level must be a number. Found 'high'"),
    ],
)
def test_other_texts_are_refused(text, message):
    with pytest.raises(FileFormatError, match=message):
        PositionBias.from_json(text)


def test_an_edited_file_is_noticed_and_a_file_without_a_checksum_is_read():
    edited = json.dumps(json.loads(FULL.to_json()) | {"level": 0.8})
    with pytest.raises(FileFormatError, match="was changed after it was written"):
        PositionBias.from_json(edited)
    assert PositionBias.from_json(changed(level=0.8)).level == 0.8


def test_a_file_of_untilt_0_1_is_read():
    """It has no checksum, and one number a line."""
    values = {
        "kind": "untilt position bias", "version": 1, "examination": [1.0, 0.5],
        "std_error": [0.0, "nan"], "method": "AllPairs", "assumes": ["PBM"],
        "status": "converged", "relative": True, "level": 0.95, "low": [1.0, "nan"],
        "high": [1.0, "nan"],
    }  # fmt: skip
    bias = PositionBias.from_json(json.dumps(values, indent=1))
    assert bias.examination.tolist() == [1.0, 0.5]
    assert np.isnan(bias.std_error[1])
    assert (bias.method, bias.assumes, bias.status) == ("AllPairs", ("PBM",), "converged")


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


def test_facts_keep_their_codes_and_fields():
    status = joined(
        CONVERGED(steps=7),
        warning("bias.few-clicks", "few clicks")(positions=(3, 4), fewer_than=10),
    )
    bias = PositionBias(
        [1.0, 0.5],
        status=status,
        assumes=(
            note(
                "bias.position-based",
                "clicks follow the position-based model: P(click) = theta_k gamma",
            )(),
            "by hand",
        ),
    )
    again = PositionBias.from_json(bias.to_json())
    assert (again.status, again.assumes) == (bias.status, bias.assumes)
    assert codes(again.status) == ["em.converged", "bias.few-clicks"]
    assert again.status.part("bias.few-clicks").fields["positions"] == (3, 4)
    assert codes(again.assumes) == ["bias.position-based", "general.text"]
