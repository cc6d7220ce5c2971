"""Scores of boosted trees, to the last bit those of LightGBM, in a tenth of its time or less.

A tree is not walked. Its leaves stand in a row from left to right, one bit each, and a document
starts with all bits set. Every split that sends it to the right clears the bits of the leaves on
its left; the first bit that is left marks the leaf [lucchese2015quickscorer]_. `LANES` documents do
so at once, each in its own lane of vector registers, split by split: no branch depends on data, so
nothing is predicted wrongly, and the splits are read from memory in their order.

What LightGBM does with a value is settled before the first comparison:

- Up to 1e-35 in size a value counts as 0, as in LightGBM's reading of a dense table.
- A missing value (NaN; at splits that take 0 for missing also 0) goes the way that the split says.
  It becomes -inf or +inf in a column of its own for splits that send it left or right, and 0 for
  splits that know no missing values. So each split is one comparison, x > threshold.
- Features are single precision, so x > t exactly where x > (the largest such number up to t).

The leaves are added in double precision in the order of the trees.

Measured in CPU time on one thread (`benchmarks/bench_score.py`). Walking the trees, four documents
side by side, took 12 times as long at 31 leaves, twice at 255. The same loop in plain numba is as
fast as here with 64 lanes, and five times slower with 32, where LLVM unrolls it before it looks for
vectors; so the vectors are spelled out.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import numba as nb
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, IntArray
from untilt._core.threads import side_by_side

if TYPE_CHECKING:
    import lightgbm

LANES = 32  # documents side by side: four registers of AVX2, two of AVX-512
_WORD = 32  # leaves in a word of bits
# Words are tried one after the other, so that the work grows faster than the tree: with 512 leaves
# LightGBM is as fast.
_MOST_LEAVES = 256

# Bits of LightGBM's decision_type.
_BY_CATEGORY, _LEFT, _ZERO_MISSING, _NAN_MISSING = 1, 2, 4, 8
# What stands in a column where the feature is missing.
_AS_ZERO, _NAN_LEFT, _NAN_RIGHT, _ZERO_LEFT, _ZERO_RIGHT = range(5)
_KINDS = 5
_TINY = np.float32(1e-35)
_INF = np.float32(np.inf)
# The objectives whose scores LightGBM gives out as they are.
_PLAIN_OBJECTIVES = (None, "custom", "regression", "lambdarank", "rank_xendcg")


# In trees walked by LightGBM, some 75 ns each: what it takes to read the trees of a booster, for
# each of them; and to have the kernels, 0.2 s where they lie on disk, 1.5 s where they do not. That
# is once for a machine: half of it is reason enough.
_READING, _FROM_DISK, _COMPILED = 1_500, 3_000_000, 10_000_000
_FEWEST_ROWS = 4  # fewer leave so many lanes empty that LightGBM is as fast


def predict(
    booster: "lightgbm.Booster", n_trees: int, features: FeatureArray, n_threads: int
) -> FloatArray:
    """What `booster.predict` gives for the first trees, from whoever has it sooner.

    LightGBM scores until it has walked as many trees as the kernels' start is worth, or would do so
    in this call. So a short command never waits for a compiler, and a long run soon has them. The
    trees are read once: a booster that is changed later is scored as it was.
    """
    own = _scoring.setdefault(booster, _Scoring(n_trees))
    if own.n_trees != n_trees:
        own = _scoring[booster] = _Scoring(n_trees)
    if features.dtype == np.float32 and len(features) >= _FEWEST_ROWS:
        own.walked += len(features) * n_trees
        if not own.is_read and own.walked >= n_trees * _READING + _kernels():
            own.read(booster)
        if own.scorer is not None:
            return own.scorer.scores(features, n_threads)
    scores = booster.predict(features, num_iteration=n_trees, num_threads=n_threads)
    return np.asarray(scores, dtype=float)


def warm_up(booster: "lightgbm.Booster", n_trees: int) -> None:
    """Have the kernels and the trees at hand, so that no call of `predict` waits for them."""
    own = _scoring[booster] = _Scoring(n_trees)
    own.read(booster)
    if own.scorer is not None:
        own.scorer.scores(np.zeros((1, booster.num_feature()), dtype=np.float32))


@dataclass
class _Scoring:
    """What is known of a booster: how many trees were walked for it, and the scorer once read."""

    n_trees: int
    walked: int = 0
    is_read: bool = False
    scorer: "TreeScorer | None" = None

    def read(self, booster: "lightgbm.Booster") -> None:
        self.scorer = TreeScorer.of(booster, self.n_trees)
        self.is_read = True


_scoring: "WeakKeyDictionary[lightgbm.Booster, _Scoring]" = WeakKeyDictionary()


def _kernels() -> int:
    """What it takes to have the kernels, in trees walked."""
    if _score_rows.signatures:
        return 0
    return _FROM_DISK if _are_on_disk() else _COMPILED


@cache
def _are_on_disk() -> bool:
    folder = Path(_score_rows.stats.cache_path)
    return any(folder.glob(f"{Path(__file__).stem}.{_score_rows.__name__}-*.nbi"))


@dataclass(frozen=True)
class TreeScorer:
    """The trees of a booster as lists of splits.

    Attributes
    ----------
    feature, kind : (columns,) the feature of each column, and what stands for its missing values
    column, threshold, mask : (splits,) x[column] > threshold clears the bits that are 0 in mask
    splits : (words + 1,) where the splits of each word begin
    first_leaf : (words,) the place in `leaf` of each word's first bit
    words : (trees + 1,) where the words of each tree begin
    leaf : (leaves,) values, from left to right in each tree
    """

    feature: IntArray
    kind: IntArray
    column: IntArray
    threshold: AnyArray
    mask: AnyArray
    splits: IntArray
    first_leaf: IntArray
    words: IntArray
    leaf: FloatArray

    @classmethod
    def of(cls, booster: "lightgbm.Booster", n_trees: int) -> Self | None:
        """The first trees of a booster; None where only LightGBM itself can score them.

        Those are trees with sets of categories, with linear leaves or with a split at infinity
        (known against missing), trees of more than 256 leaves, averages (random forests), and
        objectives that transform their scores.
        """
        text: str = booster.model_to_string(num_iteration=n_trees)
        head, *trees = text.split("\n\nend of trees\n", 1)[0].split("\nTree=")
        found = _splits_of(trees) if _is_plain_sum(head) else None
        return None if found is None else cls(*found)

    def scores(self, features: FeatureArray, n_threads: int = 1) -> FloatArray:
        """The sum of the trees for each row of single-precision features."""
        rows = np.ascontiguousarray(features, dtype=np.float32).view()
        rows.flags.writeable = False  # numba compiles again for tables that can be written to
        out = np.empty(len(rows))
        # Whole blocks for each thread.
        size = max(LANES, -(-len(rows) // max(n_threads, 1) // LANES) * LANES)
        parts = [slice(start, start + size) for start in range(0, len(rows), size)]
        side_by_side(lambda part: self._score(rows[part], out[part]), parts, n_threads=n_threads)
        return out

    def _score(self, rows: FeatureArray, out: FloatArray) -> None:
        _score_rows(
            rows, self.feature, self.kind, self.column, self.threshold, self.mask, self.splits,
            self.first_leaf, self.words, self.leaf, out,
        )  # fmt: skip


def _is_plain_sum(head: str) -> bool:
    """Whether the booster's prediction is the sum of its trees and nothing else."""
    lines = head.split("\n")
    named = dict(line.split("=", 1) for line in lines if "=" in line)
    return (
        "average_output" not in lines
        and named.get("num_tree_per_iteration") == "1"
        and named.get("objective") in _PLAIN_OBJECTIVES
    )


def _splits_of(trees: list[str]) -> tuple[AnyArray, ...] | None:
    """The fields of a `TreeScorer`, from LightGBM's text of each tree."""
    lines = [dict(line.split("=", 1) for line in t.split("\n") if "=" in line) for t in trees]
    n_leaves = np.array([int(tree["num_leaves"]) for tree in lines])
    special = any(tree["num_cat"] != "0" or tree["is_linear"] != "0" for tree in lines)
    if special or n_leaves.max(initial=0) > _MOST_LEAVES:
        return None

    def numbers(name: str, dtype: type) -> AnyArray:
        # A tree of one leaf may have notes in place of its splits.
        wanted = (tree[name] for tree in lines if tree["num_leaves"] != "1" or name == "leaf_value")
        kind = float if dtype is np.float64 else int
        return np.array(list(map(kind, " ".join(wanted).split())), dtype=dtype)

    thresholds = numbers("threshold", np.float64)
    if np.any(thresholds == np.inf):
        # NaN alone goes right there, and there is nothing above infinity that could stand for it.
        return None
    key = _KINDS * numbers("split_feature", np.int64) + _kinds(numbers("decision_type", np.int64))
    columns, column = np.unique(key, return_inverse=True)
    laid_out = _lay_out(
        n_leaves, numbers("left_child", np.int64), numbers("right_child", np.int64),
        column.astype(np.int32), _single_precision(thresholds),
        numbers("leaf_value", np.float64),
    )  # fmt: skip
    return (columns // _KINDS, columns % _KINDS, *laid_out)


def _kinds(decision: IntArray) -> IntArray:
    """What a missing value becomes, by LightGBM's decision_type."""
    right = decision & _LEFT == 0
    by_nan = np.where(right, _NAN_RIGHT, _NAN_LEFT)
    by_zero = np.where(right, _ZERO_RIGHT, _ZERO_LEFT)
    known = np.where(decision & _NAN_MISSING, by_nan, _AS_ZERO)
    return np.where(decision & _ZERO_MISSING, by_zero, known)


def _single_precision(threshold: FloatArray) -> AnyArray:
    """The largest float32 up to each threshold: x > it exactly where a float32 x > threshold."""
    with np.errstate(over="ignore", under="ignore"):
        near = threshold.astype(np.float32)
        return np.where(near > threshold, np.nextafter(near, -_INF), near)


@nb.njit(cache=True, nogil=True)
def _lay_out(
    n_leaves: IntArray,
    left: IntArray,
    right: IntArray,
    column: IntArray,
    threshold: AnyArray,
    leaf_value: FloatArray,
) -> tuple[AnyArray, ...]:
    """Splits by the words of bits that they clear, and leaves from left to right.

    In LightGBM a child is a split that comes after its parent, or -1 - leaf.
    """
    n_trees = len(n_leaves)
    words = np.zeros(n_trees + 1, dtype=np.int64)
    for t in range(n_trees):
        words[t + 1] = words[t] + (n_leaves[t] + _WORD - 1) // _WORD
    first_leaf = np.empty(words[-1], dtype=np.int64)
    splits = np.zeros(words[-1] + 1, dtype=np.int64)
    leaf = np.empty(len(leaf_value))
    # The leaves under each split, then the place of the first of them and of the first on the
    # right: [first, middle) is cleared by going right.
    under = np.zeros(len(left), dtype=np.int64)
    first = np.zeros(len(left), dtype=np.int64)
    middle = np.zeros(len(left), dtype=np.int64)
    split0, leaf0 = 0, 0
    for t in range(n_trees):
        n = n_leaves[t] - 1
        for w in range(words[t], words[t + 1]):
            first_leaf[w] = leaf0 + _WORD * (w - words[t])
        for at in range(split0 + n - 1, split0 - 1, -1):
            for child in (left[at], right[at]):
                under[at] += under[split0 + child] if child >= 0 else 1
        if n == 0:
            leaf[leaf0] = leaf_value[leaf0]
        for at in range(split0, split0 + n):
            on_left = left[at]
            middle[at] = first[at] + (under[split0 + on_left] if on_left >= 0 else 1)
            for child, start in ((on_left, first[at]), (right[at], middle[at])):
                if child >= 0:
                    first[split0 + child] = start
                else:
                    leaf[leaf0 + start] = leaf_value[leaf0 - 1 - child]
            for w in range(first[at] // _WORD, (middle[at] - 1) // _WORD + 1):
                splits[words[t] + w + 1] += 1
        split0 += n
        leaf0 += n + 1
    for w in range(words[-1]):
        splits[w + 1] += splits[w]
    into = splits.copy()
    columns = np.empty(splits[-1], dtype=np.int32)
    thresholds = np.empty(splits[-1], dtype=np.float32)
    masks = np.empty(splits[-1], dtype=np.uint32)
    split0 = 0
    for t in range(n_trees):
        for at in range(split0, split0 + n_leaves[t] - 1):
            for w in range(first[at] // _WORD, (middle[at] - 1) // _WORD + 1):
                low = max(first[at] - _WORD * w, 0)
                high = min(middle[at] - _WORD * w, _WORD)
                cleared = (np.uint64(1) << np.uint64(high)) - (np.uint64(1) << np.uint64(low))
                place = into[words[t] + w]
                columns[place], thresholds[place] = column[at], threshold[at]
                masks[place] = np.uint32(~cleared & np.uint64(0xFFFFFFFF))
                into[words[t] + w] += 1
        split0 += n_leaves[t] - 1
    return columns, thresholds, masks, splits, first_leaf, words, leaf


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _score_rows(
    rows: FeatureArray,
    feature: IntArray,
    kind: IntArray,
    column: IntArray,
    threshold: AnyArray,
    mask: AnyArray,
    splits: IntArray,
    first_leaf: IntArray,
    words: IntArray,
    leaf: FloatArray,
    out: FloatArray,
) -> None:
    x = np.zeros((len(feature), LANES), dtype=np.float32)
    bits = np.empty(LANES, dtype=np.uint32)
    place = np.empty(LANES, dtype=np.int64)
    total = np.empty(LANES, dtype=np.float64)
    for start in range(0, len(rows), LANES):
        stop = min(start + LANES, len(rows))
        _fill(rows, start, stop, feature, kind, x)
        for i in range(LANES):
            total[i] = 0.0
        for t in range(len(words) - 1):
            # The first word with a bit left is the last that is written.
            for w in range(words[t + 1] - 1, words[t] - 1, -1):
                _clear(x, column, threshold, mask, splits[w], splits[w + 1], bits)
                if words[t + 1] - words[t] == 1:
                    for i in range(LANES):
                        place[i] = first_leaf[w] + _lowest_bit(bits[i])
                else:
                    for i in range(LANES):
                        if bits[i] != 0:
                            place[i] = first_leaf[w] + _lowest_bit(bits[i])
            for i in range(LANES):
                total[i] += leaf[place[i]]
        for i in range(stop - start):
            out[start + i] = total[i]


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _fill(
    rows: FeatureArray, start: int, stop: int, feature: IntArray, kind: IntArray, x: FeatureArray
) -> None:
    """Columns of a block of rows, with what stands for missing values in each."""
    for c in range(len(feature)):
        j = feature[c]
        way = -_INF if kind[c] == _NAN_LEFT or kind[c] == _ZERO_LEFT else _INF
        at_nan = np.float32(0.0) if kind[c] == _AS_ZERO else way
        at_zero = way if kind[c] == _ZERO_LEFT or kind[c] == _ZERO_RIGHT else np.float32(0.0)
        for i in range(start, stop):
            value = rows[i, j]
            if np.isnan(value):
                value = at_nan
            elif abs(value) <= _TINY:
                value = at_zero
            x[c, i - start] = value


@intrinsic
def _lowest_bit(_: Any, bits: Any) -> Any:
    """The number of zeros below the lowest bit that is set; there must be one."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        zeros = builder.cttz(arguments[0], cgutils.true_bit)
        return builder.zext(zeros, ir.IntType(64))

    return types.int64(bits), generate


@intrinsic
def _clear(
    _: Any, x: Any, column: Any, threshold: Any, mask: Any, start: Any, stop: Any, bits: Any
) -> Any:
    """The bits that splits `start` to `stop` leave in each lane.

    In LLVM's own vectors, so that the bits of all lanes stay in registers from split to split. In
    plain numba:

        bits[:] = 0xFFFFFFFF
        for k in range(start, stop):
            for i in range(LANES):
                if x[column[k], i] > threshold[k]:
                    bits[i] &= mask[k]
    """
    int32, int64 = ir.IntType(32), ir.IntType(64)
    words, numbers = ir.VectorType(int32, LANES), ir.VectorType(ir.FloatType(), LANES)
    every = ir.Constant(words, [2**32 - 1] * LANES)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def data(at: int) -> Any:
            return context.make_array(signature.args[at])(context, builder, arguments[at]).data

        def entry(at: int, k: Any) -> Any:
            return builder.load(builder.gep(data(at), [k]))

        def in_all_lanes(value: Any, vector: Any) -> Any:
            undefined = ir.Constant(vector, ir.Undefined)
            one = builder.insert_element(undefined, value, ir.Constant(int32, 0))
            same = ir.Constant(ir.VectorType(int32, LANES), [0] * LANES)
            return builder.shuffle_vector(one, undefined, same)

        left = cgutils.alloca_once_value(builder, every)
        step = ir.Constant(int64, 1)
        with cgutils.for_range_slice(builder, arguments[4], arguments[5], step) as (k, _):
            row = builder.mul(builder.sext(entry(1, k), int64), ir.Constant(int64, LANES))
            where = builder.bitcast(builder.gep(data(0), [row]), numbers.as_pointer())
            values = builder.load(where, align=4)
            above = builder.fcmp_ordered(">", values, in_all_lanes(entry(2, k), numbers))
            kept = builder.select(above, in_all_lanes(entry(3, k), words), every)
            builder.store(builder.and_(builder.load(left), kept), left)
        into = builder.bitcast(data(6), words.as_pointer())
        builder.store(builder.load(left), into, align=4)
        return context.get_dummy_value()

    return types.void(x, column, threshold, mask, start, stop, bits), generate
