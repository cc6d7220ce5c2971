"""Values by logged propensities: unbiased by enumeration, intervals that cover, and their check."""

from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.evaluation.drawn import DrawnWorld

import untilt as ut
from untilt._core.arrays import FloatArray
from untilt.bias.curve import PositionBias
from untilt.evaluation.estimate import estimate
from untilt.evaluation.pool import cells_for, parse_evaluator, pool_of
from untilt.evaluation.propensities import MOST_ERROR, NEGLIGIBLE, SURE, balance_of
from untilt.evaluation.slots import RankMetric
from untilt.evaluation.systems import Inputs
from untilt.facts import Fact
from untilt.report.decision import Decision
from untilt.report.floors import EVIDENCE
from untilt.report.step_results import HeldOut, UsedBias

CLICKS = RankMetric("clicks", np.ones_like)
BY = "logged-propensities"


def codes(facts: Any) -> list[str]:
    return [each.code for each in facts]


def scores_of(log: ut.ClickLog, scores: FloatArray) -> FloatArray:
    """(documents of the log,) of (queries, documents) scores."""
    return scores[log.query_id.astype(int)[log.doc_query], log.doc_id.astype(int)]


def both(log: ut.ClickLog, scores: FloatArray) -> dict[str, Any]:
    """The shown order and a new one."""
    return {"shown": ut.shown, "new": scores_of(log, scores)}


# ---- unbiased: every outcome as often as it is likely

WEIGHT = {(0, 1): 3, (0, 2): 1, (1, 0): 2, (1, 2): 4, (2, 0): 1, (2, 1): 1}  # of 12, by list
CHANCE = np.array([[2, 1], [3, 1], [1, 2]])  # of 4: a click on a document in a slot


def outcomes(*, alone: bool) -> pd.DataFrame:
    """All lists and clicks, each as often as it is likely; positions 1 and 3, or a slot a session.

    The estimate is a sum over sessions, so its value here is its expectation.
    """
    rows = []
    for session, ((order, n), clicks) in enumerate(
        product(WEIGHT.items(), product((0, 1), repeat=2))
    ):
        at = CHANCE[list(order), [0, 1]]
        count = n * int(np.prod(np.where(clicks, at, 4 - at)))
        for k, (document, click) in enumerate(zip(order, clicks, strict=True)):
            p = sum(m for other, m in WEIGHT.items() if other[k] == document) / 12
            key = 2 * session + k if alone else session
            rows.append((0, key, document, 1 + 2 * k, click, count, p))
    names = ("query_id", "session_id", "doc_id", "position", "click", "count", "propensity")
    found = pd.DataFrame(rows, columns=names)
    return found[found["count"] > 0]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("normalised", [False, True])
def test_the_value_is_that_of_every_order_exactly(alone: bool, normalised: bool) -> None:
    log = ut.read_log(outcomes(alone=alone))
    metric = RankMetric("falling", lambda rank: 1 / rank)
    systems = {str(o): -np.argsort(o).astype(float) for o in permutations(range(3))}
    named: dict[str, Any] = {**systems, "any": np.zeros(3), "shown": ut.shown}
    by = f"{BY}:self_normalised={normalised}".lower()
    found = estimate(log, named, metric=metric, evaluator=by, among="shown")
    gain, slots = CHANCE / 4 / np.array([1, 3]), 2 if alone else 1
    for order in permutations(range(3)):
        truth = gain[list(order[:2]), [0, 1]].sum() / slots
        assert found[str(order)].value == pytest.approx(truth, rel=1e-12)
    assert found["any"].value == pytest.approx(gain.mean(axis=0).sum() / slots, rel=1e-12)
    truth = sum(n * gain[list(o), [0, 1]].sum() for o, n in WEIGHT.items()) / 12 / slots
    assert found["shown"].value == pytest.approx(truth, rel=1e-12)


def test_counts_are_repeated_sessions_and_a_slow_twin_agrees() -> None:
    rng = np.random.default_rng(3)
    world = DrawnWorld.made(rng, queries=12, documents=3, slots=3)
    rows = world.log(rng, 30)
    rows["propensity"] = rows.propensity.round(2)
    again = pd.concat([rows, rows.assign(session_id=rows.session_id + 10**6)])
    scores = rng.normal(size=(12, 3))
    values = []
    for table, collapse in ((rows, True), (rows, False), (rows.assign(count=2), True), (again, 1)):
        log = ut.read_log(table, collapse=bool(collapse))
        found = estimate(log, both(log, scores), metric=CLICKS, evaluator=BY)
        assert found.balance is not None
        entry = found["new"]
        values.append((entry.value, entry.std_error))
        if collapse is False:
            plain = found
    assert np.allclose(values, values[0], rtol=1e-12)
    place = np.argsort(np.argsort(-scores, axis=1), axis=1)
    kept = place[rows.query_id, rows.doc_id] == rows.position - 1
    twin = float((rows.click * kept / rows.propensity).sum()) / rows.session_id.nunique()
    assert values[0][0] == pytest.approx(twin)
    assert plain["shown"].value == pytest.approx(rows.click.sum() / rows.session_id.nunique())
    # T pair by pair of sessions.
    terms, sizes = [], []
    for _, part in rows.groupby(["query_id", "position"]):
        d, p = part.doc_id.to_numpy(), part.propensity.to_numpy()
        pairs = (d[:, None] == d) * (1 / p[:, None] + 1 / p) / 2 - 1
        terms.append(pairs[~np.eye(len(d), dtype=bool)].mean())
        sizes.append(len(d))
    assert plain.balance is not None
    assert plain.balance.value == pytest.approx(np.average(terms, weights=sizes))


# ---- statistics over many logs

PARTS, QUERIES = 50, 40


def many_logs(seed: int, *, sessions: int = 40, **options: Any) -> Any:
    """A world and its log in parts of 40 queries each: logs that have nothing in common."""
    rng = np.random.default_rng(seed)
    world = DrawnWorld.made(rng, queries=PARTS * QUERIES, documents=3, slots=3, sharp=0.7)
    log = ut.read_log(world.log(rng, sessions, **options))
    part = log.query_id.astype(int)[log.query] // QUERIES
    return world, log, [log.take(part == i) for i in range(PARTS)]


@pytest.mark.slow
@pytest.mark.parametrize("by", [BY, f"{BY}:self_normalised=true"])
def test_intervals_cover_where_the_policy_knows_what_sessions_want(by: str) -> None:
    """By 150 logs; a curve harvested from the same lists is wrong in this world."""
    inside: list[tuple[bool, bool]] = []
    for seed in range(3):
        world, log, parts = many_logs(seed)
        scores = world.clicks.mean(axis=(0, 3))
        truth, now = world.value(scores), float((world.chances * world.clicks).sum((2, 3)).mean())
        for part in parts:
            systems = both(log, scores)
            found = estimate(part, systems, metric=CLICKS, evaluator=by)
            gap = found.compare("shown")["new"].interval
            inside.append((truth in found["new"].interval, truth - now in gap))
    assert np.all(np.abs(np.mean(inside, axis=0) - 0.95) < 3.5 * np.sqrt(0.05 * 0.95 / 150))


def doubted(parts: list[ut.ClickLog]) -> float:
    """The share of logs whose propensities are said not to agree with them."""
    by, share = parse_evaluator(BY), 0
    for part in parts:
        found = balance_of(cells_for(by, pool_of(part)), {})
        assert found.std_error < MOST_ERROR
        assert bool(found.doubts) == (abs(found.value) > max(NEGLIGIBLE, SURE * found.std_error))
        share += bool(found.doubts)
    return share / len(parts)


@pytest.mark.slow
def test_the_balance_check_keeps_its_size_and_finds_propensities_that_are_wrong() -> None:
    z = []
    for seed in range(3):
        _, _, parts = many_logs(seed)
        by = parse_evaluator(BY)
        found = [balance_of(cells_for(by, pool_of(part)), {}) for part in parts]
        z += [each.value / each.std_error for each in found]
        assert doubted(parts) == 0
    assert abs(np.mean(z)) < 3 / np.sqrt(len(z))
    assert np.std(z) < 1.1
    assert doubted(many_logs(0, wrong=0.9)[2]) == 1
    assert doubted(many_logs(0, wrong=1.2)[2]) == 1


def test_propensities_that_are_wrong_are_found() -> None:
    rng = np.random.default_rng(0)
    world = DrawnWorld.made(rng, queries=40, documents=3, slots=3)
    assert doubted([ut.read_log(world.log(rng, 60))]) == 0
    assert doubted([ut.read_log(world.log(rng, 60, wrong=0.8))]) == 1


# ---- where it is the default


def test_it_is_the_default_where_propensities_pass_and_says_why_where_not() -> None:
    rng = np.random.default_rng(1)
    world = DrawnWorld.made(rng, queries=40, documents=3, slots=3)
    rows = world.log(rng, 60)
    log, curve = ut.read_log(rows), ut.PowerLaw(1.0)
    systems = both(log, world.clicks.mean(axis=(0, 3)))
    assert estimate(log, systems).evaluator == BY
    found = estimate(log, systems, curve)
    assert found.evaluator == BY
    assert found["new"].bias_error == 0
    assert found.scale.code == "estimate.scale-clicks-there"
    assert estimate(log, systems, curve, evaluator="ips").evaluator == "ips"
    wrong = estimate(ut.read_log(world.log(rng, 60, wrong=0.5)), systems, curve)
    assert wrong.evaluator != BY
    assert "estimate.propensities-not-used" in codes(wrong.warnings)
    # Production without chance: p is 1, and right, but other orders have no clicks.
    fixed = rows[rows.session_id % 60 == 0]
    fixed = pd.concat([fixed.assign(session_id=fixed.session_id + i) for i in range(20)])
    log = ut.read_log(fixed.assign(propensity=1.0))
    systems = {"shown": ut.shown, "new": rng.normal(size=log.n_documents)}
    named = estimate(log, systems, curve, evaluator=BY)
    assert "estimate.places-unsupported" in codes(named.warnings)
    assert estimate(log, systems, curve).evaluator != BY
    with pytest.raises(ut.UntiltError, match="column `propensity`"):
        estimate(replace(log, extra_labels={}), systems, evaluator=BY)


def test_lists_that_show_a_part_of_the_documents_are_not_ordered_by_propensities() -> None:
    """p is the chance among all documents then, not among those of the list."""
    rng = np.random.default_rng(2)
    world = DrawnWorld.made(rng, queries=30, documents=4, slots=2)
    log = ut.read_log(world.log(rng, 200))
    systems = both(log, world.clicks.mean(axis=(0, 3)))
    assert estimate(log, systems, ut.PowerLaw(1.0)).evaluator != BY
    assert estimate(log, systems, ut.PowerLaw(1.0), among="shown").evaluator == BY


def test_clicks_of_equal_weight_are_those_that_tell_of_the_new_order() -> None:
    rng = np.random.default_rng(5)
    world = DrawnWorld.made(rng, queries=30, documents=3, slots=3)
    rows = world.log(rng, 40)
    log = ut.read_log(rows)
    scores = world.clicks.mean(axis=(0, 3))
    system = both(log, scores)
    found = estimate(log, system, metric=CLICKS, evaluator=BY)
    place = np.argsort(np.argsort(-scores, axis=1), axis=1)
    w = (rows.click / rows.propensity)[place[rows.query_id, rows.doc_id] == rows.position - 1]
    assert found.weights.effective_n == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert isinstance(found.inputs, Inputs)
    assert found.sensitivity("new", "shown")["queries"].swing >= 0


# ---- what a verdict rests on


def decision_of(rows: pd.DataFrame, scores: FloatArray, **options: Any) -> Decision:
    log = ut.read_log(rows)
    systems = both(log, scores)
    curve = PositionBias(np.ones(3), method="assumed")
    found = estimate(log, systems, curve, metric=CLICKS, **options)
    held_out = HeldOut.of(found, "new", baseline="shown")
    return Decision("drawn", bias=UsedBias(curve, "assumed"), held_out=held_out)


def test_a_verdict_is_firm_by_propensities_that_the_log_confirms() -> None:
    rng = np.random.default_rng(7)
    world = DrawnWorld.made(rng, queries=80, documents=3, slots=3, sharp=-0.5)
    scores = world.clicks.mean(axis=(0, 3))
    assert EVIDENCE["propensities"].condition is None
    sound = decision_of(world.log(rng, 150), scores)
    assert sound.answer is not None
    assert (sound.answer.verdict, sound.answer.reasons) == ("better", ())
    assert sound.answer.recommendation.code == "run.try-it"
    assert Decision.from_dict(sound.to_dict()) == sound
    rows = world.log(rng, 150, wrong=0.7)
    named = decision_of(rows, scores, evaluator=BY).answer
    assert named is not None
    assert named.verdict == "cannot tell"
    assert "estimate.propensities-disagree" in codes(named.reasons)
    by_curve = decision_of(rows, scores).answer
    assert by_curve is not None
    assert codes(by_curve.reasons)[0] == "run.floor-curve-assumed"


def test_readers_who_stop_after_a_click_leave_no_verdict() -> None:
    """By slots the order of attraction would win; whatever the order, one click is the end."""
    rng = np.random.default_rng(0)
    world = DrawnWorld.made(rng, queries=100, documents=3, slots=3, sharp=0.5)
    rows = world.log(rng, 150)
    attraction = rng.uniform(0.1, 0.6, (100, 3))
    wants = (rng.random(len(rows)) < attraction[rows.query_id, rows.doc_id]).reshape(-1, 3)
    rows["click"] = (wants & (np.cumsum(wants, axis=1) == 1)).astype(int).ravel()
    decision = decision_of(rows, attraction)
    assert decision.held_out is not None
    assert decision.held_out.evaluator == BY
    assert decision.held_out.verdict == "better"  # and it is not: see the name of the test
    answer = replace(decision, audit=ut.audit(ut.read_log(rows))).answer
    assert answer is not None
    assert answer.verdict == "cannot tell"
    assert [each.code for each in answer.reasons] == ["run.floor-reading"]


# ---- real exploration


def test_two_policies_of_open_bandit_agree_on_the_click_rate_of_chance(data_dir: Path) -> None:
    """The click rate of uniform lists, from a log of Thompson sampling and from uniform lists."""
    file = data_dir / "obd" / "impressions.parquet"
    if not file.is_file():
        pytest.skip(f"no real data: {file} is missing")
    table = pd.read_parquet(file)
    found, errors = [], []
    for ranker in ("bts", "shuffle"):
        rows = table[table.ranker == ranker]
        log = ut.read_log(rows)
        systems: dict[str, Any] = {"shown": ut.shown, "any": np.zeros(log.n_documents)}
        values = estimate(log, systems, metric=CLICKS, among="shown")
        assert values.evaluator == BY
        assert values["shown"].value == pytest.approx(rows.click.mean())
        documents = rows.groupby("query_id").doc_id.nunique()[rows.query_id].to_numpy()
        each = rows.click / rows.propensity / documents
        assert values["any"].value == pytest.approx(each.mean())
        assert values.balance is not None
        assert abs(values.balance.value) < 3 * values.balance.std_error
        found.append(values["any"].value)
        errors.append(float(each.std() / np.sqrt(len(each))))
    assert abs(found[0] - found[1]) < 3 * np.hypot(errors[0], errors[1])
    assert found[1] == pytest.approx(table[table.ranker == "shuffle"].click.mean())


def test_a_fact_of_the_balance_says_by_how_much() -> None:
    rows = outcomes(alone=False).assign(propensity=0.5)
    found = balance_of(cells_for(parse_evaluator(BY), pool_of(ut.read_log(rows), "shown")), {})
    assert isinstance(found.doubts[0], Fact)
    assert str(found.doubts[0]).startswith("documents were shown 0.7")


def test_lists_of_one_document_have_nothing_to_order() -> None:
    """Slots that are not linked: among the documents of a list every propensity would be 1."""
    rows = pd.DataFrame(
        {
            "query_id": 0, "session_id": range(400), "doc_id": np.tile([0, 1, 2, 3], 100),
            "position": 1, "click": np.tile([1, 0, 0, 0, 0], 80), "propensity": 0.25,
        }
    )  # fmt: skip
    log = ut.read_log(rows)
    system = {"any": np.zeros(log.n_documents)}
    found = estimate(log, system, evaluator=BY, metric=CLICKS, among="list")
    assert found.balance is not None
    assert [each.code for each in found.balance.doubts] == ["estimate.nothing-to-order"]
    among_shown = estimate(log, system, evaluator=BY, metric=CLICKS, among="shown")
    assert among_shown.balance is not None
    assert among_shown.balance.doubts == ()
