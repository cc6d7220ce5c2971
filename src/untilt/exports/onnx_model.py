r"""ONNX: trees, linear rankers and networks, for onnxruntime and all that reads ONNX.

Input "features", (rows, d) single floats, NaN for a missing value; output "score", (rows, 1).
Inside the graph everything is in double precision, so that scores are those of `predict` up to the
rounding of the output. Trees are one `TreeEnsembleRegressor` with x <= cut at every split;
converters that round thresholds to single floats send values at a split the other way.

The file is a message of Protocol Buffers. The few kinds of fields that a model needs are written
here by hand: ONNX's own package is not needed.
"""

import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from untilt._core.arrays import AnyArray, FloatArray
from untilt._version import __version__
from untilt.catalog import method
from untilt.errors import OptionError
from untilt.exports import forms
from untilt.exports.format import ExportFiles, Format, Target
from untilt.networks.mlp import Network

# Tried with onnxruntime 1.17 and 1.31.
_IR, _OPSET, _ML_OPSET, _ML = 8, 15, 3, "ai.onnx.ml"
_FLOAT, _DOUBLE = 1, 11  # element types
_INPUT, _OUTPUT = "features", "score"


@method(
    "export", "onnx", title="ONNX", order=35, default=True, public=False,
    note="a graph for onnxruntime and other readers; trees, linear rankers and networks",
)  # fmt: skip
@dataclass(frozen=True)
class OnnxModel(Format):
    """A graph from features to scores."""

    endings: ClassVar[Mapping[type[Any], str]] = {
        forms.Forest: ".onnx", forms.LinearForm: ".onnx", forms.NetworkForm: ".onnx",
    }  # fmt: skip

    def files(
        self, form: forms.Forest | forms.LinearForm | forms.NetworkForm, target: Target
    ) -> ExportFiles:
        """The model alone."""
        graph = OnnxGraph()
        x = graph.add("Cast", _INPUT, to=_DOUBLE)
        if isinstance(form, forms.Forest):
            score = _ensemble(graph, form, x)
        elif isinstance(form, forms.LinearForm):
            score = _linear(graph, form, x)
        else:
            score = _networks(graph, form, x)
        graph.add("Cast", score, to=_FLOAT, output=_OUTPUT)
        return ExportFiles(graph.model(target.name, form.names))

    def scores(self, path: Path, names: tuple[str, ...], features: forms.SingleArray) -> FloatArray:  # noqa: ARG002
        """By onnxruntime."""
        try:
            import onnxruntime
        except ModuleNotFoundError:
            raise OptionError(
                "an ONNX file is checked by onnxruntime, which is not installed. Install it: "
                "pip install onnxruntime."
            ) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            os.fspath(path), options, providers=["CPUExecutionProvider"]
        )
        (score,) = session.run(None, {session.get_inputs()[0].name: features})
        return np.asarray(score, np.float64)[:, 0]


# ---- the graphs


def _ensemble(graph: "OnnxGraph", forest: forms.Forest, x: str) -> str:
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids",
                     "missing_value_tracks_true", "values")
    }  # fmt: skip
    modes: list[bytes] = []
    for number, tree in enumerate(forest.trees):
        n, leaves = tree.n_splits, len(tree.leaf)
        none = [0] * leaves
        columns["treeids"] += [number] * (n + leaves)
        columns["nodeids"] += range(n + leaves)
        columns["featureids"] += [*tree.feature.tolist(), *none]
        for side, child in (("truenodeids", tree.left), ("falsenodeids", tree.right)):
            columns[side] += [*np.where(child >= 0, child, n + ~child).tolist(), *none]
        columns["missing_value_tracks_true"] += [*tree.nan_left.astype(int).tolist(), *none]
        columns["values"] += [*tree.cut.tolist(), *none]
        modes += [b"BRANCH_LEQ"] * n + [b"LEAF"] * leaves
    values = np.array(columns.pop("values"), np.float64)
    arrays: dict[str, Any] = {f"nodes_{k}": np.array(v, np.int64) for k, v in columns.items()}
    is_leaf = np.array([mode == b"LEAF" for mode in modes])
    return graph.add(
        "TreeEnsembleRegressor",
        x,
        domain=_ML,
        n_targets=1,
        aggregate_function=b"SUM",
        post_transform=b"NONE",
        nodes_modes=modes,
        nodes_values_as_tensor=values,
        **arrays,
        target_treeids=np.array(columns["treeids"], np.int64)[is_leaf],
        target_nodeids=np.array(columns["nodeids"], np.int64)[is_leaf],
        target_ids=np.zeros(int(is_leaf.sum()), np.int64),
        target_weights_as_tensor=np.concatenate([tree.leaf for tree in forest.trees]),
    )


def _linear(graph: "OnnxGraph", form: forms.LinearForm, x: str) -> str:
    x = _filled(graph, x, form.fill)
    weights = graph.constant(form.weights[:, None].astype(np.float64))
    return graph.add("Add", graph.add("MatMul", x, weights), graph.number(form.constant))


def _filled(graph: "OnnxGraph", x: str, fill: float | None) -> str:
    """x with a number in place of NaN; x itself where there is none."""
    if fill is None:
        return x
    return graph.add("Where", graph.add("IsNaN", x), graph.number(fill), x)


def _networks(graph: "OnnxGraph", form: forms.NetworkForm, x: str) -> str:
    """The sum of the parts."""
    x, total = _filled(graph, x, form.fill), ""
    for weight, network, as_share in form.parts:
        out = _forward(graph, network, x)
        if as_share:
            out = graph.add("Sigmoid", out)
        out = graph.add("Mul", out, graph.number(weight)) if weight != 1 else out
        total = graph.add("Add", total, out) if total else out
    return total


def _forward(graph: "OnnxGraph", network: Network, x: str) -> str:
    """Normalise, then the layers; see `untilt.networks.mlp.Network`."""
    if network.transform == "log1p":
        one = graph.add("Add", graph.add("Abs", x), graph.number(1.0))
        x = graph.add("Mul", graph.add("Sign", x), graph.add("Log", one))
    inverse = np.divide(
        1.0, network.scale, out=np.zeros_like(network.scale), where=network.scale > 0
    )
    x = graph.add("Mul", graph.add("Sub", x, graph.constant(network.mean)), graph.constant(inverse))
    x = graph.add("Where", graph.add("IsNaN", x), graph.number(0.0), x)
    layers = list(zip(network.weights, network.biases, strict=True))
    for number, (weights, biases) in enumerate(layers):
        w, b = (graph.constant(np.asarray(each, np.float64)) for each in (weights, biases))
        x = graph.add("Add", graph.add("MatMul", x, w), b)
        if number < len(layers) - 1:
            x = _activated(graph, network.activation, x)
    return x


def _activated(graph: "OnnxGraph", activation: str, x: str) -> str:
    """By operators that there are in double precision: onnxruntime has no Elu of doubles."""
    if activation == "identity":
        return x
    if activation in ("relu", "tanh"):
        return graph.add(activation.capitalize(), x)
    if activation == "elu":
        zero, one = graph.number(0.0), graph.number(1.0)
        below = graph.add("Sub", graph.add("Exp", graph.add("Min", x, zero)), one)
        return graph.add("Add", graph.add("Max", x, zero), below)
    cube = graph.add("Mul", graph.add("Mul", x, x), x)
    inner = graph.add("Add", x, graph.add("Mul", cube, graph.number(0.044715)))
    tanh = graph.add("Tanh", graph.add("Mul", inner, graph.number(float(np.sqrt(2 / np.pi)))))
    half = graph.add("Mul", x, graph.number(0.5))
    return graph.add("Mul", half, graph.add("Add", tanh, graph.number(1.0)))


# ---- the file: fields of Protocol Buffers, by the numbers of onnx.proto


@dataclass
class OnnxGraph:
    """Nodes and constants, as messages; `add` gives the name of what a node puts out."""

    nodes: list[bytes] = field(default_factory=list)
    constants: list[bytes] = field(default_factory=list)
    numbers: dict[float, str] = field(default_factory=dict)

    def add(
        self, operator: str, *inputs: str, domain: str = "", output: str = "", **attributes: Any
    ) -> str:
        """One node with one output."""
        output = output or f"{operator.lower()}_{len(self.nodes)}"
        parts = [*(_text(1, each) for each in inputs), _text(2, output), _text(4, operator)]
        parts += [_bytes(5, _attribute(name, value)) for name, value in attributes.items()]
        parts += [_text(7, domain)] if domain else []
        self.nodes.append(b"".join(parts))
        return output

    def constant(self, values: AnyArray) -> str:
        """The name of an array of doubles."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(_tensor(values, name))
        return name

    def number(self, value: float) -> str:
        """The name of a number."""
        if value not in self.numbers:
            self.numbers[value] = self.constant(np.array(value))
        return self.numbers[value]

    def model(self, name: str, features: Sequence[str]) -> bytes:
        """The whole file."""
        graph = b"".join(
            [
                *(_bytes(1, node) for node in self.nodes),
                _text(2, name),
                *(_bytes(5, each) for each in self.constants),
                _bytes(11, _value(_INPUT, len(features))),
                _bytes(12, _value(_OUTPUT, 1)),
            ]
        )
        named = _text(1, "features") + _text(2, "\n".join(features))
        operators = ((_OPSET, ""), (_ML_OPSET, _ML))
        return b"".join(
            [
                _whole(1, _IR),
                _text(2, "untilt"),
                _text(3, __version__),
                _bytes(7, graph),
                *(_bytes(8, _text(1, domain) + _whole(2, v)) for v, domain in operators),
                _bytes(14, named),
            ]
        )


def _attribute(name: str, value: Any) -> bytes:
    """AttributeProto: a whole number, bytes, doubles as a tensor, whole numbers, several bytes."""
    if isinstance(value, int):
        held = _whole(3, value) + _whole(20, 2)
    elif isinstance(value, bytes):
        held = _bytes(4, value) + _whole(20, 3)
    elif isinstance(value, list):
        held = b"".join(_bytes(9, each) for each in value) + _whole(20, 8)
    elif value.dtype.kind == "f":
        held = _bytes(5, _tensor(value, name)) + _whole(20, 4)
    else:
        held = _bytes(8, _packed(value.tolist())) + _whole(20, 7)
    return _text(1, name) + held


def _tensor(values: AnyArray, name: str) -> bytes:
    """TensorProto of doubles."""
    dims = b"".join(_whole(1, size) for size in values.shape)
    raw = np.ascontiguousarray(values, "<f8").tobytes()
    return dims + _whole(2, _DOUBLE) + _text(8, name) + _bytes(9, raw)


def _value(name: str, columns: int) -> bytes:
    """ValueInfoProto of (rows, columns) single floats."""
    shape = _bytes(1, _text(2, "rows")) + _bytes(1, _whole(1, columns))
    tensor = _whole(1, _FLOAT) + _bytes(2, shape)
    return _text(1, name) + _bytes(2, _bytes(1, tensor))


def _whole(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())


def _packed(values: Iterable[int]) -> bytes:
    return b"".join(map(_varint, values))


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    if 0 <= value < 128:
        return struct.pack("B", value)
    held = bytearray()
    value &= 2**64 - 1
    while value > 127:
        held.append(value & 127 | 128)
        value >>= 7
    held.append(value)
    return bytes(held)
