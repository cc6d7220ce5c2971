"""Runs without their page: figures and verdict are judged here, tests/report draws pages."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def no_page():
    """Drawing takes two thirds of a small run's time."""

    def write(data, path):
        Path(path).write_text("")
        return Path(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("untilt.workflow.run.write_report", write)
        yield
