"""A run on a log with missing features: which candidates take them, and what its ranker does."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import untilt as ut
from untilt.facts import codes


@pytest.fixture(scope="module")
def gaps(made, tmp_path_factory):
    """The documents of the log without a quarter of one feature."""
    table = pq.read_table(made.documents)
    values = table["f2"].to_numpy().copy()
    values[np.random.default_rng(0).random(len(values)) < 0.25] = np.nan
    path = tmp_path_factory.mktemp("gaps") / "documents.parquet"
    index = table.column_names.index("f2")
    pq.write_table(table.set_column(index, "f2", pa.array(values)), path)
    return path


def test_gaps_are_kept_for_trees_and_others_are_left_out(made, gaps, small_options, tmp_path):
    result = ut.run(made.log, tmp_path / "run", documents=gaps, missing="keep", **small_options)
    failed = [fact for fact in result.warnings if fact.code == "run.candidate-failed"]
    assert [fact.fields["candidate"] for fact in failed] == ["linear"]
    assert {"balanced"} <= set(result.candidates)
    assert result.candidate.missing_ == "keep"
    again = ut.run(
        made.log, tmp_path / "run", documents=gaps, missing="keep", **small_options, level=0.9
    )
    assert "read" in again.resumed  # the log comes from the folder, gaps and all
    values = [each.decision.held_out["balanced"].value for each in (result, again)]
    assert values[0] == values[1]


def test_a_fill_value_stays_with_the_chosen_ranker(made, gaps, small_options, tmp_path):
    result = ut.run(made.log, tmp_path / "run", documents=gaps, missing=0.5, **small_options)
    assert "run.candidate-failed" not in codes(result.warnings)
    ranker = ut.load(tmp_path / "run" / "candidate.untilt")
    assert ranker.missing_ == 0.5
    rows = np.full((2, 5), 0.25, dtype=np.float32)
    rows[0, 1], rows[1, 1] = np.nan, 0.5
    scores = ranker.predict(rows)
    assert scores[0] == scores[1]
    with pytest.raises(ut.errors.BadRowsError, match="missing="):
        ut.run(made.log, tmp_path / "other", documents=gaps, **small_options)
