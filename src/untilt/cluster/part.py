"""One worker's part of a training: its queries, its matrix, and all that workers must agree on.

The trees of any number of workers are the same to the last bit, those of one included:

- bin edges are exact quantiles of all workers' rows (see below);
- lists come in an order of their own, whatever else the part holds;
- gradients and hessians are rounded to a grid on which XGBoost's sums in double precision are
  exact, so that their order does not matter (`untilt.cluster.group`);
- rows are sampled by a hash of their ids, the seed and the round, not by a generator that runs
  through the rows of a worker;
- the losses S[k, l] of a joint weighting are summed as whole numbers.

Bin edges of features that lie on many machines: exact quantiles, found digit by digit.

XGBoost merges sketches of the workers' features, so that its edges depend on who holds what. Here
they do not. The bits of a single float, its sign turned, are a whole number that is ordered as the
float is. Values are counted by their first 8 bits, over all workers; where a wanted quantile lies,
by the next 8, and so on: four passes, whole numbers only, and the quantiles are values of the data.
A feature with no more distinct values than bins has one bin for each.
"""

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, IntArray
from untilt._core.declared import is_whole
from untilt._core.estimator import clone
from untilt._core.grouping import GOLDEN, MULTIPLIER, splitmix64
from untilt._core.progress import progress
from untilt._core.saved import load
from untilt._core.seen_queries import MOST, SeenQueries, id_hashes, row_hashes
from untilt.cluster.group import Group, exponent, joined, on_grid
from untilt.data.clicklog import ClickLog
from untilt.data.read.options import WorkerOptions
from untilt.data.seen import seen_in
from untilt.errors import OptionError, UntiltError
from untilt.objectives.pairs import DELTAS, PairObjective
from untilt.rankers import learning_data
from untilt.rankers.learning_data import ClusterTotals, TrainingLists
from untilt.rankers.pooled import PooledWeighting
from untilt.rankers.trees.boosting import text_with_missing_direction
from untilt.rankers.trees.lambdamart import PAIRS, LambdaMART
from untilt.rankers.trees.objectives import PairTreeObjective, lambda_parts
from untilt.weighting.base import JointWeighting

MAX_BIN = 255
_BITS, _PASSES = 8, 4


@dataclass(frozen=True)
class Edges:
    """Where bins begin: value x of feature j has bin number #{edges of j that are <= x}.

    Parameters
    ----------
    of_feature : for each feature its edges, rising float32
    median : (features,) the lower median of what is known
    missing : (features,) whether any value is NaN
    """

    of_feature: tuple[AnyArray, ...]
    median: FloatArray
    missing: AnyArray

    def bins(self, features: FeatureArray) -> FeatureArray:
        """The bin of each value; NaN stays NaN."""
        binned = np.empty(features.shape, dtype=np.float32)
        for j, edges in enumerate(self.of_feature):
            column = features[:, j]
            binned[:, j] = np.searchsorted(edges, column, side="right")
            binned[np.isnan(column), j] = np.nan
        return binned

    def threshold(self, feature: int, bin: int) -> float:
        """A double between the last single float below bin number `bin` and the first in it."""
        first = self.of_feature[feature][bin - 1]
        return (float(np.nextafter(first, np.float32(-np.inf))) + float(first)) / 2


def global_edges(features: FeatureArray, group: Group, max_bin: int = MAX_BIN) -> Edges:
    """The edges of all workers' rows together."""
    found, medians, missing = [], [], []
    for j in range(features.shape[1]):
        column = features[:, j]
        known = ordered(column[~np.isnan(column)])
        n_known, n_missing = group.sum(np.array([len(known), len(column) - len(known)]))
        missing.append(bool(n_missing))
        values, median = _quantiles(known, int(n_known), group, max_bin)
        found.append(np.unique(values)[1:])
        medians.append(float(median))
    return Edges(tuple(found), np.array(medians), np.array(missing))


def ordered(values: AnyArray) -> AnyArray:
    """Single floats as uint32 of the same order; -0 and 0 are the same."""
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)
    sign = np.uint32(1 << 31)
    return np.where(bits & sign, ~bits, bits | sign).astype(np.uint32)


def floats(numbers: AnyArray) -> AnyArray:
    """The single floats that `ordered` made these numbers of."""
    numbers = np.asarray(numbers, dtype=np.uint32)
    sign = np.uint32(1 << 31)
    return np.where(numbers & sign, numbers & ~sign, ~numbers).astype(np.uint32).view(np.float32)


def _quantiles(
    known: AnyArray, n_known: int, group: Group, max_bin: int
) -> tuple[AnyArray, AnyArray]:
    """The least value of each bin, all distinct values where they are few; and the median."""
    if n_known == 0:
        return np.zeros(0, dtype=np.float32), np.zeros((), dtype=np.float32)
    firsts, middle = np.arange(max_bin) * n_known // max_bin, (n_known - 1) // 2
    ranks = np.unique(np.append(firsts, middle))
    cells, before = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    every = True
    for step in range(1, _PASSES + 1):
        shift = np.uint32(32 - _BITS * step)
        counts = group.sum(_counts(known >> shift, cells))
        first = before[:, None] + np.cumsum(counts, axis=1) - counts
        filled = counts > 0
        wanted = filled
        if not every or filled.sum() > max_bin:
            every = False
            last = first + counts
            wanted = filled & (np.searchsorted(ranks, first) < np.searchsorted(ranks, last))
        children = (cells[:, None] << _BITS) + np.arange(1 << _BITS)
        cells, before = children[wanted], first[wanted]
    at = np.searchsorted(before, np.append(firsts, middle), side="right") - 1
    return floats(cells if every else cells[at[:-1]]), floats(cells[at[-1]])


def _counts(prefix: AnyArray, cells: IntArray) -> IntArray:
    """(cells, 256) how many of these prefixes lie in each cell, by their last 8 bits."""
    parent = (prefix >> np.uint32(_BITS)).astype(np.int64)
    place = np.searchsorted(cells, parent)
    place[place == len(cells)] = 0
    inside = cells[place] == parent
    digit = (prefix & np.uint32((1 << _BITS) - 1)).astype(np.int64)
    flat = (place << _BITS)[inside] + digit[inside]
    return np.bincount(flat, minlength=len(cells) << _BITS).reshape(len(cells), 1 << _BITS)


# Of an average query's weight; sums of whole numbers are exact.
_SHARE_GRID = float(1 << 16)
# Bytes of tables S of single queries that are held at once.
_TABLES = 1 << 26
# What is decided here, and by what.
_OURS = {
    "objective": "LambdaMART(weighting=...)", "base_score": "the objective",
    "max_bin": "max_bin=...", "subsample": "LambdaMART(bagging_fraction=...)",
    "tree_method": "workers that agree", "seed": "LambdaMART(seed=...)",
}  # fmt: skip


def train_part(
    ranker: LambdaMART,
    log: ClickLog,
    workers: Mapping[str, Any] | None = None,
    *,
    max_bin: int = MAX_BIN,
    xgboost_params: Mapping[str, Any] | None = None,
) -> LambdaMART:
    """Train with other workers on a log of which each holds a part; all get the same ranker.

    Every worker calls this with the same ranker and options and with whole queries of its own. The
    result is a fitted copy of the ranker: XGBoost ([chen2016xgboost]_) grows its trees leaf by leaf
    on the objective of `LambdaMART`, and they are kept as any other. Any number of workers gives
    the same trees to the last bit. They are not LightGBM's: bins differ, and XGBoost knows no
    least number of rows in a leaf (`min_data_in_leaf` has no effect).

    Parameters
    ----------
    ranker : a `LambdaMART` on pairs: weighting is a table, a joint weighting or None
    log : this worker's queries, with all their sessions. A query that two workers have is refused:
        its pairs would be torn apart
    workers : what `tracker` gave; without it this process is the only worker
    max_bin : bins of each feature; the edges are quantiles of all workers' documents
    xgboost_params : further parameters of XGBoost, the same for all workers

    Examples
    --------
    >>> ranker = train_part(ut.LambdaMART(ut.PRS(bias)), log, workers)    # doctest: +SKIP
    """
    return train_read(ranker, lambda: log, workers, max_bin=max_bin, xgboost_params=xgboost_params)


def train_read(
    ranker: LambdaMART,
    read: Callable[[], ClickLog],
    workers: Mapping[str, Any] | None,
    *,
    max_bin: int,
    xgboost_params: Mapping[str, Any] | None,
) -> LambdaMART:
    """`train_part` on what this worker reads; where one cannot read its part, all are told."""
    check_ranker(ranker, xgboost_params, max_bin)
    with joined(workers) as group:
        log, lists = _read(ranker, read, group)
        part = _agreed(ranker, log, lists, group)
        with progress("finding the edges of bins"):
            edges = global_edges(part.lists.features, group, max_bin)
        booster = _boosted(ranker, part, edges, max_bin, xgboost_params or {})
        return _fitted(ranker, log, part, edges, booster, group)


@dataclass(frozen=True, kw_only=True)
class ClusterJob(WorkerOptions):
    """What every kind of cluster takes."""

    documents: Any = None
    host: str | None = None
    max_bin: int = MAX_BIN
    xgboost_params: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Part:
    """The lists of a worker, the objective on them, and what all workers hold together.

    Parameters
    ----------
    key : (documents,) a hash of each row's ids and features
    totals : queries, documents, sessions and distinct lists of all workers
    """

    lists: TrainingLists
    objective: "WorkersObjective"
    key: AnyArray
    totals: dict[str, int]


def check_ranker(ranker: LambdaMART, params: Mapping[str, Any] | None, max_bin: int) -> None:
    """Raise where workers cannot train such a ranker."""
    if not isinstance(ranker, LambdaMART):
        raise OptionError(
            f"workers train a LambdaMART. Got {type(ranker).__name__} instead, which has no trees."
        )
    ranker._check()
    whole = {"objective": PAIRS, "early_stopping": None, "lightgbm_params": None}
    for name, value in whole.items():
        if getattr(ranker, name) != value:
            raise OptionError(
                f"workers train on pairs with XGBoost: LambdaMART({name}="
                f"{getattr(ranker, name)!r}) has no meaning there. Leave it out."
            )
    weighting = ranker.weighting
    if isinstance(weighting, str) or isinstance(ranker.n_trees, str):
        raise OptionError(
            "weighting='auto' and n_trees='auto' choose by held-out queries of the whole log, and "
            "no worker has it. Choose on one machine, on a share of the queries (⟦read_log(..., "
            "sample_queries=0.1)|--sample-queries 0.1⟧), and train that with workers."
        )
    if isinstance(weighting, PooledWeighting):
        raise OptionError(
            f"{type(weighting).__name__} pools the sessions of queries into labels, and workers "
            "train on pairs of positions. Use a table such as ut.PRS(bias)."
        )
    if isinstance(weighting, JointWeighting) and ranker.metric not in DELTAS:
        raise OptionError("workers learn a joint weighting with ⟦metric='ndcg'⟧, 'dcg' or 'arp'.")
    for name in params or {}:
        if name in _OURS:
            raise OptionError(f"xgboost_params cannot set {name!r}: {_OURS[name]} decides that.")
    if not is_whole(max_bin, 2, 65_535):
        raise OptionError(f"max_bin must be a whole number from 2 to 65,535. Got {max_bin!r}.")


def _read(
    ranker: LambdaMART, read: Callable[[], ClickLog], group: Group
) -> tuple[ClickLog, TrainingLists]:
    """This worker's log and its lists; an error where any worker has one."""
    found, error = None, None
    try:
        log = read()
        if not isinstance(log, ClickLog):
            raise OptionError(
                f"a worker trains on a ClickLog. Got {type(log).__name__} instead. Read its part "
                "of the log with ut.read_log(...)."
            )
        if log.n_lists == 0 and group.size > 1:
            raise OptionError(
                f"worker {group.rank} of {group.size} has no sessions: there may be fewer queries "
                "than workers. Use fewer workers."
            )
        found = log, learning_data.training_lists(log, ranker.weighting)
    except UntiltError as refused:
        error = refused
    group.refuse(error)
    assert found is not None
    return found


def _agreed(ranker: LambdaMART, log: ClickLog, lists: TrainingLists, group: Group) -> Part:
    """This worker's part, after all have agreed that their parts fit together."""
    _same_columns(lists, group)
    _whole_queries(log, group)
    _, total = lists.query_shares(ranker.query_weight)
    totals = group.sum(
        [
            len(total), lists.n_documents, int(lists.count.sum()), len(lists.query),
            int(np.rint(total * _SHARE_GRID).sum()),
        ]
    )  # fmt: skip
    deepest, any_missing = group.max([lists.depth, bool(np.isnan(lists.features).any())])
    mean = int(totals[4]) / _SHARE_GRID / int(totals[0])
    lists = replace(
        _in_order(lists),
        totals=ClusterTotals(mean, int(deepest)),
        missing="keep" if any_missing and lists.missing is None else lists.missing,
    )
    names = ("queries", "documents", "sessions", "distinct_lists")
    counted = dict(zip(names, map(int, totals), strict=False))
    key = _row_keys(log, lists)
    assert not isinstance(ranker.weighting, str)  # `check_ranker` refuses it
    found = learning_data.weighting_for(ranker.weighting, lists)
    objective = WorkersObjective(
        *lambda_parts(lists, found, ranker.options()),
        group=group, key=key, totals=counted, share=ranker.bagging_fraction, seed=ranker.seed,
        depth=int(deepest),
    )  # fmt: skip
    if not objective.has_pairs():
        raise learning_data.nothing_to_learn()
    return Part(lists, objective, key, counted)


def _same_columns(lists: TrainingLists, group: Group) -> None:
    """Raise unless all workers have the same features, and fill gaps by the same number."""
    told = np.array([f"{lists.feature_names} {lists.missing if lists.missing != 'keep' else None}"])
    (mark,) = (id_hashes(told) >> np.uint64(16)).astype(np.int64)
    if len(np.unique(group.gather(np.array([mark])))) > 1:
        raise OptionError(
            "workers have different features, or fill missing ones differently. "
            f"Worker {group.rank} has {', '.join(lists.feature_names[:20])} "
            f"(⟦missing={lists.missing!r}⟧). Read all parts with the same options."
        )


def _whole_queries(log: ClickLog, group: Group) -> None:
    """Raise where two workers have sessions of one query."""
    ids = log.query_id[np.unique(log.query)]
    own = id_hashes(ids).view(np.int64)
    every, times = np.unique(group.gather(own), return_counts=True)
    torn = every[times > 1]
    if not len(torn):
        return
    here = ids[np.isin(own, torn)]
    examples = ", ".join(map(str, here[:5].tolist())) or "none of them here"
    raise OptionError(
        f"{len(torn):,} queries are with more than one worker (worker {group.rank} has "
        f"{examples}), so that their lists would be learned from as if they were of different "
        "queries. Give each worker whole queries: partition the log by query_id."
    )


def _in_order(lists: TrainingLists) -> TrainingLists:
    """The lists in an order of their content alone, whatever lists stand beside them.

    Sums over the lists of a query then come out alike to the last bit. The reader orders lists by
    packed words, whose width depends on all that it read.
    """
    number = lists.document - np.searchsorted(lists.doc_query, lists.query)[_owner(lists)]
    row = _mixed(number.astype(np.uint64) * GOLDEN + lists.position_index.astype(np.uint64))
    label = np.ascontiguousarray(lists.label, dtype=np.float64).view(np.uint64)
    slate, whole = _summed(row, lists.indptr), _summed(_mixed(row + label), lists.indptr)
    found = lists.take(np.lexsort((whole, lists.slate_of_list, slate, lists.query)))
    new = np.flatnonzero(np.diff(found.slate_of_list, prepend=found.slate_of_list[:1] - 1))
    numbered = np.zeros(len(found.query), dtype=np.int64)
    numbered[new] = 1
    return replace(found, slate_of_list=np.cumsum(numbered) - 1)


def _owner(lists: TrainingLists) -> IntArray:
    return np.repeat(np.arange(len(lists.query)), np.diff(lists.indptr))


def _mixed(numbers: AnyArray) -> AnyArray:
    """A hash of 64 bits of each number."""
    return splitmix64(numbers + GOLDEN)


def _summed(rows: AnyArray, indptr: IntArray) -> AnyArray:
    """(lists,) the sums of their rows, which wrap around."""
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(rows, dtype=np.uint64)])
    return sums[indptr[1:]] - sums[indptr[:-1]]


def _row_keys(log: ClickLog, lists: TrainingLists) -> AnyArray:
    """(documents,) a hash of the query, the document and its features."""
    shown = np.flatnonzero(np.bincount(log.document, minlength=log.n_documents) > 0)
    query = id_hashes(log.query_id)[log.doc_query[shown]]
    document, version = id_hashes(log.doc_id[shown]), row_hashes(lists.features).astype(np.uint64)
    return _mixed(_mixed(query) + GOLDEN * document + MULTIPLIER * version)


class WorkersObjective(PairTreeObjective):
    """Lambdas of this worker's documents, by a table that all workers learn together."""

    def __init__(
        self,
        *parts: Any,
        group: Group,
        key: AnyArray,
        totals: dict[str, int],
        share: float,
        seed: int,
        depth: int,
    ) -> None:
        super().__init__(*parts)
        self._group, self._key, self._totals = group, key, totals
        self._share, self._seed, self._depth = share, seed, max(1, depth)
        self._round = 0

    def __call__(self, scores: FloatArray, dataset: object = None) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """Gradient and hessian of a round, on the grid that all workers share."""
        if self._learned is not None and self._round:
            self._learned.update(self._all_losses(np.asarray(scores, dtype=float)))
        result = self._objective.evaluate(scores, self._table)
        kept = self._sampled()
        self._round += 1
        both = [np.where(kept, each, 0.0) for each in (result.gradient, result.hessian)]
        largest = self._group.max([np.abs(each).max(initial=0.0) for each in both])
        n = self._totals["documents"]
        gradient, hessian = (
            on_grid(each, float(top), n).astype(np.float32).astype(float)
            for each, top in zip(both, largest, strict=True)
        )
        return gradient, hessian

    def has_pairs(self) -> bool:
        """Whether any worker has a pair to learn from."""
        hessian = self._objective.evaluate(np.zeros(len(self._key)), self._table).hessian
        return bool(self._group.max([hessian.max(initial=0.0)])[0] > 0)

    def _sampled(self) -> AnyArray:
        """Which rows this round learns from."""
        if self._share >= 1:
            return np.ones(len(self._key), dtype=bool)
        salt = np.array([self._seed * 1_000_003 + self._round], dtype=np.int64).view(np.uint64)
        below = np.uint64(min(int(self._share * 2.0**64), 2**64 - 1))
        return np.asarray(_mixed(self._key ^ _mixed(salt)) < below)

    def _all_losses(self, scores: FloatArray) -> FloatArray:
        """S[k, l] of all workers: each query's table in whole steps of a common size, summed."""
        objective, K = self._objective, self._depth
        assert isinstance(objective, PairObjective)
        at_once = max(1, _TABLES // (8 * K * K))

        def tables() -> Iterator[tuple[IntArray, FloatArray]]:
            return objective.losses_by_query(scores, at_once)

        kept = list(tables()) if len(objective.slates.query_ptr) <= at_once else None
        most = max((S.max(initial=0.0) for _, S in kept or tables()), default=0.0)
        bits = 61 - math.ceil(math.log2(max(2, 2 * self._totals["queries"])))
        step = math.ldexp(1.0, exponent(float(self._group.max([most])[0])) - bits)
        whole = np.zeros((K, K), dtype=np.int64)
        for shown, S in kept or tables():
            whole[np.ix_(shown, shown)] += np.rint(S / step).astype(np.int64).sum(axis=0)
        summed: FloatArray = self._group.sum(whole) * np.float64(step)
        return summed


def _boosted(
    ranker: LambdaMART, part: Part, edges: Edges, max_bin: int, params: Mapping[str, Any]
) -> Any:
    """XGBoost's booster on bin numbers."""
    import xgboost

    own = {
        "tree_method": "hist", "grow_policy": "lossguide", "max_depth": 0,
        "max_leaves": ranker.n_leaves, "learning_rate": ranker.learning_rate,
        "min_child_weight": ranker.min_sum_hessian_in_leaf, "reg_lambda": 0.0,
        "colsample_bytree": ranker.feature_fraction, "seed": ranker.seed, "base_score": 0.0,
        "max_bin": max_bin + 1, "disable_default_eval_metric": True, "verbosity": 0,
    }  # fmt: skip
    if ranker.n_threads is not None:
        own["nthread"] = ranker.n_threads
    n_trees = int(ranker.n_trees)
    with progress(f"growing {n_trees} trees", total=n_trees) as advance:
        try:
            matrix = xgboost.QuantileDMatrix(edges.bins(part.lists.features), max_bin=max_bin + 1)
            return xgboost.train(
                {**own, **params}, matrix, n_trees, obj=part.objective,
                callbacks=[_Advance(advance)],
            )  # fmt: skip
        except xgboost.core.XGBoostError as refused:
            first = next(iter(str(refused).strip().splitlines()), "")
            raise OptionError(
                f"XGBoost refused to train: {first}. Check xgboost_params={dict(params)!r}, and "
                "whether a worker was lost."
            ) from refused


def _Advance(advance: Any) -> Any:  # noqa: N802  a class of XGBoost's, made where it is loaded
    import xgboost

    class Advance(xgboost.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002
            advance()
            return False

    return Advance()


def _fitted(
    ranker: LambdaMART, log: ClickLog, part: Part, edges: Edges, booster: Any, group: Group
) -> LambdaMART:
    """A copy of the ranker with these trees."""
    import lightgbm

    text, missing = lightgbm_text(booster.save_raw("json"), edges), part.lists.missing
    if missing == "keep":
        text = text_with_missing_direction(text, edges.median, ~edges.missing)
    elif missing is not None:
        value = np.full(len(edges.median), np.float64(np.float32(missing)))
        text = text_with_missing_direction(text, value, np.ones(len(value), dtype=bool))
    found: LambdaMART = clone(ranker)
    found.booster_ = lightgbm.Booster(model_str=text)
    found.n_trees_ = booster.num_boosted_rounds()
    found.watched_ = ()
    found.feature_names_, found.missing_ = part.lists.feature_names, missing
    found.bias_ = part.objective.bias(found.n_trees_)
    found.bias_history_ = part.objective.history
    found.summary_ = {
        **part.lists.summary(ranker.weighting), **part.totals,
        "objective": PAIRS, "trees": found.n_trees_,
    }  # fmt: skip
    found.trained_on_, found.validated_on_ = _remembered(seen_in(log, found), group), None
    return found


def _remembered(own: SeenQueries, group: Group) -> SeenQueries:
    """The queries of all workers."""
    query = group.gather(own.query.view(np.int64)).view(np.uint64)
    document = group.gather(own.document.astype(np.int64)).astype(np.uint32)
    (n,) = group.sum([len(own)])
    order = np.argsort(query, kind="stable")[:MOST]
    return SeenQueries(query[order], document[order], int(n))


# ---- XGBoost's trees over bin numbers as LightGBM's text over features, which every ranker holds
# XGBoost sends a row left where its bin is below the threshold, rows without a value the default
# way. A split of known against missing values has its threshold above or below all bins.


# Bits of LightGBM's decision_type: NaN goes left, and NaN is known as NaN.
_LEFT, _KNOWS_NAN = 2, 8


def lightgbm_text(model: bytes | bytearray, edges: Edges) -> str:
    """The text of a model that XGBoost saved as JSON."""
    learner = json.loads(model.decode())["learner"]
    trees = learner["gradient_booster"]["model"]["trees"]
    d = len(edges.of_feature)
    head = [
        "tree", "version=v4", "num_class=1", "num_tree_per_iteration=1", "label_index=0",
        f"max_feature_idx={d - 1}", "objective=custom",
        "feature_names=" + " ".join(f"Column_{j}" for j in range(d)),
        "feature_infos=" + " ".join(_range(edges, j) for j in range(d)), "",
    ]  # fmt: skip
    body = [_tree(tree, number, edges) for number, tree in enumerate(trees)]
    return "\n".join([*head, *body, "end of trees", "", "parameters:", "end of parameters", ""])


def _range(edges: Edges, feature: int) -> str:
    """LightGBM's note of what a feature was; "none" where it never varied."""
    values = edges.of_feature[feature]
    return f"[{float(values[0])!r}:{float(values[-1])!r}]" if len(values) else "none"


def _tree(tree: dict[str, Any], number: int, edges: Edges) -> str:
    left, right = tree["left_children"], tree["right_children"]
    inner = [node for node in _nodes_in_order(left, right) if left[node] != -1]
    leaves = [node for node in _nodes_in_order(left, right) if left[node] == -1]
    name = {node: place for place, node in enumerate(inner)}
    name |= {node: ~place for place, node in enumerate(leaves)}
    splits = [_split(tree, node, edges) for node in inner]
    children = [
        (right[node], left[node]) if turned else (left[node], right[node])
        for node, (_, _, turned) in zip(inner, splits, strict=True)
    ]
    columns: dict[str, list[Any]] = {
        "split_feature": [tree["split_indices"][node] for node in inner],
        "split_gain": [_number(tree["loss_changes"][node]) for node in inner],
        "threshold": [_number(threshold) for threshold, _, _ in splits],
        "decision_type": [kind for _, kind, _ in splits],
        "left_child": [name[first] for first, _ in children],
        "right_child": [name[second] for _, second in children],
        # In place of its threshold a leaf has its value, the learning rate in it: a single float.
        "leaf_value": [_number(np.float32(tree["split_conditions"][node])) for node in leaves],
        "leaf_weight": [_number(tree["sum_hessian"][node]) for node in leaves],
        "leaf_count": [0] * len(leaves),
        "internal_value": [_number(tree["base_weights"][node]) for node in inner],
        "internal_weight": [_number(tree["sum_hessian"][node]) for node in inner],
        "internal_count": [0] * len(inner),
    }
    lines = [f"Tree={number}", f"num_leaves={len(leaves)}", "num_cat=0"]
    lines += [f"{key}={' '.join(map(str, values))}" for key, values in columns.items()]
    return "\n".join([*lines, "is_linear=0", "shrinkage=1", "", ""])


def _nodes_in_order(left: list[int], right: list[int]) -> list[int]:
    """All nodes that the root reaches, parents before their children."""
    order, at = [0], 0
    while at < len(order):
        node = order[at]
        if left[node] != -1:
            order += [left[node], right[node]]
        at += 1
    return order


def _split(tree: dict[str, Any], node: int, edges: Edges) -> tuple[float, int, bool]:
    """Threshold, kind of decision, and whether left and right are exchanged."""
    feature = tree["split_indices"][node]
    below = math.ceil(tree["split_conditions"][node])  # bins below this number go left
    nan_left = bool(tree["default_left"][node])
    turned = below <= 0  # all that is known goes right: written as all that is known goes left
    if turned:
        nan_left = not nan_left
    past_all = turned or below > len(edges.of_feature[feature])
    threshold = math.inf if past_all else edges.threshold(feature, below)
    return threshold, _KNOWS_NAN + _LEFT * nan_left, turned


def _number(value: Any) -> str:
    """The shortest text that gives the same double."""
    return repr(float(value))


# ---- what comes back from workers: a ranker as its own file


def model_bytes(ranker: LambdaMART) -> bytes:
    """The file that `save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ranker.untilt")
        ranker.save(path)
        return path.read_bytes()


def ranker_of(models: Sequence[bytes]) -> LambdaMART:
    """The ranker that the first worker sent."""
    if len(models) != 1:
        raise OptionError(f"one worker sends the ranker, and {len(models)} did. Look at its log.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ranker.untilt")
        path.write_bytes(models[0])
        found = load(path)
    assert isinstance(found, LambdaMART)
    return found
