"""Click logs with a known truth."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import IntArray
from untilt._core.grouping import Groups, group_equal_lists
from untilt._core.progress import Advance, progress
from untilt._core.random import Seed
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError
from untilt.simulation.fitted import as_fitted, check_fitted_size, with_clicks
from untilt.simulation.protocols.fitted import is_click_model
from untilt.simulation.sampler import Plan, Sessions, draw_heads, draw_sessions, pack_clicks
from untilt.simulation.setting import MeanExamination, Setting, Truth, prepare

# The distinct sessions of a simulation and how often each occurs, without keeping them all.
#
# Sessions can be made again from their numbers, so a group of equal sessions is held as the number
# of its first one and a count. Sessions are sorted by query first: then equal ones meet in one
# chunk.

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


SESSIONS_PER_QUERY = 100  # where no size is asked for
COUNTING_CHUNK = 2**15  # sessions at a time while clicks are counted
HOPELESS = 2**18  # sessions without any click, after which more are not tried


@dataclass(frozen=True, eq=False)
class Simulation:
    """A click log and what it was made from."""

    log: ClickLog
    truth: Truth


def simulate(
    judged: JudgedLists,
    protocol: Any = "dla",
    *,
    n_sessions: int | None = None,
    n_clicks: int | None = None,
    sessions_per_query: int | None = None,
    ranker: Any = None,
    seed: Seed = 0,
    depth: int | None = None,
    query_weights: Any = None,
    max_label: float | None = None,
    keep_unshown: bool = True,
    collapse: bool = True,
    n_threads: int | None = None,
) -> Simulation:
    """Draw sessions of users who click by a known rule, and return the log with the truth.

    A production ranker orders the documents of each query, a session shows the top of its query's
    list, and its reader clicks as `protocol` says. The queries whose labels trained the production
    ranker give no sessions. The same seed gives the same log, whatever the number of threads.

    Parameters
    ----------
    protocol : "prs", "dla", "cascade", "trust", "dwell", "swap", "shuffle", "harvest", or a value
        with other parameters such as protocols.DLA(theta=0.5), or a fitted click model such as
        UBM().fit(log), which knows documents by (query id, document id)
    n_sessions : sessions, each of a query drawn with replacement
    n_clicks : as many sessions as it takes to reach so many clicks; the last may exceed it
    sessions_per_query : every query gets just so many. Only one of these three can be given; 100
        per query, drawn with replacement, where none is
    ranker : who orders the lists: scores (one per judged document), something fitted with
        `predict`, or several of them by name for "harvest". None trains the papers' production
        ranker on 1% of the queries: `production_ranker(judged, seed=seed)`
    depth : places of a list, in place of the protocol's own
    query_weights : "uniform" (the default), "zipf" (1/rank, ranks drawn at random) or an array
    max_label : the highest grade there is; the highest found where not given
    keep_unshown : keep documents that no session showed, as unshown candidates
    collapse : merge equal sessions, as `ClickLog.collapse` would; else each keeps its number as
        its `time`
    n_threads : at most so many; all that numba has where not given

    >>> from untilt.simulation.synthetic import make_judged
    >>> sim = simulate(make_judged(n_queries=200), protocol="dla", n_sessions=1000)
    >>> sim.log.n_sessions, sim.truth.examination[0]
    (1000, np.float64(0.68))
    """
    check_size(n_sessions, n_clicks, sessions_per_query)
    fitted = as_fitted(protocol) if is_click_model(protocol) else None
    if fitted is not None:
        check_fitted_size(n_clicks)
    with threads(n_threads):
        setting = prepare(
            judged,
            protocol if fitted is None else fitted,
            ranker=ranker,
            seed=seed,
            depth=depth,
            query_weights=query_weights,
            max_label=max_label,
            in_turn=sessions_per_query is not None,
        )
        total = number_of_sessions(setting, n_sessions, n_clicks, sessions_per_query)
        if collapse and fitted is None:
            number, count = distinct_sessions(setting.plan, total)
        else:
            number, count = np.arange(total), np.ones(total, dtype=np.int64)
        made = draw_sessions(setting.plan, number)
    log = _log(setting, made, count, time=None if collapse else number)
    if fitted is not None:
        log, behaviour = with_clicks(log, fitted.model, seed)
        log = log.collapse() if collapse else log
        setting = replace(setting, behaviour=behaviour)
    examination = MeanExamination(setting.behaviour)
    examination.add(made.indptr, made.document, count)
    simulation = Simulation(log, setting.truth(examination))
    return simulation if keep_unshown else _only_shown(simulation)


def number_of_sessions(
    setting: Setting,
    n_sessions: int | None,
    n_clicks: int | None,
    sessions_per_query: int | None,
) -> int:
    """The number of sessions asked for, directly or by the clicks that they must bring."""
    n_queries = setting.judged.n_queries
    if n_clicks is not None:
        return _sessions_for_clicks(setting, n_clicks)
    if n_sessions is not None:
        return n_sessions
    each = SESSIONS_PER_QUERY if sessions_per_query is None else sessions_per_query
    return each * n_queries


@contextmanager
def threads(n_threads: int | None) -> Iterator[None]:
    """Let numba use at most so many threads inside the block."""
    if n_threads is not None and n_threads < 1:
        raise OptionError(f"n_threads must be at least 1. Got {n_threads} instead.")
    before = nb.get_num_threads()
    nb.set_num_threads(before if n_threads is None else min(n_threads, before))
    try:
        yield
    finally:
        nb.set_num_threads(before)


def _sessions_for_clicks(setting: Setting, n_clicks: int) -> int:
    """The smallest number of sessions that bring n_clicks."""
    so_far = begin = 0
    while True:
        number = np.arange(begin, begin + COUNTING_CHUNK)
        made = draw_sessions(setting.plan, number)
        clicks = so_far + np.cumsum(ragged.sums_by_list(made.indptr, made.click))
        if clicks[-1] >= n_clicks:
            return begin + 1 + int(np.searchsorted(clicks, n_clicks))
        so_far, begin = int(clicks[-1]), begin + COUNTING_CHUNK
        if so_far == 0 and begin >= HOPELESS:
            raise OptionError(
                f"n_clicks={n_clicks:,} cannot be reached: {begin:,} sessions brought no click. "
                "Check that relevant documents are shown (depth, ranker), or ask for n_sessions."
            )


def _log(setting: Setting, made: Sessions, count: IntArray, time: IntArray | None) -> ClickLog:
    judged = setting.judged
    assert judged.doc_id is not None
    none = np.empty(0, dtype=np.int64)
    documents = ClickLog(
        query_id=judged.query_id,
        doc_id=judged.doc_id,
        doc_query=ragged.list_of_row(judged.indptr),
        indptr=np.zeros(1, dtype=np.int64),
        query=none,
        document=none,
        position=none,
        label=np.empty(0),
        features=judged.features,
        feature_names=judged.feature_names,
        label_name=setting.protocol.feedback,
        ranker_names=setting.ranker_names,
    )
    # Right by construction, so not checked again: that would sort all rows once more.
    return documents._with(
        indptr=made.indptr,
        query=made.query,
        document=made.document,
        position=(ragged.place_in_list(made.indptr) + 1).astype(np.int32),
        label=made.label,
        count=count,
        ranker=made.variant if setting.ranker_names else None,
        time=time,
        extra_labels={} if made.dwell is None else {"click": made.click.astype(np.float64)},
    )


def _only_shown(simulation: Simulation) -> Simulation:
    """Without the documents and queries that no session showed."""
    log, truth = simulation.log, simulation.truth
    documents, document = np.unique(log.document, return_inverse=True)
    queries, query = np.unique(log.query, return_inverse=True)
    judged, behaviour = truth.judged, truth.behaviour.of_documents(documents)
    assert judged.doc_id is not None
    doc_query = np.searchsorted(queries, log.doc_query[documents])
    kept = JudgedLists(
        features=judged.features[documents],
        labels=judged.labels[documents],
        indptr=np.searchsorted(doc_query, np.arange(len(queries) + 1)),
        query_id=judged.query_id[queries],
        doc_id=judged.doc_id[documents],
        feature_names=judged.feature_names,
    )
    smaller = log._with(
        query_id=kept.query_id,
        doc_id=kept.doc_id,
        doc_query=doc_query,
        features=kept.features,
        query=query,
        document=document,
    )
    return Simulation(
        smaller,
        replace(
            truth,
            judged=kept,
            behaviour=behaviour,
            relevance=behaviour.relevance,
            dwell=behaviour.dwell,
            query_probability=truth.query_probability[queries],
        ),
    )


def check_size(
    n_sessions: int | None, n_clicks: int | None, sessions_per_query: int | None
) -> None:
    """Raise unless at most one size is given, and it is at least 1."""
    sizes = {
        "n_sessions": n_sessions,
        "n_clicks": n_clicks,
        "sessions_per_query": sessions_per_query,
    }
    given = {name: size for name, size in sizes.items() if size is not None}
    if len(given) > 1:
        raise OptionError(f"give only one of {', '.join(sizes)}. Got {', '.join(given)}.")
    for name, size in given.items():
        if size < 1:
            raise OptionError(f"{name} must be at least 1. Got {size} instead.")
