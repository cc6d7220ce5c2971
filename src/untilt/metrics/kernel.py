"""One compiled loop over ragged lists for all metrics at once: each list is sorted only once.

Every metric is a walk down the ranking with a weight lambda(r) for rank r (`discount`), a gain for
each document, and a norm; the codes below say which. Ties are groups of ranks that the documents
of equal score fill in random order, and the walks give the exact expectation over that order
[mcsherry2008ties]_. The other rules for ties are the special case of groups of one.
"""

from typing import NamedTuple

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray, read_only_view
from untilt._core.sorting import falling_order
from untilt._core.threads import Share, parallel_kernel

# How equal scores are ordered.
STABLE, PESSIMISTIC, OPTIMISTIC, AVERAGE = 0, 1, 2, 3
# What is summed on the way down the ranking.
EACH_GAIN, PRECISION_AT_GAIN, FIRST_GAIN = 0, 1, 2
# The gain of a label.
LINEAR, EXPONENTIAL, BINARY = 0, 1, 2
# What the sum is divided by.
ONE, TOTAL_GAIN, IDEAL = 0, 1, 2


class Formulas(NamedTuple):
    """Metrics m = 0, 1, ... in the codes above, one entry for each.

    `discount` has shape (metrics, longest list); `cut[m]` is the last rank that counts, `empty[m]`
    the value of a list without any gain.
    """

    walk: IntArray
    gain: IntArray
    relevant_from: FloatArray
    norm: IntArray
    discount: FloatArray
    cut: IntArray
    empty: FloatArray


def values_of_lists(
    scores: FloatArray, labels: FloatArray, indptr: IntArray, ties: int, formulas: Formulas
) -> FloatArray:
    """Value of each metric on each list, shape (lists, metrics)."""
    values = np.empty((len(indptr) - 1, len(formulas.walk)))
    scores, labels, indptr = (read_only_view(each) for each in (scores, labels, indptr))
    _every_list(len(values), scores, labels, indptr, ties, formulas, values)
    return values


@parallel_kernel()
def _every_list(
    mine: Share, scores: FloatArray, labels: FloatArray, indptr: IntArray, ties: int,
    formulas: Formulas, values: FloatArray,
) -> None:  # fmt: skip
    for i in range(mine[0], mine[1]):
        a, b = indptr[i], indptr[i + 1]
        _one_list(scores[a:b].copy(), labels[a:b].copy(), ties, formulas, values[i])


@nb.njit(cache=True, inline="always")
def _one_list(
    score: FloatArray, label: FloatArray, ties: int, formulas: Formulas, values: FloatArray
) -> None:
    order = _order(score, label, ties)
    ends = _group_ends(score[order], ties == AVERAGE)
    ranked = label[order]
    best = ranked[falling_order(ranked)]
    for m in range(len(formulas.walk)):
        gain, relevant_from = formulas.gain[m], formulas.relevant_from[m]
        g = _gains(ranked, gain, relevant_from)
        total = g.sum()
        if total == 0:
            values[m] = formulas.empty[m]
            continue
        last = min(len(g), formulas.cut[m])
        discount = formulas.discount[m, :last]
        if formulas.walk[m] == EACH_GAIN:
            value = _each_gain(g, ends, discount)
        elif formulas.walk[m] == PRECISION_AT_GAIN:
            value = _precision_at_gain(g, ends, discount)
        else:
            value = _first_gain(g, ends, discount)
        if formulas.norm[m] == TOTAL_GAIN:
            value /= total
        elif formulas.norm[m] == IDEAL:
            value /= np.sum(_gains(best[:last], gain, relevant_from) * discount)
        values[m] = value


@nb.njit(cache=True, inline="always")
def _order(score: FloatArray, label: FloatArray, ties: int) -> IntArray:
    """Rows by falling score; equal scores in the order of their rows, or by label."""
    if ties == PESSIMISTIC:
        first = falling_order(-label)
    elif ties == OPTIMISTIC:
        first = falling_order(label)
    else:
        return falling_order(score)
    return first[falling_order(score[first])]


@nb.njit(cache=True)
def _group_ends(falling: FloatArray, together: bool) -> IntArray:
    """ends[a] is where the group of equal scores from index a ends; only starts are looked up."""
    n = len(falling)
    ends = np.arange(1, n + 1)
    if together:
        for i in range(n - 2, -1, -1):
            if falling[i] == falling[i + 1]:
                ends[i] = ends[i + 1]
    return ends


@nb.njit(cache=True)
def _gains(label: FloatArray, kind: int, relevant_from: float) -> FloatArray:
    if kind == EXPONENTIAL:
        return np.exp2(label) - 1.0
    if kind == BINARY:
        return (label >= relevant_from).astype(np.float64)
    return label.copy()


@nb.njit(cache=True)
def _each_gain(g: FloatArray, ends: IntArray, discount: FloatArray) -> float:
    """E sum_r lambda(r) g_r: in a group each document takes each rank equally often."""
    value, a, last = 0.0, 0, len(discount)
    while a < last:
        b = ends[a]
        value += g[a:b].sum() * discount[a:b].sum() / (b - a)
        a = b
    return value


@nb.njit(cache=True)
def _precision_at_gain(g: FloatArray, ends: IntArray, discount: FloatArray) -> float:
    """E sum over relevant r of lambda(r) * (relevant documents at ranks 1..r).

    A group of n ranks with p relevant documents, `before` of them above it: its rank t = 0, 1, ...
    holds a relevant one with probability p/n, and then t (p - 1)/(n - 1) of the t ranks above do.
    """
    value, before, a, last = 0.0, 0.0, 0, len(discount)
    while a < last:
        b = ends[a]
        n, p = b - a, g[a:b].sum()
        if p > 0:
            more = (p - 1) / (n - 1) if n > 1 else 0.0
            for t in range(min(b, last) - a):
                value += p / n * (before + 1 + t * more) * discount[a + t]
        before += p
        a = b
    return value


@nb.njit(cache=True)
def _first_gain(g: FloatArray, ends: IntArray, discount: FloatArray) -> float:
    """E lambda(rank of the first relevant document), 0 where it lies below the cut.

    In the first group that holds p relevant among n, rank t is the first relevant one with
    probability P(none before) * p/(n - t).
    """
    value, a, last = 0.0, 0, len(discount)
    while a < last:
        b = ends[a]
        p = g[a:b].sum()
        if p > 0:
            none_before = 1.0
            for t in range(min(b, last) - a):
                left = b - a - t
                value += none_before * p / left * discount[a + t]
                none_before *= max(0.0, left - p) / left
            return value
        a = b
    return value
