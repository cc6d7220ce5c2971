r"""The position-based model with effects of queries and documents: marginal click likelihood.

A cell is a document at one position (and in one context) with n impressions and c clicks,

    c ~ Bin(n, alpha sigmoid(eta_i) + beta),    eta_i = offset_i + u_q + u_i,
    u_q ~ N(0, s2),   u_i ~ N(0, v),

where the offset is what a model says of document i of query q. The effects take up what the model
cannot know: how good a query's results are at all, and what is special about a document. With few
clicks v H_i << 1 (H_i is the Fisher information of the document's clicks) and this is the plain
likelihood; with many it is least squares on the logit of relevance, where each document counts
alike, however often it was shown.

The effects are integrated out by Laplace's method. The modes of one query are found by Newton's
method; its system is an arrow (u_q meets every u_i, no u_i meets another), so u_i is eliminated:

    S = 1/s2 + sum_i H_i / (1 + v H_i),      d u_q = (sum_i G_i/(1 + v H_i) + ...) / S,
    log L_q = log p(c | mode) - u_q^2/(2 s2) - sum u_i^2/(2 v)
              - 1/2 sum log(1 + v H_i) - 1/2 log(s2 S).

Steps take the curvature of the clicks themselves in place of H_i: by the Fisher information they
shrink slowly where readers rarely look. With examination 1/k on 150 places modes were still off by
up to 0.1 after 40 steps. At the mode d log L_q / d offset_i = u_i / v, and H_i / (1 + v H_i) is the
curvature: what boosting needs. Counts stand for sessions: collapsed clicks give the same as
repeated ones.

Grades are further observations of eta_i (`untilt.objectives.graded`): with precision w_i and value
m_i they add -w_i (m_i - eta_i)^2 / 2 to the log-likelihood, and w_i to H_i.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray
from untilt._core.threads import Share, parallel_kernel
from untilt.bias.em.rank_prior import EDGE, log_likelihood

# No logit of a relevance is further from 0: exp(12) sessions would be needed to tell.
_FARTHEST = 12.0
# Newton steps up to this many logits are taken as they are.
_SHORT = 0.25


@dataclass(frozen=True, eq=False)
class ClickCells:
    """Impressions and clicks of documents, each cell with the curve that holds there.

    Parameters
    ----------
    order : (documents,) the caller's number of each document, those of a query side by side
    query_ptr : (queries + 1,) query q owns documents order[query_ptr[q]:query_ptr[q + 1]]
    indptr : (documents + 1,) cells of the documents, in that order; one may have none
    impressions, clicks : (cells,)
    place : (cells,) where it was shown: index into alpha and beta. A place is a position, or a
        position in one context
    alpha, beta : (places,) the curve: E[click] = alpha relevance + beta
    grades : (2, documents) a further observation of the logit of each of the caller's documents,
        N(eta, 1 / precision): its value and its precision, 0 where there is none
    """

    order: IntArray
    query_ptr: IntArray
    indptr: IntArray
    impressions: FloatArray
    clicks: FloatArray
    place: IntArray
    alpha: FloatArray
    beta: FloatArray
    grades: FloatArray | None = None

    @property
    def n_documents(self) -> int:
        """Number of documents, those without cells included."""
        return len(self.order)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.query_ptr) - 1

    @property
    def shown(self) -> BoolArray:
        """(documents,) whether the caller's document has a cell."""
        shown = np.zeros(self.n_documents, dtype=bool)
        shown[self.order] = np.diff(self.indptr) > 0
        return shown

    def by_query(self, values: FloatArray) -> FloatArray:
        """(queries, ...) sums of values (one per document, as the caller numbers them)."""
        return ragged.sums_by_list(self.query_ptr, np.asarray(values, dtype=float)[self.order])

    def of_queries(self, value: FloatArray) -> FloatArray:
        """(documents,) the value of each document's query."""
        spread = np.empty(self.n_documents)
        spread[self.order] = np.repeat(value, np.diff(self.query_ptr))
        return spread

    def centred(self, values: FloatArray) -> FloatArray:
        """(documents,) values minus the mean over the shown documents of the same query."""
        shown = self.shown.astype(float)
        mean = self.by_query(values * shown) / np.maximum(self.by_query(shown), 1.0)
        return np.asarray(values, dtype=float) - self.of_queries(mean)

    def take_queries(self, keep: BoolArray) -> tuple["ClickCells", IntArray]:
        """The cells of these queries, and which of the caller's documents are left, in order.

        The documents are numbered anew: document i of the result was the i-th of the second value.
        """
        documents = np.repeat(keep, np.diff(self.query_ptr))
        sizes = np.diff(self.indptr)
        cells = np.repeat(documents, sizes)
        left = np.sort(self.order[documents])
        number = np.empty(self.n_documents, dtype=np.int64)
        number[left] = np.arange(len(left))
        part = ClickCells(
            order=number[self.order[documents]],
            query_ptr=ragged.indptr_of(np.diff(self.query_ptr)[keep]),
            indptr=ragged.indptr_of(sizes[documents]),
            impressions=self.impressions[cells],
            clicks=self.clicks[cells],
            place=self.place[cells],
            alpha=self.alpha,
            beta=self.beta,
            grades=None if self.grades is None else np.ascontiguousarray(self.grades[:, left]),
        )
        return part, left

    def of_some_queries(self, most: int) -> tuple["ClickCells", IntArray]:
        """The same for so many queries, evenly over all, and which documents are theirs."""
        if self.n_queries <= most:
            return self, np.arange(self.n_documents)
        return self.take_queries(evenly(self.n_queries, most))


def evenly(n: int, most: int) -> BoolArray:
    """(n,) which of the numbers 0, 1, ... are taken, if at most so many are."""
    taken: BoolArray = np.diff(np.arange(n) * min(n, most) // max(n, 1), prepend=-1) > 0
    return taken


def click_cells(
    doc_query: IntArray,
    document: IntArray,
    place: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    alpha: FloatArray,
    beta: FloatArray,
) -> ClickCells:
    """Cells in any order, each of the document with this number; `doc_query` (documents,)."""
    order = np.argsort(doc_query, kind="stable").astype(np.int64)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    mine = rank[document]
    by_document = np.argsort(mine, kind="stable")
    _, sizes = np.unique(doc_query, return_counts=True)
    return ClickCells(
        order=order,
        query_ptr=ragged.indptr_of(sizes),
        indptr=ragged.indptr_of(np.bincount(mine, minlength=len(order))),
        impressions=np.asarray(impressions, dtype=float)[by_document],
        clicks=np.asarray(clicks, dtype=float)[by_document],
        place=np.asarray(place, dtype=np.int64)[by_document],
        # Copies: kernels would be compiled a second time for a curve that is read-only.
        alpha=np.array(alpha, dtype=float),
        beta=np.array(beta, dtype=float),
    )


@dataclass(frozen=True, eq=False)
class Effects:
    """The modes of the effects at an offset, and the marginal likelihood there.

    Parameters
    ----------
    document, query : (documents,) u_i and (queries,) u_q
    information : (documents,) H_i
    precision : (queries,) S, that of u_q
    log_likelihood : (queries,) log L_q; sums of many sessions, without the binomial coefficients
    """

    document: FloatArray
    query: FloatArray
    information: FloatArray
    precision: FloatArray
    log_likelihood: FloatArray


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The model of the clicks: cells, and the variances of the effects.

    Parameters
    ----------
    v, s2 : variance of u_i and of u_q, both above 0
    """

    cells: ClickCells
    v: float = 0.5
    s2: float = 0.5

    def modes(
        self,
        offset: FloatArray,
        start: Effects | None = None,
        *,
        steps: int = 40,
        tolerance: float = 1e-6,
    ) -> Effects:
        """The modes by damped Newton steps, until none moves by more than the tolerance."""
        u, u_q = self._start(start)
        n, q = self.cells.n_documents, self.cells.n_queries
        H, S, value = np.zeros(n), np.zeros(q), np.zeros(q)
        _modes(q, *self._arguments(offset), u, u_q, steps, tolerance, H, S, value)
        return Effects(u, u_q, H, S, value)

    def newton_step(self, offset: FloatArray, u: FloatArray, u_q: FloatArray) -> FloatArray:
        """One Newton step of the effects in place; returns H. For boosting, which moves little."""
        H = np.zeros(self.cells.n_documents)
        _newton(self.cells.n_queries, *self._arguments(offset), u, u_q, H)
        return H

    def curvature(self, information: FloatArray) -> FloatArray:
        """H / (1 + v H), of the marginal likelihood in the offset of a document."""
        return information / (1 + self.v * information)

    def posterior_variance(self, effects: Effects) -> tuple[FloatArray, FloatArray]:
        """Of u_i and of u_q, by the inverse of the arrow."""
        shrink = self.v / (1 + self.v * effects.information)
        of_query = 1 / effects.precision
        along = self.cells.of_queries(of_query) * (effects.information * shrink) ** 2
        return shrink + along, of_query

    def _start(self, start: Effects | None) -> tuple[FloatArray, FloatArray]:
        if start is None:
            return np.zeros(self.cells.n_documents), np.zeros(self.cells.n_queries)
        return start.document.copy(), start.query.copy()

    def _arguments(self, offset: FloatArray) -> tuple[object, ...]:
        cells = self.cells
        grades = np.zeros((2, cells.n_documents)) if cells.grades is None else cells.grades
        return (
            cells.order, cells.query_ptr, cells.indptr, cells.impressions, cells.clicks,
            cells.place, cells.alpha, cells.beta, grades, np.asarray(offset, dtype=float),
            float(self.v), float(self.s2),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class HierarchyFit:
    """The linear model of the logit that fits the clicks best, with the variances of the effects.

    Parameters
    ----------
    weights : (columns,) with their `covariance`; a weight that stands at its bound has variance 0
    model : with the fitted v and s2
    effects : their modes
    log_likelihood : of all clicks, marginal
    """

    weights: FloatArray
    covariance: FloatArray
    model: Hierarchy
    effects: Effects
    log_likelihood: float = field(default=0.0)

    @property
    def per_query(self) -> FloatArray:
        """(queries,) marginal log-likelihood."""
        return self.effects.log_likelihood


def fit_hierarchy(
    cells: ClickCells,
    columns: FloatArray,
    *,
    start: "HierarchyFit | None" = None,
    variances: tuple[float, float] | None = None,
    low: Sequence[float] | None = None,
    prior_mean: Sequence[float] | None = None,
    prior_precision: Sequence[float] | None = None,
    rounds: int = 60,
) -> HierarchyFit:
    r"""offset = columns @ weights, with weights, v and s2 of the greatest marginal likelihood.

    The weights take Newton steps with the information of the marginal likelihood,
    X'(D - D 1 1' D / (1/s2 + 1' D 1)) X summed over queries, D = diag(H/(1 + v H)). The variances
    take scoring steps in their logarithm, score sum(u^2 + var - v)/(2 v) and information
    sum(1 - var/v)^2 / 2: EM's fixed point, reached in few steps also where clicks are few. A prior
    log v ~ N(0, 1.5^2) keeps them where clicks say nothing.

    Parameters
    ----------
    columns : (documents, weights), a column of ones included where there is to be a constant
    start : an earlier fit of similar columns
    variances : (v, s2) that stay as they are; both are fitted where not given
    low : (weights,) lower bounds, -inf for none
    prior_mean, prior_precision : (weights,) of a normal prior; precision 0 is none
    """
    X = np.ascontiguousarray(columns, dtype=float)
    p = X.shape[1]
    floor = np.full(p, -np.inf) if low is None else np.asarray(low, dtype=float)
    mean = np.zeros(p) if prior_mean is None else np.asarray(prior_mean, dtype=float)
    precision = np.zeros(p) if prior_precision is None else np.asarray(prior_precision, dtype=float)
    w = np.maximum(mean, floor) if start is None else np.maximum(start.weights, floor)
    model = Hierarchy(cells) if start is None else replace(start.model, cells=cells)
    if variances is not None:
        model = replace(model, v=variances[0], s2=variances[1])
    effects, before = (None if start is None else start.effects), -np.inf
    free = np.ones(p, dtype=bool)
    covariance = np.zeros((p, p))
    total = before
    for _ in range(rounds):
        effects = model.modes(X @ w, effects, steps=8)
        penalty = 0.5 * float(np.sum(precision * (w - mean) ** 2))
        total = float(effects.log_likelihood.sum()) - penalty
        slope = X.T @ (effects.document / model.v) - precision * (w - mean)
        information = _information(model, effects, X) + np.diag(precision)
        free = (w > floor) | (slope > 0)
        step, covariance = _newton_of(slope, information, free)
        new = np.maximum(w + step, floor)
        after = model if variances is not None else next_variances(model, effects)
        moved = max(np.max(np.abs(new - w), initial=0.0), abs(np.log(after.v / model.v)),
                    abs(np.log(after.s2 / model.s2)))  # fmt: skip
        if moved < 1e-3 and abs(total - before) < 1e-2:
            break
        w, model, before = new, after, total
    assert effects is not None
    return HierarchyFit(w, covariance, model, effects, total)


def _information(model: Hierarchy, effects: Effects, X: FloatArray) -> FloatArray:
    D = model.curvature(effects.information)
    weighted = D[:, None] * X
    by_query = ragged.sums_by_list(model.cells.query_ptr, D[model.cells.order])
    total = 1 / model.s2 + by_query
    sums = model.cells.by_query(weighted)
    inside: FloatArray = X.T @ weighted - sums.T @ (sums / total[:, None])
    return inside


def _newton_of(
    slope: FloatArray, information: FloatArray, free: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """The step of the free weights, none longer than 1 logit, and their covariance."""
    p = len(slope)
    step, covariance = np.zeros(p), np.zeros((p, p))
    if not free.any():
        return step, covariance
    inside = np.ix_(free, free)
    ridge = 1e-9 * np.eye(int(free.sum())) * max(1.0, float(np.trace(information[inside])))
    covariance[inside] = np.linalg.inv(information[inside] + ridge)
    step[free] = covariance[inside] @ slope[free]
    longest = float(np.max(np.abs(step)))
    return (step if longest <= 1 else step / longest), covariance


def next_variances(model: Hierarchy, effects: Effects) -> Hierarchy:
    """The model after one scoring step of v and s2 at these modes."""
    shown = model.cells.shown
    of_document, of_query = model.posterior_variance(effects)
    u, u_q = effects.document[shown], effects.query
    return replace(
        model,
        v=_scored(model.v, u**2 + of_document[shown], of_document[shown]),
        s2=_scored(model.s2, u_q**2 + of_query, of_query),
    )


def _scored(variance: float, second_moment: FloatArray, posterior: FloatArray) -> float:
    """One scoring step of the logarithm of a variance, at most by a factor e."""
    prior = 1 / 1.5**2
    known = 1 - posterior / variance
    score = float(np.sum(second_moment - variance)) / (2 * variance) - prior * np.log(variance)
    step = score / (0.5 * float(np.sum(known**2)) + prior)
    return float(np.clip(variance * np.exp(np.clip(step, -1, 1)), 1e-4, 25.0))


@nb.njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _slopes(
    begin: int, end: int, n: FloatArray, c: FloatArray, place: IntArray,
    alpha: FloatArray, beta: FloatArray, grade: float, known: float, eta: float,
) -> tuple[float, float, float]:  # fmt: skip
    """Of one document's cells and grades: G = d log p(c) / d eta, the Fisher information H, and the
    curvature -dG / d eta that its clicks have; 0 where the likelihood bends the other way.
    """
    G, H, bend = 0.0, 0.0, 0.0
    g = 1.0 / (1.0 + np.exp(-min(max(eta, -30.0), 30.0)))
    change = g * (1.0 - g)
    for cell in range(begin, end):
        k = place[cell]
        p = min(max(alpha[k] * g + beta[k], EDGE), 1.0 - EDGE)
        slope = alpha[k] * change
        scaled = slope / (p * (1.0 - p))
        more = (c[cell] - n[cell] * p) * scaled
        G += more
        H += n[cell] * slope * scaled
        bend += more * scaled * (1.0 - 2.0 * p)
    curve = max(H + bend - G * (1.0 - 2.0 * g), 0.0)
    return G + known * (grade - eta), H + known, curve + known


@parallel_kernel(error_model="numpy")
def _newton(
    mine: Share, order: IntArray, query_ptr: IntArray, indptr: IntArray, n: FloatArray,
    c: FloatArray, place: IntArray, alpha: FloatArray, beta: FloatArray, grades: FloatArray,
    offset: FloatArray, v: float, s2: float, u: FloatArray, u_q: FloatArray, H: FloatArray,
) -> None:  # fmt: skip
    for q in range(mine[0], mine[1]):
        S, right = 1.0 / s2, -u_q[q] / s2
        for at in range(query_ptr[q], query_ptr[q + 1]):
            i = order[at]
            G, h, _ = _slopes(
                indptr[at], indptr[at + 1], n, c, place, alpha, beta, grades[0, i], grades[1, i],
                offset[i] + u_q[q] + u[i],
            )  # fmt: skip
            H[i] = h
            shrink = 1.0 / (1.0 + v * h)
            S += h * shrink
            right += (G + h * u[i]) * shrink
            # The step of u_i but for its part of u_q, which is known after the loop.
            move = v * (G + h * u[i]) * shrink - u[i]
            u[i] = min(max(u[i] + min(max(move, -1.0), 1.0), -_FARTHEST), _FARTHEST)
        step = min(max(right / S, -1.0), 1.0)
        u_q[q] += step
        for at in range(query_ptr[q], query_ptr[q + 1]):
            i = order[at]
            u[i] -= step * v * H[i] / (1.0 + v * H[i])


@parallel_kernel(error_model="numpy")
def _modes(
    mine: Share, order: IntArray, query_ptr: IntArray, indptr: IntArray, n: FloatArray,
    c: FloatArray, place: IntArray, alpha: FloatArray, beta: FloatArray, grades: FloatArray,
    offset: FloatArray, v: float, s2: float, u: FloatArray, u_q: FloatArray, steps: int,
    tolerance: float, H: FloatArray, S: FloatArray, value: FloatArray,
) -> None:  # fmt: skip
    for q in range(mine[0], mine[1]):
        first, last = query_ptr[q], query_ptr[q + 1]
        move, follow = np.empty(last - first), np.empty(last - first)
        height, is_known, of_query, before = -np.inf, False, u_q[q], np.inf
        for at in range(first, last):  # no start is further away than a mode can be
            u[order[at]] = min(max(u[order[at]], -_FARTHEST), _FARTHEST)
        for round_number in range(steps + 1):
            schur, along, right = 1.0 / s2, 1.0 / s2, -of_query / s2
            for at in range(first, last):
                i = order[at]
                G, h, curve = _slopes(
                    indptr[at], indptr[at + 1], n, c, place, alpha, beta, grades[0, i],
                    grades[1, i], offset[i] + of_query + u[i],
                )  # fmt: skip
                H[i] = h
                schur += h / (1.0 + v * h)
                share = 1.0 / (1.0 + v * curve)
                along += curve * share
                right += (G + curve * u[i]) * share
                move[at - first] = v * (G + curve * u[i]) * share - u[i]
                follow[at - first] = v * curve * share
            S[q] = schur
            step = right / along
            largest = abs(step)
            for at in range(first, last):
                move[at - first] -= step * follow[at - first]
                largest = max(largest, abs(move[at - first]))
            if largest < tolerance or round_number == steps:
                break
            # Steps that are short and shrink need no look at the height, whose logarithms take
            # longer than all the rest.
            if largest < _SHORT and largest < 0.5 * before:
                for at in range(first, last):
                    u[order[at]] += move[at - first]
                of_query, before, is_known = of_query + step, largest, False
                continue
            before = largest
            if not is_known:
                is_known = True
                height = _height(
                    first, last, order, indptr, n, c, place, alpha, beta, grades, offset, v, s2, u,
                    of_query,
                )  # fmt: skip
            # A full step may overshoot where the curve is far from a parabola: halve it then.
            share = min(1.0, 4.0 / largest)
            for _ in range(12):
                for at in range(first, last):
                    u[order[at]] += share * move[at - first]
                new = _height(
                    first, last, order, indptr, n, c, place, alpha, beta, grades, offset, v, s2, u,
                    of_query + share * step,
                )  # fmt: skip
                if new >= height - 1e-9 * abs(height):
                    break
                for at in range(first, last):
                    u[order[at]] -= share * move[at - first]
                share *= 0.5
            else:
                break
            height, of_query = new, of_query + share * step
        u_q[q] = of_query
        if not is_known:
            height = _height(
                first, last, order, indptr, n, c, place, alpha, beta, grades, offset, v, s2, u,
                of_query,
            )  # fmt: skip
        total = height - 0.5 * np.log(s2 * S[q])
        for at in range(first, last):
            total -= 0.5 * np.log1p(v * H[order[at]])
        value[q] = total


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _height(
    first: int, last: int, order: IntArray, indptr: IntArray, n: FloatArray, c: FloatArray,
    place: IntArray, alpha: FloatArray, beta: FloatArray, grades: FloatArray, offset: FloatArray,
    v: float, s2: float, u: FloatArray, of_query: float,
) -> float:  # fmt: skip
    """log p(c, u_q, u_i) of one query, up to the constants of the priors."""
    total = -0.5 * of_query * of_query / s2
    for at in range(first, last):
        i = order[at]
        total -= 0.5 * u[i] * u[i] / v
        apart = grades[0, i] - offset[i] - of_query - u[i]
        total -= 0.5 * grades[1, i] * apart * apart
        total += log_likelihood(
            indptr[at], indptr[at + 1], n, c, place, alpha, beta, offset[i] + of_query + u[i]
        )
    return total
