"""Two rankers on the same queries: the paired difference is far less noisy than the two means."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from untilt._core.arrays import FloatArray, handed_over
from untilt._core.statistics import Interval, MeanEstimate, student_p_value
from untilt.errors import OptionError, ShapeError
from untilt.evaluation.by_metric import ByMetric, as_table
from untilt.metrics import Metric
from untilt.metrics.base import mean_of_lists

if TYPE_CHECKING:
    from untilt.evaluation.judged import Evaluation


@dataclass(frozen=True, eq=False)
class MetricDifference:
    """Mean paired difference of one metric. `p_value` is two-sided, of a paired t-test."""

    metric: Metric
    value: float
    std_error: float
    interval: Interval
    p_value: float
    n_queries: int
    per_query: FloatArray

    def __repr__(self) -> str:
        return (
            f"{self.metric} {self.value:+.4f} +- {self.std_error:.4f}, "
            f"{self.interval.level:.0%} interval {self.interval}, p {self.p_value:.2g}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(ByMetric[MetricDifference]):
    """First ranker minus second, metric by metric: `comparison["ndcg@10"].interval`."""

    entries: tuple[MetricDifference, ...]
    level: float

    def __repr__(self) -> str:
        header = ("metric", "difference", "std error", f"{self.level:.0%} interval", "p")
        rows = [
            (
                str(entry.metric) + ("" if entry.metric.higher_is_better else " (lower is better)"),
                f"{entry.value:+.4f}",
                f"{entry.std_error:.4f}",
                f"[{entry.interval.low:+.4f}, {entry.interval.high:+.4f}]",
                f"{entry.p_value:.2g}",
            )
            for entry in self
        ]
        n = len(self.entries[0].per_query)
        return f"Comparison, first minus second, paired over {n:,} queries\n" + as_table(
            header, rows
        )


def paired_differences(first: "Evaluation", second: "Evaluation") -> Comparison:
    """See `Evaluation.minus`. Metrics that only one side has are left out."""
    _check_same_queries(first, second)
    shared = [metric for metric in first.metrics if metric in second.metrics]
    if not shared:
        raise OptionError(
            f"the two evaluations share no metric: {', '.join(map(str, first.metrics))} against "
            f"{', '.join(map(str, second.metrics))}. Evaluate both with the same metrics."
        )
    entries = tuple(_difference(metric, first, second) for metric in shared)
    return Comparison(entries=entries, level=first.level)


def _difference(metric: Metric, first: "Evaluation", second: "Evaluation") -> MetricDifference:
    gap = first[metric].per_query - second[metric].per_query
    mean = mean_of_lists(gap, weights=first.weights)
    return MetricDifference(
        metric=metric,
        value=mean.value,
        std_error=mean.std_error,
        interval=mean.interval(first.level),
        p_value=_p_value(mean),
        n_queries=mean.n,
        per_query=handed_over(gap),
    )


def _p_value(mean: MeanEstimate) -> float:
    """Of the hypothesis that the mean is 0; NaN from a single query, which has no spread."""
    if mean.n < 2:
        return float("nan")
    if mean.std_error == 0:
        return 1.0 if mean.value == 0 else 0.0
    return student_p_value(mean.value / mean.std_error, mean.n - 1)


def _check_same_queries(first: "Evaluation", second: "Evaluation") -> None:
    if not np.array_equal(first.query_id, second.query_id):
        raise ShapeError(
            f"the two evaluations must be on the same queries in the same order. Got "
            f"{len(first.query_id):,} and {len(second.query_id):,} queries that differ. "
            f"Evaluate both rankers on the same JudgedLists."
        )
    if not np.array_equal(first.weights, second.weights):
        raise OptionError("the two evaluations weigh queries differently. Use the same weights.")
    if first.empty != second.empty:
        raise OptionError(
            f"the two evaluations count queries without a relevant document differently: "
            f"{first.empty!r} and {second.empty!r}. Use the same `empty`."
        )
