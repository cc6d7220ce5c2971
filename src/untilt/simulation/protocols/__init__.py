"""How clicks are made: one frozen dataclass per protocol, its parameters open.

>>> as_protocol("dla")
DLA(theta=1.0, epsilon=0.1, depth=10, examination=None)
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from untilt.catalog import find
from untilt.errors import OptionError, did_you_mean
from untilt.simulation.protocols.clicks import DLA, PRS, Cascade, Dwell, Protocol, Trust
from untilt.simulation.protocols.interventions import Harvest, Shuffle, Swap

__all__ = [
    "DLA", "PRS", "Cascade", "Dwell", "Harvest", "Protocol", "Shuffle", "Swap", "Trust",
    "as_protocol", "parameters_of",
]  # fmt: skip


def as_protocol(protocol: Any, parameters: Mapping[str, object] | None = None) -> Protocol:
    """The protocol itself, or the one of that name with these parameters of its own."""
    if isinstance(protocol, Protocol):
        return protocol
    if isinstance(protocol, type) and issubclass(protocol, Protocol):
        raise OptionError(
            f"protocol must be a value, not a class: write {protocol.__name__}(), with parentheses."
        )
    record = find("protocol", protocol)
    known = parameters_of(record.name)
    for key in parameters or ():
        if key not in known:
            raise OptionError(
                f"the protocol {record.name!r} has no parameter {key!r}.{did_you_mean(key, known)} "
                f"There are: {', '.join(known)}."
            )
    made: Protocol = record.make(**(parameters or {}))
    return made


def parameters_of(name: str) -> dict[str, Any]:
    """Parameter -> type, of the protocol of this name; another protocol inside it is none."""
    kind = find("protocol", name).load()
    return {field.name: field.type for field in fields(kind) if field.type is not Protocol}
