"""Labels as small whole numbers that fit beside the document's in a packed list."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.logs.duck.bench import Bench

# Up to so many bits whole numbers are packed as they are. A dictionary costs a pass over the log
# and a join, but then labels need no more bits than they have distinct values.
_MOST_BITS = 16


@dataclass(frozen=True)
class LabelCode:
    """How the labels of a row become one number below 2**bits; `values[j, code]` is label j."""

    bits: int
    sql: str
    join: str
    values: FloatArray


def label_code(bench: Bench, view: str, largest: Sequence[int | None]) -> LabelCode:
    """The code for labels whose largest values are known; None for labels with fractions."""
    if all(value is not None for value in largest):
        widths = [max(1, int(value or 0).bit_length()) for value in largest]
        if sum(widths) <= _MOST_BITS:
            return _side_by_side(widths)
    return _by_dictionary(bench, view, len(largest))


def _side_by_side(widths: Sequence[int]) -> LabelCode:
    """Every label has bits of its own."""
    shifts, bits = np.cumsum([0, *widths[:-1]]), sum(widths)
    terms = [f"(CAST(label_{j} AS UBIGINT) << {shift})" for j, shift in enumerate(shifts)]
    codes = np.arange(1 << bits)
    values = [(codes >> s) & ((1 << width) - 1) for s, width in zip(shifts, widths, strict=True)]
    return LabelCode(bits, " | ".join(terms), "", np.array(values, dtype=np.float64))


def _by_dictionary(bench: Bench, view: str, n_labels: int) -> LabelCode:
    """Every distinct combination of labels has a number."""
    names = [f"label_{j}" for j in range(n_labels)]
    doubles = ", ".join(f"CAST({name} AS DOUBLE) AS {name}" for name in names)
    bench.run(
        f"CREATE OR REPLACE TEMP TABLE label_values AS SELECT *, "
        f"CAST(row_number() OVER (ORDER BY {', '.join(names)}) - 1 AS UBIGINT) AS label_code "
        f"FROM (SELECT DISTINCT {doubles} FROM {view})"
    )
    found = bench.arrays("SELECT * FROM label_values ORDER BY label_code")
    values = np.array([found[name] for name in names], dtype=np.float64)
    on = " AND ".join(f"CAST(i.{name} AS DOUBLE) = v.{name}" for name in names)
    bits = max(1, (values.shape[1] - 1).bit_length())
    return LabelCode(bits, "label_code", f"JOIN label_values AS v ON {on}", values)
