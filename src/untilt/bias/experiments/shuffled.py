"""Position bias from lists whose top was shuffled."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, BoolArray, FloatArray, IntArray, sum_by
from untilt.bias.curve import POSITION_BASED, PositionBias
from untilt.bias.estimator import BiasEstimator, place_of
from untilt.bias.experiments.assignment import Shuffled, refuse, shuffled_lists, top_of
from untilt.bias.experiments.tests import shuffle_facts
from untilt.bias.harvesting.pairs import few_clicks
from untilt.bias.log_ratios import (
    STAYS,
    Uncertainty,
    clustered_by_people,
    effective_by_column,
    from_log_ratios,
    larger_error,
)
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import position_counts
from untilt.data.limits import allow_table
from untilt.errors import DepthError, IdentifiabilityError
from untilt.facts import Fact, joined, note, phrase

ONE_LEFT_OUT = note("bias.left-out", "position {first} left out")

LEFT_OUT = note("bias.left-out", "positions {first}..{last} left out")

SHUFFLED = note("bias.shuffled", "{sessions:,} shuffled sessions, {clicks:,.0f} clicks")
CUT_AT_NO_CLICK = note(
    "bias.cut-at-no-click",
    "positions 1..{top} alone: position {position} has no click to compare in these lists",
)
RANDOM_ORDER = note(
    "bias.random-order", "the top {top} were in random order, all orders equally likely"
)

# So many repeated impressions of a query at a position that always show the same document are no
# accident: a shuffle of two documents does it once in 2^30 times.
ENOUGH_REPEATS = 30


@method(
    "bias", "shuffled-top", title="Shuffled lists", order=10, rests_on="experiment",
    needs=("ranker",), reference="oosterhuis2020tutorial",
    note="click rates by position in lists that were shown in random order",
)  # fmt: skip
@dataclass(eq=False, repr=False)
class ShuffledTop(BiasEstimator):
    r"""Click rate by position in shuffled lists (RandTop-n, [oosterhuis2020tutorial]_).

    The estimate by randomisation of [wang2016selection]_:

        theta_k / theta_1 = clicks at k / clicks at 1,  over the lists that show both

    In random order every document is as likely at k as at 1, so relevance averages out. Lists too
    short to reach k are left out of both sums: short lists may be about other queries.

    Whatever share of the sessions was shuffled, and whenever: a shuffled session is compared with
    itself. Of lists that are called "shuffle-top-3" the first three positions count, also where
    others were shuffled deeper.

    Needs neither repeated queries nor a model, but each shuffled session costs relevance at the
    top. Without a shuffle this formula is the click rate by position, which is no position bias.

    Parameters
    ----------
    top : the first `top` positions were shuffled. Where not given: what names such as
        "shuffle-top-3" say; else all positions down to the first whose document never changes
        although its queries are shown again and again, or that has no click to compare
    ranker : which lists were shuffled: a name of the log's `ranker`, several, or a function of the
        name; `lambda name: True` takes all. Names that begin with "shuffle" where not given
    check : test whether the order was random (`untilt.bias.experiments.tests`) and refuse
        lists that fail; False uses them all the same, and says in `status` what was found
    level : of the intervals
    any_time : intervals that hold at every look while the experiment runs, not at one look alone.
        About 1.6 times as wide (docs/how-many-sessions.md)
    """

    top: int | None = None
    _: KW_ONLY
    ranker: Shuffled = None
    check: bool = True
    level: float = 0.95
    any_time: bool = False

    @property
    def _uses_features(self) -> bool:
        return True  # the tests of the shuffle do; the curve needs the positions of clicks alone

    def _lists(self, log: ClickLog) -> ClickLog:
        chosen = shuffled_lists(log, self.ranker)
        return named_tops(log, chosen)[1]

    def _estimate(self, log: ClickLog) -> PositionBias:
        chosen, depth = shuffled_lists(log, self.ranker), log.depth
        log, shuffled = named_tops(log, chosen)
        mixed = _checked_top(shuffled, None if self.top is None else place_of(log, self.top))
        tests = shuffle_facts(log, chosen, mixed)
        if self.check:
            refuse("shuffled lists were not in random order", tests)
        top = mixed if self.top is not None else _with_clicks(shuffled, mixed)
        used = shuffled if top == shuffled.depth else shuffled.top(top)
        at_k, at_first = _clicks(used, top)
        _check_clicks(at_k, at_first)
        errors = _uncertainty(used, at_k, at_first)
        return from_log_ratios(
            np.log(at_k / at_first),
            errors,
            level=self.level,
            method="ShuffledTop",
            assumes=(POSITION_BASED, RANDOM_ORDER(top=top)),
            status=joined(*_evidence(used, at_k, mixed, depth), *tests, errors.rule),
            any_time=self.any_time,
        )


def named_tops(log: ClickLog, chosen: BoolArray) -> tuple[ClickLog, ClickLog]:
    """The log, and its chosen lists, without what these show below the top that their name says."""
    if log.ranker is not None:
        tops = [place_of(log, top_of(name) or 0) or log.depth for name in log.ranker_names]
        top = np.where(chosen, np.array(tops)[log.ranker], log.depth)
        keep = log.position <= np.repeat(top, ragged.lengths(log.indptr))
        if not keep.all():
            indptr = ragged.keep_rows(log.indptr, keep)
            log = log._with(indptr=indptr, **log._rows(np.flatnonzero(keep)))
    return log, log if chosen.all() else log.take(chosen)


def _checked_top(log: ClickLog, top: int | None) -> int:
    fixed = _first_fixed(log)
    if top is None:
        top = log.depth if fixed is None else fixed - 1
    elif not 1 <= top <= log.depth:
        raise DepthError(
            f"top must be one of the positions 1..{log.depth} of the shuffled lists. Got {top}."
        )
    if fixed is not None and fixed <= max(top, 1):
        fix = "Ask for fewer positions, ⟦top={fewer}⟧, or shuffle deeper."
        if fixed == 1:
            fix = "Say which lists were shuffled with ⟦ranker=...⟧, or use ⟦AllPairs⟧."
        told = "position {fixed} was not shuffled: each query shows the same document there in all "
        told += "its sessions. "
        raise IdentifiabilityError(phrase(told + fix, fixed=fixed, fewer=fixed - 1))
    return top


def _first_fixed(log: ClickLog) -> int | None:
    """The first position whose document never changes, though there was every chance to see it.

    Where each query was shown once, nothing speaks against the shuffle, and it is believed.
    """
    cells = position_counts(log.without_versions())
    query = cells.query.astype(np.int64)[cells.document_index]
    slot, slot_of_cell = np.unique(query * (log.depth + 1) + cells.position, return_inverse=True)
    sessions = np.bincount(slot_of_cell, weights=cells.impressions)
    documents = np.bincount(slot_of_cell)
    position = slot % (log.depth + 1) - 1
    repeats = np.bincount(position, weights=sessions - 1, minlength=log.depth)
    changes = np.bincount(position, weights=documents - 1, minlength=log.depth)
    fixed = np.flatnonzero((repeats >= ENOUGH_REPEATS) & (changes == 0))
    return int(fixed[0]) + 1 if len(fixed) else None


def _with_clicks(log: ClickLog, top: int) -> int:
    """The positions above the first whose ratio to position 1 has no click on one side."""
    used = log if top == log.depth else log.top(top)
    at_k, at_first = _clicks(used, top)
    lost = np.flatnonzero((at_k == 0) | (at_first == 0))
    # From 2 positions on there is a curve; with less, the error says what is missing.
    return int(lost[0]) if len(lost) and lost[0] >= 2 else top


def _check_clicks(at_k: FloatArray, at_first: FloatArray) -> None:
    bad = np.flatnonzero((at_k == 0) | (at_first == 0))
    if not len(bad):
        return
    k = int(bad[0]) + 1
    raise IdentifiabilityError(
        f"shuffled lists that show positions 1 and {k} have {at_first[k - 1]:.0f} clicks at 1 and "
        f"{at_k[k - 1]:.0f} at {k}; a ratio needs both. Collect more shuffled sessions"
        + (f", or ask for fewer positions: ⟦top={k - 1}⟧." if k > 2 else ".")
    )


def _uncertainty(log: ClickLog, at_k: FloatArray, at_first: FloatArray) -> Uncertainty:
    """What leaving a query out does to log(at_k / at_first), and the noise of sessions.

    A session adds u_k = clicks at k / all clicks at k - clicks at 1 / all clicks at 1, of mean 0,
    so the covariance from sessions is the sum of u u'.
    """
    unit = np.unique(log.query, return_inverse=True)[1]
    rows = (log.indptr, log.position, log.label, log.sessions, unit, at_k, at_first)
    n_queries = int(unit.max()) + 1
    allow_table("what each query adds at each position", n_queries, len(at_k), copies=6)
    shares, clicks, by_session = _scores(*rows, n_queries)
    left = 1 - (1 - STAYS) * shares
    change = (np.log(left[0]) - np.log(left[1])) / (1 - STAYS)
    lost, effective = _by_list(log, at_k, at_first), effective_by_column(clicks)
    by_query, effective = clustered_by_people(change.T @ change, effective, log, lost)
    parts = _click_parts(by_session, at_k, at_first)
    return larger_error(by_query, len(change), by_session, effective, parts)


def _by_list(
    log: ClickLog, at_k: FloatArray, at_first: FloatArray
) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
    """For each k the lists that show k and 1, what they add to log(at_k / at_first), and the share
    of all clicks in such lists."""
    clicks = ragged.sums_by_list(log.indptr, log.label) * log.sessions
    owner, start = ragged.list_of_row(log.indptr), log.indptr[:-1]
    shows_first = log.position[start[owner]] == 1
    for k in range(len(at_k)):
        rows = np.flatnonzero((log.position == k + 1) & shows_first)
        lists = owner[rows]
        share = log.label[rows] / at_k[k] - log.label[start[lists]] / at_first[k]
        mine = clicks[lists]
        yield lists, share * log.sessions[lists], mine / max(mine.sum(), 1e-300)


def _click_parts(by_session: FloatArray, at_k: FloatArray, at_first: FloatArray) -> FloatArray:
    """Of the clicks at k and at position 1, which count against the ratio; see `Uncertainty`."""
    both = 1 / at_k + 1 / at_first
    parts = np.diag(np.diag(by_session) / at_k / both)
    parts[0] = -np.diag(by_session) / at_first / both
    parts[0, 0] = 0
    return parts


def _evidence(log: ClickLog, at_k: FloatArray, mixed: int, depth: int) -> list[Fact]:
    facts = [SHUFFLED(sessions=log.n_sessions, clicks=float(at_k.sum()))]
    top = len(at_k)
    if top < mixed:
        facts.append(CUT_AT_NO_CLICK(position=top + 1, top=top))
    elif top < depth:
        left_out = ONE_LEFT_OUT if top + 1 == depth else LEFT_OUT
        facts.append(left_out(first=top + 1, last=depth))
    return [*facts, *few_clicks(at_k)]


def _clicks(log: ClickLog, depth: int) -> tuple[FloatArray, FloatArray]:
    """Clicks at each k, and at 1, over the lists that show both."""
    start, k = log.indptr[:-1][ragged.list_of_row(log.indptr)], log.position - 1
    both = log.row_count * (log.position[start] == 1)
    return sum_by(k, both * log.label, depth), sum_by(k, both * log.label[start], depth)


@nb.njit(cache=True)
def _scores(
    indptr: IntArray, position: IntArray, label: FloatArray, count: IntArray, unit: AnyArray,
    at_k: FloatArray, at_first: FloatArray, n_units: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """(2, units, K) shares of the clicks at k and at 1; (units, K) clicks; (K, K) session noise.

    Clicks are those anywhere in the lists that show k: what is expected of the clicks at k and at 1
    is a share of them, the same for all units.
    """
    depth = len(at_k)
    shares, clicks = np.zeros((2, n_units, depth)), np.zeros((n_units, depth))
    M, u = np.zeros((depth, depth)), np.zeros(depth)
    for i in range(len(count)):
        begin, end = indptr[i], indptr[i + 1]
        if begin == end or position[begin] != 1:
            continue
        q, sessions = unit[i], float(count[i])
        for row in range(begin, end):
            k = position[row] - 1
            shares[0, q, k] += sessions * label[row] / at_k[k]
            shares[1, q, k] += sessions * label[begin] / at_first[k]
            u[k] = label[row] / at_k[k] - label[begin] / at_first[k]
            clicks[q, k] += sessions * label[begin:end].sum()
        for a in range(begin, end):
            for b in range(begin, end):
                k, l = position[a] - 1, position[b] - 1  # noqa: E741  the formula's symbol
                M[k, l] += sessions * u[k] * u[l]
        u[:] = 0
    return shares, clicks, M
