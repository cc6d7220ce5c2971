"""The systems of an evaluation (rankers, score arrays, the shown order) and their sums.

**People who come back.**
Errors are clustered by query. Where the log says whose session each is, what sessions of one person
on *different* queries have in common is added, which is clustering both ways: `two_way_variance`.
People who click more than others move the values of all rankings alike, and hardly their
differences: without the column values were held by .88 instead of .95 of the intervals, with ten
sessions per person (docs/evidence.md).

**A curve with bounded levels.**
A curve of `AllPairs(unjoined="bounds")` leaves levels u of some parts of its positions open within
bounds (`untilt.bias.curve`). A document is shown within one part alone, else it would join
two, so what it counts is proportional to x_p = e^{-u_p} of its part, and a value or a difference is
sum_p A_p x_p. Its extremes over the bounds are corners of a linear program. A clip, self-normalised
weights or documents of other sessions that do join parts bend it: then the program is solved again
with the derivatives at the corner found, from several starts, until nothing is gained, and levels
are tried one by one along their range.

The interval runs from the lower end of the interval at the least value to the upper end of that at
the greatest: within the bounds nothing is known, beyond them chance is what it always is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.portable import Portable
from untilt._core.progress import progress
from untilt._core.statistics import effective_units, left_out
from untilt.bias.curve import PositionBias
from untilt.bias.experiments.assignment import Baseline
from untilt.bias.given import BiasLike
from untilt.data.counts import cell_of_rows
from untilt.data.slates import slates_of
from untilt.errors import OptionError
from untilt.evaluation.judged import Predicts
from untilt.evaluation.pool import Credit, Evaluator, Pool, bias_for, cells_for, pool_of, scores_of
from untilt.evaluation.slots import (
    Discounts,
    MetricLike,
    RankMetric,
    Slots,
    as_rank_metric,
    slots_of,
    under_belief,
)
from untilt.evaluation.uncertainty import Sums, SumsOfPeople, covariance_of, curve_degrees
from untilt.evaluation.unshown import Worth


class LoggedOrder:
    """The type of `shown`: the order that the log itself showed, list by list."""

    def __repr__(self) -> str:
        return "shown"

    def __reduce__(self) -> str:
        return "shown"


shown: Final = LoggedOrder()
NOTHING: Final = ""  # the name of a system that shows nothing
System = LoggedOrder | Predicts | npt.ArrayLike
Systems = System | Mapping[str, System]


def judged_by(
    evaluator: Evaluator, pool: Pool, bias: BiasLike | None, metric: MetricLike
) -> tuple[Pool, PositionBias, RankMetric]:
    """The cells, the curve and the metric that an evaluator judges with."""
    cells, curve = cells_for(evaluator, pool), bias_for(evaluator, bias, pool.depth)
    return cells, curve, as_rank_metric(metric, curve)


def named_systems(systems: Systems) -> dict[str, System]:
    """Systems by name; one alone is called "system", or "shown"."""
    if isinstance(systems, Mapping):
        named = {str(name): system for name, system in systems.items()}
    else:
        named = {"shown" if isinstance(systems, LoggedOrder) else "system": systems}
    if not named:
        raise OptionError("no system to evaluate. Give at least one, such as {'new': ranker}.")
    return named


@dataclass(frozen=True, eq=False)
class Inputs(Portable):
    """What systems were valued from: enough to value them again under another curve.

    Parameters
    ----------
    cells : the pool, with the cells that the evaluator gives credit to
    discounts : system -> lambda at the cells
    scores : system -> (documents of the pool,) scores, None for the logged order
    baseline : the sessions to improve, as they were asked for
    worth : the belief about candidates that nobody was shown, where there is one
    """

    cells: Pool
    discounts: Mapping[str, Discounts]
    scores: Mapping[str, FloatArray | None]
    evaluator: Evaluator
    bias: PositionBias
    metric: RankMetric
    baseline: Baseline = None
    worth: Worth | None = None

    def sums(
        self,
        systems: Iterable[str],
        *,
        bias: PositionBias | None = None,
        evaluator: Evaluator | None = None,
        clicks: FloatArray | None = None,
    ) -> Sums:
        """Totals of some systems, had the curve, evaluator or (cells,) clicks been others.

        `NOTHING` is a system that shows nothing, of value 0.
        """
        by, curve = evaluator or self.evaluator, bias or self.bias
        cells = self.cells if clicks is None else replace(self.cells, clicks=clicks)
        zero = Discounts(np.zeros(len(cells.clicks)), np.zeros(len(cells.document)))
        ordered = [self.discounts.get(name, zero) for name in systems]
        used = curve if by.needs_bias else None
        return sums_of_discounts(cells, ordered, by.credit(cells, curve), used)

    def on(self, lists: BoolArray | None = None, *, by: Evaluator | None = None) -> "Inputs":
        """The same systems on some of the log's lists alone, or by another evaluator."""
        log, whole, by = self.cells.log, self.cells, by or self.evaluator
        systems: dict[str, System] = {}
        for name, scores in self.scores.items():
            if scores is None:
                systems[name] = shown
                continue
            of_log = np.full(log.n_documents, -np.inf)
            of_log[whole.document] = scores
            systems[name] = of_log
        log = log if lists is None else log.take(lists)
        cells = cells_for(by, pool_of(log, whole.among, self.baseline))
        discounts, scored = ordered_systems(cells, systems, self.metric)
        if self.worth is not None:
            discounts = believed(slots_of(cells, self.metric), scored, discounts, self.worth)
        return replace(self, cells=cells, discounts=discounts, scores=scored, evaluator=by)


def ordered_systems(
    pool: Pool, systems: Mapping[str, System], metric: RankMetric
) -> tuple[dict[str, Discounts], dict[str, FloatArray | None]]:
    """Discounts and scores of each."""
    slots = slots_of(pool, metric)
    discounts, scores = {}, {}
    with progress("ranking", total=len(systems)) as advance:
        for name, system in systems.items():
            scores[name] = system_scores(system, pool, name)
            discounts[name] = slots.discounts(scores[name])
            advance()
    return discounts, scores


def believed(
    slots: Slots,
    scores: Mapping[str, FloatArray | None],
    discounts: Mapping[str, Discounts],
    worth: Worth,
) -> dict[str, Discounts]:
    """The discounts of each system under a belief about candidates that nobody was shown."""
    return {name: under_belief(slots, scores[name], at, worth) for name, at in discounts.items()}


def sums_of_discounts(
    pool: Pool, discounts: Sequence[Discounts], credit: Credit, bias: PositionBias | None
) -> Sums:
    """Totals of all systems. The logged order goes through the very same sums as every system.

    Without a bias its errors do not count.
    """
    covariance = None if bias is None else covariance_of(bias, pool.depth)
    total = np.zeros((pool.n_queries, len(discounts)))
    slope = np.zeros((len(discounts), pool.depth))
    for i, at in enumerate(discounts):
        total[:, i] = query_totals(pool, credit, at)
        if covariance is not None:
            slope[i] = pool.by_position(credit.slope * at.cell)
    norm, norm_slope = pool.sessions, np.zeros(pool.depth)
    if credit.self_normalised:
        norm = pool.by_query(pool.by_document(credit.cell))
        norm_slope = pool.by_position(credit.slope)
    degrees = None if bias is None else curve_degrees(bias, pool.depth)
    people = sums_of_people(pool, credit, discounts)
    return Sums(total, norm, slope, norm_slope, covariance, degrees, people)


def system_scores(system: System, pool: Pool, name: str) -> FloatArray | None:
    """(pool documents,) scores; None for the logged order."""
    return None if isinstance(system, LoggedOrder) else scores_of(system, pool, name)


def query_totals(pool: Pool, credit: Credit, at: Discounts) -> FloatArray:
    """(queries,) sum over documents of discount times credit."""
    by_document = pool.by_document(credit.cell * at.cell)
    if credit.document is not None:
        by_document = by_document + at.document * credit.document * pool.ordered
    total = pool.by_query(by_document)
    return total if credit.mass is None else _per_mass(pool, total, credit.mass, at)


def _per_mass(pool: Pool, total: FloatArray, mass: FloatArray, at: Discounts) -> FloatArray:
    """(queries,) t_q with sum_q t_q = R L, R = sum_q T_q / M, and the influence of queries on R L.

    M_q is the total had all impressions been clicked, L_q what it is expected to be, lambda summed
    over the slots; t_q = R L_q + (T_q - R M_q) L / M.
    """
    credits = (mass * at.cell, pool.impressions * at.slot)
    found, hoped = (pool.by_query(pool.by_document(each)) for each in credits)
    whole = max(found.sum(), 1e-300)
    ratio = total.sum() / whole
    return np.asarray(ratio * hoped + (total - ratio * found) * hoped.sum() / whole)


def sums_of_people(
    pool: Pool, credit: Credit, discounts: Sequence[Discounts]
) -> SumsOfPeople | None:
    """What leaving each person out does to the values; None where none are known."""
    if pool.people is None:
        return None
    log, (in_baseline, person, both) = pool.log, pool.people
    lists = ragged.list_of_row(log.indptr)
    cell = _cell_of_row(pool, in_baseline)
    inside = cell >= 0
    at, owner = cell[inside], lists[inside]
    # A click counts its weight; what else a cell is credited with is shared by its impressions.
    shown = np.maximum(pool.impressions, 1e-300)
    apart = np.where(pool.impressions > 0, (credit.cell - pool.clicks * credit.weight) / shown, 0.0)
    row = log.row_count[inside] * (log.label[inside] * credit.weight[at] + apart[at])
    sessions = np.where(in_baseline, log.sessions, 0).astype(float)
    norm = sum_by(owner, row, log.n_lists) if credit.self_normalised else sessions
    total = np.empty((log.n_lists, len(discounts)))
    for i, each in enumerate(discounts):
        total[:, i] = sum_by(owner, row * each.cell[at], log.n_lists)
        if credit.document is not None:
            total[:, i] += sessions * _model_per_session(pool, credit.document, each)[log.query]
    whole = norm.sum()
    influence = (total - total.sum(axis=0) / whole * norm[:, None]) / whole
    by_person, by_both = (
        np.column_stack([left_out(unit, each, norm / whole) for each in influence.T])
        for unit in (person, both)
    )
    effective = effective_units(sum_by(person, norm))
    return SumsOfPeople(by_person.T @ by_person, by_both.T @ by_both, effective)


def _model_per_session(pool: Pool, relevance: FloatArray, at: Discounts) -> FloatArray:
    """(queries of the log,) what a relevance model adds to each session of the baseline."""
    of_query = pool.by_query(at.document * relevance * pool.ordered) / pool.sessions
    answered = np.unique(pool.query)
    per_session = np.zeros(pool.log.n_queries)
    per_session[answered] = of_query
    return per_session


def _cell_of_row(pool: Pool, in_baseline: BoolArray) -> IntArray:
    """(rows of the log,) the cell of the pool that each row is counted in, -1 for none."""
    log = pool.log
    if pool.cell_row is None:
        return cell_of_rows(log, pool.document[pool.document_index], pool.position)
    cell_of = np.empty(len(pool.cell_row), dtype=np.int64)
    cell_of[pool.cell_row] = np.arange(len(pool.cell_row))
    cell = np.full(len(log.position), -1)
    of_baseline = in_baseline[ragged.list_of_row(log.indptr)]
    part = log if in_baseline.all() else log.take(in_baseline)
    cell[of_baseline] = cell_of[slates_of(part)[1]]
    return cell


ROUNDS = 6  # of solving the program again
LEVEL_STEPS = 17  # levels tried along the range of a part where values are bent


def extreme_curves(
    inputs: Inputs, combination: Mapping[str, float]
) -> tuple[PositionBias | None, PositionBias | None]:
    """The curves at which sum_s c_s V_s is least and greatest; None where it has no bound.

    `combination` is system -> c: 1 for a value, 1 and -1 for a difference.
    """
    return _end(inputs, combination, 1.0), _end(inputs, combination, -1.0)


def _end(inputs: Inputs, combination: Mapping[str, float], sign: float) -> PositionBias | None:
    """The curve at which sign times the sum is least."""
    bounds = inputs.bias.bounds
    assert bounds is not None
    low, high = bounds.hull
    best, best_value, bent = np.zeros(len(low)), np.inf, False
    for start in (np.zeros(len(low)), high, np.where(np.isfinite(low), low, high - np.log(10))):
        here, value = start, sign * _value(inputs, combination, start)
        reached = np.inf
        for _ in range(ROUNDS):
            slope = sign * _slope(inputs, combination, here)
            there = bounds.least(slope)
            found = sign * _value(inputs, combination, there)
            straight = value + slope @ (np.exp(-there) - np.exp(-here))
            bent |= abs(found - straight) > 1e-6 * (abs(found) + abs(value))
            if not found < reached - 1e-9 * abs(found):
                break
            here, value, reached = there, found, found
        if reached < best_value:
            best, best_value = here, reached
        if not bent:
            break  # a straight line has one least corner, whatever the start
    if bounds.is_open(best):
        return None
    if bent:
        best = _polished(inputs, combination, sign, best, best_value)
    return at_levels(inputs.bias, best)


def _polished(
    inputs: Inputs, combination: Mapping[str, float], sign: float, levels: FloatArray, value: float
) -> FloatArray:
    """One level at a time along its range, the others held: a clip has its extremes anywhere."""
    assert inputs.bias.bounds is not None
    most = inputs.bias.bounds.most
    best = levels.copy()
    for _ in range(ROUNDS):
        before = value
        for p in range(1, len(best)):
            others = np.arange(len(best)) != p
            low, high = np.max((best - most[p])[others]), np.min((best + most[:, p])[others])
            for level in np.linspace(low, high, LEVEL_STEPS).tolist() if np.isfinite(low) else ():
                tried = best.copy()
                tried[p] = level
                found = sign * _value(inputs, combination, tried)
                if found < value:
                    best, value = tried, found
        if not value < before - 1e-6 * abs(before):
            break
    return best


def at_levels(bias: PositionBias, levels: FloatArray) -> PositionBias:
    """The curve with its parts at these levels u, which are then taken as known."""
    assert bias.bounds is not None
    return replace(bias.scaled(np.exp(levels)[bias.bounds.part]), bounds=None)


def _value(inputs: Inputs, combination: Mapping[str, float], levels: FloatArray) -> float:
    sums = inputs.sums(combination, bias=at_levels(inputs.bias, levels))
    return float(_weights(combination) @ sums.value)


def _slope(inputs: Inputs, combination: Mapping[str, float], levels: FloatArray) -> FloatArray:
    """(P,) derivatives by x_p = e^{-u_p}: -sum over the part of theta_k dV/dtheta_k, over x_p."""
    bias = at_levels(inputs.bias, levels)
    sums = inputs.sums(combination, bias=bias)
    by_theta = _weights(combination) @ sums.gradient
    n = min(len(by_theta), bias.depth)
    assert inputs.bias.bounds is not None
    part = inputs.bias.bounds.part[:n]
    by_level = sum_by(part, by_theta[:n] * bias.examination[:n], len(levels))
    return -by_level * np.exp(levels)


def _weights(combination: Mapping[str, float]) -> FloatArray:
    return np.array(list(combination.values()))
