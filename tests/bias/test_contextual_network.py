"""The network form of `ContextualBias`: it finds what a linear form cannot."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from untilt import ClickLog, ContextualBias
from untilt.bias.contextual.contextual import _columns, _loss, log_likelihood
from untilt.bias.contextual.curves import context_cells, contexts_of, evidence_of
from untilt.networks.mlp import start_layers, sum_of_squares, to_network

pytest.importorskip("jax")
DEPTH = 4
SMALL: dict[str, Any] = {"model": "network", "widths": (8,), "epochs": 60, "batch_size": 512}


def draw_log(eta, *, seed, n_documents=6, sessions=40):
    """Queries with their own theta_k = k^-eta; lists of one document at random positions."""
    rng = np.random.default_rng(seed)
    n = len(eta) * n_documents
    query = np.repeat(np.arange(len(eta)), n_documents)
    shown = rng.multinomial(sessions, np.full(DEPTH, 1 / DEPTH), n)
    theta = np.arange(1, DEPTH + 1) ** -np.asarray(eta)[query][:, None]
    clicks = rng.binomial(shown, theta * rng.uniform(0.1, 0.9, n)[:, None])
    count = np.stack([clicks, shown - clicks], axis=-1).ravel()
    kept = np.flatnonzero(count)
    return ClickLog(
        query_id=np.arange(len(eta)),
        doc_id=np.arange(n),
        doc_query=query,
        indptr=np.arange(len(kept) + 1),
        query=np.repeat(query, 2 * DEPTH)[kept],
        document=np.repeat(np.arange(n), 2 * DEPTH)[kept],
        position=np.tile(np.repeat(np.arange(1, DEPTH + 1), 2), n)[kept],
        label=np.tile([1.0, 0.0], n * DEPTH)[kept],
        count=count[kept],
    )


@pytest.fixture(scope="module")
def valley():
    """eta = 0.3 + |x|: no line over x can say that."""
    x = np.random.default_rng(0).uniform(-1.5, 1.5, 300)
    return draw_log(0.3 + np.abs(x), seed=1), x


@pytest.fixture(scope="module")
def fitted(valley):
    return ContextualBias(**SMALL).fit(*valley)


def far_off(curves):
    """Mean |log(estimate / truth)| over positions 2..K at nine contexts."""
    x = np.linspace(-1.2, 1.2, 9)
    true = -np.outer(0.3 + np.abs(x), np.log(np.arange(1, DEPTH + 1)))
    return np.abs(curves.log_ratios(x[:, None]) - true)[:, 1:].mean()


def test_it_finds_a_valley_that_a_line_cannot(valley, fitted):
    line = ContextualBias().fit(*valley).curves_
    assert far_off(line) > 0.25
    # Stated tolerance: a tenth on the log scale. Eight other draws: 0.049 to 0.068, lines 0.36.
    assert far_off(fitted.curves_) < 0.1
    assert "stopped" in fitted.curves_.status or "trained" in fitted.curves_.status


def test_two_kinds_of_queries_within_four_errors_of_the_linear_form():
    kind = np.arange(120) % 2
    log = draw_log(np.where(kind == 1, 1.5, 0.5), seed=2)
    curves = ContextualBias(**SMALL).fit(log, kind).curves_
    linear = ContextualBias().fit(log, kind).curves_
    for x, eta in ((0.0, 0.5), (1.0, 1.5)):
        gap = np.abs(curves.curve([x]).examination - np.arange(1, DEPTH + 1) ** -eta)
        assert np.all(gap[1:] < 4 * linear.curve([x]).std_error[1:])


def test_without_an_effect_it_stays_near_the_plain_curve():
    log = draw_log(np.full(150, 1.0), seed=3)
    x = np.random.default_rng(4).normal(size=150)
    curves = ContextualBias(**SMALL).fit(log, x).curves_
    plain = ContextualBias().fit(log, np.zeros(150)).bias_
    spread = np.abs(curves.log_ratios(x[:, None]) - np.log(plain.examination))
    assert spread[:, 1:].mean() < 0.1


def test_the_loss_is_the_conditional_likelihood(valley):
    log, x = valley
    contexts = contexts_of(log, x, per="query")
    evidence = evidence_of(*context_cells(log, contexts))
    layers = start_layers(0, (1, 8, DEPTH), activation="elu")
    network = to_network(layers, "elu", mean=np.zeros(1), scale=np.ones(1))
    expected = log_likelihood(network.forward(contexts.values), evidence)
    clicks = evidence.clicks.sum()
    lines = np.arange(len(evidence))
    batch = _columns(
        evidence, np.ones(len(lines)), contexts.values.astype(np.float32), lines, clicks
    )
    constants = {"per_batch": np.array(1.0), "l2_per_click": np.array(2.0 / clicks)}
    batch |= {"mask": np.ones(len(lines)), **constants}
    found = float(_loss("elu")(layers, batch)) * clicks
    assert found == pytest.approx(float(sum_of_squares(layers)) - expected, rel=1e-5)


def test_the_same_seed_gives_the_same_and_counts_are_repeats(valley, fitted):
    log, x = valley
    again = ContextualBias(**SMALL).fit(log, x).curves_
    assert np.array_equal(again.log_ratios(x[:5, None]), fitted.curves_.log_ratios(x[:5, None]))
    repeated = log.take(np.repeat(np.arange(log.n_lists), log.sessions))
    repeated = repeated._with(count=np.ones(repeated.n_lists, dtype=np.int64))
    counted = ContextualBias(**SMALL).fit(repeated, x).curves_
    assert counted.log_ratios(x[:5, None]) == pytest.approx(
        fitted.curves_.log_ratios(x[:5, None]), abs=1e-6
    )


def test_errors_come_from_drawn_queries(valley, fitted):
    log, x = valley
    assert (fitted.bias_.is_known, fitted.bias_.has_interval) == (False, False)
    assert fitted.bias_.status.part("bias.errors-unknown")
    drawn = ContextualBias(**{**SMALL, "epochs": 20}, n_bootstrap=6).fit(log, x)
    linear = ContextualBias().fit(log, x).bias_
    # Six members know a spread to within a factor of two; the linear one's is the yardstick.
    ratio = drawn.bias_.std_error[1:] / linear.std_error[1:]
    assert np.all((ratio > 0.3) & (ratio < 5))
    assert drawn.bias_.status.part("bias.errors-bootstrapped").fields == {"n_samples": 6}
    # Six members: Student's t with 5 degrees of freedom, on the log scale.
    half = np.log(drawn.bias_.high / drawn.bias_.examination)[1:]
    error = (drawn.bias_.std_error / drawn.bias_.examination)[1:]
    assert half == pytest.approx(2.5705818 * error)


def test_a_single_context_of_a_network_has_no_interval(valley):
    """At the bottom of the valley the network is off by more than its members spread."""
    curves = ContextualBias(**{**SMALL, "epochs": 20}, n_bootstrap=4).fit(*valley).curves_
    alone = curves.curve([0.0])
    assert (alone.is_known, alone.has_interval) == (False, False)
    assert alone.status.part("bias.no-interval-smoothed")
    assert curves.average().has_interval


def test_few_queries_hold_none_out():
    kind = np.arange(10) % 2
    log = draw_log(np.where(kind == 1, 1.5, 0.5), seed=5)
    curves = ContextualBias(**{**SMALL, "epochs": 5}).fit(log, kind).curves_
    assert curves.status.startswith("trained for 5 epochs")


def test_without_jax_the_message_says_what_to_install():
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "from untilt.bias.contextual.contextual import ContextualBias\n"
        "from untilt.data.clicklog import ClickLog\n"
        "log = ClickLog(query_id=[0], doc_id=[0], doc_query=[0], indptr=[0, 1, 2, 3], "
        "query=[0] * 3, document=[0] * 3, position=[1, 2, 2], label=[1, 1, 0])\n"
        "ContextualBias().fit(log, [1.0])\n"
        "try:\n    ContextualBias(model='network').fit(log, [1.0])\n"
        "except ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'untilt[neural]'" in done.stdout
