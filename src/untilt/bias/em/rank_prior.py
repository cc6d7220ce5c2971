r"""Relevance with a prior by rank: what the ranker of the log thought of a document counts.

    c_ik ~ Bin(n_ik, alpha_k sigmoid(eta_i) + beta_k),
    eta_i ~ N(base + b z_i + u_q, v),    u_q ~ N(0, s2),

with z_i = -(mean of log rank over the sessions that showed i), centred over documents. base, b, v
and s2 maximise the marginal likelihood of the clicks, with log v, log s2, b ~ N(0, 1.5^2) where
clicks say nothing. b = 0 is the prior by query alone. eta_i and u_q are integrated by quadrature,
each document on points of its own. The gradient is Fisher's identity: with E the posterior mean
and r = eta_i - base - b z_i - u_q,

    d/dbase = sum E[r] / v         d/d log v  = sum (E[r^2] / v - 1) / 2
    d/db    = sum z_i E[r] / v     d/d log s2 = sum_q (E[u_q^2] / s2 - 1) / 2
    d/d log alpha_k = sum_i E[(c_ik / p - (n_ik - c_ik) / (1 - p)) alpha_k sigmoid(eta_i)].

The last line fits the curve along. z_i is a random effect with the group mean of its covariate
([mundlak1978]_): documents that never move tell only log theta_k - b log k, documents that moved
tell theta, and b makes the two agree. Where nothing moves theta and b are not identified. With
b = 0 the curve would take up all that the ranker knew.

Errors are clustered by query, H^-1 (sum_q g_q g_q') H^-1, with H by differences of the gradient.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numba as nb
import numpy as np
from scipy.optimize import minimize

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.threads import Share, parallel_kernel
from untilt.bias.curve import POSITION_BASED, SAME_RELEVANCE, PositionBias
from untilt.bias.estimator import over_slots, require_several
from untilt.bias.log_ratios import MAXIMUM, NO_MAXIMUM
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, position_counts
from untilt.errors import IdentifiabilityError
from untilt.facts import Fact, note

LINEAR = note("bias.rank-prior", "the logit of relevance is linear in the mean log rank")()

_RANGE = 12.0  # no logit of a relevance is further from 0: exp(12) sessions would be needed to tell
_POINTS, _NODES = 48, 21  # of the quadrature over eta_i and over u_q
_DROP = 18.0  # points where the likelihood is below exp(-18) of its largest are left out
_HYPER = 1.5
EDGE = 1e-9  # p is kept this far from 0 and 1, so that one impossible click cannot make it 0
_NEGLIGIBLE = 30.0  # exp(-30) of the largest term of a sum is left out
_LEAST_MOVED = 20.0  # clicks on documents that moved; fewer tell nothing
_OWN = 4  # parameters before the curve's: base, b, log v, log s2
_BOUNDS = (
    ((-_RANGE, -9.0, np.log(0.04), np.log(0.01)), -_RANGE),
    ((_RANGE, 9.0, np.log(25.0), np.log(25.0)), _RANGE),
)
_CONVERGED = 1e-3  # of all clicks: the largest gradient


class Documents(NamedTuple):
    """Clicks of documents, those of a query side by side.

    query_ptr : (queries + 1,); indptr : (documents + 1,) cells of each document
    impressions, clicks, place : (cells,), place an index into alpha and beta
    z : (documents,) minus the mean log rank of each, centred
    grades : (2, documents) what grades say of eta, as in `untilt.objectives.hierarchical`
    """

    query_ptr: IntArray
    indptr: IntArray
    impressions: FloatArray
    clicks: FloatArray
    place: IntArray
    z: FloatArray
    grades: FloatArray | None = None

    @classmethod
    def of(cls, cells: PositionCounts) -> Self:
        """The documents of these counts."""
        n = cells.impressions
        z = -cells.by_document(n * np.log(cells.position)) / cells.by_document(n)
        sizes = np.unique(cells.query, return_counts=True)[1]
        return cls(
            ragged.indptr_of(sizes), cells.indptr, n, cells.clicks,
            cells.position_index.astype(np.int64), z - z.mean(),
        )  # fmt: skip

    @property
    def query(self) -> IntArray:
        """(documents,) the query of each."""
        return ragged.list_of_row(self.query_ptr)

    def table(self, eta: FloatArray, alpha: FloatArray, beta: FloatArray) -> FloatArray:
        """(documents, points) log p(clicks and grades of the document | logit at each point)."""
        out = np.zeros(eta.shape)
        _table(len(eta), *self[1:5], alpha, beta, eta, out)
        if self.grades is not None:
            value, precision = self.grades[:, :, None]
            out -= precision / 2 * (eta - value) ** 2
        return out


@dataclass(frozen=True)
class LogitModel:
    """eta_i ~ N(base + b z_i + u_q, v), u_q ~ N(0, s2)."""

    base: float
    v: float
    s2: float
    b: float = 0.0


class Posterior(NamedTuple):
    """log p(clicks) and E[u^2] by query; E[r], E[r^2] and p(eta at its points) by document."""

    log_evidence: FloatArray
    u2: FloatArray
    r: FloatArray
    r2: FloatArray
    p: FloatArray


def posterior(
    documents: Documents, eta: FloatArray, alpha: FloatArray, beta: FloatArray, model: LogitModel
) -> Posterior:
    """What the clicks say under this model; `eta` as in `points_of`."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    n, q = len(eta), len(documents.query_ptr) - 1
    found = Posterior(np.zeros(q), np.zeros(q), np.zeros(n), np.zeros(n), np.zeros_like(eta))
    weight = np.repeat(eta[:, 1:2] - eta[:, :1], _POINTS, axis=1)
    weight[:, [0, -1]] /= 2
    _posterior(
        q, documents.query_ptr, eta, documents.table(eta, alpha, beta) + np.log(weight),
        model.base + model.b * documents.z, model.v, np.sqrt(model.s2) * nodes,
        np.log(weights / weights.sum()), np.empty((n, _NODES)), *found,
    )  # fmt: skip
    return found


def points_of(documents: Documents, alpha: FloatArray, beta: FloatArray) -> FloatArray:
    """(documents, points) logits where the likelihood of each document is not negligible.

    As fine as its clicks tell. The trapezoid rule on equal points: its error vanishes with a smooth
    function that falls to 0.
    """
    n = len(documents.z)
    low, high = np.full(n, -_RANGE), np.full(n, _RANGE)
    for _ in range(5):  # each time at most _POINTS / 3 times finer
        step = (high - low) / (_POINTS - 1)
        table = documents.table(np.linspace(low, high, _POINTS, axis=1), alpha, beta)
        inside = table > table.max(axis=1, keepdims=True) - _DROP
        first, last = inside.argmax(axis=1), _POINTS - 1 - inside[:, ::-1].argmax(axis=1)
        new = low + step * np.maximum(first - 1, 0), low + step * np.minimum(last + 1, _POINTS - 1)
        narrowed = np.max((high - low) / (new[1] - new[0]), initial=1.0)
        low, high = new
        if narrowed < 1.5:
            break
    return np.ascontiguousarray(np.linspace(low, high, _POINTS, axis=1))


@dataclass(frozen=True, eq=False)
class PriorFit:
    """The model of the greatest evidence.

    alpha : (places,) the curve, fitted along or as it was given
    covariance : of base, b, log v, log s2 and log alpha_2..K, clustered by query; zero for what was
        not fitted
    log_evidence : of all clicks; ending : of the search
    """

    model: LogitModel
    alpha: FloatArray
    covariance: FloatArray
    log_evidence: float
    ending: Fact


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Log evidence and its gradient by (base, b, log v, log s2), and log alpha_2..K if there.

    Points of eta stay where they are, so that the value is smooth in all parameters.
    """

    documents: Documents
    eta: FloatArray
    alpha: FloatArray
    beta: FloatArray

    def curve(self, point: FloatArray) -> FloatArray:
        """alpha of these parameters."""
        return np.append(1.0, np.exp(point[_OWN:])) if len(point) > _OWN else self.alpha

    def scores(self, point: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(queries,) log evidence and (queries, parameters) its gradient."""
        documents, alpha, model = self.documents, self.curve(point), model_of(point)
        found = posterior(documents, self.eta, alpha, self.beta, model)
        q, K, query = len(documents.query_ptr) - 1, len(alpha), documents.query
        r, r2 = found.r / model.v, found.r2 / model.v
        columns = [sum_by(query, each, q) for each in (r, documents.z * r, (r2 - 1) / 2)]
        columns.append((found.u2 / model.s2 - 1) / 2)
        if len(point) > _OWN:
            slope = np.zeros(len(documents.place))
            _slopes(len(query), *documents[1:5], alpha, self.beta, self.eta, found.p, slope)
            cell = query[ragged.list_of_row(documents.indptr)] * K + documents.place
            columns.extend(sum_by(cell, slope, q * K).reshape(q, K).T[1:])
        return found.log_evidence, np.column_stack(columns)

    def cost(self, point: FloatArray) -> tuple[float, FloatArray]:
        """Minus the log posterior of the parameters, and its gradient."""
        value, slopes = self.scores(point)
        known = np.concatenate([[0.0], point[1:_OWN] / _HYPER, 0 * point[_OWN:]])
        return 0.5 * float(known @ known) - float(value.sum()), known / _HYPER - slopes.sum(axis=0)


def model_of(point: FloatArray) -> LogitModel:
    """Of base, b, log v and log s2."""
    base, b, v, s2 = (float(each) for each in point[:_OWN])
    return LogitModel(base, float(np.exp(v)), float(np.exp(s2)), b)


def fit_prior(
    documents: Documents,
    alpha: FloatArray,
    beta: FloatArray,
    *,
    by_rank: bool = True,
    joint: bool = False,
) -> PriorFit:
    """The model of the greatest evidence; `joint` fits alpha along, from this start."""
    exposed = float(np.sum(documents.impressions * alpha[documents.place]))
    rate = np.clip(float(np.sum(documents.clicks)) / max(exposed, 1e-9), 0.02, 0.98)
    curve = np.log(alpha[1:]) if joint else np.empty(0)
    point = np.concatenate([[np.log(rate / (1 - rate)), 0.0, 0.0, -1.0], curve])
    low, high = (np.concatenate([own, curve * 0 + end]) for own, end in _BOUNDS)
    if not by_rank or not np.ptp(documents.z) > 0:
        low[1] = high[1] = 0.0
    for _ in range(1 + joint):  # again on the points that suit the fitted curve
        target = Likelihood(documents, points_of(documents, alpha, beta), alpha, beta)
        found = minimize(
            target.cost, point, jac=True, method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)), options={"maxiter": 300, "ftol": 1e-10},
        )  # fmt: skip
        point, alpha = found.x, target.curve(found.x)
    free = np.flatnonzero((point > low + 1e-6) & (point < high - 1e-6))
    value, g = target.scores(point)
    inverse = np.linalg.pinv(_curvature(target, point)[np.ix_(free, free)], hermitian=True)
    covariance = np.zeros((len(point), len(point)))
    covariance[np.ix_(free, free)] = inverse @ (g.T @ g)[np.ix_(free, free)] @ inverse
    residual = float(np.abs(target.cost(point)[1][free]).max()) / float(documents.clicks.sum())
    ended = MAXIMUM if residual < _CONVERGED else NO_MAXIMUM
    ending = ended(steps=int(found.nit), residual=residual)
    return PriorFit(model_of(point), alpha, covariance, float(value.sum()), ending)


def _curvature(target: Likelihood, point: FloatArray) -> FloatArray:
    """Second derivatives of the cost, by central differences of the gradient."""
    steps = 1e-3 * np.eye(len(point))
    H = np.array([target.cost(point + h)[1] - target.cost(point - h)[1] for h in steps]) / 2e-3
    return (H + H.T) / 2


def joint_curve(log: ClickLog) -> PositionBias:
    """The curve that is fitted along with the prior, theta_1 = 1; it has no interval.

    Clustered errors covered .93 of the truth where logits are normal around what rank says, .83
    where documents are of two grades, .89 where few moved (benchmarks/bench_judgments.py).
    """
    log = log.without_versions()
    return over_slots(log, log, _joint)


def _joint(log: ClickLog) -> PositionBias:
    cells = position_counts(log)
    require_several(cells.depth)
    _require_moved(cells)
    start = np.arange(1.0, cells.depth + 1) ** -0.7
    fit = fit_prior(Documents.of(cells), start, np.zeros(cells.depth), joint=True)
    return PositionBias(
        fit.alpha, method="joint", assumes=(POSITION_BASED, SAME_RELEVANCE, LINEAR),
        status=fit.ending, estimated=True,
    )  # fmt: skip


def _require_moved(cells: PositionCounts) -> None:
    """Raise where too few clicks are on documents that were shown at several positions."""
    moved = cells.clicks[(np.diff(cells.indptr) > 1)[cells.document_index]].sum()
    if moved < _LEAST_MOVED:
        raise IdentifiabilityError(
            f"a curve cannot be fitted along with what the ranker knew: {moved:,.0f} clicks are on "
            f"documents that were shown at several positions, and {_LEAST_MOVED:g} are needed. "
            "Without them any steepness fits. Give a curve, such as that of an experiment "
            "(⟦bias=...|--bias FILE, or --bias power-law:1⟧)."
        )


@nb.njit(cache=True, nogil=True, inline="always", error_model="numpy")
def log_likelihood(
    begin: int, end: int, n: FloatArray, c: FloatArray, place: IntArray,
    alpha: FloatArray, beta: FloatArray, eta: float,
) -> float:  # fmt: skip
    """Of the cells begin..end - 1 of one document, whose logit is eta."""
    total = 0.0
    g = 1.0 / (1.0 + np.exp(-min(max(eta, -30.0), 30.0)))
    for cell in range(begin, end):
        k = place[cell]
        p = min(max(alpha[k] * g + beta[k], EDGE), 1.0 - EDGE)
        if c[cell] > 0.0:
            total += c[cell] * np.log(p)
        if n[cell] > c[cell]:
            total += (n[cell] - c[cell]) * np.log1p(-p)
    return total


@parallel_kernel(error_model="numpy")
def _table(
    mine: Share, indptr: IntArray, n: FloatArray, c: FloatArray, place: IntArray,
    alpha: FloatArray, beta: FloatArray, eta: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    for i in range(mine[0], mine[1]):
        for point in range(eta.shape[1]):
            out[i, point] = log_likelihood(
                indptr[i], indptr[i + 1], n, c, place, alpha, beta, eta[i, point]
            )


@parallel_kernel(error_model="numpy")
def _slopes(
    mine: Share, indptr: IntArray, n: FloatArray, c: FloatArray, place: IntArray,
    alpha: FloatArray, beta: FloatArray, eta: FloatArray, density: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    """(cells,) expected derivative of the log-likelihood by log alpha."""
    for i in range(mine[0], mine[1]):
        for point in range(eta.shape[1]):
            g = 1.0 / (1.0 + np.exp(-eta[i, point]))
            for cell in range(indptr[i], indptr[i + 1]):
                k = place[cell]
                p = min(max(alpha[k] * g + beta[k], EDGE), 1.0 - EDGE)
                slope = (c[cell] / p - (n[cell] - c[cell]) / (1.0 - p)) * alpha[k] * g
                out[cell] += density[i, point] * slope


@parallel_kernel(error_model="numpy")
def _posterior(
    mine: Share, query_ptr: IntArray, eta: FloatArray, table: FloatArray, centre: FloatArray,
    v: float, u: FloatArray, log_weight: FloatArray, given: FloatArray, evidence: FloatArray,
    u2: FloatArray, r: FloatArray, r2: FloatArray, p: FloatArray,
) -> None:  # fmt: skip
    """`given` (documents, nodes) becomes log p(clicks of i | u_q)."""
    points, nodes = eta.shape[1], len(u)
    density = 0.5 * np.log(2 * np.pi * v)
    for q in range(mine[0], mine[1]):
        weight = log_weight.copy()
        for i in range(query_ptr[q], query_ptr[q + 1]):
            for m in range(nodes):
                top = -np.inf
                for point in range(points):
                    x = eta[i, point] - centre[i] - u[m]
                    top = max(top, table[i, point] - 0.5 * x * x / v)
                total = 0.0
                for point in range(points):
                    x = eta[i, point] - centre[i] - u[m]
                    e = table[i, point] - 0.5 * x * x / v - top
                    if e > -_NEGLIGIBLE:
                        total += np.exp(e)
                given[i, m] = top + np.log(total) - density
                weight[m] += given[i, m]
        top = weight.max()
        weight = np.exp(weight - top)
        total = weight.sum()
        evidence[q] = top + np.log(total)
        weight /= total
        u2[q] = np.sum(weight * u * u)
        for m in range(nodes):
            for i in range(query_ptr[q], query_ptr[q + 1]):
                for point in range(points):
                    x = eta[i, point] - centre[i] - u[m]
                    e = table[i, point] - 0.5 * x * x / v - density - given[i, m]
                    if e > -_NEGLIGIBLE:
                        share = weight[m] * np.exp(e)
                        p[i, point] += share
                        r[i] += share * x
                        r2[i] += share * x * x
