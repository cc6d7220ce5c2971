"""What the user can mend is a paragraph and an exit code; what is ours keeps its traceback."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from untilt.cli.main import Commands
from untilt.errors import BadRowsError, MemoryLimitError, OptionError, UntiltError

MESSAGE = "a position below 1: 3 rows. Fix: positions start at 1."


def app_that_raises(error: BaseException) -> typer.Typer:
    app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)

    @app.callback()
    def _root() -> None:
        """Commands."""

    @app.command()
    def go() -> None:
        raise error

    return app


def run(error: BaseException):
    return CliRunner().invoke(app_that_raises(error), ["go"])


@pytest.mark.parametrize("kind", [UntiltError, BadRowsError, OptionError])
def test_an_error_of_ours_is_one_paragraph_and_exit_2(kind):
    result = run(kind(MESSAGE))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"error: {MESSAGE}\n"


def test_markup_in_a_message_is_text():
    assert "[bold]x[/bold] [/nothing]" in run(UntiltError("[bold]x[/bold] [/nothing]")).stderr


def test_a_file_that_cannot_be_read_is_named():
    result = run(FileNotFoundError(2, "No such file or directory", "clicks.parquet"))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: clicks.parquet: No such file or directory. ")


def test_ctrl_c_exits_with_130():
    result = run(KeyboardInterrupt())
    assert result.exit_code == 130
    assert result.stderr.startswith("stopped: by Ctrl-C.")


def test_a_bug_stays_an_exception():
    result = run(TypeError("unsupported operand"))
    assert result.exit_code == 1
    assert isinstance(result.exception, TypeError)


def duckdb_error() -> Exception:
    import duckdb

    return duckdb.OutOfMemoryException("failed to pin block")


def lightgbm_error() -> Exception:
    from lightgbm.basic import LightGBMError

    return LightGBMError("std::bad_alloc")


def arrow_error() -> Exception:
    import pyarrow as pa

    return pa.ArrowMemoryError("malloc of size 64 failed")


def numpy_error() -> Exception:
    with pytest.raises(MemoryError) as failed:
        np.empty(2**57)
    return failed.value


@pytest.mark.parametrize(
    "error",
    [
        MemoryError,
        numpy_error,
        duckdb_error,
        lightgbm_error,
        arrow_error,
        lambda: OSError(errno.ENOMEM, "Cannot allocate memory", "clicks.parquet"),
        lambda: ImportError("libX.so: cannot allocate memory in static TLS block"),
        lambda: RuntimeError("can't start new thread"),
        lambda: RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"),
    ],
)
def test_memory_that_runs_out_is_a_sentence(error):
    result = run(error())
    assert result.exit_code == 2
    assert result.stderr.startswith("error: this needs more memory than the process can have")


def test_memory_that_was_refused_says_why():
    assert run(MemoryLimitError(MESSAGE)).stderr == f"error: {MESSAGE}\n"


def test_the_signal_handlers_are_put_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run(OptionError("no"))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


# ---- in a process of its own

SLOW_WRITER = """
    import signal, time, typer
    from pathlib import Path
    from untilt._core.files import replacing
    from untilt.cli.main import Commands

    # A shell may have told its background children to ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)

    @app.callback()
    def _root():
        "Commands."

    @app.command()
    def write(folder: Path, how: str):
        with replacing(folder / "result.txt") as temporary:
            temporary.write_text("half of it")
            (folder / "started").touch()
            try:
                for _ in range(600):  # short sleeps: a signal just before one waits for its end
                    time.sleep(0.05)
            except KeyboardInterrupt:
                if how == "translated":
                    raise RuntimeError("Query interrupted")
                raise

    app()
"""


def stop_while_writing(tmp_path: Path, number: signal.Signals, how: str = "plain"):
    script = tmp_path / "writer.py"
    script.write_text(textwrap.dedent(SLOW_WRITER))
    folder = tmp_path / "out"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, str(script), "write", str(folder), how],
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(600):
        if (folder / "started").exists() or process.poll() is not None:
            break
        time.sleep(0.05)
    os.kill(process.pid, number)
    _, stderr = process.communicate(timeout=30)
    return process.returncode, stderr, sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("how", ["plain", "translated"])
def test_ctrl_c_leaves_no_half_written_file(tmp_path, how):
    code, stderr, left = stop_while_writing(tmp_path, signal.SIGINT, how)
    assert (code, left) == (130, ["started"])
    assert stderr == "stopped: by Ctrl-C. No file was left half-written.\n"


def test_being_told_to_end_leaves_no_half_written_file(tmp_path):
    code, stderr, left = stop_while_writing(tmp_path, signal.SIGTERM)
    assert (code, left, stderr) == (143, ["started"], "")
