"""Figures of a server for Prometheus, in its text format, summed over all workers.

Every worker counts in memory and writes its row of figures to a file with each answer, so that
whichever of them is asked tells the figures of all. A worker that takes the place of a dead one
goes on counting in its row: counters never fall. A disk that refuses leaves a row as it was.
"""

import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.files import lock, make_folder, write_at
from untilt.errors import OptionError

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds
PATHS = ("/rank", "/feedback", "/reload", "/model", "/metrics", "/health", "/ready", "other")
STATUSES = (200, 400, 401, 403, 404, 405, 408, 409, 413, 415, 500, 503)
MOST_WORKERS = 64

# name: (what Prometheus calls its kind, what it says)
_HELP = {
    "untilt_requests_total": ("counter", "Requests answered, by path and status."),
    "untilt_rank_seconds": ("histogram", "Time from a whole request to its answer, of /rank."),
    "untilt_lists_total": ("counter", "Lists shown, by arm of the exploration."),
    "untilt_capped_total": ("counter", "Lists kept out of exploration by the cap on its cost."),
    "untilt_expected_loss_clicks_total": (
        "counter", "Clicks that exploration is expected to have cost (at most, without a curve).",
    ),
    "untilt_candidate_lists_total": ("counter", "Lists that the candidate answered."),
    "untilt_shadow_lists_total": ("counter", "Lists that the candidate scored in shadow."),
    "untilt_shadow_same_first_total": ("counter", "Shadow lists with the same first document."),
    "untilt_events_total": ("counter", "Events of feedback that were logged."),
    "untilt_documents_total": ("counter", "Candidates that were scored."),
    "untilt_unknown_documents_total": ("counter", "Candidates without features in the table."),
    "untilt_unlogged_lists_total": ("counter", "Lists answered although the log failed."),
    "untilt_late_lists_total": ("counter", "Lists answered before the log was synced."),
    "untilt_refused_total": ("counter", "Requests refused because too much was under way."),
    "untilt_journal_bytes_total": ("counter", "Bytes written to the log."),
    "untilt_journal_syncs_total": ("counter", "Times that the log was synced."),
    "untilt_reloads_total": ("counter", "Rankers that were replaced."),
    "untilt_reload_failures_total": ("counter", "Files of rankers that could not be loaded."),
}  # fmt: skip


def _series(arms: Iterable[str]) -> list[str]:
    """Every line that there can be: a fixed list, so that memory does not grow with requests."""
    names = [
        f'untilt_requests_total{{path="{path}",status="{status}"}}'
        for path in PATHS
        for status in STATUSES
    ]
    names += [f'untilt_rank_seconds_bucket{{le="{edge}"}}' for edge in (*BUCKETS, "+Inf")]
    names += ["untilt_rank_seconds_sum", "untilt_rank_seconds_count"]
    names += [f'untilt_lists_total{{ranker="{arm}"}}' for arm in arms]
    labelled = ("untilt_requests_total", "untilt_rank_seconds", "untilt_lists_total")
    return names + [name for name in _HELP if name not in labelled]


class Counters:
    """The counters of one worker, beside the files of others."""

    def __init__(self, path: Path, arms: Iterable[str]) -> None:
        make_folder(path.parent)
        self.names = _series(arms)
        self._place = {name: place for place, name in enumerate(self.names)}
        # Another exploration has other counters, and so another file.
        mark = sha256("\n".join(self.names).encode()).hexdigest()[:8]
        self._rows = path.with_name(f"{path.name}-{mark}")
        self._handle = _free_row(self._rows)
        self._mine = self._row(os.read(self._handle, 8 * len(self.names)))
        self._buckets = self._place[f'untilt_rank_seconds_bucket{{le="{BUCKETS[0]}"}}']

    def _row(self, data: bytes) -> FloatArray:
        size = 8 * len(self.names)
        return np.frombuffer(data[:size].ljust(size, b"\0")).copy()

    def add(self, name: str, amount: float = 1.0) -> None:
        """Count; a name that is no series is a bug of ours."""
        self._mine[self._place[name]] += amount

    def request(self, path: str, status: int) -> None:
        """Count an answer."""
        path = path if path in PATHS else "other"
        status = status if status in STATUSES else 500
        self.add(f'untilt_requests_total{{path="{path}",status="{status}"}}')
        with suppress(OSError):
            write_at(self._handle, self._mine.tobytes(), 0)

    def ranked(self, seconds: float, arm: str, documents: int) -> None:
        """Count a list that was shown."""
        self._mine[self._buckets + bisect_left(BUCKETS, seconds)] += 1
        self.add("untilt_rank_seconds_sum", seconds)
        self.add("untilt_rank_seconds_count")
        self.add(f'untilt_lists_total{{ranker="{arm}"}}')
        self.add("untilt_documents_total", documents)

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """All of them as Prometheus reads them; gauges: name -> (what it says, value)."""
        with suppress(OSError):
            write_at(self._handle, self._mine.tobytes(), 0)
        rows = self._rows.parent.glob(f"{self._rows.name}-*")
        totals = np.sum([self._row(each.read_bytes()) for each in rows], axis=0)
        n = len(BUCKETS) + 1
        totals[self._buckets : self._buckets + n] = totals[
            self._buckets : self._buckets + n
        ].cumsum()
        lines: list[str] = []
        told = ""
        for name, total in zip(self.names, totals.tolist(), strict=True):
            base = name.partition("{")[0]
            family = base if base in _HELP else base.rpartition("_")[0]
            if family != told:
                told = family
                kind, text = _HELP[family]
                lines += [f"# HELP {family} {text}", f"# TYPE {family} {kind}"]
            if total or not name.startswith("untilt_requests_total"):
                lines.append(f"{name} {total:.12g}")
        for name, (text, value) in gauges.items():
            base = name.partition("{")[0]
            lines += [f"# HELP {base} {text}", f"# TYPE {base} gauge", f"{name} {value:.12g}"]
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        """Let go of the row."""
        os.close(self._handle)


def _free_row(path: Path) -> int:
    """An open file of a row whose lock is the right to it."""
    for row in range(MOST_WORKERS):
        name = path.with_name(f"{path.name}-{row}")
        handle = os.open(name, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o640)
        if lock(handle, wait=False) or os.name == "nt":
            return handle
        os.close(handle)
    raise OptionError(
        f"more than {MOST_WORKERS} processes serve from {path.parent}. Give some of them a folder "
        "of their own."
    )
