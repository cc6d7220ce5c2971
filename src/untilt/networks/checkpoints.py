"""Training that was cut short goes on where it was: one file of arrays, never pickle."""

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.arrays import AnyArray
from untilt._core.files import replacing
from untilt.errors import FileFormatError

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where training stands after an epoch.

    Parameters
    ----------
    fingerprint : what is trained on what; a checkpoint of something else is refused
    leaves : the arrays of parameters and optimiser state, in the order of the pytree
    best : the leaves of the best parameters so far, or none
    companion : arrays of whatever else changes from epoch to epoch
    told : epoch, step, losses, watched values: numbers and lists of them
    """

    fingerprint: str
    leaves: tuple[AnyArray, ...]
    best: tuple[AnyArray, ...]
    companion: Mapping[str, AnyArray]
    told: Mapping[str, Any]


def save_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write it whole or not at all."""
    head = {
        "format": _FORMAT,
        "fingerprint": checkpoint.fingerprint,
        "n_leaves": len(checkpoint.leaves),
        "n_best": len(checkpoint.best),
        "told": dict(checkpoint.told),
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
    return Checkpoint(
        fingerprint=fingerprint,
        leaves=tuple(arrays[f"leaf_{i}"] for i in range(head["n_leaves"])),
        best=tuple(arrays[f"best_{i}"] for i in range(head["n_best"])),
        companion={
            name.removeprefix(prefix): array
            for name, array in arrays.items()
            if name.startswith(prefix)
        },
        told=head["told"],
    )


def _arrays(path: str | os.PathLike[str]) -> dict[str, AnyArray]:
    try:
        # Opened here: NumPy leaves the file open where it turns out to be damaged.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays.items())
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise _damaged(path) from error


def _head(path: str | os.PathLike[str], arrays: dict[str, AnyArray]) -> dict[str, Any]:
    try:
        head: dict[str, Any] = json.loads(arrays["head"].tobytes())
        known = head["format"]
    except (KeyError, ValueError) as error:
        raise _damaged(path) from error
    if known != _FORMAT:
        raise FileFormatError(
            f"the checkpoint {os.fspath(path)!r} has format {known}; this untilt reads {_FORMAT}. "
            "Delete it to start anew."
        )
    return head


def _damaged(path: str | os.PathLike[str]) -> FileFormatError:
    return FileFormatError(
        f"{os.fspath(path)!r} is no checkpoint that can be read. Delete it to start anew."
    )
