"""CSV and JSON lines as typed tables: types are found by looking at every value.

DuckDB would guess the layout and the types from a sample: it would fail on the first value further
down that does not fit, name another separator as the reason, take texts that look like dates for
dates, and read the id '007' as 7. In CSV all values are text. In JSON lines, one object a line,
keys are the columns: one holds whole numbers, numbers or true/false only where all its values do,
and else text. A value that is an object or a list makes a column of the type JSON, which can be
neither id nor number.

Nested documents as flat columns of text: by paths, from JSON lines and from tables alike.

`event_attributes.object.object_id` is a key inside objects, a column that holds objects (a struct,
or JSON as text), or a column of that very name, as tools flatten it. Search engines put documents
into `_source`, and their bulk format a line about the index before each one.
"""

import bz2
import csv
import glob
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, cast

from untilt.data.read.database import Database, in_short, literal, quoted, translated_errors
from untilt.data.read.files import JSON, PACKED, Files
from untilt.data.read.sources import Source, alike, distinct, open_source
from untilt.data.read.types import Column, instant_sql, text_sql
from untilt.errors import ColumnError, FileFormatError
from untilt.facts import phrase

_SEPARATORS = ",;\t|"
# Of the first line of CSV. Of any line DuckDB reads 2,000,000 bytes.
_LONGEST_HEADER = 1 << 20
# Words for a missing number. Ids are never compared with them.
_MISSING = "('', 'null', 'na', 'n/a', 'none', 'nan')"

# Of all lines together. Keys that hold values (ids, dates) are no columns.
_MOST_KEYS = 10_000
_LONGEST_LINE = 1 << 24  # of JSON, as DuckDB has it

_BLOCK = 1 << 21


def open_csv(database: Database, files: Files, name: str) -> Source:
    """CSV files of any separator, their columns matched by name."""
    paths = [database.path(file) for file in files.names]
    headers = [_header(file) for file in paths]
    names = tuple(dict.fromkeys(column for _, header in headers for column in distinct(header)))

    def load(columns: Sequence[str], ids: frozenset[str]) -> str:
        values = {each: quoted(each) for each in columns}
        with translated_errors(files.what):
            verified = [verified_file(database, file) for file in paths]
            text = " UNION ALL BY NAME ".join(
                f"SELECT * FROM {_csv_reader(file, separator, distinct(header))}"
                for file, (separator, header) in zip(verified, headers, strict=True)
            )
            return _typed(database, name, text, values, ids, _csv_tests, _csv_cast)

    given = tuple(name for _, header in headers for name in alike(header))
    return Source(files.what, names, load, given)


def _header(file: str) -> tuple[str, list[str]]:
    """The separator and the names in the first line."""
    first = _first_line(file)
    plain = re.sub(r'"[^"]*"', "", first)
    separator = max(_SEPARATORS, key=plain.count)
    try:
        return separator, next(csv.reader([first], delimiter=separator), [])
    except csv.Error as error:
        raise FileFormatError(
            f"{os.path.normpath(file)} cannot be read: {error}. The file may be damaged."
        ) from error


def _first_line(file: str) -> str:
    """The first line, and as many more as a quoted name needs."""
    lines: list[str] = []
    length = quotes = 0
    with as_text(file) as opened:
        while (line := opened.readline(_LONGEST_HEADER)) and length < _LONGEST_HEADER:
            lines.append(line)
            length, quotes = length + len(line), quotes + line.count('"')
            if quotes % 2 == 0:
                break
    return "".join(lines)


def _csv_reader(file: str, separator: str, names: Sequence[str]) -> str:
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names or ["column1"])
    return (
        f"read_csv({literal(glob.escape(file))}, auto_detect = false, header = true, "
        f"columns = {{{columns}}}, delim = {literal(separator)}, quote = '\"', escape = '\"', "
        f"allow_quoted_nulls = false)"
    )


def _csv_cast(value: str, type_: str | None) -> str:
    if type_ == "TIMESTAMP":
        return instant_sql(value)
    return f"TRY_CAST({value} AS {type_ or 'VARCHAR'})"


def _csv_tests(column: str, is_id: bool) -> dict[str, str]:
    """Types that a column may have, narrowest first, with what every value must fulfil."""
    value = quoted(column)
    # Only what prints as itself is a whole number: '007' as 7 would be another id.
    same = f"CAST(TRY_CAST({value} AS BIGINT) AS VARCHAR) IS NOT DISTINCT FROM {value}"
    whole = f"{value} IS NULL OR {same}"
    if is_id:
        return {"BIGINT": whole}
    missing = f"{value} IS NULL OR lower(trim({value})) IN {_MISSING}"
    return {
        "BIGINT": whole,
        "DOUBLE": f"{missing} OR TRY_CAST({value} AS DOUBLE) IS NOT NULL",
        "BOOLEAN": f"{missing} OR lower(trim({value})) IN ('true', 'false')",
        "TIMESTAMP": f"{missing} OR TRY_CAST({value} AS TIMESTAMP) IS NOT NULL",
    }


def _typed(
    database: Database,
    name: str,
    rows: str,
    values: Mapping[str, str],
    ids: frozenset[str],
    tests_of: Callable[[str, bool], dict[str, str]],
    cast_to: Callable[[str, str | None], str],
) -> str:
    """A table of the values, each column of the first of its types whose test all rows pass.

    A table without rows passes every test.
    """
    chosen = ", ".join(f"{value} AS {quoted(column)}" for column, value in values.items())
    database.run(f"CREATE TEMP TABLE {name}_text AS SELECT {chosen} FROM ({rows})")
    tests = {column: tests_of(column, column in ids) for column in values}
    asked = [f"bool_and({test})" for fits in tests.values() for test in fits.values()]
    verdicts = iter(database.row(f"SELECT {', '.join(asked)} FROM {name}_text"))
    casts = []
    for column, fits in tests.items():
        passed = [type_ for type_ in fits if next(verdicts) is not False]
        casts.append(f"{cast_to(quoted(column), next(iter(passed), None))} AS {quoted(column)}")
    database.run(f"CREATE TEMP TABLE {name} AS SELECT {', '.join(casts)} FROM {name}_text")
    database.run(f"DROP TABLE {name}_text")
    return name


def open_json(database: Database, files: Files, name: str) -> Source:
    """JSON lines or lists of objects; a key of any of them is a column."""
    paths = [database.path(file) for file in files.names]
    with translated_errors(files.what):
        verified = [verified_file(database, file, has_lines=False) for file in paths]
        rows = " UNION ALL ".join(
            f"SELECT json FROM {_json_reader(readable, _is_array(file))}"
            for file, readable in zip(paths, verified, strict=True)
        )
        found = database.rows(_KEYS_SQL.format(rows=rows, most=_MOST_KEYS + 1))
    keys = _checked_keys(found, _first_keys(paths[0]), files.what)
    columns = dict(zip(distinct(keys), keys, strict=True))

    def load(chosen: Sequence[str], ids: frozenset[str]) -> str:
        values = {each: _value(columns[each]) for each in chosen}
        with translated_errors(files.what):
            return _typed(database, name, rows, values, ids, _json_tests, _json_cast)

    return Source(files.what, tuple(columns), load, tuple(keys))


# Every key once, and whether an object has it twice; NULL for a line that is no object.
_KEYS_SQL = (
    "SELECT key, bool_or(twice) FROM (SELECT unnest(coalesce(keys, [NULL])) AS key, "
    "len(list_distinct(keys)) < len(keys) AS twice FROM (SELECT "
    "CASE WHEN json_type(json) = 'OBJECT' THEN json_keys(json) END AS keys FROM ({rows}))) "
    "GROUP BY key LIMIT {most}"
)


def _json_reader(file: str, is_array: bool) -> str:
    layout = "array" if is_array else "newline_delimited"
    return (
        f"read_json({literal(glob.escape(file))}, format = '{layout}', records = 'false', "
        f"columns = {{json: 'JSON'}}, maximum_object_size = {_LONGEST_LINE})"
    )


def _is_array(file: str) -> bool:
    """Whether the file is one list of objects and not an object a line."""
    with as_text(file) as text:
        while block := text.read(1 << 12):
            if block.strip():
                return block.lstrip().startswith("[")
    return False


def _first_keys(file: str) -> list[str]:
    """The keys of the first line, in their order; of a list of objects none."""
    with as_text(file) as text:
        line = next(
            (line for line in iter(lambda: text.readline(_LONGEST_LINE), "") if line.strip()), ""
        )
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return list(first) if isinstance(first, dict) else []


def _checked_keys(
    found: Sequence[tuple[str | None, bool]], first: Sequence[str], what: str
) -> list[str]:
    """The keys: those of the first line as they stand there, and all others by name."""
    keys = {key for key, _ in found if key is not None}
    if any(key is None for key, _ in found):
        raise FileFormatError(
            f"{what} has lines that are no JSON object. A line of a log is one impression, such as "
            '{"query_id": 1, "session_id": 1, "doc_id": "a", "position": 1, "click": 0}.'
        )
    if len(found) > _MOST_KEYS:
        raise FileFormatError(
            f"{what} has more than {_MOST_KEYS:,} different keys, and keys are columns. Ids and "
            "dates are values: write them behind a key such as doc_id."
        )
    if any(twice for _, twice in found):
        raise FileFormatError(
            f"{what} has lines that hold a key twice, and untilt cannot choose between the values. "
            "Write each key once."
        )
    return [*(key for key in first if key in keys), *sorted(keys - set(first))]


def _value(key: str) -> str:
    """The value of a key, as JSON; null is NULL."""
    pointer = literal("/" + key.replace("~", "~0").replace("/", "~1"))
    value = f"json_extract(json, {pointer})"
    return f"CASE WHEN json_type({value}) <> 'NULL' THEN {value} END"


def _json_cast(value: str, type_: str | None) -> str:
    return value if type_ is None else f"TRY_CAST({value} ->> '$' AS {type_})"


def _json_tests(column: str, is_id: bool) -> dict[str, str]:
    """Types that a column may have, narrowest first, with what every value must fulfil."""
    value = quoted(column)
    kind, missing = f"json_type({value})", f"{value} IS NULL"
    whole = f"{kind} IN ('UBIGINT', 'BIGINT') AND TRY_CAST({value} ->> '$' AS BIGINT) IS NOT NULL"
    tests = {"BIGINT": f"{missing} OR ({whole})"}
    if not is_id:
        tests["DOUBLE"] = f"{missing} OR {kind} IN ('UBIGINT', 'BIGINT', 'DOUBLE')"
        tests["BOOLEAN"] = f"{missing} OR {kind} = 'BOOLEAN'"
    tests["VARCHAR"] = f"{missing} OR {kind} NOT IN ('OBJECT', 'ARRAY')"
    return tests


# ---- packed files: gzip, bzip2, Zstandard
#
# DuckDB unpacks gzip and Zstandard by itself, and passes over damage in both: of a .zst that was
# cut in two it reads the first half. So a packed file is read to its end by another reader first.
# bzip2 it does not know: such a file is unpacked into the scratch folder.


@contextmanager
def unpacking(file: str) -> Iterator[IO[bytes]]:
    """The content of a file, unpacked as it is read."""
    with explained(file), open(file, "rb") as content:
        ending = os.path.splitext(file)[1].lower()
        if ending == ".gz":
            with gzip.open(content) as opened:
                yield cast("IO[bytes]", opened)
        elif ending == ".bz2":
            with bz2.open(content) as opened:
                yield opened
        elif ending == ".zst":
            import pyarrow as pa

            with pa.CompressedInputStream(content, "zstd") as opened:
                yield opened
        else:
            yield content


@contextmanager
def explained(file: str) -> Iterator[None]:
    """What goes wrong with a file as an error of ours."""
    try:
        yield
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"{os.path.normpath(file)} cannot be read: {error}. The file may be damaged or not in "
            "UTF-8."
        ) from error


@contextmanager
def as_text(file: str) -> Iterator[IO[str]]:
    """The content of a file as text; a byte order mark is no part of it."""
    with unpacking(file) as content, io.TextIOWrapper(content, encoding="utf-8-sig") as text:
        yield text


def verified_file(database: Database, file: str, *, has_lines: bool = True) -> str:
    """The file as DuckDB can read it; raises where DuckDB would skip damage.

    It does not look at the checksum of gzip, takes a cut .zst for a whole one, and leaves out a
    last line of CSV that is longer than its buffer of 32 MB (DuckDB 2.0). One more pass that looks
    at no value: 0.1 s per GiB, 5 s per GiB of text in gzip, a quarter of what DuckDB takes for it.
    """
    ending = os.path.splitext(file)[1].lower()
    if ending not in PACKED and not has_lines:
        return file
    target = database.scratch_file(os.path.splitext(file[: -len(ending)])[1])
    with unpacking(file) as content:
        if ending != ".bz2":
            _look_through(file, content, None, has_lines=has_lines)
            return file
        with open(target, "wb") as copy:
            _look_through(file, content, copy, has_lines=has_lines)
    return target


def _look_through(
    file: str, content: IO[bytes], copy: IO[bytes] | None, *, has_lines: bool
) -> None:
    while block := content.read(_BLOCK):
        if copy is not None:
            copy.write(block)
        if has_lines and len(block) == _BLOCK and b"\n" not in block and b"\r" not in block:
            raise FileFormatError(
                f"{os.path.normpath(file)} has a line of more than {_BLOCK:,} bytes. Its ending "
                "may be wrong, or it lacks line ends."
            )


_WRAPPER = "_source"
# Lines of the bulk format that say where the next document belongs.
_BULK = ("index._index", "create._index")


def texts_of(database: Database, part: Any, name: str, paths: Mapping[str, Sequence[str]]) -> str:
    """The view `name` with each path as a column of text, NULL where it is not there.

    Of several paths the first that is there counts. Returns what to call the documents.
    """
    if isinstance(part, Files) and part.kind is JSON:
        _from_lines(database, part, name, paths)
        return part.what
    return _from_table(database, part, name, paths)


def refuse_missing(
    database: Database,
    part: Any,
    name: str,
    paths: Mapping[str, Sequence[str]],
    needed: Sequence[str],
    what: str,
) -> None:
    """Raise where no document has a path that is needed. All are read once more to tell."""
    with translated_errors(what):
        found = database.row(
            f"SELECT {', '.join(f'max({quoted(each)}) IS NOT NULL' for each in needed)} FROM {name}"
        )
    missing = [" or ".join(paths[n]) for n, there in zip(needed, found, strict=True) if not there]
    if missing:
        raise ColumnError(
            phrase(
                "{what}: no document has {what_}. {keys}If yours has another name, map it: "
                "⟦columns={{{needed:r}: 'your path'}}⟧.",
                what=what,
                what_=" and ".join(missing),
                keys=_keys(database, part, name),
                needed=needed[found.index(False)],
            )
        )


def _from_lines(
    database: Database, files: Files, name: str, paths: Mapping[str, Sequence[str]]
) -> None:
    """JSON lines. Each line is parsed once, for all paths together."""
    import duckdb

    names = [verified_file(database, database.path(file)) for file in files.names]
    listed = ", ".join(literal(glob.escape(file)) for file in names)
    lines = f"read_ndjson_objects([{listed}])"
    try:
        first = database.rows(
            "SELECT json_type(json), json_type(json, '$.hits.hits'), "
            f"array_to_string(json_keys(json)[:20], ', ') FROM {lines} LIMIT 1"
        )
        _refuse_whole(files, first)
        database.run(f"CREATE TEMP VIEW {name}_lines AS SELECT json FROM {lines}")
    except duckdb.InvalidInputException as error:
        raise FileFormatError(
            f"{files.what} cannot be read: {in_short(error)}. It must be JSON lines, one document "
            "a line: jq -c . FILE makes them of documents over several lines."
        ) from error
    extracted = [*(path for each in paths.values() for path in each), *_BULK]
    asked = dict.fromkeys(text for path in extracted for text in _in_json(path))
    number = {text: i for i, text in enumerate(asked, start=1)}
    columns = {
        ours: [f"t[{number[text]}]" for path in theirs for text in _in_json(path)]
        for ours, theirs in paths.items()
    }
    about_index = " AND ".join(f"t[{number[_in_json(path)[0]]}] IS NULL" for path in _BULK)
    # DuckDB moves conditions on t below what makes it, and would parse each line anew for each of
    # them (2.2 million events: 3.5 s in place of 2.1). It does not move them below unnest.
    parsed = f"unnest([json_extract_string(json, [{', '.join(map(literal, asked))}])])"
    database.run(
        f"CREATE TEMP VIEW {name} AS SELECT {_coalesced(columns)} FROM "
        f"(SELECT {parsed} AS t FROM {name}_lines) WHERE {about_index}"
    )


def _refuse_whole(files: Files, first: list[tuple[Any, ...]]) -> None:
    """Raise where the file is one array or one answer of a search engine."""
    if not first:
        raise FileFormatError(f"{files.what} is empty: it holds no document.")
    kind, hits, _ = first[0]
    how = "'.hits.hits[]'" if hits is not None else "'.[]'" if kind == "ARRAY" else ""
    if how or kind != "OBJECT":
        raise FileFormatError(
            f"{files.what} must be JSON lines, one document a line. It begins with "
            f"{'the answer of a search' if hits is not None else f'a JSON {str(kind).lower()}'}"
            f"{f': jq -c {how} FILE makes lines of it' if how else ''}."
        )


def _in_json(path: str) -> list[str]:
    """Where a path may be inside a document: nested or flattened, bare or wrapped."""
    parts = path.split(".")
    spelled = [parts] if len(parts) == 1 else [parts, [path]]
    return [_steps([*outer, *inner]) for outer in ([], [_WRAPPER]) for inner in spelled]


def _steps(keys: Sequence[str]) -> str:
    """A path in DuckDB's JSON."""
    return "$" + "".join(f'."{key}"' for key in keys)


def _coalesced(columns: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(
        f"coalesce({', '.join(found)}, CAST(NULL AS VARCHAR)) AS {quoted(ours)}"
        if found
        else f"CAST(NULL AS VARCHAR) AS {quoted(ours)}"
        for ours, found in columns.items()
    )


def _from_table(
    database: Database, part: Any, name: str, paths: Mapping[str, Sequence[str]]
) -> str:
    source = open_source(database, part, f"{name}_table")
    named = {ours: [p for path in theirs for p in (path, f"{_WRAPPER}.{path}")]
             for ours, theirs in paths.items()}  # fmt: skip
    owners = {path: _owner(source.columns, path) for each in named.values() for path in each}
    used = tuple(dict.fromkeys(owner for owner in owners.values() if owner is not None))
    if not used:
        wanted = ", ".join(path for each in paths.values() for path in each)
        raise ColumnError(
            f"{source.what} has none of the columns {wanted}. "
            f"Found: {', '.join(source.columns) or 'none'}."
        )
    table = source.load(used, frozenset(used))
    with translated_errors(source.what):
        types = database.columns(table)
        columns = {
            ours: [_inside(Column(owner, types[owner]), path) for path in theirs
                   if (owner := owners[path]) is not None]
            for ours, theirs in named.items()
        }  # fmt: skip
        database.run(f"CREATE TEMP VIEW {name} AS SELECT {_coalesced(columns)} FROM {table}")
    return source.what


def _owner(columns: Sequence[str], path: str) -> str | None:
    """The column that holds a path: the path itself, or the longest beginning of it."""
    parts = path.split(".")
    beginnings = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((each for each in beginnings if each in columns), None)


def _inside(column: Column, path: str) -> str:
    """The text of a path in the column that holds it."""
    text = column.type in ("VARCHAR", "JSON")
    if path == column.name:
        is_nested = column.kind == "other" and not text
        return f"CAST(to_json({column.raw}) AS VARCHAR)" if is_nested else text_sql(column)
    inner = path.removeprefix(f"{column.name}.").split(".")
    value = f"TRY_CAST({column.raw} AS JSON)" if text else f"to_json({column.raw})"
    return f"json_extract_string({value}, {literal(_steps(inner))})"


def _keys(database: Database, part: Any, name: str) -> str:
    """What a document has instead."""
    if not (isinstance(part, Files) and part.kind is JSON):
        return ""
    ((keys, inner),) = database.rows(
        "SELECT array_to_string(json_keys(json)[:20], ', '), array_to_string(json_keys(json, "
        f"'$.{_WRAPPER}')[:20], ', ') FROM {name}_lines LIMIT 1"
    )
    return f"The first one has {inner or keys or 'nothing'}. "
