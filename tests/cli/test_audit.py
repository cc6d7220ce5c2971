"""`untilt audit` on logs small enough to count by hand."""

import json

import pytest
from typer.testing import CliRunner

from untilt.cli.main import app

# Three sessions of two queries, two of them alike; position 3 is never clicked, 4 is the deepest
# and position 3 of query b is missing.
LOG = """\
query_id,session_id,doc_id,position,click,ranker
a,1,x,1,1,old
a,1,y,2,0,old
a,1,z,3,0,old
a,2,x,1,1,old
a,2,y,2,0,old
a,2,z,3,0,old
b,3,u,1,0,new
b,3,v,2,0,new
b,3,w,4,0,new
"""
DOCUMENTS = """\
query_id,doc_id,price,currency
a,x,1,7
a,y,2,7
a,z,3,7
b,u,4,7
b,v,5,7
b,w,6,7
b,never_shown,9,7
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "documents.csv").write_text(DOCUMENTS)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


def facts(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_size_and_shape(folder):
    found = facts(folder / "log.csv", "--documents", folder / "documents.csv")
    assert [found[name] for name in ("log", "rows", "rows_dropped")] == [
        str(folder / "log.csv"),
        9,
        0,
    ]
    assert {name: found["size"][name] for name in list(found["size"])[:7]} == {
        "sessions": 3,
        "distinct_lists": 2,
        "queries": 2,
        "documents": 7,
        "impressions": 9,
        "deepest_position": 4,
        "features": 2,
    }


def test_click_rates_and_oddities(folder):
    found = facts(folder / "log.csv", "--documents", folder / "documents.csv")
    rates = found["click_rates"]
    assert rates["position"] == [1, 2, 3, 4]
    assert rates["impressions"] == [3, 3, 2, 1]
    assert rates["rate"] == [2 / 3, 0, 0, 0]
    assert rates["low"][0] < 2 / 3 < rates["high"][0]
    assert found["share_without_click"] == 1 / 3
    assert found["positions_without_click"] == [2, 3, 4]
    assert found["positions_never_shown"] == []
    assert sorted(found["rankers"]) == ["new", "old"]
    assert found["constant_features"] == ["currency"]


def test_a_position_that_no_list_shows_has_no_rate(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("query_id,session_id,doc_id,position,click\n1,1,1,1,1\n1,1,2,3,0\n")
    found = facts(path)
    assert found["click_rates"]["rate"] == [1, None, 0]
    assert found["positions_never_shown"] == [2]
    assert found["rankers"] == {}


def test_people_read_sentences(folder):
    result = run(folder / "log.csv", "--documents", folder / "documents.csv")
    text = " ".join(result.stdout.split())
    assert "33.3% of the sessions have no click." in text
    assert "There are no clicks at positions 2..4" in text
    assert "Lists come from 2 rankers" in text
    assert "Features with a single value: currency." in text


def test_a_log_where_every_session_has_a_click_is_suspicious(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("query_id,session_id,doc_id,position,click\n1,1,1,1,1\n1,2,1,1,1\n")
    text = " ".join(run(path).stdout.split())
    assert "Every session has a click" in text
    assert "There are no features" in text


def test_columns_label_and_features_can_be_named(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("search,session_id,doc_id,position,dwell,f_a\n1,1,1,1,2.5,1\n1,1,2,2,0.5,\n")
    found = facts(
        *(path, "--column", "query_id=search", "--label", "dwell"),
        *("--features", "f_*", "--missing", "0"),
    )
    assert found["click_rates"]["rate"] == [2.5, 0.5]
    assert found["size"]["features"] == 1


def test_bad_rows_are_refused_by_name_or_dropped_and_counted(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("query_id,session_id,doc_id,position,click\n1,1,1,0,1\n1,2,1,1,1\n")
    refused = run(path)
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert "--on-bad drop" in refused.stderr
    dropped = facts(path, "--on-bad", "drop")
    assert (dropped["rows"], dropped["rows_dropped"], dropped["size"]["sessions"]) == (2, 1, 1)


def test_missing_columns_are_named_with_the_option_that_helps(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("search,session_id,doc_id,position,click\n1,1,1,1,1\n")
    result = run(path)
    assert result.exit_code == 2
    assert "query_id" in result.stderr
    assert "--column query_id=YOUR_COLUMN" in result.stderr


@pytest.mark.parametrize("content", [None, b"", b"\x00\x01\x02", b"PAR1 but not really"])
def test_files_that_are_no_log_are_exit_2_without_a_traceback(tmp_path, content):
    path = tmp_path / ("log.parquet" if content and content.startswith(b"PAR1") else "log.csv")
    if content is not None:
        path.write_bytes(content)
    result = run(path, "--json")
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    told = json.loads(result.stdout)["error"]
    assert result.stderr == f"error: {told['message']}\n"
    assert "Traceback" not in result.stderr
