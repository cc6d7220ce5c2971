"""Tests of random order: exact moments, false alarms on honest shuffles, and what they find."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from untilt import ShuffledTop, read_log
from untilt.bias.experiments.tests import SMALL, _pair_moments, shuffle_facts, upper_tail
from untilt.errors import IdentifiabilityError
from untilt.facts import codes

Order = Callable[[np.random.Generator, int], list[int]]
RELEVANCE = np.array([0.9, 0.4, 0.2, 0.1, 0.1, 0.05, 0.05, 0.02])  # of document 0, 1, ...
THETA = 1 / np.arange(1, 20)


def facts_of(log, top=None):
    shuffled = np.array([name.startswith("shuffle") for name in log.ranker_names])[log.ranker]
    return shuffle_facts(log, shuffled, top or log.depth)


def experiment(
    make_log: Any, rng: Any, order: Order, *, queries=40, sessions=30, n=8, usual=0, features=False
) -> Any:
    """Sessions of lists in some order, with clicks; `usual` sessions show 0, 1, ... from the top.

    Document 0 is the most relevant; the feature is the relevance, a little changed.
    """
    relevance = RELEVANCE[:n]
    made = []
    for q in range(queries):
        orders = [(order(rng, n), "shuffle") for _ in range(sessions)]
        orders += [(list(range(n)), "base")] * usual
        for shown, name in orders:
            clicked = [d for k, d in enumerate(shown) if rng.random() < THETA[k] * relevance[d]]
            made.append((q, shown, clicked, 1, name))
    log = make_log(made)
    if not features:
        return log
    known = relevance[log.doc_id] + rng.normal(scale=0.2, size=log.n_documents)
    noise = rng.normal(size=(log.n_documents, 9))
    table = np.column_stack([noise, known]).astype(np.float32)
    return replace(log, features=table, feature_names=tuple(f"f{j}" for j in range(10)))


def at_random(rng, n):
    return rng.permutation(n).tolist()


def favoured(share):
    """The most relevant document comes first in this share of the sessions."""

    def order(rng, n):
        shown = rng.permutation(n).tolist()
        if rng.random() < share:
            shown.remove(0)
            shown.insert(0, 0)
        return shown

    return order


# The moments of a pair of sessions.


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_moments_of_a_pair_by_enumeration(n):
    """h of all pairs and triples of orders; the first of them may be any, so it is 0, 1, ..."""
    orders = [np.array(each) for each in itertools.permutations(range(n))]
    chance = 1 / len(orders)

    def h(s, t):
        fixed = np.sum(s == t)
        if n < SMALL:
            return fixed - 1
        return (fixed - 1) * (fixed < n) + (n - 1) * chance

    pairs = np.array([h(orders[0], t) for t in orders])
    triangle = np.mean(
        [h(orders[0], t) * h(t, u) * h(u, orders[0]) for t in orders for u in orders]
    )
    variance, third, product = _pair_moments(n)
    assert np.mean(pairs) == pytest.approx(0, abs=1e-12)
    assert variance == pytest.approx(np.mean(pairs**2))
    assert third == pytest.approx(np.mean(pairs**3))
    assert product == pytest.approx(triangle)


def test_the_tail_of_a_gamma_distribution():
    """Shape 1 has skewness 2: the exponential distribution, P(Z >= z) = exp(-1 - z)."""
    assert upper_tail(2.0, 2.0) == pytest.approx(np.exp(-3))
    assert upper_tail(1.6448536, 0.0) == pytest.approx(0.05)
    assert upper_tail(1.6448536, 1e-3) == pytest.approx(0.05, rel=0.01)


# False alarms.


def honest(kind: str, rng: np.random.Generator, make_log: Any) -> tuple[Any, int | None]:
    """An honest experiment: queries and lists of all sizes, usual sessions, features."""
    made = []
    for q in range(int(rng.integers(5, 40))):
        n = int(rng.integers(2, 12))
        sessions: dict[str, Any] = {
            "one": 1,
            "few": rng.integers(1, 5),
            "uneven": min(200, rng.pareto(0.8) * 3),
        }
        for _ in range(int(sessions.get(kind, rng.integers(1, 16)))):
            shown: list[Any] = rng.permutation(n).tolist()
            if kind == "top":
                shown = [*rng.permutation(min(n, 5)).tolist(), *range(5, n)]
            if kind == "gaps":
                shown = [d if rng.random() > 0.05 else None for d in shown]
                shown[0] = 99 if shown[0] is None else shown[0]
            made.append((q, shown, [], 1, "shuffle"))
        made.append((q, list(range(n)), [], int(rng.integers(1, 5)), "base"))
    log = make_log(made)
    table = rng.normal(size=(log.n_documents, 10)).astype(np.float32)
    names = tuple(f"f{j}" for j in range(10))
    return replace(log, features=table, feature_names=names), 5 if kind == "top" else None


def alarms(kind, make_log, *, n_logs, seed=0):
    rng = np.random.default_rng(seed)
    found = [facts_of(*honest(kind, rng, make_log)) for _ in range(n_logs)]
    return sum(any(fact.severity == "serious" for fact in facts) for facts in found)


KINDS = ("one", "few", "uneven", "top", "gaps")


@pytest.mark.parametrize("kind", KINDS)
def test_honest_shuffles_pass(kind, make_log):
    assert alarms(kind, make_log, n_logs=12) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_false_alarms_are_fewer_than_one_in_a_hundred(kind, make_log):
    assert alarms(kind, make_log, n_logs=400, seed=1) <= 4


def test_one_session_per_query_and_nothing_else_is_believed(make_log, rng):
    log = experiment(make_log, rng, at_random, sessions=1)
    assert codes(facts_of(log)) == ["bias.shuffle-untested"]


def test_counted_lists_are_repeated_sessions(make_log, rng):
    log = experiment(make_log, rng, favoured(0.1), n=4, usual=2)
    collapsed = log.collapse()
    assert collapsed.n_lists < log.n_lists
    for plain, counted in zip(facts_of(log), facts_of(collapsed), strict=True):
        assert plain.code == counted.code
        assert str(plain) == str(counted)


# What must be found.


def test_two_fixed_orders_are_refused_and_would_have_misled(make_log, rng):
    """The usual order and one other, half of the sessions each: not what position 5 is worth."""
    two = [[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6]]
    log = experiment(make_log, rng, lambda rng, n: two[rng.integers(2)])
    with pytest.raises(IdentifiabilityError, match=r"80 different ones in 1,200 sessions"):
        ShuffledTop().fit(log)
    unchecked = ShuffledTop(check=False).fit(log).bias_
    assert unchecked.status.part("bias.shuffle-orders").fields["p_value"] < 1e-6
    assert unchecked.examination[4] < 0.5 * THETA[4]


def test_a_third_in_the_usual_order_is_found(make_log, rng):
    def order(rng, n):
        return list(range(n)) if rng.random() < 1 / 3 else rng.permutation(n).tolist()

    log = experiment(make_log, rng, order, queries=20, sessions=20)
    assert "bias.shuffle-orders" in codes(facts_of(log))


@pytest.mark.parametrize(("share", "sessions"), [(0.3, 20), (0.1, 80)])
def test_a_bandit_that_favours_relevant_documents_is_found(share, sessions, make_log, rng):
    log = experiment(make_log, rng, favoured(share), sessions=sessions)
    found = facts_of(log)
    assert codes(found)[0] == "bias.shuffle-positions"
    assert found[0].fields["mean"] > 1
    with pytest.raises(IdentifiabilityError, match="keep to their positions"):
        ShuffledTop().fit(log)


@pytest.mark.parametrize(
    ("more", "code"),
    [({"usual": 3}, "bias.shuffle-usual-order"), ({"features": True}, "bias.shuffle-feature")],
)
def test_a_bandit_is_found_with_one_session_per_query(more, code, make_log, rng):
    log = experiment(make_log, rng, favoured(0.4), queries=300, sessions=1, **more)
    found = next(fact for fact in facts_of(log) if fact.code == code)
    assert found.fields["p_value"] < 0.001
    # Relevant documents are at the top in the usual order, and at small positions in the shuffle.
    assert np.sign(found.fields["correlation"]) == (1 if "usual" in more else -1)
    if "features" in more:
        assert found.fields["feature"] == "f9"


def test_features_that_were_made_in_the_session_prove_nothing(make_log, rng):
    """With one session per query a feature may be the position, or the click itself."""
    log = experiment(make_log, rng, at_random, queries=300, sessions=1)
    table = np.column_stack([log.position, log.label, rng.normal(size=len(log.label))])
    order = np.argsort(log.document)
    named = replace(
        log, features=table[order].astype(np.float32), feature_names=("shown", "clicked", "noise")
    )
    assert codes(facts_of(named)) == ["bias.shuffle-passed"]


def clicked_sessions(log):
    """The log without the shuffled sessions in which nobody clicked."""
    clicked = np.add.reduceat(log.label, log.indptr[:-1]) > 0
    return log.take(clicked | (log.ranker == log.ranker_names.index("base")))


def test_an_honest_shuffle_logged_only_where_somebody_clicked_passes(make_log, rng):
    """The selection puts relevant documents higher; clicks by position stay right."""
    log = clicked_sessions(
        experiment(make_log, rng, at_random, sessions=200, usual=3, features=True)
    )
    assert codes(facts_of(log)) == ["bias.shuffle-passed", "bias.shuffle-clicked-only"]
    bias = ShuffledTop().fit(log).bias_
    assert np.all(np.abs(bias.examination - THETA[:8]) < 4 * bias.std_error + 1e-12)


def test_fixed_orders_are_found_also_where_every_session_has_a_click(make_log, rng):
    two = [[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6]]
    log = experiment(make_log, rng, lambda rng, n: two[rng.integers(2)], usual=3)
    assert "bias.shuffle-orders" in codes(facts_of(clicked_sessions(log)))


def test_the_random_order_of_hotel_searches_is_none(data_dir):
    """Searches flagged as random order put hotels without a location score lower."""
    log = read_log(
        data_dir / "expedia-sample" / "searches.csv.gz",
        columns={
            "query_id": "srch_id",
            "session_id": "srch_id",
            "doc_id": "prop_id",
            "click": "click_bool",
            "random": "random_bool",
        },
        features=["prop_starrating", "prop_location_score2", "price_usd"],
        missing=0.0,
    )
    failed = next(fact for fact in facts_of(log) if fact.severity == "serious")
    assert failed.code == "bias.shuffle-feature"
    assert failed.fields["feature"] == "prop_location_score2"
    assert abs(failed.fields["z"]) > 10
    with pytest.raises(IdentifiabilityError, match="prop_location_score2"):
        ShuffledTop().fit(log)


def test_pages_that_are_loaded_again_are_a_warning(make_log, rng):
    made = []
    for q in range(60):
        for _ in range(10):
            order = rng.permutation(8).tolist()
            made.append((q, order, order[: q % 3], 2 if rng.random() < 0.03 else 1, "shuffle"))
    found = facts_of(make_log(made))
    assert codes(found) == ["bias.shuffle-reloads", "bias.shuffle-passed"]
    assert found[0].severity == "warning"


def test_a_deep_position_without_a_click_is_no_reason_to_ignore_the_shuffle(make_log, rng):
    made = []
    for q in range(30):
        for _ in range(40):
            order = rng.permutation(6).tolist()
            clicked = [d for k, d in enumerate(order[:5]) if rng.random() < 0.5 / (k + 1)]
            made.append((q, order, clicked, 1, "shuffle"))
    bias = ShuffledTop().fit(make_log(made)).bias_
    assert bias.depth == 5
    assert bias.status.part("bias.cut-at-no-click").fields == {"position": 6, "top": 5}
    # The whole shuffle was tested, not the part that is used.
    assert set(bias.status.part("bias.shuffle-passed").fields["p_values"]) == {
        "positions",
        "orders",
    }


@pytest.mark.parametrize("by_price", [0.0, 0.3])
def test_an_order_by_the_price_of_the_day_is_found_in_the_features_alone(rng, by_price):
    """Every document stands everywhere equally often, but the cheap ones of the day on top."""
    import pyarrow as pa

    n, depth = 1500, 6
    price = rng.normal(size=(n, depth))
    sort = rng.random(n) < by_price
    order = np.argsort(np.where(sort[:, None], price, rng.random((n, depth))), axis=1)
    columns = {
        "query_id": np.repeat(rng.integers(10, size=n), depth),
        "session_id": np.repeat(np.arange(n), depth),
        "doc_id": order.ravel(),
        "position": np.tile(np.arange(1, depth + 1), n),
        "click": (rng.random(n * depth) < np.tile(THETA[:depth], n) / 2).astype(int),
        "ranker": np.full(n * depth, "shuffle"),
        "price": np.take_along_axis(price, order, axis=1).ravel(),
    }
    log = read_log(pa.table(columns), features=["price"])
    assert log.item is not None
    if by_price:
        with pytest.raises(IdentifiabilityError):
            ShuffledTop().fit(log)
    else:
        assert ShuffledTop().fit(log).bias_.depth == depth
    plain = ShuffledTop().fit(read_log(pa.table(columns))).bias_
    forced = ShuffledTop(check=False).fit(log).bias_
    assert np.array_equal(forced.examination, plain.examination)
