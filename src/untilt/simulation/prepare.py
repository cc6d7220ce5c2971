"""Everything that is fixed before the first session is drawn."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray, sum_by
from untilt._core.portable import Portable
from untilt._core.random import Seed, child_generator
from untilt.bias.curve import PositionBias
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.data.limits import DEEPEST
from untilt.errors import DepthError, OptionError, ShapeError
from untilt.facts import note
from untilt.simulation.behaviour import Behaviour, Display, DwellTimes, Page
from untilt.simulation.production import Rankings, rankings_for, shown_order
from untilt.simulation.protocols import Protocol, as_protocol
from untilt.simulation.sampler import SamplingPlan


@dataclass(frozen=True, eq=False, repr=False)
class Truth(Portable):
    """What a simulated log was made from. Documents are those of `Simulation.log`, in its order.

    Parameters
    ----------
    protocol : how clicks were made
    behaviour : all tables of the protocol: relevance (documents,), click noise by position, dwell
    examination : (K,) theta. In a cascade how far a reader gets depends on the documents: it is the
        mean probability, over the log's sessions, that the reader gets to position k
    judged : the log's documents with their labels; the skyline trains on it
    query_probability : (queries,) how often each query was to be drawn
    rankers, ranker_names : who made the lists
    training_queries : ids of the queries whose labels they had seen; those gave no sessions
    """

    protocol: Protocol
    behaviour: Behaviour
    examination: FloatArray
    judged: JudgedLists
    query_probability: FloatArray
    rankers: tuple[Any, ...]
    ranker_names: tuple[str, ...]
    training_queries: AnyArray

    @property
    def relevance(self) -> FloatArray:
        """(documents,) gamma."""
        return self.behaviour.relevance

    @property
    def eps_plus(self) -> FloatArray | None:
        """(K,) P(click | examined, relevant), or None where it is 1."""
        return self.behaviour.eps_plus

    @property
    def eps_minus(self) -> FloatArray | None:
        """(K,) P(click | examined, irrelevant), or None where it is 0."""
        return self.behaviour.eps_minus

    @property
    def dwell(self) -> DwellTimes | None:
        """The factors of the dwell time, or None."""
        return self.behaviour.dwell

    @property
    def depth(self) -> int:
        """Positions of the longest list, K."""
        return len(self.examination)

    @property
    def bias(self) -> PositionBias:
        """The true curve and its click noise, for rankers and estimates that need a bias."""
        return PositionBias(
            self.examination,
            eps_plus=self.eps_plus,
            eps_minus=self.eps_minus,
            method=f"protocol {self.protocol.name!r}",
            status=note("bias.truth", "the truth of a simulation")(),
            relative=False,
        )

    def click_probability(self, document: IntArray | int, position: IntArray | int) -> FloatArray:
        """P(click) of documents (indices of the log) at 1-based positions; not for a cascade."""
        k = np.asarray(position)
        if k.size and not (k.min() >= 1 and k.max() <= self.depth):
            raise DepthError(
                f"position must lie in 1..{self.depth}, the positions of this simulation. "
                f"Got {k.min()} to {k.max()} instead."
            )
        return self.behaviour.click_probability(np.asarray(document), k)

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
    """Sums over sessions for the mean examination of a cascade, taken in part by part."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.shown = np.zeros(len(behaviour.examination))
        self.reached = np.zeros(len(behaviour.examination))

    def add(self, indptr: IntArray, document: IntArray, count: IntArray | None = None) -> None:
        """Take in lists that each stand for `count` sessions (one where not given)."""
        if self.behaviour.stopping is None:
            return
        row_in_list, depth = ragged.index_in_list(indptr), len(self.shown)
        lengths = ragged.lengths(indptr)
        weight = np.repeat(np.ones(len(lengths)) if count is None else count, lengths)
        reached = self.behaviour.reached(indptr, document)
        self.shown += sum_by(row_in_list, weight, depth)
        self.reached += sum_by(row_in_list, weight * reached, depth)

    @property
    def curve(self) -> FloatArray:
        """(K,) theta: the protocol's own, or the mean where readers stop (NaN if never shown)."""
        if self.behaviour.stopping is None:
            return self.behaviour.examination
        with np.errstate(invalid="ignore"):
            return self.reached / self.shown


@dataclass(frozen=True, eq=False)
class Setting:
    """A protocol on judged lists, ready to be sampled. `judged` are the queries with sessions."""

    protocol: Protocol
    judged: JudgedLists
    behaviour: Behaviour
    display: Display
    rankings: Rankings
    query_probability: FloatArray
    plan: SamplingPlan

    @property
    def ranker_names(self) -> tuple[str, ...]:
        """What the log calls the variants; nothing where there is only one."""
        return self.display.names if len(self.display.names) > 1 else ()

    def truth(self, examination: MeanExamination) -> Truth:
        """What the log was made from."""
        return Truth(
            protocol=self.protocol,
            behaviour=self.behaviour,
            examination=examination.curve,
            judged=self.judged,
            query_probability=self.query_probability,
            rankers=self.rankings.rankers,
            ranker_names=self.rankings.names,
            training_queries=self.rankings.training_queries,
        )


def prepare(
    judged: JudgedLists,
    protocol: str | Protocol,
    *,
    ranker: Any,
    seed: Seed,
    depth: int | None,
    query_weights: npt.ArrayLike | None,
    max_label: float | None,
    in_turn: bool,
) -> Setting:
    """Train or take the rankers, order the lists, and lay out the tables of the protocol."""
    chosen = as_protocol(protocol)
    rankings = rankings_for(judged, chosen, ranker, seed)
    queries = _queries_with_sessions(judged, rankings)
    kept = judged if len(queries) == judged.n_queries else judged.take(queries)
    rows = ragged.rows_of_lists(judged.indptr, queries)
    start, shown = shown_order(kept, rankings.scores[:, rows], _depth(depth, chosen), seed)
    positions = int(ragged.lengths(start).max())
    highest = float(judged.labels.max(initial=0)) if max_label is None else float(max_label)
    behaviour = chosen.behaviour(kept.labels, depth=positions, max_label=highest)
    display = chosen.display(Page(positions, rankings.names))
    probability = _query_probability(query_weights, judged.n_queries, seed)[queries]
    if not probability.sum() > 0:
        raise OptionError("query_weights are 0 for all queries that can have sessions.")
    probability = probability / probability.sum()
    key = np.uint64(child_generator(seed, 22).integers(2**64, dtype=np.uint64))
    plan = _plan(key, np.empty(0) if in_turn else probability, start, shown, display, behaviour)
    return Setting(chosen, kept, behaviour, display, rankings, probability, plan)


def _queries_with_sessions(judged: JudgedLists, rankings: Rankings) -> IntArray:
    # A set, because ids may be text here and whole numbers there.
    trained = set(rankings.training_queries.tolist())
    seen = np.fromiter((q in trained for q in judged.query_id.tolist()), bool, judged.n_queries)
    queries = np.flatnonzero(~seen & (ragged.lengths(judged.indptr) > 0))
    if len(queries) == 0:
        raise OptionError(
            f"no query is left for sessions: of {judged.n_queries:,} queries {seen.sum():,} "
            "trained the production ranker and the others have no documents. Give more queries, or "
            "train the ranker on fewer: ranker=production_ranker(judged, share=...)."
        )
    return queries


def _depth(depth: int | None, protocol: Protocol) -> int:
    wanted = protocol.list_depth if depth is None else depth
    if wanted is not None and not 1 <= wanted <= DEEPEST:
        raise OptionError(
            f"depth must lie between 1 and {DEEPEST:,}, where lists of a log end. Got {wanted} "
            "instead."
        )
    return DEEPEST if wanted is None else wanted


def _query_probability(weights: npt.ArrayLike | None, n_queries: int, seed: Seed) -> FloatArray:
    """Unnormalised: equal, 1/rank over a random order ("zipf"), or as given."""
    if weights is None or (isinstance(weights, str) and weights == "uniform"):
        return np.ones(n_queries)
    if isinstance(weights, str) and weights == "zipf":
        return 1.0 / (1 + child_generator(seed, 21).permutation(n_queries))
    if isinstance(weights, str):
        raise OptionError(
            f"query_weights must be 'uniform', 'zipf' or an array. Got {weights!r} instead."
        )
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != (n_queries,):
        raise ShapeError(
            f"query_weights must have one entry for each of the {n_queries:,} queries. "
            f"Got shape {given.shape} instead."
        )
    if not np.all(np.isfinite(given) & (given >= 0)):
        raise OptionError("query_weights must be finite and at least 0.")
    return given


def _plan(
    key: np.uint64,
    probability: FloatArray,
    start: IntArray,
    shown: IntArray,
    display: Display,
    behaviour: Behaviour,
) -> SamplingPlan:
    alpha, beta = behaviour.affine()
    stopping, dwell = behaviour.stopping, behaviour.dwell
    return SamplingPlan(
        key=key,
        query_steps=_steps(probability),
        start=start,
        shown=shown,
        variant_steps=_steps(display.probability),
        variant_order=display.order,
        variant_swap=display.swap,
        variant_shuffle=display.shuffle,
        alpha=_table(alpha),
        beta=_table(beta),
        relevance=_table(behaviour.relevance),
        satisfaction=_table(None if stopping is None else stopping.satisfaction),
        go_on=1.0 if stopping is None else float(stopping.go_on),
        delta_mean=_table(None if dwell is None else dwell.delta_mean),
        delta_spread=_table(None if dwell is None else dwell.delta_spread),
        omega_mean=_table(None if dwell is None else dwell.omega_mean),
        omega_spread=_table(None if dwell is None else dwell.omega_spread),
    )


def _table(values: FloatArray | None) -> FloatArray:
    """A copy, empty for None: numba compiles once more for each mix of read-only arrays."""
    return np.array([] if values is None else values, dtype=np.float64)


def _steps(probability: FloatArray) -> FloatArray:
    """Cumulated, and 1 at the end whatever the rounding: a last entry of 0 is then never drawn."""
    steps = np.cumsum(probability)
    return steps / steps[-1:]
