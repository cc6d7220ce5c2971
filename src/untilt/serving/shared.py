"""Files that the workers of a machine share: figures for Prometheus, and which list takes part.

A file is read and written under its lock, and nobody waits for that: somebody else may hold it, or
the disk may be full. It is not mapped: on a full disk, a store into a hole of a mapped file ends
the process.
"""

import os
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from time import time

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.files import lock, make_folder, unlock, write_at
from untilt.serving.explore import hash_of

_TRIES = 3  # to lock a file: others hold it for microseconds
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds
PATHS = ("/rank", "/feedback", "/reload", "/model", "/metrics", "/health", "/ready", "other")
STATUSES = (200, 400, 401, 403, 404, 405, 408, 409, 413, 415, 500, 503)
Family = tuple[str, str, str, Mapping[str, float]]  # name, kind, help; labels -> value


class SharedFile:
    """An open file; what was never written to it is zeros."""

    def __init__(self, path: Path) -> None:
        make_folder(path.parent)
        how = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        self._handle = os.open(path, how, 0o640)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the file; an `OSError` where it cannot be held at once."""
        if not any(lock(self._handle, wait=False) for _ in range(_TRIES)):
            raise BlockingIOError
        try:
            yield
        finally:
            unlock(self._handle)

    def read(self, size: int, at: int = 0) -> bytes:
        """So many bytes from a place."""
        os.lseek(self._handle, at, os.SEEK_SET)
        return os.read(self._handle, size).ljust(size, b"\0")

    def write(self, data: bytes, at: int = 0) -> None:
        """Bytes at a place."""
        write_at(self._handle, data, at)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)


class SessionTable(SharedFile):
    """Which list of a session takes part: the first one, for all workers of a machine.

    A slot for each hash of a session, with the hash of its first list and the time. A session whose
    slot another one took within `seconds` does not take part; that depends on hashes alone, so it
    favours nothing. Nor does a list where the slot cannot be read or written at once.
    """

    _SLOT = struct.Struct("<QQd")

    def __init__(
        self,
        path: Path,
        *,
        slots: int = 1 << 20,
        seconds: float = 6 * 3600.0,
        clock: Callable[[], float] = time,
    ) -> None:
        super().__init__(path)
        self.slots, self.seconds, self._clock = slots, seconds, clock

    def takes_part(self, session: str, key: Sequence[str]) -> bool:
        """Whether this list, known by `key`, is the session's first, or shown again."""
        who = hash_of(b"", b"session", session) or 1
        what = hash_of(b"", b"list", "\x00".join(key))
        at, now = (who % self.slots) * self._SLOT.size, self._clock()
        try:
            with self.held():
                owner, first, since = self._SLOT.unpack(self.read(self._SLOT.size, at))
                if owner == who:
                    return bool(first == what)
                # The clock may have been ahead once: what is far from now on either side is over.
                if owner and abs(now - since) < self.seconds:
                    return False
                self.write(self._SLOT.pack(who, what, now), at)
        except OSError:
            return False
        return True


# Figures for Prometheus.

_REQUESTS, _SECONDS, _LISTS = "untilt_requests_total", "untilt_rank_seconds", "untilt_lists_total"
_HELP = {
    _REQUESTS: "Requests answered, by path and status.",
    _SECONDS: "Time from a whole request to its answer, of /rank.",
    _LISTS: "Lists shown, by arm of the exploration.",
    "untilt_capped_total": "Lists kept out of exploration by the cap on its cost.",
    "untilt_expected_loss_clicks_total": "Clicks that exploration is expected to have cost (at "
    "most, without a curve).",
    "untilt_candidate_lists_total": "Lists that the candidate answered.",
    "untilt_shadow_lists_total": "Lists that the candidate scored in shadow.",
    "untilt_shadow_same_first_total": "Shadow lists with the same first document.",
    "untilt_events_total": "Events of feedback that were logged.",
    "untilt_documents_total": "Candidates that were scored.",
    "untilt_unknown_documents_total": "Candidates without features in the table.",
    "untilt_unlogged_lists_total": "Lists answered although the log failed.",
    "untilt_late_lists_total": "Lists answered before the log was synced.",
    "untilt_refused_total": "Requests refused because the server was handling too many.",
    "untilt_journal_bytes_total": "Bytes written to the log.",
    "untilt_journal_syncs_total": "Times that the log was synced.",
    "untilt_reloads_total": "Rankers that were replaced.",
    "untilt_reload_failures_total": "Files of rankers that could not be loaded.",
}


class Counters:
    """Counters of all workers: each adds what it counted to a file, with every answer.

    What the file does not take is kept and added later. The series are a fixed list, so that memory
    does not grow with requests; another exploration has others, and so another file.
    """

    def __init__(self, path: Path, arms: Iterable[str]) -> None:
        edges = (*BUCKETS, "+Inf")
        self._ends = {name: [""] for name in _HELP} | {
            _REQUESTS: [f'{{path="{p}",status="{s}"}}' for p in PATHS for s in STATUSES],
            _SECONDS: [*(f'_bucket{{le="{edge}"}}' for edge in edges), "_sum", "_count"],
            _LISTS: [f'{{ranker="{arm}"}}' for arm in arms],
        }
        names = [name + end for name, ends in self._ends.items() for end in ends]
        self._place = {name: place for place, name in enumerate(names)}
        self._new = np.zeros(len(names))
        mark = blake2b("\n".join(names).encode(), digest_size=4).hexdigest()
        self._file = SharedFile(path.with_name(f"{path.name}-{mark}"))

    def add(self, name: str, amount: float = 1.0) -> None:
        """Count; a name that is no series is a bug of ours."""
        self._new[self._place[name]] += amount

    def request(self, path: str, status: int) -> None:
        """Count an answer."""
        path = path if path in PATHS else "other"
        status = status if status in STATUSES else 500
        self.add(f'{_REQUESTS}{{path="{path}",status="{status}"}}')
        with suppress(OSError):
            self._totals()

    def ranked(self, seconds: float, arm: str, documents: int) -> None:
        """Count a list that was shown."""
        first = self._place[f'{_SECONDS}_bucket{{le="{BUCKETS[0]}"}}']
        self._new[first + bisect_left(BUCKETS, seconds) : first + len(BUCKETS) + 1] += 1
        self.add(f"{_SECONDS}_sum", seconds)
        self.add(f"{_SECONDS}_count")
        self.add(f'{_LISTS}{{ranker="{arm}"}}')
        self.add("untilt_documents_total", documents)

    def _totals(self) -> FloatArray:
        """Of all workers, and what this one could not write yet."""
        size = self._new.nbytes
        try:
            with self._file.held():
                totals = np.frombuffer(self._file.read(size)) + self._new
                self._file.write(totals.tobytes())
        except OSError:
            return np.frombuffer(self._file.read(size)) + self._new
        self._new[:] = 0
        return totals

    def text(self, gauges: Iterable[Family]) -> str:
        """All of them as Prometheus reads them."""
        totals = dict(zip(self._place, self._totals().tolist(), strict=True))
        counted: list[Family] = [
            (name, "histogram" if name == _SECONDS else "counter", _HELP[name],
             {end: totals[name + end] for end in ends if name != _REQUESTS or totals[name + end]})
            for name, ends in self._ends.items()
        ]  # fmt: skip
        return exposition([*counted, *gauges])

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def exposition(families: Iterable[Family]) -> str:
    """Prometheus' text format."""
    lines: list[str] = []
    for name, kind, text, values in families:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{labels} {value:.12g}" for labels, value in values.items()]
    return "\n".join(lines) + "\n"
