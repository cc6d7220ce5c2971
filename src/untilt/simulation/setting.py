"""Everything that is fixed before the first session is drawn."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray
from untilt._core.random import Seed, child_generator
from untilt.errors import OptionError, ShapeError
from untilt.logs.judged import JudgedLists
from untilt.simulation.behaviour import Behaviour
from untilt.simulation.display import Display, Page
from untilt.simulation.protocols import Protocol, as_protocol
from untilt.simulation.rankings import Rankings, rankings_for, shown_order
from untilt.simulation.sampler import Plan
from untilt.simulation.truth import MeanExamination, Truth


@dataclass(frozen=True, eq=False)
class Setting:
    """A protocol on judged lists, ready to be sampled. `judged` are the queries with sessions."""

    protocol: Protocol
    judged: JudgedLists
    behaviour: Behaviour
    display: Display
    rankings: Rankings
    query_probability: FloatArray
    plan: Plan

    @property
    def ranker_names(self) -> tuple[str, ...]:
        """What the log calls the variants; nothing where there is only one."""
        return self.display.names if len(self.display.names) > 1 else ()

    def truth(self, examination: MeanExamination) -> Truth:
        """What the log was made from."""
        return Truth(
            protocol=self.protocol,
            examination=examination.curve,
            relevance=self.behaviour.relevance,
            eps_plus=self.behaviour.eps_plus,
            eps_minus=self.behaviour.eps_minus,
            dwell=self.behaviour.dwell,
            judged=self.judged,
            query_probability=self.query_probability,
            rankers=self.rankings.rankers,
            ranker_names=self.rankings.names,
            training_queries=self.rankings.training_queries,
            behaviour=self.behaviour,
        )


def prepare(
    judged: JudgedLists,
    protocol: Any,
    *,
    ranker: Any,
    seed: Seed,
    depth: int | None,
    query_weights: Any,
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
    places = int(ragged.lengths(start).max())
    highest = float(judged.labels.max(initial=0)) if max_label is None else float(max_label)
    behaviour = chosen.behaviour(kept.labels, depth=places, max_label=highest)
    display = chosen.display(Page(places, rankings.names))
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


def _depth(depth: int | None, protocol: Protocol) -> int | None:
    wanted = protocol.list_depth if depth is None else depth
    if wanted is not None and wanted < 1:
        raise OptionError(f"depth must be at least 1. Got {wanted} instead.")
    return wanted


def _query_probability(weights: Any, n_queries: int, seed: Seed) -> FloatArray:
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
) -> Plan:
    alpha, beta = behaviour.affine()
    stopping, dwell = behaviour.stopping, behaviour.dwell
    return Plan(
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
