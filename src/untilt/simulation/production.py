"""The production ranker of the papers: linear, from few of the labelled queries."""

from dataclasses import dataclass

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray, handed_over
from untilt._core.random import Seed, child_generator
from untilt._core.suggest import check_choice
from untilt.errors import OptionError, ShapeError
from untilt.logs.judged import JudgedLists
from untilt.simulation.pairwise import fit_linear, serial_dot

FEWEST_QUERIES = 5  # on a small set 1% may be a query without a single pair
KINDS = ("linear", "svm")


@dataclass(frozen=True, eq=False, repr=False)
class ProductionRanker:
    """A linear ranker and the ids of the queries whose labels it has seen.

    `simulate` gives no sessions to those queries.
    """

    weights: FloatArray
    training_queries: AnyArray
    kind: str = "linear"
    name: str = "production"

    def predict(self, features: FloatArray) -> FloatArray:
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
    return ProductionRanker(handed_over(weights), sample.query_id, kind, name)


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

    They order the same documents differently, which is what intervention harvesting lives on
    [agarwal2019estimating]_.
    """
    if n_rankers < 1:
        raise OptionError(f"n_rankers must be at least 1. Got {n_rankers} instead.")
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


def _draw_queries(rng: np.random.Generator, judged: JudgedLists, share: float) -> IntArray:
    order = rng.permutation(judged.n_queries)
    wanted = max(_part(judged.n_queries, share), min(FEWEST_QUERIES, judged.n_queries))
    teaches = _highest(judged) > -_highest(judged, sign=-1.0)
    if not teaches.any():
        raise OptionError(
            "a production ranker learns from pairs, and no query here has two different labels. "
            "Give simulate its scores instead: simulate(..., ranker=scores)."
        )
    if not teaches[order[:wanted]].any():
        # Small sets with many all-zero queries: one query with a pair takes the last place.
        order[wanted - 1] = order[np.argmax(teaches[order])]
    return np.sort(order[:wanted])


def _highest(judged: JudgedLists, sign: float = 1.0) -> FloatArray:
    """The largest sign * label of each query; -inf for a query without documents."""
    highest = np.full(judged.n_queries, -np.inf)
    np.maximum.at(highest, ragged.list_of_row(judged.indptr), sign * judged.labels)
    return highest


def _part(n: int, share: float) -> int:
    return max(1, round(share * n))


def _check(share: float, feature_share: float, kind: str, l2: float) -> None:
    for what, found in (("share", share), ("feature_share", feature_share)):
        if not 0 < found <= 1:
            raise OptionError(f"{what} must lie above 0 and not above 1. Got {found} instead.")
    check_choice("kind", kind, KINDS)
    if not l2 >= 0:
        raise OptionError(f"l2 must be at least 0. Got {l2} instead.")
