"""Fixtures for all tests."""

import os
from pathlib import Path

import numpy as np
import pytest

# Before OpenMP is loaded: its threads should sleep while they wait, not take turns with the other
# worker's on the same cores (five times the CPU time of the work itself on a busy machine).
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with real data: UNTILT_DATA, or ../shared/data seen from the project's root."""
    folder = Path(os.environ.get("UNTILT_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is no folder; set UNTILT_DATA to where it lies")
    return folder


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
