"""Position bias from documents that were shown at several positions anyway.

Several rankers share the traffic, or ranks vary by themselves from day to day: then the same
document of the same query stands at several positions, and its clicks there differ by examination
alone [agarwal2019estimating]_. Nobody's list has to be disturbed.
"""

from collections.abc import Sequence

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.all_pairs import Maximum, maximise
from untilt.bias.base import BiasEstimator
from untilt.bias.cells import Cells, cells_of
from untilt.bias.identifiability import position_graph
from untilt.bias.inference import Doubt, Flows, doubt_of_pairs, potentials
from untilt.bias.pair_sums import PairSums, pair_sums
from untilt.bias.position_bias import PositionBias
from untilt.bias.ratios import from_log_ratios
from untilt.errors import DepthError, IdentifiabilityError, OptionError
from untilt.logs.clicklog import ClickLog

POSITION_BASED = "clicks follow the position-based model: P(click) = theta_k gamma"
SAME_RELEVANCE = "a document is as relevant at one position as at another"
FEW_CLICKS = 10


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

    def __init__(
        self, *, weight: str = "session", depth: int | None = None, level: float = 0.95
    ) -> None:
        self.weight = weight
        self.depth = depth
        self.level = level

    def _estimate(self, log: ClickLog) -> PositionBias:
        cells = _cells_to(log, self.depth)
        edges = [(k, k + 1) for k in range(1, cells.depth)]
        return tree_bias(cells, edges, self.weight, method="AdjacentChain", level=self.level)


class Pivot(BiasEstimator):
    r"""Every position against one pivot.

        theta_k / theta_pivot = C[k, pivot] / C[pivot, k],  then relative to position 1

    Right where one position shares documents with all others, as in logs of pivot swaps.

    Parameters
    ----------
    pivot : the position that all others are compared with
    weight, depth, level : as in `AdjacentChain`
    """

    def __init__(
        self,
        pivot: int = 1,
        *,
        weight: str = "session",
        depth: int | None = None,
        level: float = 0.95,
    ) -> None:
        self.pivot = pivot
        self.weight = weight
        self.depth = depth
        self.level = level

    def _estimate(self, log: ClickLog) -> PositionBias:
        cells = _cells_to(log, self.depth)
        edges = pivot_edges(self.pivot, cells.depth)
        return tree_bias(cells, edges, self.weight, method="Pivot", level=self.level)


class AllPairs(BiasEstimator):
    r"""Maximum likelihood over all pairs of positions ([agarwal2019estimating]_).

        max  sum_{k != l} C[k, l] log(p_k r_kl) + N[k, l] log(1 - p_k r_kl),   r_kl = r_lk

    C and N are the weighted clicks and non-clicks at k of documents shown at both k and l, r_kl
    their mean relevance. The maximum is unique (see `all_pairs.profile`); the search ends when no
    derivative by log p_k exceeds `tolerance` times all clicks. Standard errors are a sandwich,
    because the same clicks stand in several pairs; see `inference.larger`.

    Parameters
    ----------
    weight : "document" weighs each click at k by 1 / (times its document was shown at k), so that
        all documents count alike. "session" weighs the documents of S_kl by n_k n_l / (n_k + n_l):
        the same curve, but documents shown more often count for more. Its errors were half as large
        under Zipf traffic and a tenth smaller under even traffic (docs/estimators/harvesting.md)
    depth, level : as in `AdjacentChain`
    tolerance, max_steps : of the search
    """

    def __init__(
        self,
        *,
        weight: str = "session",
        depth: int | None = None,
        level: float = 0.95,
        tolerance: float = 1e-9,
        max_steps: int = 200,
    ) -> None:
        self.weight = weight
        self.depth = depth
        self.level = level
        self.tolerance = tolerance
        self.max_steps = max_steps

    def _estimate(self, log: ClickLog) -> PositionBias:
        cells = _cells_to(log, self.depth)
        position_graph(cells).require(cells.depth, "AllPairs")
        sums = pair_sums(cells, self.weight)
        found = maximise(sums, tolerance=self.tolerance, max_steps=self.max_steps)
        doubt = doubt_of_pairs(cells, self.weight, found.profile.flows, np.exp(found.z))
        end = f"{_ending(found)}; {_evidence(cells)}"
        return _curve(found.z, doubt, method="AllPairs", level=self.level, end=end)


def tree_bias(
    cells: Cells,
    edges: Sequence[tuple[int, int]],
    weight: str,
    *,
    method: str,
    level: float,
    assumes: tuple[str, ...] = (POSITION_BASED, SAME_RELEVANCE),
) -> PositionBias:
    """The curve from ratios along a tree of position pairs, log C_kl - log C_lk on each."""
    sums = pair_sums(cells, weight)
    check_edges(cells, edges, sums, method)
    z, flows = tree_flows(sums, edges)
    doubt = doubt_of_pairs(cells, weight, flows, np.exp(z))
    end = _evidence(cells)
    return _curve(z, doubt, method=method, level=level, end=end, assumes=assumes)


def tree_flows(sums: PairSums, edges: Sequence[tuple[int, int]]) -> tuple[FloatArray, Flows]:
    """z with z_k - z_l = log C_kl - log C_lk along each edge of a tree, and what pushes it."""
    tree = np.zeros_like(sums.weight)
    for k, l in edges:  # noqa: E741  the formula's symbols
        tree[k - 1, l - 1] = tree[l - 1, k - 1] = 1
    C = np.where(tree > 0, sums.clicked, 1.0)
    z = potentials(tree, np.log(C / C.T).sum(axis=1))
    return z, Flows(conductance=tree, gain=tree / C, offset=np.zeros_like(tree))


def pivot_edges(pivot: int, depth: int) -> list[tuple[int, int]]:
    """The pairs (pivot, k) of all other positions k."""
    if not 1 <= pivot <= depth:
        raise OptionError(f"pivot must be one of the positions 1..{depth}. Got {pivot} instead.")
    return [(min(pivot, k), max(pivot, k)) for k in range(1, depth + 1) if k != pivot]


def _cells_to(log: ClickLog, depth: int | None) -> Cells:
    depth = log.depth if depth is None else depth
    if not 1 <= depth <= log.depth:
        raise DepthError(
            f"depth must be one of the positions 1..{log.depth} of the log. Got {depth} instead."
        )
    if depth == 1:
        raise IdentifiabilityError(
            "only position 1 is asked for or shown, and examination is relative to it: there is "
            "nothing to estimate. Read the deeper positions of the log, too."
        )
    return cells_of(log if depth == log.depth else log.top(depth))


def check_edges(
    cells: Cells, edges: Sequence[tuple[int, int]], sums: PairSums, method: str
) -> None:
    """Each pair needs clicks at both ends, else its ratio is 0, infinite or nothing at all."""
    for k, l in edges:  # noqa: E741  the formula's symbols
        if sums.clicked[k - 1, l - 1] > 0 and sums.clicked[l - 1, k - 1] > 0:
            continue
        graph = position_graph(cells)
        graph.require(cells.depth, method)
        edge = graph.edge(k, l)
        found = f"{edge.documents} documents were shown at both"
        if edge.documents:
            found += f", with {edge.upper_clicks:g} clicks at {k} and {edge.lower_clicks:g} at {l}"
        raise IdentifiabilityError(
            f"{method} compares positions {k} and {l}, and {found}. To have more, swap positions "
            f"{k} and {l} in a share of the sessions; or use AllPairs, which also compares them by "
            f"way of other positions."
        )


def _curve(
    z: FloatArray,
    doubt: Doubt,
    *,
    method: str,
    level: float,
    end: str,
    assumes: tuple[str, ...] = (POSITION_BASED, SAME_RELEVANCE),
) -> PositionBias:
    return from_log_ratios(
        z,
        doubt.covariance,
        level=level,
        method=method,
        assumes=assumes,
        status=f"{end}; {doubt.rule}",
    )


def _ending(found: Maximum) -> str:
    how = "converged" if found.converged else "DID NOT CONVERGE"
    return f"{how} in {found.steps} steps, largest gradient {found.residual:.0e} of all clicks"


def _evidence(cells: Cells) -> str:
    """Clicks on documents with more than one position, and where they are few."""
    several = np.repeat(np.diff(cells.indptr) > 1, np.diff(cells.indptr))
    clicks = cells.by_position(np.where(several, cells.clicks, 0.0))
    text = f"{clicks.sum():,.0f} clicks on documents shown at several positions"
    scarce = np.flatnonzero(clicks < FEW_CLICKS) + 1
    if len(scarce):
        where = ", ".join(map(str, scarce))
        text += f"; under {FEW_CLICKS} clicks at position {where}: rough intervals there"
    return text
