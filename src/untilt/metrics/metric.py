"""What a metric is: a value that prints, parses and hashes, and a formula on ragged lists.

Names are ndcg@10, ndcg@5:gain=linear, map:relevant_from=2, arp.

One compiled loop over ragged lists for all metrics at once: each list is sorted only once.

Every metric is a walk down the ranking with a weight lambda(r) for rank r (`discount`), a gain for
each document, and a norm; the codes below say which. Ties are groups of ranks that the documents
of equal score fill in random order, and the walks give the exact expectation over that order
[mcsherry2008ties]_. The other rules for ties are the special case of groups of one.
"""

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, read_only_view, whole_numbers
from untilt._core.printed import option_kinds, option_pairs, options_text, parse_options
from untilt._core.sorting import falling_order
from untilt._core.statistics import MeanEstimate, weighted_mean
from untilt._core.threads import Share, parallel_kernel
from untilt.catalog import find, method
from untilt.errors import OptionError, ShapeError, check_choice

# How equal scores are ordered.
STABLE, PESSIMISTIC, OPTIMISTIC, AVERAGE = 0, 1, 2, 3
# What is summed on the way down the ranking.
EACH_GAIN, PRECISION_AT_GAIN, FIRST_GAIN = 0, 1, 2
# The gain of a label.
LINEAR, EXPONENTIAL, BINARY = 0, 1, 2
# What the sum is divided by.
ONE, TOTAL_GAIN, IDEAL = 0, 1, 2


class Formulas(NamedTuple):
    """Metrics m = 0, 1, ... in the codes above, one entry for each.

    `discount` has shape (metrics, longest list); `cut[m]` is the last rank that counts, `empty[m]`
    the value of a list without any gain.
    """

    walk: IntArray
    gain: IntArray
    relevant_from: FloatArray
    norm: IntArray
    discount: FloatArray
    cut: IntArray
    empty: FloatArray


def values_of_lists(
    scores: FloatArray, labels: FloatArray, indptr: IntArray, ties: int, formulas: Formulas
) -> FloatArray:
    """Value of each metric on each list, shape (lists, metrics)."""
    values = np.empty((len(indptr) - 1, len(formulas.walk)))
    scores, labels, indptr = (read_only_view(each) for each in (scores, labels, indptr))
    _every_list(len(values), scores, labels, indptr, ties, formulas, values)
    return values


@parallel_kernel()
def _every_list(
    mine: Share, scores: FloatArray, labels: FloatArray, indptr: IntArray, ties: int,
    formulas: Formulas, values: FloatArray,
) -> None:  # fmt: skip
    for i in range(mine[0], mine[1]):
        a, b = indptr[i], indptr[i + 1]
        _one_list(scores[a:b].copy(), labels[a:b].copy(), ties, formulas, values[i])


@nb.njit(cache=True, inline="always")
def _one_list(
    score: FloatArray, label: FloatArray, ties: int, formulas: Formulas, values: FloatArray
) -> None:
    order = _order(score, label, ties)
    ends = _group_ends(score[order], ties == AVERAGE)
    ranked = label[order]
    best = ranked[falling_order(ranked)]
    for m in range(len(formulas.walk)):
        gain, relevant_from = formulas.gain[m], formulas.relevant_from[m]
        g = _gains(ranked, gain, relevant_from)
        total = g.sum()
        if total == 0:
            values[m] = formulas.empty[m]
            continue
        last = min(len(g), formulas.cut[m])
        discount = formulas.discount[m, :last]
        if formulas.walk[m] == EACH_GAIN:
            value = _each_gain(g, ends, discount)
        elif formulas.walk[m] == PRECISION_AT_GAIN:
            value = _precision_at_gain(g, ends, discount)
        else:
            value = _first_gain(g, ends, discount)
        if formulas.norm[m] == TOTAL_GAIN:
            value /= total
        elif formulas.norm[m] == IDEAL:
            value /= np.sum(_gains(best[:last], gain, relevant_from) * discount)
        values[m] = value


@nb.njit(cache=True, inline="always")
def _order(score: FloatArray, label: FloatArray, ties: int) -> IntArray:
    """Rows by falling score; equal scores in the order of their rows, or by label."""
    if ties == PESSIMISTIC:
        first = falling_order(-label)
    elif ties == OPTIMISTIC:
        first = falling_order(label)
    else:
        return falling_order(score)
    return first[falling_order(score[first])]


@nb.njit(cache=True)
def _group_ends(falling: FloatArray, together: bool) -> IntArray:
    """ends[a] is where the group of equal scores from index a ends; only starts are looked up."""
    n = len(falling)
    ends = np.arange(1, n + 1)
    if together:
        for i in range(n - 2, -1, -1):
            if falling[i] == falling[i + 1]:
                ends[i] = ends[i + 1]
    return ends


@nb.njit(cache=True)
def _gains(label: FloatArray, kind: int, relevant_from: float) -> FloatArray:
    if kind == EXPONENTIAL:
        return np.exp2(label) - 1.0
    if kind == BINARY:
        return (label >= relevant_from).astype(np.float64)
    return label.copy()


@nb.njit(cache=True)
def _each_gain(g: FloatArray, ends: IntArray, discount: FloatArray) -> float:
    """E sum_r lambda(r) g_r: in a group each document takes each rank equally often."""
    value, a, last = 0.0, 0, len(discount)
    while a < last:
        b = ends[a]
        value += g[a:b].sum() * discount[a:b].sum() / (b - a)
        a = b
    return value


@nb.njit(cache=True)
def _precision_at_gain(g: FloatArray, ends: IntArray, discount: FloatArray) -> float:
    """E sum over relevant r of lambda(r) * (relevant documents at ranks 1..r).

    A group of n ranks with p relevant documents, `before` of them above it: its rank t = 0, 1, ...
    holds a relevant one with probability p/n, and then t (p - 1)/(n - 1) of the t ranks above do.
    """
    value, before, a, last = 0.0, 0.0, 0, len(discount)
    while a < last:
        b = ends[a]
        n, p = b - a, g[a:b].sum()
        if p > 0:
            more = (p - 1) / (n - 1) if n > 1 else 0.0
            for t in range(min(b, last) - a):
                value += p / n * (before + 1 + t * more) * discount[a + t]
        before += p
        a = b
    return value


@nb.njit(cache=True)
def _first_gain(g: FloatArray, ends: IntArray, discount: FloatArray) -> float:
    """E lambda(rank of the first relevant document), 0 where it lies below the cut.

    In the first group that holds p relevant among n, rank t is the first relevant one with
    probability P(none before) * p/(n - t).
    """
    value, a, last = 0.0, 0, len(discount)
    while a < last:
        b = ends[a]
        p = g[a:b].sum()
        if p > 0:
            none_before = 1.0
            for t in range(min(b, last) - a):
                left = b - a - t
                value += none_before * p / left * discount[a + t]
                none_before *= max(0.0, left - p) / left
            return value
        a = b
    return value


Ties = Literal["average", "stable", "pessimistic", "optimistic"]
Empty = Literal["zero", "one", "skip"]
Gain = Literal["exponential", "linear"]

TIES: dict[str, int] = {
    "average": AVERAGE,
    "stable": STABLE,
    "pessimistic": PESSIMISTIC,
    "optimistic": OPTIMISTIC,
}
EMPTY: dict[str, float] = {"zero": 0.0, "one": 1.0, "skip": float("nan")}
GAINS: dict[str, int] = {"exponential": EXPONENTIAL, "linear": LINEAR}
# 2^1000 leaves room to sum ten million of them in a float64.
LARGEST_EXPONENT = 1000.0
_NAME = re.compile(r"(?P<name>[^@:]+?)\s*(@\s*(?P<k>[^:]*?)\s*)?(:(?P<options>.*))?")


class Formula(NamedTuple):
    """A metric as the kernel reads it; the codes are the kernel's."""

    walk: int
    gain: int
    norm: int
    relevant_from: float = 0.0


@dataclass(frozen=True)
class Metric(ABC):
    r"""A ranking metric of one list, averaged over lists. Equal options make equal metrics.

    `str(metric)` is a name such as `ndcg@10` that `parse_metric` reads back.

    *Ties* (`ties=`). Documents with equal scores can stand in any order:

    - "average" (the default): the expectation over all their orders, exact and in closed form
      [mcsherry2008ties]_. The value then says nothing about the order of the rows in a file.
    - "stable": in the order of the rows, as LightGBM does; a file sorted by label flatters.
    - "pessimistic", "optimistic": smaller or larger labels first, the two ends of what is possible.

    *Lists without a relevant document* (`empty=`), which no ranker can order well or badly:

    - "zero" (the default): count 0, as trec_eval, scikit-learn and the LETOR scripts do, so that
      figures compare with published ones;
    - "one": count 1, as LightGBM and XGBoost do. DCG stays 0, its ideal there;
    - "skip": have no value (NaN) and leave the mean.

    ARP has no value on such a list and skips it under every rule.
    """

    name: ClassVar[str]
    higher_is_better: ClassVar[bool] = True
    # Whether sum_i lambda(rank_i) y_i, without a norm, is a metric that clicks can estimate; where
    # not, the name of the nearest one that is.
    additive: ClassVar[bool] = False
    nearest_additive: ClassVar[str] = ""

    @property
    def cut(self) -> int | None:
        """The last rank that counts, or None for all of them."""
        return getattr(self, "k", None)

    @abstractmethod
    def discount(self, depth: int) -> FloatArray:
        """lambda(r) for the ranks r = 1..depth, before any cut."""

    @abstractmethod
    def formula(self) -> Formula:
        """The codes by which the kernel knows this metric."""

    def empty_value(self, empty: Empty) -> float:
        """What a list without a relevant document counts under this rule."""
        return EMPTY[empty]

    def per_list(
        self,
        scores: npt.ArrayLike,
        labels: npt.ArrayLike,
        indptr: npt.ArrayLike,
        *,
        ties: Ties = "average",
        empty: Empty = "zero",
    ) -> FloatArray:
        """The metric of each list, ranked by falling score; NaN for a list that is skipped.

        Parameters
        ----------
        scores, labels : (rows,)
        indptr : (lists + 1,) list i owns rows indptr[i]:indptr[i + 1]
        """
        return values_per_list([self], scores, labels, indptr, ties=ties, empty=empty)[:, 0]

    def mean(
        self,
        scores: npt.ArrayLike,
        labels: npt.ArrayLike,
        indptr: npt.ArrayLike,
        *,
        weights: npt.ArrayLike | None = None,
        units: npt.ArrayLike | None = None,
        ties: Ties = "average",
        empty: Empty = "zero",
    ) -> MeanEstimate:
        """Weighted mean over the lists, with the standard error between independent units.

        Parameters
        ----------
        weights : (lists,) the sessions that a list stands for, say; 1 each where not given
        units : (lists,) the query of each list where a query has several; else each list is one
        """
        values = self.per_list(scores, labels, indptr, ties=ties, empty=empty)
        return mean_of_lists(values, weights=weights, units=units)

    def __str__(self) -> str:
        cut = "" if self.cut is None else f"@{self.cut}"
        return f"{self.name}{cut}{options_text(self, without=('k',))}"


def parse_metric(metric: str | Metric) -> Metric:
    """The metric of a name such as `ndcg@10`; capitals do not matter. A metric is handed through.

    The grammar is name[@k][:option=value,...], and `str(metric)` writes it.

    >>> parse_metric("nDCG@10")
    NDCG(k=10, gain='exponential')
    >>> parse_metric("P@5:relevant_from=2")
    Precision(k=5, relevant_from=2.0)
    """
    if isinstance(metric, Metric):
        return metric
    parts = _NAME.fullmatch(metric.strip().lower()) if isinstance(metric, str) else None
    if parts is None:
        raise OptionError(f"a metric is a name such as 'ndcg@10'. Got {metric!r} instead.")
    record, k = find("metric", parts["name"]), parts["k"]
    kind, name = record.load(), record.name
    given = () if parts["options"] is None else option_pairs(parts["options"])
    options = parse_options(given, option_kinds(kind, without=("k",)), name)
    if k is None and "cut" in record.needs:
        raise OptionError(f"{name} needs a cut, as in '{name}@10'. Got {metric!r}.")
    if k is not None and "k" not in {field.name for field in fields(kind)}:
        raise OptionError(f"{name} has no cut: it looks at the whole list. Write {name}.")
    if k is not None and not k.isdecimal():
        raise OptionError(f"{name}@k needs a whole number k of at least 1. Got {k!r}.")
    parsed: Metric = kind(**options, **({} if k is None else {"k": int(k)}))
    return parsed


def parse_metrics(metrics: str | Metric | Sequence[str | Metric]) -> tuple[Metric, ...]:
    """One metric or several, each once, in the order given."""
    several = [metrics] if isinstance(metrics, str | Metric) else metrics
    parsed = tuple(dict.fromkeys(parse_metric(metric) for metric in several))
    if not parsed:
        raise OptionError("no metric was asked for. Name at least one, such as 'ndcg@10'.")
    return parsed


def values_per_list(
    metrics: Sequence[Metric],
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    indptr: npt.ArrayLike,
    *,
    ties: Ties = "average",
    empty: Empty = "zero",
) -> FloatArray:
    """All metrics of all lists in one pass, shape (lists, metrics). Checks its input."""
    check_choice("ties", ties, tuple(TIES))
    check_choice("empty", empty, tuple(EMPTY))
    s, y, starts = _checked_rows(scores, labels, indptr)
    formulas = [metric.formula() for metric in metrics]
    if len(y) and any(formula.gain == EXPONENTIAL for formula in formulas):
        _check_exponent(float(y.max()))
    longest = int(ragged.lengths(starts).max(initial=0))
    walk, gain, norm, relevant_from = (np.array(codes) for codes in zip(*formulas, strict=True))
    codes = Formulas(
        walk=walk,
        gain=gain,
        relevant_from=relevant_from,
        norm=norm,
        discount=np.array([metric.discount(longest) for metric in metrics]),
        cut=np.array([longest if metric.cut is None else metric.cut for metric in metrics]),
        empty=np.array([metric.empty_value(empty) for metric in metrics]),
    )
    return values_of_lists(s, y, starts, TIES[ties], codes)


def mean_of_lists(
    values: FloatArray, *, weights: npt.ArrayLike | None = None, units: npt.ArrayLike | None = None
) -> MeanEstimate:
    """Weighted mean over the lists that have a value."""
    w = checked_weights(weights, len(values))
    unit = None if units is None else whole_numbers(units, np.int64, what="units")
    if unit is not None and len(unit) != len(values):
        raise ShapeError(f"units must have {len(values)} entries. Got {len(unit)} instead.")
    valued = ~np.isnan(values)
    return weighted_mean(values[valued], w[valued], units=None if unit is None else unit[valued])


def checked_weights(weights: npt.ArrayLike | None, n_lists: int) -> FloatArray:
    """One finite weight >= 0 for each list, 1 where none are given."""
    if weights is None:
        return np.ones(n_lists)
    w = _numbers(weights, "weights")
    if w.shape != (n_lists,):
        raise ShapeError(f"weights must have shape ({n_lists},). Got {w.shape} instead.")
    bad = ~(np.isfinite(w) & (w >= 0))
    if bad.any():
        first = int(np.argmax(bad))
        raise OptionError(f"weights must be numbers >= 0. Got {w[first]} for list {first}.")
    return w


def checked_cut(k: int | None, name: str) -> int:
    """The cut as a whole number of at least 1."""
    try:
        cut = operator.index(k)  # type: ignore[arg-type]
    except TypeError:
        cut = 0
    if isinstance(k, bool) or cut < 1:
        raise OptionError(f"{name}@k needs a whole number k of at least 1. Got {k!r} instead.")
    return cut


def checked_relevant_from(relevant_from: float) -> float:
    """The smallest relevant label as a number above 0."""
    if not (isinstance(relevant_from, int | float | np.number) and 0 < relevant_from < np.inf):
        raise OptionError(
            f"relevant_from must be a number above 0: documents with at least this label are "
            f"relevant. Got {relevant_from!r} instead."
        )
    return float(relevant_from)


def _checked_rows(
    scores: npt.ArrayLike, labels: npt.ArrayLike, indptr: npt.ArrayLike
) -> tuple[FloatArray, FloatArray, IntArray]:
    s, y = _numbers(scores, "scores"), _numbers(labels, "labels")
    if s.ndim != 1 or s.shape != y.shape:
        raise ShapeError(
            f"scores and labels must be flat arrays of the same length. "
            f"Got shapes {s.shape} and {y.shape} instead."
        )
    starts = whole_numbers(indptr, np.int64, what="indptr")
    ragged.check_indptr(starts, len(s), what="lists")
    if np.isnan(s).any():
        bad = np.flatnonzero(np.isnan(s))
        raise OptionError(
            f"scores must not be NaN: {len(bad):,} are, first in row {bad[0]} of list "
            f"{int(np.searchsorted(starts, bad[0], side='right')) - 1}. "
            f"Use -inf for a document that should come last."
        )
    wrong = ~(np.isfinite(y) & (y >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise OptionError(f"labels must be finite and at least 0. Got {y[row]} in row {row}.")
    return s, y, starts


def _numbers(values: npt.ArrayLike, what: str) -> FloatArray:
    try:
        return np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{what} must be an array of numbers: {error}.") from error


def _check_exponent(largest: float) -> None:
    if largest > LARGEST_EXPONENT:
        raise OptionError(
            f"the gain 2^y - 1 is out of range for the label {largest:g}. "
            f"Use gain='linear' for labels that are no grades, such as dwell times."
        )


# The ranking metrics: DCG and its share of the ideal, ARP, MAP, precision, recall and MRR.


@dataclass(frozen=True)
class _CutMetric(Metric):
    """A metric with a cut: the last rank that counts, or None for all of them."""

    k: int | None = None
    needs_cut: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.k is not None or self.needs_cut:
            object.__setattr__(self, "k", checked_cut(self.k, self.name))


@dataclass(frozen=True)
class _GainMetric(_CutMetric):
    """A sum of discounted gains; `gain` says what a label is worth."""

    gain: Gain = "exponential"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("gain", self.gain, tuple(GAINS))

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1 / log2(1 + r)."""
        return 1 / np.log2(np.arange(2, depth + 2))


@dataclass(frozen=True)
class _BinaryMetric(_CutMetric):
    """A document is relevant if its label is at least `relevant_from`."""

    relevant_from: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "relevant_from", checked_relevant_from(self.relevant_from))

    def _formula(self, walk: int, norm: int) -> Formula:
        return Formula(walk, BINARY, norm, self.relevant_from)


@method(
    "metric", "ndcg", title="Normalised DCG", order=10, reference="jarvelin2002", default=True,
    note="DCG as a share of the best possible",
)  # fmt: skip
@dataclass(frozen=True)
class NDCG(_GainMetric):
    r"""NDCG@k = DCG@k / ideal DCG@k, the ideal being the list sorted by label [jarvelin2002]_.

    The gain of a label is 2^y - 1 ("exponential") or y ("linear"), as in `DCG`.

    >>> NDCG(10).per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3]).round(4)
    array([0.659])
    >>> str(NDCG(10, gain="linear"))
    'ndcg@10:gain=linear'
    """

    name: ClassVar[str] = "ndcg"
    nearest_additive: ClassVar[str] = "dcg"

    def formula(self) -> Formula:
        """The sum as a share of the same sum over the list sorted by label."""
        return Formula(EACH_GAIN, GAINS[self.gain], IDEAL)


@method(
    "metric", "dcg", title="Discounted cumulative gain", order=11, reference="jarvelin2002",
    note="the sum of gains, discounted by 1 / log2(1 + rank)",
)  # fmt: skip
@dataclass(frozen=True)
class DCG(_GainMetric):
    r"""DCG@k = sum_{r <= k} gain(y_r) / log2(1 + r), y_r the label at rank r [jarvelin2002]_.

    gain(y) = 2^y - 1 ("exponential", the default of learning to rank, [burges2005ranknet]_) or
    y ("linear"). Right for graded labels; use "linear" for labels that are no grades.

    >>> DCG(2).per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3]).round(4)
    array([1.8928])
    """

    name: ClassVar[str] = "dcg"
    additive: ClassVar[bool] = True

    def formula(self) -> Formula:
        """The sum itself."""
        return Formula(EACH_GAIN, GAINS[self.gain], ONE)

    def empty_value(self, empty: Empty) -> float:
        """0 or NaN: without a gain the ideal DCG is 0 too."""
        return float("nan") if empty == "skip" else 0.0


@method(
    "metric", "arp", title="Average relevance position", order=12,
    reference="joachims2017unbiased",
    note="the mean rank of a relevant document; lower is better",
)  # fmt: skip
@dataclass(frozen=True)
class ARP(Metric):
    r"""ARP = sum_i rank_i y_i / sum_i y_i: the mean rank of a relevant document. Lower is better.

    As in [wang2018lambdaloss]_. Others sum rank_i y_i without the denominator
    [oosterhuis2020tutorial]_ or divide by the length of the list [wang2020prs]_. Divided by the
    labels it is a rank, 1 at best, and lists of different size compare. The average rank of *all*
    relevant documents of a data set [joachims2017unbiased]_ is the mean with each list's summed
    label as its weight.
    A list without a relevant document has no ARP and is left out, whatever `empty` says: 0 or 1
    would praise it.

    >>> ARP().per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3]).round(4)
    array([2.3333])
    """

    name: ClassVar[str] = "arp"
    additive: ClassVar[bool] = True
    higher_is_better: ClassVar[bool] = False

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = r."""
        return np.arange(1.0, depth + 1)

    def formula(self) -> Formula:
        """Ranks weighted by label."""
        return Formula(EACH_GAIN, LINEAR, TOTAL_GAIN)

    def empty_value(self, empty: Empty) -> float:  # noqa: ARG002
        """NaN: there is no rank to speak of."""
        return float("nan")


@method(
    "metric", "precision", title="Precision", needs=("cut",), order=14, aliases=("p", "prec"),
    note="the share of relevant documents among the first k",
)  # fmt: skip
@dataclass(frozen=True)
class Precision(_BinaryMetric):
    r"""P@k = (relevant documents among the first k) / k, also where the list is shorter than k.

    >>> Precision(2).per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3])
    array([0.5])
    """

    name: ClassVar[str] = "precision"
    additive: ClassVar[bool] = True
    needs_cut: ClassVar[bool] = True

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1 / k."""
        assert self.k is not None
        return np.full(depth, 1 / self.k)

    def formula(self) -> Formula:
        """The sum itself."""
        return self._formula(EACH_GAIN, ONE)


@method(
    "metric", "recall", title="Recall", needs=("cut",), order=15, aliases=("r",),
    note="the share of the relevant documents that are among the first k",
)  # fmt: skip
@dataclass(frozen=True)
class Recall(_BinaryMetric):
    r"""R@k = (relevant documents among the first k) / (relevant documents of the list).

    >>> Recall(2).per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3])
    array([0.5])
    """

    name: ClassVar[str] = "recall"
    nearest_additive: ClassVar[str] = "precision"
    needs_cut: ClassVar[bool] = True

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1."""
        return np.ones(depth)

    def formula(self) -> Formula:
        """A share of the relevant documents."""
        return self._formula(EACH_GAIN, TOTAL_GAIN)


@method(
    "metric", "map", title="Mean average precision", order=13, aliases=("ap",),
    note="precision at each relevant document, averaged",
)  # fmt: skip
@dataclass(frozen=True)
class MAP(_BinaryMetric):
    r"""Average precision, AP@k = 1/R sum over relevant ranks r <= k of P@r, and its mean.

    R counts all relevant documents of the list, also those that do not fit above the cut, as in
    trec_eval; so AP@k may stay below 1 for the best ranking.

    >>> MAP().per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3]).round(4)
    array([0.5833])
    """

    name: ClassVar[str] = "map"
    nearest_additive: ClassVar[str] = "dcg"

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1 / r, times the relevant documents down to r."""
        return 1 / np.arange(1.0, depth + 1)

    def formula(self) -> Formula:
        """Precision at each relevant document, as a mean over all of them."""
        return self._formula(PRECISION_AT_GAIN, TOTAL_GAIN)


@method(
    "metric", "mrr", title="Mean reciprocal rank", order=16, aliases=("rr",),
    note="1 / rank of the first relevant document",
)  # fmt: skip
@dataclass(frozen=True)
class MRR(_BinaryMetric):
    r"""Reciprocal rank, RR@k = 1 / (rank of the first relevant document), 0 below k; its mean.

    >>> MRR().per_list(scores=[3, 2, 1], labels=[0, 2, 1], indptr=[0, 3])
    array([0.5])
    """

    name: ClassVar[str] = "mrr"
    nearest_additive: ClassVar[str] = "reciprocal"

    def discount(self, depth: int) -> FloatArray:
        """lambda(r) = 1 / r."""
        return 1 / np.arange(1.0, depth + 1)

    def formula(self) -> Formula:
        """The first relevant document alone."""
        return self._formula(FIRST_GAIN, ONE)
