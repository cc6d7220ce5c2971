"""Decimal text to float32 and back against Python's float and NumPy's shortest digits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untilt.data.letor.parse import read_number, to_double, to_float32
from untilt.data.letor.write_letor import MOST_VALUE_BYTES, write_value

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def read(text):
    """(value, certain, bytes read) of a text, as the parser reads it."""
    end, negative, mantissa, exponent = read_number(
        np.frombuffer(f"{text}\n".encode(), np.uint8), 0
    )
    value, certain = to_float32(mantissa, exponent)
    return np.float32(-value if negative else value), certain, end


def read_double(text):
    _, negative, mantissa, exponent = read_number(np.frombuffer(f"{text}\n".encode(), np.uint8), 0)
    value, exact = to_double(mantissa, exponent)
    return -value if negative else value, exact


def written(value):
    buffer = np.full(MOST_VALUE_BYTES + 8, ord("!"), dtype=np.uint8)
    end = write_value(buffer, 0, np.float32(value))
    text = buffer.tobytes().decode()
    assert set(text[MOST_VALUE_BYTES:]) == {"!"}
    return text[:end]


def single(text):
    with np.errstate(over="ignore"):
        return np.float32(float(text))


def same_bits(a, b):
    return np.float32(a).tobytes() == np.float32(b).tobytes()


decimals = st.from_regex(
    r"[+-]?([0-9]{1,25}(\.[0-9]{0,25})?|\.[0-9]{1,25})([eE][+-]?[0-9]{1,3})?", fullmatch=True
)


@pytest.mark.parametrize("texts", [300, pytest.param(5_000, marks=pytest.mark.slow)])
def test_reading_is_float32_of_python_float_wherever_it_is_certain(texts):
    @settings(deadline=None, max_examples=texts)
    @given(text=decimals)
    def check(text):
        value, certain, end = read(text)
        assert end == len(text)
        assert not certain or same_bits(value, single(text))
        double, exact = read_double(text)
        assert not exact or double == float(text)

    check()


@settings(deadline=None, max_examples=500)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_reading_a_double_written_in_full(value):
    found, certain, _ = read(repr(value))
    assert not certain or same_bits(found, single(repr(value)))


def test_ordinary_numbers_are_always_certain(rng):
    for text in map(repr, (rng.normal(size=2000) * 10.0 ** rng.integers(-30, 30, 2000)).tolist()):
        assert read(text)[1], text


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_midpoints_between_floats_are_never_guessed(rng, offset):
    """25 significant bits with the last one set lie midway; the digits beyond 18 decide."""
    for _ in range(300):
        mantissa, power = 2 * int(rng.integers(2**23, 2**24)) + 1, int(rng.integers(60, 90))
        text = str(mantissa * 2**power + offset)
        value, certain, _ = read(text)
        assert not certain or same_bits(value, single(text))
        assert not certain


@pytest.mark.parametrize("text", ["", "-", "+", ".", "-.", "e5", "1e", "1e+", "x", "--1", "+-1"])
def test_what_is_no_number(text):
    assert read(text)[2] == 0


@pytest.mark.parametrize(
    ("text", "length"),
    [("1.5x", 3), ("1:2", 1), ("12 3", 2), ("1.2.3", 3), ("1e5e5", 3), ("7-2", 1)],
)
def test_a_number_ends_where_it_ends(text, length):
    assert read(text)[2] == length


@pytest.mark.parametrize(
    "text",
    [
        *("0", "-0", "0e999", "1e-46", "7e-46", "8e-46", "1e-400", "-1e-60", "1.17549435e-38"),
        *("3.4028235e38", "1e39", "1e41", "-1e400", "9007199254740993", "16777217"),
        *("0." + "0" * 50 + "1e50", "1" + "0" * 60 + "e-60"),
        *("1e999999999999999999999", "1e-999999999999999999999"),
    ],
)
def test_extremes(text):
    value, certain, _ = read(text)
    assert certain
    assert same_bits(value, single(text))


@settings(deadline=None, max_examples=1000)
@given(value=FLOATS)
def test_writing_reads_back_equal_with_the_fewest_digits(value):
    text = written(value)
    assert same_bits(single(text), value)
    assert same_bits(read(text)[0], value)
    assert read(text)[1]

    def digits(number):
        return len(number.lstrip("-").split("e")[0].replace(".", "").strip("0"))

    shortest = np.format_float_scientific(np.float32(value), unique=True, trim="-")
    assert digits(text) == digits(shortest)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1, "1"),
        (-12, "-12"),
        (0.1, "0.1"),
        (0.25, "0.25"),
        (1200, "1200"),
        (12.5, "12.5"),
        (123456.7, "123456.7"),
        (11089534, "11089534"),
        (16777216, "16777216"),
        (999999999, "1e9"),
        (1e9, "1e9"),
        (1.5e10, "1.5e10"),
        (0.001, "0.001"),
        (0.00012345, "0.00012345"),
        (0.000012345, "1.2345e-5"),
        (2**-149, "1e-45"),
        (-(2.0**-126), "-1.1754944e-38"),
        (3.4028235e38, "3.4028235e38"),
        (9999999, "9999999"),
        (0.99999994, "0.99999994"),
    ],
)
def test_written_texts(value, text):
    assert written(value) == text
