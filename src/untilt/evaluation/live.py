"""Two rankers that are both live: each with sessions of its own, or interleaved in one list.

Two groups of sessions are compared by how often the first click is near the top (`first_clicks`).
In team-draft interleaving one list holds documents of both rankers, and whose documents are clicked
decides; each session compares both, so that far fewer sessions are needed. For counts of
side-by-side judgements see `untilt.WinSameLoss`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import special

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by, whole_numbers
from untilt._core.random import Seed, generator
from untilt._core.statistics import (
    Interval,
    MeanEstimate,
    any_time_factor,
    any_time_p_value,
    any_time_share,
    check_level,
    effective_units,
    two_way_variance,
)
from untilt.data.clicklog import ClickLog
from untilt.data.counts import clusters_of
from untilt.errors import OptionError, check_choice, did_you_mean
from untilt.evaluation.judged import WinSameLoss
from untilt.views import Entries, Section, Table, View


@dataclass(frozen=True)
class FirstClickRatio:
    """The share of sessions whose first click is at positions 1..top, of both rankers.

    `increase` is new/old - 1, with its interval; `p_value` that the two are the same, two-sided.
    """

    top: int
    new: float
    old: float
    increase: float
    interval: Interval
    p_value: float


@dataclass(frozen=True, eq=False, repr=False)
class FirstClicks(Entries[FirstClickRatio], View):
    """First-click ratios of two rankers of a log, by top: `result[3].increase`."""

    new: str
    old: str
    entries: tuple[FirstClickRatio, ...]
    n_sessions: tuple[int, int]
    n_queries: int
    effective_queries: float
    level: float
    named_by: ClassVar[str] = "top"

    def view(self) -> list[Section]:
        """The ratios of both, and the increase with its interval."""
        interval = f"{self.level:.0%} interval"
        rows = tuple(
            (
                f"the top {each.top}",
                f"{each.new:.4f}",
                f"{each.old:.4f}",
                f"{each.increase:+.2%}",
                f"[{each.interval.low:+.2%}, {each.interval.high:+.2%}]",
                f"{each.p_value:.2g}",
            )
            for each in self.entries
        )
        new, old = self.n_sessions
        title = (
            f"First-click ratios of {new:,} sessions of {self.new} and {old:,} of {self.old}, "
            f"{self.n_queries:,} queries"
        )
        table = Table(("first click in", self.new, self.old, "increase", interval, "p"), rows)
        return [Section("first-clicks", title, tables=(table,))]


def first_clicks(
    log: ClickLog,
    new: str,
    old: str,
    *,
    top: int | Sequence[int] = (1, 3, 5),
    queries: Literal["all", "shared"] = "all",
    level: float = 0.95,
    any_time: bool = False,
) -> FirstClicks:
    r"""Whether people click nearer to the top with one ranker than with another.

    The first-click ratio of a ranker is (table 3 of [hu2019unbiased]_)

        Click@k = sessions whose first click is at positions 1..k / all its sessions,

    sessions without a click included. Lists do not tell in which order people clicked: the first
    click is the one nearest to the top. The increase is Click@k(new) / Click@k(old) - 1.

    Queries are the independent units: the error of log(new/old) is the jackknife's, leaving each
    query out of both rankers at once, so that what makes a query easy for both cancels; intervals
    are Student's t with the queries in effect. Right where chance decided which ranker answered a
    session. Where it decided for a person, once for all sessions, the log must say whose they are
    (`log.person`): errors are then clustered by person too, see `two_way_variance`. Without, a test
    of 1,000 people with Zipf traffic had p < .05 in three of four cases where nothing differed.
    It judges rankers by clicks that both *got*, so it needs no position bias.

    Parameters
    ----------
    log : with the name of the ranker that made each list; a label above 0 is a click
    new, old : two of `log.ranker_names`
    top : k, one or several
    queries : "all", or those that both rankers answered ("shared"), where the mix of queries may
        differ between the two
    level : of the intervals
    any_time : intervals and p-values that hold at every look while sessions come in, not at one
        look alone, for tests that are watched ([waudbysmith2024]_); 1.6 times as wide or more
    """
    check_level(level)
    check_choice("queries", queries, ("all", "shared"))
    tops = [int(k) for k in np.atleast_1d(whole_numbers(top, np.int64, what="top"))]
    if not tops or min(tops) < 1:
        raise OptionError(f"top must be positions of at least 1. Got {top!r} instead.")
    arms = [_lists_of(log, name) * log.sessions for name in (new, old)]
    if new == old:
        raise OptionError(f"new and old must be two rankers. Got {new!r} twice.")
    sessions = _sums(log.query, arms)
    if queries == "shared":
        shared = (sessions[0] > 0) & (sessions[1] > 0)
        arms, sessions = [arm * shared[log.query] for arm in arms], sessions * shared
    if not sessions.any(axis=1).all():
        raise OptionError(
            f"{new!r} and {old!r} have no query in common, so there is nothing to "
            "compare with ⟦queries='shared'⟧. Use more of the log, or ⟦queries='all'⟧ "
            "if chance chose the ranker."
        )
    entries = []
    for k in tops:
        early = _clicked_within(log, k)
        entries.append(_ratio(k, _parts(log, [arm * early for arm in arms], arms), level, any_time))
    return FirstClicks(
        new=new,
        old=old,
        entries=tuple(entries),
        n_sessions=(int(sessions[0].sum()), int(sessions[1].sum())),
        n_queries=int(sessions.any(axis=0).sum()),
        effective_queries=effective_units(sessions.sum(axis=0)),
        level=level,
    )


# Hits and sessions, (2, units) of the new and the old ranker, by each kind of unit.
Parts = Sequence[tuple[FloatArray, FloatArray]]


def _parts(log: ClickLog, hits: Sequence[IntArray], sessions: Sequence[IntArray]) -> Parts:
    """Sums by query, from (lists,) of each ranker; by person too where the log has any."""
    return [(_sums(unit, hits), _sums(unit, sessions)) for unit in clusters_of(log)]


def _sums(unit: IntArray, values: Sequence[IntArray]) -> FloatArray:
    return np.array([sum_by(unit, each, int(unit.max(initial=0)) + 1) for each in values])


def _ratio(top: int, parts: Parts, level: float, any_time: bool) -> FirstClickRatio:
    share = parts[0][0].sum(axis=1) / parts[0][1].sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends, p_value = _log_ratio(parts, level, any_time)
        return FirstClickRatio(
            top=top,
            new=float(share[0]),
            old=float(share[1]),
            increase=float(share[0] / share[1]) - 1,
            interval=Interval(float(np.expm1(ends.low)), float(np.expm1(ends.high)), level),
            p_value=p_value,
        )


def _log_ratio(parts: Parts, level: float, any_time: bool) -> tuple[Interval, float]:
    """The interval of log(new / old), shares of hits, and the p-value of 0."""
    moves = [_moved(*part) for part in parts]
    squares = [(len(m) - 1) / len(m) * np.sum(m**2) if len(m) > 1 else np.nan for _, m in moves]
    square = squares[0] if len(parts) == 1 else two_way_variance(*squares)
    effective = min(effective_units(sessions.sum(axis=0)) for _, sessions in parts[:2])
    (value, moved), error = moves[0], float(np.sqrt(square))
    mean = MeanEstimate(value, error, len(moved), effective)
    if not any_time:
        return mean.interval(level), mean.p_value
    wider = float(any_time_factor(np.array(error), level))
    half = wider * (mean.interval(level).high - value)
    return Interval(value - half, value + half, level), any_time_p_value(value, error)


def _moved(hits: FloatArray, sessions: FloatArray) -> tuple[float, FloatArray]:
    """log(new / old), and what leaving each unit out adds to it."""
    seen = sessions.any(axis=0)
    C, N = hits.sum(axis=1), sessions.sum(axis=1)
    value = float(np.log(C[0] / N[0] / (C[1] / N[1])))
    without = np.log((C[:, None] - hits[:, seen]) / (N[:, None] - sessions[:, seen]))
    return value, without[0] - without[1] - value


def _lists_of(log: ClickLog, name: str) -> BoolArray:
    """(lists,) whether the ranker of this name made each list."""
    if log.ranker is None:
        raise OptionError(
            "this log does not name the ranker of a list, so two rankers cannot be compared on "
            "it. Read it with its column (ranker); ut.estimate values a ranker that was "
            "never live."
        )
    if name not in log.ranker_names:
        raise OptionError(
            f"this log has no lists of the ranker {name!r}.{did_you_mean(name, log.ranker_names)} "
            f"There are: {', '.join(log.ranker_names)}."
        )
    made: BoolArray = log.ranker == log.ranker_names.index(name)
    return made


def _clicked_within(log: ClickLog, top: int) -> BoolArray:
    """(lists,) whether some click is at positions 1..top."""
    early = (log.label > 0) & (log.position <= top)
    clicked: BoolArray = ragged.sums_by_list(log.indptr, early.astype(float)) > 0
    return clicked


NOBODY, NEW, OLD = 0, 1, 2  # teams


def team_draft(
    new: Sequence[Any], old: Sequence[Any], size: int, seed: Seed
) -> tuple[list[Any], list[int]]:
    """One list of two, and the team of each document: 1 for the new ranker, 2 for the old, or 0.

    In each round a coin says who begins, and both put their best document that is not yet there
    ([radlinski2008]_). Where neither is better, a click falls on either team with the same
    probability, whatever people click on and wherever it stands. From the first round on in which
    one of the two may find no document left, documents are nobody's (0): a list would lose by being
    short. Log the team beside each position.

    Parameters
    ----------
    new, old : documents of a query, best first
    size : of the list
    seed : or a generator; a hash of the session keeps its list the same when it is loaded again
    """
    rng = generator(seed)
    shown: list[Any] = []
    teams: list[int] = []
    taken: set[Any] = set()
    fair = True
    while len(shown) < size:
        ahead = [[*islice((d for d in each if d not in taken), 2)] for each in (new, old)]
        if not any(ahead):
            break
        # Both must find a document in this round, whoever begins; the last place needs one alone.
        same = all(ahead) and ahead[0][0] == ahead[1][0] and len(shown) + 1 < size
        fair = fair and all(ahead) and not (same and len(ahead[0]) != len(ahead[1]))
        for team in (NEW, OLD) if rng.random() < 0.5 else (OLD, NEW):
            best = next((each for each in ahead[team - 1] if each not in taken), None)
            if best is not None and len(shown) < size:
                shown.append(best)
                teams.append(team if fair else NOBODY)
                taken.add(best)
    return shown, teams


@dataclass(frozen=True)
class Interleaved:
    """Sessions that preferred the new ranker, neither, or the old one.

    `interval` is of the share of wins among decided sessions, and `p_value` of that being 1/2; both
    hold at every look while sessions come in. The p-value is exact; the interval believes that
    decided sessions are alike. Where the log says whose sessions they are, both also allow for what
    those of a person have in common (`two_way_variance`).
    """

    sessions: WinSameLoss
    interval: Interval
    p_value: float

    @property
    def share(self) -> float:
        """Of wins among decided sessions."""
        return self.sessions.share

    def __repr__(self) -> str:
        counts = self.sessions
        return (
            f"{counts.win:,} sessions for the new ranker, {counts.same:,} for neither, "
            f"{counts.loss:,} for the old one: {self.share:.1%} of those decided, at any time "
            f"[{self.interval.low:.1%}, {self.interval.high:.1%}], p {self.p_value:.2g}"
        )


def interleaved(log: ClickLog, *, team: str = "team", level: float = 0.95) -> Interleaved:
    """Who wins the sessions of a log of interleaved lists.

    A session is won by the team with more clicks on its documents.

    Parameters
    ----------
    log : read with labels=["team"]: 1 where the new ranker put the document there, 2 for the old
        one, 0 where nobody's; lists without both teams have no part in it
    level : of the interval
    """
    check_level(level)
    if team not in log.extra_labels:
        known = ", ".join(log.extra_labels) or "none"
        raise OptionError(
            f"this log has no column {team!r} that says which ranker put a document where it was. "
            f"Read it with labels=[{team!r}]. Further labels here: {known}."
        )
    of = log.extra_labels[team]
    if not np.isin(of, (NOBODY, NEW, OLD)).all():
        raise OptionError(f"{team!r} must hold 1 (new), 2 (old) or 0. Got {of.max():g} instead.")
    clicks, there = (
        [ragged.sums_by_list(log.indptr, value * (of == which)) for which in (NEW, OLD)]
        for value in ((log.label > 0).astype(float), np.ones(len(of)))
    )
    drafted = (there[0] > 0) & (there[1] > 0)
    sign = np.sign(clicks[0] - clicks[1])
    win, same, loss = (int(log.sessions[drafted & (sign == way)].sum()) for way in (1, 0, -1))
    interval, p_value = any_time_share(win, loss, level)
    if log.person is not None and win and loss:  # log(wins / losses), of the same sessions
        won = [(drafted & (sign == way)) * log.sessions for way in (1, -1)]
        with np.errstate(divide="ignore", invalid="ignore"):
            ends, by_person = _log_ratio(_parts(log, won, [won[0] + won[1]] * 2), level, True)
        low, high = (float(special.expit(end)) for end in (ends.low, ends.high))
        interval = interval.hull(Interval(low, high, level))
        p_value = max(p_value, 1.0 if np.isnan(by_person) else by_person)
    return Interleaved(WinSameLoss(win, same, loss, level), interval, p_value)
