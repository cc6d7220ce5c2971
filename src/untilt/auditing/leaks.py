"""Features that know the click: measured after it, or made from it.

A feature that is known when a list is shown may say which document is relevant. It cannot say that
this impression will be clicked: below the top of a list many relevant documents are not even
looked at. Under the position-based model

    P(click | feature, position k) <= theta_k,

so impressions below the top that are nearly all clicked, where all others hardly ever are, are the
mark of a feature that was made from the click. Every feature is searched for such impressions: by
its highest values, its lowest, those unlike the usual one, the missing ones, those that are not
missing; and within lists, by the distance to the list's lowest and highest value.

What stays the same for a document while its sessions differ in their clicks (a click rate of last
month) is never so pure, and is not found.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.random import child_generator
from untilt.data.clicklog import ClickLog
from untilt.facts import Fact, Sentence, phrase, serious, warning

_REVEALS = (
    "The feature {feature} reveals the click: it is {place} in {impressions:,} impressions, and "
    "{click_rate:.1%} of these were clicked, against {rate_elsewhere:.1%} elsewhere. "
)
LEAK = serious(
    "audit.leak",
    _REVEALS + "Figures of rankers that use it are worthless, unless it is known before the list "
    "is shown.",
)
LEAK_USED = serious(
    "audit.leak-used",
    _REVEALS + "You named it among the features, so it is used: figures of rankers that use it may "
    "be worthless.",
)
LEAK_KEPT_OUT = warning(
    "audit.leak-kept-out",
    _REVEALS + "It is not used for training, unless you name it among the features.",
)
_PLACES = {
    "above": "above {value:g}",
    "below": "below {value:g}",
    "unlike": "other than {value:g}",
    "missing": "missing",
    "present": "not missing",
    "above-list": "more than {value:g} above the lowest of its list",
    "below-list": "more than {value:g} below the highest of its list",
}

Where = Literal["above", "below", "unlike", "missing", "present", "above-list", "below-list"]

PURE = 0.9  # click rate from which impressions are said to be nearly all clicked
LEAST_ODDS = 100.0  # times the odds elsewhere: 0.9 is much where 0.05 is usual, not where 0.5 is
FEWEST = 20  # documents clicked below the top; fewer prove nothing
SURE, HARDLY_BY_CHANCE = 3.0, 0.8  # the rate less so many standard errors lies above this
HALF_PURE = 0.5  # of the impressions with the most extreme values; else a longer look is no use
IN_LISTS = 10_000  # documents of the queries whose lists are looked at
ROWS_AT_A_TIME = 2_000_000


@dataclass(frozen=True)
class Leak:
    """A feature that knows the click, and the impressions that show it.

    Parameters
    ----------
    where : the feature is "above" or "below" `value`, "unlike" it, "missing" or "present" (not
        missing), or it is more than `value` above the lowest of its list ("above-list") or below
        the highest ("below-list")
    value : None for "missing" and "present"
    impressions, click_rate : of those; within lists, of the lists that were looked at
    rate_elsewhere : the click rate of all others
    """

    feature: str
    where: Where
    value: float | None
    impressions: int
    click_rate: float
    rate_elsewhere: float


def leak_fact(told: Sentence, leak: Mapping[str, Any]) -> Fact:
    """A leak by its fields, in one of the sentences above."""
    place = phrase(_PLACES[leak["where"]], value=leak["value"])
    return told(**{**leak, "place": place})


def leaking_features(log: ClickLog) -> tuple[Leak, ...]:
    """The features that know the click, in the order of the log."""
    if log.features is None or len(log.document) == 0:
        return ()
    by_document, by_row = _of_documents(log), _in_lists(log)
    leaks = []
    for index, name in enumerate(log.feature_names):
        for evidence in (by_document, by_row):
            found = evidence.leak(name, log.features[evidence.units.document, index])
            if found is not None:
                leaks.append(found)
                break
    return tuple(leaks)


class _LeakUnits(NamedTuple):
    """Impressions and clicks of documents or rows; `below`: not at the top of their list."""

    document: IntArray
    shown: FloatArray
    clicked: FloatArray
    shown_below: FloatArray
    clicked_below: FloatArray

    def take(self, index: IntArray) -> "_LeakUnits":
        return _LeakUnits(self.document[index], *(column[index] for column in self.counts))

    @property
    def counts(self) -> tuple[FloatArray, ...]:
        return self.shown, self.clicked, self.shown_below, self.clicked_below


@dataclass(frozen=True, eq=False)
class _LeakEvidence:
    """Units whose clicks are compared with a feature.

    Parameters
    ----------
    units : impressions of lists in which something was not clicked: others compare nothing
    shown, clicked : of the same units over all lists, for the figures that are told
    indptr : the units are rows, in lists; None where they are documents
    """

    units: _LeakUnits
    shown: FloatArray
    clicked: FloatArray
    indptr: IntArray | None

    def leak(self, name: str, x: FloatArray) -> Leak | None:
        """What the feature with these values of the units gives away."""
        for where, key in self._keys(x):
            cut = _cut(key, self.units)
            if cut is None:
                continue
            inside = key > cut
            n, c = self.shown[inside].sum(), self.clicked[inside].sum()
            n_other, c_other = self.shown.sum() - n, self.clicked.sum() - c
            value = {"below": -cut, "missing": None, "present": None}.get(where, cut)
            if where == "unlike":
                value = _usual(x)
            return Leak(name, where, value, int(n), float(c / n), float(c_other / max(1, n_other)))
        return None

    def _keys(self, x: FloatArray) -> Iterator[tuple[Where, FloatArray]]:
        """Orders of the units, such that those with the largest key might be the clicked ones."""
        known = np.isfinite(x)
        if self.indptr is None:
            if not known.all():
                yield "missing", np.isnan(x).astype(np.float64)
                yield "present", known.astype(np.float64)
            yield "above", np.where(known, x, -np.inf)
            yield "below", np.where(known, -x, -np.inf)
            yield "unlike", (known & (x != _usual(x))).astype(np.float64)
            return
        starts = self.indptr[:-1]
        length = ragged.lengths(self.indptr)
        with np.errstate(invalid="ignore"):
            lowest = np.repeat(np.fmin.reduceat(x, starts), length)
            highest = np.repeat(np.fmax.reduceat(x, starts), length)
            yield "above-list", np.where(known, x - lowest, -np.inf)
            yield "below-list", np.where(known, highest - x, -np.inf)


def _of_documents(log: ClickLog) -> _LeakEvidence:
    """In pieces: this is asked before a training that may be refused for want of memory."""
    sums = np.zeros((6, log.n_documents))
    for lists in _pieces(log):
        rows = _rows(log, lists)
        shown = np.repeat(log.sessions[lists], ragged.lengths(log.indptr)[lists]).astype(np.float64)
        clicked = shown * (log.label[_rows_of(log, lists)] > 0)
        for number, each in enumerate((*rows.counts, shown, clicked)):
            sums[number] += sum_by(rows.document, each, log.n_documents)
    is_shown = np.flatnonzero(sums[-2])
    units = _LeakUnits(np.arange(log.n_documents), *sums[:4]).take(is_shown)
    return _LeakEvidence(units, sums[4][is_shown], sums[5][is_shown], None)


def _pieces(log: ClickLog) -> Iterator[slice]:
    """Lists that follow each other, about `ROWS_AT_A_TIME` rows at a time."""
    first = 0
    while first < log.n_lists:
        end = int(np.searchsorted(log.indptr, log.indptr[first] + ROWS_AT_A_TIME))
        last = min(log.n_lists, max(first + 1, end))
        yield slice(first, last)
        first = last


def _in_lists(log: ClickLog) -> _LeakEvidence:
    """Lists of some queries, drawn by their documents: more sessions change nothing in the draw."""
    chosen = some_queries(np.bincount(log.doc_query, minlength=log.n_queries), IN_LISTS)
    filled = chosen[log.query] & (ragged.lengths(log.indptr) > 0)
    part = log.take(np.flatnonzero(filled)).collapse()
    shown = part.row_count.astype(np.float64)
    return _LeakEvidence(
        _rows(part, slice(0, part.n_lists)), shown, shown * (part.label > 0), part.indptr
    )


def some_queries(size: IntArray, enough: int) -> BoolArray:
    """(queries,) those drawn until their sizes (queries,) are enough together."""
    order = child_generator(0, 5).permutation(len(size))
    chosen = np.zeros(len(size), dtype=bool)
    chosen[order[: np.searchsorted(np.cumsum(size[order]), enough) + 1]] = True
    return chosen


def _rows(log: ClickLog, lists: slice) -> _LeakUnits:
    rows = _rows_of(log, lists)
    indptr = log.indptr[lists.start : lists.stop + 1] - rows.start
    clicked = (log.label[rows] > 0).astype(np.float64)
    length = ragged.lengths(indptr)
    compares = ragged.sums_by_list(indptr, clicked) < length
    shown = np.repeat(log.sessions[lists] * compares, length).astype(np.float64)
    below = shown.copy()
    below[indptr[:-1][length > 0]] = 0.0  # rows stand by position: the first is the top
    return _LeakUnits(log.document[rows], shown, shown * clicked, below, below * clicked)


def _rows_of(log: ClickLog, lists: slice) -> slice:
    return slice(int(log.indptr[lists.start]), int(log.indptr[lists.stop]))


def _usual(x: FloatArray) -> float:
    """The value of most units, where most have the same one."""
    known = x[np.isfinite(x)]
    return float(np.median(known[:: 1 + len(known) // 1000])) if len(known) else 0.0


def _cut(key: FloatArray, units: _LeakUnits) -> float | None:
    """The least key above which nearly everything was clicked; None where there is none such."""
    if not _may_be_pure(key, units):
        return None
    order = np.argsort(-key, kind="stable")
    ordered = key[order]
    ends = np.flatnonzero(ordered[1:] < ordered[:-1])
    sums = [np.cumsum(column[order]) for column in units.counts]
    n, c, n_below, c_below = (column[ends] for column in sums)
    n_other, c_other = sums[0][-1] - n, sums[1][-1] - c
    odds = (c + 0.5) / (n - c + 0.5) * (n_other - c_other + 0.5) / (c_other + 0.5)
    pure = (c >= PURE * n) & (c_below >= PURE * n_below)
    pure &= (odds >= LEAST_ODDS) & (_lower(c_below, n_below) > HARDLY_BY_CHANCE)
    if not pure.any():
        return None
    end = ends[np.flatnonzero(pure)[-1]]
    inside = units.take(order[: end + 1])
    if len(np.unique(inside.document[inside.clicked_below > 0])) < FEWEST:
        return None
    return float(ordered[end + 1])


def _may_be_pure(key: FloatArray, units: _LeakUnits) -> bool:
    """A look before the sorting: at the units down to the FEWEST-th clicked one."""
    clicked = key[units.clicked_below > 0]
    if len(clicked) < FEWEST:
        return False
    inside = key >= np.partition(clicked, -FEWEST)[-FEWEST]
    return bool(units.clicked[inside].sum() >= HALF_PURE * units.shown[inside].sum())


def _lower(clicked: FloatArray, shown: FloatArray) -> FloatArray:
    """Wilson's lower bound of a rate."""
    n = np.maximum(shown, 1)
    p, z2 = clicked / n, SURE**2
    return (p + z2 / (2 * n) - SURE * np.sqrt(p * (1 - p) / n + z2 / (4 * n**2))) / (1 + z2 / n)
