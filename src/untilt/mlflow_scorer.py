"""Scores of an exported ranker as MLflow's `python_function`; logged as code, beside the model.

It stands by itself: NumPy, and LightGBM or onnxruntime where the model is one of theirs. Whoever
loads the logged model needs no untilt, and nothing is unpickled.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


def _trees(path: str) -> Callable[[Any], Any]:
    import lightgbm

    return lightgbm.Booster(model_file=path).predict


def _linear(path: str) -> Callable[[Any], Any]:
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    weights = np.array([each["weight"] for each in record["features"]], dtype=np.float64)
    missing = record.get("missing")

    def scores(rows: Any) -> Any:
        wide = rows.astype(np.float64)
        if missing is not None:
            wide = np.where(np.isnan(wide), np.float32(missing), wide)
        return wide @ weights

    return scores


def _network(path: str) -> Callable[[Any], Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    return lambda rows: session.run(None, {given.name: rows})[0].reshape(-1)


ENGINES = {".txt": _trees, ".json": _linear, ".onnx": _network}


class Scorer(PythonModel):
    """A data frame with the features by name, or an array with them in order -> scores."""

    def load_context(self, context: Any) -> None:
        """Read the model and the names of its features."""
        about = json.loads(Path(context.artifacts["about"]).read_text(encoding="utf-8"))
        self.names = about["features"]
        self.scores = ENGINES[Path(context.artifacts["model"]).suffix](context.artifacts["model"])

    # MLflow would take annotations for a schema of the rows.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # noqa: ARG002
        """One score for each row; a higher one ranks before a lower one."""
        if hasattr(model_input, "columns"):
            lacking = [name for name in self.names if name not in model_input.columns]
            if lacking:
                raise ValueError(f"features are missing: {', '.join(lacking)}")
            model_input = model_input[self.names].to_numpy()
        rows = np.ascontiguousarray(model_input, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != len(self.names):
            raise ValueError(f"rows need {len(self.names)} features. Got shape {rows.shape}")
        return np.asarray(self.scores(rows), dtype=np.float64)


set_model(Scorer())
