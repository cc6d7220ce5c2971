"""Networks as methods of an experiment. JAX is loaded when one of them is fitted."""

from collections.abc import Callable
from typing import Any

from untilt.experiments.curves import curve_of
from untilt.experiments.schema import Row
from untilt.experiments.setting import Setting

Builder = Callable[..., Any]


def neural(setting: Setting, row: Row, weighting: Any) -> Any:
    """A network on pairs, lists or single documents; the table of weights as for trees."""
    from untilt.rankers.neural import NeuralRanker

    options = _options(setting, row)
    if options.get("loss") == "pointwise":
        bias = curve_of(setting, row.bias, row.bias_options) if row.bias else None
        return NeuralRanker(bias=bias, **options)
    return NeuralRanker(weighting, **options)


def dual_learning(setting: Setting, row: Row, _: Any) -> Any:
    """Ranker and propensities that teach each other."""
    from untilt.rankers.dual_learning import DualLearning

    return DualLearning(**_options(setting, row))


def pairwise_trust(setting: Setting, row: Row, _: Any) -> Any:
    """The losses of 001."""
    from untilt.rankers.pairwise_trust import PairwiseTrustRanker

    return PairwiseTrustRanker(**_options(setting, row))


def tower(setting: Setting, row: Row, _: Any) -> Any:
    """A network beside a shallow tower for the position."""
    from untilt.rankers.towers import TowerRanker

    return TowerRanker(**_options(setting, row))


def feedback_towers(setting: Setting, row: Row, _: Any) -> Any:
    """One network with a tower for every kind of feedback: baselines V2 to V4 of 001."""
    from untilt.rankers.feedback_towers import FeedbackTowers

    return FeedbackTowers(**_options(setting, row))


NETWORKS: dict[str, Builder] = {
    "neural": neural,
    "dual-learning": dual_learning,
    "pairwise-trust": pairwise_trust,
    "tower": tower,
    "feedback-towers": feedback_towers,
}


def _options(setting: Setting, row: Row) -> dict[str, Any]:
    """The row's options with the seed; a quick size has few epochs and narrow layers."""
    options = {"seed": setting.seed, **row.options}
    if setting.size.epochs is not None:
        options["epochs"] = setting.size.epochs
    if setting.size.widths:
        options["widths"] = list(setting.size.widths)
    if "widths" in options:
        options["widths"] = tuple(options["widths"])
    return options
