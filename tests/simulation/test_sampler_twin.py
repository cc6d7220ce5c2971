"""The compiled sampler against plain Python, session by session, for every protocol."""

import math

import numpy as np
import pytest

from untilt import catalog
from untilt.simulation import protocols
from untilt.simulation.production import prepare
from untilt.simulation.sampler import draw_sessions
from untilt.simulation.simulate import threads

WORD, GOLDEN = 2**64, 0x9E3779B97F4A7C15

PROTOCOLS = [record.load() for record in catalog.methods("protocol")]


def slow_mixed(word: int) -> int:
    z = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def slow_session(setting, number: int):
    """(query, variant, documents, clicks, dwell) as the formulas say, one draw after the other."""
    plan, behaviour, display = setting.plan, setting.behaviour, setting.display
    stream = slow_mixed((int(plan.key) + (number + 1) * GOLDEN) % WORD)

    def u(draw: int) -> float:
        return (slow_mixed((stream + (draw + 1) * GOLDEN) % WORD) >> 11) / 2**53

    query = int(np.sum(np.cumsum(setting.query_probability) <= u(0)))
    variant = int(np.sum(np.cumsum(display.probability) <= u(1)))
    length = int(plan.start[query + 1] - plan.start[query])
    if max(display.swap[variant]) > length:
        variant = 0
    begin = plan.start[query]
    documents = list(plan.shown[display.order[variant], begin : begin + length])
    a, b = display.swap[variant]
    if b:
        documents[a - 1], documents[b - 1] = documents[b - 1], documents[a - 1]
    for k in range(min(display.shuffle[variant], length) - 1, 0, -1):
        j = math.floor(u(8 * (k + 1) + 3) * (k + 1))
        documents[k], documents[j] = documents[j], documents[k]

    clicks, dwell, reads = [], [], True
    eps_plus = np.ones(99) if behaviour.eps_plus is None else behaviour.eps_plus
    eps_minus = np.zeros(99) if behaviour.eps_minus is None else behaviour.eps_minus
    for k, d in enumerate(documents):
        gamma = behaviour.relevance[d]
        p = behaviour.examination[k] * (eps_plus[k] * gamma + eps_minus[k] * (1 - gamma))
        draw = 8 * (k + 1)
        clicks.append(int(reads and u(draw) < p))
        if behaviour.stopping is not None and reads:
            satisfied = clicks[-1] and u(draw + 1) < behaviour.stopping.satisfaction[d]
            reads = not satisfied and u(draw + 2) < behaviour.stopping.go_on
        if behaviour.dwell is not None:
            radius, angle = math.sqrt(-2 * math.log(1 - u(draw + 4))), 2 * math.pi * u(draw + 5)
            times = behaviour.dwell
            delta = times.delta_mean[k] + times.delta_spread[k] * radius * math.cos(angle)
            omega = times.omega_mean[d] + times.omega_spread[d] * radius * math.sin(angle)
            dwell.append(clicks[-1] * max(0.0, delta) * max(0.0, omega))
    return query, variant, documents, clicks, dwell


def prepared(judged, protocol, ranker=None):
    return prepare(
        judged,
        protocol,
        ranker=ranker,
        seed=11,
        depth=None,
        query_weights="zipf",
        max_label=None,
        in_turn=False,
    )


@pytest.mark.parametrize("kind", PROTOCOLS, ids=lambda kind: kind.name)
def test_compiled_sessions_equal_plain_python(judged, kind):
    setting = prepared(judged, kind())
    number = np.r_[np.arange(150), 10**9 + np.arange(50)]
    with threads(2):
        made = draw_sessions(setting.plan, number)
    for i, session in enumerate(number):
        query, variant, documents, clicks, dwell = slow_session(setting, int(session))
        rows = slice(made.indptr[i], made.indptr[i + 1])
        assert (made.query[i], made.variant[i]) == (query, variant)
        assert made.document[rows].tolist() == documents
        assert made.click[rows].tolist() == clicks
        if made.dwell is not None:
            assert made.dwell[rows] == pytest.approx(dwell, rel=1e-12)


def test_both_swaps_and_base_occur_in_the_twin_test(judged):
    """Guards the test above: its sessions do contain what it claims to compare."""
    made = draw_sessions(prepared(judged, protocols.Swap()).plan, np.arange(200))
    assert len(set(made.variant.tolist())) > 5
    cascade = draw_sessions(prepared(judged, protocols.Cascade()).plan, np.arange(200))
    assert 0 < cascade.click.sum() < len(cascade.click)
