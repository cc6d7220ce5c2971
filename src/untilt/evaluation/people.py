r"""People who come back: sessions of one person on several queries are not independent.

Errors are clustered by query. Where a column of the log says whose session each is, what sessions
of one person on *different* queries have in common is added, which is clustering both ways
([cameron2011multiway]_): with I_uq the influence of person u's sessions on query q,

    sum_q I_q I_q' + sum_u I_u I_u' - sum_uq I_uq I_uq'.

People who click more than others move the values of all rankings alike, and hardly their
differences: without the column values were held by .88 instead of .95 of the intervals, with ten
sessions per person (docs/coverage.md).
"""

from collections.abc import Sequence

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt.data.slates import slates_of
from untilt.evaluation.pool import Credit, Pool
from untilt.evaluation.slots import Discounts


def covariance_of_people(
    pool: Pool, credit: Credit, discounts: Sequence[Discounts]
) -> FloatArray | None:
    """(systems, systems) what people add to the covariance of values; None where none are known."""
    if pool.people is None:
        return None
    log, (person, in_baseline) = pool.log, pool.people
    lists = ragged.list_of_row(log.indptr)
    cell = _cell_of_row(pool, in_baseline)
    inside = cell >= 0
    at, owner = cell[inside], lists[inside]
    # A click counts its weight; what else a cell is credited with is shared by its impressions.
    shown = np.maximum(pool.impressions, 1e-300)
    apart = np.where(pool.impressions > 0, (credit.cell - pool.clicks * credit.weight) / shown, 0.0)
    row = log.row_count[inside] * (log.label[inside] * credit.weight[at] + apart[at])
    sessions = np.where(in_baseline, log.sessions, 0).astype(float)
    norm = sum_by(owner, row, log.n_lists) if credit.self_normalised else sessions
    total = np.empty((log.n_lists, len(discounts)))
    for i, each in enumerate(discounts):
        total[:, i] = sum_by(owner, row * each.cell[at], log.n_lists)
        if credit.document is not None:
            total[:, i] += sessions * _model_per_session(pool, credit.document, each)[log.query]
    whole = norm.sum()
    influence = (total - total.sum(axis=0) / whole * norm[:, None]) / whole
    pair = np.unique(person * np.int64(log.n_queries) + log.query, return_inverse=True)[1]
    by_person, by_both = (_summed(unit, influence) for unit in (person, pair))
    return by_person.T @ by_person - by_both.T @ by_both


def _model_per_session(pool: Pool, relevance: FloatArray, at: Discounts) -> FloatArray:
    """(queries of the log,) what a relevance model adds to each session of the baseline."""
    of_query = pool.by_query(at.document * relevance * pool.ordered) / pool.sessions
    answered = np.unique(pool.query)
    per_session = np.zeros(pool.log.n_queries)
    per_session[answered] = of_query
    return per_session


def _cell_of_row(pool: Pool, in_baseline: BoolArray) -> IntArray:
    """(rows of the log,) the cell of the pool that each row is counted in, -1 for none."""
    log = pool.log
    if pool.cell_row is None:
        key = pool.document[pool.document_index] * np.int64(log.depth + 1) + pool.position
        order = np.argsort(key)
        wanted = log.document * np.int64(log.depth + 1) + log.position
        return order[np.searchsorted(key, wanted, sorter=order)]
    cell_of = np.empty(len(pool.cell_row), dtype=np.int64)
    cell_of[pool.cell_row] = np.arange(len(pool.cell_row))
    cell = np.full(len(log.position), -1)
    of_baseline = in_baseline[ragged.list_of_row(log.indptr)]
    part = log if in_baseline.all() else log.take(in_baseline)
    cell[of_baseline] = cell_of[slates_of(part)[1]]
    return cell


def _summed(unit: IntArray, influence: FloatArray) -> FloatArray:
    n = int(unit.max()) + 1
    return np.column_stack([sum_by(unit, each, n) for each in influence.T])
