"""The rankers behind a server: the current one, perhaps a candidate beside it, and their features.

A ranker is replaced whole: the new file is read, checked and warmed up beside the old one, then one
assignment makes it the current one. A request in flight ends with the ranker it began with. A file
that cannot be read leaves the old ranker where it was.
"""

import hashlib
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FeatureArray
from untilt._core.feature_table import OLD_RANK, of_documents, with_old_rank
from untilt.errors import ColumnError, OptionError
from untilt.serving.explore import Relevance, fit_relevance, uniform
from untilt.serving.options import Settings
from untilt.serving.wire import RankRequest, RequestError, Row, are_plain

CALIBRATION_ROWS = 50_000


# The relevance behind the scores of a ranker.
Calibration = Callable[[Any], Relevance]


def calibration_from(log: Any, curve: Any) -> Calibration:
    """By a sample of the impressions of a log with features, with examination by `curve`."""
    from untilt._core.feature_table import predicted

    if log.features is None:
        raise OptionError(
            "the log to calibrate by has no features, so its documents cannot be scored. Give the "
            "table of documents too."
        )
    rows = np.arange(len(log.document))
    if len(rows) > CALIBRATION_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(rows, CALIBRATION_ROWS, replace=False))
    features, rank = log.features[log.document[rows]], ragged.index_in_list(log.indptr)[rows] + 1
    theta, names = np.asarray(curve.at(log.position[rows]), float), tuple(log.feature_names)
    clicks, count = log.label[rows].astype(float), log.row_count[rows].astype(float)

    def relevance(ranker: Any) -> Relevance:
        given = (features, names)
        if OLD_RANK in ranker.feature_names_:
            given = (np.column_stack([features, rank]), (*names, OLD_RANK))
        return fit_relevance(np.asarray(predicted(ranker, *given), float), clicks, theta, count)

    return relevance


@dataclass(frozen=True, eq=False)
class Model:
    """A ranker that was read from a file, and that file's digest: the name of it in logs."""

    ranker: Any
    digest: str
    path: Path
    stamp: tuple[int, int, int]
    loaded: datetime
    relevance: Relevance | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The features of documents that it scores, in their order."""
        return of_documents(self.ranker.feature_names_)

    def described(self) -> dict[str, Any]:
        """For /model."""
        return {
            "model": self.digest,
            "kind": type(self.ranker).__name__,
            "features": list(self.names),
            "loaded": self.loaded.isoformat(timespec="seconds"),
        }


def load_model(path: Path, calibration: Calibration | None = None) -> Model:
    """Read, check and warm up a ranker."""
    from untilt.rankers.base import load_data

    stamp = _stamp(path)
    loaded, data = load_data(path)  # read once: digest and ranker are of one file
    ranker: Any = loaded
    digest = hashlib.sha256(data).hexdigest()[:12]
    if len(set(ranker.feature_names_)) < len(ranker.feature_names_):
        raise OptionError(f"{path} has two features of one name. Train it with different names.")
    if getattr(ranker, "n_threads", 1) is None:
        ranker.n_threads = 1  # lists are short: threads would cost more than they bring
    ranker.warm_up()
    relevance = None if calibration is None else calibration(ranker)
    return Model(ranker, digest, path, stamp, datetime.now(UTC), relevance)


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features by (query, document), or by document where the table has no queries."""

    names: tuple[str, ...]
    values: FeatureArray
    row_of: dict[Any, int] = field(repr=False)
    by_query: bool

    def rows(self, query: str, documents: Sequence[str]) -> list[int]:
        """The row of each document, -1 where the table has none."""
        keys = [(query, each) for each in documents] if self.by_query else documents
        return [self.row_of.get(key, -1) for key in keys]


def read_features(path: Path, names: Sequence[str]) -> FeatureTable:
    """The features of these names from a Parquet or CSV file with doc_id and perhaps query_id."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        with path.open("rb") as file:
            table = csv.read_csv(file) if path.suffix == ".csv" else parquet.read_table(file)
    except pa.ArrowException as error:
        raise ColumnError(
            f"{path} could not be read as a table of features: {str(error).splitlines()[0]} Give "
            "a Parquet or CSV file."
        ) from error
    lost = [name for name in ("doc_id", *names) if name not in table.column_names]
    if lost:
        raise ColumnError(
            f"{path} lacks the columns {', '.join(map(repr, lost[:8]))}. It needs doc_id, perhaps "
            f"query_id, and the {len(names)} features of the ranker. "
            f"Found: {', '.join(table.column_names[:12])}."
        )
    from untilt._core.feature_table import feature_array

    values = feature_array(table.select(list(names)), names)
    by_query = "query_id" in table.column_names
    documents = [str(each) for each in table.column("doc_id").to_pylist()]
    keys: list[Any] = documents
    if by_query:
        queries = (str(each) for each in table.column("query_id").to_pylist())
        keys = list(zip(queries, documents, strict=True))
    row_of = {key: row for row, key in enumerate(keys)}
    if len(row_of) < len(keys):
        what = "pairs of query_id and doc_id" if by_query else "doc_id"
        raise ColumnError(
            f"{path} holds {len(keys) - len(row_of):,} {what} more than once. Give one row of "
            "features for each."
        )
    return FeatureTable(tuple(names), values, row_of, by_query)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Checked features of one request: `values` by `names`; `known` where the table has a row.

    inline : whether they came with the request
    """

    names: tuple[str, ...]
    values: FeatureArray
    inline: bool
    known: list[bool] | None = None

    def of(self, model: Model) -> FeatureArray:
        """The columns in the order of a model, with the old rank where it takes that."""
        values = self._named(model)
        return with_old_rank(values, model.ranker.feature_names_, np.array([0, len(values)]))

    def _named(self, model: Model) -> FeatureArray:
        if model.names == self.names:
            return self.values
        place = {name: j for j, name in enumerate(self.names)}
        lost = [name for name in model.names if name not in place]
        if lost:
            raise RequestError(f"the request lacks the features {', '.join(map(repr, lost[:8]))}.")
        return np.ascontiguousarray(self.values[:, [place[name] for name in model.names]])


def candidates_of(
    request: RankRequest,
    query: str,
    documents: Sequence[str],
    model: Model,
    table: FeatureTable | None,
    *,
    unknown_last: bool,
) -> Candidates:
    """The features of a request, from it or from the table."""
    if request.features is not None:
        names = _checked_names(request.feature_names) or model.names
        return Candidates(names, _matrix(request.features, names, len(documents)), inline=True)
    if table is None:
        raise RequestError(
            "the request has no features, and this server has no table to look them up in. Send "
            "features, or start it with --documents TABLE."
        )
    rows = table.rows(query, documents)
    if -1 in rows and not unknown_last:
        document = documents[rows.index(-1)]
        raise RequestError(
            f"the server's table has no features of document {document!r}"
            + (f" for query {query!r}" if table.by_query else "")
            + f" ({rows.count(-1)} of {len(rows)} are unknown). Send features with the request, or "
            "start the server with --unknown last."
        )
    known = [row >= 0 for row in rows] if -1 in rows else None
    return Candidates(table.names, table.values[rows], inline=False, known=known)


def _checked_names(names: list[str] | None) -> tuple[str, ...] | None:
    """Names that can be columns of a log; None where the request has none."""
    if not names:
        return None
    if len(set(names)) < len(names) or not are_plain(names):
        raise RequestError("each feature must be named once, without control characters.")
    return tuple(names)


def _matrix(rows: Any, names: tuple[str, ...], n: int) -> FeatureArray:
    """(documents, features) float32; a gap is NaN."""
    d = len(names)
    if isinstance(rows, bytes):
        if len(rows) != 4 * n * d:
            raise RequestError(
                f"features in one piece must be {n} rows of {d} float32, {4 * n * d:,} bytes. "
                f"Got {len(rows):,}."
            )
        return np.frombuffer(rows, "<f4").reshape(n, d)
    if len(rows) != n:
        raise RequestError(f"{n} documents need {n} rows of features. Got {len(rows)}.")
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            pack = struct.Struct(f"{d}d").pack  # half the time of an array of lists
            return np.frombuffer(b"".join([pack(*row) for row in rows])).astype("f4").reshape(n, d)
        except struct.error:  # gaps, names, or another number of values
            plain = [_in_order(number, row, names) for number, row in enumerate(rows)]
        return np.array(plain, dtype=np.float32).reshape(n, d)


def _in_order(number: int, row: Row, names: tuple[str, ...]) -> list[float | None]:
    if isinstance(row, dict):
        wrong = sorted(row.keys() ^ set(names))
        if wrong:
            raise RequestError(
                f"row {number} of the features must name the {len(names)} that the ranker scores. "
                f"Missing or unknown: {', '.join(map(repr, wrong[:8]))}."
            )
        return [row[name] for name in names]
    if len(row) != len(names):
        raise RequestError(
            f"row {number} of the features must have {len(names)} numbers. Got {len(row)}."
        )
    return row


class Models:
    """The rankers of a server: the one that answers, and perhaps a candidate beside it."""

    def __init__(self, settings: Settings, calibration: Calibration | None = None) -> None:
        self.settings, self.calibration = settings, calibration
        self.salt = b""  # of the hash that shares sessions out
        self.current = load_model(Path(settings.ranker), calibration)
        self.candidate: Model | None = None
        if settings.candidate is not None:
            self.candidate = load_model(Path(settings.candidate), calibration)
        self.reloads = self.failures = 0
        self.problem: str | None = None
        self._tried: dict[Path, tuple[int, int, int]] = {}
        self._one_at_a_time = threading.Lock()

    @property
    def all(self) -> tuple[Model, ...]:
        """Both, or the one there is."""
        return (self.current,) if self.candidate is None else (self.current, self.candidate)

    def answering(self, session: str) -> Model:
        """The ranker of this session, by a hash of its id that exploration does not use."""
        candidate, share = self.candidate, self.settings.share
        if candidate is None or self.settings.shadow or not share:
            return self.current
        return candidate if uniform(self.salt, b"share", session) < share else self.current

    def both(self, session: str) -> tuple[Model, Model] | None:
        """(candidate, current) where both make the list of this session together.

        Sessions from 1 down, those that the candidate answers alone from 0 up: they never meet.
        """
        candidate, share = self.candidate, self.settings.interleave
        if candidate is None or not share or uniform(self.salt, b"share", session) < 1 - share:
            return None
        return candidate, self.current

    def reload(self) -> bool | None:
        """Read what changed on the disk; the old one stays where it fails.

        Whether anything changed; None where another thread is still reading.
        """
        if not self._one_at_a_time.acquire(blocking=False):
            return None
        try:
            before = self.reloads
            for model in self.all:
                self._reload(model)
            return self.reloads > before
        finally:
            self._one_at_a_time.release()

    def _reload(self, model: Model) -> None:
        try:
            stamp = _stamp(model.path)
            if stamp in (model.stamp, self._tried.get(model.path)):
                return
            self._tried[model.path] = stamp
            new = load_model(model.path, self.calibration)
            if set(new.names) != set(model.names):
                raise OptionError(
                    f"{model.path} scores other features than the ranker it should replace. Start "
                    "a server with it instead."
                )
        except Exception as error:  # whatever a file makes of itself, the old one answers
            self.failures += 1
            self.problem = f"{error}"
            return
        if new.digest == model.digest:
            new = replace(model, stamp=new.stamp)
        else:
            self.reloads += 1
        self.problem = None
        if model is self.current:
            self.current = new
        else:
            self.candidate = new
