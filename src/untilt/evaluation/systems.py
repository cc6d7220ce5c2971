"""The systems of an evaluation (rankers, score arrays, the shown order) and their sums."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from untilt._core.arrays import BoolArray, FloatArray
from untilt._core.portable import Portable
from untilt._core.progress import progress
from untilt.bias.curve import PositionBias
from untilt.bias.experiments.assignment import Baseline
from untilt.errors import OptionError
from untilt.evaluation.all_candidates import under_belief
from untilt.evaluation.judged import Predicts
from untilt.evaluation.people import covariance_of_people
from untilt.evaluation.pool import Credit, Evaluator, Pool, cells_for, pool_of, scores_of
from untilt.evaluation.rank_metric import RankMetric
from untilt.evaluation.slots import Discounts, Slots, slots_of
from untilt.evaluation.uncertainty import Sums, covariance_of, curve_degrees
from untilt.evaluation.unshown import Worth


class Shown:
    """The type of `shown`: the order that the log itself showed, list by list."""

    def __repr__(self) -> str:
        return "shown"

    def __reduce__(self) -> str:
        return "shown"


shown: Final = Shown()
NOTHING: Final = ""  # the name of a system that shows nothing
System = Shown | Predicts | npt.ArrayLike
Systems = System | Mapping[str, System]


def named_systems(systems: Systems) -> dict[str, System]:
    """Systems by name; one alone is called "system", or "shown"."""
    if isinstance(systems, Mapping):
        named = {str(name): system for name, system in systems.items()}
    else:
        named = {"shown" if isinstance(systems, Shown) else "system": systems}
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

    def on(self, lists: BoolArray) -> "Inputs":
        """The same systems on some of the log's lists alone."""
        log, whole = self.cells.log, self.cells
        systems: dict[str, System] = {}
        for name, scores in self.scores.items():
            if scores is None:
                systems[name] = shown
                continue
            of_log = np.full(log.n_documents, -np.inf)
            of_log[whole.document] = scores
            systems[name] = of_log
        cells = cells_for(self.evaluator, pool_of(log.take(lists), whole.among, self.baseline))
        discounts, scored = ordered_systems(cells, systems, self.metric)
        if self.worth is not None:
            discounts = believed(slots_of(cells, self.metric), scored, discounts, self.worth)
        return replace(self, cells=cells, discounts=discounts, scores=scored)


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
    degrees = np.inf if bias is None else curve_degrees(bias)
    people = covariance_of_people(pool, credit, discounts)
    return Sums(total, norm, slope, norm_slope, covariance, degrees, people)


def system_scores(system: System, pool: Pool, name: str) -> FloatArray | None:
    """(pool documents,) scores; None for the logged order."""
    return None if isinstance(system, Shown) else scores_of(system, pool, name)


def query_totals(pool: Pool, credit: Credit, at: Discounts) -> FloatArray:
    """(queries,) sum over documents of discount times credit."""
    by_document = pool.by_document(credit.cell * at.cell)
    if credit.document is not None:
        by_document = by_document + at.document * credit.document * pool.ordered
    return pool.by_query(by_document)
