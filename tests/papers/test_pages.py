"""Published pages come from the results that are kept beside them, and those from the code."""

import re
import shutil
from pathlib import Path

import pytest

from untilt.papers.cells import plan, run
from untilt.papers.datasets import JudgedSource
from untilt.papers.page import republish
from untilt.papers.schema import documents, load, names

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "reproduced"
PAGES = [document.name for document in documents()]
MOST_WORDS = 8_000


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """All pages written from a copy of the results."""
    folder = tmp_path_factory.mktemp("again")
    shutil.copytree(PUBLISHED / "results", folder / "results")
    republish(folder)
    return folder


@pytest.mark.parametrize("name", [*PAGES, "index"])
def test_a_page_is_what_its_results_say_bit_for_bit(again, name):
    """Else: python tools/generate.py pages."""
    assert (again / f"{name}.md").read_text() == (PUBLISHED / f"{name}.md").read_text()


@pytest.mark.parametrize("name", names())
def test_every_experiment_has_its_pictures_and_claims_on_the_page_of_its_document(again, name):
    experiment = load(name)
    page = (again / f"{experiment.document}.md").read_text()
    for data in ("made", "mq2008"):
        assert (again / f"{name}-{data}.svg").read_text().startswith("<svg")
        assert f"({name}-{data}.svg)" in page
    part = page.split(f"\n## {name}: ")[1].split("\n## ")[0]
    for claim in experiment.claims:
        where = "ours" if claim.own else claim.source.removeprefix("section ")
        assert part.count(f"|{claim.text}|{where}|") == 1


@pytest.mark.parametrize("document", documents(), ids=lambda document: document.name)
def test_a_page_counts_its_verdicts_without_our_own_questions(again, document):
    page = (again / f"{document.name}.md").read_text()
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    claims = [row for row in rows if len(row) == 4 and row[1] not in ("ours", "---:", "where")
              and re.match(r"\*\*|not run", row[2])]  # fmt: skip
    for place, data in ((2, "make_judged"), (3, "MQ2008")):
        (counts,) = (row for row in rows if row[0] == data and len(row) == 5)
        verdicts = [re.sub(r"\*\*(.*?)\*\*.*", r"\1", row[place]) for row in claims]
        wanted = [
            verdicts.count(word) for word in ("holds", "does not hold", "undecided", "not run")
        ]
        assert list(map(int, counts[1:])) == wanted
    for each in document.untested:
        assert f"- {each.text} ({each.source}): {each.reason}" in page


def test_pages_are_short():
    words = sum(len(path.read_text().split()) for path in PUBLISHED.glob("*.md"))
    assert words <= MOST_WORDS


def test_a_published_cell_comes_out_of_the_code_again(tmp_path):
    """Clicks by position, whole numbers: the same on any machine."""
    experiment = load("002-figure-2")
    kept = plan(experiment, JudgedSource(), PUBLISHED).finished()
    made = run(plan(experiment, JudgedSource(), tmp_path, changes={"seeds": 1}))
    assert len(made) == 1
    for cell, result in made.items():
        assert result.values == kept[cell].values


@pytest.mark.slow
def test_published_learning_comes_out_of_the_code_again(tmp_path):
    """Logistic regression and LambdaMART on trust-biased clicks, one seed."""
    experiment = load("004-trust")
    kept = plan(experiment, JudgedSource(), PUBLISHED).finished()
    made = run(plan(experiment, JudgedSource(), tmp_path, changes={"seeds": 1}))
    for cell, result in made.items():
        for metric in experiment.panel(cell.panel).metrics:
            assert result.values[metric] == pytest.approx(kept[cell].values[metric], rel=1e-6)
