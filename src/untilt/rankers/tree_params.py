"""LightGBM's parameters under one name each, so that a user's own always win.

LightGBM takes a parameter under several names and silently keeps one of them: with `num_leaves`
already set, `max_leaves` would be ignored. So names are made equal before they meet.
"""

from typing import Any

from untilt.errors import OptionError

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


def merged_params(own: dict[str, Any], given: dict[str, Any] | None) -> dict[str, Any]:
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
