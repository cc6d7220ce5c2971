"""Charts to SVG and PNG by vl-convert, in this process where its engine can run here.

It is an extra: a plain install has the script that draws charts in a browser, and no engine of its
own. vl-convert brings V8, which reserves 64 GiB of addresses: under a limit of them (`ulimit -v`)
it ends the process, and no `except` catches that. Its threads do not survive a fork either. In
these two cases an interpreter of its own converts; where that one ends too, the error says why.
"""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from untilt._core.files import replacing
from untilt.errors import MissingExtraError, OptionError

Call = tuple[str, list[Any], dict[str, Any]]  # a function of vl-convert with its arguments

_CHILD = """
import base64, json, sys
import vl_convert
def text(made):
    return made if isinstance(made, str) else {"bytes": base64.b64encode(made).decode()}
calls = json.load(sys.stdin)
print(json.dumps([text(getattr(vl_convert, name)(*given, **more)) for name, given, more in calls]))
"""
_SECONDS = 300
_NO_XML = re.compile("[^\x20-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_IN_THE_WHEEL = Path(__file__).parent / "vega.js"  # put there by tools/build_hook.py
_BESIDE_COMPILED_CODE = Path(__file__).parent / "__pycache__"


class ChartsNotDrawnError(OptionError):
    """The engine that draws charts cannot run under the limits of this process."""


def can_convert() -> bool:
    """Whether vl-convert is installed."""
    return find_spec("vl_convert") is not None


def require_converter(what: str) -> None:
    """Raise where vl-convert is not installed."""
    if not can_convert():
        raise MissingExtraError(what, "vl-convert", "pictures")


def converted(calls: Sequence[Call]) -> list[Any]:
    """What vl-convert makes of each call: text, or bytes of a PNG.

    What XML cannot hold becomes U+FFFD in every text: vl-convert ends the process for it.
    """
    require_converter("drawing a chart as a picture")
    calls = [
        (name, [_as_xml(each) if isinstance(each, dict) else each for each in given], more)
        for name, given, more in calls
    ]
    if not _addresses_are_limited() and _first_process() == os.getpid():
        import vl_convert

        return [getattr(vl_convert, name)(*given, **more) for name, given, more in calls]
    return _converted_outside(calls)


def _as_xml(value: Any) -> Any:
    if isinstance(value, str):
        # A line break would end a text inside an expression.
        return _NO_XML.sub(lambda found: " " if found[0].isspace() else "\ufffd", value)
    if isinstance(value, dict):
        return {_as_xml(key): _as_xml(each) for key, each in value.items()}
    return [_as_xml(each) for each in value] if isinstance(value, list | tuple) else value


@cache
def vega_library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, as vl-convert ships them.

    An installed untilt has the script beside this file. In a checkout vl-convert bundles it, a
    second of work. So the script of a version is kept where Python and numba keep their compiled
    code, and trusted as that is. Where nothing can be written there it is made again.
    """
    with suppress(FileNotFoundError):
        return _IN_THE_WHEEL.read_bytes().decode()
    require_converter("a checkout without a built wheel")
    kept = _BESIDE_COMPILED_CODE / f"vega-of-vl-convert-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        return kept.read_bytes().decode()
    code: str = converted([("javascript_bundle", ["window.vegaEmbed = vegaEmbed;"], {})])[0]
    with suppress(OSError), replacing(kept) as temporary:
        temporary.write_bytes(code.encode())
    return code


@cache
def _first_process() -> int:
    """The process that was the first to convert; a fork copies the answer."""
    return os.getpid()


def _addresses_are_limited() -> bool:
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _converted_outside(calls: Sequence[Call]) -> list[Any]:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD],
            input=json.dumps(calls),
            capture_output=True,
            text=True,
            encoding="utf8",
            timeout=_SECONDS,
            check=True,
        )
        made = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ChartsNotDrawnError(
            "the charts cannot be drawn: the engine that draws them ended, most likely because "
            "the addresses of this process are limited (ulimit -v) and it reserves 64 GiB of "
            "them. Raise that limit, or limit memory by a container. A chart can be saved as .json."
        ) from error
    return [each if isinstance(each, str) else base64.b64decode(each["bytes"]) for each in made]
