"""What the readers of written models share: `check_export` compares with what they compute.

Each format has its own reader. It parses the file alone and does what the engine's own classes do
with it: which comparison, in which precision, where a missing value goes, in which order and
precision trees are summed. Rules as of the engines' sources in 2026:

| engine | a split goes left where | NaN | sum |
|---|---|---|---|
| Elasticsearch LTR, OpenSearch LTR | threshold > x, single | the child called "missing" | single |
| Solr | x <= fl(threshold + 1e-6), single, x normalised | "missing", from 9.2 on | single |
| Vespa | x < threshold; not x >= threshold with default_left | false | double |
| XGBoost | x < threshold, single | default_left | single |
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray
from untilt.errors import FileFormatError
from untilt.exports.forms import SingleArray

# Where a row goes: (values of the split's feature, the split's number, NaN left) -> left?
GoesLeft = Callable[[Any, Any, BoolArray], BoolArray]


@dataclass
class Nodes:
    """All trees of a file, nodes one after the other; `feature` -1 marks a leaf."""

    roots: list[int]
    feature: list[int]
    number: list[float]
    nan_left: list[bool]
    left: list[int]
    right: list[int]

    @classmethod
    def empty(cls) -> "Nodes":
        """Before the first tree."""
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
        """One more node; returns its number. A leaf has feature -1 and its value for a number."""
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


def summed(leaves: Iterable[Any], dtype: Any) -> FloatArray:
    """One tree after the other, each sum rounded to the precision."""
    total: Any = dtype(0)
    with np.errstate(over="ignore", invalid="ignore"):
        for each in leaves:
            total = (total + each).astype(dtype)
    return np.asarray(total, np.float64)


def read_json(path: Path) -> Any:
    """A model of JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is no JSON that an engine would read: {error}.") from None


def single_of(value: Any) -> np.float32:
    """What Java makes of a number in JSON or of a text: a double or a text, then a single."""
    with np.errstate(over="ignore"):
        return np.float32(float(value))


def indices(names: Sequence[str]) -> dict[str, int]:
    """Name -> number."""
    return {name: number for number, name in enumerate(names)}


def leaf_of(node: Any, key: str) -> float | None:
    """The value of a leaf under this key; None for a split."""
    return float(single_of(node[key])) if key in node else None


def below(x: Any, threshold: Any, nan_left: BoolArray) -> BoolArray:
    """threshold > x; NaN where the split says."""
    left: BoolArray = np.where(np.isnan(x), nan_left, threshold > x)
    return left


def not_above(x: Any, threshold: Any, nan_left: BoolArray) -> BoolArray:
    """x <= threshold; NaN where the split says."""
    left: BoolArray = np.where(np.isnan(x), nan_left, x <= threshold)
    return left


def linear_single(features: SingleArray, weights: SingleArray) -> FloatArray:
    """w . x in single precision, one feature after the other; a missing one counts 0."""
    total = np.zeros(len(features), np.float32)
    for column, weight in zip(features.T, weights, strict=True):
        total = (total + weight * np.where(np.isnan(column), np.float32(0), column)).astype("f4")
    return total.astype(np.float64)
