"""Pages that show what their code prints, and their notebooks: small, up to date, and true."""

import importlib.util
import json
import math
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools/notebooks.py")
assert spec is not None
assert spec.loader is not None
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?")


def alike(one: str, other: str) -> bool:
    """The same words, and numbers that another machine may give: within a tenth, or 0.05."""
    words, numbers = ([NUMBER.sub("#", text).split() for text in (one, other)], [])
    for text in (one, other):
        numbers.append([float(each.replace(",", "")) for each in NUMBER.findall(text)])
    return words[0] == words[1] and all(
        math.isclose(a, b, rel_tol=0.1, abs_tol=0.05) for a, b in zip(*numbers, strict=True)
    )


def test_alike_is_strict_about_words_and_large_differences():
    assert alike("better by 0.103 [0.05, 1,000]", "better by 0.104 [0.05, 1,020]")
    assert not alike("better by 0.1", "worse by 0.1")
    assert not alike("0.5", "0.7")
    assert not alike("1,000 sessions", "2,000 sessions")


def test_a_page_is_its_parts():
    text = "# A\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\nend\n```sh\nls\n```\n"
    assert "".join(part.markdown() for part in tool.parts(text)) == text
    assert [part.printed for part in tool.parts(text)] == ["", "1\n", "", "", ""]


def test_running_a_page_writes_what_it_prints():
    text = "```python\nx = 2\nprint(x)\n```\n\n```text\nold\n```\n\n```python\nprint(x + 1)\n```\n"
    assert [part.printed for part in tool.run(text) if part.language] == ["2\n", "3\n"]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        tool.run("```python\n1 / 0\n```\n")


def test_there_are_four_notebooks_of_four_cookbooks():
    pages = {path.stem for path in (ROOT / "docs/cookbooks").glob("*.md")}
    assert {path.stem for path in NOTEBOOKS} == pages
    assert len(pages) == 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_text_and_small(path):
    """No pictures inside: a diff can be read, and the repository stays small."""
    assert path.stat().st_size < 60_000
    outputs = [
        out
        for cell in json.loads(path.read_text(encoding="utf8"))["cells"]
        for out in cell.get("outputs", ())
    ]
    assert outputs
    assert {out["output_type"] for out in outputs} == {"stream"}


# No page may judge a ranker by the queries that it was trained on.
HONEST = """
import untilt.evaluation.judged as judged
facts = judged.overlap_facts
def refusing(known):
    found = facts(known)
    assert all(fact.code != "estimate.trained-queries" for fact in found), found
    return found
judged.overlap_facts = refusing
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", tool.pages())
def test_a_page_prints_what_it_shows(name):
    text = tool.pages()[name].read_text(encoding="utf8")
    for shown, now in zip(tool.parts(text), tool.run(text, HONEST), strict=True):
        assert alike(shown.printed, now.printed), f"{shown.printed}\n---\n{now.printed}"


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    """In a Jupyter kernel, as somebody would who opens it."""
    nbformat, nbclient = (pytest.importorskip(name) for name in ("nbformat", "nbclient"))
    pytest.importorskip("ipykernel")
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    stored = [_printed(cell) for cell in book.cells]
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": tmp_path}}).execute()
    for shown, cell in zip(stored, book.cells, strict=True):
        assert alike(shown, _printed(cell))


def _printed(cell) -> str:
    outputs = [out for out in cell.get("outputs", ()) if out.get("name") == "stdout"]
    lines = "".join(out["text"] for out in outputs).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip()
