"""Hints for names that are nearly right."""

from collections.abc import Iterable
from difflib import get_close_matches

from untilt.errors import OptionError


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' with the nearest known name, or nothing where none is near."""
    near = get_close_matches(name.lower(), list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def check_choice(what: str, found: object, known: tuple[str, ...]) -> None:
    """Raise unless `found` is one of the known choices of the option `what`."""
    if isinstance(found, str) and found in known:
        return
    choices = ", ".join(repr(choice) for choice in known)
    hint = did_you_mean(found, known) if isinstance(found, str) else ""
    raise OptionError(f"{what} must be one of {choices}. Got {found!r} instead.{hint}")
