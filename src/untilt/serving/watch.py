"""Has anything changed? The last period of a log against those before it.

Everything is compared at equal documents and positions, or with sessions as units, so that neither
the position bias nor the mix of queries needs to be known. All tests of one look together raise a
false alarm on an unchanging log with probability 1 - level at most (Holm); a log that is looked at
every day gets as many chances. What compares two live rankers holds at every look.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.estimator import clone
from untilt._core.statistics import check_level, holm, student_quantile
from untilt.auditing.reading import grouped_cells, reach_of
from untilt.auditing.scores import ScoreCells
from untilt.bias.curve import PositionBias
from untilt.charts.theme import MOST_SERIES
from untilt.data.clicklog import ClickLog
from untilt.data.counts import ClickRates, position_counts
from untilt.errors import OptionError, UntiltError
from untilt.evaluation.live import FirstClicks, Interleaved, first_clicks, interleaved
from untilt.facts import Fact, Sentence, note, serious
from untilt.views import Section, View

NEW_OPEN = note(
    "watch.new-open", "the comparison of the new ranker {new} with {old} is undecided: {text}"
)

NEW_BETTER = note(
    "watch.new-better",
    "the new ranker {new} does better than {old}: {text}. This holds at every look",
)

NEW_WORSE = serious(
    "watch.new-worse",
    "the new ranker {new} does worse than {old}: {text}. This holds at every look. Take it back",
)

FEATURES = serious(
    "watch.features",
    "features of shown documents changed: {named:listed}. In brackets: stability index; from "
    "{limit:g} on a change matters. Check their source, then train again",
)

DOCUMENTS = serious(
    "watch.documents",
    "relevance changed: click rates of documents differ from before by a factor of {ratio:.2f} "
    "from one to the next (p {p_value:.2g}). Train on new clicks",
)
UNTESTED = note(
    "watch.untested",
    "whether {asks} could not be tested: no document was shown at the same position before and "
    "now, with clicks",
)
READING = serious(
    "watch.reading",
    "reading depth changed: for equal documents, clicks at position {position} relative to "
    "position 1 are {ratio:.2f} times what they were (interval {low:.2f} to {high:.2f}, p "
    "{p_value:.2g}). The old position bias no longer holds: estimate it on the new sessions, "
    "then train again",
)
CLICKS = serious(
    "watch.clicks",
    "the same documents at position 1 are clicked {ratio:.2f} times as often as before (interval "
    "{low:.2f} to {high:.2f}, p {p_value:.2g}). Look for a change of the page or of what is "
    "counted as a click",
)
NEW_TOO_EARLY = note(
    "watch.new-too-early",
    "{queries:.0f} effective queries are too few to compare {new} with {old}; the comparison "
    "needs {least}",
)
UNSEEN = serious(
    "watch.unseen",
    "{share:.0%} of what is shown now was never shown before, more than {most:.0%}: the ranker "
    "learned nothing about it from clicks. Train on new sessions",
)
NO_FEATURES = note("watch.no-features", "the log has no features to compare")()
NO_CURVE = note("watch.no-curve", "period {period} has no curve: {why}")

MOST_PERIODS = MOST_SERIES  # curves that can be told apart in one chart
FEWEST_QUERIES = 20  # in effect, before two rankers are compared: errors are asymptotic
_BINS = 10  # of a feature's values, as many shown documents in each before


@dataclass(frozen=True, eq=False)
class Period:
    """A stretch of time of a log: its first and last time, sessions and click rates."""

    start: Any
    end: Any
    n_sessions: int
    rates: ClickRates


@dataclass(frozen=True)
class Change:
    """One thing that may have changed: a ratio of now to before that is 1 where it has not.

    p_value : of no change; `adjusted` for all that was tested in this look (Holm)
    """

    asks: str
    ratio: float
    low: float
    high: float
    p_value: float
    adjusted: float = float("nan")


@dataclass(frozen=True, eq=False)
class ReadingCurve:
    """Examination now over examination before, relative to position 1, with intervals.

    From documents that stood at the same position in both; no model of relevance is needed.
    """

    position: IntArray
    ratio: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class FeatureDrift:
    """How far the values of a feature moved: the population stability index, and its p-value.

        index = sum over bins of (now - before) log(now / before)

    of shares of impressions, in tenths of what was shown before, and missing values.
    """

    feature: str
    index: float
    p_value: float


@dataclass(frozen=True)
class Live:
    """Two rankers on live traffic: sessions of their own (A/B), or interleaved lists."""

    new: str
    old: str
    first_clicks: FirstClicks | None
    interleaved: Interleaved | None
    fact: Fact


@dataclass(frozen=True, eq=False, repr=False)
class Watch(View):
    """Changes of a log between its last period and those before.

    Parameters
    ----------
    periods : in order of time; the last one is "now", all others are "before"
    reading : the curve of examination now over before; None where nothing stood twice
    changes : what was tested
    features : the drift of each, the largest first
    unseen_documents : share of the impressions now whose document its query never showed before
    unseen_queries : share of the sessions now whose query nobody asked before
    live : the comparison of two rankers, where asked for
    alarms, notes : what to act on, and what else was found
    level : 1 minus the probability of a false alarm of one look
    curves : of examination in each period, where an estimator was given; None where it had none
    """

    periods: tuple[Period, ...]
    reading: ReadingCurve | None
    changes: tuple[Change, ...]
    features: tuple[FeatureDrift, ...]
    unseen_documents: float
    unseen_queries: float
    live: Live | None
    alarms: tuple[Fact, ...]
    notes: tuple[Fact, ...]
    level: float
    curves: tuple[PositionBias | None, ...] = ()

    @property
    def is_quiet(self) -> bool:
        """Whether there is no alarm."""
        return not self.alarms

    def view(self) -> list[Section]:
        """Alarms or none, and what they rest on."""
        from untilt.serving.watch_page import sections_of

        return sections_of(self)


def watch(
    log: ClickLog,
    *,
    periods: int = 4,
    new: str | None = None,
    old: str | None = None,
    arm: str | None = None,
    team: str | None = None,
    top: int = 3,
    level: float = 0.99,
    drift: float = 0.2,
    most_unseen: float = 0.5,
    estimator: Any = None,
) -> Watch:
    """Compare the last period of a log with those before it, and two live rankers.

    Parameters
    ----------
    log : with times: read_log(..., collapse=False). Clicks are 0 or 1
    periods : the time is cut into so many with equally many sessions; the last one is "now"
    new, old : rankers to compare: names in `log.ranker_names`, or in the context `arm`. With `team`
        they are only names
    arm : a context of the log with the ranker that answered a session, such as "model"
    team : a label of the log with the ranker that chose a document, for interleaved lists: see
        `untilt.interleaved`
    top : sessions are compared by whether their first click is at positions 1..top
    level : 1 minus the probability that one look at an unchanging log raises an alarm
    drift : stability index from which on a feature has drifted; 0.1 is small, 0.25 large
    most_unseen : share of never shown documents from which on there is an alarm
    estimator : of position bias, such as ut.AllPairs(): each period gets a curve by it, for
        display only: the test of examination does not use it
    """
    check_level(level)
    _check(log, periods)
    plain = log.without_versions()
    cut = _period_of(plain, periods)
    now = cut == cut.max()
    reach = reach_of(position_counts(plain))
    changes, reading = _changes(plain, now, level, reach)
    drifts = _drifts(log, now)
    features = [] if not drifts else [min(1.0, len(drifts) * min(d.p_value for d in drifts))]
    adjusted = holm(np.array([each.p_value for each in changes] + features))
    changes = [replace(each, adjusted=float(p)) for each, p in zip(changes, adjusted, strict=False)]
    alarms = [
        _ASKS[e.asks](ratio=e.ratio, low=e.low, high=e.high, p_value=e.adjusted, position=reach)
        for e in changes
        if e.adjusted < 1 - level
    ]
    if features and adjusted[-1] < 1 - level:
        moved = [(d.feature, d.index) for d in drifts if d.index >= drift and
                 len(drifts) * d.p_value < 1 - level]  # fmt: skip
        named = [f"{name} ({index:.2f})" for name, index in moved]
        alarms += [FEATURES(features=tuple(moved), named=named, limit=drift)] if moved else []
    documents, queries = _unseen(plain, now)
    if documents > most_unseen:
        alarms.append(UNSEEN(share=documents, most=most_unseen))
    live = _live(log, new, old, arm, team, top, level)
    notes = [UNTESTED(asks=asks) for asks in _ASKS if asks not in
             {each.asks for each in changes}]  # fmt: skip
    notes += [] if log.features is not None else [NO_FEATURES]
    curves, silent = _curves(plain, cut, estimator)
    notes += silent
    if live is not None:
        (alarms if live.fact.severity == "serious" else notes).append(live.fact)
    if not alarms:
        notes.insert(0, note("watch.quiet", "nothing changed by more than chance explains")())
    return Watch(
        periods=tuple(_periods(plain, cut)), reading=reading, changes=tuple(changes),
        features=tuple(sorted(drifts, key=lambda each: -each.index)), unseen_documents=documents,
        unseen_queries=queries, live=live, alarms=tuple(alarms), notes=tuple(notes), level=level,
        curves=curves,
    )  # fmt: skip


# What is asked of readers, in the words of a sentence that begins with "whether", and the alarm.
_READ = "people read otherwise"
_CLICK = "people click more or less often"
_LIKE = "relevance changed"
_ASKS = {_READ: READING, _CLICK: CLICKS, _LIKE: DOCUMENTS}


def _check(log: ClickLog, periods: int) -> None:
    if log.time is None:
        raise OptionError(
            "this log has no times of sessions, so it cannot show changes. Read it with "
            "collapse=False and a column of times: ⟦columns={'timestamp': 'the column'}⟧."
        )
    if not 2 <= periods <= MOST_PERIODS:
        raise OptionError(
            f"periods must be 2 to {MOST_PERIODS}: one now, and those before. Got {periods}."
        )
    if len(np.unique(log.time)) < periods:
        raise OptionError(
            f"this log has {len(np.unique(log.time))} different times, and {periods} periods were "
            "asked for. Give more of the log, or fewer periods."
        )
    if not log.is_binary:
        raise OptionError(
            f"{log.label_name} is no click: clicks of 0 and 1 are watched. Use "
            "⟦log.with_label(...) with a click column|--label NAME⟧."
        )


def _period_of(log: ClickLog, periods: int) -> IntArray:
    """(lists,) the period of each, with equally many sessions as far as times allow."""
    assert log.time is not None
    times, index = np.unique(log.time, return_inverse=True)
    sessions = sum_by(index, log.sessions, len(times))
    middle = (np.cumsum(sessions) - sessions / 2) / sessions.sum()
    found = np.minimum((middle * periods).astype(np.int64), periods - 1)[index]
    return np.unique(found, return_inverse=True)[1]


def _periods(log: ClickLog, cut: IntArray) -> Iterator[Period]:
    assert log.time is not None
    for each in range(int(cut.max()) + 1):
        own = np.flatnonzero(cut == each)
        time, part = log.time[own], log.take(own)
        yield Period(time.min(), time.max(), part.n_sessions, part.ctr_by_position())


def _curves(
    log: ClickLog, cut: IntArray, estimator: Any
) -> tuple[tuple[PositionBias | None, ...], list[Fact]]:
    """A curve for each period, and why a period has none."""
    if estimator is None:
        return (), []
    curves: list[PositionBias | None] = []
    notes = []
    for each in range(int(cut.max()) + 1):
        try:
            part = log.take(np.flatnonzero(cut == each))
            curves.append(clone(estimator).fit(part).bias_)
        except UntiltError as error:
            curves.append(None)
            notes.append(NO_CURVE(period=each + 1, why=str(error)))
    return tuple(curves), notes


def _changes(
    log: ClickLog, now: BoolArray, level: float, reach: int
) -> tuple[list[Change], ReadingCurve | None]:
    cells = grouped_cells(log, now.astype(np.int64)[ragged.list_of_row(log.indptr)])
    # Position 1 is examined alike where only reading has changed.
    slope, clicks, spread = cells.slope(), cells.level(top=1), cells.spread()
    found = []
    if slope.is_possible:
        found.append(Change(_READ, *cells.told_slope(level, reach), slope.p_value))
    if clicks.is_possible:
        found.append(Change(_CLICK, *cells.told_level(level, top=1), clicks.p_value))
    if spread.is_possible:
        found.append(Change(_LIKE, *cells.told_spread(level), spread.p_above))
    return found, _reading_curve(cells, level) if slope.is_possible else None


def _reading_curve(cells: ScoreCells, level: float) -> ReadingCurve:
    """log(rate now / rate before) of each position less that of position 1 (Mantel and Haenszel).

    Intervals are the jackknife's over queries, with Student's t by the effective queries.
    """
    n, depth, n_queries = cells.n1 + cells.n0, int(cells.position.max()), int(cells.query.max()) + 1
    key = cells.query * depth + cells.position - 1
    shape = (n_queries, depth)
    now, before = (
        sum_by(key, value, n_queries * depth).reshape(shape)
        for value in (cells.c1 * cells.n0 / n, cells.c0 * cells.n1 / n)
    )
    weight = sum_by(key, n, n_queries * depth).reshape(shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.log(now.sum(axis=0) / before.sum(axis=0))
        without = np.log((now.sum(axis=0) - now) / (before.sum(axis=0) - before))
        value = whole - whole[0]
        moved = without - without[:, :1] - value
        error = np.sqrt((n_queries - 1) / n_queries * np.sum(moved**2, axis=0))
        effective = weight.sum(axis=0) ** 2 / np.sum(weight**2, axis=0)
    quantile = np.array(
        [student_quantile(level, max(e - 1, 1.0)) if e > 0 else np.inf for e in effective]
    )
    known = np.flatnonzero(np.isfinite(value) & np.isfinite(error))
    half = (quantile * error)[known]
    return ReadingCurve(
        known + 1, np.exp(value[known]), np.exp(value[known] - half), np.exp(value[known] + half)
    )


def _drifts(log: ClickLog, now: BoolArray) -> list[FeatureDrift]:
    """Sessions are the units of the test: those of one list are not independent of each other."""
    if log.features is None:
        return []
    columns = (column.astype(float)[log.document] for column in log.features.T)
    return [_drift_of(*each, log, now) for each in zip(log.feature_names, columns, strict=True)]


def _drift_of(name: str, values: FloatArray, log: ClickLog, now: BoolArray) -> FeatureDrift:
    row_list, weight = ragged.list_of_row(log.indptr), log.sessions.astype(float)
    known = values[~now[row_list] & np.isfinite(values)]
    inner = np.linspace(0, 1, _BINS + 1)[1:-1]
    edges = np.unique(np.quantile(known, inner, method="nearest")) if len(known) else np.empty(0)
    place = np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values))
    lists, bins = len(now), len(edges) + 2
    counts = sum_by(row_list * bins + place, np.ones(len(place)), lists * bins).reshape(lists, bins)
    share = counts / np.maximum(ragged.lengths(log.indptr), 1)[:, None]  # of each list
    z = _two_means(share, weight, now)
    tested = int(np.count_nonzero(np.isfinite(z)))
    largest = float(np.nanmax(np.abs(z))) if tested else 0.0
    p_value = min(1.0, tested * 2 * float(special.ndtr(-largest))) if tested else 1.0
    shown = [sum_by(place, (weight * part)[row_list], bins) + 0.5 for part in (now, ~now)]
    new, old = (each / each.sum() for each in shown)
    return FeatureDrift(name, float(np.sum((new - old) * np.log(new / old))), p_value)


def _two_means(x: FloatArray, weight: FloatArray, now: BoolArray) -> FloatArray:
    """(columns,) difference of means of sessions now and before, in standard errors."""
    parts = []
    for kind in (now, ~now):
        w, own = weight[kind], x[kind]
        total = w.sum()
        mean = w @ own / total
        parts.append((mean, w @ (own - mean) ** 2 / total / max(total - 1, 1)))
    (a, v), (b, u) = parts
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(v + u > 0, (a - b) / np.sqrt(v + u), np.nan)


def _unseen(log: ClickLog, now: BoolArray) -> tuple[float, float]:
    row_now = now[ragged.list_of_row(log.indptr)]
    known = np.zeros(log.n_documents, dtype=bool)
    known[log.document[~row_now]] = True
    asked = np.zeros(log.n_queries, dtype=bool)
    asked[log.query[~now]] = True
    rows, lists = log.row_count[row_now].astype(float), log.sessions[now].astype(float)
    documents = rows @ ~known[log.document[row_now]] / max(rows.sum(), 1)
    return float(documents), float(lists @ ~asked[log.query[now]] / max(lists.sum(), 1))


def _live(
    log: ClickLog, new: str | None, old: str | None, arm: str | None, team: str | None, top: int,
    level: float,
) -> Live | None:  # fmt: skip
    if team is not None:
        found = interleaved(log, team=team, level=level)
        names = {"new": new or "new", "old": old or "old"}
        told = _verdict(found.p_value < 1 - level, found.share > 0.5)
        return Live(**names, first_clicks=None, interleaved=found,
                    fact=told(**names, text=repr(found)))  # fmt: skip
    if new is None and old is None:
        return None
    if new is None or old is None:
        raise OptionError(
            f"two rankers are compared. Got ⟦new={new!r}⟧ and ⟦old={old!r}⟧: give both names."
        )
    ratios = first_clicks(_with_arms(log, arm), new, old, top=top, level=level, any_time=True)
    names = {"new": new, "old": old}
    if ratios.effective_queries < FEWEST_QUERIES:
        fact = NEW_TOO_EARLY(**names, queries=ratios.effective_queries,
                    least=FEWEST_QUERIES)  # fmt: skip
        return Live(**names, first_clicks=ratios, interleaved=None, fact=fact)
    one = ratios[top]
    text = (
        f"first clicks in the top {top} change by {one.increase:+.1%}, at any time from "
        f"{one.interval.low:+.1%} to {one.interval.high:+.1%}"
    )
    told = _verdict(one.p_value < 1 - level, one.increase > 0)
    return Live(**names, first_clicks=ratios, interleaved=None, fact=told(**names, text=text))


def _verdict(decided: bool, better: bool) -> Sentence:
    if not decided:
        return NEW_OPEN
    return NEW_BETTER if better else NEW_WORSE


def _with_arms(log: ClickLog, arm: str | None) -> ClickLog:
    """The log with a context in the place of its rankers."""
    if arm is None:
        return log
    if arm not in log.context:
        known = ", ".join(log.context) or "none"
        raise OptionError(
            f"this log has no context {arm!r} that names the ranker of a list. Read it with "
            f"⟦context=[{arm!r}⟧]. There are: {known}."
        )
    names, index = np.unique(log.context[arm], return_inverse=True)
    return replace(log, ranker=index, ranker_names=tuple(str(name) for name in names))
