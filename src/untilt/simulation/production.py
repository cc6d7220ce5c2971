"""Production rankers: linear models from few labelled queries, which order the shown lists.

Everything that is fixed before the first session is drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from untilt._core import arrays, ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray, sum_by
from untilt._core.feature_table import predicted
from untilt._core.portable import Portable
from untilt._core.random import Seed, child_generator
from untilt.bias.curve import PositionBias
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.data.limits import DEEPEST
from untilt.errors import DepthError, OptionError, ShapeError, check_choice, check_least
from untilt.facts import note
from untilt.simulation.behaviour import Behaviour, Display, DwellTimes, Page
from untilt.simulation.protocols import Harvest, Protocol, as_protocol
from untilt.simulation.sampler import SamplingPlan

FEWEST_QUERIES = 5  # on a small set 1% may be a query without a single pair
KINDS = ("linear", "svm")


@dataclass(frozen=True, eq=False, repr=False)
class ProductionRanker(Portable):
    """A linear ranker and the ids of the queries whose labels it has seen.

    `simulate` gives no sessions to those queries.
    """

    weights: arrays.FloatArray
    training_queries: arrays.AnyArray
    kind: str = "linear"
    name: str = "production"

    def predict(self, features: arrays.FeatureArray) -> arrays.FloatArray:
        """(n,) scores: features . weights, in double precision."""
        x = np.asarray(features)
        if x.ndim != 2 or x.shape[1] != len(self.weights):
            raise ShapeError(
                f"features must have shape (n, {len(self.weights)}): the production ranker was "
                f"trained on {len(self.weights)} features. Got {x.shape} instead."
            )
        return serial_dot(x.astype(np.float64), self.weights)

    def __repr__(self) -> str:
        used = int(np.count_nonzero(self.weights))
        return (
            f"ProductionRanker({self.name!r}, {self.kind}, {used} of {len(self.weights)} features, "
            f"trained on {len(self.training_queries)} queries)"
        )


def production_ranker(
    judged: JudgedLists,
    *,
    share: float = 0.01,
    seed: Seed = 0,
    kind: str = "linear",
    l2: float = 1e-3,
    feature_share: float = 1.0,
    name: str = "production",
) -> ProductionRanker:
    r"""Train the ranker that shows the lists on `share` of the labelled queries.

    Minimises the mean of ln(1 + exp(-(s_i - s_j))) over pairs with y_i > y_j plus l2/2 |w|^2, on
    standardised features [joachims2017unbiased]_ [wang2020prs]_. kind="svm" takes the squared
    hinge max(0, 1 - (s_i - s_j))^2 instead.

    Parameters
    ----------
    share : share of the queries, at least five and at most all of them
    feature_share : share of the features that it may use, drawn at random
    """
    _check(share, feature_share, kind, l2)
    rng = child_generator(seed, 10)
    queries = _draw_queries(rng, judged, share)
    columns = np.sort(rng.permutation(judged.n_features)[: _part(judged.n_features, feature_share)])
    sample = judged.take(queries)
    weights = np.zeros(judged.n_features)
    weights[columns] = fit_linear(
        sample.features[:, columns], sample.labels, sample.indptr, hinge=kind == "svm", l2=l2
    )
    return ProductionRanker(arrays.handed_over(weights), sample.query_id, kind, name)


def production_rankers(
    judged: JudgedLists,
    n_rankers: int = 3,
    *,
    share: float = 0.01,
    feature_share: float = 0.5,
    seed: Seed = 0,
    kind: str = "linear",
    l2: float = 1e-3,
) -> tuple[ProductionRanker, ...]:
    """Several production rankers that differ in their queries and in the features they use.

    They order the same documents differently, which intervention harvesting needs
    [agarwal2019estimating]_.
    """
    check_least("n_rankers", n_rankers, 1)
    return tuple(
        production_ranker(
            judged,
            share=share,
            seed=child_generator(seed, 11, r),
            kind=kind,
            l2=l2,
            feature_share=feature_share,
            name=f"production-{r + 1}",
        )
        for r in range(n_rankers)
    )


def _draw_queries(rng: np.random.Generator, judged: JudgedLists, share: float) -> arrays.IntArray:
    order = rng.permutation(judged.n_queries)
    wanted = max(_part(judged.n_queries, share), min(FEWEST_QUERIES, judged.n_queries))
    teaches = _highest(judged) > -_highest(judged, sign=-1.0)
    if not teaches.any():
        raise OptionError(
            "a production ranker learns from pairs, and no query here has two different labels. "
            "Give simulate its scores instead: simulate(..., ⟦ranker=scores⟧)."
        )
    if not teaches[order[:wanted]].any():
        # Small sets with many all-zero queries: the last query becomes one with a pair.
        order[wanted - 1] = order[np.argmax(teaches[order])]
    return np.sort(order[:wanted])


def _highest(judged: JudgedLists, sign: float = 1.0) -> arrays.FloatArray:
    """The largest sign * label of each query; -inf for a query without documents."""
    highest = np.full(judged.n_queries, -np.inf)
    np.maximum.at(highest, ragged.list_of_row(judged.indptr), sign * judged.labels)
    return highest


def _part(n: int, share: float) -> int:
    return max(1, round(share * n))


def _check(share: float, feature_share: float, kind: str, l2: float) -> None:
    for what, value in (("share", share), ("feature_share", feature_share)):
        if not 0 < value <= 1:
            raise OptionError(f"{what} must lie above 0 and not above 1. Got {value} instead.")
    check_choice("kind", kind, KINDS)
    check_least("l2", l2, 0)


def fit_linear(
    features: arrays.FeatureArray,
    labels: arrays.FloatArray,
    indptr: arrays.IntArray,
    *,
    hinge: bool,
    l2: float,
) -> arrays.FloatArray:
    r"""Weights that minimise mean_pairs loss(s_i - s_j) + l2/2 |w|^2 over pairs with y_i > y_j.

    Serial on purpose: sums over threads differ in their last bits, and two documents with nearly
    equal scores would then be ordered by the number of threads. The log must not depend on it.

    The loss is ln(1 + exp(-m)), or max(0, 1 - m)^2 with `hinge`; s = w . (x - mean) / spread. The
    weights come back on the scale of the raw features; a feature that never varies gets 0.
    """
    # Contiguous: another layout in memory is another order of summation, and other last bits.
    x = np.ascontiguousarray(features, dtype=np.float64)
    spread = x.std(axis=0)
    spread[spread == 0] = np.inf
    x = (x - x.mean(axis=0)) / spread

    def objective(w: arrays.FloatArray) -> tuple[float, arrays.FloatArray]:
        total, n_pairs, slope = pair_loss(serial_dot(x, w), labels, indptr, hinge)
        n = max(1, n_pairs)
        return total / n + l2 / 2 * float(w @ w), serial_dot(x.T, slope) / n + l2 * w

    start = np.zeros(x.shape[1])
    best = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return best.x / spread


def serial_dot(x: arrays.FloatArray, w: arrays.FloatArray) -> arrays.FloatArray:
    """x @ w without BLAS, whose threads change the last bits."""
    return np.einsum("ij,j->i", x, w)


@nb.njit(cache=True)
def pair_loss(
    scores: arrays.FloatArray, labels: arrays.FloatArray, indptr: arrays.IntArray, hinge: bool
) -> tuple[float, int, arrays.FloatArray]:
    """Summed loss over the pairs, their number, and the gradient with respect to the scores."""
    total, n_pairs = 0.0, 0
    slope = np.zeros(len(scores))
    for q in range(len(indptr) - 1):
        for i in range(indptr[q], indptr[q + 1]):
            for j in range(indptr[q], indptr[q + 1]):
                if labels[i] <= labels[j]:
                    continue
                margin = scores[i] - scores[j]
                if hinge:
                    short = max(0.0, 1.0 - margin)
                    loss, g = short * short, 2.0 * short
                else:
                    # ln(1 + exp(-m)), written so that neither end overflows.
                    e = np.exp(-abs(margin))
                    loss = np.log1p(e) + max(0.0, -margin)
                    g = (e if margin > 0 else 1.0) / (1.0 + e)
                total += loss
                n_pairs += 1
                slope[i] -= g
                slope[j] += g
    return total, n_pairs, slope


@dataclass(frozen=True, eq=False)
class Rankings(Portable):
    """Scores of each ranker for all judged documents, and what they were trained on.

    names : (R,); scores : (R, n); rankers : what was given or trained
    training_queries : ids of the queries whose labels a ranker has seen
    """

    names: tuple[str, ...]
    scores: arrays.FloatArray
    rankers: tuple[Any, ...]
    training_queries: arrays.AnyArray


def rankings_for(judged: JudgedLists, protocol: Protocol, ranker: Any, seed: Seed) -> Rankings:
    """The rankers that were given, or the papers' production rankers where none were."""
    named = _named(judged, protocol, ranker, seed)
    if len(named) > 1 and not isinstance(protocol, Harvest):
        raise OptionError(
            f"protocol {protocol.name!r} shows the lists of one ranker. Got {len(named)}; several "
            "rankers share the traffic in protocol 'harvest'."
        )
    if len(named) < 2 and isinstance(protocol, Harvest):
        raise OptionError(
            "protocol 'harvest' needs at least two rankers that order the documents "
            f"differently. Got {len(named)}; give several: "
            "⟦ranker={'old': scores, 'new': other_scores}⟧."
        )
    rankers = tuple(named.values())
    seen = [id_ for r in rankers for id_ in np.asarray(getattr(r, "training_queries", ())).tolist()]
    return Rankings(
        names=tuple(named),
        scores=np.stack([_scores(judged, name, r) for name, r in named.items()]),
        rankers=rankers,
        training_queries=arrays.identifiers(list(dict.fromkeys(seen))),
    )


def shown_order(
    judged: JudgedLists, scores: arrays.FloatArray, depth: int, seed: Seed
) -> tuple[arrays.IntArray, arrays.IntArray]:
    """(start, shown): documents by falling score, cut at the depth; shown has a row per ranker.

    Equal scores stand in random order: the order of a file may follow the labels.
    """
    lengths = ragged.lengths(judged.indptr)
    start = ragged.indptr_of(np.minimum(lengths, depth))
    kept = ragged.index_in_list(judged.indptr) < np.repeat(ragged.lengths(start), lengths)
    chance = child_generator(seed, 20).random(len(judged))
    orders = [ragged.order_within_lists(judged.indptr, -row, chance)[kept] for row in scores]
    return start, np.stack(orders).astype(np.int32)


def _named(judged: JudgedLists, protocol: Protocol, ranker: Any, seed: Seed) -> dict[str, Any]:
    if ranker is None and isinstance(protocol, Harvest):
        trained = production_rankers(
            judged, protocol.rankers, feature_share=protocol.feature_share, seed=seed
        )
        return {r.name: r for r in trained}
    if ranker is None:
        return {"base": production_ranker(judged, seed=seed)}
    if isinstance(ranker, Mapping):
        return {str(name): r for name, r in ranker.items()}
    if isinstance(ranker, list | tuple) and not _is_scores(ranker):
        names = [str(getattr(r, "name", f"ranker-{i}")) for i, r in enumerate(ranker, start=1)]
        if len(set(names)) < len(names):
            names = [f"ranker-{i}" for i in range(1, len(ranker) + 1)]
        return dict(zip(names, ranker, strict=True))
    return {"base": ranker}


def _is_scores(ranker: list[Any] | tuple[Any, ...]) -> bool:
    return len(ranker) > 0 and isinstance(ranker[0], int | float | np.number)


def _scores(judged: JudgedLists, name: str, ranker: Any) -> arrays.FloatArray:
    made = ranker
    if hasattr(ranker, "predict"):
        made = predicted(ranker, judged.features, judged.feature_names)
    try:
        scores = np.asarray(made, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise OptionError(
            "ranker must be an array of scores, one per judged document, or something fitted with "
            f"a predict method. Got {type(ranker).__name__} instead."
        ) from error
    if scores.shape != (len(judged),):
        raise ShapeError(
            f"ranker {name!r} must give one score for each of the {len(judged):,} judged "
            f"documents. Got shape {scores.shape} instead."
        )
    if not np.all(np.isfinite(scores)):
        row = int(np.argmin(np.isfinite(scores)))
        raise OptionError(
            f"ranker {name!r} must give finite scores. Got {scores[row]} for document row {row}."
        )
    return scores


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
            protocol=self.protocol, behaviour=self.behaviour, examination=examination.curve,
            judged=self.judged, query_probability=self.query_probability,
            rankers=self.rankings.rankers, ranker_names=self.rankings.names,
            training_queries=self.rankings.training_queries,
        )  # fmt: skip


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
        **{each.name: _table(getattr(dwell, each.name, None)) for each in fields(DwellTimes)},
    )


def _table(values: FloatArray | None) -> FloatArray:
    """A copy, empty for None: numba compiles once more for each mix of read-only arrays."""
    return np.array([] if values is None else values, dtype=np.float64)


def _steps(probability: FloatArray) -> FloatArray:
    """Cumulated, and 1 at the end whatever the rounding: a last entry of 0 is then never drawn."""
    steps = np.cumsum(probability)
    return steps / steps[-1:]
