"""Position bias from swapped documents: the mildest experiment there is."""

from abc import abstractmethod

import numpy as np

from untilt._core.arrays import IntArray
from untilt._core.suggest import check_choice
from untilt.bias.base import BiasEstimator
from untilt.bias.cells import cells_of
from untilt.bias.harvesting import POSITION_BASED, pivot_edges, tree_bias
from untilt.bias.pooled_swaps import pooled_bias
from untilt.bias.position_bias import PositionBias
from untilt.bias.quadratic import fit_quadratic, hold_last
from untilt.bias.recognise import SwapNames, swapped_lists
from untilt.errors import DepthError, IdentifiabilityError, OptionError
from untilt.logs.clicklog import ClickLog

WITHIN = ("document", "length")
AT_RANDOM = "whether a list was swapped was drawn at random"


class SwapEstimator(BiasEstimator):
    """Base of the two: subclasses say which pairs of positions the curve is built from."""

    ranker: SwapNames
    within: str

    @abstractmethod
    def _edges(self, depth: int) -> list[tuple[int, int]]:
        """Pairs of positions (upper, lower) that join 1..depth."""

    def _estimate(self, log: ClickLog) -> PositionBias:
        check_choice("within", self.within, WITHIN)
        part, swapped = swapped_lists(log, self.ranker)
        swapped = swapped[part]
        depth = int(swapped.max())
        edges = self._edges(depth)
        method = type(self).__name__
        _check_swapped(swapped, edges, method)
        lists = log if part.all() else log.take(part)
        assumes = (POSITION_BASED, AT_RANDOM)
        if self.within == "length":
            return pooled_bias(
                lists, swapped, edges, method=method, level=self.level, assumes=assumes
            )
        cells = cells_of(lists.top(depth) if depth < lists.depth else lists)
        return tree_bias(cells, edges, "session", method=method, level=self.level, assumes=assumes)


class PivotSwap(SwapEstimator):
    r"""The document at a pivot changes places with one at k (RandPair, [joachims2017unbiased]_).

        theta_k / theta_pivot = clicks per impression at k / at the pivot,  of the same documents

    Both documents of a swap are used, each at its usual and at its new position. within="document"
    compares the same document of the same query (Mantel and Haenszel's weights), so queries must
    repeat. within="length" compares swapped with other lists of the same length, as the arXiv
    study did with one-off queries [mao_arxivlogs]_: only the draw makes them alike.

    Parameters
    ----------
    pivot : the position that takes part in every swap
    ranker : tells swapped and untouched lists by the log's `ranker`; names "swap:1-5" and "base"
        where not given. A mapping or function from the name to (1, 5), to "base", or to None
    within : "document" or "length"
    shape : None, or "quadratic": the arXiv study's fit, theta_k / theta_1 = 1 + b x + c x^2 with
        x = k - 1. It says nothing about curves of another shape; `status` tells how well it fits
    outlier_limit : leave out positions further from the quadratic than so many standard errors
    depth : go on to this position with the value of the last one that was swapped
    level : of the intervals
    """

    def __init__(
        self,
        pivot: int = 1,
        *,
        ranker: SwapNames = None,
        within: str = "document",
        shape: str | None = None,
        outlier_limit: float | None = None,
        depth: int | None = None,
        level: float = 0.95,
    ) -> None:
        self.pivot = pivot
        self.ranker = ranker
        self.within = within
        self.shape = shape
        self.outlier_limit = outlier_limit
        self.depth = depth
        self.level = level

    def _edges(self, depth: int) -> list[tuple[int, int]]:
        return pivot_edges(self.pivot, depth)

    def _estimate(self, log: ClickLog) -> PositionBias:
        self._check()
        bias = super()._estimate(log)
        if self.shape == "quadratic":
            bias = fit_quadratic(bias, outlier_limit=self.outlier_limit)
        return bias if self.depth is None else hold_last(bias, self.depth)

    def _check(self) -> None:
        if self.shape is not None:
            check_choice("shape", self.shape, ("quadratic",))
        if self.outlier_limit is not None and not (self.shape and self.outlier_limit > 0):
            raise OptionError(
                "outlier_limit must be a number above 0, and outliers are told by their distance "
                f"from a fit: give shape='quadratic' with it. Got {self.outlier_limit!r}."
            )
        if self.depth is not None and self.depth < 1:
            raise DepthError(f"depth must be at least 1. Got {self.depth} instead.")


class AdjacentSwap(SwapEstimator):
    r"""Neighbours change places; the ratios are multiplied up ([wang2020prs]_ section 4.4).

        theta_k / theta_1 = (theta_2 / theta_1) ... (theta_k / theta_{k-1})

    Readers hardly notice a swap of neighbours, but errors add up along the chain.

    Parameters
    ----------
    ranker, within, level : as in `PivotSwap`
    """

    def __init__(
        self, *, ranker: SwapNames = None, within: str = "document", level: float = 0.95
    ) -> None:
        self.ranker = ranker
        self.within = within
        self.level = level

    def _edges(self, depth: int) -> list[tuple[int, int]]:
        return [(k, k + 1) for k in range(1, depth)]


def _check_swapped(swapped: IntArray, edges: list[tuple[int, int]], method: str) -> None:
    # As one number each: a set over millions of lists would take longer than the estimate.
    code = np.unique(swapped[:, 0] * 2**32 + swapped[:, 1])
    done = set(zip((code >> 32).tolist(), (code % 2**32).tolist(), strict=True))
    missing = [edge for edge in edges if edge not in done]
    if missing:
        k, l = missing[0]  # noqa: E741  the formula's symbols
        more = f" ({len(missing)} pairs are missing)" if len(missing) > 1 else ""
        raise IdentifiabilityError(
            f"{method} needs positions {k} and {l} swapped, and no list did that{more}. Swap "
            f"positions {k} and {l} in a share of the sessions, or use AllPairs, which takes any "
            f"swaps that join the positions."
        )
