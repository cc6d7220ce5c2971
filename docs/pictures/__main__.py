"""Draws the pictures of the documentation anew: `python docs/pictures [NAME ...]`.

Each file beside this one is a picture: its `draw()` computes with a fixed seed and returns a chart,
which is written to docs/images under the file's name.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Behind all packages: a picture may have the name of one, such as coverage.
sys.path[:] = [each for each in sys.path if Path(each).resolve() != HERE] + [str(HERE)]

from untilt.charts.theme import save_chart  # noqa: E402

IMAGES = HERE.parent / "images"


def picture(name: str) -> Any:
    """The module of a picture, by its file."""
    spec = spec_from_file_location(f"picture_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Draw the named pictures, or all."""
    files = (path.stem for path in sorted(HERE.glob("*.py")) if not path.stem.startswith("_"))
    known = [name.replace("_", "-") for name in files]
    named = sys.argv[1:] or known
    unknown = sorted(set(named) - set(known))
    if unknown:
        sys.exit(f"no such picture: {', '.join(unknown)}. There are: {', '.join(known)}.")
    for name in named:
        chart = picture(name.replace("-", "_")).draw()
        path = save_chart(chart.properties(background="white"), IMAGES / f"{name}.svg")
        print(path.relative_to(HERE.parent.parent))  # noqa: T201


if __name__ == "__main__":
    main()
