"""What comes back from workers: a ranker as its own file."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from untilt._core.saved import load
from untilt.errors import OptionError
from untilt.rankers.trees.lambdamart import LambdaMART


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
