"""EM of PBM, UBM and DBN against direct versions that walk through single sessions."""

import itertools
from typing import Any

import numpy as np
import pytest

from untilt import DBN, PBM, UBM

OFF: dict[str, Any] = {"prior_strength": 0.0, "tolerance": 1e-7, "max_steps": 20_000}


def sessions(log):
    """(documents, clicks) of every single session."""
    for i in range(log.n_lists):
        rows = slice(log.indptr[i], log.indptr[i + 1])
        for _ in range(log.sessions[i]):
            yield log.document[rows].tolist(), log.label[rows].tolist()


def slow_browsing(log, context_of, n_steps):
    """Dupret and Piwowarski's EM in plain Python: examination by context, relevance by document.

    context_of(position, last click) names the examination parameter.
    """
    theta, gamma = {}, {}
    events = []
    for documents, clicks in sessions(log):
        last = 0
        for k, (d, c) in enumerate(zip(documents, clicks, strict=True), start=1):
            events.append((context_of(k, last), d, c))
            theta[context_of(k, last)], gamma[d] = 0.5, 0.3
            last = k if c else last
    for _ in range(n_steps):
        examined, shown = dict.fromkeys(theta, 0.0), dict.fromkeys(theta, 0)
        relevant, seen = dict.fromkeys(gamma, 0.0), dict.fromkeys(gamma, 0)
        for context, d, c in events:
            t, g = theta[context], gamma[d]
            examined[context] += 1 if c else t * (1 - g) / (1 - t * g)
            relevant[d] += 1 if c else g * (1 - t) / (1 - t * g)
            shown[context] += 1
            seen[d] += 1
        theta = {context: examined[context] / shown[context] for context in theta}
        gamma = {d: relevant[d] / seen[d] for d in gamma}
    likelihood = sum(
        np.log(theta[x] * gamma[d] if c else 1 - theta[x] * gamma[d]) for x, d, c in events
    )
    return theta, gamma, likelihood


@pytest.fixture
def small(logs):
    _, random_log = logs
    return random_log(3, n_lists=60, n_queries=2, n_candidates=4, depth=3)


def test_pbm(small):
    theta, gamma, likelihood = slow_browsing(small, lambda k, last: k, 3000)
    model = PBM(**OFF).fit(small)
    assert model.log_likelihood(small) == pytest.approx(likelihood, abs=1e-3)
    for k in (1, 2, 3):
        for d, g in gamma.items():
            found = model.examination_[k - 1] * model.relevance_[d]
            assert found == pytest.approx(theta[k] * g, abs=2e-3)


def test_ubm(small):
    theta, gamma, likelihood = slow_browsing(small, lambda k, last: (k, last), 3000)
    model = UBM(**OFF).fit(small)
    # With (1, none) alone at the top of the scale the two may differ by a bound that one of them
    # keeps; the likelihood may not.
    assert model.log_likelihood(small) == pytest.approx(likelihood, abs=5e-3)
    for (k, last), t in theta.items():
        for d, g in gamma.items():
            found = model.examination_[k - 1, last] * model.relevance_[d]
            assert found == pytest.approx(t * g, abs=2e-2)


def posterior_dbn(documents, clicks, alpha, sigma, gamma):
    """Expected counts of one session: every way to be satisfied and to go on is tried."""
    n, total = len(documents), 0.0
    sums = {name: np.zeros(len(alpha)) for name in ("examined", "satisfied", "stepped")}
    went_on = could = 0.0
    for happy in itertools.product([0, 1], repeat=n):
        for keeps in itertools.product([0, 1], repeat=n):
            p, reads, examined = 1.0, True, []
            for row, d in enumerate(documents):
                examined.append(reads)
                p *= alpha[d] if clicks[row] else 1 - alpha[d] * reads
                p *= reads if clicks[row] else 1
                p *= sigma[d] if happy[row] else 1 - sigma[d]
                p *= gamma if keeps[row] else 1 - gamma
                satisfied = reads and clicks[row] and happy[row]
                reads = bool(reads and keeps[row] and not satisfied)
            total += p
            for row, d in enumerate(documents):
                sums["examined"][d] += p * examined[row]
                if row == n - 1 or not examined[row]:
                    continue
                satisfied = clicks[row] and happy[row]
                sums["stepped"][d] += p * clicks[row]
                sums["satisfied"][d] += p * satisfied
                could += p * (not satisfied)
                went_on += p * (not satisfied) * keeps[row]
    parts = {name: value / total for name, value in sums.items()}
    return parts, went_on / total, could / total, np.log(total)


def slow_dbn_step(log, alpha, sigma, gamma):
    """One E and M step by enumeration of every session."""
    sums = {name: np.zeros(len(alpha)) for name in ("examined", "satisfied", "stepped", "clicks")}
    went_on = could = likelihood = 0.0
    known = {}
    for documents, clicks in sessions(log):
        key = (tuple(documents), tuple(clicks))
        if key not in known:
            known[key] = posterior_dbn(documents, clicks, alpha, sigma, gamma)
        parts, on, able, log_p = known[key]
        for name, value in parts.items():
            sums[name] += value
        np.add.at(sums["clicks"], documents, clicks)
        went_on, could, likelihood = went_on + on, could + able, likelihood + log_p
    clicked = sums["stepped"] > 0
    return (
        sums["clicks"] / sums["examined"],
        np.where(clicked, sums["satisfied"] / np.where(clicked, sums["stepped"], 1), sigma),
        went_on / could,
        likelihood,
    )


def test_dbn(small):
    model = DBN(**OFF).fit(small)
    alpha, sigma, gamma, likelihood = slow_dbn_step(
        small, model.attraction_, model.satisfaction_, model.perseverance_
    )
    # A step of the slow version from where the fast one ended: the same likelihood, and no move.
    assert model.log_likelihood(small) == pytest.approx(likelihood, abs=1e-8)
    assert alpha == pytest.approx(model.attraction_, abs=2e-3)
    assert sigma == pytest.approx(model.satisfaction_, abs=2e-3)
    assert gamma == pytest.approx(model.perseverance_, abs=2e-3)


def test_a_dbn_step_from_anywhere(small, rng):
    from untilt.clickmodels.cascade import DBNPriors, DBNState, dbn_step
    from untilt.clickmodels.chain import chain_counts
    from untilt.clickmodels.smoothing import Smoothing

    counts = chain_counts(small, small.document, small.n_documents)
    flat = Smoothing(0.0, 0.5)
    alpha, sigma = rng.uniform(0.2, 0.8, (2, small.n_documents))
    step = dbn_step(counts, DBNPriors(flat, flat), always=False)
    found, likelihood = step(DBNState(alpha, sigma, np.array([0.7])))
    slow_alpha, slow_sigma, slow_gamma, slow_likelihood = slow_dbn_step(small, alpha, sigma, 0.7)
    clicked = counts.stepped > 0
    assert likelihood == pytest.approx(slow_likelihood)
    assert found.alpha == pytest.approx(slow_alpha)
    assert found.sigma[clicked] == pytest.approx(slow_sigma[clicked])
    assert found.gamma[0] == pytest.approx(slow_gamma)
