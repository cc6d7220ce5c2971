"""One run at a time in a folder."""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from untilt.errors import OptionError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the folder; refuse where another process that is alive holds it.

    The operating system keeps the lock and lets go of it when its process ends, however it ends,
    so a lock is never left over by a kill and no file of a dead process stands in the way.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        if not _taken(file):
            raise OptionError(
                f"another run works in {path.parent.parent}{_holder(path)}. Wait for it or stop "
                "it; a second one needs a folder of its own."
            )
        file.truncate(0)
        json.dump(
            {
                "process": os.getpid(),
                "machine": platform.node(),
                "since": datetime.now(UTC).isoformat(timespec="seconds"),
            },
            file,
        )
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
            _let_go(file)


def _holder(path: Path) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return f" (process {found['process']} on {found['machine']} since {found['since']})"
    return ""


def _taken(file: Any) -> bool:
    """Whether the lock could be had."""
    try:
        import fcntl
    except ImportError:
        return _taken_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _let_go(file: Any) -> None:
    with suppress(ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)


def _taken_on_windows(file: Any) -> bool:
    import msvcrt

    # One byte far behind the text, so that others can still read who holds it.
    file.seek(1 << 20)
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    return True
