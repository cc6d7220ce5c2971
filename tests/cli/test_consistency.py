"""What all commands have in common: a contract that a new command must pass, too.

A command that reads a file has a line in `INPUTS`; that every command has one is a test.
"""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from untilt.cli.main import app

PROGRAM = typer.main.get_command(app)
COMMANDS = PROGRAM.commands  # type: ignore[attr-defined]
OPTIONS = [
    (name, parameter)
    for name, command in COMMANDS.items()
    for parameter in command.params
    if parameter.param_type_name == "option"
]
# The command with the input that it reads at {}; demo reads none.
INPUTS = {
    "audit": ["audit", "{}"],
    "plan": ["plan", "{}"],
    "bias": ["bias", "{}"],
    "clickmodels": ["clickmodels", "{}"],
    "collapse": ["collapse", "{}", "--out", "counted.parquet"],
    "train": ["train", "{}"],
    "train, documents": ["train", "log.csv", "--documents", "{}"],
    "train, labels": ["train", "{}", "--letor"],
    "train, bias": ["train", "log.csv", "--method", "prs", "--bias", "{}"],
    "evaluate": ["evaluate", "{}", "--bias", "power-law:1"],
    "evaluate, ranker": ["evaluate", "log.csv", "--bias", "power-law:1", "--ranker", "{}"],
    "select": ["select", "{}", "--bias", "power-law:1"],
    "run": ["run", "{}", "--out", "results"],
    "run, documents": ["run", "log.csv", "--documents", "{}", "--out", "results"],
    "run, config": ["run", "log.csv", "--config", "{}", "--out", "results"],
    "report": ["report", "{}"],
    "score": ["score", "{}", "log.csv"],
    "watch": ["watch", "{}"],
    "export": ["export", "{}", "--out", "model.txt"],
    "judgments": ["judgments", "{}", "--bias", "power-law:1", "--out", "judgments.json"],
    "split": ["split", "{}", "--out", "parts"],
    "simulate": ["simulate", "--out", "made", "--data", "{}"],
    "reproduce": ["reproduce", "{}"],
    "serve": ["serve", "{}", "--log", "shown"],
    "collect": ["collect", "{}", "--out", "collected"],
}
LOGS = {
    "not parquet.parquet": b"these are no columns",
    "empty.csv": b"",
    "binary.csv": bytes(range(256)) * 20,
    "header.csv": b"query_id,session_id,doc_id,position,click\n",
    "others.csv": b"a,b\n1,2\n",
}
LOG = "query_id,session_id,doc_id,position,click,f_a\n1,1,1,1,1,0.5\n1,1,2,2,0,0.2\n"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A working folder with a small log."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(LOG)
    return tmp_path


def call(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(result, *, json_asked: bool = False) -> str:
    """The message of a call that failed as it should: exit code 2, one paragraph, no traceback."""
    assert result.exit_code == 2, (result.exit_code, repr(result.exception), result.stdout)
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.stderr
    if json_asked:
        told = json.loads(result.stdout)["error"]
        assert told["exit_code"] == 2
        assert result.stderr == f"error: {told['message']}\n"
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert lines[0].endswith((".", "?", "!"))
    return lines[0]


# ---- what is asked: options


def test_every_command_that_reads_a_file_is_tried():
    assert {name.split(",")[0] for name in INPUTS} == set(COMMANDS) - {"demo", "methods", "explain"}


def test_help_says_what_and_shows_an_example():
    for name, command in COMMANDS.items():
        first, *rest = (command.help or "").strip().split("\n\n")
        assert first.replace("\n", " ").strip().endswith((".", "?")), name
        assert any(f"Example: [bold]untilt {name}" in " ".join(part.split()) for part in rest), name


def test_help_fits_80_columns_and_flags_take_no_value(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("", *COMMANDS):
        result = call(*([name] if name else []), "--help" if name != "audit" else "-h")
        assert result.exit_code == 0, name
        assert "…" not in result.stdout, name
        assert "<bool>" not in result.stdout, name
        assert max(map(len, result.stdout.splitlines())) <= 80, name


def test_an_option_of_one_value_is_given_once(folder):
    """The last one would count, in silence; those that may be repeated add up."""
    for name, option in OPTIONS:
        if not (option.multiple or option.is_flag):
            given = [[flag, *"12"[: option.nargs]] for flag in (option.opts[0], option.opts[-1])]
            told = refused(call(name, *given[0], *given[1]))
            assert "was given 2 times" in told, (name, option.opts)


def test_options_that_say_so_may_be_repeated():
    for name, option in OPTIONS:
        says_so = "repeated" in option.help or "Repeatable" in option.help
        assert option.multiple == says_so, (name, option.opts)


def test_examples_name_options_that_exist():
    for name, command in COMMANDS.items():
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
        text = " ".join((command.help or "").split())
        for example in re.findall(rf"\[bold\](untilt {name}.*?)\[/bold\]", text):
            assert set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", example)) <= known, example


def test_json_and_verbose_are_everywhere():
    for name, command in COMMANDS.items():
        flags = {tuple(p.opts) for p in command.params}
        assert {("--json",), ("--verbose", "-v")} <= flags, name


def test_every_option_explains_itself():
    for name, option in OPTIONS:
        assert option.help, (name, option.opts)
        assert option.help.endswith((".", ")")), option.help
        assert option.secondary_opts == [], "a switch is there or not; there is no --no-..."


def test_one_letter_means_one_thing():
    meanings: dict[str, set[str]] = {}
    for _, option in OPTIONS:
        for short in (flag for flag in option.opts if not flag.startswith("--")):
            meanings.setdefault(short, set()).add(option.opts[0])
    assert meanings == {"-v": {"--verbose"}, "-o": {"--out"}}


def test_the_same_option_has_the_same_shape():
    """--out has -o wherever it is; an option is a switch in all commands or in none."""
    for flag in {option.opts[0] for _, option in OPTIONS}:
        same = [option for _, option in OPTIONS if option.opts[0] == flag]
        assert len({option.is_flag for option in same}) == 1, flag
        assert len({tuple(o for o in option.opts if len(o) == 2) for option in same}) == 1, flag


def test_where_evaluation_corrects_clicks_it_is_called_evaluator():
    found = {name for name, option in OPTIONS if "--evaluator" in option.opts}
    assert found == {"evaluate", "select", "run"}


# ---- what is answered when something is wrong


@pytest.mark.parametrize("name", INPUTS)
def test_a_missing_file_is_a_sentence_and_exit_2(folder, name):
    arguments = [part.format("gone.file") for part in INPUTS[name]]
    assert "gone.file" in refused(call(*arguments))
    assert "gone.file" in refused(call(*arguments, "--json"), json_asked=True)
    left = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    # A run keeps its own notes, so that the same command can go on.
    assert {path for path in left if path.parts[:2] != ("results", "work")} == {Path("log.csv")}


@pytest.mark.parametrize("name", [n for n in INPUTS if n != "reproduce"])
def test_a_file_of_another_kind_is_a_sentence_and_exit_2(folder, name):
    (folder / "strange.file").write_bytes(bytes(range(256)))
    arguments = [part.format("strange.file") for part in INPUTS[name]]
    assert "strange.file" in refused(call(*arguments))


@pytest.mark.parametrize("name", ["audit", "plan", "bias", "clickmodels", "train", "evaluate",
                                  "select", "run"])  # fmt: skip
def test_logs_that_cannot_be_read_are_named(folder, name):
    (folder / "folder").mkdir()
    for file, content in LOGS.items():
        (folder / file).write_bytes(content)
    for file in (*LOGS, "folder"):
        arguments = [part.format(file) for part in INPUTS[name]]
        assert file in refused(call(*arguments, "--json"), json_asked=True)


WRONG = {
    "level of intervals": (["bias", "log.csv", "--level", "7"], "--level must lie between 0 and 1"),
    "level of a plan": (["plan", "log.csv", "--level", "1"], "--level must lie between 0 and 1"),
    "level of an evaluation": (
        ["evaluate", "log.csv", "--bias", "power-law:1", "--level", "0"],
        "--level must lie between 0 and 1. Got 0.0",
    ),
    "share to hold out": (
        ["select", "log.csv", "--bias", "power-law:1", "--hold-out", "3"],
        "--hold-out must lie between 0 and 1. Got 3.0",
    ),
    "share to learn from": (
        ["clickmodels", "log.csv", "--train", "1"], "--train must lie between 0 and 1"),
    "metric": (
        ["evaluate", "log.csv", "--bias", "power-law:1", "--metric", "nope@3"], "nope"),
    "metric to select by": (
        ["select", "log.csv", "--bias", "power-law:1", "--metric", "dgc@3"],
        "Did you mean 'dcg'?",
    ),
    "click model": (["clickmodels", "log.csv", "--model", "upm"], "Did you mean"),
    "estimator": (["bias", "log.csv", "--method", "all-pear"], "Did you mean 'all-pairs'?"),
    "column": (["audit", "log.csv", "--column", "query_id"], "--column needs NAME=COLUMN"),
    "curve": (["train", "log.csv", "--method", "prs", "--bias", "power-law:x"], "power-law:1"),
    "bias that is needed": (["train", "log.csv", "--method", "prs"], "--bias bias.json"),
    "features that are needed": (["train", "log.csv"], "--documents TABLE"),
    "features to select": (
        ["select", "log.csv", "--bias", "power-law:1"], "--documents TABLE"),
    "length of time": (["run", "log.csv", "--time-limit", "soon"], "90s, 10m or 1h30m"),
}  # fmt: skip
for _command in ("audit", "bias", "clickmodels", "evaluate", "select"):
    WRONG[f"chart of {_command}"] = (
        [*[part.format("log.csv") for part in INPUTS[_command]], "--plot", "x.doc"],
        "a chart is written as .html, .png, .svg, .json. Got 'x.doc'",
    )


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_option_is_explained_in_the_words_of_the_command_line(folder, case):
    arguments, said = WRONG[case]
    assert said in refused(call(*arguments, "--json"), json_asked=True)


def test_an_unknown_option_is_exit_2(folder):
    for name in COMMANDS:
        assert "--nonsense" in refused(call(name, "--nonsense", "--json"), json_asked=True), name


def test_an_option_that_is_nearly_right_is_named():
    for name, option in OPTIONS:
        flag = next(each for each in option.opts if each.startswith("--"))
        told = refused(call(name, f"{flag}x"))
        assert "Did you mean" in told, (name, flag)


def test_help_texts_name_what_is_left_out():
    """Every option that may be left out says what then holds, in its help or by Typer."""
    for name, option in OPTIONS:
        says_so = "default:" in option.help or option.default is not None
        adds = option.required or option.is_flag or option.multiple
        is_name = re.search("FILE|FOLDER|TABLE|LOG|RANKER|COLUMN|NAME|EVENTS", option.metavar or "")
        assert says_so or adds or is_name or "instead of" in option.help, (name, option.opts)


def test_untilt_toml_gives_the_options_of_reading_to_every_command(folder):
    (folder / "other.csv").write_text(LOG.replace("query_id", "search").replace("click", "tap"))
    (folder / "untilt.toml").write_text(
        'label = "tap"\n[columns]\nquery_id = "search"\n[plan]\nwidth = 0.3\n[bias]\ndepth = 1\n'
    )
    assert call("audit", "other.csv").exit_code == 0
    assert call("audit", "other.csv", "--column", "query_id=gone").exit_code == 2
    (folder / "untilt.toml").write_text("colums = 1\n")
    assert "Did you mean 'columns'?" in refused(call("audit", "log.csv"))
    (folder / "untilt.toml").write_text("[plan]\nwith = 1\n")
    assert "Did you mean 'width'?" in refused(call("plan", "log.csv"))
    assert call("audit", "log.csv").exit_code == 0


@pytest.mark.parametrize("name", ["train", "bias", "select", "export"])
def test_an_output_that_cannot_be_written_is_told_before_the_work(folder, name):
    (folder / "folder").mkdir()
    arguments = [part.format("gone.file") for part in INPUTS[name][:2]]
    arguments += ["--bias", "power-law:1"] if name == "select" else []
    under_a_file = refused(call(*arguments, "--out", "log.csv/result", "--json"), json_asked=True)
    assert under_a_file == "error: --out log.csv/result: log.csv is a file, not a folder."
    assert "--out folder is a folder" in refused(call(*arguments, "--out", "folder"))


# ---- shell completion


def completed(shell: str, words: str) -> str:
    """What the program offers when the last of these words is completed."""
    typed = words.split(" ")
    environment = {
        "_UNTILT_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(typed) - 1),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = CliRunner().invoke(app, [], env=environment, prog_name="untilt")
    assert isinstance(done.exception, SystemExit | None), done.exception
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell):
    offered = completed(shell, "untilt re")
    assert "report" in offered
    assert "reproduce" in offered
    assert "audit" not in offered


def test_the_shell_completes_options_and_choices():
    assert "--documents" in completed("bash", "untilt audit --d")
    offered = completed("bash", "untilt train --method pairwise")
    assert "pairwise-debiasing" in offered
    assert "clicks" not in offered


# ---- JSON for machines


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A small log, its bias, a ranker and a run, made by the commands themselves."""
    folder = tmp_path_factory.mktemp("made")
    log = ["--documents", folder / "documents.parquet", "--json"]
    steps = [
        ["simulate", "--out", folder, "--queries", 60, "--features", 5, "--sessions", 4000,
         "--protocol", "harvest", "--json"],
        ["train", folder / "clicks.parquet", *log, "--trees", 5, "--threads", 1, "--out",
         folder / "ranker.untilt"],
    ]  # fmt: skip
    for step in steps:
        result = call(*step)
        assert result.exit_code == 0, result.stderr
        json.loads(result.stdout)
    return folder


CALLS = {
    "audit": ["{}/clicks.parquet"],
    "plan": ["{}/clicks.parquet"],
    "bias": ["{}/clicks.parquet"],
    "evaluate": ["{}/clicks.parquet", "--documents", "{}/documents.parquet", "--bias",
                 "{}/bias.json", "--ranker", "{}/ranker.untilt"],
    "export": ["{}/ranker.untilt", "--out", "{}/model.txt"],
    "reproduce": ["--list"],
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_json_is_one_object_and_nothing_else(made, name):
    arguments = [part.format(made) for part in CALLS[name]]
    result = call(name, *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    assert isinstance(json.loads(result.stdout, parse_constant=pytest.fail), dict)
    people = call(name, *arguments)
    assert people.exit_code == 0
    assert not people.stdout.lstrip().startswith("{")


@pytest.mark.parametrize("name", ["audit", "bias"])
def test_verbose_speaks_on_stderr_only(made, name):
    quiet = call(name, made / "clicks.parquet")
    verbose = call(name, made / "clicks.parquet", "-v")
    assert verbose.stdout == quiet.stdout
    assert quiet.stderr == ""
    assert "read ClickLog" in verbose.stderr
