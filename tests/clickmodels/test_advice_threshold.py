"""Is PBM enough? The threshold of the advice lies above chance and below real effects."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from untilt import DBN, PBM, UBM, compare_click_models, make_judged, simulate
from untilt.clickmodels.compare import SMALL_GAIN, advise
from untilt.simulation.protocols import Cascade

pytestmark = pytest.mark.slow
MODELS = ["pbm", "dcm", "sdbn", "dbn", "ccm", "ubm"]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "yandex_pages.py"


def advice_on(log, seed):
    train, test = log.split(0.75, by="session", seed=seed)
    return advise(compare_click_models(train.collapse(), test, models=MODELS, n_draws=60))


def simulated(protocol, n_sessions):
    for seed in range(5):
        judged = make_judged(n_queries=100, n_features=5, seed=seed)
        yield advice_on(simulate(judged, protocol, n_sessions=n_sessions, seed=seed).log, seed)


@pytest.mark.parametrize("n_sessions", [2000, 10_000])
def test_chance_stays_far_below(n_sessions):
    """Position-based readers: richer models lose, or win by a tenth of the threshold."""
    for advice in simulated("swap", n_sessions):
        assert advice.enough
        assert advice.share < 0.2 * SMALL_GAIN


def test_readers_who_stop_lie_above():
    for advice in simulated(Cascade(beta=0.95, satisfaction=1.0, epsilon=0.4), 10_000):
        assert not advice.enough
        assert advice.share > 5 * SMALL_GAIN


@pytest.fixture(scope="module")
def pages(data_dir):
    path = data_dir / "yandex-sample" / "train.txt.gz"
    if not path.exists():
        pytest.skip(f"no result pages: {path}")
    return runpy.run_path(str(EXAMPLE))["read_pages"](path, in_order=True)[0]


@pytest.mark.parametrize("truth", [PBM, DBN, UBM], ids=lambda model: model.__name__)
def test_people_who_behave_as_a_model_says(truth, pages):
    """Real pages, clicks drawn from each model fitted to them."""
    model = truth().fit(pages)
    shares = []
    for seed in range(3):
        advice = advice_on(model.sample(pages, seed=seed).collapse(), seed)
        shares.append(advice.share)
        assert advice.enough == (truth is PBM)
    if truth is PBM:
        assert max(shares) < 0.2 * SMALL_GAIN
    else:
        assert min(shares) > 2 * SMALL_GAIN
    assert np.all(np.isfinite(shares))
