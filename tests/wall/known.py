"""Logs on which the wall does not hold, each with its reason."""

from collections.abc import Mapping
from typing import Any

import pytest

# Case -> why what is said there is wrong today.
KNOWN_WRONG = {
    "trust_large": (
        "the curve check is too weak: one ranker shows no document at two positions, so that trust "
        "in the top passes for attention, and a rival of equal worth for better"
    ),
}


def marked(name: str, reasons: Mapping[str, str] = KNOWN_WRONG) -> list[Any]:
    """The mark of a case that does not hold."""
    return [pytest.mark.xfail(reason=reasons[name])] if name in reasons else []
