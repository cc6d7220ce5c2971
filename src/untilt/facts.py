"""Facts for the user: status, assumption or warning, each with a code, a severity and fields.

A `Fact` is the sentence that people read, and knows what it says: `fact.code` and `fact.fields` are
for programs and tests, `str(fact)` for people. The sentences stand in `untilt.messages` and nowhere
else, one file per area; a code begins with its area.

>>> fact = Fact("general.text", text="curve of the last quarter")
>>> fact.code, fact.severity, str(fact)
('general.text', 'note', 'curve of the last quarter')
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

Severity = Literal["note", "warning", "serious"]
_SEVERITIES: tuple[Severity, ...] = ("note", "warning", "serious")


class Message(NamedTuple):
    """How a code is told: "note" informs, "warning" weakens a result, "serious" may overturn it.

    text : a format string over the fact's fields, or a function of them where grammar needs one
    """

    severity: Severity
    text: str | Callable[..., str]


Texts = dict[str, str | Callable[..., str]]


def messages(severity: Severity, texts: Texts) -> dict[str, Message]:
    """Messages of one severity: code -> text."""
    return {code: Message(severity, text) for code, text in texts.items()}


class Fact(str):
    """A sentence with a code and fields; as text it prints, joins and compares like any other."""

    __slots__ = ("code", "fields", "severity")
    code: str
    severity: Severity
    fields: Mapping[str, Any]

    def __new__(cls, code: str, **fields: Any) -> "Fact":
        """The fact of this code; raises KeyError for a code or field that no message knows."""
        severity, text = message_of(code)
        for part in fields.get("parts", ()):
            severity = max(severity, part.severity, key=_SEVERITIES.index)
        said = text(**fields) if callable(text) else text.format(**fields)
        self = super().__new__(cls, worded(said))
        self.code, self.severity, self.fields = code, severity, MappingProxyType(fields)
        return self

    @property
    def parts(self) -> tuple["Fact", ...]:
        """The facts that `joined` made this one of; itself alone where it is no such fact."""
        return tuple(self.fields.get("parts", (self,)))

    def part(self, code: str) -> "Fact | None":
        """The first of its `parts` with this code, if there is one."""
        return next((each for each in self.parts if each.code == code), None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.code, dict(self.fields))

    def record(self) -> dict[str, Any]:
        """For JSON: code, severity, fields and the sentence."""
        return {
            "code": self.code,
            "severity": self.severity,
            "fields": dict(self.fields),
            "text": str(self),
        }


def _again(code: str, fields: dict[str, Any]) -> Fact:
    return Fact(code, **fields)


_words: ContextVar[Callable[[str], str] | None] = ContextVar("words", default=None)


@contextmanager
def worded_by(words: Callable[[str], str]) -> Iterator[None]:
    """Facts made inside are said in other words: those of a command line, not of Python."""
    token = _words.set(words)
    try:
        yield
    finally:
        _words.reset(token)


def worded(text: str) -> str:
    """A text in the words of whoever is listening: Python's, unless `worded_by` says otherwise."""
    words = _words.get()
    return text if words is None else words(text)


def message_of(code: str) -> Message:
    """The message of a code: `area.name` stands in `untilt.messages.about_area`."""
    area = code.partition(".")[0]
    found: Message = import_module(f"untilt.messages.about_{area}").MESSAGES[code]
    return found


def as_fact(said: str) -> Fact:
    """A user's own words as a fact; a fact stays as it is."""
    return said if isinstance(said, Fact) else Fact("general.text", text=said)


def as_facts(said: Iterable[str]) -> tuple[Fact, ...]:
    """Each of them as a fact."""
    return tuple(as_fact(each) for each in said)


def joined(*said: str) -> Fact:
    """Several facts as one, told one after the other; as severe as the worst of them.

    >>> joined("converged", "1,204 clicks")
    'converged; 1,204 clicks'
    """
    parts = tuple(part for each in said for part in as_fact(each).parts)
    return parts[0] if len(parts) == 1 else Fact("general.joined", parts=parts)


def codes(facts: Iterable[str]) -> list[str]:
    """The codes of some facts, in order; those of its parts for one that was joined."""
    if isinstance(facts, Fact):
        facts = facts.parts
    return [as_fact(each).code for each in facts]
