"""Every method of every experiment runs, on next to nothing."""

from pathlib import Path

import pytest

from untilt import catalog
from untilt.papers.cells import plan, run
from untilt.papers.datasets import JudgedSource
from untilt.papers.schema import load, names

NETWORKS = [each.name for each in catalog.methods("ranker") if "jax" in each.needs]
PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "reproduced"
SMALLEST = {"queries": 60, "test_queries": 12, "features": 8, "trees": 2, "repeats": 2, "seeds": 1}


def one_cell_per_method(name, folder, *, networks):
    """Cells of the quick plan, the first of each row."""
    experiment = load(name)
    size = {**SMALLEST, "epochs": 1, "widths": (8,), "points": 1}
    if experiment.quick.clicks is not None:
        size["clicks"] = 400
    what = plan(experiment, JudgedSource(), folder, scale="quick", changes=size)
    wanted, seen = [], set()
    for cell in what.cells:
        is_network = experiment.row(cell.row).ranker in NETWORKS
        if is_network == networks and (cell.panel, cell.row) not in seen:
            seen.add((cell.panel, cell.row))
            wanted.append(cell)
    return what, wanted


def run_only(what, wanted):
    """Run these cells: the others count as finished."""
    kept = dict.fromkeys(wanted)

    class Some(type(what)):  # type: ignore[misc]
        cells = property(lambda self: list(kept))

    return run(Some(**{f: getattr(what, f) for f in what.__dataclass_fields__}))


@pytest.mark.parametrize("name", names())
def test_every_method_runs(name, tmp_path):
    what, wanted = one_cell_per_method(name, tmp_path, networks=False)
    if not wanted:
        pytest.skip("networks alone: see the slow tests")
    done = run_only(what, wanted)
    assert set(done) == set(wanted)
    for cell, result in done.items():
        assert set(what.experiment.panel(cell.panel).metrics) <= set(result.values)


@pytest.mark.parametrize("name", names())
def test_published_results_belong_to_the_experiment_as_it_is(name):
    """Another default, word, size or version would make other cells: none of those is kept.

    Every row has results; where not all runs are finished, the page says so.
    """
    for source in (JudgedSource(), JudgedSource("mq2008", Path("mq2008"))):
        what = plan(load(name), source, PUBLISHED)
        assert set(what.results.read()) <= set(what.cells)
        assert {cell.row for cell in what.finished()} == {cell.row for cell in what.cells}


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_network_runs(name, tmp_path):
    what, wanted = one_cell_per_method(name, tmp_path, networks=True)
    if not wanted:
        pytest.skip("no networks here")
    pytest.importorskip("jax")
    assert set(run_only(what, wanted)) == set(wanted)
