"""Several boosters as one: the weighted sum of their trees.

A sum of boosted trees is itself boosted trees, with leaf values multiplied by the weights. So an
average over folds, or a sum of different models, is one model to save, export and serve. LightGBM
has no function for it, but its text says all.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import lightgbm

# The lines of a tree that hold scores.
_SCORES = ("leaf_value", "internal_value", "leaf_const", "leaf_coeff")
_END = "\n\nend of trees\n"


def merged(
    parts: "Iterable[tuple[lightgbm.Booster, int, float]]",
) -> "lightgbm.Booster":
    """One booster that scores sum of weight * (the first `n_trees` of each booster).

    Trees that cannot change the order (a weight of 0) are left out, unless nothing else is there.
    """
    import lightgbm

    given = list(parts)
    kept = [part for part in given if part[1] > 0 and part[2] != 0] or given[:1]
    texts = [booster.model_to_string(num_iteration=n) for booster, n, _ in kept]
    head, tail = texts[0].split("\nTree=", 1)[0], texts[0].split(_END, 1)[1]
    # The bytes of each tree change, and LightGBM reads on without them; the importances it counts
    # itself.
    lines = (line for line in head.split("\n") if not line.startswith(("tree_sizes", "objective=")))
    trees: list[str] = []
    for text, (_, _, weight) in zip(texts, kept, strict=True):
        for tree in text.split(_END, 1)[0].split("\nTree=")[1:]:
            trees.append(f"Tree={len(trees)}\n{_scaled(tree.split(chr(10), 1)[1], weight)}")
    body = "\n".join([*lines, *trees])
    return lightgbm.Booster(model_str=f"{body}{_END}{tail}")


def _scaled(tree: str, weight: float) -> str:
    lines = tree.split("\n")
    for at, line in enumerate(lines):
        name, _, values = line.partition("=")
        if name in _SCORES and values:
            scaled = np.array(values.split(), dtype=float) * weight
            lines[at] = f"{name}={' '.join(map(repr, scaled.tolist()))}"
    return "\n".join(lines)
