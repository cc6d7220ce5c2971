"""The index and the table of all claims, from the catalogue and the results kept here."""

import re
import shutil
from pathlib import Path

import pytest

from untilt.papers.cells import plan
from untilt.papers.claims import HOLDS, Summary, verdicts
from untilt.papers.datasets import JudgedSource
from untilt.papers.page import Reproduced, claims_table, known_sources, write_overview
from untilt.papers.schema import documents, load, names

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "reproduced"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Written anew from the published results."""
    path = tmp_path_factory.mktemp("reproduced")
    shutil.copytree(PUBLISHED / "results", path / "results")
    for page in PUBLISHED.glob("00*.md"):
        shutil.copy(page, path)
    write_overview(path)
    return path


def _lines(path):
    return [line for line in path.read_text().splitlines() if line.startswith("| ")]


def test_every_claim_is_in_the_table_once(folder):
    lines = _lines(folder / "claims.md")
    for experiment in map(load, names()):
        for claim in experiment.claims:
            section, name = claim.source.replace("|", "\\|"), experiment.name
            rows = [x for x in lines if x.startswith(f"| {claim.text} | {section} |") and name in x]
            assert len(rows) == 1


def test_what_cannot_be_tested_is_in_the_table_with_its_reason(folder):
    text = (folder / "claims.md").read_text()
    for document in documents():
        assert all(f"| {each.text} | {each.source} |" in text for each in document.untested)


def test_our_own_questions_come_last_and_are_not_counted(folder):
    documents_part, own_part = (folder / "claims.md").read_text().split("## Questions of our own")
    for experiment in map(load, names()):
        for claim in experiment.claims:
            assert f"| {claim.text} |" in (own_part if claim.own else documents_part)


def test_counts_are_the_number_of_verdicts(folder):
    text = (folder / "claims.md").read_text()
    for document in documents():
        part = text.split(f"\n## {document.name}: ")[1].split("\n## ")[0]
        rows = [x for x in part.splitlines() if re.match(r"\| .* \| \[?00\d-", x)]
        columns = [line for line in _lines(folder / "claims.md")
                   if line.startswith(f"| {document.name}: ")]  # fmt: skip
        for place, line in enumerate(columns):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            verdicts = [row.split(" | ")[3 + place] for row in rows]
            counted = [sum(v.startswith(f"**{w}**") for v in verdicts)
                       for w in ("holds", "does not hold", "undecided")]  # fmt: skip
            assert [int(cell) for cell in cells[2:5]] == counted
            assert int(cells[5]) == len(rows) - sum(counted)


@pytest.mark.parametrize("name", ["index.md", "claims.md"])
def test_the_published_overview_is_up_to_date(folder, name):
    """Else: python tools/generate.py pages."""
    assert (folder / name).read_text() == (PUBLISHED / name).read_text()


@pytest.mark.parametrize("name", names())
def test_a_claim_has_a_reason_where_it_does_not_hold_and_there_alone(name):
    experiment = load(name)
    for source in known_sources():
        results = plan(experiment, source, PUBLISHED).finished()
        for found in verdicts(Summary(experiment, results)) if results else []:
            if not found.claim.own:
                assert (source.name in found.claim.because) == (found.verdict != HOLDS)


def test_every_claim_was_tested_in_fifteen_runs_on_mq2008():
    for experiment in map(load, names()):
        results = plan(experiment, JudgedSource("mq2008", Path("mq2008")), PUBLISHED).finished()
        assert {found.n_runs for found in verdicts(Summary(experiment, results))} <= {15}
        assert len({cell.run for cell in results}) == 15


def test_a_page_that_is_not_there_is_not_linked():
    here = [Reproduced(load(f"003-figure-{n}"), (), has_page=n != 2) for n in (2, 3)]
    table = claims_table(here)
    assert "| 003-figure-2 |" in table
    assert "003-figure-2.md" not in table
    assert "(003-figure-3.md)" in table
