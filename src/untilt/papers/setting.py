"""One setting: the lists, clicks and curves that all methods of a comparison share."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from untilt._core import ragged
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, did_you_mean
from untilt.papers.schema import ExperimentSize, Panel, Value
from untilt.simulation.production import ProductionRanker, production_ranker
from untilt.simulation.protocols import Harvest, Protocol, Shuffle, Swap, as_protocol
from untilt.simulation.simulate import Simulation, simulate

INTERVENTION_SEED = 1_000_003  # the experiment's sessions are other sessions than the log's
T = TypeVar("T")
REPEAT_SEED = 2_000_003
SWAP_SESSIONS = 100
MOST_DRAWN = 512  # sessions drawn for each that is wanted with a click


class CellSetting:
    """Everything that is fixed before a method is chosen; the clicks are drawn when asked for.

    Parameters
    ----------
    train, test : judged lists
    panel, size : with the value of the x axis already put in
    seed : draws clicks, splits and trees
    n_threads : of rankers
    """

    def __init__(
        self,
        train: JudgedLists,
        test: JudgedLists,
        panel: Panel,
        size: ExperimentSize,
        *,
        seed: int,
        n_threads: int = 1,
    ) -> None:
        self.panel, self.size, self.seed, self.n_threads = panel, size, seed, n_threads
        # Of both parts: a small part may lack the highest grade.
        self.max_label = float(max(train.labels.max(initial=0), test.labels.max(initial=0)))
        self.train = train if size.share >= 1 else train.split(size.share, seed=seed)[0]
        self.all_test = test
        self.trained: dict[str, str] = {}  # how the last ranker was trained
        self._kept: dict[str, Any] = {}

    def once(self, key: str, make: Callable[[], T]) -> T:
        """What several methods use, such as a curve or a ranker: made the first time."""
        if key not in self._kept:
            self._kept[key] = make()
        kept: T = self._kept[key]
        return kept

    @property
    def test(self) -> JudgedLists:
        """The lists that rankers are judged on, binary where the panel says so."""
        return self.binary(self.all_test) if self.panel.binary else self.all_test

    def binary(self, judged: JudgedLists) -> JudgedLists:
        """Labels as `prs` clicks have them: the two highest grades are relevant."""
        relevant = judged.labels >= max(1.0, self.max_label - 1)
        return replace(judged, labels=relevant.astype(np.float64))

    @cached_property
    def protocol(self) -> Protocol:
        """How people click here."""
        return as_protocol(self.panel.protocol, self.panel.parameters)

    @cached_property
    def sim(self) -> Simulation:
        """The log to learn from and its truth."""
        return self._simulate(self.protocol, self.seed)

    @property
    def log(self) -> ClickLog:
        """The clicks to learn from."""
        return self.sim.log

    @cached_property
    def shuffled(self) -> Simulation:
        """As many sessions of the same users, with the whole list in random order."""
        return self._simulate(Shuffle(clicks=self.protocol), self.seed + INTERVENTION_SEED)

    @cached_property
    def swapped(self) -> Simulation:
        """Sessions in which the top document was swapped with one of 1..21 (002 section 3).

        An experiment of its own, with `swap_sessions`, or else with at least SWAP_SESSIONS per
        query: each pair of positions gets one of 21.
        """
        swap = Swap(share=20 / 21, reach=21, clicks=self.protocol)
        seed = self.seed + INTERVENTION_SEED
        if self.size.swap_sessions is not None:
            return self._simulate(swap, seed, n_sessions=self.size.swap_sessions)
        per_query = max(self.size.sessions_per_query or 0, SWAP_SESSIONS)
        return self._simulate(swap, seed, sessions_per_query=per_query)

    @cached_property
    def harvested(self) -> Simulation:
        """As many sessions of the same users, whose lists are from three rankers by turns."""
        return simulate(
            self.train,
            Harvest(clicks=self.protocol),
            **self._amount,
            seed=self.seed + INTERVENTION_SEED,
            max_label=self.max_label,
            n_threads=self.n_threads,
        )

    @cached_property
    def repeats(self) -> list[Simulation]:
        """Several logs that differ only in what people looked at and clicked."""
        return [
            self._simulate(self.protocol, self.seed + REPEAT_SEED * (1 + number))
            for number in range(self.size.repeats)
        ]

    @cached_property
    def split(self) -> tuple[ClickLog, ClickLog, ClickLog]:
        """60% of the queries to learn from, 10% for validation, 30% for the test."""
        first, test = self.log.split(0.7, by="query", seed=self.seed)
        train, valid = first.split(6 / 7, by="query", seed=self.seed)
        return train, valid, test

    @cached_property
    def production(self) -> Any:
        """The ranker that made the lists."""
        return self.sim.truth.rankers[0]

    @property
    def _own_production(self) -> ProductionRanker | None:
        """A ranker trained on another number of queries than that of `simulate`, if asked."""
        if self.size.production_queries is None:
            return None
        share = min(1.0, self.size.production_queries / self.train.n_queries)
        return production_ranker(self.train, share=share, seed=self.seed)

    def labels(self) -> JudgedLists:
        """The labels of all documents of the training queries: the skyline learns from them."""
        return self.binary(self.train) if self.panel.binary else self.train

    def irrelevant_only(self) -> ClickLog:
        """The log without relevant documents that nobody clicked: only the truth can tell them."""
        log = self.log
        keep = (log.label > 0) | (self.sim.truth.relevance[log.document] < 0.5)
        rows = log._rows(np.flatnonzero(keep))
        return log._with(indptr=ragged.keep_rows(log.indptr, keep), **rows)

    @property
    def _amount(self) -> dict[str, Any]:
        """How many clicks or sessions the log has: the first that the size gives."""
        size = self.size
        if size.clicks is not None:
            return {"n_clicks": size.clicks}
        if size.clicks_per_query is not None:
            return {"n_clicks": max(1, round(size.clicks_per_query * self.train.n_queries))}
        return {"sessions_per_query": size.sessions_per_query}

    def _simulate(self, protocol: Protocol, seed: int, **other: Any) -> Simulation:
        """Of as many sessions as the log, or of another amount."""
        ranker = self._own_production if seed == self.seed else self.production

        def draw(**amount: Any) -> Simulation:
            return simulate(
                self.train, protocol, **amount, ranker=ranker, seed=seed, max_label=self.max_label,
                n_threads=self.n_threads,
            )  # fmt: skip

        if self.size.clicked and not other:
            return _with_clicks(partial(draw, collapse=False), self.size.sessions_per_query or 1)
        return draw(**(other or self._amount))


def _with_clicks(draw: Callable[..., Simulation], wanted: int) -> Simulation:
    """The first `wanted` sessions with a click of every query.

    All sessions of one seed are drawn in a fixed order, so a longer log begins with the shorter.
    """
    drawn = 4 * wanted
    while True:
        made = draw(sessions_per_query=drawn)
        log = made.log
        clicked = np.flatnonzero(ragged.sums_by_list(log.indptr, log.label) > 0)
        order = clicked[np.argsort(log.query[clicked], kind="stable")]
        n_clicked = np.bincount(log.query[order], minlength=log.n_queries)
        few = n_clicked[np.unique(log.query)] < wanted
        if not few.any() or drawn >= MOST_DRAWN * wanted:
            break
        drawn *= 4
    place = np.arange(len(order)) - np.repeat(np.cumsum(n_clicked) - n_clicked, n_clicked)
    kept = np.sort(order[place < wanted])
    return replace(made, log=log.take(kept).collapse())


def at_value(panel: Panel, size: ExperimentSize, x: Value | None) -> tuple[Panel, ExperimentSize]:
    """Panel and size with this value of the x axis put in, where it changes the log.

    A value of the x axis takes the place of the panel's own amount of clicks.
    """
    sweep, size = panel.sweep, size.times(panel.times)
    if panel.clicks_per_query is not None:
        size = replace(size, clicks=None, clicks_per_query=panel.clicks_per_query)
    if sweep is None or x is None or not sweep.changes_the_log:
        return panel, size
    if sweep.part == "protocol":
        return replace(panel, parameters={**panel.parameters, sweep.key: x}), size
    if sweep.key not in ExperimentSize.__dataclass_fields__:
        hint = did_you_mean(sweep.key, ExperimentSize.__dataclass_fields__)
        raise OptionError(f"a sweep cannot change size.{sweep.key}, which does not exist.{hint}")
    whole = sweep.key in ("clicks", "sessions_per_query", "queries", "production_queries")
    changed: dict[str, Any] = {sweep.key: int(x) if whole else x}
    if sweep.key == "clicks_per_query":
        changed["clicks"] = None  # which would count before it
    return panel, replace(size, **changed)
