"""Bias against variance: an estimate as a function of the clip, and a clip chosen by the data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from untilt._core import words
from untilt._core.arrays import FloatArray, check_same_shape
from untilt._core.portable import Portable
from untilt._core.statistics import check_level
from untilt.bias.curve import PositionBias
from untilt.bias.experiments.assignment import Baseline
from untilt.bias.given import BiasLike, best_cells_first, numbered_for
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError
from untilt.evaluation import uncertainty
from untilt.evaluation.evaluators import ClippedEvaluator, PolicyAwareEvaluator, mean_propensities
from untilt.evaluation.pool import Among, Evaluator, Pool, parse_evaluator, pool_of, with_option
from untilt.evaluation.slots import Discounts, MetricLike, RankMetric, slots_of
from untilt.evaluation.systems import System, judged_by, named_systems, query_totals, system_scores
from untilt.views import Section, Table, View

if TYPE_CHECKING:
    import altair as alt

STEPS = 20


@dataclass(frozen=True, eq=False, repr=False)
class ClipCurve(Portable, View):
    r"""The estimate of one system at several clips tau; the first is no clip at all.

    `mse` estimates the mean squared error. V(0) is unbiased where the curve is right, so the
    clip's bias is D = V(tau) - V(0), and D^2 is too large by Var(D):

        mse(tau) = max(0, D^2 - Var(D)) + Var(V(tau))

    with all variances clustered by query. `best` is the clip with the least; of equals the
    smallest. `low` and `high` are intervals around V(tau), which do not cover D.
    """

    clip: FloatArray
    value: FloatArray
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    bias: FloatArray
    mse: FloatArray
    clipped_share: FloatArray
    metric: str
    level: float
    evaluator: str

    def __post_init__(self) -> None:
        names = ("clip", "value", "std_error", "low", "high", "bias", "mse", "clipped_share")
        check_same_shape(self, *names)

    @property
    def best(self) -> float:
        """The clip with the least estimated mean squared error."""
        return float(self.clip[int(np.argmin(self.mse))])

    def plot(self, *, title: str | None = None) -> "alt.LayerChart":
        """An Altair chart of value and interval over the clip, the best clip marked.

        Save it with `chart.save("clip.html")`, or .png, .svg.
        """
        from untilt.charts.curves import Curve, XAxis, curves_chart
        from untilt.charts.theme import finished

        chart = curves_chart(
            {"estimate": Curve(self.clip, self.value, self.low, self.high)},
            value_title=self.metric,
            x=XAxis("clip", "log"),
            from_zero=False,
            marked=self.best,
        )
        return finished(
            chart,
            title=title or "Estimate by clip",
            subtitle=f"band: {self.level:.0%} interval, the clip's bias not in it; dashed: least "
            "estimated squared error",
        )

    @property
    def table(self) -> Table:
        """A row for each clip."""
        errors = np.sqrt(self.mse)
        columns = (self.clip, self.value, self.low, self.high, self.bias, errors)
        rows = tuple(
            (*(words.number(each, 4) for each in row), words.percent(clipped))
            for *row, clipped in zip(*columns, self.clipped_share, strict=True)
        )
        header = ("clip", "estimate", "low", "high", "clip's bias", "root mse", "clicks clipped")
        return Table(header, rows, text_columns=())

    def view(self) -> list[Section]:
        """The estimate at each clip."""
        title = f"{self.metric} by clip, chosen {self.best:.3g}"
        return [Section("clip", title, tables=(self.table,))]


def clip_curve_evaluator(evaluator: str | Evaluator) -> Evaluator:
    """The evaluator whose clip curve shows what clipping does to this one.

    Policy-aware where weights belong to documents, else clipped IPS: a relevance model or a
    self-normalised sum is left out of the curve.
    """
    pools = parse_evaluator(evaluator).pools_documents
    return PolicyAwareEvaluator() if pools else ClippedEvaluator()


def clip_curve(
    log: ClickLog,
    system: System,
    bias: BiasLike,
    *,
    metric: MetricLike = "dcg@10",
    evaluator: str | Evaluator | None = None,
    clip: npt.ArrayLike | None = None,
    among: Among = "list",
    baseline: Baseline = None,
    level: float = 0.95,
) -> ClipCurve:
    """Estimate and interval of one system as functions of the clip ([oosterhuis2020tutorial]_).

    Parameters
    ----------
    system : a ranker, an array of scores, or `untilt.shown`
    bias, metric, among, baseline, level : as in `untilt.estimate`
    evaluator : `ClippedEvaluator` (clipped IPS, the default) or `PolicyAwareEvaluator`, which is
        right also where sessions of a query show different documents; or their names
    clip : clips to try, above 0; the log's own propensities and steps between where not given
    """
    check_level(level)
    chosen = ClippedEvaluator() if evaluator is None else parse_evaluator(evaluator)
    if not isinstance(chosen, ClippedEvaluator | PolicyAwareEvaluator):
        names = ", ".join(each.name for each in (ClippedEvaluator(), PolicyAwareEvaluator()))
        raise OptionError(f"a clip curve has one of the evaluators {names}. Got {chosen} instead.")
    bias = best_cells_first(bias)
    whole = pool_of(numbered_for(log, bias), among, baseline)
    pool, curve, rank_metric = judged_by(chosen, whole, bias, metric)
    clips = _clips(clip, pool, curve, chosen)
    name, only = next(iter(named_systems(system).items()))
    at = slots_of(pool, rank_metric).discounts(system_scores(only, pool, name))
    sums, clipped = _sums(pool, curve, at, clips, chosen)
    error, gap, mse = _errors(sums)
    ends = [mean.interval(level) for mean in sums.means()]
    return ClipCurve(
        clip=clips,
        value=sums.value,
        std_error=error,
        low=np.array([end.low for end in ends]),
        high=np.array([end.high for end in ends]),
        bias=gap,
        mse=mse,
        clipped_share=clipped,
        metric=str(rank_metric),
        level=level,
        evaluator=chosen.name,
    )


def best_clip(
    pool: Pool,
    systems: Mapping[str, System],
    bias: PositionBias,
    metric: RankMetric,
    evaluator: Evaluator,
) -> float:
    """One clip for all systems: the least estimated mean squared error, summed over them."""
    clips, slots = _clips(None, pool, bias, evaluator), slots_of(pool, metric)
    total = np.zeros(len(clips))
    for name, system in systems.items():
        at = slots.discounts(system_scores(system, pool, name))
        total += _errors(_sums(pool, bias, at, clips, evaluator)[0])[2]
    return float(clips[int(np.argmin(total))])


def _clips(
    clip: npt.ArrayLike | None, pool: Pool, bias: PositionBias, evaluator: Evaluator
) -> FloatArray:
    """Rising clips; the first is the smallest propensity, which clips nothing."""
    propensity = _propensities(pool, bias, evaluator)
    lowest, highest = float(propensity.min()), max(1.0, float(propensity.max()))
    if clip is None:
        between = np.geomspace(lowest, highest, STEPS)
        # There are few positions, and as many propensities of documents as there are documents.
        own = np.empty(0) if evaluator.pools_documents else propensity
        return np.unique(np.concatenate([own, between, [lowest, highest]]))
    given = np.asarray(clip, dtype=float).ravel()
    if len(given) == 0 or not np.all(np.isfinite(given) & (given > 0)):
        raise OptionError(f"clips must be numbers above 0. Got {clip!r} instead.")
    return np.unique(np.concatenate([[min(lowest, given.min())], given]))


def _propensities(pool: Pool, bias: PositionBias, evaluator: Evaluator) -> FloatArray:
    """theta by position; of the policy-aware estimate rho_d by document."""
    if not evaluator.pools_documents:
        return bias.examination[: pool.depth]
    rho = mean_propensities(pool, bias)
    return rho[rho > 0] if np.any(rho > 0) else np.ones(1)


def _sums(
    pool: Pool, bias: PositionBias, at: Discounts, clips: FloatArray, evaluator: Evaluator
) -> tuple[uncertainty.Sums, FloatArray]:
    total = np.empty((pool.n_queries, len(clips)))
    slope = np.empty((len(clips), pool.depth))
    clipped = np.empty(len(clips))
    clicks = max(float(pool.clicks.sum()), 1e-300)
    for i, clip in enumerate(clips):
        credit = with_option(evaluator, "clip", float(clip)).credit(pool, bias)
        total[:, i] = query_totals(pool, credit, at)
        slope[i] = pool.by_position(credit.slope * at.cell)
        clipped[i] = pool.clicks[credit.clipped & credit.supported].sum() / clicks
    sums = uncertainty.Sums(
        total,
        pool.sessions,
        slope,
        np.zeros(pool.depth),
        uncertainty.covariance_of(bias, pool.depth),
        uncertainty.curve_degrees(bias, pool.depth),
    )
    return sums, clipped


def _errors(sums: uncertainty.Sums) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Standard error of V(tau), its bias D against the first clip, and the estimated MSE."""
    error, to_first = sums.means().std_error, sums.means(0)
    gap, of_gap = to_first.value, to_first.std_error
    return error, gap, np.maximum(0.0, gap**2 - of_gap**2) + error**2
