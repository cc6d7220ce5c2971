"""From a server's journal to a click log: lists and feedback joined, one Parquet file a day.

All that is on the disk is read and the files of the open days are written anew, each whole or not
at all. So running it twice, or again after a kill, gives the same files. Days are days of UTC, by
the time at which the server showed a list; a list belongs to one day only.

Feedback may come before or after its list, twice, or late. The same event id on the same document
of a list counts once for each label. A day is *closed* so many days after its end: its file is then
final, says so in its metadata, and feedback that comes even later is counted and left out. Segments
that hold closed days alone may be removed.

Segments come from anywhere: what is no record is left out and counted, what is no segment is named,
and neither stops the others. One `collect` at a time works on a folder.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from untilt._core.files import holding, make_folder, replacing
from untilt._core.progress import progress, track
from untilt.bias.experiments.assignment import BASE
from untilt.data.read.database import arrow_reader, literal, open_database, quoted
from untilt.errors import FileFormatError, OptionError, UntiltError, check_choice
from untilt.serving import wire
from untilt.serving.explore import parse_exploration
from untilt.serving.journal import SegmentRead, mended, moved_aside, payloads, removed, segments

RULES = {"any": "max(CAST(value > 0 AS DOUBLE))", "sum": "sum(value)", "max": "max(value)",
         "last": "arg_max(value, (time, event))"}  # fmt: skip
_CLOSED = b"untilt.closed"
_BATCH = 20_000  # records turned into columns at a time
_MOST_VALUES = 1 << 22  # of features that are made at a time
_Columns = Mapping[str, list[str | None]]  # id of feature names -> columns; None: left out
# Of records: a row for each, in columns of the names of their parts.
_SHOWN = pa.schema({
    **dict.fromkeys(("list_id", "session", "query", "ranker", "experiment", "model"), pa.string()),
    **dict.fromkeys(("names", "shadow_model"), pa.string()),
    "time": pa.int64(), "probability": pa.float64(), "documents": pa.list_(pa.string()),
    "features": pa.list_(pa.binary()), "teams": pa.list_(pa.int32()),
    "shadow": pa.list_(pa.int32()),
})  # fmt: skip
_EVENTS = pa.schema({
    **dict.fromkeys(("event", "list_id", "document", "label"), pa.string()),
    "value": pa.float64(), "time": pa.int64(), "received": pa.int64(),
})  # fmt: skip


@dataclass
class Collected:
    """What was found and what was written.

    lists, impressions, events : that stand in the log
    reloads : showings of a list that was shown before, to the same session on the same day
    duplicates : events that came again
    orphans : events whose list or document is not known (yet)
    late : events of days that were closed before
    cut, damaged, bad : bytes and records, as in `SegmentRead`
    refused : file -> why it could not be read as a segment
    set_aside : segments that were replaced by one of their whole records
    left_out : labels and features beyond the most frequent that a log may have
    without_features : lists whose features came with the request and cannot be told apart, because
        the disk lost their names
    renamed : feature -> its column, where a column of the log or a label has its name already
    experiments : explorations that lists took part in
    arms : name -> sessions, of lists that took part in exploration
    expected : name -> sessions expected by the logged probabilities
    arms_p_value : that shares differ so much by chance; NaN where nothing was explored
    """

    folder: Path
    out: Path
    segments: int = 0
    lists: int = 0
    impressions: int = 0
    events: int = 0
    reloads: int = 0
    duplicates: int = 0
    orphans: int = 0
    late: int = 0
    cut: int = 0
    damaged: int = 0
    bad: int = 0
    removed: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    set_aside: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    without_features: int = 0
    renamed: dict[str, str] = field(default_factory=dict)
    days: dict[str, int] = field(default_factory=dict)
    closed: list[str] = field(default_factory=list)
    labels: tuple[str, ...] = (wire.CLICK,)
    features: tuple[str, ...] = ()
    experiments: list[str] = field(default_factory=list)
    arms: dict[str, int] = field(default_factory=dict)
    expected: dict[str, float] = field(default_factory=dict)
    arms_p_value: float = float("nan")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def collect(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    labels: Mapping[str, str] | None = None,
    close_after: float | None = None,
    remove_closed: bool = False,
    set_aside: bool = False,
    now: datetime | None = None,
) -> Collected:
    """Write `out`/clicks-2026-11-16.parquet, one file a day, from the journal in `folder`.

    Parameters
    ----------
    labels : name -> how several events of one label on one document become a number: "any" (1 or
        0), "sum", "max" or "last". Labels that are not named: "any" for click, "sum" for others
    close_after : days after whose end, in days, a day becomes final; never where not given
    remove_closed : remove whole segments with nothing but closed days that nobody writes to
    set_aside : move what is damaged or no segment to `folder`/damaged; whole records stay
    now : the time by which days are closed
    """
    source, target = Path(folder), Path(out)
    if not source.is_dir():
        raise OptionError(f"{source} is no folder. Give the folder that a server logs to (--log).")
    rules = _rules(labels or {})
    if remove_closed and close_after is None:
        raise OptionError(
            "segments are removed when their days close: give the days, ⟦close_after=7⟧."
        )
    make_folder(target)
    result, moment = Collected(source, target), now or datetime.now(UTC)
    closing = _closing(close_after, moment)
    with ExitStack() as stack:
        for place in sorted({source.resolve(), target.resolve()}):
            stack.enter_context(holding(place, "another `untilt collect`"))
        # Beside the segments where that may be: in `out` somebody may be reading just now.
        beside = source if os.access(source, os.W_OK) else target
        database = stack.enter_context(
            open_database(memory_limit=None, temp_directory=beside, threads=None)
        )
        tables = _Tables(database.scratch)
        found = list(track(segments(source), "reading the log"))
        reads = [read for path in found if (read := _read_segment(path, tables, result))]
        tables.close()
        result.segments, result.without_features = len(reads), tables.without_features
        for name in ("cut", "damaged", "bad"):
            setattr(result, name, sum(getattr(each, name) for each in reads))
        if result.refused:
            closing = None  # what cannot be read now may hold lists of any day
        with progress("joining lists and feedback"):
            _join(database.connection, tables, result, rules, closing, moment)
        for read in reads:
            if set_aside and not read.is_whole:
                result.set_aside += mended(read, lambda data: _record(data) is not None)
            elif remove_closed and closing and read.is_whole and read.last_day < f"{closing}":
                result.removed += removed(read)
        if set_aside:
            result.set_aside += [moved_aside(source / name) for name in result.refused]
    return result


def _rules(labels: Mapping[str, str]) -> dict[str, str]:
    for name, rule in labels.items():
        if not wire.LABEL.fullmatch(name) or name in wire.TAKEN:
            raise OptionError(f"{name!r} is no name of a label. Give one such as dwell=sum.")
        check_choice(f"the rule of label {name!r}", rule, tuple(RULES))
    return {wire.CLICK: "any", **labels}


def _closing(close_after: float | None, now: datetime) -> date | None:
    """Days before this one are to be closed."""
    if close_after is None:
        return None
    if not close_after >= 0:
        raise OptionError(f"close_after must be at least 0 days. Got {close_after} instead.")
    return (now - timedelta(days=close_after)).astimezone(UTC).date()


# Segments into two tables.


class _Tables:
    """Lists and events of all segments, in Parquet files of a scratch folder."""

    def __init__(self, folder: Path) -> None:
        self.lists, self.events = folder / "lists.parquet", folder / "events.parquet"
        self.names: dict[str, list[str]] = {}
        self.without_features = 0
        self._keys: dict[tuple[str, ...], str] = {}
        self._names: dict[str, str] = {}  # in this segment, as `self.names` has them
        self._shown: list[wire.Shown] = []
        self._feedback: list[wire.Feedback] = []
        self._writers = (
            pq.ParquetWriter(self.lists, _SHOWN),
            pq.ParquetWriter(self.events, _EVENTS),
        )

    def begin(self) -> None:
        """Of a segment: what a name stands for is said in each."""
        self._names = {"": ""}

    def add(self, record: wire.Names | wire.Shown | wire.Feedback) -> None:
        if isinstance(record, wire.Names):
            key = self._keys.setdefault(tuple(record.names), f"{len(self._keys)}")
            self._names[record.id], self.names[key] = key, record.names
        elif isinstance(record, wire.Shown):
            key = self._names.get(record.names, "")
            given, width = record.features, 4 * len(self.names.get(key, ()))
            is_known = bool(given) and len(given or b"") == width * len(record.documents)
            record.names = key if is_known else ""
            self.without_features += given is not None and not is_known
            pieces: Any = None
            if given is not None and is_known:
                pieces = [given[i : i + width] for i in range(0, len(given), width)]
            record.features = pieces
            self._shown.append(record)
        else:
            self._feedback.append(record)
        if len(self._shown) + len(self._feedback) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        records: tuple[list[Any], ...] = (self._shown, self._feedback)
        for writer, each in zip(self._writers, records, strict=True):
            columns = [pa.array([getattr(r, e.name) for r in each], e.type) for e in writer.schema]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=writer.schema))
            each.clear()

    def close(self) -> None:
        self.flush()
        for writer in self._writers:
            writer.close()


def _read_segment(path: Path, tables: _Tables, result: Collected) -> SegmentRead | None:
    read = SegmentRead(path)
    tables.begin()
    try:
        for payload in payloads(path, read):
            record = _record(payload)
            if record is None:
                read.bad += 1
                continue
            if isinstance(record, wire.Shown):
                read.last_day = max(read.last_day, wire.day_of(record.time))
            elif isinstance(record, wire.Feedback):
                # Of a list that nobody knows the id may name any day.
                day = min(wire.list_day(record.list_id) or "", wire.day_of(record.received))
                read.last_day = max(read.last_day, day)
            tables.add(record)
    except (FileFormatError, OSError) as error:
        result.refused[path.name] = str(error)
        return None
    return read


def _record(payload: bytes) -> wire.Names | wire.Shown | wire.Feedback | None:
    """None where no server writes such a record."""
    try:
        record = wire.unpack(payload)
        if isinstance(record, wire.Shown) and record.experiment:
            _exploration(record.experiment)
    except (ValueError, UntiltError):
        return None
    return record


_exploration = lru_cache(maxsize=1000)(parse_exploration)


# The join.

_PREPARE = """
CREATE TABLE shown AS SELECT * EXCLUDE (again, teams), coalesce(teams, 0) AS team FROM (
    SELECT list_id AS list, CAST(time // 86400000000 AS INTEGER) AS day, time, session, query,
        ranker, probability, experiment, model, names, shadow_model,
        row_number() OVER (PARTITION BY list_id ORDER BY time) AS again,
        CAST(generate_subscripts(documents, 1) AS INTEGER) AS position,
        unnest(documents) AS document, unnest(features) AS features, unnest(teams) AS teams,
        unnest(shadow) AS shadow_position
    FROM {lists}) WHERE again = 1;
CREATE TABLE once AS SELECT * EXCLUDE (again, list_id), list_id AS list FROM (
    SELECT *, row_number() OVER (
        PARTITION BY event, list_id, document, label ORDER BY received, time, value) AS again
    FROM {events}) WHERE again = 1;
CREATE TABLE known AS
    SELECT once.*, shown.day FROM once JOIN shown USING (list, document);
"""
_UNKNOWN = "once ANTI JOIN known USING (event, list, document, label)"


def _join(
    sql: Any,
    tables: _Tables,
    result: Collected,
    rules: dict[str, str],
    closing: date | None,
    now: datetime,
) -> None:
    places = {"lists": tables.lists, "events": tables.events}
    at = {name: f"read_parquet({literal(str(path))})" for name, path in places.items()}
    sql.execute(_PREPARE.format(**at))

    def number(query: str, *values: Any) -> int:
        row = sql.execute(f"SELECT count({query}", values).fetchone()
        return int(row[0]) if row else 0

    result.duplicates = number(f"*) FROM {at['events']}") - number("*) FROM once")
    result.lists = number("DISTINCT list) FROM shown")
    result.reloads = number(f"*) FROM {at['lists']}") - result.lists
    result.impressions = number("*) FROM shown")
    result.events = number("*) FROM known")
    result.orphans = number(f"*) FROM {_UNKNOWN}")
    labels = {wire.CLICK: rules[wire.CLICK]} | {
        name: rules.get(name, "sum")
        for name in sorted(_labels(sql, result, rules))
        if name != wire.CLICK
    }
    result.labels = tuple(labels)
    columns = _feature_columns(_feature_names(sql, tables.names, result), labels)
    result.features = tuple(columns.values())
    result.renamed = {name: column for name, column in columns.items() if name != column}
    names = {key: [columns.get(name) for name in each] for key, each in tables.names.items()}
    final = _closed_days(result.out)
    for day, name in sql.execute(
        "SELECT DISTINCT day, CAST(DATE '1970-01-01' + day AS VARCHAR) FROM shown ORDER BY day"
    ).fetchall():
        if name not in final:
            is_last = closing is not None and date.fromisoformat(name) < closing
            closed_at = int(now.timestamp() * 1_000_000) if is_last else 0
            result.days[name] = _write_day(sql, result, names, labels, day, name, closed_at)
            if is_last:
                result.closed.append(name)
    for name, closed_at in final.items():
        of_day = ("substr(list, 1, 8) = ?", name.replace("-", ""))
        result.late += number(
            f"*) FROM once WHERE {of_day[0]} AND received > ?", of_day[1], closed_at
        )
        # Their lists may be gone with the segments, which makes them no orphans.
        result.orphans -= number(f"*) FROM {_UNKNOWN} WHERE {of_day[0]}", of_day[1])
    _arms(sql, result)


def _labels(sql: Any, result: Collected, rules: Iterable[str]) -> set[str]:
    """Those with a rule, and the most frequent others; a client may invent any number."""
    found = sql.execute("SELECT label FROM known GROUP BY label ORDER BY count(*) DESC, label")
    return _first(wire.MOST_LABELS, [*rules, *(name for (name,) in found.fetchall())], result)


def _feature_names(sql: Any, names: Mapping[str, list[str]], result: Collected) -> list[str]:
    """All features in the order in which they came, or those of the most impressions."""
    known = list(dict.fromkeys(name for each in names.values() for name in each))
    shown: Counter[str] = Counter()
    for key, n in sql.execute("SELECT names, count(*) FROM shown GROUP BY names").fetchall():
        shown.update(dict.fromkeys(names.get(key, ()), n))
    kept = _first(wire.MOST_NAMES, sorted(known, key=lambda name: -shown[name]), result)
    return [name for name in known if name in kept]


def _first(most: int, names: Iterable[str], result: Collected) -> set[str]:
    ordered = list(dict.fromkeys(names))
    result.left_out += ordered[most:]
    return set(ordered[:most])


def _feature_columns(names: Iterable[str], labels: Iterable[str]) -> dict[str, str]:
    """Feature -> column: its name, with "feature_" in front where that is taken, in any case."""
    taken = {*wire.TAKEN, *labels}
    columns = {}
    for name in names:
        column = name
        while column.lower() in taken:
            column = f"feature_{column}"
        taken.add(column.lower())
        columns[name] = column
    return columns


def _write_day(
    sql: Any,
    result: Collected,
    names: _Columns,
    labels: Mapping[str, str],
    day: int,
    name: str,
    closed_at: int,
) -> int:
    """The file of one day; how many lists it has."""
    of_label = ",\n".join(
        f"coalesce({RULES[rule]} FILTER (label = {literal(label)}), 0) AS {quoted(label)}"
        for label, rule in labels.items()
    )
    chosen = ", ".join(f"coalesce(l.{quoted(label)}, 0) AS {quoted(label)}" for label in labels)
    # "swap:1-2@pivot:0.02:10": estimators compare lists of one experiment alone.
    ranker = "CASE s.experiment WHEN '' THEN s.ranker ELSE s.ranker || '@' || s.experiment END"
    sql.execute(
        f"""
        CREATE OR REPLACE TABLE joined AS
        WITH l AS (SELECT list, document, {of_label} FROM known WHERE day = {day}
                   GROUP BY list, document)
        SELECT s.query AS query_id, s.list AS session_id, s.document AS doc_id, s.position,
               {chosen}, {ranker} AS ranker, s.time, s.session, s.model, s.probability,
               s.experiment, s.shadow_position, s.shadow_model, s.team, s.names, s.features
        FROM shown s LEFT JOIN l USING (list, document) WHERE s.day = {day}
        """
    )
    schema = _schema(labels, result.features, closed_at)
    path = result.out / f"clicks-{name}.parquet"
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        query = sql.sql("SELECT * FROM joined ORDER BY time, session_id, position")
        # Rows of all features are made at once.
        size = max(1, min(_BATCH, _MOST_VALUES // max(1, len(result.features))))
        for batch in arrow_reader(query, size):
            writer.write_batch(_finished(batch, schema, labels, result.features, names))
    row = sql.execute("SELECT count(DISTINCT session_id) FROM joined").fetchone()
    return int(row[0]) if row else 0


def _schema(labels: Iterable[str], features: Iterable[str], closed_at: int) -> pa.Schema:
    fields = [
        ("query_id", pa.string()), ("session_id", pa.string()), ("doc_id", pa.string()),
        ("position", pa.int32()), *((label, pa.float64()) for label in labels),
        ("ranker", pa.string()), ("timestamp", pa.timestamp("us", tz="UTC")),
        ("session", pa.string()), ("model", pa.string()), ("probability", pa.float64()),
        ("experiment", pa.string()), ("shadow_position", pa.int32()),
        ("shadow_model", pa.string()), ("team", pa.int32()),
        *((name, pa.float32()) for name in features),
    ]  # fmt: skip
    return pa.schema(fields, metadata={_CLOSED: str(closed_at)})


def _finished(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    labels: Iterable[str],
    features: tuple[str, ...],
    names: _Columns,
) -> pa.RecordBatch:
    column = {name: batch.column(place) for place, name in enumerate(batch.schema.names)}
    column["timestamp"] = column["time"].cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    for label in labels:
        column[label] = column[label].cast(pa.float64())
    if features:
        values = _features(column["names"], column["features"], features, names)
        for j, name in enumerate(features):
            at = np.ascontiguousarray(values[:, j])
            column[name] = pa.array(at, pa.float32(), mask=np.isnan(at))
    return pa.RecordBatch.from_arrays(
        [column[each.name].cast(each.type) for each in schema], schema=schema
    )


def _features(
    ids: pa.Array, pieces: pa.Array, features: tuple[str, ...], names: _Columns
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """(rows, features) with NaN where a row does not have one."""
    values = np.full((len(ids), len(features)), np.nan, np.float32)
    place = {name: j for j, name in enumerate(features)}
    owner, found = np.array(ids.to_pylist(), dtype=object), pieces.to_pylist()
    for known in set(owner.tolist()) - {""}:
        rows = np.flatnonzero(owner == known)
        data = b"".join(found[row] for row in rows)
        table = np.frombuffer(data, "<f4").reshape(len(rows), -1)
        columns = names[known]
        kept = [j for j, name in enumerate(columns) if name is not None]
        target = [place[name] for name in columns if name is not None]
        values[rows[:, None], target] = table[:, kept]
    return values


def _closed_days(out: Path) -> dict[str, int]:
    """Days whose file is final, and when it became so."""
    found = {}
    for path in sorted(out.glob("clicks-*.parquet")):
        try:
            closed_at = int((pq.read_schema(path).metadata or {}).get(_CLOSED, 0))
        except (pa.ArrowException, ValueError) as error:
            raise FileFormatError(
                f"{path} is no file of a day: {error}. Take it out of the folder."
            ) from error
        if closed_at:
            found[path.stem.removeprefix("clicks-")] = closed_at
    return found


# Were arms drawn with the probabilities that the log says?


def _arms(sql: Any, result: Collected) -> None:
    """Sessions by arm against those expected; chi-square over arms that expect at least 5."""
    from scipy import special

    rows = sql.execute(
        """
        SELECT experiment, n, ranker, count(*) FROM (
            SELECT list, any_value(experiment) AS experiment, any_value(ranker) AS ranker,
                   count(*) AS n
            FROM shown WHERE experiment <> '' GROUP BY list)
        GROUP BY ALL
        """
    ).fetchall()
    found: Counter[str] = Counter()
    expected: dict[str, float] = {}
    groups: Counter[tuple[str, int]] = Counter()
    for experiment, n, ranker, lists in rows:
        found[ranker] += lists
        groups[experiment, n] += lists
    for (experiment, n), lists in groups.items():
        for arm, share in _exploration(experiment).shares(n).items():
            expected[arm] = expected.get(arm, 0.0) + share * lists
    result.experiments = sorted({experiment for experiment, _ in groups})
    names = sorted(expected, key=lambda arm: (arm != BASE, arm))
    result.arms = {arm: found[arm] for arm in names}
    result.expected = {arm: round(expected[arm], 3) for arm in names}
    # Small arms are put together, so that chi-square's approximation holds.
    cells = [(found[arm], expected[arm]) for arm in names if expected[arm] >= 5]
    small = [(found[arm], expected[arm]) for arm in names if expected[arm] < 5]
    if small and (rest := sum(e for _, e in small)) >= 5:
        cells.append((sum(o for o, _ in small), rest))
    if len(cells) > 1:
        statistic = sum((o - e) ** 2 / e for o, e in cells)
        result.arms_p_value = float(special.gammaincc((len(cells) - 1) / 2, statistic / 2))
