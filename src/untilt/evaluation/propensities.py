r"""Values by logged propensities: the probabilities that the policy of the log drew its lists by.

p is the probability with which a document was shown at its position in that session. With pi the
probability that a new ranker puts it there (0 or 1; documents with equal scores share), c the click
and lambda the metric's weight of the position,

    V = 1/N sum over sessions and slots of lambda_k c pi / p        ([horvitz1952]_)

is unbiased for lambda times the clicks at the positions of the new ranker, whatever made people
click there: no examination curve, no relevance. It assumes that the propensities are right, that
the policy gives every place of the new ranker a chance, and that a click depends on the slot's own
document and position. Where lists are ordered, p is that among lists of the same documents.

**Balance.** If propensities are right, the sessions that show d at k count 1/p each and as many as
there are sessions, N. Weighted by how often other sessions show it, which keeps rare documents from
deciding, with n_d the sessions that show d at k and S_d the sum of 1/p over them,

    T = sum_d (n_d - 1) S_d / (N (N - 1)) - 1,    E[T] = 0

is a U-statistic of pairs of sessions, and its error that of leaving each session out. T is the mean
over queries and positions, weighted by N.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from untilt._core import ragged
from untilt._core.arrays import sum_by
from untilt._core.grouping import group_equal_lists
from untilt._core.portable import Portable
from untilt.bias.curve import PositionBias
from untilt.bias.given import BiasLike
from untilt.catalog import method
from untilt.evaluation.pool import Credit, Evaluator, Pool, bias_for, cells_for
from untilt.evaluation.slots import Discounts, MetricLike, as_rank_metric
from untilt.evaluation.systems import System, ordered_systems
from untilt.facts import Fact, note, serious, warning

SCALE = note(
    "estimate.scale-clicks-there",
    "in clicks that the new order would get where it shows a document, without correction",
)()
CHECKED = note(
    "estimate.propensities-checked",
    "documents were shown {ratio:.3f} times as often as their propensities say (+- {error:.3f})",
)
REJECTED = serious(
    "estimate.propensities-rejected",
    "the propensities do not agree with the log: documents were shown {ratio:.2f} times as often "
    "as they say (+- {error:.2f}, p {p_value:.1g})",
)
UNCHECKED = serious(
    "estimate.propensities-unchecked",
    "the log cannot check its propensities: documents were shown {ratio:.2f} times as often as "
    "they say, +- {error:.2f}",
)
UNSUPPORTED = serious(
    "estimate.places-unsupported",
    "the propensities give the places of {system} {mass:.0%} of the chances that they should have "
    "(+- {error:.0%}): the log shows nothing at the others, and they count as not clicked",
)
NOISY = note(
    "estimate.propensities-noisy",
    "the chances of the places of {system} are known to +- {error:.0%} alone",
)
NOT_USED = warning("estimate.propensities-not-used", "values do not rest on propensities: {why}")

MISFIT_P = 1e-3  # p-value below which propensities are said not to agree with the log
NEGLIGIBLE = 0.02  # of the chances: propensities that are rounded, or drawn themselves
MOST_ERROR = 0.1  # of the balance: with more it shows nothing
LEAST_MASS = 0.9  # of the chances of a system's places
MOST_MASS_ERROR = 0.3  # with more, propensities are not used unasked: a curve says more
FEWEST = 3  # sessions of which one can be left out


@method(
    "evaluator", "logged-propensities", title="Logged propensities", order=100,
    needs=("propensity",), choose=("evaluate", "run"), reference="horvitz1952",
    note="clicks where the ranker leaves the document in its place, divided by logged propensities",
)  # fmt: skip
@dataclass(frozen=True)
class LoggedPropensityEvaluator(Evaluator):
    """c pi / p with the propensities of the log, the default where it can be: no curve needed.

    `self_normalised` divides by the sum of pi / p in place of what it is expected to be: less noise
    where propensities are small, unbiased in the limit of many sessions
    ([swaminathan2015selfnormalized]_).
    """

    self_normalised: bool = False
    needs_bias = False
    matches_slots = True

    def credit(self, pool: Pool, bias: PositionBias) -> Credit:  # noqa: ARG002
        """Each click counts 1 / p."""
        weight = 1 / pool.propensity
        mass = pool.impressions * weight if self.self_normalised else None
        zero = np.zeros(len(weight))
        return Credit(pool.clicks * weight, zero, weight, zero > 0, zero == 0, mass=mass)

    def scale(self, bias: PositionBias) -> Fact:  # noqa: ARG002
        """Clicks at the new positions."""
        return SCALE


@dataclass(frozen=True)
class Balance(Portable):
    """Whether propensities agree with how often documents were shown: T of the module, its error.

    `unsupported` : systems that the log gives too little chance at their places.
    """

    value: float
    std_error: float
    unsupported: tuple[Fact, ...] = ()

    @property
    def p_value(self) -> float:
        """Of no disagreement."""
        return float(2 * special.ndtr(-abs(self.value) / max(self.std_error, 1e-300)))

    @property
    def doubts(self) -> tuple[Fact, ...]:
        """Why nothing firm can rest on the propensities; empty where it can."""
        told = {"ratio": 1 + self.value, "error": self.std_error}
        if self.p_value < MISFIT_P and abs(self.value) > NEGLIGIBLE:
            return (REJECTED(p_value=self.p_value, **told),)
        unchecked = () if self.std_error <= MOST_ERROR else (UNCHECKED(**told),)
        return (*unchecked, *self.unsupported)

    @property
    def fact(self) -> Fact:
        """The finding."""
        return CHECKED(ratio=1 + self.value, error=self.std_error)


def balance_of(pool: Pool) -> Balance:
    """T of the sessions of the baseline; of those with the same documents where lists are ordered.

    Leaving session s out moves T of its place by 2 (g_s - T) / (N - 2), with g_s its mean over the
    pairs of s.
    """
    slates, p = pool.slates, pool.slate_propensity
    assert p is not None
    group, lists = slates.query, ragged.list_of_row(slates.indptr)
    if pool.among == "list":
        rows = ragged.order_within_lists(slates.indptr, slates.document)
        keys = [slates.document[rows], slates.position_index]
        group = group_equal_lists(slates.indptr, keys, [slates.query]).group_of_list
    n, k = np.asarray(slates.row_count, dtype=float), slates.position_index.astype(np.int64)
    place = np.unique(group[lists] * np.int64(slates.depth) + k, return_inverse=True)[1]
    cell = np.unique(place * np.int64(slates.n_documents) + slates.document, return_inverse=True)[1]
    sessions, shown, chances = sum_by(place, n)[place], sum_by(cell, n)[cell], sum_by(cell, n / p)
    used = sessions >= FEWEST
    with np.errstate(divide="ignore", invalid="ignore"):
        pairs = ((shown - 1) / p + chances[cell] - 1 / p) / (2 * (sessions - 1)) - 1
        off = pairs - (sum_by(place, n * pairs) / sum_by(place, n))[place]
        moved = 2 * off * np.sqrt(sessions * (sessions - 1)) / (sessions - 2)
    of_list = sum_by(lists, np.where(used, moved, 0.0), len(slates.count))
    total = max(float(n[used].sum()), 1.0)
    error = np.sqrt(np.sum(slates.count * of_list**2)) / total if used.any() else np.inf
    return Balance(float(np.sum((n * pairs)[used])) / total, float(error))


def judge_of(
    by: Evaluator,
    pool: Pool,
    systems: Mapping[str, System],
    metric: MetricLike,
    bias: BiasLike | None,
    *,
    unnamed: bool,
) -> tuple[Evaluator, Balance | None, tuple[Fact, ...]]:
    """The evaluator: by propensities where that was asked for, or none was and nothing is doubted.

    Without a curve there is no other. With the balance where it is by propensities, and what is to
    be said.
    """
    if pool.slate_propensity is None or not (unnamed or by.matches_slots):
        return by, None, ()
    logged = by if by.matches_slots else LoggedPropensityEvaluator()
    cells = cells_for(logged, pool)
    ranked = as_rank_metric(metric, bias_for(logged, bias, pool.depth))
    discounts, _ = ordered_systems(cells, systems, ranked)
    balance, noise = _with_support(balance_of(pool), cells, discounts)
    told = (*balance.doubts, *noise)
    if told and unnamed and bias is not None:
        return by, None, (NOT_USED(why=told[0]),)
    return logged, balance, told or (balance.fact,)


def _with_support(
    balance: Balance, cells: Pool, discounts: Mapping[str, Discounts]
) -> tuple[Balance, list[Fact]]:
    """The balance with the systems that lack chances, and those of which too little is known.

    The chances of a system are sum lambda pi / p, which is expected to be sum lambda over slots.
    """
    p, n, facts, noise = cells.propensity, cells.impressions, [], []
    for name, at in discounts.items():
        hoped = max(float(np.abs(n * at.slot).sum()), 1e-300)
        mass = float((n * at.cell / p).sum()) / hoped
        error = float(np.sqrt((n * (at.cell / p) ** 2).sum())) / hoped
        if error > MOST_MASS_ERROR:
            noise.append(NOISY(system=name, error=error))
        if mass < LEAST_MASS and mass + 2 * error < 1:
            facts.append(UNSUPPORTED(system=name, mass=mass, error=error))
    return replace(balance, unsupported=tuple(facts)), noise
