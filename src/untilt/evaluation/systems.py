"""The systems of an evaluation (rankers, score arrays, the shown order) and their sums."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from untilt._core.arrays import FloatArray, IntArray
from untilt._core.progress import progress
from untilt.errors import OptionError
from untilt.evaluation.judged import Predicts
from untilt.evaluation.pool import Credit, Evaluator, Pool, scores_of
from untilt.evaluation.rank_metric import RankMetric
from untilt.evaluation.uncertainty import Sums

SYSTEMS_AT_ONCE = 32  # whose scores are held at the same time
TOP = 10  # positions looked at for documents that nobody was shown, where the metric has no cut
# Up to this many documents counting those with larger scores beats sorting: no allocation.
COUNT_UP_TO = 48
FEW_SCORES = 20_000  # for which waking other threads costs more than it saves


class Shown:
    """The type of `shown`: the order that the log itself showed, list by list."""

    def __repr__(self) -> str:
        return "shown"

    def __reduce__(self) -> str:
        return "shown"


shown: Final = Shown()
System = Shown | Predicts | npt.ArrayLike
Systems = System | Mapping[str, System]


def named_systems(systems: Systems) -> dict[str, System]:
    """Systems by name; one alone is called "system", or "shown"."""
    if isinstance(systems, Mapping):
        named = {str(name): system for name, system in systems.items()}
    else:
        named = {"shown" if isinstance(systems, Shown) else "system": systems}
    if not named:
        raise OptionError("no system to evaluate. Give at least one, such as {'new': ranker}.")
    return named


def sums_of_systems(
    pool: Pool,
    systems: Mapping[str, System],
    credit: Credit,
    metric: RankMetric,
    evaluator: Evaluator,
    covariance: FloatArray | None,
) -> tuple[Sums, FloatArray]:
    """Totals of all systems, and the share of top ranks that each gives to unshown documents."""
    weights = metric.weights(pool.longest)
    total = np.zeros((pool.n_queries, len(systems)))
    unshown = np.zeros((pool.n_queries, len(systems)))
    slope = np.zeros((len(systems), pool.depth))
    by_document = pool.by_document(credit.cell)
    if credit.document is not None:
        by_document = by_document + credit.document * pool.sessions[pool.query_index]
    cumulative = np.concatenate([[0.0], np.cumsum(weights)])
    for index, scores in _scored(pool, systems):
        ranked = _Ranked(
            scores,
            pool.query_indptr,
            pool.indptr,
            pool.position,
            total=by_document,
            slope=np.empty(0) if covariance is None else credit.slope,
            cumulative=cumulative,
            top=TOP if metric.cut is None else metric.cut,
        )
        total[:, index], slope[index], unshown[:, index] = _system_sums(ranked, pool.depth)
    for i, system in enumerate(systems.values()):
        if isinstance(system, Shown):
            total[:, i], slope[i] = _shown_sums(pool, credit, weights, evaluator)
    norm, norm_slope = pool.sessions, np.zeros(pool.depth)
    if credit.self_normalised:
        norm = pool.by_query(pool.by_document(credit.cell))
        norm_slope = pool.by_position(credit.slope)
    share = pool.sessions @ unshown / pool.n_sessions
    return Sums(total, norm, slope, norm_slope, covariance), share


def _scored(pool: Pool, systems: Mapping[str, System]) -> Iterator[tuple[list[int], FloatArray]]:
    """Systems with scores, some at a time: their indices, and (systems, documents)."""
    scored = [
        (i, name, system)
        for i, (name, system) in enumerate(systems.items())
        if not isinstance(system, Shown)
    ]
    with progress("ranking", total=len(scored)) as advance:
        for begin in range(0, len(scored), SYSTEMS_AT_ONCE):
            part = scored[begin : begin + SYSTEMS_AT_ONCE]
            scores = np.empty((len(part), len(pool.document)))
            for row, (_, name, system) in enumerate(part):
                scores[row] = scores_of(system, pool, name)
            yield [i for i, _, _ in part], scores
            advance(len(part))


def _shown_sums(
    pool: Pool, credit: Credit, weights: FloatArray, evaluator: Evaluator
) -> tuple[FloatArray, FloatArray]:
    """The logged order: each session's own positions are the ranks."""
    at = shown_discounts(pool, weights, evaluator)
    documents = pool.by_document(credit.cell * at)
    if credit.document is not None:
        mean = _mean_discounts(pool, weights)
        documents = documents + mean * credit.document * pool.sessions[pool.query_index]
    return pool.by_query(documents), pool.by_position(credit.slope * at)


def shown_discounts(pool: Pool, weights: FloatArray, evaluator: Evaluator) -> FloatArray:
    """(cells,) the discount of the logged order: that of the position.

    Where an evaluator pools a document's clicks over positions, its discount is the mean over the
    query's sessions, sum_k n_dk lambda(k) / N_q.
    """
    if not evaluator.pools_documents:
        return weights[pool.position_index]
    return _mean_discounts(pool, weights)[pool.document_index]


def _mean_discounts(pool: Pool, weights: FloatArray) -> FloatArray:
    at = pool.impressions * weights[pool.position_index]
    return pool.by_document(at) / pool.sessions[pool.query_index]


@nb.njit(cache=True)
def _ranks(row: FloatArray, ahead: IntArray, same: IntArray) -> None:
    """How many documents have a larger score than each, and how many the same, itself included."""
    m = len(row)
    if m <= COUNT_UP_TO:
        for i in range(m):
            above, equal = 0, 0
            for j in range(m):
                above += row[j] > row[i]
                equal += row[j] == row[i]
            ahead[i], same[i] = above, equal
        return
    order = np.argsort(-row)
    first = 0
    while first < m:
        last = first + 1
        while last < m and row[order[last]] == row[order[first]]:
            last += 1
        for r in range(first, last):
            ahead[order[r]], same[order[r]] = first, last - first
        first = last


@nb.njit(cache=True)
def discounts(scores: FloatArray, query_indptr: IntArray, cumulative: FloatArray) -> FloatArray:
    """(documents,) lambda at the rank of each document; equal scores share theirs."""
    discount = np.empty(len(scores))
    for q in range(len(query_indptr) - 1):
        a, b = query_indptr[q], query_indptr[q + 1]
        ahead, same = np.empty(b - a, dtype=np.int64), np.empty(b - a, dtype=np.int64)
        _ranks(scores[a:b], ahead, same)
        for i in range(b - a):
            g, e = ahead[i], same[i]
            discount[a + i] = (cumulative[g + e] - cumulative[g]) / e
    return discount


class _Ranked(NamedTuple):
    """What the kernel reads: scores (systems, documents), documents by query, cells by document.

    `total` is the credit of each document, `slope` that of each cell by theta (empty where not
    wanted); `cumulative[r]` is lambda(1) + ... + lambda(r); `top` the last rank that is looked at
    for documents without cells.
    """

    scores: FloatArray
    query_indptr: IntArray
    indptr: IntArray
    position: IntArray
    total: FloatArray
    slope: FloatArray
    cumulative: FloatArray
    top: int


def _system_sums(ranked: _Ranked, depth: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums of lambda(rank) times credit, for all systems while a query's documents are at hand.

    Equal scores share their ranks: each gets the mean of lambda over the ranks that they fill, the
    expectation over all their orders.

    Returns
    -------
    value : (queries, systems) sum over documents of lambda * total
    slopes : (systems, depth) sum over cells of lambda * slope, by position
    unshown : (queries, systems) share of the first `top` ranks that go to documents without cells
    """
    n_systems, n_queries = len(ranked.scores), len(ranked.query_indptr) - 1
    value, unshown = np.zeros((n_queries, n_systems)), np.zeros((n_queries, n_systems))
    few = ranked.scores.size <= FEW_SCORES
    slopes = np.zeros((1 if few else 4 * nb.get_num_threads(), n_systems, depth))
    if few:
        _sum_queries(0, n_queries, ranked, value, slopes[0], unshown)
    else:
        _sum_in_parallel(n_queries, ranked, value, slopes, unshown)
    summed = np.zeros((n_systems, depth))
    for part in slopes:
        summed += part
    return value, summed, unshown


@nb.njit(parallel=True, cache=True)
def _sum_in_parallel(
    n_queries: int, ranked: _Ranked, value: FloatArray, slopes: FloatArray, unshown: FloatArray
) -> None:
    n_chunks = len(slopes)
    for chunk in nb.prange(n_chunks):
        begin, end = n_queries * chunk // n_chunks, n_queries * (chunk + 1) // n_chunks
        _sum_queries(begin, end, ranked, value, slopes[chunk], unshown)


@nb.njit(cache=True)
def _sum_queries(
    begin: int,
    end: int,
    ranked: _Ranked,
    value: FloatArray,
    slopes: FloatArray,
    unshown: FloatArray,
) -> None:
    """Fill in the queries begin..end; `slopes` is added to."""
    scores, query_indptr, indptr, position, total, slope, cumulative, top = ranked
    for q in range(begin, end):
        a, b = query_indptr[q], query_indptr[q + 1]
        m = b - a
        last = min(top, m)
        ahead, same = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
        for s in range(len(scores)):
            _ranks(scores[s, a:b], ahead, same)
            for i in range(m):
                d = a + i
                g, e = ahead[i], same[i]
                weight = (cumulative[g + e] - cumulative[g]) / e
                value[q, s] += weight * total[d]
                if indptr[d] == indptr[d + 1]:
                    share = (min(g + e, last) - min(g, last)) / e
                    unshown[q, s] += share / last
                elif len(slope) > 0 and weight != 0.0:
                    for cell in range(indptr[d], indptr[d + 1]):
                        slopes[s, position[cell] - 1] += weight * slope[cell]
