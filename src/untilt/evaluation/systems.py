"""The systems of an evaluation: rankers, score arrays, or the order that was shown."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from untilt._core.arrays import FloatArray, sum_by
from untilt._core.progress import progress
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, ShapeError
from untilt.evaluation.evaluators import POOLS_DOCUMENTS, Credit
from untilt.evaluation.pool import Pool, system_sums
from untilt.evaluation.rank_metric import RankMetric
from untilt.evaluation.uncertainty import Sums

AT_A_TIME = 32  # systems whose scores are held at once
TOP = 10  # places looked at for documents that nobody was shown, where the metric has no cut


class Shown:
    """The type of `shown`: the order that the log itself showed, list by list."""

    def __repr__(self) -> str:
        return "shown"

    def __reduce__(self) -> str:
        return "shown"


shown: Final = Shown()


def named_systems(systems: Any) -> dict[str, Any]:
    """Systems by name; one alone is called "system", or "shown"."""
    if isinstance(systems, Mapping):
        named = {str(name): system for name, system in systems.items()}
    else:
        named = {"shown" if isinstance(systems, Shown) else "system": systems}
    if not named:
        raise OptionError("no system to evaluate. Give at least one, such as {'new': ranker}.")
    return named


def scores_of(system: Any, log: ClickLog, pool: Pool, name: str) -> FloatArray:
    """(pool documents,) scores of a ranker, or of an array with one score per log document."""
    if hasattr(system, "predict"):
        if log.features is None:
            raise OptionError(
                f"system {name!r} scores features, and this log has none. Read it with its "
                "documents table, or give an array with one score per document of the log."
            )
        scores = np.asarray(system.predict(log.features[pool.document]), dtype=float)
        expected = len(pool.document)
    else:
        try:
            given = np.asarray(system, dtype=float)
        except (TypeError, ValueError):
            raise OptionError(_no_system(system, name)) from None
        if given.ndim != 1:
            raise OptionError(_no_system(system, name))
        expected, scores = log.n_documents, given
    if scores.shape != (expected,):
        raise ShapeError(
            f"system {name!r} must give {expected:,} scores, one per document of the log. "
            f"Got shape {scores.shape} instead."
        )
    scores = scores if hasattr(system, "predict") else scores[pool.document]
    if np.isnan(scores).any():
        raise OptionError(
            f"system {name!r} gives NaN for {int(np.isnan(scores).sum()):,} documents. Use -inf "
            "for a document that should come last."
        )
    return scores


def _no_system(system: Any, name: str) -> str:
    return (
        f"system {name!r} must be a ranker with predict(features), an array with one score per "
        f"document of the log, or ut.shown. Got {type(system).__name__} instead."
    )


def sums_of_systems(
    log: ClickLog,
    pool: Pool,
    systems: Mapping[str, Any],
    credit: Credit,
    metric: RankMetric,
    method: str,
    covariance: FloatArray | None,
) -> tuple[Sums, FloatArray]:
    """Totals of all systems, and the share of top places that each gives to unshown documents."""
    weights = metric.weights(max(int(np.diff(pool.indptr).max()), pool.depth))
    total = np.zeros((pool.n_queries, len(systems)))
    unshown = np.zeros((pool.n_queries, len(systems)))
    slope = np.zeros((len(systems), pool.depth))
    for index, part in _ranked(log, pool, systems):
        total[:, index], slope[index], unshown[:, index] = system_sums(
            part,
            pool,
            _credit_by_document(pool, credit),
            np.empty(0) if covariance is None else credit.slope,
            weights,
            TOP if metric.cut is None else metric.cut,
        )
    for place, system in enumerate(systems.values()):
        if isinstance(system, Shown):
            total[:, place], slope[place] = _shown_sums(pool, credit, weights, method)
    norm, norm_slope = pool.sessions, np.zeros(pool.depth, dtype=float)
    if credit.norm is not None and credit.norm_slope is not None:
        norm = pool.by_query(pool.by_document(credit.norm))
        norm_slope[:] = sum_by(pool.position - 1, credit.norm_slope, pool.depth)
    share = pool.sessions @ unshown / pool.n_sessions
    return Sums(total, norm, slope, norm_slope, covariance), share


def _ranked(
    log: ClickLog, pool: Pool, systems: Mapping[str, Any]
) -> Iterator[tuple[list[int], FloatArray]]:
    """Systems with scores, some at a time: their places among all, and (systems, documents)."""
    scored = [i for i, system in enumerate(systems.values()) if not isinstance(system, Shown)]
    names, every = list(systems), list(systems.values())
    with progress("ranking", total=len(scored)) as advance:
        for begin in range(0, len(scored), AT_A_TIME):
            index = scored[begin : begin + AT_A_TIME]
            part = np.empty((len(index), len(pool.document)))
            for row, i in enumerate(index):
                part[row] = scores_of(every[i], log, pool, names[i])
            yield index, part
            advance(len(index))


def _credit_by_document(pool: Pool, credit: Credit) -> FloatArray:
    total = pool.by_document(credit.cell)
    if credit.document is None:
        return total
    return total + credit.document * pool.sessions[pool.query_of_document]


def _shown_sums(
    pool: Pool, credit: Credit, weights: FloatArray, method: str
) -> tuple[FloatArray, FloatArray]:
    """The logged order: each session's own positions are the ranks."""
    at = shown_discounts(pool, weights, method)
    documents = pool.by_document(credit.cell * at)
    if credit.document is not None:
        mean = _mean_discounts(pool, weights)
        documents = documents + mean * credit.document * pool.sessions[pool.query_of_document]
    return pool.by_query(documents), sum_by(pool.position - 1, credit.slope * at, pool.depth)


def shown_discounts(pool: Pool, weights: FloatArray, method: str) -> FloatArray:
    """(cells,) the discount of the logged order: that of the position.

    Where a method pools a document's clicks over positions, its discount is the mean over the
    query's sessions, sum_k n_dk lambda(k) / N_q.
    """
    if method not in POOLS_DOCUMENTS:
        return weights[pool.position - 1]
    return _mean_discounts(pool, weights)[pool.document_of_cell]


def _mean_discounts(pool: Pool, weights: FloatArray) -> FloatArray:
    at = pool.impressions * weights[pool.position - 1]
    return pool.by_document(at) / pool.sessions[pool.query_of_document]
