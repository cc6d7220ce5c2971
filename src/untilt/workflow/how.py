"""How a result came about: enough to do it again."""

import os
import platform
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from untilt._version import __version__
from untilt.report.decision import HowComputed, Step
from untilt.workflow.options import RunOptions
from untilt.workflow.steps import Done

PACKAGES = ("numpy", "scipy", "numba", "lightgbm", "duckdb")


def how_computed(
    options: RunOptions, done: Iterable[Done], sizes: dict[str, int], *, command: str
) -> HowComputed:
    """Versions, options, machine and the seconds of each step."""
    return HowComputed(
        command=command,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=options.seed,
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        versions={
            "untilt": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in PACKAGES},
        },
        options={
            field.name: _text(getattr(options, field.name))
            for field in fields(options)
            if getattr(options, field.name) is not None
        },
        sizes=sizes,
        steps=tuple(
            Step(step.name, step.seconds, "by an earlier run" if step.resumed else "")
            for step in done
        ),
    )


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    text = str(value)
    return text if len(text) <= 200 and "\n" not in text else f"a {type(value).__name__}"
