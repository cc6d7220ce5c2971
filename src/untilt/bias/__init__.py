"""Layer 2: position bias, given or estimated, always with its doubt."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from untilt.bias.estimator import BiasEstimator

    ALL_BIAS_ESTIMATORS: "tuple[type[BiasEstimator], ...]"

# A new estimator needs one line here; the contract tests then run over it.
_ESTIMATORS = {
    "ShuffledTop": "untilt.bias.experiments.shuffled",
    "PivotSwap": "untilt.bias.experiments.swaps",
    "AdjacentSwap": "untilt.bias.experiments.swaps",
    "AdjacentChain": "untilt.bias.harvesting.harvesting",
    "Pivot": "untilt.bias.harvesting.harvesting",
    "AllPairs": "untilt.bias.harvesting.harvesting",
    "RegressionEM": "untilt.bias.em.regression_em",
    "TrustEM": "untilt.bias.em.trust_em",
    # It lives with the rankers, being one too; a name here, not an import.
    "DualLearning": "untilt.rankers.networks.dual_learning",
}


def __getattr__(name: str) -> object:
    # Not at import: `PositionBias` and the given curves are used without any estimator.
    if name != "ALL_BIAS_ESTIMATORS":
        raise AttributeError(f"module 'untilt.bias' has no attribute {name!r}")
    return tuple(getattr(import_module(home), found) for found, home in _ESTIMATORS.items())
