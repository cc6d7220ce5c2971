"""Published pages come from the results that are kept beside them, and those from the code."""

import shutil
from pathlib import Path

import pytest

from untilt.papers.cells import plan, run
from untilt.papers.datasets import JudgedSource
from untilt.papers.page import republish
from untilt.papers.schema import load

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "reproduced"
WRITTEN_ANEW = ("002-figure-2", "004-trust")


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """Two pages written from a copy of their results."""
    folder = tmp_path_factory.mktemp("again")
    (folder / "results").mkdir()
    for name in WRITTEN_ANEW:
        for results in (PUBLISHED / "results").glob(f"{name}-*.jsonl"):
            shutil.copy(results, folder / "results")
    republish(folder, WRITTEN_ANEW)
    return folder


@pytest.mark.parametrize("name", WRITTEN_ANEW)
def test_a_page_is_what_its_results_say_bit_for_bit(again, name):
    assert (again / f"{name}.md").read_bytes() == (PUBLISHED / f"{name}.md").read_bytes()


@pytest.mark.parametrize("name", WRITTEN_ANEW)
def test_every_picture_of_a_page_is_drawn(again, name):
    for data in ("made", "mq2008"):
        assert (again / f"{name}-{data}.svg").read_text().startswith("<svg")
        assert f"({name}-{data}.svg)" in (again / f"{name}.md").read_text()


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
