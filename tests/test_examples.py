"""The example scripts read what they say, by hand-made files and on the real data."""

import gzip
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import untilt as ut

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

PAGES = (
    "5_1\t11,12,13 : 12 , 11 , 12; 5_1\t11,12,13 :; 5_1\t12,11,13 : 99 , 13  ;  5_1\t11,12,13 :\n"
    "6_2\t11,21,22 : 22;\n"
)

HOTELS = """\
srch_id,prop_id,position,click_bool,booking_bool,random_bool,prop_starrating,prop_review_score,\
prop_brand_bool,prop_location_score1,prop_location_score2,prop_log_historical_price,price_usd,\
promotion_flag,orig_destination_distance,comp1_rate,comp2_rate,comp3_rate,comp4_rate,comp5_rate,\
comp6_rate,comp7_rate,comp8_rate
1,10,2,1,1,0,3,4.5,1,2.0,0.5,4.9,0.0,1,100.0,1,,,,,,,-1
1,11,1,0,0,0,2,,0,1.0,,4.1,1.0,0,,,,,,,,,
2,10,1,1,0,1,3,4.5,1,2.0,0.5,4.9,0.0,1,300.0,,,,,,,,
"""


def load(name: str) -> dict:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_pages_by_hand(tmp_path):
    path = tmp_path / "pages.txt.gz"
    path.write_bytes(gzip.compress(PAGES.encode()))
    log, outside = load("yandex_pages")["read_pages"](path)
    assert outside == 1
    assert (log.n_sessions, log.n_queries, log.depth) == (5, 2, 3)
    # Five pages: clicks at positions 1 and 2; none; 3; none; 3.
    assert log.ctr_by_position().clicks.tolist() == [1, 1, 2]
    # The two pages of query 5_1 without a click are alike and stand once.
    assert log.n_lists == 4
    # Url 11 of query 5_1 and of query 6_2 are different documents.
    assert log.n_documents == 6


def test_pages_of_the_real_log(data_dir):
    path = data_dir / "yandex-sample" / "train.txt.gz"
    log, outside = load("yandex_pages")["read_pages"](path)
    assert (log.n_sessions, log.n_queries, log.depth) == (35_064, 20, 10)
    assert outside == 417
    assert log.ctr_by_position().clicks.sum() == sum(
        len(set(urls) & set(clicked)) for urls, clicked in plain_pages(path)
    )


def plain_pages(path):
    """Another way to the same: the shown and the clicked urls of each page, as numbers."""
    with gzip.open(path, "rt") as file:
        for page in re.findall(r"\t([^;]*)", file.read()):
            shown, clicked = (re.findall(r"\d+", part) for part in page.split(":"))
            yield shown, clicked


def test_hotels_by_hand(tmp_path):
    path = tmp_path / "searches.csv"
    path.write_text(HOTELS)
    log = load("expedia")["read_searches"](path)
    assert (log.n_sessions, log.n_queries, log.n_documents) == (2, 2, 3)
    feature = {name: log.features[:, j] for j, name in enumerate(log.feature_names)}
    documents = zip(log.query_id[log.doc_query].tolist(), log.doc_id.tolist(), strict=True)
    row = {document: i for i, document in enumerate(documents)}
    assert feature["f_review"][row[1, 11]] == 0  # unknown
    assert feature["f_distance"][row[1, 11]] == (100 + 300) / 2  # the median of the known ones
    assert feature["f_log_price"][row[1, 11]] == pytest.approx(np.log(2))
    assert feature["f_competitor8"][row[1, 10]] == -1
    assert feature["f_competitor2"][row[1, 10]] == 0
    first = int(np.flatnonzero(log.query_id[log.query] == 1)[0])
    rows = slice(log.indptr[first], log.indptr[first + 1])
    assert log.position[rows].tolist() == [1, 2]
    assert log.label[rows].tolist() == [0, 1]
    assert log.extra_labels["booking"][rows].tolist() == [0, 1]
    assert log.ranker_names[log.ranker[first]] == "usual order"


def test_hotels_of_the_real_log(data_dir):
    log = load("expedia")["read_searches"](data_dir / "expedia-sample" / "searches.csv.gz")
    assert (log.n_impressions, log.n_sessions) == (25_149, 1000)
    assert set(log.ranker_names) == {"usual order", "random order"}
    assert np.isfinite(log.features).all()


@pytest.mark.parametrize(
    ("name", "data"),
    [("yandex_pages", "yandex-sample/train.txt.gz"), ("expedia", "expedia-sample/searches.csv.gz")],
)
def test_scripts_take_the_path_as_an_argument(data_dir, name, data, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [f"{name}.py", str(data_dir / data)])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out.startswith("ClickLog(")


def test_the_main_job_on_the_pages(data_dir, tmp_path):
    """No features: bias, click models and audit; documents by their clicks; no ranker."""
    script = load("yandex_pages")
    log, _ = script["read_pages"](data_dir / "yandex-sample" / "train.txt.gz")
    found = script["decide"](log, tmp_path / "run")
    assert found.bias_kind == "in turn"  # the log has no times
    assert found.bias.method.startswith("AllPairs")
    assert np.all(np.diff(found.bias.examination[:8]) < 0)
    assert found.ranker is None
    assert any("no ranker can be trained" in warning for warning in found.warnings)
    assert any("UBM predicts best" in note for note in found.decision.click_models.notes)
    assert found.decision.answer.verdict == "undecided"  # 20 queries, and one speaks for it


def test_the_main_job_on_the_hotels(data_dir, tmp_path):
    """Learned from searches in the usual order, confirmed by those in random order."""
    options = {"trees": 30, "threads": 1, "method": ["balanced", "linear"]}
    found, judge = load("expedia")["decide"](
        data_dir / "expedia-sample" / "searches.csv.gz", tmp_path / "run", **options
    )
    assert found.bias_kind == "given"
    compared = judge.compare("any order")
    for name in ("raw clicks", "balanced", "linear"):
        assert compared[name].interval.low > 0


def test_optuna_searches_by_the_estimate():
    """Its best value is the gain of that very ranker on the part that it was chosen by."""
    pytest.importorskip("optuna", reason="optuna is not installed; only this example needs it")
    script = load("optuna_search")
    log = ut.simulate(ut.make_judged(60, 5, seed=0), "harvest", n_sessions=3000, seed=0).log
    train, valid = log.split(0.5, by="query")
    bias = ut.EyeTracking()
    study = script["search"](train, valid, bias, n_trials=3)
    assert len({trial.value for trial in study.trials}) == 3
    best = script["ranker_of"](study.best_trial.params, bias).fit(train)
    shown, new = ut.estimate(valid, {"shown": ut.shown, "best": best}, bias)
    assert max(trial.value for trial in study.trials) == pytest.approx(new.value - shown.value)
    printed = run("optuna_search", "2")
    assert "best of 2 trials" in printed
    assert "trained on" not in printed  # no warning: nothing was judged by queries it knows
