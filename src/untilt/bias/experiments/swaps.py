"""Position bias from swapped documents: the mildest experiment there is."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, handed_over, sum_by
from untilt.bias.curve import POSITION_BASED, PositionBias
from untilt.bias.curve_operations import fit_quadratic, hold_last
from untilt.bias.estimator import BiasEstimator, place_of
from untilt.bias.experiments.assignment import (
    SwapNames,
    experiments_of,
    rank_before_swap,
    refuse,
    swapped_lists,
)
from untilt.bias.experiments.tests import swap_facts
from untilt.bias.harvesting.harvesting import check_edges, pivot_edges, tree_bias, tree_equations
from untilt.bias.harvesting.pairs import (
    PairEquations,
    influences_of_rows,
    inverse_laplacian,
    pair_sums,
    session_noise,
)
from untilt.bias.log_ratios import (
    STAYS,
    Uncertainty,
    clustered_by_people,
    effective_by_column,
    from_log_ratios,
    larger_error,
)
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, counts_from_rows
from untilt.data.limits import allow_table
from untilt.errors import DepthError, IdentifiabilityError, OptionError, check_choice
from untilt.facts import Fact, joined, note, warning

LISTS_ALIKE = note("bias.lists-alike", "lists of one length are alike, swapped or not")()

RANDOM_SWAPS = note("bias.random-swaps", "whether a list was swapped was drawn at random")()

SWAP_SHARE_DIFFERS = warning(
    "bias.swap-share-differs",
    "the share of swapped sessions differs between queries or lists: right only because documents "
    "are compared with themselves",
)()
SWAPPED = note("bias.swapped", "{sessions:,} sessions, swapped or not")

WITHIN = ("document", "length")


class SwapEstimator(BiasEstimator):
    """Base of both: subclasses say which pairs of positions the curve is built from."""

    ranker: SwapNames
    within: str
    check: bool
    any_time: bool

    @abstractmethod
    def _edges(self, log: ClickLog, depth: int) -> list[tuple[int, int]]:
        """Pairs of positions (upper, lower) that join 1..depth."""

    def _lists(self, log: ClickLog) -> ClickLog:
        return log.take(swapped_lists(log, self.ranker)[0])

    def _estimate(self, log: ClickLog) -> PositionBias:
        check_choice("within", self.within, WITHIN)
        part, swapped = swapped_lists(log, self.ranker)
        tests = _tested(log, part, swapped, self.within)
        if self.check:
            refuse("swapped lists are not what they are called", tests)
        bias = self._from_swaps(log, part, swapped)
        return replace(bias, status=joined(bias.status, *tests))

    def _from_swaps(self, log: ClickLog, part: BoolArray, swapped: IntArray) -> PositionBias:
        swapped = swapped[part]
        depth = int(swapped.max())
        edges = self._edges(log, depth)
        method = type(self).__name__
        _check_swapped(swapped, edges, method)
        lists = log if part.all() else log.take(part)
        if self.within == "length":
            return _bias_by_length(
                lists, swapped, edges, method=method, level=self.level, any_time=self.any_time
            )
        units = _documents(lists, swapped, depth)
        return tree_bias(
            units.cells, edges, "session", method=method, level=self.level,
            identified_by=RANDOM_SWAPS, any_time=self.any_time, log=lists,
            cell_of_row=units.cell_of_row,
        )  # fmt: skip


def _tested(log: ClickLog, part: BoolArray, swapped: IntArray, within: str) -> list[Fact]:
    """What the tests found; shares may differ where documents are compared with themselves."""
    tests = swap_facts(log, part, swapped)
    if within != "document":
        return list(tests)
    others = [fact for fact in tests if not fact.code.startswith("bias.swap-arms")]
    return others if len(others) == len(tests) else [SWAP_SHARE_DIFFERS, *others]


@method(
    "bias", "pivot-swap", title="Swaps with a pivot", order=11, rests_on="experiment",
    needs=("ranker",), takes=("pivot", "within"), reference="joachims2017unbiased",
    note="documents swapped with the one at a pivot position",
)  # fmt: skip
@dataclass(eq=False, repr=False)
class PivotSwap(SwapEstimator):
    r"""The document at a pivot is swapped with the one at k (RandPair, [joachims2017unbiased]_).

        theta_k / theta_pivot = clicks per impression at k / at the pivot,  of the same documents

    Both documents of a swap are used, each at its usual and at its new position. within="document"
    compares the same document of the same query (Mantel and Haenszel's weights), so queries must
    repeat. within="length" compares swapped with other lists of the same length, as the arXiv
    study did with queries asked once [mao_arxivlogs]_: only the random draw makes them alike.

    The sessions compared are those for which a swap was equally likely: of one experiment (what
    follows "@" in the names "swap:1-5@spring" and "base@spring", or a context called "experiment"),
    equally long down to the lowest swap, and with the document at the same position before any
    swap. So the arms are alike, whatever changes with time, ranker or length of a list.

    Parameters
    ----------
    pivot : the position that takes part in every swap
    ranker : which lists were swapped, by the log's `ranker`; names "swap:1-5" and "base" where not
        given. A mapping or function from the name to (1, 5), to "base", or to None
    within : "document" or "length"
    shape : None, or "quadratic": the arXiv study's fit, theta_k / theta_1 = 1 + b x + c x^2 with
        x = k - 1. Wrong for curves of another shape; `status` says how well it fits
    outlier_limit : leave out positions further from the quadratic than so many standard errors
    depth : continue to this position with the value of the last one that was swapped
    check : test whether swaps were drawn at random and are what they are called
        (`untilt.bias.experiments.tests`) and refuse lists that fail; False uses them all the
        same, and says in `status` what was found
    level : of the intervals
    any_time : intervals that hold at every look while the experiment runs, not at one look alone.
        About 1.6 times as wide (docs/how-many-sessions.md)
    """

    pivot: int = 1
    _: KW_ONLY
    ranker: SwapNames = None
    within: str = "document"
    shape: str | None = None
    outlier_limit: float | None = None
    depth: int | None = None
    check: bool = True
    level: float = 0.95
    any_time: bool = False

    def _edges(self, log: ClickLog, depth: int) -> list[tuple[int, int]]:
        return pivot_edges(place_of(log, self.pivot), depth)

    def _estimate(self, log: ClickLog) -> PositionBias:
        self._check()
        return super()._estimate(log)

    def _reshaped(self, bias: PositionBias) -> PositionBias:
        if self.shape == "quadratic":
            bias = fit_quadratic(bias, outlier_limit=self.outlier_limit)
        return bias if self.depth is None else hold_last(bias, self.depth)

    def _check(self) -> None:
        if self.shape is not None:
            check_choice("shape", self.shape, ("quadratic",))
        if self.outlier_limit is not None and not (self.shape and self.outlier_limit > 0):
            raise OptionError(
                "outlier_limit must be a number above 0, and outliers are found by "
                "their distance from a fit: give ⟦shape='quadratic'⟧ with it. Got "
                f"{self.outlier_limit!r}."
            )
        if self.depth is not None and self.depth < 1:
            raise DepthError(f"depth must be at least 1. Got {self.depth} instead.")


@method(
    "bias", "adjacent-swap", title="Swaps of neighbours", order=12, rests_on="experiment",
    needs=("ranker",), takes=("within",), reference="wang2020prs",
    note="neighbouring documents swapped; their ratios are multiplied",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class AdjacentSwap(SwapEstimator):
    r"""Neighbours are swapped; their ratios are multiplied ([wang2020prs]_ section 4.4).

        theta_k / theta_1 = (theta_2 / theta_1) ... (theta_k / theta_{k-1})

    Readers hardly notice a swap of neighbours, but errors add up along the chain.

    Parameters
    ----------
    ranker, within, check, level, any_time : as in `PivotSwap`
    """

    ranker: SwapNames = None
    within: str = "document"
    check: bool = True
    level: float = 0.95
    any_time: bool = False

    def _edges(self, log: ClickLog, depth: int) -> list[tuple[int, int]]:  # noqa: ARG002
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
            f"⟦{method}⟧ needs positions {k} and {l} swapped, and no list did "
            f"that{more}. Swap positions {k} and {l} in a share of the sessions, or "
            "use ⟦AllPairs⟧, which takes any swaps that join the positions."
        )


def _bias_by_length(
    log: ClickLog,
    swapped: IntArray,
    edges: list[tuple[int, int]],
    *,
    method: str,
    level: float,
    any_time: bool,
) -> PositionBias:
    """Swapped lists against other lists of the same length, where queries do not repeat.

    swapped : (lists, 2) positions, 0 for none. A *unit* is an original rank in lists of one length
    and experiment: what would be shown at that position without a swap. The random draw makes the
    documents of a unit alike wherever they are shown, so a unit is compared with itself at two
    positions as a document is elsewhere. List lengths are kept apart because a list too short for a
    swap is shown as it is: untouched lists are shorter on average.
    """
    units = _units(log, swapped, depth=int(swapped.max()))
    sums = pair_sums(units.cells, "session")
    check_edges(units.cells, edges, sums, method)
    z, equations = tree_equations(sums, edges)
    errors = _uncertainty(log, units, equations, z)
    return from_log_ratios(
        z,
        errors,
        level=level,
        method=method,
        assumes=(POSITION_BASED, RANDOM_SWAPS, LISTS_ALIKE),
        status=joined(SWAPPED(sessions=log.n_sessions), errors.rule),
        any_time=any_time,
    )


@dataclass(frozen=True, eq=False)
class _Strata:
    """Lists for which each swap was equally likely, and where each row stood before its swap.

    rank : (rows,) the position before the swap
    of_list : (lists,) a number for the experiment and the length
    of_row : (rows,) the same
    """

    rank: IntArray
    of_list: IntArray
    of_row: IntArray

    @property
    def number(self) -> int:
        """How many there are."""
        return int(self.of_list.max(initial=0)) + 1


def _strata(log: ClickLog, swapped: IntArray, reach: IntArray) -> _Strata:
    """By experiment and by how far lists `reach`, (lists,)."""
    lengths = ragged.lengths(log.indptr)
    code = experiments_of(log) * (log.depth + 1) + reach
    of_list = np.unique(code, return_inverse=True)[1]
    return _Strata(rank_before_swap(log, swapped), of_list, np.repeat(of_list, lengths))


def _last_position(log: ClickLog) -> IntArray:
    """(lists,) the lowest position; 0 of an empty list."""
    last = np.zeros(log.n_lists, dtype=np.int64)
    filled = np.diff(log.indptr) > 0
    last[filled] = log.position[log.indptr[1:][filled] - 1]
    return last


@dataclass(frozen=True, eq=False)
class _UnitCells:
    """Cells of units instead of documents, and the cell of each row of the lists, -1 for none."""

    cells: PositionCounts
    cell_of_row: IntArray

    @classmethod
    def of(cls, log: ClickLog, unit: IntArray, n_units: int, depth: int) -> "_UnitCells":
        """Of the positions 1..depth; below the lowest swap nothing is compared."""
        near = log.position <= depth
        cells = counts_from_rows(
            unit[near], log.position[near], log.row_count[near], log.label[near], n_units, depth
        )
        key = cells.document[cells.document_index] * (depth + 1) + cells.position
        cell_of_row = np.full(len(unit), -1)
        cell_of_row[near] = np.searchsorted(key, unit[near] * (depth + 1) + log.position[near])
        return cls(cells, cell_of_row)


def _documents(log: ClickLog, swapped: IntArray, depth: int) -> _UnitCells:
    """Cells of (document, position before any swap, stratum), in place of documents.

    Lists count as equally long from `depth` on, where nothing is swapped. Where lists have gaps,
    what was shown is not all there: a swap may then decide where a list seems to end, and all are
    taken together.
    """
    last = _last_position(log)
    whole = bool(np.all(last == ragged.lengths(log.indptr)))
    strata = _strata(log, swapped, np.minimum(last, depth if whole else 0))
    by_query = np.argsort(log.doc_query, kind="stable")
    place = np.empty(log.n_documents, dtype=np.int64)
    place[by_query] = np.arange(log.n_documents)
    near, unit = log.position <= depth, np.full(len(log.position), -1)
    code = place[log.document[near]] * strata.number + strata.of_row[near]
    found, unit[near] = np.unique(code * (depth + 1) + strata.rank[near], return_inverse=True)
    made = _UnitCells.of(log, unit, len(found), depth)
    document = by_query[found[made.cells.document] // (depth + 1) // strata.number]
    cells = replace(
        made.cells, query=handed_over(log.doc_query[document]), document=handed_over(document)
    )
    return replace(made, cells=cells)


def _units(log: ClickLog, swapped: IntArray, depth: int) -> _UnitCells:
    strata = _strata(log, swapped, _last_position(log))
    code = strata.of_row * (log.depth + 1) + strata.rank
    in_use = np.zeros(strata.number * (log.depth + 1), dtype=np.int64)
    in_use[code] = 1
    unit = (np.cumsum(in_use) - 1)[code]
    return _UnitCells.of(log, unit, int(in_use.sum()), depth)


def _uncertainty(
    log: ClickLog, units: _UnitCells, equations: PairEquations, z: FloatArray
) -> Uncertainty:
    """Each row adds (label - expected) times the effect of a click there, summed by query.

    Expected is theta_k g, with g of the unit over all its positions: the few swapped lists may have
    no click at all, and their own rate of 0 would then count as certain. A query with a share h of
    the sessions pulls z towards itself: without it z changes by 1 / (1 - h) of its sum, as nearly
    as matters where no query has most of the traffic.
    """
    query = np.unique(log.query, return_inverse=True)[1]
    cells, inverse = units.cells, inverse_laplacian(equations.curvature)
    noise = session_noise(cells, "session", equations.gain, np.exp(z), inverse)
    effect = _click_effect(cells.indptr, cells.position, cells.impressions, equations.gain)
    rate = _expected_rate(cells, np.exp(z))
    n_queries = int(query.max()) + 1
    allow_table("what each query adds at each position", n_queries, len(inverse), copies=4)
    rows = np.flatnonzero(units.cell_of_row >= 0)
    at, count = units.cell_of_row[rows], log.row_count[rows]
    unit, p = query[ragged.list_of_row(log.indptr)[rows]], rate[at]
    sums = (
        (sum_by(unit, count * (log.label[rows] - p) * each, n_queries),
         sum_by(unit, count * p * (1 - p) * each**2, n_queries))
        for each in (effect @ inverse).T[:, at]
    )  # fmt: skip
    scores, parts = (np.column_stack(each) for each in zip(*sums, strict=True))
    share = sum_by(query, log.sessions) / log.n_sessions
    change = scores / np.maximum(1 - share, STAYS)[:, None]
    lost = influences_of_rows(cells, log, "session", equations, z, units.cell_of_row)
    effective = effective_by_column(parts)
    by_query, effective = clustered_by_people(change.T @ change, effective, log, lost)
    return larger_error(by_query, len(change), noise.covariance, effective, noise.parts)


def _expected_rate(cells: PositionCounts, theta: FloatArray) -> FloatArray:
    """(cells,) theta_k g with g = sum c / sum n theta_k of each unit."""
    clicks, seen = cells.corrected_sums(theta, np.zeros_like(theta))
    g = np.divide(clicks, seen, out=np.zeros_like(seen), where=seen > 0)
    return np.minimum(theta[cells.position_index] * g[cells.document_index], 1.0)


@nb.njit(cache=True)
def _click_effect(
    indptr: IntArray, position: IntArray, impressions: FloatArray, gain: FloatArray
) -> FloatArray:
    """(cells, K) change of the estimating equations by one more click in a cell."""
    effect = np.zeros((len(position), len(gain)))
    for i in range(len(indptr) - 1):
        for a in range(indptr[i], indptr[i + 1]):
            k = position[a] - 1
            for b in range(indptr[i], indptr[i + 1]):
                if a != b:
                    l = position[b] - 1  # noqa: E741  the formula's symbol
                    # w / n_k with Mantel and Haenszel's w = n_k n_l / (n_k + n_l)
                    step = gain[k, l] * impressions[b] / (impressions[a] + impressions[b])
                    effect[a, k] += step
                    effect[a, l] -= step
    return effect
