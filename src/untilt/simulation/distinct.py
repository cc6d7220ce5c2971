"""The distinct sessions of a simulation and how often each occurs, without keeping them all.

Sessions can be made again from their numbers, so a group of equal sessions is held as the number of
its first one and a count. Sessions are sorted by query first: then equal ones meet in one chunk.
"""

from collections.abc import Iterator

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import IntArray
from untilt._core.grouping import Groups, group_equal_lists
from untilt._core.progress import Advance, progress
from untilt.simulation.sampler import Plan, draw_heads, draw_sessions, pack_clicks

# 32 million session numbers with their queries need under 1 GiB while they are sorted.
BLOCK = 2**25
# Rows (or words of bits) that are in memory at a time: about 100 MB with all that grouping needs.
CHUNK_ROWS = 2**21


def distinct_sessions(
    plan: Plan, n_sessions: int, *, block: int = BLOCK, chunk_rows: int = CHUNK_ROWS
) -> tuple[IntArray, IntArray]:
    """(first, count): the numbers of the first of equal sessions, rising, and how many there are.

    Neither `block` nor `chunk_rows` changes the result.
    """
    firsts, counts = [], []
    with progress("simulating", total=n_sessions) as advance:
        for begin in range(0, n_sessions, block):
            number = np.arange(begin, min(begin + block, n_sessions))
            ones = np.ones(len(number), np.int64)
            first, count = _merge(plan, number, ones, chunk_rows, advance)
            firsts.append(first)
            counts.append(count)
    first, count = np.concatenate(firsts), np.concatenate(counts)
    if len(firsts) > 1:
        first, count = _merge(plan, first, count, chunk_rows)
    order = np.argsort(first)
    return first[order], count[order]


def _merge(
    plan: Plan,
    number: IntArray,
    count: IntArray,
    chunk_rows: int,
    advance: Advance | None = None,
) -> tuple[IntArray, IntArray]:
    """Numbers of distinct sessions among these and their summed counts.

    The numbers must rise within each query: the first of equal ones is then the lowest.
    """
    query, variant = draw_heads(plan, number)
    order, query_start = sort_by_query(query, len(plan.start) - 1)
    firsts, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for begin, end in _chunks(plan, query_start, chunk_rows):
        chosen = order[begin:end]
        groups = _group(plan, number[chosen], query[chosen], variant[chosen])
        firsts.append(number[chosen[groups.first]])
        counts.append(
            np.bincount(groups.group_of_list, count[chosen], groups.n_groups).astype(np.int64)
        )
        if advance is not None:
            advance(end - begin)
    return np.concatenate(firsts), np.concatenate(counts)


def _group(plan: Plan, number: IntArray, query: IntArray, variant: IntArray) -> Groups:
    if plan.has_dwell or plan.variant_shuffle.any():
        made = draw_sessions(plan, number)
        rows = [made.document, made.click, *(() if made.dwell is None else (made.dwell,))]
        return group_equal_lists(made.indptr, rows, [query, variant])
    length = ragged.lengths(plan.start)[query]
    word_indptr = ragged.indptr_of((length + 63) // 64)
    words = pack_clicks(plan, number, query, variant, word_indptr)
    return group_equal_lists(word_indptr, [words], [query, variant])


def _chunks(plan: Plan, query_start: IntArray, chunk_rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of sorted sessions with whole queries and, but for huge queries, bounded rows."""
    rows = np.concatenate([[0], np.cumsum(np.diff(query_start) * ragged.lengths(plan.start))])
    q, n_queries = 0, len(query_start) - 1
    while q < n_queries:
        after = int(np.searchsorted(rows, rows[q] + chunk_rows, side="right")) - 1
        after = min(max(after, q + 1), n_queries)
        if query_start[after] > query_start[q]:
            yield int(query_start[q]), int(query_start[after])
        q = after


@nb.njit(cache=True)
def sort_by_query(query: IntArray, n_queries: int) -> tuple[IntArray, IntArray]:
    """Stable counting sort: the order, and where each query begins in it."""
    start = np.zeros(n_queries + 1, dtype=np.int64)
    for s in range(len(query)):
        start[query[s] + 1] += 1
    for q in range(n_queries):
        start[q + 1] += start[q]
    place = start[:-1].copy()
    order = np.empty(len(query), dtype=np.int64)
    for s in range(len(query)):
        order[place[query[s]]] = s
        place[query[s]] += 1
    return order, start
