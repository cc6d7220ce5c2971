"""Which of two documents a weighting prefers, in expectation: no simulation, so no noise.

One document stands at position 1, the other further down. With p the click probabilities, the
weight of "1 above k" is W[1, k] p_1 (1 - p_k) for clicked x unclicked pairs, W[1, k] p_1 for
clicked x all, plus the offset of an affine correction; the preference is
(forward - backward)/(forward + backward).
"""

from collections.abc import Mapping

import numpy as np
from _bands import curves_over

import untilt as ut
from untilt.charts.curves import Curve

DEPTH = 10
PLACES = np.arange(2, DEPTH + 1)


def preference(weighting, truth, *, upper: float = 0.5, lower: float = 0.5) -> Curve:
    """By how much the document at position 1 is preferred to the one at 2, 3, ..., 10.

    `truth` is the bias by which people click, whatever the weighting believes; `upper` and `lower`
    are the relevance of the two.
    """
    bias = truth.to_bias(DEPTH) if hasattr(truth, "to_bias") else truth
    alpha, beta = bias.affine()
    p_upper, p_lower = alpha[0] * upper + beta[0], (alpha * lower + beta)[1:DEPTH]
    table, offset = weighting.table(DEPTH), weighting.offset(DEPTH)
    forward, backward = table[0, 1:] * p_upper, table[1:, 0] * p_lower
    if weighting.against == "unclicked":
        forward, backward = forward * (1 - p_lower), backward * (1 - p_upper)
    if offset is not None:
        forward, backward = forward + offset[0, 1:], backward + offset[1:, 0]
    return Curve(PLACES, (forward - backward) / (np.abs(forward) + np.abs(backward)))


def by_relevance(upper: float = 0.5, lower: float = 0.5) -> Curve:
    """What a weighting should do: prefer by relevance alone, at every position the same."""
    return Curve(PLACES, np.full(len(PLACES), (upper - lower) / (upper + lower)))


def trust_bias(*, minus_times: float = 1.0, plus: float | None = None, with_trust: bool = True):
    """The bias of protocol `trust`; its eps- times a number, another eps+, or examination alone."""
    k = np.arange(1, DEPTH + 1)
    theta = ut.EyeTracking().at(k)
    if not with_trust:
        return ut.KnownBias(theta, absolute=True)
    return ut.KnownBias(
        theta,
        eps_plus=1 - (k + 1) / 100 if plus is None else np.full(DEPTH, plus),
        eps_minus=np.minimum(minus_times * 0.65 / k, 0.97),
        absolute=True,
    )


def preference_chart(
    curves: Mapping[str, Curve], *, title: str, subtitle: str, legend_columns: int = 3
):
    """Curves of `preference`, the right one first."""
    return curves_over(
        curves,
        title=title,
        subtitle=subtitle,
        x_title="position of the lower document",
        value_title="preference for the upper document",
        value_format="+.0%",
        legend_columns=legend_columns,
    )
