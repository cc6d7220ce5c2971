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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import factorial, sqrt

import numba as nb
import numpy as np
from scipy import special

from untilt._core import ragged
from untilt._core.arrays import AnyArray, BoolArray, FeatureArray, FloatArray, IntArray, sum_by
from untilt._core.grouping import group_equal_lists
from untilt.bias.experiments.assignment import experiments_of, rank_before_swap
from untilt.data.clicklog import ClickLog
from untilt.facts import Fact, Sentence, note, serious, warning

ARMS_DIFFER = {
    "query": serious(
        "bias.swap-arms-by-query",
        "the share of swapped sessions differs between queries: chi-square {statistic:,.0f}, where "
        "a random draw gives about {expected:,.0f} (p {p_value:.1g})",
    ),
    "list": serious(
        "bias.swap-arms-by-list",
        "whether a list is swapped depends on its documents: chi-square {statistic:,.0f}, where a "
        "random draw gives about {expected:,.0f} (p {p_value:.1g})",
    ),
}

SWAPS_UNTESTED = note(
    "bias.swaps-untested",
    "swaps believed: queries do not repeat, and there is nothing else to test them by",
)()

SHUFFLE_UNTESTED = note(
    "bias.shuffle-untested",
    "random order believed: no two sessions show the same documents, and there is nothing else to "
    "test it by",
)()

SWAP_LISTS_UNTESTED = note(
    "bias.swap-lists-untested",
    "that swapped lists are the usual ones with two documents exchanged is believed: the lists of "
    "a query hardly ever come again",
)()

SWAPS_PASSED = note("bias.swaps-passed", "swaps tested: {p_values:p}")

SHUFFLE_PASSED = note("bias.shuffle-passed", "the order looks random ({p_values:p})")

SHUFFLE_RELOADS = warning(
    "bias.shuffle-reloads",
    "the same orders come back a little too often ({orders:,} different ones in {sessions:,} "
    "sessions, where random order gives about {expected:,.0f}): pages that were loaded again?",
)

SHUFFLE_ORDERS = serious(
    "bias.shuffle-orders",
    "the same orders come back: {orders:,} different ones in {sessions:,} sessions, where random "
    "order gives about {expected:,.0f} (p {p_value:.1g})",
)

SHUFFLE_POSITIONS = serious(
    "bias.shuffle-positions",
    "documents keep to their positions: two sessions with the same documents show {mean:.3f} of "
    "them at the same position on average, where random order gives 1 (z {z:.1f}, p {p_value:.1g})",
)
SHUFFLE_USUAL_ORDER = serious(
    "bias.shuffle-usual-order",
    "positions follow those of the same documents in other sessions: correlation "
    "{correlation:.3f}, where random order gives 0 (z {z:.1f}, p {p_value:.1g})",
)
SHUFFLE_FEATURE = serious(
    "bias.shuffle-feature",
    "positions follow the feature {feature}: correlation {correlation:.3f}, where random order "
    "gives 0 (z {z:.1f}, p {p_value:.1g})",
)
SWAP_LISTS = serious(
    "bias.swap-lists",
    "swapped lists are not the usual ones with two documents exchanged: swapped back, "
    "{matched:.1%} are a list that the query shows without a swap, where at least {expected:.1%} "
    "should be; {unchanged:.1%} show the usual list unchanged (z {z:.1f}, p {p_value:.1g})",
)
SWAP_FEATURE = serious(
    "bias.swap-feature",
    "whether positions {upper} and {lower} are swapped depends on the documents: correlation "
    "{correlation:.3f} with the feature {feature}, where a random draw gives 0 (z {z:.1f}, p "
    "{p_value:.1g})",
)
SHUFFLE_CLICKED_ONLY = note(
    "bias.shuffle-clicked-only",
    "nearly every shuffled session has a click and others were left out, which makes p-values "
    "small: only departures of 0.1 or more count",
)()

# What a test says: a fact where it failed, its name, and the p-value.
Tested = tuple[Fact | None, str, float]
ALARM = 0.001  # the p-value below which a test fails
SMALL = 5  # lists of fewer documents often show the same order again by chance
# Pairs of sessions with the same order, beyond chance: fewer are pages that were loaded again.
RELOADS = 0.02
FEW_WITHOUT_CLICK = 0.1  # share of the sessions; with fewer, sessions were chosen by their clicks


@dataclass(frozen=True)
class Departure:
    """How large a departure must be, besides its p-value, before it counts.

    positions : documents at the same position, above the 1 of random order
    orders : share of the pairs of sessions with the same order, above chance
    correlation : of positions with anything
    """

    positions: float = 0.0
    orders: float = RELOADS
    correlation: float = 0.0


FINE, GROSS = Departure(), Departure(positions=0.1, orders=0.1, correlation=0.1)


@dataclass(frozen=True, eq=False)
class _Frames:
    """Sessions that showed the same documents of a query in the same slots.

    Moments of pairs of sessions, so neither counts nor slates.

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
        _feature_correlations(unclicked, usable_features(log), limits)
        if log.features is not None
        else None,
    ]
    tested = [each for each in found if each is not None]
    facts = as_facts(tested, passed=SHUFFLE_PASSED, untested=SHUFFLE_UNTESTED)
    return (*facts, SHUFFLE_CLICKED_ONLY) if selected and tested else facts


def as_facts(tested: Sequence[Tested], *, passed: Sentence, untested: Fact) -> tuple[Fact, ...]:
    """The facts of tests that failed, and one fact for all that did not."""
    facts = [fact for fact, _, _ in tested if fact is not None]
    p_values = {name: p_value for fact, name, p_value in tested if fact is None}
    if p_values:
        facts.append(passed(p_values=p_values))
    return tuple(facts or [untested])


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
    # A document shown twice has no single position; lists with one are left out.
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


def _by_size(frames: _Frames) -> Iterator[tuple[int, BoolArray, FloatArray, FloatArray]]:
    """For each number n of documents its frames, their sessions m and pairs of sessions."""
    for n in np.unique(frames.documents).tolist():
        at = frames.documents == n
        m = frames.sessions[at]
        yield n, at, m, m * (m - 1) / 2


def _positions(frames: _Frames, limits: Departure) -> Tested | None:
    total, all_pairs = _Sum(), 0.0
    for n, at, m, pairs in _by_size(frames):
        same = frames.same_order[at]
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
    surplus, p_value = total.value / all_pairs, total.p_value
    failed = p_value < ALARM and surplus >= limits.positions
    fact = SHUFFLE_POSITIONS(mean=1 + surplus, z=total.statistic, p_value=p_value)
    return fact if failed else None, "positions", p_value


def _orders(frames: _Frames, limits: Departure) -> Tested | None:
    total, all_pairs, expected = _Sum(), 0.0, 0.0
    for n, at, m, pairs in _by_size(frames):
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
    orders, sessions = int(frames.orders.sum()), int(frames.sessions.sum())
    p_value, share = _repeats_p_value(total, sessions - orders), total.value / all_pairs
    told = SHUFFLE_ORDERS if share >= limits.orders else SHUFFLE_RELOADS
    fact = told(orders=orders, expected=expected, sessions=sessions, share=share, p_value=p_value)
    return fact if p_value < ALARM else None, "orders", p_value


def _repeats_p_value(total: _Sum, repeats: int) -> float:
    """Where fewer than one is expected, Poisson's chance of so many sessions that repeat an order.

    A gamma distribution of so small a shape would be far too sure of itself, or not at all.
    """
    if total.value <= 0:
        return 1.0
    if total.variance < 1:
        return float(special.gammainc(repeats, total.variance))
    return total.p_value


def _other_sessions(lists: ClickLog, others: ClickLog, limits: Departure) -> Tested | None:
    shown = sum_by(others.document, others.row_count, others.n_documents)
    summed = sum_by(others.document, others.row_count * others.position, others.n_documents)
    known = shown > 0
    usual = np.divide(summed, shown, out=np.zeros_like(summed), where=known)
    table = np.where(known, usual, np.nan)[:, None]
    return _correlations(lists, table, np.ones(1, dtype=bool), limits)


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


def _feature_correlations(lists: ClickLog, usable: BoolArray, limits: Departure) -> Tested | None:
    assert lists.features is not None
    return _correlations(lists, lists.features, usable, limits, lists.feature_names)


def _correlations(
    lists: ClickLog, table: AnyArray, usable: BoolArray, limits: Departure,
    names: Sequence[str] = (),
) -> Tested | None:  # fmt: skip
    """Positions against the columns of a table: features by name, or usual positions."""
    covariance, variance, spread = _rank_sums(
        lists.indptr, lists.document, lists.position, lists.sessions, table
    )
    varies = usable & (variance > 0)
    z = np.divide(covariance, np.sqrt(variance), out=np.zeros_like(variance), where=varies)
    used = int(np.sum(varies))
    if not used:
        return None
    j = int(np.argmax(np.abs(z)))
    p_value = min(1.0, used * float(2 * special.ndtr(-abs(z[j]))))
    correlation = float(covariance[j] / spread[j])
    failed = p_value < ALARM and abs(correlation) >= limits.correlation
    told = SHUFFLE_FEATURE if names else SHUFFLE_USUAL_ORDER
    feature = {"feature": names[j]} if names else {}
    fact = told(**feature, correlation=correlation, z=float(z[j]), p_value=p_value)
    return fact if failed else None, "features" if names else "other sessions", p_value


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
            # A spread that is rounding error alone does not count.
            if xx > 1e-12 * (x_sum * x_sum / n + 1e-300):
                T[j] += count[i] * xp
                V[j] += count[i] * xx * pp / (n - 1)
                spread[j] += count[i] * np.sqrt(xx * pp)
    return T, V, spread


FEWEST_IN_ARM = 10  # sessions of a length; smaller arms are left out
FEWEST_FOR_MEAN = 50  # sessions of an arm, before the mean of a feature is taken for normal


@dataclass(frozen=True, eq=False)
class _TestedExperiment:
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
    """One fact of severity "serious" for each test that failed, and a note with the others.

    Which sessions are swapped must depend on nothing. The *arms* of the experiment are the usual
    list and one per pair of positions; a list that does not reach a position cannot be swapped
    there, so lists of different lengths are kept apart, and so are experiments with shares of their
    own (`experiments_of`). Three kinds of tests:

    - arms: whether the arms' shares are the same for all queries, and for all original lists (which
      document would have gone up). Chi-square over a table of sessions with the mean and variance
      that it has if arms are dealt out at random, which holds for queries of two sessions too.
    - lists: whether a swapped list, swapped back, is one that the query's other sessions show, as
      often as these agree among themselves.
    - features: whether the features of the two documents, one minus the other, are the same in the
      swapped lists as in all; the largest difference after Bonferroni's correction.

    The share of the sessions that was meant to be swapped is not in the log, so that it is not
    tested.
    """
    made = _experiment(log, part, swapped)
    lists = _swapped_back(made)
    found = [
        _arms(made, made.log.query, "query"),
        _arms(made, made.original, "list"),
        lists,
        _feature_differences(made),
    ]
    tested = [each for each in found if each is not None]
    facts = as_facts(tested, passed=SWAPS_PASSED, untested=SWAPS_UNTESTED)
    return (*facts, SWAP_LISTS_UNTESTED) if tested and lists is None else facts


def _experiment(log: ClickLog, part: BoolArray, swapped: IntArray) -> _TestedExperiment:
    filled = ragged.lengths(log.indptr) > 0
    lists, pairs = log.take(part & filled), swapped[part & filled]
    length = lists.position[lists.indptr[1:] - 1]
    depth = int(pairs.max())
    reach = lists.position[lists.indptr[:-1]] <= depth  # lists that have a row above the cut
    lists, pairs, length = lists.take(reach).top(depth), pairs[reach], length[reach]
    rank = rank_before_swap(lists, pairs)
    order = ragged.order_within_lists(lists.indptr, rank)
    keys = [lists.document[order], rank[order]]
    experiment = experiments_of(lists)
    original = group_equal_lists(lists.indptr, keys, [lists.query, experiment]).group_of_list
    arm = np.unique(pairs[:, 0] * (depth + 1) + pairs[:, 1], return_inverse=True)[1]
    arm = np.where(pairs[:, 1] > 0, arm + 1, 0)
    shown = lists.slates().group_of_list
    stratum = np.unique(experiment * (int(length.max()) + 1) + length, return_inverse=True)[1]
    return _TestedExperiment(lists, pairs, rank, arm, experiment, stratum, original, shown)


def _arms(made: _TestedExperiment, unit: AnyArray, units: str) -> Tested | None:
    """Chi-square of arms by units within a stratum, added up over the strata."""
    statistic, mean, variance = 0.0, 0.0, 0.0
    for stratum in range(int(made.stratum.max()) + 1):
        at = made.stratum == stratum
        parts = _table_moments(unit[at], made.arm[at], made.log.sessions[at])
        statistic, mean, variance = statistic + parts[0], mean + parts[1], variance + parts[2]
    if not variance > 0:
        return None
    p_value = float(special.gammaincc(mean**2 / variance, statistic * mean / variance))
    fields = {"statistic": statistic, "expected": mean, "p_value": p_value}
    return ARMS_DIFFER[units](**fields) if p_value < ALARM else None, f"arms by {units}", p_value


def _table_moments(unit: AnyArray, arm: IntArray, sessions: IntArray) -> tuple[float, float, float]:
    """Chi-square of a table of units by arms, its mean and its variance given both margins.

    Mean N (r - 1) (c - 1) / (N - 1) and Haldane's variance, exact if the arms are dealt out to the
    sessions at random. A unit with one session says nothing and is left out.
    """
    unit = np.unique(unit, return_inverse=True)[1]
    several = sum_by(unit, sessions)[unit] >= 2
    # Arms are counted among these: one session of an arm that has two would be an alarm.
    enough = several & (
        sum_by(arm[several], sessions[several], arm.max() + 1)[arm] >= FEWEST_IN_ARM
    )
    if not enough.any():
        return 0.0, 0.0, 0.0
    unit, arm = (np.unique(each[enough], return_inverse=True)[1] for each in (unit, arm))
    sessions = sessions[enough]
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


def _swapped_back(made: _TestedExperiment) -> Tested | None:
    """Swapped lists, swapped back, among the usual ones of their query and experiment.

    They should be found there as often as usual ones find another like them. None where usual lists
    hardly ever come again, so that nothing can be found.
    """
    log, is_base = made.log, made.arm == 0
    of_base = sum_by(made.original, log.sessions * is_base)
    unchanged = sum_by(made.shown, log.sessions * is_base)[made.shown] > 0
    several = int(made.experiment.max()) + 1
    query = np.unique(log.query.astype(np.int64) * several + made.experiment, return_inverse=True)[
        1
    ]
    n_queries = int(query.max()) + 1
    base = sum_by(query, log.sessions * is_base, n_queries)
    agreeing = sum_by(query, log.sessions * is_base * (of_base[made.original] >= 2), n_queries)
    both_shown = ragged.sums_by_list(log.indptr, made.rank != log.position) == 2
    usable = ~is_base & both_shown & (base[query] >= 2)
    n = sum_by(query[usable], log.sessions[usable], n_queries)
    matched = float(log.sessions[usable & (of_base[made.original] > 0)].sum())
    total, expected = float(n.sum()), float(np.sum(n * agreeing / np.maximum(base, 1)))
    # Smoothed in the variance alone: in the mean it would expect lists to come again that never do.
    share = (agreeing + 1) / (base + 2)
    noise = 1 + n / np.maximum(base, 1)
    error = sqrt(float(np.sum(n * share * (1 - share) * noise)))
    if not total or special.ndtr(-expected / error) >= ALARM:
        return None  # not even swapped lists that all differ from the usual ones would be found
    z = (expected - matched) / error
    p_value = float(special.ndtr(-z))
    fact = SWAP_LISTS(
        matched=matched / total,
        expected=expected / total,
        unchanged=float(log.sessions[usable & unchanged].sum()) / total,
        z=z,
        p_value=p_value,
    )
    return fact if p_value < ALARM else None, "lists", p_value


def _feature_differences(made: _TestedExperiment) -> Tested | None:
    """Lower minus upper document of a swap, by the original list: in its arm against all lists."""
    log = made.log
    if log.features is None:
        return None
    usable_columns = np.flatnonzero(usable_features(log))
    tried = []
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
                tried.append((*found, log.feature_names[j], *pair[0].tolist()))
    if not tried:
        return None
    z, correlation, feature, first, second = max(tried, key=lambda each: abs(each[0]))
    p_value = min(1.0, len(tried) * float(2 * special.ndtr(-abs(z))))
    fact = SWAP_FEATURE(
        feature=feature, upper=first, lower=second, correlation=correlation, z=z, p_value=p_value
    )
    return fact if p_value < ALARM else None, "features", p_value


def _documents_at(made: _TestedExperiment, a: int, b: int) -> tuple[IntArray, IntArray]:
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
