"""Which classes a saved ranker may hold. A file names a class; only this table says where it lives.

Nothing is imported or called because a file says so: a name that is not in the table is refused.
"""

from dataclasses import is_dataclass
from importlib import import_module
from typing import Any

from untilt._core.suggest import did_you_mean
from untilt.errors import FileFormatError, OptionError
from untilt.rankers.base import Ranker

# A new ranker, weighting or result that rankers keep needs one line here.
_BUILT_IN = {
    "LambdaMART": "untilt.rankers.lambdamart",
    "LinearRanker": "untilt.rankers.linear",
    "RankSVM": "untilt.rankers.svm",
    "NeuralRanker": "untilt.rankers.neural",
    "DualLearning": "untilt.rankers.dual_learning",
    "PairwiseTrustRanker": "untilt.rankers.pairwise_trust",
    "PairTrust": "untilt.rankers.pair_trust",
    "TrustEpoch": "untilt.rankers.pair_trust",
    "TowerRanker": "untilt.rankers.towers",
    "FeedbackTowers": "untilt.rankers.feedback_towers",
    "Network": "untilt.networks.mlp",
    "AutoChoice": "untilt.rankers.auto",
    "Trial": "untilt.rankers.svm_search",
    "Naive": "untilt.weighting.tables",
    "IPS": "untilt.weighting.tables",
    "PNS": "untilt.weighting.tables",
    "PRS": "untilt.weighting.tables",
    "BayesIPS": "untilt.weighting.tables",
    "Balanced": "untilt.weighting.tables",
    "AffineIPS": "untilt.weighting.tables",
    "PairwiseDebiasing": "untilt.weighting.pairwise_debiasing",
    "Ratios": "untilt.weighting.pairwise_debiasing",
    "PositionBias": "untilt.bias.position_bias",
    "PowerLaw": "untilt.bias.known",
    "EyeTracking": "untilt.bias.known",
    "PageSteps": "untilt.bias.known",
    "ClickCountGuess": "untilt.bias.known",
    "MeanEstimate": "untilt._core.statistics",
    "Interval": "untilt._core.statistics",
}
_registered: dict[str, type] = {}


def register(cls: type) -> type:
    """Let rankers that hold objects of this class be saved and loaded; usable as a decorator.

    For a weighting, curve or ranker of your own: a dataclass, a named tuple or a `Ranker`. The file
    stores the class's name, so register it before loading, too.
    """
    if not (is_storable(cls) or issubclass(cls, Ranker)):
        raise OptionError(
            f"only dataclasses, named tuples and rankers can be registered. Got {cls.__name__}."
        )
    if cls.__name__ in _BUILT_IN:
        raise OptionError(f"untilt has a {cls.__name__} of its own. Give your class another name.")
    _registered[cls.__name__] = cls
    return cls


def known_class(name: str) -> type:
    """The class that this name stands for in a file."""
    if name in _registered:
        return _registered[name]
    if name not in _BUILT_IN:
        hint = did_you_mean(name, [*_BUILT_IN, *_registered])
        raise FileFormatError(
            f"it holds a {name!r}, which this untilt does not know.{hint} Upgrade untilt, or call "
            "untilt.rankers.persist.register on your own class before loading."
        )
    found = getattr(import_module(_BUILT_IN[name]), name)
    assert isinstance(found, type)
    return found


def is_known(value: Any) -> bool:
    """Whether a file can name the class of this value (this very class, not one of its name)."""
    name = type(value).__name__
    if name not in _registered and name not in _BUILT_IN:
        return False
    return known_class(name) is type(value)


def is_storable(cls: type) -> bool:
    """Whether the fields of a class are all there is to its objects."""
    return is_dataclass(cls) or is_named_tuple(cls)


def is_named_tuple(cls: type) -> bool:
    """Whether a class was made by `NamedTuple`."""
    return issubclass(cls, tuple) and hasattr(cls, "_fields")
