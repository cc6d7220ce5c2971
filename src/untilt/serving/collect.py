"""From a server's journal to a click log: lists and feedback joined, one Parquet file a day.

All that is on the disk is read and the files of the open days are written anew, each whole or not
at all. So running it twice, or again after a kill, gives the same files. Days are days of UTC, by
the time at which the server showed a list; a list belongs to one day only.

Feedback may come before or after its list, twice, or late. The same event id counts once. A day is
*closed* so many days after its end: its file is then final, says so in its metadata, and feedback
that comes even later is counted and left out. Segments that hold closed days alone may be removed.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from untilt._core.files import make_folder, replacing
from untilt._core.progress import progress, track
from untilt.bias.experiments.assignment import BASE
from untilt.data.read.database import arrow_reader, literal, open_database
from untilt.errors import FileFormatError, OptionError, check_choice
from untilt.serving.explore import parse_exploration
from untilt.serving.journal import SegmentRead, is_closed, payloads, segments
from untilt.serving.wire import CLICK, LABEL, TAKEN, Feedback, Names, Shown, list_day, unpack

RULES = {"any": "max(CAST(value > 0 AS DOUBLE))", "sum": "sum(value)", "max": "max(value)",
         "last": "arg_max(value, (time, event))"}  # fmt: skip
_CLOSED = b"untilt.closed"
_BATCH = 20_000  # records turned into columns at a time
_IMPRESSIONS = pa.schema(
    [
        ("list", pa.string()), ("day", pa.int32()), ("time", pa.int64()), ("session", pa.string()),
        ("query", pa.string()), ("document", pa.string()), ("position", pa.int32()),
        ("ranker", pa.string()), ("probability", pa.float64()), ("experiment", pa.string()),
        ("model", pa.string()), ("names", pa.string()), ("features", pa.binary()),
        ("shadow_position", pa.int32()), ("shadow_model", pa.string()), ("team", pa.int32()),
    ]
)  # fmt: skip
_EVENTS = pa.schema(
    [
        ("event", pa.string()), ("list", pa.string()), ("document", pa.string()),
        ("label", pa.string()), ("value", pa.float64()), ("time", pa.int64()),
        ("received", pa.int64()),
    ]
)  # fmt: skip


@dataclass
class Collected:
    """What was found and what was written.

    lists, impressions, events : that stand in the log
    reloads : showings of a list that was shown before, to the same session on the same day
    duplicates : events that came again
    orphans : events whose list or document is not known (yet)
    late : events of days that were closed before
    cut, damaged : bytes, as in `SegmentRead`
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
    removed: int = 0
    without_features: int = 0
    renamed: dict[str, str] = field(default_factory=dict)
    days: dict[str, int] = field(default_factory=dict)
    closed: list[str] = field(default_factory=list)
    labels: tuple[str, ...] = (CLICK,)
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
    now: datetime | None = None,
) -> Collected:
    """Write `out`/clicks-2026-11-16.parquet, one file a day, from the journal in `folder`.

    Parameters
    ----------
    labels : name -> how several events of one label on one document become a number: "any" (1 or
        0), "sum", "max" or "last". Labels that are not named: "any" for click, "sum" for others
    close_after : days after whose end, in days, a day becomes final; never where not given
    remove_closed : remove segments that hold nothing but closed days, and that nobody writes to
    now : the time by which days are closed
    """
    source, target = Path(folder), Path(out)
    if not source.is_dir():
        raise OptionError(f"{source} is no folder. Give the folder that a server logs to (--log).")
    rules = _rules(labels or {})
    if remove_closed and close_after is None:
        raise OptionError(
            "segments are removed once their days are closed, so say when: ⟦close_after=7⟧."
        )
    make_folder(target)
    result = Collected(source, target)
    # Beside the segments where that may be: in `out` somebody may be reading just now.
    beside = source if os.access(source, os.W_OK) else target
    with open_database(memory_limit=None, temp_directory=beside, threads=None) as database:
        read = _Tables(database.scratch)
        moment = _microseconds(now)
        done = [_read_segment(path, read) for path in track(segments(source), "reading the log")]
        read.close()
        result.segments = len(done)
        result.cut = sum(each.cut for each in done)
        result.damaged = sum(each.damaged for each in done)
        result.without_features = read.without_features
        with progress("joining lists and feedback"):
            closing = _closing(close_after, now)
            _join(database.connection, read, result, rules, closing, moment)
    if remove_closed:
        result.removed = _remove(read, set(_closed_days(target)))
    return result


def _rules(labels: Mapping[str, str]) -> dict[str, str]:
    for name, rule in labels.items():
        if not LABEL.fullmatch(name) or name in TAKEN:
            raise OptionError(f"{name!r} is no name of a label. Give one such as dwell=sum.")
        check_choice(f"the rule of label {name!r}", rule, tuple(RULES))
    return {CLICK: "any", **labels}


def _microseconds(now: datetime | None) -> int:
    return int((now or datetime.now(UTC)).timestamp() * 1_000_000)


def _closing(close_after: float | None, now: datetime | None) -> date | None:
    """Days before this one are to be closed."""
    if close_after is None:
        return None
    if not close_after >= 0:
        raise OptionError(f"close_after must be at least 0 days. Got {close_after} instead.")
    return ((now or datetime.now(UTC)) - timedelta(days=close_after)).astimezone(UTC).date()


# Segments into two tables.


class _Tables:
    """Impressions and events of all segments, in Parquet files of a scratch folder."""

    def __init__(self, folder: Path) -> None:
        self.impressions, self.events = folder / "impressions.parquet", folder / "events.parquet"
        self.names: dict[str, list[str]] = {}
        self.without_features = 0
        self.days_of: dict[Path, set[str]] = {}
        self._shown: list[Shown] = []
        self._feedback: list[Feedback] = []
        self._writers = (
            pq.ParquetWriter(self.impressions, _IMPRESSIONS),
            pq.ParquetWriter(self.events, _EVENTS),
        )

    def add(self, record: Names | Shown | Feedback) -> None:
        if isinstance(record, Names):
            self.names[record.id] = record.names
        elif isinstance(record, Shown):
            self._shown.append(record)
        else:
            self._feedback.append(record)
        if len(self._shown) + len(self._feedback) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        for each in self._shown:
            if each.features is not None and each.names not in self.names:
                each.features, each.names = None, ""
                self.without_features += 1
        if self._shown:
            self._writers[0].write_batch(_impressions(self._shown, self.names))
        if self._feedback:
            self._writers[1].write_batch(_events(self._feedback))
        self._shown, self._feedback = [], []

    def close(self) -> None:
        self.flush()
        for writer in self._writers:
            writer.close()


def _read_segment(path: Path, tables: _Tables) -> SegmentRead:
    read, days = SegmentRead(path), set()
    for payload in payloads(path, read):
        try:
            record = unpack(payload)
        except Exception as error:
            raise FileFormatError(
                f"{path} holds a record that this version cannot read ({error}). Was it written "
                "by a newer one?"
            ) from error
        if isinstance(record, Shown):
            days.add(_day_of(record.time))
        elif isinstance(record, Feedback):
            days.add(list_day(record.list_id) or _day_of(record.received))
        tables.add(record)
    tables.days_of[path] = days
    return read


def _day_of(time: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)).date().isoformat()


def _impressions(shown: list[Shown], names: Mapping[str, list[str]]) -> pa.RecordBatch:
    n = [len(each.documents) for each in shown]
    owner = np.repeat(np.arange(len(shown)), n)

    def repeated(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(pa.array(owner))

    features: list[bytes | None] = []
    shadow: list[int | None] = []
    teams: list[int] = []
    for each in shown:
        width = 4 * len(names[each.names]) if each.features is not None else 0
        piece = each.features or b""
        features += [
            piece[i * width : (i + 1) * width] if width else None
            for i in range(len(each.documents))
        ]
        teams += each.teams if each.teams is not None else [0] * len(each.documents)
        shadow += each.shadow if each.shadow is not None else [None] * len(each.documents)
    text = pa.string()
    columns = [
        repeated([each.list_id for each in shown], text),
        repeated([each.time // 86_400_000_000 for each in shown], pa.int32()),
        repeated([each.time for each in shown], pa.int64()),
        repeated([each.session for each in shown], text),
        repeated([each.query for each in shown], text),
        pa.array([document for each in shown for document in each.documents], text),
        pa.array(np.concatenate([np.arange(1, m + 1) for m in n]), pa.int32()),
        repeated([each.ranker for each in shown], text),
        repeated([each.probability for each in shown], pa.float64()),
        repeated([each.experiment for each in shown], text),
        repeated([each.model for each in shown], text),
        repeated([each.names for each in shown], text),
        pa.array(features, pa.binary()),
        pa.array(shadow, pa.int32()),
        repeated([each.shadow_model for each in shown], text),
        pa.array(teams, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_IMPRESSIONS)


def _events(feedback: list[Feedback]) -> pa.RecordBatch:
    columns = [
        pa.array([getattr(each, "list_id" if name == "list" else name) for each in feedback], kind)
        for name, kind in zip(_EVENTS.names, _EVENTS.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_EVENTS)


# The join.

_PREPARE = """
CREATE TABLE shown AS SELECT * EXCLUDE (again) FROM (
    SELECT *, row_number() OVER (PARTITION BY list, position ORDER BY time) AS again
    FROM read_parquet({impressions})) WHERE again = 1;
CREATE TABLE once AS SELECT * EXCLUDE (again) FROM (
    SELECT *, row_number() OVER (PARTITION BY event ORDER BY received, list, document, label, value)
        AS again
    FROM read_parquet({events})) WHERE again = 1;
CREATE TABLE known AS
    SELECT once.*, shown.day FROM once JOIN shown USING (list, document);
"""


def _join(
    sql: Any,
    tables: _Tables,
    result: Collected,
    rules: dict[str, str],
    closing: date | None,
    moment: int,
) -> None:
    places = {"impressions": tables.impressions, "events": tables.events}
    sql.execute(_PREPARE.format(**{k: _at(v) for k, v in places.items()}))

    def number(query: str) -> int:
        row = sql.execute(query).fetchone()
        return int(row[0] or 0) if row else 0

    source = f"read_parquet({_at(tables.events)})"
    result.duplicates = number(f"SELECT count(*) FROM {source}") - number(
        "SELECT count(*) FROM once"
    )
    first = f"read_parquet({_at(tables.impressions)}) WHERE position = 1"
    result.lists = number("SELECT count(DISTINCT list) FROM shown")
    result.reloads = number(f"SELECT count(*) FROM {first}") - result.lists
    result.impressions = number("SELECT count(*) FROM shown")
    result.events = number("SELECT count(*) FROM known")
    found = [name for (name,) in sql.execute("SELECT DISTINCT label FROM known").fetchall()]
    labels = {CLICK: rules[CLICK]} | {
        name: rules.get(name, "sum") for name in sorted({*found, *rules}) if name != CLICK
    }
    result.labels = tuple(labels)
    columns = _feature_columns(tables.names.values(), labels)
    result.features = tuple(columns.values())
    result.renamed = {name: column for name, column in columns.items() if name != column}
    names = {key: [columns[name] for name in each] for key, each in tables.names.items()}
    final = _closed_days(result.out)
    days = [day for (day,) in sql.execute("SELECT DISTINCT day FROM shown").fetchall()]
    for day in sorted(days):
        name = (date(1970, 1, 1) + timedelta(days=day)).isoformat()
        if name not in final:
            is_last = closing is not None and date.fromisoformat(name) < closing
            closed_at = moment if is_last else 0
            result.days[name] = _write_day(sql, result, names, labels, day, name, closed_at)
            if is_last:
                result.closed.append(name)
    unknown = "once ANTI JOIN known USING (event)"
    result.orphans = number(f"SELECT count(*) FROM {unknown}")
    for name, closed_at in final.items():
        of_day = f"substr(list, 1, 8) = '{name.replace('-', '')}'"
        late = f"SELECT count(*) FROM once WHERE {of_day} AND received > {closed_at}"
        result.late += number(late)
        # Their lists may be gone with the segments, which makes them no orphans.
        result.orphans -= number(f"SELECT count(*) FROM {unknown} WHERE {of_day}")
    _arms(sql, result)


def _feature_columns(names: Iterable[Sequence[str]], labels: Iterable[str]) -> dict[str, str]:
    """Feature -> column: its name, with "feature_" in front where that is taken, in any case."""
    taken = {*TAKEN, *labels}
    columns = {}
    for name in dict.fromkeys(name for each in names for name in each):
        column = name
        while column.lower() in taken:
            column = f"feature_{column}"
        taken.add(column.lower())
        columns[name] = column
    return columns


def _at(path: Path) -> str:
    return literal(str(path))


def _write_day(
    sql: Any,
    result: Collected,
    names: Mapping[str, list[str]],
    labels: Mapping[str, str],
    day: int,
    name: str,
    closed_at: int,
) -> int:
    """The file of one day; how many lists it has."""
    of_label = ",\n".join(
        f"coalesce({RULES[rule]} FILTER (label = '{label}'), 0) AS \"{label}\""
        for label, rule in labels.items()
    )
    chosen = ", ".join(f'coalesce(l."{label}", 0) AS "{label}"' for label in labels)
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
        for batch in arrow_reader(query, _BATCH):
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
    names: Mapping[str, list[str]],
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
    ids: pa.Array, pieces: pa.Array, features: tuple[str, ...], names: Mapping[str, list[str]]
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """(rows, features) with NaN where a row does not have one."""
    values = np.full((len(ids), len(features)), np.nan, np.float32)
    place = {name: j for j, name in enumerate(features)}
    owner, found = np.array(ids.to_pylist(), dtype=object), pieces.to_pylist()
    for known in set(owner.tolist()) - {""}:
        rows = np.flatnonzero(owner == known)
        data = b"".join(found[row] for row in rows)
        table = np.frombuffer(data, "<f4").reshape(len(rows), -1)
        columns = np.array([place[name] for name in names[known]])
        values[np.ix_(rows, columns)] = table
    return values


def _closed_days(out: Path) -> dict[str, int]:
    """Days whose file is final, and when it became so."""
    found = {}
    for path in sorted(out.glob("clicks-*.parquet")):
        closed_at = int((pq.read_schema(path).metadata or {}).get(_CLOSED, 0))
        if closed_at:
            found[path.stem.removeprefix("clicks-")] = closed_at
    return found


def _remove(tables: _Tables, closed: set[str]) -> int:
    removed = 0
    for path, days in tables.days_of.items():
        if days <= closed and is_closed(path):
            path.unlink()
            removed += 1
    return removed


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
        for arm, share in parse_exploration(experiment).shares(n).items():
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
