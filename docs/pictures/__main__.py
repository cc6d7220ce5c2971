"""Draws the pictures of the documentation anew: `python docs/pictures [NAME ...]`.

Each file beside this one is a picture: its `draw()` computes with a fixed seed and returns a chart,
which is written to docs/images under the file's name.
"""

import sys
from importlib import import_module
from pathlib import Path

from untilt.charts.theme import save_chart

HERE = Path(__file__).resolve().parent
IMAGES = HERE.parent / "images"


def main() -> None:
    """Draw the named pictures, or all."""
    sys.path.insert(0, str(HERE))
    files = (path.stem for path in sorted(HERE.glob("*.py")) if not path.stem.startswith("_"))
    known = [name.replace("_", "-") for name in files]
    named = sys.argv[1:] or known
    unknown = sorted(set(named) - set(known))
    if unknown:
        sys.exit(f"no such picture: {', '.join(unknown)}. There are: {', '.join(known)}.")
    for name in named:
        chart = import_module(name.replace("-", "_")).draw()
        path = save_chart(chart.properties(background="white"), IMAGES / f"{name}.svg")
        print(path.relative_to(HERE.parent.parent))  # noqa: T201


if __name__ == "__main__":
    main()
