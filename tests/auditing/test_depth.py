"""Lists without an end are judged down to the last position with evidence."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import untilt as ut
from untilt.cli.main import app
from untilt.data.counts import ALWAYS_DRAWN, FEW_CLICKS
from untilt.data.transform import to_evidence
from untilt.errors import OptionError


@pytest.fixture(scope="module")
def scroll():
    """People scroll down to position 150; few of them click there."""
    rng = np.random.default_rng(0)
    rows = []
    for s in range(600):
        n = min(150, 5 + int(rng.exponential(40)))
        shown = rng.permutation(160)[:n]
        clicked = rng.random(n) < 0.6 / np.arange(1, n + 1)
        rows += [(s % 30, s, *each) for each in zip(shown, range(1, n + 1), clicked, strict=True)]
    return pd.DataFrame(rows, columns=["query_id", "session_id", "doc_id", "position", "click"])


def slow_depth(table):
    """The deepest position with 30 clicks, at least 20, and with 95% of the clicks above."""
    clicks = table.groupby("position").click.sum()
    enough = [k for k, n in clicks.items() if n >= FEW_CLICKS]
    kept = max([ALWAYS_DRAWN, *enough])
    while clicks[clicks.index <= kept].sum() < 0.95 * clicks.sum():
        kept += 1
    return kept


def test_a_deep_log_ends_where_evidence_ends(scroll):
    log, kept = ut.read_log(scroll), slow_depth(scroll)
    assert ALWAYS_DRAWN < kept < log.depth == 150
    cut, told = to_evidence(log)
    assert cut.depth == kept
    below = scroll.click[scroll.position > kept].sum() / scroll.click.sum()
    assert (told.fields["first"], told.fields["last"]) == (kept + 1, 150)
    assert told.fields["share"] == pytest.approx(below)
    assert to_evidence(cut, kept) == (cut, None)
    short = log.top(20)
    assert to_evidence(short) == (short, None)


def test_counts_are_sessions(scroll):
    log = ut.read_log(scroll)
    thrice = pd.concat([scroll.assign(session_id=scroll.session_id + 1_000 * k) for k in range(3)])
    apart = to_evidence(ut.read_log(thrice, collapse=False))[0]
    assert to_evidence(ut.read_log(thrice))[0].depth == apart.depth
    assert apart.depth >= to_evidence(log)[0].depth


def test_the_audit_says_what_it_left_out(scroll):
    log, kept = ut.read_log(scroll), slow_depth(scroll)
    found = ut.audit(log)
    assert len(found.click_rates.position) == kept
    assert found.left_out in found.notes
    assert max(found.not_comparable, default=0) <= kept
    whole = ut.audit(log, depth=150)
    assert (len(whole.click_rates.position), whole.left_out) == (150, None)
    assert found.coverage == whole.coverage
    assert len(ut.audit(log, depth=7).click_rates.position) == 7
    with pytest.raises(OptionError, match=r"k of at least 1\. Got 0"):
        ut.audit(log, depth=0)


def test_commands_take_a_depth(scroll, tmp_path):
    scroll.to_parquet(tmp_path / "log.parquet")
    words = ["audit", str(tmp_path / "log.parquet"), "--json"]
    told = json.loads(CliRunner().invoke(app, words).stdout)
    assert told["left_out"]["code"] == "log.positions-left-out"
    told = json.loads(CliRunner().invoke(app, [*words, "--depth", "9"]).stdout)
    assert (told.get("left_out"), len(told["click_rates"]["position"])) == (None, 9)


@pytest.mark.parametrize("depth", [None, 12])
def test_runs_are_judged_as_deep(scroll, tmp_path, depth):
    run = ut.run(scroll.assign(f=scroll.doc_id / 160), tmp_path / "run", features="f",
                 method="linear", depth=depth, threads=1)  # fmt: skip
    notes = [each.code for each in run.decision.source.notes]
    assert ("log.positions-left-out" in notes) == (depth is None)
    assert len(run.decision.audit.click_rates.position) == (depth or slow_depth(scroll))
