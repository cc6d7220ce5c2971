"""How clicks are made: one frozen dataclass per protocol, its parameters open.

>>> as_protocol("dla")
DLA(theta=1.0, epsilon=0.1, depth=10, examination=None)
"""

from typing import Any

from untilt import catalog
from untilt.errors import OptionError
from untilt.simulation.protocols.base import Protocol
from untilt.simulation.protocols.interventions import Harvest, Shuffle, Swap
from untilt.simulation.protocols.position_based import DLA, PRS, Cascade, Dwell, Trust

__all__ = [
    "DLA",
    "PRS",
    "Cascade",
    "Dwell",
    "Harvest",
    "Protocol",
    "Shuffle",
    "Swap",
    "Trust",
    "as_protocol",
]


def as_protocol(protocol: Any) -> Protocol:
    """The protocol itself, or the one of that name with its defaults."""
    if isinstance(protocol, Protocol):
        return protocol
    if isinstance(protocol, type) and issubclass(protocol, Protocol):
        raise OptionError(
            f"protocol must be a value, not a class: write {protocol.__name__}(), with parentheses."
        )
    made: Protocol = catalog.find("protocol", protocol).make()
    return made
