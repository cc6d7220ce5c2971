# Written by `make stub`.
from untilt._core.saved import load as load
from untilt._core.saved import register as register
from untilt.rankers.linear.linear import LinearRanker as LinearRanker
from untilt.rankers.linear.svm import RankSVM as RankSVM
from untilt.rankers.networks.dual_learning import DualLearning as DualLearning
from untilt.rankers.networks.network_ranker import NetworkShape as NetworkShape
from untilt.rankers.networks.network_ranker import NetworkSteps as NetworkSteps
from untilt.rankers.networks.neural import NeuralRanker as NeuralRanker
from untilt.rankers.networks.towers import FeedbackTowers as FeedbackTowers
from untilt.rankers.networks.towers import TowerRanker as TowerRanker
from untilt.rankers.trees.lambdamart import LambdaMART as LambdaMART
from untilt.rankers.trees.lambdamart import Trees as Trees
from untilt.rankers.trees.objectives import Lambdas as Lambdas
from untilt.rankers.trust.pairwise_trust import PairwiseTrustRanker as PairwiseTrustRanker
