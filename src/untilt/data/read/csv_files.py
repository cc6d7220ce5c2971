"""CSV files as typed tables: all values are text, so types are found by looking at every value.

DuckDB would guess the layout and the types from a sample: it would fail on the first value further
down that does not fit, name another separator as the reason, and read the id '007' as 7.
"""

import csv
import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence

from untilt.data.read.database import Database, literal, quoted, translated_errors
from untilt.data.read.packed import as_text, sound
from untilt.data.read.types import instant_sql
from untilt.errors import FileFormatError

_SEPARATORS = ",;\t|"
# Of the first line. Of any line DuckDB reads 2,000,000 bytes.
_LONGEST = 1 << 20
# Words for a missing number. Ids are never compared with them.
_MISSING = "('', 'null', 'na', 'n/a', 'none', 'nan')"


def load_csv(
    database: Database, files: Sequence[str], name: str, what: str
) -> tuple[tuple[str, ...], tuple[str, ...], Callable[[Sequence[str], frozenset[str]], str]]:
    """The columns of the files, their names in the files, and a function that loads some."""
    headers = [_header(file) for file in files]
    names = tuple(dict.fromkeys(column for _, header in headers for column in distinct(header)))

    def load(columns: Sequence[str], ids: frozenset[str]) -> str:
        chosen = ", ".join(quoted(column) for column in columns)
        with translated_errors(what):
            text = " UNION ALL BY NAME ".join(
                f"SELECT * FROM {_reader(sound(database, file), separator, distinct(header))}"
                for file, (separator, header) in zip(files, headers, strict=True)
            )
            database.run(f"CREATE TEMP TABLE {name}_text AS SELECT {chosen} FROM ({text})")
            casts = _casts(database, f"{name}_text", columns, ids)
            database.run(f"CREATE TEMP TABLE {name} AS SELECT {casts} FROM {name}_text")
            database.run(f"DROP TABLE {name}_text")
        return name

    given = tuple(name for _, header in headers for name in _alike(header))
    return names, given, load


def _alike(header: Sequence[str]) -> list[str]:
    """Names that a header has more than once, but for upper and lower case."""
    lower = [name.lower() for name in header]
    return [name for name in dict.fromkeys(header) if lower.count(name.lower()) > 1]


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
        while (line := opened.readline(_LONGEST)) and length < _LONGEST:
            lines.append(line)
            length, quotes = length + len(line), quotes + line.count('"')
            if quotes % 2 == 0:
                break
    return "".join(lines)


def distinct(names: Sequence[str]) -> list[str]:
    """Names as SQL needs them: none empty (pandas writes its index so), none twice."""
    taken: set[str] = set()
    distinct = []
    for number, given in enumerate(names, start=1):
        name = given or f"column{number}"
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        distinct.append(name)
    return distinct


def _reader(file: str, separator: str, names: Sequence[str]) -> str:
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names or ["column1"])
    return (
        f"read_csv({literal(glob.escape(file))}, auto_detect = false, header = true, "
        f"columns = {{{columns}}}, delim = {literal(separator)}, quote = '\"', escape = '\"', "
        f"allow_quoted_nulls = false)"
    )


def narrowest_types(
    database: Database, table: str, tests: Sequence[Mapping[str, str]]
) -> list[str | None]:
    """For each column the first of its types whose test all rows pass; None where there is none.

    A table without rows passes every test.
    """
    aggregates = [f"bool_and({test})" for fits in tests for test in fits.values()]
    verdicts = iter(database.row(f"SELECT {', '.join(aggregates)} FROM {table}"))
    passed = [[type_ for type_ in fits if next(verdicts) is not False] for fits in tests]
    return [types[0] if types else None for types in passed]


def _casts(database: Database, table: str, columns: Sequence[str], ids: frozenset[str]) -> str:
    """Each column as the narrowest type that keeps all its values."""
    types = narrowest_types(database, table, [_tests(each, each in ids) for each in columns])
    casts = []
    for column, type_ in zip(columns, types, strict=True):
        value = quoted(column)
        plain = f"TRY_CAST({value} AS {type_ or 'VARCHAR'})"
        cast = instant_sql(value) if type_ == "TIMESTAMP" else plain
        casts.append(f"{cast} AS {value}")
    return ", ".join(casts)


def _tests(column: str, is_id: bool) -> dict[str, str]:
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
