"""One page, one recommendation: what on a page tells somebody to do something.

A sentence is an order where a clause of it begins with a verb that says what to do, where it says
to use a method or an option by its mark, or where it holds a command with its arguments, which is
there to be run. Findings do none of these.
"""

import html
import re
from collections.abc import Iterable, Iterator
from typing import Any

from untilt._core.codec import to_plain
from untilt.report.card import model_card
from untilt.report.decision import Decision
from untilt.report.page import sections_of
from untilt.views import html as as_html

VERBS = (
    "use|take|see|give|set|try|collect|measure|run|swap|estimate|log|leave|read|choose|find|name|"
    "look|keep|hold|draw|cut|compare|train|judge|order|ask|do not|install|map|shuffle|plan|expect|"
    "pass|make|learn|wait|first"
)
_CAPITAL = "|".join(verb.capitalize() for verb in VERBS.split("|"))
_SENTENCE = rf"(?:^|[.!?:;] |- |\()(?:{_CAPITAL})\b"
_CLAUSE = rf"(?:[:;] |, (?:and|or) |^)(?:{VERBS})\b(?!:| of | is )"
_MARKED = r"\b[Uu]se [⟦{`]"  # a method or an option of a template
_COMMAND = r"`untilt [a-z]+ [^`]+`|\buntilt (?:audit|bias|plan|run|split|clickmodels|serve) LOG\b"
ORDER = re.compile(f"{_SENTENCE}|{_CLAUSE}|{_MARKED}|{_COMMAND}")
FEWEST_WORDS = 3  # of a sentence
_INLINE = re.compile(r"</?(?:code|b|i|em|strong|span|a|abbr|sup|sub)\b[^>]*>")


def is_order(sentence: str) -> bool:
    """Whether a sentence, or a template of one, tells anybody to do something."""
    return ORDER.search(sentence) is not None


def left_over(page: str, recommended: Iterable[str]) -> list[str]:
    """Orders on an HTML page, with words around them, beside what it recommends."""
    told = words_of(page)
    for each in recommended:
        told = told.replace(_even(each).removesuffix("."), "...")
    # Shorter blocks are names: of columns, features, packages.
    blocks = (_even(block) for block in told.split("\n") if len(block.split()) >= FEWEST_WORDS)
    return [f"{block[max(0, m.start() - 60) : m.end() + 60]}" for block in blocks
            for m in ORDER.finditer(block)]  # fmt: skip


def words_of(page: str) -> str:
    """What a reader of an HTML page sees, a line for each block of it."""
    seen = re.sub(r"(?s)<(script|style|svg|pre|head)\b.*?</\1>", "\n", page)
    seen = re.sub(r"<[^>]+>", "\n", _INLINE.sub("", re.sub(r"\s+", " ", seen)))
    return "\n".join(_even(html.unescape(line)) for line in seen.split("\n"))


def _even(told: str) -> str:
    return re.sub(r"\s+", " ", told.replace("`", "")).strip()


def facts_in(plain: Any) -> Iterator[tuple[str, str]]:
    """(template, text) of the facts in JSON; the parts of one that was joined in its place."""
    if isinstance(plain, dict):
        if {"template", "code"} <= set(plain) and "parts" not in plain["fields"]:
            yield plain["template"], plain["text"]
        for each in plain.values():
            yield from facts_in(each)
    elif isinstance(plain, list | tuple):
        for each in plain:
            yield from facts_in(each)


def orders_in(plain: Any) -> set[str]:
    """Different sentences in JSON that are orders."""
    return {text for template, text in facts_in(plain) if is_order(template or text)}


def recommended_by(decision: Decision) -> list[str]:
    """What a run recommends, and the command that does it."""
    answer, training = decision.answer, decision.training
    # A candidate that was asked for says itself what it lacks.
    failed = () if training is None else training.warnings
    errors = [str(each.fields["error"]) for each in failed if "error" in each.fields]
    if answer is None:
        return [str(decision.no_answer), *errors]
    command = answer.recommendation.fields.get("command", "")
    return [str(answer.recommendation), *([str(command)] if command else []), *errors]


def other_orders(decision: Decision, report: str = "") -> dict[str, list[str]]:
    """Orders beside the recommendation, by page: terminal, page, card, JSON."""
    recommended = recommended_by(decision)
    pages = {"terminal": as_html(decision.view()), "page": as_html(sections_of(decision))}
    if report:
        pages["report.html"] = report
    if decision.candidate is not None:
        pages["card"] = re.sub(r"(?s)^---.*?---|```.*?```", "", model_card(decision))
    found = {name: left_over(page, recommended) for name, page in pages.items()}
    audit = decision.audit
    own = set() if audit is None else {str(audit.next_step.fact), *map(str, audit.next_steps)}
    said = to_plain(decision, said=str)
    found["json"] = sorted(orders_in(said) - {*recommended, *own})
    return {name: orders for name, orders in found.items() if orders}
