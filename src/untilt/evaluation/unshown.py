"""How much of a ranking nobody was shown, and what that may be worth; judged lists beside a log.

The figures of click logs are made in `untilt.evaluation.slots`, which has the formulas.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from untilt._core.statistics import Interval
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError
from untilt.views import Table

Worth = Literal["nothing", "as shown"]
TOP = 10  # places looked at where a metric has no cut
MOST = 0.5  # of the top places: beyond, an answer that rests on a belief about them is no answer


@dataclass(frozen=True)
class Bound:
    """A value or a difference under one belief, with its error."""

    value: float
    std_error: float
    interval: Interval

    @classmethod
    def of(cls, estimate: Any) -> "Bound":
        """The three of an estimate or a difference."""
        return cls(estimate.value, estimate.std_error, estimate.interval)

    @property
    def sign(self) -> int:
        """1 or -1 where the interval leaves out 0, else 0."""
        return int(self.interval.low > 0) - int(self.interval.high < 0)


@dataclass(frozen=True)
class Unshown:
    """What a ranking of all candidates owes to documents that nobody was shown.

    Of a system, or of the difference of two: then `share` and `queries` are those of the one with
    more of them.

    Parameters
    ----------
    share : of the first `top` places, how many such documents take, over the baseline's sessions
    queries : share of the queries in which they take one at all
    top : places looked at: those that the metric counts, 10 where it counts all, and no more than
        the longest list has
    nothing : the value if such documents are worth nothing
    as_shown : the value if each is worth the mean of what the query's sessions showed
    """

    share: float
    queries: float
    top: int
    nothing: Bound
    as_shown: Bound

    def decides(self, sign: int = 0) -> bool:
        """Whether the answer depends on them: most places, and the two beliefs do not agree.

        `sign` is that of the difference on the lists that were shown; 0 where it is not decided.
        """
        signs = {self.nothing.sign, self.as_shown.sign, *([sign] if sign else [])}
        return self.share > MOST and len(signs) > 1


def unshown_table(found: Mapping[str, Unshown]) -> Table:
    """By system: the share of its top places and of the queries, and the value if ..."""
    rows = tuple(
        (
            name,
            f"{each.share:.1%}",
            f"{each.queries:.1%}",
            *(f"{end.value:.4f} {end.interval:.4f}" for end in (each.nothing, each.as_shown)),
        )
        for name, each in found.items()
    )
    top = max(each.top for each in found.values())
    places = ("system", f"never shown in top {top}", "in queries")
    header = (*places, "value if worth nothing", "if worth as much as shown")
    return Table(header, rows, "All candidates ranked: what was never shown, and its worth")


# Judged lists: labels are known, and a log says which of their documents anybody was shown.


def never_shown(judged: JudgedLists, log: ClickLog) -> tuple[BoolArray, BoolArray]:
    """(rows,) documents that the log has no impression of, and (queries,) those it has sessions of.

    Documents are told by the ids of query and document. Of queries without a session nothing is
    said: none of their documents counts as unshown.
    """
    if not isinstance(log, ClickLog):
        raise OptionError(
            f"shown must be a ClickLog: it says what was shown. Got {type(log).__name__} instead."
        )
    query, own_query = _codes(log.query_id, judged.query_id)
    document, own = _codes(log.doc_id, judged.doc_id)
    answered = np.isin(own_query, query[log.query])
    if not answered.any():
        raise OptionError(
            f"the log has no session of any of the {judged.n_queries:,} judged queries, so it does "
            "not say which of their documents were shown. Check that both have the same query ids."
        )
    owner, width = ragged.list_of_row(judged.indptr), np.int64(max(document.max(), own.max()) + 1)
    shown = query[log.doc_query[log.document]] * width + document[log.document]
    seen = np.isin(own_query[owner] * width + own, np.unique(shown))
    return ~seen & answered[owner], answered


def _codes(first: AnyArray, second: AnyArray) -> tuple[IntArray, IntArray]:
    """Numbers for the ids of two tables, the same for the same id."""
    both: list[Any] = [first, second]
    if first.dtype.kind != second.dtype.kind:
        both = [np.asarray(each).astype(str) for each in both]
    codes = np.unique(np.concatenate(both), return_inverse=True)[1].astype(np.int64)
    return codes[: len(first)], codes[len(first) :]


def top_places(scores: FloatArray, indptr: IntArray, documents: BoolArray, top: int) -> FloatArray:
    """(queries,) share of the first places that go to some documents; equal scores share theirs."""
    owner = ragged.list_of_row(indptr)
    order = np.lexsort((-scores, owner))
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(owner[order]) != 0) | (scores[order][1:] != scores[order][:-1])
    group, first = np.cumsum(new) - 1, np.flatnonzero(new)
    same = np.diff(np.append(first, len(order)))[group]
    ahead = first[group] - indptr[owner[order]]
    last = np.minimum(top, ragged.lengths(indptr))[owner[order]]
    share = (np.minimum(ahead + same, last) - np.minimum(ahead, last)) / same / np.maximum(last, 1)
    return ragged.sums_by_list(indptr, np.where(documents[order], share, 0.0))


def labels_under(judged: JudgedLists, never: BoolArray, worth: Worth) -> FloatArray:
    """The labels, those of documents that nobody was shown replaced by 0 or their query's mean."""
    if worth == "nothing":
        return np.where(never, 0.0, judged.labels)
    known = ragged.sums_by_list(judged.indptr, np.where(never, 0.0, judged.labels))
    shown = ragged.sums_by_list(judged.indptr, (~never).astype(float))
    mean = known / np.maximum(shown, 1)
    return np.where(never, mean[ragged.list_of_row(judged.indptr)], judged.labels)
