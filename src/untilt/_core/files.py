"""Files are written whole or not at all, and nothing of anybody else is touched on the way.

What is unfinished lies beside its final place under a name with a mark of our own. Its writer
holds a lock on it, which the operating system lets go of when the process ends, however it ends:
the next writer in the same folder removes what has our mark and no living writer.
"""

import errno
import hashlib
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from untilt._core.paths import check_name
from untilt.errors import OptionError, WriteError

MARK = ".untilt-"
# The writer's machine by its name and by its start, then letters that no other file has. A lock
# tells the living from the dead better than a process number, which is used again and means
# nothing in another container; the machine stands in the name because not every shared disk
# carries locks from one machine to another.
_OURS = re.compile(
    r"\.untilt-(unfinished|moving)-([0-9a-f]{8})-([0-9a-f]{8})-[0-9a-f]{12}(\..*)?", re.DOTALL
)
_LONGEST_ENDING = 40
_DAY = 24 * 3600.0


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well.

    Ctrl-C, a kill or an error leaves the old file, or none; never half of the new one. The bytes
    are on the disk before the name is, so that this holds for a power cut too. A file that stood
    there passes its permissions on. A link is replaced, and what it points to is left alone.
    Raises `WriteError` where the place cannot be written to.
    """
    final = Path(path)
    check_name(final)
    with _explained(final):
        mode = _mode_for(final)
        make_folder(final.parent)
        clear_unfinished(final.parent)
        temporary, handle = _new_file(final, 0o666 if mode is None else mode | 0o600)
        try:
            yield temporary
            _sync(temporary)
            if mode is not None:
                os.chmod(temporary, mode)
            if os.name == "nt":  # nothing that is open can be renamed there
                os.close(handle)
                handle = -1
            os.replace(temporary, final)
            sync_folder(final.parent)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            if handle >= 0:
                os.close(handle)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file by `replacing`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing_all(folder: str | os.PathLike[str], names: Iterable[str]) -> Iterator[Path]:
    """An empty folder for files that belong together; they take their places when it ends well.

    All files are written before the first one is moved. Then old files of these names go, and
    after that the new ones come: at no moment do old and new ones lie side by side. A kill before
    the moves leaves the old set whole. A kill between them, a matter of milliseconds, leaves a part
    of one set, and the next writer in this folder completes the new one. Files of other names are
    not touched.

    One swap of two folders would leave no such moment, but it takes files of others with it,
    cannot replace a mounted folder, and leaves a shell that stands in the folder in a removed one.
    """
    final, wanted = Path(folder), sorted(names)
    check_name(final)
    with _explained(final):
        make_folder(final)
        clear_unfinished(final)
        for name in wanted:
            _mode_for(final / name)
        staging, handle = _new_folder(final)
        try:
            yield staging
            written = sorted(os.listdir(staging))
            assert written == wanted, f"{written} were written, not {wanted}"
            for name in written:
                _sync(staging / name)
            sync_folder(staging)
            moving = final / staging.name.replace("unfinished", "moving", 1)
            os.rename(staging, moving)
            sync_folder(final)
            _move_all(moving, final)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            if handle is not None:
                os.close(handle)


def _move_all(moving: Path, final: Path) -> None:
    """Old files of these names go, then the new ones come; right after any interruption too."""
    # A name that still lies here has not been moved, so what has it outside is old.
    names = os.listdir(moving)
    for name in names:
        (final / name).unlink(missing_ok=True)
    sync_folder(final)
    for name in names:
        os.replace(moving / name, final / name)
    sync_folder(final)
    moving.rmdir()


def append_line(path: str | os.PathLike[str], line: str) -> None:
    """Add a line to a file that several processes may add to: whole or not at all.

    A last line that a kill cut is closed off first. Raises `WriteError` where there is no room.
    """
    final = Path(path)
    with _explained(final):
        make_folder(final.parent)
        handle = os.open(final, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            lock(handle, wait=True)
            size = os.lseek(handle, 0, os.SEEK_END)
            os.lseek(handle, max(0, size - 1), os.SEEK_SET)
            is_cut = size > 0 and os.read(handle, 1) != b"\n"
            try:
                write_at(handle, f"{chr(10) * is_cut}{line}\n".encode(), size)
                sync_handle(handle)
            except OSError:
                os.ftruncate(handle, size)
                raise
        finally:
            os.close(handle)


@contextmanager
def scratch_folder(parent: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """A folder for this block alone, in the system's temporary folder where no other is named.

    One that a killed process left is removed by the next that makes one there.
    """
    place = Path(tempfile.gettempdir() if parent is None else parent)
    clear_unfinished(place)
    folder, handle = _new_folder(place, mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def clear_unfinished(folder: Path) -> None:
    """Remove what killed writers left in this folder, and complete what they were moving.

    Nothing without our mark, of a living writer, or of another machine is touched.
    """
    try:
        with os.scandir(folder) as entries:
            marked = [entry for entry in entries if entry.name.startswith(MARK)]
    except OSError:
        return
    for entry in marked:
        found = _OURS.fullmatch(entry.name)
        if found is None or not {found[2], found[3]} & set(_machine()):
            continue
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
                _clear(Path(entry.path), moving=found[1] == "moving")


def _clear(path: Path, *, moving: bool) -> None:
    handle = _hold(path)
    if handle is None:
        return
    try:
        if not path.is_dir():
            path.unlink(missing_ok=True)
        elif moving:
            _move_all(path, path.parent)
        else:
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(handle)


# Names and locks.


@cache
def _machine() -> tuple[str, str]:
    """Marks of this machine: by its name, and since its start.

    Containers on one machine have names of their own and share locks and the start; a machine that
    was started anew has its name from before.
    """
    name = platform.node()
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        started = name
    name_mark, start_mark = (
        hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8] for text in (name, started)
    )
    return name_mark, start_mark


def _new_name(kind: str, ending: str = "") -> str:
    return f"{MARK}{kind}-{'-'.join(_machine())}-{os.urandom(6).hex()}{ending}"


def _new_file(final: Path, mode: int) -> tuple[Path, int]:
    """A new empty file that this process holds, with the permissions that any new file gets."""
    ending = "".join(final.suffixes[-2:])  # writers choose their format by it
    if len(os.fsencode(ending)) > _LONGEST_ENDING:
        ending = ""
    while True:
        path = final.parent / _new_name("unfinished", ending)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_INHERIT, mode)
        lock(handle, wait=True)
        if _is_there(path, handle):
            return path, handle
        os.close(handle)


def _new_folder(parent: Path, mode: int = 0o777) -> tuple[Path, int | None]:
    """A new empty folder that this process holds; None where folders cannot be held."""
    while True:
        path = parent / _new_name("unfinished")
        path.mkdir(mode)
        try:
            handle = _hold(path, wait=True)
        except FileNotFoundError:
            continue
        if handle is None or _is_there(path, handle):
            return path, handle
        os.close(handle)


def _is_there(path: Path, handle: int) -> bool:
    """Whether a new path is still what was opened.

    Somebody who cleans up may see it before it is locked, take it for a dead one, lock it and
    remove it: hence one waits for the lock of something new, and then looks.
    """
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


_NO_INHERIT = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


def _hold(path: Path, *, wait: bool = False) -> int | None:
    """The path, opened and locked; None where a living process has it, or nobody can tell."""
    if os.name == "nt":
        # Folders cannot be opened; a file that is open cannot be removed, nobody needs to ask.
        quiet = time.time() - path.stat().st_mtime > _DAY
        return os.open(os.devnull, os.O_RDONLY) if quiet else None
    how = os.O_RDONLY | os.O_DIRECTORY if path.is_dir() else os.O_RDWR
    handle = os.open(path, how | os.O_NOFOLLOW | _NO_INHERIT)
    if lock(handle, wait=wait):
        return handle
    os.close(handle)
    return None


def lock(handle: int, *, wait: bool) -> bool:
    """Whether the lock could be had; not where another has it or the disk knows no locks."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):
        return False
    return True


def unlock(handle: int) -> None:
    """Let go of a lock, where the system has such locks."""
    with suppress(ImportError):
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_UN)


@contextmanager
def holding(folder: Path, who: str) -> Iterator[None]:
    """Hold a folder; refuse where another process holds it. Not where the disk knows no locks."""
    with ExitStack() as stack:
        with suppress(ImportError):
            import fcntl

            handle = os.open(folder, os.O_RDONLY | _NO_INHERIT)
            stack.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OptionError(f"{who} works in {folder}. Wait for it or stop it.") from None
            except OSError:
                pass
        yield


def remove_if_nothing(path: Path) -> None:
    """Remove a link to nowhere or an empty folder; everything else stays."""
    with suppress(OSError):
        if path.is_symlink() and not path.exists():
            path.unlink()
        elif path.is_dir():
            path.rmdir()  # which refuses where there is something in it


# Folders, permissions and the way to the disk. What must last through a power cut goes to the disk
# by `sync_handle` and `sync_folder` alone: tests/torture/power.py forgets all else.


def write_at(handle: int, data: bytes, place: int) -> None:
    """Write all of it there, however many calls that takes."""
    os.lseek(handle, place, os.SEEK_SET)
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def make_folder(folder: Path) -> None:
    """Make the folder and those above it, as lasting as the files in it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def _mode_for(final: Path) -> int | None:
    """The permissions of the file that stands there; None where there is none."""
    try:
        found = final.stat()
    except FileNotFoundError:  # or a link to nothing
        return None
    if stat.S_ISDIR(found.st_mode):
        raise OptionError(f"{final} is a folder. Give the name of a file in it.")
    if not stat.S_ISREG(found.st_mode) or os.path.realpath(final.parent) == "/dev":
        raise OptionError(
            f"{final} is a device or a pipe, and a file would take its place. Give the name of a "
            "file."
        )
    return None if final.is_symlink() else stat.S_IMODE(found.st_mode) & 0o777


def _sync(path: Path) -> None:
    """Have the bytes of a file on the disk."""
    _sync_opened(path, os.O_RDWR)


def _sync_opened(path: Path, how: int) -> None:
    handle = os.open(path, how | _NO_INHERIT)
    try:
        sync_handle(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system can."""
    if os.name != "nt":
        with suppress(PermissionError):  # a folder to drop files into, which may not be read
            _sync_opened(folder, os.O_RDONLY | os.O_DIRECTORY)


def sync_handle(handle: int) -> None:
    """Have the bytes of an open file on the disk."""
    try:
        if sys.platform == "darwin":
            import fcntl  # fsync there leaves bytes in the memory of the drive

            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        else:
            os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise


# What a person is told where nothing can be written.

_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
_WHILE_WRITING = (*_FULL, errno.EFBIG, errno.EROFS, errno.EIO)


@contextmanager
def _explained(final: Path) -> Iterator[None]:
    """Errors of the system about this place become sentences."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        if not _is_about(error, final):
            raise
        what = str(error) if error.errno is None else os.strerror(error.errno)
        raise WriteError(
            f"{final} could not be written: {what}. {_advice(error.errno)}", error.errno
        ) from error


def _is_about(error: OSError, final: Path) -> bool:
    """Not where a block that writes failed to read something else."""
    named = [Path(os.fsdecode(each)) for each in (error.filename, error.filename2)
             if isinstance(each, str | bytes | os.PathLike)]  # fmt: skip
    if not named:
        return error.errno in _WHILE_WRITING
    ours = (final, *final.parents)
    return any(each in ours or any(p.startswith(MARK) for p in each.parts) for each in named)


def _advice(number: int | None) -> str:
    if number in _FULL:
        return "Make room there or choose another place; nothing was left half-written."
    if number == errno.EFBIG:
        return "Raise the limit on the size of files (ulimit -f) or choose another place."
    return "Choose a place that exists and that you may write to."
