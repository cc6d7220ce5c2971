"""The position-based likelihood: by enumeration of clicks, by differences, by known truth."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from untilt.data.counts import PositionCounts, counts_from_rows
from untilt.objectives.losses import PbmLikelihood, sigmoid


def counts_of(document, position_index, impressions, clicks, n_documents):
    """Counts from cells that are sorted by document."""
    return PositionCounts(
        indptr=np.concatenate([[0], np.cumsum(np.bincount(document, minlength=n_documents))]),
        query=np.zeros(n_documents, dtype=np.int64),
        document=np.arange(n_documents),
        position=np.asarray(position_index) + 1,
        impressions=np.asarray(impressions, dtype=float),
        clicks=np.asarray(clicks, dtype=float),
        depth=int(np.max(position_index)) + 1,
    )


# Two documents; document 0 was shown at positions 1 and 3, document 1 at 2.
CELLS = counts_of([0, 0, 1], [0, 2, 1], [4.0, 3.0, 2.0], [3.0, 1.0, 1.0], 2)
CURVES = {
    "examination": (np.array([0.9, 0.5, 0.3]), np.zeros(3)),
    "trust": (np.array([0.6, 0.3, 0.2]), np.array([0.3, 0.1, 0.05])),
}


@pytest.fixture(params=CURVES)
def curves(request):
    return CURVES[request.param]


def random_cells(rng, n_rows=6, depth=3):
    row, place = (index.ravel() for index in np.indices((n_rows, depth)))
    shown = rng.integers(1, 40, len(row)).astype(float)
    return counts_of(row, place, shown, np.floor(rng.random(len(row)) * shown), n_rows)


# ---- counts


def test_counts_pool_the_sessions_of_a_document_at_a_position():
    """Weighted sessions; document 2 was never shown."""
    counts = counts_from_rows(
        document=np.array([1, 0, 1, 1, 0]),
        position=np.array([1, 2, 1, 3, 2]),
        count=np.array([2.0, 3.0, 5.0, 1.0, 4.0]),
        label=np.array([1.0, 0.0, 0.0, 1.0, 1.0]),
        n_documents=3,
        depth=3,
        keep_unshown=True,
    )
    assert counts.document_index.tolist() == [0, 1, 1]
    assert counts.position.tolist() == [2, 1, 3]
    assert counts.impressions.tolist() == [3 + 4, 2 + 5, 1]
    assert counts.clicks.tolist() == [4, 2, 1]
    gradient, information = PbmLikelihood(counts, np.ones(3), np.zeros(3)).gradient(np.zeros(3))
    assert gradient == pytest.approx([7 / 2 - 4, 8 / 2 - 3, 0])
    assert information == pytest.approx([7 / 4, 8 / 4, 0])


def test_no_rows_give_no_cells():
    empty = np.zeros(0, dtype=np.int64)
    counts = counts_from_rows(empty, empty, empty, np.zeros(0), 2, 1, keep_unshown=True)
    assert counts.n_cells == 0
    gradient, _ = PbmLikelihood(counts, np.ones(1), np.zeros(1)).gradient(np.zeros(2))
    assert gradient.tolist() == [0, 0]


# ---- the loss and its derivatives


def test_loss_is_the_sum_over_single_impressions(curves):
    """Written out click by click: -log P of each of the nine impressions."""
    alpha, beta = curves
    scores = np.array([0.3, -1.2])
    p = {cell: alpha[k] / (1 + np.exp(-scores[d])) + beta[k]
         for cell, (d, k) in enumerate([(0, 0), (0, 2), (1, 1)])}  # fmt: skip
    clicks = [(0, 1)] * 3 + [(0, 0)] + [(1, 1)] + [(1, 0)] * 2 + [(2, 1), (2, 0)]
    expected = -sum(np.log(p[cell] if c else 1 - p[cell]) for cell, c in clicks)
    assert PbmLikelihood(CELLS, alpha, beta).loss(scores) == pytest.approx(expected, rel=1e-12)


def test_gradient_equals_central_differences(rng, curves):
    likelihood = PbmLikelihood(random_cells(rng), *curves)
    scores, step = rng.normal(size=6), 1e-5
    gradient, _ = likelihood.gradient(scores)
    for d in range(6):
        e = step * (np.arange(6) == d)
        slope = (likelihood.loss(scores + e) - likelihood.loss(scores - e)) / (2 * step)
        assert gradient[d] == pytest.approx(slope, abs=1e-6)


def test_information_is_the_expected_hessian_by_enumeration(curves):
    """Every way to click two impressions each, weighted by its probability under the scores."""
    alpha, beta = curves
    scores, step = np.array([0.4, -0.7]), 1e-4
    row, place, shown = np.array([0, 0, 1]), np.array([0, 2, 1]), np.array([2.0, 2.0, 2.0])
    g = 1 / (1 + np.exp(-scores))
    p = alpha[place] * g[row] + beta[place]
    binomial = [1, 2, 1]
    expected, gradient = np.zeros(2), np.zeros(2)
    for clicks in itertools.product(range(3), repeat=3):
        c = np.array(clicks, dtype=float)
        chance = np.prod([binomial[n] for n in clicks]) * np.prod(p**c * (1 - p) ** (2 - c))
        likelihood = PbmLikelihood(counts_of(row, place, shown, c, 2), alpha, beta)
        gradient += chance * likelihood.gradient(scores)[0]
        for d in range(2):
            e = step * (np.arange(2) == d)
            around = [likelihood.loss(scores + k * e) for k in (-1, 0, 1)]
            expected[d] += chance * (around[0] - 2 * around[1] + around[2]) / step**2
    information = likelihood.gradient(scores)[1]
    assert information == pytest.approx(expected, rel=1e-5)
    # At the true scores the expected gradient is 0.
    assert gradient == pytest.approx(np.zeros(2), abs=1e-12)


def test_gradient_by_hand_without_trust_bias():
    """One document, one position, theta = 1/2, score 0: p = 1/4, p' = 1/2 * 1/4 = 1/8."""
    cells = counts_of(np.array([0]), np.array([0]), np.array([8.0]), np.array([3.0]), 1)
    gradient, information = PbmLikelihood(cells, np.array([0.5]), np.zeros(1)).gradient(np.zeros(1))
    variance = 1 / 4 * 3 / 4
    assert gradient[0] == pytest.approx(-(3 - 8 / 4) * (1 / 8) / variance)
    assert information[0] == pytest.approx(8 * (1 / 8) ** 2 / variance)


def test_extreme_scores_stay_finite(curves):
    for scores in (np.array([800.0, -800.0]), np.array([-800.0, 800.0])):
        likelihood = PbmLikelihood(CELLS, *curves)
        gradient, information = likelihood.gradient(scores)
        assert np.isfinite(likelihood.loss(scores))
        assert np.all(np.isfinite(gradient))
        assert np.all(information >= 0)


def test_full_examination_without_noise_is_logistic_regression(rng):
    """theta = 1: gradient n sigmoid(f) - c, information n sigmoid (1 - sigmoid)."""
    cells = random_cells(rng)
    scores = rng.normal(size=6)
    gradient, information = PbmLikelihood(cells, np.ones(3), np.zeros(3)).gradient(scores)
    g = 1 / (1 + np.exp(-scores))
    n, c = map(cells.by_document, (cells.impressions, cells.clicks))
    assert gradient == pytest.approx(n * g - c, abs=1e-6)
    assert information == pytest.approx(n * g * (1 - g), rel=1e-6)


# ---- the best constant


def test_base_score_is_the_best_constant(rng, curves):
    likelihood = PbmLikelihood(random_cells(rng), *curves)
    best = minimize_scalar(
        lambda s: likelihood.loss(np.full(6, s)), bounds=(-8, 8), method="bounded",
        options={"xatol": 1e-10},
    )  # fmt: skip
    assert likelihood.base_score() == pytest.approx(best.x, abs=1e-5)


def test_base_score_by_hand():
    """theta = 1/2 and 3 clicks in 10: relevance 0.6, the logit of which is log(1.5)."""
    cells = counts_of(np.array([0]), np.array([0]), np.array([10.0]), np.array([3.0]), 1)
    likelihood = PbmLikelihood(cells, np.array([0.5]), np.zeros(1))
    assert likelihood.base_score() == pytest.approx(np.log(1.5), abs=1e-8)


@pytest.mark.parametrize(("clicks", "expected"), [(0.0, -8), (10.0, 8)])
def test_base_score_without_or_with_only_clicks_stops_at_the_edge(clicks, expected):
    cells = counts_of(np.array([0]), np.array([0]), np.array([10.0]), np.array([clicks]), 1)
    assert PbmLikelihood(cells, np.ones(1), np.zeros(1)).base_score() == pytest.approx(
        expected, abs=0.1
    )


# ---- a known truth


def test_most_likely_scores_recover_relevance_and_trust(rng, curves):
    """A million sessions at each of three positions: scoring finds g within its standard error."""
    alpha, beta = curves
    g = np.array([0.15, 0.4, 0.7, 0.9])
    row, place = (index.ravel() for index in np.indices((4, 3)))
    shown = np.full(12, 1e6)
    clicks = rng.binomial(10**6, alpha[place] * g[row] + beta[place]).astype(float)
    likelihood = PbmLikelihood(counts_of(row, place, shown, clicks, 4), alpha, beta)
    scores = np.full(4, likelihood.base_score())
    for _ in range(100):
        gradient, information = likelihood.gradient(scores)
        scores = scores - gradient / information
    found, error = sigmoid(scores), g * (1 - g) / np.sqrt(information)
    assert np.all(np.abs(found - g) < 4 * error)
    assert np.all(error < 0.01)


def test_ignoring_trust_finds_too_much_relevance(rng):
    """The affine form is needed: beta's clicks are read as relevance without it."""
    alpha, beta = CURVES["trust"]
    row, place = np.zeros(3, dtype=int), np.arange(3)
    clicks = 1e6 * (alpha * 0.2 + beta)
    cells = counts_of(row, place, np.full(3, 1e6), clicks, 1)
    right = sigmoid(np.array(PbmLikelihood(cells, alpha, beta).base_score()))
    wrong = sigmoid(np.array(PbmLikelihood(cells, alpha + beta, np.zeros(3)).base_score()))
    assert right == pytest.approx(0.2, abs=1e-6)
    assert wrong > 0.4


def test_sigmoid():
    x = np.array([0.0, np.log(3), -np.log(3), 1000.0, -1000.0])
    assert sigmoid(x) == pytest.approx([0.5, 0.75, 0.25, 1.0, 0.0])
