"""Which estimator for this log? The strongest claim that the log supports, and why.

Randomised lists come first: they assume the least. Then documents that are shown at several
positions anyway. Positions that share no documents can be compared by a model of relevance alone,
and it must be believed; without features there is no such model, and swaps are needed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from untilt import catalog
from untilt._core.arrays import BoolArray
from untilt._core.portable import Portable
from untilt.auditing.checks import sessions_by_ranker
from untilt.bias.em.regression_em import RegressionEM
from untilt.bias.experiments.assignment import swap_of, swapped_lists
from untilt.bias.experiments.shuffled import ShuffledTop
from untilt.bias.experiments.swaps import AdjacentSwap, PivotSwap, SwapEstimator
from untilt.bias.experiments.tests import swap_facts
from untilt.bias.harvesting.harvesting import AllPairs
from untilt.bias.position_graph import PositionGraph, joined_depth
from untilt.data.clicklog import ClickLog
from untilt.errors import UntiltError
from untilt.facts import Command, Fact, joined

Pair = tuple[int, int]
NEGLIGIBLE = 0.01  # share of the clicks at the deepest positions that are not worth a model
LEFT_BELOW = 0.05  # share of the clicks that may lie below the end of an experiment


@dataclass(frozen=True)
class Interventions(Portable):
    """Sessions whose lists an experiment changed, by the log's `ranker`.

    shuffled : sessions of rankers whose name begins with "shuffle"
    shuffled_depth : positions 1..depth take part in the shuffle, and were clicked there; 0 where
        the shuffled sessions cannot be used
    swapped : (upper, lower) -> sessions with these two positions swapped ("swap:2-5")
    shuffle_tests, swap_tests : whether the experiment is what it is called; empty without one
    unusable : why shuffled sessions that pass their tests cannot be used
    """

    shuffled: int
    shuffled_depth: int
    swapped: Mapping[Pair, int]
    shuffle_tests: tuple[Fact, ...] = ()
    swap_tests: tuple[Fact, ...] = ()
    unusable: str = ""

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

    @property
    def failed(self) -> tuple[Fact, ...]:
        """The tests that failed: these sessions are not what they are called."""
        return tuple(f for f in (*self.shuffle_tests, *self.swap_tests) if f.severity == "serious")

    @property
    def swaps_are_right(self) -> bool:
        """Whether no test speaks against the swaps."""
        return not set(self.swap_tests) & set(self.failed)

    def _if_whole(self, positions: Iterable[int]) -> int:
        return self.deepest_swap if 0 < self.deepest_swap <= _reach(positions) else 0


@dataclass(frozen=True)
class Advice:
    """An estimator for a log; `estimator` is "" where the log supports none.

    Parameters
    ----------
    estimator : its name in `untilt`
    why : what in the log speaks for it, a fact of one or more `parts`
    options : of the estimator, where they are not the usual ones
    believes : what must be true and cannot be seen in the log
    instead : a command that helps where no estimator does
    """

    estimator: str
    why: Fact
    options: Mapping[str, Any] = field(default_factory=dict)
    believes: tuple[Fact, ...] = ()
    instead: str = ""
    json_properties: ClassVar[tuple[str, ...]] = ("call", "command")

    def __post_init__(self) -> None:
        object.__setattr__(self, "instead", Command(self.instead))

    @property
    def call(self) -> str:
        """How to call it; "" without an estimator."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"untilt.{self.estimator}({options}).fit(log).bias_" if self.estimator else ""

    @property
    def command(self) -> Command:
        """The same on the command line, LOG standing for the log's path."""
        if not self.estimator:
            return Command(self.instead)
        options = "".join(f" --{name} {value}" for name, value in self.options.items())
        method = catalog.find("bias", self.estimator).name
        return Command(f"untilt bias LOG --method {method}{options}")


def interventions_of(log: ClickLog) -> Interventions:
    """What the names of the rankers say; see `untilt.bias.experiments.assignment`."""
    items = log.without_versions()
    if log.ranker is None:
        return Interventions(0, 0, MappingProxyType({}))
    swapped: Counter[Pair] = Counter()
    for name, sessions in sessions_by_ranker(log).items():
        pair = swap_of(name)
        if isinstance(pair, tuple):
            swapped[min(pair), max(pair)] += sessions
    is_shuffle = np.array([name.startswith("shuffle") for name in log.ranker_names])[log.ranker]
    depth, shuffle_tests, unusable = _shuffle(log, is_shuffle)
    return Interventions(
        shuffled=int(log.sessions[is_shuffle].sum()),
        shuffled_depth=depth,
        swapped=MappingProxyType(dict(sorted(swapped.items()))),
        shuffle_tests=shuffle_tests,
        swap_tests=swap_facts(items, *swapped_lists(items, None)) if swapped else (),
        unusable=unusable,
    )


def _shuffle(log: ClickLog, is_shuffle: BoolArray) -> tuple[int, tuple[Fact, ...], str]:
    """As deep as `ShuffledTop` finds it, what its tests say, and why it cannot be used at all."""
    if not is_shuffle.any():
        return 0, (), ""
    try:
        bias = ShuffledTop(check=False).fit(log).bias_
    except UntiltError as error:
        return 0, (), str(error)
    tests = tuple(each for each in bias.status.parts if each.code.startswith("bias.shuffle-"))
    failed = any(each.severity == "serious" for each in tests)
    return 0 if failed else bias.depth, tests, ""


def comparable_depth(graph: PositionGraph) -> int:
    """Positions 1..depth can all be compared by clicks on documents that they share.

    An estimator sees nothing of the positions below, so what joins them there does not count.
    """
    return joined_depth(graph.clicks.T > 0)


def advise(
    graph: PositionGraph,
    done: Interventions,
    *,
    n_rankers: int,
    usable_features: int,
    clicked: bool,
    drifts: bool = False,
    refused: bool = False,
) -> Advice:
    """The estimator that asks for the least belief and reaches as deep as any other.

    Where the relevance of documents `drifts` with their position, they cannot be compared with
    themselves, and only experiments and models of relevance remain. A log that is `refused` gets
    no estimator.
    """
    why = _hopeless(graph, refused=refused, clicked=clicked)
    if why is not None:
        return Advice("", why)
    reach = comparable_depth(graph)
    enough = _enough(graph, reach)
    for advice, depth in (_shuffled(done), _pivot(done, reach), _adjacent(done, reach)):
        if advice and depth >= max(2, enough):
            return replace(advice, why=joined(advice.why, *_below(graph, depth)))
    if reach >= max(2, _clicked_depth(graph)) and not drifts:
        return _all_pairs(graph, reach, n_rankers)
    if usable_features:
        return _regression(graph, reach, usable_features, drifts=drifts)
    return _all_pairs(graph, reach, n_rankers) if reach > 1 else _swap(graph)


def _hopeless(graph: PositionGraph, *, refused: bool, clicked: bool) -> Fact | None:
    """Why no estimator can help, whatever it believes."""
    if refused:
        return Fact("audit.log-everything")
    if not clicked:
        return Fact("audit.nobody-clicked")
    return Fact("audit.no-bias") if graph.depth < 2 else None


def _enough(graph: PositionGraph, reach: int) -> int:
    """The depth from which an experiment is preferred to positions that are joined anyway.

    It believes less, so it may end a little higher: where 95% of their clicks are above.
    """
    clicks = np.diag(graph.clicks)[:reach]
    above = np.cumsum(clicks) >= (1 - LEFT_BELOW) * clicks.sum()
    return int(np.argmax(above)) + 1 if len(clicks) else 0


def _shuffled(done: Interventions) -> tuple[Advice | None, int]:
    if not done.shuffled_depth:
        return None, 0
    why = Fact("audit.shuffled", sessions=done.shuffled)
    believes = (Fact("audit.random-order"),)
    return Advice(ShuffledTop.__name__, why, believes=believes), done.shuffled_depth


def _pivot(done: Interventions, repeated: int) -> tuple[Advice | None, int]:
    reach = done.pivot_reach if done.swaps_are_right else 0
    if reach < 2 or reach < done.adjacent_reach:
        return None, 0
    sessions = sum(n for pair, n in done.swapped.items() if done.pivot in pair)
    why = Fact("audit.pivot-swaps", sessions=sessions, pivot=done.pivot, depth=reach)
    return _swaps(PivotSwap, why, {"pivot": done.pivot}, reach, repeated), reach


def _adjacent(done: Interventions, repeated: int) -> tuple[Advice | None, int]:
    reach = done.adjacent_reach if done.swaps_are_right else 0
    if reach < 2:
        return None, 0
    sessions = sum(n for (a, b), n in done.swapped.items() if b == a + 1)
    why = Fact("audit.adjacent-swaps", sessions=sessions, depth=reach)
    return _swaps(AdjacentSwap, why, {}, reach, repeated), reach


def _swaps(
    estimator: type[SwapEstimator], why: Fact, options: dict[str, Any], reach: int, repeated: int
) -> Advice:
    """Lists are compared by length where repeated queries join fewer positions than the swaps."""
    if repeated < reach:
        why, options = (
            joined(why, Fact("audit.queries-do-not-repeat")),
            options | {"within": "length"},
        )
    return Advice(estimator.__name__, why, options, (Fact("audit.random-swaps"),))


def _all_pairs(graph: PositionGraph, reach: int, n_rankers: int) -> Advice:
    positions = tuple(range(1, reach + 1))
    why = Fact("audit.repeated-positions", n_rankers=n_rankers, positions=positions)
    options = {} if reach == graph.depth else {"depth": reach}
    why = joined(why, *_below(graph, reach))
    return Advice(AllPairs.__name__, why, options, (Fact("audit.same-relevance"),))


def _regression(graph: PositionGraph, reach: int, usable_features: int, *, drifts: bool) -> Advice:
    why = [Fact("audit.needs-model", groups=_n_groups(graph), features=usable_features)]
    if reach > 1:
        why.append(Fact("audit.check-with", estimator=AllPairs.__name__, depth=reach))
    otherwise = _to_know_more(graph)
    if drifts:
        why, otherwise = [Fact("audit.needs-features")], Fact("audit.run-swaps")
    believes = (Fact("audit.features-explain"), Fact("audit.nothing-hidden"))
    why.append(Fact("audit.otherwise", do=otherwise))
    return Advice(RegressionEM.__name__, joined(*why), believes=believes)


def _swap(graph: PositionGraph) -> Advice:
    why = joined(Fact("audit.any-curve-fits", groups=_n_groups(graph)), _to_know_more(graph))
    return Advice("", why, instead="untilt plan LOG")


def _below(graph: PositionGraph, reach: int) -> list[Fact]:
    """What is to be said of positions that an estimator does not reach."""
    return [] if reach >= graph.depth else [Fact("audit.below", depth=reach), _to_know_more(graph)]


def _to_know_more(graph: PositionGraph) -> Fact:
    """The cheapest swaps that join the positions, or more sessions."""
    pairs = tuple((swap.upper, swap.lower) for swap in graph.swaps)
    # A plan compares click rates, so it needs clicks at two positions at least.
    planned = _reach(1 + np.flatnonzero(np.diag(graph.clicks) > 0)) >= 2
    if not pairs:
        return Fact("audit.collect-sessions")
    return Fact("audit.swap-positions", pairs=pairs, **({} if planned else {"planned": False}))


def _clicked_depth(graph: PositionGraph) -> int:
    """The lowest position that counts: those below hold under 1% of the clicks together."""
    clicks = np.diag(graph.clicks)
    below = clicks[::-1].cumsum()[::-1] - clicks
    return int(np.argmax(below <= NEGLIGIBLE * clicks.sum())) + 1


def _n_groups(graph: PositionGraph) -> int:
    several = len(graph.components) > 1
    return len(graph.components if several else graph.clicked_components)


def _reach(positions: Iterable[int]) -> int:
    """The largest n with 1..n all among the positions."""
    among = set(positions)
    n = 0
    while n + 1 in among:
        n += 1
    return n


def _most_common(pairs: Iterable[Pair]) -> int:
    times = Counter(k for pair in pairs for k in pair)
    return min(times, key=lambda k: (-times[k], k), default=0)
