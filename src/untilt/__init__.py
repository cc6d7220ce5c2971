"""untilt: learn rankers from biased clicks.

A name is fetched from its home when it is first used: `import untilt` takes milliseconds, and
compiled libraries are loaded only by what needs them. `__init__.pyi` says the same to type checkers
and editors; tests/test_public_names.py holds the two together.
"""

from importlib import import_module

from untilt._version import __version__
from untilt.errors import UntiltError

_NAMES = {
    "untilt.bias.affine_curves": "TrustAnchor",
    "untilt.bias.audit": "audit",
    "untilt.bias.contextual": "ContextualBias",
    "untilt.bias.harvesting": "AdjacentChain AllPairs Pivot",
    "untilt.bias.identifiability": "position_graph",
    "untilt.bias.known": "ClickCountGuess EyeTracking KnownBias PageSteps PowerLaw",
    "untilt.bias.plan": "plan_swaps",
    "untilt.bias.position_bias": "PositionBias",
    "untilt.bias.randomized": "ShuffledTop",
    "untilt.bias.regression_em": "RegressionEM",
    "untilt.bias.swaps": "AdjacentSwap PivotSwap",
    "untilt.bias.trust": "TrustEM",
    "untilt.clickmodels.cascade": "CM",
    "untilt.clickmodels.ccm": "CCM",
    "untilt.clickmodels.compare": "compare_click_models",
    "untilt.clickmodels.dbn": "DBN SDBN",
    "untilt.clickmodels.dcm": "DCM",
    "untilt.clickmodels.neural": "NCM",
    "untilt.clickmodels.pbm": "PBM",
    "untilt.clickmodels.rates": "DCTR GCTR RCTR",
    "untilt.clickmodels.ubm": "UBM",
    "untilt.evaluation.clip_curve": "clip_curve",
    "untilt.evaluation.counterfactual_metric": "RankMetric",
    "untilt.evaluation.estimate": "estimate",
    "untilt.evaluation.estimate_systems": "shown",
    "untilt.evaluation.judged": "evaluate",
    "untilt.evaluation.select": "select",
    "untilt.evaluation.select_grid": "doubling grid",
    "untilt.logs.clicklog": "ClickLog",
    "untilt.logs.judged": "JudgedLists",
    "untilt.logs.letor": "read_letor write_letor",
    "untilt.logs.read": "read_log read_log_report",
    "untilt.logs.read_report": "DroppedRowsWarning ReadReport",
    "untilt.logs.synthesise": "synthesise",
    "untilt.logs.write": "write_log",
    "untilt.metrics": "ARP DCG MAP MRR NDCG Precision Recall parse_metric",
    "untilt.rankers.dual_learning": "DualLearning",
    "untilt.rankers.export": "export_model",
    "untilt.rankers.feedback_towers": "FeedbackTowers",
    "untilt.rankers.lambdamart": "LambdaMART",
    "untilt.rankers.linear": "LinearRanker",
    "untilt.rankers.neural": "NeuralRanker",
    "untilt.rankers.pairwise_trust": "PairwiseTrustRanker",
    "untilt.rankers.persist": "load register",
    "untilt.rankers.pipeline": "lightgbm_dataset objective xgboost_matrix",
    "untilt.rankers.svm": "RankSVM",
    "untilt.rankers.towers": "TowerRanker",
    "untilt.report.decision": "Decision write_report",
    "untilt.simulation.parquet": "simulate_to_parquet",
    "untilt.simulation.production": "production_ranker production_rankers",
    "untilt.simulation.simulate": "simulate",
    "untilt.simulation.synthetic": "make_judged",
    "untilt.workflow.result": "RunResult",
    "untilt.workflow.run": "run",
    "untilt.weighting": (
        "AffineIPS Balanced BayesIPS IPS Naive PNS PRS PairwiseDebiasing is_consistent"
    ),
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
