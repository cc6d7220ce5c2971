"""Scoring one request: the kernels of `LambdaMART.predict` against LightGBM, on one thread.

Boosters are trained here on made data of 136 features. The scorers take turns on the same rows, and
the figure is the median CPU time of a call, so that other work on the machine falls on all alike.
onnxruntime and the conversion to its format (`onnx`) are timed where they are installed, and so is
CatBoost, with symmetric trees of its own of as many leaves (a power of two).
"""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any

import lightgbm
import numpy as np
from _harness import save, table

from untilt.rankers.trees.scorer import TreeScorer

N_FEATURES = 136
# trees, leaves: LambdaMART as it is by default; large leaves; a stack as weighting="auto" serves it
MODELS = ((300, 31), (300, 63), (300, 255), (3000, 31), (3000, 8))
ROWS = (10, 100, 1000)


def made(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features, a third of them counts, and a target that trees can learn."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_rows, N_FEATURES)).astype(np.float32)
    features[:, ::3] = np.round(3 * features[:, ::3])
    signal = features[:, :40] @ rng.normal(size=40) + 3 * np.sin(features[:, 0])
    return features, signal + rng.normal(size=n_rows)


def trained(n_trees: int, n_leaves: int, seed: int) -> lightgbm.Booster:
    features, target = made(20_000, seed)
    params = {
        "objective": "regression", "num_leaves": n_leaves, "learning_rate": 0.05, "verbosity": -1,
        "feature_fraction": 0.5, "bagging_fraction": 0.3, "bagging_freq": 1, "seed": seed,
    }  # fmt: skip
    return lightgbm.train(params, lightgbm.Dataset(features, target), n_trees)


def onnx_scorer(booster: lightgbm.Booster) -> Callable[[np.ndarray], np.ndarray] | None:
    """The same trees in onnxruntime with one thread; None where it or `onnx` is not installed."""
    if not (find_spec("onnxruntime") and find_spec("onnx")):
        return None
    import onnxruntime
    from onnx import TensorProto, helper

    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **nodes_of(booster)
    )
    rows = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, N_FEATURES])
    scores = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])
    graph = helper.make_graph([node], "trees", [rows], [scores])
    sets = [helper.make_opsetid("ai.onnx.ml", 1), helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda features: session.run(None, {"x": features})[0].ravel()


def nodes_of(booster: lightgbm.Booster) -> dict[str, list[Any]]:
    """The attributes of ONNX's node: splits first, leaves with numbers behind them."""
    frame = booster.trees_to_dataframe()
    number = {name: int(name.split("-")[1][1:]) for name in frame["node_index"]}
    splits = frame.groupby("tree_index")["split_feature"].apply(lambda s: int(s.notna().sum()))
    found: dict[str, list[Any]] = {
        f"nodes_{name}": []
        for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids",
                     "falsenodeids", "missing_value_tracks_true")
    } | {f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}  # fmt: skip

    def place(tree: int, name: str) -> int:
        return number[name] + (splits[tree] if "-L" in name else 0)

    for row in frame.itertuples():
        is_leaf = "-L" in row.node_index
        at = place(row.tree_index, row.node_index)
        values = {
            "treeids": row.tree_index,
            "nodeids": at,
            "featureids": 0 if is_leaf else int(row.split_feature.split("_")[1]),
            "values": 0.0 if is_leaf else float(row.threshold),
            "modes": "LEAF" if is_leaf else "BRANCH_LEQ",
            "truenodeids": 0 if is_leaf else place(row.tree_index, row.left_child),
            "falsenodeids": 0 if is_leaf else place(row.tree_index, row.right_child),
            "missing_value_tracks_true": 0,
        }
        for name, value in values.items():
            found[f"nodes_{name}"].append(value)
        if is_leaf:
            leaf = {"treeids": row.tree_index, "nodeids": at, "ids": 0, "weights": float(row.value)}
            for name, value in leaf.items():
                found[f"target_{name}"].append(value)
    return found


def catboost_scorer(
    n_trees: int, n_leaves: int, seed: int
) -> Callable[[np.ndarray], np.ndarray] | None:
    """As many symmetric trees on the same rows; None where CatBoost is not installed."""
    if not find_spec("catboost"):
        return None
    from catboost import CatBoost

    params = {"iterations": n_trees, "depth": round(np.log2(n_leaves)), "learning_rate": 0.05}
    params |= {"thread_count": 1, "random_seed": seed, "verbose": False}
    model = CatBoost({**params, "loss_function": "RMSE", "allow_writing_files": False})
    model.fit(*made(20_000, seed))
    return lambda features: model.predict(features, thread_count=1)


def microseconds(scorers: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median CPU time of a call of each, in turns."""
    taken: dict[str, list[float]] = {name: [] for name in scorers}
    for _ in range(repeats + 1):  # the first does not count
        for name, work in scorers.items():
            start = time.process_time()
            work()
            taken[name].append(time.process_time() - start)
    return {name: 1e6 * median(each[1:]) for name, each in taken.items()}


def compared(n_trees: int, n_leaves: int, repeats: int, seed: int) -> list[dict[str, Any]]:
    booster = trained(n_trees, n_leaves, seed)
    start = time.process_time()
    ours = TreeScorer.of(booster, n_trees)
    reading = time.process_time() - start
    assert ours is not None
    onnx, catboost = onnx_scorer(booster), catboost_scorer(n_trees, n_leaves, seed)
    found = []
    for n_rows in ROWS:
        rows = made(n_rows, seed + 1)[0]
        scorers: dict[str, Callable[[], object]] = {
            "untilt": lambda rows=rows: ours.scores(rows),
            "lightgbm": lambda rows=rows: booster.predict(rows, num_threads=1),
        }
        assert np.array_equal(ours.scores(rows), booster.predict(rows, num_threads=1))
        if onnx is not None:
            assert np.allclose(onnx(rows), ours.scores(rows), rtol=1e-3, atol=1e-3)
            scorers["onnxruntime"] = lambda rows=rows: onnx(rows)
        if catboost is not None:
            scorers["catboost"] = lambda rows=rows: catboost(rows)
        took = microseconds(scorers, repeats)
        found.append({
            "trees": n_trees, "leaves": n_leaves, "rows": n_rows, "microseconds": took,
            "times_lightgbm": took["lightgbm"] / took["untilt"], "read_seconds": reading,
        })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    results = [row for model in MODELS for row in compared(*model, options.repeats, options.seed)]
    names = list(results[0]["microseconds"])
    table(
        ("trees", "leaves", "rows", *(f"{name} us" for name in names), "times"),
        [
            (r["trees"], r["leaves"], r["rows"], *(r["microseconds"][n] for n in names),
             r["times_lightgbm"])
            for r in results
        ],
    )  # fmt: skip
    print(save("score", results, seed=options.seed, packages=names[1:]))


if __name__ == "__main__":
    main()
