"""The truth beside a log: its values, its view of other logs, and what it refuses."""

import numpy as np
import pytest

from untilt import simulate
from untilt.errors import DepthError, ShapeError
from untilt.simulation import protocols


@pytest.fixture(scope="module")
def sim(judged, scores):
    return simulate(judged, "trust", n_sessions=2000, ranker=scores)


def test_curves_of_trust_by_hand(sim):
    truth = sim.truth
    assert truth.examination[[0, 4, 9]].tolist() == [0.68, 0.28, 0.06]
    assert truth.eps_plus[[0, 4, 9]] == pytest.approx([0.98, 0.94, 0.89])
    assert truth.eps_minus[[0, 4, 9]] == pytest.approx([0.65, 0.13, 0.065])
    assert truth.depth == 10


def test_trust_below_position_twenty():
    tables = protocols.Trust().behaviour(np.array([4.0, 0.0]), depth=25, max_label=4)
    assert tables.eps_plus[18:] == pytest.approx([0.80, *[0.79] * 6])
    assert tables.eps_minus[9:] == pytest.approx([0.065] * 16)
    assert tables.examination[9:] == pytest.approx([0.06] * 16)
    assert tables.relevance.tolist() == [1, 0]


def test_click_probability_by_hand(sim):
    gamma = sim.truth.relevance[17]
    expected = 0.48 * (0.96 * gamma + 0.65 / 3 * (1 - gamma))
    assert sim.truth.click_probability(17, 3) == pytest.approx(expected)
    many = sim.truth.click_probability(np.array([17, 17]), np.array([3, 1]))
    assert many == pytest.approx([expected, 0.68 * (0.98 * gamma + 0.65 * (1 - gamma))])


def test_relevance_belongs_to_the_logs_documents(judged):
    sim = simulate(judged, n_sessions=100)
    truth, log = sim.truth, sim.log
    assert len(truth.relevance) == log.n_documents == len(truth.judged)
    assert np.array_equal(truth.judged.features, log.features)
    assert np.array_equal(truth.judged.query_id, log.query_id)
    assert np.array_equal(truth.judged.doc_id, log.doc_id)
    by_id = dict(zip(judged.query_id.tolist(), range(judged.n_queries), strict=True))
    for q in (0, 50, truth.judged.n_queries - 1):
        original = by_id[truth.judged.query_id[q]]
        labels = judged.labels[judged.indptr[original] : judged.indptr[original + 1]]
        mine = slice(truth.judged.indptr[q], truth.judged.indptr[q + 1])
        assert truth.relevance[mine] == pytest.approx(0.1 + 0.9 * (2**labels - 1) / 15)


def test_truth_of_a_part_of_the_log(sim):
    whole = sim.truth.click_probabilities(sim.log)
    assert np.array_equal(
        sim.truth.click_probabilities(sim.log.top(3)), whole[sim.log.position <= 3]
    )


def test_the_true_bias_is_absolute_and_knows_the_noise(sim, judged, scores):
    bias = sim.truth.bias
    assert not bias.relative
    assert bias.has_trust
    assert bias.at(5) == 0.28
    plain = simulate(judged, "dla", n_sessions=10, ranker=scores).truth.bias
    assert not plain.has_trust


def test_what_the_truth_refuses(sim):
    with pytest.raises(DepthError, match=r"position must lie in 1..10"):
        sim.truth.click_probability(0, 11)
    with pytest.raises(DepthError, match="Got 0"):
        sim.truth.click_probability(0, 0)
    part, _ = sim.log.split(0.5, by="query")
    with pytest.raises(ShapeError, match="before splitting a log by query"):
        sim.truth.click_probabilities(part)


def test_truth_is_read_only_and_tells_what_it_is(sim):
    for array in (sim.truth.examination, sim.truth.relevance, sim.truth.eps_plus):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.5
    text = repr(sim.truth)
    assert "Trust(theta=1.0" in text
    assert "0.68, 0.61" in text
    assert "click noise" in text
