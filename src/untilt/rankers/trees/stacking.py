r"""How much each part is worth: weights by the likelihood of clicks that the trees have not seen.

    eta = base + u_q + b pi + k f + kappa k (1 - rho) f + u_i,     b, k >= 0,

fitted to the clicks with cross-fitted pi, f and rho. pi has standard deviation 1, and b the prior
N(0.15 r, 0.04^2), r the correlation of pi with what it imitates: the old ranker knew something that
few clicks cannot tell, and many can. k is shrunk (Stein), and so is b0, the slope of pi alone.
kappa has the prior N(-1, 0.3^2) and is kept in [-1, 0]: off the support f is not believed unless
the log says so. The score is

    A = b pi + k m f + max(b0 - b, 0) (1 - m) pi,       m = clip(1 + kappa (1 - rho), 0, 1):

what the clicks say where documents like this were shown, what the old ranker said where not. With
nothing unshown rho = 1, and A = b pi + k f.
"""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.objectives.hierarchical import ClickCells, Hierarchy, HierarchyFit, fit_hierarchy

# With b shrunk to 0 as k is, NDCG@10 was .0032 +- .0015 less in the mean of 90 logs of 50 to 600
# queries (OHSUMED, MSLR, MQ2008), .013 less on whole lists of MSLR, .004 more on those of OHSUMED.
OLD, OLD_ERROR = 0.15, 0.04
KAPPA, KAPPA_ERROR = -1.0, 0.3


@dataclass(frozen=True)
class Stack:
    """The weights of the parts; see the module."""

    base: float
    b: float
    k: float
    b0: float
    kappa: float

    def believed(self, rho: FloatArray) -> FloatArray:
        """m: how far f is believed."""
        return np.clip(1 + self.kappa * (1 - rho), 0.0, 1.0)

    def score(self, pi: FloatArray, f: FloatArray, rho: FloatArray) -> FloatArray:
        """A."""
        m = self.believed(rho)
        return self.b * pi + self.k * m * f + max(self.b0 - self.b, 0.0) * (1 - m) * pi


def stack(
    cells: ClickCells,
    model: Hierarchy,
    pi: FloatArray,
    f: FloatArray,
    rho: FloatArray | None,
    likeness: float,
) -> Stack:
    """The weights, by the clicks of the shown documents; `rho` None where nothing is unshown.

    pi, f and rho are cross-fitted, pi has standard deviation 1; `likeness` is r.
    """
    one = np.ones(len(pi))
    variances = (model.v, model.s2)
    old = slopes(cells, [pi], variances)
    b0 = shrunk(old, 1)
    both = fit_hierarchy(
        cells,
        np.column_stack([one, pi, f]),
        variances=variances,
        low=(-np.inf, 0.0, 0.0),
        prior_mean=(0.0, OLD * likeness, 0.0),
        prior_precision=(0.0, 1 / OLD_ERROR**2, 0.0),
    )
    b, k, base = float(both.weights[1]), shrunk(both, 2), float(both.weights[0])
    if rho is None:
        return Stack(base, b, k, b0, 0.0)
    if k == 0:
        return Stack(base, b, k, b0, KAPPA)
    gate = fit_hierarchy(
        cells,
        np.column_stack([one, b * pi + k * f, k * (1 - rho) * f]),
        variances=variances,
        prior_mean=(0.0, 1.0, KAPPA),
        prior_precision=(0.0, 1e6, 1 / KAPPA_ERROR**2),
    )
    return Stack(base, b, k, b0, float(np.clip(gate.weights[2], -1.0, 0.0)))


def slopes(
    cells: ClickCells, columns: list[FloatArray], variances: tuple[float, float] | None = None
) -> HierarchyFit:
    """A constant and one slope >= 0 for each column."""
    X = np.column_stack([np.ones(cells.n_documents), *columns])
    low = (-np.inf, *([0.0] * len(columns)))
    return fit_hierarchy(cells, X, variances=variances, low=low)


def shrunk(fit: HierarchyFit, at: int) -> float:
    """w max(0, 1 - var/w^2): a slope that could be noise is 0."""
    w, variance = float(fit.weights[at]), float(fit.covariance[at, at])
    return w * max(0.0, 1 - variance / w**2) if w > 0 else 0.0
