"""What a ranker changes: where documents go, and which queries look different afterwards."""

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.statistics import student_quantile
from untilt.data.clicklog import ClickLog
from untilt.report.step_results import ChangedQuery, MovedDocument, NewPositions

EXAMPLES, DOCUMENTS = 6, 12


def mean_ranks(indptr: IntArray, scores: FloatArray) -> FloatArray:
    """(rows,) rank from 1 of each row in its list, highest score first; equal scores share theirs.

    rank_i = 1 + #{j : s_j > s_i} + (#{j : s_j = s_i} - 1) / 2 over the rows j of the same list.

    >>> mean_ranks(np.array([0, 3]), np.array([1.0, 5.0, 1.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    order = ragged.order_within_lists(indptr, -scores)
    owner, sorted_scores = ragged.list_of_row(indptr)[order], scores[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (np.diff(owner) != 0) | (np.diff(sorted_scores) != 0)
    tie = np.cumsum(first) - 1
    mean = sum_by(tie, ragged.index_in_list(indptr) + 1.0) / np.bincount(tie)
    ranks = np.empty(len(order))
    ranks[order] = mean[tie]
    return ranks


def new_positions(log: ClickLog, scores: FloatArray, *, level: float) -> NewPositions:
    """Average new position of what stood at each old position, over sessions.

    Each session's own list is ordered anew (Figure 1 of [hu2019unbiased]_). The interval is
    clustered by query: se^2 = sum_q (sum over q of n (rank - mean))^2 / N^2 * Q / (Q - 1).
    """
    ranks, weight = mean_ranks(log.indptr, scores[log.document]), log.row_count
    index, depth = log.position - 1, log.depth
    impressions = sum_by(index, weight, depth)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sum_by(index, weight * ranks, depth) / impressions
        error = _clustered(log, weight * (ranks - mean[index]), index) / impressions
    queries = len(np.unique(log.query))
    half = student_quantile(level, queries - 1) * error if queries > 1 else np.full(depth, np.nan)
    return NewPositions(np.arange(1, depth + 1), mean, mean - half, mean + half)


def _clustered(log: ClickLog, residual: FloatArray, index: IntArray) -> FloatArray:
    """(K,) root of the summed squares of each query's summed residuals, times Q / (Q - 1)."""
    query = np.repeat(log.query, ragged.lengths(log.indptr)).astype(np.int64)
    cells, owner = np.unique(query * log.depth + index, return_inverse=True)
    by_query = sum_by(owner, residual)
    squares = sum_by(cells % log.depth, by_query**2, log.depth)
    n = np.bincount(cells % log.depth, minlength=log.depth)
    return np.sqrt(squares * n / np.maximum(n - 1, 1))


def changed_queries(log: ClickLog, scores: FloatArray) -> tuple[ChangedQuery, ...]:
    """The queries whose order changes most, of those with at least the median of sessions.

    The change of a query is sum_d |1/log2(1 + old_d) - 1/log2(1 + new_d)| over its shown documents,
    old the mean position over sessions: what moves near the top counts most.
    """
    shown = np.unique(log.document)
    shown = shown[np.argsort(log.doc_query[shown], kind="stable")]
    queries, sizes = np.unique(log.doc_query[shown], return_counts=True)
    indptr = ragged.indptr_of(sizes)
    weight, n = log.row_count, log.n_documents
    impressions = sum_by(log.document, weight, n)[shown]
    clicks = sum_by(log.document, weight * log.label, n)[shown]
    old = sum_by(log.document, weight * log.position, n)[shown] / impressions
    new = mean_ranks(indptr, scores[shown])
    step = np.abs(1 / np.log2(1 + old) - 1 / np.log2(1 + new))
    change = np.add.reduceat(step, indptr[:-1])
    sessions = sum_by(log.query, log.sessions, log.n_queries)[queries]
    enough = sessions >= np.median(sessions)

    def document(row: int, position: int) -> MovedDocument:
        return MovedDocument(
            document=str(log.doc_id[shown[row]]),
            old_position=round(float(old[row]), 1),
            new_position=position,
            clicks=float(clicks[row]),
            impressions=int(impressions[row]),
        )

    examples = []
    for i in np.lexsort((queries, -np.where(enough, change, -1.0)))[:EXAMPLES]:
        if change[i] <= 0 or not enough[i]:
            continue
        rows = np.arange(indptr[i], indptr[i + 1])
        rows = rows[np.lexsort((old[rows], new[rows]))][:DOCUMENTS]
        documents = tuple(document(row, position) for position, row in enumerate(rows, start=1))
        query = str(log.query_id[queries[i]])
        examples.append(ChangedQuery(query, documents, int(sessions[i]), float(change[i])))
    return tuple(examples)
