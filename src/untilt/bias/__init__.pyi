# Written by `make stub`.
from untilt.bias.contextual.contextual import ContextualBias as ContextualBias
from untilt.bias.curve import PositionBias as PositionBias
from untilt.bias.em.regression_em import RegressionEM as RegressionEM
from untilt.bias.em.trust_em import TrustAnchor as TrustAnchor
from untilt.bias.em.trust_em import TrustEM as TrustEM
from untilt.bias.experiments.shuffled import ShuffledTop as ShuffledTop
from untilt.bias.experiments.swaps import AdjacentSwap as AdjacentSwap
from untilt.bias.experiments.swaps import PivotSwap as PivotSwap
from untilt.bias.given import ClickCountGuess as ClickCountGuess
from untilt.bias.given import EyeTracking as EyeTracking
from untilt.bias.given import KnownBias as KnownBias
from untilt.bias.given import PageSteps as PageSteps
from untilt.bias.given import PowerLaw as PowerLaw
from untilt.bias.harvesting.harvesting import AdjacentChain as AdjacentChain
from untilt.bias.harvesting.harvesting import AllPairs as AllPairs
from untilt.bias.harvesting.harvesting import Pivot as Pivot
from untilt.rankers.networks.dual_learning import DualLearning as DualLearning
