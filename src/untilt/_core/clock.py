"""The time that files tell: one place for it, and one way to fix it.

With SOURCE_DATE_EPOCH in the environment (seconds since 1970, the convention of reproducible
builds) every time that untilt writes into a result is that one, so that the same input and seed
give the same bytes.
"""

import os
from datetime import UTC, datetime

from untilt.errors import OptionError

FIXED_BY = "SOURCE_DATE_EPOCH"
_LAST = 253402300799  # the end of the year 9999, where ISO dates of four digits end


def time_of_writing() -> str:
    """Now in UTC, or the time in SOURCE_DATE_EPOCH, such as 2026-11-16T05:03:31+00:00."""
    given = os.environ.get(FIXED_BY, "")
    now = datetime.fromtimestamp(_seconds(given), UTC) if given else datetime.now(UTC)
    return now.isoformat(timespec="seconds")


def time_is_fixed() -> bool:
    """Whether SOURCE_DATE_EPOCH fixes the time."""
    return bool(os.environ.get(FIXED_BY))


def _seconds(given: str) -> int:
    if given.isascii() and given.isdigit() and len(given) <= 12 and int(given) <= _LAST:
        return int(given)
    raise OptionError(
        f"{FIXED_BY} must be a whole number of seconds since 1970. Got {given[:40]!r} in the "
        "environment instead. Unset it to have the real time."
    )
