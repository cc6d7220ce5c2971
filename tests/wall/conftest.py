"""Runs without their page."""

import pytest
from tests.wall.judging import without_pages


@pytest.fixture(autouse=True, scope="module")
def no_page():
    with without_pages():
        yield
