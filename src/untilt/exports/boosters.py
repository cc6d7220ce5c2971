"""The files of boosting libraries: XGBoost's JSON and LightGBM's text.

XGBoost compares x < threshold in single precision and sends NaN the way of `default_left`, so that
LightGBM's x <= t is written as x < next32(cut). It sums the trees in single precision, and takes
for the right child the node after the left one.

LightGBM's text has the ranker's feature names, and an objective that other readers know.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray
from untilt.catalog import method
from untilt.exports import forms
from untilt.exports.format import ExportFiles, Format, Target
from untilt.exports.forms import Forest, SingleArray
from untilt.facts import note

_FORBIDDEN = re.compile(r"""[\s",:\[\]{}=]""")
_OBJECTIVE = "objective=lambdarank"


@method(
    "export", "lightgbm", title="LightGBM", order=20, default=True, public=False,
    note="text that lightgbm.Booster loads; trees",
)  # fmt: skip
@dataclass(frozen=True)
class LightGBMText(Format):
    """`lightgbm.Booster(model_file=path)` gives the very scores of `predict`."""

    endings: ClassVar[Mapping[type[Any], str]] = {Forest: ".txt"}

    def files(self, form: Forest, target: Target) -> ExportFiles:  # noqa: ARG002
        """The text alone."""
        return ExportFiles(with_objective(_with_names(form.text, form.names)))

    def scores(self, path: Path, names: tuple[str, ...], features: SingleArray) -> FloatArray:  # noqa: ARG002
        """LightGBM, which is here."""
        import lightgbm

        booster = lightgbm.Booster(model_file=path)
        return np.asarray(booster.predict(features, num_threads=1), np.float64)


def with_objective(text: str) -> str:
    """The text with an objective, which LightGBM itself does not need.

    Boosters of an objective of our own have none. Vespa's importer, onnxmltools, lleaves and JPMML
    fail without. The scores of lambdarank are the sums of the trees as they are.
    """
    head, mark, tail = text.partition("\nTree=")
    lines = [line for line in head.split("\n") if not line.startswith("objective=")]
    at = next(n for n, line in enumerate(lines) if line.startswith("max_feature_idx="))
    return "\n".join([*lines[: at + 1], _OBJECTIVE, *lines[at + 1 :]]) + mark + tail


def _with_names(text: str, names: tuple[str, ...]) -> str:
    """The ranker's feature names in place of Column_0, Column_1, ...

    The text separates names by spaces and LightGBM refuses JSON's special characters in them.
    """
    if len(set(names)) < len(names) or any(_FORBIDDEN.search(name) or not name for name in names):
        return text
    named = f"feature_names={' '.join(names)}"
    text = re.sub(r"(?m)^feature_names=.*$", lambda _: named, text, count=1)
    head, mark, tail = text.partition("\nfeature_importances:\n")
    tail = re.sub(r"(?m)^Column_(\d+)=", lambda found: f"{names[int(found[1])]}=", tail)
    return head + mark + tail


XGBOOST_OBJECTIVE = note(
    "export.xgboost-objective",
    "the file names the objective reg:squarederror, which keeps scores unchanged: predict with "
    "the model, do not train it further",
)()

_ROOT = 2**31 - 1  # the parent of a root


@method(
    "export", "xgboost", title="XGBoost", order=21, public=False,
    note="JSON that xgboost.Booster loads; trees",
)  # fmt: skip
@dataclass(frozen=True)
class XGBoostJson(Format):
    """XGBoost's own model."""

    endings: ClassVar[Mapping[type[Any], str]] = {forms.Forest: ".json"}

    def files(self, form: forms.Forest, target: Target) -> ExportFiles:  # noqa: ARG002
        """The model alone."""
        d, n = len(form.names), len(form.trees)
        trees = ",".join(_tree(tree, number, d) for number, tree in enumerate(form.trees))
        head = {
            "attributes": {},
            "feature_names": _names(form.names),
            "feature_types": ["float"] * d,
            "learner_model_param": {
                "base_score": "0E0", "boost_from_average": "0", "num_class": "0",
                "num_feature": str(d), "num_target": "1",
            },
            "objective": {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}},
        }  # fmt: skip
        model = {
            "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(n)},
            "iteration_indptr": list(range(n + 1)),
            "tree_info": [0] * n,
        }
        booster = f'{{"model":{_with(model, "trees", f"[{trees}]")},"name":"gbtree"}}'
        learner = _with(head, "gradient_booster", booster)
        text = f'{{"learner":{learner},"version":[2,1,0]}}\n'
        return ExportFiles(text, notes=(XGBOOST_OBJECTIVE,))

    def scores(self, path: Path, names: tuple[str, ...], features: forms.SingleArray) -> FloatArray:
        """XGBoost's JSON; columns by name where it has names."""
        learner = forms.read_json(path)["learner"]
        own, nodes = learner["feature_names"], forms.Nodes()
        columns = [forms.indices(names)[name] for name in own] if own else list(range(len(names)))
        for tree in learner["gradient_booster"]["model"]["trees"]:
            first = len(nodes.feature)
            nodes.roots.append(first)
            for node, left in enumerate(tree["left_children"]):
                value = float(tree["split_conditions"][node])
                if left < 0:
                    nodes.add(-1, value)
                    continue
                nodes.add(
                    columns[tree["split_indices"][node]],
                    value,
                    nan_left=bool(tree["default_left"][node]),
                    left=first + left,
                    right=first + left + 1,  # whatever right_children says
                )
        start = forms.single_of(learner["learner_model_param"]["base_score"].strip("[]"))
        return float(start) + forms.summed(
            nodes.leaves(features, forms.below, np.float32), np.float32
        )


def _names(names: tuple[str, ...]) -> list[str]:
    """The names where XGBoost takes them; else none, and features go by their order."""
    fine = len(set(names)) == len(names) and not any(set("[]<") & set(name) for name in names)
    return list(names) if fine else []


def _with(fields: dict[str, Any], name: str, text: str) -> str:
    return f"{json.dumps(fields, ensure_ascii=False)[:-1]}, {json.dumps(name)}: {text}}}"


def _tree(tree: forms.Tree, number: int, n_features: int) -> str:
    """Nodes in XGBoost's order; a leaf's value stands in place of its threshold."""
    order, parents = _numbered(tree)
    n, inner = len(order), order >= 0
    split = order[inner]
    number_of = np.empty(n, np.int64)  # by node: splits first, then leaves
    number_of[np.where(inner, order, tree.n_splits + ~order)] = np.arange(n)
    columns: dict[str, Any] = {}
    for name, child in (("left_children", tree.left), ("right_children", tree.right)):
        of_splits = np.where(child >= 0, child, tree.n_splits + ~child)[split]
        columns[name] = _spread(inner, number_of[of_splits], -1)
    columns |= {
        "default_left": _spread(inner, tree.nan_left[split].astype(np.int64), 0),
        "split_indices": _spread(inner, tree.feature[split], 0),
        "split_type": np.zeros(n, np.int64),
        "parents": parents,
        **{name: np.zeros(n) for name in ("base_weights", "loss_changes", "sum_hessian")},
    }
    values = np.empty(n, np.float32)
    values[inner], values[~inner] = forms.next32(tree.cut)[split], tree.leaf[~order[~inner]]
    fields = {
        **{name: column.tolist() for name, column in columns.items()},
        "categories": [], "categories_nodes": [], "categories_segments": [], "categories_sizes": [],
        "id": number,
        "tree_param": {
            "num_deleted": "0", "num_feature": str(n_features), "num_nodes": str(n),
            "size_leaf_vector": "1",
        },
    }  # fmt: skip
    return _with(fields, "split_conditions", f"[{','.join(map(forms.text32, values))}]")


def _spread(inner: BoolArray, of_splits: IntArray, of_leaves: int) -> IntArray:
    column = np.full(len(inner), of_leaves)
    column[inner] = of_splits
    return column


def _numbered(tree: forms.Tree) -> tuple[IntArray, IntArray]:
    """Our nodes in XGBoost's order, and the parent of each there.

    XGBoost finds the right child beside the left one, whatever the file says of it: the children of
    a node must have numbers that follow each other.
    """
    order, parents = [0 if tree.n_splits else ~0], [_ROOT]
    at = 0
    while at < len(order):
        node = order[at]
        if node >= 0:
            order += [int(tree.left[node]), int(tree.right[node])]
            parents += [at, at]
        at += 1
    return np.array(order), np.array(parents)
