"""Whether LightGBM's text of a model is one that LightGBM can be given.

LightGBM believes its own text. A child, leaf or feature out of range makes it read memory that is
not its own, children in a circle make it walk for ever, a wrong size of a tree ends the process. So
a text from a file is read here first, and refused unless every line is one that LightGBM writes,
every list has its length, and every tree is one tree:

- each inner node but the first, and each leaf, is the child of exactly one node;
- a child that is an inner node comes after its parent, as LightGBM numbers them, so that there is
  no circle.

One output per row is all that a ranker has: models of several classes are refused.
"""

import json
import math
import re
from itertools import pairwise

from untilt.errors import FileFormatError

MOST_LEAVES = 131_072  # LightGBM's own limit of num_leaves
_DEEPEST = 4_096  # LightGBM walks some trees by recursion

_WHOLE = re.compile(r"[-0-9 ]*")
_NUMBERS = re.compile(r"[-+.0-9einaf ]*")  # with "inf" and "nan", which only notes may hold
_NATURAL = re.compile(r"[0-9]{1,9}")
_FEATURE_INFO = re.compile(r"none|\[[-+.0-9einaf]+:[-+.0-9einaf]+\]|-?[0-9]+(:-?[0-9]+)*")
_OBJECTIVE = re.compile(r"([a-z_0-9]+)((?: [a-z_]+(?::[-+.0-9e]+)?)*)")
_PARAMETER = re.compile(r'\[[a-z_0-9]+: [^"\\\x00-\x1f]*\]')
_ONE_OUTPUT = frozenset({
    "custom", "regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape",
    "gamma", "tweedie", "binary", "lambdarank", "rank_xendcg", "cross_entropy",
    "cross_entropy_lambda",
})  # fmt: skip
_HEAD = frozenset({
    "version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx",
    "objective", "feature_names", "monotone_constraints", "feature_infos", "tree_sizes",
})  # fmt: skip
_NEEDED = ("version", "num_class", "num_tree_per_iteration", "max_feature_idx", "feature_names",
           "feature_infos")  # fmt: skip
_OF_A_TREE = (
    "num_leaves", "num_cat", "split_feature", "split_gain", "threshold", "decision_type",
    "left_child", "right_child", "leaf_value", "leaf_weight", "leaf_count", "internal_value",
    "internal_weight", "internal_count", "is_linear", "shrinkage",
)  # fmt: skip
_OF_CATEGORIES = ("cat_boundaries", "cat_threshold")
_OF_LINEAR_LEAVES = ("leaf_const", "num_features", "leaf_features", "leaf_coeff")
# Bits of decision_type: by category, missing goes left; above them how missing is known, 0 to 2.
_BY_CATEGORY, _MOST_DECISION = 1, 11


def check_tree_model(text: str) -> None:
    """Raise `FileFormatError` unless LightGBM can read this text and predict with it."""
    if "\0" in text or "\r" in text:
        raise _refusal("a character that LightGBM never writes")
    body, mark, tail = text.partition("\n\nend of trees\n")
    head, *trees = body.split("\nTree=")
    if not mark or not trees:
        raise _refusal("no trees, or no end of them")
    lines = _keys(head.split("\n"), of="the model")
    n_features = _checked_head(lines)
    sizes = lines.get("tree_sizes")
    # Each tree is counted from its "Tree=" to the next; two line ends stand in the marks here.
    found = [len(tree) + len("\nTree=") for tree in trees[:-1]]
    found.append(len(trees[-1]) + len("Tree=\n\n"))
    if sizes is not None and _whole(sizes, len(trees), "tree_sizes") != found:
        raise _refusal("sizes of trees that are not theirs")
    for number, tree in enumerate(trees):
        try:
            _check_tree(tree, number, n_features)
        except FileFormatError as error:
            raise FileFormatError(f"{error} It is in tree {number}.") from None
    _check_tail(tail.split("\n"))


def _keys(lines: list[str], *, of: str) -> dict[str, str]:
    """name -> value of each line; empty ones left out."""
    found: dict[str, str] = {}
    for line in lines:
        if not line or line in ("tree", "average_output"):
            continue
        name, mark, value = line.partition("=")
        if not mark or name in found:
            raise _refusal(f"the line {name[:40]!r} of {of} twice, or without a value")
        found[name] = value
    return found


def _checked_head(lines: dict[str, str]) -> int:
    """The number of features."""
    unknown = [name for name in lines if name not in _HEAD]
    missing = [name for name in _NEEDED if name not in lines]
    if unknown or missing:
        raise _refusal(f"other lines at its head than it writes: {(unknown + missing)[0][:40]!r}")
    if lines["version"] not in ("v3", "v4"):
        raise _refusal(f"version {lines['version'][:20]!r} of its format")
    if (lines["num_class"], lines["num_tree_per_iteration"]) != ("1", "1"):
        raise _refusal("several trees in an iteration (several classes), which no ranker has")
    if not _NATURAL.fullmatch(lines.get("label_index", "0")):
        raise _refusal("a label_index that is no number")
    n = _natural(lines["max_feature_idx"], "max_feature_idx") + 1
    names, infos = lines["feature_names"].split(" "), lines["feature_infos"].split(" ")
    if len(names) != n or len(infos) != n or not all(names):
        raise _refusal(f"{len(names)} names and {len(infos)} ranges for {n} features")
    if not all(map(_FEATURE_INFO.fullmatch, infos)):
        raise _refusal("feature_infos that it never writes")
    if "monotone_constraints" in lines:
        _whole(lines["monotone_constraints"], n, "monotone_constraints")
    objective = _OBJECTIVE.fullmatch(lines.get("objective", "custom"))
    if objective is None or objective[1] not in _ONE_OUTPUT:
        raise _refusal(f"the objective {lines['objective'][:40]!r}, which no ranker has")
    return n


def _check_tree(text: str, number: int, n_features: int) -> None:
    first, _, rest = text.partition("\n")
    lines = _keys(rest.split("\n"), of="a tree")
    if first != str(number):
        raise _refusal(f"tree {first[:20]!r} where tree {number} should be")
    n = _natural(lines.get("num_leaves"), "num_leaves")
    n_cat = _natural(lines.get("num_cat"), "num_cat")
    linear = lines.get("is_linear") == "1"
    wanted = (*_OF_A_TREE, *(_OF_CATEGORIES if n_cat else ()), *(_OF_LINEAR_LEAVES * linear))
    if not 1 <= n <= MOST_LEAVES or lines.get("is_linear") not in ("0", "1"):
        raise _refusal(f"a tree of {n} leaves, or one that is not known to be linear or not")
    if set(lines) != set(wanted):
        odd = sorted(set(lines) ^ set(wanted))[0]
        raise _refusal(f"too many or too few lines: {odd[:40]!r}")
    _numbers(lines["shrinkage"], 1, "shrinkage", finite=True)
    _numbers(lines["leaf_value"], n, "leaf_value", finite=True)
    # Notes for people, and importances; a tree of one leaf may lack them.
    for name, size in (("split_gain", n - 1), ("leaf_weight", n), ("internal_value", n - 1),
                       ("internal_weight", n - 1)):  # fmt: skip
        if lines[name] or n > 1:
            _numbers(lines[name], size, name)
    for name, size in (("leaf_count", n), ("internal_count", n - 1)):
        if lines[name] or n > 1:
            _whole(lines[name], size, name)
    _check_splits(lines, n, n_cat, n_features)
    if linear:
        _check_linear_leaves(lines, n, n_features)


def _check_splits(lines: dict[str, str], n: int, n_cat: int, n_features: int) -> None:
    feature = _whole(lines["split_feature"], n - 1, "split_feature")
    # Infinite where LightGBM sends NaN one way and every number the other.
    threshold = _numbers(lines["threshold"], n - 1, "threshold")
    if any(map(math.isnan, threshold)):
        raise _refusal("threshold that is no number")
    decision = _whole(lines["decision_type"], n - 1, "decision_type")
    left = _whole(lines["left_child"], n - 1, "left_child")
    right = _whole(lines["right_child"], n - 1, "right_child")
    if n > 1 and not 0 <= min(feature) <= max(feature) < n_features:
        raise _refusal("a split of a feature that there is not")
    if n > 1 and not 0 <= min(decision) <= max(decision) <= _MOST_DECISION:
        raise _refusal("a kind of split that there is not")
    _check_one_tree(left, right, n)
    categories = [at for at, kind in zip(threshold, decision, strict=True) if kind & _BY_CATEGORY]
    if not all(0 <= at < n_cat and at == int(at) for at in categories):
        raise _refusal("a split by a set of categories that there is not")
    if n_cat:
        start = _whole(lines["cat_boundaries"], n_cat + 1, "cat_boundaries")
        _whole(lines["cat_threshold"], start[-1], "cat_threshold")
        if start[0] != 0 or any(a > b for a, b in pairwise(start)):
            raise _refusal("sets of categories that do not follow each other")


def _check_one_tree(left: list[int], right: list[int], n: int) -> None:
    """Leaves are -1 to -n, inner nodes 0 to n - 2 with the root at 0."""
    if sorted(left + right) != [*range(-n, 0), *range(1, n - 1)] * (n > 1):
        raise _refusal("children out of range, or two ways to a node")
    inner = (at < child or child < 0 for side in (left, right) for at, child in enumerate(side))
    if not all(inner):
        raise _refusal("a node above its own parent")
    if n > _DEEPEST:
        depth = [0] * (n - 1)
        for at in range(n - 1):
            for child in (left[at], right[at]):
                if child >= 0:
                    depth[child] = depth[at] + 1
        if max(depth) >= _DEEPEST:
            raise _refusal(f"a tree of more than {_DEEPEST:,} levels")


def _check_linear_leaves(lines: dict[str, str], n: int, n_features: int) -> None:
    _numbers(lines["leaf_const"], n, "leaf_const", finite=True)
    sizes = _whole(lines["num_features"], n, "num_features")
    if min(sizes) < 0:
        raise _refusal("a leaf of less than no feature")
    features = _whole(lines["leaf_features"], sum(sizes), "leaf_features")
    _numbers(lines["leaf_coeff"], sum(sizes), "leaf_coeff", finite=True)
    if features and not 0 <= min(features) <= max(features) < n_features:
        raise _refusal("a leaf with a feature that there is not")


def _check_tail(lines: list[str]) -> None:
    """Importances, parameters and pandas's categories, each of which LightGBM reads by line."""
    starts, ends = (
        [place for place, line in enumerate(lines) if line == mark]
        for mark in ("parameters:", "end of parameters")
    )
    if not len(starts) == len(ends) <= 1:  # without their end LightGBM reads on behind the text
        raise _refusal("parameters without a beginning or an end")
    start, end = (starts[0], ends[0]) if starts else (0, 0)
    if end < start or not all(
        _PARAMETER.fullmatch(each) for each in lines[start + 1 : end] if each
    ):
        raise _refusal("parameters that it never writes")
    for line in lines[end:]:
        name, mark, value = line.partition("pandas_categorical:")
        if mark and (name or not _lists_of_categories(value)):
            raise _refusal("categories of pandas that it never writes")


def _lists_of_categories(text: str) -> bool:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return found is None or (isinstance(found, list) and all(isinstance(e, list) for e in found))


def _natural(text: str | None, name: str) -> int:
    if text is None or not _NATURAL.fullmatch(text):
        raise _refusal(f"{name} that is no number")
    return int(text)


def _whole(text: str, size: int, name: str) -> list[int]:
    """Exactly `size` whole numbers of 32 bits, with a sign or without."""
    try:
        found = list(map(int, text.split())) if _WHOLE.fullmatch(text) else []
    except ValueError:
        found = []
    if len(found) != size:
        raise _refusal(f"{len(found):,} whole numbers in {name} where {size:,} should be")
    if found and not -(2**31) <= min(found) <= max(found) < 2**32:
        raise _refusal(f"{name} that does not fit 32 bits")
    return found


def _numbers(text: str, size: int, name: str, *, finite: bool = False) -> list[float]:
    """Exactly `size` numbers."""
    try:
        found = list(map(float, text.split())) if _NUMBERS.fullmatch(text) else []
    except ValueError:
        found = []
    if len(found) != size:
        raise _refusal(f"{len(found):,} numbers in {name} where {size:,} should be")
    if finite and not all(map(math.isfinite, found)):
        raise _refusal(f"{name} that is not finite")
    return found


def _refusal(found: str) -> FileFormatError:
    return FileFormatError(f"LightGBM did not write its tree model: it has {found}.")
