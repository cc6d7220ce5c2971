"""Trust bias from classes of documents that are alike: few classes, very many impressions each."""

from typing import NamedTuple

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.em import run_em
from untilt.bias.cells import Cells
from untilt.bias.count_em import CEILING, start_gamma, start_theta

START_NOISE = 0.1
LOW = 1 - CEILING


class Classes(NamedTuple):
    """z+ and z- by position (K,), and gamma of each class."""

    plus: FloatArray
    minus: FloatArray
    gamma: FloatArray


def class_em(cells: Cells) -> Classes:
    r"""Maximise sum c log p + (n - c) log(1 - p) with p = z+_k gamma_d + z-_k (1 - gamma_d).

    E step  P(r=1 | c=1) = z+ gamma / p,   P(r=1 | c=0) = (1 - z+) gamma / (1 - p)
    M step  gamma_d = mean of P(r=1 | c) of d;  z+_k = share of clicks among the relevant at k,
            z-_k among the irrelevant; where z+ would be below z-, both are the click rate at k
    """
    place, owner = cells.position - 1, np.repeat(cells.document, np.diff(cells.indptr))
    n, c = cells.impressions, cells.clicks
    n_k, c_k, n_d = cells.by_position(n), cells.by_position(c), np.bincount(owner, n)

    def step(state: Classes) -> tuple[Classes, float]:
        plus, gamma = state.plus[place], state.gamma[owner]
        p = plus * gamma + state.minus[place] * (1 - gamma)
        both = c * plus * gamma / p
        relevant = both + (n - c) * (1 - plus) * gamma / (1 - p)
        likelihood = float(np.sum(c * np.log(p) + (n - c) * np.log1p(-p)))
        r_k, both_k = cells.by_position(relevant), cells.by_position(both)
        above = both_k / r_k
        below = (c_k - both_k) / (n_k - r_k)
        turned = above < below
        parts = (
            np.where(turned, c_k / n_k, above),
            np.where(turned, c_k / n_k, below),
            np.bincount(owner, relevant) / n_d,
        )
        return Classes(*(np.clip(part, LOW, CEILING) for part in parts)), likelihood

    theta = start_theta(cells)
    start = Classes(theta, START_NOISE * theta, np.clip(start_gamma(cells, theta), 0.02, 0.98))
    return run_em(
        start,
        step,
        tolerance=1e-6,
        max_steps=20_000,
        accelerate=True,
        low=LOW,
        high=CEILING,
        what="trust EM",
    ).state
