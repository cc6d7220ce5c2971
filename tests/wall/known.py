"""Logs on which the wall does not hold, each with its reason."""

from collections.abc import Mapping
from typing import Any

import pytest

NOT_YET_ESTIMATE: dict[str, str] = {}
NOT_YET_RUN: dict[str, str] = {}


def marked(name: str, reasons: Mapping[str, str]) -> list[Any]:
    """The mark of a case that does not hold."""
    return [pytest.mark.xfail(reason=reasons[name], strict=False)] if name in reasons else []
