"""untilt: learn rankers from biased clicks.

A name is fetched from its home when it is first used: `import untilt` takes milliseconds, and
compiled libraries are loaded only by what needs them. `__init__.pyi` says the same to type checkers
and editors; tests/test_public_names.py holds the two together.
"""

from importlib import import_module

from untilt._version import __version__
from untilt.errors import UntiltError

_NAMES = {
    "untilt.auditing.audit": "audit",
    "untilt.auditing.plan": "plan_swaps",
    "untilt.bias.contextual.contextual": "ContextualBias",
    "untilt.bias.curve": "PositionBias",
    "untilt.bias.em.regression_em": "RegressionEM",
    "untilt.bias.em.trust_em": "TrustAnchor TrustEM",
    "untilt.bias.experiments.shuffled": "ShuffledTop",
    "untilt.bias.experiments.swaps": "AdjacentSwap PivotSwap",
    "untilt.bias.given": "ClickCountGuess EyeTracking KnownBias PageSteps PowerLaw",
    "untilt.bias.harvesting.harvesting": "AdjacentChain AllPairs Pivot",
    "untilt.bias.position_graph": "position_graph",
    "untilt.clickmodels.cascade": "CCM CM DCM",
    "untilt.clickmodels.compare": "compare_click_models",
    "untilt.clickmodels.dbn": "DBN SDBN",
    "untilt.clickmodels.ncm": "NCM",
    "untilt.clickmodels.examination": "PBM UBM",
    "untilt.clickmodels.rates": "DCTR GCTR RCTR",
    "untilt.data.clicklog": "ClickLog",
    "untilt.data.judged": "JudgedLists",
    "untilt.data.letor.letor": "read_letor write_letor",
    "untilt.data.read.bad_rows": "DroppedRowsWarning ReadReport",
    "untilt.data.read.read_log": "read_log read_log_report",
    "untilt.data.transform": "synthesise",
    "untilt.data.write": "write_log",
    "untilt.evaluation.clip_curve": "clip_curve",
    "untilt.evaluation.estimate": "estimate",
    "untilt.evaluation.judged": "evaluate",
    "untilt.evaluation.rank_metric": "RankMetric",
    "untilt.evaluation.systems": "shown",
    "untilt.metrics": "ARP DCG MAP MRR NDCG Precision Recall parse_metric",
    "untilt.rankers.export": "export_model",
    "untilt.rankers.linear.linear": "LinearRanker",
    "untilt.rankers.linear.svm": "RankSVM",
    "untilt.rankers.networks.dual_learning": "DualLearning",
    "untilt.rankers.networks.neural": "NeuralRanker",
    "untilt.rankers.networks.towers": "FeedbackTowers TowerRanker",
    "untilt.rankers.persist": "load register",
    "untilt.rankers.trees.lambdamart": "LambdaMART",
    "untilt.rankers.trees.own_pipeline": "lightgbm_dataset objective xgboost_matrix",
    "untilt.rankers.trust.pairwise_trust": "PairwiseTrustRanker",
    "untilt.report.decision": "Decision write_report",
    "untilt.selection.select": "doubling grid select",
    "untilt.simulation.parquet": "simulate_to_parquet",
    "untilt.simulation.production": "production_ranker production_rankers",
    "untilt.simulation.simulate": "simulate",
    "untilt.simulation.synthetic": "make_judged",
    "untilt.weighting": (
        "AffineIPS Balanced BayesIPS IPS Naive PNS PRS PairwiseDebiasing is_consistent"
    ),
    "untilt.workflow.run": "RunResult run",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = ["UntiltError", "__version__"]
__all__ += list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'untilt' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
