"""`import untilt` is light, and its names are the same at run time and for type checkers."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import untilt

HEAVY = {
    *("jax", "xgboost", "altair", "pandas", "polars", "lightgbm", "sklearn"),
    *("duckdb", "pyarrow", "matplotlib", "torch", "rich", "typer"),
}


def stub_imports() -> dict[str, str]:
    """Name -> module, as `__init__.pyi` imports it."""
    stub = Path(untilt.__file__).with_suffix(".pyi")
    tree = ast.parse(stub.read_text(encoding="utf8"))
    return {
        alias.asname: str(node.module)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }


def fresh_python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout


def test_importing_untilt_loads_nothing_heavy():
    loaded = fresh_python("import untilt, sys, json; print(json.dumps(list(sys.modules)))")
    assert HEAVY.isdisjoint(name.partition(".")[0] for name in json.loads(loaded))


def test_reading_evaluating_and_weighting_load_no_heavy_extra():
    code = """
import sys, json, untilt
for name in ("ClickLog", "JudgedLists", "evaluate", "PRS", "read_letor"):
    getattr(untilt, name)
print(json.dumps(list(sys.modules)))
"""
    loaded = {name.partition(".")[0] for name in json.loads(fresh_python(code))}
    assert loaded.isdisjoint({"jax", "xgboost", "altair", "pandas", "polars"})


def test_the_stub_names_what_there_is():
    assert set(stub_imports()) == set(untilt.__all__)


@pytest.mark.parametrize("name", untilt.__all__)
def test_every_name_is_the_one_of_its_home(name):
    home = importlib.import_module(stub_imports()[name])
    assert getattr(untilt, name) is getattr(home, name)


def test_dir_lists_every_name():
    assert set(untilt.__all__) <= set(dir(untilt))


def test_a_wrong_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'read_lgo'"):
        untilt.read_lgo  # noqa: B018
