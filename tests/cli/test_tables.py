"""Tables of databases and addresses on the command line."""

import json
import sqlite3

import duckdb
import pytest
from typer.testing import CliRunner

from untilt.cli.main import app

CLICKS = "CREATE TABLE clicks AS SELECT 1 AS QUERY_ID, i AS Session_Id, 'a' AS DOC_ID, 1 AS position, i % 2 AS click"  # fmt: skip  # noqa: E501
SECRET = "postgresql://ann:s3cret@127.0.0.1:9/shop"


def call(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(params=["shop.duckdb", "shop.sqlite"])
def shop(tmp_path, request):
    """A database with a log, its documents and something else."""
    path = tmp_path / request.param
    documents = "CREATE TABLE documents AS SELECT 1 AS query_id, 'a' AS doc_id, 2.5 AS price"
    if path.suffix == ".duckdb":
        with duckdb.connect(str(path)) as connection:
            connection.execute(f"{CLICKS} FROM range(40) t(i)")
            connection.execute(documents)
            connection.execute("CREATE TABLE other (x INTEGER)")
        return path
    rows = " UNION ALL ".join(f"SELECT {i} AS i" for i in range(40))
    with sqlite3.connect(path) as connection:
        for statement in (f"{CLICKS} FROM ({rows})", documents, "CREATE TABLE other (x)"):
            connection.execute(statement)
    connection.close()
    return path


def test_a_table_of_a_database(shop):
    done = call("audit", shop, "--table", "clicks", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 40
    done = call("audit", shop)
    assert done.exit_code == 2
    assert "it holds: clicks, documents, other" in done.stderr
    assert "--table NAME" in done.stderr


def test_the_documents_of_the_same_database(shop, tmp_path):
    arguments = ["split", shop, "--table", "clicks", "--documents", shop, "--by", "session"]
    out = tmp_path / "parts"
    done = call(*arguments, "--table", "documents=documents", "--out", out)
    assert done.exit_code == 0, done.output
    ((price,),) = duckdb.sql(
        f"SELECT DISTINCT price FROM '{out}/train-documents.parquet'"
    ).fetchall()
    assert price == 2.5


def test_a_table_without_a_database(tmp_path):
    (tmp_path / "log.csv").write_text("query_id,session_id,doc_id,position,click\n1,1,1,1,1\n")
    done = call("audit", tmp_path / "log.csv", "--table", "clicks")
    assert done.exit_code == 2
    assert "has no tables in it" in done.stderr
    done = call("run", tmp_path / "log.csv", "--table", "documents=x", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "--table documents=NAME names one table of one database" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", SECRET, "--table", "clicks", "--verbose"],
        ["audit", SECRET, SECRET],
        ["bias", SECRET, "--bias", SECRET],
        ["plan", SECRET, "--json"],
        ["evaluate", SECRET, "--bias", SECRET],
        ["watch", SECRET, SECRET],
        ["judgments", SECRET, "--out", "x.json"],
        ["run", SECRET, "--documents", SECRET, "--table", "clicks", "--out", "{tmp}/run"],
        ["run", "{tmp}/none.csv", "--documents", SECRET, "--out", "{tmp}/run"],
        ["run", "--config", SECRET],
        ["audit", "s3://AKIA:s3cret@bucket/log.parquet"],
        ["audit", "clicks.csv", "--table", SECRET, "--table", SECRET],
    ],
)
def test_no_password_is_ever_said(tmp_path, arguments):
    done = call(*(each.replace("{tmp}", str(tmp_path)) for each in arguments))
    assert done.exit_code == 2, done.output
    assert "s3cret" not in done.output


def test_results_do_not_go_to_an_address(tmp_path, monkeypatch):
    """A path of that name would be a folder called s3: in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("query_id,session_id,doc_id,position,click\n1,1,1,1,1\n")
    for command in ("run", "split"):
        done = call(command, "log.csv", "--out", "s3://bucket/results")
        assert done.exit_code == 2
        assert "written to this machine" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["log.csv"]
