"""Saved and loaded: the same ranker, from one file that nobody can change unnoticed."""

import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from untilt import (
    IPS,
    PNS,
    PRS,
    RCTR,
    AffineIPS,
    Balanced,
    BayesIPS,
    ClickCountGuess,
    EyeTracking,
    KnownBias,
    LambdaMART,
    LinearRanker,
    Naive,
    PageSteps,
    PairwiseDebiasing,
    PositionBias,
    PowerLaw,
    RankSVM,
    load,
    register,
)
from untilt._core import saved as persist_types
from untilt._core.saved import FORMAT, HEADER, Decoder, Encoder, save
from untilt.catalog import storable_homes
from untilt.errors import FileFormatError, NotFittedError, OptionError
from untilt.facts import as_fact, as_facts
from untilt.weighting.base import Weighting

TRUST = KnownBias(1 / np.arange(1, 6), eps_plus=np.full(5, 0.9), eps_minus=np.full(5, 0.1))
DOUBTED = PositionBias(
    np.array([1.0, 0.7, 0.5, 0.1 + 0.2, 1 / 3]),
    covariance=np.diag([0.0, 0.01, 0.02, 0.03, 0.04]),
    method="all pairs",
    assumes=as_facts(("one", "two")),
    status=as_fact("converged"),
    level=0.9,
)
WEIGHTINGS = [
    None, Naive(), IPS(DOUBTED, clip=0.1), IPS(EyeTracking(0.5), against="all"),
    PNS(PageSteps.rough()), PRS(PowerLaw(0.3), clip=float("inf")), BayesIPS(TRUST),
    Balanced(TRUST), AffineIPS(TRUST, clip=0.01), PairwiseDebiasing(p=1.0),
    IPS(ClickCountGuess((3.0, 2.0, 1.0))),
]  # fmt: skip
TREES: dict[str, Any] = {"n_trees": 5, "n_leaves": 4, "min_data_in_leaf": 2, "n_threads": 1}


def same(a, b):
    """Equal through and through, arrays and known objects included."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=True)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and same(vars(a), vars(b))
    if hasattr(a, "model_to_string"):
        return a.model_to_string() == b.model_to_string()
    return type(a) is type(b) and a == b


def rankers():
    for weighting in WEIGHTINGS:
        yield LinearRanker(weighting)
        yield RankSVM(weighting)
        yield LambdaMART(weighting, **TREES)
    yield LinearRanker(loss="dcg-bound", l2=0.1, sigma=2.0)
    yield RankSVM(IPS(PowerLaw(1.0)), C="search")
    yield LambdaMART(bias=PowerLaw(1.0), objective="pbm-likelihood", **TREES)
    yield LambdaMART(bias=[1.0, 0.5, 0.4, 0.3, 0.2], objective="ips-label", **TREES)
    yield LambdaMART(bias=DOUBTED, objective="posterior-label", folds=2, **TREES)
    yield LambdaMART("auto", bias=PowerLaw(1.0), folds=2, **TREES)
    yield LambdaMART(lightgbm_params={"max_bin": 15, "extra_trees": True}, **TREES)


@pytest.mark.parametrize("ranker", list(rankers()), ids=lambda ranker: type(ranker).__name__)
def test_a_loaded_ranker_is_the_ranker(made, tmp_path, ranker):
    fitted = ranker.fit(made.log)
    fitted.save(tmp_path / "ranker.untilt")
    loaded = load(tmp_path / "ranker.untilt")
    assert type(loaded) is type(fitted)
    assert np.array_equal(loaded.predict(made.log.features), fitted.predict(made.log.features))
    assert loaded.feature_importances_ == fitted.feature_importances_
    assert same(loaded._state(), fitted._state())
    assert same(loaded.get_params(deep=False), fitted.get_params(deep=False))
    # A second generation is the first.
    loaded.save(tmp_path / "again.untilt")
    assert same(load(tmp_path / "again.untilt")._state(), fitted._state())


def test_early_stopping_survives(pbm_log, tmp_path):
    train, valid = pbm_log(seed=1).log, pbm_log(seed=2).log
    ranker = LambdaMART(early_stopping=2, **TREES | {"n_trees": 40}).fit(train, valid=valid)
    ranker.save(tmp_path / "ranker")
    loaded = load(tmp_path / "ranker")
    assert loaded.n_trees_ == ranker.n_trees_
    assert loaded.watched_ == ranker.watched_
    assert np.array_equal(loaded.predict(valid.features), ranker.predict(valid.features))


@pytest.fixture(scope="module")
def saved(made, tmp_path_factory):
    """Bytes of a small saved ranker, and what it predicts."""
    ranker = LinearRanker(IPS(PowerLaw(1.0))).fit(made.log)
    path = tmp_path_factory.mktemp("saved") / "ranker.untilt"
    save(ranker, path)
    return path.read_bytes()


def loading(tmp_path, data):
    path = tmp_path / "changed.untilt"
    path.write_bytes(data)
    return load(path)


def test_people_and_tools_can_read_the_file(saved):
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        assert archive.testzip() is None
        header = json.loads(archive.read(HEADER))
    assert header["format"] == FORMAT
    assert header["kind"] == "LinearRanker"
    assert {"python", "numpy", "scipy", "lightgbm"} == set(header["libraries"])
    assert header["parameters"]["weighting"] == {
        "$type": "IPS",
        "fields": {
            "bias": {"$type": "PowerLaw", "fields": {"eta": 1.0}},
            "clip": 0.0,
            "against": "unclicked",
        },
    }
    assert header["state"]["feature_names_"] == {"$tuple": ["f1", "f2", "f3", "f4"]}
    assert header["state"]["summary_"]["trained_on"] == "clicks"


def test_every_truncation_is_refused(saved, tmp_path):
    cuts = sorted({*range(0, 120), *range(0, len(saved), 37), *range(len(saved) - 200, len(saved))})
    for cut in cuts:
        with pytest.raises(FileFormatError, match=r"cannot be loaded: it (is|begins)"):
            loading(tmp_path, saved[:cut])


def test_every_changed_bit_is_refused(saved, tmp_path):
    rng = np.random.default_rng(0)
    ends = [*range(40), *range(len(saved) - 160, len(saved))]
    for at in {*ends, *rng.integers(0, len(saved), size=300).tolist()}:
        changed = bytearray(saved)
        changed[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(FileFormatError, match="cannot be loaded"):
            loading(tmp_path, bytes(changed))


def test_bytes_added_or_moved_are_refused(saved, tmp_path):
    for data in (saved + b"\0", b"\0" + saved, saved + saved, saved[100:] + saved[:100]):
        with pytest.raises(FileFormatError):
            loading(tmp_path, data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"it is empty\. Save the model again"),
        (b"tree\nversion=v4\n", r"it is a LightGBM text model.* lightgbm\.Booster\(model_file"),
        (b' {"kind": 1}', r"it is JSON.* ut\.PositionBias\.load\(path\)"),
        (pickle.dumps([1, 2, 3]), "it is no ranker or click model saved"),
        (bytes(range(256)) * 4, "it is no ranker or click model saved"),
    ],
)
def test_foreign_files_are_named(tmp_path, data, message):
    with pytest.raises(FileFormatError, match=message):
        loading(tmp_path, data)


def test_a_foreign_zip_is_refused(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(FileFormatError, match="it is no ranker or click model saved"):
        loading(tmp_path, buffer.getvalue())


def test_a_cut_file_is_distinguished_from_a_foreign_one(saved, tmp_path):
    with pytest.raises(FileFormatError, match=r"begins as a model of untilt, but its end is miss"):
        loading(tmp_path, saved[:-1])
    with pytest.raises(FileFormatError, match=r"it is damaged: its checksum does not match"):
        loading(tmp_path, saved[:500] + b"?" + saved[501:])


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere.untilt")


def resealed(saved, *, edit=None, fmt=FORMAT, drop=(), **changed):
    """A file with a right checksum whose content somebody else wrote."""
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts |= changed
    if edit is not None:
        header = json.loads(parts[HEADER])
        edit(header)
        parts[HEADER] = json.dumps(header).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in parts.items():
            if name not in drop:
                archive.writestr(name, data)
        archive.comment = f"untilt ranker {fmt} sha256 {'0' * 64}".encode()
    body = buffer.getvalue()[:-64]
    return body + hashlib.sha256(body).hexdigest().encode()


def setter(*path, value):
    def edit(header):
        place = header
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return edit


def test_resealing_nothing_changes_nothing(saved, tmp_path, made):
    one, two = loading(tmp_path, saved), loading(tmp_path, resealed(saved))
    assert np.array_equal(one.weights_, two.weights_)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (setter("kind", value="OtherRanker"), "it holds a 'OtherRanker', which this untilt does"),
        (setter("kind", value="LinearRankr"), r"Did you mean 'LinearRanker'\?"),
        (setter("kind", value="PowerLaw"), r"a PowerLaw is no ranker"),
        (setter("kind", value="os.system"), "which this untilt does not know"),
        (setter("parameters", "unheard_of", value=1), "cannot make a model of it .TypeError"),
        (setter("parameters", value=[]), "cannot make a model of it"),
        (setter("state", "predict", value=1), "it holds values that no ranker learns"),
        (setter("state", "_x_", value=1), "it holds values that no ranker learns"),
        (setter("state", "weights_", value={"$part": "arrays/no.npy"}), "'arrays/no.npy' is miss"),
        (setter("state", "weights_", value={"$code": "1"}), r"it holds '\$code', which this"),
        (
            setter("state", "weights_", value={"$type": "LinearRanker", "fields": {}}),
            "a LinearRanker cannot be part of a saved ranker",
        ),
        (
            setter("state", "bias_", value={"$type": "PositionBias", "fields": {}}),
            "its PositionBias is no PositionBias .* Missing: examination",
        ),
        (
            setter(
                "state", "bias_", value={"$type": "PositionBias", "fields": {"examination": [0]}}
            ),
            "its PositionBias is no PositionBias: examination must be above 0",
        ),
        (
            setter("parameters", "weighting", "fields", "clip", value=7),
            r"clip must lie between 0 and 1",
        ),
    ],
)
def test_wrong_content_under_a_right_checksum(saved, tmp_path, edit, message):
    with pytest.raises(FileFormatError, match=message):
        loading(tmp_path, resealed(saved, edit=edit))


def test_a_newer_format_is_refused_before_anything_is_read(saved, tmp_path):
    with pytest.raises(FileFormatError, match=r"written in format 7 by a newer untilt.*Upgrade"):
        loading(tmp_path, resealed(saved, fmt=7))


def test_a_missing_header_is_refused(saved, tmp_path):
    with pytest.raises(FileFormatError, match=r"its part 'untilt.json' is missing"):
        loading(tmp_path, resealed(saved, drop=[HEADER]))


def test_a_broken_tree_model_is_refused(made, tmp_path):
    LambdaMART(**TREES).fit(made.log).save(tmp_path / "trees.untilt")
    saved = (tmp_path / "trees.untilt").read_bytes()
    assert loading(tmp_path, resealed(saved)).n_trees_ == 5
    with pytest.raises(FileFormatError, match="LightGBM did not write its tree model"):
        loading(tmp_path, resealed(saved, **{"model.txt": b"nothing of the kind"}))


def test_no_pickle_goes_in_or_out(saved, tmp_path):
    """An object array needs pickle: it is refused both ways."""
    with pytest.raises(OptionError, match=r"state\.x_ is a ndarray, which cannot be saved"):
        Encoder().encode(np.array([object()]), "state.x_")
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FileFormatError, match=r"of type '\|O', which is no number"):
        Decoder({"arrays/x.npy": buffer.getvalue()}).decode({"$part": "arrays/x.npy"})


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 2**70, -0.1, float("inf"), float("-inf"), "text", "$odd", [1, [2.5]],
        (1, (2, "x")), {"a": {"b": (1,)}}, {"$a": 1}, {1: "one", (2, 3): [4]}, {}, [], (),
        np.arange(6, dtype=np.int32).reshape(2, 3), np.array([0.1, np.nan, -np.inf]),
        np.array([1 / 3], dtype=np.float32), np.array([True, False]), np.zeros((0, 4)),
        np.random.default_rng(0).normal(size=(60, 30)), np.array([2**64 - 1], dtype=np.uint64),
        PowerLaw(0.5), DOUBTED,
    ],
)  # fmt: skip
def test_values_survive_to_the_last_bit(value):
    encoder = Encoder()
    text = json.dumps(encoder.encode(value, "x"), allow_nan=False)
    assert same(Decoder(encoder.parts).decode(json.loads(text)), value)


def test_numpy_numbers_become_plain_ones_and_generators_go():
    assert Encoder().encode(np.float64(0.5), "x") == 0.5
    assert Encoder().encode(np.int64(7), "x") == 7
    assert Encoder().encode(np.bool_(True), "x") is True
    encoded = Encoder().encode(np.random.default_rng(0), "x")
    assert encoded == {"$gone": "Generator"}
    assert Decoder({}).decode(encoded) is None


def test_a_seed_that_is_a_generator_does_not_stand_in_the_way(made, tmp_path):
    ranker = RankSVM(seed=np.random.default_rng(0)).fit(made.log)
    ranker.save(tmp_path / "ranker")
    loaded = load(tmp_path / "ranker")
    assert loaded.seed is None
    assert np.array_equal(loaded.weights_, ranker.weights_)


@dataclass(frozen=True)
class Halved(Weighting):
    """A weighting of somebody's own."""

    factor: float = 0.5

    def table(self, depth):
        return np.full((depth, depth), self.factor)


def test_a_weighting_of_ones_own_is_registered_first(made, tmp_path, monkeypatch):
    monkeypatch.setattr(persist_types, "_registered", {})
    ranker = LinearRanker(Halved(0.25)).fit(made.log)
    with pytest.raises(OptionError, match=r"parameters\.weighting is a Halved, which cannot be sa"):
        ranker.save(tmp_path / "ranker")
    assert not (tmp_path / "ranker").exists()
    assert register(Halved) is Halved
    ranker.save(tmp_path / "ranker")
    assert load(tmp_path / "ranker").weighting == Halved(0.25)
    monkeypatch.setattr(persist_types, "_registered", {})
    with pytest.raises(FileFormatError, match=r"it holds a 'Halved'.*untilt\.register"):
        load(tmp_path / "ranker")


def test_a_ranker_of_ones_own_is_registered_first(made, tmp_path, monkeypatch):
    class MyRanker(LinearRanker):
        pass

    monkeypatch.setattr(persist_types, "_registered", {})
    ranker = MyRanker().fit(made.log)
    with pytest.raises(OptionError, match="MyRanker is not known to untilt"):
        ranker.save(tmp_path / "ranker")
    register(MyRanker)
    ranker.save(tmp_path / "ranker")
    assert type(load(tmp_path / "ranker")) is MyRanker


def test_what_cannot_be_registered():
    class PowerLaw:
        pass

    with pytest.raises(OptionError, match="only dataclasses, named tuples and rankers"):
        register(PowerLaw)
    with pytest.raises(OptionError, match="untilt has a PowerLaw of its own"):
        register(dataclass(PowerLaw))
    # A class that merely shares the name of a known one is not taken for it.
    with pytest.raises(OptionError, match="x is a PowerLaw, which cannot be saved"):
        Encoder().encode(PowerLaw(), "x")


def test_every_storable_name_has_its_class():
    for name, home in storable_homes().items():
        target = getattr(import_module(home), name)
        if isinstance(target, type):
            assert persist_types.known_class(name) is target
        else:
            with pytest.raises(FileFormatError, match="does not know"):
                persist_types.known_class(name)


def test_an_unfitted_ranker_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError, match="Call fit"):
        LinearRanker().save(tmp_path / "ranker")


def test_a_failed_save_leaves_the_old_file(made, tmp_path, monkeypatch):
    path = tmp_path / "ranker"
    LinearRanker().fit(made.log).save(path)
    before = path.read_bytes()
    ranker = LinearRanker().fit(made.log)
    ranker.summary_ = {"bad": object()}
    with pytest.raises(OptionError, match=r"state\.summary_\.bad is a object"):
        ranker.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["ranker"]


@pytest.mark.parametrize("model", [LinearRanker(), RCTR()])
def test_models_under_a_key(model, made, tmp_path, monkeypatch):
    monkeypatch.setenv("UNTILT_SEAL_KEY", "1" * 32)
    model.fit(made.log).save(tmp_path / "model")
    assert type(load(tmp_path / "model")) is type(model)
    monkeypatch.setenv("UNTILT_SEAL_KEY", "2" * 32)
    with pytest.raises(FileFormatError, match="model cannot be loaded: it was sealed with an"):
        load(tmp_path / "model")
    monkeypatch.setenv("UNTILT_SEAL_KEY", "short")
    with pytest.raises(OptionError, match="UNTILT_SEAL_KEY must hold keys"):
        load(tmp_path / "model")


SAME_BYTES = """
import sys
import numpy as np
import untilt as ut
rng = np.random.default_rng(0)
n, path = 60, sys.argv[1]
document = np.concatenate([rng.permutation(5) + 5 * (i % 4) for i in range(n)])
log = ut.ClickLog(
    query_id=np.array(["a", "b", "c", "d"], dtype=object), doc_id=np.arange(20),
    doc_query=np.repeat(np.arange(4), 5), indptr=5 * np.arange(n + 1), query=np.arange(n) % 4,
    document=document, position=np.tile([1, 2, 3, 4, 5], n), features=rng.normal(size=(20, 3)),
    label=(rng.random(5 * n) < 0.4) * 1.0, feature_names=("x", "y", "z"),
)
trees = ut.LambdaMART(ut.IPS(ut.PowerLaw(1.0)), n_trees=3, min_data_in_leaf=1, n_threads=1)
for name, model in {"trees": trees, "line": ut.LinearRanker(), "clicks": ut.RCTR()}.items():
    model.fit(log).save(f"{path}/{name}.untilt")
ut.AllPairs().fit(log).bias_.save(f"{path}/bias.json")
"""


def test_equal_models_are_equal_bytes(tmp_path):
    """In two processes whose sets and dictionaries are ordered differently."""
    written = []
    for number in ("1", "2"):
        (tmp_path / number).mkdir()
        more = {"PYTHONHASHSEED": number, "SOURCE_DATE_EPOCH": "1000000000"}
        command = [sys.executable, "-c", SAME_BYTES, str(tmp_path / number)]
        subprocess.run(command, check=True, env=os.environ | more)
        written.append({path.name: path.read_bytes() for path in (tmp_path / number).iterdir()})
    assert len(written[0]) == 4
    assert written[0] == written[1]


def test_equal_models_differ_in_their_time_alone(made, tmp_path, monkeypatch):
    ranker, headers, rest = LambdaMART(**TREES).fit(made.log), [], []
    for fixed in (None, "1000000000"):
        monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
        if fixed is not None:
            monkeypatch.setenv("SOURCE_DATE_EPOCH", fixed)
        ranker.save(tmp_path / "ranker")
        with zipfile.ZipFile(tmp_path / "ranker") as archive:
            headers.append(json.loads(archive.read(HEADER)))
            rest.append({name: archive.read(name) for name in archive.namelist()[1:]})
    assert headers[0].pop("created") > "2026"
    assert headers[1].pop("created") == "2001-09-09T01:46:40+00:00"
    assert headers[0] == headers[1]
    assert rest[0] == rest[1]
