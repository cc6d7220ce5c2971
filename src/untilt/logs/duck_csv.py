"""CSV: everything is text there, so types are found by looking at every value.

DuckDB would guess from a sample and fail on the first value further down that does not fit; and it
would read the id '007' as 7.
"""

from collections.abc import Callable, Sequence

from untilt.logs.duck_bench import Bench, in_our_words, literal, quoted

# Words for a missing number. Ids are never compared with them.
_MISSING = "('', 'null', 'na', 'n/a', 'none', 'nan')"


def load_csv(
    bench: Bench, files: Sequence[str], name: str, what: str
) -> tuple[tuple[str, ...], Callable[[Sequence[str], frozenset[str]], str]]:
    """The columns of the files, and a function that loads some of them as a typed table."""
    listed = ", ".join(literal(file) for file in files)
    text = (
        f"read_csv([{listed}], header = true, all_varchar = true, allow_quoted_nulls = false, "
        f"union_by_name = {len(files) > 1})"
    )
    with in_our_words(what):
        names = tuple(bench.columns(text))

    def load(columns: Sequence[str], ids: frozenset[str]) -> str:
        chosen = ", ".join(quoted(column) for column in columns)
        with in_our_words(what):
            bench.run(f"CREATE TEMP TABLE {name}_text AS SELECT {chosen} FROM {text}")
            casts = _casts(bench, f"{name}_text", columns, ids)
            bench.run(f"CREATE TEMP TABLE {name} AS SELECT {casts} FROM {name}_text")
            bench.run(f"DROP TABLE {name}_text")
        return name

    return names, load


def _casts(bench: Bench, table: str, columns: Sequence[str], ids: frozenset[str]) -> str:
    """Each column as the narrowest type that keeps all its values."""
    tests = [_tests(column, column in ids) for column in columns]
    aggregates = [f"bool_and({test})" for fits in tests for test in fits.values()]
    verdicts = iter(bench.row(f"SELECT {', '.join(['true', *aggregates])} FROM {table}")[1:])
    casts = []
    for column, fits in zip(columns, tests, strict=True):
        # An empty column fits every type (None: no value said no).
        types = [type_ for type_ in fits if next(verdicts) is not False]
        casts.append(
            f"TRY_CAST({quoted(column)} AS {(types or ['VARCHAR'])[0]}) AS {quoted(column)}"
        )
    return ", ".join(casts)


def _tests(column: str, is_id: bool) -> dict[str, str]:
    """Types that a column may have, narrowest first, with what every value must fulfil."""
    value = quoted(column)
    # Only what prints as itself is a whole number: '007' as 7 would be another id.
    whole = f"{value} IS NULL OR CAST(TRY_CAST({value} AS BIGINT) AS VARCHAR) = {value}"
    whole = f"coalesce({whole}, false)"
    if is_id:
        return {"BIGINT": whole}
    missing = f"{value} IS NULL OR lower(trim({value})) IN {_MISSING}"
    return {
        "BIGINT": whole,
        "DOUBLE": f"{missing} OR TRY_CAST({value} AS DOUBLE) IS NOT NULL",
        "BOOLEAN": f"{missing} OR lower(trim({value})) IN ('true', 'false')",
        "TIMESTAMP": f"{missing} OR TRY_CAST({value} AS TIMESTAMP) IS NOT NULL",
    }
