"""Lengths of time as people write them."""

import re

from untilt.errors import OptionError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")


def seconds_of(text: str) -> float:
    """Seconds of "90", "90s", "10m" or "1h30m".

    >>> seconds_of("1h30m"), seconds_of("2.5m"), seconds_of("90")
    (5400.0, 150.0, 90.0)
    """
    plain = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", plain):
        return float(plain)
    parts = _PART.findall(plain)
    if not parts or _PART.sub("", plain).strip():
        raise OptionError(
            f"a length of time is a number with a unit, such as 90s, 10m or 1h30m. Got {text!r}."
        )
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def duration_text(seconds: float) -> str:
    """The other way round, to two units at most.

    >>> duration_text(12.3), duration_text(192), duration_text(7260)
    ('12 s', '3 min 12 s', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
