"""LightGBM: its parameters, its datasets, and the one place that calls its training loop."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, varies
from untilt._core.feature_table import known_values
from untilt._core.progress import progress
from untilt._core.threads import kernel_threads, thread_count
from untilt.errors import OptionError
from untilt.rankers.learning_data import TrainingLists, no_feature_varies
from untilt.rankers.trees.objectives import BoostingOptions, TreeObjective
from untilt.rankers.validation import Validation

if TYPE_CHECKING:
    import lightgbm

# LightGBM's own names, so that a user finds them in its documentation.
# Without feature_pre_filter=False LightGBM drops, for good, what min_data_in_leaf cannot split now.
FIXED = {
    "verbosity": -1,
    "deterministic": True,
    "force_row_wise": True,
    "feature_pre_filter": False,
}
# Fixed when the data is binned.
_OF_THE_DATASET = ("max_bin", "min_data_in_bin", "num_threads", "bin_construct_sample_cnt", "seed")

# LightGBM takes a parameter under several names and silently keeps one of them: with `num_leaves`
# already set, `max_leaves` would be ignored. So names are made equal before they meet.
_ALIASES = {
    "learning_rate": "eta shrinkage_rate",
    "num_leaves": "num_leaf max_leaves max_leaf max_leaf_nodes",
    "min_data_in_leaf": "min_data_per_leaf min_data min_child_samples min_samples_leaf",
    "min_sum_hessian_in_leaf": (
        "min_sum_hessian_per_leaf min_sum_hessian min_hessian min_child_weight"
    ),
    "feature_fraction": "sub_feature colsample_bytree",
    "bagging_fraction": "sub_row subsample bagging",
    "bagging_freq": "subsample_freq",
    "seed": "random_seed random_state",
    "num_threads": "num_thread nthread nthreads n_jobs",
    "verbosity": "verbose",
}
_NAME = {alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()}

# What LambdaMART decides itself, by the option that does so.
_OURS = {
    "n_trees": (
        "num_iterations num_iteration n_iter num_tree num_trees num_round num_rounds nrounds "
        "num_boost_round n_estimators max_iter"
    ),
    "objective": "objective objective_type app application loss",
    "early_stopping": (
        "early_stopping_round early_stopping_rounds early_stopping n_iter_no_change"
    ),
}
_OPTION = {name: option for option, names in _OURS.items() for name in names.split()}


def merged_params(own: dict[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Our parameters with the user's over them; bagging is switched on where a fraction asks."""
    theirs = {_NAME.get(name, name): value for name, value in (given or {}).items()}
    for name in theirs:
        if name in _OPTION:
            raise OptionError(
                f"lightgbm_params cannot set {name!r}. Give LambdaMART({_OPTION[name]}=...) itself."
            )
    params = {**own, **theirs}
    if "bagging_freq" not in params:
        params["bagging_freq"] = 1 if params["bagging_fraction"] < 1 else 0
    return params


@dataclass(frozen=True)
class Boosted:
    """A trained booster, the trees that it keeps, and the value on held-out data after each."""

    booster: "lightgbm.Booster"
    n_trees: int
    values: tuple[float, ...]


def boost(
    lists: TrainingLists,
    objective: TreeObjective,
    options: BoostingOptions,
    *,
    validation: Validation | None = None,
) -> Boosted:
    """Boost trees on an objective; with a validation, stop when its value no longer improves."""
    import lightgbm

    params = {**FIXED, **options.params, "objective": objective}
    of_the_work = None if "num_threads" in params else lists.features.size
    n_threads = thread_count(options.n_threads, values=of_the_work)
    if n_threads is not None:
        params["num_threads"] = n_threads
    check_features(lists)
    train = dataset_of(lists.features, dataset_params(params))
    more: dict[str, Any] = {}
    values: list[float] = []
    early = validation is not None and validation.rounds is not None
    if validation is not None:
        validation = validation.like_training(lists.feature_names, lists.missing)
        more |= _evaluation(validation, train, values)
    with (
        kernel_threads(options.n_threads),
        progress(f"growing {options.n_trees} trees", total=options.n_trees) as advance,
    ):
        more["callbacks"] = [lambda _: advance()]
        if validation is not None and validation.rounds is not None:
            more["callbacks"].append(lightgbm.early_stopping(validation.rounds, verbose=False))
        try:
            booster = lightgbm.train(params, train, num_boost_round=options.n_trees, **more)
        except lightgbm.basic.LightGBMError as error:
            raise refused(error, params) from error
    stopped = early and booster.best_iteration > 0
    kept = booster.best_iteration if stopped else booster.current_iteration()
    return Boosted(booster, kept, tuple(values))


def check_features(lists: TrainingLists) -> None:
    """Raise where a feature is infinite, or where none of them varies."""
    known_values(lists.features, lists.feature_names, "keep")
    if not varies(lists.features):
        raise no_feature_varies(lists)


def refused(error: Exception, params: dict[str, Any]) -> OptionError:
    """LightGBM's own error in our words."""
    given = {name: value for name, value in params.items() if name != "objective"}
    why = str(error).strip(" .\n")
    return OptionError(f"LightGBM refused to train: {why}. Check its parameters: {given!r}.")


def dataset_params(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters that binning needs."""
    return {name: params[name] for name in _OF_THE_DATASET if name in params}


def dataset_of(features: FeatureArray, params: dict[str, Any] | None = None) -> "lightgbm.Dataset":
    """A LightGBM dataset with one row per document; labels are unused and all 0.

    LightGBM refuses JSON's special characters in feature names, so it gets Column_0, Column_1, ...
    """
    import lightgbm

    return lightgbm.Dataset(
        features,
        label=np.zeros(len(features), dtype=np.float32),
        feature_name=[f"Column_{j}" for j in range(features.shape[1])],
        params={**FIXED, **(params or {})},
        free_raw_data=True,
    )


def _evaluation(
    validation: Validation, train: "lightgbm.Dataset", values: list[float]
) -> dict[str, Any]:
    """Arguments of `lightgbm.train` that append the value after each tree to `values`."""
    import lightgbm

    labels = np.zeros(len(validation.features), dtype=np.float32)
    valid = lightgbm.Dataset(validation.features, label=labels, reference=train)

    def evaluate(scores: FloatArray, _: object) -> tuple[str, float, bool]:
        values.append(validation.value(scores))
        return validation.name, values[-1], True

    return {"valid_sets": [valid], "valid_names": ["held out"], "feval": evaluate}


# Several boosters as one: the weighted sum of their trees.
#
# A sum of boosted trees is itself boosted trees, with leaf values multiplied by the weights. So an
# average over folds, or a sum of different models, is one model to save, export and serve. LightGBM
# has no function for it, but its text says all. A function of one feature is a tree, too, and needs
# no training.

# The lines of a tree that hold scores.
_SCORES = ("leaf_value", "internal_value", "leaf_const", "leaf_coeff")
_END = "\n\nend of trees\n"
# decision_type: a missing value is NaN and goes right. No known value is above _ALL.
_NAN_RIGHT, _ALL = 8, 1e300


def merged(
    parts: "Iterable[tuple[lightgbm.Booster, int, float]]",
    more: Iterable[str] = (),
    *,
    more_features: int = 0,
) -> "lightgbm.Booster":
    """One booster that scores sum of weight * (the first `n_trees` of each booster).

    Trees that cannot change the order (a weight of 0) are left out, unless nothing else is there.
    `more` are trees of `step_tree`, also over so many `more_features` behind those of the boosters.
    """
    import lightgbm

    given = list(parts)
    kept = [part for part in given if part[1] > 0 and part[2] != 0] or given[:1]
    texts = [booster.model_to_string(num_iteration=n) for booster, n, _ in kept]
    head, tail = texts[0].split("\nTree=", 1)[0], texts[0].split(_END, 1)[1]
    # The bytes of each tree change, and LightGBM reads on without them; the importances it counts
    # itself.
    lines = (line for line in head.split("\n") if not line.startswith(("tree_sizes", "objective=")))
    if more_features:
        lines = (_widened(line, more_features) for line in lines)
    trees: list[str] = []
    for text, (_, _, weight) in zip(texts, kept, strict=True):
        for tree in text.split(_END, 1)[0].split("\nTree=")[1:]:
            trees.append(f"Tree={len(trees)}\n{_scaled(tree.split(chr(10), 1)[1], weight)}")
    for tree in more:
        trees.append(f"Tree={len(trees)}\n{tree}")
    body = "\n".join([*lines, *trees])
    return lightgbm.Booster(model_str=f"{body}{_END}{tail}")


def _widened(line: str, n: int) -> str:
    """A line of the head with so many features more."""
    name, _, value = line.partition("=")
    if name == "max_feature_idx":
        return f"{name}={int(value) + n}"
    d = len(value.split(" "))
    new = {
        "feature_names": (f"Column_{d + i}" for i in range(n)),
        "feature_infos": ("[1:1000]" for _ in range(n)),
        "monotone_constraints": ("0" for _ in range(n)),
    }
    return " ".join([line, *new[name]]) if name in new else line


def _scaled(tree: str, weight: float) -> str:
    lines = tree.split("\n")
    for at, line in enumerate(lines):
        name, _, values = line.partition("=")
        if name in _SCORES and values:
            scaled = np.array(values.split(), dtype=float) * weight
            lines[at] = f"{name}={' '.join(map(repr, scaled.tolist()))}"
    return "\n".join(lines)


def step_tree(feature: int, values: FeatureArray, target: FloatArray, most_steps: int) -> str:
    """The text of a tree that says a function of one feature in steps; 0 where it is missing.

    Parameters
    ----------
    values, target : (rows,) of the feature, and of the function; each step is the mean of its rows
    """
    known = np.isfinite(values)
    x, y = values[known], target[known]
    distinct = np.unique(np.quantile(x, np.linspace(0, 1, most_steps), method="nearest"))
    edges = (distinct[1:] + distinct[:-1]) / 2
    step = np.searchsorted(edges, x)  # LightGBM goes left where x <= threshold
    n = np.bincount(step, minlength=len(edges) + 1)
    total = np.bincount(step, weights=y, minlength=len(n))
    mean = np.divide(total, n, out=np.zeros(len(n)), where=n > 0)
    threshold, left, right, count, inner = [_ALL], [0], [-len(n) - 1], [len(values)], [0.0]

    def grow(low: int, high: int) -> int:
        """The node over these steps: children come after their parents, halves on both sides."""
        if high - low == 1:
            return -low - 1
        node, middle = len(threshold), (low + high) // 2
        own = slice(low, high)
        threshold.append(float(edges[middle - 1]))
        left.append(0)
        right.append(0)
        count.append(int(n[own].sum()))
        inner.append(float(total[own].sum()) / max(count[-1], 1))
        left[node], right[node] = grow(low, middle), grow(middle, high)
        return node

    left[0] = grow(0, len(n))
    nodes = len(threshold)
    leaves = [*n.tolist(), len(values) - len(x)]
    lines: dict[str, Sequence[float]] = {
        "num_leaves": [nodes + 1],
        "num_cat": [0],
        "split_feature": [feature] * nodes,
        "split_gain": [0] * nodes,
        "threshold": threshold,
        "decision_type": [_NAN_RIGHT] * nodes,
        "left_child": left,
        "right_child": right,
        "leaf_value": [*mean.tolist(), 0.0],
        "leaf_weight": leaves,
        "leaf_count": leaves,
        "internal_value": inner,
        "internal_weight": count,
        "internal_count": count,
        "is_linear": [0],
        "shrinkage": [1],
    }
    return "".join(f"{name}={' '.join(map(repr, own))}\n" for name, own in lines.items()) + "\n"


# Which way a missing feature goes at each split of a trained booster.
#
# LightGBM learns a way for a feature that was missing in training. At a split of any other feature
# it takes NaN for 0, whatever 0 means there. Here the way is written into the trees, so that the
# ranker, its file and the exported text all score a missing feature alike:
#
# - data whose gaps were filled with a number: the way that this number goes;
# - data whose gaps were kept, at a feature that had none in training: the way of its median.

# Bits of LightGBM's decision_type: the split is by category, NaN goes left, NaN is known as NaN.
_BY_CATEGORY, _LEFT, _KNOWS_NAN = 1, 2, 8


def set_missing_direction(
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
    return lightgbm.Booster(model_str=text_with_missing_direction(text, stands_for, ~learned))


def text_with_missing_direction(text: str, stands_for: FloatArray, chosen: BoolArray) -> str:
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
