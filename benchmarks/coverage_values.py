"""Values, differences and metrics in the coverage table: `estimate`, `select`, `evaluate`."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from coverage_curves import all_pairs, bounded, of_click_rates, of_order, of_reading
from coverage_row import ALL, Ends, Measure, Row
from coverage_world import (
    DISCOUNT,
    EPS_MINUS,
    EPS_PLUS,
    N_FEATURES,
    PLACE,
    THETA,
    Array,
    Made,
    Scenario,
    draw_queries,
    make,
    make_judged,
    order_by,
    truth,
)
from sklearn.base import BaseEstimator

import untilt as ut
from untilt import catalog

SYSTEMS = ("shown", "new")
# Of other evaluators: the gain itself.
TARGET = {"naive": "clicks", "snips": "per_relevant", "logged-propensities": "there"}


def estimated(made: Made, evaluator: str, curve: str, **options: Any) -> Any:
    """`estimate` of both systems by this evaluator."""

    def make() -> Any:
        bias = {"estimated": all_pairs, "bounded": bounded, "true": known_curve}[curve](made)
        systems = {"shown": ut.shown, "new": made.new_scores}
        people = "user" if made.scenario.people else None
        return ut.estimate(made.log, systems, bias, evaluator=evaluator, people=people, **options)

    return made.once((evaluator, curve, *options.items()), make)


def known_curve(made: Made) -> Any:
    if made.study != "trust":
        return ut.KnownBias(THETA)
    theta = made.scenario.clicks * THETA
    return ut.KnownBias(theta, eps_plus=EPS_PLUS, eps_minus=EPS_MINUS, absolute=True)


def _true_values(made: Made, evaluator: str) -> Array:
    values = truth(made.study, made.scenario)
    target = TARGET.get(evaluator.partition(":")[0], "gain")
    return np.array([values[f"{target}_{system}"] for system in SYSTEMS])


def _given(intervals: list[Any], true: Array) -> Ends | None:
    low = np.array([each.low for each in intervals])
    high = np.array([each.high for each in intervals])
    return None if np.isnan(low).all() else Ends(low, high, true)


def value_rows() -> Iterator[Row]:
    for record in catalog.methods("evaluator"):
        name = record.name
        curves = ("true", "estimated") if "bias" in record.needs or name == "direct" else ("true",)
        study = "logged" if "propensity" in record.needs else "rankers"
        for curve in curves:
            title = f"{name}, {curve} curve" if study == "rankers" else name
            yield from _estimate_rows(title, name, curve, study)
        if "self_normalised" in record.takes:
            asked = f"{name}:self_normalised=true"
            yield from _estimate_rows(f"{name}, self-normalised", asked, "true", study)
        yield Row(
            f"{name}, bootstrap",
            "values",
            study,
            _value_of(name, "true", interval="bootstrap", n_draws=400),
            covers=("evaluator", name),
            share=0.5,
        )
        if "clip" in record.takes and name != "clipped":  # whose clip is chosen by itself
            yield from _estimate_rows(f"{name}, automatic clip", name, "true", clip="auto")
        if record.default:
            yield from _estimate_rows(f"{name}, bounded curve", name, "bounded", study="islands")
        if record.load().corrects_trust or name == "bayes-ips":
            yield from _estimate_rows(f"{name}, trust bias", name, "true", study="trust")


def _estimate_rows(
    title: str, name: str, curve: str, study: str = "rankers", **options: Any
) -> Iterator[Row]:
    covers = ("evaluator", name.partition(":")[0])
    more: dict[str, Any] = {"covers": covers, "bounds": curve == "bounded"}
    yield Row(title, "values", study, _value_of(name, curve, **options), **more)
    yield Row(title, "differences", study, _difference_of(name, curve, **options), **more)


def _value_of(name: str, curve: str, **options: Any) -> Measure:
    def measure(made: Made) -> Ends | None:
        entries = estimated(made, name, curve, **options)
        intervals = [entries[system].interval for system in SYSTEMS]
        return _given(intervals, _true_values(made, name))

    return measure


def _difference_of(name: str, curve: str, **options: Any) -> Measure:
    def measure(made: Made) -> Ends | None:
        shown, new = _true_values(made, name)
        compared = estimated(made, name, curve, **options).compare("shown")
        return _given([compared["new"].interval], np.array([new - shown]))

    return measure


# ---- choosing among candidates


class Weighed(BaseEstimator):
    """A linear score with given weights: nothing is learned, so its true value is known."""

    def __init__(self, tells: int = 1, noise: float = 0.5) -> None:
        self.tells = tells
        self.noise = noise

    def fit(self, data: Any) -> "Weighed":
        return self

    @property
    def weights(self) -> Array:
        half = N_FEATURES // 2
        w = np.zeros(N_FEATURES)
        w[: self.tells] = 1.0
        w[half:] = self.noise
        return w

    def predict(self, features: Array) -> Array:
        return np.asarray(features, dtype=float) @ self.weights


CANDIDATES = {f"{n} told": Weighed(n, noise) for n, noise in ((1, 0.5), (2, 0.5), (2, 1.0))}


@lru_cache
def _candidate_values(shortest: int, clicks: float) -> Array:
    rng, sums = np.random.default_rng(777), np.zeros(len(CANDIDATES))
    for _ in range(10):
        queries = draw_queries(rng, 20_000, shortest)
        gamma = np.where(queries.exists, queries.relevance, 0.0)
        for i, candidate in enumerate(CANDIDATES.values()):
            order = order_by(queries.features @ candidate.weights, queries.exists)
            placed = np.take_along_axis(gamma, order, axis=-1)
            sums[i] += (placed * DISCOUNT).sum(axis=-1).mean() / 10
    return clicks * sums


def selected(made: Made) -> Any:
    def make() -> Any:
        train, valid = made.log.split(0.1, by="query", seed=made.seed)
        bias, people = known_curve(made), "user" if made.scenario.people else None
        return ut.select(CANDIDATES, train=train, valid=valid, bias=bias, people=people)

    return made.once("select", make)


def of_selection(made: Made) -> Ends | None:
    true = _candidate_values(made.scenario.shortest, made.scenario.clicks)
    return _given([selected(made).estimates[name].interval for name in CANDIDATES], true)


def of_selected_differences(made: Made) -> Ends | None:
    """Of the others to the best by the log's own clicks, as `Selection.comparison` has them."""
    true = dict(
        zip(
            CANDIDATES,
            _candidate_values(made.scenario.shortest, made.scenario.clicks),
            strict=True,
        )
    )
    selection = selected(made)
    entries = list(selection.comparison)
    gaps = np.array([true[entry.system] - true[selection.best] for entry in entries])
    return _given([entry.interval for entry in entries], gaps)


# ---- judged lists

METRICS = ("ndcg@10", "dcg@10", "map")


@lru_cache
def _judged_truth(shortest: int) -> dict[str, Array]:
    """Means over 100,000 queries of (new, production) by formulas of its own."""
    rng = np.random.default_rng(4321)
    sums: dict[str, Array] = {}
    for _ in range(10):
        queries = draw_queries(rng, 10_000, shortest)
        exists = queries.exists
        label = (rng.random(exists.shape) < queries.relevance) & exists
        best = -np.sort(-label.astype(float), axis=-1) @ DISCOUNT
        for name, score in (("new", queries.new), ("production", queries.score[0])):
            placed = np.take_along_axis(label, order_by(score, exists), axis=-1)
            dcg = placed @ DISCOUNT
            hits = np.cumsum(placed, axis=-1) / PLACE
            n = np.maximum(placed.sum(axis=-1), 1)
            each = {
                "ndcg@10": np.where(best > 0, dcg / np.maximum(best, 1e-9), 0.0),
                "dcg@10": dcg,
                "map": (hits * placed).sum(axis=-1) / n,
            }
            sums[name] = sums.get(name, 0) + np.array([each[m].mean() for m in METRICS]) / 10
    return sums


def _judged(made: Made) -> dict[str, Any]:
    def make() -> dict[str, Any]:
        judged, queries, weights = make_judged(made.scenario, made.seed)
        scores = {"new": queries.new, "production": queries.score[0]}
        return {
            name: ut.evaluate(judged, score[queries.exists], METRICS, weights=weights)
            for name, score in scores.items()
        }

    return made.once("judged", make)


def of_evaluation(made: Made) -> Ends | None:
    entries = _judged(made)["new"]
    return _given(
        [entries[m].interval for m in METRICS], _judged_truth(made.scenario.shortest)["new"]
    )


def of_judged_difference(made: Made) -> Ends | None:
    both, true = _judged(made), _judged_truth(made.scenario.shortest)
    difference = both["new"].minus(both["production"])
    return _given([difference[m].interval for m in METRICS], true["new"] - true["production"])


# ---- click models


def _model_figures(made: Made) -> list[Any]:
    """Figures of a comparison with intervals drawn by query: of two models that only count."""

    def make() -> list[Any]:
        train, test = made.log.split(0.5, by="session", seed=made.seed)
        found = ut.compare_click_models(
            train, test, models=["rctr", "dctr"], reference="rctr", seed=made.seed, by="query"
        )
        first, second = found
        return [first.log_likelihood, second.log_likelihood, second.perplexity, second.gain]

    return made.once("click models", make)


@lru_cache
def _model_truth(scenario: Scenario) -> Array:
    """Means over logs of their own: models of this much traffic, queries like these."""
    first = 1_000_000
    logs = (make("rankers", scenario, seed) for seed in range(first, first + 100))
    return np.mean([[each.value for each in _model_figures(made)] for made in logs], axis=0)


def of_click_models(made: Made) -> Ends | None:
    intervals = [each.interval for each in _model_figures(made)]
    return _given(intervals, _model_truth(made.scenario))


# ---- rows


def other_rows() -> Iterator[Row]:
    yield Row("click rate by position", "other", "rankers", of_click_rates)
    yield Row("audit, position and relevance", "other", "rankers", of_order, share=0.3)
    alike = tuple(each for each in ALL if each != "people")  # sessions of people who differ do too
    yield Row("reading test, contexts", "other", "context", of_reading("context"))
    row = of_reading("clicks-above")
    yield Row("reading test, clicks above", "other", "rankers", row, scenarios=alike)
    yield Row("reading test, relevance", "other", "rankers", of_reading("relevance"))
    yield Row("reading test, features", "other", "fixed", of_reading("features"), share=0.5)
    yield Row("compare_click_models", "other", "rankers", of_click_models, share=0.5)
    yield Row("select, values", "other", "fixed", of_selection)
    yield Row("select, differences to the best", "other", "fixed", of_selected_differences)
    judged = ("even", "zipf", "few", "lengths")
    yield Row("evaluate, judged lists", "other", "judged", of_evaluation, scenarios=judged)
    yield Row("evaluate, difference", "other", "judged", of_judged_difference, scenarios=judged)
