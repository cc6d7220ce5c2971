"""Protocols of a simulation by name, with parameters from the command line."""

from collections.abc import Sequence
from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from untilt.errors import OptionError

if TYPE_CHECKING:
    from untilt.simulation.protocols import Protocol


class ProtocolName(StrEnum):
    """How readers behave; tests hold these together with `ALL_PROTOCOLS`."""

    PRS = "prs"
    DLA = "dla"
    CASCADE = "cascade"
    TRUST = "trust"
    DWELL = "dwell"
    SWAP = "swap"
    SHUFFLE = "shuffle"
    HARVEST = "harvest"


def protocol_of(name: str, parameters: Sequence[str] | None) -> "Protocol":
    """The protocol of this name with NAME=VALUE parameters."""
    from untilt._core.suggest import did_you_mean
    from untilt.simulation.protocols import as_protocol

    kind: Any = type(as_protocol(name))
    known = {field.name: _READERS[field.type] for field in fields(kind) if field.type in _READERS}
    values: dict[str, Any] = {}
    for pair in parameters or ():
        key, _, text = pair.partition("=")
        if key not in known:
            raise OptionError(
                f"protocol {name} has no parameter {key!r}.{did_you_mean(key, known)} "
                f"It has: {', '.join(known)}."
            )
        values[key] = _read(known[key], key, text)
    made: Protocol = kind(**values)
    return made


def _read(reader: Any, key: str, text: str) -> Any:
    try:
        return reader(text)
    except (ValueError, KeyError):
        raise OptionError(f"--parameter {key}={text}: {text!r} is no value for {key}.") from None


def _truth_value(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


# Parameters that a command line can hold; curves and nested protocols are for Python.
_READERS: dict[Any, Any] = {
    float: float,
    float | None: float,
    int: int,
    int | None: int,
    bool: _truth_value,
}
