"""A small log on disk, with features, whose bias can be measured: made once for all tests."""

import pytest

import untilt as ut

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


@pytest.fixture(scope="session")
def finished(made, small_options, tmp_path_factory):
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    return ut.run(made.log, folder, documents=made.documents, **small_options)


@pytest.fixture(scope="session")
def crossed(made, small_options, tmp_path_factory):
    """The same in three folds."""
    folder = tmp_path_factory.mktemp("crossed") / "run"
    options = {**small_options, "folds": 3}
    return ut.run(made.log, folder, documents=made.documents, **options)
