"""Does a table order documents by relevance, whatever the positions they were shown at?"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.known import as_examination
from untilt.weighting.base import Against, Weighting, theta_up_to


@dataclass(frozen=True)
class Consistency:
    """The verdict on one table.

    `exact`: the expected preference has the sign of the relevance difference for every pair of
    positions. `symmetric`: W[k, l] theta_k is symmetric, so only the small pull of unexamined
    relevant documents is left. `worst_pull` is the largest relative preference that a table gives
    to one of two *equally* relevant documents, (forward - backward)/(forward + backward); positive
    means towards the shown order, negative that it reverses the shown order.
    """

    exact: bool
    symmetric: bool
    worst_pull: float
    positions: tuple[int, int]

    def __bool__(self) -> bool:
        return self.exact

    def __str__(self) -> str:
        if self.exact:
            return "consistent: pairs are ordered by relevance at every pair of positions"
        k, l = self.positions  # noqa: E741  the formula's symbols
        which = "keeps the shown order" if self.worst_pull > 0 else "reverses the shown order"
        kind = "nearly consistent" if self.symmetric else "not consistent"
        return (
            f"{kind}: of two equally relevant documents at positions {k} and {l} it prefers one by "
            f"{abs(self.worst_pull):.1%} and so {which}"
        )


def is_consistent(
    table: FloatArray | Weighting,
    theta: Any,
    *,
    against: Against = "unclicked",
    relevance: float = 0.5,
    depth: int = 10,
    tolerance: float = 1e-9,
) -> Consistency:
    r"""Judge any table of pair weights under the position-based model.

    The expected weight on "document at k above document at l" is
    W[k,l] theta_k g_k (1 - theta_l g_l) for clicked x unclicked pairs and W[k,l] theta_k g_k for
    clicked x all pairs. With W[k,l] = s(k,l)/theta_k and s symmetric, the second is exact and the
    first leaves a pull of s g^2 (theta_k - theta_l) towards the shown order.

    >>> import untilt as ut
    >>> print(ut.is_consistent(ut.Balanced(ut.PowerLaw(1.0)), ut.PowerLaw(1.0)))
    consistent: pairs are ordered by relevance at every pair of positions
    """
    if isinstance(table, Weighting):
        against, W = table.against, table.table(depth)
    else:
        W = np.asarray(table, dtype=float)
    t = theta_up_to(as_examination(theta), len(W))
    s = W * t[:, None]
    forward = s * (1 - t[None, :] * relevance) if against == "unclicked" else s
    pull = np.triu((forward - forward.T) / (forward + forward.T), 1)
    k, l = np.unravel_index(np.argmax(np.abs(pull)), pull.shape)  # noqa: E741
    worst = float(pull[k, l])
    return Consistency(
        exact=abs(worst) <= tolerance,
        symmetric=bool(np.allclose(s, s.T, rtol=1e-9, atol=0)),
        worst_pull=worst,
        positions=(int(k) + 1, int(l) + 1),
    )
