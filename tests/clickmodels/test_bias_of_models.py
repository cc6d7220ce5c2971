"""`bias_` of PBM and UBM: what it says and when it declines."""

import numpy as np
import pytest

from untilt import PBM, UBM
from untilt.clickmodels.examination import condition_of
from untilt.errors import IdentifiabilityError

BOTH = pytest.mark.parametrize("model", [PBM, UBM])


def test_examination_relative_to_the_top(log):
    model = PBM().fit(log)
    assert model.bias_.examination == pytest.approx(model.examination_ / model.examination_[0])
    assert model.bias_.relative
    assert model.em_.converged
    assert model.bias_.status.part(model.em_.status.code) == model.em_.status


def test_ubm_averages_over_the_last_click(logs):
    make_log, _ = logs
    # Position 2 is reached three times without and once with a click at 1, by documents that both
    # positions showed.
    lists = [
        (0, [0, 1], [1, 1]),
        (0, [1, 0], [0, 1]),
        (0, [0, 1], [0, 1]),
        (0, [1, 0], [0, 0]),
        (0, [1, 0], [1, 0]),
    ]
    log = make_log(lists, count=[30, 20, 20, 30, 20])
    model = UBM().fit(log)
    shares = np.array([70, 50]) / 120
    mean = shares @ model.examination_[1, :2]
    assert model.bias_.examination[1] == pytest.approx(mean / model.examination_[0, 0], rel=1e-6)


def test_conditions_of_ubm_are_all_different():
    pairs = [(k, last) for k in range(1, 8) for last in range(k)]
    position, last = np.array(pairs).T
    assert condition_of(position, last).tolist() == list(range(1, 29))


@BOTH
def test_fixed_lists_have_no_bias_to_tell(model, logs):
    make_log, _ = logs
    log = make_log([(0, [0, 1], [1, 0]), (0, [0, 1], [0, 1])], count=[5, 3])
    fitted = model().fit(log)
    assert np.all(np.isfinite(fitted.click_probability(log)))  # prediction does not need it
    with pytest.raises(IdentifiabilityError, match="position"):
        fitted.bias_  # noqa: B018


def test_pbm_by_hand(logs):
    make_log, _ = logs
    # Two documents, each 100 times at both positions: rates 0.6, 0.3 and 0.4, 0.2 are products of
    # theta = (1, 0.5) and gamma = (0.6, 0.4), and nothing else fits them as well.
    lists = [
        (0, [0, 1], [1, 1]),
        (0, [0, 1], [1, 0]),
        (0, [0, 1], [0, 0]),
        (0, [1, 0], [1, 1]),
        (0, [1, 0], [1, 0]),
        (0, [1, 0], [0, 0]),
    ]
    log = make_log(lists, count=[20, 40, 40, 30, 10, 60])
    model = PBM(prior_strength=0.0, tolerance=1e-8).fit(log)
    assert model.examination_ == pytest.approx([1, 0.5], abs=1e-4)
    assert model.relevance_ == pytest.approx([0.6, 0.4], abs=1e-4)


def test_a_position_examined_more_than_the_first(logs):
    make_log, _ = logs
    # The same page upside down: position 2 sees twice the clicks of position 1.
    lists = [
        (0, [1, 0], [1, 1]),
        (0, [1, 0], [0, 1]),
        (0, [1, 0], [0, 0]),
        (0, [0, 1], [1, 1]),
        (0, [0, 1], [0, 1]),
        (0, [0, 1], [0, 0]),
    ]
    log = make_log(lists, count=[20, 40, 40, 30, 10, 60])
    model = PBM(prior_strength=0.0, tolerance=1e-8).fit(log)
    assert model.bias_.examination == pytest.approx([1, 2], abs=1e-3)
