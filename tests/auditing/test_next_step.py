"""One recommendation for a log: which rule speaks."""

from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pytest
from tests.auditing.people import READERS, fixed_lists, people
from tests.conftest import build_log

import untilt as ut
from untilt._core import codec
from untilt.auditing.audit import Audit, audit
from untilt.auditing.next_step import doubt
from untilt.auditing.reading import ReadingTest
from untilt.evaluation.null_tests import NullTests
from untilt.evaluation.results import Estimate
from untilt.evaluation.sensitivity import Cause


@pytest.mark.parametrize("name", READERS)
def test_each_kind_of_reader_gets_one_recommendation(audits, name):
    found = audits[name]
    _, rule, estimator = READERS[name]
    assert (found.next_step.rule, found.next_step.method) == (rule, estimator)
    assert found.advice == found.next_step.advice
    assert found.next_step.command.startswith("untilt ")


def test_a_file_of_an_audit_recommends_the_same(audits):
    seen = audits["trust"]
    again = codec.from_plain(Audit, codec.to_plain(seen), where="audit")
    assert again.next_step == seen.next_step


def test_the_experiment_that_would_tell_swaps_position_1_with_others_in_few_sessions():
    log = fixed_lists(0, n_queries=100)
    advice = audit(replace(log, features=None)).advice
    assert advice.command == "untilt plan LOG"
    fields = next(p for p in advice.why.parts if p.code == "audit.swap-positions").fields
    assert fields == {"pairs": tuple((1, k) for k in range(2, 11)), "share": 0.02}


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (Estimate, "lean", "clipping_bias"),
        (NullTests, "lean", "clipping_bias"),
        (Cause, "turns_at", "flips_at"),
        (ReadingTest, "asks", "question"),
    ],
)
def test_fields_of_older_files_have_their_new_names(kind, old, new):
    assert kind.json_renamed == {old: new}
    assert new in {field.name for field in fields(kind)}


def test_an_older_file_is_read(audits):
    test = audits["trust"].reading.tests[0]
    plain = codec.to_plain(test)
    plain["asks"] = plain.pop("question")
    assert codec.from_plain(ReadingTest, plain, where="test") == test


def shuffled(log: ut.ClickLog, share: float = 0.3) -> ut.ClickLog:
    """A share of the sessions in random order, with clicks that their new positions get."""
    rng = np.random.default_rng(1)
    n = log.depth
    drawn = rng.random(log.n_lists) < share
    document = log.document.reshape(-1, n).copy()
    document[drawn] = rng.permuted(document[drawn], axis=1)
    relevance = 0.05 + 0.5 * (np.sin(np.arange(log.n_documents) * 7.0) + 1) / 2
    chance = np.arange(1, n + 1) ** -0.8 * relevance[document]
    click = rng.random(chance.shape) < chance
    names = (*log.ranker_names, "shuffle")
    return replace(
        log, document=document.ravel(), label=click.ravel().astype(float), context={}, time=None,
        ranker=np.where(drawn, len(names) - 1, log.ranker), ranker_names=names,
    )  # fmt: skip


def test_an_experiment_speaks_unless_its_own_lists_show_trust():
    found = audit(shuffled(people(3, sessions=8000)))
    assert (found.next_step.rule, found.next_step.method) == ("experiment", "ShuffledTop")
    test = found.interventions.shuffled_relevance
    assert test is not None
    trust = replace(test, ratio=1.6, low=1.4, high=1.8, adjusted=1e-6)
    trusting = replace(found, interventions=replace(found.interventions, shuffled_relevance=trust))
    assert (trusting.next_step.rule, trusting.next_step.method) == (
        "trust-in-experiment", "TrustEM",
    )  # fmt: skip


def test_a_curve_that_explains_trust_answers_it_where_it_is_sure(audits):
    seen = audits["trust"]
    kept = doubt(seen.reading, seen.interventions, explains_trust=True, asked_for=False)
    assert kept is not None
    assert doubt(seen.reading, seen.interventions, explains_trust=True, asked_for=True) is None
    assert doubt(seen.reading, seen.interventions, explains_trust=False, asked_for=True) is not None


def test_fixed_lists_with_trust_are_read_by_features():
    found = audit(fixed_lists(0, trust=0.5))
    assert (found.next_step.rule, found.next_step.method) == ("trust-in-top", "TrustEM")
    assert ut.TrustEM().fit(fixed_lists(0, trust=0.5)).bias_.has_trust


def slots(rng, *, n=6000):
    """Pages of three slots of which each is logged as a session of its own."""
    doc, k = rng.integers(20, size=n), rng.integers(1, 4, size=n)
    click = rng.random(n) < 0.3 / k
    return pa.table(
        {"query_id": rng.integers(15, size=n), "session_id": np.arange(n), "doc_id": doc,
         "position": k, "click": click}
    )  # fmt: skip


def test_slots_that_are_not_linked_are_told_why_no_estimator_helps(rng):
    step = audit(ut.read_log(slots(rng))).next_step
    assert (step.rule, step.method) == ("swaps", "")
    assert step.advice.why.code == "audit.gaps-move-documents"
    assert step.command == ""


def test_documents_that_move_without_clicks_are_no_groups_of_positions():
    """Two positions that share documents, clicked at the first alone."""
    lists = [(q, [0, 1] if q % 2 else [1, 0], [], 50) for q in range(12)]
    clicked = [(q, [0, 1] if q % 2 else [1, 0], [0 if q % 2 else 1], 3) for q in range(12)]
    step = audit(
        build_log(lists + [(q, list(reversed(d)), [], c) for q, d, _, c in lists] + clicked)
    ).next_step
    assert step.method == ""
    assert "audit.too-few-to-compare" in [part.code for part in step.advice.why.parts]
