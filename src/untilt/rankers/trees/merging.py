"""Several boosters as one: the weighted sum of their trees.

A sum of boosted trees is itself boosted trees, with leaf values multiplied by the weights. So an
average over folds, or a sum of different models, is one model to save, export and serve. LightGBM
has no function for it, but its text says all. A function of one feature is a tree, too, and needs
no training.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray

if TYPE_CHECKING:
    import lightgbm

# The lines of a tree that hold scores.
_SCORES = ("leaf_value", "internal_value", "leaf_const", "leaf_coeff")
_END = "\n\nend of trees\n"
# decision_type: a missing value is NaN and goes right. No known value is above _ALL.
_NAN_RIGHT, _ALL = 8, 1e300


def merged(
    parts: "Iterable[tuple[lightgbm.Booster, int, float]]", more: Iterable[str] = ()
) -> "lightgbm.Booster":
    """One booster that scores sum of weight * (the first `n_trees` of each booster).

    Trees that cannot change the order (a weight of 0) are left out, unless nothing else is there.
    `more` are trees of `step_tree`.
    """
    import lightgbm

    given = list(parts)
    kept = [part for part in given if part[1] > 0 and part[2] != 0] or given[:1]
    texts = [booster.model_to_string(num_iteration=n) for booster, n, _ in kept]
    head, tail = texts[0].split("\nTree=", 1)[0], texts[0].split(_END, 1)[1]
    # The bytes of each tree change, and LightGBM reads on without them; the importances it counts
    # itself.
    lines = (line for line in head.split("\n") if not line.startswith(("tree_sizes", "objective=")))
    trees: list[str] = []
    for text, (_, _, weight) in zip(texts, kept, strict=True):
        for tree in text.split(_END, 1)[0].split("\nTree=")[1:]:
            trees.append(f"Tree={len(trees)}\n{_scaled(tree.split(chr(10), 1)[1], weight)}")
    for tree in more:
        trees.append(f"Tree={len(trees)}\n{tree}")
    body = "\n".join([*lines, *trees])
    return lightgbm.Booster(model_str=f"{body}{_END}{tail}")


def _scaled(tree: str, weight: float) -> str:
    lines = tree.split("\n")
    for at, line in enumerate(lines):
        name, _, values = line.partition("=")
        if name in _SCORES and values:
            scaled = np.array(values.split(), dtype=float) * weight
            lines[at] = f"{name}={' '.join(map(repr, scaled.tolist()))}"
    return "\n".join(lines)


def step_tree(feature: int, values: FeatureArray, target: FloatArray, most_steps: int) -> str:
    """The text of a tree that says a function of one feature in steps; 0 where it is missing.

    Parameters
    ----------
    values, target : (rows,) of the feature, and of the function; each step is the mean of its rows
    """
    known = np.isfinite(values)
    x, y = values[known], target[known]
    distinct = np.unique(np.quantile(x, np.linspace(0, 1, most_steps), method="nearest"))
    edges = (distinct[1:] + distinct[:-1]) / 2
    step = np.searchsorted(edges, x)  # LightGBM goes left where x <= threshold
    n = np.bincount(step, minlength=len(edges) + 1)
    total = np.bincount(step, weights=y, minlength=len(n))
    mean = np.divide(total, n, out=np.zeros(len(n)), where=n > 0)
    threshold, left, right, count, inner = [_ALL], [0], [-len(n) - 1], [len(values)], [0.0]

    def grow(low: int, high: int) -> int:
        """The node over these steps: children come after their parents, halves on both sides."""
        if high - low == 1:
            return -low - 1
        node, middle = len(threshold), (low + high) // 2
        own = slice(low, high)
        threshold.append(float(edges[middle - 1]))
        left.append(0)
        right.append(0)
        count.append(int(n[own].sum()))
        inner.append(float(total[own].sum()) / max(count[-1], 1))
        left[node], right[node] = grow(low, middle), grow(middle, high)
        return node

    left[0] = grow(0, len(n))
    nodes = len(threshold)
    leaves = [*n.tolist(), len(values) - len(x)]
    lines: dict[str, Sequence[float]] = {
        "num_leaves": [nodes + 1],
        "num_cat": [0],
        "split_feature": [feature] * nodes,
        "split_gain": [0] * nodes,
        "threshold": threshold,
        "decision_type": [_NAN_RIGHT] * nodes,
        "left_child": left,
        "right_child": right,
        "leaf_value": [*mean.tolist(), 0.0],
        "leaf_weight": leaves,
        "leaf_count": leaves,
        "internal_value": inner,
        "internal_weight": count,
        "internal_count": count,
        "is_linear": [0],
        "shrinkage": [1],
    }
    return "".join(f"{name}={' '.join(map(repr, own))}\n" for name, own in lines.items()) + "\n"
