"""LightGBM's own text, with the ranker's feature names and an objective that other readers know."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.catalog import method
from untilt.exports.format import ExportFiles, Format, Target
from untilt.exports.forms import Forest, SingleArray

_FORBIDDEN = re.compile(r"""[\s",:\[\]{}=]""")
_OBJECTIVE = "objective=lambdarank"


@method(
    "export", "lightgbm", title="LightGBM", order=20, default=True, public=False,
    note="text that lightgbm.Booster loads; trees",
)  # fmt: skip
@dataclass(frozen=True)
class LightGBMText(Format):
    """`lightgbm.Booster(model_file=path)` gives the very scores of `predict`."""

    endings: ClassVar[Mapping[type[Any], str]] = {Forest: ".txt"}

    def files(self, form: Forest, target: Target) -> ExportFiles:  # noqa: ARG002
        """The text alone."""
        return ExportFiles(with_objective(_with_names(form.text, form.names)))

    def scores(self, path: Path, names: tuple[str, ...], features: SingleArray) -> FloatArray:  # noqa: ARG002
        """LightGBM, which is here."""
        import lightgbm

        booster = lightgbm.Booster(model_file=path)
        return np.asarray(booster.predict(features, num_threads=1), np.float64)


def with_objective(text: str) -> str:
    """The text with an objective, which LightGBM itself does not need.

    Boosters of an objective of our own have none. Vespa's importer, onnxmltools, lleaves and JPMML
    fail without. The scores of lambdarank are the sums of the trees as they are.
    """
    head, mark, tail = text.partition("\nTree=")
    lines = [line for line in head.split("\n") if not line.startswith("objective=")]
    at = next(n for n, line in enumerate(lines) if line.startswith("max_feature_idx="))
    return "\n".join([*lines[: at + 1], _OBJECTIVE, *lines[at + 1 :]]) + mark + tail


def _with_names(text: str, names: tuple[str, ...]) -> str:
    """The ranker's feature names in place of Column_0, Column_1, ...

    The text separates names by spaces and LightGBM refuses JSON's special characters in them.
    """
    if len(set(names)) < len(names) or any(_FORBIDDEN.search(name) or not name for name in names):
        return text
    named = f"feature_names={' '.join(names)}"
    text = re.sub(r"(?m)^feature_names=.*$", lambda _: named, text, count=1)
    head, mark, tail = text.partition("\nfeature_importances:\n")
    tail = re.sub(r"(?m)^Column_(\d+)=", lambda found: f"{names[int(found[1])]}=", tail)
    return head + mark + tail
