"""Each model finds the parameters that its own samples were drawn with."""

import numpy as np
import pytest

from untilt import DCM, PBM, SDBN, UBM

REPEATS = 10
SESSIONS = 40


@pytest.fixture
def truth(model_class, log):
    return model_class().fit(log)


def parameters(model):
    """All that a model has learned, as named arrays on an identified scale."""
    name = model.name
    if name in ("gctr", "rctr"):
        return {"rate": np.atleast_1d(model.rate_)}
    if name == "dctr":
        return {"rate": model.relevance_}
    if name in ("pbm", "ubm"):
        # Only products are identified: at the top of the page, and ratios to it.
        first = np.ravel(model.examination_)[0]
        ratios = model.examination_ / first
        return {
            "relevance": first * model.relevance_,
            "examination": ratios[~np.isnan(ratios)],
        }
    found = {"attraction": model.attraction_}
    if name in ("sdbn", "dbn"):
        found |= {"satisfaction": model.satisfaction_}
    if name == "dbn":
        found |= {"perseverance": np.array([model.perseverance_])}
    if name == "dcm":
        found |= {"continuation": model.continuation_[:-1]}  # nothing lies below the last
    if name == "ccm":
        found |= {"continuation": model.continuation_}
    return found


def refits(truth, log, **options):
    lists = log._with(count=log.sessions * SESSIONS)
    return [
        parameters(type(truth)(**options).fit(truth.sample(lists, seed=seed).collapse()))
        for seed in range(REPEATS)
    ]


def off(model_class):
    """Options that turn smoothing off."""
    return {"prior_strength": 0.0} if "prior_strength" in model_class().get_params() else {}


def test_parameters_are_recovered(truth, model_class, log):
    found = refits(truth, log, **off(model_class))
    for name, true in parameters(truth).items():
        values = np.array([each[name] for each in found])
        error = values.std(axis=0, ddof=1) / np.sqrt(REPEATS)
        distance = np.abs(values.mean(axis=0) - true)
        # Four standard errors of the mean of ten fits; ten make a rough error, hence the 0.003.
        assert np.all(distance <= 4 * error + 0.003), (name, distance, error)


@pytest.mark.parametrize("model", [DCM, SDBN])
def test_counting_takes_readers_who_went_on_in_vain_for_gone(model, log):
    """Why the likelihood is the default: the papers' counts are biased on their own samples."""
    truth = model().fit(log)
    lists = log._with(count=log.sessions * SESSIONS)
    counted = model(method="counting").fit(truth.sample(lists, seed=0))
    if model is DCM:
        assert np.all(counted.continuation_[:-1] < truth.continuation_[:-1] - 0.02)
    else:
        assert np.mean(counted.satisfaction_ - truth.satisfaction_) > 0.05


@pytest.mark.parametrize("model", [PBM, UBM])
def test_intervals_of_the_bias_hold_the_truth(model, log):
    truth = model().fit(log)
    lists = log._with(count=log.sessions * 10)
    inside = []
    for seed in range(20):
        bias = model(prior_strength=0.0).fit(truth.sample(lists, seed=seed)).bias_
        true = truth.bias_.examination
        inside.append((bias.low <= true)[1:] & (true <= bias.high)[1:])
    # 60 intervals at 95%: 57 on average; with fewer than 50, P < 0.001.
    assert 50 <= np.sum(inside) <= 60


def test_the_error_of_the_bias_is_the_spread_of_estimates(log):
    truth = PBM().fit(log)
    lists = log._with(count=log.sessions * 10)
    fits = [PBM(prior_strength=0.0).fit(truth.sample(lists, seed=s)).bias_ for s in range(40)]
    spread = np.std([bias.examination for bias in fits], axis=0, ddof=1)[1:]
    stated = np.mean([bias.std_error for bias in fits], axis=0)[1:]
    # 40 fits know their spread to 11%.
    assert stated == pytest.approx(spread, rel=0.35)
    assert np.all(stated >= 0.8 * spread)
