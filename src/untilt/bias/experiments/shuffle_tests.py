"""Were lists that are called shuffled shown in random order? Tests with exact moments.

In random order each session is a fresh draw of one of the n! orders of its documents over its
slots. Sessions are compared within a *frame*: same query, same documents, same slots (so lists with
gaps are compared with lists that have the same gaps). Four tests look for different failures:

- positions: two sessions of a frame have F documents at the same position. In random order
  E[F] = 1 and Var[F] = 1 whatever n is, and the F of different pairs of sessions are uncorrelated,
  so the sum over all pairs has a known mean, variance and third moment, however few sessions a
  frame has. A document that is favoured anywhere makes F larger.
- orders: the same for pairs of sessions that show exactly the same order, 1 / n! of them. Finds a
  handful of fixed orders. Lists of 5 documents or more leave such pairs out of the first test: a
  page that is loaded again shows its order again, which is no fault of the shuffle.
- other sessions: positions against the mean position of the same document in all other sessions
  of the log, a rank correlation with an exact null variance. Works with one session per query.
- features: the same against each feature, the largest of them after Bonferroni's correction.

Where (nearly) every shuffled session has a click, those without were left out of the log, and that
favours orders with relevant documents at the top: an honest shuffle no longer looks quite random,
although clicks by position still fall by examination alone. Then clicked documents are left out
and only large departures count (GROSS; the selection alone makes correlations of up to 0.1).

A test that fails has p < ALARM; the tests together raise a false alarm in well under 1 of 100
honest experiments (tests/bias/test_shuffle_tests.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial, sqrt

import numba as nb
import numpy as np
from scipy import special

from untilt._core import ragged
from untilt._core.arrays import AnyArray, BoolArray, FeatureArray, FloatArray, IntArray, sum_by
from untilt._core.grouping import group_equal_lists
from untilt.data.clicklog import ClickLog
from untilt.facts import Fact

# What a test says: a fact where it failed, its name, and the p-value.
Tested = tuple[Fact | None, str, float]
ALARM = 0.001  # the p-value below which a test fails
SMALL = 5  # lists of fewer documents often show the same order again by chance
# Pairs of sessions with the same order, beyond chance: fewer are pages that were loaded again.
RELOADS = 0.02
FEW_WITHOUT_CLICK = 0.1  # share of the sessions; with fewer, sessions were chosen by their clicks


@dataclass(frozen=True)
class Limits:
    """How large a departure must be, besides its p-value, before it counts.

    positions : documents at the same position, above the 1 of random order
    orders : share of the pairs of sessions with the same order, above chance
    correlation : of positions with anything
    """

    positions: float = 0.0
    orders: float = RELOADS
    correlation: float = 0.0


FINE, GROSS = Limits(), Limits(positions=0.1, orders=0.1, correlation=0.1)


@dataclass(frozen=True, eq=False)
class _Frames:
    """Sessions that showed the same documents of a query in the same slots.

    documents, sessions : (frames,) n and m
    same_position : (frames,) sum over pairs of sessions of the documents at the same position
    same_order : (frames,) pairs of sessions with the same order
    orders : (frames,) different orders shown
    """

    documents: IntArray
    sessions: FloatArray
    same_position: FloatArray
    same_order: FloatArray
    orders: IntArray


def shuffle_facts(log: ClickLog, shuffled: BoolArray, top: int) -> tuple[Fact, ...]:
    """What the tests say about the first `top` positions of the shuffled lists.

    One fact of severity "serious" for each test that failed, a "warning" for a few repeated orders;
    and a note with the p-values of those that passed, or that nothing could be tested.
    """
    lists = log.take(shuffled)
    clicked = ragged.sums_by_list(lists.indptr, lists.label > 0) > 0
    selected = bool(lists.sessions[~clicked].sum() < FEW_WITHOUT_CLICK * lists.n_sessions)
    limits = GROSS if selected else FINE
    lists = lists.top(top) if top < lists.depth else lists
    unclicked = _without_clicked(lists) if selected else lists
    # Documents are followed through sessions whatever their version; features are those of a row.
    documents = unclicked.without_versions()
    frames = _frames(lists.without_versions())
    others = None if shuffled.all() else log.take(~shuffled).without_versions()
    found = [
        _positions(_frames(documents) if selected else frames, limits),
        _orders(frames, limits),
        None if others is None else _other_sessions(documents, others, limits),
        None if log.features is None else _features(unclicked, usable_features(log), limits),
    ]
    tested = [each for each in found if each is not None]
    facts = as_facts(tested, passed="bias.shuffle-passed", untested="bias.shuffle-untested")
    return (*facts, Fact("bias.shuffle-clicked-only")) if selected and tested else facts


def as_facts(tested: Sequence[Tested], *, passed: str, untested: str) -> tuple[Fact, ...]:
    """The facts of tests that failed, and one fact for all that did not."""
    facts = [fact for fact, _, _ in tested if fact is not None]
    p_values = {name: p_value for fact, name, p_value in tested if fact is None}
    if p_values:
        facts.append(Fact(passed, p_values=p_values))
    return tuple(facts or [Fact(untested)])


def _without_clicked(log: ClickLog) -> ClickLog:
    """The lists without the rows that were clicked; their slots go with them."""
    keep = log.label == 0
    rows = np.flatnonzero(keep)
    return log._with(indptr=ragged.keep_rows(log.indptr, keep), **log._rows(rows))


def _frames(log: ClickLog) -> _Frames:
    order = ragged.order_within_lists(log.indptr, log.document)
    documents = log.document[order]
    groups = group_equal_lists(log.indptr, [documents, log.position], [log.query])
    n = ragged.lengths(log.indptr)
    # A document that stands twice has no position of its own; lists with one are left out.
    owner = ragged.list_of_row(log.indptr)
    again = (owner[1:] == owner[:-1]) & (documents[1:] == documents[:-1])
    usable = n >= 2
    usable[owner[1:][again]] = False
    frame = groups.group_of_list
    sessions = sum_by(frame, log.sessions, groups.n_groups)
    slate = log.slates()  # a refinement of the frames
    shown = sum_by(slate.group_of_list, log.sessions, slate.n_groups)
    frame_of_slate = frame[slate.first]
    chosen = usable[groups.first] & (sessions >= 2)
    return _Frames(
        documents=n[groups.first][chosen],
        sessions=sessions[chosen],
        same_position=_same_position(log, order, frame, groups.first)[chosen],
        same_order=sum_by(frame_of_slate, shown * (shown - 1) / 2, groups.n_groups)[chosen],
        orders=np.bincount(frame_of_slate, minlength=groups.n_groups)[chosen],
    )


def _same_position(log: ClickLog, order: IntArray, frame: IntArray, first: IntArray) -> FloatArray:
    """Sum of O (O - 1) / 2 over the cells (document, position) of each frame, O its sessions."""
    n = ragged.lengths(log.indptr)
    start = ragged.indptr_of(n[first])[:-1]
    # `order` sorts each list by document: the j-th document of a list is the j-th of its frame.
    unit = start[frame[ragged.list_of_row(log.indptr)]] + ragged.index_in_list(log.indptr)
    code = unit * (log.depth + 1) + log.position[order]
    cell, cell_of_row = np.unique(code, return_inverse=True)
    shown = sum_by(cell_of_row, log.row_count)
    frame_of_unit = np.repeat(np.arange(len(first)), n[first])
    pairs = shown * (shown - 1) / 2
    return sum_by(frame_of_unit[cell // (log.depth + 1)], pairs, len(first))


@dataclass
class _Sum:
    """A sum of independent terms of mean 0: its value, variance and third moment."""

    value: float = 0.0
    variance: float = 0.0
    third: float = 0.0

    @property
    def statistic(self) -> float:
        """In standard deviations."""
        return self.value / sqrt(self.variance)

    @property
    def p_value(self) -> float:
        """Of so large a sum: a gamma distribution with the same three moments."""
        skew = self.third / self.variance**1.5
        return upper_tail(self.statistic, skew)


def upper_tail(z: float, skew: float) -> float:
    """P(Z >= z) of a standardised gamma distribution (Pearson's type III) with this skewness."""
    if skew < 1e-4:
        return float(special.ndtr(-z))
    shape = 4 / skew**2
    return float(special.gammaincc(shape, max(shape + z * sqrt(shape), 0.0)))


def _pair_moments(n: int) -> tuple[float, float, float]:
    """Variance, third moment and triangle E[h(s,t) h(t,u) h(u,s)] of h(s, t).

    h is F - 1 for lists of few documents. For others pairs with the same order, p = 1 / n! of them,
    count as average: h = (F - 1) [orders differ] + a with a = (n - 1) p. As a function of the
    permutation between s and t it has the eigenvalue 1 / (n - 1) - a on the (n - 1)^2 dimensions
    of the standard representation, and -a on all others but the constant: squares and cubes of
    these, added up, are variance and triangle.
    """
    third = 1.0 if n > 2 else 0.0  # E[(F - 1)^3]
    if n < SMALL:
        return 1.0, third, 1 / (n - 1)
    p = _chance(n)
    a, standard = (n - 1) * p, float((n - 1) ** 2)
    others = 1 - (1 + standard) * p  # their number, over n!
    variance = standard * (1 / (n - 1) - a) ** 2 + others * (n - 1) * a
    triangle = standard * (1 / (n - 1) - a) ** 3 - others * (n - 1) * a**2
    return variance, third + 3 * a + a**3 - p * ((n - 1 + a) ** 3 - a**3), triangle


def _chance(n: int) -> float:
    """1 / n!, the probability of an order."""
    return 1 / factorial(n) if n <= 170 else 0.0


def _positions(frames: _Frames, limits: Limits) -> Tested | None:
    total, all_pairs = _Sum(), 0.0
    for n in np.unique(frames.documents).tolist():
        at = frames.documents == n
        m, same = frames.sessions[at], frames.same_order[at]
        pairs = m * (m - 1) / 2
        value = frames.same_position[at] - pairs
        if n >= SMALL:
            value = value + (n - 1) * (_chance(n) * pairs - same)
        variance, third, triangle = _pair_moments(n)
        total.value += float(value.sum())
        total.variance += variance * float(pairs.sum())
        total.third += third * float(pairs.sum()) + triangle * float(np.sum(m * (m - 1) * (m - 2)))
        all_pairs += float(pairs.sum())
    if not total.variance:
        return None
    surplus = total.value / all_pairs
    if total.p_value >= ALARM or surplus < limits.positions:
        return None, "positions", total.p_value
    fact = Fact(
        "bias.shuffle-positions",
        mean=1 + surplus,
        z=total.statistic,
        p_value=total.p_value,
    )
    return fact, "positions", total.p_value


def _orders(frames: _Frames, limits: Limits) -> Tested | None:
    total, all_pairs, expected = _Sum(), 0.0, 0.0
    for n in np.unique(frames.documents).tolist():
        at = frames.documents == n
        m = frames.sessions[at]
        pairs = m * (m - 1) / 2
        p = _chance(n)
        total.value += float(np.sum(frames.same_order[at] - p * pairs))
        total.variance += p * (1 - p) * float(pairs.sum())
        total.third += p * (1 - p) * (1 - 2 * p) * float(pairs.sum())
        total.third += p**2 * (1 - p) * float(np.sum(m * (m - 1) * (m - 2)))
        all_pairs += float(pairs.sum())
        # (1 - (1 - p)^m) / p different orders of m sessions
        each = -np.expm1(m * np.log1p(-p)) / p if p else m
        expected += float(np.sum(each))
    if not all_pairs:
        return None
    p_value = _repeats_p_value(total, int(frames.sessions.sum() - frames.orders.sum()))
    if p_value >= ALARM:
        return None, "orders", p_value
    share = total.value / all_pairs
    fact = Fact(
        "bias.shuffle-orders" if share >= limits.orders else "bias.shuffle-reloads",
        orders=int(frames.orders.sum()),
        expected=expected,
        sessions=int(frames.sessions.sum()),
        share=share,
        p_value=p_value,
    )
    return fact, "orders", p_value


def _repeats_p_value(total: _Sum, repeats: int) -> float:
    """Where fewer than one is expected, Poisson's chance of so many sessions that repeat an order.

    A gamma distribution of so small a shape would be far too sure of itself, or not at all.
    """
    if total.value <= 0:
        return 1.0
    if total.variance < 1:
        return float(special.gammainc(repeats, total.variance))
    return total.p_value


def _other_sessions(lists: ClickLog, others: ClickLog, limits: Limits) -> Tested | None:
    shown = sum_by(others.document, others.row_count, others.n_documents)
    summed = sum_by(others.document, others.row_count * others.position, others.n_documents)
    known = shown > 0
    usual = np.divide(summed, shown, out=np.zeros_like(summed), where=known)
    table = np.where(known, usual, np.nan)[:, None]
    covariance, variance, spread = _rank_sums(
        lists.indptr, lists.document, lists.position, lists.sessions, table
    )
    if not variance[0] > 0:
        return None
    z = float(covariance[0] / sqrt(variance[0]))
    p_value = float(2 * special.ndtr(-abs(z)))
    correlation = float(covariance[0] / spread[0])
    if p_value >= ALARM or abs(correlation) < limits.correlation:
        return None, "other sessions", p_value
    fact = Fact("bias.shuffle-usual-order", correlation=correlation, z=z, p_value=p_value)
    return fact, "other sessions", p_value


def usable_features(log: ClickLog) -> BoolArray:
    """(d,) features that were known before the list was shown.

    Features of documents that several sessions show do not depend on any of them. Where most rows
    are of documents shown once, a feature may be the position itself, or made from the click.
    """
    assert log.features is not None
    n_sessions = sum_by(log.document, log.row_count, log.n_documents)
    if np.mean(n_sessions[log.document] >= 2) >= 0.5:
        return np.ones(log.n_features, dtype=bool)
    columns = (log.features[log.document, j] for j in range(log.n_features))
    known = [not (_is_position(log, x) or _knows_click(log, x)) for x in columns]
    return np.array(known, dtype=bool)


def _is_position(log: ClickLog, x: FeatureArray) -> bool:
    """Whether a feature is the same in all lists, given the position."""
    known = np.isfinite(x)
    x, at = x[known].astype(np.float64), log.position[known]
    n = np.maximum(np.bincount(at), 1)
    mean = np.bincount(at, weights=x) / n
    return (
        bool(np.sum((x - mean[at]) ** 2) <= 1e-3 * np.sum((x - x.mean()) ** 2)) if len(x) else False
    )


def _knows_click(log: ClickLog, x: FeatureArray) -> bool:
    """Whether a feature parts clicked from unclicked documents in nearly all lists."""
    clicked, filled = log.label > 0, ragged.lengths(log.indptr) > 0
    clicks = ragged.sums_by_list(log.indptr, clicked)[filled]
    mixed = (clicks > 0) & (clicks < ragged.lengths(log.indptr)[filled])
    starts = log.indptr[:-1][filled]

    def lowest(sign: int, which: BoolArray) -> FloatArray:
        values = np.where(which & np.isfinite(x), sign * x.astype(np.float64), np.inf)
        found: FloatArray = np.minimum.reduceat(values, starts)[mixed]
        return found

    if not mixed.any():
        return False
    above = lowest(1, clicked) > -lowest(-1, ~clicked)
    below = lowest(1, ~clicked) > -lowest(-1, clicked)
    return bool(max(above.mean(), below.mean()) >= 0.9)


def _features(lists: ClickLog, usable: BoolArray, limits: Limits) -> Tested | None:
    assert lists.features is not None
    covariance, variance, spread = _rank_sums(
        lists.indptr, lists.document, lists.position, lists.sessions, lists.features
    )
    varies = usable & (variance > 0)
    z = np.divide(covariance, np.sqrt(variance), out=np.zeros_like(variance), where=varies)
    used = int(np.sum(varies))
    if not used:
        return None
    j = int(np.argmax(np.abs(z)))
    p_value = min(1.0, used * float(2 * special.ndtr(-abs(z[j]))))
    correlation = float(covariance[j] / spread[j])
    if p_value >= ALARM or abs(correlation) < limits.correlation:
        return None, "features", p_value
    fact = Fact(
        "bias.shuffle-feature",
        feature=lists.feature_names[j],
        correlation=correlation,
        z=float(z[j]),
        p_value=p_value,
    )
    return fact, "features", p_value


@nb.njit(cache=True)
def _rank_sums(
    indptr: IntArray, document: IntArray, position: IntArray, count: IntArray, table: AnyArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For each column x of the table, over the documents of a list of which x is known.

    T = sum over sessions of sum (x - mean) (position - mean); in random order it has mean 0 and
    variance sum S_xx S_pp / (n - 1). The third is sum sqrt(S_xx S_pp): T over it is a correlation.
    """
    columns = table.shape[1]
    T, V, spread = np.zeros(columns), np.zeros(columns), np.zeros(columns)
    for i in range(len(indptr) - 1):
        for j in range(columns):
            n, x_sum, p_sum, xx, pp, xp = 0, 0.0, 0.0, 0.0, 0.0, 0.0
            for row in range(indptr[i], indptr[i + 1]):
                x = table[document[row], j]
                if np.isfinite(x):
                    n += 1
                    x_sum += x
                    p_sum += position[row]
            if n < 2:
                continue
            for row in range(indptr[i], indptr[i + 1]):
                x = table[document[row], j]
                if np.isfinite(x):
                    dx, dp = x - x_sum / n, position[row] - p_sum / n
                    xx += dx * dx
                    pp += dp * dp
                    xp += dx * dp
            # A spread that is rounding error alone is none.
            if xx > 1e-12 * (x_sum * x_sum / n + 1e-300):
                T[j] += count[i] * xp
                V[j] += count[i] * xx * pp / (n - 1)
                spread[j] += count[i] * np.sqrt(xx * pp)
    return T, V, spread
