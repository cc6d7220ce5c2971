"""LightGBM: its parameters, its datasets, and the one place that calls its training loop."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from untilt._core.arrays import FloatArray, varies
from untilt._core.feature_table import known_values
from untilt._core.progress import progress
from untilt._core.threads import kernel_threads, thread_count
from untilt.errors import OptionError
from untilt.rankers.learning_data import TrainingLists
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
    start: "lightgbm.Booster | None" = None,
) -> Boosted:
    """Boost trees on an objective; with a validation, stop when its value no longer improves.

    `start` is a booster to go on from: the result holds its trees too.
    """
    import lightgbm

    params = {**FIXED, **options.params, "objective": objective}
    of_the_work = None if "num_threads" in params else lists.features.size
    n_threads = thread_count(options.n_threads, values=of_the_work)
    if n_threads is not None:
        params["num_threads"] = n_threads
    check_features(lists)
    train = dataset_of(lists, dataset_params(params))
    more: dict[str, Any] = {"init_model": start}
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
        raise OptionError(
            f"all {len(lists.feature_names)} features are constant over the {lists.n_documents} "
            "shown documents, so there is nothing to learn from. Give read_log other feature "
            "columns."
        )


def refused(error: Exception, params: dict[str, Any]) -> OptionError:
    """LightGBM's own error in our words."""
    given = {name: value for name, value in params.items() if name != "objective"}
    why = str(error).strip(" .\n")
    return OptionError(f"LightGBM refused to train: {why}. Check its parameters: {given!r}.")


def dataset_params(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters that binning needs."""
    return {name: params[name] for name in _OF_THE_DATASET if name in params}


def dataset_of(lists: TrainingLists, params: dict[str, Any] | None = None) -> "lightgbm.Dataset":
    """A LightGBM dataset with one row per document; labels are unused and all 0.

    LightGBM refuses JSON's special characters in feature names, so it gets Column_0, Column_1, ...
    """
    import lightgbm

    return lightgbm.Dataset(
        lists.features,
        label=np.zeros(lists.n_documents, dtype=np.float32),
        feature_name=[f"Column_{j}" for j in range(len(lists.feature_names))],
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
