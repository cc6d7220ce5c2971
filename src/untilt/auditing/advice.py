"""Which estimator for this log? The strongest claim that the log supports, and why.

Randomised lists come first: they need no luck. Then documents that stand at several positions
anyway. Where positions stay apart, only a model of relevance can bridge them, and it must be
believed; without features there is nothing to believe in, and a swap is the way.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from untilt import catalog
from untilt.auditing.checks import sessions_by_ranker
from untilt.bias.experiments.assignment import swap_of
from untilt.bias.experiments.shuffled import ShuffledTop
from untilt.bias.position_graph import PositionGraph, positions_text
from untilt.data.clicklog import ClickLog
from untilt.errors import UntiltError

Pair = tuple[int, int]


@dataclass(frozen=True)
class Interventions:
    """Sessions whose lists were changed on purpose, as the log's `ranker` tells.

    shuffled : sessions of rankers whose name begins with "shuffle"
    shuffled_depth : positions 1..depth take part in the shuffle, and were clicked there
    swapped : (upper, lower) -> sessions with these two positions swapped ("swap:2-5")
    """

    shuffled: int
    shuffled_depth: int
    swapped: Mapping[Pair, int]

    @property
    def pivot(self) -> int:
        """The position that most swaps have in common, the upper one of several; 0 without any."""
        return _most_common(self.swapped)

    @property
    def deepest_swap(self) -> int:
        """The lowest position that took part in a swap; 0 without any."""
        return max((lower for _, lower in self.swapped), default=0)

    @property
    def pivot_reach(self) -> int:
        """The lowest swapped position, if all above it were swapped with the pivot; else 0."""
        partners = {k for pair in self.swapped if self.pivot in pair for k in pair}
        return self._if_whole(partners)

    @property
    def adjacent_reach(self) -> int:
        """The lowest swapped position, if all neighbours above it were swapped; else 0."""
        return self._if_whole({1, *(b for a, b in self.swapped if b == a + 1)})

    def _if_whole(self, positions: Iterable[int]) -> int:
        return self.deepest_swap if 0 < self.deepest_swap <= _reach(positions) else 0


@dataclass(frozen=True)
class Advice:
    """An estimator for a log; `estimator` is "" where the log supports none.

    Parameters
    ----------
    estimator : its name in `untilt`
    why : what in the log speaks for it
    options : of the estimator, where they are not the usual ones
    believes : what must be true and cannot be seen in the log
    instead : a command that helps where no estimator does
    """

    estimator: str
    why: str
    options: Mapping[str, Any] = field(default_factory=dict)
    believes: tuple[str, ...] = ()
    instead: str = ""

    @property
    def call(self) -> str:
        """How to call it; "" without an estimator."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"untilt.{self.estimator}({options}).fit(log).bias_" if self.estimator else ""

    @property
    def command(self) -> str:
        """The same on the command line, LOG standing for the log's path."""
        if not self.estimator:
            return self.instead
        options = "".join(f" --{name} {value}" for name, value in self.options.items())
        return f"untilt bias LOG --method {catalog.find('bias', self.estimator).name}{options}"


def interventions_of(log: ClickLog) -> Interventions:
    """What the names of the rankers tell; see `untilt.bias.experiments.recognise`."""
    if log.ranker is None:
        return Interventions(0, 0, MappingProxyType({}))
    swapped: Counter[Pair] = Counter()
    for name, sessions in sessions_by_ranker(log).items():
        pair = swap_of(name)
        if isinstance(pair, tuple):
            swapped[min(pair), max(pair)] += sessions
    is_shuffle = np.array([name.startswith("shuffle") for name in log.ranker_names])
    shuffled = log.take(is_shuffle[log.ranker])
    return Interventions(
        shuffled.n_sessions,
        _shuffled_depth(shuffled),
        MappingProxyType(dict(sorted(swapped.items()))),
    )


def _shuffled_depth(shuffled: ClickLog) -> int:
    """As deep as `ShuffledTop` finds it; 0 where it cannot use these lists."""
    try:
        return ShuffledTop().fit(shuffled).bias_.depth
    except UntiltError:
        return 0


def comparable_depth(graph: PositionGraph) -> int:
    """Positions 1..depth can all be compared by clicks on documents that they share."""
    first = next((found for found in graph.clicked_components if 1 in found), ())
    return _reach(first)


def advise(
    graph: PositionGraph,
    done: Interventions,
    *,
    n_rankers: int,
    usable_features: int,
    clicked: bool,
) -> Advice:
    """The estimator that asks for the least belief and reaches as deep as any other."""
    if not clicked:
        return _nothing("nobody clicked in this log, so there is nothing to learn from")
    if graph.depth < 2:
        return _nothing("lists have a single position, so there is no bias to estimate")
    reach = comparable_depth(graph)
    for found, depth in (_shuffled(done), _pivot(done, reach), _adjacent(done, reach)):
        if found and depth >= max(2, reach):
            return replace(found, why=found.why + _below(graph, depth))
    if reach == graph.depth:
        return _all_pairs(graph, reach, n_rankers)
    if usable_features:
        return _regression(graph, reach, usable_features)
    return _all_pairs(graph, reach, n_rankers) if reach > 1 else _swap(graph)


def _shuffled(done: Interventions) -> tuple[Advice | None, int]:
    if not done.shuffled:
        return None, 0
    why = (
        f"{done.shuffled:,} sessions were shown in random order: there the click rate by position "
        "falls by examination alone"
    )
    advice = Advice(
        "ShuffledTop",
        why,
        believes=("every order of the shuffled documents was equally likely",),
    )
    return advice, done.shuffled_depth


def _pivot(done: Interventions, repeated: int) -> tuple[Advice | None, int]:
    reach = done.pivot_reach
    if reach < 2 or reach < done.adjacent_reach:
        return None, 0
    sessions = sum(n for pair, n in done.swapped.items() if done.pivot in pair)
    why = (
        f"{sessions:,} sessions swapped position {done.pivot} with another, down to position "
        f"{reach}: the two documents change places and nothing else does"
    )
    within, because = _within(reach, repeated)
    advice = Advice(
        "PivotSwap",
        f"{why}{because}",
        {"pivot": done.pivot} | within,
        ("which sessions were swapped was left to chance",),
    )
    return advice, reach


def _adjacent(done: Interventions, repeated: int) -> tuple[Advice | None, int]:
    reach = done.adjacent_reach
    if reach < 2:
        return None, 0
    sessions = sum(n for (a, b), n in done.swapped.items() if b == a + 1)
    why = (
        f"{sessions:,} sessions swapped neighbours, down to position {reach}: the two documents "
        "change places and nothing else does"
    )
    within, because = _within(reach, repeated)
    advice = Advice(
        "AdjacentSwap",
        f"{why}{because}",
        within,
        ("which sessions were swapped was left to chance",),
    )
    return advice, reach


def _within(reach: int, repeated: int) -> tuple[dict[str, Any], str]:
    """How swapped lists are compared, and why where it is not the usual way."""
    if repeated >= reach:
        return {}, ""
    because = (
        "; queries hardly come back, so that swapped lists are compared with others of their "
        "length instead of with the same documents"
    )
    return {"within": "length"}, because


def _all_pairs(graph: PositionGraph, reach: int, n_rankers: int) -> Advice:
    whole = reach == graph.depth
    where = "all positions" if whole else positions_text(range(1, reach + 1))
    source = f"{n_rankers} rankers disagree" if n_rankers > 1 else "ranks vary by themselves"
    why = (
        f"{source}, so that documents stand at several positions: their clicks there differ by "
        f"examination alone, and {where} are joined by such documents{_below(graph, reach)}"
    )
    return Advice(
        "AllPairs",
        why,
        {} if whole else {"depth": reach},
        ("a document is as relevant on the days and to the people that saw it higher",),
    )


def _regression(graph: PositionGraph, reach: int, usable_features: int) -> Advice:
    checked = (
        f" Check it with AllPairs on positions 1..{reach}, which are joined." if reach > 1 else ""
    )
    why = (
        f"the positions fall apart into {len(_parts(graph))} groups that share too few documents, "
        f"so only a model of relevance can compare them, and there are {usable_features} features "
        f"to build one on.{checked} Without that belief: {_swaps_text(graph)}"
    )
    return Advice(
        "RegressionEM",
        why,
        believes=(
            "the features explain relevance, the same way at every position",
            "what the production ranker knew and the features do not is not there: it would count "
            "as position bias",
        ),
    )


def _swap(graph: PositionGraph) -> Advice:
    why = (
        f"each position shows documents of its own (the positions fall apart into "
        f"{len(_parts(graph))} groups) and there are no features to model relevance with: any "
        f"curve fits this log. {_swaps_text(graph).capitalize()}"
    )
    return Advice("", why, instead="untilt plan LOG --sessions-per-day N")


def _below(graph: PositionGraph, reach: int) -> str:
    """What is to be said of positions that an estimator does not reach."""
    if reach >= graph.depth:
        return ""
    return f". Below position {reach} the log says nothing without a model; {_swaps_text(graph)}"


def _nothing(why: str) -> Advice:
    return Advice("", why)


def _swaps_text(graph: PositionGraph) -> str:
    """What to do in order to know more; the cheapest swaps, or more sessions."""
    if not graph.swaps:
        return "collect more sessions: positions share documents, but too few clicks on them"
    pairs = [f"{swap.upper} and {swap.lower}" for swap in graph.swaps[:3]]
    more = f" and {len(graph.swaps) - 3} pairs more" if len(graph.swaps) > 3 else ""
    return (
        f"swap positions {', '.join(pairs)}{more} in a share of the sessions; "
        "`untilt plan` says how many it takes"
    )


def _parts(graph: PositionGraph) -> tuple[tuple[int, ...], ...]:
    return graph.components if len(graph.components) > 1 else graph.clicked_components


def _reach(positions: Iterable[int]) -> int:
    """The largest n with 1..n all among the positions."""
    found = set(positions)
    n = 0
    while n + 1 in found:
        n += 1
    return n


def _most_common(pairs: Iterable[Pair]) -> int:
    found = Counter(k for pair in pairs for k in pair)
    return min(found, key=lambda k: (-found[k], k), default=0)
