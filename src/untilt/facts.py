"""Facts for the user: a sentence with a code, a severity and fields, worded by whoever shows it.

A sentence is written once, as a template, where its cause is found. `str(fact)` is the sentence in
the words of Python; files store code, severity, template and fields. The command line renders the
same template in its own words (`Fact.said`): options, methods and commands stand in it as marks.

    {name}  {name:,.2f}     a field, with a number's format or one of `SPECS`
    {share:.0%~most}        with more digits where else it would read as the limit in field `most`
    {n:query|queries}       the first word for 1, the second for any other value
    ⟦missing='keep'⟧        an argument of Python, or a call: an option or a method elsewhere
    ⟦log.top(3)|--top 3⟧    Python's words, then those of the command line
    `untilt plan LOG`       a command, completed with what was given to the command that runs

>>> GAPS = warning("audit.gaps", "{n:,} {n:session skips|sessions skip} a position")
>>> fact = GAPS(n=1200)
>>> fact.code, fact.severity, str(fact)
('audit.gaps', 'warning', '1,200 sessions skip a position')
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

PLACES = frozenset(["position", "positions", "first", "last", "top", "upper", "lower"])
Severity = Literal["note", "warning", "serious"]
_SEVERITIES: tuple[Severity, ...] = ("note", "warning", "serious")
# A mark, a command, a field, a brace: a template holds nothing else but text.
_MARKS = r"⟦(.+?)⟧|`(untilt [^`]+)`"
_TOKEN = re.compile(_MARKS + r"|\{(\w+)(?::([^{}]*))?\}|\{\{|\}\}")
_MARK = re.compile(_MARKS)
_NUMBER = re.compile(r"\+?,?(\.\d{1,2})?[efg%]?")  # no widths: a file may not ask for 10^11 blanks


class Voice(Protocol):
    """The words of whoever shows a fact."""

    def marked(self, text: str) -> str:
        """An argument or a call of Python, in the words of this voice."""

    def other(self, python: str, command_line: str) -> str:
        """The one of two wordings that is for this voice."""

    def command(self, command: str) -> str:
        """A command such as "untilt plan LOG", completed."""

    def method(self, name: str) -> str:
        """The name of an estimator's class, as this voice calls it."""


class _Python:
    """Python's words: what stands in the template."""

    def marked(self, text: str) -> str:
        return text

    def other(self, python: str, command_line: str) -> str:  # noqa: ARG002
        return python

    command = method = marked


PYTHON: Voice = _Python()


class Command(str):
    """A command line to run, such as "untilt plan LOG", completed by whoever shows it."""

    __slots__ = ()

    def said(self, voice: Voice) -> str:
        """The command with the log and the options that were given."""
        return voice.command(str(self))


class Fact(str):
    """A sentence with a code and fields; as text it prints, joins and compares like any other.

    `str(fact)` is in Python's words. A fact of an old file may have no template: it is its text.
    """

    __slots__ = ("code", "fields", "severity", "template")
    code: str
    severity: Severity
    template: str
    fields: Mapping[str, Any]

    def __new__(cls, code: str, severity: Severity, template: str, /, **fields: Any) -> "Fact":
        """The fact; raises KeyError for a field that is missing, ValueError for a format."""
        return _fact(rendered(template, fields, PYTHON), code, severity, template, fields)

    def said(self, voice: Voice) -> str:
        """The sentence in the words of this voice; facts among the fields are said by it too."""
        return rendered(self.template, self.fields, voice) if self.template else str(self)

    @property
    def parts(self) -> tuple["Fact", ...]:
        """The facts that `joined` made this one of; itself alone where it is no such fact."""
        return tuple(self.fields.get("parts", (self,)))

    def part(self, code: str) -> "Fact | None":
        """The first of its `parts` with this code, if there is one."""
        return next((each for each in self.parts if each.code == code), None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _fact, (str(self), self.code, self.severity, self.template, dict(self.fields))

    def located(self, numbers: Sequence[int]) -> "Fact":
        """The same fact with position p as numbers[p - 1], where fields of `PLACES` name one."""

        def at(name: str, value: Any) -> Any:
            if isinstance(value, Fact):
                return value.located(numbers)
            if isinstance(value, tuple | list):
                return tuple(at(name, each) for each in value)
            moves = name in PLACES and isinstance(value, int) and 1 <= value <= len(numbers)
            return numbers[value - 1] if moves else value

        if not self.template:
            return self
        fields = {name: at(name, value) for name, value in self.fields.items()}
        return Fact(self.code, self.severity, self.template, **fields)

    def record(self, said: Callable[[str], str] = str) -> dict[str, Any]:
        """For JSON: code, severity, template, fields and the sentence as `said` words it."""
        return {
            "code": self.code,
            "severity": self.severity,
            "template": self.template,
            "fields": dict(self.fields),
            "text": said(self),
        }


def _fact(
    text: str, code: str, severity: Severity, template: str, fields: Mapping[str, Any]
) -> Fact:
    """The fact with this text; as severe as the worst of its parts."""
    for part in fields.get("parts", ()):
        severity = max(severity, part.severity, key=_SEVERITIES.index)
    self = str.__new__(Fact, text)
    self.code, self.severity, self.template = code, severity, template
    self.fields = MappingProxyType(dict(fields))
    return self


class Sentence(NamedTuple):
    """A template with its code and severity; called with its fields it is a fact."""

    code: str
    severity: Severity
    template: str

    def __call__(self, /, **fields: Any) -> Fact:
        """The fact with these fields."""
        return Fact(*self, **fields)


def note(code: str, template: str) -> Sentence:
    """A sentence that informs."""
    return Sentence(code, "note", template)


def notes(code: str, **templates: str) -> dict[str, Sentence]:
    """Sentences of one kind by their names, which end their codes: "audit.order-good"."""
    return {name: note(f"{code}-{name}", template) for name, template in templates.items()}


def warning(code: str, template: str) -> Sentence:
    """A sentence that weakens a result."""
    return Sentence(code, "warning", template)


def serious(code: str, template: str) -> Sentence:
    """A sentence that may overturn a result."""
    return Sentence(code, "serious", template)


def phrase(template: str, /, **fields: Any) -> Fact:
    """A clause or an error's text, which has no code."""
    return Fact("", "note", template, **fields)


def rendered(template: str, fields: Mapping[str, Any], voice: Voice) -> str:
    """The template in the words of a voice. Only the template is parsed, never what fills it."""

    def token(found: re.Match[str]) -> str:
        mark, command, name, spec = found.groups()
        if mark is not None or command is not None:
            return _marked(mark, command, voice, lambda text, by: rendered(text, fields, by))
        if name is None:
            return found[0][0]
        spec, _, limit = (spec or "").partition("~")
        if limit:
            return apart(fields[name], fields[limit], spec)
        return _field(fields[name], spec, voice)

    return _TOKEN.sub(token, template)


def worded(text: str, voice: Voice) -> str:
    """A finished text, such as an error's, in the words of a voice: its marks are all that is read.

    A value that fills the text and holds a mark is worded too, and else stays as it is.
    """
    return _MARK.sub(lambda m: _marked(m[1], m[2], voice, worded), text)


def _marked(
    mark: str | None, command: str | None, voice: Voice, filled: Callable[[str, Voice], str]
) -> str:
    """A mark or a command in the words of a voice; `filled` fills in its fields."""
    if mark is None:
        return f"`{voice.command(filled(command or '', PYTHON))}`"
    python, bar, other = mark.partition("|")
    return filled(voice.other(python, other), voice) if bar else voice.marked(filled(mark, PYTHON))


def _field(value: Any, spec: str, voice: Voice) -> str:
    if spec in SPECS:
        return SPECS[spec](value, voice)
    if "|" in spec:
        return spec.partition("|")[0 if value == 1 else 2]
    if spec and _NUMBER.fullmatch(spec):
        return format(value, spec)
    if spec:
        raise ValueError(f"{spec!r} is no format of a field")
    return said(value, voice)


def said(value: Any, voice: Voice) -> str:
    """A fact or a command in the words of a voice; anything else as text."""
    return value.said(voice) if isinstance(value, Fact | Command) else str(value)


def apart(value: float, limit: float, spec: str) -> str:
    """A number with as many digits as it takes to tell it from its limit, up to 4 more.

    >>> apart(0.504, 0.5, ".0%"), apart(0.6, 0.5, ".0%")
    ('50.4%', '60%')
    """
    parts = re.fullmatch(r"(,?)\.(\d)([f%])", spec)
    if parts is None:
        raise ValueError(f"{spec!r} is no format of a number with a limit")
    comma, digits, kind = parts.groups()
    forms = [f"{comma}.{int(digits) + more}{kind}" for more in range(5)]
    differs = (form for form in forms if format(value, form) != format(limit, form))
    return format(value, next(differs, forms[-1]))


def stretches(positions: Iterable[int]) -> list[list[int]]:
    """Positions in order, each stretch without a gap together: [[1, 2, 3], [7]]."""
    runs: list[list[int]] = []
    for k in sorted(positions):
        if runs and k == runs[-1][-1] + 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    return runs


def positions_text(positions: Iterable[int], *, most: int = 8) -> str:
    """ "positions 1..4, 7" for (1, 2, 3, 4, 7); of many stretches the first, and how many more."""
    runs = stretches(positions)
    texts = [f"{run[0]}..{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs[:most]]
    more = sum(map(len, runs[most:]))
    text = ", ".join(texts) + (f" and {more:,} more" if more else "")
    return f"position {text}" if len(runs) == 1 and len(runs[0]) == 1 else f"positions {text}"


def listed(values: Iterable[object], *, most: int = 10, voice: Voice = PYTHON) -> str:
    """The first of the values, and how many more there are."""
    texts = [said(value, voice) for value in values]
    shown = ", ".join(texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most:,} more"


def _clause(sentence: str) -> str:
    """A sentence as a part of another: a small letter first, and no full stop."""
    return sentence[:1].lower() + sentence[1:].removesuffix(".")


def _joined_by(mark: str) -> Callable[[Any, Voice], str]:
    return lambda values, voice: mark.join(said(each, voice) for each in values)


SPECS: dict[str, Callable[[Any, Voice], str]] = {
    "r": lambda value, _: repr(value),
    "listed": lambda values, voice: listed(values, voice=voice),
    "positions": lambda positions, _: positions_text(positions),
    "pairs": lambda pairs, _: listed(f"{upper}-{lower}" for upper, lower in pairs),
    "method": lambda name, voice: voice.method(str(name)),
    "upper": lambda value, _: str(value).upper(),
    "uppers": lambda values, _: ", ".join(values).upper(),
    "stopped": lambda value, voice: said(value, voice).removesuffix(".") + ".",
    "few": lambda values, voice: listed(values, most=4, voice=voice),
    "p": lambda values, _: ", ".join(f"{name} p {p:.2g}" for name, p in values.items()),
    "all": _joined_by(", "),
    "and": _joined_by(" and "),
    "clause": lambda text, voice: _clause(said(text, voice)),
    "clauses": _joined_by("; "),
    "sentences": _joined_by(" "),
    "lines": _joined_by("\n"),
}
"""Formats of a field beside those of numbers."""

_SENTENCES_0_2 = Path(__file__).with_name("facts_0_2.json")
TEXT = note("general.text", "{text}")
JOINED = note("general.joined", "{parts:clauses}")


def stored(
    code: str,
    fields: Mapping[str, Any],
    *,
    severity: Any = None,
    template: str = "",
    text: str = "",
) -> Fact:
    """The fact that a file of any version holds: nothing that was stored makes it unreadable.

    A template that does not fit the fields is left; the text says it then, or code and fields do.
    """
    if not template and not text:  # rankers of untilt 0.2 hold codes and fields alone
        severity, template = _sentences_0_2().get(code, (severity, template))
    severity = severity if severity in _SEVERITIES else "note"
    try:
        if template:
            return Fact(code, severity, template, **fields)
    except (KeyError, ValueError, TypeError, AttributeError):
        pass
    return _fact(text or f"{code} {dict(fields)}", code, severity, "", fields)


@cache
def _sentences_0_2() -> dict[str, tuple[str, str]]:
    """Severity and template by code, of the facts that rankers and curves hold."""
    table: dict[str, tuple[str, str]] = json.loads(_SENTENCES_0_2.read_text(encoding="utf-8"))
    return table


def as_fact(text: str) -> Fact:
    """A user's own words as a fact; a fact stays as it is."""
    return text if isinstance(text, Fact) else TEXT(text=text)


def as_facts(texts: Iterable[str]) -> tuple[Fact, ...]:
    """Each of them as a fact."""
    return tuple(as_fact(each) for each in texts)


def joined(*texts: str) -> Fact:
    """Several facts as one, told one after the other; as severe as the worst of them.

    >>> joined("converged", "1,204 clicks")
    'converged; 1,204 clicks'
    """
    parts = tuple(part for each in texts for part in as_fact(each).parts)
    return parts[0] if len(parts) == 1 else JOINED(parts=parts)


def codes(facts: Iterable[str]) -> list[str]:
    """The codes of some facts, in order; those of its parts for one that was joined."""
    if isinstance(facts, Fact):
        facts = facts.parts
    return [as_fact(each).code for each in facts]
