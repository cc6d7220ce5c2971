"""The command line. One file per command; this one only gathers them."""

from typing import Annotated

import typer

from untilt._version import __version__
from untilt.cli.audit import audit
from untilt.cli.bias import bias
from untilt.cli.clickmodels import clickmodels
from untilt.cli.demo import demo
from untilt.cli.evaluate import evaluate
from untilt.cli.export import export
from untilt.cli.failure import Commands
from untilt.cli.plan import plan
from untilt.cli.report import report
from untilt.cli.reproduce import reproduce
from untilt.cli.run import run
from untilt.cli.select import select
from untilt.cli.simulate import simulate
from untilt.cli.train import train

app = typer.Typer(
    name="untilt",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback means a bug of ours: plain text is best to report
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo,
    run,
    report,
    simulate,
    audit,
    plan,
    bias,
    clickmodels,
    train,
    evaluate,
    select,
    reproduce,
    export,
):
    app.command()(command)


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


def main() -> None:
    """The `untilt` program."""
    app()
