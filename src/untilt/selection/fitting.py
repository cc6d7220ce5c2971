"""Fitting the candidates of a search: one after the other, together, or in several processes."""

import inspect
import io
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.estimator import clone
from untilt._core.feature_table import predicted
from untilt._core.files import replacing
from untilt._core.progress import progress
from untilt._core.store import Store, key_of
from untilt.data.clicklog import ClickLog
from untilt.data.seen import has_memory, seen_in
from untilt.errors import OptionError, ShapeError
from untilt.rankers.base import load


class Candidate(Protocol):
    """What can be searched over: an estimator in scikit-learn's sense that scores features."""

    def fit(self, data: Any, /) -> Any:
        """Learn from the training data."""

    def predict(self, features: Any, /) -> Any:
        """One score for each row of the features."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A candidate after its training: its scores on the held-out documents.

    `ranker` is None where it lies in `path` alone. `resumed` means that nothing was trained now.
    `seconds` of candidates that were fitted together are equal shares of the time of all.
    """

    name: str
    scores: FloatArray
    seconds: float
    resumed: bool
    ranker: Any
    path: Path | None


@dataclass(frozen=True)
class CandidateRecord:
    """What a folder says about a finished candidate; parameters as text, for people."""

    name: str
    ranker: str
    parameters: Mapping[str, str]


@dataclass(frozen=True)
class CandidateStore:
    """Finished candidates in a folder, so that a search goes on where it was stopped.

    Each has `KEY.npy` (scores), `KEY.untilt` (the ranker, where it can be saved) and its entry.

    `rankers`, by their files, are those that this process has fitted and keeps in memory; with None
    it keeps none.
    """

    folder: Path
    rankers: dict[Path, Any] | None = None

    def ranker(self, path: Path) -> Any:
        """The one of this file; loaded, where it is not in memory."""
        kept = None if self.rankers is None else self.rankers.get(path)
        return load(path) if kept is None else kept

    def keep(self, path: Path, ranker: Any) -> None:
        """In memory, where rankers are to stay there."""
        if self.rankers is not None:
            self.rankers[path] = ranker

    def write(
        self, key: str, record: CandidateRecord, seconds: float, scores: FloatArray, ranker: Any
    ) -> Fitted:
        """Keep a finished candidate."""
        with replacing(self.folder / f"{key}.npy") as temporary:
            # Not to the file itself: where a disk is full, numpy does not say so.
            content = io.BytesIO()
            np.save(content, scores, allow_pickle=False)
            temporary.write_bytes(content.getvalue())
        path = self.folder / f"{key}.untilt" if hasattr(ranker, "save") else None
        if path is not None:
            ranker.save(path)
            self.keep(path, ranker)
        self._store.write(key, key, record, seconds=seconds, files=self._files(key))
        kept = None if path is not None else ranker
        return Fitted(record.name, scores, seconds, False, kept, path)

    def read(self, key: str, name: str, n_scores: int) -> Fitted | None:
        """A finished candidate, or None where there is none or its files are damaged."""
        try:
            entry, files = self._store.read(key, key), self._files(key)
            if entry is None or len(entry.files) != len(files) or self._store.damaged(entry, files):
                return None
            # Mapped, not read: a header may promise more than there is memory for.
            scores = np.lib.format.open_memmap(self.folder / f"{key}.npy", mode="r")
        except (OSError, ValueError, EOFError, OverflowError):
            return None
        if scores.shape != (n_scores,) or scores.dtype != np.float64:
            return None
        path = next((file for file in files if file.suffix == ".untilt"), None)
        return Fitted(name, np.array(scores), entry.seconds, True, None, path)

    def seconds(self, key: str) -> float:
        """What the training of a finished candidate took; 0 where nothing is known of it."""
        try:
            entry = self._store.read(key, key)
        except (OSError, ValueError):
            return 0.0
        return 0.0 if entry is None else entry.seconds

    @property
    def _store(self) -> Store:
        return Store(self.folder, "untilt candidate", version=2)

    def _files(self, key: str) -> list[Path]:
        both = (self.folder / f"{key}.npy", self.folder / f"{key}.untilt")
        return [path for path in both if path.exists()]


def fit_all(
    named: Mapping[str, Candidate],
    train: Any,
    valid: ClickLog,
    *,
    store: CandidateStore | None,
    n_jobs: int,
) -> dict[str, Fitted]:
    """All candidates by name, in their order. What the store has is not trained again."""
    data = None if store is None else key_of(train, valid)
    keys = {name: key_of(each, data) if store else "" for name, each in named.items()}
    done: dict[str, Fitted] = {}
    with progress("fitting candidates", total=len(named)) as advance:
        for name in named:
            kept = None if store is None else store.read(keys[name], name, valid.n_documents)
            if kept is not None:
                done[name] = kept
                advance()
        missing = [
            _Task(name, each, train, valid, store, keys[name])
            for name, each in named.items()
            if name not in done
        ]
        for fitted in _run(missing, n_jobs):
            done[fitted.name] = fitted
            advance()
    return {name: done[name] for name in named}


def fit_alone(name: str, candidate: Candidate, train: Any, *, store: CandidateStore) -> Fitted:
    """One candidate on data that nothing is held out of; one that the store has is taken."""
    key = key_of(candidate, train)
    kept = store.read(key, name, 0)
    if kept is not None and kept.path is not None:
        return kept
    start = time.perf_counter()
    ranker = clone(candidate).fit(train)
    seconds = time.perf_counter() - start
    return store.write(key, _record_of(name, ranker), seconds, np.empty(0), ranker)


class _Task(NamedTuple):
    """A candidate that is to be fitted; `store` keeps it under `key`."""

    name: str
    candidate: Candidate
    train: Any
    valid: ClickLog
    store: CandidateStore | None
    key: str


def _run(tasks: list[_Task], n_jobs: int) -> Iterator[Fitted]:
    if n_jobs == 1 or len(tasks) < 2:
        for group in _groups(tasks):
            yield from _fit_group(group)
        return
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    yield from Parallel(n_jobs=n_jobs, return_as="generator_unordered")(
        delayed(_fit_one)(task) for task in tasks
    )


def _groups(tasks: list[_Task]) -> list[list[_Task]]:
    """Candidates of a class with `fit_together` in one group, every other one by itself."""
    groups: dict[Any, list[_Task]] = {}
    for number, task in enumerate(tasks):
        kind = type(task.candidate)
        # Its own: what a base class does with several may not be what a subclass does with one.
        several = "fit_together" in vars(kind) and not _stopping(task.candidate, task.valid)
        groups.setdefault(kind if several else number, []).append(task)
    return list(groups.values())


def _fit_group(tasks: list[_Task]) -> Iterator[Fitted]:
    """All that can be fitted, then the error of the first that cannot."""
    if len(tasks) == 1:
        yield _fit_one(tasks[0])
        return
    start = time.perf_counter()
    rankers = [clone(task.candidate) for task in tasks]
    errors = type(rankers[0]).fit_together(rankers, tasks[0].train)
    share = (time.perf_counter() - start) / len(tasks)
    for task, ranker, error in zip(tasks, rankers, errors, strict=True):
        if error is None:
            yield _finished(task, ranker, share)
    for error in errors:
        if error is not None:
            raise error


def _fit_one(task: _Task) -> Fitted:
    start = time.perf_counter()
    ranker = clone(task.candidate)
    ranker.fit(task.train, **_stopping(ranker, task.valid))
    return _finished(task, ranker, time.perf_counter() - start)


def _finished(task: _Task, ranker: Any, seconds: float) -> Fitted:
    """A fitted candidate with its scores, kept where there is a store."""
    name, valid, start = task.name, task.valid, time.perf_counter()
    assert valid.features is not None
    scores = np.asarray(
        predicted(ranker, valid.features, valid.feature_names, valid.missing), dtype=float
    )
    if scores.shape != (valid.n_documents,):
        raise ShapeError(
            f"candidate {name!r} must give {valid.n_documents:,} scores, one per held-out "
            f"document. Got shape {scores.shape} instead."
        )
    seconds += time.perf_counter() - start
    if has_memory(ranker):
        # It may be the one that is chosen by these clicks.
        ranker.validated_on_ = seen_in(valid, ranker)
    if task.store is None:
        return Fitted(name, scores, seconds, False, ranker, None)
    return task.store.write(task.key, _record_of(name, ranker), seconds, scores, ranker)


def _record_of(name: str, ranker: Any) -> CandidateRecord:
    parameters = {option: repr(each) for option, each in ranker.get_params(deep=False).items()}
    return CandidateRecord(name, type(ranker).__name__, parameters)


def _stopping(ranker: Any, valid: ClickLog) -> dict[str, ClickLog]:
    """A candidate with early stopping is stopped by the same held-out clicks.

    Not one that sets training queries aside by itself: its value stays that of clicks it never saw.
    """
    if getattr(ranker, "early_stopping", None) is None or getattr(ranker, "holds_out", False):
        return {}
    if "valid" not in inspect.signature(ranker.fit).parameters:
        raise OptionError(
            f"{type(ranker).__name__} has early_stopping, but its fit takes no valid=. "
            "Leave early_stopping out."
        )
    return {"valid": valid}
