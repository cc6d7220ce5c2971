r"""C: one file without dependencies, for anything that links or loads C.

The trees are tables and the walk is one loop, so that a thousand trees compile in a second. Splits
are x <= cut in single precision, leaves are added in double precision in LightGBM's order: the
scores are those of `predict` to the last bit.
"""

import ctypes
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any, ClassVar

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.files import scratch_folder
from untilt._version import __version__
from untilt.catalog import method
from untilt.errors import FileFormatError, OptionError
from untilt.exports.format import ExportFiles, Format, Target
from untilt.exports.forms import Forest, LinearForm, SingleArray

_WALK = """\
double {name}_score(const float *x) {{
    double score = 0.0;
    for (int tree = 0; tree < {n_trees}; ++tree) {{
        int node = root[tree];
        while (node >= 0) {{
            const float value = x[feature[node]];
            const int to_left = value != value ? nan_left[node] : value <= cut[node];
            node = to_left ? left[node] : right[node];
        }}
        score += leaf[~node];
    }}
    return score;
}}
"""
_SUM = """\
double {name}_score(const float *x) {{
    double score = {constant};
    for (int j = 0; j < {n_features}; ++j) {{
        const float value = {value};
        score += weight[j] * (double)value;
    }}
    return score;
}}
"""


@method(
    "export", "c", title="C", order=40, default=True, public=False,
    note="one file of C without dependencies; trees and linear rankers",
)  # fmt: skip
@dataclass(frozen=True)
class CCode(Format):
    """`double NAME_score(const float *x)`, NaN for a missing feature, and a header."""

    endings: ClassVar[Mapping[type[Any], str]] = {Forest: ".c", LinearForm: ".c"}

    def files(self, form: Forest | LinearForm, target: Target) -> ExportFiles:
        """The code and its header."""
        name = identifier(target.name)
        body = _linear(form, name) if isinstance(form, LinearForm) else _trees(form, name)
        columns = "".join(f" *   x[{n}]  {_comment(each)}\n" for n, each in enumerate(form.names))
        header = (
            f"/* Written by untilt {__version__}. Scores of one document; NaN is a missing value.\n"
            f"{columns} */\n#ifndef {name.upper()}_H\n#define {name.upper()}_H\n"
            f'#ifdef __cplusplus\nextern "C" {{\n#endif\n'
            f"#define {name.upper()}_FEATURES {len(form.names)}\n"
            f"double {name}_score(const float *x);\n"
            f"#ifdef __cplusplus\n}}\n#endif\n#endif\n"
        )
        code = _head(name, target.beside(".h")) + body
        return ExportFiles(code, beside={".h": header}, commands=_commands(target))

    def scores(self, path: Path, names: tuple[str, ...], features: SingleArray) -> FloatArray:  # noqa: ARG002
        """The code, compiled by the system's compiler in a folder of its own."""
        compiler = next((found for name in ("cc", "gcc", "clang") if (found := which(name))), None)
        if compiler is None:
            raise OptionError(
                "the check compiles the C code, and this machine has no compiler (cc, gcc, "
                "clang). Install one, or check on a machine that has one."
            )
        name = re.search(r"^double (\w+)_score\(", path.read_text(encoding="utf-8"), re.MULTILINE)
        if name is None:
            raise FileFormatError(f"{path} has no function that scores. Export it again.")
        with scratch_folder() as folder:
            library = folder / "model.so"
            command = [
                compiler, "-O1", "-std=c99", "-shared", "-fPIC", "-o", str(library), str(path),
            ]  # fmt: skip
            done = subprocess.run([*command, "-lm"], capture_output=True, text=True, check=False)
            if done.returncode:
                raise FileFormatError(f"{path} cannot be compiled: {done.stderr.strip()[:500]}")
            score = ctypes.CDLL(str(library))[f"{name[1]}_score"]
            score.restype, score.argtypes = ctypes.c_double, [ctypes.c_void_p]
            rows = np.ascontiguousarray(features, np.float32)
            return np.array([score(row.ctypes.data) for row in rows], np.float64)


def identifier(name: str) -> str:
    """A name of C."""
    plain = name.replace("-", "_")
    return plain if not plain[0].isdigit() else f"model_{plain}"


def _trees(forest: Forest, name: str) -> str:
    """Nodes of all trees one after the other; child c < 0 is leaf ~c of all leaves."""
    splits = np.cumsum([0, *(tree.n_splits for tree in forest.trees)])
    leaves = np.cumsum([0, *(len(tree.leaf) for tree in forest.trees)])
    sides: dict[str, list[int]] = {"left": [], "right": []}
    roots = []
    for tree, s, l in zip(forest.trees, splits, leaves, strict=False):  # noqa: E741
        roots.append(s if tree.n_splits else ~l)
        for side, child in (("left", tree.left), ("right", tree.right)):
            sides[side] += np.where(child >= 0, child + s, child - l).tolist()
    joined = {
        field: np.concatenate([getattr(tree, field) for tree in forest.trees])
        for field in ("feature", "cut", "nan_left", "leaf")
    }
    tables = [
        _table("int", "root", roots),
        _table("int", "feature", joined["feature"].tolist()),
        _table("float", "cut", map(_single, joined["cut"])),
        _table("unsigned char", "nan_left", joined["nan_left"].astype(int).tolist()),
        _table("int", "left", sides["left"]),
        _table("int", "right", sides["right"]),
        _table("double", "leaf", map(float.hex, joined["leaf"].tolist())),
    ]
    return "\n".join(tables) + "\n" + _WALK.format(name=name, n_trees=len(roots))


def _linear(form: LinearForm, name: str) -> str:
    fill = form.fill
    value = "x[j]" if fill is None else f"x[j] != x[j] ? {_single(np.float32(fill))} : x[j]"
    weights = _table("double", "weight", map(float.hex, form.weights.tolist()))
    constant = float(form.constant).hex()
    score = _SUM.format(name=name, constant=constant, n_features=len(form.names), value=value)
    return weights + "\n" + score


def _head(name: str, header: str) -> str:
    return (
        f"/* Written by untilt {__version__}: double {name}_score(const float *x). Build without\n"
        f"   -ffast-math, which makes missing values numbers. C99. */\n"
        f'#include <math.h>\n#include "{header}"\n\n'
    )


def _table(kind: str, name: str, values: Iterable[object]) -> str:
    """At least one entry: C has no empty tables."""
    texts = [str(value) for value in values] or ["0"]
    lines = (", ".join(texts[k : k + 12]) for k in range(0, len(texts), 12))
    body = ",\n    ".join(lines)
    return f"static const {kind} {name}[{len(texts)}] = {{\n    {body}\n}};\n"


def _single(value: np.float32) -> str:
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{float(value).hex()}f"


def _comment(text: str) -> str:
    """Nothing in a name ends a comment or goes on in the next line."""
    return " ".join(text.split()).replace("*/", "* /").replace("/*", "/ *").replace("\\", "/")


def _commands(target: Target) -> tuple[str, ...]:
    name = identifier(target.name)
    return (
        f"cc -O2 -shared -fPIC -o lib{name}.so {target.path.name} -lm",
        f'# and in C: #include "{target.beside(".h")}", then {name}_score(features)',
    )
