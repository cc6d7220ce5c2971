"""Results as JSON and back: every kind of field, exact numbers, errors that say where, the seal."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pytest

from untilt._core import codec
from untilt._core.arrays import AnyArray, FloatArray, IntArray
from untilt._core.codec import TaggedDecoder, TaggedEncoder
from untilt.errors import FileFormatError, OptionError
from untilt.facts import TEXT, Fact


class Pair(NamedTuple):
    plus: FloatArray
    minus: FloatArray


@dataclass(frozen=True)
class Inner:
    value: float
    name: str = "inner"
    json_properties: ClassVar[tuple[str, ...]] = ("twice",)

    @property
    def twice(self) -> float:
        return 2 * self.value


@dataclass(frozen=True, eq=False)
class Outer:
    whole: int
    number: float
    yes: bool
    verdict: Literal["better", "worse"]
    inner: Inner
    several: tuple[Inner, ...]
    ends: tuple[float, int]
    counts: Mapping[str, int]
    swapped: Mapping[tuple[int, int], int]
    curve: FloatArray
    position: IntArray
    matrix: AnyArray
    pair: Pair
    fact: Fact
    status: str
    clip: float | Literal["auto"] = "auto"
    maybe: Inner | None = None
    free: Mapping[str, Any] = field(default_factory=dict)


def outer(**changed: Any) -> Outer:
    values = {
        "whole": np.int64(3), "number": np.float64(0.1 + 0.2), "yes": np.bool_(True),
        "verdict": "better", "inner": Inner(1 / 3), "several": (Inner(float("nan")), Inner(2.0)),
        "ends": (float("-inf"), 4), "counts": {"größer": 1}, "swapped": {(1, 2): 5},
        "curve": np.array([1.0, np.nan, np.inf]), "position": np.array([1, 2]),
        "matrix": np.array([[1, 2], [3, 4]]), "pair": Pair(np.ones(2), np.zeros(2)),
        "fact": TEXT(text="a fact"), "status": TEXT(text="done"),
    }  # fmt: skip
    return Outer(**{**values, **changed})


def through(value: Any) -> Any:
    plain = json.loads(codec.json_text(codec.to_plain(value)))
    return codec.from_plain(type(value), plain, where="it")


def test_every_kind_of_field_survives():
    made = outer(free={"depth": 5}, maybe=Inner(1.0, "x"), clip=0.25)
    again = through(made)
    for name in ("whole", "number", "yes", "verdict", "inner", "ends", "counts", "swapped", "fact",
                 "status", "clip", "maybe", "free"):  # fmt: skip
        assert getattr(again, name) == getattr(made, name), name
    for name in ("curve", "position", "matrix"):
        assert np.array_equal(getattr(again, name), getattr(made, name), equal_nan=True), name
        assert getattr(again, name).dtype == getattr(made, name).dtype
        assert not getattr(again, name).flags.writeable
    assert np.isnan(again.several[0].value)
    assert again.several[1] == Inner(2.0)
    assert isinstance(again.pair, Pair)
    assert (again.fact.code, again.status.code) == ("general.text", "general.text")


def test_floats_are_exact():
    values = np.random.default_rng(0).normal(size=500) * 10.0 ** np.arange(-250, 250)
    assert np.array_equal(through(outer(curve=values)).curve, values)


def test_none_is_left_out_and_properties_are_for_readers():
    plain = codec.to_plain(outer())
    assert "maybe" not in plain
    assert plain["inner"] == {"value": 1 / 3, "name": "inner", "twice": 2 / 3}
    assert plain["several"][0]["value"] == "nan"


def test_people_can_read_the_text():
    text = codec.json_text({"curve": [1.0, 0.5], "inner": {"a": 1}, "rows": [[1, 2], [3, 4]]})
    rows = '"rows": [\n  [1, 2],\n  [3, 4]\n ]'
    assert text == '{\n "curve": [1.0, 0.5],\n "inner": {\n  "a": 1\n },\n ' + rows + "\n}\n"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("whole",), 1.5, r"it\.whole must be a whole number\. Found 1\.5"),
        (("whole",), True, r"it\.whole must be a whole number\. Found True"),
        (("number",), "x", r"it\.number must be a number\. Found 'x'"),
        (("yes",), 1, r"it\.yes must be true or false"),
        (("verdict",), "great", r"it\.verdict must be one of better, worse"),
        (("inner",), [], r"it\.inner must be an object"),
        (("inner", "value"), None, r"it\.inner\.value must be a number"),
        (("inner", "extra"), 1, r"it\.inner is no Inner .* Unknown: extra"),
        (("several",), {}, r"it\.several must be a list"),
        (("several", 1, "name"), 3, r"it\.several\[1\]\.name must be text"),
        (("ends",), [1.0], r"it\.ends must be a list of 2"),
        (("counts",), ["a"], r"it\.counts must be an object"),
        (("counts", "größer"), "b", r"it\.counts\.größer must be a whole number"),
        (("swapped",), [[[1], 2]], r"it\.swapped\[0\]\[0\] must be a list of 2"),
        (("curve",), [[1.0], [2.0, 3.0]], r"it\.curve must be an array of numbers"),
        (("curve",), {"a": 1}, r"it\.curve must be an array of numbers"),
        (("curve",), ["one"], r"it\.curve must be an array of numbers"),
        (("position",), [1.5], r"it\.position must be an array of int64"),
        (("fact",), 3, r"it\.fact must be a fact"),
        (("fact", "code"), 3, r"it\.fact is no fact"),
        (("clip",), "none", r"it\.clip must be one of auto"),
    ],
)
def test_a_wrong_value_says_where(path, value, message):
    plain = json.loads(json.dumps(codec.to_plain(outer())))
    *way, last = path
    place = plain
    for step in way:
        place = place[step]
    place[last] = value
    with pytest.raises(FileFormatError, match=message):
        codec.from_plain(Outer, plain, where="it")


def test_a_missing_field_says_which():
    with pytest.raises(FileFormatError, match=r"it is no Inner .* Missing: value\."):
        codec.from_plain(Inner, {}, where="it")


# ---- the seal

SEAL: dict[str, Any] = {"kind": "a test", "version": 3, "where": "file", "again": "Write it again."}


def opened(record: Any, *, strict: bool = True) -> Inner:
    return codec.unsealed(record, Inner, **SEAL, strict=strict)


def test_layout_and_order_do_not_matter_but_every_value_does():
    record = codec.sealed(Inner(0.5), kind="a test", version=3)
    turned = dict(reversed(json.loads(json.dumps(record)).items()))
    assert opened(turned) == Inner(0.5)
    for name, value in (("value", 0.25), ("name", "other"), ("twice", 7.0), ("sha256", "0" * 64)):
        with pytest.raises(FileFormatError, match="checksum does not match"):
            opened({**record, name: value})
    with pytest.raises(FileFormatError, match="has version 4 of the format; this untilt reads ver"):
        opened({**record, "version": 4})
    with pytest.raises(FileFormatError, match='lacks "kind": "a test"'):
        opened({**record, "kind": "b"})


def test_a_record_without_a_checksum_is_for_people_alone():
    record = {"kind": "a test", "version": 3, "value": 0.5}
    assert opened(record, strict=False) == Inner(0.5)
    with pytest.raises(FileFormatError, match="checksum"):
        opened(record)


def test_a_file_that_is_no_json(tmp_path):
    (tmp_path / "a.json").write_bytes(b"\xff{half")
    with pytest.raises(FileFormatError, match=r"a\.json is no JSON .* Write it again\."):
        codec.read_file(tmp_path / "a.json", again="Write it again.")


# ---- what somebody else may have written

DEEP = 100_000
ODD = {
    "nested lists": "[" * DEEP + "]" * DEEP,
    "nested objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "nested a little too deep": "[" * 101 + "]" * 101,
    "400 digits": "9" * 400,
    "5,000 digits": "9" * 5000,
    "over 64 bits": str(2**63),
    "1e999": "1e999",
    "NaN": "NaN",
    "Infinity": "-Infinity",
    "half": '{"a": [1, 2',
    "too many values": "[" + "1," * codec.MOST_VALUES + "1]",
}


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_odd_json_is_refused(odd):
    for text in (ODD[odd], f'{{"a": [{ODD[odd]}]}}'):
        with pytest.raises(FileFormatError, match=r"^it "):
            codec.read_json(text, where="it", again="")


def test_a_file_without_end_is_read_no_further_than_the_limit(monkeypatch):
    monkeypatch.setattr(codec, "MOST_BYTES", 1 << 20)
    with pytest.raises(FileFormatError, match="larger than 1 MiB"):
        codec.read_file("/dev/zero", again="")


ANYTHING: list[Any] = [
    None, True, False, 0, -1, 10**400, -(10**19), 1.5, float("nan"), float("inf"), 1e308, "", "x",
    "nan", "9" * 400, "\ud800", [], [[]], [None], [True, 2], [1, [2]], ["nan", "9"], [10**400],
    [10**19], ["x" * 10**6, *([1.0] * 10**5)], {}, {"": {}}, {"code": []},
    {"code": [], "fields": 1},
    {"code": "general.text", "fields": {"text": 10**400, "more": 1}},
    {"code": "general.joined", "fields": {"parts": [1]}},
    {"code": "\0", "fields": {}}, {"code": "../x.y", "fields": {}},
    {"code": "general.text", "fields": {"text": {"$array": [1], "dtype": "O", "shape": [2, -1]}}},
    {"code": "general.text", "fields": {"text": {"$float": []}}},
]  # fmt: skip


@pytest.mark.parametrize("name", codec.to_plain(outer(maybe=Inner(1.0), free={"a": 1})))
def test_any_value_in_any_field_is_taken_or_refused(name):
    for value in ANYTHING:
        plain = {**codec.to_plain(outer()), name: value}
        try:
            made = codec.from_plain(Outer, plain, where="it")
        except FileFormatError:
            continue
        assert isinstance(made.fact, Fact)
        assert (made.curve.dtype, made.position.dtype) == (np.float64, np.int64)


@pytest.mark.parametrize("value", ANYTHING, ids=lambda value: repr(value)[:20])
def test_any_value_under_the_seal_is_taken_or_refused(value):
    for record in (value, {**SEAL, "value": 1.0, "sha256": value}, {**SEAL, "version": value}):
        with pytest.raises(FileFormatError) as refused:
            opened(record)
        assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("curve", [True, False]),
        ("position", [True, False]),
        ("position", [2**63]),
        ("whole", 2**63),
        ("number", 10**400),
        ("curve", ["1.5"]),
    ],
)
def test_what_another_type_could_stand_for_is_refused(name, value):
    with pytest.raises(FileFormatError, match=rf"it\.{name} must be"):
        codec.from_plain(Outer, {**codec.to_plain(outer()), name: value}, where="it")


@dataclass(frozen=True)
class Picky:
    error: str

    def __post_init__(self) -> None:
        raise {e.__name__: e for e in codec.DO_NOT_FIT}[self.error]


@pytest.mark.parametrize("error", [each.__name__ for each in codec.DO_NOT_FIT])
def test_whatever_a_class_raises_is_a_wrong_file(error):
    with pytest.raises(FileFormatError, match=f"it is no Picky: {error}"):
        codec.from_plain(Picky, {"error": error}, where="it")


def test_half_a_character_survives():
    """File names need not be UTF-8; Python holds the other bytes as halves of characters."""
    value = Inner(1.0, "caf\udce9 größer")
    text = codec.json_text(codec.sealed(value, kind="a test", version=3))
    text.encode()
    assert opened(json.loads(text)) == value
    assert "größer" in codec.json_text({"a": "größer"})


# ---- values that describe themselves


@pytest.mark.parametrize(
    "value",
    [1, 0.1, float("inf"), "text", None, (1, (2.5, "a")), [1, [2]], {"a": (1,)}, {(1, 2): "x"},
     {"$odd": 1}],
)  # fmt: skip
def test_tagged_values_survive(value):
    text = json.dumps(TaggedEncoder().encode(value, "it"), allow_nan=False)
    assert TaggedDecoder().decode(json.loads(text)) == value


def test_tagged_arrays_and_facts_survive():
    array = np.array([[1.5, np.nan]], dtype=np.float32)
    again = TaggedDecoder().decode(TaggedEncoder().encode(array, "it"))
    assert again.dtype == np.float32
    assert np.array_equal(again, array, equal_nan=True)
    fact = TaggedDecoder().decode(TaggedEncoder().encode(TEXT(text="a"), "it"))
    assert (fact, fact.code) == ("a", "general.text")


def test_what_cannot_be_written_or_read_is_told():
    with pytest.raises(OptionError, match=r"it\.0 is a object, which cannot be saved"):
        TaggedEncoder().encode([object()], "it")
    with pytest.raises(FileFormatError, match=r"it holds '\$new'"):
        TaggedDecoder().decode({"$new": 1})
