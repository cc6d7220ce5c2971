"""Commands that commands suggest run as they are printed; nothing that is said speaks Python."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import untilt as ut
from untilt.cli.main import app
from untilt.cli.wording import CommandLine
from untilt.facts import phrase
from untilt.serving.explore import parse_exploration

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
# What belongs to Python: keywords with values, calls, attributes, names of its types.
PYTHON = re.compile(
    r"""(?<![-\w'])(?!--)[a-z_]+=(?:['"\[{(]|None)|\but\.[a-z]|\buntilt\.[A-Za-z]|\blog\.[a-z]|\w\(\)
    |\.fit\(|\bNone\b|\bClickLog\b|\bread_log\b|\bOptionError\b|\bTraceback\b|\bcolumns[=\[{]""",
    re.VERBOSE,
)


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# ---- commands that are suggested


def suggested(text: str) -> set[str]:
    """Commands with arguments: on lines of their own, or in backticks."""
    lines = re.findall(r"^ +(untilt [a-z]+ .+)$", text, re.MULTILINE)
    return {*lines, *re.findall(r"`(untilt [a-z]+ [^`]+)`", text)}


def in_json(value) -> str:
    """Every text of a JSON object but templates, one a line."""
    if isinstance(value, dict):
        return "\n".join(in_json(each) for name, each in value.items() if name != "template")
    return "\n".join(map(in_json, value)) if isinstance(value, list) else str(value)


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """Logs whose paths have spaces, with other names of columns and positions that begin at 0."""
    folder = tmp_path_factory.mktemp("my shop")
    judged = ut.make_judged(n_queries=40, n_features=4, seed=7)
    for name, protocol in (("several rankers", "harvest"), ("swaps", "swap"), ("fixed", "dla")):
        made = ut.simulate_to_parquet(
            judged, folder / name, protocol, n_sessions=2000, seed=7, n_threads=1
        )
        log = pd.read_parquet(made.log)
        log["position"] -= 1
        log = log.rename(columns={"query_id": "the query", "click": "clicked"})
        log.to_parquet(made.log)
    return folder


NAMES = ["--column", "query_id=the query", "--column", "click=clicked", "--positions-from", "0"]


def documents(shop, name):
    return ["--documents", shop / name / "documents.parquet"]


def calls(shop):
    """Commands that suggest others, by what is the matter."""
    logs = {name: shop / name / "clicks.parquet" for name in ("several rankers", "swaps", "fixed")}
    several, swaps, fixed = logs.values()
    return {
        "audit, several rankers": ["audit", several, *NAMES],
        "audit, features": ["audit", several, *NAMES, *documents(shop, "several rankers")],
        "audit, swaps": ["audit", swaps, *NAMES],
        "audit, nothing to tell": ["audit", fixed, *NAMES],
        "audit, a model": ["audit", fixed, *NAMES, *documents(shop, "fixed")],
        "plan": ["plan", several, *NAMES],
        "bias": ["bias", fixed, *NAMES],
        "bias, all pairs": ["bias", fixed, *NAMES, "--method", "all-pairs"],
        "clickmodels": ["clickmodels", several, *NAMES, "--model", "pbm", "--model", "ubm",
                        "--model", "sdbn"],
        "train": ["train", several, *NAMES, *documents(shop, "several rankers"), "--method", "prs"],
        "select": ["select", several, *NAMES, *documents(shop, "several rankers")],
        "evaluate": ["evaluate", several, *NAMES],
        "run": ["run", fixed, *NAMES, *documents(shop, "fixed"), "--trees", "3", "--threads", "1",
                "--method", "prs", "--out", shop / "results"],
        "simulate": ["simulate", "--out", shop / "made here", "--queries", "30", "--sessions",
                     "500"],
    }  # fmt: skip


NONE_HERE = {"clickmodels", "bias, all pairs"}  # advice without a command, on this log


@pytest.mark.parametrize("case", calls(Path()))
def test_every_suggested_command_runs_as_it_is_printed(shop, case, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    arguments = calls(shop)[case]
    people, machines = call(*arguments), call(*arguments, "--json")
    assert people.exit_code in (0, 2), people.exception
    assert "…" not in people.stdout  # no word is cut, on 60 columns
    commands = suggested(people.stdout + people.stderr)
    if machines.exit_code == 0:
        commands |= suggested(in_json(json.loads(machines.stdout)))
    assert commands or case in NONE_HERE, people.stdout
    for command in sorted(commands):
        # The only placeholder: the log of an experiment that is yet to be made.
        words = shlex.split(
            command.replace("NEW_LOG", shlex.quote(str(shop / "swaps" / "clicks.parquet")))
        )
        assert words.pop(0) == "untilt"
        if words[0] == "serve":  # would answer until it is stopped: its option is read here
            assert words[1:3] == ["RANKER", "--explore"]
            assert parse_exploration(words[3]).arms
            continue
        again = call(*words)
        assert again.exit_code == 0, (command, again.stderr, again.exception)


def test_a_run_from_a_file_of_options_suggests_what_it_read(shop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(
        f'log = "{shop}/fixed/clicks.parquet"\ntrees = 3\nthreads = 1\nmethod = ["prs"]\n'
        f'documents = "{shop}/fixed/documents.parquet"\npositions_from = 0\n'
        '[columns]\nquery_id = "the query"\nclick = "clicked"\n'
    )
    result = call("run", "--config", "run.toml")
    assert result.exit_code == 0, result.stderr
    (command,) = {each for each in suggested(result.stdout) if each.startswith("untilt plan")}
    assert call(*shlex.split(command)[1:]).exit_code == 0, command


def test_commands_carry_options_that_they_share_and_none_that_they_do_not(shop):
    log = shop / "several rankers" / "clicks.parquet"
    result = call("train", log, *NAMES, *documents(shop, "several rankers"), "--method", "prs",
                  "--missing", "keep", "--trees", "9", "--json")  # fmt: skip
    (command,) = suggested(result.stderr)
    words = shlex.split(command)
    assert words[:3] == ["untilt", "bias", str(log)]
    for kept in (
        ["--column", "query_id=the query"],
        ["--missing", "keep"],
        ["--positions-from", "0"],
    ):
        assert any(words[i : i + 2] == kept for i in range(len(words))), kept
    assert not {"prs", "--trees", "--json", "--method"} & set(words)
    assert words[-2:] == ["--out", "bias.json"]


# ---- words


def line(name: str, **given) -> CommandLine:
    return CommandLine(COMMANDS[name], COMMANDS, {k: [v] for k, v in given.items()})


SAID = [
    ("bias", '⟦pass on_bad="drop"⟧.', "give --on-bad drop."),
    ("audit", "with ⟦missing=0.0⟧", "with --missing 0.0"),
    ("audit", "or ⟦pass columns={{'ranker': None}}⟧", "or give --column ranker="),
    ("audit", "⟦columns={{'timestamp': 'your column'}}⟧", "--column timestamp=YOUR_COLUMN"),
    ("bias", "⟦log.top(3)|--depth 3⟧; or", "--depth 3; or"),
    ("bias", "use ⟦AllPairs⟧, which", "use all-pairs, which"),
    ("bias", "⟦RegressionEM(relevance='features')⟧.",
     "--method regression-em --option relevance=features."),
    ("evaluate", "use ⟦evaluator='policy-aware'⟧", "use --evaluator policy-aware"),
    ("clickmodels", 'Use ⟦by="session"⟧.', "Use --intervals session."),
    ("plan", "Then: ⟦untilt.PivotSwap(pivot=1).fit(log)⟧.",
     "Then: `untilt bias NEW_LOG --method pivot-swap --pivot 1`."),
    ("bias", 'give ⟦ranker={{"a": (2, 5), "b": "base"}}⟧.',
     """give --option 'ranker={"a": [2, 5], "b": "base"}'."""),
    # What is no option of the command, and what has no mark, stays.
    ("audit", "⟦theta=0.5⟧ and missing=0.0", "theta=0.5 and missing=0.0"),
    ("audit", "⟦LambdaMART⟧ and AllPairs are names", "LambdaMART and AllPairs are names"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "template", "said"), SAID, ids=[said for *_, said in SAID])
def test_marks_of_a_template_are_said_in_the_words_of_the_command_line(name, template, said):
    assert phrase(template).said(line(name)) == said


def test_python_itself_is_spoken_to_in_its_own_words():
    with pytest.raises(ut.errors.OptionError, match=r"give bias=\.\.\., .*ut\.AllPairs\(\)"):
        ut.estimate(ut.simulate(ut.make_judged(30, 4), n_sessions=50).log, ut.shown)


LOG = "query_id,session_id,doc_id,position,click,f_a,when\n"
ROWS = "".join(
    f"{q},{s},{d},{p},{int(d == s % 3)},{d / 3},2024-01-0{1 + s % 9}\n"
    for q in range(3) for s in range(q, 60, 3) for p, d in enumerate((q, (q + 1) % 3), 1)
)  # fmt: skip
WRONG = [
    "audit web.csv --label dwell", "audit web.csv --column query_id", "audit web.csv --column a=b",
    "audit web.csv --column query_id=", "audit web.csv --column query_id=qid",
    "audit web.csv --label position", "audit web.csv --features g_*",
    "audit web.csv --features when", "audit web.csv --positions-from 0", "audit zero.csv",
    "audit zero.csv --on-bad drop", "audit bad.csv", "audit mixed", "audit web.csv --missing many",
    "audit numbers.csv", "audit one.csv --column ranker=doc_id",
    "audit bad.csv --column count=when", "bias web.csv --method all-pairs",
    "bias web.csv --method pivot", "bias web.csv --method trust-em",
    "bias web.csv --method shuffled-top", "bias web.csv --method pivot-swap",
    "bias web.csv --method adjacent-swap", "bias web.csv --method adjacent-chain",
    "bias web.csv --method regression-em",
    "bias web.csv --method regression-em --option relevance=some",
    "bias web.csv --method all-pairs --pivot 2", "bias web.csv --label f_a --method all-pairs",
    "bias web.csv --method contextual", "bias web.csv --method all-pairs --context when",
    "bias web.csv --method shuffled-top --column ranker=doc_id", "bias web.csv --depth 99",
    "bias web.csv --method pivot-swap --option within=page",
    "bias web.csv --method all-pairs --depth 9",
    "bias named.csv --method shuffled-top", "bias named.csv --method pivot-swap",
    "bias web.csv --option top=3", "bias web.csv --method shuffled-top --option tip=3",
    "clickmodels web.csv --split time", "clickmodels one.csv", "clickmodels web.csv --label f_a",
    "clickmodels web.csv --model nope", "clickmodels web.csv --intervals nope",
    "evaluate web.csv", "evaluate web.csv --bias power-law:1 --evaluator ips --clip 0.1",
    "evaluate web.csv --bias power-law:1 --clip most", "evaluate web.csv --bias nope.json",
    "evaluate web.csv --bias power-law:1 --metric ndcg@10", "evaluate web.csv --evaluator doubly",
    "evaluate web.csv --bias power-law:1 --baseline nobody",
    "evaluate web.csv --bias power-law:1 --baseline ranker=nobody",
    "evaluate web.csv --letor",
    "train web.csv", "train web.csv --features f_a --method prs",
    "train web.csv --features f_a --method bayes-ips --bias power-law:1",
    "train web.csv --features f_a --method pbm-likelihood", "train web.csv --features f_*,g",
    "train web.csv --features f_a --method nope", "train web.csv --features f_a --ranker nope",
    "train web.csv --features f_a --ranker linear --method auto --bias power-law:1",
    "train web.csv --features f_a --label when", "train gone.csv",
    "train web.csv --features f_a --bias short.json --method prs",
    "select web.csv --features f_a", "select web.csv --bias power-law:1",
    "select web.csv --bias power-law:1 --features f_a --evaluator nope",
    "plan", "plan web.csv --rates 0.1,0.2", "plan --rates 2,3", "plan --rates a,b",
    "plan --rates 0.3,0.2 --pivot 9", "plan web.csv --share 3", "plan web.csv --depth 99",
    "plan web.csv --examination nope", "plan --rates 0.3,0.2,0",
    "run web.csv --bias nope", "run web.csv --evaluator nope", "run web.csv --metric nope",
    "run web.csv --trees 0", "run web.csv --level 2", "run web.csv --method nope",
    "run web.csv --time-limit soon", "run", "run zero.csv",
    "run web.csv --features g_*", "run web.csv --clip -1", "run --config wrong.toml",
    "run web.csv --baseline nobody", "run web.csv --missing x", "run mixed",
    "simulate --out x --protocol nope", "simulate --out x --parameter a=1", "report gone",
    "simulate --out x --sessions 5 --clicks 5", "simulate --out x --parameter theta=hi",
    "export gone.untilt --out x.txt", "reproduce nope", "methods nope",
    "audit web.csv --on-bad drop --on-bad raise", "run web.csv --seed 1 --seed 2",
    "train web.csv --features f_a --bias power-law:1 --bias power-law:2",
]  # fmt: skip


@pytest.fixture(scope="module")
def wrong_inputs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "web.csv").write_text(LOG + ROWS)
    (folder / "one.csv").write_text(LOG + "1,1,1,1,1,0.5,x\n1,1,2,2,0,0.2,x\n")
    (folder / "zero.csv").write_text(LOG + "1,1,1,0,1,0.5,x\n1,1,2,1,0,0.2,x\n")
    (folder / "bad.csv").write_text(LOG + "1,1,1,1,-1,,x\n1,1,2,-2,0,0.2,x\n1,2,2,1,0,0.2,x\n")
    (folder / "named.csv").write_text("ranker," + LOG + "base,1,1,1,1,1,0,x\nbase,1,1,2,2,0,0,x\n")
    (folder / "numbers.csv").write_text("query_id,session_id\n1,1\n")
    (folder / "mixed").mkdir()
    (folder / "mixed" / "a.csv").write_text(LOG + ROWS)
    (folder / "mixed" / "b.parquet").write_bytes(b"PAR1")
    (folder / "wrong.toml").write_text('logs = "web.csv"\n')
    ut.PositionBias(np.array([1.0])).save(folder / "short.json")
    return folder


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_is_said_in_the_words_of_the_command_line(wrong_inputs, words, monkeypatch):
    monkeypatch.chdir(wrong_inputs)
    result = call(*shlex.split(words))
    assert result.exit_code == 2, (result.stdout, result.stderr, repr(result.exception))
    assert "Traceback" not in result.stderr
    found = PYTHON.search(result.stderr)
    assert not found, f"{found[0]!r} in {result.stderr}"


@pytest.mark.parametrize(
    "command", [n for n, c in COMMANDS.items() if "log" in str(c.params[0].metavar).lower()]
)
def test_what_is_worth_knowing_is_said_in_those_words_too(wrong_inputs, command, monkeypatch):
    """Not only errors: all that commands print about a log that gives reason to warn."""
    monkeypatch.chdir(wrong_inputs)
    monkeypatch.setenv("COLUMNS", "60")
    options = {
        "bias": ["--method", "all-pairs"], "train": ["--features", "f_a", "--trees", "3"],
        "evaluate": ["--bias", "power-law:1", "--evaluator", "ips"],
        "select": ["--features", "f_a", "--bias", "power-law:1", "--trees", "3", "--method", "prs"],
        "run": ["--features", "f_a", "--trees", "3", "--method", "prs", "--out", "results"],
        "split": ["--out", "parts"],
    }.get(command, [])  # fmt: skip
    result = call(command, "web.csv", *options)
    assert result.exit_code in (0, 2), repr(result.exception)
    assert "…" not in result.stdout
    found = PYTHON.search(result.stdout + result.stderr)
    assert not found, f"{found[0]!r} in {result.stdout}{result.stderr}"
