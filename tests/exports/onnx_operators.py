"""The operators of ONNX that untilt writes, by NumPy: a slow twin of onnxruntime."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.exports import forms


def run_onnx_operators(path: Path, features: forms.SingleArray) -> FloatArray:
    """The operators that untilt writes, one after the other."""
    graph = _fields(_fields(path.read_bytes())[7][0])
    values: dict[str, Any] = {"features": features}
    for each in graph.get(5, ()):
        tensor = _fields(each)
        values[tensor[8][0].decode()] = _array(tensor)
    for each in graph[1]:
        node = _fields(each)
        inputs = [values[name.decode()] for name in node[1]]
        attributes = dict(_read_attribute(part) for part in node.get(5, ()))
        operator = node[4][0].decode()
        output = node[2][0].decode()
        if operator == "Cast":
            values[output] = inputs[0].astype({1: np.float32, 11: np.float64}[attributes["to"]])
        elif operator == "TreeEnsembleRegressor":
            values[output] = _ensemble_scores(attributes, *inputs)
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


def _ensemble_scores(attributes: dict[str, Any], features: FloatArray) -> Any:
    """Sums of the leaves' weights in double precision; the output is single."""
    nodes = forms.Nodes()
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
    total = forms.summed(nodes.leaves(features, forms.not_above, np.float64), np.float64)
    return total.astype(np.float32)[:, None]


def _fields(message: bytes) -> dict[int, list[Any]]:
    """The fields of a message by number: whole numbers and bytes."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        value: Any
        if key & 7 == 2:
            size, at = _read_varint(message, at)
            value, at = message[at : at + size], at + size
        elif key & 7 == 0:
            value, at = _read_varint(message, at)
        else:
            raise ValueError("a kind of field that untilt never writes")
        found.setdefault(key >> 3, []).append(value)
    return found


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        value |= (message[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if message[at - 1] < 128:
            return value, at


def _array(tensor: dict[int, list[Any]]) -> FloatArray:
    return np.frombuffer(tensor[9][0], "<f8").reshape(tensor.get(1, []))


def _read_attribute(message: bytes) -> tuple[str, Any]:
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
        value, at = _read_varint(packed, at)
        values.append(value)
    return name, values
