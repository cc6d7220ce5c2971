"""The experiments that come with untilt, and files of one's own."""

import tomllib
from importlib.resources import files
from pathlib import Path

from untilt._core.suggest import did_you_mean
from untilt.errors import FileFormatError, OptionError
from untilt.experiments.schema import Experiment, parse

SUFFIX = ".toml"


def names() -> tuple[str, ...]:
    """Names of the experiments that come with untilt, sorted."""
    folder = files("untilt.experiments") / "catalogue"
    found = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX)))


def load(name: str) -> Experiment:
    """An experiment by its name, or from a file of one's own that ends in .toml."""
    if name.endswith(SUFFIX):
        path = Path(name)
        return _parsed(path.read_text(encoding="utf8"), name, path.stem)
    if name not in names():
        raise OptionError(
            f"there is no experiment {name!r}.{did_you_mean(name, names())} "
            f"There are: {', '.join(names())}; a file of your own ends in {SUFFIX}."
        )
    text = (files("untilt.experiments") / "catalogue" / f"{name}{SUFFIX}").read_text("utf8")
    return _parsed(text, f"{name}{SUFFIX}", name)


def _parsed(text: str, where: str, name: str) -> Experiment:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{where} is not TOML: {error}. Mend that place.") from error
    table.setdefault("name", name)
    return parse(table, where=where)
