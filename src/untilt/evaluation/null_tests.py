r"""Null tests: would this log call an order better that cannot be?

Each test puts something without any difference through the same sums as the estimate:

    the same order      documents in the order that was shown: the difference is 0
    new labels          of each query it is drawn at random which order is called the new one
    permuted clicks     clicks change places within (position, group of queries), and the curve is
                        what they then are, the click rates: no document is better than another,
                        so every order has the same value
    the clipping bias   clicks as expected at each position, with and without what a clip and the
                        end of the curve take away: the part of a difference that these two make

If one of them finds a difference, the log or the way it is evaluated breaks an assumption, and a
verdict is not to be trusted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import special

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.random import Seed, child_generator
from untilt._core.statistics import (
    Interval,
    check_level,
    effective_units,
    jackknife_error,
    student_quantile,
)
from untilt.bias.curve import PositionBias
from untilt.bias.experiments.assignment import Baseline
from untilt.bias.given import BiasLike, best_cells_first, numbered_for
from untilt.data.clicklog import ClickLog
from untilt.data.slates import slot_discounts
from untilt.data.transform import drawn_units
from untilt.evaluation.clip_curve import best_clip
from untilt.evaluation.pool import Among, Evaluator, Pool, parse_evaluator, pool_of, with_option
from untilt.evaluation.results import SystemDifference
from untilt.evaluation.slots import Discounts, MetricLike, Slots, slots_of
from untilt.evaluation.systems import System, judged_by, query_totals, system_scores
from untilt.facts import Fact, serious, warning

SAME_ORDER = serious(
    "null.same-order",
    "the shown order, compared with itself ({queries:,} of {of:,} queries), differs by "
    "{difference:+.4f}: the evaluation is not neutral on such lists, or rows were lost",
)
RELABELLED = serious(
    "null.relabelled",
    "with the names of the two orders drawn at random for each query, {p_value:.0%} of the draws "
    "have a difference as large: it comes from a few queries",
)
PERMUTED = serious(
    "null.permuted",
    "with clicks shuffled within their position, so that all documents are equally good, the "
    "difference is still {difference:+.4f} +- {std_error:.4f}: it comes from the structure of "
    "the lists, not from the documents. Rows may have been lost, or lists cut",
)
CLIPPING_BIAS = serious(
    "null.lean",
    "the clip and the end of the examination curve alone change the difference by "
    "{clipping_bias:+.4f}; without that, it could be chance ({difference:+.4f} was found)",
)
BY_CURVE = warning(
    "null.by-curve",
    "Most of the difference ({by_curve:+.4f} of {difference:+.4f}) comes from positions, not "
    "from documents: it would remain if every position showed documents of its mean relevance. "
    "The curve may be too steep, or the old order worse than chance. Swaps would decide.",
)

N_PERMUTATIONS = 8
SURE = 1e-3  # p-value of permuted clicks below which a single log would show their difference
NEGLIGIBLE = 0.1  # of the difference itself: smaller ones do not turn it round
HEAVY = 512  # queries whose label is drawn one by one; the sum over the others is near to normal
GROUPS = 3  # of queries, by clicks per session
FEW_QUERIES = 30  # which are one group
TINY = 1e-9  # in place of a click rate of 0


@dataclass(frozen=True)
class NullTests:
    """What came out; `failures` is empty for a log that carries a verdict.

    Parameters
    ----------
    difference : of the system to the logged order, with its sampling error
    same_order : the order that was shown against itself; NaN where it could not be compared
    same_order_queries, n_queries : queries that it was compared for, and all: where systems order
        each list, every one; else those whose lists agree on an order
    relabelled_p : share of random labels with a difference as large as the true one
    relabelled_outside : share of them that leave 0 out of their own interval. For information: few
        large queries raise it far above 1 - level without more false verdicts (docs/decisions.md)
    permuted, permuted_error : mean difference over all permutations of clicks, and the spread of a
        single one; NaN for labels that are no clicks
    clipping_bias : what a clip and the end of the curve add to the difference
    by_curve : the difference that clicks at the mean of their position give: what the curve makes
        of positions, whatever the documents are
    level : of the intervals
    """

    difference: float
    std_error: float
    same_order: float
    same_order_queries: int
    n_queries: int
    relabelled_p: float
    relabelled_outside: float
    permuted: float
    permuted_error: float
    clipping_bias: float
    by_curve: float
    level: float
    json_renamed: ClassVar[Mapping[str, str]] = {"lean": "clipping_bias"}

    @property
    def permuted_p(self) -> float:
        """Of no difference on permuted clicks; NaN where there were none."""
        if not self.permuted_error > 0:
            return float("nan")
        return float(2 * special.ndtr(-abs(self.permuted) / self.permuted_error))

    def failures(self, found: SystemDifference) -> tuple[Fact, ...]:
        """What speaks against a verdict on the difference that was found; empty if nothing does.

        What the opposite sign has only makes the verdict more cautious, and is no failure.
        """
        facts = []
        if _is_large_null(self.same_order, found.value):
            queries = {"queries": self.same_order_queries, "of": self.n_queries}
            facts.append(SAME_ORDER(difference=self.same_order, **queries))
        if _decides(found.interval) and self.relabelled_p > 1 - self.level:
            facts.append(RELABELLED(p_value=self.relabelled_p, level=self.level))
        if self.permuted_p < SURE and _is_large_null(self.permuted, found.value):
            error = self.permuted_error
            facts.append(PERMUTED(difference=self.permuted, std_error=error))
        if _decides(found.interval) and not _decides(_moved(found.interval, -self.clipping_bias)):
            facts.append(CLIPPING_BIAS(clipping_bias=self.clipping_bias, difference=found.value))
        return tuple(facts)

    def warnings(
        self, found: SystemDifference, *, higher_is_better: bool = True
    ) -> tuple[Fact, ...]:
        """What weakens a "better": positions rather than documents make the difference.

        A "worse" needs no such test: an order that ignores a good one loses by positions alone.
        """
        sign = 1 if higher_is_better else -1
        better, by_curve = sign * found.value, sign * self.by_curve
        if better > 0 and by_curve > max(better / 2, found.std_error):
            return (BY_CURVE(by_curve=self.by_curve, difference=found.value),)
        return ()


def _decides(interval: Interval) -> bool:
    return interval.low > 0 or interval.high < 0


def _is_large_null(null: float, found: float) -> bool:
    """Whether a difference that should be 0 makes up a part of the one that was found."""
    return null * found > 0 and abs(null) > NEGLIGIBLE * abs(found)


def _moved(interval: Interval, by: float) -> Interval:
    return Interval(interval.low + by, interval.high + by, interval.level)


def null_tests(
    log: ClickLog,
    system: System,
    bias: BiasLike | None = None,
    *,
    metric: MetricLike = "dcg@10",
    evaluator: str | Evaluator | None = None,
    clip: Any = None,
    relevance: Any = None,
    among: Among = "list",
    baseline: Baseline = None,
    level: float = 0.95,
    n_draws: int = 2000,
    seed: Seed = 0,
) -> NullTests:
    """Null tests of one system against the logged order; options as of `untilt.estimate`.

    n_draws : random labels; seed : of labels and permutations
    """
    check_level(level)
    by = with_option(parse_evaluator(evaluator), "clip", clip)
    by = with_option(by, "relevance", relevance)
    bias = best_cells_first(bias)
    pool = pool_of(numbered_for(log, bias), among, baseline)
    cells, curve, rank_metric = judged_by(by, pool, bias, metric)
    if getattr(by, "clip", None) == "auto":
        by = with_option(by, "clip", best_clip(cells, {"new": system}, curve, rank_metric, by))
    slots = slots_of(cells, rank_metric)
    scores = system_scores(system, pool, "new")
    orders = _Orders(cells, slots.discounts(scores), slots.discounts(None))
    total, norm = orders.difference(by, curve, cells.clicks)
    p_value, outside = _relabelled(total, norm, level, n_draws, child_generator(seed, 21))
    same, agreeing = _same_order(slots)
    again = replace(orders, new=same).difference(by, curve, cells.clicks)[0]
    mean, spread = float("nan"), float("nan")
    if log.is_binary and not by.matches_slots:
        mean, spread = _permuted(orders, by, child_generator(seed, 22))
    clipping_bias, by_curve = _clipping_bias(orders, by, curve)
    return NullTests(
        difference=float(total.sum() / norm.sum()),
        std_error=float(jackknife_error(_influence(total, norm), norm / norm.sum())),
        same_order=float(again[agreeing].sum() / norm.sum()) if agreeing.any() else float("nan"),
        same_order_queries=int(agreeing.sum()),
        n_queries=pool.n_queries,
        relabelled_p=p_value,
        relabelled_outside=outside,
        permuted=mean,
        permuted_error=spread,
        clipping_bias=clipping_bias,
        by_curve=by_curve,
        level=level,
    )


@dataclass(frozen=True, eq=False)
class _Orders:
    """Two orders of the same lists, by the discounts that they give to the cells of a pool."""

    cells: Pool
    new: Discounts
    shown: Discounts

    def difference(
        self, by: Evaluator, bias: PositionBias, clicks: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """(queries,) new minus shown had the clicks been these, and what it is divided by."""
        cells = replace(self.cells, clicks=clicks)
        credit = by.credit(cells, bias)
        total = query_totals(cells, credit, self.new) - query_totals(cells, credit, self.shown)
        norm = cells.sessions
        if credit.self_normalised:
            norm = cells.by_query(cells.by_document(credit.cell))
        return total, norm

    def value(self, by: Evaluator, bias: PositionBias, clicks: FloatArray) -> float:
        """The difference per session."""
        total, norm = self.difference(by, bias, clicks)
        return float(total.sum() / norm.sum()) if norm.sum() > 0 else 0.0


def _influence(total: FloatArray, norm: FloatArray) -> FloatArray:
    return (total - total.sum() / norm.sum() * norm) / norm.sum()


def _same_order(slots: Slots) -> tuple[Discounts, BoolArray]:
    """The logged order as a system gives it, and the (queries,) for which it is the same.

    Where each list is ordered on its own, every row gets a score of its own. Else documents are
    ordered by their mean position, which is the logged order where lists agree.
    """
    pool = slots.pool
    if pool.propensity is not None:  # lists that were drawn are not the order of any system
        return slots.discounts(None), np.zeros(pool.n_queries, dtype=bool)
    if pool.among != "list":
        scores = _shown_scores(pool)
        return slots.discounts(scores), _agreeing_queries(pool, scores)
    slates, n = pool.slates, len(pool.slates.document)
    apart = replace(slates, document=np.arange(n), n_documents=n)
    rows = slot_discounts(apart, -slates.position_index.astype(float), slots.weights)
    return slots.of_rows(rows), np.ones(pool.n_queries, dtype=bool)


def _shown_scores(pool: Pool) -> FloatArray:
    """(documents,) minus the mean position in the baseline's sessions; -inf for others."""
    slates, n = pool.slates, len(pool.document)
    count = np.asarray(slates.row_count, dtype=float)
    shown = sum_by(slates.document, count, n)
    position = sum_by(slates.document, count * slates.position_index, n)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(shown > 0, -position / shown, -np.inf)


def _agreeing_queries(pool: Pool, scores: FloatArray) -> BoolArray:
    """(queries,) whether the scores put every list of the query into the order it was shown in."""
    slates = pool.slates
    falls = np.diff(scores[slates.document]) < 0
    inside = np.diff(ragged.list_of_row(slates.indptr)) == 0
    owner = np.repeat(slates.query, ragged.lengths(slates.indptr))[1:]
    broken = np.bincount(owner[inside & ~falls], minlength=pool.n_queries)
    return broken == 0


def _relabelled(
    total: FloatArray, norm: FloatArray, level: float, n_draws: int, rng: np.random.Generator
) -> tuple[float, float]:
    """p-value of the difference under random labels, and the share outside of their interval.

    The sum of the lighter queries is drawn from a normal distribution with its variance.
    """
    n = len(total)
    if n < 2 or not total.any():
        return 1.0, 0.0
    order = np.argsort(-np.abs(total), kind="stable")
    heavy, light = total[order[:HEAVY]], total[order[HEAVY:]]
    sign = rng.integers(0, 2, size=(n_draws, len(heavy)), dtype=np.int8) * 2.0 - 1.0
    drawn = sign @ heavy + np.sqrt(np.sum(light**2)) * rng.standard_normal(n_draws)
    p_value = (1 + np.count_nonzero(np.abs(drawn) >= abs(total.sum()) * (1 - 1e-12))) / (
        1 + n_draws
    )
    # sum_q a_q (s_q T_q - D N_q)^2, a_q = 1 / (1 - h_q)^2, with D the drawn difference per session;
    # E[s_q T_q N_q] is left out of the light queries, whose part in it averages out.
    a = 1 / np.maximum(1 - norm / norm.sum(), 1e-9) ** 2
    share = drawn / norm.sum()
    cross = sign @ (a * norm * total)[order[:HEAVY]]
    squares = np.sum(a * total**2) - 2 * share * cross + share**2 * np.sum(a * norm**2)
    error = np.sqrt((n - 1) / n * np.maximum(squares, 0)) / norm.sum()
    degrees = max(effective_units(norm[total != 0]) - 1, 1.0)
    outside = np.abs(share) > student_quantile(level, degrees) * error
    return float(p_value), float(outside.mean())


def _permuted(orders: _Orders, by: Evaluator, rng: np.random.Generator) -> tuple[float, float]:
    """The difference on clicks that change places within (position, group of queries), its spread.

    The mean over all permutations is that of the mean clicks, n_dk rate_k, because credit is a sum
    over clicks; the spread is that of some that are drawn.
    To the curve a position of each group is a position of its own, so that groups may click more or
    less; it is their click rate there, which permutation does not change.
    """
    cells = orders.cells
    group, n_groups = _groups(cells)
    owner = cells.query_index[cells.document_index]
    place = cells.position_index + cells.depth * group[owner]
    size = cells.depth * n_groups
    impressions, clicks = (sum_by(place, x, size) for x in (cells.impressions, cells.clicks))
    rate = np.maximum(clicks / np.maximum(impressions, 1), TINY)
    by_group = rate.reshape(n_groups, cells.depth)
    top = np.where(by_group[:, :1] > TINY, by_group[:, :1], by_group.max(axis=1, keepdims=True))
    by = with_option(by, "clip", 0.0) if by.takes("clip") else by
    split = replace(orders, cells=replace(cells, position=place + 1, depth=size))
    curve = PositionBias((by_group / top).ravel(), method="click rates")
    rows = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place, minlength=size))[:-1]
    drawn = []
    for _ in range(N_PERMUTATIONS):
        y = np.zeros(len(place))
        for at in np.split(rows, ends):
            y[at] = _shared_out(cells.impressions[at], cells.clicks[at].sum(), rng)
        drawn.append(split.value(by, curve, y))
    mean = split.value(by, curve, cells.impressions * rate[place])
    return mean, float(np.std(drawn, ddof=1))


def _groups(cells: Pool) -> tuple[IntArray, int]:
    """(queries,) thirds by clicks per session, and how many groups there are."""
    if cells.n_queries < FEW_QUERIES:
        return np.zeros(cells.n_queries, dtype=np.int64), 1
    per_session = cells.by_query(cells.by_document(cells.clicks)) / cells.sessions
    cuts = np.quantile(per_session, np.arange(1, GROUPS) / GROUPS)
    return np.searchsorted(cuts, per_session), GROUPS


def _shared_out(impressions: FloatArray, clicks: float, rng: np.random.Generator) -> FloatArray:
    """Clicks on impressions drawn without replacement: how many fall into each cell."""
    colours = np.rint(impressions).astype(np.int64)
    n = min(round(clicks), int(colours.sum()))
    if n == 0:
        return np.zeros(len(colours))
    if colours.sum() >= 10**9:  # more than NumPy takes
        return drawn_units(colours, n / int(colours.sum()), rng).astype(float)
    return rng.multivariate_hypergeometric(colours, n, method="marginals").astype(float)


def _clipping_bias(orders: _Orders, by: Evaluator, bias: PositionBias) -> tuple[float, float]:
    """What clip and the end of the curve add, and the difference without them.

    Clicks are those expected where each position shows documents of its mean relevance, its click
    rate over its examination. Below the end of the curve documents are taken to be as relevant as
    in the lower half of it; a relevance beyond those where nothing is clipped is a sign of an
    examination that is too small, and cut.
    """
    if not by.needs_bias:
        return 0.0, 0.0
    cells = orders.cells
    impressions, clicks = cells.by_position(cells.impressions), cells.by_position(cells.clicks)
    whole = _continued(bias, impressions, clicks)
    alpha, beta = (
        whole.affine() if by.corrects_trust else (whole.examination, 0 * whole.examination)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        relevance = (clicks / np.maximum(impressions, 1) - beta) / alpha
    relevance = np.where((impressions > 0) & (alpha > 0), np.maximum(relevance, 0), 0.0)
    clip = float(getattr(by, "clip", 0.0) or 0.0)
    trusted = (np.arange(cells.depth) < bias.depth) & (alpha >= clip) & (impressions > 0)
    most = relevance[trusted].max(initial=0.0)
    k = cells.position_index
    expected = cells.impressions * (alpha * np.minimum(relevance, most) + beta)[k]
    plain = with_option(by, "clip", 0.0) if by.takes("clip") else by
    without = orders.value(plain, whole, expected)
    return orders.value(by, bias, expected) - without, without


def _continued(bias: PositionBias, impressions: FloatArray, clicks: FloatArray) -> PositionBias:
    """The curve for all positions, without errors: below its end it falls as the click rates do.

    theta_k = rate_k / g with g the relevance in the lower half of the curve, sum of its clicks over
    the sum of n_k theta_k; never above its end.
    """
    depth, end = len(impressions), min(bias.depth, len(impressions))
    index = np.minimum(np.arange(depth), bias.depth - 1)
    theta = bias.examination[index]
    half = slice(end // 2, end)
    g = clicks[half].sum() / max(float(impressions[half] @ theta[half]), TINY)
    if g > 0:
        rate = clicks[end:] / np.maximum(impressions[end:], 1)
        theta[end:] = np.clip(rate / g, TINY, theta[end - 1])
    plus, minus = (
        None if each is None else each[index] for each in (bias.eps_plus, bias.eps_minus)
    )
    return PositionBias(theta, eps_plus=plus, eps_minus=minus, relative=bias.relative)
