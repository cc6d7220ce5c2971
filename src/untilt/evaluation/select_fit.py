"""Fitting the candidates of a search, one after the other or in several processes."""

import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.progress import progress
from untilt.errors import OptionError, ShapeError
from untilt.evaluation.select_key import key_of
from untilt.evaluation.select_store import Store
from untilt.logs.clicklog import ClickLog


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
    return {**values, "extra_labels": dict(data.extra_labels)}


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
