"""Rows as a message shows them."""

from untilt.logs.duck.bench import Bench
from untilt.logs.duck.impressions import Field

N_SHOWN = 5
_NAMES = {
    "session_id": "session",
    "query_id": "query",
    "doc_id": "document",
    "position": "position",
}


def all_present(fields: tuple[Field, ...]) -> str:
    """The condition that a row is good in all these fields."""
    return " AND ".join(f"{field.alias} IS NOT NULL" for field in fields) or "true"


def shown(value: str) -> str:
    """A value as short text, whatever its type."""
    return f"coalesce(left(CAST({value} AS VARCHAR), 60), 'NULL')"


def examples_of(bench: Bench, rows: str, fields: tuple[Field, ...], value: str) -> tuple[str, ...]:
    """Up to five rows: who they are, and the value in question."""
    have = {field.alias for field in fields}
    keys = [alias for alias in _NAMES if alias in have]
    who = " || ', ' || ".join(f"'{_NAMES[key]} ' || {shown(f'raw_{key}')}" for key in keys)
    order = ", ".join(f"raw_{key}" for key in keys)
    found = bench.rows(
        f"SELECT {who} || ': ' || {value} FROM ({rows}) ORDER BY {order} LIMIT {N_SHOWN}"
    )
    return tuple(text for (text,) in found)
