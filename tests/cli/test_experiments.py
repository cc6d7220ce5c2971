"""Experiments on the command line: named columns, options of estimators, refusals in its words."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from untilt.cli.main import app

DEPTH = 6


def rows_of(rng, order, *, last=DEPTH):
    """Impressions of 30 queries with 40 sessions each; nobody clicks below position `last`."""
    rows = []
    for session in range(30 * 40):
        query = session // 40
        for k, document in enumerate(order(rng), 1):
            clicked = int(k <= last and rng.random() < 0.6 / k)
            rows.append((query, session, document, k, clicked))
    return rows


def write(path, rows, **more):
    names = ("query_id", "session_id", "doc_id", "position", "click")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table({**columns, **more}), path)
    return path


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("logs"), np.random.default_rng(0)
    shuffled = rows_of(rng, lambda rng: rng.permutation(DEPTH).tolist(), last=5)
    write(root / "flag.parquet", shuffled, random_bool=[1] * len(shuffled))
    write(root / "named.parquet", shuffled, ranker=["exploration"] * len(shuffled))
    two = [list(range(DEPTH)), [1, 0, 3, 2, 5, 4]]
    fixed = rows_of(rng, lambda rng: two[rng.integers(2)])
    write(root / "fixed.parquet", fixed, ranker=["shuffle"] * len(fixed))
    clicked = [row for row in shuffled if row[-1]]
    write(root / "clicks.parquet", clicked, f_1=rng.normal(size=len(clicked)))
    return root


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def facts(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def refused(*arguments) -> str:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def test_a_flag_for_random_order_is_used(logs):
    found = facts("bias", logs / "flag.parquet", "--column", "random=random_bool")
    assert found["method"] == "ShuffledTop"
    assert len(found["examination"]) == 5  # nobody clicked at 6
    assert "position 6 has no click" in str(found["status"])


def test_the_error_names_an_option_that_is_there(logs):
    log = (logs / "flag.parquet", "--column", "random=random_bool")
    message = refused("bias", *log, "--method", "shuffled-top", "--option", "top=6")
    assert "--option top=5" in message
    again = facts("bias", *log, "--method", "shuffled-top", "--option", "top=5")
    assert len(again["examination"]) == 5


def test_other_names_of_rankers(logs):
    message = refused("bias", logs / "named.parquet", "--method", "shuffled-top")
    assert "--option ranker=" in message
    found = facts(
        "bias", logs / "named.parquet", "--method", "shuffled-top", "--option", "ranker=exploration"
    )
    assert found["method"] == "ShuffledTop"


def test_unknown_options_are_listed(logs):
    message = refused(
        "bias", logs / "named.parquet", "--method", "shuffled-top", "--option", "tpo=3"
    )
    assert "Did you mean 'top'?" in message
    assert "check, level, ranker, top" in message


def test_fixed_orders_are_refused_and_can_be_overruled(logs):
    log = logs / "fixed.parquet"
    message = refused("bias", log, "--method", "shuffled-top")
    assert "60 different ones in 1,200 sessions" in message
    assert "--option check=False" in message
    found = facts("bias", log, "--method", "shuffled-top", "--option", "check=False")
    assert "the same orders come back" in str(found["status"])
    assert "audit.experiment-failed" in {each["code"] for each in facts("audit", log)["warnings"]}


def test_a_log_of_clicks_alone_is_refused_by_every_command(logs, tmp_path):
    log = logs / "clicks.parquet"
    warnings = facts("audit", log)["warnings"]
    assert warnings[0]["code"] == "audit.clicks-only"
    for arguments in (
        ("bias", log),
        (
            "train",
            log,
            "--features",
            "f_*",
            "--bias",
            "power-law:1",
            "--out",
            tmp_path / "r.untilt",
        ),
        ("run", log, "--features", "f_*", "--out", tmp_path / "run"),
    ):
        assert "every result that was shown" in refused(*arguments)


def test_a_run_takes_an_estimator_with_options(logs, tmp_path):
    log = (logs / "flag.parquet", "--column", "random=random_bool", "--out", tmp_path / "run")
    found = facts("run", *log, "--bias", "shuffled-top:top=4")
    assert len(found["bias"]["bias"]["examination"]) == 4
    assert "no option" in refused("run", *log, "--bias", "shuffled-top:tpo=4")
