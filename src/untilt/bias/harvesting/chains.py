"""Position bias from ratios along a tree of position pairs: neighbours, or all against a pivot.

Several rankers share the traffic, or ranks vary by themselves from day to day: then the same
document of the same query is shown at several positions, and its clicks there differ by examination
alone [agarwal2019estimating]_. No list has to be changed for it.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.curve import PositionBias
from untilt.bias.estimator import BiasEstimator
from untilt.bias.harvesting import pairs
from untilt.bias.harvesting.pairs import PairEquations, PairSums
from untilt.bias.log_ratios import from_log_ratios
from untilt.bias.position_graph import position_graph
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts
from untilt.errors import IdentifiabilityError, OptionError
from untilt.facts import Fact, joined


@method(
    "bias", "adjacent-chain", title="Chain of neighbours", order=20,
    rests_on="repeated positions", takes=("depth",), reference="agarwal2019estimating",
    note="documents seen at neighbouring positions; their ratios are multiplied",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class AdjacentChain(BiasEstimator):
    r"""Ratios of neighbouring positions, multiplied up.

        theta_k / theta_{k-1} = C[k, k-1] / C[k-1, k],   theta_k / theta_1 = product of these

    with C[k, l] the weighted clicks at k of documents shown at both k and l (see `pair_sums`).
    Simple and local, but errors add up along the chain, and each neighbouring pair needs documents
    of its own; `AllPairs` uses every pair.

    Parameters
    ----------
    weight : "session" or "document"; see `AllPairs`
    depth : positions 1..depth; all of the log where not given
    level : of the intervals
    """

    weight: str = "session"
    depth: int | None = None
    level: float = 0.95

    def _estimate(self, log: ClickLog) -> PositionBias:
        cells = pairs.counts_of_pairs(log, self.depth)
        edges = [(k, k + 1) for k in range(1, cells.depth)]
        return tree_bias(cells, edges, self.weight, method="AdjacentChain", level=self.level)


@method(
    "bias", "pivot", title="Pivot position", order=21, rests_on="repeated positions",
    takes=("pivot", "depth"), reference="agarwal2019estimating",
    note="documents seen both at a position and at the pivot",
)  # fmt: skip
@dataclass(eq=False, repr=False)
class Pivot(BiasEstimator):
    r"""Every position against one pivot.

        theta_k / theta_pivot = C[k, pivot] / C[pivot, k],  then relative to position 1

    Right where one position shares documents with all others, as in logs of pivot swaps.

    Parameters
    ----------
    pivot : the position that all others are compared with
    weight, depth, level : as in `AdjacentChain`
    """

    pivot: int = 1
    _: KW_ONLY
    weight: str = "session"
    depth: int | None = None
    level: float = 0.95

    def _estimate(self, log: ClickLog) -> PositionBias:
        cells = pairs.counts_of_pairs(log, self.depth)
        edges = pivot_edges(self.pivot, cells.depth)
        return tree_bias(cells, edges, self.weight, method="Pivot", level=self.level)


def tree_bias(
    cells: PositionCounts,
    edges: Sequence[tuple[int, int]],
    weight: str,
    *,
    method: str,
    level: float,
    identified_by: Fact | None = None,
) -> PositionBias:
    """The curve from ratios along a tree of position pairs, log C_kl - log C_lk on each.

    `identified_by` is assumed beside the position-based model: that relevance does not depend on
    the position where not given.
    """
    sums = pairs.pair_sums(cells, weight)
    check_edges(cells, edges, sums, method)
    z, equations = tree_equations(sums, edges)
    errors = pairs.uncertainty_of_pairs(cells, weight, equations, np.exp(z))
    return from_log_ratios(
        z,
        errors.covariance,
        level=level,
        method=method,
        assumes=(Fact("bias.position-based"), identified_by or Fact("bias.same-relevance")),
        status=joined(*pairs.click_evidence(cells), errors.rule),
    )


def tree_equations(
    sums: PairSums, edges: Sequence[tuple[int, int]]
) -> tuple[FloatArray, PairEquations]:
    """z with z_k - z_l = log C_kl - log C_lk along each edge of a tree, and its equations."""
    tree = np.zeros_like(sums.weight)
    for k, l in edges:  # noqa: E741  the formula's symbols
        tree[k - 1, l - 1] = tree[l - 1, k - 1] = 1
    C = np.where(tree > 0, sums.clicked, 1.0)
    z = pairs.solve_laplacian(tree, np.log(C / C.T).sum(axis=1))
    return z, PairEquations(curvature=tree, gain=tree / C, offset=np.zeros_like(tree))


def pivot_edges(pivot: int, depth: int) -> list[tuple[int, int]]:
    """The pairs (pivot, k) of all other positions k."""
    if not 1 <= pivot <= depth:
        raise OptionError(f"pivot must be one of the positions 1..{depth}. Got {pivot} instead.")
    return [(min(pivot, k), max(pivot, k)) for k in range(1, depth + 1) if k != pivot]


def check_edges(
    cells: PositionCounts, edges: Sequence[tuple[int, int]], sums: PairSums, method: str
) -> None:
    """Each pair needs clicks at both ends, else its ratio is 0, infinite or nothing at all."""
    for k, l in edges:  # noqa: E741  the formula's symbols
        if sums.clicked[k - 1, l - 1] > 0 and sums.clicked[l - 1, k - 1] > 0:
            continue
        graph = position_graph(cells)
        graph.require(cells.depth, method)
        edge = graph.edge(k, l)
        evidence = f"{edge.documents} documents were shown at both"
        if edge.documents:
            evidence += (
                f", with {edge.upper_clicks:g} clicks at {k} and {edge.lower_clicks:g} at {l}"
            )
        raise IdentifiabilityError(
            f"{method} compares positions {k} and {l}, and {evidence}. To have more, swap these "
            "two positions in a share of the sessions; or use AllPairs, which also compares them "
            "by way of other positions."
        )
