"""The public names are the same at run time and for type checkers, and each has its home."""

import ast
import importlib
from pathlib import Path

import pytest

import untilt
from untilt import _names

SPACES = [name for name in _names.NAMESPACES if name]
SOURCE = Path(untilt.__file__).parent


def stub_imports(stub: Path) -> dict[str, str]:
    """Name -> module, as the stub imports it."""
    tree = ast.parse(stub.read_text(encoding="utf8"))
    return {
        alias.asname: str(node.module)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }


def test_the_front_page_is_short_and_every_other_name_is_in_a_namespace():
    assert len(_names.FRONT) <= 42
    assert set(dir(untilt)) == {*_names.FRONT, *_names.MODULES, "UntiltError", "__version__"}
    assert set(untilt.__all__) == set(dir(untilt))  # type: ignore[attr-defined]
    shown = {*_names.FRONT, *(name for space in SPACES for name in dir(getattr(untilt, space)))}
    assert set(_names.homes()) - shown == {"compare_curves", "grid", "method", "position_graph"}


def test_every_name_is_the_one_of_its_home_everywhere():
    stub = stub_imports(SOURCE / "__init__.pyi")
    for name, module in _names.homes().items():
        home = importlib.import_module(module)
        assert getattr(untilt, name) is getattr(home, name)
        assert stub[name] == module
    assert set(stub) == {*_names.homes(), *_names.MODULES, "UntiltError", "__version__"}


@pytest.mark.parametrize("space", SPACES)
def test_a_namespace_has_its_names_a_stub_and_no_module_of_such_a_name(space):
    module = importlib.import_module(f"untilt.{space}")
    folder = SOURCE / space
    stub = folder / "__init__.pyi" if folder.is_dir() else folder.with_suffix(".pyi")
    assert dir(module) == sorted(stub_imports(stub)) == sorted(_names.homes(space))
    for name in dir(module):
        assert getattr(module, name) is getattr(untilt, name)
        assert not (folder / f"{name}.py").exists(), "importing it would hide the name"


def test_no_two_names_differ_in_case_alone():
    shown = {*dir(untilt), *(name for space in SPACES for name in dir(getattr(untilt, space)))}
    assert len({name.lower() for name in shown}) == len(shown)


@pytest.mark.parametrize("module", ["untilt", "untilt.bias", "untilt.weightings"])
def test_a_wrong_name_is_an_attribute_error(module):
    with pytest.raises(AttributeError, match="no attribute 'read_lgo'"):
        getattr(importlib.import_module(module), "read_lgo")  # noqa: B009
