"""Files that somebody made up, under a right checksum: refused, or of no harm when used.

Every value of a saved ranker and click model is replaced by nonsense in turn. Kernels do not check
indices and LightGBM believes its own text, so whatever is loaded is used at once: a crash ends the
tests.
"""

import copy
import io
import json
import zipfile
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from tests.contract.test_rankers import EACH_ONCE

from untilt import catalog, load
from untilt.data.clicklog import ClickLog
from untilt.errors import UntiltError

MODELS: dict[str, Any] = {record.name: record.load() for record in catalog.methods("click model")}
NONSENSE = [
    None, True, -1, 0, 10**6, 10**400, 2.5, -1e300, "text", "", [], {}, [[]], [1, "a", None],
    {"$float": "nan"}, {"$float": "inf"}, {"$float": {}}, {"$tuple": 3}, {"$tuple": []},
    {"$dict": [[[], 1]]}, {"$dict": 5}, {"$unknown": 1}, {"$gone": 1}, {"$fact": "x", "fields": 1},
    {"$texts": [1]}, {"$texts": ["a"]}, {"$part": "untilt.json"}, {"$booster": "model.txt"},
    {"$array": [], "dtype": "<f8", "shape": [0]},
    {"$array": [1e300] * 3, "dtype": "<f8", "shape": [3]},
    {"$array": [-5, 10**9], "dtype": "<i8", "shape": [2]},
    {"$array": ["nan"], "dtype": "<f8", "shape": [1]},
    {"$array": [1], "dtype": "O", "shape": [1]},
    {"$array": [1], "dtype": "(100000,100000)f8", "shape": [1]},
    {"$array": ["a"], "dtype": "<U99999999", "shape": [1]},
    {"$array": [], "dtype": "<f8", "shape": [0, 10**12]},
    {"$array": [1.0], "dtype": "<f8", "shape": [-1]},
    {"$type": "Interval", "fields": {"low": 0.0, "high": 1.0}},
    {"$type": "Interval", "fields": {"low": [], "high": "x"}},
    {"$type": "PositionBias", "fields": {"examination": [10**400]}},
    {"$type": [], "fields": {}},
]  # fmt: skip


@pytest.fixture(scope="module")
def log():
    """Four documents of three features at positions 1 to 4, in any order."""
    rng = np.random.default_rng(0)
    n = 120
    document = np.concatenate([4 * (i % 6) + rng.permutation(4) for i in range(n)])
    position = np.tile([1, 2, 3, 4], n)
    features = rng.normal(size=(24, 3)).astype(np.float32)
    chance = 1 / (1 + np.exp(-features[document, 0])) / position
    return ClickLog(
        query_id=np.arange(6), doc_id=np.arange(24), doc_query=np.repeat(np.arange(6), 4),
        indptr=4 * np.arange(n + 1), query=np.arange(n) % 6, document=document, position=position,
        label=(rng.random(4 * n) < chance) * 1.0, features=features, feature_names=("a", "b", "c"),
    )  # fmt: skip


def parts_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sealed(parts, kind=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
        archive.comment = f"untilt ranker 1 sha256 {'0' * 64}".encode()
    return resealed(buffer.getvalue())


def resealed(data):
    return data[:-64] + sha256(data[:-64]).hexdigest().encode()


def places(value, path=()):
    """The paths of all values inside lists and objects; of long lists the first entry."""
    yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def changed(header, path, value):
    header = copy.deepcopy(header)
    place = header
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return header


def used(path, log):
    """Load it and use it; only errors of ours may come out."""
    try:
        found = load(path)
        repr(found)
        if hasattr(found, "predict"):
            assert found.predict(log.features).shape == (24,)
            _ = found.feature_importances_
        else:
            found.click_probability(log)
            found.conditional_probability(log)
            found.log_likelihood(log)
            found.sample(log, seed=0)
    except UntiltError:
        return False
    return True


def attacked(model, log, tmp_path, *, every, seed=0):
    """The share of nonsense that was taken; each place gets some of it, the same each time."""
    model.save(tmp_path / "model")
    parts = parts_of((tmp_path / "model").read_bytes())
    assert used(tmp_path / "model", log)
    header = json.loads(parts["untilt.json"])
    rng = np.random.default_rng(seed)
    taken = []
    for path in places({key: header[key] for key in ("kind", "parameters", "state")}):
        for at in rng.choice(len(NONSENSE), size=every, replace=False) if path else ():
            wrong = changed(header, path, ... if at == 0 and len(path) > 1 else NONSENSE[at])
            text = json.dumps(wrong).encode()
            (tmp_path / "wrong").write_bytes(sealed({**parts, "untilt.json": text}))
            taken.append(used(tmp_path / "wrong", log))
    return np.mean(taken)


# Networks take seconds to compile; one of them is enough in a hurry.
TREES_AND_LINES = ("lambdamart with PRS", "linear with PRS", "svm with PRS", "neural with PRS")
NETWORKS = ("dual-learning", "pairwise-trust", "tower", "feedback-towers")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", TREES_AND_LINES)
def test_rankers_with_nonsense_inside(name, log, tmp_path):
    maker: Any = EACH_ONCE[name]
    assert attacked(maker().fit(log), log, tmp_path, every=2) < 0.9


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [*NETWORKS, "ncm"])
def test_networks_with_nonsense_inside(name, log, tmp_path):
    maker: Any = EACH_ONCE.get(name) or MODELS[name]
    assert attacked(maker().fit(log), log, tmp_path, every=20) < 0.9


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [name for name in MODELS if name != "ncm"])
def test_click_models_with_nonsense_inside(name, log, tmp_path):
    assert attacked(MODELS[name]().fit(log), log, tmp_path, every=2) < 0.9
