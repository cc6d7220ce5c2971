"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from untilt.errors import OptionError

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object for machines, and nothing else.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also say on stderr what is done, and when.")
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")]
# --chart was the first name of it.
PlotIntervals = Annotated[
    Path | None,
    typer.Option(
        "--plot", "--chart", metavar="FILE", help="Draw the intervals: .html, .png, .svg or .json."
    ),
]


def check_share(name: str, share: float) -> None:
    """Raise unless an option is a share of something, with some of it left on either side."""
    if not 0 < share < 1:
        raise OptionError(f"{name} must lie between 0 and 1. Got {share} instead.")


def check_out(path: Path | None) -> None:
    """Raise unless a file can stand at this path; ask before a long computation."""
    if path is None:
        return
    if path.is_dir():
        raise OptionError(f"--out {path} is a folder. Give the name of a file in it.")
    _check_parents(path)


def check_out_folder(path: Path) -> None:
    """Raise unless a folder can stand at this path; ask before a long computation."""
    if path.exists() and not path.is_dir():
        raise OptionError(f"--out {path} is a file. Give the name of a folder.")
    _check_parents(path)


def _check_parents(path: Path) -> None:
    for parent in path.parents:
        if parent.exists():
            if not parent.is_dir():
                raise OptionError(f"--out {path}: {parent} is a file, not a folder.")
            return


def check_plots(*paths: Path | None) -> None:
    """Raise unless charts can be written under these names; ask before a long computation."""
    from untilt.report.charts import check_chart_path

    for path in paths:
        if path is not None:
            check_chart_path(path)
