# Written by `make stub`.
from untilt.rankers.pooled import DoublyRobust as DoublyRobust
from untilt.rankers.pooled import PolicyAware as PolicyAware
from untilt.weighting.base import JointWeighting as JointWeighting
from untilt.weighting.base import SessionWeighting as SessionWeighting
from untilt.weighting.base import Weighting as Weighting
from untilt.weighting.base import is_consistent as is_consistent
from untilt.weighting.base import theta_up_to as theta_up_to
from untilt.weighting.tables import IPS as IPS
from untilt.weighting.tables import PNS as PNS
from untilt.weighting.tables import PRS as PRS
from untilt.weighting.tables import AffineIPS as AffineIPS
from untilt.weighting.tables import Balanced as Balanced
from untilt.weighting.tables import BayesIPS as BayesIPS
from untilt.weighting.tables import ExaminationWeights as ExaminationWeights
from untilt.weighting.tables import Naive as Naive
from untilt.weighting.tables import PairwiseDebiasing as PairwiseDebiasing
from untilt.weighting.tail_bound import tail_bound as tail_bound
