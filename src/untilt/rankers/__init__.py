"""Layer 4: rankers. What varies between methods is a weighting that is passed in.

`ALL_RANKERS` and `ALL_BIAS_RANKERS` name every ranker for suites that run over all of them: calls
that give a small one (few trees, one thread, few rounds), the first kind for a weighting or None,
the second for a position bias. Rankers are imported when they are made.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from untilt.rankers.base import Ranker
    from untilt.weighting.base import Weighting

_FEW_TREES = {"n_trees": 10, "n_leaves": 5, "min_data_in_leaf": 3, "n_threads": 1, "folds": 2}


def _lambdamart(weighting: "Weighting | str | None" = None, **options: Any) -> "Ranker":
    from untilt.rankers.trees.lambdamart import LambdaMART

    return LambdaMART(weighting, **{**_FEW_TREES, **options})


def _linear(weighting: "Weighting | None" = None, **options: Any) -> "Ranker":
    from untilt.rankers.linear.linear import LinearRanker

    return LinearRanker(weighting, **{"max_rounds": 4, **options})


def _rank_svm(weighting: "Weighting | None" = None, **options: Any) -> "Ranker":
    from untilt.rankers.linear.svm import RankSVM

    return RankSVM(weighting, **{"max_rounds": 4, **options})


_FEW_EPOCHS: dict[str, Any] = {"widths": (8,), "epochs": 40, "learning_rate": 0.02}


def _neural(weighting: "Weighting | None" = None, **options: Any) -> "Ranker":
    from untilt.rankers.networks.neural import NeuralRanker

    return NeuralRanker(weighting, **{**_FEW_EPOCHS, **options})


def _pbm_likelihood(bias: Any) -> "Ranker":
    return _lambdamart(objective="pbm-likelihood", bias=bias)


def _ips_label(bias: Any) -> "Ranker":
    return _lambdamart(objective="ips-label", bias=bias)


def _posterior_label(bias: Any) -> "Ranker":
    return _lambdamart(objective="posterior-label", bias=bias)


def _auto(bias: Any) -> "Ranker":
    return _lambdamart("auto", bias=bias)


def _dcg_bound(bias: Any) -> "Ranker":
    from untilt.weighting.tables import IPS

    return _linear(IPS(bias), loss="dcg-bound")


def _neural_listwise(bias: Any) -> "Ranker":
    from untilt.weighting.tables import IPS

    return _neural(IPS(bias), loss="listwise")


def _neural_pointwise(bias: Any) -> "Ranker":
    return _neural(loss="pointwise", bias=bias)


def _dual_learning(bias: Any) -> "Ranker":  # noqa: ARG001  it learns its own
    from untilt.rankers.networks.dual_learning import DualLearning

    return DualLearning(**_FEW_EPOCHS)


def _pairwise_trust(bias: Any) -> "Ranker":
    from untilt.rankers.trust.pairwise_trust import PairwiseTrustRanker

    return PairwiseTrustRanker(bias=bias, **{**_FEW_EPOCHS, "epochs": 12})


def _tower(bias: Any) -> "Ranker":  # noqa: ARG001  it learns its own
    from untilt.rankers.networks.towers import TowerRanker

    return TowerRanker("sum", **_FEW_EPOCHS)


def _pal(bias: Any) -> "Ranker":  # noqa: ARG001  it learns its own
    from untilt.rankers.networks.towers import TowerRanker

    return TowerRanker("product", **_FEW_EPOCHS)


def _feedback_towers(bias: Any) -> "Ranker":  # noqa: ARG001  it learns its own
    from untilt.rankers.networks.towers import FeedbackTowers

    return FeedbackTowers({"click": "product"}, **_FEW_EPOCHS)


ALL_RANKERS: tuple[Callable[..., "Ranker"], ...] = (_lambdamart, _linear, _rank_svm, _neural)
ALL_BIAS_RANKERS: tuple[Callable[[Any], "Ranker"], ...] = (
    _pbm_likelihood,
    _ips_label,
    _posterior_label,
    _auto,
    _dcg_bound,
    _neural_listwise,
    _neural_pointwise,
    _dual_learning,
    _pairwise_trust,
    _tower,
    _pal,
    _feedback_towers,
)
