"""What "bias" may be: what the audit advises, an estimator, a curve, or a saved estimate."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from untilt._core.suggest import did_you_mean
from untilt.bias.audit_advice import method_name
from untilt.bias.known import Examination, EyeTracking, GivenCurve, PowerLaw
from untilt.bias.position_bias import PositionBias
from untilt.errors import OptionError

CURVES: dict[str, Callable[[float], GivenCurve]] = {
    "power-law": PowerLaw,
    "eye-tracking": EyeTracking,
}


def estimators() -> dict[str, Any]:
    """Estimators by their name on the command line."""
    from untilt.bias import ALL_BIAS_ESTIMATORS

    return {method_name(kind.__name__): kind for kind in ALL_BIAS_ESTIMATORS}


def bias_choice(given: Any) -> Any:
    """ "auto", the class of an estimator, or the curve itself."""
    if given is None or given == "auto":
        return "auto"
    if not isinstance(given, str | Path):
        return _curve_object(given)
    text = str(given)
    name = text.partition(":")[0]
    known = estimators()
    if text in known:
        return known[text]
    if name in CURVES:
        return given_curve(text)
    if Path(text).is_file():
        return PositionBias.load(text)
    names = ["auto", *known, *CURVES]
    raise OptionError(
        f"bias must be a file of an estimate, a curve such as power-law:1, or one of "
        f"{', '.join(names)}. Got {text!r}, and there is no such file.{did_you_mean(name, names)}"
    )


def given_curve(text: str) -> GivenCurve:
    """ "power-law:1.0" or "eye-tracking:1"; the number may be left out."""
    name, _, number = text.partition(":")
    if name not in CURVES:
        raise OptionError(
            f"a given curve is one of {', '.join(CURVES)}, such as power-law:1. "
            f"Got {text!r} instead.{did_you_mean(name, CURVES)}"
        )
    try:
        return CURVES[name](float(number or "1"))
    except ValueError:
        raise OptionError(f"{name} needs a number, as in {name}:1. Got {text!r}.") from None


def _curve_object(given: Any) -> Any:
    if isinstance(given, Examination):
        return given
    raise OptionError(
        "bias must be 'auto', the name of an estimator, a curve such as 'power-law:1', a file or "
        f"a PositionBias. Got {type(given).__name__} instead."
    )
