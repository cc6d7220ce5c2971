"""Docstrings are written to be read in an editor; here they become reStructuredText."""

import re

SECTION = re.compile(r"^(Parameters|Returns|Fitted|Attributes|Raises|Examples?)$")
ENTRY = re.compile(r"^(\w[\w ,.*]*?) :(?: (.*))?$")


def to_rst(_app, _what, _name, _object, _options, lines: list[str]) -> None:
    """Sections become headings, `name : meaning` a list, indented formulas literal blocks."""
    lines[:] = [_bars(line) for line in _formulas(_entries(_headings(lines)))]


def _headings(lines: list[str]) -> list[str]:
    made: list[str] = []
    for line in lines:
        if set(line.strip()) == {"-"} and made and SECTION.match(made[-1]):
            made[-1:] = [f".. rubric:: {made[-1]}", ""]
        else:
            made.append(line)
    return made


def _entries(lines: list[str]) -> list[str]:
    made: list[str] = []
    in_entry = False
    for line in lines:
        found = ENTRY.match(line)
        if found:
            if made and made[-1] and not in_entry:
                made.append("")
            made.append(f"* ``{found[1]}``: {found[2] or ''}".rstrip())
            in_entry = True
        elif in_entry and line.startswith("    "):
            made.append("  " + line.strip())
        else:
            if in_entry and line.strip():
                made.append("")
            in_entry = False
            made.append(line)
    return made


def _formulas(lines: list[str]) -> list[str]:
    """A block that is indented by four without any mark is a formula: keep it as it stands."""
    made: list[str] = []
    for number, line in enumerate(lines):
        starts = line.startswith("    ") and number > 0 and not lines[number - 1].strip()
        if starts and _is_plain_text_before(lines, number):
            made += ["::", ""]
        made.append(line)
    return made


def _is_plain_text_before(lines: list[str], number: int) -> bool:
    before = [line for line in lines[:number] if line.strip()]
    if not before:
        return True
    last = before[-1]
    return not (last.startswith(("    ", "..", "* ")) or last.rstrip().endswith("::"))


def _bars(line: str) -> str:
    """|x| in a sentence is a size, not a name to be filled in; code stays as it is."""
    if line.startswith(("    ", "..")):
        return line
    parts = line.split("`")
    parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
    return "`".join(parts)
