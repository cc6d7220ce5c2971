"""What a metric is: a value that prints, parses and hashes, and a formula on ragged lists.

Names are ndcg@10, ndcg@5:gain=linear, map:relevant_from=2, arp.
"""

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, whole_numbers
from untilt._core.printed import options_text, parse_options
from untilt._core.statistics import MeanEstimate, weighted_mean
from untilt.catalog import find
from untilt.errors import OptionError, ShapeError, check_choice
from untilt.metrics import kernel

Ties = Literal["average", "stable", "pessimistic", "optimistic"]
Empty = Literal["zero", "one", "skip"]
Gain = Literal["exponential", "linear"]

TIES: dict[str, int] = {
    "average": kernel.AVERAGE,
    "stable": kernel.STABLE,
    "pessimistic": kernel.PESSIMISTIC,
    "optimistic": kernel.OPTIMISTIC,
}
EMPTY: dict[str, float] = {"zero": 0.0, "one": 1.0, "skip": float("nan")}
GAINS: dict[str, int] = {"exponential": kernel.EXPONENTIAL, "linear": kernel.LINEAR}
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
    options: dict[str, float | str] = parse_options(parts["options"], kind, name, without=("k",))
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
    if len(y) and any(formula.gain == kernel.EXPONENTIAL for formula in formulas):
        _check_exponent(float(y.max()))
    longest = int(ragged.lengths(starts).max(initial=0))
    walk, gain, norm, relevant_from = (np.array(codes) for codes in zip(*formulas, strict=True))
    codes = kernel.Formulas(
        walk=walk,
        gain=gain,
        relevant_from=relevant_from,
        norm=norm,
        discount=np.array([metric.discount(longest) for metric in metrics]),
        cut=np.array([longest if metric.cut is None else metric.cut for metric in metrics]),
        empty=np.array([metric.empty_value(empty) for metric in metrics]),
    )
    return kernel.values_of_lists(s, y, starts, TIES[ties], codes)


def mean_of_lists(
    values: FloatArray,
    *,
    weights: npt.ArrayLike | None = None,
    units: npt.ArrayLike | None = None,
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
