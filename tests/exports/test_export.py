"""Exported rankers give the ranker's scores in the systems they are for."""

import importlib.util
import json
import shutil
import subprocess
import sys
from typing import Any

import lightgbm
import numpy as np
import pytest
from tests.exports.onnx_operators import run_onnx_operators
from tests.rankers.conftest import pbm_log

import untilt as ut
from untilt import catalog
from untilt.errors import ColumnError, FileFormatError, NotFittedError, OptionError, ShapeError
from untilt.exports.format import check_export, compared, format_of, read_sample, write_export
from untilt.networks.mlp import ACTIVATIONS, Network
from untilt.rankers.base import Ranker

TREES: dict[str, Any] = {"n_trees": 8, "n_leaves": 5, "min_data_in_leaf": 2, "n_threads": 1}
ENDINGS = {"lightgbm": ".txt", "onnx": ".onnx", "c": ".c"}
OF_TREES = ("es-ltr", "opensearch", "solr", "vespa", "onnx", "lightgbm", "xgboost", "c")
OF_WEIGHTS = ("es-ltr", "opensearch", "solr", "vespa", "onnx", "linear", "c")


@pytest.fixture(scope="module")
def log():
    return pbm_log().log


def changed(log, **fields):
    arrays = {name: getattr(log, name) for name in log.__dataclass_fields__}
    return ut.ClickLog(**arrays | fields)


def with_gaps(log, missing):
    """A quarter of the first two features is missing; filled as reading would."""
    rng = np.random.default_rng(3)
    features = log.features.copy()
    lost = rng.random(features.shape) < 0.25
    lost[:, 2:] = False
    features[lost] = np.nan if missing == "keep" else missing
    return changed(log, features=features, missing=missing)


def path_for(to, form, folder):
    ending = ".expression" if (to, form) == ("vespa", "linear") else ENDINGS.get(to, ".json")
    return folder / f"model{ending}"


def has_engine(to):
    if to == "onnx":
        return importlib.util.find_spec("onnxruntime") is not None
    return to != "c" or shutil.which("cc")


def test_onnx_is_checked_by_its_engine_alone(log, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    path = ut.export_model(ut.LinearRanker().fit(log), tmp_path / "m.onnx")
    with pytest.raises(OptionError, match="pip install onnxruntime"):
        check_export(ut.LinearRanker().fit(log), path, log)


# ---- parity


@pytest.mark.parametrize("missing", [None, "keep", 7.0])
def test_trees_score_alike_everywhere(log, tmp_path, missing):
    data = log if missing is None else with_gaps(log, missing)
    ranker = ut.LambdaMART(ut.PRS(ut.PowerLaw(1.0)), **TREES).fit(data)
    rows = log.features.copy()
    if missing is not None:
        rows[::3, 0] = rows[1::3, 1] = rows[::5, 2] = np.nan
    for to in filter(has_engine, OF_TREES):
        path = path_for(to, "trees", tmp_path)
        written = write_export(ranker, path, to)
        found = check_export(ranker, path, rows, to)
        assert found.holds, to
        assert found.largest < 1e-6
        told = {note.code for note in written.notes}
        assert ("export.solr-missing" in told) == (to == "solr" and missing is not None)


@pytest.mark.parametrize("missing", [None, 0.0, 7.0])
@pytest.mark.parametrize("kind", [ut.LinearRanker, ut.RankSVM])
def test_weights_score_alike_everywhere(log, tmp_path, kind, missing):
    ranker = kind().fit(log if missing is None else with_gaps(log, missing))
    rows = log.features.copy()
    if missing is not None:
        rows[::3, 0] = np.nan
    for to in filter(has_engine, OF_WEIGHTS):
        path = path_for(to, "linear", tmp_path)
        if missing == 7.0 and to in ("es-ltr", "opensearch", "solr"):
            with pytest.raises(OptionError, match="counts a missing feature as 0"):
                write_export(ranker, path, to)
            continue
        write_export(ranker, path, to)
        found = check_export(ranker, path, rows, to)
        assert found.holds, to
        assert found.largest < 1e-5


def network(rng, activation="elu", transform="none"):
    """Four inputs, of which the last never varied."""
    return Network(
        weights=(rng.normal(size=(4, 5)), rng.normal(size=(5, 3)), rng.normal(size=(3, 1))),
        biases=(rng.normal(size=5), rng.normal(size=3), rng.normal(size=1)),
        activation=activation,
        mean=rng.normal(size=4),
        scale=np.array([1.0, 2.0, 0.5, 0.0]),
        transform=transform,
    )


def with_networks(ranker, log, missing=None, **fitted):
    """A ranker as it would be after training."""
    for name, value in {"feature_names_": log.feature_names, "missing_": missing, **fitted}.items():
        setattr(ranker, name, value)
    return ranker


@pytest.mark.parametrize("transform", ["none", "log1p"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_networks_score_alike_in_onnx(log, tmp_path, activation, transform):
    pytest.importorskip("onnxruntime")
    made = network(np.random.default_rng(1), activation, transform)
    for missing in (None, "keep", 7.0):
        ranker = with_networks(ut.NeuralRanker(), log, missing, network_=made)
        rows = log.features.copy()
        if missing is not None:
            rows[::3, 0] = rows[::4, 3] = np.nan
        path = ut.export_model(ranker, tmp_path / "network.onnx")
        assert check_export(ranker, path, rows).largest < 1e-5
        np.testing.assert_allclose(run_onnx_operators(path, rows), ranker.predict(rows), 1e-6)


def test_towers_of_several_kinds_of_feedback_score_alike_in_onnx(log, tmp_path):
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(2)
    ranker = with_networks(
        ut.FeedbackTowers(weights={"dwell": 0.25}), log,
        networks_={"click": network(rng), "dwell": network(rng)},
        targets_={"click": "probability", "dwell": "number"},
    )  # fmt: skip
    path = ut.export_model(ranker, tmp_path / "towers.onnx")
    assert check_export(ranker, path, log).largest < 1e-5
    np.testing.assert_allclose(run_onnx_operators(path, log.features), ranker.predict(log), 1e-5)
    with pytest.raises(OptionError, match=r"it is a network\. Formats that take it: onnx"):
        write_export(ranker, tmp_path / "m.json", "es-ltr")


def test_the_stacked_learner_is_exported_whole(tmp_path):
    log = pbm_log(n_queries=30, sessions=40, seed=5).log
    ranker = ut.LambdaMART("auto", bias=ut.PowerLaw(1.0), n_trees=10, n_threads=1).fit(log)
    for to in filter(has_engine, OF_TREES):
        path = path_for(to, "trees", tmp_path)
        write_export(ranker, path, to)
        found = check_export(ranker, path, log, to)
        assert found.holds, found


def test_text_model_gives_the_scores_in_plain_lightgbm(log, tmp_path):
    named = changed(log, feature_names=("bm25", "größe", "click_rate", "age(days)"))
    ranker = ut.LambdaMART(ut.PRS(ut.PowerLaw(1.0)), **TREES).fit(named)
    path = ut.export_model(ranker, tmp_path / "model.txt")
    booster = lightgbm.Booster(model_file=path)
    assert np.array_equal(booster.predict(log.features), ranker.predict(log.features))
    assert booster.num_trees() == 8
    assert booster.feature_name() == ["bm25", "größe", "click_rate", "age(days)"]
    text = path.read_text(encoding="utf8")
    assert "Column_" not in text
    assert text.count("objective=lambdarank\n") == 1  # other readers stop without


@pytest.mark.parametrize(
    "names", [("a b", "c", "d", "e"), ("a", "a", "b", "c"), ("x:1", "b", "c", "d")]
)
def test_names_that_lightgbm_cannot_hold_become_columns(log, tmp_path, names):
    ranker = ut.LambdaMART(**TREES).fit(changed(log, feature_names=names))
    booster = lightgbm.Booster(model_file=ut.export_model(ranker, tmp_path / "model.txt"))
    assert booster.feature_name() == ["Column_0", "Column_1", "Column_2", "Column_3"]
    assert np.array_equal(booster.predict(log.features), ranker.predict(log.features))


def test_only_the_trees_in_use_are_exported(tmp_path):
    train, valid = pbm_log(seed=1).log, pbm_log(seed=2).log
    ranker = ut.LambdaMART(early_stopping=2, **TREES | {"n_trees": 60}).fit(train, valid=valid)
    assert ranker.n_trees_ < 60
    booster = lightgbm.Booster(model_file=ut.export_model(ranker, tmp_path / "model.txt"))
    assert booster.num_trees() == ranker.n_trees_
    model = ut.export_model(ranker, tmp_path / "model.json", "solr")
    assert len(json.loads(model.read_text())["params"]["trees"]) == ranker.n_trees_


def test_json_weights_are_those_of_the_ranker(log, tmp_path):
    ranker = ut.LinearRanker(ut.IPS(ut.PowerLaw(1.0))).fit(log)
    model = json.loads(ut.export_model(ranker, tmp_path / "weights.json").read_text())
    assert model["kind"] == "LinearRanker"
    assert {each["name"]: each["weight"] for each in model["features"]} == dict(
        zip(ranker.feature_names_, ranker.weights_.tolist(), strict=True)
    )


# ---- files beside the model


def test_what_each_engine_needs_stands_beside_the_model(log, tmp_path):
    ranker = ut.LambdaMART(**TREES).fit(log)
    for to in ("es-ltr", "opensearch"):
        written = write_export(ranker, tmp_path / to / "shop.json", to)
        assert {path.name for path in written.beside} == {
            "shop.features.json", "shop.query.json", "shop.commands.sh",
        }  # fmt: skip
        body = json.loads(written.path.read_text())
        assert body["model"]["name"] == "shop"
        features = json.loads((tmp_path / to / "shop.features.json").read_text())
        names = [each["name"] for each in features["featureset"]["features"]]
        assert names == list(ranker.feature_names_)
        query = json.loads((tmp_path / to / "shop.query.json").read_text())
        assert query["rescore"]["query"]["rescore_query"]["sltr"]["model"] == "shop"
        assert any("_ltr/_featureset/shop/_createmodel" in line for line in written.commands)
    written = write_export(ranker, tmp_path / "solr" / "shop.json", "solr")
    store = json.loads((tmp_path / "solr" / "shop.features.json").read_text())
    model = json.loads(written.path.read_text())
    assert [each["name"] for each in store] == [each["name"] for each in model["features"]]
    assert {each["store"] for each in store} == {model["store"]} == {"shop"}
    written = write_export(ranker, tmp_path / "vespa" / "shop.json", "vespa")
    profile = (tmp_path / "vespa" / "shop.profile").read_text()
    assert 'expression: lightgbm("shop.json")' in profile
    assert all(f"function {name}()" in profile for name in ranker.feature_names_)


def test_a_template_that_was_filled_in_is_left_as_it_is(log, tmp_path):
    ranker = ut.LambdaMART(**TREES).fit(log)
    write_export(ranker, tmp_path / "m.json", "es-ltr")
    (tmp_path / "m.features.json").write_text("filled in")
    again = write_export(ranker, tmp_path / "m.json", "es-ltr")
    assert again.kept == (tmp_path / "m.features.json",)
    assert (tmp_path / "m.features.json").read_text() == "filled in"


def test_names_in_vespa(log, tmp_path):
    names = ("bm25(title)", "attribute(price)", "my feature", "age")
    ranker = ut.LambdaMART(**TREES).fit(changed(log, feature_names=names))
    path = ut.export_model(ranker, tmp_path / "m.json", "vespa")
    own = json.loads(path.read_text())["feature_names"]
    assert own == ["bm25(title)", "attribute(price)", "feature_3_of_model", "age"]
    profile = (tmp_path / "m.profile").read_text()
    assert "function bm25" not in profile
    assert "# my feature\n    function feature_3_of_model()" in profile
    assert check_export(ranker, path, log, "vespa").holds


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_names_cannot_leave_a_comment_of_c(log, tmp_path):
    names = ("*/ int x; /*", "a\nb", "back\\", "d")
    ranker = ut.LambdaMART(**TREES).fit(changed(log, feature_names=names))
    path = ut.export_model(ranker, tmp_path / "m.c", name="my-model")
    assert "double my_model_score(const float *x)" in path.read_text()
    assert check_export(ranker, path, log).holds


# ---- what the engines do, written after their sources


def parsed_by_solr(text):
    """Solr's LinearModel.setWeights: a map of features to numbers, else a ClassCastException."""
    model = json.loads(text)
    weights = model["params"]["weights"]
    if not all(isinstance(each, int | float) for each in weights.values()):
        raise TypeError("String cannot be cast to Number")
    return [np.float32(weights[feature["name"]]) for feature in model["features"]]


@pytest.mark.parametrize("kind", [ut.LinearRanker, ut.RankSVM])
def test_solr_loads_linear_models(log, tmp_path, kind):
    ranker = kind().fit(log)
    path = ut.export_model(ranker, tmp_path / "m.json", "solr")
    assert parsed_by_solr(path.read_text()) == ranker.weights_.astype(np.float32).tolist()
    quoted = json.loads(path.read_text())
    weights = quoted["params"]["weights"]
    quoted["params"]["weights"] = {name: str(weight) for name, weight in weights.items()}
    path.write_text(json.dumps(quoted))
    with pytest.raises(TypeError):
        parsed_by_solr(path.read_text())
    with pytest.raises(FileFormatError, match="numbers with a decimal point and without quotes"):
        check_export(ranker, path, log, "solr")


def value_in_solr(feature, document):
    """Solr's Feature: the field of the document, else "defaultValue", which is 0 if not given."""
    params = feature["params"]
    return np.float32(document.get(params["field"], params.get("defaultValue", 0.0)))


def test_missing_values_reach_the_trees_of_solr(log, tmp_path):
    ranker = ut.LambdaMART(**TREES).fit(with_gaps(log, "keep"))
    path = ut.export_model(ranker, tmp_path / "m.json", "solr")
    store = json.loads((tmp_path / "m.features.json").read_text())
    features = with_gaps(log, "keep").features[:20]
    fields = [f"FIELD_OF_{name}" for name in log.feature_names]
    documents = [
        {field: x for field, x in zip(fields, row, strict=True) if not np.isnan(x)}
        for row in features
    ]
    rows = np.array([[value_in_solr(each, d) for each in store] for d in documents])
    np.testing.assert_array_equal(rows, features)
    assert np.isnan(rows).any()
    assert check_export(ranker, path, rows, "solr").holds
    never = ut.LambdaMART(**TREES).fit(log)
    write_export(never, tmp_path / "n.json", "solr")
    store = json.loads((tmp_path / "n.features.json").read_text())
    assert value_in_solr(store[0], {}) == 0.0


def rescored(first, second, request):
    """Elasticsearch's QueryRescorer: the hits of one shard, in their order."""
    rescore, n = request["rescore"], max(request["from"] + request["size"], 0)
    weights, window = rescore["query"], rescore["window_size"]
    hits = sorted(range(len(first)), key=lambda d: (-first[d], d))[: max(n, window)]
    scores = {d: np.float32(first[d]) * np.float32(weights["query_weight"]) for d in hits}
    for d in hits[:window]:
        scores[d] += np.float32(second[d]) * np.float32(weights["rescore_query_weight"])
    hits.sort(key=lambda d: (-scores[d], d))
    return hits[request["from"] : n], scores


@pytest.mark.parametrize(("start", "size"), [(0, 10), (0, 150), (100, 10), (95, 20)])
def test_documents_beyond_the_window_come_last(log, tmp_path, start, size):
    """Those are scored 0; a model whose scores are mostly negative put them on top."""
    ranker = ut.LambdaMART(ut.PRS(ut.PowerLaw(1.0)), **TREES).fit(log)
    path = ut.export_model(ranker, tmp_path / "m.json", "es-ltr")
    request = json.loads((tmp_path / "m.query.json").read_text()) | {"from": start, "size": size}
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 4)).astype(np.float32)
    first = rng.random(400)
    assert (ranker.predict(rows) < 0).sum() > 20
    format = format_of(catalog.find("export", "es-ltr"))
    engine = format.scores(path, ranker.feature_names_, rows)
    window = set(np.argsort(-first)[:100])
    shown, scores = rescored(first, engine, request)
    inside = [document in window for document in shown]
    assert inside == sorted(inside, reverse=True)
    assert all(scores[document] > 0 for document in window)
    by_ranker = [d for d in shown if d in window]
    kept = ranker.predict(rows[by_ranker])
    assert np.all(np.diff(kept) <= 1e-6)
    raw, _ = rescored(first, ranker.predict(rows), request)
    if start + size > 100:  # what a model without the constant does
        assert [d in window for d in raw] != inside


def value_in_lucene(template, document):
    """function_score of one field: NaN where the query finds no document, an error below 0."""
    score = template["function_score"]
    field = score["query"]["exists"]["field"]
    assert score["boost_mode"] == "replace"
    if field not in document:
        return np.nan
    value = document[score["field_value_factor"]["field"]]
    if value < 0:
        raise ValueError("field value function must not produce negative scores")
    return value


def test_numbers_are_read_from_fields_and_text_is_matched(log, tmp_path):
    names = ("bm25_title", "price", "in_stock", "title_match")
    ranker = ut.LambdaMART(**TREES).fit(changed(log, feature_names=names))
    write_export(ranker, tmp_path / "m.json", "opensearch")
    features = json.loads((tmp_path / "m.features.json").read_text())["featureset"]["features"]
    templates = {each["name"]: each["template"] for each in features}
    assert {name for name in names if "match" in templates[name]} == {"bm25_title", "title_match"}
    assert value_in_lucene(templates["price"], {"FIELD_OF_price": 12.5}) == 12.5
    assert np.isnan(value_in_lucene(templates["in_stock"], {"FIELD_OF_price": 1.0}))
    write_export(ranker, tmp_path / "s.json", "solr")
    kinds = [each["class"].rsplit(".", 1)[1] for each in json.loads(
        (tmp_path / "s.features.json").read_text())]  # fmt: skip
    assert kinds == ["SolrFeature", "FieldValueFeature", "FieldValueFeature", "SolrFeature"]


def test_the_profile_of_vespa_goes_where_its_documentation_says(log, tmp_path):
    """schemas/SCHEMA/PROFILE.profile, named like the profile in it."""
    written = write_export(ut.LambdaMART(**TREES).fit(log), tmp_path / "my-shop.json", "vespa")
    package = tmp_path / "package"
    package.mkdir()
    for file in ("my-shop.json", "my-shop.profile"):
        shutil.copy(tmp_path / file, package / file)
    local = [line for line in written.commands if not line.startswith("vespa")]
    subprocess.run(["sh", "-ec", "\n".join(local)], cwd=package, check=True)
    profile = package / "schemas" / "doc" / "my_shop.profile"
    assert "rank-profile my_shop {" in profile.read_text()
    assert (package / "models" / "my-shop.json").exists()


# ---- what is refused


def test_the_format_comes_from_the_ending_or_is_asked_for(log, tmp_path):
    trees, linear = ut.LambdaMART(**TREES).fit(log), ut.LinearRanker().fit(log)
    assert write_export(trees, tmp_path / "m.c").to == "c"
    assert write_export(trees, tmp_path / "m.onnx").to == "onnx"
    assert write_export(linear, tmp_path / "m.json").to == "linear"
    for model, name, to, words in (
        (trees, "m.json", None, "may be a model for es-ltr, opensearch, solr, vespa, xgboost"),
        (trees, "m.pmml", None, "its ending must be one of"),
        (trees, "m.txt", "es-ltr", r"ends in .json. Got 'm.txt'. .txt is for lightgbm"),
        (trees, "m.json", "linear", "it is boosted trees. Formats that take it: es-ltr"),
        (linear, "m.txt", "lightgbm", "it is a linear model"),
        (linear, "m.json", "vespa", "ends in .expression"),
        (trees, "m.json", "elastic", "to must be one of 'es-ltr'"),
    ):
        with pytest.raises(OptionError, match=words):
            write_export(model, tmp_path / name, to)
    with pytest.raises(OptionError, match="'my_model' would do"):
        write_export(trees, tmp_path / "m.json", "solr", name="my model")


def test_what_cannot_be_exported(log, tmp_path):
    class Constant(Ranker):
        def _fit(self, data):
            self.feature_names_ = data.feature_names
            return self

        def _scores(self, features):
            return np.zeros(len(features))

    with pytest.raises(NotFittedError, match="this LinearRanker has not been fitted"):
        ut.export_model(ut.LinearRanker(), tmp_path / "m.json")
    with pytest.raises(OptionError, match="a Constant has no form that other systems read"):
        ut.export_model(Constant().fit(log), tmp_path / "m.json")
    twice = ut.LambdaMART(**TREES).fit(changed(log, feature_names=("a", "a", "b", "c")))
    with pytest.raises(OptionError, match="'a' is empty or the name of two"):
        ut.export_model(twice, tmp_path / "m.json", "solr")
    assert not list(tmp_path.iterdir())


def test_every_format_has_a_record_and_a_reader():
    records = catalog.methods("export")
    assert {each.name for each in records} == {*OF_TREES, *OF_WEIGHTS}
    assert len({each.title for each in records}) == len(records)


# ---- the check itself


def test_differences_and_orders_are_counted():
    indptr = np.array([0, 3, 6, 8, 9])
    wanted = np.array([3.0, 2.0, 1.0, 1.0, 2.0, 2.0, 0.5, 0.4, 1.0])
    assert compared("x", wanted, wanted, indptr).holds
    found = wanted.copy()
    found[1] = 0.5  # below its neighbour
    result = compared("x", wanted, found, indptr)
    assert (result.beyond, result.reordered, result.tied) == (1, 1, 0)
    assert result.largest == 1.5
    found = wanted.copy()
    found[7] = 0.5  # tied with its neighbour
    result = compared("x", wanted, found, indptr)
    assert (result.beyond, result.reordered, result.tied) == (1, 0, 1)
    wanted[7] = np.nextafter(0.5, 0)  # closer than single floats can tell, and the other way round
    found[6:8] = 0.5, 0.50000001
    result = compared("x", wanted, found, indptr)
    assert (result.beyond, result.reordered, result.tied) == (0, 0, 1)
    found[:] = np.nan
    assert compared("x", wanted, found, indptr).beyond == 9


def test_a_changed_file_is_seen(log, tmp_path):
    ranker = ut.LambdaMART(**TREES).fit(log)
    path = ut.export_model(ranker, tmp_path / "m.json", "es-ltr")
    other = ut.LambdaMART(**TREES | {"n_trees": 7}).fit(log)
    assert not check_export(other, path, log, "es-ltr").holds
    path.write_text('{"model": {}}')
    with pytest.raises(FileFormatError, match="no model that untilt wrote for Elasticsearch LTR"):
        check_export(ranker, path, log, "es-ltr")
    path.write_text("no json")
    with pytest.raises(FileFormatError, match="is no JSON"):
        check_export(ranker, path, log, "es-ltr")


def test_negative_features_are_named_where_the_engine_refuses_them(log, tmp_path):
    above = changed(log, features=log.features - [[0, log.features[:, 1].min(), 0, 0]])
    ranker = ut.LambdaMART(**TREES).fit(above)
    path = ut.export_model(ranker, tmp_path / "m.json", "es-ltr")
    found = check_export(ranker, path, above, "es-ltr")
    assert found.negative == ("f1", "f3", "f4")
    assert (found.holds, found.works) == (True, False)
    assert check_export(ranker, ut.export_model(ranker, tmp_path / "m.c"), above).negative == ()


def test_samples_are_read_from_tables_and_letor(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "query_id": ["b", "a", "b"],
            "g": [1.0, 2.0, None],
            "f": [0.1, 0.2, 0.3],
            "more": [1, 2, 3],
        }
    )
    pq.write_table(table, tmp_path / "s.parquet")
    features, indptr = read_sample(tmp_path / "s.parquet", ("f", "g"))
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features, np.array([[0.2, 2], [0.1, 1], [0.3, np.nan]], "f4"))
    assert indptr.tolist() == [0, 1, 3]
    with pytest.raises(ColumnError, match=r"has no column 'mor', .* Did you mean 'more'"):
        read_sample(tmp_path / "s.parquet", ("f", "mor"))
    named = table.rename_columns(["search_term", "g", "score", "more"])
    pq.write_table(named, tmp_path / "named.parquet")
    with pytest.raises(ColumnError, match=r"has no column 'query_id'.*groups rows into lists"):
        read_sample(tmp_path / "named.parquet", ("score", "g"))
    theirs = {"query_id": "search_term", "f": "score"}
    assert read_sample(tmp_path / "named.parquet", ("f", "g"), theirs)[1].tolist() == [0, 1, 3]
    with pytest.raises(OptionError, match=r"Got 'query'.*Did you mean 'query_id'"):
        read_sample(tmp_path / "named.parquet", ("f", "g"), {"query": "search_term"})
    (tmp_path / "s.txt").write_text("1 qid:1 1:0.5 2:1\n0 qid:1 1:0.25 2:0\n1 qid:2 1:1 2:1\n")
    features, indptr = read_sample(tmp_path / "s.txt", ("f1", "f2"))
    assert (features[1, 0], indptr.tolist()) == (0.25, [0, 2, 3])


def test_a_sample_must_fit(log, tmp_path):
    ranker = ut.LambdaMART(**TREES).fit(log)
    path = ut.export_model(ranker, tmp_path / "m.c")
    with pytest.raises(OptionError, match="no rows"):
        check_export(ranker, path, log.features[:0])
    with pytest.raises(ShapeError, match="indptr must go from 0 to 10"):
        check_export(ranker, path, log.features[:10], indptr=[0, 9])
