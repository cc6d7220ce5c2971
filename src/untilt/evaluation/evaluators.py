"""Estimators of relevance from clicks: what each (document, position) adds to a query's value."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray
from untilt.bias.curve import PositionBias
from untilt.bias.given import GivenCurve, as_examination
from untilt.errors import OptionError
from untilt.evaluation.pool import Pool

Method = Literal[
    "naive", "ips", "clipped", "snips", "bayes-ips", "affine", "policy-aware", "direct",
    "doubly-robust",
]  # fmt: skip
METHODS: tuple[str, ...] = get_args(Method)
CLIPS = ("clipped", "snips", "policy-aware", "doubly-robust")
NEEDS_RELEVANCE = ("direct", "doubly-robust")
# Weights that belong to a document, not to a session: its clicks are pooled over positions.
POOLS_DOCUMENTS = ("policy-aware", "direct", "doubly-robust")


@dataclass(frozen=True, eq=False)
class Credit:
    r"""A method, applied to a pool. The value of a query is, over its documents d,

        sum_d lambda(rank_d) (sum of `cell` over the cells of d + N_q `document`_d)

    Parameters
    ----------
    cell, slope : (cells,) credit summed over sessions, and its derivative by theta at the cell's
        position
    weight : (cells,) what one click there counts
    clipped, supported : (cells,) propensity below the clip; position known to the bias
    document : (documents,) credit per session from a relevance model, or None
    norm, norm_slope : (cells,) for self-normalisation: its sum takes the place of the sessions
    """

    cell: FloatArray
    slope: FloatArray
    weight: FloatArray
    clipped: BoolArray
    supported: BoolArray
    document: FloatArray | None = None
    norm: FloatArray | None = None
    norm_slope: FloatArray | None = None


def bias_for(bias: Any, method: str, depth: int) -> PositionBias:
    """The bias of an evaluation; it may end above the log's lowest position."""
    if bias is None and method in ("naive", "direct"):
        return PositionBias(np.ones(depth), method="none")
    if bias is None:
        raise OptionError(
            f"method={method!r} needs the position bias: give bias=..., an estimate such as "
            "ut.AllPairs().fit(log).bias_ or a curve such as ut.PowerLaw(1.0). Without any, only "
            "method='naive' is possible."
        )
    curve = as_examination(bias)
    if isinstance(curve, PositionBias):
        return curve
    if isinstance(curve, GivenCurve):
        return curve.to_bias(depth)
    return PositionBias(curve.at(np.arange(1, depth + 1)), method=type(curve).__name__)


def credit_of(
    method: str, pool: Pool, bias: PositionBias, tau: float, relevance: FloatArray | None
) -> Credit:
    """The credit of every cell under one method; formulas in `untilt.evaluation.estimate`."""
    at = _at_cells(pool, bias)
    y, n, theta = pool.clicks, pool.impressions, at.theta
    none = np.zeros(len(y), dtype=bool)
    if method in ("naive", "direct"):
        weight = np.ones(len(y)) if method == "naive" else np.zeros(len(y))
        full = np.ones(len(y), dtype=bool)
        return Credit(y * weight, np.zeros(len(y)), weight, none, full, document=relevance)
    if method in POOLS_DOCUMENTS:
        return _pooled(pool, at, tau, relevance)
    if method == "bayes-ips":
        weight = at.plus / (at.plus + at.minus) / theta
    elif method == "affine":
        weight = 1 / (theta * at.lift)
    else:
        weight = 1 / np.maximum(tau, theta)
    weight = np.where(at.supported, weight, 0.0)
    clipped = theta < tau
    cell = weight * (y - n * theta * at.minus) if method == "affine" else weight * y
    # The affine part n beta/alpha = n eps-/(eps+ - eps-) does not depend on theta.
    slope = np.where(clipped, 0.0, -weight * y / theta)
    norm = (cell, slope) if method == "snips" else (None, None)
    return Credit(cell, slope, weight, clipped, at.supported, norm=norm[0], norm_slope=norm[1])


def _pooled(pool: Pool, at: "_AtCells", tau: float, relevance: FloatArray | None) -> Credit:
    """rho_d = sum_k n_dk alpha_k / N_q; each click counts 1/max(tau, rho_d), wherever it was."""
    y, n = pool.clicks, np.where(at.supported, pool.impressions, 0.0)
    alpha = at.theta * at.lift
    owner, sessions = pool.document_of_cell, pool.sessions[pool.query_of_document]
    rho = pool.by_document(n * alpha) / sessions
    with np.errstate(divide="ignore"):
        inverse = np.where(rho > 0, 1 / np.maximum(tau, rho), 0.0)
    expected_rate = at.minus if relevance is None else at.minus + at.lift * relevance[owner]
    residual = np.where(at.supported, y, 0.0) - n * at.theta * expected_rate
    low = rho < tau
    by_rho = np.where(low, 0.0, pool.by_document(residual) * inverse**2 / sessions)
    slope = -n * expected_rate * inverse[owner] - by_rho[owner] * n * at.lift
    return Credit(
        cell=residual * inverse[owner],
        slope=slope,
        weight=np.where(at.supported, inverse[owner], 0.0),
        clipped=low[owner],
        supported=at.supported,
        document=relevance,
    )


@dataclass(frozen=True, eq=False)
class _AtCells:
    """The bias at each cell: theta, eps+, eps-, lift = eps+ - eps-; 1, 1, 0, 1 where unknown."""

    theta: FloatArray
    plus: FloatArray
    minus: FloatArray
    lift: FloatArray
    supported: BoolArray


def _at_cells(pool: Pool, bias: PositionBias) -> _AtCells:
    place = np.minimum(pool.position, bias.depth) - 1
    plus, minus = np.ones(bias.depth), np.zeros(bias.depth)
    if bias.eps_plus is not None and bias.eps_minus is not None:
        plus, minus = bias.eps_plus, bias.eps_minus
    # Where eps+ <= eps- a click says nothing about relevance: no support, as beyond the curve.
    supported = (pool.position <= bias.depth) & (plus > minus)[place]
    return _AtCells(
        theta=bias.examination[place],
        plus=plus[place],
        minus=minus[place],
        lift=np.where(supported, (plus - minus)[place], 1.0),
        supported=supported,
    )


def shrunken_relevance(pool: Pool, bias: PositionBias) -> FloatArray:
    r"""(documents,) each document's own click-based relevance, shrunk towards that of its log.

        g_d = (sum_k (y_dk - n_dk beta_k) + m g) / (sum_k n_dk alpha_k + m),   kept in [0, 1]

    with g the pooled relevance and m = 1 examined impression. A model of last resort: it knows
    nothing of features, and a document that nobody was shown gets g.
    """
    at = _at_cells(pool, bias)
    n = np.where(at.supported, pool.impressions, 0.0)
    gained = pool.by_document(np.where(at.supported, pool.clicks, 0.0) - n * at.theta * at.minus)
    tried = pool.by_document(n * at.theta * at.lift)
    g = float(np.clip(gained.sum() / max(tried.sum(), 1e-300), 0, 1))
    return np.clip((gained + g) / (tried + 1), 0, 1)
