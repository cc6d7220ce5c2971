"""Boosters that are grown side by side, each without one fold of the queries.

Every number of trees up to the last is a prefix of one training, so the folds' own scores on the
queries they have not seen say which number is best, without training anything twice. The boosters
of the folds are then averaged into one. Features are binned once for all of them.

The folds grow in a pool of threads, with one LightGBM thread each where the data is small: threads
that share a small tree wait for each other longer than they work. Results do not depend on it.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray, IntArray
from untilt._core.progress import progress
from untilt._core.random import child_generator
from untilt._core.threads import side_by_side, thread_count
from untilt.bias.given import BiasLike
from untilt.catalog import storable
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError
from untilt.objectives.hierarchical import HierarchyFit
from untilt.rankers.learning_data import TrainingLists
from untilt.rankers.trees.boosting import (
    FIXED,
    Boosted,
    boost,
    check_features,
    dataset_of,
    dataset_params,
    merged,
    refused,
)
from untilt.rankers.trees.objectives import BoostingOptions, TreeObjective
from untilt.rankers.validation import held_out_likelihood, validation_for
from untilt.weighting.base import JointWeighting

if TYPE_CHECKING:
    import lightgbm

# Folds of the queries: four, and two from MANY_QUERIES on, each booster then on half of the
# queries. With 12,000 queries (30 sessions each) NDCG@10 of the stacked learner was .0017 +- .0014
# lower with two than with four, in two thirds of the time.
N_FOLDS, FEWER_FOLDS, MANY_QUERIES = 4, 2, 10_000
MOST_TREES = 500
# Trees between two looks at the held-out queries.
STEP = 10
# LightGBM expects of a subset as many values per row as the whole has. Where it expects few in all,
# its table by rows counts them in 16 bits, and a denser subset overruns it: the process's memory is
# broken (4.6 and 4.7; shown documents of MSLR among all candidates). Its table by columns counts
# nothing, and so does that by rows where less than a quarter of the values are the usual one.
BY_COLUMNS = {"force_row_wise": False, "force_col_wise": True, "enable_bundle": False}
DENSE, _ROWS_LOOKED_AT = 0.15, 2000
# The training ends when the best number of trees is this many, or this share of all, ago.
PATIENCE = (50, 0.3)


@storable
@dataclass(frozen=True)
class TreesTried:
    """A held-out value by the number of trees, and the best of them."""

    trees: tuple[int, ...]
    values: tuple[float, ...]
    best: int

    def __str__(self) -> str:
        return f"{self.best} trees" + (f" of {self.trees[-1]}" if self.trees else "")


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """The boosters of the folds, their trees, and what they say of queries they have not seen.

    Parameters
    ----------
    boosters : one per fold; only the first `tried.best` trees count
    scores : (rows,) of each row by the booster that has not seen its query
    """

    boosters: "tuple[lightgbm.Booster, ...]"
    tried: TreesTried
    scores: FloatArray

    def parts(self, weight: float = 1.0) -> "list[tuple[lightgbm.Booster, int, float]]":
        """What `merged` takes: the average over the folds, times the weight."""
        share = weight / len(self.boosters)
        return [(booster, self.tried.best, share) for booster in self.boosters]

    def booster(self) -> "lightgbm.Booster":
        """The average over the folds as one booster."""
        return merged(self.parts())


def folds_of(query: IntArray, n_folds: int | None, seed: int) -> IntArray:
    """(rows,) the fold of each row: all rows of a query are in the same, at random.

    `query` counts from 0; a query's fold depends on the set of queries and the seed alone. None:
    as many folds as suit the number of queries.
    """
    queries = np.unique(query)
    if n_folds is None:
        n_folds = N_FOLDS if len(queries) < MANY_QUERIES else FEWER_FOLDS
    fold = np.zeros(int(queries.max()) + 1, dtype=np.int64)
    shuffled = child_generator(seed, 17).permutation(queries)
    fold[shuffled] = np.arange(len(queries)) % min(n_folds, len(queries))
    return fold[query]


class FoldTraining:
    """The rows that folds are trained on, binned once.

    Parameters
    ----------
    features : (rows, d)
    fold : (rows,) 0..folds - 1
    """

    def __init__(self, features: FeatureArray, fold: IntArray, options: BoostingOptions) -> None:
        self.fold, self.options = fold, options
        self.n_folds = int(fold.max()) + 1
        # One thread for a small tree; where trees are large, what is left after one for each fold.
        self.n_threads = thread_count(options.n_threads, values=features.size) or 1
        per_fold = max(1, self.n_threads // self.n_folds)
        own = {**FIXED, **options.params, "num_threads": per_fold}
        self.params = own if is_dense(features, own.get("max_bin", 255)) else own | BY_COLUMNS
        params = {**self._quiet, "num_threads": self.n_threads}
        self._data = dataset_of(features, params).construct()

    def training_rows(self, held_out: int, among: IntArray | None = None) -> IntArray:
        """Rows outside the fold; of those given, or of all."""
        rows = np.arange(len(self.fold)) if among is None else among
        return rows[self.fold[rows] != held_out]

    def grow(
        self,
        objectives: Sequence[TreeObjective] | str,
        value: Callable[[FloatArray], float] | None,
        *,
        what: str,
        among: IntArray | None = None,
        label: FloatArray | None = None,
        most: int | None = None,
        fewest: int = 1,
        params: dict[str, Any] | None = None,
        patience: tuple[int, float] = PATIENCE,
    ) -> CrossFitted:
        """Grow the folds' boosters until the value of their held-out scores no longer rises.

        Parameters
        ----------
        objectives : one per fold, over the rows of `training_rows`; or a name of LightGBM's, for
            which `label` (rows,) is needed
        value : of (rows,) scores, each by the booster that has not seen its query; more is better.
            None grows the most trees and keeps them all
        among : the rows to train on, all where not given
        most : the most trees, those of the options where not given
        fewest : the fewest trees; 0 tries none as well
        params : over the parameters of the options
        patience : trees without a better value before the training ends, and as a share of all
        """
        from lightgbm.basic import LightGBMError

        options = {**self.params, **(params or {}), "metric": "none"}
        options["objective"] = objectives if isinstance(objectives, str) else "none"
        most = self.options.n_trees if most is None else most
        try:
            folds = [_Fold(self, k, options, objectives, among, label) for k in range(self.n_folds)]
            return self._grown(folds, value, (min(fewest, most), most), what, patience)
        except LightGBMError as error:
            raise refused(error, options) from error

    @property
    def _quiet(self) -> dict[str, Any]:
        """Parameters of the data; without them LightGBM talks again."""
        return {**{name: self.params[name] for name in FIXED | BY_COLUMNS if name in self.params},
                **dataset_params(self.params)}  # fmt: skip

    def _grown(
        self,
        folds: "list[_Fold]",
        value: Callable[[FloatArray], float] | None,
        bounds: tuple[int, int],
        what: str,
        patience: tuple[int, float],
    ) -> CrossFitted:
        fewest, most = bounds
        scores = np.zeros(len(self.fold))
        so_far, best, best_scores, highest = 0, 0, scores.copy(), -np.inf
        trees: list[int] = []
        values: list[float] = []

        def look() -> None:
            nonlocal best, best_scores, highest
            if value is not None:
                trees.append(so_far)
                values.append(float(value(scores)))
            if value is None or (so_far >= fewest and values[-1] > highest):
                best, best_scores = so_far, scores.copy()
                highest = -np.inf if value is None else values[-1]

        if fewest == 0:
            look()
        with progress(what, total=most) as advance:
            while so_far < most and so_far - best < max(patience[0], patience[1] * so_far):
                step = min(STEP, most - so_far)
                grown = side_by_side(partial(_grow, step), folds, n_threads=self.options.n_threads)
                for fold, own in zip(folds, grown, strict=True):
                    scores[fold.held_out] = own
                so_far += step
                advance(step)
                look()
        tried = TreesTried(tuple(trees), tuple(values), best)
        return CrossFitted(tuple(fold.booster for fold in folds), tried, best_scores)


def is_dense(features: FeatureArray, max_bin: int) -> bool:
    """Whether LightGBM's table by rows names every value: few values are their feature's usual one.

    Its own threshold is a quarter of the values in their feature's fullest bin.
    """
    looked_at = features[:: max(1, len(features) // _ROWS_LOOKED_AT)]
    usual = [np.max(np.unique(column, return_counts=True)[1]) for column in looked_at.T]
    return float(np.mean(np.maximum(np.array(usual) / len(looked_at), 2 / max_bin))) < DENSE


def _be_quiet(num_threads: int) -> None:
    """LightGBM's verbosity belongs to a thread, and is set by the parameters it reads there.

    The number of threads belongs to the process: other folds are at work with theirs.
    """
    import lightgbm

    if not hasattr(_thread, "quiet"):
        params = {**FIXED, "num_threads": num_threads}
        lightgbm.Dataset(np.zeros((2, 1)), params=params).construct()
        _thread.quiet = True


_thread = threading.local()


def _grow(n_trees: int, fold: "_Fold") -> FloatArray:
    _be_quiet(fold.num_threads)
    return fold.grow(n_trees)


class _Fold:
    """One booster, the rows it is trained on, and those that it is asked about."""

    def __init__(
        self,
        training: FoldTraining,
        held_out: int,
        params: dict[str, Any],
        objectives: Sequence[TreeObjective] | str,
        among: IntArray | None,
        label: FloatArray | None,
    ) -> None:
        import lightgbm

        self.num_threads = training.params["num_threads"]
        rows = training.training_rows(held_out, among)
        train = training._data.subset(rows.tolist(), training._quiet).construct()
        if label is not None:
            train.set_label(label[rows])
        self._objective = None if isinstance(objectives, str) else objectives[held_out]
        self.booster = lightgbm.Booster(params, train)
        self.held_out = np.flatnonzero(training.fold == held_out)
        asked = training._data.subset(self.held_out.tolist(), training._quiet).construct()
        self.booster.add_valid(asked, "held out")

    def grow(self, n_trees: int) -> FloatArray:
        """More trees, and the scores of the held-out rows after them."""
        for _ in range(n_trees):
            self.booster.update(fobj=self._objective)
        return _scores_of(self.booster)


def _scores_of(booster: "lightgbm.Booster") -> FloatArray:
    """Of the rows that were added to a booster, as far as it is grown."""
    seen: list[FloatArray] = []

    def look(scores: FloatArray, _: object) -> tuple[str, float, bool]:
        seen.append(np.array(scores, dtype=float))
        return "look", 0.0, True

    booster.eval_valid(look)
    return seen[0]


# n_trees="auto": the number of trees by queries that the trees have not seen.
#
# The objective is trained on folds of the queries side by side (`crossfit`); every number of trees
# is judged by all held-out queries together, and the boosters of the folds are averaged into one.
# Clicks are judged by their likelihood under the ranker's own bias; where it has none, as raw
# clicks have not, under a curve of ones, which is what such a ranker believes. Judged lists: by
# NDCG@10.
#
# A weighting that learns its own table is trained once more on all queries, with the number found:
# a table cannot be averaged over folds.

# More queries would not choose another number, and a look at 12,000 took as long as ten trees.
JUDGING_QUERIES = 4000

Make = Callable[[TrainingLists], TreeObjective]


def boost_tuned(
    data: ClickLog | JudgedLists,
    lists: TrainingLists,
    make: Make,
    options: BoostingOptions,
    *,
    bias: BiasLike | None,
    seed: int,
) -> Boosted:
    """The average of the folds' boosters, with the number of trees that held-out queries chose.

    `make` gives the objective of lists; `options.n_trees` is the most.
    """
    check_features(lists)
    if len(np.unique(lists.doc_query)) < 2:
        raise OptionError(
            "n_trees='auto' holds queries out, and there is a single one. Give a number of trees."
        )
    fold = folds_of(lists.doc_query, None, seed)
    folds = FoldTraining(lists.features, fold, options)
    objectives = [make(lists.of_documents(fold != k)) for k in range(folds.n_folds)]
    grown = folds.grow(objectives, _judge(data, bias), what="choosing the number of trees")
    if isinstance(getattr(objectives[0], "weighting", None), JointWeighting):
        again = boost(lists, make(lists), replace(options, n_trees=grown.tried.best))
        return replace(again, values=grown.tried.values)
    booster = grown.booster()
    return Boosted(booster, booster.num_trees(), grown.tried.values)


def _judge(data: ClickLog | JudgedLists, bias: BiasLike | None) -> Callable[[FloatArray], float]:
    if isinstance(data, ClickLog):
        judge, document = held_out_likelihood(data, bias).of_some_queries(JUDGING_QUERIES)
        last: list[HierarchyFit | None] = [None]

        def likelihood(scores: FloatArray) -> float:
            last[0] = judge.fit(scores[document], last[0])
            return float(judge.gain(last[0]).sum() / judge.sessions.sum())

        return likelihood
    labels = validation_for(data, None, None)
    assert labels is not None
    return labels.value


def judged_by(data: ClickLog | JudgedLists, bias: BiasLike | None) -> str:
    """In words, for `summary_`."""
    if isinstance(data, JudgedLists):
        return "ndcg@10 of held-out queries"
    curve = "a curve of ones" if bias is None else "the given bias"
    return f"click likelihood of held-out queries under {curve}"
