"""Curves that are given, not estimated: power law, eye tracking, rough guesses, a user's table.

Each is a frozen value with `.at(position)` and `.to_bias(depth)`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from untilt import catalog
from untilt._core.arrays import FloatArray
from untilt.bias.curve import CURVE_IS_RIGHT, PositionBias
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.layout import Grid
from untilt.errors import DepthError, OptionError, did_you_mean

# Share of examined results by rank [joachims2005eye]_, as used by [hu2019unbiased]_.
EYE_TRACKING = (0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06)


@runtime_checkable
class Examination(Protocol):
    """Anything that knows how likely a position is examined."""

    @abstractmethod
    def at(self, position: npt.ArrayLike) -> FloatArray:
        """theta at these 1-based positions."""


# What can be given where a bias is needed; see `as_examination`.
BiasLike = Examination | npt.ArrayLike


def numbered_for(log: ClickLog, bias: object) -> ClickLog:
    """The log with its positions numbered as the bias has them: by context, where it has curves so.

    Everything that lets a log and a bias meet goes through this. Most logs and curves are of plain
    positions and pass.
    """
    layout = bias.layout if isinstance(bias, PositionBias) else None
    if layout is None or log.layout == layout:
        return log
    return layout.of(log)


def best_cells_first(bias: object) -> Any:
    """A bias of a grid with its cells in order of examination; any other bias as it is.

    Ranks of a grid are by examination: the first document belongs into the cell that is looked at
    most, wherever that is.
    """
    if not isinstance(bias, PositionBias) or not isinstance(bias.layout, Grid):
        return bias
    order = np.argsort(-bias.examination, kind="stable")
    rest = np.arange(bias.depth, bias.layout.size)
    layout = bias.layout.ordered(np.concatenate([order, rest]) + 1)
    return replace(bias._part(order), layout=layout)


class GivenCurve:
    """Base of the given curves: they reach any depth and have no standard errors."""

    def at(self, position: npt.ArrayLike) -> FloatArray:
        """theta at these 1-based positions."""
        asked = np.asarray(position)
        if asked.size and asked.min() < 1:
            raise DepthError(f"positions start at 1. Got {asked.min()} instead.")
        return self._curve(asked.astype(float))

    @abstractmethod
    def _curve(self, position: FloatArray) -> FloatArray:
        """theta as a function of the position."""

    def to_bias(self, depth: int) -> PositionBias:
        """The first `depth` positions as a `PositionBias`."""
        theta = self.at(np.arange(1, depth + 1))
        return PositionBias(theta, method=repr(self), assumes=(CURVE_IS_RIGHT,))


@method(
    "curve", "power-law", title="Power law", order=10, rests_on="given", takes=("eta",),
    default=True, reference="wang2020prs",
    note="theta_k = (1/k)^eta",
)  # fmt: skip
@dataclass(frozen=True)
class PowerLaw(GivenCurve):
    """theta_k = (1/k)^eta; eta 0 is no bias, 1 is usual ([wang2020prs]_ section 5.2)."""

    eta: float = 1.0

    def _curve(self, position: FloatArray) -> FloatArray:
        return position ** (-float(self.eta))


@method(
    "curve", "eye-tracking", title="Eye tracking", order=20, rests_on="given", takes=("theta",),
    reference="joachims2005eye",
    note="what an eye-tracking study measured at ten positions, to the power theta",
)  # fmt: skip
@dataclass(frozen=True)
class EyeTracking(GivenCurve):
    """theta_k = rho_k^theta with rho measured by eye tracking ([joachims2005eye]_).

    Beyond position 10 the value of position 10 holds: nothing was measured there.
    """

    theta: float = 1.0

    def _curve(self, position: FloatArray) -> FloatArray:
        rho = np.asarray(EYE_TRACKING)
        return rho[np.minimum(position.astype(np.int64), len(rho)) - 1] ** float(self.theta)


@method(
    "curve", "page-steps", title="Steps by page", order=30, rests_on="given",
    reference="mao_arxivlogs",
    note="one value for each page of ten",
)  # fmt: skip
@dataclass(frozen=True)
class PageSteps(GivenCurve):
    """A constant per page of ten: the rough guesses of the arXiv search study.

    `PageSteps.slight()`, `.rough()` and `.counterfactual()` are its three step guesses; the last
    rises with the rank on purpose, to show what a wrong curve does.
    """

    first: float
    second: float
    deeper: float

    @classmethod
    def slight(cls) -> "PageSteps":
        """1, 1/1.1, 1/1.2."""
        return cls(1.0, 1 / 1.1, 1 / 1.2)

    @classmethod
    def rough(cls) -> "PageSteps":
        """1, 1/2, 1/3."""
        return cls(1.0, 1 / 2, 1 / 3)

    @classmethod
    def counterfactual(cls) -> "PageSteps":
        """1/3, 1/2, 1: the wrong way round."""
        return cls(1 / 3, 1 / 2, 1.0)

    def _curve(self, position: FloatArray) -> FloatArray:
        steps = [position <= 10, position <= 20]
        return np.select(steps, [self.first, self.second], default=self.deeper)


@method(
    "curve", "click-count", title="Click counts", order=40, rests_on="given",
    reference="mao_arxivlogs",
    note="1 / (clicks at k + 1), a rough guess that is usually wrong",
)  # fmt: skip
@dataclass(frozen=True)
class ClickCountGuess(GivenCurve):
    """theta_k = 1 / (clicks at k + 1): the arXiv study's second rough guess.

    Kept as a baseline for its tables: it falls where clicks are *many*, so it is usually wrong.
    """

    clicks: tuple[float, ...]

    def _curve(self, position: FloatArray) -> FloatArray:
        counts = np.asarray(self.clicks, dtype=float)
        return 1 / (counts[np.minimum(position.astype(np.int64), len(counts)) - 1] + 1)


@method(
    "curve", "known", title="A known curve", order=50, rests_on="given",
    note="a table of your own, with eps+ and eps- where they are known",
)  # fmt: skip
def KnownBias(  # noqa: N802  reads as a type: what it makes is one
    examination: npt.ArrayLike,
    *,
    eps_plus: npt.ArrayLike | None = None,
    eps_minus: npt.ArrayLike | None = None,
    absolute: bool = False,
) -> PositionBias:
    """A curve you already know, for instance from another experiment."""
    return PositionBias(
        examination,
        eps_plus=eps_plus,
        eps_minus=eps_minus,
        assumes=(CURVE_IS_RIGHT,),
        relative=not absolute,
    )


def curve_names() -> list[str]:
    """The curves that can be given as text: those of one number."""
    return [record.name for record in catalog.methods("curve") if record.takes]


def parse_curve(text: str) -> GivenCurve:
    """The curve of "power-law:1" or "eye-tracking:1"; without a number it is 1."""
    name, _, number = text.partition(":")
    if name not in curve_names():
        raise OptionError(
            f"a given curve is one of {', '.join(curve_names())}, such as "
            f"{catalog.default('curve').name}:1. Got {text!r} instead."
            f"{did_you_mean(name, curve_names())}"
        )
    try:
        curve: GivenCurve = catalog.find("curve", name).make(float(number or "1"))
    except ValueError:
        raise OptionError(f"{name} needs a number, as in {name}:1. Got {text!r}.") from None
    return curve


def parse_bias(text: str, *, what: str = "bias", also: Sequence[str] = ()) -> Examination:
    """The curve that a text names, or the estimate in a file; `also` are other words for errors."""
    name = text.partition(":")[0]
    if name in curve_names():
        return parse_curve(text)
    if Path(text).is_file():
        return PositionBias.load(text)
    known = [*also, *curve_names()]
    raise OptionError(
        f"{what} must be a file of an estimate, a curve such as power-law:1, or one of "
        f"{', '.join(known)}. Got {text!r}, and there is no such file.{did_you_mean(name, known)}"
    )


def as_examination(bias: BiasLike) -> Examination:
    """A `PositionBias`, a given curve, or a plain array of examination probabilities."""
    # Arrays first: a pandas Series and a JAX array have another `at`.
    if isinstance(bias, list | tuple) or hasattr(bias, "__array__"):
        array: Any = bias
        return KnownBias(array)
    if isinstance(bias, Examination):
        return bias
    raise OptionError(
        "bias must be a PositionBias, a curve such as ⟦PowerLaw(1.0)|power-law:1.0⟧, "
        "or an array of examination probabilities by position. Got "
        f"{type(bias).__name__} instead."
    )


def as_position_bias(bias: BiasLike, depth: int) -> PositionBias:
    """The same as a `PositionBias` that covers positions 1..depth."""
    examination = as_examination(bias)
    if isinstance(examination, PositionBias):
        examination.at(depth)  # says clearly when it does not reach that deep
        return examination
    if isinstance(examination, GivenCurve):
        return examination.to_bias(depth)
    return PositionBias(examination.at(np.arange(1, depth + 1)), method=type(examination).__name__)
