"""untilt: learn rankers from biased clicks.

A name is fetched from its home when it is first used: `import untilt` takes milliseconds, and
compiled libraries are loaded only by what needs them. Methods are not listed here: their records
say where they live (`untilt.catalog`). `__init__.pyi` says the same to type checkers and editors;
`make stub` writes it.
"""

from importlib import import_module

from untilt._version import __version__ as __version__
from untilt.errors import UntiltError as UntiltError

# Public names that are no methods.
_NAMES = {
    "untilt._core.saved": "load register",
    "untilt.auditing.audit": "audit",
    "untilt.auditing.plan": "plan_swaps",
    "untilt.bias.compare_curves": "compare_curves",
    "untilt.bias.curve": "PositionBias",
    "untilt.bias.em.trust_em": "TrustAnchor",
    "untilt.bias.position_graph": "position_graph",
    "untilt.clickmodels.compare": "compare_click_models",
    "untilt.cluster.dask": "train_dask",
    "untilt.cluster.group": "tracker",
    "untilt.cluster.part": "train_part",
    "untilt.cluster.spark": "train_spark",
    "untilt.data.clicklog": "ClickLog",
    "untilt.data.judged": "JudgedLists",
    "untilt.data.layout": "Grid",
    "untilt.data.letor.read_letor": "read_letor",
    "untilt.data.letor.write_letor": "write_letor",
    "untilt.data.depth": "DroppedRowsWarning",
    "untilt.data.read.bad_rows": "ReadReport",
    "untilt.data.read.collapse_sql": "collapse_sql",
    "untilt.data.read.read_log": "read_log read_log_report read_ubi",
    "untilt.data.read.ubi": "Ubi",
    "untilt.data.transform": "synthesise",
    "untilt.data.write_log": "write_log",
    "untilt.evaluation.ab_test": "first_clicks",
    "untilt.evaluation.clip_curve": "clip_curve",
    "untilt.evaluation.estimate": "estimate",
    "untilt.evaluation.interleaving": "interleaved team_draft",
    "untilt.evaluation.judged": "WinSameLoss evaluate",
    "untilt.evaluation.null_tests": "null_tests",
    "untilt.evaluation.rank_metric": "RankMetric",
    "untilt.evaluation.systems": "shown",
    "untilt.exports.check": "check_export",
    "untilt.exports.format": "export_model",
    "untilt.exports.judgments": "Judgments click_judgments",
    "untilt.metrics.metric": "parse_metric",
    "untilt.rankers.score_file": "score_file",
    "untilt.rankers.trees.own_pipeline": (
        "lightgbm_dataset lightgbm_objective objective xgboost_matrix xgboost_objective"
    ),
    "untilt.report.card": "model_card",
    "untilt.report.decision": "Decision write_report",
    "untilt.selection.query_folds": "QueryKFold",
    "untilt.selection.select": "doubling grid select",
    "untilt.serving.watch": "watch",
    "untilt.simulation.grids": "grid_examination simulate_grid",
    "untilt.simulation.parquet": "simulate_to_parquet",
    "untilt.simulation.production": "production_ranker production_rankers",
    "untilt.simulation.simulate": "simulate",
    "untilt.simulation.synthetic": "make_judged",
    "untilt.weighting.base": "is_consistent",
    "untilt.weighting.tail_bound": "tail_bound",
    "untilt.workflow.run": "RunResult run",
}
# Modules that are called by their own name: `ut.mlflow.log_run`.
_MODULES = ("mlflow",)
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}


def _homes() -> dict[str, str]:
    """Every public name with its module, methods included."""
    from untilt.catalog import homes

    return {**_HOME, **dict.fromkeys(_MODULES, "untilt"), **homes()}


def __getattr__(name: str) -> object:
    if name == "__all__":
        return ["UntiltError", "__version__", *_homes()]
    if name in _MODULES:
        return import_module(f"untilt.{name}")
    home = _HOME.get(name)
    # Methods are classes: a lower-case name is a submodule, which needs no look at the records.
    if home is None and name[:1].isupper():
        home = _homes().get(name)
    if home is None:
        raise AttributeError(f"module 'untilt' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*_homes(), *globals()})
