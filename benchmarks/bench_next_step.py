"""Which estimator first, where a log gives reason for several?

The order of the rules in `untilt.auditing.next_step` rests on it.

Readers are known: examination k^-exponent, by device where devices differ; at position k a share
trust/k of those who look click whatever stands there, so that P(click at k) = alpha_k gamma +
beta_k. Clicks identify alpha_k / alpha_1. In a share of the sessions an experiment changes lists;
"stock" lowers the worth of some documents in some sessions, and in "personal" every session has its
own tastes: production knows both, the log neither. "devices by query": queries differ in their
share of phones.

Two errors for each estimator, as means over the seeds with their standard errors: the root mean
square of log(alpha_k / alpha_1) over positions 2..10 (and devices), and the estimated difference
of two rankers minus the true one, in percent of the true one.
"trust named" is the share of logs whose reading tests name trust and call it material: of the
whole log, and of the shuffled lists alone.
"""

import argparse
import json
from functools import partial
from typing import Any

import numpy as np
from _harness import RESULTS, save, table

import untilt as ut
from untilt.auditing.reading import ReadingTests, reading_tests
from untilt.errors import UntiltError

N_QUERIES, DEPTH = 120, 10
K = np.arange(1, DEPTH + 1)
WORLDS: dict[str, dict[str, Any]] = {
    **{
        f"{kind}, trust {trust:g}": {"experiment": kind, "trust": trust}
        for kind in ("shuffle", "pivot", "adjacent")
        for trust in (0.0, 0.1, 0.3)
    },
    **{
        f"devices, trust {trust:g}": {"devices": (0.5, 1.1), "trust": trust}
        for trust in (0.0, 0.1, 0.3)
    },
    "devices, shuffle": {"devices": (0.5, 1.1), "experiment": "shuffle"},
    "devices, shuffle, stock": {"devices": (0.5, 1.1), "experiment": "shuffle", "stock": 1.0},
    "devices, shuffle, trust 0.3": {
        "devices": (0.5, 1.1), "experiment": "shuffle", "trust": 0.3,
    },
    "shuffle, stock": {"experiment": "shuffle", "stock": 1.0, "trust": 0.0},
    "shuffle, stock, trust 0.3": {"experiment": "shuffle", "stock": 1.0, "trust": 0.3},
    "shuffle, personal": {"experiment": "shuffle", "personal": 1.0, "trust": 0.0},
    "personal": {"personal": 1.0, "trust": 0.0},
    **{
        f"devices by query, trust {trust:g}": {
            "devices": (0.5, 1.1), "phones": (0.1, 0.9), "trust": trust,
        }
        for trust in (0.0, 0.1, 0.3)
    },
}  # fmt: skip
EXPERIMENTS = {"shuffle": "ShuffledTop", "pivot": "PivotSwap", "adjacent": "AdjacentSwap"}


def world(
    seed: int,
    sessions: int,
    *,
    trust: float = 0.0,
    devices: tuple[float, float] = (0.8, 0.8),
    experiment: str = "",
    share: float = 0.25,
    stock: float = 0.0,
    personal: float = 0.0,
    phones: tuple[float, float] = (0.5, 0.5),
) -> tuple[ut.ClickLog, np.ndarray, np.ndarray]:
    """A log, its relevance by document (mean over sessions), and alpha_k / alpha_1 by device."""
    rng = np.random.default_rng(seed)
    query = np.sort(rng.integers(N_QUERIES, size=sessions))
    worth = rng.normal(size=(N_QUERIES, DEPTH))
    own = 0.6 * worth + 0.8 * rng.normal(size=(2, N_QUERIES, DEPTH))
    ranker, phone = rng.integers(2, size=sessions), rng.random(sessions)
    phone = phone < np.array(phones)[query % 2]
    # More or less worth in this session alone.
    taste = personal * rng.normal(size=(sessions, DEPTH))
    taste = taste - stock * (rng.random((sessions, DEPTH)) < 0.3)
    now = worth[query] + taste
    noise = 0.35 * rng.normal(size=(sessions, DEPTH))
    order = np.argsort(-(own[ranker, query] + 0.6 * taste + noise), axis=1)
    names = ["old", "new"]
    if experiment:
        drawn = np.flatnonzero(rng.random(sessions) < share)
        ranker, names = _changed(rng, experiment, order, ranker, drawn, names)
    gamma = _relevance(np.take_along_axis(now, order, axis=1))
    exponent = np.where(phone, devices[1], devices[0])[:, None]
    click = rng.random(order.shape) < K**-exponent * (gamma + trust / K * (1 - gamma))
    log = ut.ClickLog(
        np.arange(N_QUERIES), np.arange(N_QUERIES * DEPTH), np.repeat(np.arange(N_QUERIES), DEPTH),
        np.arange(sessions + 1) * DEPTH, query, (query[:, None] * DEPTH + order).ravel(),
        np.tile(K, sessions), click.ravel().astype(float), ranker=ranker,
        ranker_names=tuple(names), context={"device": np.where(phone, "phone", "desk")},
    )  # fmt: skip
    alpha = K ** -np.array(devices)[:, None] * (1 - trust / K)
    tastes = personal * np.linspace(-4, 4, 801)
    density = np.exp(-(np.linspace(-4, 4, 801) ** 2) / 2)
    mean = 0.7 * _relevance(worth) + 0.3 * _relevance(worth - stock)
    if personal:
        mean = _relevance(worth[..., None] + tastes) @ density / density.sum()
    return log, mean * (1 - trust), alpha / alpha[:, :1]


def _relevance(worth: np.ndarray) -> np.ndarray:
    return 0.03 + 0.77 / (1 + np.exp(1.5 - 1.5 * worth))


def _changed(
    rng: np.random.Generator,
    kind: str,
    order: np.ndarray,
    ranker: np.ndarray,
    drawn: np.ndarray,
    names: list[str],
) -> tuple[np.ndarray, list[str]]:
    """Change the drawn lists in place; who made each list then, and the names."""
    ranker = ranker.copy()
    if kind == "shuffle":
        order[drawn] = rng.permuted(order[drawn], axis=1)
        ranker[drawn] = 2
        return ranker, [*names, "shuffle"]
    low = rng.integers(2, DEPTH + 1, size=len(drawn))
    high = low - 1 if kind == "adjacent" else np.ones_like(low)
    order[drawn, low - 1], order[drawn, high - 1] = order[drawn, high - 1], order[drawn, low - 1]
    ranker[drawn] = low
    ranker[np.isin(ranker, [0, 1])] = 0  # one base, as a swap needs
    swaps = [f"swap:{j - 1 if kind == 'adjacent' else 1}-{j}" for j in range(2, DEPTH + 1)]
    ranker[drawn] = low - 1
    return ranker, ["base", *swaps]


def estimators(log: ut.ClickLog, world: dict[str, Any]) -> dict[str, Any]:
    """Name -> a bias; what cannot be fitted is left out."""
    experiment = world.get("experiment", "")
    made: dict[str, Any] = {"AllPairs": lambda: ut.AllPairs().fit(log).bias_}
    if experiment:
        kind = EXPERIMENTS[experiment]
        made[kind] = lambda: getattr(ut, kind)().fit(log).bias_
    if "trust" in world:
        made["TrustEM"] = lambda: ut.TrustEM().fit(log).bias_
    if "devices" in world:
        made["ContextualBias"] = partial(_by_context, log)
    if experiment == "shuffle":
        part = shuffled(log)
        if "trust" in world:
            made["TrustEM, shuffled lists"] = lambda: ut.TrustEM().fit(part).bias_
        if "devices" in world:
            made["ContextualBias, shuffled lists"] = partial(_by_context, part)
    return made


def shuffled(log: ut.ClickLog) -> ut.ClickLog:
    """The lists in random order alone."""
    assert log.ranker is not None
    return log.take(np.flatnonzero(log.ranker == log.ranker_names.index("shuffle")))


def _by_context(log: ut.ClickLog) -> ut.PositionBias:
    return ut.ContextualBias().fit(log).curves_.by_context()


def slopes(bias: ut.PositionBias) -> np.ndarray:
    """alpha_k / alpha_1 of each device: (2, K)."""
    # The last context is the mean of all.
    curves = list(bias.contexts.values())[:2] if bias.contexts else [bias, bias]
    alpha = np.array([_alpha(each) for each in curves])
    return alpha / alpha[:, :1]


def _alpha(bias: ut.PositionBias) -> np.ndarray:
    if bias.eps_plus is None or bias.eps_minus is None:
        return bias.examination
    return bias.examination * (bias.eps_plus - bias.eps_minus)


def one(seed: int, sessions: int, options: dict[str, Any]) -> dict[str, list[float]]:
    """Errors of each estimator: of the curve, of the difference; and what the tests named."""
    log, relevance, truth = world(seed, sessions, **options)
    rng = np.random.default_rng(1000 + seed)
    worth = np.log(relevance / (1 - relevance))
    better = worth + rng.normal(size=worth.shape)
    systems = {
        "better": better.ravel(),
        "weaker": 0.3 * worth.ravel() + rng.normal(size=worth.size),
    }
    gain = 1 / np.log2(K + 1)
    value = {
        name: gain[np.argsort(np.argsort(-score.reshape(worth.shape), axis=1), axis=1)] * relevance
        for name, score in systems.items()
    }
    sessions_of = np.bincount(log.query, weights=log.sessions, minlength=N_QUERIES)
    by_query = (value["better"] - value["weaker"]).sum(axis=1)
    true = float(by_query @ sessions_of / sessions_of.sum())
    found: dict[str, list[float]] = {}
    for name, fit in estimators(log, options).items():
        try:
            bias = fit()
        except UntiltError as error:
            print(f"  {name}: {error}")
            continue
        curve = float(np.sqrt(np.mean((np.log(slopes(bias)) - np.log(truth))[:, 1:] ** 2)))
        values = ut.estimate(log, systems, bias, unshown=False)
        scale = float(_alpha(bias)[0]) if not bias.contexts else 1.0
        difference = scale * (values["better"].value - values["weaker"].value)
        found[name] = [curve, difference / true - 1]
    parts = [log, shuffled(log)] if options.get("experiment") == "shuffle" else [log]
    found["named"] = [float(_names_trust(reading_tests(part))) for part in parts]
    return found


def _names_trust(tests: ReadingTests) -> bool:
    return any(t.question == "relevance" and t.ratio > 1 and t.is_material for t in tests.failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sessions", type=int, default=30_000)
    parser.add_argument("--only", default="", help="Worlds whose name has this; others are kept.")
    given = parser.parse_args()
    file = RESULTS / "next_step.json"
    results = json.loads(file.read_text())["results"] if file.exists() and given.only else {}
    for label, options in WORLDS.items():
        if given.only in label:
            runs = [one(seed, given.sessions, options) for seed in range(given.seeds)]
            results[label] = _summary(runs)
            save("next_step", results, seed=0)
    header = ("world", "estimator", "curve", "+-", "difference %", "+-", "trust named")
    table(
        header, ([w, name, *row.values()] for w, of in results.items() for name, row in of.items())
    )


def _summary(runs: list[dict[str, list[float]]]) -> dict[str, dict[str, Any]]:
    """Means and standard errors of each estimator."""
    named = np.array([run.pop("named") for run in runs]).mean(axis=0).round(2).tolist()
    found = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        errors = np.array([run[name] for run in runs if name in run]) * [1, 100]
        mean, error = errors.mean(axis=0), errors.std(axis=0, ddof=1) / np.sqrt(len(errors))
        found[name] = {
            "curve": float(mean[0]), "curve_error": float(error[0]),
            "difference": float(mean[1]), "difference_error": float(error[1]),
            "trust_named": named,
        }  # fmt: skip
    return found


if __name__ == "__main__":
    main()
