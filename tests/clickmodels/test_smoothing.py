"""How strongly documents are drawn to their mean: learned from the log, and tried on its pages."""

import itertools

import numpy as np
import pytest
from scipy.stats import betabinom

from untilt import CM, DCM, DCTR, PBM, SDBN, catalog
from untilt.clickmodels.chain import least_perplexity
from untilt.clickmodels.smoothing import smoothing_of
from untilt.errors import OptionError

SMOOTHED = [
    model
    for model in (record.load() for record in catalog.methods("click model"))
    if "prior_strength" in model().get_params() and not model.requires
]


def counts(rng, m, mu, n_documents=4000):
    n = rng.integers(1, 30, n_documents)
    return rng.binomial(n, rng.beta(m * mu, m * (1 - mu), n_documents)), n


@pytest.mark.parametrize(("m", "mu"), [(2.0, 0.3), (8.0, 0.1), (0.5, 0.6)])
def test_the_spread_of_documents_is_found_again(rng, m, mu):
    x, n = counts(rng, m, mu)
    found = smoothing_of(x.astype(float), n.astype(float), "auto")
    assert found.strength == pytest.approx(m, rel=0.2)
    assert found.mean == pytest.approx(mu, rel=0.06)


def test_no_other_prior_is_more_likely(rng):
    x, n = counts(rng, 3.0, 0.2, n_documents=60)
    found = smoothing_of(x.astype(float), n.astype(float), "auto")

    def likelihood(m, mu):
        return betabinom.logpmf(x, n, m * mu, m * (1 - mu)).sum()

    best = likelihood(found.strength, found.mean)
    for by_m, by_mu in itertools.product((0.9, 1, 1.1), repeat=2):
        assert likelihood(found.strength * by_m, found.mean * by_mu) <= best + 1e-6


def test_documents_that_do_not_differ_are_one(rng):
    n = np.full(500, 40.0)
    found = smoothing_of(rng.binomial(40, 0.25, 500).astype(float), n, "auto")
    assert found.strength > 200
    assert found.mean == pytest.approx(0.25, abs=0.01)


def test_expected_trials_need_not_be_whole_nor_as_many_as_the_clicks():
    found = smoothing_of(np.array([1.0, 0, 2, 0]), np.array([0.7, 1.5, 2.5, 0]), "auto")
    assert 0 < found.mean < 1
    assert np.isfinite(found.strength)


def test_little_is_learned_from_two_documents():
    found = smoothing_of(np.array([1.0, 0]), np.array([4.0, 4]), "auto")
    assert (found.strength, found.mean) == (1.0, 1 / 8)


@pytest.mark.parametrize("model", SMOOTHED, ids=lambda model: model.__name__)
def test_few_sessions_are_predicted_better(model, logs):
    """Documents with about four sessions each to learn from, twice as many held out."""
    _, random_log = logs
    log = random_log(3, n_lists=300, n_queries=40, n_candidates=5, depth=4)
    train, test = log.split(0.3, by="session", seed=0)
    options = {"method": "counting"} if "method" in model().get_params() else {}

    def bits(strength):
        fitted = model(prior_strength=strength, **options).fit(train)
        p = fitted.click_probability(test)
        return -np.dot(np.log(np.where(test.label > 0, p, 1 - p)), test.row_count)

    assert bits("auto") < bits(0.1)
    assert bits("auto") < bits(100.0)


@pytest.mark.parametrize("model", SMOOTHED, ids=lambda model: model.__name__)
def test_without_smoothing_nothing_divides_by_zero(model, logs):
    make_log, random_log = logs
    methods = ("auto", "likelihood", "counting") if "method" in model().get_params() else (None,)
    small = [
        make_log([(0, [0, 1, 2], [1, 1, 0]), (0, [2, 1, 0], [1, 1, 1])], count=[5, 5]),
        make_log([(0, [0, 1, 2], [0, 0, 1])], count=[3]),
        make_log([(0, [0, 1], [1, 0]), (1, [2, 3], [1, 0])]),
        make_log([(0, [0], [1]), (0, [0], [0])]),
        random_log(0, n_lists=5),
    ]
    for log, strength, method in itertools.product(small, (0, 0.0, "auto"), methods):
        options = {} if method is None else {"method": method}
        fitted = model(prior_strength=strength, **options).fit(log)
        assert np.all(np.isfinite(fitted.click_probability(log)))
        assert np.all(np.isfinite(fitted.conditional_probability(log)))
        assert np.all(np.isfinite(fitted.relevance_))


def test_a_cascade_with_second_clicks_is_smoothed_towards_a_half(logs):
    make_log, random_log = logs
    rng = np.random.default_rng(0)
    # The first document is nearly always clicked, and those below no less often for it.
    chance = np.array([0.95, 0.3, 0.3, 0.3])
    pages = [
        (q, 4 * q + np.append(0, 1 + rng.permutation(3)), rng.random(4) < chance)
        for q in range(40)
        for _ in range(4)
    ]
    assert CM().fit(make_log(pages)).prior_mean_ == 0.5
    truth = CM().fit(random_log(1))
    own = truth.sample(random_log(1)._with(count=np.full(400, 20)), seed=0).collapse()
    assert CM().fit(own).prior_mean_ != 0.5  # of readers who leave with the first click
    x_1_n_2 = CM(prior_strength=2.0, prior_mean=0.5).fit(random_log(0))
    assert (x_1_n_2.prior_strength_, x_1_n_2.prior_mean_) == (2.0, 0.5)
    with pytest.raises(OptionError, match="prior_mean must lie"):
        CM(prior_mean=1.5).fit(random_log(0))


@pytest.mark.parametrize("model", [DCM, SDBN])
def test_readers_as_the_model_says_are_fitted_by_likelihood(model, logs):
    _, random_log = logs
    log = random_log(0)
    truth = model(method="likelihood").fit(log)
    own = truth.sample(log._with(count=log.sessions * 40), seed=1).collapse()
    fitted = model().fit(own)
    assert fitted.method_ == "likelihood"
    assert fitted.em_.converged
    assert model(method="counting").fit(own).method_ == "counting"


def test_the_choice_is_made_on_pages_left_out(logs):
    _, random_log = logs
    log = random_log(2, n_lists=60)
    free, firm = DCTR(prior_strength=0.0), DCTR(prior_strength=5.0)
    assert least_perplexity(log, [free, firm]) is firm
    assert least_perplexity(log, [firm, free]) is firm
    one_page = log.take(np.arange(1))
    assert least_perplexity(one_page, [free, firm]) is free  # nothing to try it on


def test_what_was_learned_is_there_to_read(log):
    model = PBM().fit(log)
    assert model.prior_strength == "auto"
    assert model.prior_strength_ > 0
    assert PBM(prior_strength=3.0).fit(log).prior_strength_ == 3.0
    with pytest.raises(OptionError, match="'auto' learns it"):
        PBM(prior_strength="much").fit(log)
