"""Counterfactual estimates order rankers as the truth does, better than clicks do as they are.

`python tests/recovery/test_counterfactual_order.py` prints the tables of docs/counterfactual.md and
docs/selection.md; with a folder as its argument it draws the chart there.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau

from untilt.evaluation.estimate import estimate
from untilt.evaluation.judged import evaluate
from untilt.metrics import NDCG
from untilt.rankers.linear.linear import LinearRanker
from untilt.rankers.trees.lambdamart import LambdaMART
from untilt.selection.select import select
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged
from untilt.weighting import IPS, PRS, Balanced, Naive

PROTOCOLS = ("dla", "prs", "trust")
SEEDS = 5
TREES: dict[str, Any] = {"n_threads": 1, "min_data_in_leaf": 10}


@cache
def case(protocol, seed):
    """Train and held-out clicks, and the truth about the held-out queries."""
    judged = make_judged(600, 20, seed=seed, mean_docs=20)
    sim = simulate(judged, protocol, sessions_per_query=60, seed=seed, n_threads=1)
    train, valid = sim.log.split(0.5, seed=seed)
    kept = np.isin(judged_ids(sim), valid.query_id)
    part = sim.truth.judged.take(np.flatnonzero(np.isin(sim.truth.judged.query_id, valid.query_id)))
    return sim, train, valid, sim.truth.relevance[kept], part


def judged_ids(sim):
    judged = sim.truth.judged
    return np.repeat(judged.query_id, np.diff(judged.indptr))


@cache
def rankers(protocol, seed):
    """Ten rankers from poor to good: on labels, on clicks as they are, on corrected clicks."""
    sim, train, _, _, _ = case(protocol, seed)
    bias = sim.truth.bias
    labels = make_judged(300, 20, seed=500 + seed, mean_docs=20)
    few = labels.take(np.arange(12))
    unfitted = {
        "production again": (LinearRanker(), train),
        "linear, 12 labelled queries": (LinearRanker(), few),
        "linear, labels": (LinearRanker(), labels),
        "3 trees, clicks": (LambdaMART(n_trees=3, **TREES), train),
        "60 trees, clicks": (LambdaMART(n_trees=60, **TREES), train),
        "60 trees, ips": (LambdaMART(IPS(bias), n_trees=60, **TREES), train),
        "60 trees, prs": (LambdaMART(PRS(bias), n_trees=60, **TREES), train),
        "60 trees, balanced": (LambdaMART(Balanced(bias), n_trees=60, **TREES), train),
        "10 trees, labels": (LambdaMART(n_trees=10, **TREES), labels),
        "60 trees, labels": (LambdaMART(n_trees=60, **TREES), labels),
    }
    return {name: ranker.fit(data) for name, (ranker, data) in unfitted.items()}


def values(protocol, seed):
    """Of each ranker: two truths, and three ways to guess them from clicks."""
    sim, _, valid, relevance, judged = case(protocol, seed)
    scores = {name: r.predict(valid.features) for name, r in rankers(protocol, seed).items()}
    truth = estimate(valid, scores, evaluator="direct", relevance=relevance)
    return {
        name: {
            "true dcg@10": truth[name].value,
            "true ndcg@10": evaluate(judged, s, ["ndcg@10"])["ndcg@10"].value,
            "counterfactual": corrected.value,
            "naive": naive.value,
            "ndcg on clicks": ndcg_on_clicks(valid, s),
        }
        for (name, s), corrected, naive in zip(
            scores.items(),
            estimate(valid, scores, sim.truth.bias, evaluator="affine"),
            estimate(valid, scores, evaluator="naive"),
            strict=True,
        )
    }


def ndcg_on_clicks(log, scores):
    """Mean NDCG@10 of sessions with clicks as labels: tempting, and tilted."""
    return (
        NDCG(10)
        .mean(scores[log.document], log.label, log.indptr, weights=log.sessions, empty="skip")
        .value
    )


GUESSES = ("counterfactual", "naive", "ndcg on clicks")


def agreement(protocol, seed, truth):
    """Kendall's tau between each guess and a truth."""
    found = values(protocol, seed)
    column = {key: [each[key] for each in found.values()] for key in (truth, *GUESSES)}
    return {guess: float(kendalltau(column[truth], column[guess])[0]) for guess in GUESSES}


@cache
def selection_case(protocol, seed):
    """Ten candidates, what `select` makes of them, and their true quality on fresh queries."""
    sim, train, valid, _, _ = case(protocol, seed)
    bias = sim.truth.bias
    candidates = {
        "linear clicks": LinearRanker(),
        "linear ips": LinearRanker(IPS(bias)),
        **{
            f"{type(w).__name__} {n}": LambdaMART(w, n_trees=n, **TREES)
            for w in (Naive(), IPS(bias), PRS(bias), Balanced(bias))
            for n in (10, 60)
        },
    }
    found = select(candidates, train=train, valid=valid, bias=bias)
    test = make_judged(500, 20, seed=10_000 + seed, mean_docs=20)
    return {
        name: {
            "true ndcg@10": evaluate(test, each.ranker, ["ndcg@10"])["ndcg@10"].value,
            "counterfactual": found.estimates[name].value,
            "naive": estimate(valid, each.scores, evaluator="naive").best.value,
            "ndcg on clicks": ndcg_on_clicks(valid, each.scores),
        }
        for name, each in found.fitted.items()
    }, found.best


def picked(protocol, seed, guess):
    """True NDCG@10 of the candidate that a guess picks, over that of the best."""
    found, by_select = selection_case(protocol, seed)
    best = max(each["true ndcg@10"] for each in found.values())
    chosen = max(found, key=lambda name: found[name][guess])
    assert guess != "counterfactual" or chosen == by_select
    return found[chosen]["true ndcg@10"] / best, chosen


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_counterfactual_order_agrees_best_with_the_true_order(protocol):
    taus = [agreement(protocol, seed, "true dcg@10") for seed in range(SEEDS)]
    mean = {guess: np.mean([each[guess] for each in taus]) for guess in GUESSES}
    assert mean["counterfactual"] > mean["naive"] + 0.05
    assert mean["counterfactual"] > mean["ndcg on clicks"] + 0.05


@pytest.mark.slow
def test_the_choice_is_nearly_the_best_where_clicks_choose_worse():
    cases = [(PROTOCOLS[number % 3], 10 + number) for number in range(10)]
    share = {guess: [picked(*each, guess)[0] for each in cases] for guess in GUESSES}
    good = {guess: int(np.sum(np.array(s) >= 0.995)) for guess, s in share.items()}
    assert good["counterfactual"] >= 8
    assert good["counterfactual"] > good["ndcg on clicks"]


def _table():
    for truth in ("true dcg@10", "true ndcg@10"):
        for protocol in PROTOCOLS:
            taus = [agreement(protocol, seed, truth) for seed in range(SEEDS)]
            cells = [
                f"{np.mean([t[g] for t in taus]):.3f} +- "
                f"{np.std([t[g] for t in taus], ddof=1) / np.sqrt(SEEDS):.3f}"
                for g in GUESSES
            ]
            _say(f"| {truth} | {protocol} | {' | '.join(cells)} |")
    for number in range(10):
        protocol, seed = PROTOCOLS[number % 3], 10 + number
        cells = [f"{s:.4f} ({name})" for s, name in (picked(protocol, seed, g) for g in GUESSES)]
        _say(f"| {protocol} {seed} | {' | '.join(cells)} |")


def _say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _draw(folder):
    import altair as alt

    from untilt.charts.theme import FILE, finished, save_chart

    rows = [
        {"protocol": protocol, "seed": seed, "guess": guess, "tau": tau}
        for protocol in PROTOCOLS
        for seed in range(SEEDS)
        for guess, tau in agreement(protocol, seed, "true dcg@10").items()
    ]
    colour = alt.Color(
        "guess:N", title=None, sort=list(GUESSES),
        scale=alt.Scale(domain=list(GUESSES), range=list(FILE.series[: len(GUESSES)])),
        legend=alt.Legend(orient="top"),
    )  # fmt: skip
    chart = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("guess:N", title=None, sort=list(GUESSES), axis=None),
        y=alt.Y("tau:Q", title="Kendall's tau with the true order"),
        color=colour,
    )
    layers = alt.layer(
        chart.mark_point(filled=True, size=50, opacity=0.6),
        chart.mark_tick(thickness=3, width=36).encode(y="mean(tau):Q"),
    ).properties(width=150, height=260)
    whole = layers.facet(column=alt.Column("protocol:N", title=None, sort=list(PROTOCOLS)))
    save_chart(finished(whole), Path(folder) / "counterfactual-order.svg")


if __name__ == "__main__":
    _table()
    if len(sys.argv) > 1:
        _draw(sys.argv[1])
