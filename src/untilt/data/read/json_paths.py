"""Nested documents as flat columns of text: by paths, from JSON lines and from tables alike.

`event_attributes.object.object_id` is a key inside objects, a column that holds objects (a struct,
or JSON as text), or a column of that very name, as tools flatten it. Search engines put documents
into `_source`, and their bulk format a line about the index before each one.
"""

import glob
from collections.abc import Mapping, Sequence
from typing import Any

from untilt.data.read.database import Database, in_short, literal, quoted, translated_errors
from untilt.data.read.files import JSON, Files
from untilt.data.read.sources import open_source
from untilt.data.read.text_files import verified_file
from untilt.data.read.types import Column, text_sql
from untilt.errors import ColumnError, FileFormatError
from untilt.facts import phrase

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
                "{what}: no document has {what_}. {keys}Where yours has another name, "
                "say so: ⟦columns={{{needed:r}: 'your path'}}⟧.",
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
        raise FileFormatError(f"{files.what} is empty: there is no document in it.")
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
