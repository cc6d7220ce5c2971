"""Were lists that are called swapped drawn at random, and are they the usual list but for the swap?

Which sessions are swapped must depend on nothing. The *arms* of the experiment are the usual list
and one per pair of positions; a list that does not reach a position cannot be swapped there, so
lists of different lengths are kept apart, and so are experiments with shares of their own
(`experiments_of`). Three kinds of tests:

- arms: whether the arms' shares are the same for all queries, and for all original lists (which
  document would have gone up). Chi-square over a table of sessions with the mean and variance that
  it has if arms are dealt out at random, which holds for queries of two sessions too.
- lists: whether a swapped list, swapped back, is one that the query's other sessions show, as often
  as these agree among themselves.
- features: whether the features of the two documents, one minus the other, are the same in the
  swapped lists as in all; the largest difference after Bonferroni's correction.

The share of the sessions that was meant to be swapped is not in the log, so that it is not tested.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy import special

from untilt._core import ragged
from untilt._core.arrays import AnyArray, BoolArray, FloatArray, IntArray, sum_by
from untilt._core.grouping import group_equal_lists
from untilt.bias.experiments.assignment import experiments_of
from untilt.bias.experiments.shuffle_tests import ALARM, Tested, as_facts, usable_features
from untilt.data.clicklog import ClickLog
from untilt.facts import Fact

FEWEST_IN_ARM = 10  # sessions of a length; smaller arms are left out
FEWEST_FOR_MEAN = 50  # sessions of an arm, before the mean of a feature is taken for normal


@dataclass(frozen=True, eq=False)
class _Experiment:
    """The lists of the experiment, cut below the lowest swap.

    swapped : (lists, 2) positions, 0 for none
    rank : (rows,) the position before the swap
    arm : (lists,) 0 for the usual list, then one number per pair
    experiment : (lists,) whose shares are the same in all its sessions
    stratum : (lists,) lists of one experiment that reach equally far when uncut
    original : (lists,) a number for the list before the swap, of its query and experiment
    shown : (lists,) a number for the list as it was shown
    """

    log: ClickLog
    swapped: IntArray
    rank: IntArray
    arm: IntArray
    experiment: IntArray
    stratum: IntArray
    original: IntArray
    shown: IntArray


def swap_facts(log: ClickLog, part: BoolArray, swapped: IntArray) -> tuple[Fact, ...]:
    """One fact of severity "serious" for each test that failed, and a note with the others."""
    made = _experiment(log, part, swapped)
    found = [
        _arms(made, made.log.query, "query"),
        _arms(made, made.original, "list"),
        _lists(made),
        _features(made),
    ]
    tested = [each for each in found if each is not None]
    return as_facts(tested, passed="bias.swaps-passed", untested="bias.swaps-untested")


def _experiment(log: ClickLog, part: BoolArray, swapped: IntArray) -> _Experiment:
    filled = ragged.lengths(log.indptr) > 0
    lists, pairs = log.take(part & filled), swapped[part & filled]
    length = lists.position[lists.indptr[1:] - 1]
    depth = int(pairs.max())
    reach = lists.position[lists.indptr[:-1]] <= depth  # lists that have a row above the cut
    lists, pairs, length = lists.take(reach).top(depth), pairs[reach], length[reach]
    a, b = np.repeat(pairs, ragged.lengths(lists.indptr), axis=0).T
    rank = np.where(lists.position == a, b, np.where(lists.position == b, a, lists.position))
    order = ragged.order_within_lists(lists.indptr, rank)
    keys = [lists.document[order], rank[order]]
    experiment = experiments_of(lists)
    original = group_equal_lists(lists.indptr, keys, [lists.query, experiment]).group_of_list
    arm = np.unique(pairs[:, 0] * (depth + 1) + pairs[:, 1], return_inverse=True)[1]
    arm = np.where(pairs[:, 1] > 0, arm + 1, 0)
    shown = lists.slates().group_of_list
    stratum = np.unique(experiment * (int(length.max()) + 1) + length, return_inverse=True)[1]
    return _Experiment(lists, pairs, rank, arm, experiment, stratum, original, shown)


def _arms(made: _Experiment, unit: AnyArray, units: str) -> Tested | None:
    """Chi-square of arms by units within a stratum, added up over the strata."""
    statistic, mean, variance = 0.0, 0.0, 0.0
    for stratum in range(int(made.stratum.max()) + 1):
        at = made.stratum == stratum
        parts = _table_moments(unit[at], made.arm[at], made.log.sessions[at])
        statistic, mean, variance = statistic + parts[0], mean + parts[1], variance + parts[2]
    name = f"arms by {units}"
    if not variance > 0:
        return None
    p_value = float(special.gammaincc(mean**2 / variance, statistic * mean / variance))
    if p_value >= ALARM:
        return None, name, p_value
    fields = {"statistic": statistic, "expected": mean, "p_value": p_value}
    return Fact(f"bias.swap-arms-by-{units}", **fields), name, p_value


def _table_moments(unit: AnyArray, arm: IntArray, sessions: IntArray) -> tuple[float, float, float]:
    """Chi-square of a table of units by arms, its mean and its variance given both margins.

    Mean N (r - 1) (c - 1) / (N - 1) and Haldane's variance, exact if the arms are dealt out to the
    sessions at random. A unit with one session says nothing and is left out.
    """
    enough = sum_by(arm, sessions)[arm] >= FEWEST_IN_ARM
    unit, arm, sessions = unit[enough], arm[enough], sessions[enough]
    if len(unit) == 0:
        return 0.0, 0.0, 0.0
    unit = np.unique(unit, return_inverse=True)[1]
    several = sum_by(unit, sessions)[unit] >= 2
    unit = np.unique(unit[several], return_inverse=True)[1]
    arm = np.unique(arm[several], return_inverse=True)[1]
    sessions = sessions[several]
    if sessions.sum() < FEWEST_IN_ARM or unit.max() == 0 or arm.max() == 0:
        return 0.0, 0.0, 0.0
    R, C = sum_by(unit, sessions), sum_by(arm, sessions)
    r, c, N = len(R), len(C), float(sessions.sum())
    cell, cell_of_list = np.unique(unit * c + arm, return_inverse=True)
    seen = sum_by(cell_of_list, sessions)
    # sum (O - E)^2 / E = sum O^2 / E - N with E = R C / N; empty cells add nothing to the sum.
    statistic = max(0.0, float(np.sum(seen**2 / (R[cell // c] * C[cell % c])) * N - N))
    v = [(n - 1) * (N - n) / (N - 1) for n in (r, c)]
    w = [float(N * np.sum(1 / M) - n * n) / (N - 2) for n, M in ((r, R), (c, C))]
    variance = 2 * N / (N - 3) * (v[0] - w[0]) * (v[1] - w[1]) + N**2 / (N - 1) * w[0] * w[1]
    return statistic, N / (N - 1) * (r - 1) * (c - 1), variance


def _lists(made: _Experiment) -> Tested | None:
    """Swapped lists, swapped back, among the usual ones of their query and experiment."""
    log, is_base = made.log, made.arm == 0
    of_base = sum_by(made.original, log.sessions * is_base)
    unchanged = sum_by(made.shown, log.sessions * is_base)[made.shown] > 0
    several = int(made.experiment.max()) + 1
    query = np.unique(log.query.astype(np.int64) * several + made.experiment, return_inverse=True)[
        1
    ]
    n_queries = int(query.max()) + 1
    base = sum_by(query, log.sessions * is_base, n_queries)
    agreeing = log.sessions * is_base * (of_base[made.original] >= 2)
    # At least two usual sessions, to know how often they agree; rounded to the safe side.
    share = (sum_by(query, agreeing, n_queries) + 1) / (base + 2)
    both = _both_shown(made)
    usable = ~is_base & both & (base[query] >= 2)
    if not usable.any():
        return None
    n = sum_by(query[usable], log.sessions[usable], n_queries)
    total = float(n.sum())
    matched = float(log.sessions[usable & (of_base[made.original] > 0)].sum())
    expected = float(np.dot(n, share))
    noise = 1 + np.divide(n, base, out=np.zeros_like(n), where=base > 0)
    z = (expected - matched) / sqrt(float(np.sum(n * share * (1 - share) * noise)))
    p_value = float(special.ndtr(-z))
    if p_value >= ALARM:
        return None, "lists", p_value
    fact = Fact(
        "bias.swap-lists",
        matched=matched / total,
        expected=expected / total,
        unchanged=float(log.sessions[usable & unchanged].sum()) / total,
        z=z,
        p_value=p_value,
    )
    return fact, "lists", p_value


def _both_shown(made: _Experiment) -> BoolArray:
    """(lists,) whether the list shows both positions of its swap."""
    moved = made.rank != made.log.position
    found: BoolArray = ragged.sums_by_list(made.log.indptr, moved) == 2
    return found


def _features(made: _Experiment) -> Tested | None:
    """Lower minus upper document of a swap, by the original list: in its arm against all lists."""
    log = made.log
    if log.features is None:
        return None
    usable_columns = np.flatnonzero(usable_features(log))
    z, correlation, where = [], [], []
    for arm in range(1, int(made.arm.max()) + 1):
        pair = made.swapped[made.arm == arm]
        if len(pair) == 0:
            continue
        upper, lower = _documents_at(made, *pair[0].tolist())
        usable = (upper >= 0) & (lower >= 0)
        if log.sessions[usable & (made.arm == arm)].sum() < FEWEST_FOR_MEAN:
            continue
        for j in usable_columns.tolist():
            x = log.features[:, j]
            D = x[lower[usable]].astype(np.float64) - x[upper[usable]]
            found = _difference(
                D, made.arm[usable] == arm, made.stratum[usable], log.sessions[usable]
            )
            if found is not None:
                z.append(found[0])
                correlation.append(found[1])
                where.append((log.feature_names[j], *pair[0].tolist()))
    if not z:
        return None
    best = int(np.argmax(np.abs(z)))
    p_value = min(1.0, len(z) * float(2 * special.ndtr(-abs(z[best]))))
    if p_value >= ALARM:
        return None, "features", p_value
    feature, first, second = where[best]
    fact = Fact(
        "bias.swap-feature", feature=feature, upper=first, lower=second,
        correlation=correlation[best], z=z[best], p_value=p_value,
    )  # fmt: skip
    return fact, "features", p_value


def _documents_at(made: _Experiment, a: int, b: int) -> tuple[IntArray, IntArray]:
    """(lists,) the documents that stood at a and b before any swap, -1 where there was none."""
    log, owner = made.log, ragged.list_of_row(made.log.indptr)
    found = []
    for position in (a, b):
        at = np.full(log.n_lists, -1, dtype=np.int64)
        rows = made.rank == position
        at[owner[rows]] = log.document[rows]
        found.append(at)
    return found[0], found[1]


def _difference(
    D: FloatArray, in_arm: BoolArray, stratum: IntArray, sessions: IntArray
) -> tuple[float, float] | None:
    """(z, correlation) of D with being in the arm, within lists of a stratum."""
    known = np.isfinite(D)
    D, in_arm, n = D[known], in_arm[known], sessions[known]
    if len(D) == 0:
        return None
    stratum = np.unique(stratum[known], return_inverse=True)[1]
    N, n_arm = sum_by(stratum, n), sum_by(stratum, n * in_arm)
    centred = D - (sum_by(stratum, n * D) / N)[stratum]
    S = sum_by(stratum, n * centred**2)
    T = float(np.sum(n * in_arm * centred))
    spread = n_arm * (N - n_arm) / np.maximum(N, 1)
    variance = float(np.sum(spread * S / np.maximum(N - 1, 1)))
    if not variance > 1e-12 * float(np.sum(n * D**2)) / max(1.0, float(N.sum())):
        return None
    return T / sqrt(variance), T / sqrt(float(np.sum(spread)) * float(np.sum(S)))
