"""Bias against variance: an estimate as a function of the clip, and a clip chosen by the data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from untilt._core.arrays import FloatArray
from untilt._core.statistics import check_level
from untilt.bias.curve import PositionBias
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, check_choice
from untilt.evaluation.evaluators import bias_for, credit_of
from untilt.evaluation.pool import Among, Pool, discounts, pool_of
from untilt.evaluation.rank_metric import RankMetric, as_rank_metric
from untilt.evaluation.systems import Shown, named_systems, scores_of, shown_discounts
from untilt.evaluation.uncertainty import (
    Sums,
    bias_error,
    covariance_of,
    sampling_error,
    student_interval,
)

if TYPE_CHECKING:
    import altair as alt

STEPS = 20
CURVES = ("clipped", "policy-aware")


@dataclass(frozen=True, eq=False, repr=False)
class ClipCurve:
    r"""The estimate of one system at several clips tau; the first is no clip at all.

    `mse` estimates the mean squared error. V(0) is unbiased where the curve is right, so the
    clip's bias is D = V(tau) - V(0), and D^2 is too large by Var(D):

        mse(tau) = max(0, D^2 - Var(D)) + Var(V(tau))

    with all variances clustered by query. `best` is the tau with the least; of equals the smallest.
    `low` and `high` are intervals around V(tau), which do not know about D.
    """

    tau: FloatArray
    value: FloatArray
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    bias: FloatArray
    mse: FloatArray
    clipped_share: FloatArray
    metric: str
    level: float
    method: str = "clipped"

    @property
    def best(self) -> float:
        """The clip with the least estimated mean squared error."""
        return float(self.tau[int(np.argmin(self.mse))])

    def plot(self, *, title: str | None = None) -> "alt.LayerChart":
        """An Altair chart of value and interval over tau, the chosen clip marked."""

        return plot(self, title=title)

    def __repr__(self) -> str:
        lines = [f"{self.metric} by clip, chosen {self.best:.3g}"]
        lines += [
            f"  {t:8.4f}  {v:.4f} +- {s:.4f}  bias {b:+.4f}  root mse {np.sqrt(m):.4f}  "
            f"{c:.0%} of clicks clipped"
            for t, v, s, b, m, c in zip(
                self.tau, self.value, self.std_error, self.bias, self.mse, self.clipped_share,
                strict=True,
            )
        ]  # fmt: skip
        return "\n".join(lines)


def clip_curve(
    log: ClickLog,
    system: Any,
    bias: Any,
    *,
    metric: Any = "dcg@10",
    method: str = "clipped",
    tau: npt.ArrayLike | None = None,
    among: Among = "shown",
    level: float = 0.95,
) -> ClipCurve:
    """Estimate and interval of one system as functions of the clip ([oosterhuis2020tutorial]_).

    Parameters
    ----------
    system : a ranker, an array of scores, or `untilt.shown`
    bias, metric, among, level : as in `untilt.estimate`
    method : "clipped" (IPS) or "policy-aware", which is right also where sessions of a query show
        different documents
    tau : clips to try, above 0; the log's own propensities and steps between where not given
    """
    check_level(level)
    check_choice("method", method, CURVES)
    check_choice("among", among, ("shown", "candidates"))
    name, only = next(iter(named_systems(system).items()))
    pool = pool_of(log, among)
    curve = bias_for(bias, method, pool.depth)
    rank_metric = as_rank_metric(metric)
    clips = _clips(tau, pool, curve, method)
    at = _discount_at_cells(log, pool, only, name, rank_metric, method)
    sums, clipped = _sums(pool, curve, at, clips, method)
    error, gap, mse = _errors(sums)
    ends = [
        student_interval(float(v), float(s), pool.n_queries, level)
        for v, s in zip(sums.value, error, strict=True)
    ]
    return ClipCurve(
        tau=clips,
        value=sums.value,
        std_error=error,
        low=np.array([end.low for end in ends]),
        high=np.array([end.high for end in ends]),
        bias=gap,
        mse=mse,
        clipped_share=clipped,
        metric=str(rank_metric),
        level=level,
        method=method,
    )


def best_clip(
    log: ClickLog, pool: Pool, systems: Mapping[str, Any], bias: PositionBias, metric: RankMetric
) -> float:
    """One clip for all systems: the least estimated mean squared error, summed over them."""
    clips = _clips(None, pool, bias, "clipped")
    total = np.zeros(len(clips))
    for name, system in systems.items():
        at = _discount_at_cells(log, pool, system, name, metric, "clipped")
        total += _errors(_sums(pool, bias, at, clips, "clipped")[0])[2]
    return float(clips[int(np.argmin(total))])


def _clips(tau: npt.ArrayLike | None, pool: Pool, bias: PositionBias, method: str) -> FloatArray:
    """Rising clips; the first is the smallest propensity, which clips nothing."""
    propensity = _propensities(pool, bias, method)
    lowest, highest = float(propensity.min()), max(1.0, float(propensity.max()))
    if tau is None:
        between = np.geomspace(lowest, highest, STEPS)
        own = propensity if method == "clipped" else np.empty(0)
        return np.unique(np.concatenate([own, between, [lowest, highest]]))
    given = np.asarray(tau, dtype=float).ravel()
    if len(given) == 0 or not np.all(np.isfinite(given) & (given > 0)):
        raise OptionError(f"clips must be numbers above 0. Got {tau!r} instead.")
    return np.unique(np.concatenate([[min(lowest, given.min())], given]))


def _propensities(pool: Pool, bias: PositionBias, method: str) -> FloatArray:
    """theta by position; of the policy-aware estimate rho_d by document, 1 over its weight."""
    if method == "clipped":
        return bias.examination[: pool.depth]
    weight = credit_of(method, pool, bias, 0.0, None).weight
    return 1 / weight[weight > 0] if np.any(weight > 0) else np.ones(1)


def _discount_at_cells(
    log: ClickLog, pool: Pool, system: Any, name: str, metric: RankMetric, method: str
) -> FloatArray:
    weights = metric.weights(max(int(np.diff(pool.indptr).max()), pool.depth))
    if isinstance(system, Shown):
        return shown_discounts(pool, weights, method)
    cumulative = np.concatenate([[0.0], np.cumsum(weights)])
    of_document = discounts(scores_of(system, log, pool, name), pool.indptr, cumulative)
    return of_document[pool.document_of_cell]


def _sums(
    pool: Pool, bias: PositionBias, at: FloatArray, clips: FloatArray, method: str
) -> tuple[Sums, FloatArray]:
    total = np.empty((pool.n_queries, len(clips)))
    slope = np.empty((len(clips), pool.depth))
    clipped = np.empty(len(clips))
    clicks = max(float(pool.clicks.sum()), 1e-300)
    for t, tau in enumerate(clips):
        credit = credit_of(method, pool, bias, float(tau), None)
        total[:, t] = pool.by_query(pool.by_document(credit.cell * at))
        slope[t] = np.bincount(pool.position - 1, credit.slope * at, pool.depth)
        clipped[t] = pool.clicks[credit.clipped & credit.supported].sum() / clicks
    covariance = covariance_of(bias, pool.depth)
    return Sums(total, pool.sessions, slope, np.zeros(pool.depth), covariance), clipped


def _errors(sums: Sums) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Standard error of V(tau), its bias D against the first clip, and the estimated MSE."""
    influence, gradient = sums.influence, sums.gradient
    error = np.hypot(sampling_error(influence), bias_error(gradient, sums.covariance))
    gap = sums.value - sums.value[0]
    of_gap = np.hypot(
        sampling_error(influence - influence[:, :1]),
        bias_error(gradient - gradient[:1], sums.covariance),
    )
    return error, gap, np.maximum(0.0, gap**2 - of_gap**2) + error**2


# A picture of the clip curve: the estimate and its interval over tau.

BLUE, RED = "#0072B2", "#D55E00"


def plot(curve: "ClipCurve", *, title: str | None = None) -> "alt.LayerChart":
    """Save it with `chart.save("clip.html")`, or .png, .svg."""
    import altair as alt

    rows = [
        {"tau": float(t), "value": float(v), "low": float(a), "high": float(b), "mse": float(m)}
        for t, v, a, b, m in zip(
            curve.tau, curve.value, curve.low, curve.high, curve.mse, strict=True
        )
        if np.isfinite(v)
    ]
    x = alt.X("tau:Q", title="clip tau", scale=alt.Scale(type="log", nice=False))
    y = alt.Y("value:Q", title=curve.metric, scale=alt.Scale(zero=False))
    base = alt.Chart(alt.Data(values=rows)).encode(x=x)
    tip = [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("tau", "value", "low", "high")]
    chosen = alt.Chart(alt.Data(values=[{"tau": curve.best}])).encode(x=x)
    layers = alt.layer(
        base.mark_area(opacity=0.2, color=BLUE).encode(
            y=alt.Y("low:Q", title=curve.metric), y2="high:Q"
        ),
        base.mark_line(color=BLUE).encode(y=y),
        base.mark_point(filled=True, size=45, opacity=1, color=BLUE).encode(y=y, tooltip=tip),
        chosen.mark_rule(color=RED, strokeDash=[4, 3]),
    )
    heading = alt.TitleParams(
        title or "Estimate by clip",
        subtitle=f"band: {curve.level:.0%} interval; dashed: least estimated squared error",
        anchor="start",
    )
    return layers.properties(title=heading, width=560, height=320, background="white")
