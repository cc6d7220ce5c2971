"""How clicks are made: one frozen dataclass per protocol, its parameters open.

>>> as_protocol("dla")
DLA(theta=1.0, epsilon=0.1, depth=10, examination=None)
"""

from typing import Any

from untilt.errors import OptionError, check_choice
from untilt.simulation.protocols.base import Protocol
from untilt.simulation.protocols.interventions import Harvest, Shuffle, Swap
from untilt.simulation.protocols.position_based import DLA, PRS, Cascade, Dwell, Trust

__all__ = [
    "ALL_PROTOCOLS",
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

ALL_PROTOCOLS: tuple[type[Protocol], ...] = (
    PRS,
    DLA,
    Cascade,
    Trust,
    Dwell,
    Swap,
    Shuffle,
    Harvest,
)


def as_protocol(protocol: Any) -> Protocol:
    """The protocol itself, or the one of that name with its defaults."""
    if isinstance(protocol, Protocol):
        return protocol
    if isinstance(protocol, type) and issubclass(protocol, Protocol):
        raise OptionError(
            f"protocol must be a value, not a class: write {protocol.__name__}(), with parentheses."
        )
    by_name = {known.name: known for known in ALL_PROTOCOLS}
    check_choice("protocol", protocol, tuple(by_name))
    return by_name[protocol]()
