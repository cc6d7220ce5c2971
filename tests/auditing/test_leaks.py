"""Features that know the click are found; strong features that do not are left alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.wall.judging import without_pages

from untilt import LinearRanker, audit, estimate, read_log, run
from untilt.auditing import leaks
from untilt.auditing.leaks import leaking_features
from untilt.data.clicklog import ClickLog
from untilt.data.transform import without_features
from untilt.facts import codes

K = 10
SHAPES = {"one session per query": (400, 1), "many sessions": (40, 40)}


def shown_and_clicked(rng, shape, users, eta=1.0, noise=0.05):
    """(grade of documents, documents shown, clicks): a good ranker, users who look by position.

    `users`: "pbm" click what they look at and like; "cascade" go down the list and mostly stop
    after a click; "known item" have one relevant document, which they click if they see it.
    """
    n_queries, n_sessions = SHAPES[shape]
    grade = rng.choice(5, size=(n_queries, K), p=[0.5, 0.25, 0.12, 0.08, 0.05])
    if users == "known item":
        grade[:] = 0
        grade[np.arange(n_queries), rng.integers(0, K, n_queries)] = 4
    query = np.repeat(np.arange(n_queries), n_sessions)
    order = np.argsort(-(grade + 2 * rng.normal(size=grade.shape)), axis=1)[query]
    moved = np.argsort(np.arange(K) + 1.5 * rng.normal(size=order.shape), axis=1)
    shown = np.take_along_axis(order, moved, axis=1)
    relevance = np.clip(noise + (1 - noise) * (2.0**grade - 1) / 15, 0, 0.98)
    liked = rng.random(shown.shape) < relevance[query[:, None], shown]
    if users == "cascade":
        goes_on = np.where(liked[:, :-1], 0.2, 0.95)
        reach = np.cumprod(np.column_stack([np.ones(len(query)), goes_on]), axis=1)
        seen = rng.random(len(query))[:, None] < reach
    else:
        seen = rng.random(shown.shape) < np.arange(1, K + 1) ** -eta
    return grade, relevance, query, shown, liked & seen


def log_of(query, shown, clicks, features, names):
    n_queries = int(query.max()) + 1
    return ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.arange(n_queries * K),
        doc_query=np.repeat(np.arange(n_queries), K),
        indptr=np.arange(len(query) + 1) * K,
        query=query,
        document=(query[:, None] * K + shown).ravel(),
        position=np.tile(np.arange(1, K + 1), len(query)),
        label=clicks.ravel().astype(float),
        features=features.reshape(n_queries * K, -1),
        feature_names=names,
        missing="keep",
    )


def honest_log(seed, shape, users, eta, noise):
    """As strong as a feature can be that is known before the click."""
    rng = np.random.default_rng(seed)
    grade, relevance, query, shown, clicks = shown_and_clicked(rng, shape, users, eta, noise)
    theta = rng.choice(np.arange(1, K + 1) ** -eta, size=grade.shape)
    honest = {
        "the true grade": grade,
        "the true relevance": relevance,
        "relevance with noise": relevance + 0.05 * rng.normal(size=grade.shape),
        "click rate of last month": rng.binomial(20, relevance * theta) / 20,
        "a rare sign of the best": (grade == 4) & (rng.random(grade.shape) < 0.5),
        "missing where irrelevant": np.where(grade == 0, np.nan, grade),
        "missing where best": np.where(grade == 4, np.nan, 1.0),
        "grade beside a level of the query": 1000 * rng.normal(size=(len(grade), 1)) + grade,
    }
    return log_of(query, shown, clicks, np.stack(list(honest.values()), axis=2), tuple(honest))


@pytest.mark.parametrize("logs", [48, pytest.param(200, marks=pytest.mark.slow)])
def test_strong_features_that_are_known_before_the_click_are_left_alone(logs):
    """Logs of all kinds with eight honest features each: not one is named."""
    found = []
    for seed in range(logs):
        shape, users = list(SHAPES)[seed % 2], ("pbm", "cascade", "known item")[seed % 3]
        eta, noise = (0.3, 1.0)[seed // 2 % 2], (0.0, 0.1)[seed // 4 % 2]
        log = honest_log(seed, shape, users, eta, noise)
        found += [(leak, shape, users, eta, noise) for leak in leaking_features(log)]
    assert found == []


# Features made from the click, as they stand in real tables: (of the rows, given the clicks).
MADE = {
    "booked": lambda rng, click: click & (rng.random(click.shape) < 0.6),
    "bought, one in four": lambda rng, click: click & (rng.random(click.shape) < 0.25),
    "seconds on the page": lambda rng, click: click * rng.exponential(60, click.shape),
    "amount, else NULL": lambda rng, click: np.where(
        click & (rng.random(click.shape) < 0.6), rng.normal(100, 30, click.shape), np.nan
    ),
    "missing where clicked": lambda rng, click: np.where(click, np.nan, rng.random(click.shape)),
    "not clicked": lambda _, click: ~click,
    "change, up or down": lambda rng, click: click * rng.choice([-1.0, 1.0], click.shape),
    "one in thirty wrong": lambda rng, click: click & (rng.random(click.shape) > 1 / 30),
    "last event of the session": lambda rng, click: (
        1000.0 * rng.random((len(click), 1)) + click * (1 + rng.random(click.shape))
    ),
    "score with a bonus for the click": lambda rng, click: rng.normal(size=click.shape) + 9 * click,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("users", ["pbm", "cascade"])
def test_features_made_from_the_click_are_found(shape, users):
    """Also where a document has many sessions: its features then change with the impression."""
    rng = np.random.default_rng(7)
    grade, _, query, shown, click = shown_and_clicked(rng, shape, users)
    session = np.repeat(np.arange(len(query)), K)
    columns = {
        "query_id": query[session], "session_id": session,
        "doc_id": shown.ravel(), "position": np.tile(np.arange(1, K + 1), len(query)),
        "click": click.ravel().astype(int),
        **{name: make(rng, click).astype(float).ravel() for name, make in MADE.items()},
        "grade": grade[query[:, None], shown].ravel(),
        "noise": rng.normal(size=shown.size),
    }  # fmt: skip
    log = read_log(pa.table(columns), features=[*MADE, "grade", "noise"], missing="keep")
    assert [leak.feature for leak in leaking_features(log)] == list(MADE)


def test_figures_of_a_leak_and_the_same_from_counts():
    rng = np.random.default_rng(3)
    _, _, query, shown, click = shown_and_clicked(rng, "one session per query", "pbm")
    in_order = np.zeros((len(query), K), dtype=bool)
    np.put_along_axis(in_order, shown, click, axis=1)
    booked = in_order & (rng.random(in_order.shape) < 0.5)
    log = log_of(query, shown, click, np.stack([~booked, booked], axis=2), ("free", "booked"))
    first, second = leaking_features(log)
    elsewhere = (click.sum() - booked.sum()) / (click.size - booked.sum())
    assert (first.where, first.value) == ("below", 1.0)
    assert (second.feature, second.where, second.value) == ("booked", "above", 0.0)
    assert (second.impressions, second.click_rate) == (booked.sum(), 1.0)
    assert second.rate_elsewhere == pytest.approx(elsewhere)
    thrice = log.take(np.repeat(np.arange(log.n_lists), 3))
    for same in (thrice, thrice.collapse()):
        found = leaking_features(same)[1]
        assert found == replace(second, impressions=3 * second.impressions)


def test_sessions_that_click_everything_compare_nothing():
    """A robot's list is known by its features, and all of it is clicked."""
    rng = np.random.default_rng(5)
    _, _, query, shown, click = shown_and_clicked(rng, "one session per query", "pbm")
    robot = query % 8 == 0
    click[robot] = True
    features = np.repeat(robot[:, None], K, axis=1)[:, :, None]
    assert leaking_features(log_of(query, shown, click, features, ("robot",))) == ()


def test_the_audit_names_them_and_builds_nothing_on_them():
    rng = np.random.default_rng(2)
    grade, _, query, shown, click = shown_and_clicked(rng, "one session per query", "pbm")
    clicked = np.zeros((len(query), K), dtype=bool)
    np.put_along_axis(clicked, shown, click, axis=1)
    position = np.argsort(shown, axis=1) + 1
    hint = grade + rng.normal(size=grade.shape)
    features = np.stack([clicked, hint, position], axis=2)
    log = log_of(query, shown, click, features, ("clicked", "hint", "rank"))
    found = audit(log)
    assert [leak.feature for leak in found.leaks] == ["clicked"]
    assert [(key.feature, key.kind) for key in found.sort_keys] == [("rank", "rank")]
    leak = next(fact for fact in found.warnings if fact.code == "audit.leak")
    assert (leak.severity, leak.fields["impressions"]) == ("serious", click.sum())
    assert "audit.old-rank" in codes(found.warnings)
    alone = audit(without_features(log, ["clicked"]))
    assert alone.leaks == ()
    assert found.to_dict()["relevance"] == alone.to_dict()["relevance"]
    assert found.to_dict()["leaks"][0]["feature"] == "clicked"


def test_versions_that_differ_in_what_is_left_out_are_one():
    table = pa.table(
        {
            "query_id": [1] * 8, "session_id": [1, 1, 2, 2, 3, 3, 4, 4],
            "doc_id": [5, 6] * 4, "position": [1, 2] * 4, "click": [1, 0, 0, 1, 0, 0, 1, 0],
            "booked": [1, 0, 0, 1, 0, 0, 1, 0], "price": [3, 4, 3, 4, 3, 5, 3, 5],
        }
    )  # fmt: skip
    both, price, none = (read_log(table, features=f) for f in (["booked", "price"], "price", None))
    left = without_features(both, ["booked"])
    assert both.n_documents > left.n_documents == price.n_documents == 3
    assert left.feature_names == ("price",)
    rows = [left.features[left.document, 0].tolist(), left.label.tolist()]
    assert rows == [both.features[both.document, 1].tolist(), both.label.tolist()]
    assert left.collapse().n_lists == price.n_lists
    gone = without_features(both, ["booked", "price"])
    assert (gone.features, gone.n_documents) == (None, none.n_documents)
    assert without_features(price, []) is price


def test_a_ranker_without_them_is_evaluated_on_a_log_that_has_them():
    rng = np.random.default_rng(4)
    grade, _, query, shown, click = shown_and_clicked(rng, "one session per query", "pbm")
    clicked = np.zeros(grade.shape, dtype=bool)
    np.put_along_axis(clicked, shown, click, axis=1)
    features = np.stack([clicked, rng.normal(size=grade.shape), grade], axis=2)
    log = log_of(query, shown, click, features, ("clicked", "noise", "grade"))
    honest = without_features(log, ["clicked"])
    ranker = LinearRanker().fit(honest)
    theta = [1 / k for k in range(1, K + 1)]
    values = [estimate(each, {"new": ranker}, theta)["new"].value for each in (log, honest)]
    assert values[0] == values[1]


# ---- on real searches


@pytest.fixture
def searches(data_dir: Path) -> Path:
    return data_dir / "expedia-sample" / "searches.csv.gz"


@pytest.fixture
def no_pages():
    with without_pages():
        yield


COLUMNS = {"query_id": "srch_id", "session_id": "srch_id", "doc_id": "prop_id",
           "click": "click_bool"}  # fmt: skip


@pytest.mark.usefixtures("no_pages")
def test_bookings_are_no_features_of_a_hotel(searches, tmp_path):
    """With them the new ranker would look several times as good as it is."""
    options: dict[str, Any] = {
        "columns": COLUMNS, "missing": "keep", "bias": "power-law:1", "trees": 10,
        "method": "balanced", "threads": 1,
    }  # fmt: skip
    pattern = ["prop_*", "price_usd", "*book*_usd", "booking_?ool"]
    result = run(searches, tmp_path / "default", features=pattern, **options)
    decision = result.decision
    assert decision.kept_out == ("gross_bookings_usd", "booking_bool")
    assert not {*decision.kept_out} & {*result.candidate.feature_names_}
    told = {fact.code: fact for fact in result.warnings if fact.code.startswith("audit.leak")}
    assert [*told] == ["audit.leak-kept-out"]
    assert told["audit.leak-kept-out"].fields["impressions"] == 650
    named = ["prop_starrating", "price_usd", "booking_bool"]
    leaky = run(searches, tmp_path / "named", features=named, **options)
    assert leaky.decision.kept_out == ()
    assert leaky.warnings[0].severity == "serious"
    assert "audit.leak-used" in codes(leaky.warnings)
    answer = leaky.decision.answer
    assert answer.recommendation.code == "run.leave-leaks-out-first"
    assert answer.verdict == "cannot tell"
    assert "run.floor-leaks" in codes(answer.reasons)
    inflated = leaky.decision.answer.difference.value
    assert decision.answer.difference.value < 0.5 * inflated


def test_pieces_of_the_log_give_the_sums_of_all(monkeypatch):
    log = honest_log(3, next(iter(SHAPES)), "pbm", 1.0, 0.1)
    whole = leaks._of_documents(log)
    monkeypatch.setattr(leaks, "ROWS_AT_A_TIME", 37)
    assert len(list(leaks._pieces(log))) > 10
    pieces = leaks._of_documents(log)
    for name in ("shown", "clicked"):
        np.testing.assert_array_equal(getattr(pieces, name), getattr(whole, name))
    for own, other in zip(pieces.units, whole.units, strict=True):
        np.testing.assert_array_equal(own, other)
