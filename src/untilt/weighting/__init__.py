"""Layer 3: a debiasing method is a K x K table of pair weights, and nothing else."""

from untilt.weighting.base import Consistency, JointWeighting, Weighting, is_consistent
from untilt.weighting.tables import (
    IPS,
    PNS,
    PRS,
    AffineIPS,
    Balanced,
    BayesIPS,
    Naive,
    PairwiseDebiasing,
)

__all__ = [
    "IPS",
    "PNS",
    "PRS",
    "AffineIPS",
    "Balanced",
    "BayesIPS",
    "Consistency",
    "JointWeighting",
    "Naive",
    "PairwiseDebiasing",
    "Weighting",
    "is_consistent",
]
