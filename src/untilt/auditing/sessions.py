r"""Do sessions want different documents, and does production know which?

Then a document stands higher in the sessions that want it, and its pooled clicks give production no
credit for that. Two estimates of what an order adds agree unless this is so ([hausman1978]_): by
the clicks of each session alone, and by clicks pooled over all sessions that showed a document. The
order is that of the mean positions of the documents, which needs no ranker and no click. With
lambda the change of discount of a row, n its sessions, c its clicks and g_d the relevance of a
document by all sessions,

    T_q = sum over rows of lambda ((c - n beta_k) / alpha_k - n g_d)
    z   = sum_q T_q / sqrt(sum_q T_q^2 + G' S G),    G = dT / dlog theta, S the covariance of it

Right for a curve that was not harvested from the same lists: such a curve takes the effect for
examination, and z is 0.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from untilt._core import ragged
from untilt._core.arrays import FloatArray, sum_by
from untilt._core.portable import Portable
from untilt._core.statistics import effective_units
from untilt.bias.curve import PositionBias
from untilt.data.clicklog import ClickLog
from untilt.facts import Fact, note, warning

SIZE = 0.05  # of the test
ROUNDING = 1e-9  # of the terms of T: less is no difference at all

DIFFER = warning(
    "reading.sessions-differ",
    "Documents are wanted by some sessions more than by others, and production knows by which (z "
    "{z:+.1f}, p {p_value:.1g}), which a curve from these lists would take for examination.",
)
ALIKE = note(
    "reading.sessions-alike",
    "Nothing says that production shows documents to the sessions that want them (z {z:+.1f}, p "
    "{p_value:.2g}).",
)


@dataclass(frozen=True)
class SessionTest(Portable):
    """Whether sessions want different documents and production knows which."""

    z: float
    p_value: float

    @property
    def rejects(self) -> bool:
        """Whether pooled clicks and own clicks contradict each other."""
        return self.p_value < SIZE

    @property
    def fact(self) -> Fact:
        """The finding."""
        return (DIFFER if self.rejects else ALIKE)(z=self.z, p_value=self.p_value)


def session_test(log: ClickLog, curve: PositionBias) -> SessionTest | None:
    """The test of the module, on production's lists down to the end of the curve.

    None where the lists of a query are all in one order: nothing can tell.
    """
    depth = min(log.depth, curve.depth)
    alpha, beta = (each[:depth] for each in curve.affine())
    inside = log.position <= depth
    inside[inside] = alpha[log.position[inside] - 1] > 0
    d, k = log.document[inside], log.position[inside].astype(np.int64) - 1
    owner = ragged.list_of_row(log.indptr)[inside]
    n = log.sessions[owner].astype(float)
    c, size = log.label[inside] * n, log.n_documents
    shown = sum_by(d, n, size)
    mean = sum_by(d, n * k, size) / np.maximum(shown, 1.0)
    discount = 1 / np.log2(2.0 + np.arange(depth))
    change = np.empty(len(k))
    change[np.lexsort((d, mean[d], owner))] = discount[k]  # rows of a list are by position
    change -= discount[k]
    exposure = np.maximum(sum_by(d, n * alpha[k], size), 1e-300)
    g = sum_by(d, c - n * beta[k], size) / exposure
    credit = (c - n * beta[k]) / alpha[k]
    query = log.query[owner]
    by_query = sum_by(query, change * (credit - n * g[d]), log.n_queries)
    if np.sum(np.abs(by_query)) <= ROUNDING * max(float(np.sum(np.abs(credit))), 1e-300):
        return None
    moved = sum_by(d, change * n, size) / exposure
    slope = moved[d] * n * (beta[k] + alpha[k] * g[d]) - change * c / alpha[k]
    of_curve = _variance(curve, sum_by(k, slope, depth))
    z = float(by_query.sum() / np.sqrt(np.sum(by_query**2) + of_curve))
    sessions = sum_by(log.query, log.sessions, log.n_queries)
    degrees = max(effective_units(sessions[by_query != 0]) - 1, 1.0)
    return SessionTest(z, float(2 * special.stdtr(degrees, -abs(z))))


def _variance(curve: PositionBias, gradient: FloatArray) -> float:
    """Of what the curve's error adds, from the derivatives by log theta; 0 for a curve without."""
    if curve.std_error is None:
        return 0.0
    known = np.diag(curve.std_error**2) if curve.covariance is None else curve.covariance
    by_theta = gradient / curve.examination[: len(gradient)]
    return float(by_theta @ known[: len(gradient), : len(gradient)] @ by_theta)
