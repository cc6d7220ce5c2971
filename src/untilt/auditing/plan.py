"""How many swapped sessions an experiment needs, and what they cost in clicks."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from untilt._core import codec
from untilt._core.arrays import FloatArray, handed_over
from untilt._core.portable import Portable
from untilt._core.statistics import normal_quantile
from untilt._core.words import number, whole
from untilt.auditing import swap_design
from untilt.auditing.swap_design import (
    EXPLORED,
    PlannedDesign,
    check_assurance,
    designs,
    table_of,
)
from untilt.bias.given import Examination, as_examination
from untilt.bias.harvesting.harvesting import AllPairs
from untilt.bias.position_graph import joined_depth, most_lost, position_graph
from untilt.data.clicklog import ClickLog
from untilt.errors import IdentifiabilityError, OptionError, check_choice
from untilt.facts import Fact, note, phrase
from untilt.views import Section, Table, Tile, View

TEST_FIRST = note(
    "plan.test-first",
    "Few sessions test whether a curve of documents that moved may be trusted: {name} in "
    "{share:.0%} of the sessions until {to_test:,} are changed ({test_days:.3g} days). After "
    "{to_decide:,} ({decide_days:.3g} days) the experiment decides alone. A server does so with "
    "`untilt serve RANKER --explore {explore}`",
)

SERVE = note(
    "plan.serve",
    "`untilt serve RANKER --explore {explore}` draws and logs the swaps, at a cost of "
    "{most}{lost:.2g} clicks a session",
)

ASSURED = note(
    "plan.assured",
    "All positions are within {width:.0%} with probability {probability:.0%}, if the click rates "
    "and the guess of the bias are right.",
)

MEAN_WIDTH = note(
    "plan.mean-width",
    "The widths are means: all positions are within {width:.0%} with probability "
    "{probability:.0%}. ⟦assurance=0.9⟧ plans for all of them.",
)

LOG_SWAPS = note(
    "plan.log-swaps",
    "Log what happened as `ranker`: 'swap:1-5' for a swap of 1 and 5, 'base' otherwise. Then: "
    "⟦untilt.{estimator}.fit(log)⟧.",
)
DRAW_BY_SESSION = note(
    "plan.draw-by-session",
    "Draw the swap independently for each session, whatever the query or the person.",
)()
WATCH_ANY_TIME = note(
    "plan.watch-any-time",
    "The intervals hold once the planned sessions are there. ⟦any_time=True|--option "
    "any_time=true⟧ gives intervals that hold at every look during the experiment.",
)()
HARDEST_CASE = note(
    "plan.hardest-case",
    "No guess of the bias was given, so the plan covers the hardest case, and the swaps cost at "
    "most this much. With ⟦a guess (examination=...)|--examination⟧ both can be smaller.",
)()

PAIRS = ("pivot", "adjacent")
WITHIN = ("document", "length")
MOST_SESSIONS = 2.0**42  # a plan beyond is no plan


@dataclass(frozen=True)
class PlannedSwap:
    """One pair of positions: how often to swap it, and what that costs.

    serves : the position that this swap adds to the curve
    probability : of a session to be drawn for this swap
    sessions : that are swapped in the end
    lost_per_session, clicks_lost : expected; the largest possible where no examination was given
    """

    upper: int
    lower: int
    serves: int
    probability: float
    sessions: int
    lost_per_session: float
    clicks_lost: float


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Portable, View):
    """A swap experiment: which pairs, how many sessions, how many days, how many clicks lost.

    Parameters
    ----------
    swaps : one entry per pair of positions
    sessions : all sessions of the experiment, swapped or not
    sessions_per_day, days : traffic, and how long it takes
    clicks_lost, lost_share : expected, and as a share of all clicks in that time; bounds where
        `is_bound`
    width, level : asked for: high - low of the interval of theta_k / theta_1, relative to it
    assurance : asked for: the probability that all positions are within the width. None plans the
        mean width alone
    probability_within : that all positions are within the width, by `untilt.auditing.swap_design`
    expected_width : (K,) the mean width at each position, 0 at position 1
    estimator : the call that makes the curve of the log afterwards
    examination : (K,) the curve that was assumed for the calculation, relative to position 1
    is_bound : no examination was given: sessions are enough for (nearly) any, costs are the highest
        possible for any
    designs : smaller experiments that say how steep a curve is, fewest sessions first
    """

    swaps: tuple[PlannedSwap, ...]
    sessions: int
    sessions_per_day: float
    days: float
    clicks_lost: float
    lost_share: float
    width: float
    level: float
    share: float
    expected_width: FloatArray
    estimator: str
    examination: FloatArray
    is_bound: bool
    assurance: float | None = None
    probability_within: float = math.nan
    designs: tuple[PlannedDesign, ...] = ()
    json_properties: ClassVar[tuple[str, ...]] = ("swapped_sessions", "explore", "notes")

    @property
    def swapped_sessions(self) -> int:
        """Sessions that are swapped, over all pairs."""
        return sum(swap.sessions for swap in self.swaps)

    @property
    def explore(self) -> str:
        """The option of `untilt serve` that draws these swaps: --explore swaps:1-2=0.01,..."""
        return "swaps:" + ",".join(
            f"{swap.upper}-{swap.lower}={swap.probability:.6g}" for swap in self.swaps
        )

    @property
    def notes(self) -> tuple[Fact, ...]:
        """How to run the experiment and what the numbers are for."""
        bound = (HARDEST_CASE,) if self.is_bound else ()
        told = MEAN_WIDTH if self.assurance is None else ASSURED
        return (
            told(width=self.width, probability=self.probability_within),
            LOG_SWAPS(estimator=self.estimator),
            SERVE(
                explore=self.explore,
                lost=self.clicks_lost / self.sessions,
                most="at most " if self.is_bound else "",
            ),
            DRAW_BY_SESSION,
            WATCH_ANY_TIME,
            *bound,
        )

    def to_dict(self, *, said: Callable[[str], str] = str) -> dict[str, Any]:
        """For JSON: plain numbers, text and lists."""
        plain: dict[str, Any] = codec.to_plain(self, exact=False, said=said)
        return plain

    def view(self) -> list[Section]:
        """What the experiment takes, and the swaps to draw."""
        most = "at most " if self.is_bound else ""
        tiles = (
            Tile("Sessions", whole(self.sessions), f"{whole(self.swapped_sessions)} swapped"),
            Tile("Days", number(self.days, 1), f"of {whole(self.sessions_per_day)} sessions"),
            Tile("Clicks lost", f"{most}{whole(self.clicks_lost)}",
                 f"{self.lost_share:.2%} of all in that time"),
        )  # fmt: skip
        rows = tuple(
            (
                f"{swap.upper} and {swap.lower}",
                f"{swap.probability:.3%}",
                whole(swap.sessions),
                number(swap.clicks_lost, 1),
                f"position {swap.serves}: {self.expected_width[swap.serves - 1]:.0%} wide",
            )
            for swap in self.swaps
        )
        header = ("positions", "probability", "sessions", f"{most}clicks lost", "mean width")
        caption = phrase(
            "Swaps to draw, each session at random ({level:.0%} intervals by "
            "⟦{estimator}|{name:method}⟧ afterwards)",
            level=self.level,
            estimator=self.estimator,
            name=self.estimator.partition("(")[0],
        )
        curve = Table(header, rows, caption, text_columns=(0, 4))
        measured = Section("plan", "To measure it", tiles=tiles, tables=(curve,), notes=self.notes)
        if not self.designs:
            return [measured]
        tables, best = (table_of(self.designs),), asdict(self.designs[0])
        told = (TEST_FIRST(share=EXPLORED, **best),)
        return [Section("designs", "To test a curve", tables=tables, notes=told), measured]


def plan_swaps(
    clicks: swap_design.Clicks,
    *,
    sessions_per_day: float,
    width: float = 0.2,
    level: float = 0.95,
    pairs: str = "pivot",
    pivot: int = 1,
    share: float = 0.1,
    depth: int | None = None,
    examination: Examination | npt.ArrayLike | None = None,
    within: str = "document",
    assurance: float | None = None,
) -> Plan:
    r"""Sessions, days and clicks that a swap experiment takes.

    The interval of theta_k / theta_1 is exp(z -+ q se), so a relative width of h needs
    se = asinh(h / 2) / q; `swap_design` says how se falls with the sessions. That is the *mean*
    width: of several positions some come out wider. With `assurance` the sessions are enough for
    all of them to be within the width with that probability (`assurance`). Swapping a and b loses
    (theta_a - theta_b)(gamma_a - gamma_b) = c_a + c_b - c_a theta_b / theta_a - c_b theta_a /
    theta_b clicks a session under the position-based model.

    What the experiment is to find is needed to plan it. Without a guess of it the plan takes the
    hardest case: the click rates fall by examination alone (then swaps move as few clicks as can
    be), and a swap costs the most it can for any examination, (sqrt(c_a) - sqrt(c_b))^2.

    Parameters
    ----------
    clicks : an ordinary log of the traffic to experiment on, or its click rates by position. A log
        also says how much documents differ, how long lists are, and how often queries repeat
    sessions_per_day : of the traffic that takes part
    width : asked for at every position, relative: 0.2 is about +-10%
    level : of the intervals
    pairs : "pivot" swaps `pivot` with every other position, "adjacent" swaps neighbours
    share : of the sessions that draw a swap
    depth : positions 1..depth; all where not given
    examination : a guess: a PositionBias, a curve such as PowerLaw(1.0), or an array
    within : as in `PivotSwap`: "document" compares the same document of the same query, so queries
        must repeat; "length" compares lists of one length
    assurance : probability that no interval is wider than `width`; the mean width where not given

    >>> plan_swaps([0.3, 0.2, 0.1], sessions_per_day=10_000, width=0.2).swapped_sessions
    1819
    """
    _check(sessions_per_day, width, pairs, share, within)
    check_assurance(assurance)
    traffic = swap_design.traffic_of(clicks, depth)
    if within == "length":
        traffic = traffic.without_documents()
    theta = _examination(examination, traffic)
    design = _design(pairs, pivot, traffic.depth)
    drawn = swap_design.allocation(design, traffic, theta)
    quantile = normal_quantile(level)
    experiment = swap_design.Experiment(design, traffic, theta, drawn, share)
    within_width = partial(experiment.probability_within, width, level=level)
    target = (math.asinh(width / 2) / quantile) ** 2
    n = _sessions(lambda n: bool(experiment.log_variance(n).max() <= target))
    if assurance is not None:
        n = _sessions(lambda n: within_width(n) >= assurance, start=n, precision=1e-3)
    swaps = _swaps(design, traffic, None if examination is None else theta, share * drawn, n)
    lost = sum(swap.clicks_lost for swap in swaps)
    return Plan(
        swaps=swaps,
        sessions=n,
        sessions_per_day=float(sessions_per_day),
        days=n / sessions_per_day,
        clicks_lost=lost,
        lost_share=lost / (n * traffic.clicks_per_session),
        width=width,
        level=level,
        share=share,
        expected_width=handed_over(2 * np.sinh(quantile * np.sqrt(experiment.log_variance(n)))),
        estimator=_estimator(pairs, pivot, within),
        examination=handed_over(theta),
        is_bound=examination is None,
        assurance=assurance,
        probability_within=within_width(n),
        designs=designs(traffic, _curve(clicks, examination, theta), sessions_per_day),
    )


def _curve(
    clicks: swap_design.Clicks, guess: Examination | npt.ArrayLike | None, theta: FloatArray
) -> FloatArray:
    """(K,) that is to be tested: the guess, or harvested from the log, or 1/k."""
    if guess is None and isinstance(clicks, ClickLog):
        log = clicks.without_versions().top(len(theta))
        reach = joined_depth(position_graph(log).clicks.T > 0)
        if reach > 1:
            return AllPairs(depth=reach).fit(log).bias_.examination
    return 1 / np.arange(1.0, len(theta) + 1) if guess is None else theta


def _check(sessions_per_day: float, width: float, pairs: str, share: float, within: str) -> None:
    check_choice("pairs", pairs, PAIRS)
    check_choice("within", within, WITHIN)
    if not (sessions_per_day > 0 and math.isfinite(sessions_per_day)):
        raise OptionError(f"sessions_per_day must be above 0. Got {sessions_per_day} instead.")
    if not (width > 0 and math.isfinite(width)):
        raise OptionError(
            f"width must be above 0: 0.2 asks for intervals of about +-10%. Got {width} instead."
        )
    if not 0 < share < 1:
        raise OptionError(
            f"share must lie between 0 and 1: swapped sessions are compared with others. "
            f"Got {share} instead."
        )


def _design(pairs: str, pivot: int, depth: int) -> swap_design.Design:
    if pairs == "adjacent":
        return swap_design.adjacent_design(depth)
    if not 1 <= pivot <= depth:
        raise OptionError(f"pivot must be one of the positions 1..{depth}. Got {pivot} instead.")
    return swap_design.pivot_design(pivot, depth)


def _examination(
    guess: Examination | npt.ArrayLike | None, traffic: swap_design.Traffic
) -> FloatArray:
    """(K,) relative to position 1; the hardest case is that of equal relevance everywhere."""
    if guess is None:
        return traffic.click_rate / traffic.click_rate[0]
    theta = np.asarray(as_examination(guess).at(np.arange(1, traffic.depth + 1)), dtype=np.float64)
    rate = swap_design.moved_rate(traffic, theta)
    if rate.max() >= 1:
        i, k = np.unravel_index(int(np.argmax(rate)), rate.shape)
        raise OptionError(
            f"this examination contradicts the click rates: what is shown at position {i + 1} and "
            f"gets {traffic.click_rate[i]:.3g} clicks there would get {rate[i, k]:.3g} at position "
            f"{k + 1}. Guess a flatter curve, or none."
        )
    return theta / theta[0]


def _sessions(
    enough: Callable[[float], bool], *, start: float = 2.0, precision: float = 1e-6
) -> int:
    """The smallest number of sessions, from `start` on, that is enough."""
    n = start
    while n < MOST_SESSIONS and not enough(n):
        n *= 2
    if n >= MOST_SESSIONS:
        raise IdentifiabilityError(
            "no number of sessions is enough: queries hardly ever repeat in this log, "
            "so the same document is not shown at two positions. Plan with "
            '⟦within="length"⟧.'
        )
    low, high = (n / 2, n) if n > start else (n, n)
    while high - low > max(0.5, precision * high):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return math.ceil(high)


def _swaps(
    design: swap_design.Design,
    traffic: swap_design.Traffic,
    theta: FloatArray | None,
    probability: FloatArray,
    n: int,
) -> tuple[PlannedSwap, ...]:
    swaps = []
    for (a, b), serves, chance in zip(
        design.pairs, design.serves, probability.tolist(), strict=True
    ):
        sessions = math.ceil(n * chance * traffic.reach[b - 1])
        lost = float(_lost(a, b, traffic, theta))
        swaps.append(PlannedSwap(a, b, serves, chance, sessions, lost, sessions * lost))
    return tuple(swaps)


def _lost(a: int, b: int, traffic: swap_design.Traffic, theta: FloatArray | None) -> float:
    """Clicks that one swapped session loses: expected, or at most."""
    if theta is None:
        return float(most_lost(a, b, traffic.click_rate))
    rate, i, j = swap_design.moved_rate(traffic, theta), a - 1, b - 1
    return float(rate[i, i] + rate[j, j] - rate[i, j] - rate[j, i])


def _estimator(pairs: str, pivot: int, within: str) -> str:
    option = "" if within == "document" else 'within="length"'
    if pairs == "adjacent":
        return f"AdjacentSwap({option})"
    return f"PivotSwap({', '.join(part for part in (f'pivot={pivot}', option) if part)})"
