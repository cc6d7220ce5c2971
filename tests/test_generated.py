"""What tools/generate.py writes is up to date."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools/generate.py"
spec = importlib.util.spec_from_file_location("generate", TOOL)
assert spec is not None
assert spec.loader is not None
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)


@pytest.mark.parametrize("part", generate.WRITERS)
def test_it_is_what_would_be_written_now(part):
    stale = [
        f"{path.name}: run `make generated`, then look at the diff"
        for path, text in generate.WRITERS[part]().items()
        if path.read_text(encoding="utf8") != text
    ]
    assert stale == []


@pytest.mark.parametrize(
    "kind", ["weighting", "bias", "click model", "evaluator", "ranker", "export"]
)
def test_the_documentation_has_a_table_of_every_kind(kind):
    pages = [page.read_text(encoding="utf8") for page in generate.tables()]
    assert any(f"<!-- methods: {kind} -->" in page for page in pages)
