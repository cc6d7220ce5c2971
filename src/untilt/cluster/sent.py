"""What goes to workers and comes back: options of reading, and a ranker as its own file."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

from untilt._core.arrays import Missing
from untilt._core.saved import load
from untilt.errors import OptionError
from untilt.rankers.trees.lambdamart import LambdaMART


class Reading(TypedDict, total=False):
    """The options of `read_log` that workers take."""

    columns: Mapping[str, str | None] | None
    label: str
    labels: Sequence[str]
    features: str | Sequence[str] | None
    positions_from: Literal[0, 1] | None
    missing: Missing
    text_ids: bool
    on_bad: Literal["raise", "drop"]


def model_bytes(ranker: LambdaMART) -> bytes:
    """The file that `save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ranker.untilt")
        ranker.save(path)
        return path.read_bytes()


def ranker_of(models: Sequence[bytes]) -> LambdaMART:
    """The ranker that the first worker sent."""
    if len(models) != 1:
        raise OptionError(f"one worker sends the ranker, and {len(models)} did. Look at its log.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ranker.untilt")
        path.write_bytes(models[0])
        found = load(path)
    assert isinstance(found, LambdaMART)
    return found
