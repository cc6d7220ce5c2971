r"""The three losses of [ren2021pairwise]_ as weights of pairs, and the pair loss they weigh.

    loss = sum over c_i > c_j of w_ij log(1 + exp(-(s_i - s_j)))

                   c_j > 0                            c_j = 0
    ipw            1 / (theta_i theta_j)              h_ij / (theta_i theta_j)             eq. 11
    bayes-ipw      m_ij / (theta_i theta_j)           m_ij h_ij / (theta_i theta_j)        eq. 16
    opt            m_ij |dZ_ij| / (theta_i theta_j)   m_ij h_ij |dZ_ij| / (theta_i theta_j) eq. 18

`ipw` is the case eps+ = 1, eps- = 0 of `bayes-ipw`: then m_ij = 1, and h_ij has gamma alone in it.
"""

import numpy as np

from untilt.objectives.pairwise_trust import Values, examined_zero, trusted


def pair_weights(
    theta_i: Values,
    theta_j: Values,
    theta_minus_j: Values,
    eps_plus: Values,
    eps_minus: Values,
    gamma: Values,
    beta_i: Values,
    *,
    clip: float = 0.0,
) -> tuple[Values, Values]:
    """(weight where c_j > 0, weight where c_j = 0), without |dZ|.

    `clip` is the smallest theta_i theta_j that is divided by.
    """
    product = theta_i * theta_j
    inverse = 1 / (product * (product >= clip) + clip * (product < clip))
    positive = trusted(eps_plus, eps_minus, gamma) * inverse
    return positive, positive * examined_zero(theta_minus_j, eps_plus, eps_minus, gamma, beta_i)


def logistic_loss(difference: Values, xp: Values = np) -> Values:
    """log(1 + exp(-d)), without overflow; `xp` is numpy or jax.numpy."""
    return xp.logaddexp(0.0, -difference)


def rank_change(scores: Values, mask: Values, xp: Values = np) -> Values:
    """|1 / log2(1 + rank_i) - 1 / log2(1 + rank_j)| of documents ranked by score, (..., K, K).

    Times (gain_i - gain_j) / idealDCG it is |dZ_ij|, the change of NDCG when i and j swap. Equal
    scores are ranked in their order in the list; masked places rank last and count nothing.
    """
    s = xp.where(mask, scores, -xp.inf)
    earlier = xp.arange(s.shape[-1])[None, :] < xp.arange(s.shape[-1])[:, None]
    higher = (s[..., None, :] > s[..., :, None]) | ((s[..., None, :] == s[..., :, None]) & earlier)
    discount = 1 / xp.log2(2.0 + higher.sum(axis=-1))
    return xp.abs(discount[..., :, None] - discount[..., None, :])
