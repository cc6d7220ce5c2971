r"""Where systems would have put documents: the discount of each document in each list.

A list has *slots*, its logged positions, with gaps where an advertisement stood or a row was lost.
A system fills the slots that a list had, so that the logged order and a system with the same order
get the same discounts, bit for bit:

    among="list"        the documents of a list, highest score first, fill its slots in order
    "shown" and         the first documents of the query's pool fill them; a document that is not
    "candidates"        on the page adds no gain, and costs as much as the slot below all others
"""

from dataclasses import dataclass
from typing import NamedTuple

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.threads import Share, parallel_kernel
from untilt.data.layout import by_rank, ranks_of
from untilt.data.slates import ranks, slot_discounts
from untilt.evaluation.pool import Pool
from untilt.evaluation.rank_metric import RankMetric
from untilt.evaluation.unshown import TOP


class Discounts(NamedTuple):
    """lambda of one system at the cells of a pool and, where cells are pooled, by document.

    `document` is the mean over the sessions in which the system orders the document.
    """

    cell: FloatArray
    document: FloatArray


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of a pool's lists with their lambda: turns scores into discounts.

    Parameters
    ----------
    weights : (K,) lambda at positions 1..K; where they have a layout, at their ranks
    count : (rows,) baseline sessions of each row of the slates
    past : (queries,) lambda of a document that is not on the page
    page : (documents,) of all ranks of a query, one after the other: lambda at the slot of that
        rank, summed over the sessions of the baseline
    on_page : (queries,) slots of the longest list
    top : the last rank that is looked at for documents that nobody was shown
    """

    pool: Pool
    weights: FloatArray
    count: FloatArray
    past: FloatArray
    page: FloatArray
    on_page: IntArray
    top: int

    def discounts(self, scores: FloatArray | None) -> Discounts:
        """Of a system by its scores (documents,); of the logged order without."""
        pool = self.pool
        if pool.cell_row is not None:
            return self.of_rows(self._by_row(scores))
        return self._of_totals(self._by_document(scores))

    def of_rows(self, rows: FloatArray) -> Discounts:
        """Of an order by lambda at each (row of the slates,), where each list is ordered alone."""
        if self.pool.cell_row is not None:
            return Discounts(rows[self.pool.cell_row], np.empty(0))
        slates = self.pool.slates
        return self._of_totals(sum_by(slates.document, self.count * rows, len(self.pool.document)))

    def _of_totals(self, total: FloatArray) -> Discounts:
        pool = self.pool
        document = total / np.maximum(pool.ordered, 1.0)
        return Discounts(document[pool.document_index], document)

    def places_of(self, documents: BoolArray, scores: FloatArray | None) -> FloatArray:
        """(queries,) share of the top ranks that go to some documents; none in the logged order."""
        pool = self.pool
        if scores is None or pool.among != "candidates":
            return np.zeros(pool.n_queries)
        ahead, same = _ranks_by_query(pool.query_indptr, scores)
        sizes = ragged.lengths(pool.query_indptr)
        last = np.minimum(np.minimum(self.top, sizes), self.on_page)[pool.query_index]
        places = np.minimum(ahead + same, last) - np.minimum(ahead, last)
        share = places / same / np.maximum(last, 1)
        return pool.by_query(np.where(documents, share, 0.0))

    def discount_of(self, documents: BoolArray, scores: FloatArray | None) -> FloatArray:
        """(queries,) summed lambda of some documents, mean over the sessions of the baseline."""
        total = np.where(documents, self._by_document(scores), 0.0)
        return self.pool.by_query(total) / self.pool.sessions

    def _by_row(self, scores: FloatArray | None) -> FloatArray:
        """(rows of the slates,) lambda at the slot that the system gives to each row's document."""
        pool, slates = self.pool, self.pool.slates
        if scores is None:
            return self.weights[slates.position_index]
        if pool.among == "list":
            return slot_discounts(slates, scores, self.weights)
        ahead, same = _ranks_by_query(pool.query_indptr, scores)
        discount = np.empty(len(slates.document))
        _page_rows(
            len(slates.indptr) - 1, slates.indptr, slates.document, slates.position_index,
            slates.query, ahead, same, self.weights, self.past, discount,
        )  # fmt: skip
        return discount

    def _by_document(self, scores: FloatArray | None) -> FloatArray:
        """(documents,) lambda at the slots of each document, summed over baseline sessions."""
        pool, slates = self.pool, self.pool.slates
        if scores is not None and pool.among != "list":
            ahead, same = _ranks_by_query(pool.query_indptr, scores)
            return _shared(pool.query_indptr, ahead, same, self.page)
        n = len(pool.document)
        total = sum_by(slates.document, self.count * self._by_row(scores), n)
        if pool.among == "list":
            return total
        absent = pool.ordered - sum_by(slates.document, self.count, n)
        return total + self.past[pool.query_index] * absent


def slots_of(pool: Pool, metric: RankMetric) -> Slots:
    """The slots of the lists of a pool, under a metric."""
    slates, sizes = pool.slates, ragged.lengths(pool.query_indptr)
    lowest, on_page = (np.zeros(pool.n_queries, dtype=np.int64) for _ in range(2))
    length = ragged.lengths(slates.indptr)
    last = slates.indptr[1:][length > 0] - 1  # rows stand in order of position
    np.maximum.at(lowest, slates.query[length > 0], slates.position_index[last] + 1)
    np.maximum.at(on_page, slates.query, length)
    count = np.asarray(slates.row_count, dtype=float)
    layout, deepest = pool.log.layout, int(max(lowest.max(), sizes.max()))
    ranked = metric.weights(deepest + 1)
    weights = by_rank(layout, ranked)
    below = np.maximum(ranks_of(layout, deepest + 1)[lowest - 1], sizes)
    past = np.zeros(pool.n_queries) if metric.higher_is_better else ranked[below]
    page = np.empty(0)
    if pool.among != "list":
        index, owner = ragged.index_in_list(slates.indptr), np.repeat(slates.query, length)
        inside = index < sizes[owner]  # a list with a document twice may be longer than the pool
        rank = (pool.query_indptr[owner] + index)[inside]
        at = weights[slates.position_index[inside]]
        page = sum_by(rank, count[inside] * at, len(pool.document))
        absent = pool.ordered - sum_by(rank, count[inside], len(pool.document))
        page = page + past[pool.query_index] * absent
    top = TOP if metric.cut is None else metric.cut
    return Slots(pool, weights, count, past, page, on_page, top)


def _ranks_by_query(query_indptr: IntArray, scores: FloatArray) -> tuple[IntArray, IntArray]:
    """(documents,) how many of its query come before each, and how many share its score."""
    ahead = np.empty(len(scores), dtype=np.int64)
    same = np.empty(len(scores), dtype=np.int64)
    _rank_queries(len(query_indptr) - 1, query_indptr, scores, ahead, same)
    return ahead, same


@parallel_kernel()
def _rank_queries(
    mine: Share, query_indptr: IntArray, scores: FloatArray, ahead: IntArray, same: IntArray
) -> None:
    for q in range(mine[0], mine[1]):
        a, b = query_indptr[q], query_indptr[q + 1]
        ranks(scores[a:b], ahead[a:b], same[a:b])


@nb.njit(cache=True)
def _shared(
    query_indptr: IntArray, ahead: IntArray, same: IntArray, page: FloatArray
) -> FloatArray:
    """(documents,) the mean of `page` over the ranks that a document shares with its equals."""
    shared = np.empty(len(ahead))
    for q in range(len(query_indptr) - 1):
        a = query_indptr[q]
        for d in range(a, query_indptr[q + 1]):
            first = a + ahead[d]
            value = page[first]
            if same[d] > 1:
                for r in range(first + 1, first + same[d]):
                    value += page[r]
                value /= same[d]
            shared[d] = value
    return shared


@parallel_kernel()
def _page_rows(
    mine: Share,
    indptr: IntArray,
    document: IntArray,
    position_index: IntArray,
    query: IntArray,
    ahead: IntArray,
    same: IntArray,
    weights: FloatArray,
    past: FloatArray,
    discount: FloatArray,
) -> None:
    """(rows,) lambda at the slot that the document's rank in its query has in the row's list."""
    for slate in range(mine[0], mine[1]):
        a, m = indptr[slate], indptr[slate + 1] - indptr[slate]
        for row in range(a, a + m):
            first, equal = ahead[document[row]], same[document[row]]
            value = weights[position_index[a + first]] if first < m else past[query[slate]]
            if equal > 1:
                for r in range(first + 1, first + equal):
                    value += weights[position_index[a + r]] if r < m else past[query[slate]]
                value /= equal
            discount[row] = value
