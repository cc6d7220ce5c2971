"""Interventions: the same users, but lists are sometimes shown in another order on purpose."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.harvesting.harvesting import pivot_edges
from untilt.catalog import method
from untilt.errors import OptionError
from untilt.simulation.behaviour import Behaviour, Display, Page
from untilt.simulation.protocols.clicks import DLA, Protocol, check_share


class Intervention(Protocol):
    """Users behave as in `clicks`; subclasses say what is shown."""

    intervenes: ClassVar[bool] = True
    clicks: Protocol
    depth: int | None

    def behaviour(self, labels: FloatArray, *, depth: int, max_label: float) -> Behaviour:
        """That of the click model."""
        if not isinstance(self.clicks, Protocol) or self.clicks.intervenes:
            raise OptionError(
                "clicks must be a protocol that has no intervention, such as DLA() or "
                f"Dwell(). Got {self.clicks!r} instead."
            )
        return self.clicks.behaviour(labels, depth=depth, max_label=max_label)

    @abstractmethod
    def display(self, page: Page) -> Display:
        """What sessions show."""

    @property
    def list_depth(self) -> int | None:
        """Positions of a list: its own, else those of the click model."""
        return self.depth or self.clicks.list_depth

    @property
    def feedback(self) -> str:
        """The label of the click model."""
        return self.clicks.feedback


@method(
    "protocol", "swap", title="Swaps", order=15, public=False,
    note="two documents are swapped in a share of the sessions",
)  # fmt: skip
@dataclass(frozen=True)
class Swap(Intervention):
    """Two documents are swapped in a share of the sessions.

    A pivot swap exchanges the document at `pivot` with one at another position j, all j alike
    ([mao_arxivlogs]_ section 3; RandPair of [joachims2017unbiased]_). An adjacent swap exchanges
    k and k + 1, all k alike ([wang2020prs]_ section 4.4). The log's `ranker` says what happened:
    "base", or "swap:1-5" with the two positions, the upper one first.

    A session whose list does not reach the lower position is shown in base order. So each swap has
    the same probability in all lists that are long enough, but "base" holds more of the short
    lists: compare within a query, or within lists of full length.

    Parameters
    ----------
    share : of the sessions that are swapped. The arXiv study drew j from 1..21 with j = pivot
        meaning no swap: Swap(share=20 / 21, depth=21)
    pivot : the position that takes part in every swap
    adjacent : swap neighbours instead; `pivot` is then not used
    reach : lowest position that takes part; all positions of the list where not given
    clicks : how users behave
    depth : positions of a list; as the click model has it where not given
    """

    share: float = 0.5
    pivot: int = 1
    adjacent: bool = False
    reach: int | None = None
    clicks: Protocol = field(default_factory=DLA)
    depth: int | None = None

    def display(self, page: Page) -> Display:
        """The base order and one variant per pair of positions."""
        check_share("share", self.share)
        reach = page.depth if self.reach is None else min(self.reach, page.depth)
        if reach < 2:
            raise OptionError(
                f"there is nothing to swap: lists have {page.depth} positions and reach is "
                f"{self.reach}. At least two positions must take part."
            )
        neighbours = [(k, k + 1) for k in range(1, reach)]
        pairs = neighbours if self.adjacent else pivot_edges(self.pivot, reach)
        return Display.of_swaps(pairs, self.share)


@method(
    "protocol", "shuffle", title="Shuffled lists", order=16, public=False,
    note="the first positions are shuffled in a share of the sessions",
)  # fmt: skip
@dataclass(frozen=True)
class Shuffle(Intervention):
    """The top n documents in random order, all orders alike (RandTop-n, [oosterhuis2020tutorial]_).

    The log's `ranker` is "shuffle" or "base".

    Parameters
    ----------
    top : n; all positions of the list where not given
    share : of the sessions that are shuffled
    clicks, depth : as in `Swap`
    """

    top: int | None = None
    share: float = 1.0
    clicks: Protocol = field(default_factory=DLA)
    depth: int | None = None

    def display(self, page: Page) -> Display:
        """The base order and the shuffled one."""
        check_share("share", self.share)
        top = page.depth if self.top is None else min(self.top, page.depth)
        if top < 2:
            raise OptionError(f"top must be at least 2, else nothing is shuffled. Got {top}.")
        return Display.of_shuffle(top, self.share)


@method(
    "protocol", "harvest", title="Several rankers", order=17, public=False,
    note="several production rankers share the traffic",
)  # fmt: skip
@dataclass(frozen=True)
class Harvest(Intervention):
    """Several production rankers share the traffic ([agarwal2019estimating]_).

    The rankers disagree, so the same document is shown at several positions, and the bias can be
    estimated from an ordinary log. The log's `ranker` names who made the list.

    Parameters
    ----------
    rankers : how many production rankers to train, where `simulate` is given none
    traffic : share of the sessions of each ranker; equal where not given
    feature_share : share of the features that each of them may use; below 1 they disagree more
    clicks, depth : as in `Swap`
    """

    rankers: int = 3
    traffic: Sequence[float] | None = None
    feature_share: float = 0.5
    clicks: Protocol = field(default_factory=DLA)
    depth: int | None = None

    def display(self, page: Page) -> Display:
        """One variant per ranker."""
        n = len(page.rankers)
        traffic = np.ones(n) if self.traffic is None else np.asarray(self.traffic, dtype=float)
        if traffic.shape != (n,) or not np.all(traffic >= 0) or not traffic.sum() > 0:
            raise OptionError(
                f"traffic must be one number >= 0, not all 0, for each of the {n} rankers "
                f"({', '.join(page.rankers)}). Got {self.traffic!r} instead."
            )
        return Display.of_orders(page.rankers, traffic / traffic.sum())
