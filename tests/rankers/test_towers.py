"""Towers: what they fit, how they are put together, and where they fail."""

from typing import Any

import numpy as np
import pytest
from tests.double_precision import double_precision

from untilt.data.clicklog import ClickLog
from untilt.errors import ColumnError, OptionError
from untilt.networks.mlp import jax_modules, start_layers
from untilt.rankers.base import load
from untilt.rankers.learning_data import training_lists
from untilt.rankers.networks.towers import (
    BASELINES,
    FeedbackTowers,
    TowerRanker,
    label_counts,
    tower_loss,
)
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged

SMALL: dict[str, Any] = {"widths": (6,), "epochs": 3, "batch_size": 64}
THETA = np.array([1.0, 0.5, 0.25])


@pytest.fixture(scope="module")
def log():
    judged = make_judged(120, 5, seed=3, mean_docs=8)
    return simulate(judged, protocol="dwell", sessions_per_query=40, depth=4, seed=1).log


def shuffled_log(seed=0, n=20_000):
    """Three documents of a query in random order; a click with probability theta_k gamma(x)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 1)).astype(np.float32)
    gamma = 1 / (1 + np.exp(-1.5 * x[:, 0]))
    query = rng.integers(0, 20, n)
    document = (3 * query[:, None] + rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1)).ravel()
    position = np.tile([1, 2, 3], n)
    click = rng.random(3 * n) < THETA[position - 1] * gamma[document]
    return ClickLog(
        query_id=np.arange(20), doc_id=np.arange(60), doc_query=np.repeat(np.arange(20), 3),
        indptr=3 * np.arange(n + 1), query=query, document=document, position=position,
        label=click * 1.0, features=x,
    ), gamma  # fmt: skip


def test_pal_finds_examination_where_order_is_random():
    log, gamma = shuffled_log()
    ranker = TowerRanker("product", widths=(8,), epochs=250, learning_rate=0.01, l2=0.0).fit(log)
    examined = 1 / (1 + np.exp(-ranker.tower_))
    assert examined / examined[0] == pytest.approx(THETA, abs=0.04)
    liked = ranker.predict_feedback(log.features)
    assert np.corrcoef(liked, gamma)[0, 1] > 0.97


def test_the_sum_finds_what_position_adds_to_a_number():
    """Label = 2 + x minus 0, 1 or 2 by position: the tower is 0, -1, -2."""
    log, _ = shuffled_log(n=3000)
    x = log.features[log.document, 0]
    number = log.with_label(np.maximum(0, 6 + x - (log.position - 1.0)))
    ranker = TowerRanker("sum", widths=(8,), epochs=500, learning_rate=0.01, l2=0.0).fit(number)
    assert ranker.target_ == "number"
    assert ranker.tower_ == pytest.approx([0, -1, -2], abs=0.1)


def test_cells_are_sums_over_sessions(log):
    lists = training_lists(log)
    counts = label_counts(lists)
    sessions = lists.row_count
    assert counts.impressions.sum() == sessions.sum()
    at = 5
    document = counts.document[counts.document_index[at]]
    same = (lists.document == document) & (lists.position_index == counts.position_index[at])
    assert counts.impressions[at] == sessions[same].sum()
    assert counts.clicks[at] == pytest.approx((sessions * lists.label)[same].sum())


@pytest.mark.parametrize(
    ("combine", "target"),
    [
        ("sum", "probability"),
        ("product", "probability"),
        ("none", "probability"),
        ("sum", "number"),
    ],
)
def test_losses_and_their_gradients(combine, target, rng):
    jax = jax_modules().jax
    loss = tower_loss(combine, target, "tanh")
    params = {"f": start_layers(0, (2, 3, 1), activation="tanh"), "b": rng.normal(size=3)}
    batch = {
        "features": rng.normal(size=(6, 2)),
        "row": np.array([0, 3, 3, 5]),
        "position_index": np.array([0, 1, 2, 2]),
        "mean": np.array([0.0, 0.2, 1.0, 0.5]),
        "weight": np.array([1.0, 3.0, 2.0, 1.0]),
        "mask": np.array([1.0, 1.0, 1.0, 0.0]),
        "l2": np.array(0.01),
    }
    with double_precision():
        params = jax.tree.map(lambda p: np.asarray(p, float), params)
        batch = jax.device_put(batch)
        assert float(loss(params, batch)) == pytest.approx(
            slow_loss(params, jax.device_get(batch), combine, target), rel=1e-9
        )
        way = jax.tree.map(lambda p: rng.normal(size=p.shape), params)
        step = 1e-6
        ahead, back = (
            float(loss(jax.tree.map(lambda p, d, s=s: p + s * d, params, way), batch))
            for s in (step, -step)
        )
        slope = jax.tree.map(lambda g, d: float(np.sum(g * d)), jax.grad(loss)(params, batch), way)
        assert (ahead - back) / (2 * step) == pytest.approx(sum(jax.tree.leaves(slope)), rel=1e-5)


def slow_loss(params, batch, combine, target):
    total = 0.0
    for at in range(3):
        x = batch["features"][batch["row"][at]]
        hidden = np.tanh(x @ params["f"]["weights"][0] + params["f"]["biases"][0])
        f = float(hidden @ params["f"]["weights"][1][:, 0] + params["f"]["biases"][1][0])
        b, y = params["b"][batch["position_index"][at]], batch["mean"][at]
        z = f + b if combine == "sum" else f
        if target == "number":
            each = (y - z) ** 2
        else:
            p = 1 / (1 + np.exp(-z))
            if combine == "product":
                p = p / (1 + np.exp(-b))
            each = -y * np.log(p) - (1 - y) * np.log(1 - p)
        total += batch["weight"][at] * each
    return total / 4 + 0.01 / 2 * sum(np.sum(w**2) for w in params["f"]["weights"])


# ---- several kinds of feedback


@pytest.mark.parametrize("version", BASELINES)
def test_baselines_sum_what_they_expect(log, version):
    ranker = FeedbackTowers(BASELINES[version], **SMALL).fit(log)
    assert ranker.targets_ == {"click": "probability", "dwell": "number"}
    parts = [
        TowerRanker(BASELINES[version]["click"], **SMALL).fit(log.with_label("click")),
        TowerRanker(BASELINES[version]["dwell"], target="number", **SMALL).fit(log),
    ]
    expected = sum(part.predict_feedback(log.features) for part in parts)
    assert ranker.predict(log.features) == pytest.approx(expected, rel=1e-9)


def test_weights_say_what_a_column_is_worth(log):
    plain = FeedbackTowers(**SMALL).fit(log)
    heavy = FeedbackTowers(weights={"dwell": 3.0}, **SMALL).fit(log)
    click = FeedbackTowers({"click": "product"}, **SMALL).fit(log)
    c = click.predict(log.features)
    dwell = plain.predict(log.features) - c
    assert heavy.predict(log.features) == pytest.approx(c + 3 * dwell, rel=1e-6, abs=1e-9)


def test_saved_and_loaded(log, tmp_path):
    ranker = FeedbackTowers(**SMALL).fit(log)
    ranker.save(tmp_path / "towers.untilt")
    again = load(tmp_path / "towers.untilt")
    assert np.array_equal(again.predict(log.features), ranker.predict(log.features))
    assert again.tower_["click"] == pytest.approx(ranker.tower_["click"])


def test_errors(log):
    with pytest.raises(OptionError, match="it needs clicks"):
        TowerRanker("product", **SMALL).fit(log)
    with pytest.raises(OptionError, match="a probability must lie between 0 and 1"):
        TowerRanker(target="probability", **SMALL).fit(log)
    with pytest.raises(OptionError, match="combine must be one of 'sum', 'product', 'none'"):
        TowerRanker("add", **SMALL).fit(log)
    with pytest.raises(ColumnError, match=r"no label column 'dwel'.*Did you mean 'dwell'"):
        FeedbackTowers({"dwel": "sum"}, **SMALL).fit(log)
    with pytest.raises(OptionError, match="the tower of 'click' must be one of"):
        FeedbackTowers({"click": "add"}, **SMALL).fit(log)
    with pytest.raises(OptionError, match="a weight for 'likes', which has no tower"):
        FeedbackTowers(weights={"likes": 1.0}, **SMALL).fit(log)
