"""A fact is its sentence, and knows its code and fields."""

import copy

import pytest

from untilt.facts import Fact, as_facts, codes, joined, note


def test_a_fact_is_its_sentence_and_knows_its_fields():
    fact = note("general.text", "{text}")(text="measured last spring")
    assert fact == "measured last spring"
    assert (fact.code, fact.severity, dict(fact.fields)) == (
        "general.text",
        "note",
        {"text": "measured last spring"},
    )
    assert fact.record() == {
        "code": "general.text",
        "severity": "note",
        "template": "{text}",
        "fields": {"text": "measured last spring"},
        "text": "measured last spring",
    }


def test_copies_keep_code_and_fields():
    fact = Fact("general.text", text="a")
    twin = copy.deepcopy(fact)
    assert (twin, twin.code, dict(twin.fields)) == (fact, fact.code, dict(fact.fields))


def test_plain_text_becomes_a_fact_and_facts_stay():
    fact = Fact("general.text", text="a")
    assert as_facts([fact, "b"])[0] is fact
    assert codes([fact, "b"]) == ["general.text", "general.text"]


def test_an_unknown_code_or_field_is_our_own_bug():
    with pytest.raises(KeyError):
        Fact("general.nothing")
    with pytest.raises(KeyError):
        Fact("general.text", words="a")


def test_joined_facts_are_told_one_after_the_other():
    first, second = Fact("em.converged", steps=3), Fact("bias.errors-one-query")
    both = joined(first, joined(second, "made by hand"))
    assert both == f"{first}; {second}; made by hand"
    assert codes(both) == ["em.converged", "bias.errors-one-query", "general.text"]
    assert both.severity == "warning"
    assert both.part("bias.errors-one-query") is second
    assert both.part("bias.given") is None
    assert joined(first) is first


def test_a_single_fact_is_its_own_part():
    fact = Fact("em.converged", steps=3)
    assert fact.parts == (fact,)
    assert fact.part("em.converged") is fact
