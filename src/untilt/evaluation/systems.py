"""The systems of an evaluation (rankers, score arrays, the shown order) and their sums."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from untilt._core.arrays import FloatArray
from untilt._core.progress import progress
from untilt.errors import OptionError
from untilt.evaluation.judged import Predicts
from untilt.evaluation.pool import Credit, Pool, scores_of
from untilt.evaluation.rank_metric import RankMetric
from untilt.evaluation.slots import Discounts, slots_of
from untilt.evaluation.uncertainty import Sums


class Shown:
    """The type of `shown`: the order that the log itself showed, list by list."""

    def __repr__(self) -> str:
        return "shown"

    def __reduce__(self) -> str:
        return "shown"


shown: Final = Shown()
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


def sums_of_systems(
    pool: Pool,
    systems: Mapping[str, System],
    credit: Credit,
    metric: RankMetric,
    covariance: FloatArray | None,
) -> tuple[Sums, FloatArray]:
    """Totals of all systems, and the share of top ranks that each gives to unshown documents.

    The logged order goes through the very same sums as every system.
    """
    slots = slots_of(pool, metric)
    total = np.zeros((pool.n_queries, len(systems)))
    unshown = np.zeros(len(systems))
    slope = np.zeros((len(systems), pool.depth))
    with progress("ranking", total=len(systems)) as advance:
        for i, (name, system) in enumerate(systems.items()):
            scores = system_scores(system, pool, name)
            at = slots.discounts(scores)
            total[:, i] = query_totals(pool, credit, at)
            if covariance is not None:
                slope[i] = pool.by_position(credit.slope * at.cell)
            unshown[i] = slots.unshown_share(scores)
            advance()
    norm, norm_slope = pool.sessions, np.zeros(pool.depth)
    if credit.self_normalised:
        norm = pool.by_query(pool.by_document(credit.cell))
        norm_slope = pool.by_position(credit.slope)
    return Sums(total, norm, slope, norm_slope, covariance), unshown


def system_scores(system: System, pool: Pool, name: str) -> FloatArray | None:
    """(pool documents,) scores; None for the logged order."""
    return None if isinstance(system, Shown) else scores_of(system, pool, name)


def query_totals(pool: Pool, credit: Credit, at: Discounts) -> FloatArray:
    """(queries,) sum over documents of discount times credit."""
    by_document = pool.by_document(credit.cell * at.cell)
    if credit.document is not None:
        by_document = by_document + at.document * credit.document * pool.ordered
    return pool.by_query(by_document)
