"""The state of a training in one file of arrays, written whole or not at all; never pickle."""

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.archive import Archive, from_npy_bytes, read_whole
from untilt._core.arrays import AnyArray
from untilt._core.files import replacing
from untilt._core.restored import fits
from untilt.errors import FileFormatError, MemoryLimitError

_FORMAT = 1  # of a checkpoint
_HEAD: dict[str, Any] = {
    "format": int, "fingerprint": str, "n_leaves": int, "n_best": int, "told": dict,
}  # fmt: skip
NUMBERS: dict[str, Any] = {
    "epoch": int, "step": int, "losses": list[float], "watched": list[float], "best_epoch": int,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of training after an epoch.

    Parameters
    ----------
    fingerprint : what is trained on what; a checkpoint of something else is refused
    leaves : the arrays of parameters and optimiser state, in the order of the pytree
    best : the leaves of the best parameters so far, or none
    companion : arrays of whatever else changes from epoch to epoch
    numbers : epoch, step, losses, watched values: numbers and lists of them
    """

    fingerprint: str
    leaves: tuple[AnyArray, ...]
    best: tuple[AnyArray, ...]
    companion: Mapping[str, AnyArray]
    numbers: Mapping[str, Any]


def save_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write it whole or not at all."""
    head = {
        "format": _FORMAT,
        "fingerprint": checkpoint.fingerprint,
        "n_leaves": len(checkpoint.leaves),
        "n_best": len(checkpoint.best),
        "told": dict(checkpoint.numbers),
    }
    arrays = {f"leaf_{i}": leaf for i, leaf in enumerate(checkpoint.leaves)}
    arrays |= {f"best_{i}": leaf for i, leaf in enumerate(checkpoint.best)}
    arrays |= {f"companion_{name}": array for name, array in checkpoint.companion.items()}
    arrays["head"] = np.frombuffer(json.dumps(head).encode(), dtype=np.uint8)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load_checkpoint(path: str | os.PathLike[str], *, fingerprint: str) -> Checkpoint | None:
    """The checkpoint at this path, or None where there is no file."""
    if not Path(path).exists():
        return None
    arrays = _arrays(path)
    head = _head(path, arrays)
    if head["fingerprint"] != fingerprint:
        raise FileFormatError(
            f"the checkpoint {os.fspath(path)!r} belongs to another training: other data, options "
            "or seed. Delete it to start anew, or give checkpoint= another name."
        )
    prefix = "companion_"
    try:
        leaves = tuple(arrays[f"leaf_{i}"] for i in range(head["n_leaves"]))
        best = tuple(arrays[f"best_{i}"] for i in range(head["n_best"]))
    except KeyError as error:
        raise damaged(path) from error
    return Checkpoint(
        fingerprint=fingerprint,
        leaves=leaves,
        best=best,
        companion={
            name.removeprefix(prefix): array
            for name, array in arrays.items()
            if name.startswith(prefix)
        },
        numbers=head["told"],
    )


def _arrays(path: str | os.PathLike[str]) -> dict[str, AnyArray]:
    try:
        parts = Archive(read_whole(path))
        return {
            name.removesuffix(".npy"): from_npy_bytes(parts.read(name)) for name in parts.unread
        }
    except MemoryLimitError:
        raise
    except (OSError, ValueError, RuntimeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise damaged(path) from error


def _head(path: str | os.PathLike[str], arrays: dict[str, AnyArray]) -> dict[str, Any]:
    try:
        head: Any = json.loads(arrays["head"].tobytes())
    except (KeyError, ValueError, RecursionError) as error:
        raise damaged(path) from error
    if isinstance(head, dict) and head.get("format", _FORMAT) != _FORMAT:
        raise FileFormatError(
            f"the checkpoint {os.fspath(path)!r} has format {head['format']!r:.20}; this untilt "
            f"reads {_FORMAT}. Delete it to start anew."
        )
    if not _are(head, _HEAD) or not _are(head["told"], NUMBERS):
        raise damaged(path)
    known: dict[str, Any] = head
    return known


def _are(values: Any, kinds: Mapping[str, Any]) -> bool:
    """Whether values of a file have exactly these names and types."""
    same = isinstance(values, dict) and values.keys() == kinds.keys()
    return same and all(fits(values[name], kind) for name, kind in kinds.items())


def damaged(path: str | os.PathLike[str]) -> FileFormatError:
    """The error for a file that does not hold what it should."""
    return FileFormatError(
        f"{os.fspath(path)!r} is no checkpoint that can be read. Delete it to start anew."
    )
