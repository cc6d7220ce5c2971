"""Layer 3: a debiasing method is a K x K table of pair weights, and nothing else."""

from collections.abc import Callable
from typing import Any

from untilt.weighting.base import JointWeighting, Weighting
from untilt.weighting.consistency import Consistency, is_consistent
from untilt.weighting.pairwise_debiasing import PairwiseDebiasing
from untilt.weighting.tables import IPS, PNS, PRS, AffineIPS, Balanced, BayesIPS, Naive

__all__ = [
    "ALL_WEIGHTINGS",
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


def _naive(bias: Any) -> Naive:  # noqa: ARG001
    return Naive()


def _ips_against_all(bias: Any) -> IPS:
    return IPS(bias, against="all")


def _prs_unclipped(bias: Any) -> PRS:
    return PRS(bias, clip=float("inf"))


def _pairwise_debiasing(bias: Any) -> PairwiseDebiasing:  # noqa: ARG001
    return PairwiseDebiasing()


# Every weighting as something that takes a bias, for suites that run over all of them. A bias with
# eps_plus and eps_minus suits every one; BayesIPS takes no other.
ALL_WEIGHTINGS: tuple[Callable[[Any], Weighting], ...] = (
    _naive,
    IPS,
    _ips_against_all,
    PNS,
    PRS,
    _prs_unclipped,
    BayesIPS,
    Balanced,
    AffineIPS,
    _pairwise_debiasing,
)
