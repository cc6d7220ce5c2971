"""A fact is its sentence, and knows its code and fields."""

import copy

import pytest

from untilt.facts import Fact, as_facts, codes


def test_a_fact_is_its_sentence_and_knows_its_fields():
    fact = Fact("general.text", text="measured last spring")
    assert fact == "measured last spring"
    assert (fact.code, fact.severity, dict(fact.fields)) == (
        "general.text",
        "note",
        {"text": "measured last spring"},
    )
    assert fact.record() == {
        "code": "general.text",
        "severity": "note",
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
