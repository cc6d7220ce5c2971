"""How good a ranking is by human labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from untilt._core.arrays import AnyArray, FloatArray, frozen, handed_over
from untilt._core.statistics import Interval, check_level
from untilt.evaluation.by_metric import ByMetric, as_table
from untilt.evaluation.compare import Comparison, paired_differences
from untilt.logs.judged import JudgedLists
from untilt.metrics import Metric, parse_metrics
from untilt.metrics.base import Empty, Ties, checked_weights, mean_of_lists, values_per_list


class Predicts(Protocol):
    """Anything that turns features into scores."""

    def predict(self, features: Any, /) -> Any:
        """One score for each row of the features."""
        ...


@dataclass(frozen=True, eq=False)
class MetricEstimate:
    """The mean of one metric over queries, with its doubt. `per_query` is NaN where skipped."""

    metric: Metric
    value: float
    std_error: float
    interval: Interval
    n_queries: int
    per_query: FloatArray

    def __repr__(self) -> str:
        return (
            f"{self.metric} {self.value:.4f} +- {self.std_error:.4f}, {self.interval.level:.0%} "
            f"interval {self.interval} over {self.n_queries:,} queries"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(ByMetric[MetricEstimate]):
    """Metrics of one ranker on judged lists: `evaluation["ndcg@10"].value`.

    Queries are the independent units: intervals are Student's t over queries.
    """

    entries: tuple[MetricEstimate, ...]
    query_id: AnyArray
    weights: FloatArray
    ties: Ties
    empty: Empty
    level: float

    @property
    def per_query(self) -> Mapping[str, FloatArray]:
        """Name of the metric -> its value on each query, in the order of `query_id`."""
        return MappingProxyType({str(entry.metric): entry.per_query for entry in self})

    def minus(self, other: "Evaluation") -> Comparison:
        """This ranker minus the other on the same queries: paired differences."""
        return paired_differences(self, other)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Plain numbers for JSON."""
        return {
            str(entry.metric): {
                "value": entry.value,
                "std_error": entry.std_error,
                "low": entry.interval.low,
                "high": entry.interval.high,
                "n_queries": entry.n_queries,
            }
            for entry in self
        }

    def __repr__(self) -> str:
        header = ("metric", "mean", "std error", f"{self.level:.0%} interval", "queries")
        rows = [
            (
                str(entry.metric) + ("" if entry.metric.higher_is_better else " (lower is better)"),
                f"{entry.value:.4f}",
                f"{entry.std_error:.4f}",
                f"[{entry.interval.low:.4f}, {entry.interval.high:.4f}]",
                f"{entry.n_queries:,}",
            )
            for entry in self
        ]
        title = (
            f"Evaluation on {len(self.query_id):,} judged queries "
            f"(ties: {self.ties}; queries without a relevant document: {self.empty})"
        )
        return f"{title}\n{as_table(header, rows)}"


def evaluate(
    judged: JudgedLists,
    scores: npt.ArrayLike | Predicts,
    metrics: str | Metric | Sequence[str | Metric] = ("ndcg@10", "map"),
    *,
    ties: Ties = "average",
    empty: Empty = "zero",
    level: float = 0.95,
    weights: npt.ArrayLike | None = None,
) -> Evaluation:
    """Mean of each metric over the queries, with intervals and the value of each query.

    Right for comparing rankers on lists that people judged; labels that come from clicks tilt
    towards what was shown on top.

    Parameters
    ----------
    scores : (documents,) one score for each row of `judged`, larger = better, or anything with
        `predict(features)`
    metrics : names such as "ndcg@10", or metrics
    ties, empty : the rules for equal scores and for queries without a relevant document; see
        `untilt.metrics.Metric`
    level : of the intervals
    weights : (queries,) how much each query counts; 1 each where not given
    """
    check_level(level)
    chosen = parse_metrics(metrics)
    s: Any = scores.predict(judged.features) if hasattr(scores, "predict") else scores
    values = values_per_list(chosen, s, judged.labels, judged.indptr, ties=ties, empty=empty)
    w = checked_weights(weights, judged.n_queries)
    entries = tuple(
        _estimate(metric, np.ascontiguousarray(values[:, m]), w, level)
        for m, metric in enumerate(chosen)
    )
    return Evaluation(
        entries=entries,
        query_id=judged.query_id,
        weights=frozen(w),
        ties=ties,
        empty=empty,
        level=level,
    )


def _estimate(
    metric: Metric, values: FloatArray, weights: FloatArray, level: float
) -> MetricEstimate:
    mean = mean_of_lists(values, weights=weights)
    return MetricEstimate(
        metric=metric,
        value=mean.value,
        std_error=mean.std_error,
        interval=mean.interval(level),
        n_queries=mean.n,
        per_query=handed_over(values),
    )
