"""The public names: the front page of `untilt`, and a namespace for each kind of thing.

A name is fetched from its home when it is first used: `import untilt` takes milliseconds, and
compiled libraries are loaded only by what needs them. Methods are not listed: their records say
where they live (`untilt.catalog`). The stubs say the same to type checkers and editors; `make stub`
writes them.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

# What most programs need; `from untilt import <tab>` shows these and the namespaces.
FRONT = (
    "read_log", "read_ubi", "read_letor", "write_log", "ClickLog", "JudgedLists", "audit",
    "plan_swaps", "run", "RunResult", "load", "simulate", "make_judged", "estimate",
    "evaluate", "select", "shown", "watch", "export_model", "check_export", "score_file",
    "click_judgments", "PositionBias", "AllPairs", "PivotSwap", "ShuffledTop", "RegressionEM",
    "TrustEM", "PowerLaw", "KnownBias", "IPS", "PRS", "Balanced", "Naive", "LambdaMART",
    "LinearRanker", "RankSVM", "NeuralRanker", "QueryKFold",
)  # fmt: skip


class Namespace(NamedTuple):
    """What `ut.NAME` holds: the methods of some kinds, and other names by their homes."""

    kinds: tuple[str, ...]
    homes: dict[str, str]


NAMESPACES = {
    # Names that the front page alone has: the package of most has a module of that name.
    "": Namespace(
        (),
        {
            "untilt.auditing.audit": "audit",
            "untilt.auditing.plan": "plan_swaps",
            "untilt.bias.compare_curves": "compare_curves",
            "untilt.bias.position_graph": "position_graph",
            "untilt.data.write_log": "write_log",
            "untilt.catalog": "method",
            "untilt.rankers.score_file": "score_file",
            "untilt.selection.select": "grid select",
            "untilt.serving.watch": "watch",
            "untilt.simulation.simulate": "simulate",
            "untilt.workflow.run": "RunResult run",
        },
    ),
    "bias": Namespace(
        ("bias", "curve"),
        {
            "untilt.bias.curve": "PositionBias",
            "untilt.bias.em.trust_em": "TrustAnchor",
            "untilt.bias.estimator": "BiasEstimator",
        },
    ),
    "clickmodels": Namespace(
        ("click model",), {"untilt.clickmodels.compare": "compare_click_models"}
    ),
    "weightings": Namespace(
        ("weighting",),
        {
            "untilt.weighting.base": (
                "JointWeighting SessionWeighting Weighting is_consistent theta_up_to"
            ),
            "untilt.weighting.tail_bound": "tail_bound",
        },
    ),
    "rankers": Namespace(
        ("ranker",),
        {
            "untilt._core.saved": "load register",
            "untilt.rankers.networks.network_ranker": "NetworkShape NetworkSteps",
            "untilt.rankers.trees.lambdamart": "Trees",
            "untilt.rankers.trees.objectives": "Lambdas",
        },
    ),
    "metrics": Namespace(
        ("metric",), {"untilt.metrics.metric": "Metric parse_metric parse_metrics"}
    ),
    "evaluators": Namespace(
        ("evaluator",),
        {
            "untilt.evaluation.clip_curve": "clip_curve",
            "untilt.evaluation.estimate": "estimate",
            "untilt.evaluation.live": "first_clicks interleaved team_draft",
            "untilt.evaluation.judged": "WinSameLoss evaluate",
            "untilt.evaluation.null_tests": "null_tests",
            "untilt.evaluation.slots": "RankMetric",
            "untilt.evaluation.systems": "shown",
        },
    ),
    "labels": Namespace(
        (),
        {
            "untilt.evaluation.labels.estimate": "estimate_labels",
            "untilt.data.grades": "Grades ask_judge read_labels",
            "untilt.evaluation.labels.plan": "plan_labels",
        },
    ),
    "simulation": Namespace(
        ("protocol",),
        {
            "untilt.papers.page": "reproduce",
            "untilt.simulation.grids": "grid_examination simulate_grid",
            "untilt.simulation.simulate": "simulate_to_parquet",
            "untilt.simulation.production": "production_ranker production_rankers",
            "untilt.simulation.synthetic": "make_judged",
        },
    ),
    "data": Namespace(
        (),
        {
            "untilt.data.clicklog": "ClickLog",
            "untilt.data.limits": "DroppedRowsWarning",
            "untilt.data.judged": "JudgedLists",
            "untilt.data.layout": "Grid",
            "untilt.data.letor.read_letor": "read_letor",
            "untilt.data.letor.write_letor": "write_letor",
            "untilt.data.read.bad_rows": "ReadReport",
            "untilt.data.read.engines": "collapse_sql",
            "untilt.data.read.read_log": "read_log read_log_report read_ubi",
            "untilt.data.read.ubi": "Ubi",
            "untilt.data.transform": "synthesise",
        },
    ),
    "datasets": Namespace(
        (),
        {
            "untilt.datasets.pages": "read_baidu_ultr read_clara2 read_trec_sessions read_yandex",
            "untilt.datasets.tables": (
                "read_expedia read_judged_set read_open_bandit read_thuir_news"
            ),
        },
    ),
    "selection": Namespace(
        (),
        {
            "untilt.selection.query_folds": "QueryKFold",
            "untilt.selection.select": "doubling parameter_grid",
        },
    ),
    "pipelines": Namespace(
        (),
        {
            "untilt.rankers.trees.own_pipeline": (
                "catboost_pool click_objective lightgbm_dataset lightgbm_objective objective "
                "xgboost_matrix "
                "xgboost_objective"
            )
        },
    ),
    "exports": Namespace(
        (),
        {
            "untilt.exports.format": "check_export export_model",
            "untilt.exports.judgments": "Judgments click_judgments",
        },
    ),
    "report": Namespace(
        (), {"untilt.report.card": "model_card", "untilt.report.decision": "Decision write_report"}
    ),
    "cluster": Namespace(
        (),
        {
            "untilt.cluster.dask": "train_dask",
            "untilt.cluster.group": "tracker",
            "untilt.cluster.part": "train_part",
            "untilt.cluster.spark": "train_spark",
        },
    ),
}
# Modules that are called by their own name: `ut.bias.AllPairs`, `ut.mlflow.log_run`.
MODULES = (*filter(None, NAMESPACES), "mlflow")


def homes(*spaces: str, methods: bool = True) -> dict[str, str]:
    """Public name -> its module: of these namespaces (all without), methods included."""
    chosen = [NAMESPACES[each] for each in spaces or NAMESPACES]
    found = {
        name: home
        for each in chosen
        for home, names in each.homes.items()
        for name in names.split()
    }
    if methods:
        from untilt.catalog import homes_of

        found |= homes_of({kind for each in chosen for kind in each.kinds})
    return found


def fetched(module: str, name: str, spaces: tuple[str, ...] = ()) -> object:
    """A public name from its home; AttributeError where these namespaces have no such name."""
    # Methods are classes: a lower-case name needs no look at the records.
    home = homes(*spaces, methods=name[:1].isupper()).get(name)
    if home is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def namespace(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a namespace: its names, fetched when they are used."""
    space = module.rpartition(".")[2]
    return partial(fetched, module, spaces=(space,)), lambda: sorted(homes(space))
