"""Click models on real result pages, the later ones held out."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from untilt import catalog, compare_click_models
from untilt.clickmodels.compare import advise

MODELS = [record.load() for record in catalog.methods("click model")]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "yandex_pages.py"


@pytest.fixture(scope="module")
def split(data_dir):
    path = data_dir / "yandex-sample" / "train.txt.gz"
    if not path.exists():
        pytest.skip(f"no result pages: {path}")
    log, _ = runpy.run_path(str(EXAMPLE))["read_pages"](path, in_order=True)
    return log.split(0.75, by="time")


@pytest.fixture(scope="module")
def comparison(split):
    train, test = split
    assert test.n_sessions == 8766
    known = [model.name for model in MODELS if not model.requires]
    return compare_click_models(train, test, models=known, by="session", n_draws=60)


def test_every_em_converged(comparison):
    found = [entry.model.em_.converged for entry in comparison if hasattr(entry.model, "em_")]
    assert len(found) == 4  # DCM and SDBN are counted: that predicts these pages better
    assert all(found)


def test_models_that_use_the_clicks_above_win(comparison):
    for name in ("ubm", "dbn", "ccm"):
        assert comparison[name].gain.interval.low > 0.1
        conditional = comparison[name].conditional_perplexity.value
        for simple in ("pbm", "cm", "dctr", "rctr"):
            assert conditional < comparison[simple].conditional_perplexity.value


def test_rates_lose_in_the_known_order(comparison):
    order = [comparison[name].log_likelihood.value for name in ("gctr", "rctr", "dctr", "pbm")]
    assert order == sorted(order)


def test_a_cascade_cannot_explain_second_clicks(comparison, split):
    clicks = split[1].label.reshape(-1, 10)
    below_a_click = (np.cumsum(clicks, axis=1) > 1) & (clicks > 0)
    assert comparison["cm"].ruled_out == pytest.approx(below_a_click.mean())
    assert below_a_click.mean() > 0.05


def test_before_any_click_pbm_is_as_good_as_any(comparison):
    best = min(entry.perplexity.value for entry in comparison)
    assert comparison["pbm"].perplexity.value == pytest.approx(best, abs=0.002)


def test_pbm_is_not_the_whole_truth(comparison):
    advice = advise(comparison)
    assert advice.best == "ubm"
    assert not advice.enough
