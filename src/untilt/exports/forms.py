r"""What a ranker is made of, in the terms that search engines know: trees, weights, networks.

Engines hold features as single floats. At a split LightGBM compares double with double, after
some reading of its own:

- |x| <= z with z = 1e-35 is read as 0;
- NaN goes the way that the split says, or is read as 0 where the split says nothing.

For every single float x this is the same as one comparison with one single float, the *cut*:

    x <= t  is  x <= cut,    cut = floor32(t);  z for 0 <= t < z;  just below -z for -z <= t < 0,

where floor32(t) is the largest single float that is not above t. An engine that has `<` alone takes
x < next32(cut), next32 being the next larger single float.

Each format has its own reader, with which `check_export` compares. It parses the file alone and
does what the engine's own classes do with it: which comparison, in which precision, where a missing
value goes, in which order and precision trees are summed. Rules as of the engines' sources in 2026:

| engine | a split goes left where | NaN | sum |
|---|---|---|---|
| Elasticsearch LTR, OpenSearch LTR | threshold > x, single | the child called "missing" | single |
| Solr | x <= fl(threshold + 1e-6), single, x normalised | "missing", from 9.2 on | single |
| Vespa | x < threshold; not x >= threshold with default_left | false | double |
| XGBoost | x < threshold, single | default_left | single |
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray, Missing
from untilt.errors import FileFormatError, OptionError
from untilt.networks.mlp import Network
from untilt.rankers.base import Ranker
from untilt.rankers.linear.linear import LinearModel

SingleArray = np.ndarray[tuple[Any, ...], np.dtype[np.float32]]

ZERO = np.float32(1e-35)  # LightGBM's kZeroThreshold
# Bits of LightGBM's decision_type: by category, missing goes left, and how missing is known.
_BY_CATEGORY, _LEFT, _HOW = 1, 2, 12
_ZERO_IS_MISSING, _NAN_IS_MISSING = 4, 8
# Java's JSON readers stop at 1,000 levels, and a level of a tree takes two.
DEEPEST = 250


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree over single floats. Children below 0 are leaves: child c is leaf ~c.

    Parameters
    ----------
    feature, cut, nan_left : (splits,) x[feature] <= cut goes left; where NaN goes
    left, right : (splits,) children; inner ones come after their parents, the first split is 0
    leaf : (leaves,) values in double precision; a tree without splits is its first leaf
    """

    feature: IntArray
    cut: SingleArray
    nan_left: BoolArray
    left: IntArray
    right: IntArray
    leaf: FloatArray

    @property
    def n_splits(self) -> int:
        """Number of inner nodes."""
        return len(self.feature)

    def depths(self) -> tuple[IntArray, IntArray]:
        """(splits,) and (leaves,): steps from the root."""
        of_split, of_leaf = np.zeros(self.n_splits, np.int64), np.zeros(len(self.leaf), np.int64)
        for node in range(self.n_splits):
            for child in (int(self.left[node]), int(self.right[node])):
                if child >= 0:
                    of_split[child] = of_split[node] + 1
                else:
                    of_leaf[~child] = of_split[node] + 1
        return of_split, of_leaf

    def nested(self, leaves: Sequence[str], split: Callable[[int, str, str], str]) -> str:
        """The tree as text, children inside their parents, without recursion.

        leaves : the text of each leaf
        split : the text of a split of its number and the texts of its left and right child
        """
        made = [""] * self.n_splits
        for node in reversed(range(self.n_splits)):
            children = (int(self.left[node]), int(self.right[node]))
            made[node] = split(node, *(made[c] if c >= 0 else leaves[~c] for c in children))
        return made[0] if made else leaves[0]


@dataclass(frozen=True, eq=False)
class Forest:
    """score = sum over trees of the leaf that the features lead to.

    Parameters
    ----------
    names : (features,)
    text : LightGBM's
    missing : what the ranker does with NaN; None refuses it in `predict`
    """

    names: tuple[str, ...]
    text: str
    missing: Missing

    what = "boosted trees"

    @cached_property
    def trees(self) -> tuple[Tree, ...]:
        """Over single floats; raises where LightGBM's trees are of a kind that only it knows."""
        body = self.text.partition("\n\nend of trees\n")[0]
        head, *parts = body.split("\nTree=")
        weight = 1 / len(parts) if "average_output" in head.split("\n") else 1.0
        return tuple(_tree(part, weight) for part in parts)

    @property
    def deepest(self) -> int:
        """Levels of the deepest tree."""
        return max(int(tree.depths()[1].max()) for tree in self.trees)

    @property
    def n_splits(self) -> int:
        """Splits of all trees."""
        return sum(tree.n_splits for tree in self.trees)


class _Fills:
    """A form that may count NaN as a number."""

    missing: Missing

    @property
    def fill(self) -> float | None:
        """What NaN counts as; None where the ranker refuses it, or a network takes the mean."""
        return float(np.float32(self.missing)) if isinstance(self.missing, float | int) else None


@dataclass(frozen=True, eq=False)
class LinearForm(_Fills):
    """score = constant + sum of weight * feature, NaN counted as `missing` where that is a number.

    The constant is the same for all documents, so that no order depends on it. `kind` is the class
    of the ranker.
    """

    kind: str
    names: tuple[str, ...]
    weights: FloatArray
    constant: float
    missing: Missing

    what = "a linear model"


@dataclass(frozen=True, eq=False)
class NetworkForm(_Fills):
    """score = sum over parts of weight * network(features), or of weight * its sigmoid.

    Parameters
    ----------
    parts : (weight, network, whether it is the sigmoid of the output that counts)
    """

    names: tuple[str, ...]
    parts: tuple[tuple[float, Network, bool], ...]
    missing: Missing

    what = "a network"


Form = Forest | LinearForm | NetworkForm


def form_of(ranker: Ranker) -> Form:
    """The form of a fitted ranker; raises for one that has none."""
    ranker._check_fitted()
    if isinstance(ranker, LinearModel):
        constant, kind = -float(ranker.mean_ @ ranker.weights_), type(ranker).__name__
        return LinearForm(kind, ranker.feature_names_, ranker.weights_, constant, ranker.missing_)
    if hasattr(ranker, "booster_"):
        return Forest(ranker.feature_names_, booster_text(ranker), ranker.missing_)
    parts = _networks(ranker)
    if parts:
        return NetworkForm(ranker.feature_names_, parts, ranker.missing_)
    raise OptionError(
        f"a {type(ranker).__name__} has no form that other systems read: only boosted "
        "trees, linear rankers and networks do. ⟦ranker.save(path) keeps it for "
        "untilt|The file of `untilt train` keeps it for untilt⟧."
    )


def booster_text(ranker: Any) -> str:
    """LightGBM's text of the trees that the ranker uses: early stopping may have grown more."""
    text: str = ranker.booster_.model_to_string(num_iteration=ranker.n_trees_)
    return text


def _networks(ranker: Any) -> tuple[tuple[float, Network, bool], ...]:
    from untilt.rankers.networks.network_ranker import NetworkRanker
    from untilt.rankers.networks.towers import PROBABILITY, FeedbackTowers

    if isinstance(ranker, FeedbackTowers):
        weights = ranker.weights or {}
        return tuple(
            (float(weights.get(column, 1.0)), network, ranker.targets_[column] == PROBABILITY)
            for column, network in ranker.networks_.items()
        )
    return ((1.0, ranker.network_, False),) if isinstance(ranker, NetworkRanker) else ()


def _tree(text: str, weight: float) -> Tree:
    lines = dict(line.partition("=")[::2] for line in text.split("\n") if "=" in line)
    if lines.get("is_linear") == "1":
        raise OptionError(
            "trees with linear leaves (linear_tree) cannot be written for this engine, which takes "
            "one number a leaf. Train without linear_tree, or export LightGBM's own text (.txt)."
        )
    threshold = np.array(lines.get("threshold", "").split(), np.float64)
    kind = np.array(lines.get("decision_type", "").split(), np.int64)
    _check_kinds(kind, threshold)
    knows_nan = kind & _HOW == _NAN_IS_MISSING
    return Tree(
        feature=np.array(lines.get("split_feature", "").split(), np.int64),
        cut=cuts(threshold),
        nan_left=np.where(knows_nan, kind & _LEFT > 0, threshold >= 0),
        left=np.array(lines.get("left_child", "").split(), np.int64),
        right=np.array(lines.get("right_child", "").split(), np.int64),
        leaf=np.array(lines["leaf_value"].split(), np.float64) * weight,
    )


def _check_kinds(kind: IntArray, threshold: FloatArray) -> None:
    if np.any(kind & _BY_CATEGORY):
        raise OptionError(
            "splits by category cannot be written for this engine, which compares only numbers. "
            "Train without categorical_feature, or export LightGBM's own text (.txt)."
        )
    zeros_left = threshold >= 0
    elsewhere = (kind & _HOW == _ZERO_IS_MISSING) & ((kind & _LEFT > 0) != zeros_left)
    if np.any(elsewhere):
        raise OptionError(
            "zero_as_missing sends zeros to another branch than numbers close to 0, which this "
            "engine cannot do. Train without it, or export LightGBM's own text (.txt)."
        )


def cuts(threshold: FloatArray) -> SingleArray:
    """The single float that x <= threshold means for single floats; see the module."""
    with np.errstate(over="ignore", under="ignore"):
        cut = threshold.astype(np.float32)
        above = cut.astype(np.float64) > threshold
        cut[above] = np.nextafter(cut[above], np.float32(-np.inf))
    # LightGBM writes inf where NaN alone goes right; no known value is infinite.
    cut[cut == np.inf] = np.finfo(np.float32).max
    cut[(cut >= 0) & (cut < ZERO)] = ZERO
    cut[(cut < 0) & (cut >= -ZERO)] = np.nextafter(-ZERO, np.float32(-np.inf))
    return cut


def next32(cut: SingleArray) -> SingleArray:
    """The next larger single float: x <= cut is x < next32(cut)."""
    with np.errstate(over="ignore", under="ignore"):
        above: SingleArray = np.nextafter(cut, np.float32(np.inf))
    return above


# Numbers as text.

BEYOND = "3.5e+38"  # for infinity, which JSON cannot hold: too large for a single float


def text32(value: np.float32) -> str:
    """The shortest text that is read as this single float, by way of a double too.

    Java and C++ read numbers of JSON as doubles first, which rounds twice.
    """
    if np.isinf(value):
        return BEYOND if value > 0 else f"-{BEYOND}"
    short = str(value)
    return short if np.float32(float(short)) == value else repr(float(value))


def check_names(names: tuple[str, ...], engine: str) -> None:
    """Raise where features cannot be told apart by their names."""
    twice = sorted({name for name in names if names.count(name) > 1 or not name.strip()})
    if twice:
        raise OptionError(
            f"{engine} finds features by name, and {twice[0]!r} is empty or the name of two of "
            "them. Give each feature column a different name and train again."
        )


# Names of features that are scores of a text query; others are taken for fields of numbers.
_OF_TEXT = re.compile(r"bm25|tf_?idf|match|similar|cosine|lmir|phrase", re.IGNORECASE)


def is_text_score(name: str) -> bool:
    """Whether a feature seems to be the score of a text query, by its name."""
    return _OF_TEXT.search(name) is not None


def weights_json(form: LinearForm, engine: str) -> str:
    """The weights as JSON numbers, always with a point or an exponent: Solr reads doubles alone."""
    if form.fill:
        raise OptionError(
            f"{engine} counts a missing feature as 0 in a linear model, and this ranker counts it "
            f"as {form.fill:g}. Read the log with ⟦missing=0.0⟧ and train again, or let the engine "
            "give that value for a missing feature and train without missing values."
        )
    weights = zip(form.names, form.weights.astype(np.float32), strict=True)
    pairs = (f"{json.dumps(n, ensure_ascii=False)}:{text32(w)}" for n, w in weights)
    return "{" + ",".join(pairs) + "}"


def weights_of(given: Any, names: Sequence[str], path: Path) -> SingleArray:
    """The weights of `weights_json`; raises where one is no JSON number, which engines refuse."""
    if wrong := [name for name, weight in given.items() if type(weight) is not float]:
        raise FileFormatError(
            f"{path} has {given[wrong[0]]!r} as the weight of {wrong[0]!r}. The engine reads "
            "numbers with a decimal point and without quotes. Export the ranker again."
        )
    return np.array([single_of(given.get(name, 0.0)) for name in names], np.float32)


def check_depth(forest: Forest, engine: str) -> None:
    """Raise where trees are nested deeper than readers of JSON go."""
    if forest.deepest > DEEPEST:
        raise OptionError(
            f"a tree has {forest.deepest:,} levels; {engine} reads trees as nested JSON, and its "
            f"reader may refuse more than {DEEPEST}. Train with lightgbm_params={{'max_depth': "
            f"{DEEPEST}}} or fewer leaves."
        )


# ---- what the readers of written models share


# Where a row goes: (values of the split's feature, the split's number, NaN left) -> left?
GoesLeft = Callable[[Any, Any, BoolArray], BoolArray]


@dataclass
class Nodes:
    """All trees of a file, nodes one after the other; `feature` -1 marks a leaf."""

    roots: list[int] = field(default_factory=list)
    feature: list[int] = field(default_factory=list)
    number: list[float] = field(default_factory=list)
    nan_left: list[bool] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)

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
        self, tree: Any, split: Callable[[Any], tuple[int, float, bool, Any, Any]], leaf: str
    ) -> None:
        """A tree of nested objects, without recursion; leaves have their value under `leaf`."""
        self.roots.append(len(self.feature))
        waiting: list[tuple[Any, int, str]] = [(tree, -1, "")]
        while waiting:
            node, parent, side = waiting.pop()
            if leaf in node:
                at = self.add(-1, float(node[leaf]))
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
        nan_left = np.array(self.nan_left, bool)
        with np.errstate(over="ignore"):  # Java reads a double, then makes it a single
            number = np.array(self.number, dtype)
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
