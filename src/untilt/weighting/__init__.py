"""A debiasing method is a K x K table of pair weights, or weights of a click model."""

from untilt.weighting.base import (
    ClickWeights,
    Consistency,
    JointWeighting,
    SessionWeighting,
    Weighting,
    is_consistent,
)
from untilt.weighting.tables import (
    IPS,
    PNS,
    PRS,
    AffineIPS,
    Balanced,
    BayesIPS,
    ExaminationWeights,
    Naive,
    PairwiseDebiasing,
)

__all__ = [
    "IPS", "PNS", "PRS", "AffineIPS", "Balanced", "BayesIPS", "ClickWeights", "Consistency",
    "ExaminationWeights", "JointWeighting", "Naive", "PairwiseDebiasing", "SessionWeighting",
    "Weighting", "is_consistent",
]  # fmt: skip
