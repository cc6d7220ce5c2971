"""What a plain install does without its extras: from a file of clicks to a page, and clear errors.

`make release` shows it in an environment that has never had them; here they cannot be imported.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from untilt._core.optional import explained_import
from untilt.errors import MissingExtraError, OptionError

SCRIPT = """
import json, sys
from pathlib import Path

HIDDEN = ("pyarrow", "sklearn", "vl_convert", "pandas", "polars", "xgboost", "jax", "mlflow")
sys.modules.update(dict.fromkeys(HIDDEN))  # importing one of them is an error now

import numpy as np
import untilt as ut
from untilt.data.write_log import write_log
from untilt.errors import MissingExtraError

folder = Path(sys.argv[1])
judged = ut.make_judged(n_queries=30, n_features=4, seed=0)
made = ut.simulate(judged, protocol="swap", n_sessions=1500, seed=0, n_threads=1).log
read = []
for ending in ("parquet", "csv"):
    files = [folder / f"{name}.{ending}" for name in ("clicks", "documents")]
    write_log(made, files[0], documents=files[1])
    read.append(ut.read_log(files[0], documents=files[1]))
log = read[0]
assert np.array_equal(log.label, read[1].label)
assert np.array_equal(log.features, read[1].features)

import bz2, csv, sqlite3
rows = list(csv.DictReader((folder / "clicks.csv").open()))
lines = "".join(json.dumps({k.upper(): int(v) if v.isdigit() else v for k, v in row.items()})
                + "\\n" for row in rows)
(folder / "clicks.jsonl.bz2").write_bytes(bz2.compress(lines.encode()))
read.append(ut.read_log(folder / "clicks.jsonl.bz2", documents=files[1]))
assert np.array_equal(log.label, read[2].label)
assert np.array_equal(log.count, read[2].count)
(folder / "clicks.csv.zst").write_bytes(b"(\\xb5/\\xfd")
sqlite3.connect(folder / "clicks.sqlite").execute("CREATE TABLE clicks (x)").connection.close()

bias = ut.AllPairs().fit(log).bias_
ranker = ut.LambdaMART(weighting=ut.PRS(bias), n_trees=3, n_threads=1).fit(log)
ranker.save(folder / "ranker.untilt")
again = ut.load(folder / "ranker.untilt")
value = ut.estimate(log, {"new": again}, bias)["new"].value
ut.audit(log)
from untilt.charts.theme import save_chart

def refused(work):
    try:
        work()
    except MissingExtraError as error:
        return str(error)

class Stream:
    def __arrow_c_stream__(self, requested_schema=None): ...

print(json.dumps({
    "value": value,
    "repr": repr(ut.LambdaMART(n_trees=3)),
    "folds": [len(test) for _, test in ut.QueryKFold(3).split(judged)],
    "svg": refused(lambda: save_chart(bias.plot(), folder / "bias.svg")),
    "stream": refused(lambda: ut.read_log(Stream())),
    "zst": refused(lambda: ut.read_log(folder / "clicks.csv.zst")),
    "sqlite": refused(lambda: ut.read_log(folder / "clicks.sqlite")),
    "s3": refused(lambda: ut.read_log("s3://bucket/clicks.parquet")),
    "score": refused(lambda: ut.score_file(ranker, folder / "documents.csv", folder / "s.csv")),
    "loaded": [name for name in HIDDEN if sys.modules[name] is not None],
}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("light")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {**json.loads(done.stdout), "folder": str(folder)}


def test_from_a_file_to_a_value_without_any_extra(told):
    import untilt as ut

    folder = Path(told["folder"])
    log = ut.read_log(folder / "clicks.parquet", documents=folder / "documents.parquet")
    bias = ut.AllPairs().fit(log).bias_
    ranker = ut.load(folder / "ranker.untilt")
    assert told["value"] == pytest.approx(ut.estimate(log, {"new": ranker}, bias)["new"].value)
    assert told["loaded"] == []
    assert told["repr"] == "LambdaMART(n_trees=3)"
    assert told["folds"] == [10, 10, 10]


@pytest.mark.parametrize(
    ("what", "extra"),
    [
        ("svg", "pictures"),
        *((each, "arrow") for each in ("stream", "score", "zst", "sqlite", "s3")),
    ],
)
def test_what_needs_an_extra_says_how_to_get_it(told, what, extra):
    assert told[what].endswith(f"Install it: pip install 'untilt[{extra}]'.")


def test_an_error_about_another_package_stays_as_it_is():
    with pytest.raises(ModuleNotFoundError) as other, explained_import("this"):
        raise ModuleNotFoundError(name="elsewhere")
    assert not isinstance(other.value, MissingExtraError)
    with pytest.raises(OptionError, match="this needs mlflow"), explained_import("this"):
        raise ModuleNotFoundError(name="mlflow.tracking")
