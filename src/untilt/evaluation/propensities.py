r"""Do logged propensities agree with the log, and do they give a new order the chances it needs?

**Balance.** If propensities are right, the sessions that show d at k count 1/p each, and as many as
there are sessions, N. Weighted by how often the other sessions show it, which keeps rare documents
from deciding, with n_d the sessions that show d at k and S_d the sum of 1/p over them,

    T = sum_d (n_d - 1) S_d / (N (N - 1)) - 1,    E[T] = 0

is a U-statistic of pairs of sessions, and its error that of leaving each session out. T is the mean
over queries and positions, weighted by N. Where lists are ordered each by itself, sessions are
those with the same documents: p is the probability among their orders then.

**Support.** The chances of a system are sum lambda pi / p over sessions and slots, which is sum
lambda over slots where the policy may show all that the system would show.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import IntArray, sum_by
from untilt._core.grouping import group_equal_lists
from untilt._core.portable import Portable
from untilt.evaluation.pool import Pool
from untilt.evaluation.slots import Discounts
from untilt.facts import Fact, serious, warning

DISAGREE = serious(
    "estimate.propensities-disagree",
    "documents were shown {ratio:.2f} +- {error:.2f} times as often as their propensities predict",
)
UNSUPPORTED = serious(
    "estimate.places-unsupported",
    "of the chances that places of {system} need, propensities give {mass:.0%} +- {error:.0%}",
)
NOTHING_TO_ORDER = serious(
    "estimate.nothing-to-order",
    "every session shows one document, so that its list has one order; "
    "⟦among='shown'|--among shown⟧ ranks all shown documents of a query",
)
NOT_USED = warning("estimate.propensities-not-used", "values do not rest on propensities: {why}")

SURE = 3.3  # standard errors off, p 1e-3: then propensities do not agree with the log
NEGLIGIBLE = 0.02  # off: propensities that were rounded, or drawn themselves
MOST_ERROR = 0.1  # of the balance; with more it confirms nothing
LEAST_MASS = 0.9  # of the chances that the places of a system need
MOST_MASS_ERROR = 0.3


@dataclass(frozen=True)
class Balance(Portable):
    """T of the module with its error, and why nothing firm can rest on the propensities."""

    value: float
    std_error: float
    doubts: tuple[Fact, ...]


def balance_of(cells: Pool, discounts: Mapping[str, Discounts]) -> Balance:
    """Of the sessions of the baseline, and of these systems."""
    if cells.among == "list" and ragged.lengths(cells.slates.indptr).max(initial=0) < 2:
        return Balance(0.0, 0.0, (NOTHING_TO_ORDER(),))
    value, error = _balance(cells)
    sure = abs(value) > max(NEGLIGIBLE, SURE * error)
    doubts = [DISAGREE(ratio=1 + value, error=error)] if sure or error > MOST_ERROR else []
    for name, at in discounts.items():
        chances = (
            at.cell / np.asarray(cells.propensity) / max(float(cells.impressions @ at.slot), 1e-300)
        )
        mass = float(cells.impressions @ chances)
        spread = float(np.sqrt(cells.impressions @ chances**2))
        if spread > MOST_MASS_ERROR or mass < min(LEAST_MASS, 1 - 2 * spread):
            doubts.append(UNSUPPORTED(system=name, mass=mass, error=spread))
    return Balance(value, error, tuple(doubts))


def _balance(pool: Pool) -> tuple[float, float]:
    """T and its error. With g_s the mean over the pairs of s, leaving it out moves the T of its
    place by 2 (g_s - T) / (N - 2)."""
    slates, p = pool.slates, np.asarray(pool.slate_propensity)
    n, k = np.asarray(slates.row_count, dtype=float), slates.position_index
    lists = ragged.list_of_row(slates.indptr)
    place = _drawn_alike(pool)[lists] * np.int64(slates.depth) + k
    place = np.unique(place, return_inverse=True)[1]
    cell = np.unique(place * np.int64(slates.n_documents) + slates.document, return_inverse=True)[1]
    sessions, shown, chances = sum_by(place, n)[place], sum_by(cell, n)[cell], sum_by(cell, n / p)
    rest = np.maximum(sessions - 1, 1)
    pairs = ((shown - 1) / p + chances[cell] - 1 / p) / (2 * rest) - 1
    off = (pairs - (sum_by(place, n * pairs) / sum_by(place, n))[place]) * np.sqrt(sessions * rest)
    n = np.where(sessions < 3, 0.0, n)  # of fewer none can be left out
    moved = np.where(n > 0, 2 * off / np.maximum(sessions - 2, 1), 0.0)
    error = np.sqrt(slates.count @ sum_by(lists, moved, slates.n_slates) ** 2)
    total = max(float(n.sum()), 1.0)
    return float(n @ pairs) / total, float(error) / total if n.any() else np.inf


def _drawn_alike(pool: Pool) -> IntArray:
    """(slates,) a number for those that the policy had the same documents to draw from."""
    slates = pool.slates
    if pool.among != "list":
        return slates.query
    rows = ragged.order_within_lists(slates.indptr, slates.document)
    keys = [slates.document[rows], slates.position_index]
    return group_equal_lists(slates.indptr, keys, [slates.query]).group_of_list
