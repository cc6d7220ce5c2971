"""Rankers from files: `untilt.load`, for those who need a ranker and nothing else."""

import os
from typing import Any

from untilt._core import saved
from untilt._core.saved import register, save
from untilt.errors import FileFormatError
from untilt.rankers.base import Ranker

__all__ = ["load", "register", "save"]


def load(path: str | os.PathLike[str]) -> Any:
    """The ranker that `save` wrote. Raises `FileFormatError` if the file is anything else."""
    found = saved.load(path)
    if not isinstance(found, Ranker):
        raise FileFormatError(
            f"{path} cannot be loaded: it holds a {type(found).__name__}, which is no ranker. Give "
            "the file of a ranker, written with ranker.save(path)."
        )
    return found
