"""The rows of bench_quality.py: who learns from a world's log, and how its test queries are scored.

A row gives scores of the test documents for one or several numbers of trees. Where it gives
several, prefixes of one training, the *better by test NDCG* counts. Raw clicks, the peers, human
labels and every single method of ours get this advantage; `auto` and what `run` ships do not: they
have to find their trees in the clicks.

The position bias is the one that `untilt.run` uses on the log: what its audit advises, estimated
without the test part of the run, or its assumed curve where the log cannot tell. The methods of
ours take it; the peers learn their own.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from quality_world import Array, World, ndcg_by_query

import untilt as ut
from untilt import catalog
from untilt.workflow.candidates import make_candidate
from untilt.workflow.options import RunOptions

RAW, LABELS, SHOWN_LABELS, OLD = "raw clicks", "labels", "labels of shown", "old rankers"
LIGHTGBM, XGBOOST = "LightGBM position", "XGBoost unbiased"
AUTO, RUN = "auto", "run"
PEERS = (LIGHTGBM, XGBOOST)
OUTSIDE = (LABELS, SHOWN_LABELS, OLD, *PEERS)  # neither ours nor learnt from our tables
TREES = (100, 300)
# The peers take a row per impression. Above this many LightGBM gets equal sessions merged, with
# their number as weight and none without a click, which gives the same pairs, and XGBoost, whose
# bias ignores weights, as many sessions with a click as fit, drawn by chance (`--check-peers`).
PEER_ROWS = 300_000
SAMPLED = {"learning_rate": 0.05, "num_leaves": 31, "feature_fraction": 0.9}
SAMPLED |= {"bagging_fraction": 0.9, "bagging_freq": 1}


@dataclass(frozen=True)
class Scored:
    """NDCG@10 of each test query, the trees that gave it, and what is worth knowing of the fit."""

    ndcg: Array
    trees: int | None = None
    about: dict[str, Any] = field(default_factory=dict)


@dataclass
class Fits:
    """What the rows of one world share: the run, and the bias that it used.

    The bias is kept in `bias_file`, so that rows of a later start need no run of their own.
    """

    world: World
    bias_file: Path

    @cached_property
    def shipped(self) -> Scored:
        """What `untilt.run` ships, by its own rules on the log alone."""
        with tempfile.TemporaryDirectory() as folder:
            result = ut.run(self.world.log, Path(folder) / "run", threads=1, seed=self.world.seed)
            result.bias.save(self.bias_file)
            ranker, training = result.ranker, result.decision.training
        assert training is not None
        about = {"chosen": training.chosen, "bias": result.bias_kind, "by": result.bias.method}
        about["ships"] = result.decision.ships
        test, old = self.world.test, self.world.old[int(result.decision.best_logged or 0)]
        if ranker is None:
            return self._scored(old, about=about)
        order = np.lexsort((-old, np.repeat(np.arange(test.n_queries), np.diff(test.indptr))))
        rank = np.empty(len(old))
        rank[order] = np.arange(len(old)) - np.repeat(test.indptr[:-1], np.diff(test.indptr)) + 1
        takes_rank = len(ranker.feature_names_) > test.features.shape[1]
        rows = np.column_stack([test.features, rank]) if takes_rank else test.features
        return self._scored(ranker.predict(rows), about=about)

    @cached_property
    def bias(self) -> ut.PositionBias:
        """What the run used; a run that trains next to nothing finds the same."""
        if not self.bias_file.exists():
            raw = catalog.default("weighting").name
            with tempfile.TemporaryDirectory() as folder:
                result = ut.run(
                    self.world.log, Path(folder) / "run", threads=1, seed=self.world.seed,
                    method=raw, trees=10,
                )  # fmt: skip
                result.bias.save(self.bias_file)
        return ut.PositionBias.load(self.bias_file)

    @cached_property
    def log(self) -> ut.ClickLog:
        """As far down as the bias is known."""
        return self.world.log.top(self.bias.depth)

    def single(self, method: str) -> Scored:
        """A weighting, objective or ranker of the catalogue."""
        return self._best_prefix(
            make_candidate(method, self.bias, trees=TREES[-1], threads=1, seed=self.world.seed),
            self.log,
        )

    def raw(self) -> Scored:
        """The same trees on clicks as they stand, on the whole log."""
        return self._best_prefix(self._trees(), self.world.log)

    def auto(self) -> Scored:
        """As a run would train it, on all queries."""
        trees = RunOptions().trees
        ranker: Any = make_candidate(
            AUTO, self.bias, trees=trees, threads=1, seed=self.world.seed
        ).fit(self.log)
        about = {"choice": str(ranker.choice_)[:300], "trees": int(ranker.n_trees_)}
        return self._scored(ranker.predict(self.world.test.features), about=about)

    def labels(self) -> Scored:
        return self._best_prefix(self._trees(), self.world.train)

    def shown_labels(self) -> Scored:
        """The most that clicks could say: the labels of what was shown, as far as readers click by
        them. Under "prs" that is two grades, whatever the labels are.
        """
        told, worth = self.world.shown_train, self.world.worth[self.world.shown]
        if self.world.setting.protocol == "prs":
            two_grades = (worth > worth.min()).astype(float)
            told = ut.JudgedLists(told.features, two_grades, told.indptr, told.query_id)
        return self._best_prefix(self._trees(), told)

    def old(self) -> Scored:
        """The mean of the rankers that made the lists."""
        each = [ndcg_by_query(self.world.test, scores) for scores in self.world.old]
        return Scored(np.mean(each, axis=0))

    def peer(self, train: Callable[[World], Callable[[Array, int], Array]]) -> Scored:
        predict = train(self.world)
        return self._best({n: predict(self.world.test.features, n) for n in TREES})

    def _trees(self) -> Any:
        return ut.LambdaMART(n_trees=TREES[-1], n_threads=1, seed=self.world.seed)

    def _best_prefix(self, ranker: Any, data: Any) -> Scored:
        """Better of 100 and 300 trees; what has other trees than those it was asked for counts."""
        ranker.fit(data)
        features = self.world.test.features
        trees = getattr(ranker, "n_trees_", None)
        if trees is None or not trees == ranker.booster_.num_trees() == TREES[-1]:
            return self._scored(ranker.predict(features), trees=trees)
        return self._best({n: ranker.booster_.predict(features, num_iteration=n) for n in TREES})

    def _best(self, scores: dict[int, Array]) -> Scored:
        found = [self._scored(each, trees=n) for n, each in scores.items()]
        return max(found, key=lambda each: float(each.ndcg.mean()))

    def _scored(self, scores: Array, **more: Any) -> Scored:
        return Scored(ndcg_by_query(self.world.test, scores), **more)


def rows(*, every: bool) -> dict[str, Callable[[Fits], Scored]]:
    """All rows by name, `run` first: it finds the bias. `every` adds the rarer weightings."""
    made: dict[str, Callable[[Fits], Scored]] = {
        RUN: lambda fits: fits.shipped,
        AUTO: Fits.auto,
        RAW: Fits.raw,
        LIGHTGBM: lambda fits: fits.peer(lightgbm_position),
        XGBOOST: lambda fits: fits.peer(xgboost_unbiased),
    }
    for name in single_methods(every=every):
        made[name] = lambda fits, name=name: fits.single(name)
    return made | {LABELS: Fits.labels, SHOWN_LABELS: Fits.shown_labels, OLD: Fits.old}


def single_methods(*, every: bool) -> Iterator[str]:
    """Every objective; rankers and weightings that are tried unasked (`every`: all weightings)."""
    for record in catalog.methods("objective", choose="train"):
        if record.name != AUTO:
            yield record.name
    for record in catalog.methods("weighting", choose="run"):
        usual = {"usual", "usual in select"} & set(record.choose)
        if not record.default and "trust" not in record.needs and (every or usual):
            yield record.name
    for record in catalog.methods("ranker", choose="usual"):
        yield record.name


def timed(row: Callable[[Fits], Scored], fits: Fits) -> tuple[Scored, float]:
    start = time.process_time()
    scored = row(fits)
    return scored, time.process_time() - start


# ---- peers


def peer_rows(log: ut.ClickLog, lists: Array) -> tuple[Array, Array, Array, Array]:
    """Features, labels, group sizes and positions: one row per impression of the named lists."""
    plain = log.take(lists, count=np.ones(len(lists), dtype=np.int64))
    assert plain.features is not None
    group = np.diff(plain.indptr)
    return plain.features[plain.document], plain.label.astype(int), group, plain.position - 1


def every_session(log: ut.ClickLog) -> Array:
    return np.repeat(np.arange(log.n_lists), log.count)


def clicked_lists(log: ut.ClickLog) -> Array:
    return np.flatnonzero(np.add.reduceat(log.label > 0, log.indptr[:-1]))


def lightgbm_position(world: World, *, merged: bool | None = None) -> Callable[[Array, int], Array]:
    """LightGBM's lambdarank with `position`."""
    import lightgbm

    log = world.log
    merged = log.n_impressions > PEER_ROWS if merged is None else merged
    params = {"objective": "lambdarank", **SAMPLED}
    params |= {"verbosity": -1, "num_threads": 1, "seed": world.seed}
    if merged:
        data, params = _merged_for_lightgbm(log, params)
    else:
        features, labels, group, position = peer_rows(log, every_session(log))
        data = lightgbm.Dataset(features, labels, group=group, position=position)
    booster = lightgbm.train(params, data, num_boost_round=TREES[-1])
    return lambda rows, n: booster.predict(rows, num_iteration=n, num_threads=1)


def _merged_for_lightgbm(log: ut.ClickLog, params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Equal sessions merged, their number as the weight of their rows, and none without a click.

    Its lambdas and its bias are sums over rows times weight, so this changes neither. What does see
    rows is made to see nearly the same as with a row per impression: bins come from the documents,
    and the smallest leaf shrinks with the number of rows. The tenth of rows that each tree leaves
    out is one of merged rows, a stronger draw.
    """
    import lightgbm

    lists = clicked_lists(log)
    features, labels, group, position = peer_rows(log, lists)
    documents = np.repeat(np.unique(log.document), 3)  # a bin wants three rows
    params |= {"min_data_in_leaf": max(1, round(20 * len(labels) / log.n_impressions))}
    assert log.features is not None
    bins = lightgbm.Dataset(log.features[documents], params=params)
    data = lightgbm.Dataset(
        features, labels, group=group, position=position, reference=bins,
        weight=np.repeat(log.count[lists].astype(float), group), params=params,
    )  # fmt: skip
    return data, params


def xgboost_unbiased(world: World, *, most_rows: int = PEER_ROWS) -> Callable[[Array, int], Array]:
    """XGBoost's rank:ndcg with lambdarank_unbiased."""
    import xgboost

    log, lists = world.log, every_session(world.log)
    if log.n_impressions > most_rows:
        lists = lists[np.isin(lists, clicked_lists(log))]
        share = most_rows / np.diff(log.indptr)[lists].sum()
        lists = lists[np.random.default_rng(world.seed).random(len(lists)) < share]
    features, labels, group, _ = peer_rows(log, lists)
    data = xgboost.DMatrix(features, labels, nthread=1)
    data.set_group(group)
    params = {"objective": "rank:ndcg", "lambdarank_unbiased": True, "eta": 0.05}
    params |= {"tree_method": "hist", "max_leaves": 31, "max_depth": 0, "grow_policy": "lossguide"}
    params |= {"lambdarank_pair_method": "topk", "lambdarank_num_pair_per_sample": 10}
    params |= {"subsample": 0.9, "colsample_bytree": 0.9, "seed": world.seed}
    params |= {"nthread": 1, "verbosity": 0}
    booster = xgboost.train(params, data, num_boost_round=TREES[-1])
    return lambda rows, n: booster.predict(xgboost.DMatrix(rows, nthread=1), iteration_range=(0, n))
