"""How good a ranking is by human labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy import special

from untilt._core.arrays import AnyArray, BoolArray, FloatArray, frozen, handed_over
from untilt._core.feature_table import predicted
from untilt._core.portable import Portable
from untilt._core.statistics import Interval, MeanEstimate, check_level
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists, check_judged
from untilt.data.seen import Overlap, has_memory, held_out_part, overlap_of
from untilt.errors import OptionError, ShapeError
from untilt.evaluation.unshown import (
    TOP,
    Bound,
    Unshown,
    labels_under,
    never_shown,
    top_places,
    unshown_table,
)
from untilt.facts import Fact, note, phrase, serious, warning
from untilt.metrics.metric import (
    Empty,
    Metric,
    Ties,
    checked_weights,
    mean_of_lists,
    parse_metric,
    parse_metrics,
    values_per_list,
)
from untilt.views import Entries, Section, Table, View

UNSHOWN_JUDGED = warning(
    "estimate.unshown-judged",
    "documents that the log never showed fill {share:.1%} of its top {top} places, in "
    "{queries:.0%} of the queries: clicks of that log cannot estimate their part of the value",
)
TRAINING_UNKNOWN = note(
    "estimate.training-unknown",
    "does not say which queries it was trained on: if these are among them, the value is too good",
)()
IDS_AGAIN = note(
    "estimate.ids-again",
    "{n_trained:,} of these {n_queries:,} query ids stood in the training data, with other "
    "documents each: taken as other queries that have the same numbers. If they are the same "
    "queries, the value may be too good",
)
VALIDATED_QUERIES = warning(
    "estimate.validated-queries",
    "chosen or stopped early by {n_validated:,} of these {n_queries:,} queries ({share:.0%}): the "
    "value is a little too good",
)
TRAINED_QUERIES = serious(
    "estimate.trained-queries",
    "trained on {n_trained:,} of these {n_queries:,} queries ({share:.0%}): a ranker that "
    "remembers them looks better than it is. ⟦held_out=True⟧ counts the others alone. "
    "Where these are other sessions of the same queries, the value holds for queries that come "
    "again",
)


@runtime_checkable
class Predicts(Protocol):
    """Anything that turns features into scores."""

    def predict(self, features: Any, /) -> Any:
        """One score for each row of the features."""
        ...


def evaluate(
    judged: JudgedLists,
    scores: npt.ArrayLike | Predicts,
    metrics: str | Metric | Sequence[str | Metric] = ("ndcg@10", "map"),
    *,
    ties: Ties = "average",
    empty: Empty = "zero",
    level: float = 0.95,
    weights: npt.ArrayLike | None = None,
    held_out: bool = False,
    shown: ClickLog | None = None,
) -> "Evaluation":
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
    held_out : take only the queries that the ranker was not trained on. Without, the result warns
        where there are others
    shown : a click log with the same ids of queries and documents. Then each metric also says how
        much of the top nobody was shown, and its value if such documents had label 0, or the mean
        label of those shown for their query (`MetricEstimate.unshown`): what clicks cannot tell
    """
    check_level(level)
    check_judged(judged, "⟦ut.estimate|untilt evaluate⟧ estimates the value of rankers from clicks")
    chosen = parse_metrics(metrics)
    if held_out:
        judged, weights = _held_out(judged, scores, weights)
    s: Any = scores
    if isinstance(scores, Predicts):
        s = predicted(scores, judged.features, judged.feature_names, judged.missing)

    def means(labels: FloatArray) -> list[MetricEstimate]:
        values = values_per_list(chosen, s, labels, judged.indptr, ties=ties, empty=empty)
        columns = (np.ascontiguousarray(column) for column in values.T)
        return [
            _mean(MetricEstimate, metric, column, w, level)
            for metric, column in zip(chosen, columns, strict=True)
        ]

    w = checked_weights(weights, judged.n_queries)
    entries = means(judged.labels)
    if shown is not None:
        never, answered = never_shown(judged, shown)
        nothing, as_shown = (
            means(labels_under(judged, never, worth)) for worth in ("nothing", "as shown")
        )
        counted = np.where(answered, w, 0.0)
        entries = [
            replace(entry, unshown=_unshown(entry.metric, s, judged, never, counted, ends))
            for entry, *ends in zip(entries, nothing, as_shown, strict=True)
        ]
    return Evaluation(
        entries=tuple(entries),
        query_id=judged.query_id,
        weights=frozen(w),
        ties=ties,
        empty=empty,
        level=level,
        warnings=(*memory_facts(judged, scores), *_unshown_facts(entries)),
    )


def _unshown(
    metric: Metric,
    scores: npt.ArrayLike,
    judged: JudgedLists,
    never: BoolArray,
    weights: FloatArray,
    ends: "Sequence[MetricEstimate]",
) -> Unshown | None:
    """What one metric owes to documents that nobody was shown; None where all of them were."""
    if not never.any():
        return None
    top = TOP if metric.cut is None else metric.cut
    places = top_places(np.asarray(scores, dtype=float), judged.indptr, never, top)
    total = max(float(weights.sum()), 1e-300)
    share, queries = (float(weights @ each) / total for each in (places, places > 0))
    return Unshown(share, queries, top, *map(Bound.of, ends))


def _unshown_facts(entries: "Sequence[MetricEstimate]") -> list[Fact]:
    """One fact, of the metric with the most places that nobody was shown."""
    found = [each.unshown for each in entries if each.unshown is not None and each.unshown.share]
    if not found:
        return []
    most = max(found, key=lambda each: each.share)
    fields = {"share": most.share, "queries": most.queries, "top": most.top}
    return [UNSHOWN_JUDGED(**fields)]


def _held_out(
    judged: JudgedLists, scores: Any, weights: npt.ArrayLike | None
) -> tuple[JudgedLists, npt.ArrayLike | None]:
    if not isinstance(scores, Predicts):
        raise OptionError("⟦held_out=True⟧ needs a ranker: plain scores were trained on nothing.")
    part = held_out_part(judged, {"the ranker": scores})
    if weights is None:
        return part, None
    kept = np.isin(judged.query_id, part.query_id)
    return part, checked_weights(weights, judged.n_queries)[kept]


def memory_facts(data: ClickLog | JudgedLists, system: Any) -> tuple[Fact, ...]:
    """What is to be said where a ranker may have learned from the queries that it is judged by."""
    if not isinstance(system, Predicts):
        return ()
    if not has_memory(system):
        return (TRAINING_UNKNOWN,)
    return overlap_facts(overlap_of(data, system))


def overlap_facts(known: Overlap) -> tuple[Fact, ...]:
    """The same, from how many of the queries are known."""
    facts, n = [], known.n_queries
    if known.trained:
        told = TRAINED_QUERIES if known.same_documents else IDS_AGAIN
        facts.append(told(n_queries=n, n_trained=known.trained, share=known.trained / n))
    if known.validated:
        share = known.validated / n
        facts.append(VALIDATED_QUERIES(n_queries=n, n_validated=known.validated, share=share))
    return tuple(facts)


@dataclass(frozen=True, eq=False)
class MetricEstimate(Portable):
    """The mean of one metric over queries, with its error. `per_query` is NaN where skipped.

    `effective_queries`: as many of equal weight would tell as much. `unshown`: the part of the top
    that nobody was shown, where a log says so; `queries` are weighted there as in the mean.
    """

    metric: Metric
    value: float
    std_error: float
    interval: Interval
    n_queries: int
    per_query: FloatArray
    effective_queries: float
    unshown: Unshown | None = None

    def __repr__(self) -> str:
        return (
            f"{self.metric} {self.value:.4f} +- {self.std_error:.4f}, {self.interval.level:.0%} "
            f"interval {self.interval} over {self.n_queries:,} queries{_effective(self)}"
        )


@dataclass(frozen=True)
class WinSameLoss:
    """On how many queries one ranker is better than another, as good, and worse.

    Each query counts once, however large its difference (table 4 of [hu2019unbiased]_). The sign
    test is exact: where neither is better, wins are Binomial(win + loss, 1/2). Take it for
    judgements of people, too, who saw two pages side by side.

    >>> WinSameLoss(win=21, same=68, loss=11)
    21 win, 68 same, 11 loss: 1.91 wins per loss, 65.6% of 32, 95% interval [46.8%, 81.4%], p 0.11
    """

    win: int
    same: int
    loss: int
    level: float = 0.95

    def __post_init__(self) -> None:
        check_level(self.level)
        if min(self.win, self.same, self.loss) < 0:
            raise OptionError(
                f"win, same and loss are numbers of queries. Got {self.win}, {self.same} and "
                f"{self.loss} instead."
            )

    @property
    def ratio(self) -> float:
        """Wins per loss; NaN where there is neither."""
        if self.loss == 0:
            return float("inf") if self.win else float("nan")
        return self.win / self.loss

    @property
    def share(self) -> float:
        """Of wins among wins and losses; NaN where there is neither."""
        decided = self.win + self.loss
        return self.win / decided if decided else float("nan")

    @property
    def interval(self) -> Interval:
        """Of the share, exact (Clopper and Pearson, [clopper1934]_)."""
        tail = (1 - self.level) / 2
        low = special.betaincinv(self.win, self.loss + 1, tail) if self.win else 0.0
        high = special.betaincinv(self.win + 1, self.loss, 1 - tail) if self.loss else 1.0
        return Interval(float(low), float(high), self.level)

    @property
    def p_value(self) -> float:
        """Of the sign test, two-sided; 1 where no query was decided."""
        decided = self.win + self.loss
        return min(1.0, 2 * float(special.bdtr(min(self.win, self.loss), decided, 0.5)))

    def __repr__(self) -> str:
        low, high = self.interval.low, self.interval.high
        return (
            f"{self.win:,} win, {self.same:,} same, {self.loss:,} loss: {self.ratio:.2f} wins per "
            f"loss, {self.share:.1%} of {self.win + self.loss:,}, {self.level:.0%} interval "
            f"[{low:.1%}, {high:.1%}], p {self.p_value:.2g}"
        )


# Differences below this are those of rounding.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class MetricDifference(MetricEstimate):
    """The mean paired difference of one metric."""

    def win_same_loss(self, margin: float = 0.0) -> WinSameLoss:
        """On how many queries the first ranker is better by more than `margin`, or worse.

        Queries without a value are left out; weights of queries do not count.
        """
        if not 0 <= margin < np.inf:
            raise OptionError(f"margin must be a number of at least 0. Got {margin} instead.")
        better = self.per_query if self.metric.higher_is_better else -self.per_query
        win, loss = better > max(margin, ROUNDING), better < -max(margin, ROUNDING)
        same = int(np.sum(~np.isnan(better))) - int(win.sum()) - int(loss.sum())
        return WinSameLoss(int(win.sum()), same, int(loss.sum()), self.interval.level)

    @property
    def p_value(self) -> float:
        """Two-sided, of a paired t-test; NaN from a single query."""
        effective = self.effective_queries
        return MeanEstimate(self.value, self.std_error, self.n_queries, effective).p_value

    def __repr__(self) -> str:
        return (
            f"{self.metric} {self.value:+.4f} +- {self.std_error:.4f}, "
            f"{self.interval.level:.0%} interval {self.interval}, p {self.p_value:.2g}"
        )


Entry = TypeVar("Entry", bound=MetricEstimate)


class ByMetric(Entries[Entry]):
    """Results that are looked up by metric or by its name: result["ndcg@10"]."""

    named_by: ClassVar[str] = "metric"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics, in the order asked for."""
        return tuple(entry.metric for entry in self.entries)

    def __getitem__(self, metric: str | Metric) -> Entry:
        return super().__getitem__(parse_metric(metric))

    def __contains__(self, metric: str | Metric) -> bool:
        return parse_metric(metric) in self.metrics


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(ByMetric[MetricEstimate], Portable, View):
    """Metrics of one ranker on judged lists: `evaluation["ndcg@10"].value`.

    Queries are the independent units: intervals are Student's t over queries, over fewer in effect
    where these have weights. `warnings` say where the ranker was trained on queries that it is
    judged by.
    """

    entries: tuple[MetricEstimate, ...]
    query_id: AnyArray
    weights: FloatArray
    ties: Ties
    empty: Empty
    level: float
    warnings: tuple[Fact, ...] = ()

    @property
    def per_query(self) -> Mapping[str, FloatArray]:
        """Name of the metric -> its value on each query, in the order of `query_id`."""
        return MappingProxyType({str(entry.metric): entry.per_query for entry in self})

    def minus(self, other: "Evaluation") -> "Comparison":
        """This ranker minus the other on the same queries: paired differences.

        Far less noisy than the difference of two means. Metrics that only one side has are left
        out.
        """
        _check_same_queries(self, other)
        shared = [metric for metric in self.metrics if metric in other.metrics]
        if not shared:
            raise OptionError(
                f"the two evaluations share no metric: {', '.join(map(str, self.metrics))} against "
                f"{', '.join(map(str, other.metrics))}. Evaluate both with the same metrics."
            )
        entries = [
            _mean(
                MetricDifference,
                metric,
                self[metric].per_query - other[metric].per_query,
                self.weights,
                self.level,
            )
            for metric in shared
        ]
        return Comparison(entries=tuple(entries), level=self.level)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Plain numbers for JSON."""
        return {
            str(entry.metric): {
                "value": entry.value,
                "std_error": entry.std_error,
                "low": entry.interval.low,
                "high": entry.interval.high,
                "n_queries": entry.n_queries,
                "effective_queries": entry.effective_queries,
                **({} if entry.unshown is None else _unshown_plain(entry.unshown)),
            }
            for entry in self
        }

    def view(self) -> list[Section]:
        """The means, and what to beware of."""
        title = (
            f"Evaluation on {len(self.query_id):,} judged queries "
            f"(ties: {self.ties}; queries without a relevant document: {self.empty})"
        )
        means = _mean_table("metric", {_title(entry.metric): entry for entry in self}, self.level)
        return [Section("judged", title, tables=(means,), cautions=self.warnings)]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(ByMetric[MetricDifference], View):
    """First ranker minus second, metric by metric: `comparison["ndcg@10"].interval`."""

    entries: tuple[MetricDifference, ...]
    level: float

    def view(self) -> list[Section]:
        """The differences with their intervals."""
        header = ("metric", "difference", "std error", f"{self.level:.0%} interval", "p")
        rows = tuple((_title(e.metric), *_cells(e, "+"), f"{e.p_value:.2g}") for e in self)
        queries = len(self.entries[0].per_query)
        title = f"Comparison, first minus second, paired over {queries:,} queries"
        return [Section("judged-differences", title, tables=(Table(header, rows),))]


def systems_by_labels(found: Mapping[str, Evaluation], metric: str | Metric) -> list[Section]:
    """Several rankers on the same judged lists, by one metric."""
    first, means = next(iter(found.values())), {name: each[metric] for name, each in found.items()}
    unshown = {name: each.unshown for name, each in means.items() if each.unshown is not None}
    values = _mean_table("system", means, first.level)
    tables = (values, unshown_table(unshown)) if unshown else (values,)
    cautions = tuple(
        phrase("{name}: {warning}", name=name, warning=warning)
        for name, each in found.items()
        for warning in each.warnings
    )
    title = f"{metric} by labels, {len(first.query_id):,} queries"
    return [Section("judged", title, tables=tables, cautions=cautions)]


def _mean_table(what: str, means: Mapping[str, MetricEstimate], level: float) -> Table:
    rows = tuple(
        (name, *_cells(each), f"{each.n_queries:,}{_effective(each)}")
        for name, each in means.items()
    )
    return Table((what, "mean", "std error", f"{level:.0%} interval", "queries"), rows)


def _cells(entry: MetricEstimate, sign: str = "") -> tuple[str, str, str]:
    return f"{entry.value:{sign}.4f}", f"{entry.std_error:.4f}", f"{entry.interval:{sign}.4f}"


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


def _mean(
    kind: type[Entry], metric: Metric, values: FloatArray, weights: FloatArray, level: float
) -> Entry:
    mean = mean_of_lists(values, weights=weights)
    return kind(
        metric=metric,
        value=mean.value,
        std_error=mean.std_error,
        interval=mean.interval(level),
        n_queries=mean.n,
        per_query=handed_over(values),
        effective_queries=mean.effective,
    )


def _unshown_plain(unshown: Unshown) -> dict[str, float]:
    """Its figures by plain names."""
    return {
        "unshown_share": unshown.share,
        "unshown_queries": unshown.queries,
        "if_unshown_nothing": unshown.nothing.value,
        "if_unshown_as_shown": unshown.as_shown.value,
    }


def _effective(entry: MetricEstimate) -> str:
    """How many queries there are in effect, where weights make them fewer."""
    effective = entry.effective_queries
    return f" ({effective:,.1f} effective)" if effective < entry.n_queries - 0.5 else ""


def _title(metric: Metric) -> str:
    return f"{metric}" if metric.higher_is_better else f"{metric} (lower is better)"
