"""The rows of bench_quality.py: who learns from a world's log, and how its test queries are scored.

A row gives scores of the test documents for one or several numbers of trees. Where it gives
several, prefixes of one training, the *better by test NDCG* counts. Raw clicks, the peers, human
labels and every single method of ours get this advantage: 100 or 300 trees, and for the peers the
number at which they stop early on the clicks of a fifth of the queries. `auto` and what `run` ships
do not: they have to find their trees in the clicks.

The position bias is the one that `untilt.run` uses on the log: what its audit advises, estimated
without the test part of the run, or its assumed curve where the log cannot tell. The methods of
ours take it, and CatBoost's pairs; LightGBM and XGBoost learn their own.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from quality_world import Array, World, ndcg_by_query, old_rank

import untilt as ut
from untilt import catalog
from untilt.workflow.candidates import make_candidate
from untilt.workflow.options import RunOptions

RAW, LABELS, SHOWN_LABELS = "raw clicks", "labels", "labels of shown"
OLD, BEST_LOGGED = "old rankers", "best logged ranker"
LIGHTGBM_RAW, LIGHTGBM, XGBOOST = "LightGBM raw", "LightGBM position", "XGBoost unbiased"
CATBOOST, CATBOOST_PAIRS = "CatBoost YetiRank", "CatBoost pairs"
AUTO, RUN = "auto", "run"
PEERS = (LIGHTGBM_RAW, LIGHTGBM, XGBOOST, CATBOOST, CATBOOST_PAIRS)
# Neither ours nor learnt from our tables or curves.
OUTSIDE = (LABELS, SHOWN_LABELS, OLD, BEST_LOGGED, LIGHTGBM_RAW, LIGHTGBM, XGBOOST, CATBOOST)
TREES = (100, 300)
PATIENCE = 30  # trees without gain on the held-out clicks, before a peer stops
HELD_OUT = 5  # a peer stops by every fifth query
# LightGBM and XGBoost take a row per impression. Above this many LightGBM gets equal sessions
# merged, with their number as weight and none without a click, which gives the same pairs, and
# XGBoost, whose bias ignores weights, as many sessions with a click as fit, drawn by chance
# (`--check-peers`).
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
    """What the rows of one world share: the bias that a run uses on it."""

    world: World

    @cached_property
    def bias(self) -> ut.PositionBias:
        """A run that trains next to nothing finds the same as the whole one."""
        raw = catalog.default("weighting").name
        return self._run(lambda result: result.bias, method=raw, trees=10)

    def shipped(self) -> Scored:
        """What `untilt.run` ships, by its own rules on the log alone."""
        return self._run(self._shipped)

    def _run(self, use: Callable[[ut.RunResult], Any], **options: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            result = ut.run(
                self.world.log, Path(folder) / "run", threads=1, seed=self.world.seed, **options
            )
            self.bias = result.bias
            return use(result)

    def _shipped(self, result: ut.RunResult) -> Scored:
        training = result.decision.training
        about = {
            "chosen": None if training is None else training.chosen,
            "bias": result.bias_kind, "by": result.bias.method,
            "ships": result.ranker is not None,
        }  # fmt: skip
        orders = shipped_scores(result, self.world)
        found = [ndcg_by_query(self.world.test, each) for each in orders]
        return Scored(np.mean(found, axis=0), about=about)

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

    def logged(self) -> list[Scored]:
        """Each of the rankers that made the lists."""
        return [self._scored(scores) for scores in self.world.old]

    def old(self) -> Scored:
        """Their mean."""
        return Scored(np.mean([each.ndcg for each in self.logged()], axis=0))

    def best_logged(self) -> Scored:
        """The one that is truly best: nothing that ships should be below it."""
        return max(self.logged(), key=lambda each: float(each.ndcg.mean()))

    def peer(self, train: "Peer") -> Scored:
        predict, own = train(self.world)
        return self._best({n: predict(self.world.test.features, n) for n in {*TREES, own}})

    def catboost_pairs(self) -> Scored:
        """CatBoost on pairs with the weights of PRS."""
        table = ut.weightings.PRS(self.bias).table(self.log.depth)
        return self.peer(lambda _: catboost_ranker(self.log, self.world.seed, table))

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


def rows(*, single: bool = False, every: bool = False) -> dict[str, Callable[[Fits], Scored]]:
    """All rows by name, `run` first: it finds the bias. `single` adds methods, `every` rarer ones.

    CatBoost is left out where it is not installed.
    """
    made: dict[str, Callable[[Fits], Scored]] = {
        RUN: Fits.shipped,
        AUTO: Fits.auto,
        RAW: Fits.raw,
        LIGHTGBM_RAW: lambda fits: fits.peer(partial(lightgbm_lambdarank, position=False)),
        LIGHTGBM: lambda fits: fits.peer(lightgbm_lambdarank),
        XGBOOST: lambda fits: fits.peer(xgboost_unbiased),
    }
    if find_spec("catboost"):
        made[CATBOOST] = lambda fits: fits.peer(lambda w: catboost_ranker(w.log, w.seed))
        made[CATBOOST_PAIRS] = Fits.catboost_pairs
    for name in single_methods(every=every) if single or every else ():
        made[name] = lambda fits, name=name: fits.single(name)
    made |= {LABELS: Fits.labels, SHOWN_LABELS: Fits.shown_labels}
    return made | {OLD: Fits.old, BEST_LOGGED: Fits.best_logged}


def shipped_scores(result: ut.RunResult, world: World) -> list[Array]:
    """Scores of the test documents by what the run ships, for each order that they may arrive in.

    That is its ranker, or where it ships none the order of the logged rankers that stay: the one
    that the run calls the best, else all. A ranker that uses the order in which documents arrive
    takes it as the feature `old_rank`.
    """
    ranker, log, test = result.ranker, world.log, world.test
    best = getattr(result.decision, "best_logged", None)
    arriving = [world.old[log.ranker_names.index(best)]] if best else list(world.old)
    if ranker is None:
        return arriving

    def scores(order: Array) -> Array:
        columns = dict(zip(log.feature_names, test.features.T, strict=True))
        columns["old_rank"] = old_rank(test, order)
        return ranker.predict(np.column_stack([columns[each] for each in ranker.feature_names_]))

    return [scores(order) for order in arriving]


def single_methods(*, every: bool) -> Iterator[str]:
    """Every objective, weightings that are tried unasked (`every`: all), and the linear ranker."""
    for record in catalog.methods("objective", choose="train"):
        if record.name != AUTO:
            yield record.name
    for record in catalog.methods("weighting", choose="run"):
        usual = "usual in select" in record.choose
        if not record.default and "trust" not in record.needs and (every or usual):
            yield record.name
    yield catalog.find("ranker", "linear").name


def timed(row: Callable[[Fits], Scored], fits: Fits) -> tuple[Scored, float]:
    start = time.process_time()
    scored = row(fits)
    return scored, time.process_time() - start


# ---- peers

# Trained on a world: scores of rows by the first n trees, and the number it would stop at.
Peer = Callable[[World], tuple[Callable[[Array, int], Array], int]]


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


def parts(log: ut.ClickLog, lists: Array) -> tuple[Array, Array]:
    """The lists that a peer learns from, and those that it stops by."""
    held = log.query[lists] % HELD_OUT == 0
    return lists[~held], lists[held]


def lightgbm_lambdarank(
    world: World, *, position: bool = True, merged: bool | None = None
) -> tuple[Callable[[Array, int], Array], int]:
    """LightGBM's lambdarank, with `position` or on raw clicks.

    `merged`: equal sessions are one list, their number the weight of its rows, and none without a
    click. Its lambdas and its bias are sums over rows times weight, so this changes neither. What
    does see rows is made to see nearly the same as with a row per impression: bins come from the
    documents, and the smallest leaf shrinks with the number of rows. The tenth of rows that each
    tree leaves out is one of merged rows, a stronger draw.
    """
    import lightgbm

    log = world.log
    merged = log.n_impressions > PEER_ROWS if merged is None else merged
    lists = clicked_lists(log) if merged else every_session(log)
    params = {"objective": "lambdarank", "eval_at": 10, **SAMPLED}
    params |= {"verbosity": -1, "num_threads": 1, "seed": world.seed}
    bins = None
    if merged:
        n_rows = np.diff(log.indptr)[lists].sum()
        params["min_data_in_leaf"] = max(1, round(20 * n_rows / log.n_impressions))
        documents = np.repeat(np.unique(log.document), 3)  # a bin wants three rows
        assert log.features is not None
        bins = lightgbm.Dataset(log.features[documents], params=params)

    def data(lists: Array, reference: Any) -> Any:
        features, labels, group, place = peer_rows(log, lists)
        return lightgbm.Dataset(
            features, labels, group=group, position=place if position else None,
            weight=np.repeat(log.count[lists].astype(float), group) if merged else None,
            reference=reference, params=params,
        )  # fmt: skip

    first, held = parts(log, lists)
    train = data(first, bins)
    own = lightgbm.train(
        params, train, TREES[-1], valid_sets=[data(held, train)],
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
    ).best_iteration  # fmt: skip
    booster = lightgbm.train(params, data(lists, bins), TREES[-1])
    return lambda rows, n: booster.predict(rows, num_iteration=n, num_threads=1), own


def xgboost_unbiased(
    world: World, *, most_rows: int = PEER_ROWS
) -> tuple[Callable[[Array, int], Array], int]:
    """XGBoost's rank:ndcg with lambdarank_unbiased."""
    import xgboost

    log, lists = world.log, every_session(world.log)
    if log.n_impressions > most_rows:
        lists = lists[np.isin(lists, clicked_lists(log))]
        share = most_rows / np.diff(log.indptr)[lists].sum()
        lists = lists[np.random.default_rng(world.seed).random(len(lists)) < share]
    params = {"objective": "rank:ndcg", "lambdarank_unbiased": True, "eta": 0.05}
    params |= {"tree_method": "hist", "max_leaves": 31, "max_depth": 0, "grow_policy": "lossguide"}
    params |= {"lambdarank_pair_method": "topk", "lambdarank_num_pair_per_sample": 10}
    params |= {"subsample": 0.9, "colsample_bytree": 0.9, "seed": world.seed}
    params |= {"nthread": 1, "verbosity": 0, "eval_metric": "ndcg@10"}

    def data(lists: Array) -> Any:
        features, labels, group, _ = peer_rows(log, lists)
        return xgboost.DMatrix(features, labels, group=group, nthread=1)

    first, held = map(data, parts(log, lists))
    own = xgboost.train(
        params, first, TREES[-1], evals=[(held, "held")], early_stopping_rounds=PATIENCE,
        verbose_eval=False,
    ).best_iteration  # fmt: skip
    booster = xgboost.train(params, data(lists), num_boost_round=TREES[-1])
    return (
        lambda rows, n: booster.predict(xgboost.DMatrix(rows, nthread=1), iteration_range=(0, n)),
        own + 1,
    )


def catboost_ranker(
    log: ut.ClickLog, seed: int, table: Array | None = None
) -> tuple[Callable[[Array, int], Array], int]:
    """CatBoost with a row per shown document: YetiRank on its rate of clicks.

    With a `table` of pair weights: PairLogit on clicked against unclicked documents of a session,
    each pair with its weights summed over sessions.
    """
    from catboost import CatBoost, Pool

    assert log.features is not None
    count = np.repeat(log.count, np.diff(log.indptr))
    clicks = np.bincount(log.document, count * log.label, log.n_documents)
    shown = np.bincount(log.document, count, log.n_documents)
    rate = clicks / np.maximum(shown, 1)
    sessions = np.bincount(log.query, log.count, log.n_queries)
    pairs = None if table is None else document_pairs(log, table)

    def pool(queries: Array) -> Any:
        rows = np.flatnonzero((shown > 0) & queries[log.doc_query])
        group = log.doc_query[rows]
        rest: dict[str, Any] = {"group_weight": sessions[group] / sessions.mean()}
        if pairs is not None:
            pair, weight = pairs
            kept = queries[log.doc_query[pair[:, 0]]]
            rest = {"pairs": np.searchsorted(rows, pair[kept]), "pairs_weight": weight[kept]}
        return Pool(log.features[rows], rate[rows], group_id=group, **rest)

    loss = "YetiRank" if table is None else "PairLogit"
    params = {"loss_function": loss, "eval_metric": "NDCG:top=10", "iterations": TREES[-1]}
    params |= {"learning_rate": 0.05, "random_seed": seed, "thread_count": 1, "verbose": False}
    params |= {"allow_writing_files": False}
    held = np.arange(log.n_queries) % HELD_OUT == 0
    first = CatBoost(params).fit(
        pool(~held), eval_set=pool(held), early_stopping_rounds=PATIENCE, use_best_model=False
    )
    model = CatBoost(params).fit(pool(np.ones_like(held)))
    return (
        lambda rows, n: model.predict(rows, ntree_end=n, thread_count=1),
        first.get_best_iteration() + 1,
    )


def document_pairs(log: ut.ClickLog, table: Array) -> tuple[Array, Array]:
    """Pairs (winner, loser) of documents, and the sum over sessions of each one's weights."""
    slates = log.slates()
    order = np.argsort(slates.group_of_list, kind="stable")
    pairs, weights = [], []
    for lists in np.split(order, np.flatnonzero(np.diff(slates.group_of_list[order])) + 1):
        rows = log.indptr[lists][:, None] + np.arange(np.diff(log.indptr)[lists[0]])
        clicked, place = log.label[rows] > 0, log.position[rows[0]] - 1
        summed = (clicked * log.count[lists][:, None]).T @ ~clicked * table[np.ix_(place, place)]
        winner, loser = np.nonzero(summed)
        document = log.document[rows[0]]
        pairs.append(np.column_stack([document[winner], document[loser]]))
        weights.append(summed[winner, loser])
    found, group = np.unique(np.concatenate(pairs), axis=0, return_inverse=True)
    return found, np.bincount(group.ravel(), np.concatenate(weights))
