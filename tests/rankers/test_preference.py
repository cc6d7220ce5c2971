"""gamma(x_i, x_j) as a network on both documents: its formula, and what scores cannot say."""

from copy import copy
from typing import Any

import numpy as np
import pytest
from tests.double_precision import double_precision

from untilt import ClickLog, PairwiseTrustRanker, load
from untilt.errors import FileFormatError, OptionError, ShapeError
from untilt.networks.mlp import jax_modules
from untilt.rankers.trust.trust_model import (
    PairPreference,
    logits_of_cells,
    logits_of_lists,
    preference_of,
    start_preference,
)

KINDS = np.eye(3, dtype=np.float32)
SMALL: dict[str, Any] = {"widths": (4,), "epochs": 2, "batch_size": 8, "early_stopping": None}


def circle_log(*, chance=0.9, n_queries=30, sessions=40, seed=0):
    """Stone, scissors, paper: of two documents each kind beats the next one in 90%.

    Both documents are examined, exactly one is clicked, and either order is shown as often.
    """
    rng = np.random.default_rng(seed)
    kind = np.array([[q % 3, (q + 1) % 3] for q in range(n_queries)])
    lists = [(q, order) for q in range(n_queries) for order in (0, 1) for _ in range(sessions)]
    document, label = [], []
    for q, order in lists:
        shown = [2 * q + order, 2 * q + 1 - order]
        winner = 2 * q if rng.random() < chance else 2 * q + 1
        document += shown
        label += [float(d == winner) for d in shown]
    return ClickLog(
        query_id=np.arange(n_queries), doc_id=np.arange(2 * n_queries),
        features=KINDS[kind.ravel()], doc_query=np.repeat(np.arange(n_queries), 2),
        indptr=2 * np.arange(len(lists) + 1),
        query=np.array([q for q, _ in lists]), document=np.array(document),
        position=np.tile([1, 2], len(lists)), label=np.array(label),
    )  # fmt: skip


@pytest.fixture(scope="module")
def circle():
    return circle_log()


@pytest.fixture(scope="module", params=["pairs", "scores"])
def ranker(request, circle):
    return PairwiseTrustRanker(preference=request.param, **SMALL).fit(circle)


# ---- the formula


@pytest.fixture
def params():
    made = start_preference(3, 2, (5, 4), form="pairs", activation="tanh")
    made["layers"]["biases"] = [b + 0.1 for b in made["layers"]["biases"]]
    return jax_modules().jax.tree.map(lambda x: np.asarray(x, float), made)


def slow_f(layers, one, other):
    x = np.concatenate([one, other])
    for w, b in zip(layers["weights"][:-1], layers["biases"][:-1], strict=True):
        x = np.tanh(x @ w + b)
    return (x @ layers["weights"][-1] + layers["biases"][-1])[0]


def slow_logit(params, one, other):
    layers, tie = params["layers"], np.log1p(np.exp(params["tie"]))
    return slow_f(layers, one, other) - slow_f(layers, other, one) - tie


def test_all_three_ways_to_compute_it_agree_with_the_slow_one(params, rng):
    x = rng.normal(size=(2, 3, 2))
    expected = np.array(
        [[[slow_logit(params, x[u, i], x[u, j]) for j in range(3)] for i in range(3)]
         for u in range(2)]
    )  # fmt: skip
    rows, (u, i, j) = x.reshape(6, 2), np.indices((2, 3, 3)).reshape(3, -1)
    with double_precision():
        by_list = logits_of_lists(params["layers"], params["tie"], x, "pairs", "tanh")
        by_cell = logits_of_cells(
            params["layers"], params["tie"], rows, 3 * u + i, 3 * u + j, "pairs", "tanh"
        )
        assert np.asarray(by_list) == pytest.approx(expected, abs=1e-12)
        assert np.asarray(by_cell).reshape(2, 3, 3) == pytest.approx(expected, abs=1e-12)
    kept = preference_of(params, "pairs", "tanh", mean=np.zeros(2), scale=np.ones(2))
    gamma = kept.gamma(rows[3 * u + i], rows[3 * u + j]).reshape(2, 3, 3)
    assert gamma == pytest.approx(1 / (1 + np.exp(-expected)), abs=1e-12)


def test_its_gradient(params, rng):
    jax = jax_modules().jax
    x, weight = rng.normal(size=(2, 3, 2)), rng.normal(size=(2, 3, 3))

    def value(at):
        return (weight * logits_of_lists(at["layers"], at["tie"], x, "pairs", "tanh")).sum()

    with double_precision():
        value = jax.jit(value)
        gradient = jax.jit(jax.grad(value))(params)
        way = jax.tree.map(lambda p: rng.normal(size=p.shape), params)
        slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: float((g * d).sum()), gradient, way)))
        ends = [
            float(value(jax.tree.map(lambda p, d, s=s: p + s * d, params, way)))
            for s in (1e-6, -1e-6)
        ]
    assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(slope, rel=1e-6)


def test_better_worse_and_equal_are_three_cases(params, rng):
    one, other = 5 * rng.normal(size=(2, 200, 2))
    for tie in (-30.0, -2.0, 3.0):
        kept = preference_of({**params, "tie": np.asarray(tie)}, "pairs", "tanh",
                       mean=np.zeros(2), scale=np.ones(2))  # fmt: skip
        better, worse = kept.gamma(one, other), kept.gamma(other, one)
        assert np.all(better + worse <= 1 + 1e-12)
        if tie == -30:  # no ties
            assert better + worse == pytest.approx(1, abs=1e-9)


def test_without_a_hidden_layer_it_is_a_difference_of_scores(rng):
    """f(x_i, x_j) - f(x_j, x_i) = (a - b) (x_i - x_j) where f is a x_i + b x_j."""
    made = start_preference(0, 2, (), form="pairs", activation="elu")
    x = rng.normal(size=(1, 4, 2)).astype(np.float32)
    a, b = made["layers"]["weights"][0][:2, 0], made["layers"]["weights"][0][2:, 0]
    score = x[0] @ (a - b)
    found = np.asarray(logits_of_lists(made["layers"], made["tie"], x, "pairs", "elu"))[0]
    tie = np.log1p(np.exp(-2.0))
    assert found == pytest.approx(score[:, None] - score[None, :] - tie, abs=1e-5)


# ---- learning


def fitted(log, preference, em):
    options: dict[str, Any] = {
        "epochs": 60,
        "batch_size": 8,
        "learning_rate": 0.01,
        "early_stopping": None,
    }
    return PairwiseTrustRanker(
        "ipw", preference=preference, em=em, bias=np.ones(2), widths=(8,), l2=0.0, max_steps=40,
        tolerance=1e-6, **options,
    ).fit(log)  # fmt: skip


@pytest.mark.parametrize("em", ["mini-batch", pytest.param("full-batch", marks=pytest.mark.slow)])
def test_preferences_in_a_circle_are_found_by_pairs_and_not_by_scores(circle, em):
    """Each of three kinds beats the next in 90%: scores can only say that all are alike."""
    following = np.roll(KINDS, -1, axis=0)
    by_pairs = fitted(circle, "pairs", em).preference_
    assert by_pairs.gamma(KINDS, following) == pytest.approx(0.9, abs=0.04)
    assert by_pairs.gamma(following, KINDS) == pytest.approx(0.1, abs=0.04)
    by_scores = fitted(circle, "scores", em).preference_
    assert by_scores.gamma(KINDS, following) == pytest.approx(0.5, abs=0.1)


def test_counts_equal_repeated_sessions(circle):
    """Lists shown one to three times: with a count, or as often in the log."""
    count = np.random.default_rng(0).integers(1, 4, circle.n_lists)
    counted = circle.take(np.arange(circle.n_lists), count=count)
    repeated = circle.take(np.repeat(np.arange(circle.n_lists), count))
    one, other = KINDS, np.roll(KINDS, -1, axis=0)
    gammas = [
        PairwiseTrustRanker(preference="pairs", bias=np.ones(2), **SMALL)
        .fit(log)
        .preference_.gamma(one, other)
        for log in (counted, repeated, repeated.collapse())
    ]
    assert gammas[1] == pytest.approx(gammas[0], abs=1e-5)
    assert gammas[2] == pytest.approx(gammas[0], abs=1e-5)


def test_it_is_saved(ranker, tmp_path):
    ranker.save(tmp_path / "ranker.untilt")
    again = load(tmp_path / "ranker.untilt")
    one, other = KINDS, np.roll(KINDS, -1, axis=0)
    kept, restored = ranker.preference_, again.preference_
    assert (restored.form, restored.tie) == (ranker.preference, kept.tie)
    assert np.array_equal(restored.gamma(one, other), kept.gamma(one, other))
    assert np.array_equal(again.predict(KINDS), ranker.predict(KINDS))


def test_a_file_of_before_has_none_and_a_wrong_one_is_refused(ranker, tmp_path):
    changed = copy(ranker)
    del changed.preference_
    changed.save(tmp_path / "old.untilt")
    assert load(tmp_path / "old.untilt").preference_ is None
    other = "scores" if ranker.preference == "pairs" else "pairs"
    kept = ranker.preference_
    changed.preference_ = PairPreference(other, kept.network, kept.tie)
    changed.save(tmp_path / "wrong.untilt")
    with pytest.raises(FileFormatError, match=r"no network of [36] features"):
        load(tmp_path / "wrong.untilt")


def test_options_and_shapes_are_checked(circle, ranker):
    with pytest.raises(OptionError, match="preference must be one of 'scores', 'pairs'"):
        PairwiseTrustRanker(preference="pair").fit(circle)
    with pytest.raises(OptionError, match="needs relevance='network'"):
        PairwiseTrustRanker(preference="pairs", em="full-batch", relevance="table").fit(circle)
    with pytest.raises(ShapeError, match="rows of the same number"):
        ranker.preference_.gamma(KINDS, KINDS[:2])


def test_no_model_of_bias_has_no_preference(circle):
    assert PairwiseTrustRanker("naive", **SMALL).fit(circle).preference_ is None
