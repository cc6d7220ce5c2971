"""Does a log hold what was shown, or only what was clicked?

Every estimate compares clicked with unclicked documents. A log that leaves unclicked ones out gives
answers that look firm and mean nothing. Three ways in which they are left out can be seen:

- *bare* sessions hold clicked rows alone. Lists of one document are fine while some of them are not
  clicked, so sessions are judged beside those of their shape (number of rows, lowest position):
  bare are those of shapes that are hardly ever seen with an unclicked row.
- *cut* sessions end with their last click: what stood below it was not logged.
- rows may be missing here and there (see `missing_share`): honest where the missing positions have
  nothing to do with clicks, as an advertisement has not.

How much an estimate suffers, with examination down to 0.09 at position 10 and a click rate of 15%
at the top: AllPairs is off by 7% at most where 10% of the sessions are bare, by 12% where 20% are,
22% where 40% are, and a factor of 5.7 where 98% are (noise alone: 4%); by a factor of 2 where all
sessions with a click are cut, and of 1.6 where 30% of the unclicked rows were kept.
"""

from dataclasses import dataclass

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import IntArray, sum_by
from untilt.data.clicklog import ClickLog
from untilt.errors import IdentifiabilityError
from untilt.facts import Fact, serious

PARTLY_CLICKS_ONLY = serious(
    "audit.partly-clicks-only",
    "{share:.1%} of the sessions with a click hold clicked rows alone: part of the log does not "
    "hold what was shown, which makes position bias look weaker than it is.",
)
ROWS_MISSING = serious(
    "audit.rows-missing",
    "{share:.1%} of the positions above a session's lowest row have none. If rows without a click "
    "were left out, or only a sample of them was kept, position bias looks far weaker than it is.",
)
CLICKS_ONLY = serious(
    "audit.clicks-only",
    "The log holds clicks alone: none of its {sessions:,} sessions has a row that was not clicked. "
    "Nothing was logged about what was shown, so that neither position bias nor a ranker can be "
    "judged.",
)
MOSTLY_CLICKS_ONLY = serious(
    "audit.mostly-clicks-only",
    "{share:.1%} of the sessions with a click hold clicked rows alone: what else they showed was "
    "not logged, and estimates would take these documents for clicked whenever shown.",
)
CUT_AT_LAST_CLICK = serious(
    "audit.cut-at-last-click",
    "{share:.1%} of the sessions with a click end with it: what stood below the last click was not "
    "logged, so that low positions seem to be clicked far too often.",
)

LOG_ALL_SHOWN = (
    "Log every result that was shown, with 0 where it was not clicked, or leave sessions of clicks "
    "alone out."
)

# Of the sessions of a shape; a widget of one document with so many clicks is hardly known.
BARE = 0.9
# Of the sessions with a click: from here on a log is refused, and from here on it is doubted.
REFUSED, DOUBTED = 0.2, 0.05
CUT = 0.9  # of the sessions with clicked and unclicked rows: they end with their last click
MISSING = 0.4  # of the rows above the lowest: more than advertisements take
FEWEST = 30  # sessions with a click, before a share of them says anything
FEWEST_AT_ALL = 10  # sessions with a click, before it is no accident that all rows are clicked


@dataclass(frozen=True)
class ImpressionCheck:
    """What a log holds besides clicks.

    sessions, impressions, unclicked : how many there are; `unclicked` counts impressions
    clicked_sessions, mixed_sessions : sessions with a click; those that `cut_share` is a share of
    bare_share : of them, those that hold clicked rows alone and are of a shape that always does
    cut_share : of those that hold unclicked rows too, and do not reach the lowest position of the
        log, the share that ends with a click
    missing_share : of the positions above a session's lowest row, those without a row; positions
        that no session shows do not count
    """

    sessions: int
    impressions: int
    unclicked: int
    clicked_sessions: int
    mixed_sessions: int
    bare_share: float
    cut_share: float
    missing_share: float

    @property
    def refusal(self) -> Fact | None:
        """Why nothing can be learned from this log; None where that is not so."""
        if not self.unclicked and self.clicked_sessions >= FEWEST_AT_ALL:
            return CLICKS_ONLY(sessions=self.sessions)
        if self.clicked_sessions < FEWEST:
            return None
        if self.bare_share >= REFUSED:
            return MOSTLY_CLICKS_ONLY(share=self.bare_share)
        if self.cut_share >= CUT and self.mixed_sessions >= FEWEST:
            return CUT_AT_LAST_CLICK(share=self.cut_share)
        return None

    def check(self) -> None:
        """Raise where nothing can be learned from this log."""
        refusal = self.refusal
        if refusal is not None:
            raise IdentifiabilityError(f"{refusal} {LOG_ALL_SHOWN}")

    @property
    def doubts(self) -> tuple[Fact, ...]:
        """What may be wrong with a log that is not refused."""
        if self.clicked_sessions < FEWEST or self.refusal is not None:
            return ()
        partly = PARTLY_CLICKS_ONLY(share=self.bare_share)
        sparse = ROWS_MISSING(share=self.missing_share)
        doubted = self.bare_share >= DOUBTED, self.missing_share >= MISSING
        return tuple(f for f, holds in zip((partly, sparse), doubted, strict=True) if holds)


def examine_impressions(log: ClickLog) -> ImpressionCheck:
    """Look at the rows of each session; any label above 0 is a click."""
    clicked, n = log.label > 0, ragged.lengths(log.indptr)
    clicks = ragged.sums_by_list(log.indptr, clicked)
    some = clicks > 0
    last = log.indptr[1:][some] - 1
    sessions = log.count[some]
    clicked_sessions = int(sessions.sum())
    # Lists that reach the lowest position of the log are not cut, wherever the clicks are.
    mixed = (n > clicks)[some] & (log.position[last] < log.depth)
    ends_clicked = clicked[last] & mixed
    return ImpressionCheck(
        sessions=log.n_sessions,
        impressions=log.n_impressions,
        unclicked=int(np.dot(n - clicks, log.count)),
        clicked_sessions=clicked_sessions,
        mixed_sessions=int(sessions[mixed].sum()),
        bare_share=float(_bare(log, n, clicks).sum() / max(1, clicked_sessions)),
        cut_share=float(sessions[ends_clicked].sum() / max(1, sessions[mixed].sum())),
        missing_share=_missing_share(log, n),
    )


def _bare(log: ClickLog, n: IntArray, clicks: IntArray) -> IntArray:
    """(lists,) sessions of lists with clicked rows alone, whose shape hardly ever has others."""
    filled = n > 0
    lowest = np.zeros_like(n)
    lowest[filled] = log.position[log.indptr[1:][filled] - 1]
    whole = filled & (clicks == n)
    if not whole.any():
        return np.zeros(log.n_lists, dtype=np.int64)
    shape = np.unique(n * (log.depth + 1) + lowest, return_inverse=True)[1]
    share = sum_by(shape, log.count * whole) / np.maximum(sum_by(shape, log.count), 1)
    bare: IntArray = log.count * (whole & (share[shape] >= BARE))
    return bare


def _missing_share(log: ClickLog, n: IntArray) -> float:
    """Positions above the lowest row of a session that no row fills, among those ever shown."""
    filled = n > 0
    if not filled.any():
        return 0.0
    shown = np.zeros(log.depth + 1, dtype=np.int64)
    shown[log.position] = 1
    slots = np.cumsum(shown)[log.position[log.indptr[1:][filled] - 1]]
    sessions = log.count[filled]
    above = float(np.dot(sessions, slots - 1))
    return 1 - float(np.dot(sessions, n[filled] - 1)) / above if above > 0 else 0.0


def check_shown(log: ClickLog) -> None:
    """Raise where a log holds too little besides clicks for anything to be learned from it."""
    examine_impressions(log).check()
