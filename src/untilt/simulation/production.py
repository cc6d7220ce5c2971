"""Production rankers: linear models from few labelled queries, which order the shown lists."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np
from scipy.optimize import minimize

from untilt._core import arrays, ragged
from untilt._core.feature_table import predicted
from untilt._core.portable import Portable
from untilt._core.random import Seed, child_generator
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, ShapeError, check_choice, check_least
from untilt.simulation.protocols import Harvest, Protocol

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
