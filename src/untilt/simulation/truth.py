"""What a simulated log was made from."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray
from untilt.bias.position_bias import PositionBias
from untilt.errors import DepthError, ShapeError
from untilt.logs.clicklog import ClickLog
from untilt.logs.judged import JudgedLists
from untilt.simulation.behaviour import Behaviour, DwellTimes
from untilt.simulation.protocols import Protocol


@dataclass(frozen=True, eq=False, repr=False)
class Truth:
    """What a simulated log was made from. Documents are those of `Simulation.log`, in its order.

    Parameters
    ----------
    protocol : how clicks were made
    examination : (K,) theta. In a cascade a reader's way depends on the documents: there it is the
        mean probability, over the log's sessions, that the reader gets to position k
    relevance : (documents,) gamma
    eps_plus, eps_minus : (K,) click noise, or None where there is none
    dwell : the factors of the dwell time, or None
    judged : the log's documents with their labels; the skyline trains on it
    query_probability : (queries,) how often each query was to be drawn
    rankers, ranker_names : who made the lists
    training_queries : ids of the queries whose labels they had seen; those gave no sessions
    behaviour : all tables of the protocol
    """

    protocol: Protocol
    examination: FloatArray
    relevance: FloatArray
    eps_plus: FloatArray | None
    eps_minus: FloatArray | None
    dwell: DwellTimes | None
    judged: JudgedLists
    query_probability: FloatArray
    rankers: tuple[Any, ...]
    ranker_names: tuple[str, ...]
    training_queries: AnyArray
    behaviour: Behaviour

    @property
    def depth(self) -> int:
        """Places of the longest list, K."""
        return len(self.examination)

    @property
    def bias(self) -> PositionBias:
        """The true curve and its click noise, for rankers and estimates that need a bias."""
        return PositionBias(
            self.examination,
            eps_plus=self.eps_plus,
            eps_minus=self.eps_minus,
            method=f"protocol {self.protocol.name!r}",
            status="the truth of a simulation",
            relative=False,
        )

    def click_probability(self, document: IntArray | int, position: IntArray | int) -> FloatArray:
        """P(click) of documents (indices of the log) at 1-based positions; not for a cascade."""
        places = np.asarray(position)
        if places.size and not (places.min() >= 1 and places.max() <= self.depth):
            raise DepthError(
                f"position must lie in 1..{self.depth}, the places of this simulation. "
                f"Got {places.min()} to {places.max()} instead."
            )
        return self.behaviour.click_probability(np.asarray(document), places)

    def click_probabilities(self, log: ClickLog) -> FloatArray:
        """(rows,) P(click) of every row of the log, given what its list showed."""
        self._check(log)
        return self.behaviour.click_probabilities(log.indptr, log.document, log.position)

    def expected_label(self, log: ClickLog) -> FloatArray:
        """(rows,) the label's expectation: P(click), or P(click) E[delta_k] E[omega] for dwell."""
        clicks = self.click_probabilities(log)
        if self.dwell is None or log.label_name == "click":
            return clicks
        return clicks * self.dwell.delta[log.position - 1] * self.dwell.omega[log.document]

    def _check(self, log: ClickLog) -> None:
        if log.n_documents != len(self.relevance):
            raise ShapeError(
                f"this truth is about {len(self.relevance):,} documents, and the log has "
                f"{log.n_documents:,}. Ask before splitting a log by query."
            )

    def __repr__(self) -> str:
        curve = ", ".join(f"{theta:.3g}" for theta in self.examination[:10])
        more = ", ..." if self.depth > 10 else ""
        trust = "" if self.eps_plus is None else ", click noise eps+ and eps-"
        return (
            f"Truth({self.protocol!r}, examination ({curve}{more}), "
            f"mean relevance {self.relevance.mean():.3f}{trust}, "
            f"{len(self.training_queries)} queries trained the production ranker)"
        )


class MeanExamination:
    """Sums over sessions from which the mean examination of a cascade is had, part by part."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.shown = np.zeros(len(behaviour.examination))
        self.reached = np.zeros(len(behaviour.examination))

    def add(self, indptr: IntArray, document: IntArray, count: IntArray | None = None) -> None:
        """Take in lists that each stand for `count` sessions (one where not given)."""
        if self.behaviour.stopping is None:
            return
        place, depth = ragged.place_in_list(indptr), len(self.shown)
        lengths = ragged.lengths(indptr)
        weight = np.repeat(np.ones(len(lengths)) if count is None else count, lengths)
        reached = self.behaviour.reached(indptr, document)
        self.shown += np.bincount(place, weight, depth)
        self.reached += np.bincount(place, weight * reached, depth)

    @property
    def curve(self) -> FloatArray:
        """(K,) theta: the protocol's own, or the mean where readers stop (NaN if never shown)."""
        if self.behaviour.stopping is None:
            return self.behaviour.examination
        with np.errstate(invalid="ignore"):
            return self.reached / self.shown
