"""--bias on the command line: a saved estimate, or the name of a given curve."""

from pathlib import Path
from typing import Annotated, Any

import typer

from untilt._core.suggest import did_you_mean
from untilt.errors import OptionError

CURVES = ("power-law", "eye-tracking", "none")

BiasOption = Annotated[
    str | None,
    typer.Option(
        "--bias",
        metavar="FILE|CURVE",
        help="The position bias: a JSON file of an estimate, 'power-law:1.0' or 'eye-tracking:1'.",
    ),
]


def parse_bias(text: str | None) -> Any:
    """The bias that an option names; None where nothing was given."""
    from untilt.bias.known import EyeTracking, PowerLaw
    from untilt.bias.position_bias import PositionBias

    if text is None or text == "none":
        return None
    name, _, number = text.partition(":")
    if name in ("power-law", "eye-tracking"):
        severity = _number(text, number or "1")
        return PowerLaw(severity) if name == "power-law" else EyeTracking(severity)
    if Path(text).exists():
        return PositionBias.load(text)
    raise OptionError(
        f"--bias is a file of an estimate or one of {', '.join(CURVES)}. Got {text!r}, and there "
        f"is no such file.{did_you_mean(name, CURVES)}"
    )


def _number(text: str, number: str) -> float:
    try:
        return float(number)
    except ValueError:
        raise OptionError(
            f"--bias CURVE:NUMBER needs a number, as in power-law:1. Got {text!r}."
        ) from None
