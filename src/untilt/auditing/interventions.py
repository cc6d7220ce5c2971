"""What experiments changed in a log, by the names of its rankers, and whether they can be used."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from untilt._core.arrays import BoolArray
from untilt._core.portable import Portable
from untilt.auditing.checks import sessions_by_ranker
from untilt.auditing.reading import ReadingTest, relevance_test
from untilt.bias.experiments.assignment import swap_of, swapped_lists
from untilt.bias.experiments.shuffled import ShuffledTop
from untilt.bias.experiments.tests import swap_facts
from untilt.data.clicklog import ClickLog
from untilt.errors import UntiltError
from untilt.facts import Fact

Pair = tuple[int, int]


@dataclass(frozen=True)
class Interventions(Portable):
    """Sessions whose lists an experiment changed, by the log's `ranker`.

    shuffled : sessions of rankers whose name begins with "shuffle"
    shuffled_depth : positions 1..depth take part in the shuffle, and were clicked there; 0 where
        the shuffled sessions cannot be used
    swapped : (upper, lower) -> sessions with these two positions swapped ("swap:2-5")
    shuffle_tests, swap_tests : whether the experiment is what it is called; empty without one
    unusable : why shuffled sessions that pass their tests cannot be used
    shuffled_relevance : whether clicks of better and of weaker documents fall alike within the
        shuffled sessions, where nothing but chance decided who stood on top
    """

    shuffled: int
    shuffled_depth: int
    swapped: Mapping[Pair, int]
    shuffle_tests: tuple[Fact, ...] = ()
    swap_tests: tuple[Fact, ...] = ()
    unusable: str = ""
    shuffled_relevance: ReadingTest | None = None

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
    def is_used(self) -> bool:
        """Whether an experiment can tell positions apart."""
        return self.shuffled_depth > 1 or (self.deepest_swap > 1 and self.swaps_are_right)

    @property
    def swaps_are_right(self) -> bool:
        """Whether no test speaks against the swaps."""
        return not set(self.swap_tests) & set(self.failed)

    def _if_whole(self, positions: Iterable[int]) -> int:
        return self.deepest_swap if 0 < self.deepest_swap <= reach_of_positions(positions) else 0


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
    shuffled = items.take(np.flatnonzero(is_shuffle)).top(depth) if depth else None
    return Interventions(
        shuffled=int(log.sessions[is_shuffle].sum()),
        shuffled_depth=depth,
        swapped=MappingProxyType(dict(sorted(swapped.items()))),
        shuffle_tests=shuffle_tests,
        swap_tests=swap_facts(items, *swapped_lists(items, None)) if swapped else (),
        unusable=unusable,
        shuffled_relevance=None if shuffled is None else relevance_test(shuffled),
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


def reach_of_positions(positions: Iterable[int]) -> int:
    """The largest n with 1..n all among the positions."""
    among = set(positions)
    n = 0
    while n + 1 in among:
        n += 1
    return n


def _most_common(pairs: Iterable[Pair]) -> int:
    times = Counter(k for pair in pairs for k in pair)
    return min(times, key=lambda k: (-times[k], k), default=0)
