"""`untilt score`, as a user runs it."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from untilt import LinearRanker, make_judged, simulate, write_log
from untilt.cli.main import app


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("score")
    log = simulate(make_judged(30, 4, seed=0), n_sessions=500, seed=0).log
    write_log(log, folder / "clicks.parquet", documents=folder / "documents.parquet")
    LinearRanker().fit(log).save(folder / "ranker.untilt")
    return folder


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_scored_documents(made, tmp_path) -> None:
    out = tmp_path / "scored.parquet"
    given = ("score", made / "ranker.untilt", made / "documents.parquet", "--out", out)
    result = run(*given, "--top", 3, "--without-features", "--column", "rank=place", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    written = pq.read_table(out)
    assert written.column_names == ["query_id", "doc_id", "score", "place"]
    assert sorted(set(written["place"].to_pylist())) == [1, 2, 3]
    assert facts["queries"] == len(np.unique(written["query_id"]))
    assert facts["rows"] == pq.read_metadata(made / "documents.parquet").num_rows
    assert f"documents of {facts['queries']} queries" in run(*given).output


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"out": "documents.parquet"}, "is what is read"),
        ({"documents": "clicks.parquet"}, "lacks 4 of the 4 features"),
        ({"ranker": "documents.parquet"}, "cannot be loaded"),
        ({"documents": "nothing.parquet"}, "no such file"),
    ],
)
def test_bad_input_ends_with_a_paragraph(made, change, told) -> None:
    words = {"ranker": "ranker.untilt", "documents": "documents.parquet", "out": "out.parquet"}
    paths = {name: made / file for name, file in (words | change).items()}
    result = run("score", paths["ranker"], paths["documents"], "--out", paths["out"])
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())
    assert not (made / "out.parquet").exists()
