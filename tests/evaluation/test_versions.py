"""Evaluation where features change: each list is ordered by the features that it had."""

import numpy as np
import pyarrow as pa
import pytest

import untilt as ut
from untilt import catalog
from untilt.bias.curve import PositionBias
from untilt.errors import OptionError
from untilt.evaluation.pool import pool_of
from untilt.evaluation.uncertainty import check_curve

THETA = 1 / np.arange(1, 7)
DISCOUNT = 1 / np.log2(2 + np.arange(6))
BIAS = PositionBias(THETA, eps_plus=np.ones(6), eps_minus=np.zeros(6))


EVALUATORS = [each.name for each in catalog.methods("evaluator") if "propensity" not in each.needs]


@pytest.fixture(scope="module")
def columns(shop):
    return shop(4000, seed=4)


@pytest.fixture(scope="module")
def log(columns):
    return ut.read_log(pa.table(columns), features=["quality", "price"])


@pytest.mark.parametrize("method", EVALUATORS)
def test_the_value_of_an_order_by_price_is_found(columns, log, method):
    """The truth: sum of discount times relevance, every session ordered by its own prices."""
    cheapest = np.argsort(columns["price"].reshape(-1, 6), axis=1)
    gamma = np.take_along_axis(columns["gamma"].reshape(-1, 6), cheapest, axis=1)
    truth = float((gamma @ DISCOUNT).mean())
    found = ut.estimate(log, {"cheap": -log.features[:, 1]}, BIAS, evaluator=method, metric="dcg@6")
    estimate = found["cheap"]
    # Another scale (raw clicks, a share of the clicks), or as good as a model: that of versions
    # seen once each is the mean of all.
    if method in ("naive", "snips", "direct"):
        assert 0 < estimate.value < truth
    else:
        assert estimate.value == pytest.approx(truth, abs=4 * estimate.std_error)
        assert estimate.std_error < 0.05 * truth


@pytest.mark.parametrize("method", EVALUATORS)
def test_the_logged_order_differs_from_itself_by_exactly_zero(columns, with_versions, method):
    plain = ut.read_log(pa.table(columns))
    log = with_versions(plain)
    scores = np.empty(log.n_documents)
    scores[log.document] = -log.position  # every impression is a document of its own here
    found = ut.estimate(log, {"shown": ut.shown, "same": scores}, BIAS, evaluator=method)
    difference = found.compare("shown")["same"]
    assert (difference.value, difference.std_error) == (0.0, 0.0)
    assert difference.identical


def test_documents_of_a_query_are_no_list(log):
    for among in ("shown", "candidates"):
        with pytest.raises(OptionError, match="among='list'"):
            ut.estimate(log, {"shown": ut.shown}, BIAS, among=among)


def test_the_curve_is_checked_by_document(columns, log):
    plain = pool_of(ut.read_log(pa.table(columns)))
    for curve, fits in ((THETA, True), (THETA**0.5, False)):
        bias = PositionBias(curve)
        checked = check_curve(pool_of(log), bias)
        assert checked.fits is fits
        assert checked.n_documents == check_curve(plain, bias).n_documents > 300
