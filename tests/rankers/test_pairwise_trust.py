"""PairwiseTrustRanker: its forms, its losses, and what it tells."""

from typing import Any

import numpy as np
import pytest
from tests.double_precision import double_precision

from untilt.bias.given import EyeTracking
from untilt.data.transform import synthesise
from untilt.errors import OptionError
from untilt.networks.mlp import jax_modules, start_layers
from untilt.rankers.base import load
from untilt.rankers.learning_data import training_lists
from untilt.rankers.trust.mini_batch import (
    StepSettings,
    TrustTables,
    em_loss,
    slate_batches,
    start_tables,
)
from untilt.rankers.trust.pairwise_trust import PairwiseTrustRanker
from untilt.rankers.trust.trust_model import (
    PairParameters,
    TrustStart,
    logistic_loss,
    pair_weights,
    rank_change,
)
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged

SMALL: dict[str, Any] = {"widths": (6,), "epochs": 3, "batch_size": 16}


@pytest.fixture(scope="module")
def judged():
    return make_judged(120, 5, seed=3, mean_docs=8)


@pytest.fixture(scope="module")
def dwell_log(judged):
    return simulate(judged, protocol="dwell", sessions_per_query=40, depth=4, seed=1).log


@pytest.fixture(scope="module")
def log(dwell_log):
    return dwell_log.with_label("click")


def falls(values):
    return np.any(np.diff(values) < -1e-9 * np.abs(values[:-1]))


# ---- the full-batch form


@pytest.mark.parametrize("relevance", ["table", "linear", "network"])
def test_likelihoods_never_fall(dwell_log, relevance):
    ranker = PairwiseTrustRanker(
        "bayes-ipw", labels="continuous", em="full-batch", relevance=relevance, max_steps=8, **SMALL
    ).fit(dwell_log)
    for history in (ranker.item_likelihood_, ranker.pair_likelihood_):
        assert len(history) >= 4
        assert not falls(history)
        assert history[-1] > history[0]
    parts = [part.fields["part"] for part in ranker.summary_["status"].parts]
    assert parts == ["examination", "trust bias"]


def test_ipw_has_no_trust_bias(log):
    ranker = PairwiseTrustRanker(
        "ipw", em="full-batch", relevance="linear", max_steps=5, **SMALL
    ).fit(log)
    assert ranker.pair_trust_.eps_plus == pytest.approx(1, abs=1e-5)
    assert ranker.pair_trust_.eps_minus == pytest.approx(0, abs=1e-5)


def test_a_known_curve_is_kept(log):
    for em in ("mini-batch", "full-batch"):
        ranker = PairwiseTrustRanker(bias=EyeTracking(), em=em, max_steps=3, **SMALL).fit(log)
        known = np.array([0.68, 0.61, 0.48, 0.34])
        assert ranker.pair_trust_.examination == pytest.approx(known, rel=1e-5)
        assert ranker.bias_.examination == pytest.approx(known / 0.68, rel=1e-5)
        assert ranker.bias_.is_known


def test_examination_at_the_top_can_be_held(log):
    for em in ("mini-batch", "full-batch"):
        ranker = PairwiseTrustRanker(first_examination=0.9, em=em, max_steps=3, **SMALL).fit(log)
        assert ranker.pair_trust_.examination[0] == pytest.approx(0.9)


# ---- the loss of a step, by hand


def step_setting(loss):
    return StepSettings(
        loss=loss, activation="tanh", sampled=False, known_theta=False, first=None, clip=0.0
    )


def random_tables(rng, depth):
    eps = np.sort(rng.uniform(0.05, 0.95, (2, depth, depth)), axis=0)
    return TrustTables(rng.uniform(0.2, 0.9, depth), rng.uniform(0.1, 0.8, depth), eps[1], eps[0])


@pytest.fixture(scope="module")
def small_batch(log):
    """Sixteen slates in double precision, with random layers."""
    lists = training_lists(log)
    slates = PairwiseTrustRanker()._slates(lists)
    batch = next(iter(slate_batches(slates, 16, 0).epoch(0)))
    rng = np.random.default_rng(0)
    batch = {name: v.astype(float) if v.dtype == np.float32 else v for name, v in batch.items()}
    batch |= {"features": rng.normal(size=(lists.n_documents, 3)), "scale": np.array(40.0)}
    batch |= {"l2": np.array(0.0)}
    params = {name: start_layers(at, (3, 4, 1)) for at, name in enumerate(["gamma", "beta"])}
    params["ranker"] = start_layers(7, (3, 4, 1))
    as_double = jax_modules().jax.tree.map(lambda x: np.asarray(x, float), params)
    return {**as_double, "tie": np.asarray(0.3)}, batch


def forward(layers, x):
    for w, b in zip(layers["weights"][:-1], layers["biases"][:-1], strict=True):
        x = np.tanh(x @ w + b)
    return (x @ layers["weights"][-1] + layers["biases"][-1])[..., 0]


def slow_rank_loss(loss, params, tables, batch):
    """The sum of equations 11, 16 and 18, pair after pair."""
    x = batch["features"][batch["row"]]
    g, b, s = (forward(params[part], x) for part in ("gamma", "beta", "ranker"))
    if loss == "ipw":
        tables = tables._replace(
            eps_plus=np.ones_like(tables.eps_plus), eps_minus=np.zeros_like(tables.eps_minus)
        )
    total = 0.0
    for u in range(len(s)):
        change = rank_change(s[u], batch["mask"][u] > 0)
        for i in range(s.shape[1]):
            for j in range(s.shape[1]):
                k, m = batch["position_index"][u, i], batch["position_index"][u, j]
                gamma = 1 / (1 + np.exp(-(g[u, i] - g[u, j] - params["tie"])))
                beta = 1 / (1 + np.exp(-b[u, i]))
                eps = tables.eps_plus[k, m], tables.eps_minus[k, m]
                of_pair = PairParameters(tables.theta[k], tables.theta[m], *eps, gamma, beta)
                weight = pair_weights(of_pair, tables.theta_minus[m])
                kind, factor = ("gain", change[i, j]) if loss == "opt" else ("above", 1.0)
                pair = weight[0] * batch[f"{kind}_positive"][u, i, j]
                pair += weight[1] * batch[f"{kind}_zero"][u, i, j]
                total += pair * factor * logistic_loss(s[u, i] - s[u, j])
    return total


@pytest.mark.parametrize("loss", ["opt", "bayes-ipw", "ipw"])
def test_the_ranking_loss_and_its_gradient(small_batch, loss):
    jax = jax_modules().jax
    params, batch = small_batch
    tables = random_tables(np.random.default_rng(1), 4)
    if loss == "ipw":
        ones = np.ones_like(tables.eps_plus)
        tables = tables._replace(eps_plus=ones, eps_minus=0 * ones)

    with double_precision():
        tables, batch = jax.device_put((tables, batch))

        def value(params):
            return em_loss(step_setting(loss), params, tables, batch, jax.random.key(0), 0.1)

        value = jax.jit(jax.value_and_grad(value, has_aux=True))
        (_, (_, told)), gradient = value(params)
        gradient = gradient["ranker"]
        expected = slow_rank_loss(loss, *jax.device_get((params, tables, batch)))
        assert float(told[2]) == pytest.approx(expected, rel=1e-9)
        rng = np.random.default_rng(2)
        way = jax.tree.map(lambda x: rng.normal(size=x.shape), params["ranker"])
        step = 1e-6
        ahead, back = (
            float(value({**params, "ranker": jax.tree.map(move, params["ranker"], way)})[0][0])
            for move in (lambda p, d: p + step * d, lambda p, d: p - step * d)
        )
        slopes = jax.tree.map(lambda g, d: float(np.sum(g * d)), gradient, way)
        assert (ahead - back) / (2 * step) == pytest.approx(
            sum(jax.tree.leaves(slopes)), rel=1e-5, abs=1e-8
        )


def test_bayes_ipw_without_trust_bias_is_ipw(small_batch):
    params, batch = small_batch
    jax = jax_modules().jax
    tables = random_tables(np.random.default_rng(1), 4)
    ones = np.ones_like(tables.eps_plus)
    plain = tables._replace(eps_plus=ones, eps_minus=0 * ones)
    values = [
        float(
            jax.jit(
                lambda p, loss=loss: em_loss(
                    step_setting(loss), p, plain, batch, jax.random.key(0), 0.1
                )[1][1][2]
            )(params)
        )
        for loss in ("bayes-ipw", "ipw")
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


def test_tables_move_by_their_rate(small_batch):
    """Equation 20: from the old value a share of the way to what the batch says, none at rate 0."""
    params, batch = small_batch
    jax = jax_modules().jax
    tables = jax.device_put(start_tables(4, TrustStart(), None, known_eps=False))

    @jax.jit
    def moved(rate):
        return em_loss(step_setting("opt"), params, tables, batch, jax.random.key(0), rate)[1][0]

    still, half, whole = (jax.device_get(moved(rate)) for rate in (0.0, 0.5, 1.0))
    for name in TrustTables._fields:
        before, end = getattr(still, name), getattr(whole, name)
        assert before == pytest.approx(np.asarray(getattr(tables, name)), rel=1e-6)
        assert getattr(half, name) == pytest.approx((before + end) / 2, abs=1e-6)
    assert np.abs(whole.theta - still.theta).max() > 0.01


# ---- learning


def test_history_tells_of_every_epoch(log):
    ranker = PairwiseTrustRanker(**SMALL).fit(log)
    assert len(ranker.history_) == len(ranker.losses_) == 3
    assert ranker.history_[-1].item_likelihood > ranker.history_[0].item_likelihood
    assert ranker.pair_trust_.status.code == "network.mini-batch-em"
    assert ranker.pair_trust_.status.fields["epochs"] == 3
    assert "theta-" in repr(ranker.pair_trust_)


def test_sampled_posteriors_are_another_draw_of_the_same(log):
    expected = PairwiseTrustRanker(**SMALL).fit(log)
    sampled = PairwiseTrustRanker(posteriors="sampled", **SMALL).fit(log)
    again = PairwiseTrustRanker(posteriors="sampled", **SMALL).fit(log)
    assert np.array_equal(sampled.predict(log.features), again.predict(log.features))
    assert np.any(sampled.predict(log.features) != expected.predict(log.features))
    near = sampled.pair_trust_.examination
    assert near == pytest.approx(expected.pair_trust_.examination, abs=0.1)


def test_naive_knows_no_bias(log):
    ranker = PairwiseTrustRanker("naive", **SMALL).fit(log)
    assert ranker.pair_trust_ is None
    assert ranker.bias_ is None


def test_a_number_as_label_and_a_synthesised_one(dwell_log):
    both = synthesise(dwell_log, {"click": 1.0, "dwell": 0.5})
    for data in (dwell_log, both):
        ranker = PairwiseTrustRanker(labels="continuous", **SMALL).fit(data)
        assert np.all(np.isfinite(ranker.predict(data.features)))


def test_the_tables_are_saved(log, tmp_path):
    ranker = PairwiseTrustRanker(**SMALL).fit(log)
    ranker.save(tmp_path / "trust.untilt")
    again = load(tmp_path / "trust.untilt")
    assert np.array_equal(again.pair_trust_.eps_plus, ranker.pair_trust_.eps_plus)
    assert again.history_ == ranker.history_
    assert np.array_equal(again.predict(log.features), ranker.predict(log.features))


@pytest.mark.slow
def test_it_closes_a_good_part_of_the_gap():
    """dla, 100 sessions a query: better than pairs as they are, and the curve is the true one."""
    from untilt.evaluation.judged import evaluate

    train, test = make_judged(600, seed=11), make_judged(300, seed=12)
    sim = simulate(train, protocol="dla", sessions_per_query=100, seed=1)
    values = {}
    for loss in ("naive", "opt"):
        ranker = PairwiseTrustRanker(loss, widths=(64, 32)).fit(sim.log)
        values[loss] = evaluate(test, ranker.predict(test.features), ["ndcg@10"])["ndcg@10"].value
    assert values["opt"] > values["naive"] + 0.02
    truth = sim.truth.examination / sim.truth.examination[0]
    assert ranker.bias_.examination == pytest.approx(truth, abs=0.08)
    assert (ranker.bias_.is_known, ranker.bias_.has_interval) == (False, False)


# ---- errors


def test_options_are_checked(log):
    for options, message in (
        ({"loss": "bayes"}, "loss must be one of 'opt'"),
        ({"labels": "numbers"}, "labels must be one of 'categorical', 'continuous'"),
        ({"em": "full"}, "em must be one of 'mini-batch', 'full-batch'"),
        ({"relevance": "table"}, "mini-batches need relevance='network'"),
        ({"em_rate": 2.0}, "em_rate must be at most 1"),
        ({"first_examination": 0.0}, "first_examination must lie above 0"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
    ):
        with pytest.raises(OptionError, match=message):
            PairwiseTrustRanker(**options).fit(log)


def test_dwell_time_is_no_grade(dwell_log):
    with pytest.raises(OptionError, match=r"labels='categorical' takes .* labels='continuous'"):
        PairwiseTrustRanker(**SMALL).fit(dwell_log)
