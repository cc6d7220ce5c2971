"""Logs on which the wall does not hold, each with its reason."""

from collections.abc import Mapping
from typing import Any

import pytest

# Case -> why what is said there is wrong today.
KNOWN_WRONG: dict[str, str] = {}


def marked(name: str, reasons: Mapping[str, str] = KNOWN_WRONG) -> list[Any]:
    """The mark of a case that does not hold."""
    return [pytest.mark.xfail(reason=reasons[name])] if name in reasons else []
