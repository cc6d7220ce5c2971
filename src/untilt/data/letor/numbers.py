"""Decimal text to float32 and back, compiled: the inner loop of reading and writing LETOR files.

Reading gives exactly float32(float(text)); writing gives the fewest digits that read back equal.
"""

import numba as nb
import numpy as np

from untilt._core.arrays import AnyArray

PLUS, MINUS, POINT, ZERO = ord("+"), ord("-"), ord("."), ord("0")
BIG_E, SMALL_E = ord("E"), ord("e")
SMALL_N, SMALL_A = ord("n"), ord("a")

# With mantissas below 1e18, 1e-70 times one is 0 in float32 and 1e41 times one is infinite.
_LOWEST, _HIGHEST = -70, 60
_POWERS = np.array([float(f"1e{exponent}") for exponent in range(_LOWEST, _HIGHEST + 1)])
_EXACT_POWER = 22  # the last power of ten that a double holds exactly
_EXACT_MANTISSA = 2**53
_MANTISSA_ROOM = 10**17  # below this, one more digit fits into 18 digits
_EXPONENT_ROOM = 10**9
# The mantissa, the power and their product each round by at most 2**-53, the digits beyond 18 count
# for less than 2**-56: 2**-49 covers their sum and the half unit between it and the true double.
_SLACK = 2.0**-49

_SMALLEST_NORMAL = 2.0**-126

MOST_VALUE_BYTES = 16  # the longest text of `write_value`, such as -1.17549435e-38


@nb.njit(cache=True)
def read_number(buffer: AnyArray, at: int) -> tuple[int, bool, int, int]:
    """(end, negative, mantissa, exponent) of the number at `at`; end = `at` if there is none.

    Digits beyond the 18th are dropped, so the number is then known to 2**-56 of itself.
    """
    begin = at
    c = buffer[at]
    negative = c == MINUS
    if negative or c == PLUS:
        at += 1
        c = buffer[at]
    mantissa, exponent, first = 0, 0, at
    while ZERO <= c <= ZERO + 9:
        if mantissa < _MANTISSA_ROOM:
            mantissa = mantissa * 10 + (c - ZERO)
        else:
            exponent += 1
        at += 1
        c = buffer[at]
    n_digits = at - first
    if c == POINT:
        at += 1
        c = buffer[at]
        first = at
        while ZERO <= c <= ZERO + 9:
            if mantissa < _MANTISSA_ROOM:
                mantissa = mantissa * 10 + (c - ZERO)
                exponent -= 1
            at += 1
            c = buffer[at]
        n_digits += at - first
    if n_digits == 0:
        return begin, False, 0, 0
    if c in (SMALL_E, BIG_E):
        at += 1
        c = buffer[at]
        sign = -1 if c == MINUS else 1
        if c in (MINUS, PLUS):
            at += 1
            c = buffer[at]
        first, power = at, 0
        while ZERO <= c <= ZERO + 9:
            if power < _EXPONENT_ROOM:
                power = power * 10 + (c - ZERO)
            at += 1
            c = buffer[at]
        if at == first:
            return begin, False, 0, 0
        exponent += sign * power
    return at, negative, mantissa, exponent


@nb.njit(cache=True)
def to_double(mantissa: int, exponent: int) -> tuple[float, bool]:
    """mantissa * 10**exponent rounded once, or (something, False) where that takes more care."""
    if mantissa == 0:
        return 0.0, True
    if mantissa > _EXACT_MANTISSA or exponent < -_EXACT_POWER or exponent > _EXACT_POWER:
        return 0.0, False
    # Both operands are exact, so one multiplication or division rounds correctly.
    if exponent < 0:
        return mantissa / _POWERS[-exponent - _LOWEST], True
    return mantissa * _POWERS[exponent - _LOWEST], True


@nb.njit(cache=True)
def to_float32(mantissa: int, exponent: int) -> tuple[np.float32, bool]:
    """mantissa * 10**exponent as float32, and whether it is certainly float32(float(text)).

    Where the double is not exact, it is known within a slack; if both ends of the slack round to
    the same float32, so does the true double. Only values next to a midpoint stay uncertain.
    """
    exact, known = to_double(mantissa, exponent)
    if known:
        return np.float32(exact), True
    if exponent < _LOWEST:
        return np.float32(0.0), True
    if exponent > _HIGHEST:
        return np.float32(np.inf), True
    near = mantissa * _POWERS[exponent - _LOWEST]
    low, high = np.float32(near - near * _SLACK), np.float32(near + near * _SLACK)
    return low, low == high


@nb.njit(cache=True)
def shortest_digits(value: float) -> tuple[int, int]:
    """(mantissa, exponent) with the fewest digits that read back as the float32 `value` > 0.

    Six digits are tried first: a shorter decimal that reads back equal lies within 2**-24 of the
    value, closer than any other six digits, so it appears there with zeros at its end. Nine always
    do. Below the normal floats precision falls, and one digit may do.
    """
    power = int(np.floor(np.log10(value)))
    if _POWERS[power - _LOWEST] > value:  # log10 rounded up to a whole number
        power -= 1
    mantissa, exponent = 0, 0
    for n_digits in range(6 if value >= _SMALLEST_NORMAL else 1, 10):
        exponent = power + 1 - n_digits
        if exponent < 0:
            mantissa = int(np.rint(value * _POWERS[-exponent - _LOWEST]))
        else:
            mantissa = int(np.rint(value / _POWERS[exponent - _LOWEST]))
        back, certain = to_float32(mantissa, exponent)
        if certain and back == np.float32(value):
            break
    while mantissa % 10 == 0:
        mantissa //= 10
        exponent += 1
    return mantissa, exponent


@nb.njit(cache=True)
def write_whole(buffer: AnyArray, at: int, number: int) -> int:
    """Write a whole number >= 0 in decimal and return where it ends."""
    end, rest = at + 1, number // 10
    while rest > 0:
        end += 1
        rest //= 10
    place, rest = end, number
    while place > at:
        place -= 1
        buffer[place] = ZERO + rest % 10
        rest //= 10
    return end


@nb.njit(cache=True)
def write_value(buffer: AnyArray, at: int, value: np.float32) -> int:
    """Write a float32 with the fewest digits that read back equal; return where it ends.

    NaN is written as nan; infinite values cannot be written.
    """
    if np.isnan(value):
        buffer[at], buffer[at + 1], buffer[at + 2] = SMALL_N, SMALL_A, SMALL_N
        return at + 3
    if np.signbit(value):
        buffer[at] = MINUS
        at += 1
    if value == 0:
        buffer[at] = ZERO
        return at + 1
    mantissa, exponent = shortest_digits(abs(np.float64(value)))
    digits_end = write_whole(buffer, at, mantissa)
    n_digits = digits_end - at
    point = n_digits + exponent  # digits before the decimal point
    if 0 < point <= 9:
        return _write_plain(buffer, at, digits_end, point)
    if -4 < point <= 0:
        return _write_small(buffer, at, digits_end, -point)
    if n_digits > 1:
        _shift(buffer, at + 1, digits_end, 1)
        buffer[at + 1] = POINT
        digits_end += 1
    buffer[digits_end] = SMALL_E
    if point < 1:
        buffer[digits_end + 1] = MINUS
        digits_end += 1
    return write_whole(buffer, digits_end + 1, abs(point - 1))


@nb.njit(cache=True)
def _write_plain(buffer: AnyArray, at: int, end: int, point: int) -> int:
    """Digits at:end with the decimal point after the first `point` of them: 1234, 12.34, 1200."""
    if at + point >= end:
        buffer[end : at + point] = ZERO
        return at + point
    _shift(buffer, at + point, end, 1)
    buffer[at + point] = POINT
    return end + 1


@nb.njit(cache=True)
def _write_small(buffer: AnyArray, at: int, end: int, zeros: int) -> int:
    """Digits at:end as 0.00digits, with this many zeros after the point."""
    shift = 2 + zeros
    _shift(buffer, at, end, shift)
    buffer[at : at + shift] = ZERO
    buffer[at + 1] = POINT
    return end + shift


@nb.njit(cache=True)
def _shift(buffer: AnyArray, begin: int, end: int, by: int) -> None:
    """Move bytes begin:end to the right, last byte first."""
    for place in range(end - 1, begin - 1, -1):
        buffer[place + by] = buffer[place]
