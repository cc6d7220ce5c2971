"""Features by name: a table of any kind as an array with its columns in the order wanted."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FeatureArray, IntArray, Missing
from untilt._core.optional import explained_import
from untilt.errors import ColumnError, OptionError, ShapeError, did_you_mean
from untilt.facts import listed, phrase

# A feature that no table has: the rank of a candidate in the order in which candidates arrive.
OLD_RANK = "old_rank"
OLD_RANK_IS = f"{OLD_RANK!r} is the rank of each candidate in the old ranker's order, from 1."


def of_documents(names: Sequence[str]) -> tuple[str, ...]:
    """The names of features that documents have: all but the old rank."""
    return tuple(name for name in names if name != OLD_RANK)


def with_old_rank(features: FeatureArray, names: Sequence[str], indptr: IntArray) -> FeatureArray:
    """Features of documents, and where `names` end with the old rank, that by the order of rows."""
    if OLD_RANK not in names:
        return features
    rank = (ragged.index_in_list(indptr) + 1).astype(np.float32)
    return np.column_stack([features, rank])


def feature_array(features: Any, names: Sequence[str]) -> FeatureArray:
    """Features as float32, columns in the order of `names`.

    A table with named columns (pandas, Polars, Arrow, or anything that hands out an Arrow stream)
    must have exactly these names, in any order. So must a log or judged lists, but that columns
    which are only numbered (f1, f2, ...) on one of the two sides go by their order. An array has no
    names and goes by its order.
    """
    if hasattr(features, "feature_names") and hasattr(features, "features"):
        return in_order(features.features, features.feature_names, names)
    columns = column_names(features)
    if columns is None:
        return np.ascontiguousarray(features, dtype=np.float32)
    _check_names(columns, names, fix="take table[list(ranker.feature_names_)]")
    return np.ascontiguousarray(np.column_stack(_columns(features, names)))


def in_order(features: FeatureArray, have: Sequence[str], names: Sequence[str]) -> FeatureArray:
    """The columns called `have` in the order of `names`; by place where a side has numbers only."""
    if tuple(have) == tuple(names):
        return features
    numbered = is_numbered(have) + is_numbered(names)
    if numbered and set(have) != set(names) and (numbered == 2 or len(have) == len(names)):
        return features  # by place; too few or too many are an error of the shape
    _check_names(have, names, fix="read it with the same feature columns")
    place = {name: j for j, name in enumerate(have)}
    return np.ascontiguousarray(features[:, [place[name] for name in names]])


def is_numbered(names: Sequence[str]) -> bool:
    """Whether these are the names of columns without names: f1, f2, ..."""
    return all(name == f"f{j + 1}" for j, name in enumerate(names))


def with_names(features: Any, names: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """Features and their names; a table's own names where none are given.

    Given names that are the table's in another order choose its columns; others rename them.
    """
    columns = column_names(features)
    if columns is None:
        return features, tuple(names)
    taken = names if set(names) == set(columns) else columns
    return feature_array(features, taken), tuple(names or columns)


def predicted(
    model: Any, features: FeatureArray, names: Sequence[str], missing: Missing = None
) -> Any:
    """The scores of a model on features with these names; one that knows its own gets those.

    A log may have further ones, such as those that training kept out. What was `missing` in it must
    not have been filled otherwise than in training: the model would score values it never meant.
    """
    _check_filled(missing, getattr(model, "missing_", None))
    wanted = getattr(model, "feature_names_", None)
    if wanted is None:
        return model.predict(features)
    if set(wanted) < set(names) and not is_numbered(wanted):
        kept = [j for j, name in enumerate(names) if name in wanted]
        features, names = features[:, kept], [names[j] for j in kept]
    return model.predict(in_order(features, names, wanted))


def _check_filled(here: Missing, in_training: Missing) -> None:
    if here in (None, "keep", in_training) or in_training is None:
        return
    before = "kept as they are" if in_training == "keep" else f"counted as {in_training:g}"
    raise OptionError(
        f"the ranker was trained with missing features {before}, and here {here:g} was put in "
        "their place on reading. Read with ⟦missing='keep'⟧: the ranker then does as in training."
    )


def known_values(features: FeatureArray, names: tuple[str, ...], missing: Missing) -> FeatureArray:
    """The features as a ranker trained with `missing` takes them.

    Raises ShapeError where one is infinite, or is missing and training knew of no missing ones.
    """
    finite = np.isfinite(features)
    if finite.all():
        return features
    lost = np.isnan(features)
    refuse_cell(features, names, ~finite & ~lost, "Replace it by a number.")
    if missing == "keep":
        return features
    if missing is None:
        refuse_cell(
            features, names, lost,
            phrase(
                "Fill it in, or train on data that has missing values: read with "
                "⟦missing='keep'⟧ (for trees), or with ⟦missing=0.0⟧, which the ranker then "
                "puts in their place itself."
            ),
        )  # fmt: skip
    return np.where(lost, np.float32(missing), features)


def refuse_cell(
    features: FeatureArray,
    names: tuple[str, ...],
    bad: BoolArray,
    fix: str,
    who: str = "this ranker",
) -> None:
    """Raise for the first of these cells; `who` cannot take it."""
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ShapeError(
            phrase(
                "{who} needs finite features. Got {value} for feature {name:r} in row {row}. {fix}",
                who=who,
                value=features[row, column],
                name=names[column],
                row=row,
                fix=fix,
            )
        )


def column_names(table: Any) -> list[str] | None:
    """The names of a table's columns; None for an array, and for a table that only numbers them."""
    if hasattr(table, "collect_schema"):  # Polars
        names = table.collect_schema().names()
    else:
        names = getattr(table, "column_names", getattr(table, "columns", None))
    if names is None or callable(names):
        return None
    names = list(names)
    return names if all(isinstance(name, str) for name in names) else None


def _columns(table: Any, names: Sequence[str]) -> list[FeatureArray]:
    """The columns of these names as float32; a gap is NaN."""
    if hasattr(table, "iloc"):
        return [_pandas_column(table[name], name) for name in names]
    with explained_import(f"features in a {type(table).__name__}"):
        import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    elif hasattr(table, "to_arrow"):  # Polars; older ones hand out no stream
        table = table.to_arrow()
    if not hasattr(table, "__arrow_c_stream__"):
        raise ColumnError(
            f"features must be an array or a table that is read. Got {type(table).__name__} "
            "instead; a lazy frame is read by collect()."
        )
    arrow = pa.table(table)
    return [_arrow_column(arrow.column(name), name) for name in names]


def _pandas_column(series: Any, name: str) -> FeatureArray:
    if getattr(series.dtype, "kind", "O") not in "biuf":
        raise _no_numbers(name, series.dtype)
    values: FeatureArray = series.to_numpy(dtype=np.float32, na_value=np.nan)
    return values


def _arrow_column(column: Any, name: str) -> FeatureArray:
    import pyarrow as pa

    kind = column.type
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    if not any(holds(kind) for holds in numbers):
        raise _no_numbers(name, kind)
    values: FeatureArray = column.cast(pa.float32(), safe=False).to_numpy()
    return values


def _no_numbers(name: str, kind: object) -> ColumnError:
    return ColumnError(f"the feature {name!r} must hold numbers. Got a column of type {kind}.")


def _check_names(have: Sequence[str], names: Sequence[str], *, fix: str) -> None:
    twice = [name for name, n in Counter(have).items() if n > 1]
    missing = [name for name in names if name not in set(have)]
    extra = [name for name in have if name not in set(names)]
    if not (twice or missing or extra):
        return
    parts = [f"the features must be the {len(names)} that the ranker was trained on."]
    if missing:
        parts.append(f"Missing: {listed(map(repr, missing))}.{did_you_mean(missing[0], extra)}")
        parts += [OLD_RANK_IS] if OLD_RANK in missing else []
    if extra:
        parts.append(f"Not among them: {listed(map(repr, extra))}.")
    if twice:
        parts.append(f"More than once: {listed(map(repr, twice))}.")
    if is_numbered(names):
        parts.append("Columns without names are called f1, f2, ...: an array goes by their order.")
    else:
        parts.append(f"To choose the columns, {fix}.")
    raise ColumnError(" ".join(parts))
