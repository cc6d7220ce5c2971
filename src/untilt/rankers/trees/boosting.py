"""The one place that talks to LightGBM's training loop."""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray
from untilt._core.progress import progress
from untilt.errors import OptionError, ShapeError
from untilt.rankers.trees.objectives import TreeObjective

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lightgbm

    from untilt.rankers.learning_data import TrainingLists

# LightGBM's own names, so that a user finds them in its documentation.
# Without feature_pre_filter=False LightGBM drops, for good, what min_data_in_leaf cannot split now.
QUIET = {
    "verbosity": -1,
    "deterministic": True,
    "force_row_wise": True,
    "feature_pre_filter": False,
}


@dataclass(frozen=True)
class Watch:
    """How training is judged on held-out data: features to score and a function of the scores.

    Training stops when the value has not improved for `rounds`, or never where it is None.
    """

    features: FeatureArray
    value: Callable[[FloatArray], float]
    name: str
    higher_is_better: bool
    rounds: int | None


@dataclass(frozen=True)
class Boosted:
    """A trained booster, the rounds it keeps, and what the watch saw."""

    booster: "lightgbm.Booster"
    n_trees: int
    watched: tuple[float, ...]


def dataset_of(lists: "TrainingLists", params: dict[str, Any] | None = None) -> Any:
    """A LightGBM dataset with one row per training row; labels are unused and all 0."""
    import lightgbm

    return lightgbm.Dataset(
        lists.features,
        label=np.zeros(lists.n_documents, dtype=np.float32),
        feature_name=_plain_names(lists.feature_names),
        params={**QUIET, **(params or {})},
        free_raw_data=True,
    )


def boost(
    lists: "TrainingLists",
    objective: TreeObjective,
    *,
    params: dict[str, Any],
    n_trees: int,
    n_threads: int | None = None,
    watch: Watch | None = None,
    start: Any = None,
) -> Boosted:
    """Boost trees on an objective; with a watch, stop when it has not improved for a while.

    `start` is a booster to go on from: the result holds its trees too.
    """
    import lightgbm

    params = {**QUIET, **params, "objective": objective}
    if n_threads is not None:
        params["num_threads"] = n_threads
    _check_features(lists)
    train = dataset_of(lists, _dataset_params(params))
    watched: list[float] = []
    with (
        numba_threads(n_threads),
        progress(f"growing {n_trees} trees", total=n_trees) as advance,
    ):
        callbacks: list[Any] = [lambda _: advance()]
        options: dict[str, Any] = {}
        if watch is not None:
            _check_width(watch, lists)
            options = _watching(watch, train, watched)
            if watch.rounds is not None:
                callbacks.append(lightgbm.early_stopping(watch.rounds, verbose=False))
        options["callbacks"], options["init_model"] = callbacks, start
        try:
            booster = lightgbm.train(params, train, num_boost_round=n_trees, **options)
        except lightgbm.basic.LightGBMError as error:
            told = {name: value for name, value in params.items() if name != "objective"}
            why = str(error).strip(" .\n")
            raise OptionError(
                f"LightGBM refused to train: {why}. Check its parameters: {told!r}."
            ) from error
    stopped = watch is not None and watch.rounds is not None and booster.best_iteration > 0
    kept = booster.best_iteration if stopped else booster.current_iteration()
    return Boosted(booster, kept, tuple(watched))


def _check_features(lists: "TrainingLists") -> None:
    if not np.any(lists.features != lists.features[0]):
        raise OptionError(
            f"all {len(lists.feature_names)} features are constant over the {lists.n_documents} "
            "shown documents, so there is nothing to learn from. Give read_log other feature "
            "columns."
        )


def _check_width(watch: Watch, lists: "TrainingLists") -> None:
    if watch.features.shape[1] != lists.features.shape[1]:
        raise ShapeError(
            f"the held-out data must have the {lists.features.shape[1]} features that are trained "
            f"on. Got {watch.features.shape[1]} instead."
        )


def _watching(watch: Watch, train: Any, watched: list[float]) -> dict[str, Any]:
    import lightgbm

    valid = lightgbm.Dataset(
        watch.features, label=np.zeros(len(watch.features), dtype=np.float32), reference=train
    )

    def judge(scores: FloatArray, _: Any) -> tuple[str, float, bool]:
        watched.append(watch.value(scores))
        return watch.name, watched[-1], watch.higher_is_better

    return {"valid_sets": [valid], "valid_names": ["held out"], "feval": judge}


def _dataset_params(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters that are fixed when the data is binned."""
    names = ("max_bin", "min_data_in_bin", "num_threads", "bin_construct_sample_cnt", "seed")
    return {name: params[name] for name in names if name in params}


def _plain_names(names: tuple[str, ...]) -> list[str]:
    """LightGBM refuses JSON's special characters in feature names; ours are kept beside it."""
    return [f"Column_{j}" for j in range(len(names))]


@contextmanager
def numba_threads(n_threads: int | None) -> "Iterator[None]":
    """Compiled kernels inside the block use at most this many threads."""
    import numba

    before = numba.get_num_threads()
    if n_threads is not None:
        numba.set_num_threads(min(max(1, n_threads), numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        numba.set_num_threads(before)
