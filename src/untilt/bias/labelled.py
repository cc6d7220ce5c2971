r"""Position bias from grades: documents of one grade are clicked less the lower they stand.

    E c_ik = n_ik theta_k h(eta_i),   h(eta) = sigmoid(a + b eta + c eta^2),   l_ij = eta_i + noise

theta_k = C_k / sum_i n_ik h_i is profiled out, so that a, b and c maximise

    sum_i C_i log h_i - sum_k C_k log sum_i n_ik h_i.

Judges err, and the ranker of the log shows high what is relevant. Taken as exact, a noisy grade
leaves some of relevance to the position: the curve is too steep by b (1 - R)(m_k - m_1), R the
reliability. So h_i is the mean over what eta can be given the grade and the place of the document,

    eta_i | l_i ~ N(m_i + R_i (l_i - m_i), s_i^2 (1 - R_i)),   R_i = s_i^2 / (s_i^2 + tau^2 / J_i),

with m_i, s_i^2 the mean and variance of eta at the mean log rank of the document, and J_i judges.
tau^2 is half the mean squared difference of two judges of one document, after each judge's
leniency. Errors leave out groups of queries and fit all of it again.
"""

import os
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
from scipy.optimize import brentq, minimize

from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.statistics import effective_units
from untilt.bias.compare_curves import compare_curves
from untilt.bias.curve import POSITION_BASED, PositionBias
from untilt.bias.estimator import BiasEstimator, counts_to
from untilt.bias.log_ratios import Uncertainty, from_log_ratios
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts
from untilt.data.grades import Grades, find_pairs, read_labels
from untilt.errors import IdentifiabilityError, OptionError
from untilt.facts import Fact, joined, note, warning

GRADED = note(
    "bias.graded",
    "{clicks:,.0f} clicks on {documents:,} graded documents of {queries:,} queries; the "
    "reliability of their grades is {reliability:.2f}",
)
ERRORS = note("bias.errors-by-group", "errors by leaving out {groups} groups of queries")
NOISE_UNKNOWN = warning(
    "bias.grade-noise",
    "no document has grades of two judges, so the noise of grades is unknown: intervals allow "
    "reliabilities from {least:.1f} to 1. Grades of 100 documents by a second judge would narrow "
    "them",
)
UNRELIABLE = warning(
    "bias.unreliable-grades",
    "at a reliability of {reliability:.2f} grades tell little about relevance, and the curve "
    "needs a large correction",
)
FAIR = note(
    "bias.fair-grades",
    "judges ignore positions, and the logging ranker knew no more about relevance than the grades",
)()

GROUPS, FEWEST_QUERIES, FEWEST_CLICKS = 20, 10, 10
LEAST_RELIABILITY = 0.5  # assumed where nothing tells it
WEAK = 0.3  # intervals of a factor of 4, and 91% coverage, in the toy of the design
ENOUGH = 10.0  # documents at a position that count as much as a smooth curve over positions
# Of normal priors of a, b and c, which hold them where clicks say nothing.
SPREADS = np.array([4.0, 2.0, 0.3])
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@method(
    "bias", "clicks-by-grade", title="Clicks by grade", order=25, rests_on="labels",
    needs=("labels",), reference="agarwal2019estimating",
    note="click rates by position of documents of the same grade",
)  # fmt: skip
@dataclass(eq=False, repr=False)
class ClicksByGrade(BiasEstimator):
    """Click rates by position among documents of one grade, with the error of the grades.

    Works on a single fixed order, where clicks alone identify nothing, and checks a curve of
    documents that moved; its status tells whether both agree. The curve is too flat if judges saw
    the positions, and too steep if the logging ranker knew more about relevance than the grades.

    Parameters
    ----------
    labels : `Grades` of some of the documents, or a file of them
    noise : standard deviation of one grade around the mean of judges; by default from documents
        with grades of several judges. Two runs of one language model count as one judge, because
        they share errors
    depth, level : as in `AllPairs`
    """

    labels: Grades | str | os.PathLike[str] | None = None
    _: KW_ONLY
    noise: float | None = None
    depth: int | None = None
    level: float = 0.95

    def _estimate(self, log: ClickLog) -> PositionBias:
        if self.labels is None:
            raise OptionError("⟦ClicksByGrade⟧ needs grades: ⟦labels=...|--labels FILE⟧.")
        labels = self.labels if isinstance(self.labels, Grades) else read_labels(self.labels)
        sample = _sample(counts_to(log, self.depth), log, labels)
        tau2 = _noise(sample) if self.noise is None else self.noise**2
        found = self._bounded(sample) if tau2 is None else self._of(sample, tau2)
        moved = compare_curves(log.top(found.depth), {"it": found}).fact("it")
        return replace(found, status=joined(found.status, moved))

    def _bounded(self, sample: "Sample") -> PositionBias:
        """What holds whatever the noise of the grades is, up to the least reliability."""
        most = brentq(
            lambda tau2: float(np.mean(_reliability(sample, tau2)[2])) - LEAST_RELIABILITY,
            0.0, 9 * float(np.var(sample.grade)) + 1e-9,
        )  # fmt: skip
        ends = [self._of(sample, each) for each in (0.0, most)]
        (z, S), (z1, S1) = ((np.log(e.examination), e.covariance) for e in ends)
        assert S is not None
        assert S1 is not None
        apart = (z1 - z) / 2
        between = np.exp((z + z1) / 2)
        return replace(
            ends[0],
            examination=between,
            std_error=None,
            covariance=(S + S1) / 2 + np.outer(apart, apart) * np.outer(between, between),
            low=np.minimum(*(np.asarray(each.low) for each in ends)),
            high=np.maximum(*(np.asarray(each.high) for each in ends)),
            status=joined(ends[1].status, NOISE_UNKNOWN(least=LEAST_RELIABILITY)),
        )

    def _of(self, sample: "Sample", tau2: float) -> PositionBias:
        """The curve at this noise of the grades."""
        clicks = sample.by_query(sample.clicks.sum(axis=1))
        group = np.empty(len(clicks), dtype=np.int64)
        group[np.lexsort((np.arange(len(clicks)), -clicks))] = np.arange(len(clicks)) % GROUPS
        n = int(group.max()) + 1
        given = self.noise is not None or tau2 == 0
        point, z = _fit(sample, tau2)
        left = []
        for number in range(n):
            part = sample.where(group[sample.query] != number)
            noise = tau2 if given else _noise(part)
            left.append(_fit(part, tau2 if noise is None else noise, point)[1])
        away = np.array(left) - np.mean(left, axis=0)
        groups = float(effective_units(sum_by(group, clicks)))
        effective = effective_units(clicks)
        errors = Uncertainty(
            (n - 1) / n * away.T @ away, ERRORS(groups=n), effective_queries=effective,
            degrees_of_freedom=np.full(len(z), max(groups - 1, 1.0)),
            effective_at=np.full(len(z), effective),
        )  # fmt: skip
        return from_log_ratios(
            z, errors, level=self.level, method="ClicksByGrade", assumes=(POSITION_BASED, FAIR),
            status=joined(*_told(sample, tau2), errors.rule),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Sample:
    """Graded documents that were shown.

    Parameters
    ----------
    impressions, clicks : (documents, K)
    query : (documents,)
    rank : (documents,) mean log position
    grade, judges : (documents,) mean over judges, and how many
    apart : (documents,) sum of squares of the grades around their mean
    """

    impressions: FloatArray
    clicks: FloatArray
    query: IntArray
    rank: FloatArray
    grade: FloatArray
    judges: FloatArray
    apart: FloatArray

    def where(self, keep: BoolArray) -> "Sample":
        """Some of the documents."""
        return Sample(**{name: value[keep] for name, value in vars(self).items()})

    def by_query(self, values: FloatArray) -> FloatArray:
        """(queries,) sums."""
        return sum_by(self.query, values, int(self.query.max()) + 1)


def _sample(cells: PositionCounts, log: ClickLog, labels: Grades) -> Sample:
    row = find_pairs(labels, log.query_id[cells.query], log.doc_id[cells.document])
    rows, owner = np.unique(row[row >= 0], return_inverse=True)
    if not len(rows):
        raise OptionError(
            f"none of the {len(labels):,} grades is of a document that this log shows. Use the "
            "same ids."
        )
    grade, judges = labels.grade[row >= 0], np.bincount(owner).astype(float)
    judge = np.unique(labels.judge[row >= 0].astype(str), return_inverse=True)[1]
    several = (judges > 1)[owner]
    own = grade - (sum_by(owner, grade) / judges)[owner]
    lenient = sum_by(judge, own * several) / np.maximum(sum_by(judge, several * 1.0), 1.0)
    grade = grade - lenient[judge]
    mean = sum_by(owner, grade) / judges
    number = np.full(cells.n_documents, -1)
    number[rows] = np.arange(len(rows))
    mine = number[cells.document_index]
    at = mine[mine >= 0] * cells.depth + cells.position_index[mine >= 0]
    n, c = (
        sum_by(at, each[mine >= 0], len(rows) * cells.depth).reshape(-1, cells.depth)
        for each in (cells.impressions, cells.clicks)
    )
    few = np.append(c.sum(axis=0) < FEWEST_CLICKS, True)
    depth = int(np.argmax(few))
    n, c = n[:, :depth], c[:, :depth]
    shown = n.sum(axis=1) > 0
    query = np.unique(cells.query[rows][shown], return_inverse=True)[1]
    if depth < 2 or query.max() + 1 < FEWEST_QUERIES:
        raise IdentifiabilityError(
            f"graded documents have {FEWEST_CLICKS} clicks only at positions 1..{depth}, in "
            f"{len(set(query.tolist())):,} queries; two positions and {FEWEST_QUERIES} queries are "
            "needed. Grade more documents that were shown."
        )
    rank = n @ np.log(np.arange(1.0, depth + 1)) / np.maximum(n.sum(axis=1), 1)
    apart = sum_by(owner, (grade - mean[owner]) ** 2)
    columns = (n, c, rank, mean, judges, apart)
    n, c, rank, mean, judges, apart = (each[shown] for each in columns)
    return Sample(n, c, query, rank, mean, judges, apart)


def _noise(sample: Sample) -> float | None:
    """tau^2; None where no document has two grades."""
    more = float(np.sum(sample.judges - 1))
    return float(sample.apart.sum()) / more if more > 0 else None


def _prior(sample: Sample) -> tuple[FloatArray, FloatArray]:
    """(documents,) mean of the grades at each one's rank, and their variance around it."""
    mean = _by_rank(sample.rank, sample.grade, 3)
    squares = (sample.grade - mean) ** 2
    return mean, np.maximum(_by_rank(sample.rank, squares, 1), 0.05 * squares.mean() + 1e-9)


def _by_rank(rank: FloatArray, y: FloatArray, degree: int) -> FloatArray:
    """A polynomial, and the mean of the rest at each position as far as documents tell."""
    X = np.vander(rank, 1 + min(degree, len(np.unique(rank)) - 1))
    found: FloatArray = X @ np.linalg.lstsq(X, y, rcond=None)[0]
    at = np.round(np.exp(rank)).astype(np.int64)
    return found + (sum_by(at, y - found) / (np.bincount(at) + ENOUGH))[at]


def _reliability(sample: Sample, tau2: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """m, s^2 and R of each document."""
    mean, spread = _prior(sample)
    noise = tau2 / sample.judges
    s2 = np.maximum(spread - noise, 0.05 * spread)
    return mean, s2, s2 / (s2 + noise)


def _fit(
    sample: Sample, tau2: float, start: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """(a, b, c), and the log of theta_k / theta_1."""
    mean, s2, R = _reliability(sample, tau2)
    scale = max(float(np.std(mean + R * (sample.grade - mean))), 1e-9)
    eta = (mean + R * (sample.grade - mean) - sample.grade.mean())[:, None]
    eta = (eta + np.sqrt(s2 * (1 - R))[:, None] * NODES) / scale
    terms = np.stack([np.ones_like(eta), eta, eta**2])
    C, C_k = sample.clicks.sum(axis=1), sample.clicks.sum(axis=0)

    def cost(point: FloatArray) -> tuple[float, FloatArray]:
        g = 1 / (1 + np.exp(-np.clip(np.tensordot(point, terms, 1), -30, 30)))
        h = np.maximum(g @ WEIGHTS, 1e-12)
        slope = (terms * g * (1 - g)) @ WEIGHTS
        shown = h @ sample.impressions
        value = C @ np.log(h) - C_k @ np.log(shown)
        gradient = slope @ (C / h) - (slope @ sample.impressions) @ (C_k / shown)
        known = point / SPREADS
        return 0.5 * float(known @ known) - value, known / SPREADS - gradient

    begin = np.array([-1.0, 0.5, 0.0]) if start is None else start
    point = minimize(cost, begin, jac=True, method="L-BFGS-B").x
    g = 1 / (1 + np.exp(-np.clip(np.tensordot(point, terms, 1), -30, 30)))
    theta = C_k / ((g @ WEIGHTS) @ sample.impressions)
    return point, np.log(theta / theta[0])


def _told(sample: Sample, tau2: float) -> list[Fact]:
    R = float(np.mean(_reliability(sample, tau2)[2]))
    told = GRADED(
        clicks=float(sample.clicks.sum()), documents=len(sample.grade),
        queries=int(sample.query.max()) + 1, reliability=R,
    )  # fmt: skip
    return [told] if R >= WEAK else [told, UNRELIABLE(reliability=R)]
