"""What is fed with damaged inputs: the list of doors, which `doors_*.py` fill.

A target makes one input in a folder and uses it. An `UntiltError` is a refusal; anything else that
is raised, and is not among the target's `documented`, is a failure. What is accepted is used, too:
a model that loads must predict or refuse, figures must become a page, a log must be audited.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Target:
    """One door. `weight` is its share of the inputs; `attempt(corpus, folder, rng)` tries one."""

    name: str
    weight: int
    attempt: Callable[[Path, Path, random.Random], None]
    documented: tuple[type[Exception], ...] = ()
    quick: bool = True  # part of the short run in `make test`


TARGETS: dict[str, Target] = {}


def target(name: str, weight: int, **more: Any) -> Any:
    """Register a door."""

    def add(attempt: Any) -> Any:
        TARGETS[name] = Target(name, weight, attempt, **more)
        return attempt

    return add


def written(path: Path, data: bytes) -> Path:
    """The path, with this in it."""
    path.write_bytes(data)
    return path


class RefusedError(Exception):
    """The command line said no, with exit code 2."""


class WrongResultError(Exception):
    """A damaged input gave another result, and nobody said so."""


def all_targets() -> dict[str, Target]:
    """Every door."""
    for module in ("tables", "models", "records", "runs"):
        import_module(f"tests.fuzz.doors_{module}")
    return TARGETS
