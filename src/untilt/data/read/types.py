"""What can be done with a column, by its DuckDB type: SQL that is NULL where a value is unusable.

Everything downstream knows one rule only: a NULL in a typed column is a bad row.
"""

from dataclasses import dataclass
from typing import Literal

from untilt._core.arrays import Missing
from untilt.data.limits import LEAST_LABEL, MOST_LABEL
from untilt.data.read.database import quoted
from untilt.errors import ColumnError

Kind = Literal["whole", "wide", "decimal", "float", "boolean", "text", "time", "other"]

MOST_POSITION = 2**31 - 1
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), "whole"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER"), "whole"),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT", "BIGNUM"), "wide"),
    **dict.fromkeys(("FLOAT", "DOUBLE"), "float"),
    **dict.fromkeys(("VARCHAR", "UUID"), "text"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "DATE"), "time"),
    "TIMESTAMP WITH TIME ZONE": "time",
    "BOOLEAN": "boolean",
}


@dataclass(frozen=True)
class Column:
    """A column of a source."""

    name: str
    type: str

    @property
    def raw(self) -> str:
        """The column in SQL."""
        return quoted(self.name)

    @property
    def kind(self) -> Kind:
        """What the type can be used for."""
        if self.type.startswith("DECIMAL"):
            return "decimal"
        if self.type.startswith("ENUM"):
            return "text"
        return _KINDS.get(self.type, "other")

    @property
    def is_numeric(self) -> bool:
        """Whether the type holds numbers; text that might is not meant."""
        return self.kind in ("whole", "wide", "decimal", "float", "boolean")

    def refused(self, role: str, wanted: str) -> ColumnError:
        """The error for a column whose type cannot play this role."""
        return ColumnError(
            f"{role} must be a column of {wanted}. Column {self.name!r} has type {self.type}. "
            f"Convert it, or choose another column."
        )


def number_sql(column: Column, role: str) -> str:
    """The column as DOUBLE; NULL where text is no number. Other types are refused."""
    if column.is_numeric:
        return f"CAST({column.raw} AS DOUBLE)"
    if column.kind == "text":
        text = f"CAST({column.raw} AS VARCHAR)"
        truth = f"CAST(TRY_CAST({text} AS BOOLEAN) AS DOUBLE)"
        return f"coalesce(TRY_CAST({text} AS DOUBLE), {truth})"
    raise column.refused(role, "numbers or true/false")


def whole_sql(column: Column, role: str, *, most: int, least: int = 1) -> str:
    """Whole numbers from 1 to `most` (a position, a count); NULL for anything else.

    Where theirs count from another `least`, they are shifted to count from 1.
    """
    type_ = "INTEGER" if most <= MOST_POSITION else "BIGINT"
    shift = "" if least == 1 else f" + {1 - least}"
    highest = most + least - 1
    if column.kind == "whole":
        within = f"{column.raw} BETWEEN {least} AND {highest}"
        return f"CASE WHEN {within} THEN CAST({column.raw} AS {type_}){shift} END"
    value = number_sql(column, role)
    # Finite by itself: what a Parquet file notes of its values makes DuckDB take NaN for in range.
    return (
        f"CASE WHEN isfinite({value}) AND {value} BETWEEN {least} AND {highest} "
        f"AND {value} = floor({value}) THEN CAST({value} AS {type_}){shift} END"
    )


def label_sql(column: Column, role: str) -> str:
    """A number >= 0; NULL for anything else. Whole numbers stay whole: they pack better."""
    if column.kind == "boolean" or (column.kind == "whole" and column.type.startswith("U")):
        return f"CAST({column.raw} AS UINTEGER)"
    if column.kind == "whole":
        return f"CASE WHEN {column.raw} >= 0 THEN {column.raw} END"
    value = number_sql(column, role)
    # + 0.0 makes -0.0 the same label as 0.0.
    is_usable = f"({value} = 0 OR {value} BETWEEN {LEAST_LABEL} AND {MOST_LABEL})"
    return f"CASE WHEN isfinite({value}) AND {is_usable} THEN {value} + 0.0 END"


def propensity_sql(column: Column, role: str) -> str:
    """A probability above 0; NULL for anything else."""
    value = number_sql(column, role)
    return f"CASE WHEN isfinite({value}) AND {value} > 0 AND {value} <= 1 THEN {value} END"


def flag_sql(column: Column, role: str) -> str:
    """1 for true and 0 for false; NULL for anything else."""
    value = number_sql(column, role)
    return f"CASE WHEN isfinite({value}) AND {value} IN (0, 1) THEN CAST({value} AS INTEGER) END"


def is_nan_sql(value: str) -> str:
    """Whether a floating-point number is NaN; false for NULL.

    Not isnan(), nor a comparison with 'nan': from the least and greatest value that a Parquet file
    notes, which leave NaN out, DuckDB 2.0 concludes that there is none.
    """
    return f"({value} IS NOT NULL AND NOT isfinite({value}) AND NOT isinf({value}))"


def feature_sql(column: Column, missing: Missing) -> str:
    """A finite float32; NULL for anything else. What is missing becomes `missing`, or stays NaN."""
    value = number_sql(column, "a feature")
    single = f"TRY_CAST({value} AS FLOAT)"
    if missing is None:
        return f"CASE WHEN isfinite({single}) THEN {single} END"
    lost = f"{column.raw} IS NULL OR {is_nan_sql(value)}"
    # DuckDB takes NaN for equal to itself, so that a document with gaps is still one document.
    instead = "'nan'" if missing == "keep" else repr(float(missing))
    return (
        f"CASE WHEN isfinite({single}) THEN {single} WHEN {lost} THEN CAST({instead} AS FLOAT) END"
    )


def id_sql(column: Column, *, as_text: bool) -> str:
    """An id as VARCHAR or a whole number, in its own type where that is one: no work per row."""
    if as_text:
        cast = "TRY_CAST" if column.kind == "time" else "CAST"  # years beyond DuckDB's last
        return f"{cast}({column.raw} AS VARCHAR)"
    if column.kind == "whole":
        return column.raw
    if column.kind == "float":
        return f"CASE WHEN isfinite({column.raw}) THEN TRY_CAST({column.raw} AS BIGINT) END"
    return f"TRY_CAST({column.raw} AS BIGINT)"


def text_sql(column: Column) -> str:
    """The column as text; whole numbers that a gap elsewhere has turned into floats as whole."""
    if column.kind != "float":
        return id_sql(column, as_text=True)
    whole, text = f"TRY_CAST({column.raw} AS BIGINT)", id_sql(column, as_text=True)
    return (
        f"CASE WHEN {whole} = {column.raw} THEN CAST({whole} AS VARCHAR) "
        f"WHEN isfinite({column.raw}) THEN {text} END"
    )


def id_is_text_sql(column: Column, role: str) -> str:
    """An aggregate over the column: whether its ids must be read as text."""
    if column.kind == "other":
        raise column.refused(role, "whole numbers or text")
    if column.kind == "whole":
        return "false"
    if column.kind in ("wide", "decimal", "float"):
        # Also whole numbers that a missing value elsewhere has turned into floats. NaN is missing.
        as_number = f"TRY_CAST({column.raw} AS BIGINT)"
        differs = f"{as_number} IS DISTINCT FROM {column.raw}"
        if column.kind == "float":
            differs += f" AND NOT {is_nan_sql(column.raw)}"
        return f"coalesce(bool_or({column.raw} IS NOT NULL AND {differs}), false)"
    return "true"


def context_sql(column: Column, role: str) -> str:
    """A number (true is 1) or a category; NULL where it is missing or not finite."""
    if column.kind in ("whole", "boolean"):
        return f"CAST({column.raw} AS BIGINT)"
    if column.kind == "text":
        return f"CAST({column.raw} AS VARCHAR)"
    if not column.is_numeric:
        raise column.refused(role, "numbers, true/false or text")
    value = f"CAST({column.raw} AS DOUBLE)"
    return f"CASE WHEN isfinite({value}) THEN {value} + 0.0 END"


def instant_sql(text: str) -> str:
    """A text as a time in UTC; NULL where it is none.

    DuckDB's cast to TIMESTAMP passes over an offset (+02:00), its cast to TIMESTAMPTZ takes a text
    without one for the time of this machine. So each kind of text has the cast that is right.
    """
    with_offset = f"regexp_matches({text}, ':[0-9]{{2}}.*([zZ]|[+-][0-9]{{2}}(:?[0-9]{{2}})?)$')"
    return (
        f"CASE WHEN {with_offset} THEN make_timestamp(epoch_us(TRY_CAST({text} AS TIMESTAMPTZ))) "
        f"ELSE TRY_CAST({text} AS TIMESTAMP) END"
    )


def time_sql(column: Column) -> str:
    """A time: a timestamp or any number; NULL for anything else."""
    if column.kind == "whole":
        return f"CAST({column.raw} AS BIGINT)"
    if column.kind == "text":
        return instant_sql(f"CAST({column.raw} AS VARCHAR)")
    if column.kind == "time":
        instant = {
            "DATE": f"TRY_CAST({column.raw} AS TIMESTAMP)",
            # By way of microseconds, so that the machine's time zone plays no part.
            "TIMESTAMP WITH TIME ZONE": f"make_timestamp(epoch_us({column.raw}))",
        }.get(column.type, column.raw)
        return f"CASE WHEN isfinite({column.raw}) THEN {instant} END"
    value = number_sql(column, "timestamp")
    return f"CASE WHEN isfinite({value}) THEN {value} END"
