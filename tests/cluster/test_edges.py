"""Bin edges, grids and the way from XGBoost's trees to ours."""

import lightgbm
import numpy as np
import pytest

import untilt as ut
from untilt._core.tree_text import check_tree_model
from untilt.cluster.group import Group, on_grid, tracker
from untilt.cluster.part import Edges, floats, global_edges, lightgbm_text, ordered
from untilt.errors import OptionError

xgboost = pytest.importorskip("xgboost")

ALONE = Group(0, 1)


def plain_edges(column, max_bin):
    """The same by sorting."""
    known = np.sort(column[~np.isnan(column)] + np.float32(0))
    distinct = np.unique(known)
    if len(distinct) > max_bin:
        distinct = np.unique(known[np.arange(max_bin) * len(known) // max_bin])
    return distinct[1:]


@pytest.mark.parametrize("max_bin", [2, 7, 255])
def test_edges_are_exact_quantiles(rng, max_bin):
    n = 3_000
    features = np.column_stack(
        [
            rng.standard_normal(n),
            rng.integers(-3, 4, n),
            np.where(rng.random(n) < 0.3, np.nan, rng.exponential(size=n) * 1e30),
            np.zeros(n),
            np.where(rng.random(n) < 0.5, -0.0, 0.0),
            np.full(n, np.nan),
            rng.choice([1.5, -2.5, 7.0], n),
        ]
    ).astype(np.float32)
    found = global_edges(features, ALONE, max_bin)
    for j in range(features.shape[1]):
        np.testing.assert_array_equal(found.of_feature[j], plain_edges(features[:, j], max_bin))
    assert found.missing.tolist() == [False, False, True, False, False, True, False]
    known = np.sort(features[:, 0])
    assert found.median[0] == known[(n - 1) // 2]


def test_floats_in_their_order(rng):
    values = rng.standard_normal(100).astype(np.float32) * np.float32(1e-40)
    values = np.append(values, [0, -0.0, 3e38, -3e38, 1e-45]).astype(np.float32)
    numbers = ordered(values)
    np.testing.assert_array_equal(floats(numbers), values)
    np.testing.assert_array_equal(np.sort(values), floats(np.sort(numbers)))


def test_sums_on_the_grid_are_exact_in_any_order(rng):
    values = rng.standard_normal(50_000) * 10.0 ** rng.integers(-12, 3, 50_000)
    rounded = on_grid(values, float(np.abs(values).max()), len(values)).astype(np.float32)
    sums = set()
    for _ in range(5):
        sums.add(float(np.cumsum(rng.permutation(rounded).astype(float))[-1]))
    assert len(sums) == 1
    assert np.abs(rounded - values).max() <= np.abs(values).max() * 2.0**-24
    plain = {
        float(np.cumsum(rng.permutation(values.astype(np.float32)).astype(float))[-1])
        for _ in range(5)
    }
    assert len(plain) > 1  # without it they are not


@pytest.mark.parametrize("gaps", [0.0, 0.4])
def test_trees_say_what_xgboost_says(rng, gaps):
    features = rng.standard_normal((500, 3)).astype(np.float32)
    features[:, 1] = rng.integers(0, 3, 500)
    features[rng.random((500, 3)) < gaps] = np.nan
    target = np.nan_to_num(features) @ [1.0, 2.0, 0.5] + 3 * np.isnan(features[:, 2])
    edges = global_edges(features, ALONE, 16)
    bins = edges.bins(features)
    matrix = xgboost.DMatrix(bins, label=target)
    params = {"max_leaves": 12, "grow_policy": "lossguide", "max_depth": 0, "base_score": 0.0}
    model = xgboost.train({**params, "nthread": 1}, matrix, 6)
    text = lightgbm_text(model.save_raw("json"), edges)
    check_tree_model(text)
    found = lightgbm.Booster(model_str=text)
    for k in range(6):
        theirs = model.predict(matrix, iteration_range=(k, k + 1))
        ours = found.predict(features, start_iteration=k, num_iteration=1, num_threads=1)
        np.testing.assert_array_equal(ours.astype(np.float32), theirs)


def test_a_split_of_known_against_missing_either_way():
    edges = Edges((np.array([1.0, 2.0], dtype=np.float32),), np.array([1.0]), np.array([True]))
    for condition, default_left, first, second in [
        (9.0, 0, 0.5, 0.25),  # known left, missing right
        (-0.5, 1, 0.25, 0.5),  # missing left, known right
    ]:
        tree = {
            "left_children": [1, -1, -1], "right_children": [2, -1, -1],
            "split_indices": [0, 0, 0], "split_conditions": [condition, first, second],
            "default_left": [default_left, 0, 0], "loss_changes": [1.0, 0, 0],
            "sum_hessian": [2.0, 1, 1], "base_weights": [0.0, 0, 0],
        }  # fmt: skip
        import json

        model = {"learner": {"gradient_booster": {"model": {"trees": [tree]}}}}
        text = lightgbm_text(json.dumps(model).encode(), edges)
        found = lightgbm.Booster(model_str=text).predict(np.array([[0.0], [5.0], [np.nan]]))
        np.testing.assert_array_equal(found, [0.5, 0.5, 0.25])


class DeafTracker:
    """A tracker whose workers never came."""

    def __init__(self, **_):
        self.start = self.worker_args = dict

    def free(self):
        raise xgboost.core.XGBoostError("Failed to accept connection.")


def missing_module():
    raise ModuleNotFoundError("No module named 'untilt'")


def test_the_tracker_does_not_hide_why_a_training_stopped(monkeypatch):
    monkeypatch.setattr("xgboost.tracker.RabitTracker", DeafTracker)
    with pytest.raises(ModuleNotFoundError, match="untilt"), tracker(2):
        missing_module()
    with pytest.raises(xgboost.core.XGBoostError, match="Failed to accept"), tracker(2):
        pass


def test_a_worker_without_sessions_says_what_to_do():
    from untilt.cluster.part import _read

    log = ut.make_judged(10, 4, seed=0)
    clicks = ut.simulate(log, n_sessions=20, seed=0).log
    empty = clicks.take(np.zeros(clicks.n_lists, dtype=bool))
    refusing = type("Two", (Group,), {"refuse": lambda _, error: (_ for _ in ()).throw(error)})
    with pytest.raises(OptionError, match=r"worker 1 of 2 has no sessions.*Use fewer workers"):
        _read(ut.LambdaMART(), lambda: empty, refusing(1, 2))
