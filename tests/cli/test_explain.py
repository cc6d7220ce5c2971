"""`untilt explain`: every code has a sentence, and codes that are shown can be looked up."""

import json
import re

import pytest
from typer.testing import CliRunner

from untilt.cli.main import app
from untilt.report.floors import REMEDIES


def explained(*words: str) -> list[dict[str, str]]:
    result = CliRunner().invoke(app, ["explain", *words, "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["codes"]


def test_a_code_has_its_sentences_and_a_beginning_the_codes_that_begin_so():
    assert {each["code"] for each in explained("run.floor-clicks")} == {"run.floor-clicks"}
    assert [each["severity"] for each in explained("run.floor-clicks")] == ["serious"]
    codes = {each["code"] for each in explained("audit.order")}
    assert {"audit.order-good", "audit.order-inverted"} <= codes
    assert all(code.startswith("audit.order") for code in codes)


@pytest.mark.parametrize("code", REMEDIES)
def test_what_is_missing_for_a_verdict_comes_with_what_to_do(code):
    result = CliRunner().invoke(app, ["explain", code])
    assert result.exit_code == 0, result.stderr
    assert f"{code} (" in result.stdout
    assert "What to do: First" in result.stdout


def test_without_a_code_all_are_listed_and_an_unknown_one_is_an_error():
    assert len({each["code"] for each in explained()}) > 400
    result = CliRunner().invoke(app, ["explain", "run.flor-clicks"])
    assert result.exit_code == 2
    assert "Did you mean 'run.floor-clicks'?" in result.stderr


def test_warnings_are_shown_with_a_code_that_can_be_explained(tmp_path):
    log = tmp_path / "log.csv"
    rows = [f"{s % 3},{s},{k},{k},{int((s + k) % 4 == 0)}" for s in range(30) for k in (1, 2, 4)]
    log.write_text("\n".join(["query_id,session_id,doc_id,position,click", *rows]) + "\n")
    result = CliRunner().invoke(app, ["audit", str(log)], env={"COLUMNS": "200"})
    shown = re.findall(r"\[([a-z]+\.[a-z-]+)\]", result.stdout)
    assert "audit.positions-never-shown" in shown
    assert all(explained(code) for code in shown)
