"""A fact is its sentence, and knows its code and fields."""

import copy

import pytest

from untilt.errors import UntiltError
from untilt.facts import TEXT, as_facts, codes, joined, note, phrase, serious, stored, warning

CONVERGED = note("em.converged", "converged in {steps} steps")
ONE_QUERY = warning("bias.errors-one-query", "errors from session noise: one query alone")()


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
    fact = TEXT(text="a")
    twin = copy.deepcopy(fact)
    assert (twin, twin.code, dict(twin.fields)) == (fact, fact.code, dict(fact.fields))


def test_plain_text_becomes_a_fact_and_facts_stay():
    fact = TEXT(text="a")
    assert as_facts([fact, "b"])[0] is fact
    assert codes([fact, "b"]) == ["general.text", "general.text"]


def test_a_missing_field_or_an_unknown_format_is_our_own_bug():
    with pytest.raises(KeyError):
        CONVERGED(words="a")
    with pytest.raises(ValueError, match=">9"):
        phrase("{n:>9}", n=3)


class Shouting:
    """A voice that shows what it was asked to word."""

    def marked(self, text):
        return text.upper()

    def other(self, python, command_line):
        return command_line

    def command(self, command):
        return f"{command} --all"

    def method(self, name):
        return name.lower()


def test_a_voice_words_marks_commands_and_the_facts_inside():
    inner = phrase("use {estimator:method} with ⟦depth={n}⟧", estimator="AllPairs", n=3)
    fact = serious("a.b", "{x}: {why}; ⟦log.top({n})|--top {n}⟧, `untilt plan LOG`")(
        x="[[x]] {y}", why=inner, n=2
    )
    assert fact == "[[x]] {y}: use AllPairs with depth=3; log.top(2), `untilt plan LOG`"
    assert fact.said(Shouting()) == (
        "[[x]] {y}: use allpairs with DEPTH=3; --top 2, `untilt plan LOG --all`"
    )


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{n:,} {n:row|rows}", "1,234 rows"), ("{one} {one:row|rows}", "1 row"),
        ("{share:.1%}", "25.0%"), ("{names:listed}", "a, b"), ("{names:and}", "a and b"),
        ("{names:clauses}", "a; b"), ("{name:r}", "'x'"), ("{at:positions}", "positions 1..3, 7"),
        ("{{x}}", "{x}"),
    ],
)  # fmt: skip
def test_formats_of_fields(template, said):
    fields = {"n": 1234, "one": 1, "share": 0.25, "names": ["a", "b"], "name": "x",
              "at": (1, 2, 3, 7)}  # fmt: skip
    assert phrase(template, **fields) == said


@pytest.mark.parametrize("template", ["{n.__class__}", "{n:>99999999999}", "{n:.99999f}", "{x}"])
def test_templates_of_files_are_not_obeyed(template):
    fact = stored("a.b", {"n": 1}, severity="grave", template=template, text="as it was")
    assert (str(fact), fact.code, fact.severity) in (
        ("as it was", "a.b", "note"), (template, "a.b", "note")
    )  # fmt: skip


def test_facts_of_old_files_are_read_by_their_code():
    fact = stored("em.converged", {"steps": 3})
    assert (str(fact), fact.severity) == ("converged in 3 steps", "note")
    assert stored("bias.errors-few-queries", {"n_queries": 3}).severity == "warning"
    assert str(stored("training.renamed", {"a": 1})) == "training.renamed {'a': 1}"


def test_joined_facts_are_told_one_after_the_other():
    first, second = CONVERGED(steps=3), ONE_QUERY
    both = joined(first, joined(second, "made by hand"))
    assert both == f"{first}; {second}; made by hand"
    assert codes(both) == ["em.converged", "bias.errors-one-query", "general.text"]
    assert both.severity == "warning"
    assert both.part("bias.errors-one-query") is second
    assert both.part("bias.given") is None
    assert joined(first) is first


def test_a_single_fact_is_its_own_part():
    fact = CONVERGED(steps=3)
    assert fact.parts == (fact,)
    assert fact.part("em.converged") is fact


def test_an_error_is_worded_by_its_marks_whatever_fills_it():
    error = UntiltError(f"column {'{x} [[y]]'!r}: read it with ⟦missing=0.0⟧; `untilt plan LOG`")
    assert str(error) == "column '{x} [[y]]': read it with missing=0.0; `untilt plan LOG`"
    assert error.said(Shouting()) == (
        "column '{x} [[y]]': read it with MISSING=0.0; `untilt plan LOG --all`"
    )
    assert (
        UntiltError(phrase("use {name:method}", name="AllPairs")).said(Shouting()) == "use allpairs"
    )
    nested = UntiltError("give ⟦bias_|that of `untilt bias LOG`⟧")
    assert nested.said(Shouting()) == "give that of `untilt bias LOG --all`"
