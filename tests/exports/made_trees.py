"""Trees in LightGBM's text made of a list of splits, and rows that are hard for them."""

from dataclasses import dataclass

import numpy as np

NAMES = ("bm25", "price", "age")
ZERO = np.float32(1e-35)
# decision_type: NaN is read as 0; it goes right; it goes left.
AS_ZERO, RIGHT, LEFT = 0, 8, 10


@dataclass(frozen=True)
class Split:
    """A leaf (counted around) becomes a split."""

    leaf: int
    feature: int
    threshold: float
    kind: int


def tree_text(splits, first_value):
    """LightGBM's lines; leaves are whole numbers, so that sums in single precision are exact."""
    feature, threshold, kind, left, right = [], [], [], [], []
    place: dict = {0: None}  # leaf -> (split, side) that leads to it
    for node, split in enumerate(splits):
        leaf = split.leaf % len(place)
        if place[leaf] is not None:
            parent, side = place[leaf]
            side[parent] = node
        new = len(place)
        feature.append(split.feature)
        threshold.append(split.threshold)
        kind.append(split.kind)
        left.append(~leaf)
        right.append(~new)
        place[leaf], place[new] = (node, left), (node, right)
    n = len(place)
    lines = {
        "num_leaves": [n], "num_cat": [0], "split_feature": feature,
        "split_gain": [0] * (n - 1), "threshold": threshold, "decision_type": kind,
        "left_child": left, "right_child": right,
        "leaf_value": [float(first_value + leaf) for leaf in range(n)],
        "leaf_weight": [1] * n, "leaf_count": [1] * n, "internal_value": [0] * (n - 1),
        "internal_weight": [1] * (n - 1), "internal_count": [1] * (n - 1), "is_linear": [0],
        "shrinkage": [1],
    }  # fmt: skip
    if n == 1:
        lines = {k: v for k, v in lines.items() if k in ("num_leaves", "num_cat", "leaf_value",
                                                         "is_linear", "shrinkage")}  # fmt: skip
    return "".join(f"{name}={' '.join(map(repr, values))}\n" for name, values in lines.items())


def model_text(trees):
    """A whole model; leaves of tree t begin at 1000 t."""
    head = (
        "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\n"
        f"max_feature_idx={len(NAMES) - 1}\nfeature_names=Column_0 Column_1 Column_2\n"
        "feature_infos=[-1:1] [-1:1] [-1:1]\n"
    )
    parts = [f"Tree={t}\n{tree_text(tree, 1000 * t + 1)}\n" for t, tree in enumerate(trees)]
    end = "\nfeature_importances:\n\nparameters:\nend of parameters\n\npandas_categorical:null\n"
    return head + "\n" + "\n".join(parts) + "\nend of trees\n" + end


SPECIAL = np.array(
    [0.0, -0.0, ZERO, -ZERO, 1e-38, -1e-38, 1e-45, -1e-45, 5e-36, -5e-36, 1e-13, -1e-13, 1e-7, 1.0,
     -1.0, 3.4028235e38, -3.4028235e38, np.nan],
    np.float32,
)  # fmt: skip
INFINITE = np.array([np.inf, -np.inf], np.float32)


def near(values):
    """Single floats around numbers: rounded, and one and two steps to both sides."""
    with np.errstate(over="ignore"):
        middle = np.asarray(values, np.float64).astype(np.float32)
    up, down = np.float32(np.inf), np.float32(-np.inf)
    steps = [middle, np.nextafter(middle, up), np.nextafter(middle, down)]
    steps += [np.nextafter(steps[1], up), np.nextafter(steps[2], down)]
    return np.concatenate(steps)


def hard_rows(trees, *, infinite=True):
    """Each value of interest in each feature, with the values of interest of the others beside."""
    values = []
    for feature in range(len(NAMES)):
        own = [s.threshold for tree in trees for s in tree if s.feature == feature]
        found = np.concatenate([near(own), near([ZERO, -ZERO]), SPECIAL])
        values.append(np.concatenate([found, INFINITE]) if infinite else found)
    if not infinite:
        values = [each[~np.isinf(each)] for each in values]
    n = max(map(len, values))
    shifts = [(0, 0, 0), (0, 7, 13), (5, 0, 3)]
    blocks = [
        np.column_stack([np.resize(np.roll(v, k), n) for v, k in zip(values, shift, strict=True)])
        for shift in shifts
    ]
    return np.ascontiguousarray(np.concatenate(blocks), np.float32)


def drawn_trees(rng, *, n_trees=40, n_splits=12, largest=1e6):
    """Trees with thresholds of all sizes, at single floats, between them and at 0."""

    def threshold():
        size = rng.choice([1e-12, 1e-7, 1e-3, 1.0, 1e3, largest])
        value = float(rng.normal() * size)
        return (value, float(np.float32(value)), float(ZERO), -float(ZERO), 0.0)[rng.integers(5)]

    return [
        [
            Split(int(rng.integers(50)), int(rng.integers(3)), threshold(),
                  int(rng.choice([AS_ZERO, RIGHT, LEFT])))
            for _ in range(rng.integers(0, n_splits))
        ]
        for _ in range(n_trees)
    ]  # fmt: skip
