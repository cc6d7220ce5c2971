"""The program as a whole: help, version, exit codes, and JSON that is nothing but JSON."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import untilt
from untilt.cli.main import app

COMMANDS = [command.callback.__name__ for command in app.registered_commands]
PROGRAM = [sys.executable, "-c", "from untilt.cli.main import main; main()"]


def run(*arguments):
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_version():
    result = run("--version")
    assert (result.returncode, result.stdout) == (0, f"untilt {untilt.__version__}\n")


def test_the_program_leaves_when_all_is_written_and_all_that_others_registered_is_done():
    code = (
        "import atexit, sys; from untilt.cli.main import main\n"
        "atexit.register(lambda: sys.stdout.write('the end'))\n"
        "class Left:\n"
        "    def __del__(self): print('taken apart')\n"
        "sys.left = Left()\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"untilt {untilt.__version__}\nthe end"


def test_output_that_nobody_can_take_is_no_success():
    if not sys.platform.startswith("linux"):
        pytest.skip("/dev/full is a file of Linux")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, "--version"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode != 0


def test_help_names_every_command_and_is_quick_to_load():
    code = "import sys; from untilt.cli.main import app; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numba", "scipy", "lightgbm", "duckdb", "pyarrow", "altair"} & set(loaded)
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert {"demo", "simulate", "audit"} <= set(COMMANDS)
    for command in COMMANDS:
        assert command in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_and_json(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"Example: untilt {command}" in result.stdout
    assert "--json" in result.stdout
    assert "--verbose" in result.stdout


def test_nothing_asked_shows_the_help():
    result = run()
    assert "Usage" in result.stdout + result.stderr
    assert "demo" in result.stdout + result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["demmo"],
        ["audit"],
        ["audit", "x", "--nonsense"],
        ["simulate", "--out", "x", "--seed", "-1"],
    ],
)
def test_a_wrong_call_is_exit_2_without_a_traceback(arguments):
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_json_is_all_that_stdout_holds(tmp_path):
    result = run(
        *("simulate", "--out", tmp_path / "sim", "--queries", 40, "--features", 4),
        *("--sessions", 200, "--json", "-v"),
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["sessions"] == 200
    assert "simulated with Truth" in result.stderr


def test_a_closed_pipe_is_no_error(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("query_id,session_id,doc_id,position,click\n1,1,1,1,1\n")
    program = subprocess.Popen(
        [*PROGRAM, "audit", str(log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    program.stdout.close()
    _, stderr = program.communicate()
    assert "Traceback" not in stderr


def test_completion_can_be_installed():
    result = CliRunner().invoke(app, ["--help"])
    assert "--install-completion" in result.stdout
