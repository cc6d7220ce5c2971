"""A TOML file that holds the options of a run, and the same file written by a run."""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from untilt._core.suggest import did_you_mean
from untilt.errors import FileFormatError, OptionError
from untilt.workflow.options import RunOptions

# Beside the options: what a command names on its own.
PLACES = ("log", "out")
_PATHS = ("log", "out", "documents")


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options of a TOML file; paths in it are relative to the file. Unknown keys are errors."""
    file = Path(path)
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"{path} is no TOML: {error}. Write one option a line, such as trees = 100."
        ) from error
    known = [*PLACES, *(field.name for field in fields(RunOptions))]
    named = {name.replace("-", "_"): value for name, value in found.items()}
    for name in named:
        if name not in known:
            raise OptionError(
                f"{path} has an unknown key {name!r}.{did_you_mean(name, known)} "
                f"Keys: {', '.join(known)}."
            )
    for name in _PATHS:
        if isinstance(named.get(name), str):
            named[name] = str(file.parent / named[name])
    if isinstance(named.get("bias"), str) and (file.parent / named["bias"]).is_file():
        named["bias"] = str(file.parent / named["bias"])
    return named


def config_text(options: RunOptions, **places: Any) -> str:
    """TOML that gives these options again; what is no plain value stands as a comment."""
    values = {**places, **{f.name: getattr(options, f.name) for f in fields(RunOptions)}}
    lines = [_line(name, value) for name, value in values.items() if value is not None]
    # Tables come last: in TOML every line below belongs to them.
    return "\n".join(sorted(lines, key=lambda line: line.startswith("["))) + "\n"


def _line(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        rows = [f"{json.dumps(str(k))} = {_value(v)}" for k, v in value.items() if v is not None]
        return "\n".join([f"[{name}]", *rows])
    written = _value(value)
    return f"# {name}: an object of Python" if written is None else f"{name} = {written}"


def _value(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | os.PathLike):
        # JSON's strings are TOML's basic strings.
        return json.dumps(os.fspath(value), ensure_ascii=False)
    if isinstance(value, list | tuple):
        parts = [_value(each) for each in value]
        return None if None in parts else "[" + ", ".join(str(part) for part in parts) + "]"
    return None
