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

Does an experiment agree with the curve that documents which moved give in the other sessions?

A harvested curve takes what sessions want for examination where production knows it, and no
statistic of the same lists can tell. A small experiment can: one number is enough, the power b of

    theta = theta_h^b,    1 where theta_h, harvested from production's lists, may be trusted

A *unit* j is what stood at rank j before the swap, in lists of one experiment and length, or the
shuffled part of such lists. Chance alone moved it, so clicks on it at k are n_jk rho_j theta_k on
average, whatever moved documents in production. With x = log theta_h, m = n rho e^{b x} and rho at
its best for b, Newton's method solves

    sum_jk c_jk (x_k - x_j) = 0,    x_j = sum_k m_jk x_k / sum_k m_jk

with information I = sum m (x - x_j)^2, errors by query, and those of theta_h, g' V g with
g_k = -b sum_j m_jk (x_k - x_j) / I. Right as a test of b = 1; as a curve theta_h^b is only as good
as the shape of theta_h.
"""

from dataclasses import asdict, dataclass

import numpy as np
from scipy import special

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.portable import Portable
from untilt._core.statistics import effective_units
from untilt.auditing.interventions import Interventions
from untilt.auditing.scores import Score
from untilt.bias.curve import PositionBias
from untilt.bias.experiments import assignment
from untilt.bias.log_ratios import log_ratios
from untilt.data.clicklog import ClickLog
from untilt.facts import Fact, note, warning

SIZE = 0.05  # of each test; intervals are those of 1 - SIZE
ROUNDING = 1e-9  # of the terms of T: less is no difference at all

DIFFER = warning(
    "reading.sessions-differ",
    "Some sessions want a document more than others, and production knows which (z {z:+.1f}, p "
    "{p_value:.1g}); a curve from these lists would count that as examination.",
)
ALIKE = note(
    "reading.sessions-alike",
    "There is no sign that production shows documents to the sessions that want them (z "
    "{z:+.1f}, p {p_value:.2g}).",
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


STEPS, STEEPEST = 100, 50.0  # of Newton's method; a curve that any power fits is no curve

_TOLD = (
    "in {sessions:,} sessions that an experiment changed, clicks fall as the power {power:.2f} "
    "[{low:.2f}, {high:.2f}] of the curve that documents which moved give in the others (p "
    "{p_value:.2g})"
)
AGREES = note(
    "reading.harvested-agrees",
    "There is no sign that a curve of documents that moved is wrong here: " + _TOLD + ".",
)
_DIFFERS = (
    "A curve of documents that moved is wrong here, as if they were shown higher when they are "
    "wanted {how}: " + _TOLD + ", where 1 would agree."
)
DIFFERS = warning("reading.harvested-differs", _DIFFERS)


@dataclass(frozen=True)
class HarvestedTest(Portable):
    """Whether a harvested curve may be trusted, by an experiment in the same log.

    Parameters
    ----------
    power, std_error : b and its error, that of the harvested curve in it
    low, high : ends of its 95% interval
    p_value : two-sided, of b = 1
    sessions : that the experiment changed
    """

    power: float
    std_error: float
    low: float
    high: float
    p_value: float
    sessions: int

    @property
    def rejects(self) -> bool:
        """Whether the experiment contradicts the harvested curve."""
        return self.p_value < SIZE

    @property
    def fact(self) -> Fact:
        """The finding."""
        how = "more" if self.power < 1 else "less"
        return (DIFFERS if self.rejects else AGREES)(how=how, **asdict(self))


def harvested_test(log: ClickLog, done: Interventions, curve: PositionBias) -> HarvestedTest | None:
    """The test of the module for a curve of production's lists; None where nothing can tell."""
    of_row, changed = _units(log, done)
    x, V = log_ratios(curve)
    used = (of_row >= 0) & (log.position <= curve.depth)
    unit = np.unique(of_row[used], return_inverse=True)[1]
    k = log.position[used].astype(np.int64) - 1
    n, query = log.row_count[used].astype(float), log.query[ragged.list_of_row(log.indptr)[used]]
    c = log.label[used] * n
    cell, cell_of_row = np.unique(unit * len(x) + k, return_inverse=True)
    cells = (sum_by(cell_of_row, each) for each in (n, c))
    b, rho, mean = _power(cell // len(x), x[cell % len(x)], *cells)
    gap, p = x[k] - mean[unit], np.minimum(rho[unit] * np.exp(b * x[k]), 1.0)
    own = np.unique(query, return_inverse=True)[1]
    terms = ((c - n * p) * gap, n * p * (1 - p) * gap**2, n * p * gap**2)
    score = Score(*(sum_by(own, each) for each in terms))
    if not (abs(b) < STEEPEST and score.is_possible):
        return None
    total = score.information.sum()
    g = -b * sum_by(k, n * p * gap, len(x)) / total
    error = float(np.hypot(score.std_error / total, np.sqrt(max(g @ V @ g, 0.0))))
    if not np.isfinite(error):
        return None
    degrees = score.degrees_of_freedom
    half = float(special.stdtrit(degrees, 1 - SIZE / 2)) * error
    p_value = float(2 * special.stdtr(degrees, -abs(b - 1) / error))
    return HarvestedTest(b, error, b - half, b + half, p_value, changed)


def _units(log: ClickLog, done: Interventions) -> tuple[IntArray, int]:
    """(rows,) the unit of each row, -1 where chance moved nothing; and the sessions changed."""
    owner, size = ragged.list_of_row(log.indptr), log.depth + 1
    last = log.position[np.maximum(log.indptr[1:], 1) - 1]
    stratum = assignment.experiments_of(log) * size + last
    unit, changed = np.full(len(owner), -1, dtype=np.int64), np.zeros(log.n_lists, dtype=bool)
    if done.swapped and done.swaps_are_right:
        part, swapped = assignment.swapped_lists(log, None)
        rank, inside = assignment.rank_before_swap(log, swapped), part[owner]
        unit[inside] = (stratum[owner] * size + rank)[inside]
        changed |= swapped[:, 1] > 0
    if done.shuffled_depth:
        assert log.ranker is not None
        shuffled = assignment.shuffled_lists(log, None)
        named = [assignment.top_of(name) or done.shuffled_depth for name in log.ranker_names]
        inside = shuffled[owner] & (log.position <= np.array(named)[log.ranker][owner])
        several = (int(stratum.max()) + 1) * (size + log.ranker)  # none is a unit of swaps
        unit[inside] = (several + stratum)[owner][inside]
        changed |= shuffled
    return unit, int(log.sessions[changed].sum())


def _power(
    unit: IntArray, x: FloatArray, n: FloatArray, c: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """b at its best by cells, beyond STEEPEST where none is; rho and the mean of x by unit."""
    clicks, b = sum_by(unit, c), 1.0
    for _ in range(STEPS):
        rho = clicks / sum_by(unit, n * np.exp(b * x))
        m = rho[unit] * n * np.exp(b * x)
        mean = sum_by(unit, m * x) / np.maximum(clicks, 1e-300)
        gap = x - mean[unit]
        information = max(float(np.sum(m * gap**2)), 1e-300)
        step = float(np.clip(np.sum(c * gap) / information, -1, 1))
        if abs(step) < 1e-9 or abs(b) > STEEPEST:
            break
        b += step
    return b, rho, mean
