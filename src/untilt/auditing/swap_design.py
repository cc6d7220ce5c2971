r"""The precision of a swap experiment, before it is made.

Swapping positions a < b shows the document usually shown at a (relevance gamma_a) at b, and the
other way round. With r(i@k) the click rate at position k of the document usually shown at i,

    log theta_b / theta_a = log [w_a r(a@b) + w_b r(b@b)] - log [w_a r(a@a) + w_b r(b@a)]

where w = n_usual n_swapped / (n_usual + n_swapped), the weights of `PivotSwap` and `AdjacentSwap`.
Every rate is a mean of independent clicks, so the variance of each log-ratio follows from its
derivatives by the rates. Where queries hardly repeat, a part of the sessions has nothing to be
compared with (`Traffic.repeated`); their weight is lost, and their noise with it.

**How probable it is that all intervals come out as narrow as wished.**
A plan knows the variance that an experiment leaves; the intervals come from an *estimate* of it,
and they are as wide as chance has it. Of each pair p of positions, with v_p its variance,

    v_p exp(-u_p),  u_p ~ N(0, v_p + 1 / clicks of the log)     from session noise: a variance of
        1 / n for n clicks, and neither n nor the click rate of the log comes out as expected
    times a Wishart matrix / df,  df = effective queries - 1    clustered by query

and the estimators take the larger, with Student's t for the second. Both are drawn for all pairs at
once, so positions that share a pair (a chain of neighbours) are wide together.

How few sessions an experiment must change to say how steep a curve is, design by design.

The one number asked for is the power b of `auditing.harvested`. What stands at rank j gets
m_jk = n_jk rho_j theta_k clicks at k, with n_jk the sessions that show it there, changed or not.
With x = log theta and x_j the mean of x by m,

    I_1 = sum_jk m_jk (x_k - x_j)^2 / changed sessions,    se(b) = 1 / sqrt(N I_1)

so N falls with the clicks of a session, and with the square of how far documents move. theta is the
curve harvested from the log, or a guess.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray
from untilt._core.portable import Portable
from untilt._core.random import generator
from untilt._core.statistics import normal_quantile
from untilt._core.words import number, whole
from untilt.bias.estimator import check_clicks
from untilt.data.clicklog import ClickLog
from untilt.data.counts import ClickRates, PositionCounts, position_counts
from untilt.errors import DepthError, OptionError
from untilt.views import Table

# What a plan is made from: a log of the traffic, or click rates by position.
Clicks = ClickLog | ClickRates | npt.ArrayLike


@dataclass(frozen=True, eq=False)
class Traffic:
    """Sessions as they are today, position by position.

    Parameters
    ----------
    click_rate : (K,) c_k, clicks per impression at k
    second_moment : (K,) mean of p^2 over what is shown at k, p the click probability of one
        (query, document) there; c_k^2 where nothing is known about how much they differ
    reach : (K,) share of the sessions whose list reaches k
    clicks_per_session : over all positions, also those below K
    query_share, queries : (different shares,) of the sessions, and how many queries have each of
        them; None where the queries of sessions are not known
    new_queries : share of the sessions whose query was not seen before and never will be again
    rate_variance : (K,) of the logarithm of each click rate, 1 / clicks of the log; 0 where rates
        were given
    by_document : whether documents are compared with themselves, so that queries must repeat
    """

    click_rate: FloatArray
    second_moment: FloatArray
    reach: FloatArray
    clicks_per_session: float
    query_share: FloatArray | None = None
    queries: IntArray | None = None
    new_queries: float = 0.0
    rate_variance: FloatArray | float = 0.0
    by_document: bool = True

    @property
    def depth(self) -> int:
        """The lowest position."""
        return len(self.click_rate)

    def without_documents(self) -> "Traffic":
        """The same, with all documents shown at a position taken as equally relevant.

        Where lists are compared by length alone, differences between queries are noise like any
        other: the variance of a click is then c (1 - c).
        """
        c = self.click_rate
        return replace(self, second_moment=c**2, by_document=False)

    def effective_queries(self, sessions: float, position: int) -> float:
        """Effective queries of so many sessions at a position; infinite where queries are unknown.

        A query has a share p of the sessions and a click rate of its own. With Poisson numbers of
        sessions, (sum w)^2 / sum w^2 is about 1 / (1 / sessions + sum p^2 (1 + cv^2)).
        """
        if self.query_share is None or self.queries is None:
            return np.inf
        k = position - 1
        uneven = self.second_moment[k] / self.click_rate[k] ** 2
        known = 1 - self.new_queries
        return float(1 / (1 / sessions + known * (self.query_share**2 @ self.queries) * uneven))

    def repeated(self, sessions: float) -> float:
        """Of so many sessions, the share whose query another one of them asked before.

        The first session of each query has nothing to be compared with: of n sessions of a query,
        a share s of them swapped, Mantel and Haenszel's weight is (n - 1) s (1 - s) on average.
        """
        if self.query_share is None or self.queries is None or not self.by_document:
            return 1.0
        expected = sessions * (1 - self.new_queries) * self.query_share
        distinct = float(-np.expm1(-expected) @ self.queries)
        # Not 0: plans divide by it, and then ask for more sessions than there are.
        return max(1e-12, 1 - self.new_queries - distinct / sessions)


def traffic_of(clicks: Clicks, depth: int | None) -> Traffic:
    """From a log, or from click rates by position."""
    if isinstance(clicks, ClickLog):
        return _from_log(clicks, depth)
    rates = _numbers(clicks)
    if rates.ndim != 1 or len(rates) < 2 or not np.all((rates > 0) & (rates < 1)):
        raise OptionError(
            "⟦clicks must be a ClickLog, or the click rates|--rates must be the click "
            "rates⟧ of positions 1, 2, ..., each between 0 and 1 and at least two of "
            f"them. Got {_shown(clicks)}."
        )
    _check_depth(depth, len(rates))
    total, rates = float(rates.sum()), rates[:depth]
    return Traffic(rates, rates**2, np.ones(len(rates)), total)


def _numbers(clicks: Clicks) -> FloatArray:
    try:
        return np.asarray(clicks.rate if isinstance(clicks, ClickRates) else clicks, np.float64)
    except (TypeError, ValueError):
        return np.empty(0)


def _from_log(log: ClickLog, depth: int | None) -> Traffic:
    check_clicks(log, "plan_swaps")
    log = log.without_versions()
    _check_depth(depth, log.depth)
    total = float(np.dot(log.label, log.row_count)) / log.n_sessions
    cells = position_counts(log.top(log.depth if depth is None else depth))
    shown, clicked = cells.by_position(cells.impressions), cells.by_position(cells.clicks)
    empty = np.flatnonzero(clicked == 0)
    if len(empty):
        k = int(empty[0]) + 1
        raise OptionError(
            f"there are no clicks at position {k} in this log, so no number of sessions can "
            f"be promised for it. Plan fewer positions: ⟦depth={k - 1}⟧."
        )
    asked, queries = np.unique(np.bincount(log.query, weights=log.sessions), return_counts=True)
    asked, queries = asked[asked > 0], queries[asked > 0]
    return Traffic(
        click_rate=clicked / shown,
        second_moment=_second_moment(cells),
        reach=_reach(log, cells.depth),
        clicks_per_session=total,
        query_share=asked / log.n_sessions,
        queries=queries,
        # Good and Turing: what was never seen is as frequent as what was seen once.
        new_queries=float(queries[asked == 1].sum() / log.n_sessions),
        rate_variance=1 / clicked,
    )


def _second_moment(cells: PositionCounts) -> FloatArray:
    """(K,) mean of p^2 over impressions, without the noise of click counts.

    c (c - 1) / (n (n - 1)) is unbiased for p^2 of a cell with n >= 2; it can hardly be below the
    square of the mean, and never is taken so.
    """
    n, c = cells.impressions, cells.clicks
    used = n >= 2
    square = np.where(used, c * (c - 1) / np.maximum(n - 1, 1), 0.0)  # n times the estimate
    weight = cells.by_position(np.where(used, n, 0.0))
    mean = cells.by_position(square) / np.maximum(weight, 1)
    rate = cells.by_position(c) / cells.by_position(n)
    return np.clip(mean, rate**2, rate)


def _reach(log: ClickLog, depth: int) -> FloatArray:
    """(K,) share of the sessions whose list reaches k."""
    filled = ragged.lengths(log.indptr) > 0
    lowest = np.zeros(log.n_lists, dtype=np.int64)
    lowest[filled] = log.position[log.indptr[1:][filled] - 1]
    sessions = np.bincount(np.minimum(lowest, depth), weights=log.sessions, minlength=depth + 1)
    return sessions[::-1].cumsum()[::-1][1:] / log.n_sessions


def _check_depth(depth: int | None, deepest: int) -> None:
    if depth is not None and not 2 <= depth <= deepest:
        raise DepthError(
            f"depth must be one of the positions 2..{deepest} that click rates are known for. "
            f"Got {depth} instead."
        )


def _shown(clicks: Clicks) -> str:
    if isinstance(clicks, Sequence | np.ndarray) and len(clicks) > 8:
        return f"{type(clicks).__name__} of {len(clicks)}"
    return repr(clicks)


# Click noise is taken as at least this share of the click rate: an estimate of how much documents
# differ, scaled up by a guess of the examination, must not promise certainty.
LEAST_NOISE = 0.1


@dataclass(frozen=True, eq=False)
class Design:
    """Pairs of positions that are swapped, and the way from position 1 to each position.

    Parameters
    ----------
    pairs : (upper, lower) of each swap
    serves : the position that each swap adds to the curve
    path : (K, pairs) log theta_k / theta_1 as a signed sum of the pairs' log theta_b / theta_a
    """

    pairs: tuple[tuple[int, int], ...]
    serves: tuple[int, ...]
    path: FloatArray


def pivot_design(pivot: int, depth: int) -> Design:
    """All positions against one."""
    others = [k for k in range(1, depth + 1) if k != pivot]
    path = np.zeros((depth, len(others)))
    for p, k in enumerate(others):
        path[k - 1, p] = 1 if k > pivot else -1
    path -= path[0]
    pairs = tuple((min(k, pivot), max(k, pivot)) for k in others)
    return Design(pairs, tuple(pivot if k == 1 else k for k in others), path)


def adjacent_design(depth: int) -> Design:
    """Each position against the next."""
    path = np.tril(np.ones((depth, depth - 1)), -1)
    pairs = tuple((k, k + 1) for k in range(1, depth))
    return Design(pairs, tuple(range(2, depth + 1)), path)


def moved_rate(traffic: Traffic, theta: FloatArray) -> FloatArray:
    """(K, K) entry [i, k]: click rate at k of what is usually shown at i, c_i theta_k / theta_i."""
    return traffic.click_rate[:, None] * theta / theta[:, None]


def click_noise(traffic: Traffic, theta: FloatArray) -> FloatArray:
    """(K, K) variance of one click at k on what is usually shown at i, given its own relevance."""
    rate = moved_rate(traffic, theta)
    noise = rate - traffic.second_moment[:, None] * (theta / theta[:, None]) ** 2
    return np.maximum(noise, LEAST_NOISE * rate)


def allocation(design: Design, traffic: Traffic, theta: FloatArray) -> FloatArray:
    """(pairs,) shares of the swapped sessions that need the fewest of them in all.

    With u_p the variance that one session of pair p leaves, the sum of u_p / n_p over each path
    must not exceed a limit. A pair of its own path needs n_p in proportion to u_p; along one path
    n_p in proportion to sqrt(u_p); where one pair lies on all paths (a pivot that is not position
    1), it is weighed against the sum of all others.
    """
    u = np.array([_swap_variance(pair, traffic, theta) for pair in design.pairs])
    on_paths = np.count_nonzero(design.path, axis=0)
    if np.all(on_paths == 1):
        need = u
    elif len(np.unique(on_paths)) == len(on_paths):
        need = np.sqrt(u)
    else:
        shared = on_paths > 1
        rest = u[~shared].sum()
        need = np.where(shared, np.sqrt(u * rest), u)
    reach = traffic.reach[[lower - 1 for _, lower in design.pairs]]
    return (need / reach) / (need / reach).sum()


N_DRAWS = 2000  # of whole experiments: a probability of 0.9 is known to within 0.7 points


@dataclass(frozen=True, eq=False)
class Experiment:
    """Swaps of a design in traffic, under a curve.

    A session draws pair p with probability share * drawn[p], and shows it where its list reaches
    that far.
    """

    design: Design
    traffic: Traffic
    theta: FloatArray
    drawn: FloatArray
    share: float

    def log_variance(self, sessions: float) -> FloatArray:
        """(K,) variance of log theta_k / theta_1 after so many sessions."""
        untouched, swapped = self.variance_parts(sessions)
        return untouched + self.design.path**2 @ swapped

    def variance_parts(self, sessions: float) -> tuple[FloatArray, FloatArray]:
        """(K,) variance that untouched sessions leave, (pairs,) swapped ones of each pair."""
        design, traffic, theta = self.design, self.traffic, self.theta
        noise, rate = click_noise(traffic, theta), moved_rate(traffic, theta)
        reach = traffic.reach * sessions
        untouched = reach[:, None] - _touched(design, reach, self.share * self.drawn)
        usual, swapped = np.zeros((len(design.pairs), traffic.depth)), np.zeros(len(design.pairs))
        for p, (a, b) in enumerate(design.pairs):
            i, j = a - 1, b - 1
            s, n = self.share * self.drawn[p] * reach[j], untouched[j, [i, j]]
            w = s * n / (s + n)
            # Of the weight a share e is left, and so of the squares that noise is multiplied by.
            e = np.array([traffic.repeated(s + n_usual) for n_usual in n])
            above, below = (e * w) @ rate[[i, j], i], (e * w) @ rate[[i, j], j]
            usual[p, i], usual[p, j] = np.sqrt(e) * w * [-1 / above, 1 / below]
            swapped[p] = e * w**2 @ [noise[i, j] / below**2, noise[j, i] / above**2] / s
        # Untouched positions are part of several pairs, so their parts are added before squaring.
        return (design.path @ usual) ** 2 @ (np.diag(noise) / np.diag(untouched)), swapped

    def probability_within(self, width: float, sessions: float, *, level: float) -> float:
        """Of all intervals being no wider than this after so many sessions.

        Drawn with the same random numbers whatever the size of the experiment.
        """
        traffic, path = self.traffic, self.design.path
        untouched, swapped = self.variance_parts(sessions)
        lower = np.array([pair[1] for pair in self.design.pairs])
        rate = np.broadcast_to(traffic.rate_variance, traffic.depth)[lower - 1]
        degrees = np.maximum(self._effective_queries(sessions) - 1, 1.0)
        rng = generator(0)
        u = rng.normal(size=(N_DRAWS, len(lower)))
        by_session = swapped * np.exp(-u * np.sqrt(swapped + rate))
        sessions_error = np.sqrt(untouched + by_session @ path.T**2)
        # (draws, K, pairs): the paths of positions, each pair with its error.
        steps = path[None] * np.sqrt(by_session)[:, None, :]
        spread = np.sum((steps @ _wishart_roots(rng, degrees)) ** 2, axis=2)
        clustered = np.sqrt(untouched + spread)
        # The degrees of freedom of a position are those of its worst pair, as nearly as matters.
        on_path = np.where(path != 0, degrees, np.inf).min(axis=1)
        known, normal = np.isfinite(on_path), normal_quantile(level)
        t = special.stdtrit(np.where(known, on_path, 1.0), 0.5 + level / 2)
        by_query, by_sessions = np.where(known, t, normal) * clustered, normal * sessions_error
        half = np.where(clustered > sessions_error, by_query, by_sessions)
        return float(np.mean(np.all(2 * np.sinh(half) <= width, axis=1)))

    def _effective_queries(self, sessions: float) -> FloatArray:
        traffic, drawn = self.traffic, (self.share * self.drawn).tolist()
        pairs = zip(self.design.pairs, drawn, strict=True)
        shown = ((sessions * p * float(traffic.reach[b - 1]), b) for (_, b), p in pairs)
        return np.array([traffic.effective_queries(n, lower) for n, lower in shown])


def _touched(design: Design, reach: FloatArray, probability: FloatArray) -> FloatArray:
    """(K, K) entry [j, i]: sessions whose list reaches j and in which i takes part in a swap."""
    touched = np.zeros((len(reach), len(reach)))
    for (a, b), chance in zip(design.pairs, probability, strict=True):
        touched[:, [a - 1, b - 1]] += chance * np.minimum(reach, reach[b - 1])[:, None]
    return touched


def _swap_variance(pair: tuple[int, int], traffic: Traffic, theta: FloatArray) -> float:
    """What one swapped session leaves, where untouched ones abound."""
    i, j = pair[0] - 1, pair[1] - 1
    noise, rate = click_noise(traffic, theta), moved_rate(traffic, theta)
    above, below = rate[i, i] + rate[j, i], rate[i, j] + rate[j, j]
    return float(noise[i, j] / below**2 + noise[j, i] / above**2)


def _wishart_roots(rng: np.random.Generator, degrees: FloatArray) -> FloatArray:
    """(draws, pairs, pairs) A with A A' a Wishart matrix over its degrees of freedom (Bartlett's).

    The queries are the same for all pairs, so along a chain their parts are added before they are
    squared. By inverse of uniform numbers, the same whatever the degrees: the probability of a plan
    then rises smoothly with its sessions. The unit matrix where degrees are infinite.
    """
    m = len(degrees)
    below = np.tril(rng.normal(size=(N_DRAWS, m, m)), -1) / np.sqrt(degrees)[:, None]
    uniform = rng.random((N_DRAWS, m))
    finite = np.isfinite(degrees)
    df = np.maximum(np.where(finite, degrees, 1.0) - np.arange(m), 1.0)
    chi = 2 * special.gammaincinv(df / 2, uniform) / np.where(finite, degrees, 1.0)
    diagonal = np.where(finite, np.sqrt(chi), 1.0)
    return np.asarray(below + diagonal[:, :, None] * np.eye(m))


def check_assurance(assurance: float | None) -> None:
    """Raise unless it is a probability to plan for, or none."""
    if assurance is not None and not 0 < assurance < 1:
        raise OptionError(
            "assurance is the probability that all intervals are as narrow as wished: it must lie "
            f"between 0 and 1. Got {assurance} instead; 0.9 is usual."
        )


EXPLORED = 0.02  # share of the sessions that an experiment changes
DEEPEST = 10  # position that a small experiment reaches
# Standard errors of b. To test: 8 of 10 experiments find a curve that is 30% too steep, for which
# b = 1 / 1.3 is 2.8 of them below 1; 300 sessions with a click each. To decide: from 1,000 on the
# curve of the experiment has no need of another's shape.
TO_TEST, TO_DECIDE = 0.082, 0.045


@dataclass(frozen=True)
class PlannedDesign(Portable):
    """One way to change lists, in 2% of the sessions.

    Parameters
    ----------
    name, explore : what is done, and the option of `untilt serve` that does it
    information : I_1, about the power b
    to_test, to_decide : changed sessions that test a harvested curve, and that decide without one
    test_days, decide_days : how long that takes
    clicks_lost : by the sessions of the test
    """

    name: str
    explore: str
    information: float
    to_test: int
    to_decide: int
    test_days: float
    decide_days: float
    clicks_lost: float


def designs(
    traffic: Traffic, theta: FloatArray, sessions_per_day: float
) -> tuple[PlannedDesign, ...]:
    """The designs of a small experiment down to the end of a curve, fewest sessions first.

    Of each: rho of its units, and how many sessions show them where, of all that could be drawn for
    a swap; of the changed ones where all are shuffled, so that chance makes one unit of them.
    """
    depth = min(DEEPEST, traffic.depth, len(theta))
    reach, theta = traffic.reach[:depth], theta[:depth]
    rho, share = np.minimum(traffic.click_rate[:depth] / theta, 1.0), EXPLORED
    ending, first = "" if depth == DEEPEST else f":{depth}", f"of the first {depth}"
    pairs = {
        (f"swap position 1 with another {first}", f"pivot:{share}{ending}"):
            [(1, k) for k in range(2, depth + 1)],
        ("swap positions 1 and 2", f"swaps:1-2={share}"): [(1, 2)],
        (f"swap neighbours {first}", f"swap-adjacent:{share}{ending}"):
            [(k, k + 1) for k in range(1, depth)],
    }  # fmt: skip
    kinds = [(*told, rho, *_swapped(swaps, reach), 1.0) for told, swaps in pairs.items()]
    mean, shuffle = np.array([reach @ rho / reach.sum()]), f"shuffle-top-{depth}:{share}"
    kinds.append((f"shuffle the first {depth}", shuffle, mean, share * reach[None], share, share))
    found = []
    for name, explore, of_unit, shown, changed, part in kinds:
        m, x = shown * of_unit[:, None] * theta, np.log(theta)
        information = float(np.sum(m * (x - (m @ x / m.sum(axis=1))[:, None]) ** 2)) / changed
        if not information > 0:  # a curve that does not fall: there is nothing to tell
            continue
        test, decide = (math.ceil(1 / (information * e**2)) for e in (TO_TEST, TO_DECIDE))
        lost = max(0.0, part * float(reach * rho @ theta) - float(m.sum())) / changed
        days = 1 / (changed * sessions_per_day)
        found.append(PlannedDesign(
            name, explore, information, test, decide, test * days, decide * days, test * lost
        ))  # fmt: skip
    return tuple(sorted(found, key=lambda each: each.to_test))


def _swapped(pairs: list[tuple[int, int]], reach: FloatArray) -> tuple[FloatArray, float]:
    """(K, K) sessions that show rank j at k, and the share of all that is swapped."""
    shown, moved = np.diag(reach), [EXPLORED / len(pairs) * float(reach[b - 1]) for _, b in pairs]
    for (a, b), share in zip(pairs, moved, strict=True):
        shown[[a - 1, b - 1], [a - 1, b - 1]] -= share
        shown[[a - 1, b - 1], [b - 1, a - 1]] += share
    return shown, sum(moved)


def table_of(planned: tuple[PlannedDesign, ...]) -> Table:
    """The designs side by side."""
    rows = tuple(
        (d.name, whole(d.to_test), whole(d.to_decide), number(d.clicks_lost, 1), d.explore)
        for d in planned
    )
    header = ("experiment", "sessions to test", "to decide", "clicks lost to test", "--explore")
    caption = "Changed sessions that test a curve of documents that moved, and that decide"
    return Table(header, rows, caption, text_columns=(0, 4))
