r"""Grades as one more noisy observation of the logit of relevance, with a precision for each judge.

    l_ij ~ N(a_j + s_j eta_i, t_j^2)            the grade of document i by judge j
    eta_i | clicks ~ N(mu_i, V_i)               what clicks say

    l_ij | clicks ~ N(a_j + s_j mu_i, s_j^2 V_i + t_j^2)

The last line is a regression on what is known (Berkson's error), so that its slope is not
attenuated; a_j, s_j and t_j maximise its likelihood. A grade then adds s_j^2 / t_j^2 to the
precision of eta_i and s_j (l_ij - a_j) / t_j^2 to precision times value. A judge who knows nothing
has s = 0, one who says the opposite a negative s. What clicks measure and relevance is not
(attractive titles) counts as noise of the judge.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from untilt._core.arrays import FloatArray, sum_by
from untilt.data.clicklog import ClickLog
from untilt.data.grades import Grades, find_pairs
from untilt.errors import OptionError
from untilt.facts import note

FEWEST = 30  # graded documents of a judge; those with fewer count as one judge

JUDGE = note(
    "labels.judge",
    "{name}: a grade is {intercept:.2f} + {slope:.2f} times the logit of relevance, with noise "
    "{noise:.2f} ({graded:,} documents)",
)


class Judge(NamedTuple):
    """a_j, s_j and t_j, and of how many documents with impressions they were learned."""

    name: str
    intercept: float
    slope: float
    noise: float
    graded: int


class Observed(NamedTuple):
    """(2, documents) value and precision of the logit by grades, and the judges."""

    logits: FloatArray
    judges: tuple[Judge, ...]


def observed(labels: Grades, log: ClickLog, mean: FloatArray, variance: FloatArray) -> Observed:
    """What grades say of each document of the log; several by one judge count as their mean.

    Parameters
    ----------
    mean, variance : (documents,) of the logit by clicks; NaN where there are none
    """
    last = np.argsort(np.isfinite(mean), kind="stable")  # versions of a document: one with clicks
    row = find_pairs(labels, log.query_id[log.doc_query[last]], log.doc_id[last])
    found, row = row >= 0, last[row]
    item = np.arange(log.n_documents) if log.item is None else log.item
    names, judge = np.unique(labels.judge[found].astype(str), return_inverse=True)
    few = np.bincount(judge, minlength=len(names)) < FEWEST
    judge = np.where(few[judge], len(names), judge)
    sums, judges = np.zeros((2, log.n_items)), []
    for number in np.unique(judge):
        mine = judge == number
        pairs, first, owner = np.unique(
            item[row[found][mine]], return_index=True, return_inverse=True
        )
        grade = sum_by(owner, labels.grade[found][mine]) / np.bincount(owner)
        at = row[found][mine][first]
        name = "others" if number == len(names) else str(names[number])
        judges.append(_judge(name, grade, mean[at], variance[at]))
        _, a, s, t, _ = judges[-1]
        sums[:, pairs] += np.array([s * (grade - a), np.full(len(grade), s**2)]) / t**2
    if not judges:
        raise OptionError(
            f"none of the {len(labels):,} grades is of a document of this log. Use the same ids."
        )
    value = np.divide(sums[0], sums[1], out=np.zeros(log.n_items), where=sums[1] > 0)
    logits = np.ascontiguousarray(np.array([value, sums[1]])[:, item])
    return Observed(logits, tuple(judges))


def _judge(name: str, grade: FloatArray, mean: FloatArray, variance: FloatArray) -> Judge:
    known = np.isfinite(mean)
    y, x, V = grade[known], mean[known], variance[known]
    if len(y) < FEWEST:
        raise OptionError(
            f"{len(y)} documents with impressions are graded by {name}, and {FEWEST} are needed to "
            "learn how grades relate to clicks. Grade more of them, or leave labels out."
        )
    spread = float(np.var(y))
    if not spread > 0:
        return Judge(name, float(y[0]), 0.0, 1.0, len(y))

    def cost(point: FloatArray) -> float:
        a, s, log_t2 = point
        total = s**2 * V + np.exp(log_t2)
        return float(np.sum(np.log(total) + (y - a - s * x) ** 2 / total))

    slope = float(np.cov(x, y)[0, 1] / max(np.var(x), 1e-9))
    start = np.array([y.mean() - slope * x.mean(), slope, np.log(spread / 2)])
    ends = (np.log(spread / 100), np.log(4 * spread))
    a, s, log_t2 = minimize(cost, start, bounds=[(None, None), (None, None), ends]).x
    return Judge(name, float(a), float(s), float(np.exp(log_t2 / 2)), len(y))
