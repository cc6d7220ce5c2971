"""At most one recommendation on a page, by audits and `untilt bias`; findings give no orders.

Pages of runs: tests/workflow/test_one_voice.py and tests/wall/test_run.py.
"""

import ast
import html
import json
import shlex

import pytest
from tests.auditing.people import READERS, people
from tests.one_voice import is_order, left_over, orders_in
from tests.test_templates import SOURCE, texts, trees
from tests.wall.judging import read
from tests.wall.logs import WALL
from tests.wall.test_run import USUAL
from typer.testing import CliRunner

import untilt as ut
from untilt._core.codec import to_plain
from untilt.auditing.audit import audit
from untilt.cli.main import app
from untilt.errors import UntiltError
from untilt.views import html as as_html

# Sentences that tell somebody to do something; a page has one of them.
RECOMMENDATIONS = {
    "audit.use", "audit.use-shorter-log", "audit.compare-click-models", "audit.log-everything",
    "run.try-it", "run.try-if-curve-right", "run.try-within-lists", "run.keep-order",
    "run.collect-sessions", "run.do-not-decide", "run.get-evidence-first", "run.find-misfit-first",
    "run.leave-leaks-out-first", "run.measure-bias-first",
}  # fmt: skip
# How to carry out what a page is about: steps of a swap experiment, and what to do about a ranker
# that serves now.
STEPS = {"plan.test-first", "plan.serve", "plan.log-swaps", "plan.draw-by-session"}
OF_OTHER_PAGES = ("serving", "simulation")


def sentences():
    """(code, template) of every sentence of the sources."""
    for path, tree in trees().items():
        if path.relative_to(SOURCE).parts[0] in OF_OTHER_PAGES:
            continue
        constants = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call):
                continue
            maker = getattr(call.func, "id", "")
            if maker == "_first" and call.args:  # of floors: all of one code
                yield from (("run.get-evidence-first", text) for text in texts(call.args[0], {}))
            elif maker in ("note", "warning", "serious") and len(call.args) > 1:
                for code in texts(call.args[0], constants):
                    yield from ((code, text) for text in texts(call.args[1], constants))


def test_findings_give_no_orders():
    told = list(sentences())
    assert len(told) > 300
    orders = {code for code, template in told if is_order(template)}
    assert orders == RECOMMENDATIONS | STEPS


def one_voice(found):
    """Orders on the page of an audit, and in its JSON, beside the recommendation."""
    step = found.next_step
    wanted = [str(step.fact), str(step.command)]
    page = left_over(as_html(found.view()), [each for each in wanted if each])
    why = {str(part) for part in step.advice.why.parts}
    return page, orders_in(to_plain(found, said=str)) - {str(step.fact)} - why


@pytest.mark.parametrize("name", READERS)
def test_an_audit_recommends_one_thing(audits, name):
    assert one_voice(audits[name]) == ([], set())
    assert str(audits[name].next_step.fact) in audits[name].next_steps


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[] if case.name in USUAL else [pytest.mark.slow])
        for case in WALL
    ],
)
def test_an_audit_of_an_awkward_log_recommends_one_thing(case):
    try:
        log = read(case.log("usual"))
    except UntiltError:
        return
    assert one_voice(audit(log)) == ([], set())


def said(*words):
    """What a command says to people, no line broken."""
    result = CliRunner(env={"COLUMNS": "5000"}).invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("by position", "drift") else [pytest.mark.slow])
        for name in READERS
    ],
)
def test_commands_recommend_what_the_audit_does_and_can_be_run(audits, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ut.write_log(people(0, **READERS[name][0]), tmp_path / "clicks.parquet")
    asked = ("clicks.parquet", *(("--context", "device") if "devices" in name else ()))
    step = json.loads(said("audit", *asked, "--json"))["next_step"]
    assert step["rule"] == audits[name].next_step.rule
    recommended = [step["fact"]["text"], step["command"]]
    for command in ("audit", "bias"):
        told = html.escape(said(command, *asked)).replace("\n", "<br>")
        assert left_over(told, recommended) == []
    program, *words = shlex.split(step["command"])
    assert program == "untilt"
    said(*words)
