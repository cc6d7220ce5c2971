"""Pages of the reference: commands, every public name, measured tables, and the bibliography."""

import sys
from collections.abc import Iterator
from functools import cache
from inspect import isfunction, ismodule
from operator import attrgetter
from pathlib import Path

from pybtex.backends.plaintext import Backend
from pybtex.database import parse_file
from pybtex.plugin import find_plugin

import untilt
from untilt import _names

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from generate import site_pages

FOLDER = "docs/reference"
# The part of the package that a name lives in says what it is for.
CHAPTERS = {
    "workflow": "From a log to a decision",
    "data": "Logs and judged lists",
    "datasets": "Public logs",
    "auditing": "Audit and plan",
    "bias": "Position bias",
    "clickmodels": "Click models",
    "weighting": "Pair weights",
    "rankers": "Rankers",
    "metrics": "Metrics",
    "evaluation": "Evaluation",
    "selection": "Selection",
    "labels": "Labels",
    "report": "Reports",
    "cluster": "Training with workers",
    "exports": "Exports to engines",
    "mlflow": "MLflow",
    "serving": "Serving and watching",
    "simulation": "Simulation",
    "papers": "The papers' tables",
    "errors": "Errors",
}


def write(root: Path) -> None:
    """Write the pages, each only where it changed (Sphinx reads times)."""
    chapters = _chapters()
    front = ", ".join(f"`{name}`" for name in sorted(_names.FRONT, key=str.lower))
    index = _title("Reference") + f"What most programs need: {front}.\n\nThe rest is in namespaces "
    index += "such as `ut.bias` and `ut.evaluators`.\n\n.. toctree::\n\n"
    pages = {f"{part}.rst": _chapter(part, names) for part, names in chapters.items()}
    pages["bibliography.rst"] = _bibliography(root / "docs" / "references.bib")
    order = ["command-line", *chapters, "measured", "bibliography"]
    pages["index.rst"] = index + "".join(f"   {part}\n" for part in order)
    pages |= site_pages()
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf8") != text:
            path.write_text(text, encoding="utf8")


@cache
def keys(root: Path) -> list[str]:
    """The keys of the bibliography."""
    return list(parse_file(str(root / "docs" / "references.bib")).entries)


def _chapters() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {part: [] for part in CHAPTERS}
    for name in _public_names():
        part = attrgetter(name)(untilt).__module__.split(".")[1]
        # `load`, `register` and `method`
        found["rankers" if part in ("_core", "catalog") else part].append(name)
    return found


def _public_names() -> Iterator[str]:
    """Every public name; of a module, its functions."""
    for name in ["UntiltError", "mlflow", *_names.homes()]:
        value = getattr(untilt, name)
        if not ismodule(value):
            yield name
            continue
        for each, member in vars(value).items():
            if isfunction(member) and member.__module__ == value.__name__ and each[0] != "_":
                yield f"{name}.{each}"


def _chapter(part: str, names: list[str]) -> str:
    text = _title(CHAPTERS[part])
    for name in sorted(names, key=str.lower):
        value = attrgetter(name)(untilt)
        kind = "class" if isinstance(value, type) else "function" if callable(value) else "data"
        text += f".. auto{kind}:: untilt.{name}\n\n"
    return text


def _bibliography(path: Path) -> str:
    """Entries as reStructuredText citations, so that [key]_ in a docstring leads to them."""
    style = find_plugin("pybtex.style.formatting", "unsrt")()
    text = _title("Bibliography")
    for entry in style.format_entries(parse_file(str(path)).entries.values()):
        words = entry.text.render(Backend()).replace("*", "\\*").replace("_", "\\_")
        text += f".. [{entry.key}] {words}\n"
    return text


def _title(words: str) -> str:
    return f"{words}\n{'=' * len(words)}\n\n"
