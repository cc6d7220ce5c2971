"""JSON lines as typed tables: one object a line, its keys are the columns.

DuckDB would find types from a sample and take texts that look like one for dates. Here every value
stays JSON until all have been seen: a column holds whole numbers, numbers or true/false only where
all its values do, and else text. A value that is an object or a list makes a column of the type
JSON, which can be neither id nor number.
"""

import glob
import json
from collections.abc import Callable, Sequence

from untilt.data.read.csv_files import distinct, narrowest_types
from untilt.data.read.database import Database, literal, quoted, translated_errors
from untilt.data.read.packed import as_text, sound
from untilt.errors import FileFormatError

# Of all lines together. Keys that hold values (ids, dates) are no columns.
_MOST_KEYS = 10_000
_LONGEST = 1 << 24  # of a line, as DuckDB has it


def load_json(
    database: Database, files: Sequence[str], name: str, what: str
) -> tuple[tuple[str, ...], tuple[str, ...], Callable[[Sequence[str], frozenset[str]], str]]:
    """The columns of the files, the keys that they are, and a function that loads some of them."""
    with translated_errors(what):
        rows = " UNION ALL ".join(
            f"SELECT json FROM {_reader(sound(database, file, has_lines=False), _is_array(file))}"
            for file in files
        )
        found = database.rows(_KEYS_SQL.format(rows=rows, most=_MOST_KEYS + 1))
    keys = _checked_keys(found, _first_keys(files[0]), what)
    columns = dict(zip(distinct(keys), keys, strict=True))

    def load(chosen: Sequence[str], ids: frozenset[str]) -> str:
        values = ", ".join(f"{_value(columns[each])} AS {quoted(each)}" for each in chosen)
        with translated_errors(what):
            database.run(f"CREATE TEMP TABLE {name}_json AS SELECT {values} FROM ({rows})")
            casts = _casts(database, f"{name}_json", chosen, ids)
            database.run(f"CREATE TEMP TABLE {name} AS SELECT {casts} FROM {name}_json")
            database.run(f"DROP TABLE {name}_json")
        return name

    return tuple(columns), tuple(keys), load


# Every key once, and whether an object has it twice; NULL for a line that is no object.
_KEYS_SQL = (
    "SELECT key, bool_or(twice) FROM (SELECT unnest(coalesce(keys, [NULL])) AS key, "
    "len(list_distinct(keys)) < len(keys) AS twice FROM (SELECT "
    "CASE WHEN json_type(json) = 'OBJECT' THEN json_keys(json) END AS keys FROM ({rows}))) "
    "GROUP BY key LIMIT {most}"
)


def _reader(file: str, is_array: bool) -> str:
    layout = "array" if is_array else "newline_delimited"
    return (
        f"read_json({literal(glob.escape(file))}, format = '{layout}', records = 'false', "
        f"columns = {{json: 'JSON'}}, maximum_object_size = {_LONGEST})"
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
            (line for line in iter(lambda: text.readline(_LONGEST), "") if line.strip()), ""
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
            f"{what} has lines with the same key twice, and which of the values counts is not "
            "said. Write each key once."
        )
    return [*(key for key in first if key in keys), *sorted(keys - set(first))]


def _value(key: str) -> str:
    """The value of a key, as JSON; null is NULL."""
    pointer = literal("/" + key.replace("~", "~0").replace("/", "~1"))
    value = f"json_extract(json, {pointer})"
    return f"CASE WHEN json_type({value}) <> 'NULL' THEN {value} END"


def _casts(database: Database, table: str, columns: Sequence[str], ids: frozenset[str]) -> str:
    """Each column as the narrowest type that keeps all its values."""
    types = narrowest_types(database, table, [_tests(each, each in ids) for each in columns])
    casts = []
    for column, type_ in zip(columns, types, strict=True):
        text = f"{quoted(column)} ->> '$'"
        cast = quoted(column) if type_ is None else f"TRY_CAST({text} AS {type_})"
        casts.append(f"{cast} AS {quoted(column)}")
    return ", ".join(casts)


def _tests(column: str, is_id: bool) -> dict[str, str]:
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
