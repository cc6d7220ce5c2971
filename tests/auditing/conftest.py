"""Audits of the logs of people who read in different ways: made once for all tests."""

import pytest
from tests.auditing.people import READERS, people

from untilt.auditing.audit import Audit, audit


@pytest.fixture(scope="session")
def audits() -> dict[str, Audit]:
    return {name: audit(people(0, **how)) for name, (how, _, _) in READERS.items()}
