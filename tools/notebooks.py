"""Pages that show what their code prints, and the notebooks that are made from them.

A page of docs/cookbooks, and docs/start.md, holds blocks of Python and of commands. A block of
`text` right behind one is what it printed, or its first lines and a line of dots:

    python tools/notebooks.py [NAME ...]     run the pages and write what they print into them
    make notebooks                           docs/notebooks/*.ipynb from the cookbooks as they stand

So the page is the source, figures on it were printed and not typed, and a notebook is a page in
another form: text alone, no pictures, a few kilobytes. tests/test_notebooks.py runs both.
"""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COOKBOOKS = ROOT / "docs" / "cookbooks"
NOTEBOOKS = ROOT / "docs" / "notebooks"
BLOCK = re.compile(
    r"^```(?P<language>python|sh)\n(?P<code>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
WIDTH = 110  # of what is printed: a page of the site shows so much without a scroll bar
TOOK = re.compile(r" \(\d+\.\d s\)$")
PROGRAM = [sys.executable, "-c", "from untilt.cli.main import main; main()"]


@dataclass(frozen=True)
class Part:
    """Prose, or a block of code with what it printed; `language` is "" for prose."""

    language: str
    text: str
    printed: str = ""

    def markdown(self) -> str:
        """As it stands on a page."""
        if not self.language:
            return self.text
        shown = f"\n```text\n{self.printed}```\n" if self.printed else ""
        return f"```{self.language}\n{self.text}```\n{shown}"


def pages() -> dict[str, Path]:
    """The pages with what their code prints, by name."""
    return {
        path.stem: path for path in (ROOT / "docs" / "start.md", *sorted(COOKBOOKS.glob("*.md")))
    }


def parts(page: str) -> list[Part]:
    """A page in order."""
    found, end = [], 0
    for block in BLOCK.finditer(page):
        found.append(Part("", page[end : block.start()]))
        found.append(Part(block["language"], block["code"], block["printed"] or ""))
        end = block.end()
    return [*found, Part("", page[end:])]


def run(page: str, prelude: str = "") -> list[Part]:
    """The same with what the blocks print now, in an empty folder, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-W", "error", __file__, "--here"],
            input=json.dumps({"page": page, "prelude": prelude}),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"COLUMNS": str(WIDTH)},
        )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [Part(**each) for each in json.loads(done.stdout)]


def _run_here(page: str, prelude: str) -> list[dict[str, str]]:
    """Run the blocks in this process and this folder, as a reader would type them."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(prelude, names)
    prints = {
        "": lambda _: "",
        "python": lambda code: _printed(code, names),
        "sh": lambda block: "".join(map(_answer, _commands(block))),
    }
    return [
        vars(replace(part, printed=_as_long(prints[part.language](part.text), part.printed)))
        for part in parts(page)
    ]


def _as_long(printed: str, shown: str) -> str:
    """A page that ends what it shows with a line of dots shows as many lines again."""
    lines = shown.splitlines()
    if not lines or lines[-1] != "...":
        return printed
    return "".join(printed.splitlines(keepends=True)[: len(lines) - 1]) + "...\n"


def _printed(code: str, names: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "page", "exec"), names)
    return _plain(out.getvalue())


def _commands(block: str) -> list[list[str]]:
    """The commands of untilt in a block; others, such as pip, are for the reader."""
    lines = block.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("untilt ")]


def _answer(command: list[str]) -> str:
    done = subprocess.run([*PROGRAM, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"untilt {shlex.join(command)}\n{done.stderr}")
    return _plain(done.stdout)


def _plain(text: str) -> str:
    """Long lines broken; without how long each step took, and empty lines around."""
    lines = [TOOK.sub("", line).rstrip() for line in text.splitlines()]
    broken = "\n".join(_broken(line) for line in lines).strip("\n")
    return f"{broken}\n" if broken else ""


def _broken(line: str) -> str:
    """A sentence over several lines; a row of a table stays whole."""
    if len(line) <= WIDTH or "   " in line.strip():
        return line
    return textwrap.fill(line, WIDTH, subsequent_indent="  ", break_long_words=False)


def notebooks() -> dict[Path, str]:
    """Every cookbook as a notebook, with what its code printed as text."""
    return {
        NOTEBOOKS / f"{path.stem}.ipynb": notebook(path.read_text(encoding="utf8"), path)
        for path in sorted(COOKBOOKS.glob("*.md"))
    }


def notebook(page: str, path: Path) -> str:
    """A page in the notebook format 4.5; links hold, since both folders lie beside each other."""
    cells = [
        _cell(number, part)
        for number, part in enumerate(each for each in parts(page) if each.text.strip())
    ]
    made = f"Made from `{path.relative_to(ROOT)}` by `make notebooks`: change it there."
    cells.append(_cell(len(cells), Part("", made)))
    whole = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, part: Part) -> dict[str, Any]:
    cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}}
    if part.language != "python":
        text = part.markdown().strip("\n")
        return {"cell_type": "markdown", **cell, "source": text.splitlines(keepends=True)}
    out = {"name": "stdout", "output_type": "stream", "text": part.printed.splitlines(True)}
    return {
        "cell_type": "code",
        "execution_count": None,
        **cell,
        "outputs": [out] if part.printed else [],
        "source": part.text.strip("\n").splitlines(keepends=True),
    }


def main(wanted: list[str]) -> None:
    """Run the named pages, or all, and write what they print."""
    for name in wanted or pages():
        path = pages()[name]
        text = "".join(part.markdown() for part in run(path.read_text(encoding="utf8")))
        path.write_text(text, encoding="utf8")
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--here"]:
        given = json.load(sys.stdin)
        json.dump(_run_here(given["page"], given["prelude"]), sys.stdout)
    else:
        main(sys.argv[1:])
