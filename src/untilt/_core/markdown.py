"""Markdown and YAML in which no name of the data becomes markup."""

import re
from collections.abc import Collection, Iterable, Sequence


def bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {plain(text)}" for text in texts)


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[int] = (0,)
) -> str:
    """Columns listed in `words` as words, all others as numbers."""
    marks = ["---" if i in words else "---:" for i in range(len(header))]
    cells = [[plain(cell) for cell in row] for row in (header, *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (cells[0], marks, *cells[1:]))


def plain(text: str) -> str:
    r"""A line that reads as it stands: names of a log make no markup of their own.

    >>> print(plain("a_b [x](y) <b>|"), plain("1. _x_"), plain("[0.1, 0.2]"))
    a_b \[x](y) \<b>\| 1\. \_x\_ [0.1, 0.2]
    """
    line = " ".join(_printable(text).split())
    line = re.sub(r"([\\*<&|~])", r"\\\1", line)
    if re.search(r"\][(\[:]", line):  # a link, or where one leads
        line = line.replace("[", r"\[")
    line = re.sub(r"(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])", r"\\_", line)
    return re.sub(r"^(\d*)([#>]|[-+.)](?=[- +]|$))", r"\1\\\2", line)


def yaml_text(text: str) -> str:
    """Text in double quotes, as YAML reads it.

    >>> print(yaml_text('a "b"'))
    "a \\"b\\""
    """
    escaped = _printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _printable(text: str) -> str:
    """Without control characters, and without what no file of UTF-8 can hold."""
    return "".join(each if each.isprintable() else " " for each in text)
