"""Importing untilt stays light, and so do its data types and metrics."""

import json
import subprocess
import sys

import pytest

# LightGBM and scikit-learn stand here because they import pandas where that is installed.
HEAVY = [
    "jax", "xgboost", "altair", "vl_convert", "pandas", "polars", "lightgbm", "sklearn", "duckdb",
]  # fmt: skip


def modules_after(code: str) -> set[str]:
    """What a fresh interpreter has loaded after running this code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


COMPILED = [*HEAVY, "numpy", "scipy", "numba", "pyarrow"]
HELP = """
from typer.testing import CliRunner
from untilt.cli.main import app
for words in (["--help"], ["train", "--help"], ["run", "--help"], ["methods"]):
    assert CliRunner().invoke(app, words).exit_code == 0
"""


@pytest.mark.parametrize("code", ["import untilt", "import untilt; untilt.__all__", HELP])
def test_names_and_help_load_nothing_that_is_compiled(code: str) -> None:
    assert sorted(modules_after(code).intersection(COMPILED)) == []


@pytest.mark.parametrize(
    ("code", "loads"),
    [
        ("import untilt", "untilt"),
        ("from untilt import ClickLog, JudgedLists", "untilt.data.clicklog"),
        ("from untilt import NDCG, evaluate, parse_metric", "untilt.evaluation.judged"),
    ],
)
def test_nothing_heavy_is_loaded(code: str, loads: str) -> None:
    loaded = modules_after(code)
    assert loads in loaded
    assert sorted(loaded.intersection(HEAVY)) == []
