"""Addresses of tables that lie elsewhere, and how they are shown: without passwords and keys.

Whatever is printed, written to a report or raised shows an address by `shown`; text that may hold
one, such as a command line, goes through `without_secrets`.
"""

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from untilt.errors import OptionError

_SCHEME = re.compile(r"(s3|postgres(?:ql)?)://", re.IGNORECASE)
# Of the parameters of an address these say where and not who.
_HARMLESS = {
    "host", "port", "dbname", "sslmode", "connect_timeout", "application_name",
    "region", "endpoint", "anonymous",
}  # fmt: skip
_ANY = re.compile(r"\b(?:s3|postgres(?:ql)?)://[^\s'\"`]*", re.IGNORECASE)
# Of any scheme; a path makes one slash of two.
_WITH_USER = re.compile(r"(\b[a-z][a-z0-9+.-]*:/+)[^\s'\"`/]*@", re.IGNORECASE)


@dataclass(frozen=True)
class Address:
    """One or several addresses of a kind (s3, postgresql), and the table of a database there."""

    uris: tuple[str, ...] = field(repr=False)
    table: object = None

    @property
    def scheme(self) -> str:
        """ "s3" or "postgresql"."""
        scheme = self.uris[0].partition("://")[0].lower()
        return "postgresql" if scheme == "postgres" else scheme

    @property
    def what(self) -> str:
        """How to call it in a message."""
        return shown(self.uris[0]) + (" and others" if len(self.uris) > 1 else "")

    def scrubbed(self, text: str) -> str:
        """A text, such as an error of a driver, without what is secret in these addresses."""
        for uri in self.uris:
            text = text.replace(uri, shown(uri))
            for secret in _secrets(uri):
                text = text.replace(secret, "***")
        return without_secrets(text)


class AddressPath(type(Path())):  # type: ignore[misc]
    """An address where a command takes a path: printed without secrets, read as it was typed."""

    text: str

    def __new__(cls, text: str) -> "AddressPath":
        """A path to nothing that remembers the text: a `Path` would make one slash of two."""
        path: AddressPath = super().__new__(cls, shown(text))
        path.text = text
        return path

    def __init__(self, text: str) -> None:
        if sys.version_info >= (3, 12):
            super().__init__(shown(text))

    def __fspath__(self) -> str:
        return self.text

    def __str__(self) -> str:
        return shown(self.text)

    @property
    def name(self) -> str:
        """As it is shown."""
        return shown(self.text)


def place(text: str) -> Path:
    """What a command is given as a path: one of this machine, or an address."""
    return AddressPath(text) if is_address(text) else Path(text)


def is_address(source: Any) -> bool:
    """Whether this is the address of a table elsewhere; a file of such a name comes first."""
    text = source.text if isinstance(source, AddressPath) else source
    return (
        isinstance(text, str)
        and _SCHEME.match(text) is not None
        and "\0" not in text
        and not os.path.exists(text)
    )


def address_of(source: Any) -> Address | None:
    """The address that a source of `read_log` is; None where it is none."""
    if isinstance(source, tuple) and len(source) == 2 and is_address(source[0]):
        return Address((os.fspath(source[0]),), source[1])
    several = source if isinstance(source, list) else [source]
    found = [os.fspath(each) for each in several if is_address(each)]
    if not found:
        return None
    address = Address(tuple(found))
    if len(found) < len(several) or (len(found) > 1 and address.scheme != "s3"):
        raise OptionError(
            f"a list must hold files of this machine alone, or addresses s3://... alone. Got "
            f"{address.what} among {len(several)}. Read them one by one."
        )
    return address


def shown(text: str) -> str:
    """An address without its password, its keys and such parameters; any other text as it is.

    >>> shown("postgresql://ann:secret@db.example/shop?sslmode=require&password=x")
    'postgresql://ann@db.example/shop?sslmode=require'
    """
    if not _SCHEME.match(text):
        return text
    scheme, _, rest = text.partition("://")
    user, at, rest = _user(scheme, rest)
    name = user.partition(":")[0]
    is_plain = re.fullmatch(r"[\w.%+-]+", name) is not None and scheme.lower() != "s3"
    place, mark, query = rest.partition("?")
    kept = [(key, value) for key, value in parse_qsl(query) if key in _HARMLESS]
    asked = f"?{urlencode(kept, safe='/:,')}" if mark and kept else ""
    # What follows no name of a parameter is part of a pattern, not of the parameters.
    if mark and not re.match(r"[a-z_]+=", query):
        asked = f"?{query}"
    return f"{scheme}://{f'{name}@' if at and is_plain else ''}{place}{asked}"


def _user(scheme: str, rest: str) -> tuple[str, str, str]:
    """Who, "@" and where. A key of S3 may hold an @; a secret may hold a slash."""
    first = rest.partition("/")[0]
    if scheme.lower() == "s3" and not {":", "@"} & set(first):
        return "", "", rest
    return rest.rpartition("@")


def names_somebody(uri: str) -> bool:
    """Whether there is a user, a password or a key in an address."""
    scheme, _, rest = uri.partition("://")
    return bool(_user(scheme, rest)[1])


def without_secrets(text: str) -> str:
    """A text in which every address is shown without its password and keys."""
    return _WITH_USER.sub(
        lambda found: found[1] if not _SCHEME.match(found[0]) else found[0],
        _ANY.sub(lambda found: shown(found[0]), text),
    )


def _secrets(uri: str) -> list[str]:
    """The parts of an address that nobody should see, as they stand and as they are meant."""
    scheme, _, rest = uri.partition("://")
    user, at, _ = _user(scheme, rest)
    given = [user.partition(":")[2]] if at else []
    given += [value for key, value in parse_qsl(rest.partition("?")[2]) if key not in _HARMLESS]
    found = {each for secret in given for each in (secret, unquote(secret))}
    return sorted((each for each in found if len(each) > 2), key=len, reverse=True)
