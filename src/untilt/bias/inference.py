"""Standard errors of estimators that compare positions pair by pair.

All of them solve J z = b, with z the log-ratios of examination and J the Laplacian of a graph over
positions: z is a potential, and each pair of positions a wire. So the covariance is the sandwich
J^-1 M J^-1, where M sums what each independent unit contributes to b.
"""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.cells import Cells
from untilt.bias.pair_sums import scores_by_query, scores_by_session

# With fewer queries their spread says too little: of 10 queries it is a third too small once in
# eleven times (chi-square with 9 degrees of freedom), of 20 once in fifty.
FEWEST_QUERIES = 20


@dataclass(frozen=True, eq=False)
class Doubt:
    """(K, K) covariance of the log-ratios, degrees of freedom of it, and the rule behind it."""

    covariance: FloatArray
    degrees_of_freedom: float
    rule: str


@dataclass(frozen=True, eq=False)
class Flows:
    """How pairs of positions push the potentials; see `pair_sums.scores_by_query`.

    conductance : (K, K) weights of J's wires; gain, offset : (K, K)
    """

    conductance: FloatArray
    gain: FloatArray
    offset: FloatArray


def potentials(conductance: FloatArray, push: FloatArray) -> FloatArray:
    """z with J z = push and z_1 = 0, push one or several columns."""
    z = np.zeros_like(push, dtype=np.float64)
    z[1:] = np.linalg.solve(_grounded(conductance), push[1:])
    return z


def sandwich(conductance: FloatArray, M: FloatArray) -> FloatArray:
    """J^-1 M J^-1 with z_1 = 0 held fixed."""
    inverse = np.linalg.inv(_grounded(conductance))
    covariance = np.zeros_like(M)
    covariance[1:, 1:] = inverse @ M[1:, 1:] @ inverse
    return covariance


def doubt_of_pairs(cells: Cells, weight: str, flows: Flows, theta: FloatArray) -> Doubt:
    """Clustered by query; with few queries, from the noise of sessions alone."""
    M, n = scores_by_query(cells, weight, flows.gain, flows.offset)
    if n >= FEWEST_QUERIES:
        return clustered(sandwich(flows.conductance, M), n)
    M = scores_by_session(cells, weight, flows.gain, theta)
    return Doubt(sandwich(flows.conductance, M), np.inf, few_queries(n))


def clustered(covariance: FloatArray, n_queries: int) -> Doubt:
    """The covariance of a sum over n independent queries, with the usual n / (n - 1)."""
    return Doubt(
        covariance * n_queries / (n_queries - 1),
        n_queries - 1,
        f"errors clustered by query, {n_queries:,} queries",
    )


def few_queries(n_queries: int) -> str:
    """The rule used below `FEWEST_QUERIES`."""
    noun = "query" if n_queries == 1 else "queries"
    return f"errors from session noise alone: {n_queries} {noun} are too few to cluster by"


def _grounded(conductance: FloatArray) -> FloatArray:
    return (np.diag(conductance.sum(axis=1)) - conductance)[1:, 1:]
