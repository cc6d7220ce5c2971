"""A row of the coverage table: an interval of the package, and the truth it should hold."""

from collections.abc import Callable
from dataclasses import dataclass

from coverage_world import SCENARIOS, Array, Made

ALL = tuple(SCENARIOS)


@dataclass(frozen=True)
class Ends:
    """The ends of a row's intervals and the truth, one for each position, system or figure."""

    low: Array
    high: Array
    truth: Array


Measure = Callable[[Made], Ends | None]


@dataclass(frozen=True)
class Row:
    """One line of the table. It measures one log of its study: the ends of its intervals.

    None says that the method gives no interval there; an `UntiltError` is a refusal.

    study : the kind of log, see `coverage_world`; covers : (kind, name) of a record of the
    catalogue that it stands for; share : of the replications, for what takes long; bounds : no
    sampling interval, so that it may hold the truth always
    """

    name: str
    group: str
    study: str
    measure: Measure
    covers: tuple[str, str] | None = None
    share: float = 1.0
    scenarios: tuple[str, ...] = ALL
    bounds: bool = False
