"""Runs and rankers in MLflow: options, figures with the ends of their intervals, report and scorer.

The logged model is MLflow's `python_function`, as code (`mlflow_scorer.py`) beside the exported
model: LightGBM's text, weights as JSON, or ONNX. Whoever loads it needs no untilt, and MLflow
unpickles nothing.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from untilt._core.optional import explained_import
from untilt._version import __version__
from untilt.bias.curve import PositionBias
from untilt.evaluation.results import Estimate, SystemDifference
from untilt.exports.format import export_model
from untilt.exports.forms import Forest, LinearForm, form_of
from untilt.rankers.base import Ranker
from untilt.workflow.folder import RunFolder
from untilt.workflow.run import RunResult

# What a form is written as, by its ending, and who reads that; networks are ONNX.
_WRITTEN: dict[type[Any], tuple[str, str]] = {
    Forest: (".txt", "lightgbm"),
    LinearForm: (".json", "numpy"),
}
_LONGEST = 500  # characters of a parameter; MLflow's own limit
_SCORER = Path(__file__).with_name("mlflow_scorer.py")


def log_run(result: RunResult, *, model: str = "ranker") -> str:
    """Log a finished run to MLflow's active run, or to a new one; returns the id of that run.

    Parameters are the options of the run. Metrics are the value of the new order, that of the shown
    one and their difference, each with the ends of its interval (`_low`, `_high`), and the
    examination of each position, with the position as step. Artifacts are the report, the figures,
    the curve, the rankers as untilt saves them and the model card. The model named `model` scores
    without untilt; there is none where the old order is kept.
    """
    with explained_import("logging a run"):
        import mlflow

    folder, ranker = RunFolder(result.folder), result.ranker
    with _run() as run:
        mlflow.set_tags(_tags(result))
        mlflow.log_params(_params(result))
        mlflow.log_metrics(metrics_of(result))
        _log_examination(result.bias)
        kept = (folder.ranker, folder.candidate, folder.card)
        for path in (folder.report, folder.figures, folder.bias, *kept):
            if path.exists():
                mlflow.log_artifact(os.fspath(path))
        if ranker is not None:
            log_ranker(ranker, model)
        return str(run.info.run_id)


def log_ranker(ranker: Ranker, name: str = "ranker") -> Any:
    """Log a fitted ranker as a model of the active run; returns MLflow's description of it."""
    with explained_import("logging a ranker"):
        import mlflow.pyfunc

    with _described(ranker) as options:
        return mlflow.pyfunc.log_model(name=name, **options)


def save_ranker(ranker: Ranker, path: str | os.PathLike[str]) -> Path:
    """Write a fitted ranker as a folder that `mlflow.pyfunc.load_model` reads."""
    with explained_import("writing a ranker for MLflow"):
        import mlflow.pyfunc

    with _described(ranker) as options:
        mlflow.pyfunc.save_model(path=os.fspath(path), **options)
    return Path(path)


def _log_examination(bias: PositionBias) -> None:
    import mlflow

    for name, each in (bias.contexts or {"": bias}).items():
        of = re.sub(r"[^\w ./-]+", " ", f"examination {name}".strip())  # what MLflow takes as names
        for k in each.positions(each.known_depth):
            ends = each.interval(k)
            figures = {of: float(each.at(k)), f"{of}_low": ends.low, f"{of}_high": ends.high}
            known = figures if each.has_interval else {of: figures[of]}
            mlflow.log_metrics({n: x for n, x in known.items() if isfinite(x)}, step=k)


def metrics_of(result: RunResult) -> dict[str, float]:
    """The figures of a run by the names that they have in MLflow."""
    answer = result.decision.answer
    if answer is None:
        return {}
    name = answer.new.metric.replace("@", "_at_")
    found: dict[str, float] = {}
    parts: dict[str, Estimate | SystemDifference] = {
        name: answer.new,
        f"{name}_shown": answer.shown,
        f"{name}_difference": answer.difference,
    }
    for each, value in parts.items():
        ends = {"": value.value, "_low": value.interval.low, "_high": value.interval.high}
        found |= {f"{each}{ending}": float(x) for ending, x in ends.items() if isfinite(x)}
    found["held_out_sessions"] = float(answer.new.n_sessions)
    found["held_out_queries"] = float(answer.new.n_queries)
    return found


def _tags(result: RunResult) -> dict[str, str]:
    answer, shipped = result.decision.answer, result.decision.candidate
    tags = {"untilt.version": __version__, "untilt.bias": result.bias_kind}
    if answer is not None:
        tags["untilt.verdict"] = answer.verdict
    if shipped is not None:
        tags["untilt.method"] = shipped.method
    return tags


def _params(result: RunResult) -> Mapping[str, str]:
    provenance = result.decision.provenance
    options = {} if provenance is None else provenance.options
    return {name: value[:_LONGEST] for name, value in options.items()}


@contextmanager
def _run() -> Iterator[Any]:
    """The active run, which stays so; else a new one, which ends here."""
    import mlflow

    active = mlflow.active_run()
    if active is not None:
        yield active
        return
    with mlflow.start_run() as run:
        yield run


@contextmanager
def _described(ranker: Ranker) -> Iterator[dict[str, Any]]:
    """What MLflow needs of a ranker; the files lie there as long as the block lasts."""
    ending, package = _WRITTEN.get(type(form_of(ranker)), (".onnx", "onnxruntime"))
    with TemporaryDirectory() as folder:
        model = export_model(ranker, Path(folder, f"model{ending}"))
        about = Path(folder, "about.json")
        record = {"features": list(ranker.feature_names_), "untilt": __version__}
        about.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        needed = dict.fromkeys(("mlflow-skinny", "numpy", "pandas", package))
        yield {
            "python_model": os.fspath(_SCORER),
            "artifacts": {"model": os.fspath(model), "about": os.fspath(about)},
            "pip_requirements": [_pinned(each) for each in needed],
        }


def _pinned(package: str) -> str:
    """The package at the version that is here; by name alone where it is not."""
    try:
        return f"{package}=={version(package)}"
    except ModuleNotFoundError:
        return package
