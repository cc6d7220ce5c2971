"""Fitting the candidates of a search: one after the other, together, or in several processes."""

import hashlib
import inspect
import io
import time
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from untilt._core import codec
from untilt._core.arrays import FloatArray
from untilt._core.feature_table import predicted
from untilt._core.files import replacing
from untilt._core.progress import progress
from untilt.data.clicklog import ClickLog
from untilt.data.seen import has_memory, seen_in
from untilt.errors import OptionError, ShapeError
from untilt.rankers.persist import load


class Candidate(Protocol):
    """What can be searched over: an estimator in scikit-learn's sense that scores features."""

    def fit(self, data: Any, /) -> Any:
        """Learn from the training data."""
        ...

    def predict(self, features: Any, /) -> Any:
        """One score for each row of the features."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        ...


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


KIND, VERSION = "untilt candidate", 1  # of the JSON beside a candidate


@dataclass(frozen=True)
class FittedRecord:
    """What a folder says about a finished candidate; parameters as text, for people.

    `files` are the SHA-256 of its other files, by how their names end; None where there is none.
    """

    name: str
    ranker: str
    seconds: float
    parameters: Mapping[str, str]
    files: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Store:
    """Finished candidates in a folder, so that a search goes on where it was stopped.

    Each has `KEY.npy` (scores), `KEY.untilt` (the ranker, where it can be saved) and, last,
    `KEY.json`. Each file is written whole or not at all, and the JSON only when the others are
    there: a search that is killed leaves finished candidates and nothing else that counts. The JSON
    holds a checksum of itself and of the others: what was changed or damaged is fitted again.

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

    def write(self, key: str, record: FittedRecord, scores: FloatArray, ranker: Any) -> Fitted:
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
        whole = replace(record, files=self._digests(key))
        sealed = codec.sealed(whole, kind=KIND, version=VERSION)
        codec.write_json(self.folder / f"{key}.json", sealed)
        kept = None if path is not None else ranker
        return Fitted(record.name, scores, record.seconds, False, kept, path)

    def read(self, key: str, name: str, n_scores: int) -> Fitted | None:
        """A finished candidate, or None where there is none or its files are damaged."""
        try:
            record = self._record(key)
            if record.files != self._digests(key):
                return None
            # Mapped, not read: a header may promise more than there is memory for.
            scores = np.lib.format.open_memmap(self.folder / f"{key}.npy", mode="r")
        except (OSError, ValueError, EOFError, OverflowError):
            return None
        if scores.shape != (n_scores,) or scores.dtype != np.float64:
            return None
        path = self.folder / f"{key}.untilt"
        kept = path if path.exists() else None
        return Fitted(name, np.array(scores), record.seconds, True, None, kept)

    def seconds(self, key: str) -> float:
        """What the training of a finished candidate took; 0 where nothing is known of it."""
        try:
            return self._record(key).seconds
        except (OSError, ValueError):
            return 0.0

    def _record(self, key: str) -> FittedRecord:
        where = self.folder / f"{key}.json"
        return codec.unsealed(
            codec.read_file(where, again=""), FittedRecord, kind=KIND, version=VERSION,
            where=where.name, again="", strict=True,
        )  # fmt: skip

    def _digests(self, key: str) -> dict[str, str | None]:
        return {end: _digest(self.folder / f"{key}{end}") for end in (".npy", ".untilt")}


def _digest(path: Path) -> str | None:
    """SHA-256 of a file; None where there is none."""
    if not path.exists():
        return None
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def fit_all(
    named: Mapping[str, Candidate],
    train: Any,
    valid: ClickLog,
    *,
    store: Store | None,
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


def fit_alone(name: str, candidate: Candidate, train: Any, *, store: Store) -> Fitted:
    """One candidate on data that nothing is held out of; one that the store has is taken."""
    from untilt._core.estimator import clone

    key = key_of(candidate, train)
    kept = store.read(key, name, 0)
    if kept is not None and kept.path is not None:
        return kept
    start = time.perf_counter()
    ranker = clone(candidate).fit(train)
    record = _record_of(name, ranker, time.perf_counter() - start)
    return store.write(key, record, np.empty(0), ranker)


class _Task(NamedTuple):
    """A candidate that is to be fitted; `store` keeps it under `key`."""

    name: str
    candidate: Candidate
    train: Any
    valid: ClickLog
    store: Store | None
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
    from untilt._core.estimator import clone

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
    from untilt._core.estimator import clone

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
    return task.store.write(task.key, _record_of(name, ranker, seconds), scores, ranker)


def _record_of(name: str, ranker: Any, seconds: float) -> FittedRecord:
    parameters = {option: repr(each) for option, each in ranker.get_params(deep=False).items()}
    return FittedRecord(name, type(ranker).__name__, seconds, parameters)


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


def key_of(*things: Any) -> str:
    """40 hexadecimal digits that change with any value in the things, down to the last bit.

    The same work has the same key, whatever it is called: parameters and data in, no names.
    """
    digest = hashlib.sha256()
    for thing in things:
        _add(digest, thing)
    return digest.hexdigest()[:40]


def _add(digest: Any, thing: Any) -> None:
    """Feed one value; every kind begins with its name, so that 1 and "1" differ."""
    digest.update(f"<{type(thing).__module__}.{type(thing).__qualname__}>".encode())
    if thing is None or isinstance(thing, bool | int | float | str | bytes | np.generic):
        digest.update(repr(thing).encode())
    elif isinstance(thing, np.ndarray) and thing.dtype != object:
        digest.update(f"{thing.dtype.str}{thing.shape}".encode())
        digest.update(np.ascontiguousarray(thing).data)
    elif isinstance(thing, list | tuple | np.ndarray):
        digest.update(f"{len(thing)}:".encode())
        for member in thing:
            _add(digest, member)
    elif isinstance(thing, Mapping):
        for name in sorted(thing, key=str):
            _add(digest, str(name))
            _add(digest, thing[name])
    elif isinstance(thing, type | types.FunctionType):
        # Two lambdas share one name, so a name with <lambda> or <locals> in it identifies nothing.
        if "<" in thing.__qualname__:
            _refuse(thing)
        digest.update(f"{thing.__module__}.{thing.__qualname__}".encode())
    elif hasattr(thing, "get_params"):
        _add(digest, thing.get_params(deep=False))
    elif is_dataclass(thing):
        _add(digest, {field.name: getattr(thing, field.name) for field in fields(thing)})
    elif getattr(thing, "__dict__", None):
        _add(digest, vars(thing))
    else:
        _refuse(thing)


def _refuse(thing: object) -> NoReturn:
    raise OptionError(
        f"a {type(thing).__name__} among a candidate's parameters has no value to compare by, so "
        "results cannot be kept in a folder. Leave folder out, or use plain parameters."
    )
