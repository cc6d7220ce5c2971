"""Write what is derived from the records of the methods: `python tools/generate.py [stub]`.

stub     src/untilt/__init__.pyi, the public names for type checkers and editors
"""

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
STUB = ROOT / "src/untilt/__init__.pyi"


def stub() -> dict[Path, str]:
    """One import per public name, sorted by its module."""
    import untilt

    homes = untilt._homes() | {"UntiltError": "untilt.errors", "__version__": "untilt._version"}
    # As ruff sorts: by module, then constants, classes, functions.
    names = sorted(homes, key=lambda name: (homes[name], not name.isupper(), name.islower(), name))
    lines = [f"from {homes[name]} import {name} as {name}" for name in names]
    return {STUB: "# Written by `make stub`.\n" + "\n".join(lines) + "\n"}


WRITERS: dict[str, Callable[[], dict[Path, str]]] = {"stub": stub}


def main(wanted: list[str]) -> None:
    """Write the files of these parts, of all where none is named."""
    for name in wanted or WRITERS:
        for path, text in WRITERS[name]().items():
            path.write_text(text, encoding="utf8")
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
