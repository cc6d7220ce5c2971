"""Fitting the candidates of a search, one after the other or in several processes."""

import hashlib
import inspect
import json
import time
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.files import replacing
from untilt._core.progress import progress
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, ShapeError

# Finished candidates in a folder, so that a search goes on where it was stopped.


@dataclass(frozen=True)
class Store:
    """One folder; each candidate has `KEY.npy` (scores), `KEY.untilt` and, last, `KEY.json`.

    Each file is written whole or not at all, and the JSON only when the others are there: a search
    that is killed leaves finished candidates and nothing else that counts.
    """

    folder: Path

    def ranker_path(self, key: str) -> Path:
        """Where the fitted ranker lies, if it could be saved."""
        return self.folder / f"{key}.untilt"

    def write(self, key: str, facts: dict[str, Any], scores: FloatArray, ranker: Any) -> None:
        """Keep a finished candidate."""
        with replacing(self.folder / f"{key}.npy") as temporary:
            np.save(temporary, scores, allow_pickle=False)
        if hasattr(ranker, "save"):
            ranker.save(self.ranker_path(key))
        with replacing(self.folder / f"{key}.json") as temporary:
            temporary.write_text(json.dumps(facts, indent=1), encoding="utf-8")

    def read(self, key: str, n_scores: int) -> tuple[dict[str, Any], FloatArray] | None:
        """A finished candidate, or None where there is none or its files are damaged."""
        try:
            facts = json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
            scores = np.load(self.folder / f"{key}.npy", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        if not isinstance(facts, dict) or scores.shape != (n_scores,):
            return None
        return facts, scores


# A key of parameters and data: the same work has the same key, whatever it is called.


def key_of(*things: Any) -> str:
    """40 hexadecimal digits that change with any value in the things, down to the last bit."""
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
    else:
        _add_object(digest, thing)


def _add_object(digest: Any, thing: Any) -> None:
    # Two lambdas share one name, so a name with <lambda> or <locals> in it tells nothing.
    named = isinstance(thing, type | types.FunctionType) and "<" not in thing.__qualname__
    if named:
        digest.update(f"{thing.__module__}.{thing.__qualname__}".encode())
    elif isinstance(thing, type | types.FunctionType):
        _refuse(thing)
    elif hasattr(thing, "get_params"):
        _add(digest, thing.get_params(deep=False))
    elif is_dataclass(thing):
        _add(digest, {field.name: getattr(thing, field.name) for field in fields(thing)})
    elif getattr(thing, "__dict__", None):
        _add(digest, vars(thing))
    else:
        _refuse(thing)


def _refuse(thing: Any) -> None:
    raise OptionError(
        f"a {type(thing).__name__} among a candidate's parameters cannot be told from another, so "
        "results cannot be kept in a folder. Leave folder out, or use plain parameters."
    )


@dataclass(frozen=True, eq=False)
class Fitted:
    """A candidate after its training: its scores on the held-out documents.

    `ranker` is None where it lies in `path` alone. `resumed` means that nothing was trained now.
    """

    name: str
    scores: FloatArray
    seconds: float
    resumed: bool
    ranker: Any
    path: Path | None


def fit_all(
    named: dict[str, Any],
    train: Any,
    valid: ClickLog,
    *,
    folder: Path | None,
    n_jobs: int,
) -> dict[str, Fitted]:
    """All candidates by name, in their order. What the folder has is not trained again."""
    store = None if folder is None else Store(folder)
    data = None if store is None else key_of(train, valid)
    keys = {name: key_of(each, data) if store else "" for name, each in named.items()}
    done: dict[str, Fitted] = {}
    with progress("fitting candidates", total=len(named)) as advance:
        for name in named:
            found = None if store is None else _resumed(store, name, keys[name], valid)
            if found is not None:
                done[name] = found
                advance()
        missing = [name for name in named if name not in done]
        for fitted in _run(named, missing, keys, train, valid, store, n_jobs):
            done[fitted.name] = fitted
            advance()
    return {name: done[name] for name in named}


def _resumed(store: Store, name: str, key: str, valid: ClickLog) -> Fitted | None:
    found = store.read(key, valid.n_documents)
    if found is None:
        return None
    path = store.ranker_path(key)
    seconds = float(found[0].get("seconds", np.nan))
    return Fitted(name, found[1], seconds, True, None, path if path.exists() else None)


def _run(
    named: dict[str, Any], missing: list[str], keys: dict[str, str], train: Any, valid: ClickLog,
    store: Store | None, n_jobs: int,
) -> Iterator[Fitted]:  # fmt: skip
    if n_jobs == 1 or len(missing) < 2:
        for name in missing:
            yield _fit_one(name, named[name], train, valid, store, keys[name])
        return
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    # A log holds a read-only mapping, which no process can send: it travels as its arrays.
    parts, held = _sendable(train), _sendable(valid)
    yield from Parallel(n_jobs=n_jobs, return_as="generator_unordered")(
        delayed(_fit_sent)(name, named[name], parts, held, store, keys[name]) for name in missing
    )


def _sendable(data: Any) -> Any:
    if not isinstance(data, ClickLog):
        return data
    values = {field.name: getattr(data, field.name) for field in fields(data)}
    return values | {"extra_labels": dict(data.extra_labels), "context": dict(data.context)}


def _fit_sent(
    name: str, candidate: Any, train: Any, valid: dict[str, Any], store: Store | None, key: str
) -> Fitted:
    made: Callable[[Any], Any] = lambda data: ClickLog(**data) if isinstance(data, dict) else data  # noqa: E731
    return _fit_one(name, candidate, made(train), made(valid), store, key)


def _fit_one(
    name: str, candidate: Any, train: Any, valid: ClickLog, store: Store | None, key: str
) -> Fitted:
    from sklearn.base import clone

    start = time.perf_counter()
    ranker = clone(candidate)
    ranker.fit(train, **_stopping(ranker, valid))
    scores = np.asarray(ranker.predict(valid.features), dtype=float)
    if scores.shape != (valid.n_documents,):
        raise ShapeError(
            f"candidate {name!r} must give {valid.n_documents:,} scores, one per held-out "
            f"document. Got shape {scores.shape} instead."
        )
    seconds = time.perf_counter() - start
    if store is None:
        return Fitted(name, scores, seconds, False, ranker, None)
    facts = {"name": name, "kind": type(ranker).__name__, "seconds": seconds}
    facts["parameters"] = {k: repr(v) for k, v in ranker.get_params(deep=False).items()}
    store.write(key, facts, scores, ranker)
    path = store.ranker_path(key)
    kept = path.exists()
    return Fitted(name, scores, seconds, False, None if kept else ranker, path if kept else None)


def _stopping(ranker: Any, valid: ClickLog) -> dict[str, Any]:
    """A candidate with early stopping is stopped by the same held-out clicks."""
    wants = getattr(ranker, "early_stopping", None) is not None
    takes = "valid" in inspect.signature(ranker.fit).parameters
    if wants and not takes:
        raise OptionError(
            f"{type(ranker).__name__} has early_stopping, but its fit takes no valid=. "
            "Leave early_stopping out."
        )
    return {"valid": valid} if wants else {}
