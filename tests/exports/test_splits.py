"""Every format sends every row the way LightGBM does: at thresholds, one step beside, 0, NaN."""

import importlib.util
import shutil
import warnings

import lightgbm
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.exports.made_trees import (
    AS_ZERO,
    LEFT,
    NAMES,
    RIGHT,
    ZERO,
    Split,
    drawn_trees,
    hard_rows,
    model_text,
    near,
)
from tests.exports.onnx_operators import run_onnx_operators

from untilt import catalog
from untilt.exports.format import Target, format_of
from untilt.exports.forms import Forest, cuts, next32, read_json, text32
from untilt.exports.solr import thresholds

TREE_FORMATS = ["es-ltr", "opensearch", "solr", "vespa", "xgboost"]
TREE_FORMATS += ["onnx"] if importlib.util.find_spec("onnxruntime") else []
SIZES = st.sampled_from([1e-30, 1e-12, 1e-7, 1e-3, 1.0, 1e3])
THRESHOLDS = st.one_of(
    st.builds(lambda x, size: x * size, st.floats(-4, 4), SIZES),
    st.floats(-1e6, 1e6, width=32),
    st.sampled_from(
        [float(ZERO), -float(ZERO), 0.0, -0.0, 1e-40, -1e-40, 0.1, 1e-6, -0.9999995, 1e300, -1e300]
    ),
)
SPLITS = st.builds(
    Split,
    st.integers(0, 30),
    st.integers(0, 2),
    THRESHOLDS,
    st.sampled_from([AS_ZERO, LEFT, RIGHT]),
)
TREES = st.lists(st.lists(SPLITS, max_size=7), min_size=1, max_size=4)
QUICK = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def by_lightgbm(text, rows):
    return lightgbm.Booster(model_str=text).predict(rows, num_threads=1)


def written(name, form, folder):
    format = format_of(catalog.find("export", name))
    path = folder / f"model{format.endings[Forest]}"
    files = format.files(form, Target(path, "model"))
    if isinstance(files.model, bytes):
        path.write_bytes(files.model)
    else:
        path.write_text(files.model)
    for ending, text in files.beside.items():
        path.with_name(f"model{ending}").write_text(text)
    return format, path, files.notes


@QUICK
@given(trees=TREES)
def test_every_format_goes_lightgbms_way(trees, tmp_path):
    text, rows = model_text(trees), hard_rows(trees)
    expected, form = by_lightgbm(text, rows), Forest(NAMES, text, "keep")
    for name in TREE_FORMATS:
        format, path, notes = written(name, form, tmp_path)
        if any(note.code == "export.solr-unreached" for note in notes):
            continue
        with np.errstate(all="ignore"):
            found = format.scores(path, NAMES, rows) + format.lacks(form)
        # Solr may multiply: an infinite value, which no ranker takes, is then not told from others.
        compared = ~np.isinf(rows).any(axis=1)
        wrong = np.flatnonzero((found != expected) & (compared | (name != "solr")))
        assert len(wrong) == 0, (name, rows[wrong[0]], found[wrong[0]], expected[wrong[0]])


@QUICK
@given(trees=st.lists(st.lists(SPLITS, max_size=7), min_size=1, max_size=3))
def test_solr_takes_null_for_zero_where_lightgbm_does(trees, tmp_path):
    trees = [[Split(s.leaf, s.feature, s.threshold, AS_ZERO) for s in tree] for tree in trees]
    text, rows = model_text(trees), hard_rows(trees)
    format, path, notes = written("solr", Forest(NAMES, text, None), tmp_path)
    if not notes:
        rows = rows[~np.isinf(rows).any(axis=1)]
        assert np.array_equal(format.scores(path, NAMES, rows), by_lightgbm(text, rows))
    assert "missing" not in path.read_text()  # which Solr before 9.2 refuses


@pytest.fixture(scope="module")
def drawn():
    trees = drawn_trees(np.random.default_rng(0))
    text = model_text(trees)
    return Forest(NAMES, text, "keep"), trees, text


def test_xgboost_itself(drawn, tmp_path):
    import xgboost

    form, trees, text = drawn
    rows = hard_rows(trees, infinite=False)
    format, path, _ = written("xgboost", form, tmp_path)
    booster = xgboost.Booster(model_file=path)
    found = booster.predict(xgboost.DMatrix(rows, feature_names=list(NAMES)))
    assert np.array_equal(found, by_lightgbm(text, rows))
    assert np.array_equal(found, format.scores(path, NAMES, rows))


def test_onnxruntime_itself(drawn, tmp_path):
    pytest.importorskip("onnxruntime")
    form, trees, text = drawn
    rows = hard_rows(trees)
    format, path, _ = written("onnx", form, tmp_path)
    assert np.array_equal(format.scores(path, NAMES, rows), by_lightgbm(text, rows))
    assert np.array_equal(run_onnx_operators(path, rows), by_lightgbm(text, rows))


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_c_itself(drawn, tmp_path):
    form, trees, text = drawn
    rows = hard_rows(trees)
    format, path, _ = written("c", form, tmp_path)
    assert np.array_equal(format.scores(path, NAMES, rows), by_lightgbm(text, rows))


def test_vespa_in_single_precision_too(drawn, tmp_path):
    """Content nodes may hold thresholds and leaves as single floats: nothing changes."""
    form, trees, text = drawn
    rows = hard_rows(trees)
    format, path, _ = written("vespa", form, tmp_path)
    for node in read_json(path)["tree_info"]:
        waiting = [node["tree_structure"]]
        while waiting:
            split = waiting.pop()
            if "threshold" in split:
                t = split["threshold"]
                assert float(np.float32(t)) == t or abs(t) == 3.5e38
                waiting += [split["left_child"], split["right_child"]]
    assert np.array_equal(format.scores(path, NAMES, rows), by_lightgbm(text, rows))


# ---- the cut, by the words of LightGBM's own rule


def goes_left(x, t, kind):
    """What LightGBM does with a single float."""
    x = 0.0 if abs(float(x)) <= float(ZERO) else float(x)
    if np.isnan(x):
        if kind == AS_ZERO:
            return t >= 0
        return kind == LEFT
    return x <= t


@settings(max_examples=200, deadline=None)
@given(t=THRESHOLDS, x=st.floats(width=32))
def test_the_cut_means_what_the_threshold_means(t, x):
    (cut,) = cuts(np.array([t]))
    for value in (*near([t]), *near([ZERO, -ZERO]), np.float32(x)):
        if not np.isnan(value):
            assert goes_left(value, t, AS_ZERO) == bool(value <= cut), (value, t)
            assert bool(value <= cut) == bool(value < next32(np.array([cut]))[0])


@settings(max_examples=200, deadline=None)
@given(x=st.floats(width=32, allow_nan=False))
def test_numbers_are_read_back_by_way_of_a_double(x):
    with np.errstate(over="ignore"):
        assert np.float32(float(text32(np.float32(x)))) == np.float32(x)


@settings(max_examples=200, deadline=None)
@given(c=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_solrs_threshold_plus_its_slack_is_the_cut_or_further_from_zero(c):
    cut = np.float32(c)
    with np.errstate(over="ignore"):
        reached = thresholds(np.array([cut]))[0] + np.float32(1e-6)
    assert reached == cut or (reached > cut if cut >= 0 else reached < cut)
    if cut > 2e-6:  # every positive cut of ordinary size is reached
        assert reached == cut


def test_a_naive_export_would_be_seen(drawn, tmp_path, monkeypatch):
    """Thresholds as they are, compared with <: the evaluator says so."""
    from untilt.exports import forms

    form, trees, text = drawn
    rows = hard_rows(trees)
    monkeypatch.setattr(forms, "next32", lambda cut: cut)
    format, path, _ = written("es-ltr", form, tmp_path)
    assert np.mean(format.scores(path, NAMES, rows) != by_lightgbm(text, rows)) > 0.2


def test_what_only_lightgbm_knows_is_refused(tmp_path):
    from untilt.errors import OptionError

    X = np.random.default_rng(0).integers(0, 5, size=(200, 3)).astype(float)
    quiet = {
        "verbosity": -1,
        "min_data_in_leaf": 2,
        "num_threads": 1,
        "min_data_per_group": 1,
        "cat_smooth": 0.1,
    }
    for params, categories, word in (
        ({}, [0], "category"),
        ({"linear_tree": True}, "auto", "linear leaves"),
    ):
        label = (X[:, 0] == 2) * (1 + X[:, 1])
        data = lightgbm.Dataset(X, label=label, categorical_feature=categories)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            booster = lightgbm.train(quiet | params, data, 3)
        with pytest.raises(OptionError, match=word):
            Forest(NAMES, booster.model_to_string(), None).trees  # noqa: B018
        format, path, _ = written(
            "lightgbm", Forest(NAMES, booster.model_to_string(), None), tmp_path
        )
        assert np.array_equal(format.scores(path, NAMES, X), booster.predict(X))


def test_zeros_that_go_another_way_than_their_neighbours_are_refused(tmp_path):
    from untilt.errors import OptionError

    zero_right, zero_left = 4, 6  # decision_type with zero_as_missing
    with pytest.raises(OptionError, match="zero_as_missing"):
        Forest(NAMES, model_text([[Split(0, 0, 1.0, zero_right)]]), None).trees  # noqa: B018
    trees = [[Split(0, 0, 1.0, zero_left), Split(1, 0, -1.0, zero_right)]]
    text, rows = model_text(trees), hard_rows(trees)
    format, path, _ = written("vespa", Forest(NAMES, text, "keep"), tmp_path)
    assert np.array_equal(format.scores(path, NAMES, rows), by_lightgbm(text, rows))
