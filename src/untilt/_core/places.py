"""Where results may go: never onto what is read, nor onto files that somebody wants to keep."""

import glob
import os
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path

from untilt._core.files import clear_unfinished
from untilt.errors import OptionError


def refuse_inputs(written: Iterable[str | os.PathLike[str]], read: Iterable[object]) -> None:
    """Raise where a file that will be written is one that is read, or lies in a folder that is.

    Files are told apart by what they are, not by how they are called: links, hard links and other
    spellings are seen through. Two results in one place are refused, too.

    Parameters
    ----------
    written : files; with a slash at the end, folders in which everything may be written
    read : paths, patterns, lists of them, pairs (database, table); anything else is passed over
    """
    places = [os.fspath(each) for each in written]
    for one, other in combinations(places, 2):
        if _same(one, other):
            raise OptionError(f"{one} is to hold two results. Give each its own name.")
    for source in _files(read):
        for place in places:
            reason = _clash(place, source)
            if reason:
                raise OptionError(
                    f"the results would go to {place}, and {source} {reason}. Choose another place "
                    "for them."
                )


def refuse_taken(folder: Path, names: Iterable[str], *, force: bool) -> None:
    """Raise where one of these files lies in the folder, unless it may be replaced."""
    clear_unfinished(folder)
    taken = [name for name in names if os.path.lexists(folder / name)]
    if taken and not force:
        raise OptionError(
            f"{folder} already holds {', '.join(taken)}. Choose another folder, or "
            "⟦pass force=True⟧ to replace them."
        )


def _clash(place: str, source: str) -> str:
    """What is wrong with writing to a place; "" where nothing is."""
    where, found = Path(os.path.realpath(place)), Path(os.path.realpath(source))
    if _same(place, source):
        return "is what is read"
    if os.path.isdir(source) and found in _as_named(place).parents:
        return "is a folder that is read, with all that lies in it"
    # A link in our own folder would go, though not what it points to.
    named = (*found.parents, *_as_named(source).parents)
    if place.endswith(("/", os.sep)) and where in named:
        return "is read from there"
    return ""


def _as_named(place: str) -> Path:
    """The real path of a file that is to be; a link in its place would be replaced."""
    folder, name = os.path.split(place.rstrip("/" + os.sep))
    return Path(os.path.realpath(folder or os.curdir), name)


def _same(one: str, other: str) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them does not exist
        return False


def _files(read: Iterable[object]) -> Iterator[str]:
    """Every file or folder that exists behind what is read."""
    for each in read:
        if isinstance(each, tuple | list):
            yield from _files(each)
        elif isinstance(each, str | os.PathLike):
            text = os.fsdecode(os.fspath(each))
            if "\0" in text or not text:
                continue
            if os.path.lexists(text):
                yield text
            elif glob.has_magic(text):
                yield from glob.iglob(text, recursive=True)
