"""Candidates that nobody was shown: shares by hand, values under both beliefs by a slow twin."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from untilt import ClickLog, JudgedLists, KnownBias, estimate, evaluate, shown
from untilt._core.statistics import Interval
from untilt.errors import OptionError
from untilt.evaluation.unshown import Bound, Unshown
from untilt.facts import codes

THETA = np.array([1.0, 0.5, 0.25])


def by_hand_log():
    """Two queries, three sessions; documents 2 and 5 are candidates that nobody was shown."""
    return ClickLog(
        query_id=[0, 1], doc_id=np.arange(6), doc_query=[0, 0, 0, 1, 1, 1], indptr=[0, 2, 4, 6],
        query=[0, 0, 1], document=[0, 1, 0, 1, 3, 4], position=[1, 2, 1, 2, 1, 2],
        label=[1, 0, 0, 1, 0, 1],
    )  # fmt: skip


def test_both_beliefs_by_hand():
    log = by_hand_log()
    # Query 0: the unshown document 2 is first, then 1, then 0. Query 1: as shown, 5 is last.
    scores = np.array([1.0, 2.0, 3.0, 3.0, 2.0, 1.0])
    found = estimate(log, {"new": scores, "shown": shown}, [1.0, 0.5], metric="dcg@2")
    unshown = found["new"].unshown
    assert unshown.top == 2
    assert unshown.share == pytest.approx((2 * 1 / 2 + 1 * 0) / 3)  # by sessions: query 0 has two
    assert unshown.queries == 1 / 2
    # Relevance: document 0 has 1 click in 2 impressions at position 1, document 1 has 1 in 2 at
    # position 2; document 3 none, document 4 has 1 click in 1 impression at position 2.
    gamma = [1 / (2 * 1.0), 1 / (2 * 0.5), 0.0, 0 / 1.0, 1 / 0.5, 0.0]
    second = 1 / np.log2(3)
    nothing = (2 * second * gamma[1] + second * gamma[4]) / 3
    mean = (2 * gamma[0] + 2 * gamma[1]) / 4
    assert unshown.nothing.value == pytest.approx(nothing)
    assert unshown.as_shown.value == pytest.approx(nothing + 2 * 1.0 * mean / 3)
    assert found["new"].unshown_share == unshown.share
    # The logged order has no unshown document in it: its value does not depend on them.
    logged = found["shown"]
    assert logged.unshown.share == logged.unshown.queries == 0
    for end in (logged.unshown.nothing, logged.unshown.as_shown):
        assert end.value == pytest.approx(logged.value)
        assert end.interval.low == pytest.approx(logged.interval.low)


def random_log(seed, *, n_queries=12, n_candidates=7, counts=False):
    """Lists of 3 of 5 candidates in random order; the last two of each query are never shown."""
    rng = np.random.default_rng(seed)
    lists, query = [], []
    for q in range(n_queries):
        for _ in range(4 + q % 3):
            lists.append(q * n_candidates + rng.permutation(n_candidates - 2)[:3])
            query.append(q)
    document = np.concatenate(lists)
    return ClickLog(
        query_id=np.arange(n_queries), doc_id=np.arange(n_queries * n_candidates),
        doc_query=np.repeat(np.arange(n_queries), n_candidates),
        indptr=np.arange(0, len(document) + 1, 3), query=query, document=document,
        position=np.tile([1, 2, 3], len(lists)), label=rng.random(len(document)) < 0.4,
        count=rng.integers(1, 4, len(lists)) if counts else None,
    )  # fmt: skip


def slow(log, scores, discount, *, past=0.0, pooled=True):
    """(nothing, as shown) by loops over queries, sessions and ranks; scores are all different."""
    n, y, e = (np.zeros(log.n_documents) for _ in range(3))
    session_rows = [slice(a, b) for a, b in zip(log.indptr[:-1], log.indptr[1:], strict=True)]
    for i, rows in enumerate(session_rows):
        for d, k, c in zip(log.document[rows], log.position[rows], log.label[rows], strict=True):
            n[d] += log.count[i]
            y[d] += log.count[i] * c
            e[d] += log.count[i] * THETA[k - 1]
    gamma = np.divide(y, e, out=np.zeros_like(y), where=e > 0)
    nothing = as_shown = 0.0
    for i, rows in enumerate(session_rows):
        of_query = np.flatnonzero(log.doc_query == log.query[i])
        same = [j for j in range(log.n_lists) if log.query[j] == log.query[i]]
        order = of_query[np.argsort(-scores[of_query])]
        place = {d: discount(r + 1) if r < 3 else past for r, d in enumerate(order)}
        if pooled:
            worth = gamma[of_query]
            mean = np.sum(n[of_query] * worth) / n[of_query].sum()
            value = sum(place[d] * gamma[d] for d in of_query)
        else:
            credit = [
                (log.count[j] * log.label[r] / THETA[log.position[r] - 1], log.count[j])
                for j in same for r in range(log.indptr[j], log.indptr[j + 1])
            ]  # fmt: skip
            mean = sum(c for c, _ in credit) / sum(m for _, m in credit)
            value = sum(
                place[d] * c / THETA[k - 1]
                for d, k, c in zip(
                    log.document[rows], log.position[rows], log.label[rows], strict=True
                )
            )
        nothing += log.count[i] * value
        as_shown += log.count[i] * (value + mean * sum(place[d] for d in of_query if n[d] == 0))
    return nothing / log.n_sessions, as_shown / log.n_sessions


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("evaluator", ["policy-aware", "ips"])
@pytest.mark.parametrize("among", ["list", "shown", "candidates"])
def test_both_beliefs_against_loops(evaluator, among, counts):
    log = random_log(3, counts=counts)
    scores = np.random.default_rng(4).permutation(log.n_documents).astype(float)
    found = estimate(log, scores, KnownBias(THETA), evaluator=evaluator, among=among).best.unshown
    pooled = evaluator == "policy-aware"
    nothing, as_shown = slow(log, scores, lambda r: 1 / np.log2(1 + r), pooled=pooled)
    assert found.nothing.value == pytest.approx(nothing)
    assert found.as_shown.value == pytest.approx(as_shown)


def test_costs_count_unshown_documents_below_the_page():
    log = random_log(5)
    scores = np.random.default_rng(6).permutation(log.n_documents).astype(float)
    found = estimate(
        log, scores, KnownBias(THETA), metric="arp", evaluator="policy-aware"
    ).best.unshown
    nothing, as_shown = slow(log, scores, float, past=8.0)  # 7 candidates: below all of them
    assert (found.nothing.value, found.as_shown.value) == pytest.approx((nothing, as_shown))


def test_ranking_all_candidates_is_the_first_belief():
    log = random_log(7)
    scores = np.random.default_rng(8).standard_normal(log.n_documents)
    by: dict[str, Any] = {"bias": KnownBias(THETA), "evaluator": "policy-aware"}
    found = estimate(log, scores, among="candidates", **by).best
    assert found.unshown.nothing.value == found.value
    assert found.unshown.nothing.interval == found.interval
    assert found.unshown.as_shown.value > found.value
    assert "estimate.unshown-documents" in codes(found.warnings)
    in_lists = estimate(log, scores, **by).best
    assert "estimate.unshown-candidates" in codes(in_lists.warnings)
    assert in_lists.unshown.as_shown.value == pytest.approx(found.unshown.as_shown.value)


def test_a_relevance_model_does_not_count_for_unshown_documents():
    log = random_log(9)
    scores = np.random.default_rng(10).standard_normal(log.n_documents)
    never = np.setdiff1d(np.arange(log.n_documents), log.document)
    low, high = (np.full(log.n_documents, 0.3) for _ in range(2))
    low[never], high[never] = 0.0, 1.0
    ends = []
    for model in (low, high):
        found = estimate(
            log, scores, KnownBias(THETA), evaluator="doubly-robust", relevance=model,
            among="candidates",
        )  # fmt: skip
        ends.append(found.best.unshown)
    assert ends[0].nothing.value == pytest.approx(ends[1].nothing.value)
    assert ends[0].as_shown.value == pytest.approx(ends[1].as_shown.value)


def test_a_log_of_shown_documents_has_none():
    log = random_log(11).top(3)
    kept = np.unique(log.document)
    number = np.full(log.n_documents, -1)
    number[kept] = np.arange(len(kept))
    log = replace(
        log, doc_id=log.doc_id[kept], doc_query=log.doc_query[kept], document=number[log.document]
    )
    found = estimate(log, {"new": np.arange(len(kept)), "shown": shown}, KnownBias(THETA))
    assert found["new"].unshown is None
    assert found.if_nothing is None
    assert found.unshown_table() is None
    assert found.compare("shown")["new"].unshown is None
    assert found["new"].unshown_share == 0


def test_candidates_without_a_score_come_last():
    log = random_log(13)
    scores = np.random.default_rng(14).standard_normal(log.n_documents)
    scores[np.setdiff1d(np.arange(log.n_documents), log.document)] = np.nan
    found = estimate(log, scores, KnownBias(THETA)).best.unshown
    assert found.share == 0
    assert found.nothing == found.as_shown


def test_nobody_asks_and_nothing_else_changes():
    log = random_log(15)
    systems = {"new": np.random.default_rng(16).standard_normal(log.n_documents), "shown": shown}
    plain = estimate(log, systems, KnownBias(THETA), unshown=False)
    found = estimate(log, systems, KnownBias(THETA))
    assert plain["new"].unshown is None
    for each in plain:
        assert found[each.system].value == each.value
        assert found[each.system].interval == each.interval
    assert found.compare("shown")["new"].interval == plain.compare("shown")["new"].interval


def test_counts_are_repeated_sessions_and_people_widen_both_ends():
    log = random_log(27, counts=True)
    apart = log.take(np.repeat(np.arange(log.n_lists), log.count), count=np.ones(log.n_sessions))
    scores = np.random.default_rng(28).standard_normal(log.n_documents)
    found, repeated = (
        estimate(each, scores, KnownBias(THETA)).best.unshown
        for each in (log.collapse(), apart)
    )  # fmt: skip
    assert found.share == pytest.approx(repeated.share)
    for end in ("nothing", "as_shown"):
        pair = getattr(found, end), getattr(repeated, end)
        assert pair[0].value == pytest.approx(pair[1].value)
        assert pair[0].std_error == pytest.approx(pair[1].std_error)
    person = np.arange(apart.n_lists) % 3  # three people, each on every query
    known = replace(apart, label=(person[:, None] == 0).repeat(3, axis=1).ravel().astype(float))
    known = replace(known, context={"person": person})
    errors = [
        estimate(known, scores, KnownBias(THETA), people=column).best.unshown.as_shown.std_error
        for column in (None, "person")
    ]
    assert errors[1] > 1.5 * errors[0]


def test_differences_are_paired():
    log = random_log(17, n_queries=60)
    rng = np.random.default_rng(18)
    new = rng.standard_normal(log.n_documents)
    systems = {"new": new, "near": new + 1e-3 * rng.standard_normal(len(new)), "shown": shown}
    found = estimate(log, systems, KnownBias(THETA))
    gap = found.compare("shown")["new"].unshown
    for end in ("nothing", "as_shown"):
        both = [getattr(found[name].unshown, end).value for name in ("new", "shown")]
        assert getattr(gap, end).value == pytest.approx(both[0] - both[1])
    # Nearly the same ranking: far less spread than two values have.
    near = found.compare("new")["near"].unshown.nothing
    assert near.std_error < 0.2 * found["new"].unshown.nothing.std_error


def test_the_interval_holds_over_logs():
    """Leaving out queries: the errors of both ends are those of their spread over logs."""
    ends = []
    for seed in range(40):
        log = random_log(100 + seed, n_queries=40)
        scores = np.tile(np.arange(7.0)[::-1], 40)
        scores[5::7] = 10.0  # an unshown document is first in every query
        ends.append(estimate(log, scores, KnownBias(THETA)).best.unshown)
    for end in ("nothing", "as_shown"):
        values = [getattr(each, end).value for each in ends]
        errors = [getattr(each, end).std_error for each in ends]
        assert np.std(values) == pytest.approx(np.mean(errors), rel=0.35)


def test_an_answer_that_rests_on_unshown_documents_is_serious():
    log = random_log(19, n_queries=80)
    scores = np.tile(np.arange(7.0), 80)  # both unshown documents first: 2 of the 3 places
    found = estimate(log, {"shown": shown, "new": scores}, KnownBias(THETA))
    comparison = found.compare("shown")
    gap = comparison["new"].unshown
    assert gap.top == 3  # of dcg@10, on pages of three
    assert gap.share == pytest.approx(2 / 3, abs=0.01)  # or all three, where chance left one out
    assert gap.nothing.sign == -1
    assert gap.as_shown.sign != -1
    assert "estimate.unshown-decide" in codes(comparison.warnings)
    fact = next(each for each in comparison.warnings if each.code == "estimate.unshown-decide")
    assert fact.severity == "serious"
    assert fact.fields["nothing"] == gap.nothing.value


def bound(value):
    return Bound(value, 0.1, Interval(value - 0.2, value + 0.2))


@pytest.mark.parametrize(
    ("share", "nothing", "as_shown", "sign", "decides"),
    [
        (0.6, -1.0, 1.0, 1, True),
        (0.4, -1.0, 1.0, 1, False),  # fewer than half of the places
        (0.6, 1.0, 2.0, 1, False),  # better whatever they are worth
        (0.6, -2.0, -1.0, 1, True),  # better on shown lists, worse over all candidates
        (0.6, -2.0, -1.0, 0, False),
        (0.6, 0.0, 1.0, 0, True),
    ],
)
def test_when_an_answer_depends_on_them(share, nothing, as_shown, sign, decides):
    found = Unshown(share, 0.9, 10, bound(nothing), bound(as_shown))
    assert found.decides(sign) == decides


def test_versions_say_nothing():
    log = random_log(21)
    doubled = replace(
        log, doc_id=np.repeat(log.doc_id, 2), doc_query=np.repeat(log.doc_query, 2),
        document=2 * log.document, item=np.repeat(np.arange(log.n_documents), 2),
    )  # fmt: skip
    found = estimate(doubled, np.arange(2.0 * log.n_documents), KnownBias(THETA))
    assert found.best.unshown is None


# ---- judged lists, with a log that says what was shown


def judged_beside(log):
    """Every candidate of a log of `random_log`, with labels 0, 1, 2, ... of 7 by turns."""
    labels = np.tile([3.0, 0.0, 1.0, 2.0, 0.0, 4.0, 1.0], log.n_queries)
    features = np.zeros((log.n_documents, 1))
    indptr = np.arange(0, log.n_documents + 1, 7)
    return JudgedLists(features, labels, indptr, log.query_id, log.doc_id)


def test_judged_lists_say_what_clicks_could_not_have_told():
    log = by_hand_log()
    judged = JudgedLists(np.zeros((6, 1)), [2, 1, 3, 1, 0, 2], [0, 3, 6], [0, 1], np.arange(6))
    scores = np.array([1.0, 2.0, 3.0, 3.0, 2.0, 1.0])
    found = evaluate(judged, scores, "dcg@2", shown=log)["dcg@2"].unshown
    assert (found.top, found.share, found.queries) == (2, 1 / 4, 1 / 2)
    second = 1 / np.log2(3)
    assert found.nothing.value == pytest.approx(((2**1 - 1) * second + (2**1 - 1)) / 2)
    mean = 2 ** ((2 + 1) / 2) - 1  # the gain of the mean label of documents 0 and 1
    assert found.as_shown.value == pytest.approx((mean + (2**1 - 1) * second + (2**1 - 1)) / 2)
    whole = evaluate(judged, scores, "dcg@2")["dcg@2"]
    assert whole.unshown is None
    assert whole.value == evaluate(judged, scores, "dcg@2", shown=log)["dcg@2"].value


def test_ties_and_queries_without_sessions():
    log = random_log(23)
    judged = judged_beside(log)
    part = log.take(log.query < 6)
    tied = evaluate(judged, np.zeros(len(judged)), "ndcg@3", shown=part)
    found = tied["ndcg@3"].unshown
    never = np.setdiff1d(np.arange(log.n_documents), part.document)
    never = never[never < 6 * 7]
    assert found.share == pytest.approx(np.mean(np.bincount(never // 7, minlength=6) / 7))
    assert found.queries == 1
    assert codes(tied.warnings) == ["estimate.unshown-judged"]
    assert tied.to_dict()["ndcg@3"]["unshown_share"] == found.share
    named = replace(part, query_id=log.query_id.astype(str), doc_id=log.doc_id.astype(str))
    again = evaluate(judged, np.zeros(len(judged)), "ndcg@3", shown=named)["ndcg@3"].unshown
    assert again == found


def test_a_log_of_other_queries_is_an_error():
    log = random_log(25)
    other = replace(log, query_id=log.query_id + 1000)
    with pytest.raises(OptionError, match="same query ids"):
        evaluate(judged_beside(log), np.zeros(log.n_documents), "map", shown=other)
    with pytest.raises(OptionError, match="must be a ClickLog"):
        evaluate(judged_beside(log), np.zeros(log.n_documents), "map", shown=[1])  # type: ignore[arg-type]
