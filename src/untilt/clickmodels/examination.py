"""Models with parameters for examination: position-based and user browsing."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numba as nb
import numpy as np
from scipy.sparse import csr_array

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray, handed_over, sum_by
from untilt._core.ascent import EMResult, Step
from untilt._core.threads import Share, parallel_kernel
from untilt.bias.curve import POSITION_BASED, PositionBias
from untilt.bias.estimator import absent_positions, numbered_as
from untilt.bias.log_ratios import (
    MAXIMUM,
    NO_MAXIMUM,
    effective_by_column,
    from_log_ratios,
    larger_error,
)
from untilt.bias.position_graph import position_graph
from untilt.catalog import method, storable
from untilt.clickmodels.click_model import ClickModel, IndependentModel, Lists
from untilt.clickmodels.examination_curve import ConditionalCurve, comparable, fit_curve
from untilt.clickmodels.smoothing import HIGH, LOW, Smoothing, climb, mean_rate, smoothing_of
from untilt.data.clicklog import ClickLog
from untilt.data.counts import Cells, PositionCounts, position_counts
from untilt.data.layout import Packed
from untilt.errors import IdentifiabilityError
from untilt.facts import Fact, joined, note, phrase

EXAMINED_BY_LAST_CLICK = note(
    "clickmodels.examined-by-last-click",
    "examination depends on the position and on the last click above",
)()
NOT_COMPARABLE = note(
    "clickmodels.not-comparable", "{share:.2%} of the impressions cannot be compared"
)

BLOCKS = 16  # sums are taken block by block: the same result whatever the number of threads
FIRST_ROUND = 60  # steps that find the reference condition and the prior mean


class NoCurveError(IdentifiabilityError, AttributeError):
    """A fitted model that cannot tell a curve: `hasattr(model, "bias_")` says no."""


@storable
class ExaminationState(NamedTuple):
    """theta : (conditions,); gamma : (shown documents,)."""

    theta: FloatArray
    gamma: FloatArray


@dataclass(frozen=True, eq=False)
class ExaminationFit:
    """theta (conditions,; NaN where never shown), and how EM ended."""

    theta: FloatArray
    prior: Smoothing
    em: EMResult[ExaminationState]


def fit_examination(
    counts: PositionCounts,
    *,
    prior_strength: float | str,
    tolerance: float,
    max_steps: int,
    what: str,
) -> ExaminationFit:
    """Maximise the likelihood of the counts times the prior of gamma.

    The *condition* i of an impression is what examination depends on: the position (PBM), or the
    position and the last click above it (UBM). Counts of clicks and impressions per (document,
    condition) are sufficient; they are kept as `PositionCounts` whose positions are the conditions.

    theta and gamma share a scale that clicks do not tell: c theta and gamma / c predict the same.
    A first round without a prior finds the shape; then the most examined condition is held at
    theta = 1, and the prior has its mean where the mean of gamma is on that scale.
    """
    shown = counts.by_position(counts.impressions)
    free = _step(counts, Smoothing(0.0, 0.5), reference=-1)
    few, named = min(FIRST_ROUND, max_steps), f"{what}, first round"
    rough = climb(_start(counts, shown), free, 10 * tolerance, few, named).state
    reference = _reference(rough.theta, shown)
    scale = rough.theta[reference]
    start = ExaminationState(
        np.clip(rough.theta / scale, LOW, HIGH), np.clip(rough.gamma * scale, LOW, HIGH)
    )
    prior = _prior(counts, start, prior_strength)
    em = climb(start, _step(counts, prior, reference), tolerance, max_steps, what)
    theta = np.where(shown > 0, em.state.theta, np.nan)
    return ExaminationFit(theta, prior, em)


def _prior(counts: PositionCounts, state: ExaminationState, strength: float | str) -> Smoothing:
    """Of gamma: with "auto" learned from clicks and the impressions expected to be looked at."""
    if isinstance(strength, str):
        looked = counts.by_document(counts.impressions * state.theta[counts.position_index])
        return smoothing_of(counts.by_document(counts.clicks), looked, strength)
    seen = counts.by_document(counts.impressions)
    return Smoothing(strength, mean_rate(state.gamma, seen, strength))


def _start(counts: PositionCounts, shown: FloatArray) -> ExaminationState:
    """theta by the click rates of conditions, gamma by what is then left for documents."""
    clicks = counts.by_position(counts.clicks)
    rate = np.divide(clicks, shown, out=np.full(len(shown), 0.0), where=shown > 0)
    theta = np.clip(rate / max(rate[_reference(rate, shown)], LOW), 0.01, 0.99)
    expected = counts.by_document(theta[counts.position_index] * counts.impressions)
    gamma = (counts.by_document(counts.clicks) + 0.1) / (expected + 0.2)
    return ExaminationState(theta, np.clip(gamma, 0.01, 0.99))


def _reference(theta: FloatArray, shown: FloatArray) -> int:
    """The most examined condition of those with at least 1% of the impressions of the largest."""
    return int(np.argmax(np.where(shown >= 0.01 * shown.max(), theta, -1.0)))


def _step(counts: PositionCounts, prior: Smoothing, reference: int) -> Step[ExaminationState]:
    """One E and M step, with theta of the reference held at 1 (of none where it is -1).

    P(e=1 | c=0) = theta (1 - gamma) / (1 - theta gamma),
    P(r=1 | c=0) = gamma (1 - theta) / (1 - theta gamma).
    """
    shown, seen = counts.by_position(counts.impressions), counts.by_document(counts.impressions)
    by_condition, by_document = counts.by_position(counts.clicks), counts.by_document(counts.clicks)
    cells = counts.arrays

    def step(state: ExaminationState) -> tuple[ExaminationState, float]:
        relevant = np.empty(counts.n_documents)
        examined, missed = np.zeros((BLOCKS, len(state.theta))), np.zeros(BLOCKS)
        _every_block(BLOCKS, cells, state, examined, relevant, missed)
        # Of clicks, log(theta gamma) is two sums: one by condition, one by document.
        # Not np.dot, whose threads cost more than this sum.
        clicked = np.sum(by_condition * np.log(state.theta)) + np.sum(
            by_document * np.log(state.gamma)
        )
        theta = Smoothing(0.0, 0.5).rate(examined.sum(axis=0), shown)
        if reference >= 0:
            theta[reference] = HIGH
        likelihood = float(missed.sum() + clicked) + prior.log_density(state.gamma)
        return ExaminationState(theta, prior.rate(relevant, seen)), likelihood

    return step


@nb.njit(cache=True)
def _block(
    block: int, cells: Cells, state: ExaminationState, examined: FloatArray, relevant: FloatArray,
    missed: FloatArray,
) -> None:  # fmt: skip
    """Expected examinations and relevance of a block of documents; log-likelihood of non-clicks."""
    n_documents = len(cells.indptr) - 1
    total = 0.0
    for d in range(block * n_documents // BLOCKS, (block + 1) * n_documents // BLOCKS):
        g = state.gamma[d]
        x = 0.0
        for cell in range(cells.indptr[d], cells.indptr[d + 1]):
            k = cells.position[cell] - 1
            t, c = state.theta[k], cells.clicks[cell]
            rest = cells.impressions[cell] - c
            miss = 1.0 - t * g
            share = rest / miss
            examined[block, k] += c + share * t * (1.0 - g)
            x += c + share * g * (1.0 - t)
            if rest > 0:
                total += rest * np.log(miss)
        relevant[d] = x
    missed[block] = total


@parallel_kernel()
def _every_block(
    mine: Share, cells: Cells, state: ExaminationState, examined: FloatArray, *sums: FloatArray
) -> None:
    for block in range(mine[0], mine[1]):
        _block(block, cells, state, examined, *sums)


# (k, k') that are compared with each other in tables of their pairs, of 200 MB each at most. Up to
# 99 positions no log has more.
MOST_CONDITIONS = 5_000
WORST_RESIDUAL = 1e-5  # of all clicks: a score left over that no longer moves the curve


@dataclass(kw_only=True, eq=False, repr=False)
class ExaminationModel(ClickModel):
    """P(click) = theta_i gamma_d: EM on counts, and a curve over positions.

    The log may not be able to tell the curve: asking for `bias_` then raises.
    """

    prior_strength: float | str = "auto"
    level: float = 0.95
    tolerance: float = 1e-3
    max_steps: int = 1000
    examination_: FloatArray = field(init=False)
    prior_strength_: float = field(init=False)
    em_: EMResult[ExaminationState] = field(init=False)
    _bias: PositionBias | IdentifiabilityError = field(init=False)
    assumes: ClassVar[tuple[Fact, ...]]

    @property
    def bias_(self) -> PositionBias:
        """The curve relative to position 1. Raises where the log cannot compare its positions."""
        if isinstance(self._bias, IdentifiabilityError):
            raise NoCurveError(str(self._bias)) from self._bias
        return self._bias

    def _fit_counts(self, counts: PositionCounts, log: ClickLog) -> ExaminationFit:
        """EM on these counts; sets what is learned about documents."""
        fit = fit_examination(
            counts,
            prior_strength=self.prior_strength,
            tolerance=self.tolerance,
            max_steps=self.max_steps,
            what=type(self).__name__,
        )
        relevance = np.full(log.n_documents, fit.prior.mean)
        relevance[counts.document] = fit.em.state.gamma
        self.relevance_ = handed_over(relevance)
        self.prior_mean_, self.prior_strength_ = fit.prior.mean, fit.prior.strength
        self.em_ = fit.em
        return fit

    def _curve(self, curve: ConditionalCurve, *notes: Fact) -> PositionBias:
        """The curve relative to position 1; errors by leaving out queries, or session noise."""
        change, effective = curve.by_query, effective_by_column(curve.weight)
        errors = larger_error(
            change.T @ change, len(change), curve.by_session, effective, curve.click_parts
        )
        end = MAXIMUM if curve.residual <= WORST_RESIDUAL else NO_MAXIMUM
        ended = end(steps=curve.n_steps, residual=curve.residual)
        return from_log_ratios(
            curve.log_mean - curve.log_mean[0],
            errors,
            level=self.level,
            method=type(self).__name__,
            assumes=self.assumes,
            status=joined(ended, errors.rule, *notes),
        )

    def _state(self) -> dict[str, Any]:
        """The curve too, or the reason why it is missing."""
        curve = self._bias
        told = {"no_curve_": str(curve)} if isinstance(curve, Exception) else {"curve_": curve}
        return {**super()._state(), **told}

    def _restore(self, state: dict[str, Any]) -> None:
        told = state.pop("curve_", None) or IdentifiabilityError(state.pop("no_curve_", ""))
        super()._restore(state)
        self._bias = told

    def _marginal(self, lists: Lists) -> FloatArray:
        return self._examination(lists) * self._gamma(lists)

    def _conditional(self, lists: Lists) -> FloatArray:
        return self._examination_given_clicks(lists) * self._gamma(lists)

    def _gamma(self, lists: Lists) -> FloatArray:
        return lists.of_documents(self.relevance_, self.prior_mean_)


@method(
    "click model", "pbm", choose=("run",), title="Position-based model", order=13,
    reference="craswell2008",
    note="each position is examined by itself: P(click) = theta_k gamma",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class PBM(ExaminationModel, IndependentModel):
    r"""The position-based model: P(c = 1) = theta_k gamma_d ([craswell2008]_, [chuklin2015click]_).

    The hypothesis of [richardson2007predicting]_: a click needs examination, which the position
    alone decides, and relevance.

    Fitted by EM on clicks and impressions per (query, document, position), which are sufficient:
    ten million sessions cost what their cells cost. Scale: the most examined position has
    theta = 1, because clicks tell only products.

    Right where looking at a position depends on neither the documents above nor the clicks there.
    `UBM` and `DBN` let go of this; see `compare_click_models`.

    Learned: `examination_` (K,) and `relevance_`, which predict clicks; `bias_` (relative to
    position 1, with intervals), fitted without a prior and without relevance
    (`untilt.clickmodels.examination_curve`); `em_` (history and status); `prior_strength_`.

    Parameters
    ----------
    prior_strength : pseudo impressions of the prior on gamma; 0 turns it off, "auto" learns it from
        the log (`untilt.clickmodels.smoothing`)
    level : of the intervals of `bias_`
    tolerance, max_steps : of `run_em`
    """

    family = "position"
    _shares: ClassVar = {"examination_": ("position",)}
    assumes = (POSITION_BASED,)

    def _learn(self, log: ClickLog) -> None:
        counts = position_counts(log)
        fit = self._fit_counts(counts, log)
        # A position that was never shown has the mean of the others: nothing is known about it.
        unknown = float(np.nanmean(fit.theta))
        theta = np.where(np.isnan(fit.theta), unknown, fit.theta)
        self.examination_ = handed_over(np.where(theta >= HIGH, 1.0, theta))
        page = Packed(absent_positions(log))
        if page.absent:
            counts = position_counts(page.of(log))
        self._bias = self._measured(counts, fit.theta[page.numbers(counts.depth) - 1], page)

    def _measured(
        self, counts: PositionCounts, theta: FloatArray, page: Packed
    ) -> PositionBias | IdentifiabilityError:
        try:
            position_graph(counts).require(counts.depth, "PBM")
        except IdentifiabilityError as error:
            return error
        return numbered_as(self._curve(fit_curve(counts, theta)), page)

    def _examination(self, lists: Lists) -> FloatArray:
        return np.asarray(self.examination_[lists.position - 1])

    def _examination_given_clicks(self, lists: Lists) -> FloatArray:
        return self._examination(lists)


@method(
    "click model", "ubm", choose=("run",), title="User browsing model", order=19,
    reference="dupret2008ubm",
    note="examination depends on the position and on the last click above",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class UBM(ExaminationModel):
    r"""The user browsing model: P(c_k = 1 | clicks above) = theta_{k, k'} gamma_d.

    k' is the position of the last click above k, 0 without one ([dupret2008ubm]_). The
    clicks above are all observed, so given them rows are independent: EM runs on clicks and
    impressions per (query, document, k, k'), the same loop as for `PBM`. Scale: the most examined
    (k, k') has theta = 1.

    P(c_k = 1) without knowing the clicks is a sum over k', from the top down:

        P(last click before k is k') = P(c_k' = 1) prod_{k' < j < k} (1 - theta_{j, k'} gamma_j)

    Learned: `examination_` (K, K), entry [k - 1, k'], NaN where k' >= k; `relevance_`; `em_`;
    `bias_`, the mean examination of each position over the k' of this log, relative to position 1:
    the curve that a position-based method sees. A (k, k') that never occurred has the mean of its
    position.

    Parameters
    ----------
    prior_strength, level, tolerance, max_steps : as in `PBM`
    """

    family = "browsing"
    _shares: ClassVar = {"examination_": ("position", "position")}
    assumes = (EXAMINED_BY_LAST_CLICK,)

    def _learn(self, log: ClickLog) -> None:
        condition = condition_of(log.position, last_click(log.indptr, log.position, log.label))
        n_conditions = log.depth * (log.depth + 1) // 2
        used = np.arange(1, n_conditions + 1)
        if n_conditions > MOST_CONDITIONS:  # of 500,500 at 1,000 positions few occur
            used = np.unique(condition)
        number = np.searchsorted(used, condition) + 1
        counts = position_counts(log, position=number.astype(np.int32), depth=len(used))
        fit = self._fit_counts(counts, log)
        theta, shown = np.full(n_conditions, np.nan), np.zeros(n_conditions)
        theta[used - 1], shown[used - 1] = fit.theta, counts.by_position(counts.impressions)
        self.examination_ = handed_over(_as_table(theta, shown, log.depth))
        position = np.repeat(np.arange(log.depth), np.arange(1, log.depth + 1))[used - 1]
        page = Packed(absent_positions(log))
        self._bias = self._measured(counts, fit, page.place(position + 1) - 1, page)

    def _measured(
        self, counts: PositionCounts, fit: ExaminationFit, position: IntArray, page: Packed
    ) -> PositionBias | IdentifiabilityError:
        """theta_k = sum_k' n_{k,k'} theta_{k,k'} / n_k over those that can be compared.

        `position` (conditions,) is the index of the position k of each, -1 where it is left out.
        """
        use, depth = comparable(counts) & (position >= 0), int(position.max()) + 1
        shown, position = counts.by_position(counts.impressions) * use, np.maximum(position, 0)
        per_position = sum_by(position, shown, depth)
        clicks = sum_by(position, np.where(shown > 0, counts.by_position(counts.clicks), 0), depth)
        if np.any(clicks == 0):
            return _not_comparable(int(np.argmin(clicks > 0)) + 1)
        fitted = int(np.sum((shown > 0) & (counts.by_position(counts.clicks) > 0)))
        if fitted > MOST_CONDITIONS:
            return _too_many(fitted)
        share = csr_array(
            (shown / per_position[position], (position, np.arange(counts.depth))),
            shape=(depth, counts.depth),
        )
        left_out = 1 - shown.sum() / counts.impressions.sum()
        notes = [NOT_COMPARABLE(share=left_out)] if left_out > 0 else []
        return numbered_as(self._curve(fit_curve(counts, fit.theta, share), *notes), page)

    def _examination(self, lists: Lists) -> FloatArray:
        return _examined(lists.indptr, lists.position, self._gamma(lists), self.examination_)

    def _examination_given_clicks(self, lists: Lists) -> FloatArray:
        last = last_click(lists.indptr, lists.position, lists.click)
        return np.asarray(self.examination_[lists.position - 1, last])

    def _draw(self, lists: Lists, uniform: FloatArray) -> AnyArray:
        gamma = self._gamma(lists)
        return _draw(lists.indptr, lists.position, gamma, self.examination_, uniform[:, 0].copy())


def condition_of(position: IntArray, last: IntArray) -> IntArray:
    """1-based number of (k, k') with 0 <= k' < k: k (k - 1) / 2 + k' + 1, each its own."""
    k = position.astype(np.int64)
    return k * (k - 1) // 2 + last + 1


def _as_table(theta: FloatArray, shown: FloatArray, depth: int) -> FloatArray:
    """(K, K) with the mean of its position where (k, k') was never seen."""
    known = ~np.isnan(theta)
    overall = float(np.average(theta[known], weights=shown[known]))
    table = np.full((depth, depth), np.nan)
    for k in range(1, depth + 1):
        mine = slice(k * (k - 1) // 2, k * (k + 1) // 2)
        row, seen = theta[mine], known[mine]
        mean = float(np.average(row[seen], weights=shown[mine][seen])) if seen.any() else overall
        table[k - 1, :k] = np.where(seen, row, mean)
    return np.where(table >= HIGH, 1.0, table)


def _too_many(found: int) -> IdentifiabilityError:
    return IdentifiabilityError(
        phrase(
            "UBM compares {found:,} pairs of a position and the last click above it, and its curve "
            "takes at most {most:,}. Cut the log with ⟦log.top(100)|--depth 100⟧, or use PBM, "
            "which has one number for each position.",
            found=found,
            most=MOST_CONDITIONS,
        )
    )


def _not_comparable(position: int) -> IdentifiabilityError:
    return IdentifiabilityError(
        phrase(
            "examination at position {k} cannot be compared with position 1: no clicked document "
            "connects them. Cut the log with ⟦log.top({above})|--depth {above}⟧, or swap "
            "documents between the two positions now and then.",
            k=position,
            above=position - 1,
        )
        if position > 1
        else "position 1 was never clicked, so no other can be compared with it."
    )


def last_click(indptr: IntArray, position: IntArray, click: FloatArray) -> IntArray:
    """(rows,) position of the last click above each row, 0 without one."""
    clicked = np.where(click > 0, np.arange(len(click)), -1)
    above = np.append(-1, np.maximum.accumulate(clicked))[:-1]
    inside = above >= indptr[:-1][ragged.list_of_row(indptr)]
    return np.where(inside, position[above], 0).astype(np.int64)


@nb.njit(cache=True)
def _examined(
    indptr: IntArray, position: IntArray, gamma: FloatArray, theta: FloatArray
) -> FloatArray:
    probability = np.zeros(len(position))
    for i in range(len(indptr) - 1):
        # reach[k'] = P(the last click so far is k')
        reach = np.zeros(len(theta) + 1)
        reach[0] = 1.0
        for row in range(indptr[i], indptr[i + 1]):
            k = position[row]
            examined = 0.0
            for last in range(k):
                here = reach[last] * theta[k - 1, last]
                examined += here
                reach[last] -= here * gamma[row]
            reach[k] = examined * gamma[row]
            probability[row] = examined
    return probability


@nb.njit(cache=True)
def _draw(
    indptr: IntArray, position: IntArray, gamma: FloatArray, theta: FloatArray, uniform: FloatArray
) -> AnyArray:
    click = np.zeros(len(position), dtype=np.uint8)
    for i in range(len(indptr) - 1):
        last = 0
        for row in range(indptr[i], indptr[i + 1]):
            if uniform[row] < theta[position[row] - 1, last] * gamma[row]:
                click[row] = 1
                last = position[row]
    return click
