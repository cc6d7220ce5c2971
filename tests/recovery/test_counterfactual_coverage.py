"""Intervals of counterfactual estimates hold what they promise, and say so where they cannot.

Queries are drawn from a population of 3,000, so that the truth is the population's value and the
intervals, which are clustered by query, have something to cover.
`python tests/recovery/test_counterfactual_coverage.py` prints the table of docs/counterfactual.md.
"""

from typing import Any

import numpy as np
import pytest

from untilt.bias.given import PowerLaw
from untilt.bias.harvesting.harvesting import AllPairs
from untilt.evaluation.estimate import estimate
from untilt.simulation.protocols import DLA, Swap, Trust
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged

REPEATS, QUERIES, SESSIONS = 400, 200, 60
SWAPS = Swap(share=0.5, clicks=DLA())
TRUST_SWAPS = Swap(share=0.5, clicks=Trust())
JUDGED = None


def population():
    global JUDGED  # noqa: PLW0603  made once, by whoever comes first
    if JUDGED is None:
        JUDGED = make_judged(3_000, 12, seed=5, mean_docs=14)
    return JUDGED


def scores_of(judged, seed, noise):
    rng = np.random.default_rng(seed)
    return judged.labels + noise * rng.standard_normal(len(judged.labels))


def systems_of(judged):
    return {"good": scores_of(judged, 1, 1.0), "poor": scores_of(judged, 2, 4.0)}


def run(protocol, seed, judged, queries, sessions=SESSIONS):
    """Sessions of some queries, documents in production order of the whole population."""
    part = judged.take(queries)
    rows = np.concatenate([np.arange(judged.indptr[q], judged.indptr[q + 1]) for q in queries])
    production = scores_of(judged, 0, 2.0)[rows]
    n_sessions = sessions * len(queries)
    sim = simulate(
        part,
        protocol,
        n_sessions=n_sessions,
        ranker=production,
        seed=seed,
        n_threads=1,
        max_label=4,
    )
    return sim, {name: s[rows] for name, s in systems_of(judged).items()}


def truth_of(protocol):
    """The population's value: each query once, relevance known."""
    judged = population()
    part = np.arange(judged.n_queries)
    production = scores_of(judged, 0, 2.0)
    plain = protocol.clicks if isinstance(protocol, Swap) else protocol
    sim = simulate(
        judged, plain, sessions_per_query=1, ranker=production, seed=0, n_threads=1, max_label=4
    )
    assert len(part) == sim.log.n_queries
    found = estimate(sim.log, systems_of(judged), evaluator="direct", relevance=sim.truth.relevance)
    values = {entry.system: entry.value for entry in found}
    return {**values, "good - poor": values["good"] - values["poor"]}


def coverage(protocol, bias_of, *, evaluator="ips", interval="normal", repeats=REPEATS):
    """Share of intervals that hold the truth, mean error, share of runs that warn of the curve."""
    truth, judged = truth_of(protocol), population()
    hits = dict.fromkeys(truth, 0)
    error = {name: [] for name in truth}
    warned = 0
    for seed in range(repeats):
        queries = np.sort(np.random.default_rng((9, seed)).permutation(3_000)[:QUERIES])
        sim, systems = run(protocol, seed, judged, queries)
        bias = bias_of(sim)
        scale = sim.truth.examination[0] if bias.relative else 1.0
        found = estimate(sim.log, systems, bias, evaluator=evaluator, interval=interval)
        gap = found.compare("poor")["good"]
        values: dict[str, Any] = {
            "good": found["good"],
            "poor": found["poor"],
            "good - poor": gap,
        }
        for name, each in values.items():
            hits[name] += truth[name] * scale in each.interval
            error[name].append((each.value / scale - truth[name]) / truth[name])
        warned += not found.check.fits
    return {
        name: (hits[name] / repeats, float(np.mean(error[name])), warned / repeats)
        for name in truth
    }


def true_bias(sim):
    return sim.truth.bias


def estimated(sim):
    return AllPairs().fit(sim.log).bias_


def wrong(sim):
    return PowerLaw(0.5).to_bias(sim.log.depth)


CASES = {
    "true bias, normal": (DLA(), true_bias, {}),
    "true bias, bootstrap": (DLA(), true_bias, {"interval": "bootstrap"}),
    "true bias, clipped auto": (DLA(), true_bias, {"evaluator": "clipped"}),
    "estimated on the same log": (SWAPS, estimated, {}),
    "trust bias, affine": (Trust(), true_bias, {"evaluator": "affine"}),
    "trust bias, policy-aware": (TRUST_SWAPS, true_bias, {"evaluator": "policy-aware"}),
}
BROKEN = {
    "wrong curve (power law 0.5)": (SWAPS, wrong, {}),
    "trust bias ignored (ips)": (TRUST_SWAPS, true_bias, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name in CASES if "auto" not in name])
def test_intervals_cover_the_truth(case):
    protocol, bias_of, options = CASES[case]
    for name, (share, relative_error, _) in coverage(protocol, bias_of, **options).items():
        assert 0.90 <= share <= 0.99, name
        assert abs(relative_error) < 0.05, name


@pytest.mark.slow
def test_a_wrong_curve_breaks_the_values_and_the_report_says_so():
    found = coverage(SWAPS, wrong, repeats=40)
    assert found["good"][0] < 0.5
    assert found["good"][2] > 0.9


def clip_errors(eta, sessions, repeats=150):
    """Root mean squared error of the good system's value, 60 queries, with and without a clip."""
    protocol = DLA(examination=PowerLaw(eta))
    truth, judged = truth_of(protocol)["good"], population()
    ways: dict[str, Any] = {
        "ips": {},
        "auto": {"evaluator": "clipped"},
        "0.05": {"evaluator": "clipped:clip=0.05"},
    }
    error = {name: [] for name in ways}
    for seed in range(repeats):
        queries = np.sort(np.random.default_rng((9, seed)).permutation(3_000)[:60])
        sim, systems = run(protocol, seed, judged, queries, sessions)
        for name, options in ways.items():
            found = estimate(sim.log, systems["good"], sim.truth.bias, **options)
            error[name].append(found.best.value - truth)
    return {name: float(np.sqrt(np.mean(np.square(each)))) for name, each in error.items()}


@pytest.mark.slow
def test_the_automatic_clip_helps_where_it_must_and_costs_little_elsewhere():
    for eta, sessions in ((1.0, 3), (1.0, 30), (2.0, 3), (2.0, 30), (3.0, 30)):
        found = clip_errors(eta, sessions)
        assert found["auto"] < 1.1 * found["ips"], (eta, sessions)
    steep = clip_errors(3.0, 3)
    assert steep["auto"] < 0.85 * steep["ips"]


if __name__ == "__main__":
    import sys

    for label, (protocol, bias_of, options) in {**CASES, **BROKEN}.items():
        for name, each in coverage(protocol, bias_of, **options).items():
            row = f"| {label} | {name} | {each[0]:.3f} | {each[1]:+.3f} | {each[2]:.2f} |"
            sys.stdout.write(row + "\n")
            sys.stdout.flush()
    for eta in (1.0, 2.0, 3.0):
        for sessions in (3, 30):
            cells = " | ".join(f"{rmse:.3f}" for rmse in clip_errors(eta, sessions).values())
            sys.stdout.write(f"| {eta:g} | {sessions} | {cells} |\n")
            sys.stdout.flush()
