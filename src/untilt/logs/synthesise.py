"""One label out of several kinds of feedback."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.suggest import check_choice, did_you_mean
from untilt.errors import ColumnError, OptionError
from untilt.logs.clicklog import ClickLog

COMBINATIONS = ("sum", "product")


def synthesise(
    log: ClickLog,
    weights: Mapping[str, float],
    *,
    how: str = "sum",
    name: str = "synthesised",
) -> ClickLog:
    r"""The log with one label made of several feedback columns ([ren2021pairwise]_, equation 6).

        sum       c = w_1 a_1 + w_2 a_2 + ...
        product   c = a_1^w_1 a_2^w_2 ...

    A product is 0 wherever one of its columns is 0; with "sum" a column's weight says what one unit
    of it is worth. All columns that the log had stay as extra labels, so that nothing is lost, and
    sessions that differ in any of them stay apart.

    Parameters
    ----------
    weights : label column -> weight above 0; the log's own label goes by its name, too
    how : "sum" or "product"
    name : what the new label is called

    >>> from untilt import make_judged, simulate
    >>> log = simulate(make_judged(n_queries=100), protocol="dwell", n_sessions=500).log
    >>> synthesise(log, {"click": 1.0, "dwell": 0.5}).label_name
    'synthesised'
    """
    check_choice("how", how, COMBINATIONS)
    columns = {log.label_name: log.label, **log.extra_labels}
    _check(weights, columns, name)
    parts = [(float(weight), columns[column]) for column, weight in weights.items()]
    label = _sum(parts) if how == "sum" else _product(parts)
    return replace(log, label=label, label_name=name, extra_labels=columns)


def _sum(parts: list[tuple[float, FloatArray]]) -> FloatArray:
    return np.sum([weight * column for weight, column in parts], axis=0)


def _product(parts: list[tuple[float, FloatArray]]) -> FloatArray:
    return np.prod([column**weight for weight, column in parts], axis=0)


def _check(weights: Mapping[str, float], columns: Mapping[str, FloatArray], name: str) -> None:
    if not isinstance(weights, Mapping) or not weights:
        raise OptionError(
            "weights must name label columns, such as {'click': 1.0, 'dwell': 0.5}. "
            f"Got {weights!r} instead."
        )
    for column, weight in weights.items():
        if column not in columns:
            hint = did_you_mean(str(column), list(columns))
            raise ColumnError(
                f"there is no label column {column!r}. This log has: {', '.join(columns)}.{hint} "
                "Further columns are read with read_log(..., labels=[...])."
            )
        number = isinstance(weight, (int, float, np.number)) and not isinstance(weight, bool)
        if not (number and np.isfinite(weight) and weight > 0):
            raise OptionError(
                f"the weight of {column!r} must be a number above 0. Got {weight!r} instead; "
                "leave out what should not count."
            )
    if name in columns:
        raise OptionError(f"the log has a label {name!r} already. Give name= another one.")
