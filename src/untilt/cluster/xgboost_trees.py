"""XGBoost's trees over bin numbers as LightGBM's text over features, which every ranker here holds.

XGBoost sends a row left where its bin is below the threshold, and rows without a value the default
way. A split of known against missing values has its threshold above or below all bins.
"""

import json
import math
from typing import Any

import numpy as np

from untilt.cluster.edges import Edges

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
    inner = [node for node in _in_order(left, right) if left[node] != -1]
    leaves = [node for node in _in_order(left, right) if left[node] == -1]
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


def _in_order(left: list[int], right: list[int]) -> list[int]:
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
