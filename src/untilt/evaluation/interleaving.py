"""Team-draft interleaving: one list of two rankers, and whose documents are clicked.

A session compares both rankers by itself, so that far fewer sessions decide than where each ranker
has sessions of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.random import Seed, generator
from untilt._core.statistics import Interval, any_time_share, check_level
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError
from untilt.evaluation.judged import WinSameLoss

NEW, OLD = 1, 2  # teams; 0 is nobody's


def team_draft(
    new: Sequence[Any], old: Sequence[Any], size: int, seed: Seed
) -> tuple[list[Any], list[int]]:
    """One list of two, and the team of each document: 1 for the new ranker, 2 for the old.

    In each round a coin says who begins, and both put their best document that is not yet there
    ([radlinski2008]_). Where neither is better, a click falls on either team with the same
    probability, whatever people click on and wherever it stands. Log the team beside each position.

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
    while len(shown) < size:
        before = len(shown)
        for team in (NEW, OLD) if rng.random() < 0.5 else (OLD, NEW):
            best = next((each for each in (new, old)[team - 1] if each not in taken), None)
            if best is not None and len(shown) < size:
                shown.append(best)
                teams.append(team)
                taken.add(best)
        if len(shown) == before:
            break
    return shown, teams


@dataclass(frozen=True)
class Interleaved:
    """Sessions that preferred the new ranker, neither, or the old one.

    `interval` is of the share of wins among decided sessions, and `p_value` of that being 1/2; both
    hold at every look while sessions come in. The p-value is exact; the interval believes that
    decided sessions are alike.
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
    if not np.isin(of, (0, NEW, OLD)).all():
        raise OptionError(f"{team!r} must hold 1 (new), 2 (old) or 0. Got {of.max():g} instead.")
    clicks, there = (
        [ragged.sums_by_list(log.indptr, value * (of == which)) for which in (NEW, OLD)]
        for value in ((log.label > 0).astype(float), np.ones(len(of)))
    )
    drafted = (there[0] > 0) & (there[1] > 0)
    sign = np.sign(clicks[0] - clicks[1])
    win, same, loss = (int(log.sessions[drafted & (sign == way)].sum()) for way in (1, 0, -1))
    interval, p_value = any_time_share(win, loss, level)
    return Interleaved(WinSameLoss(win, same, loss, level), interval, p_value)
