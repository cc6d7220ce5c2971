"""A ranker in one file: versioned, checked, and nothing in it is ever run.

The file is a zip archive that any tool opens: `untilt.json` tells all that people want to know
(kind, versions, parameters, feature names, weighting, bias, training summary), large arrays and
LightGBM's text model lie beside it. It ends with the format's version and the SHA-256 of all
bytes before the digest, so damage anywhere, down to one bit, is found before anything is read.
"""

import hashlib
import io
import json
import os
import platform
import re
import zipfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from untilt._core.files import replacing
from untilt._version import __version__
from untilt.errors import FileFormatError, OptionError
from untilt.rankers.base import Ranker
from untilt.rankers.persist_codec import Decoder, Encoder, Parts
from untilt.rankers.persist_types import is_known, known_class, register

__all__ = ["FORMAT", "load", "register", "save"]

FORMAT = 1
HEADER = "untilt.json"
_SEAL = "untilt ranker {format} sha256 "
_SEALED = re.compile(rb"untilt ranker (\d{1,9}) sha256 ([0-9a-f]{64})\Z")
_DIGEST_BYTES = 64
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "lightgbm")


def save(ranker: Ranker, path: str | os.PathLike[str]) -> None:
    """Write a fitted ranker to one file, whole or not at all; `load` reads it."""
    ranker._check_fitted()
    if not is_known(ranker):
        raise OptionError(
            f"{type(ranker).__name__} is not known to untilt. Pass the class to "
            "untilt.register before saving and before loading."
        )
    encoder = Encoder()
    header = {
        "format": FORMAT,
        "kind": type(ranker).__name__,
        "untilt": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "libraries": {"python": platform.python_version()}
        | {library: version(library) for library in _LIBRARIES},
        "parameters": encoder.encode(ranker.get_params(deep=False), "parameters"),
        "state": encoder.encode(ranker._state(), "state"),
    }
    data = _sealed({HEADER: _json_bytes(header), **encoder.parts})
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def load(path: str | os.PathLike[str]) -> Any:
    """The ranker that `save` wrote. Raises `FileFormatError` if the file is anything else."""
    data = Path(path).read_bytes()
    try:
        parts = _unsealed(data)
        return _ranker_of(json.loads(parts[HEADER]), parts)
    except FileFormatError as error:
        raise FileFormatError(f"{path} cannot be loaded: {error}") from error
    except _UNREADABLE as error:
        raise FileFormatError(
            f"{path} cannot be loaded: its checksum is right, but this untilt ({__version__}) "
            f"cannot make a ranker of it ({type(error).__name__}: {error}). Use the untilt that "
            "wrote it; its version stands in untilt.json inside the file."
        ) from error


# What reading a well-sealed file of unexpected content can raise; everything else is a bug of ours.
_UNREADABLE = (
    zipfile.BadZipFile, KeyError, IndexError, TypeError, ValueError, AttributeError,
    NotImplementedError, RuntimeError, EOFError,
)  # fmt: skip


def _ranker_of(header: dict[str, Any], parts: Parts) -> Ranker:
    cls = known_class(header["kind"])
    if not issubclass(cls, Ranker):
        raise FileFormatError(f"a {cls.__name__} is no ranker.")
    decoder = Decoder(parts)
    ranker = cls(**decoder.decode(header["parameters"]))
    state = decoder.decode(header["state"])
    if not all(name.endswith("_") and not name.startswith("_") for name in state):
        raise FileFormatError("it holds values that no ranker learns.")
    ranker._restore(state)
    return ranker


def _json_bytes(header: dict[str, Any]) -> bytes:
    return json.dumps(header, indent=1, allow_nan=False, ensure_ascii=False).encode()


def _sealed(parts: Parts) -> bytes:
    """A zip archive whose comment, its very end, is the seal."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            # A fixed date: the header tells when it was made, and equal rankers differ there alone.
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        archive.comment = (_SEAL.format(format=FORMAT) + "0" * _DIGEST_BYTES).encode()
    body = buffer.getvalue()[:-_DIGEST_BYTES]
    return body + hashlib.sha256(body).hexdigest().encode()


def _unsealed(data: bytes) -> Parts:
    seal = _SEALED.search(data[-256:])
    if seal is None:
        raise FileFormatError(_what_else(data))
    if int(seal[1]) > FORMAT:
        raise FileFormatError(
            f"it was written in format {int(seal[1])} by a newer untilt; this one ({__version__}) "
            f"reads up to format {FORMAT}. Upgrade untilt."
        )
    if hashlib.sha256(data[:-_DIGEST_BYTES]).hexdigest().encode() != seal[2]:
        raise FileFormatError(
            "it is damaged: its checksum does not match its content. Copy it again from where it "
            "was saved, or save the ranker again."
        )
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _what_else(data: bytes) -> str:
    """What a file without a seal seems to be, and what to do with it."""
    if not data:
        return "it is empty. Save the ranker again."
    # The name of the first entry stands at byte 30 of a zip archive.
    if data[30 : 30 + len(HEADER)] == HEADER.encode():
        return (
            f"it begins as a ranker of untilt, but its end is missing or changed ({len(data):,} "
            "bytes were found). Copy it again from where it was saved, or save the ranker again."
        )
    if data.startswith(b"tree\n"):
        return (
            "it is a LightGBM text model, not a ranker saved by untilt. Read it with "
            "lightgbm.Booster(model_file=...)."
        )
    if data.lstrip()[:1] == b"{":
        return (
            "it is JSON, not a ranker saved by untilt. A position bias is read by "
            "ut.PositionBias.load(path)."
        )
    return "it is no ranker saved by untilt. Write one with ranker.save(path)."
