"""Dwell time: feedback that is a number, not a click."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.errors import OptionError
from untilt.simulation.behaviour import Behaviour, DwellTimes
from untilt.simulation.protocols.base import Protocol, check_share
from untilt.simulation.protocols.position_based import DLA


@dataclass(frozen=True)
class Dwell(Protocol):
    r"""Dwell time d = c delta_k omega, where c is the click of `DLA` ([ren2021pairwise]_).

        delta_k ~ N(scale / sqrt(k + 2), spread / sqrt(k + 2))
        omega   ~ N(eps + (1 - eps) y, sqrt(y + eps) / (ymax + 2))

    The second argument of N is read as a standard deviation. Each factor is cut at 0: omega of a
    document of label 0 would be below 0 in 3% of its clicks, and time is not. The log's label is
    the dwell time; the click stays beside it as `extra_labels["click"]`.

    Parameters
    ----------
    scale, spread : of delta
    epsilon : of omega; dwell time of documents of label 0
    clicks : the click model, a position-based protocol (`DLA`, `PRS`, `Trust`) or `Cascade`
    depth : places of a list; as the click model has it where not given
    """

    name: ClassVar[str] = "dwell"
    label_name: ClassVar[str] = "dwell"

    scale: float = 2.0
    spread: float = 0.4
    epsilon: float = 0.1
    clicks: Protocol = field(default_factory=DLA)
    depth: int | None = None

    def behaviour(self, labels: FloatArray, *, depth: int, max_label: float) -> Behaviour:
        """Tables of the formula above."""
        self._check()
        by_click = self.clicks.behaviour(labels, depth=depth, max_label=max_label)
        root = np.sqrt(np.arange(1, depth + 1) + 2)
        dwell = DwellTimes(
            delta_mean=self.scale / root,
            delta_spread=self.spread / root,
            omega_mean=self.epsilon + (1 - self.epsilon) * labels,
            omega_spread=np.sqrt(labels + self.epsilon) / (max_label + 2),
        )
        return replace(by_click, dwell=dwell)

    @property
    def list_depth(self) -> int | None:
        """Places of a list: its own, else those of its click model."""
        return self.depth or self.clicks.list_depth

    def _check(self) -> None:
        check_share("epsilon", self.epsilon)
        for what, found in (("scale", self.scale), ("spread", self.spread)):
            if not found >= 0:
                raise OptionError(f"{what} must be at least 0. Got {found} instead.")
        if (
            not isinstance(self.clicks, Protocol)
            or self.clicks.intervenes
            or self.clicks.label_name != "click"
        ):
            raise OptionError(
                "clicks must be a protocol of clicks such as DLA(), PRS(), Trust() or Cascade(). "
                f"Got {self.clicks!r} instead."
            )
