"""`untilt train` and `untilt export`, as a user runs them."""

import json
from pathlib import Path

import lightgbm
import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from untilt import catalog
from untilt.bias.curve import PositionBias
from untilt.cli.main import app
from untilt.data.letor.write_letor import write_letor
from untilt.data.write_log import write_log
from untilt.rankers.base import load
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    judged = make_judged(60, 8, seed=0)
    write_letor(judged, folder / "judged.txt")
    log = simulate(judged, "dla", n_sessions=2_000, seed=0).log
    write_log(log, folder / "clicks.parquet", documents=folder / "documents.parquet")
    return folder


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def train(made: Path, out: Path, *words: object) -> Result:
    log = ("train", made / "clicks.parquet", "--documents", made / "documents.parquet")
    return run(*log, "--trees", 5, "--threads", 1, "--out", out, *words)


METHODS = [
    record.name
    for record in (*catalog.methods("weighting"), *catalog.methods("objective"))
    if "bias" in record.needs and "trust" not in record.needs
]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_a_curve_saves_a_ranker_that_scores(made, tmp_path, method) -> None:
    out = tmp_path / "ranker.untilt"
    result = train(made, out, "--method", method, "--bias", "eye-tracking:1", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["sessions"] == 2_000
    scores = load(out).predict(np.random.default_rng(0).normal(size=(20, 8)))
    assert np.ptp(scores) > 0
    assert ("choice" in facts) == (method == "auto")


def test_a_model_card_where_it_is_asked_for(made, tmp_path) -> None:
    out, card = tmp_path / "ranker.untilt", tmp_path / "README.md"
    assert train(made, out).exit_code == 0
    assert not card.exists()
    result = train(made, out, "--card", card)
    assert result.exit_code == 0, result.output
    assert "ranker.untilt" in card.read_text(encoding="utf-8")
    for place in (out, tmp_path):
        assert train(made, out, "--card", place).exit_code == 2
    assert load(out).feature_names_


@pytest.mark.parametrize("ranker", ["lambdamart", "linear"])
def test_weights_of_a_click_model_need_no_curve(made, tmp_path, ranker) -> None:
    out = tmp_path / "ranker.untilt"
    result = train(made, out, "--method", "click-model", "--clip", 0.1, "--ranker", ranker)
    assert result.exit_code == 0, result.output
    assert load(out).weighting.clip == 0.1


@pytest.mark.parametrize("kind", ["linear", "svm"])
def test_linear_rankers(made, tmp_path, kind) -> None:
    out = tmp_path / "ranker.untilt"
    result = train(made, out, "--ranker", kind, "--method", "ips", "--bias", "eye-tracking")
    assert result.exit_code == 0, result.output
    assert f"Saved to {out}" in result.output.replace("\n", "")


def test_a_ranker_that_learns_its_correction_is_trained_by_name(made, tmp_path) -> None:
    pytest.importorskip("jax")
    out = tmp_path / "ranker.untilt"
    assert train(made, out, "--ranker", "pal").exit_code == 0
    assert load(out).combine == "product"
    refused = train(made, out, "--ranker", "pal", "--method", "prs", "--bias", "power-law")
    assert refused.exit_code == 2
    assert "Leave --method out" in " ".join(refused.output.split())


def test_the_bias_can_be_a_saved_estimate(made, tmp_path) -> None:
    from untilt.bias.given import EyeTracking

    EyeTracking(1.0).to_bias(10).save(tmp_path / "bias.json")
    by_file = train(made, tmp_path / "a", "--method", "prs", "--bias", tmp_path / "bias.json")
    by_name = train(made, tmp_path / "b", "--method", "prs", "--bias", "eye-tracking:1")
    assert by_file.exit_code == by_name.exit_code == 0
    features = np.random.default_rng(1).normal(size=(30, 8))
    a, b = (load(tmp_path / name).predict(features) for name in "ab")
    np.testing.assert_array_equal(a, b)


def test_labels_train_and_export_to_lightgbm(made, tmp_path) -> None:
    ranker, model = tmp_path / "ranker.untilt", tmp_path / "model.txt"
    assert (
        run("train", made / "judged.txt", "--letor", "--trees", 5, "--out", ranker).exit_code == 0
    )
    assert run("export", ranker, "--out", model).exit_code == 0
    features = np.random.default_rng(2).normal(size=(30, 8))
    plain = lightgbm.Booster(model_file=str(model)).predict(features)
    np.testing.assert_allclose(plain, load(ranker).predict(features))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "prs"), "--method prs needs the position bias"),
        (("--method", "prs", "--bias", "powerlaw"), "Did you mean"),
        (("--method", "prs", "--bias", "power-law:x"), "needs a number"),
        (("--method", "auto", "--bias", "power-law", "--ranker", "svm"), "for boosted trees only"),
        (("--method", "bayes-ips", "--bias", "power-law"), "needs a bias with eps_plus"),
        (("--column", "query_id"), "--column needs NAME=COLUMN"),
    ],
)
def test_bad_options_end_with_2_and_a_sentence(made, tmp_path, words, message) -> None:
    out = tmp_path / "ranker.untilt"
    result = train(made, out, *words)
    assert result.exit_code == 2
    assert message.lower() in " ".join(result.output.split()).lower()
    assert not out.exists()


def test_export_refuses_what_is_no_ranker(made, tmp_path) -> None:
    result = run("export", made / "judged.txt", "--out", tmp_path / "model.txt")
    assert result.exit_code == 2
    assert not (tmp_path / "model.txt").exists()


def with_booking(made: Path, folder: Path) -> Path:
    """The log with features in its rows, and with what is known only after the click."""
    rows = pq.read_table(made / "clicks.parquet").to_pandas()
    documents = pq.read_table(made / "documents.parquet").to_pandas()
    rows["booked"] = rows["click"] * (rows.index % 2)
    path = folder / "booked.parquet"
    rows.merge(documents, on=["query_id", "doc_id"]).to_parquet(path)
    return path


def test_what_is_known_after_the_click_is_kept_out_unless_named(made, tmp_path) -> None:
    log, out = with_booking(made, tmp_path), tmp_path / "ranker.untilt"
    words = ("train", log, "--trees", 5, "--threads", 1, "--out", out, "--json")
    result = run(*words, "--features", "f?", "--features", "book*")
    told = json.loads(result.output)
    assert result.exit_code == 0, result.output
    assert told["kept_out"] == ["booked"]
    assert told["leaks"][0]["code"] == "audit.leak-kept-out"
    assert "booked" not in load(out).feature_names_
    result = run(*words, "--features", "f?", "--features", "booked")
    told = json.loads(result.output)
    assert (told["kept_out"], told["leaks"][0]["code"]) == ([], "audit.leak-used")
    assert "booked" in load(out).feature_names_
    result = run(*words, "--features", "book*")
    assert result.exit_code == 2
    assert "has no features" in result.output


def test_the_old_rank_is_kept_out_and_a_curve_does_without_the_old_score(made, tmp_path) -> None:
    rows = pq.read_table(made / "clicks.parquet").to_pandas()
    documents = pq.read_table(made / "documents.parquet").to_pandas()
    own = rows["doc_id"].astype("category").cat.codes * 37 % 101 / 102
    rows["rank"], rows["score"] = 1 / rows["position"], own - rows["position"]
    log, out = tmp_path / "ranked.parquet", tmp_path / "ranker.untilt"
    rows.merge(documents, on=["query_id", "doc_id"]).to_parquet(log)
    features = ("--features", "f?", "--features", "r*,score", "--json")
    told = json.loads(run("train", log, "--trees", 5, "--out", out, *features).output)
    assert (told["kept_out"], told["leaks"][0]["code"]) == (["rank"], "audit.old-rank-kept-out")
    assert "score" in load(out).feature_names_
    assert json.loads(run("audit", log, *features).output)["old_score"] == "score"
    told = json.loads(run("bias", log, "--old-score", "score", *features).output)
    assert told["kept_out"] == ["rank", "score"]
    result = run("audit", log, "--old-score", "rank", *features)
    assert result.exit_code == 2
    assert "is the rank" in " ".join(result.output.split())


@pytest.mark.parametrize(("words", "missing"), [(["keep"], "keep"), (["-1.5"], -1.5)])
def test_missing_features_are_kept_or_filled(made, tmp_path, words, missing) -> None:
    documents = pq.read_table(made / "documents.parquet").to_pandas()
    documents.loc[::3, "f2"] = np.nan
    documents.to_parquet(tmp_path / "documents.parquet")
    out = tmp_path / "ranker.untilt"
    log = ("train", made / "clicks.parquet", "--documents", tmp_path / "documents.parquet")
    result = run(*log, "--trees", 5, "--threads", 1, "--out", out, "--missing", *words)
    assert result.exit_code == 0, result.output
    assert load(out).missing_ == missing
    wrong = run(*log, "--missing", "none")
    assert wrong.exit_code == 2
    assert "--missing must be 'keep'" in " ".join(wrong.output.split())


def test_the_bias_by_features_is_not_estimated_from_what_knows_the_click(made, tmp_path) -> None:
    log, plain = with_booking(made, tmp_path), tmp_path / "plain.json"
    words = ("bias", log, "--method", "regression-em", "--features", "f?")
    assert run(*words, "--out", plain).exit_code == 0
    result = run(*words, "--features", "book*", "--out", tmp_path / "booked.json", "--json")
    assert json.loads(result.output)["kept_out"] == ["booked"]
    curves = [PositionBias.load(path) for path in (plain, tmp_path / "booked.json")]
    assert np.array_equal(curves[0].examination, curves[1].examination)


def test_held_out_queries_may_choose_the_number_of_trees(made, tmp_path) -> None:
    out = tmp_path / "ranker.untilt"
    words = ("train", made / "judged.txt", "--letor", "--threads", 1, "--out", out)
    assert run(*words, "--trees", "auto").exit_code == 0
    assert load(out).summary_["trees_chosen_by"] == "ndcg@10 of held-out queries"
    refused = run(*words, "--trees", "many")
    assert refused.exit_code == 2
    assert "--trees takes auto or a whole number" in " ".join(refused.output.split())
