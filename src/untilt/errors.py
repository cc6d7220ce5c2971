"""One exception tree. Every message says what is wrong, what was found, and what to do.

The user can fix everything under `UntiltError`; any other exception is a bug in untilt.
"""

import re
from collections.abc import Iterable

from untilt.facts import PYTHON, Fact, Voice, worded

_SENTENCE_END = re.compile(r"[.?!] (?=[A-Z⟦`])")


class UntiltError(ValueError):
    """Base of all errors that untilt raises on purpose."""

    def said(self, voice: Voice) -> str:
        """The message in the words of a voice: of a fact, or of a text with its marks."""
        text = self.args[0] if self.args else ""
        return safe_text(text.said(voice) if isinstance(text, Fact) else worded(str(text), voice))

    def __str__(self) -> str:
        """The message in Python's words."""
        return self.said(PYTHON)

    @property
    def problem(self) -> str:
        """What is wrong, without what to do about it: the first sentence of the message."""
        return _SENTENCE_END.split(str(self), maxsplit=1)[0].rstrip(".")


# Control characters but tab and line feed, marks that turn the direction of text, and bytes of a
# file's name that are no text.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def safe_text(text: str) -> str:
    r"""Text of a log or a file's name as a terminal can be shown it: ESC becomes `\x1b`."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class OptionError(UntiltError):
    """An option has a value that makes no sense."""


class UnknownOptionError(OptionError, TypeError):
    """There is no option of this name."""

    def __init__(self, where: str, name: str, known: Iterable[str]) -> None:
        known = list(known)
        super().__init__(
            f"{where} has no option {name!r}.{did_you_mean(name, known)} "
            f"Options: {', '.join(known)}."
        )


class WriteError(OptionError, OSError):
    """A file cannot be written where it was wanted: a full disk, a folder without permission."""

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.errno = number


class ColumnError(UntiltError):
    """A table lacks a column, or a column has a type that cannot be used."""


class BadRowsError(UntiltError):
    """Rows of a log or of a LETOR file break a rule; the message names them."""


class FileFormatError(UntiltError):
    """A file is damaged, truncated, of another kind, or written by a newer version."""


class ShapeError(UntiltError):
    """Arrays do not fit together."""


class DepthError(UntiltError):
    """A position is asked for that the bias or the log does not reach."""


class IdentifiabilityError(UntiltError):
    """The log cannot say what was asked of it, whatever its size."""


class MemoryLimitError(UntiltError, MemoryError):
    """What was asked for does not fit into the memory that this process may use."""


class NotFittedError(UntiltError, AttributeError):
    """Something learned was asked of an estimator that has not been fitted.

    As in scikit-learn it is an AttributeError too: `hasattr(model, "bias_")` then says no.
    """


class MissingExtraError(OptionError, ImportError):
    """What was asked for needs a package that a plain install does not bring."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(
            f"{what} needs {package}, which is not installed. "
            f"Install it: pip install 'untilt[{extra}]'."
        )
        self.extra = extra


# Hints for names that are nearly right.


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' with the nearest known name, or nothing where none is near."""
    from difflib import get_close_matches  # 5 ms that `import untilt` does without

    near = get_close_matches(name.lower(), list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def check_least(what: str, found: float, least: float, hint: str = "") -> None:
    """Raise unless an option is at least so large."""
    if not found >= least:
        raise OptionError(f"{what} must be at least {least}. Got {found} instead{hint}.")


def check_share(what: str, found: float) -> None:
    """Raise unless an option is a share of something, with some of it left on either side."""
    if not 0 < found < 1:
        raise OptionError(f"{what} must lie between 0 and 1. Got {found} instead.")


def check_choice(what: str, found: object, known: tuple[str, ...]) -> None:
    """Raise unless `found` is one of the known choices of the option `what`."""
    if isinstance(found, str) and found in known:
        return
    choices = ", ".join(repr(choice) for choice in known)
    hint = did_you_mean(found, known) if isinstance(found, str) else ""
    raise OptionError(f"{what} must be one of {choices}. Got {found!r} instead.{hint}")
