"""The command line. One file per kind of command; this one only gathers them."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from untilt._core.addresses import without_secrets
from untilt._core.memory import gib, limit, ran_out
from untilt._version import __version__
from untilt.cli.arguments import CommandWithMethods, plain_flag
from untilt.cli.audit import audit, plan
from untilt.cli.bias import bias, clickmodels
from untilt.cli.console import Terminal
from untilt.cli.declared import expanded
from untilt.cli.evaluate import evaluate
from untilt.cli.export import export, judgments, score
from untilt.cli.logs import collapse, simulate, split
from untilt.cli.reproduce import reproduce
from untilt.cli.run import demo, report, run
from untilt.cli.serve import collect, serve, watch
from untilt.cli.train import methods, select, train
from untilt.errors import UntiltError

# Exit codes: the input or an option is wrong; Ctrl-C; ended by SIGTERM.
BAD_INPUT, INTERRUPTED, TERMINATED = 2, 128 + signal.SIGINT, 128 + signal.SIGTERM


class Commands(TyperGroup):
    """The commands of `untilt`, each run under `explained_failure`."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        with explained_failure():
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of `untilt` itself, which are flags."""
        return [plain_flag(each) for each in super().get_params(ctx)]


@contextmanager
def explained_failure() -> Iterator[None]:
    """Turn what the user can mend into a paragraph and an exit code.

    Anything else that goes wrong is a bug of ours and keeps its traceback, which a report needs.
    """
    pressed = _Pressed()
    try:
        with _handling(signal.SIGINT, pressed), _handling(signal.SIGTERM, _terminate):
            yield
    except UntiltError as error:
        raise _failed(str(error)) from error
    except BrokenPipeError:
        raise  # `untilt audit ... | head`: Typer ends quietly
    except (KeyboardInterrupt, Exception) as error:
        if ran_out(error):
            raise _failed(_memory_message()) from error
        if isinstance(error, OSError):
            raise _failed(_file_message(error)) from error
        # Compiled libraries answer Ctrl-C with errors of their own: DuckDB raises a RuntimeError.
        if not (pressed.once or isinstance(error, KeyboardInterrupt)):
            raise
        _tell("stopped", "by Ctrl-C. No file was left half-written.")
        raise typer.Exit(INTERRUPTED) from error


class _Pressed:
    """A SIGINT handler that remembers that it was called."""

    def __init__(self) -> None:
        self.once = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.once = True
        raise KeyboardInterrupt


def _terminate(_number: int, _frame: FrameType | None) -> None:
    """End like Ctrl-C does, through the `finally` blocks that remove unfinished files."""
    raise SystemExit(TERMINATED)


@contextmanager
def _handling(number: signal.Signals, handler: Any) -> Iterator[None]:
    try:
        before = signal.signal(number, handler)
    except ValueError:  # not the main thread: signals are somebody else's business
        yield
        return
    try:
        yield
    finally:
        signal.signal(number, before)


def _file_message(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    what = error.strerror or str(error)
    return f"{where}{what}. Check the path and that it can be read or written."


def _memory_message() -> str:
    most = limit()
    told = "" if most is None else f" (its limit is {gib(most)})"
    return (
        f"this needs more memory than the process can have{told}. Use a part of the log, such as "
        "fewer queries or days, or a machine with more memory."
    )


def _failed(message: str) -> typer.Exit:
    _tell("error", message)
    return typer.Exit(BAD_INPUT)


def _tell(kind: str, message: str) -> None:
    # Soft wrap: the terminal breaks the paragraph, so paths and commands in it can be copied.
    text = Text.assemble((f"{kind}: ", "bold red"), without_secrets(message))
    Terminal(stderr=True, highlight=False).print(text, soft_wrap=True)


app = typer.Typer(
    name="untilt",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback means a bug of ours: plain text is best to report
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (
    demo, run, report, simulate, audit, plan, bias, clickmodels, collapse, split, train, evaluate,
    select, score, watch, reproduce, export, judgments, serve, collect, methods,
)  # fmt: skip
for command in COMMANDS:
    app.command(cls=CommandWithMethods)(expanded(command))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"untilt {__version__}")
        raise typer.Exit


@app.callback()
def _untilt(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Learn rankers from biased clicks.

    Clicks tilt towards the top of the page. untilt measures the tilt and takes it out.
    New here? Run [bold]untilt demo[/bold]: it makes its own data and shows every step.
    """


# No command needs them, and LightGBM and our own estimators import them where they are: half of the
# time before a command begins.
_SPARED = ("sklearn", "pandas")


class _Spared(MetaPathFinder):
    """Imports as if these packages were not installed.

    None in `sys.modules` would do that as well, but compiled code takes it for the module: pyarrow
    then asks None for its version.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if name in _SPARED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main() -> None:
    """The `untilt` program."""
    sys.meta_path.insert(0, _Spared())
    try:
        app()
    except SystemExit as leaving:
        if not leaving.code:
            _leave()
        raise


def _leave() -> None:
    """End the process without taking it apart, which takes 0.3 to 0.5 s after a run.

    Everything is written by now: files are closed, what others have registered for the end is done,
    and whoever reads the output has it. Where that fails, the process ends as others do.
    """
    with suppress(OSError, ValueError):  # a closed pipe
        if threading.active_count() == 1:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
