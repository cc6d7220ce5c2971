"""Which way a missing feature goes at each split of a trained booster.

LightGBM learns a way for a feature that was missing in training. At a split of any other feature it
takes NaN for 0, whatever 0 means there. Here the way is written into the trees, so that the
ranker, its file and the exported text all score a missing feature alike:

- data whose gaps were filled with a number: the way that this number goes;
- data whose gaps were kept, at a feature that had none in training: the way of its median.
"""

from typing import TYPE_CHECKING

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray
from untilt.rankers.learning_data import TrainingLists

if TYPE_CHECKING:
    import lightgbm

# Bits of LightGBM's decision_type: the split is by category, NaN goes left, NaN is known as NaN.
_BY_CATEGORY, _LEFT, _KNOWS_NAN = 1, 2, 8


def with_ways_for_missing(
    booster: "lightgbm.Booster", n_trees: int, lists: TrainingLists
) -> "lightgbm.Booster":
    """The first `n_trees` trees with a way for NaN at every split; the booster itself if not asked.

    Data that was read without `missing` has no such way: `predict` then refuses NaN.
    """
    if lists.missing is None:
        return booster
    import lightgbm

    learned = np.asarray(np.isnan(lists.features).any(axis=0))
    if lists.missing == "keep":
        stands_for = np.zeros(len(learned))
        stands_for[~learned] = np.median(lists.features[:, ~learned], axis=0)
    else:
        stands_for = np.full(len(learned), np.float32(lists.missing), dtype=np.float64)
    text = booster.model_to_string(num_iteration=n_trees)
    return lightgbm.Booster(model_str=text_with_ways(text, stands_for, ~learned))


def text_with_ways(text: str, stands_for: FloatArray, chosen: BoolArray) -> str:
    """LightGBM's text in which NaN goes the way of `stands_for` at splits of the chosen features.

    Parameters
    ----------
    stands_for, chosen : (features,) the value that NaN counts as, and where it does
    """
    lines, feature, threshold = text.split("\n"), np.empty(0, dtype=np.int64), np.empty(0)
    for number, line in enumerate(lines):
        name, _, values = line.partition("=")
        if name == "split_feature":
            feature = np.array(values.split(), dtype=np.int64)
        elif name == "threshold":
            threshold = np.array(values.split(), dtype=np.float64)
        elif name == "decision_type":
            kind = np.array(values.split(), dtype=np.int64)
            ours = chosen[feature] & (kind & _BY_CATEGORY == 0)
            way = _KNOWS_NAN + _LEFT * (stands_for[feature] <= threshold)
            lines[number] = "decision_type=" + " ".join(map(str, np.where(ours, way, kind)))
    # The bytes of each tree change here; LightGBM reads on without them.
    return "\n".join(line for line in lines if not line.startswith("tree_sizes="))
