"""The scores of boosted trees are LightGBM's to the last bit, whatever the trees and the rows."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest

from untilt import LambdaMART, load, make_judged, simulate
from untilt.rankers.trees import boosting, scorer
from untilt.rankers.trees.scorer import TreeScorer

TINY = np.float32(1e-35)  # what LightGBM takes for 0
HARD = np.array(
    [0, -0.0, np.nan, np.inf, -np.inf, TINY, -TINY, np.nextafter(TINY, np.float32(1)),
     np.float32(1e-45), -np.float32(1e-45), np.finfo(np.float32).max, np.finfo(np.float32).min,
     np.finfo(np.float32).tiny, 1, -1],
    dtype=np.float32,
)  # fmt: skip


@dataclass(frozen=True)
class Tree:
    """A tree as LightGBM's text has it; children below 0 are leaves."""

    feature: np.ndarray
    threshold: np.ndarray
    decision: np.ndarray
    left: np.ndarray
    right: np.ndarray
    leaf: np.ndarray

    def text(self) -> str:
        n, m = len(self.leaf), len(self.feature)
        lines: dict[str, Any] = {
            "num_leaves": [n], "num_cat": [0], "split_feature": self.feature, "split_gain": [0] * m,
            "threshold": self.threshold, "decision_type": self.decision, "left_child": self.left,
            "right_child": self.right, "leaf_value": self.leaf, "leaf_weight": [1] * n,
            "leaf_count": [1] * n, "internal_value": [0] * m, "internal_weight": [1] * m,
            "internal_count": [1] * m, "is_linear": [0], "shrinkage": [1],
        }  # fmt: skip
        shown = {"threshold": float, "leaf_value": float}
        rows = (
            f"{name}={' '.join(repr(shown.get(name, int)(each)) for each in values)}"
            for name, values in lines.items()
        )
        return "\n".join(rows) + "\n\n"

    def walked(self, row) -> float:
        """The slow twin: LightGBM's NumericalDecision, one split after the other."""
        if len(self.leaf) == 1:
            return self.leaf[0]
        at = 0
        while at >= 0:
            value, kind = float(row[self.feature[at]]), self.decision[at]
            by_zero, by_nan = kind & 4, kind & 8
            value = 0.0 if abs(value) <= float(TINY) else value
            if np.isnan(value) and not by_nan:
                value = 0.0
            if (by_zero and value == 0) or (by_nan and np.isnan(value)):
                left = kind & 2
            else:
                left = value <= self.threshold[at]
            at = self.left[at] if left else self.right[at]
        return self.leaf[-1 - at]


def grown(rng, n_leaves, n_features, thresholds) -> Tree:
    """A random tree: a random leaf is split until there are enough; children follow parents."""
    n = n_leaves - 1
    left, right = [], []
    holder: list[Any] = [None]  # of each leaf: the split and the side that point to it
    for at in range(n):
        leaf = int(rng.integers(len(holder))) if rng.random() < 0.7 else len(holder) - 1
        if holder[leaf] is not None:
            split, side = holder[leaf]
            side[split] = at
        left.append(-1 - leaf)
        right.append(-1 - len(holder))
        holder[leaf] = (at, left)
        holder.append((at, right))
    return Tree(
        rng.integers(n_features, size=n),
        rng.choice(thresholds, size=n),
        rng.choice([0, 2, 4, 6, 8, 10], size=n),
        np.array(left, dtype=int),
        np.array(right, dtype=int),
        rng.normal(size=n_leaves) * 10.0 ** rng.integers(-8, 8, size=n_leaves),
    )


def booster_of(trees, n_features, more="") -> lightgbm.Booster:
    head = (
        f"tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\n{more}"
        f"max_feature_idx={n_features - 1}\n"
        f"feature_names={' '.join(f'c{j}' for j in range(n_features))}\n"
        f"feature_infos={' '.join(['[0:1]'] * n_features)}\n\n"
    )
    body = "\n".join(f"Tree={t}\n{tree.text()}" for t, tree in enumerate(trees))
    return lightgbm.Booster(model_str=f"{head}{body}\nend of trees\n\n\n")


@pytest.fixture(scope="module")
def hard():
    """Thresholds between and on float32 numbers, and rows on them and one step beside."""
    rng = np.random.default_rng(5)
    single = rng.normal(size=12).astype(np.float32).astype(float)
    between = rng.normal(size=12)
    edge = [0.0, float(TINY), -float(TINY), 1e-300, -1e-300, 1e300, -1e300, 1e-40, 3.4028235e38]
    thresholds = np.concatenate([single, between, edge])
    with np.errstate(over="ignore", under="ignore"):
        near = thresholds.astype(np.float32)
        up, down = (np.nextafter(near, np.float32(way)) for way in (np.inf, -np.inf))
    values = np.concatenate([HARD, near, up, down])
    return thresholds, rng.choice(values, size=(150, 6))


def bits(values) -> list[int]:
    return np.asarray(values, dtype=np.float64).view(np.int64).tolist()


@pytest.mark.parametrize("leaves", [(1,), (2,), (1, 8, 3), (31, 32, 33), (64, 65, 100), (256, 1)])
def test_equal_to_lightgbm_and_to_walked_trees_on_hard_rows(hard, leaves):
    thresholds, rows = hard
    rng = np.random.default_rng(len(leaves) + leaves[0])
    trees = [grown(rng, n, rows.shape[1], thresholds) for n in leaves for _ in range(7)]
    booster = booster_of(trees, rows.shape[1])
    ours = TreeScorer.of(booster, len(trees)).scores(rows)
    assert bits(ours) == bits(booster.predict(rows, num_threads=1))
    for row in range(0, len(rows), 7):
        total = 0.0
        for tree in trees:
            total += tree.walked(rows[row])
        assert bits(total) == bits(ours[row])


def test_every_kind_of_split_treats_some_hard_row_as_no_other_does(hard):
    _, rows = hard
    found = set()
    for kind in (0, 4, 6, 8, 10):
        trees = [stump(threshold, kind) for threshold in (-0.5, 0.5)]
        for tree in trees:
            booster = booster_of([tree], rows.shape[1])
            assert bits(TreeScorer.of(booster, 1).scores(rows)) == bits(booster.predict(rows))
        found.add(tuple(tree.walked(row) for row in rows for tree in trees))
    assert len(found) == 5


def stump(threshold, kind) -> Tree:
    """One split of the first feature; 0 on the left and 1 on the right."""
    one = np.zeros(1, dtype=int)
    return Tree(one, one + threshold, one + kind, one - 1, one - 2, np.arange(2.0))


@pytest.mark.parametrize("n_rows", [0, 1, 31, 32, 33, 150])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_any_number_of_rows_and_threads(hard, n_rows, n_threads):
    thresholds, rows = hard
    trees = [grown(np.random.default_rng(t), 40, rows.shape[1], thresholds) for t in range(9)]
    read = TreeScorer.of(booster_of(trees, rows.shape[1]), len(trees))
    assert bits(read.scores(rows[:n_rows], n_threads)) == bits(read.scores(rows))[:n_rows]


def test_chains_of_splits_to_either_side():
    """The deepest trees: bits of all leaves but one are cleared by one split, or by all."""
    n = 200
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(64, 3)).astype(np.float32)
    inner, leaves = np.arange(1, n - 1), -1 - np.arange(n)
    deep = np.append(inner, leaves[-1])
    for left, right in ((deep, leaves[:-1]), (leaves[:-1], deep)):
        tree = Tree(
            rng.integers(3, size=n - 1), rng.normal(size=n - 1), np.full(n - 1, 8), left, right,
            rng.normal(size=n),
        )  # fmt: skip
        booster = booster_of([tree], 3)
        ours = TreeScorer.of(booster, 1).scores(rows)
        assert bits(ours) == bits(booster.predict(rows)) == bits([tree.walked(r) for r in rows])


@pytest.fixture(scope="module")
def log():
    return simulate(make_judged(60, 5, seed=3), n_sessions=2000, seed=3).log


def test_a_step_tree_and_scaled_parts_of_a_merged_booster(log):
    ranker = LambdaMART(n_trees=15, n_threads=1).fit(log)
    rows = log.features
    step = boosting.step_tree(2, rows[:, 2], np.sin(rows[:, 2].astype(float)), 127)
    booster = boosting.merged([(ranker.booster_, 15, 0.37), (ranker.booster_, 4, -1 / 3)], [step])
    assert booster.num_trees() == 20
    ours = TreeScorer.of(booster, 20).scores(rows)
    assert bits(ours) == bits(booster.predict(rows, num_threads=1))


@pytest.mark.parametrize(
    "params",
    [{"use_missing": False}, {"zero_as_missing": True}, {"max_depth": 2}, {"linear_tree": True}],
)
def test_predict_before_and_after_warming_up(log, params, tmp_path):
    """The way LightGBM was taught to treat gaps, and a kind of leaf that is left to it."""
    rows = log.features.copy()
    rows[::3, 0] = np.nan
    rows[::5, 1] = 0
    holed = replace(log, features=rows, missing="keep")
    ranker = LambdaMART(n_trees=12, n_threads=1, lightgbm_params=params).fit(holed)
    before = ranker.predict(rows)
    assert bits(before) == bits(ranker.booster_.predict(rows, num_threads=1))
    assert bits(ranker.warm_up().predict(rows)) == bits(before)
    ranker.save(tmp_path / "ranker.untilt")
    assert bits(load(tmp_path / "ranker.untilt").warm_up().predict(rows)) == bits(before)


def test_only_the_kept_trees_count_after_early_stopping(log):
    ranker = LambdaMART(n_trees=20, n_threads=1).fit(log)
    ranker.n_trees_ = 7
    expected = ranker.booster_.predict(log.features, num_iteration=7)
    assert bits(ranker.warm_up().predict(log.features)) == bits(expected)
    ranker.n_trees_ = 9
    expected = ranker.booster_.predict(log.features, num_iteration=9)
    assert bits(ranker.predict(log.features)) == bits(expected)


@pytest.mark.parametrize(
    ("more", "leaves", "why"),
    [
        ("", 257, "too many leaves"),
        ("average_output\n", 5, "a random forest"),
        ("objective=binary sigmoid:1\n", 5, "scores become probabilities"),
    ],
)
def test_what_is_left_to_lightgbm(hard, more, leaves, why):
    thresholds, rows = hard
    trees = [grown(np.random.default_rng(t), leaves, rows.shape[1], thresholds) for t in range(3)]
    booster = booster_of(trees, rows.shape[1], more)
    assert TreeScorer.of(booster, 3) is None, why
    expected = booster.predict(rows, num_threads=1)
    scorer.warm_up(booster, 3)
    assert bits(scorer.predict(booster, 3, rows, 1)) == bits(expected)


def test_sets_of_categories_are_left_to_lightgbm(rng):
    rows = rng.integers(6, size=(400, 2)).astype(np.float32)
    target = np.isin(rows[:, 0], [1, 4]) + 0.1 * rows[:, 1]
    data = lightgbm.Dataset(rows, target, categorical_feature=[0])
    params = {"verbosity": -1, "num_threads": 1, "min_data_per_group": 1, "cat_smooth": 0}
    booster = lightgbm.train(params, data, 3)
    assert "num_cat=1" in booster.model_to_string()
    assert TreeScorer.of(booster, 3) is None


def test_double_precision_is_left_to_lightgbm():
    """Between two float32 numbers a threshold separates doubles that look the same to them."""
    threshold = 1.0 + 1e-12
    booster = booster_of([stump(threshold, 8)], 1)
    rows = np.array([[1.0], [threshold], [1.0 + 2e-12], [1.0 + 1e-7]])
    scorer.warm_up(booster, 1)
    assert scorer.predict(booster, 1, rows, 1).tolist() == [0, 0, 1, 1]


def test_a_short_call_waits_for_no_kernels_and_a_long_run_gets_them(hard, monkeypatch):
    thresholds, rows = hard
    trees = [grown(np.random.default_rng(t), 9, rows.shape[1], thresholds) for t in range(4)]
    booster = booster_of(trees, rows.shape[1])
    monkeypatch.setattr(scorer, "_READING", 1000)
    monkeypatch.setattr(scorer, "_kernels", lambda: 0)
    read = []
    monkeypatch.setattr(TreeScorer, "of", lambda *given: read.append(given))
    for _ in range(6):  # of 150 rows: 900 in all
        scorer.predict(booster, 4, rows, 1)
    assert not read
    scorer.predict(booster, 4, rows, 1)
    scorer.predict(booster, 4, rows, 1)
    assert len(read) == 1


@pytest.mark.slow
def test_kernels_cost_less_where_they_lie_on_disk(tmp_path):
    """The files of numba's cache are where this looks for them: compile, forget, look again."""
    command = (
        "import numpy as np; from untilt.rankers.trees import scorer\n"
        "print(scorer._kernels())\n"
        "import tests.rankers.test_scorer as t\n"
        "scorer.warm_up(t.booster_of([t.stump(0.5, 8)], 1), 1)\n"
        "print(scorer._kernels())"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    printed = [
        subprocess.run(
            [sys.executable, "-c", command], env=environment, capture_output=True, text=True,
            check=True, cwd=Path(__file__).parents[2],
        ).stdout.split()
        for _ in range(2)
    ]  # fmt: skip
    assert printed == [[str(scorer._COMPILED), "0"], [str(scorer._FROM_DISK), "0"]]
