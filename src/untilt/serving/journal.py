"""The log of a server: records that are on the disk before anybody is told that they are.

A *segment* is a file of frames, each with its length and a checksum, that one process writes and
nobody ever writes to again. Records that arrive while the disk is busy are written and synced
together (group commit), and each is acknowledged after the sync. So a kill or a power cut can only
lose records that nobody was promised: what is torn stands at the end of a segment, fails its
checksum and is cut by the reader.

Why a format of our own: an Arrow IPC stream is written in batches with metadata of some hundred
bytes each, and a group here is often one record; SQLite's log syncs twice and lets one process
write at a time. A frame costs 12 bytes and one `write`, and workers share nothing.

    segment = "untilt journal 1\\n", frame, frame, ...
    frame   = "utlf", length (4 bytes), CRC-32 of length and payload (4 bytes), payload
"""

import asyncio
import os
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from untilt._core.files import lock, make_folder, sync_folder, sync_handle
from untilt.errors import FileFormatError, OptionError, WriteError

ENDING = ".journal"
_BEGIN = b"untilt journal 1\n"
_MARK = b"utlf"
_HEAD = struct.Struct("<4sII")
MOST_RECORD = 1 << 26  # bytes; a length above is no length
MOST_DECLARED = 1 << 20  # bytes that every segment begins with


class JournalFullError(OptionError):
    """More records wait for the disk than may be held in memory."""


def frame(payload: bytes) -> bytes:
    """The payload with its mark, length and checksum."""
    length = len(payload).to_bytes(4, "little")
    return _HEAD.pack(_MARK, len(payload), zlib.crc32(payload, zlib.crc32(length))) + payload


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
        self.pending_bytes = self.written_bytes = self.syncs = self.records = 0
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="untilt-journal")
        self._handle, self._size, self._since, self._number = -1, 0, 0.0, 0
        self._preamble: dict[str, bytes] = {}
        self._repeat = False  # a declared record may be missing in this segment
        self._mine = f"{os.getpid()}-{os.urandom(4).hex()}"
        make_folder(folder)

    def declare(self, key: str, payload: bytes, *, bounded: bool = True) -> None:
        """A record that every segment has before the first record appended from now on.

        What many records refer to, such as the names of features, is written once a segment.
        Raises `JournalFullError` where these would become too many to be held in memory, unless it
        is not `bounded`.
        """
        if key not in self._preamble:
            held = sum(map(len, self._preamble.values()))
            if bounded and held + len(payload) > MOST_DECLARED:
                raise JournalFullError(
                    f"more than {MOST_DECLARED:,} bytes would stand at the beginning of each "
                    "segment."
                )
            self._preamble[key] = frame(payload)
            # Also where no segment is open: one may just be beginning in the other thread.
            self._waiting.append((self._preamble[key], _loop().create_future()))

    async def append(self, *payloads: bytes) -> None:
        """Write the records and wait until they are on the disk. All or, with an error, maybe none.

        Raises `JournalFullError` where too much waits already, `WriteError` where the disk refuses.
        """
        data = b"".join(map(frame, payloads))
        if self.pending_bytes + len(data) > self.most_pending:
            raise JournalFullError(
                f"{self.pending_bytes:,} bytes wait for the disk, and more than "
                f"{self.most_pending:,} may not. Send the request again later."
            )
        done: asyncio.Future[None] = _loop().create_future()
        self._waiting.append((data, done))
        self.pending_bytes += len(data)
        if self._flushing is None or self._flushing.done():
            self._flushing = _loop().create_task(self._flush())
        await done
        self.records += len(payloads)

    async def _flush(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            data = b"".join(each for each, _ in group)
            problem: BaseException | None = None
            try:
                await _loop().run_in_executor(self._disk, self._write, data)
            except OSError as error:
                problem = WriteError(
                    f"the log in {self.folder} could not be written: {error.strerror or error}. "
                    "Make room there.",
                    error.errno,
                )
            self.pending_bytes = sum(len(each) for each, _ in self._waiting)
            for _, done in group:
                if done.cancelled():
                    continue
                if problem is None:
                    done.set_result(None)
                else:
                    done.set_exception(problem)
                    done.exception()  # whoever waits raises it; a declared record has nobody

    def _write(self, data: bytes) -> None:
        full = self._size >= self.segment_bytes
        if self._handle < 0 or full or monotonic() - self._since > self.segment_seconds:
            self._begin()
        elif self._repeat:
            data = b"".join(list(self._preamble.values())) + data
        try:
            _write_all(self._handle, data)
            sync_handle(self._handle)
        except OSError:
            # What was not acknowledged is taken back; if not even that works, the next segment
            # begins and the reader cuts the tail of this one.
            self._repeat = True
            try:
                os.ftruncate(self._handle, self._size)
                os.lseek(self._handle, self._size, os.SEEK_SET)
            except OSError:
                self._end()
            raise
        self._repeat = False
        self._size += len(data)
        self.written_bytes += len(data)
        self.syncs += 1

    def _begin(self) -> None:
        self._end()
        self._number += 1
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        name = f"{now}-{self._mine}-{self._number:06d}{ENDING}"
        how = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        handle = os.open(self.folder / name, how, 0o640)
        lock(handle, wait=False)  # `is_closed` asks for it
        try:
            begin = _BEGIN + b"".join(self._preamble.values())
            _write_all(handle, begin)
            sync_handle(handle)
            sync_folder(self.folder)
        except OSError:
            os.close(handle)
            with suppress(OSError):
                (self.folder / name).unlink()
            raise
        self._handle, self._size, self._since = handle, len(begin), monotonic()

    def _end(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    async def close(self) -> None:
        """Wait for what is under way, then end the segment."""
        if self._flushing is not None:
            await self._flushing
        self._disk.shutdown(wait=True)
        self._end()


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


# Reading.


@dataclass
class SegmentRead:
    """One segment as it was read.

    cut : bytes at its end that are no whole record: a torn tail, never acknowledged
    damaged : bytes before a later whole record that are none; a disk lost them
    """

    path: Path
    records: int = 0
    cut: int = 0
    damaged: int = 0


def segments(folder: Path) -> list[Path]:
    """The segments in a folder, the oldest first."""
    return sorted(folder.glob(f"*{ENDING}"))


def is_closed(path: Path) -> bool:
    """Whether no process writes to this segment any more."""
    handle = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    try:
        return lock(handle, wait=False)
    finally:
        os.close(handle)


def payloads(path: Path, read: SegmentRead) -> Iterator[bytes]:
    """The whole records of a segment, in order; what was cut is counted in `read`.

    Where a frame is broken, the next whole one is looked for: a torn tail has none, and what a
    damaged disk lost does not take the rest of the file with it.
    """
    data = path.read_bytes()
    if data[: len(_BEGIN)] != _BEGIN:
        if len(data) < len(_BEGIN) and _BEGIN.startswith(data):
            read.cut = len(data)  # killed while it began
            return
        raise FileFormatError(
            f"{path} is no segment of a server's log: it does not begin as one. Take it out of the "
            "folder."
        )
    view, at, good = memoryview(data), len(_BEGIN), len(_BEGIN)
    while at + _HEAD.size <= len(data):
        mark, length, check = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        if mark == _MARK and length <= MOST_RECORD and end <= len(data):
            payload = view[at + _HEAD.size : end]
            if zlib.crc32(payload, zlib.crc32(data[at + 4 : at + 8])) == check:
                read.damaged += at - good
                read.records += 1
                at = good = end
                yield bytes(payload)
                continue
        following = data.find(_MARK, at + 1)
        at = len(data) if following < 0 else following
    read.cut = len(data) - good
