r"""Features that sort the lists: the old rank, which no ranker may learn, and the old score.

A feature sorts the lists of a ranker where its rank correlation with the position, within the list
that a query was shown most often, is .99 or more on average over queries. It is the old *rank*
where the position itself explains it:

    x_i = g(k)   or   x_i = a + b g(k)  within each list, from its position k, first and last alone

up to a tenth of the distance to the neighbours in the list, for 99% of the impressions: 1, 2, 3,
1/k, log k, k over the length, counted from the end or from the top of a page. A ranker that has it
learns to repeat the shown order with its bias. Otherwise it is the old *score*: as good a feature
as any, but position and score cannot be told apart where a curve is estimated from features.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, BoolArray, FloatArray, IntArray, sum_by
from untilt.auditing.checks import constant_features
from untilt.auditing.leaks import (
    FEWEST,
    IN_LISTS,
    LEAK,
    LEAK_KEPT_OUT,
    LEAK_USED,
    Leak,
    some_queries,
)
from untilt.auditing.variation import ranker_of_list
from untilt.bias.experiments.assignment import baseline_lists
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, did_you_mean
from untilt.facts import Fact, note, warning

_RANK = "The feature {feature} is the rank of the shown lists: the position explains its values. "
OLD_RANK = warning(
    "audit.old-rank",
    _RANK + "A ranker learns to repeat the shown order from it, with its position bias.",
)
OLD_RANK_USED = warning(
    "audit.old-rank-used",
    _RANK + "It is used because it was named: rankers learn to repeat the shown order from it.",
)
OLD_RANK_KEPT_OUT = warning(
    "audit.old-rank-kept-out",
    _RANK + "It is kept out of training, unless it is named among the features.",
)
OLD_SCORE = note(
    "audit.old-score",
    "The feature {feature} is a score of the shown lists (rank correlation with the position "
    "{correlation:+.3f}). Rankers may learn from it; `untilt run` estimates the curve without it.",
)
SORTS = 0.99  # least rank correlation with the position
EXPLAINED = 0.99  # least share of the impressions
CLOSE = 0.1  # of the distance to the next value of the list
SCORE_SHARE = 0.25  # of production's sessions: below it, a ranker that sorts by price, say

_OUTCOMES = {
    LEAK.code: (LEAK_KEPT_OUT, LEAK_USED),
    OLD_RANK.code: (OLD_RANK_KEPT_OUT, OLD_RANK_USED),
}

Kind = Literal["rank", "score"]


@dataclass(frozen=True)
class SortKey:
    """A feature that sorts the lists.

    Parameters
    ----------
    kind : "rank", which the position explains, or "score"
    correlation : with the position, in ranks within lists; below 0 where high values are on top
    share : of production's sessions, those of rankers whose lists it sorts
    """

    feature: str
    kind: Kind
    correlation: float
    share: float

    @property
    def fact(self) -> Fact:
        """What it is."""
        told = OLD_RANK if self.kind == "rank" else OLD_SCORE
        return told(feature=self.feature, correlation=self.correlation, share=self.share)


def kept_out(
    leaks: Iterable[Leak], keys: Iterable[SortKey], named: Collection[str] = ()
) -> tuple[str, ...]:
    """The features that rankers and curves do without, unless they are named: leaks and ranks."""
    ranks = (each.feature for each in keys if each.kind == "rank")
    found = dict.fromkeys([*(leak.feature for leak in leaks), *ranks])
    return tuple(name for name in found if name not in named)


def left_out_of_curve(log: ClickLog, keys: Iterable[SortKey]) -> tuple[str, ...]:
    """The old scores; none where the log has no other feature to estimate a curve from."""
    scores = [each.feature for each in keys if each.kind == "score"]
    others = {*log.feature_names}.difference(scores, constant_features(log))
    return tuple(scores) if others else ()


def outcome(found: Fact, kept: Collection[str]) -> Fact:
    """A warning of an audit; of a leak or rank, what became of it if `kept` were kept out."""
    if found.code not in _OUTCOMES:
        return found
    return _OUTCOMES[found.code][found.fields["feature"] not in kept](**found.fields)


def sort_keys(log: ClickLog, old_score: str | None = None) -> tuple[SortKey, ...]:
    """The features that sort production's lists, those of the most sessions first.

    `old_score` is known to be the score: it comes before all others, however well it sorts.
    """
    names = log.feature_names
    if old_score is not None and old_score not in names:
        raise OptionError(
            f"old_score must name a feature of the log. Got {old_score!r}."
            f"{did_you_mean(old_score, names)} Read the column as a feature, too: "
            f"⟦features=[..., {old_score!r}]|--features ...,{old_score}⟧."
        )
    if log.features is None or log.depth < 2:
        return ()
    lists = _Lists.of(log)
    found = (lists.key(name, j, given=name == old_score) for j, name in enumerate(names))
    keys = [each for each in found if each is not None]
    if any(each.feature == old_score and each.kind == "rank" for each in keys):
        raise OptionError(
            f"old_score must name a score. Got {old_score!r}, which is the rank: the position "
            "explains its values. Name the column of the score, or leave the option out."
        )
    return tuple(sorted(keys, key=lambda each: (each.feature != old_score, -each.share)))


@dataclass(frozen=True, eq=False)
class _Lists:
    """The list that each of some queries was shown most often by each ranker of production.

    Parameters
    ----------
    log : queries are drawn by their documents: more sessions change nothing in the draw
    ranker : (lists,) who made it
    share : (rankers,) of production's sessions
    """

    log: ClickLog
    ranker: IntArray
    share: FloatArray

    @classmethod
    def of(cls, log: ClickLog) -> "_Lists":
        """Lists of production; all lists where there are experiments only."""
        production, n_rankers = baseline_lists(log), max(1, len(log.ranker_names))
        share = sum_by(ranker_of_list(log), log.sessions * production, n_rankers)
        documents = np.bincount(log.doc_query, minlength=log.n_queries)
        part = log.take(production & some_queries(documents, IN_LISTS)[log.query])
        part = part._with(
            label=np.zeros(len(part.document)), extra_labels={}, context={}, person=None, time=None
        ).collapse()  # lists are equal whatever was clicked
        group = part.query * np.int64(n_rankers) + ranker_of_list(part)
        some_order = ragged.sums_by_list(
            part.indptr, part.document.astype(np.int64) * part.position
        )  # whatever the order of the lists
        order = np.lexsort((some_order, -part.sessions, group))
        part = part.take(order[np.diff(group[order], prepend=-1) > 0])
        return cls(part, ranker_of_list(part), share / share.sum())

    def key(self, name: str, index: int, *, given: bool) -> SortKey | None:
        """What one feature is; None where it sorts nothing."""
        assert self.log.features is not None
        x = self.log.features[self.log.document, index].astype(np.float64)
        known = np.isfinite(x)
        rows = _Rows(x[known], self.log.position[known], ragged.keep_rows(self.log.indptr, known))
        rho = rows.rank_correlations()
        varies = np.isfinite(rho)
        lists = self._sums(varies)
        sorts = np.abs(self._sums(np.where(varies, rho, 0))) >= SORTS * lists
        sorts &= (lists > 1) & (2 * lists >= self._sums(ragged.lengths(self.log.indptr) > 1))
        sorts &= self._sums(varies * (rows.length - 1)) >= FEWEST
        share = float(self.share[sorts].sum())
        used = varies & (sorts[self.ranker] if sorts.any() else True)
        is_rank = bool(sorts.any()) and rows.are_explained(self.log.query, used)
        if not (is_rank or given or share >= SCORE_SHARE):
            return None
        mean = float(rho[used].mean()) if used.any() else 0.0
        return SortKey(name, "rank" if is_rank else "score", mean, share)

    def _sums(self, values: AnyArray) -> FloatArray:
        return sum_by(self.ranker, values, len(self.share))


@dataclass(frozen=True, eq=False)
class _Rows:
    """Known values of a feature, their positions, and the lists they stand in."""

    x: FloatArray
    position: IntArray
    indptr: IntArray

    @property
    def length(self) -> IntArray:
        """(lists,)"""
        return ragged.lengths(self.indptr)

    def rank_correlations(self) -> FloatArray:
        """(lists,) Spearman's correlation of value and position; NaN where a list has one value."""
        place = ragged.index_in_list(self.indptr).astype(np.float64)
        order = ragged.order_within_lists(self.indptr, self.x)
        starts = np.diff(self.x[order], prepend=np.nan) != 0
        starts[self.indptr[:-1][self.length > 0]] = True
        tie = np.cumsum(starts) - 1
        rank = np.empty(len(place))
        rank[order] = (sum_by(tie, place) / np.bincount(tie))[tie]
        middle = np.repeat((self.length - 1) / 2, self.length)
        a, b = place - middle, rank - middle
        ab, aa, bb = (ragged.sums_by_list(self.indptr, each) for each in (a * b, a * a, b * b))
        with np.errstate(invalid="ignore"):
            return np.where(bb > 0, ab / np.sqrt(aa * bb), np.nan)

    def are_explained(self, query: IntArray, used: BoolArray) -> bool:
        """Whether positions explain the values of the lists that are used (lists,)."""
        owner, row = ragged.list_of_row(self.indptr), np.arange(len(self.x))
        first, last = self.indptr[:-1][owner], self.indptr[1:][owner] - 1
        step = np.full(len(row) + 1, np.inf)
        step[1:-1] = np.abs(np.diff(self.x))
        step[self.indptr] = np.inf
        gap = np.minimum(step[:-1], step[1:])
        base = np.int64(self.position.max(initial=0) + 1)
        ends = (self.position * base + self.position[first]) * base + self.position[last]
        with np.errstate(invalid="ignore", divide="ignore"):
            span = self.x[last] - self.x[first]
            within, close = (self.x - self.x[first]) / span, gap / np.abs(span)
        whole = used[owner]
        inside = whole & (row > first) & (row < last)
        return _is_function(
            self.x[whole], self.position[whole], gap[whole], query[owner][whole]
        ) or (_is_function(within[inside], ends[inside], close[inside], query[owner][inside]))


def _is_function(x: FloatArray, key: IntArray, gap: FloatArray, query: IntArray) -> bool:
    """Whether values (rows,) of equal keys are equal, in nearly all rows.

    Keys of a single query say nothing.
    """
    key, base = np.unique(key, return_inverse=True)[1], np.int64(query.max(initial=0) + 1)
    shared = np.bincount(np.unique(key * base + query) // base)[key] > 1
    if shared.sum() < max(FEWEST, len(x) / 2):
        return False
    order = np.lexsort((x, key))
    n = np.bincount(key)
    usual = x[order[np.cumsum(n) - n + (n - 1) // 2]][key]
    return bool(np.mean((np.abs(x - usual) <= CLOSE * gap)[shared]) >= EXPLAINED)
