"""Names of files as text: Unix names are bytes, and not all of them are UTF-8.

Python keeps bytes that are no UTF-8 as halves of characters. Such text names the file, but can be
neither printed nor stored.
"""

import os

from untilt.errors import OptionError, safe_text


def is_utf8(text: str) -> bool:
    """Whether text, such as a file's name, has no halves of characters in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(name: str | os.PathLike[str]) -> str:
    r"""A file's name as text that can be printed and stored; the byte ff becomes `\udcff`."""
    return safe_text(os.fsdecode(name))


def check_name(path: str | os.PathLike[str]) -> None:
    """Raise where no file can have this name; the system itself would raise a bare `ValueError`."""
    if "\0" in os.fsdecode(path):
        raise OptionError(
            f"a file's name cannot hold a zero byte. Got {printable(path)!r} instead."
        )
