"""The command line. One file per kind of command; this one only gathers them."""

import atexit
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
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
from untilt.cli.console import BAD_INPUT, EXITS, INTERRUPTED, TERMINATED, Terminal
from untilt.cli.declared import expanded
from untilt.cli.evaluate import evaluate
from untilt.cli.explain import explain
from untilt.cli.export import export, judgments, score
from untilt.cli.logs import collapse, simulate, split
from untilt.cli.reproduce import reproduce
from untilt.cli.run import demo, report, run
from untilt.cli.serve import collect, serve, watch
from untilt.cli.train import methods, select, train
from untilt.errors import UntiltError, did_you_mean


class Commands(TyperGroup):
    """The commands of `untilt`, each run under `explained_failure`."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        with explained_failure(as_json="--json" in [*ctx._protected_args, *ctx.args]):
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of `untilt` itself, which are flags."""
        return [plain_flag(each) for each in super().get_params(ctx)]


@contextmanager
def explained_failure(*, as_json: bool = False) -> Iterator[None]:
    """Turn what the user can mend into a paragraph and an exit code.

    Anything else that goes wrong is a bug of ours and keeps its traceback, which a report needs.
    """
    pressed = _Pressed()
    failed = partial(_failed, as_json=as_json)
    try:
        with _handling(signal.SIGINT, pressed), _handling(signal.SIGTERM, _terminate):
            yield
    except UntiltError as error:
        raise failed(str(error), error) from error
    except (BrokenPipeError, typer.Exit):
        raise  # `untilt audit ... | head`: Typer ends quietly
    except (KeyboardInterrupt, Exception) as error:
        if ran_out(error):
            raise failed(_memory_message(), error) from error
        if isinstance(error, OSError):
            raise failed(_file_message(error), error) from error
        if hasattr(error, "format_message"):  # Typer's: a wrong option
            raise failed(_usage_message(error), error) from error
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


def _usage_message(error: Any) -> str:
    """What is wrong with the call, and the nearest option or the help that says what is right."""
    message = str(error.format_message()).partition(" (Possible options")[0].rstrip(".")
    known = [flag for each in error.ctx.command.params for flag in each.opts] if error.ctx else ()
    hint = did_you_mean(getattr(error, "option_name", None) or "", known)
    if "Did you mean" not in message + hint:
        message += f". See `{error.ctx.command_path} --help`" if error.ctx else ""
    return message + ("" if message.endswith("?") else ".") + hint


def _failed(message: str, error: BaseException, *, as_json: bool) -> typer.Exit:
    _tell("error", message)
    if as_json:
        told = {"kind": type(error).__name__, "message": message, "exit_code": BAD_INPUT}
        print(json.dumps({"error": told}, indent=2))  # noqa: T201
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
    epilog=EXITS,
)
COMMANDS = {
    "Start": (demo, run, report),
    "Look at a log": (audit, bias, plan, clickmodels, explain),
    "Single steps": (collapse, split, train, select, evaluate, score, export, judgments),
    "Live": (serve, collect, watch),
    "Research": (simulate, reproduce, methods),
}
for group, commands in COMMANDS.items():
    for command in commands:
        app.command(cls=CommandWithMethods, rich_help_panel=group)(expanded(command))


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

    People click what they look at, and they look at the top of the page first.
    untilt measures this position bias and corrects for it.

    New here? Run [bold]untilt demo[/bold].
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
