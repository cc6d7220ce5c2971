"""The user browsing model."""

from typing import ClassVar

import numba as nb
import numpy as np

from untilt._core.arrays import AnyArray, FloatArray, IntArray, handed_over
from untilt.bias.curve import PositionBias
from untilt.bias.curve_tools import from_log_ratios
from untilt.catalog import method
from untilt.clickmodels.base import HIGH, Lists, with_unknown
from untilt.clickmodels.examination_em import PlaceFit, PlaceModel, doubt_of_places, joined_to_first
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts
from untilt.errors import IdentifiabilityError


@method(
    "click model", "ubm", title="User browsing model", order=19, reference="dupret2008ubm",
    note="examination depends on the position and on the last click above",
)  # fmt: skip
class UBM(PlaceModel):
    r"""The user browsing model: P(c_k = 1 | clicks above) = theta_{k, k'} gamma_d.

    k' is the position of the last click above k, 0 where there is none ([dupret2008ubm]_). The
    clicks above are all observed, so given them rows are independent: EM runs on clicks and
    impressions per (query, document, k, k'), the same loop as for `PBM`. Scale: the most examined
    (k, k') has theta = 1.

    P(c_k = 1) without knowing the clicks is a sum over k', from the top down:

        P(last click before k is k') = P(c_k' = 1) prod_{k' < j < k} (1 - theta_{j, k'} gamma_j)

    Learned: `examination_` (K, K), entry [k - 1, k'], NaN where k' >= k; `relevance_`; `em_`;
    `bias_`, the mean examination of each position over the k' of this log, relative to position 1:
    the curve that a position-based method sees. A (k, k') that never occurred has the mean of its
    position.

    Parameters
    ----------
    prior_strength, level, tolerance, max_steps : as in `PBM`
    """

    name: ClassVar[str] = "ubm"
    family: ClassVar[str] = "browsing"

    def _learn(self, log: ClickLog) -> None:
        place = place_index(log.position, last_click(log.indptr, log.position, log.label))
        cells, fit = self._fit_places(log, place, log.depth * (log.depth + 1) // 2)
        shown = cells.by_position(cells.impressions)
        self.examination_ = handed_over(_as_table(fit.theta, shown, log.depth))
        self._bias = self._measured(cells, fit, log.depth)

    def _measured(
        self, cells: PositionCounts, fit: PlaceFit, depth: int
    ) -> PositionBias | IdentifiabilityError:
        """theta_k = sum_k' n_{k,k'} theta_{k,k'} / n_k, its error by the delta method."""
        joined = joined_to_first(cells)
        shown = np.where(joined, cells.by_position(cells.impressions), 0.0)
        position = np.repeat(np.arange(depth), np.arange(1, depth + 1))
        per_position = np.bincount(position, weights=shown, minlength=depth)
        if np.any(per_position == 0):
            return _not_comparable(int(np.argmin(per_position > 0)) + 1)
        used = np.flatnonzero(joined)
        doubt = doubt_of_places(_only(cells, joined), fit.theta[used], fit.gamma)
        share = np.zeros((depth, len(used)))
        share[position[used], np.arange(len(used))] = (shown / per_position[position])[used]
        mean = share @ fit.theta[used]
        slope = share * fit.theta[used] / mean[:, None]
        left_out = 1 - shown.sum() / cells.impressions.sum()
        note = f"; {left_out:.2%} of the impressions cannot be compared" if left_out > 0 else ""
        return from_log_ratios(
            np.log(mean / mean[0]),
            slope @ doubt.covariance @ slope.T,
            level=self.level,
            method="UBM",
            assumes=("examination depends on the position and on the last click above",),
            status=f"{fit.em.status}; {doubt.rule}{note}",
        )

    def _gamma(self, lists: Lists) -> FloatArray:
        return with_unknown(self.relevance_, self.prior_mean_)[lists.index]

    def _conditional(self, lists: Lists) -> FloatArray:
        last = last_click(lists.indptr, lists.position, lists.click)
        return self.examination_[lists.position - 1, last] * self._gamma(lists)

    def _marginal(self, lists: Lists) -> FloatArray:
        return _marginal(lists.indptr, lists.position, self._gamma(lists), self.examination_)

    def _draw(self, lists: Lists, uniform: FloatArray) -> AnyArray:
        gamma = self._gamma(lists)
        return _draw(lists.indptr, lists.position, gamma, self.examination_, uniform[:, 0].copy())


def place_index(position: IntArray, last: IntArray) -> IntArray:
    """0-based number of (k, k') with 0 <= k' < k: k (k - 1) / 2 + k', each its own."""
    k = position.astype(np.int64)
    return k * (k - 1) // 2 + last


def _as_table(theta: FloatArray, shown: FloatArray, depth: int) -> FloatArray:
    """(K, K) with the mean of its position where (k, k') was never seen."""
    known = ~np.isnan(theta)
    overall = float(np.average(theta[known], weights=shown[known]))
    table = np.full((depth, depth), np.nan)
    for k in range(1, depth + 1):
        mine = slice(k * (k - 1) // 2, k * (k + 1) // 2)
        row, seen = theta[mine], known[mine]
        mean = float(np.average(row[seen], weights=shown[mine][seen])) if seen.any() else overall
        table[k - 1, :k] = np.where(seen, row, mean)
    return np.where(table >= HIGH, 1.0, table)


def _only(cells: PositionCounts, joined: AnyArray) -> PositionCounts:
    """The cells of these places, numbered anew; documents may be left without cells."""
    keep = joined[cells.position - 1]
    new = np.cumsum(joined)
    return PositionCounts(
        indptr=np.concatenate([[0], np.cumsum(keep)])[cells.indptr],
        query=cells.query,
        document=cells.document,
        position=new[cells.position[keep] - 1].astype(np.int32),
        impressions=cells.impressions[keep],
        clicks=cells.clicks[keep],
        depth=int(joined.sum()),
    )


def _not_comparable(position: int) -> IdentifiabilityError:
    return IdentifiabilityError(
        f"examination at position {position} cannot be compared with position 1: no clicked "
        f"document connects them. Cut the log with log.top({position - 1}), or swap documents "
        "between the two positions now and then."
        if position > 1
        else "position 1 was never clicked, so no other can be compared with it."
    )


@nb.njit(cache=True)
def last_click(indptr: IntArray, position: IntArray, click: FloatArray) -> IntArray:
    """(rows,) position of the last click above each row, 0 where there is none."""
    last = np.zeros(len(position), dtype=np.int64)
    for i in range(len(indptr) - 1):
        k = 0
        for row in range(indptr[i], indptr[i + 1]):
            last[row] = k
            if click[row] > 0:
                k = position[row]
    return last


@nb.njit(cache=True)
def _marginal(
    indptr: IntArray, position: IntArray, gamma: FloatArray, theta: FloatArray
) -> FloatArray:
    probability = np.zeros(len(position))
    for i in range(len(indptr) - 1):
        # reach[k'] = P(the last click so far is k')
        reach = np.zeros(len(theta) + 1)
        reach[0] = 1.0
        for row in range(indptr[i], indptr[i + 1]):
            k = position[row]
            clicked = 0.0
            for last in range(k):
                here = reach[last] * theta[k - 1, last] * gamma[row]
                clicked += here
                reach[last] -= here
            reach[k] = clicked
            probability[row] = clicked
    return probability


@nb.njit(cache=True)
def _draw(
    indptr: IntArray, position: IntArray, gamma: FloatArray, theta: FloatArray, uniform: FloatArray
) -> AnyArray:
    click = np.zeros(len(position), dtype=np.uint8)
    for i in range(len(indptr) - 1):
        last = 0
        for row in range(indptr[i], indptr[i + 1]):
            if uniform[row] < theta[position[row] - 1, last] * gamma[row]:
                click[row] = 1
                last = position[row]
    return click
