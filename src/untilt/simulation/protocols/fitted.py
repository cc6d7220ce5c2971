"""A fitted click model as a protocol."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.simulation.behaviour import Behaviour
from untilt.simulation.protocols.base import Protocol


@dataclass(frozen=True)
class Fitted(Protocol):
    """Clicks drawn by a fitted click model; documents are matched by (query id, document id).

    Made by `simulate(judged, protocol=model)`, which draws the lists by the tables of this protocol
    and their clicks by `model.sample`.
    """

    name: ClassVar[str] = "fitted"

    model: Any
    depth: int | None = None

    def behaviour(self, labels: FloatArray, *, depth: int, max_label: float) -> Behaviour:  # noqa: ARG002
        """Nobody clicks while lists are drawn: labels play no part, the model clicks afterwards."""
        return Behaviour(relevance=np.zeros(len(labels)), examination=np.ones(depth))


def is_click_model(protocol: Any) -> bool:
    """Whether it can draw clicks on lists. By what it can do: models of one's own are welcome."""
    return not isinstance(protocol, type) and all(
        callable(getattr(protocol, name, None)) for name in ("sample", "click_probability")
    )
