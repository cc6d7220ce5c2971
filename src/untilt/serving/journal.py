"""The log of a server: records that are on the disk before anybody is told that they are.

A *segment* is a file of frames that one process writes. Records that arrive while the disk is busy
are written and synced together (group commit), and each is acknowledged after the sync. So a kill
or a power cut can only lose records that nobody was promised: what is torn stands at the end of a
segment and is cut by the reader. What the disk refused is cut by the writer before it goes on.

    segment = "untilt journal 2\\n", salt (16 random bytes), frame, frame, ...
    frame   = mark (4 bytes of the salt), length, check of the head, check of the payload, payload

Both checks are CRC-32, begun with the salt and the frame's place in the file: bytes that a client
sent, or of another place or segment, are no frame. A head that is whole says how long its payload
is, so nothing inside a payload is ever read as a frame, whether it is damaged or torn. (Checks that
follow from the frame before, as in SQLite's log, would lose a second record with each damaged one.)

Why a format of our own: an Arrow IPC stream is written in batches with metadata of some hundred
bytes each, and a group here is often one record; SQLite's log syncs twice and lets one process
write at a time. A frame costs 16 bytes and one `write`, and workers share nothing.
"""

import asyncio
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import TypeVar

from untilt._core.archive import read_whole
from untilt._core.files import lock, make_folder, replacing, sync_folder, sync_handle, write_at
from untilt.data.read.database import link
from untilt.errors import FileFormatError, WriteError

ENDING = ".journal"
_BEGIN, _SALT = b"untilt journal 2\n", 16
_HEAD, _PLACE = struct.Struct("<4sIII"), struct.Struct("<QI")
_BEGIN_1, _MARK_1, _HEAD_1 = b"untilt journal 1\n", b"utlf", struct.Struct("<4sII")  # read alone
MOST_RECORD = 1 << 26  # bytes; a length above is no length
MOST_SEGMENT = 1 << 28
T = TypeVar("T")
Problem = WriteError | None
_Job = tuple[tuple[bytes, ...], "asyncio.Future[Problem]"]
_MOST_FALSE = 100_000  # marks without a frame; who has so many was made to take time


class JournalFullError(WriteError):
    """More records wait for the disk than may be held in memory."""


def framed(records: list[bytes], salt: bytes, place: int) -> bytes:
    """The bytes of records at this place in a segment; at its beginning, with what begins it."""
    parts = [] if place else [_BEGIN, salt]
    place += sum(map(len, parts))
    for each in records:
        check = zlib.crc32(_PLACE.pack(place, len(each)), zlib.crc32(salt))
        head = _HEAD.pack(salt[:4], len(each), check, zlib.crc32(each, check))
        parts += (head, each)
        place += len(head) + len(each)
    return b"".join(parts)


class Journal:
    """The writer of one process. `append` returns once the record is on the disk.

    Parameters
    ----------
    folder : segments go here; several processes may share it
    segment_bytes, segment_seconds : a new segment begins after so much, or after so long
    most_pending : bytes that may wait for the disk; beyond it `append` raises `JournalFullError`
    """

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = 64 << 20,
        segment_seconds: float = 3600.0,
        most_pending: int = 32 << 20,
    ) -> None:
        self.folder = folder
        self.segment_bytes, self.segment_seconds = segment_bytes, segment_seconds
        self.most_pending = most_pending
        self.pending_bytes = self.written_bytes = self.syncs = 0
        # Not of a pool: Python would wait for a thread of it, and that for a disk, for ever.
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="untilt-journal", daemon=True)
        self._thread.start()
        self._declared: dict[str, bytes] = {}
        # The segment that is open: its file, acknowledged bytes, declared records in it.
        self._path, self._handle, self._size, self._told = folder, -1, 0, 0
        self._salt, self._since, self._number, self._refused = b"", 0.0, 0, False
        self._mine = f"{os.getpid()}-{os.urandom(4).hex()}"
        make_folder(folder)

    def declare(self, key: str, payload: bytes) -> None:
        """A record that every segment has before the first record appended from now on.

        What many records refer to, such as the names of features, is written once a segment.
        """
        self._declared.setdefault(key, payload)

    async def append(self, *payloads: bytes) -> None:
        """Write the records and wait until they are on the disk. All or, with an error, none.

        Raises `JournalFullError` where too much waits already, `WriteError` where the disk refuses.
        Who gives up waiting does not take them back: they will be written, unless the disk refuses.
        """
        size = sum(map(len, payloads))
        if self.pending_bytes + size > self.most_pending:
            raise JournalFullError(
                f"{self.pending_bytes:,} bytes wait for the disk, above the limit of "
                f"{self.most_pending:,} may not. Send the request again later."
            )
        if problem := await self._queued(payloads, size):
            raise problem

    def _queued(self, payloads: tuple[bytes, ...], size: int) -> "asyncio.Future[Problem]":
        done: asyncio.Future[Problem] = asyncio.get_running_loop().create_future()
        self.pending_bytes += size
        self._jobs.put((payloads, done))
        return done

    def _work(self) -> None:
        for job in iter(self._jobs.get, None):
            group = [job]
            while not self._jobs.empty() and (other := self._jobs.get()):
                group.append(other)
            problem: Problem = None
            try:
                self._write([each for payloads, _ in group for each in payloads])
            except Exception as error:  # whatever it is, nobody may wait for ever
                problem = WriteError(
                    f"the log in {self.folder} could not be written: "
                    f"{getattr(error, 'strerror', None) or error}. Make room there.",
                    getattr(error, "errno", None),
                )
            with suppress(RuntimeError):  # the server has ended
                job[1].get_loop().call_soon_threadsafe(self._written, group, problem)
        self._end()

    def _written(self, group: "list[_Job]", problem: "Problem") -> None:
        for payloads, done in group:
            self.pending_bytes -= sum(map(len, payloads))
            tell(done, problem)

    def _write(self, records: list[bytes]) -> None:
        if self._refused:
            self._take_back()
        if not records:
            return
        if self._size >= self.segment_bytes or monotonic() - self._since > self.segment_seconds:
            self._end()
        is_new = self._handle < 0
        if is_new:
            self._begin()
        try:
            declared = list(self._declared.values())
            data = framed([*declared[self._told :], *records], self._salt, self._size)
            write_at(self._handle, data, self._size)
            sync_handle(self._handle)
            if is_new:
                sync_folder(self.folder)
        except BaseException:
            self._refused = True
            with suppress(OSError):
                self._take_back()
            raise
        self._told = len(declared)
        self._size += len(data)
        self.written_bytes += len(data)
        self.syncs += 1

    def _begin(self) -> None:
        self._number += 1
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self._path = self.folder / f"{now}-{self._mine}-{self._number:06d}{ENDING}"
        how = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        self._handle = os.open(self._path, how, 0o640)
        lock(self._handle, wait=True)  # `_held` asks for it
        self._salt, self._since, self._size, self._told = os.urandom(_SALT), monotonic(), 0, 0

    def _take_back(self) -> None:
        """Cut what was not acknowledged, and end the segment. Before, nothing else is written."""
        if self._size:
            os.ftruncate(self._handle, self._size)
            sync_handle(self._handle)
        else:
            self._path.unlink(missing_ok=True)
            sync_folder(self.folder)
        self._refused = False
        self._end()

    def _end(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle, self._size = -1, 0

    async def close(self) -> None:
        """Wait for what is under way, then end the segment."""
        await self._queued((), 0)
        self._jobs.put(None)
        self._thread.join(1.0)


def tell(done: "asyncio.Future[T]", result: T) -> None:
    """Set a result, unless nobody waits any more."""
    if not done.done():
        done.set_result(result)


# Reading.


@dataclass
class SegmentRead:
    """One segment as it was read.

    size : its bytes
    cut : bytes at its end that are no whole record: a torn tail, never acknowledged
    damaged : bytes before a later whole record that are none; a disk lost them
    bad : records that no server writes, left out
    last_day : of the lists in it
    """

    path: Path
    size: int = 0
    records: int = 0
    cut: int = 0
    damaged: int = 0
    bad: int = 0
    last_day: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether every byte but a torn tail is a record of a server."""
        return not (self.damaged or self.bad)


def segments(folder: Path) -> list[Path]:
    """The segments in a folder, the oldest first."""
    return sorted(folder.glob(f"*{ENDING}"))


def removed(read: SegmentRead) -> bool:
    """Remove a segment that nobody writes to and that is as it was read; whether it went."""
    with _held(read) as is_free:
        if is_free:
            read.path.unlink()
    return is_free


def mended(read: SegmentRead, is_good: Callable[[bytes], bool]) -> list[str]:
    """Put a segment of the good records in the place of one, and that one into `damaged`."""
    with _held(read) as is_free:
        if not is_free:
            return []
        aside = _damaged(read.path)
        link(str(read.path), str(aside))
        good = [each for each in payloads(read.path, SegmentRead(read.path)) if is_good(each)]
        with replacing(read.path) as temporary:
            temporary.write_bytes(framed(good, os.urandom(_SALT), 0))
    return [aside.name]


def moved_aside(path: Path) -> str:
    """Put what is no segment into `damaged`."""
    aside = _damaged(path)
    path.rename(aside)
    sync_folder(path.parent)
    return aside.name


def _damaged(path: Path) -> Path:
    """A new name in the folder `damaged`."""
    folder = path.parent / "damaged"
    make_folder(folder)
    return next(
        place for n in count() if not (place := folder / (path.name + f".{n}" * (n > 0))).exists()
    )


@contextmanager
def _held(read: SegmentRead) -> Iterator[bool]:
    """Whether nobody writes to a segment that has the size with which it was read.

    Its lock is taken first: a server may have written to it since, and let go.
    """
    try:
        handle = os.open(read.path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        yield False
        return
    try:
        yield lock(handle, wait=False) and os.fstat(handle).st_size == read.size > 0
    finally:
        os.close(handle)


def payloads(path: Path, read: SegmentRead) -> Iterator[bytes]:
    """The whole records of a segment, in order; what was cut is counted in `read`.

    Where a head is broken, the next whole one is looked for, so that what a damaged disk lost does
    not take the rest of the file with it. The work is bounded by the size of the file.
    """
    data = read_whole(path, most=MOST_SEGMENT, what="a segment", follow=False)
    read.size = read.cut = len(data)
    first = len(_BEGIN) + _SALT
    if len(data) < first and any(each.startswith(data[:17]) for each in (_BEGIN, _BEGIN_1)):
        return  # killed while it began
    salt, mark, head = data[len(_BEGIN) : first], data[len(_BEGIN) : first][:4], _HEAD
    if data.startswith(_BEGIN_1):
        salt, mark, head, first = b"", _MARK_1, _HEAD_1, len(_BEGIN_1)
    elif not data.startswith(_BEGIN):
        raise FileFormatError(
            f"{path} is no segment of a server's log: its first bytes are wrong. Move it out of "
            "the folder."
        )
    view, start, at, good, false = memoryview(data), zlib.crc32(salt), first, first, 0
    while 0 <= (at := data.find(mark, at)) <= len(data) - head.size and false < _MOST_FALSE:
        _, length, *checks = head.unpack_from(data, at)
        begin, end = at + head.size, at + head.size + length
        # Journal 1 had one check, of length and payload.
        check = zlib.crc32(_PLACE.pack(at, length) if salt else view[at + 4 : at + 8], start)
        if length > MOST_RECORD or (salt and checks[0] != check):
            at, false = at + 1, false + 1
            continue
        if end > len(data):
            break
        if zlib.crc32(view[begin:end], check) == checks[-1]:
            read.damaged += at - good
            read.records += 1
            good = end
            yield bytes(view[begin:end])
        at = end
    read.cut = len(data) - good
