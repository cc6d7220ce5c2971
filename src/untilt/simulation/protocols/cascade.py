"""The cascade: readers go from the top down and stop."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.simulation.behaviour import Behaviour, Stopping
from untilt.simulation.protocols.base import Protocol, check_share, graded_relevance


@dataclass(frozen=True)
class Cascade(Protocol):
    r"""A reader from the top down ([hu2019unbiased]_ 5.2.2, after [chapelle2009dbn]_).

    At each place the reader clicks with probability gamma. After a click the reader is satisfied
    with probability phi = satisfaction * gamma and stops. Whoever is not satisfied, clicked or
    not, reads on with probability beta. So

        P(click at k) = gamma_k prod_{j < k} beta (1 - gamma_j phi_j)

    which depends on the documents above: no curve over positions alone is right here. Smaller beta
    is a stronger bias. gamma is the graded relevance of `DLA`.

    Parameters
    ----------
    beta : probability of reading on
    satisfaction : phi / gamma
    epsilon, depth : as in `DLA`
    """

    name: ClassVar[str] = "cascade"

    beta: float = 0.5
    satisfaction: float = 0.5
    epsilon: float = 0.1
    depth: int | None = 10

    def behaviour(self, labels: FloatArray, *, depth: int, max_label: float) -> Behaviour:
        """Tables of the formula above."""
        check_share("beta", self.beta)
        check_share("satisfaction", self.satisfaction)
        gamma = graded_relevance(labels, max_label, self.epsilon)
        return Behaviour(
            relevance=gamma,
            examination=np.ones(depth),
            stopping=Stopping(satisfaction=self.satisfaction * gamma, go_on=self.beta),
        )
