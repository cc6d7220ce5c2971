"""What a run reads: the fingerprint of its content, and whether that changes meanwhile.

The fingerprint is SHA-256 over all bytes of all files, taken at every start. Size and time of
change are no substitute: copying tools set both. A sample of a large file would miss an edit.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

from untilt._core.progress import progress
from untilt.data.read.files import Files, located, refuse_changed, stamps
from untilt.data.read.ubi import Ubi


class Inputs:
    """The files that a run reads, as they were when their fingerprints were taken."""

    def __init__(self) -> None:
        self._seen: list[tuple[Files, list[Any]]] = []

    def fingerprint(self, source: Any) -> list[Any] | None:
        """Names and content of the files behind a source of `read_log`; None where it is no file.

        A folder such as day=1 adds a column to its files, so it is part of their names.
        """
        if isinstance(source, Ubi):
            both = [self.fingerprint(part) for part in (source.queries, source.events)]
            return None if None in both else [*both, source.hits_shown]
        found = located(source)
        if not isinstance(found, Files):
            return None
        self._seen.append((found, stamps(found)))
        names = [name for name in found.with_changes if os.path.isfile(name)]
        with progress("looking whether the input is the same", total=_size(names)) as advance:
            digests = [[_name(name), _digest(name, advance)] for name in names]
        return [*digests, *([] if found.table is None else [str(found.table)])]

    def refuse_changed(self) -> None:
        """Raise where a file is not what it was when its fingerprint was taken."""
        for files, before in self._seen:
            refuse_changed(files, before)


def _name(file: str) -> str:
    path = Path(file)
    return "/".join([*(part for part in path.parts[:-1] if "=" in part), path.name])


def _size(names: list[str]) -> int:
    return sum(os.path.getsize(name) for name in names)


def _digest(name: str, advance: Any) -> str:
    digest = hashlib.sha256()
    with open(name, "rb") as content:
        while block := content.read(1 << 22):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()
