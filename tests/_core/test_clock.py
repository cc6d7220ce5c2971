"""The time that files tell."""

from datetime import UTC, datetime, timedelta

import pytest

from untilt._core.clock import time_of_writing
from untilt.errors import OptionError


def test_the_real_time(monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    told = datetime.fromisoformat(time_of_writing())
    assert abs(datetime.now(UTC) - told) < timedelta(minutes=1)


def test_a_fixed_time(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert time_of_writing() == "1970-01-02T00:00:00+00:00"


@pytest.mark.parametrize("given", ["soon", "-1", "1.5", "9" * 400, "253402300800", "٣"])
def test_nonsense_is_refused(monkeypatch, given):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", given)
    with pytest.raises(OptionError, match="SOURCE_DATE_EPOCH must be a whole number of seconds"):
        time_of_writing()
