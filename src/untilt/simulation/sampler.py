"""Sessions by number, each made from its own random stream, and the distinct ones among many.

Random numbers come by counter: each is a hash of (key, session, number of the draw). No draw
depends on another one, so threads, chunks and the order of work change nothing, and any session can
be made again by itself. The hash is the finaliser of splitmix64; the draws of a session are one
splitmix64 stream that starts at a hashed number.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray
from untilt._core.grouping import GOLDEN, Groups, group_equal_lists, splitmix64
from untilt._core.progress import Advance, progress
from untilt._core.sorting import counting_order
from untilt._core.threads import Share, parallel_kernel

# Draws of a session as a whole, then eight for each row of its list.
QUERY, VARIANT = 0, 1
DRAWS_PER_ROW = 8
CLICK, SATISFIED, GO_ON, SHUFFLE, RADIUS, ANGLE = 0, 1, 2, 3, 4, 5


# 32 million session numbers with their queries need under 1 GiB while they are sorted.
BLOCK = 2**25
# Rows (or words of bits) that are in memory at a time: about 100 MB with all that grouping needs.
CHUNK_ROWS = 2**21


mixed = nb.njit(cache=True)(splitmix64)


@nb.njit(cache=True)
def stream_of(key: np.uint64, session: int) -> np.uint64:
    """Where the session's stream starts."""
    return mixed(key + (np.uint64(session) + np.uint64(1)) * GOLDEN)


@nb.njit(cache=True)
def uniform(stream: np.uint64, draw: int) -> float:
    """The stream's draw with this number: uniform on [0, 1), 53 bits."""
    word = mixed(stream + (np.uint64(draw) + np.uint64(1)) * GOLDEN)
    return np.float64(word >> np.uint64(11)) * 2.0**-53


@nb.njit(cache=True)
def draw_number(row: int, purpose: int) -> int:
    """The number of the draw that serves this purpose in this 0-based row of the list."""
    return (row + 1) * DRAWS_PER_ROW + purpose


class SamplingPlan(NamedTuple):
    """All that a session depends on, as arrays for the kernels.

    key : of the random streams
    query_steps : (Q,) cumulated query probabilities; empty for queries in turn
    start : (Q + 1,) where each query's shown documents begin
    shown : (R, start[-1]) documents in the order of each production ranker, cut at the depth
    variant_steps, variant_order, variant_swap, variant_shuffle : the `Display`
    alpha, beta : (K,) and relevance : (n,)  P(click) = alpha_k gamma + beta_k
    satisfaction : (n,) or empty; go_on : of the cascade
    delta_mean, delta_spread : (K,) and omega_mean, omega_spread : (n,) or all empty
    """

    key: np.uint64
    query_steps: FloatArray
    start: IntArray
    shown: IntArray
    variant_steps: FloatArray
    variant_order: IntArray
    variant_swap: IntArray
    variant_shuffle: IntArray
    alpha: FloatArray
    beta: FloatArray
    relevance: FloatArray
    satisfaction: FloatArray
    go_on: float
    delta_mean: FloatArray
    delta_spread: FloatArray
    omega_mean: FloatArray
    omega_spread: FloatArray

    @property
    def has_dwell(self) -> bool:
        """Whether feedback is a dwell time."""
        return len(self.delta_mean) > 0


@dataclass(frozen=True, eq=False)
class Sessions:
    """Sessions as rows: query and variant of each, documents from the top down, feedback."""

    number: IntArray
    query: IntArray
    variant: IntArray
    indptr: IntArray
    document: IntArray
    click: AnyArray
    dwell: FloatArray | None

    @property
    def label(self) -> FloatArray:
        """(rows,) the feedback: dwell time where there is one, else the click."""
        return self.click.astype(np.float64) if self.dwell is None else self.dwell


def draw_sessions(plan: SamplingPlan, number: IntArray) -> Sessions:
    """The sessions with these numbers."""
    query, variant = draw_heads(plan, number)
    indptr = ragged.indptr_of(ragged.lengths(plan.start)[query])
    n = int(indptr[-1])
    document, click = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.uint8)
    dwell = np.empty(n if plan.has_dwell else 0)
    _fill_rows(len(number), plan, number, query, variant, indptr, document, click, dwell)
    return Sessions(
        number, query, variant, indptr, document, click, dwell if plan.has_dwell else None
    )


def distinct_sessions(
    plan: SamplingPlan, n_sessions: int, *, block: int = BLOCK, chunk_rows: int = CHUNK_ROWS
) -> tuple[IntArray, IntArray]:
    """(first, count): the numbers of the first of equal sessions, rising, and how many there are.

    Sessions can be made again from their numbers, so none is kept: a group of equal sessions is the
    number of its first one and a count. Sessions are sorted by query first: then equal ones meet in
    one chunk.

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
    plan: SamplingPlan,
    number: IntArray,
    count: IntArray,
    chunk_rows: int,
    advance: Advance | None = None,
) -> tuple[IntArray, IntArray]:
    """Numbers of distinct sessions among these and their summed counts.

    The numbers must rise within each query: the first of equal ones is then the lowest.
    """
    query, variant = draw_heads(plan, number)
    order, query_start = counting_order(query, len(plan.start) - 1)
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


def _group(plan: SamplingPlan, number: IntArray, query: IntArray, variant: IntArray) -> Groups:
    if plan.has_dwell or plan.variant_shuffle.any():
        made = draw_sessions(plan, number)
        rows = [made.document, made.click, *(() if made.dwell is None else (made.dwell,))]
        return group_equal_lists(made.indptr, rows, [query, variant])
    length = ragged.lengths(plan.start)[query]
    word_indptr = ragged.indptr_of((length + 63) // 64)
    words = np.zeros(word_indptr[-1], dtype=np.uint64)
    _pack_clicks((len(number) + 4095) // 4096, plan, number, query, variant, word_indptr, words)
    return group_equal_lists(word_indptr, [words], [query, variant])


def _chunks(
    plan: SamplingPlan, query_start: IntArray, chunk_rows: int
) -> Iterator[tuple[int, int]]:
    """Ranges of sorted sessions with whole queries and, but for huge queries, bounded rows."""
    rows = np.concatenate([[0], np.cumsum(np.diff(query_start) * ragged.lengths(plan.start))])
    q, n_queries = 0, len(query_start) - 1
    while q < n_queries:
        after = int(np.searchsorted(rows, rows[q] + chunk_rows, side="right")) - 1
        after = min(max(after, q + 1), n_queries)
        if query_start[after] > query_start[q]:
            yield int(query_start[q]), int(query_start[after])
        q = after


def draw_heads(plan: SamplingPlan, number: IntArray) -> tuple[IntArray, IntArray]:
    """Query and variant of each session."""
    query, variant = np.empty((2, len(number)), dtype=np.int32)
    _draw_heads(len(number), plan, number, query, variant)
    return query, variant


@parallel_kernel()
def _draw_heads(
    mine: Share, plan: SamplingPlan, number: IntArray, query: IntArray, variant: IntArray
) -> None:
    n_queries = len(plan.start) - 1
    for s in range(mine[0], mine[1]):
        stream = stream_of(plan.key, number[s])
        if len(plan.query_steps) == 0:
            q = number[s] % n_queries
        else:
            q = _step(plan.query_steps, uniform(stream, QUERY))
        v = 0
        if len(plan.variant_steps) > 1:
            v = _step(plan.variant_steps, uniform(stream, VARIANT))
        # swap[v, 1] is the lower of the two positions, 0 for none.
        if plan.variant_swap[v, 1] > plan.start[q + 1] - plan.start[q]:
            v = 0
        query[s] = q
        variant[s] = v


@parallel_kernel()
def _fill_rows(
    mine: Share, plan: SamplingPlan, number: IntArray, query: IntArray, variant: IntArray,
    indptr: IntArray, document: IntArray, click: AnyArray, dwell: FloatArray,
) -> None:  # fmt: skip
    """What each session showed, and what its reader did."""
    for s in range(mine[0], mine[1]):
        stream = stream_of(plan.key, number[s])
        begin, end = indptr[s], indptr[s + 1]
        _arrange(plan, stream, query[s], variant[s], document[begin:end])
        _read(plan, stream, document[begin:end], click[begin:end])
        if len(dwell) > 0:
            _stay(plan, stream, document[begin:end], click[begin:end], dwell[begin:end])


@parallel_kernel()
def _pack_clicks(
    mine: Share, plan: SamplingPlan, number: IntArray, query: IntArray, variant: IntArray,
    word_indptr: IntArray, words: AnyArray,
) -> None:  # fmt: skip
    """The clicks of each session as bits, 64 rows to a word: all in which sessions of one query
    and variant differ, where neither chance orders the list nor dwell time is measured.
    """
    for block in range(mine[0], mine[1]):
        document = np.empty(len(plan.alpha), dtype=np.int32)
        click = np.empty(len(plan.alpha), dtype=np.uint8)
        for s in range(block * 4096, min(len(number), (block + 1) * 4096)):
            stream = stream_of(plan.key, number[s])
            length = plan.start[query[s] + 1] - plan.start[query[s]]
            _arrange(plan, stream, query[s], variant[s], document[:length])
            _read(plan, stream, document[:length], click[:length])
            for k in range(length):
                bit = np.uint64(click[k]) << np.uint64(k % 64)
                words[word_indptr[s] + k // 64] |= bit


@nb.njit(cache=True)
def _step(steps: FloatArray, u: float) -> int:
    """The first index whose cumulated probability is above u; never one of probability 0."""
    return min(int(np.searchsorted(steps, u, side="right")), len(steps) - 1)


@nb.njit(cache=True)
def _arrange(
    plan: SamplingPlan, stream: np.uint64, query: int, variant: int, document: IntArray
) -> None:
    order, start = plan.variant_order[variant], plan.start[query]
    for k in range(len(document)):
        document[k] = plan.shown[order, start + k]
    upper, lower = plan.variant_swap[variant]
    if lower > 0:
        document[upper - 1], document[lower - 1] = document[lower - 1], document[upper - 1]
    # Fisher and Yates: row k is swapped with one of the rows 0..k, all alike.
    for k in range(min(plan.variant_shuffle[variant], len(document)) - 1, 0, -1):
        j = int(uniform(stream, draw_number(k, SHUFFLE)) * (k + 1))
        document[k], document[j] = document[j], document[k]


@nb.njit(cache=True)
def _read(plan: SamplingPlan, stream: np.uint64, document: IntArray, click: AnyArray) -> None:
    reads, stops = True, len(plan.satisfaction) > 0
    for k in range(len(document)):
        d = document[k]
        probability = plan.alpha[k] * plan.relevance[d] + plan.beta[k]
        clicked = reads and uniform(stream, draw_number(k, CLICK)) < probability
        click[k] = clicked
        if stops and reads:
            satisfied = (
                clicked and uniform(stream, draw_number(k, SATISFIED)) < plan.satisfaction[d]
            )
            reads = not satisfied and uniform(stream, draw_number(k, GO_ON)) < plan.go_on


@nb.njit(cache=True)
def _stay(
    plan: SamplingPlan, stream: np.uint64, document: IntArray, click: AnyArray, dwell: FloatArray
) -> None:
    """d = c max(0, delta) max(0, omega), the two normals by Box and Muller."""
    for k in range(len(document)):
        dwell[k] = 0.0
        if click[k]:
            d = document[k]
            radius = np.sqrt(-2 * np.log(1 - uniform(stream, draw_number(k, RADIUS))))
            angle = 2 * np.pi * uniform(stream, draw_number(k, ANGLE))
            delta = plan.delta_mean[k] + plan.delta_spread[k] * radius * np.cos(angle)
            omega = plan.omega_mean[d] + plan.omega_spread[d] * radius * np.sin(angle)
            dwell[k] = max(0.0, delta) * max(0.0, omega)
