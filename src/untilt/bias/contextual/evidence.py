"""Documents shown at several positions, with the context in which people saw them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray, IntArray, handed_over, sum_by
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, counts_from_rows
from untilt.errors import OptionError, ShapeError, check_choice

PER = ("query", "list")


@dataclass(frozen=True, eq=False)
class Contexts:
    """Distinct contexts, and which of them each list was seen in.

    values : (contexts, d) float64; of_list : (lists,) index; sessions : (contexts,)
    """

    values: FloatArray
    of_list: IntArray
    sessions: FloatArray


@dataclass(frozen=True, eq=False)
class Evidence:
    """One line for each (document, context) that was shown at several positions and clicked.

    impressions, clicks : (lines, K); context : (lines,) index into `Contexts`, never falling
    query : (lines,) the units that errors are clustered by
    """

    impressions: FloatArray
    clicks: FloatArray
    context: IntArray
    query: IntArray

    def __len__(self) -> int:
        return len(self.context)

    def take(self, lines: IntArray) -> "Evidence":
        """These lines alone."""
        return Evidence(
            self.impressions[lines], self.clicks[lines], self.context[lines], self.query[lines]
        )


def contexts_of(log: ClickLog, context: Any, *, per: str) -> Contexts:
    """Context given as an array, or as a mapping of query ids, checked and without repeats."""
    check_choice("per", per, PER)
    if isinstance(context, Mapping):
        given = _by_id(log, context, per)
    else:
        given = _as_table(context, log.n_queries if per == "query" else log.n_lists, per)
    row_of_list = log.query if per == "query" else np.arange(log.n_lists)
    _check_finite(given, row_of_list, per)
    used = np.zeros(len(given), dtype=bool)
    used[row_of_list] = True
    values, of_used = np.unique(given[used], axis=0, return_inverse=True)
    of_row = np.zeros(len(given), dtype=np.int64)
    of_row[used] = of_used.ravel()
    of_list = of_row[row_of_list]
    sessions = sum_by(of_list, log.sessions, len(values))
    return Contexts(handed_over(values), handed_over(of_list), handed_over(sessions))


def context_cells(log: ClickLog, contexts: Contexts) -> tuple[PositionCounts, IntArray]:
    """Cells of (document, context), sorted by context, and the context of each.

    A document may be as relevant as it likes in each context: nothing is compared across contexts.
    """
    lengths = np.diff(log.indptr)
    row_context = np.repeat(contexts.of_list, lengths).astype(np.int64)
    key = row_context * log.n_documents + log.document
    pairs, pair = np.unique(key, return_inverse=True)
    cells = counts_from_rows(
        pair.ravel(), log.position, log.row_count, log.label, len(pairs), log.depth
    )
    context, document = np.divmod(pairs, log.n_documents)
    found = PositionCounts(
        indptr=cells.indptr,
        query=handed_over(log.doc_query[document]),
        document=handed_over(document),
        position=cells.position,
        impressions=cells.impressions,
        clicks=cells.clicks,
        depth=cells.depth,
    )
    return found, context


def evidence_of(cells: PositionCounts, context: IntArray) -> Evidence:
    """The lines that can tell anything: several positions, and a click at one of them."""
    n = len(cells.indptr) - 1
    line = np.repeat(np.arange(n), np.diff(cells.indptr))
    impressions, clicks = np.zeros((n, cells.depth)), np.zeros((n, cells.depth))
    impressions[line, cells.position - 1] = cells.impressions
    clicks[line, cells.position - 1] = cells.clicks
    useful = (np.diff(cells.indptr) > 1) & (clicks.sum(axis=1) > 0)
    return Evidence(impressions, clicks, context, cells.query).take(np.flatnonzero(useful))


def _by_id(log: ClickLog, context: Mapping[Any, Any], per: str) -> FloatArray:
    if per != "query":
        raise OptionError(
            'a mapping of query ids is context per="query". For context per="list" give an array '
            "with a row for each list of the log."
        )
    ids = log.query_id.tolist()
    shown = np.zeros(log.n_queries, dtype=bool)
    shown[log.query] = True
    missing = [ids[i] for i in np.flatnonzero(shown) if ids[i] not in context]
    if missing:
        raise OptionError(
            f"context has no entry for {len(missing):,} of the queries shown, among them "
            f"{missing[0]!r}. Give one for each query id, in the type of log.query_id."
        )
    some = next(np.atleast_1d(context[i]) for i in ids if i in context)
    absent = np.zeros(len(some))  # never looked at: these queries were shown to nobody
    rows = [np.atleast_1d(context.get(i, absent)) for i in ids]
    if len({row.shape for row in rows}) > 1:
        raise ShapeError("context must have the same number of values for every query.")
    return np.array(rows, dtype=np.float64)


def _as_table(context: Any, n: int, per: str) -> FloatArray:
    if context is None:
        raise OptionError(
            "ContextualBias needs to know the context: fit(log, context=array) with a row of "
            "numbers for each query of the log, or a mapping of query ids to such rows."
        )
    table = np.asarray(context, dtype=np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or len(table) != n or table.shape[1] == 0:
        unit = "queries, in the order of log.query_id" if per == "query" else "lists"
        raise ShapeError(
            f"context must have one row for each of the {n:,} {unit}, and at least one column. "
            f"Got shape {np.shape(context)} instead."
        )
    return table


def _check_finite(given: FloatArray, used: IntArray, per: str) -> None:
    wrong = ~np.isfinite(given[used]).all(axis=1)
    if wrong.any():
        where = int(np.asarray(used)[np.argmax(wrong)])
        raise OptionError(
            f"context must be finite numbers. Row {where} ({per} {where}) is "
            f"{given[where].tolist()}. Fill in what is missing, with a column that says so."
        )


# Where do the clicks on a document fall? A likelihood in which its relevance plays no part.
#
# Document i is seen in context x, n_ik times at position k, with c_ik clicks. Under
# P(click) = theta_k(x) gamma_i the share of its clicks expected at k is
#
#     P_ik = n_ik theta_k(x) / sum_j n_ij theta_j(x)
#
# whatever gamma_i. With log theta_k(x) = z_k(x) the log-likelihood of the shares,
#
#     L = sum_i sum_k c_ik log P_ik
#
# is that of a multinomial logit with offsets log n, concave in z, and hence in the coefficients of
# z_k(x) = B_k . (1, x). Its score sum_i (c_ik - c_i. P_ik) has mean zero for each document by
# itself: the estimate is right for any relevance, and for clicks of any distribution with that mean
# [wooldridge1999]_. For one document at two positions it is the odds of the pair.

_CHUNK = 4096  # contexts whose K x K curvatures are held at once


@dataclass(frozen=True, eq=False)
class Problem:
    """Evidence with the design of its contexts.

    design : (contexts, p) rows (1, x) with x of mean 0 and variance 1
    penalty : (p,) of the squared coefficients: 0 for the intercept
    """

    evidence: Evidence
    design: FloatArray
    penalty: FloatArray

    @property
    def depth(self) -> int:
        """K."""
        return int(self.evidence.clicks.shape[1])


@dataclass(frozen=True, eq=False)
class Optimum:
    """B : (K, p) with zeros for position 1; hessian : (K-1, p, K-1, p) of the penalised -L."""

    B: FloatArray
    hessian: FloatArray
    value: float
    steps: int
    residual: float
    converged: bool


def shares(z: FloatArray, evidence: Evidence) -> FloatArray:
    """(lines, K) P_ik for z (contexts, K)."""
    weight = evidence.impressions * np.exp(z - z.max(axis=1, keepdims=True))[evidence.context]
    return weight / weight.sum(axis=1, keepdims=True)


def log_likelihood(z: FloatArray, evidence: Evidence) -> float:
    """L for z (contexts, K)."""
    clicked = evidence.clicks > 0
    P = shares(z, evidence)
    return float(np.sum(evidence.clicks[clicked] * np.log(P[clicked])))


def value_and_gradient(B: FloatArray, problem: Problem) -> tuple[float, FloatArray]:
    """L minus the penalty / 2, and its derivative by B (K, p)."""
    evidence = problem.evidence
    z = problem.design @ B.T
    P = shares(z, evidence)
    clicked = evidence.clicks > 0
    value = np.sum(evidence.clicks[clicked] * np.log(P[clicked]))
    residual = evidence.clicks - evidence.clicks.sum(axis=1, keepdims=True) * P
    gradient = _by_context(residual, evidence.context, len(z)).T @ problem.design
    value -= 0.5 * np.sum(problem.penalty * B**2)
    return float(value), gradient - problem.penalty * B


def curvature(B: FloatArray, problem: Problem) -> FloatArray:
    """-d2/dB2 without position 1: (K-1, p, K-1, p), penalty and all."""
    evidence = problem.evidence
    P = shares(problem.design @ B.T, evidence)
    total = evidence.clicks.sum(axis=1)

    def of_lines(mine: slice) -> FloatArray:
        return total[mine, None, None] * (_diagonal(P[mine]) - _outer(P[mine], P[mine]))

    H = _spread(of_lines, problem)
    for k in range(problem.depth - 1):
        H[k, :, k, :] += np.diag(problem.penalty)
    return H


def maximise(problem: Problem, *, tolerance: float, max_steps: int) -> Optimum:
    """Newton's method with halved steps: the likelihood is concave, so any start will do."""
    all_clicks = float(problem.evidence.clicks.sum())
    B = np.zeros((problem.depth, problem.design.shape[1]))
    value, gradient = value_and_gradient(B, problem)
    for step in range(max_steps + 1):
        H = curvature(B, problem)
        residual = float(np.abs(gradient[1:]).max()) / all_clicks
        if residual <= tolerance or step == max_steps:
            break
        B, value, gradient = _uphill(B, value, gradient, H, problem)
    return Optimum(B, H, value, step, residual, residual <= tolerance)


def scores(B: FloatArray, problem: Problem) -> tuple[FloatArray, int]:
    """Sum over queries of u u', u a query's part of the score; and how many queries have one."""
    evidence = problem.evidence
    P = shares(problem.design @ B.T, evidence)
    residual = (evidence.clicks - evidence.clicks.sum(axis=1, keepdims=True) * P)[:, 1:]
    order = np.argsort(evidence.query, kind="stable")
    first = np.flatnonzero(np.diff(evidence.query[order], prepend=-1))
    size = residual.shape[1] * problem.design.shape[1]
    M = np.zeros((size, size))
    for start in range(0, len(first), _CHUNK):
        ends = np.append(first, len(order))[start : start + _CHUNK + 1]
        lines = order[ends[0] : ends[-1]]
        each = _outer(residual[lines], problem.design[evidence.context[lines]])
        u = np.add.reduceat(each.reshape(len(lines), size), ends[:-1] - ends[0], axis=0)
        M += u.T @ u
    return M, len(first)


def session_noise(B: FloatArray, problem: Problem) -> FloatArray:
    """What `scores` is expected to be if sessions are all the noise there is.

    Clicks of a cell are binomial with probability theta_k gamma_i, where gamma_i = c_i. / sum n
    theta; cells of a document are independent. The score is A c with A = diag(1) - P 1', so with v
    the binomial variances A diag(v) A' = diag(v) - v P' - P v' + (sum v) P P'.
    """
    evidence = problem.evidence
    z = problem.design @ B.T
    theta = np.exp(z)[evidence.context]
    seen = (evidence.impressions * theta).sum(axis=1, keepdims=True)
    chance = np.minimum(theta * evidence.clicks.sum(axis=1, keepdims=True) / seen, 1.0)
    v = evidence.impressions * chance * (1 - chance)
    P = shares(z, evidence)

    def of_lines(mine: slice) -> FloatArray:
        cross = _outer(v[mine], P[mine])
        both = v[mine].sum(axis=1)[:, None, None] * _outer(P[mine], P[mine])
        return _diagonal(v[mine]) - cross - cross.transpose(0, 2, 1) + both

    size = (problem.depth - 1) * problem.design.shape[1]
    return _spread(of_lines, problem).reshape(size, size)


def _uphill(
    B: FloatArray, value: float, gradient: FloatArray, H: FloatArray, problem: Problem
) -> tuple[FloatArray, float, FloatArray]:
    K1, p = H.shape[:2]
    step = np.zeros_like(B)
    step[1:] = np.linalg.solve(H.reshape(K1 * p, -1), gradient[1:].ravel()).reshape(K1, p)
    gain = float(np.sum(gradient * step))
    halving = 0
    new, slope = value_and_gradient(B + step, problem)
    # So near the maximum the gain is lost in the value's rounding, and Newton's step is right.
    while gain > 1e-9 * abs(value) and new < value + 1e-4 * gain / 2**halving:
        halving += 1
        new, slope = value_and_gradient(B + step / 2**halving, problem)
    return B + step / 2**halving, new, slope


def _spread(of_lines: Callable[[slice], FloatArray], problem: Problem) -> FloatArray:
    """sum_i S_i x x' over lines, S_i (K, K) without position 1: (K-1, p, K-1, p)."""
    context, X = problem.evidence.context, problem.design
    K1, p = problem.depth - 1, X.shape[1]
    H = np.zeros((p * p, K1 * K1))
    for start in range(0, len(X), _CHUNK):
        here = X[start : start + _CHUNK]
        begin, end = np.searchsorted(context, [start, start + _CHUNK])
        S = of_lines(slice(begin, end))[:, 1:, 1:].reshape(end - begin, K1 * K1)
        H += _outer(here, here).reshape(-1, p * p).T @ _by_context(
            S, context[begin:end] - start, len(here)
        )
    return np.ascontiguousarray(H.reshape(p, p, K1, K1).transpose(2, 0, 3, 1))


def _outer(a: FloatArray, b: FloatArray) -> FloatArray:
    return a[:, :, None] * b[:, None, :]


def _diagonal(a: FloatArray) -> FloatArray:
    found = np.zeros((*a.shape, a.shape[1]))
    found[:, np.arange(a.shape[1]), np.arange(a.shape[1])] = a
    return found


def _by_context(values: FloatArray, context: IntArray, n: int) -> FloatArray:
    """(n, columns) sums over the lines of each context; lines are sorted by it."""
    sums = np.zeros((n, values.shape[1]))
    if len(values):
        first = np.flatnonzero(np.diff(context, prepend=-1))
        sums[context[first]] = np.add.reduceat(values, first, axis=0)
    return sums
