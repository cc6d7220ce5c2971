"""Written models read back the way each engine reads them: what `check_export` compares with.

Nothing here knows how a file was made. Each reader parses the file alone and does what the engine's
own classes do with it: which comparison, in which precision, where a missing value goes, in which
order and precision trees are summed. Rules as of the engines' sources in 2026:

| engine | a split goes left where | NaN | sum |
|---|---|---|---|
| Elasticsearch LTR, OpenSearch LTR | threshold > x, single | the child called "missing" | single |
| Solr | x <= fl(threshold + 1e-6), single, x normalised | "missing", from 9.2 on | single |
| Vespa | x < threshold; not x >= threshold with default_left | false | double |
| XGBoost | x < threshold, single | default_left | single |
"""

import ctypes
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray
from untilt._core.files import scratch_folder
from untilt.errors import FileFormatError, OptionError
from untilt.exports.forms import SingleArray

# Where a row goes: (values of the split's feature, the split's number, NaN left) -> left?
GoesLeft = Callable[[Any, Any, BoolArray], BoolArray]


@dataclass
class _Nodes:
    """All trees of a file, nodes one after the other; `feature` -1 marks a leaf."""

    roots: list[int]
    feature: list[int]
    number: list[float]
    nan_left: list[bool]
    left: list[int]
    right: list[int]

    @classmethod
    def empty(cls) -> "_Nodes":
        return cls([], [], [], [], [], [])

    def add(
        self,
        feature: int,
        number: float,
        *,
        nan_left: bool = False,
        left: int = -1,
        right: int = -1,
    ) -> int:
        self.feature.append(feature)
        self.number.append(number)
        self.nan_left.append(nan_left)
        self.left.append(left)
        self.right.append(right)
        return len(self.feature) - 1

    def add_nested(
        self,
        tree: Any,
        split: Callable[[Any], tuple[int, float, bool, Any, Any]],
        leaf: Callable[[Any], float | None],
    ) -> None:
        """A tree of nested objects, without recursion."""
        self.roots.append(len(self.feature))
        waiting: list[tuple[Any, int, str]] = [(tree, -1, "")]
        while waiting:
            node, parent, side = waiting.pop()
            value = leaf(node)
            if value is not None:
                at = self.add(-1, value)
            else:
                feature, number, nan_left, left, right = split(node)
                at = self.add(feature, number, nan_left=nan_left)
                waiting += [(right, at, "right"), (left, at, "left")]
            if parent >= 0:
                getattr(self, side)[parent] = at

    def leaves(self, features: Any, goes_left: GoesLeft, dtype: Any) -> Iterator[Any]:
        """Of each tree: (rows,) the number of the leaf that each row ends in."""
        feature, left, right = (
            np.array(e, np.int64) for e in (self.feature, self.left, self.right)
        )
        number, nan_left = np.array(self.number, dtype), np.array(self.nan_left, bool)
        n = len(features)
        rows = np.arange(n)
        for root in self.roots:
            at = np.full(n, root)
            left_over = rows[feature[at] >= 0]
            while len(left_over):
                node = at[left_over]
                x = features[left_over, feature[node]]
                went = goes_left(x, number[node], nan_left[node])
                node = np.where(went, left[node], right[node])
                at[left_over] = node
                left_over = left_over[feature[node] >= 0]
            yield number[at]


def _summed(leaves: Iterable[Any], dtype: Any) -> FloatArray:
    """One tree after the other, each sum rounded to the precision."""
    total: Any = dtype(0)
    with np.errstate(over="ignore", invalid="ignore"):
        for each in leaves:
            total = (total + each).astype(dtype)
    return np.asarray(total, np.float64)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is no JSON that an engine would read: {error}.") from None


def _single(value: Any) -> np.float32:
    """What Java makes of a number in JSON or of a text: a double or a text, then a single."""
    with np.errstate(over="ignore"):
        return np.float32(float(value))


def _indices(names: Sequence[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


# ---- Elasticsearch LTR and OpenSearch LTR


def ltr_plugin(path: Path, names: tuple[str, ...], features: SingleArray) -> FloatArray:
    """The body of `_createmodel`: model/xgboost+json or model/linear."""
    model = _read_json(path)["model"]["model"]
    definition = json.loads(model["definition"])
    if model["type"] == "model/linear":
        weights = np.zeros(len(names), np.float32)
        for name, weight in definition.items():
            weights[_indices(names)[name]] = _single(weight)
        return _linear_single(features, weights)
    if definition["objective"] not in ("rank:ndcg", "rank:map", "rank:pairwise", "reg:linear"):
        raise FileFormatError(f"{path} has an objective that the plugin transforms or refuses.")
    index, nodes = _indices(names), _Nodes.empty()

    def split(node: Any) -> tuple[int, float, bool, Any, Any]:
        yes, no = node["children"]
        if (yes["nodeid"], no["nodeid"]) != (node["yes"], node["no"]) or "depth" not in node:
            raise FileFormatError(f"{path} has a split whose children are not those it names.")
        to_yes = node["missing"] == node["yes"]
        return index[node["split"]], float(_single(node["split_condition"])), to_yes, yes, no

    for tree in definition["splits"]:
        nodes.add_nested(tree, split, lambda node: _leaf(node, "leaf"))
    return _summed(nodes.leaves(features, _below, np.float32), np.float32)


def _leaf(node: Any, key: str) -> float | None:
    return float(_single(node[key])) if key in node else None


def _below(x: Any, threshold: Any, nan_left: BoolArray) -> BoolArray:
    """threshold > x; NaN where the split says."""
    left: BoolArray = np.where(np.isnan(x), nan_left, threshold > x)
    return left


def _linear_single(features: SingleArray, weights: SingleArray) -> FloatArray:
    """w . x in single precision, one feature after the other; a missing one counts 0."""
    total = np.zeros(len(features), np.float32)
    for column, weight in zip(features.T, weights, strict=True):
        total = (total + weight * np.where(np.isnan(column), np.float32(0), column)).astype("f4")
    return total.astype(np.float64)


# ---- XGBoost and LightGBM


def xgboost_json(path: Path, names: tuple[str, ...], features: SingleArray) -> FloatArray:
    """XGBoost's JSON; columns by name where it has names."""
    learner = _read_json(path)["learner"]
    own, nodes = learner["feature_names"], _Nodes.empty()
    columns = [_indices(names)[name] for name in own] if own else list(range(len(names)))
    for tree in learner["gradient_booster"]["model"]["trees"]:
        first = len(nodes.feature)
        nodes.roots.append(first)
        for node, left in enumerate(tree["left_children"]):
            value = float(_single(tree["split_conditions"][node]))
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
    start = _single(learner["learner_model_param"]["base_score"].strip("[]"))
    return float(start) + _summed(nodes.leaves(features, _below, np.float32), np.float32)


def lightgbm_text(path: Path, features: SingleArray) -> FloatArray:
    """LightGBM, which is here."""
    import lightgbm

    booster = lightgbm.Booster(model_file=path)
    return np.asarray(booster.predict(features, num_threads=1), np.float64)


def linear_json(path: Path, names: tuple[str, ...], features: SingleArray) -> FloatArray:
    """The sum of weight times feature, as the file says."""
    record = _read_json(path)
    weights = {each["name"]: each["weight"] for each in record["features"]}
    rows = features.astype(np.float64)
    if "missing" in record:
        rows = np.where(np.isnan(rows), np.float32(record["missing"]), rows)
    total: FloatArray = rows @ np.array([weights[name] for name in names], np.float64)
    return total


# ---- Solr


def solr(path: Path, names: tuple[str, ...], features: SingleArray) -> FloatArray:
    """`MultipleAdditiveTreesModel` or `LinearModel`, with `StandardNormalizer`."""
    model = _read_json(path)
    own = [each["name"] for each in model["features"]]
    rows = np.stack([features[:, _indices(names)[name]] for name in own], axis=1)
    nulls = model["params"].get("isNullSameAsZero", True)
    if nulls:
        rows = np.where(np.isnan(rows), np.float32(0), rows)
    for number, each in enumerate(model["features"]):
        if "norm" in each:
            average, spread = (_single(each["norm"]["params"][key]) for key in ("avg", "std"))
            with np.errstate(over="ignore"):
                rows[:, number] = (rows[:, number] - average) / spread
    if model["class"].endswith(".LinearModel"):
        weights = model["params"]["weights"]
        return _linear_single(rows, np.array([_single(weights[name]) for name in own]))
    index, nodes = _indices(own), _Nodes.empty()

    def split(node: Any) -> tuple[int, float, bool, Any, Any]:
        compared = np.float32(_single(node["threshold"]) + np.float32(1e-6))
        left = node.get("missing") == "left"
        return index[node["feature"]], float(compared), left, node["left"], node["right"]

    for tree in model["params"]["trees"]:
        if tree["weight"] != "1":
            raise FileFormatError(f"{path} has a tree with a weight, which untilt never writes.")
        nodes.add_nested(tree["root"], split, lambda node: _leaf(node, "value"))
    return _summed(nodes.leaves(rows, _not_above, np.float32), np.float32)


def _not_above(x: Any, threshold: Any, nan_left: BoolArray) -> BoolArray:
    """x <= threshold; NaN where the split says."""
    left: BoolArray = np.where(np.isnan(x), nan_left, x <= threshold)
    return left


# ---- Vespa


def vespa(path: Path, names: tuple[str, ...], features: SingleArray) -> FloatArray:
    """LightGBM's JSON as Vespa's importer takes it."""
    model = _read_json(path)
    if "objective" not in model or "pandas_categorical" not in model:
        raise FileFormatError(f"{path} lacks what Vespa's importer asks for.")
    columns = [_indices(names)[name] for name in model["feature_names"]]
    nodes = _Nodes.empty()

    def split(node: Any) -> tuple[int, float, bool, Any, Any]:
        column, threshold = columns[node["split_feature"]], float(node["threshold"])
        return column, threshold, node["default_left"], node["left_child"], node["right_child"]

    for tree in model["tree_info"]:
        nodes.add_nested(
            tree["tree_structure"],
            split,
            lambda node: float(node["leaf_value"]) if "leaf_value" in node else None,
        )
    leaves = nodes.leaves(features.astype(np.float64), _vespa_left, np.float64)
    return _summed(leaves, np.float64)


def _vespa_left(x: Any, threshold: Any, default_left: BoolArray) -> BoolArray:
    """not (x >= t) or x < t; every comparison with NaN is false."""
    left: BoolArray = np.where(default_left, ~(x >= threshold), x < threshold)
    return left


_TERM = re.compile(r"\(([^)]*)\) \* (?:if \(isNan\((?P<filled>.*)\), ([^,]*), .*\)|(.*))")


def vespa_expression(path: Path, names: tuple[str, ...], features: SingleArray) -> FloatArray:
    """A sum of weights times features, each with a number for NaN or without."""
    constant, *terms = path.read_text(encoding="utf-8").rstrip("\n").split(" +\n")
    total = np.full(len(features), float(constant))
    index = _indices(names)
    for term in terms:
        found = _TERM.fullmatch(term)
        if found is None:
            raise FileFormatError(f"{path} has a term that untilt never writes: {term[:60]!r}.")
        weight, filled, fill, plain = found.groups()
        x = features[:, index[filled or plain]].astype(np.float64)
        total += float(weight) * (np.where(np.isnan(x), float(fill), x) if filled else x)
    return total


# ---- C


def c_code(path: Path, features: SingleArray) -> FloatArray:
    """The code, compiled by the system's compiler in a folder of its own."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := which(name))), None)
    if compiler is None:
        raise OptionError(
            "C code is checked by compiling it, and there is no compiler here (cc, gcc, clang). "
            "Install one, or check on a machine that has one."
        )
    name = re.search(r"^double (\w+)_score\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    if name is None:
        raise FileFormatError(f"{path} has no function that scores. Export it again.")
    with scratch_folder() as folder:
        library = folder / "model.so"
        command = [compiler, "-O1", "-std=c99", "-shared", "-fPIC", "-o", str(library), str(path)]
        done = subprocess.run([*command, "-lm"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise FileFormatError(f"{path} cannot be compiled: {done.stderr.strip()[:500]}")
        score = ctypes.CDLL(str(library))[f"{name[1]}_score"]
        score.restype, score.argtypes = ctypes.c_double, [ctypes.c_void_p]
        rows = np.ascontiguousarray(features, np.float32)
        return np.array([score(row.ctypes.data) for row in rows], np.float64)


# ---- ONNX


def onnx(path: Path, features: SingleArray) -> FloatArray:
    """onnxruntime where it is installed, else the operators by NumPy."""
    if find_spec("onnxruntime") is None:
        return onnx_operators(path, features)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        os.fspath(path), options, providers=["CPUExecutionProvider"]
    )
    (score,) = session.run(None, {session.get_inputs()[0].name: features})
    return np.asarray(score, np.float64)[:, 0]


def onnx_operators(path: Path, features: SingleArray) -> FloatArray:
    """The operators that untilt writes, one after the other."""
    graph = _fields(_fields(path.read_bytes())[7][0])
    values: dict[str, Any] = {"features": features}
    for each in graph.get(5, ()):
        tensor = _fields(each)
        values[tensor[8][0].decode()] = _array(tensor)
    for each in graph[1]:
        node = _fields(each)
        inputs = [values[name.decode()] for name in node[1]]
        attributes = dict(_attribute(part) for part in node.get(5, ()))
        operator = node[4][0].decode()
        output = node[2][0].decode()
        if operator == "Cast":
            values[output] = inputs[0].astype({1: np.float32, 11: np.float64}[attributes["to"]])
        elif operator == "TreeEnsembleRegressor":
            values[output] = _ensemble(attributes, *inputs)
        else:
            with np.errstate(all="ignore"):
                values[output] = _OPERATORS[operator](*inputs)
    return np.asarray(values["score"], np.float64)[:, 0]


_OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "MatMul": np.matmul, "Abs": np.abs,
    "Sign": np.sign, "Log": np.log, "Exp": np.exp, "Tanh": np.tanh, "Max": np.maximum,
    "Min": np.minimum, "IsNaN": np.isnan, "Where": np.where, "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip


def _ensemble(attributes: dict[str, Any], features: FloatArray) -> Any:
    """Sums of the leaves' weights in double precision; the output is single."""
    nodes = _Nodes.empty()
    tree = attributes["nodes_treeids"]
    starts = [n for n, number in enumerate(tree) if n == 0 or number != tree[n - 1]]
    first = dict(zip((tree[n] for n in starts), starts, strict=True))
    weight = {
        first[t] + node: value
        for t, node, value in zip(
            attributes["target_treeids"],
            attributes["target_nodeids"],
            attributes["target_weights_as_tensor"].tolist(),
            strict=True,
        )
    }
    nodes.roots = starts
    names = ("modes", "featureids", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    columns = zip(*(attributes[f"nodes_{name}"] for name in names), strict=True)
    values = attributes["nodes_values_as_tensor"].tolist()
    for at, (mode, feature, left, right, tracks) in enumerate(columns):
        start = first[tree[at]]
        if mode == b"LEAF":
            nodes.add(-1, weight[at])
        else:
            nodes.add(feature, values[at], nan_left=bool(tracks), left=start + left,
                      right=start + right)  # fmt: skip
    total = _summed(nodes.leaves(features, _not_above, np.float64), np.float64)
    return total.astype(np.float32)[:, None]


def _fields(message: bytes) -> dict[int, list[Any]]:
    """The fields of a message by number: whole numbers and bytes."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value: Any
        if key & 7 == 2:
            size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
        elif key & 7 == 0:
            value, at = _varint(message, at)
        else:
            raise FileFormatError("the ONNX file has a kind of field that untilt never writes.")
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        value |= (message[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if message[at - 1] < 128:
            return value, at


def _array(tensor: dict[int, list[Any]]) -> FloatArray:
    return np.frombuffer(tensor[9][0], "<f8").reshape(tensor.get(1, []))


def _attribute(message: bytes) -> tuple[str, Any]:
    held = _fields(message)
    name, kind = held[1][0].decode(), held[20][0]
    if kind == 2:
        return name, held[3][0]
    if kind == 3:
        return name, held[4][0]
    if kind == 4:
        return name, _array(_fields(held[5][0]))
    if kind == 8:
        return name, held[9]
    packed, values, at = held[8][0], [], 0
    while at < len(packed):
        value, at = _varint(packed, at)
        values.append(value)
    return name, values
