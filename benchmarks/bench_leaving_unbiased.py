"""The same clicks in XGBoost and LightGBM: their own correction for position, and our objective.

Every model gets the same rows, one per impression with a group per session, the same parameters and
as many trees; only the objective differs. Readers and old rankers are those of quality_world.py,
which takes nothing from the package but the classes that hold a log. Each seed draws a new set of
queries, new old rankers and new clicks; NDCG@10 is by the labels of other queries. The difference
to the library's own correction is paired by seed, and its standard error is over seeds.

    python benchmarks/bench_leaving_unbiased.py             all seeds, 20 and 100 sessions a query
    python benchmarks/bench_leaving_unbiased.py --seeds 2   fewer
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import xgboost
from _harness import save, table
from quality_rows import every_session, peer_rows
from quality_world import Setting, World, make_world

import untilt as ut

SETTINGS = (Setting(queries=150, sessions=20), Setting(queries=150, sessions=100))
SEEDS = 5
TREES = 100
XGB = {
    "tree_method": "hist", "max_leaves": 31, "max_depth": 0, "grow_policy": "lossguide",
    "eta": 0.05, "subsample": 0.9, "colsample_bytree": 0.9, "nthread": 1, "verbosity": 0,
}  # fmt: skip
XGB_RANK = {
    "objective": "rank:ndcg", "lambdarank_pair_method": "topk",
    "lambdarank_num_pair_per_sample": 10,
}  # fmt: skip
LGB = {
    "learning_rate": 0.05, "num_leaves": 31, "feature_fraction": 0.9, "bagging_fraction": 0.9,
    "bagging_freq": 1, "num_threads": 1, "verbosity": -1,
}  # fmt: skip
Scores = Callable[[Any], Any]


class Rows:
    """The rows that all models of a world share, and the curve measured from its log."""

    def __init__(self, world: World) -> None:
        self.world = world
        rows = peer_rows(world.log, every_session(world.log))
        self.features, self.clicks, self.group, self.position = rows
        self.bias = ut.AllPairs().fit(world.log).bias_

    def xgboost(self, obj: Any = None, **params: Any) -> Scores:
        data = xgboost.DMatrix(self.features, self.clicks, nthread=1)
        data.set_group(self.group)
        given = {**XGB, "seed": self.world.seed, **params}
        if obj is not None:
            given["disable_default_eval_metric"] = True
        booster = xgboost.train(given, data, num_boost_round=TREES, obj=obj)
        return lambda rows: booster.predict(xgboost.DMatrix(rows, nthread=1))

    def lightgbm(self, objective: Any, *, position: bool = True) -> Scores:
        where = self.position if position else None
        data = lightgbm.Dataset(self.features, self.clicks, group=self.group, position=where)
        params = {**LGB, "seed": self.world.seed, "objective": objective}
        booster = lightgbm.train(params, data, num_boost_round=TREES)
        return lambda rows: booster.predict(rows, num_threads=1)

    def on_documents(self, library: str, weighting: Any) -> Scores:
        """Our objective on a row per document: the log knows which rows are the same document."""
        log = self.world.log
        objective = ut.objective(log, weighting)
        if library == "LightGBM":
            params = {**LGB, "seed": self.world.seed, "objective": objective}
            booster = lightgbm.train(params, ut.lightgbm_dataset(log), num_boost_round=TREES)
            return lambda rows: booster.predict(rows, num_threads=1)
        params = {**XGB, "seed": self.world.seed, "disable_default_eval_metric": True}
        trees = xgboost.train(params, ut.xgboost_matrix(log), TREES, obj=objective)
        names = list(log.feature_names)
        return lambda rows: trees.predict(xgboost.DMatrix(rows, feature_names=names, nthread=1))

    def auto(self) -> Scores:
        """What the package itself would train, written as a model of XGBoost and scored by it."""
        ranker = ut.LambdaMART("auto", bias=self.bias, n_threads=1, seed=self.world.seed)
        ranker.fit(self.world.log)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.json"
            ut.export_model(ranker, path, "xgboost")
            trees = xgboost.Booster(model_file=path)
        return lambda rows: trees.predict(
            xgboost.DMatrix(rows, feature_names=trees.feature_names, nthread=1)
        )


# name -> (library, how to train); the first of a library is what others are compared with.
XGBOOST, LIGHTGBM = "XGBoost", "LightGBM"
MODELS: dict[str, tuple[str, Callable[[Rows], Scores]]] = {
    "lambdarank_unbiased": (XGBOOST, lambda r: r.xgboost(**XGB_RANK, lambdarank_unbiased=True)),
    "rank:ndcg": (XGBOOST, lambda r: r.xgboost(**XGB_RANK)),
    "xgboost_objective(PairwiseDebiasing())": (
        XGBOOST,
        lambda r: r.xgboost(ut.xgboost_objective(ut.PairwiseDebiasing())),
    ),
    "xgboost_objective(PRS(bias))": (
        XGBOOST,
        lambda r: r.xgboost(ut.xgboost_objective(ut.PRS(r.bias))),
    ),
    "objective(log, DoublyRobust(bias)), XGBoost": (
        XGBOOST,
        lambda r: r.on_documents(XGBOOST, ut.DoublyRobust(r.bias)),
    ),
    "LambdaMART('auto', bias=bias)": (XGBOOST, Rows.auto),
    "lambdarank, position": (LIGHTGBM, lambda r: r.lightgbm("lambdarank")),
    "lambdarank": (LIGHTGBM, lambda r: r.lightgbm("lambdarank", position=False)),
    "lightgbm_objective(PRS(bias))": (
        LIGHTGBM,
        lambda r: r.lightgbm(ut.lightgbm_objective(ut.PRS(r.bias)), position=False),
    ),
    "objective(log, DoublyRobust(bias)), LightGBM": (
        LIGHTGBM,
        lambda r: r.on_documents(LIGHTGBM, ut.DoublyRobust(r.bias)),
    ),
}


def ndcg(world: World, scores: Any) -> float:
    return float(ut.evaluate(world.test, scores, "ndcg@10")["ndcg@10"].value)


def measured(setting: Setting, seed: int) -> dict[str, dict[str, float]]:
    """NDCG@10 and CPU seconds of training, by model."""
    world = make_world(setting, seed)
    rows, found = Rows(world), {}
    for name, (_, train) in MODELS.items():
        start = time.process_time()
        scorer = train(rows)
        seconds = time.process_time() - start
        found[name] = {"ndcg": ndcg(world, scorer(world.test.features)), "seconds": seconds}
    old = float(np.mean([ndcg(world, each) for each in world.old]))
    found["old rankers"] = {"ndcg": old, "seconds": 0.0}
    print(
        f"{setting.name}, seed {seed}:",
        {name: round(each["ndcg"], 4) for name, each in found.items()},
        flush=True,
    )
    return found


def summary(by_seed: list[dict[str, dict[str, float]]]) -> list[dict[str, Any]]:
    rows, first = [], {}
    for name, (library, _) in MODELS.items():
        values = np.array([found[name]["ndcg"] for found in by_seed])
        against = first.setdefault(library, values)
        difference = values - against
        error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(values) > 1 else np.nan
        rows.append({
            "library": library, "objective": name, "ndcg@10": float(values.mean()),
            "difference": float(difference.mean()), "std_error": float(error),
            "cpu_seconds": float(np.mean([found[name]["seconds"] for found in by_seed])),
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=SEEDS)
    seeds = range(parser.parse_args().seeds)
    results = []
    for setting in SETTINGS:
        by_seed = [measured(setting, seed) for seed in seeds]
        rows = summary(by_seed)
        table(list(rows[0]), [list(row.values()) for row in rows])
        old = float(np.mean([found["old rankers"]["ndcg"] for found in by_seed]))
        results.append({
            "setting": setting.name, "seeds": len(by_seed), "trees": TREES, "old_rankers": old,
            "rows": rows, "by_seed": by_seed,
        })  # fmt: skip
    found = {"settings": results}
    print(save("leaving_unbiased", found, seed=0, packages=("xgboost-cpu", "lightgbm")))


if __name__ == "__main__":
    main()
