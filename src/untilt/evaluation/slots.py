"""Where systems would have put documents: the discount of each document in each list.

A list has *slots*, its logged positions, with gaps where an advertisement stood or a row was lost.
A system fills the slots that a list had, so that the logged order and a system with the same order
get the same discounts, bit for bit:

    among="list"        the documents of a list, highest score first, fill its slots in order
    "shown" and         the first documents of the query's pool fill them; a document that is not
    "candidates"        on the page adds no gain, and costs as much as the slot below all others

**Candidates that nobody was shown.**
A ranker that is deployed orders *all* candidates of a query, not only those that the log shows. Of
candidates that no session showed, clicks say nothing. So the value of such a ranking is computed
under two beliefs about them, with the same clicks, evaluator and errors. With lambda_d the mean
discount of document d where the system's first documents fill the slots of each list, gamma_d the
estimate of its relevance, n_d its impressions, S the shown and U the unshown candidates of a query,

    worth nothing           sum_{d in S} lambda_d gamma_d
    worth as much as those  sum_{d in S} lambda_d gamma_d + (sum_{d in U} lambda_d) g,
    that were shown         g = sum_{d in S} n_d gamma_d / sum_{d in S} n_d

each averaged over the sessions of the baseline: g is the mean relevance of an impression of the
query. Both are sums of credits of shown documents, with other discounts: errors of queries, curve
and people, intervals and paired differences are those of every estimate.

They are two beliefs, not the least and the greatest value that there can be: unshown candidates may
be better than the shown ones. Documents that an older ranker left out are rarely so on average.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.feature_table import predicted
from untilt._core.threads import Share, parallel_kernel
from untilt.bias.curve import PositionBias
from untilt.catalog import methods
from untilt.data.layout import by_rank, ranks_of
from untilt.data.slates import ranks, shown_positions, slot_discounts
from untilt.errors import OptionError, did_you_mean
from untilt.evaluation.judged import Predicts
from untilt.evaluation.pool import Pool
from untilt.evaluation.unshown import TOP, Worth
from untilt.metrics.metric import Metric, checked_cut, parse_metric

RECIPROCAL = "reciprocal"  # 1 / rank has a name, though it is no metric of labels
EXAMINATION = "examination"  # the curve itself: expected clicks


@dataclass(frozen=True)
class RankMetric:
    r"""An additive metric: sum_i lambda(rank_i) y_i over the documents of a list.

    Additive metrics are the ones whose expectation an inverse-propensity sum has
    ([oosterhuis2020tutorial]_): each document adds its own part, whatever the others are. NDCG, MAP
    and MRR divide by or look at other documents' labels, so no sum over clicks estimates them.

    Parameters
    ----------
    name : how results call it
    discount : lambda, from an array of 1-based ranks to an array of numbers
    cut : the last rank that counts, or None
    higher_is_better : False for costs such as a sum of ranks

    >>> RankMetric("top 3", lambda rank: rank <= 3).weights(4)
    array([1., 1., 1., 0.])
    """

    name: str
    discount: Callable[[FloatArray], npt.ArrayLike]
    cut: int | None = None
    higher_is_better: bool = True

    def weights(self, depth: int) -> FloatArray:
        """lambda(r) for r = 1..depth, 0 below the cut."""
        rank = np.arange(1.0, depth + 1)
        values = np.asarray(self.discount(rank), dtype=float)
        if values.shape != rank.shape or not np.all(np.isfinite(values)):
            raise OptionError(
                f"the metric {self.name!r} must give one finite number for each rank. Got shape "
                f"{values.shape} for ranks 1..{depth}. Write it with NumPy functions of an array."
            )
        return np.where(rank <= (depth if self.cut is None else self.cut), values, 0.0)

    def __str__(self) -> str:
        return self.name


MetricLike = str | Metric | RankMetric | Callable[[FloatArray], npt.ArrayLike]


def as_rank_metric(metric: MetricLike, bias: PositionBias | None = None) -> RankMetric:
    """A metric by name, a `Metric` that is additive, a `RankMetric`, or a function of rank.

    "dcg@k" and "dcg", "precision@k", "arp" and "reciprocal@k" (lambda = 1/r) have names. The label
    enters as it is: for clicks that is what 2^y - 1 gives too. ARP is the *sum* of the ranks of
    relevant documents; divided by their number, as `snips` does, it is their average rank.
    "examination" has the curve `bias` itself as lambda: sum_i theta(slot_i) gamma_i, the clicks
    that a session would have (the scale of the curve cancels). It needs no idea of what a rank is
    worth, and so it is the metric of a grid.
    """
    if _is_examination(metric):
        return RankMetric(EXAMINATION, _Theta(() if bias is None else tuple(bias.examination)))
    if isinstance(metric, RankMetric):
        return metric
    if isinstance(metric, str) and metric.strip().lower().partition("@")[0] == RECIPROCAL:
        return _reciprocal(metric.strip().lower())
    if callable(metric) and not isinstance(metric, Metric):
        return RankMetric(getattr(metric, "__name__", "function of rank"), metric)
    known = parse_metric(metric)
    if not known.additive:
        cut = "" if known.cut is None else f"@{known.cut}"
        near = known.nearest_additive and known.nearest_additive + cut
        additive = [each.name for each in methods("metric") if each.load().additive]
        raise OptionError(
            f"clicks can estimate sums of lambda(rank) times relevance only, and {known} is none: "
            "it divides by or depends on the labels of other documents."
            f"{did_you_mean(near, [near])} There are: "
            f"{', '.join([*additive, RECIPROCAL, EXAMINATION])}, or any function of rank."
        )
    return RankMetric(
        str(known), _DiscountOf(known), cut=known.cut, higher_is_better=known.higher_is_better
    )


@dataclass(frozen=True)
class _DiscountOf:
    """lambda of a metric; a class, since functions made on the way cannot be pickled."""

    metric: Metric

    def __call__(self, rank: FloatArray) -> FloatArray:
        return self.metric.discount(len(rank))


def _is_examination(metric: MetricLike) -> bool:
    """Whether it is the curve itself, by its name or made without knowing the curve."""
    if isinstance(metric, RankMetric):
        return isinstance(metric.discount, _Theta)
    return isinstance(metric, str) and metric.strip().lower() == EXAMINATION


@dataclass(frozen=True)
class _Theta:
    """The curve as a function of rank, 0 below its end; empty until the curve is known."""

    theta: tuple[float, ...]

    def __call__(self, rank: FloatArray) -> FloatArray:
        if not self.theta:
            raise OptionError(
                f"the metric {EXAMINATION!r} needs the position bias: give ⟦bias=...⟧"
            )
        index = rank.astype(np.int64) - 1
        inside = index < len(self.theta)
        return np.where(inside, np.array(self.theta)[np.where(inside, index, 0)], 0.0)


def _one_over(rank: FloatArray) -> FloatArray:
    return 1 / rank


def _reciprocal(name: str) -> RankMetric:
    _, at, cut = name.partition("@")
    if at and not cut.isdecimal():
        raise OptionError(f"{RECIPROCAL}@k needs a whole number k of at least 1. Got {name!r}.")
    return RankMetric(name, _one_over, cut=checked_cut(int(cut), name) if at else None)


class Discounts(NamedTuple):
    """lambda of one system at the cells of a pool and, where cells are pooled, by document.

    `document` is the mean over the sessions in which the system orders the document. `slot` is
    lambda at the cell's own position, where a click counts only for systems that leave it there.
    """

    cell: FloatArray
    document: FloatArray
    slot: FloatArray = np.empty(0)


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
        if pool.propensity is not None:
            own = self.weights[pool.slates.position_index]
            return self.of_rows(own * self._kept(scores))._replace(slot=own[pool.cell_row])
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
        ahead, same = ranks_by_query(pool.query_indptr, scores)
        sizes = ragged.lengths(pool.query_indptr)
        last = np.minimum(np.minimum(self.top, sizes), self.on_page)[pool.query_index]
        places = np.minimum(ahead + same, last) - np.minimum(ahead, last)
        share = places / same / np.maximum(last, 1)
        return pool.by_query(np.where(documents, share, 0.0))

    def discount_of(self, documents: BoolArray, scores: FloatArray | None) -> FloatArray:
        """(queries,) summed lambda of some documents, mean over the sessions of the baseline."""
        total = np.where(documents, self._by_document(scores), 0.0)
        return self.pool.by_query(total) / self.pool.sessions

    def _kept(self, scores: FloatArray | None) -> FloatArray:
        """(rows of the slates,) chance that a system shows the document where it was shown.

        That of the logged order is the propensity. The documents of a list fill its slots; those of
        a query fill the positions that occur, also where a session is one slot alone.
        """
        pool, slates = self.pool, self.pool.slates
        if scores is None:
            return np.asarray(pool.slate_propensity)
        if pool.among == "list":
            ahead, same = ranks_by_query(slates.indptr, scores[slates.document])
            place = ragged.index_in_list(slates.indptr)
        else:
            of_documents = ranks_by_query(pool.query_indptr, scores)
            ahead, same = (each[slates.document] for each in of_documents)
            place = shown_positions(slates.position_index)[1].astype(np.int64)
        return np.where((ahead <= place) & (place < ahead + same), 1 / same, 0.0)

    def _by_row(self, scores: FloatArray | None) -> FloatArray:
        """(rows of the slates,) lambda at the slot that the system gives to each row's document."""
        pool, slates = self.pool, self.pool.slates
        if scores is None:
            return self.weights[slates.position_index]
        if pool.among == "list":
            return slot_discounts(slates, scores, self.weights)
        ahead, same = ranks_by_query(pool.query_indptr, scores)
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
            ahead, same = ranks_by_query(pool.query_indptr, scores)
            return shared_places(pool.query_indptr, ahead, same, self.page)
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


def ranks_by_query(query_indptr: IntArray, scores: FloatArray) -> tuple[IntArray, IntArray]:
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
def shared_places(
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
    mine: Share, indptr: IntArray, document: IntArray, position_index: IntArray, query: IntArray,
    ahead: IntArray, same: IntArray, weights: FloatArray, past: FloatArray, discount: FloatArray,
) -> None:  # fmt: skip
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


def unshown_documents(pool: Pool) -> BoolArray:
    """(documents,) whether no session of the log shows it, experiments too."""
    shown = np.zeros(pool.log.n_documents, dtype=bool)
    shown[pool.log.document] = True
    return ~shown[pool.document]


def with_candidates(pool: Pool) -> Pool | None:
    """The pool with all candidates of its queries; None where no session left one out.

    None too where documents have several versions: it is not known which one would be ranked.
    Propensities stay what they are: a document's mean over the sessions that they were taken over.
    """
    log = pool.log
    if log.item is not None:
        return None
    if pool.among == "candidates":
        return pool if unshown_documents(pool).any() else None
    answered = np.unique(log.query)  # the log of a pool has the sessions of its queries alone
    sessions = np.zeros(log.n_queries)
    sessions[answered] = pool.sessions
    document = np.flatnonzero(sessions[log.doc_query] > 0)
    if len(document) == len(pool.document):
        return None
    document = document[np.argsort(log.doc_query[document], kind="stable")]
    query = log.doc_query[document]
    number = np.empty(log.n_documents, dtype=np.int64)
    number[document] = np.arange(len(document))
    known = number[pool.document]
    n_cells, observed = np.zeros(len(document), dtype=np.int64), np.zeros(len(document))
    n_cells[known], observed[known] = ragged.lengths(pool.indptr), pool.observed
    slates = replace(pool.slates, document=known[pool.slates.document], n_documents=len(document))
    return replace(
        pool,
        indptr=ragged.indptr_of(n_cells),
        query=query,
        document=document,
        query_indptr=ragged.indptr_of(np.bincount(query, minlength=log.n_queries)[answered]),
        slates=slates,
        observed=observed,
        ordered=sessions[query],
        among="candidates",
    )


def candidate_scores(
    system: Any, scores: FloatArray | None, pool: Pool, candidates: Pool
) -> FloatArray | None:
    """(candidates,) scores of a system that has `scores` on a smaller pool; None: logged order.

    A candidate without a score (NaN) comes last.
    """
    if scores is None or candidates.document is pool.document:
        return scores
    log = pool.log
    of_log = np.full(log.n_documents, np.nan)
    of_log[pool.document] = scores
    rest = np.setdiff1d(candidates.document, pool.document, assume_unique=True)
    if not isinstance(system, Predicts):
        of_log[rest] = np.asarray(system, dtype=float)[rest]
    elif log.features is not None:
        of_log[rest] = predicted(system, log.features[rest], log.feature_names, log.missing)
    found = of_log[candidates.document]
    return np.where(np.isnan(found), -np.inf, found)


def under_belief(slots: Slots, scores: FloatArray | None, at: Discounts, worth: Worth) -> Discounts:
    """Discounts with which the credits of shown documents sum up to the value under a belief."""
    pool = slots.pool
    unshown = unshown_documents(pool)
    cell, document = at.cell, at.document
    if len(document):
        document = np.where(unshown, 0.0, document)
    if worth == "as shown":
        impressions = pool.by_document(pool.impressions)
        on = slots.discount_of(unshown, scores) / np.maximum(pool.by_query(impressions), 1.0)
        owner = pool.query_index
        if pool.cell_row is not None:  # a cell has the credit of its own sessions alone
            cell = cell + (on * pool.sessions)[owner[pool.document_index]]
        else:
            document = document + on[owner] * impressions
    if pool.cell_row is None:
        cell = document[pool.document_index]
    return Discounts(cell, document)
