"""Files with a seal: an archive that ends with a checksum, and with a keyed seal where asked for.

    untilt ranker 1 sha256 <64 digits>
    untilt keyed hmac-sha256 <64 digits> untilt ranker 1 sha256 <64 digits>

The checksum is over all bytes before its digits: damage anywhere, down to one bit, is found before
anything is read. It needs no key, so it says nothing about who wrote the file. The keyed seal does:
whoever has no key can neither write a file that is taken nor change one.

The key comes from the environment (UNTILT_SEAL_KEY, or a file named by UNTILT_SEAL_KEY_FILE). Where
one is set, every file is written with a keyed seal, and a file without one, or under another key,
is refused. Several keys stand one after another, separated by white space: the first writes, all
are tried on reading, so that keys can be changed one after the other. Without a key a file with a
keyed seal is read like any other: who could strip a seal would strip a warning with it.
"""

import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from pathlib import Path

from untilt._core.archive import Archive, packed
from untilt._version import __version__
from untilt.errors import FileFormatError, OptionError

FORMAT = 1
KEY, KEY_FILE = "UNTILT_SEAL_KEY", "UNTILT_SEAL_KEY_FILE"
SHORTEST_KEY = 32  # bytes; fewer can be guessed where they are words
_DIGITS = 64
_PLAIN = "untilt {saved_as} {format} sha256 "
_KEYED = "untilt keyed hmac-sha256 "
_SEAL = re.compile(
    rb"(?:untilt keyed hmac-sha256 ([0-9a-f]{64}) )?"
    rb"untilt [a-z ]{1,30} (\d{1,9}) sha256 ([0-9a-f]{64})\Z"
)
_DOMAIN = b"untilt keyed seal of a model, version 1\0"


def seal(parts: Mapping[str, bytes], saved_as: str) -> bytes:
    """The bytes of a file; with a key in the environment, under its seal."""
    keys = seal_keys()
    plain = _PLAIN.format(saved_as=saved_as, format=FORMAT).encode()
    keyed = _KEYED.encode() + b"0" * _DIGITS + b" " if keys else b""
    data = packed(parts, comment=keyed + plain + b"0" * _DIGITS)[:-_DIGITS]
    if keys:
        end = len(data) - len(plain) - 1
        data = data[: end - _DIGITS] + _mac(keys[0], data, end) + data[end:]
    return data + hashlib.sha256(data).hexdigest().encode()


def unseal(data: bytes, keys: tuple[bytes, ...]) -> Archive:
    """The parts of a file whose checksum is right and whose keyed seal is by one of the keys.

    Without keys the checksum is enough. Raises `FileFormatError`.
    """
    found = _SEAL.search(data[-256:])
    if found is None:
        raise FileFormatError("it has no seal of untilt.")
    if int(found[2]) > FORMAT:
        raise FileFormatError(
            f"it was written in format {int(found[2])} by a newer untilt; this one ({__version__}) "
            f"reads up to format {FORMAT}. Upgrade untilt."
        )
    computed = hashlib.sha256(memoryview(data)[:-_DIGITS]).hexdigest().encode()
    if not hmac.compare_digest(computed, found[3]):
        raise FileFormatError(
            "it is damaged: its checksum does not match its content. Copy it again from where it "
            "was saved, or save the model again."
        )
    if keys:
        _check_keyed(data, found, keys)
    return Archive(data, comment=found[0])


def has_seal(data: bytes) -> bool:
    """Whether the bytes end as a sealed file does."""
    return _SEAL.search(data[-256:]) is not None


def _check_keyed(data: bytes, found: re.Match[bytes], keys: tuple[bytes, ...]) -> None:
    if found[1] is None:
        raise FileFormatError(
            f"it has no keyed seal, and a key is set ({KEY} or {KEY_FILE}), so only files under a "
            "key are taken. Have it saved with the key set, or unset the key to take any file."
        )
    end = len(data) - (found.end(0) - found.end(1))
    if not any(hmac.compare_digest(_mac(key, data[:-_DIGITS], end), found[1]) for key in keys):
        raise FileFormatError(
            f"it was sealed with another key than the one set ({KEY} or {KEY_FILE}), or changed by "
            "somebody without a key. Do not use it unless you know who wrote it."
        )


def _mac(key: bytes, data: bytes, end: int) -> bytes:
    """The digits of the keyed seal that ends at `end`, over all but themselves and the checksum."""
    message = hmac.new(key, _DOMAIN, hashlib.sha256)
    message.update(memoryview(data)[: end - _DIGITS])
    message.update(memoryview(data)[end:])
    return message.hexdigest().encode()


def seal_keys() -> tuple[bytes, ...]:
    """The keys in the environment, the one to write with first; none where none is set."""
    given, path = os.environ.get(KEY), os.environ.get(KEY_FILE)
    if given is None and path is None:
        return ()
    if given is not None and path is not None:
        raise OptionError(f"{KEY} and {KEY_FILE} are both set. Unset one of them.")
    if given is None:
        assert path is not None
        given = _key_text(path)
    keys = tuple(each.encode("utf-8", "surrogateescape") for each in given.split())
    if not keys or min(map(len, keys)) < SHORTEST_KEY:
        source = KEY if path is None else f"the file named by {KEY_FILE}"
        raise OptionError(
            f"{source} must hold keys of at least {SHORTEST_KEY} characters each. "
            f"Got {f'one of {min(map(len, keys))}' if keys else 'none'}. Make one with: "
            "python -c 'import secrets; print(secrets.token_hex(32))'"
        )
    return keys


def _key_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"the file named by {KEY_FILE} cannot be read ({error}). Give the path of a text file "
            "with a key, or unset the variable."
        ) from error
