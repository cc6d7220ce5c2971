"""Which positions of a log can be compared, and on how much evidence.

Positions are the nodes of a graph; k and l are joined where some (query, document) was shown at
both. A method that makes no assumption about relevance can compare positions within a connected
component and no further: whatever the examination of another component, relevance can
compensate for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numba as nb
import numpy as np
from scipy.sparse.csgraph import connected_components

from untilt._core.arrays import BoolArray, FloatArray, IntArray, check_same_shape, handed_over
from untilt._core.portable import Portable
from untilt.data.clicklog import ClickLog
from untilt.data.counts import Cells, PositionCounts, left_out, position_counts
from untilt.errors import IdentifiabilityError, ShapeError
from untilt.facts import phrase, positions_text


@dataclass(frozen=True)
class JoiningSwap:
    """Exchanging the documents of two positions in a share of the sessions.

    `most_lost` is the largest number of clicks that one swapped session can lose on average. Under
    the position-based model a swap loses (theta_k - theta_l)(gamma_k - gamma_l), where gamma is the
    mean relevance of the documents shown there. That is c_k + c_l - (theta_k gamma_l + theta_l
    gamma_k), with c the click rates now, so by the inequality of the means never more than
    (sqrt(c_k) - sqrt(c_l))^2: a bound that needs to know neither examination nor relevance.
    """

    upper: int
    lower: int
    most_lost: float

    def __str__(self) -> str:
        return f"swap positions {self.upper} and {self.lower}"


@dataclass(frozen=True)
class Edge:
    """Two positions that share documents; see `PositionGraph` for the numbers."""

    upper: int
    lower: int
    documents: int
    weight: float
    upper_clicks: float
    lower_clicks: float


@dataclass(frozen=True, eq=False, repr=False)
class PositionGraph(Portable):
    """Which positions of a log can be compared, and on how much evidence.

    Entry [k - 1, l - 1] of each table is about the documents shown at both k and l; the diagonal
    about all documents shown at k.

    Parameters
    ----------
    documents : (K, K) number of (query, document) shown at both
    impressions : (K, K) their impressions at k
    clicks : (K, K) their clicks at k
    weight : (K, K) sum of n_k n_l / (n_k + n_l): as informative as two groups of twice that many
        impressions each. On the diagonal 0
    components : positions (1-based) joined by shared documents; positions never shown are in none
    clicked_components : positions whose ratio has a finite maximum-likelihood estimate: joined in
        both directions by clicks on shared documents. Finer than `components`
    swaps : one swap for each gap between components, which together join everything; position 1
        with others where it can be
    """

    documents: IntArray
    impressions: FloatArray
    clicks: FloatArray
    weight: FloatArray
    components: tuple[tuple[int, ...], ...]
    clicked_components: tuple[tuple[int, ...], ...]
    swaps: tuple[JoiningSwap, ...]
    json_properties: ClassVar[tuple[str, ...]] = ("edges",)

    def __post_init__(self) -> None:
        check_same_shape(self, "documents", "impressions", "clicks", "weight", ndim=2)
        named = {k for part in (*self.components, *self.clicked_components) for k in part}
        named |= {k for swap in self.swaps for k in (swap.upper, swap.lower)}
        if not all(1 <= position <= self.depth for position in named):
            raise ShapeError(f"positions must lie within 1..{self.depth}. Got {sorted(named)}.")

    @property
    def depth(self) -> int:
        """The lowest position, K."""
        return len(self.documents)

    @property
    def click_rate(self) -> FloatArray:
        """(K,) clicks per impression; NaN at positions never shown."""
        with np.errstate(invalid="ignore"):
            return np.diag(self.clicks) / np.diag(self.impressions)

    @property
    def left_out(self) -> BoolArray:
        """(K,) positions that show no results, or too few to compare; see `counts.left_out`."""
        return left_out(np.diag(self.impressions), np.diag(self.clicks))

    @property
    def positions(self) -> tuple[int, ...]:
        """The other positions, which a curve is about; ratios are to the first of them."""
        return tuple((np.flatnonzero(~self.left_out) + 1).tolist())

    @property
    def is_connected(self) -> bool:
        """Whether all positions with results can be compared with one another."""
        return any(set(self.positions) <= set(part) for part in self.components)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All joined pairs of positions, from the top."""
        joined = np.argwhere(np.triu(self.documents, 1)) + 1
        return tuple(self.edge(upper, lower) for upper, lower in joined.tolist())

    def top(self, depth: int) -> "PositionGraph":
        """What it says about positions 1..depth; components stay as the whole log joins them."""

        def upper(parts: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
            cut = (tuple(k for k in part if k <= depth) for part in parts)
            return tuple(part for part in cut if part)

        return PositionGraph(
            documents=self.documents[:depth, :depth],
            impressions=self.impressions[:depth, :depth],
            clicks=self.clicks[:depth, :depth],
            weight=self.weight[:depth, :depth],
            components=upper(self.components),
            clicked_components=upper(self.clicked_components),
            swaps=tuple(swap for swap in self.swaps if swap.lower <= depth),
        )

    def edge(self, upper: int, lower: int) -> Edge:
        """The numbers of one pair of positions, all 0 where they share no document."""
        k, l = upper - 1, lower - 1  # noqa: E741  the formula's symbols
        return Edge(
            upper=upper,
            lower=lower,
            documents=int(self.documents[k, l]),
            weight=float(self.weight[k, l]),
            upper_clicks=float(self.clicks[k, l]),
            lower_clicks=float(self.clicks[l, k]),
        )

    def joining_swap(self, first: Iterable[int], second: Iterable[int]) -> JoiningSwap:
        """The swap of a position of the first set with one of the second that tells most."""
        pairs = np.array([(min(pair), max(pair)) for pair in product(first, second)])
        upper, lower = pairs[_from_the_top(pairs)[0]].tolist()
        return JoiningSwap(upper, lower, float(most_lost(upper, lower, self.click_rate)))

    def require(self, depth: int, method: str, *, clicks: bool = True) -> None:
        """Raise unless positions down to `depth` can be compared; with `clicks`, by clicks too."""
        arcs = (self.clicks.T if clicks else self.documents) > 0
        self._require_joined(self.components, arcs, depth, method)
        if clicks:
            self._require_joined(self.clicked_components, arcs, depth, method)

    def _require_joined(
        self, components: tuple[tuple[int, ...], ...], arcs: BoolArray, depth: int, method: str
    ) -> None:
        wanted = [k for k in range(1, self.depth + 1) if any(k in part for part in components)]
        first = next(part for part in components if wanted[0] in part)
        lost = [k for k in wanted if k <= depth and k not in first]
        if not lost:
            return
        second = next(part for part in components if lost[0] in part)
        swap = self.joining_swap(first, second)
        why = (
            "no document was shown on both sides"
            if components is self.components
            else "the documents shown on both sides have too few clicks there"
        )
        reach = joined_depth(arcs)
        fewer = "or ask for fewer positions: ⟦log.top({reach})|--depth {reach}⟧; "
        fewer = phrase(fewer if reach > 1 else "", reach=reach)
        raise IdentifiabilityError(
            phrase(
                "{method:method} cannot compare position {lost} with position 1: {why} "
                "({positions_text} against {positions_text_}). To join them, {swap} in a "
                "share of the sessions; {fewer}or learn relevance from features, with "
                "⟦RegressionEM⟧; or take bounds in place of a curve, with "
                "⟦AllPairs(unjoined='bounds')⟧.",
                method=method,
                lost=lost[0],
                why=why,
                positions_text=positions_text(first),
                positions_text_=positions_text(second),
                swap=swap,
                fewer=fewer,
            )
        )

    def __repr__(self) -> str:
        parts = "; ".join(map(positions_text, self.components))
        verdict = "connected" if self.is_connected else f"{len(self.components)} parts: {parts}"
        joins = "".join(f", {swap}" for swap in self.swaps)
        size = f"{self.depth} positions, {len(self.edges)} joined pairs"
        return f"PositionGraph({size}, {verdict}{joins})"


def position_graph(data: ClickLog | PositionCounts) -> PositionGraph:
    """The graph of a log's positions. Versions of a document are the same document here."""
    cells = position_counts(data.without_versions()) if isinstance(data, ClickLog) else data
    documents, impressions, clicks, weight = _tables(cells.arrays, cells.depth)
    shown = np.diag(documents) > 0
    # An arc from k to l where clicks at l bound p_l from below against p_k. The likelihood has a
    # finite maximum exactly within strongly connected parts: anywhere else one side's examination
    # may fall to 0 and the likelihood only gains.
    graph = PositionGraph(
        documents=handed_over(documents),
        impressions=handed_over(impressions),
        clicks=handed_over(clicks),
        weight=handed_over(weight),
        components=_components(documents > 0, shown),
        clicked_components=_components(clicks.T > 0, shown),
        swaps=(),
    )
    object.__setattr__(graph, "swaps", _joining_swaps(graph))
    return graph


def joined_depth(arcs: BoolArray, *, needed: BoolArray | None = None) -> int:
    """The largest n such that positions 1..n are joined to 1 with no help from deeper ones.

    A log that is cut at n has lost what joined its positions through those below, so a component of
    the whole graph may begin with more positions than that. Those that are not `needed`, (K,), may
    lie apart.
    """
    depth = len(arcs)
    while depth:
        part = connected_components(arcs[:depth, :depth], directed=True, connection="strong")[1]
        wanted = np.ones(depth, dtype=bool) if needed is None else needed[:depth]
        lost = np.flatnonzero((part != part[np.argmax(wanted)]) & wanted)
        if not len(lost):
            break
        depth = int(lost[0])
    return depth


def most_lost(upper: IntArray | int, lower: IntArray | int, click_rate: FloatArray) -> FloatArray:
    """(sqrt(c_k) - sqrt(c_l))^2, the bound of `JoiningSwap`."""
    root = np.sqrt(click_rate)
    return (root[np.asarray(upper) - 1] - root[np.asarray(lower) - 1]) ** 2


def _from_the_top(pairs: IntArray) -> IntArray:
    """Order of (upper, lower) pairs: position 1 with others first.

    A swapped session tells in proportion to the clicks and to the square of the difference of log
    theta: one of 1 with k as much as up to 20 of neighbours (docs/how-many-sessions.md).
    """
    upper, lower = pairs.T
    return np.lexsort((lower, upper))


def _joining_swaps(graph: PositionGraph) -> tuple[JoiningSwap, ...]:
    """Kruskal's spanning tree over the components, from the top: swaps that leave no gap."""
    part = np.full(graph.depth + 1, -1)
    for number, positions in enumerate(graph.components):
        part[list(positions)] = number
    part[1:][graph.left_out] = -1
    pairs = np.argwhere(np.triu((part[1:, None] != part[1:]) & (part[1:] >= 0), 1)) + 1
    pairs = pairs[part[pairs[:, 0]] >= 0]
    swaps = []
    for upper, lower in pairs[_from_the_top(pairs)].tolist():
        if part[upper] != part[lower]:
            loss = float(most_lost(upper, lower, graph.click_rate))
            swaps.append(JoiningSwap(upper, lower, loss))
            part[part == part[lower]] = part[upper]
    return tuple(sorted(swaps, key=lambda swap: (swap.upper, swap.lower)))


def _components(arcs: BoolArray, shown: BoolArray) -> tuple[tuple[int, ...], ...]:
    """Strongly connected parts of the positions shown, by their first position."""
    n, part = connected_components(arcs, directed=True, connection="strong")
    parts = (tuple((np.flatnonzero((part == c) & shown) + 1).tolist()) for c in range(n))
    return tuple(sorted(positions for positions in parts if positions))


@nb.njit(cache=True)
def _tables(cells: Cells, depth: int) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    indptr, position, impressions, clicks = cells
    documents = np.zeros((depth, depth), dtype=np.int64)
    shown, clicked = np.zeros((depth, depth)), np.zeros((depth, depth))
    weight = np.zeros((depth, depth))
    for i in range(len(indptr) - 1):
        for a in range(indptr[i], indptr[i + 1]):
            k = position[a] - 1
            for b in range(indptr[i], indptr[i + 1]):
                l = position[b] - 1  # noqa: E741  the formula's symbol
                documents[k, l] += 1
                shown[k, l] += impressions[a]
                clicked[k, l] += clicks[a]
                if a != b:
                    n_k, n_l = impressions[a], impressions[b]
                    weight[k, l] += n_k * n_l / (n_k + n_l)
    return documents, shown, clicked, weight
