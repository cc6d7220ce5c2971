"""Texts of LightGBM: its own are taken, and none that would make it crash, hang or abort."""

import re
import time
from typing import Any

import lightgbm
import numpy as np
import pytest

from untilt._core.tree_text import check_tree_model
from untilt.errors import FileFormatError

BY_CATEGORY = {"categories": True, "min_data_per_group": 5, "cat_smooth": 1, "cat_l2": 0}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dart": {"boosting": "dart"},
    "goss": {"data_sample_strategy": "goss"},
    "rf": {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
    "monotone": {"monotone_constraints": [1, 0, -1, 0]},
    "linear": {"linear_tree": True},
    "binary": {"objective": "binary"},
    "huber": {"objective": "huber"},
    "quantile": {"objective": "quantile", "alpha": 0.3},
    "tweedie": {"objective": "tweedie"},
    "lambdarank": {"objective": "lambdarank"},
    "cross entropy": {"objective": "cross_entropy"},
    "an objective of one's own": {
        "objective": lambda score, data: (score - 1, np.ones_like(score))
    },
    "no split": {"min_data_in_leaf": 10_000},
    "no split, linear": {"min_data_in_leaf": 10_000, "linear_tree": True},
    "many leaves": {"num_leaves": 200, "min_data_in_leaf": 1},
    "missing": {"missing": True},
    "zero as missing": {"zero_as_missing": True},
    "categories": BY_CATEGORY,
    "categories, linear": {**BY_CATEGORY, "linear_tree": True},
    "one hot": {**BY_CATEGORY, "max_cat_to_onehot": 100},
    "quantised": {"use_quantized_grad": True},
    "interactions": {"interaction_constraints": "[0,1],[2,3]"},
}


def trained(name="plain", n_trees=5, **more):
    params = {"verbosity": -1, "num_threads": 1, "num_leaves": 7, "min_data_in_leaf": 5}
    params |= SETTINGS[name] | more
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 4))
    features[:, 3] = rng.integers(0, 60, 400)
    if params.pop("missing", False):
        features[rng.random(features.shape) < 0.2] = np.nan
    categories = [3] if params.pop("categories", False) else []
    label = (features[:, 0] + (features[:, 3] % 3 == 0) > 0).astype(float)
    data = lightgbm.Dataset(
        features,
        label,
        group=[20] * 20 if params.get("objective") == "lambdarank" else None,
        categorical_feature=categories,
        params={"verbosity": -1, **params},
    )
    return lightgbm.train(params, data, n_trees)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.filterwarnings("ignore")
def test_what_lightgbm_writes_is_taken(name):
    booster = trained(name)
    text = booster.model_to_string()
    check_tree_model(text)
    check_tree_model(lightgbm.Booster(model_str=text).model_to_string())
    check_tree_model(re.sub(r"tree_sizes=.*\n", "", text))  # as with ways for missing features
    check_tree_model(booster.model_to_string(num_iteration=2))


def test_several_classes_are_not_a_rankers():
    rng = np.random.default_rng(0)
    data = lightgbm.Dataset(rng.normal(size=(90, 2)), np.arange(90) % 3)
    params = {"objective": "multiclass", "num_class": 3, "verbosity": -1, "num_threads": 1}
    with pytest.raises(FileFormatError, match="several classes"):
        check_tree_model(lightgbm.train(params, data, 2).model_to_string())


@pytest.fixture(scope="module")
def texts():
    names = ("plain", "linear", "categories")
    return {name: trained(name).model_to_string() for name in names}


def line(name, value):
    """The first such line with this value in place of its own, or of one of its numbers."""

    def edit(text):
        start = text.index(f"\n{name}=") + len(name) + 2
        end = text.index("\n", start)
        old = text[start:end]
        return text[:start] + (value(old) if callable(value) else value) + text[end:]

    return edit


def entry(at, value):
    def edit(old):
        values = old.split()
        values[at] = str(value)
        return " ".join(values)

    return edit


def without(name):
    return lambda text: re.sub(rf"(?m)^{name}=.*\n", "", text, count=1)


ATTACKS = [
    ("plain", line("left_child", entry(0, 1000))),
    ("plain", line("left_child", entry(0, -1000))),
    ("plain", line("right_child", entry(-1, 2**31 - 1))),
    ("plain", line("left_child", entry(0, 0))),
    ("plain", line("left_child", "1 2 3 4 5 0")),
    ("plain", line("right_child", lambda old: " ".join(["-1"] * len(old.split())))),
    ("plain", line("split_feature", entry(0, 4))),
    ("plain", line("split_feature", entry(0, -1))),
    ("plain", line("split_feature", entry(0, 10**30))),
    ("plain", line("split_feature", entry(0, "0_1"))),
    ("plain", line("split_feature", entry(0, "٣"))),
    ("plain", line("threshold", entry(0, "nan"))),
    ("plain", line("threshold", entry(0, "0x10"))),
    ("plain", line("threshold", lambda old: old.rsplit(" ", 1)[0])),
    ("plain", line("leaf_value", entry(0, "nan"))),
    ("plain", line("leaf_value", lambda old: old + " 1")),
    ("plain", line("leaf_count", entry(0, "-"))),
    ("plain", line("split_gain", entry(0, "much"))),
    ("plain", line("decision_type", entry(0, 1))),
    ("plain", line("decision_type", entry(0, 255))),
    ("plain", line("decision_type", entry(0, 14))),
    ("plain", line("num_leaves", "2000000000")),
    ("plain", line("num_leaves", "0")),
    ("plain", line("num_leaves", "-1")),
    ("plain", line("num_leaves", "6")),
    ("plain", line("num_cat", "1")),
    ("plain", line("is_linear", "1")),
    ("plain", line("is_linear", "7")),
    ("plain", line("shrinkage", "")),
    ("plain", line("shrinkage", "nan")),
    ("plain", line("Tree", "1")),
    ("plain", line("tree_sizes", entry(0, 5))),
    ("plain", line("tree_sizes", entry(1, 10**9))),
    ("plain", line("tree_sizes", lambda old: old + " 300")),
    ("plain", line("tree_sizes", "")),
    ("plain", line("num_class", "3")),
    ("plain", line("num_class", "-1")),
    ("plain", line("num_tree_per_iteration", "0")),
    ("plain", line("max_feature_idx", "1000000")),
    ("plain", line("max_feature_idx", "-1")),
    ("plain", line("max_feature_idx", "2")),
    ("plain", line("feature_names", "a b")),
    ("plain", line("feature_infos", "a b c d")),
    ("plain", line("objective", "multiclass num_class:3")),
    ("plain", line("objective", "binary sigmoid:x")),
    ("plain", line("objective", "nothing_known")),
    ("plain", line("version", "v9")),
    ("plain", line("label_index", "x")),
    *[("plain", without(name)) for name in (
        "version", "num_class", "max_feature_idx", "feature_names", "feature_infos", "num_leaves",
        "num_cat", "split_feature", "threshold", "decision_type", "left_child", "right_child",
        "leaf_value", "leaf_weight", "leaf_count", "internal_value", "shrinkage", "is_linear",
    )],
    ("plain", lambda text: text.replace("num_cat=0\n", "num_cat=0\nnum_cat=0\n", 1)),
    ("plain", lambda text: text.replace("num_cat=0\n", "num_cat=0\nnum_dogs=0\n", 1)),
    ("plain", lambda text: text.replace("num_cat=0\n", "num_cat=0\nalone\n", 1)),
    ("plain", lambda text: text.replace("num_cat=0\n", "num_cat=0\0\n", 1)),
    ("plain", lambda text: text.replace("num_cat=0\n", "num_cat=0\r\n", 1)),
    ("plain", lambda text: text.replace("\nend of trees\n", "\n", 1)),
    ("plain", lambda text: text[: len(text) // 3]),
    ("plain", lambda text: re.sub(r"\[num_leaves: .*\]", "[num_leaves]", text)),
    ("plain", lambda text: re.sub(r"\[num_leaves: .*\]", '[num_leaves: "]', text)),
    ("plain", lambda text: text.replace("pandas_categorical:null", "pandas_categorical:{")),
    ("plain", lambda text: text.replace("pandas_categorical:null",
                                        "pandas_categorical:" + "[" * 100_000)),
    ("plain", lambda _: ""),
    ("plain", lambda _: "nothing of the kind"),
    ("linear", line("leaf_features", lambda _: "9999 " * 20)),
    ("linear", line("num_features", entry(0, 10**8))),
    ("linear", line("num_features", entry(0, -1))),
    ("linear", line("leaf_const", entry(0, "inf"))),
    ("linear", without("leaf_coeff")),
    ("linear", without("leaf_const")),
    ("categories", line("cat_boundaries", entry(1, 10**8))),
    ("categories", line("cat_boundaries", entry(0, 1))),
    ("categories", line("cat_boundaries", entry(-1, -1))),
    ("categories", line("cat_threshold", "1")),
    ("categories", line("cat_threshold", entry(0, 2**32))),
    ("categories", line("num_cat", "0")),
    ("categories", line("num_cat", "100")),
    ("categories", without("cat_boundaries")),
    ("plain", lambda text: text[: text.index("end of parameters") - 20]),
    ("plain", lambda text: text.replace("end of parameters", "parameters:")),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ATTACKS)))
def test_what_would_crash_it_is_refused(texts, number):
    name, edit = ATTACKS[number]
    edited = edit(texts[name])
    assert edited != texts[name]
    with pytest.raises(FileFormatError, match="LightGBM did not write its tree model"):
        check_tree_model(edited)


def test_an_index_into_sets_of_categories_out_of_range(texts):
    text = texts["categories"]
    tree = next(
        t for t in re.findall(r"Tree=\d+\n(.*?)\n\n", text, re.DOTALL) if "num_cat=0" not in t
    )
    kinds = re.search(r"decision_type=(.*)", tree)[1].split()
    at = next(i for i, kind in enumerate(kinds) if int(kind) & 1)
    wrong = line("threshold", entry(at, 999))("\n" + tree)[1:]
    edited = re.sub(r"tree_sizes=.*\n", "", text.replace(tree, wrong))
    with pytest.raises(FileFormatError, match="a set of categories that there is not"):
        check_tree_model(edited)


def test_a_circle_that_no_way_leads_to(texts):
    """Nodes 3 and 4 are each other's children: every node has one parent, yet it is no tree."""
    tree = "0\nnum_leaves=6\nnum_cat=0\nsplit_feature=0 0 0 0 0\nsplit_gain=1 1 1 1 1\n"
    tree += "threshold=0 0 0 0 0\ndecision_type=2 2 2 2 2\nleft_child=1 2 -1 4 3\n"
    tree += "right_child=-3 -4 -2 -5 -6\nleaf_value=1 2 3 4 5 6\nleaf_weight=1 1 1 1 1 1\n"
    tree += "leaf_count=1 1 1 1 1 1\ninternal_value=0 0 0 0 0\ninternal_weight=1 1 1 1 1\n"
    tree += "internal_count=1 1 1 1 1\nis_linear=0\nshrinkage=1\n"
    head = texts["plain"].partition("tree_sizes=")[0]
    with pytest.raises(FileFormatError, match="a node above its own parent"):
        check_tree_model(f"{head}\nTree={tree}\n\nend of trees\n")
    chain = tree.replace("left_child=1 2 -1 4 3", "left_child=1 2 3 4 -1")
    check_tree_model(f"{head}\nTree={chain}\n\nend of trees\n")


def test_a_thousand_trees_take_little_time():
    text = trained(n_trees=100, num_leaves=63, min_data_in_leaf=1).model_to_string()
    started = time.perf_counter()
    check_tree_model(text)
    assert time.perf_counter() - started < 0.5  # 0.02 s on a quiet machine, for a tenth of it
