"""A linear ranker as JSON: one weight a feature, for any system that can multiply and add."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._version import __version__
from untilt.catalog import method
from untilt.exports.format import ExportFiles, Format, Target
from untilt.exports.forms import LinearForm, SingleArray, read_json

FORMAT = "untilt linear ranker"
VERSION = 1


@method(
    "export", "linear", title="a JSON of weights", order=30, default=True, public=False,
    note="weights of features as they are; linear rankers",
)  # fmt: skip
@dataclass(frozen=True)
class LinearJson(Format):
    """The score is the sum of weight times feature, without an intercept.

    It differs from `predict` by a constant, which no ranking can see. "missing" is the value that a
    missing feature counts as; where `predict` refuses it, the file says nothing about it.
    """

    endings: ClassVar[Mapping[type[Any], str]] = {LinearForm: ".json"}
    adds_constant: ClassVar[bool] = False

    def files(self, form: LinearForm, target: Target) -> ExportFiles:  # noqa: ARG002
        """The weights alone."""
        weights = zip(form.names, form.weights.tolist(), strict=True)
        record = {
            "format": FORMAT,
            "version": VERSION,
            "untilt": __version__,
            "kind": form.kind,
            "score": "sum of weight * feature",
            **({} if form.fill is None else {"missing": form.missing}),
            "features": [{"name": name, "weight": weight} for name, weight in weights],
        }
        return ExportFiles(json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False) + "\n")

    def scores(self, path: Path, names: tuple[str, ...], features: SingleArray) -> FloatArray:
        """The sum of weight times feature, as the file says."""
        record = read_json(path)
        weights = {each["name"]: each["weight"] for each in record["features"]}
        rows = features.astype(np.float64)
        if "missing" in record:
            rows = np.where(np.isnan(rows), np.float32(record["missing"]), rows)
        total: FloatArray = rows @ np.array([weights[name] for name in names], np.float64)
        return total
