"""The public names are the same at run time and for type checkers, and each has its home."""

import ast
import importlib
from pathlib import Path

import pytest

import untilt


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


def test_the_stub_names_what_there_is():
    assert set(stub_imports()) == set(untilt.__all__)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", untilt.__all__)  # type: ignore[attr-defined]
def test_every_name_is_the_one_of_its_home(name):
    home = importlib.import_module(stub_imports()[name])
    assert getattr(untilt, name) is getattr(home, name)


def test_dir_lists_every_name():
    assert set(untilt.__all__) <= set(dir(untilt))  # type: ignore[attr-defined]


def test_a_wrong_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'read_lgo'"):
        getattr(untilt, "read_lgo")  # noqa: B009  # type: ignore[attr-defined]
