"""The options of a run as a file: TOML that starts the same run again, from any folder."""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from untilt._core.addresses import is_address, shown
from untilt._core.declared import declared
from untilt._core.paths import check_name, is_utf8
from untilt.data.read.ubi import Ubi
from untilt.errors import FileFormatError, OptionError, did_you_mean
from untilt.workflow.options import RunOptions, RunSettings

PLACES = ("log", "out")  # what a file of options may name beside them
_PATHS = ("log", "out", "documents")
OBJECT = "<an object of Python>"
_MOST_BYTES = 1 << 20  # of a file of options


def with_title(options: RunOptions, source: Any) -> RunOptions:
    """The options with a title: the file's name where none was given."""
    if options.title is not None:
        return options
    source = source.queries if isinstance(source, Ubi) else source
    named = isinstance(source, str | os.PathLike)
    if is_address(source):
        source = shown(os.fspath(source)).partition("?")[0]
    name = os.path.basename(os.path.normpath(os.fspath(source))) if named else ""
    return replace(options, title=name or "click log")


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options of a TOML file; paths in it are relative to the file. Unknown keys are errors."""
    file = Path(path)
    known = [*PLACES, *declared(RunSettings)]
    named = {name.replace("-", "_"): value for name, value in read_toml(file).items()}
    for name in named:
        if name not in known:
            raise OptionError(
                f"{path} has an unknown key {name!r}.{did_you_mean(name, known)} "
                f"Keys: {', '.join(known)}."
            )
    for name in _PATHS:
        if name in named:
            named[name] = _resolved(named[name], file.parent)
    if isinstance(named.get("bias"), str) and (file.parent / named["bias"]).is_file():
        named["bias"] = str(file.parent / named["bias"])
    if isinstance(named.get("columns"), dict):
        named["columns"] = {ours: theirs or None for ours, theirs in named["columns"].items()}
    return named


def read_toml(file: Path) -> dict[str, Any]:
    """What a TOML file holds."""
    check_name(file)
    try:
        with file.open("rb") as content:
            return tomllib.loads(content.read(_MOST_BYTES).decode())
    # Not only TOMLDecodeError: a number of 5,000 digits, a list in lists without end.
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"{file} is not TOML: {error}. Write one option a line, such as trees = 100."
        ) from error


def _resolved(place: Any, folder: Path) -> Any:
    """Paths of a file of options, seen from where the program runs."""
    if isinstance(place, dict) and set(place) == {"database", "table"}:
        if not all(isinstance(each, str) for each in place.values()):
            raise OptionError(
                f"database and table must be a name or a list of names. Got {place!r} instead."
            )
        return _resolved(place["database"], folder), place["table"]
    if isinstance(place, dict) and {"queries", "events"} <= set(place):
        queries, events = (_resolved(place[name], folder) for name in ("queries", "events"))
        return Ubi(queries, events, place.get("hits_shown"))
    if isinstance(place, list):
        return [_resolved(each, folder) for each in place]
    if not isinstance(place, str):
        raise OptionError(
            "log, out and documents must name a file, several, or { database, table }; log also an "
            "export of UBI, { queries, events, hits_shown }. "
            f"Got {place!r}."
        )
    return place if place == OBJECT or is_address(place) else str(folder / place)


def config_text(options: RunOptions, *, log: Any = None) -> str:
    """TOML that gives these options again, from any folder.

    Paths are absolute. A bias that was an object is the bias.json beside the file; any other object
    of Python, or a path that is not UTF-8, is `OBJECT`, which a run that is given the file refuses.
    """
    values = {"log": log, **options.pick(*declared(RunSettings))}
    values |= {name: _absolute(values[name]) for name in ("log", "documents", "grades")}
    if not isinstance(options.bias, str):
        values["bias"] = "bias.json"
    elif Path(options.bias).is_file():
        values["bias"] = os.path.abspath(options.bias)
    entries = [_entry(name, value) for name, value in values.items() if value is not None]
    # Tables come last: in TOML every line below belongs to them.
    return "\n".join(sorted(entries, key=lambda entry: entry.startswith("["))) + "\n"


def _absolute(source: Any) -> Any:
    """Where a log or a table of documents lies; an object that is no place stays as it is.

    An address is written without its password.
    """
    if is_address(source):
        return shown(os.fspath(source))
    if isinstance(source, str | os.PathLike):
        return os.path.abspath(source)
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], str | os.PathLike):
        return {"database": _absolute(source[0]), "table": source[1]}
    if isinstance(source, Ubi):
        both = {"queries": _absolute(source.queries), "events": _absolute(source.events)}
        most = {} if source.hits_shown is None else {"hits_shown": source.hits_shown}
        return both | most if all(_value(each) is not None for each in both.values()) else source
    return [_absolute(each) for each in source] if isinstance(source, list) else source


def _entry(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        # TOML has no null: a column that is left out is called "".
        rows = [f"{json.dumps(str(k))} = {_value(v if v is not None else '')}"
                for k, v in value.items()]  # fmt: skip
        return "\n".join([f"[{name}]", *rows])
    written = _value(value)
    return f"{name} = {_value(OBJECT) if written is None else written}"


def _value(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | os.PathLike):
        # JSON's strings are TOML's basic strings; TOML has none for a name that is no text.
        text = os.fspath(value)
        return json.dumps(text, ensure_ascii=False) if is_utf8(text) else None
    if isinstance(value, list | tuple):
        parts = [_value(each) for each in value]
        return None if None in parts else "[" + ", ".join(str(part) for part in parts) + "]"
    return None
