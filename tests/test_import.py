"""Importing untilt stays light."""

import json
import subprocess
import sys

import pytest

# LightGBM stands here because it imports pandas where that is installed.
HEAVY = ["jax", "xgboost", "altair", "vl_convert", "pandas", "polars", "lightgbm", "duckdb"]

SCRIPT = """
import json, sys
import untilt
public = [getattr(untilt, name) for name in untilt.__all__]
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


def test_import_does_something(loaded: set[str]) -> None:
    assert {"untilt", "untilt.logs.clicklog", "numpy", "numba"} <= loaded


@pytest.mark.parametrize("package", HEAVY)
def test_import_does_not_load(package: str, loaded: set[str]) -> None:
    assert package not in loaded
