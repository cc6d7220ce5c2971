"""`untilt explain`: what a code such as `run.floor-clicks` says, and what to do about it."""

import re
from ast import literal_eval
from collections.abc import Iterator
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import Any, cast

import untilt
from untilt.cli.console import Output
from untilt.cli.declared import argument
from untilt.errors import OptionError, did_you_mean
from untilt.facts import Sentence, Severity

_PACKAGE = Path(str(untilt.__file__)).parent
_TEXT = r'"(?:[^"\\]|\\.)*"'
_KINDS = {"note": "it informs", "warning": "it weakens a result", "serious": "it may overturn one"}
_WRITTEN = re.compile(
    rf'\b(note|warning|serious)\(\s*"([a-z]+\.[a-z0-9-]+)"(?:,\s*((?:{_TEXT}\s*)+))?'
)


def explain(
    code: str | None = argument(None, "A code, or how it begins: run, audit.use.", "CODE"),
    *,
    output: Output,
) -> None:
    """Explain the code of a warning: what it says and what to do.

    Example: [bold]untilt explain run.floor-clicks[/bold]
    """
    from untilt.report.floors import REMEDIES

    sources = {path: path.read_text(encoding="utf8") for path in sorted(_PACKAGE.rglob("*.py"))}
    found = [each for path in sources for each in _sentences(path, sources[path], code or "")]
    if not found:
        known = {m[2] for text in sources.values() for m in _WRITTEN.finditer(text)}
        raise OptionError(
            f"there is no code {code!r}.{did_you_mean(code or '', known)} "
            "`untilt explain` lists all of them."
        )
    found = [each for each in found if each[0].code == code] or found
    output.record(codes=[{**sentence._asdict(), "module": module} for sentence, module in found])
    if found[0][0].code != code:
        rows = sorted({(each.code, each.severity) for each, _ in found})
        output.table(("code", "severity"), rows, (0, 1))
        return
    for sentence, module in found:
        about = (getdoc(import_module(module)) or "").partition("\n\n")[0].replace("\n", " ")
        output.heading(f"{sentence.code} ({sentence.severity}: {_KINDS[sentence.severity]})")
        output.say(f"  {_shown(sentence.template)}")
        output.say(f"  Found by {module}: {about}")
    if code in REMEDIES:
        output.record(remedy=REMEDIES[code].template)
        output.say(f"\nWhat to do: {_shown(REMEDIES[code].template)}")


def _sentences(path: Path, text: str, code: str) -> Iterator[tuple[Sentence, str]]:
    """The sentences of a module whose code is this one, or begins with it and a dot or dash."""
    parts = path.relative_to(_PACKAGE.parent).with_suffix("").parts
    module = ".".join(parts).removesuffix(".__init__")
    begins = [code[: m.start()] for m in re.finditer("[-]", code)]
    if not any(f'"{each}' in text for each in (code, *begins)) or "untilt.facts" not in text:
        return
    written = {
        Sentence(m[2], cast("Severity", m[1]), literal_eval(f"({m[3]})"))
        for m in _WRITTEN.finditer(text)
        if m[3]
    }
    known = written | set(_held(vars(import_module(module)))) if code else written
    for each in sorted(known):
        if each.code == code or re.match(rf"{re.escape(code)}([.-]|$)", each.code) or not code:
            yield each, module


def _held(value: Any) -> Iterator[Sentence]:
    """The sentences that a module holds, in tables too."""
    for each in value.values():
        if isinstance(each, Sentence):
            yield each
        elif isinstance(each, dict):
            yield from _held(each)


def _shown(template: str) -> str:
    """A template with its fields as names and without marks."""
    told = re.sub(r"⟦(?:[^⟧|]*\|)?([^⟧]*)⟧", r"\1", template)
    return re.sub(r"\{(\w+)[^{}]*\}", lambda field: f"<{field[1].replace('_', ' ')}>", told)
