"""A small log on disk, with features, whose bias can be measured: made once for all tests."""

import pytest
from tests.wall.judging import without_pages

import untilt as ut
from untilt.report.page import page

SMALL = {"trees": 8, "threads": 1, "method": ["balanced", "linear"], "folds": 1}


@pytest.fixture(scope="session")
def small_options():
    """Options that make a run take a second."""
    return dict(SMALL)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Files of a simulated log of two rankers, and its truth."""
    judged = ut.make_judged(n_queries=160, n_features=5, seed=5)
    folder = tmp_path_factory.mktemp("made")
    return ut.simulate_to_parquet(judged, folder, "harvest", n_sessions=8000, seed=5, n_threads=1)


@pytest.fixture(scope="module")
def no_pages():
    """Runs of a module that looks at no page."""
    with without_pages():
        yield


def run_with_its_page(made, folder, **options):
    """Also where the module that asks first looks at none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("untilt.report.page.page", page)
        return ut.run(made.log, folder, documents=made.documents, **options)


@pytest.fixture(scope="session")
def finished(made, small_options, tmp_path_factory):
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    return run_with_its_page(made, folder, **small_options)


@pytest.fixture(scope="session")
def crossed(made, small_options, tmp_path_factory):
    """The same in three folds."""
    folder = tmp_path_factory.mktemp("crossed") / "run"
    return run_with_its_page(made, folder, **{**small_options, "folds": 3})
