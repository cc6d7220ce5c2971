r"""Which documents to grade: those that decide the comparison, with known probabilities.

The variance of a sample is sum_i a_i^2 sigma_i^2 (1 - p_i) / p_i. With sum p_i = n fixed it is
least for p_i = min(1, kappa |a_i| sigma_i) (Neyman). Documents that stand on the same place in both
orders have a_i = 0 and are never graded; where several numbers are wanted, |a_i| is the root of the
sum of their squares. Drawn at random are exactly n, one after another at equal steps of cumulated
probability in random order, so that each has its p_i.
"""

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.arrays import AnyArray, FloatArray
from untilt._core.files import write_text
from untilt._core.portable import Portable
from untilt._core.random import Seed, generator
from untilt._core.statistics import check_level, normal_quantile
from untilt.data.grades import Drawn, Grades
from untilt.errors import OptionError, check_choice, check_share
from untilt.evaluation.labels.lists import (
    Candidates,
    Data,
    candidates,
    gains,
    is_sum,
    join,
    largest_value,
    place_weights,
)
from untilt.evaluation.systems import Systems, named_systems
from untilt.metrics.metric import Metric, parse_metric
from untilt.views import Section, Table, View

AIMS = ("difference", "values")


@dataclass(frozen=True, eq=False, repr=False)
class LabelPlan(Portable, View):
    """Documents to be graded, and how much they will tell.

    Parameters
    ----------
    query_id, doc_id : (rows,) the pairs to be graded
    probability : (rows,) with which each was drawn
    drawn : "documents", or "queries" with all of their candidates
    pool : so many documents count at all
    half_width : expected, of the interval for these queries, by grades alone
    guessed : whether it rests on a guess (half of the range), not on grades that are known
    """

    query_id: AnyArray
    doc_id: AnyArray
    probability: FloatArray
    drawn: Drawn
    metric: Metric
    pool: int
    half_width: float
    guessed: bool
    level: float

    def __len__(self) -> int:
        return len(self.doc_id)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """A CSV file with an empty column `grade`, which `read_labels` reads once it is filled."""
        held = io.StringIO()
        writer = csv.writer(held, lineterminator="\n")
        writer.writerow(("query_id", "doc_id", "grade", "probability", "drawn"))
        columns = (self.query_id.tolist(), self.doc_id.tolist(), self.probability.tolist())
        writer.writerows((q, d, "", repr(p), self.drawn) for q, d, p in zip(*columns, strict=True))
        write_text(path, held.getvalue())
        return Path(path)

    def view(self) -> list[Section]:
        """What to grade, and what it will tell."""
        what = "at most" if self.guessed else "about"
        rows = (
            ("to grade", f"{len(self):,} of {self.pool:,} documents that count"),
            ("queries", f"{len(set(self.query_id.tolist())):,}"),
            ("interval by grades alone", f"+-{self.half_width:.4f} {what}, these queries"),
        )
        return [Section("label-plan", f"Grades for {self.metric}", tables=(Table(("", ""), rows),))]


def plan_labels(
    data: Data,
    systems: Systems,
    budget: int,
    metric: str | Metric = "dcg@10",
    *,
    aim: str = "difference",
    drawn: Drawn = "documents",
    spare: float = 0.0,
    known: Grades | None = None,
    top_grade: float = 4.0,
    level: float = 0.95,
    seed: Seed = 0,
) -> LabelPlan:
    """Draw the documents whose grades tell most about these systems.

    Parameters
    ----------
    data, systems, metric : as in `estimate_labels`; the first system is the baseline
    budget : number of grades
    aim : "difference" of the others to the first system, or "values" of all of them too
    drawn : "documents"; or "queries", which are then graded whole, as NDCG needs
    spare : share of the grades that is spread over all candidates by traffic, to judge rankers
        that do not exist yet, such as those of a later run; .2 widens intervals by a tenth
    known : existing grades, from which the spread of gains is estimated
    top_grade : the best possible grade
    seed : seed of the draw
    """
    check_level(level)
    if spare:
        check_share("spare", spare)
    check_choice("aim", aim, AIMS)
    check_choice("drawn", drawn, ("documents", "queries"))
    chosen, lists = parse_metric(metric), candidates(data)
    if drawn == "documents" and not is_sum(chosen):
        raise OptionError(
            f"{chosen} needs queries that are graded whole: ⟦drawn='queries'⟧. Or use "
            f"dcg@{chosen.cut or 10}."
        )
    if budget < 1:
        raise OptionError(f"budget must be at least 1 grade. Got {budget} instead.")
    if drawn == "queries":
        return _whole_queries(lists, chosen, budget, level, seed)
    share = largest_value(chosen, lists, top_grade)
    each = [
        place_weights(lists, system, chosen) / share for system in named_systems(systems).values()
    ]
    wanted = [a - each[0] for a in each[1:]] or each
    wanted = [*wanted, *each] if aim == "values" else wanted
    size = np.sqrt(np.sum(np.square(wanted), axis=0))
    size[size < 1e-12 * size.max(initial=0)] = 0
    if not size.any():
        raise OptionError("the systems order all candidates alike: no grade can tell them apart.")
    of_all = lists.weight[lists.owner]
    size = (1 - spare) * size / size.sum() + spare * of_all / of_all.sum()
    p = probabilities(size, budget)
    sigma, guessed = _spread(lists, chosen, known, top_grade)
    a, rest = wanted[0], p > 0
    variance = float(np.sum(a[rest] ** 2 * (1 - p[rest]) / p[rest])) * sigma**2
    rows = draw(p, seed)
    return LabelPlan(
        *(_pairs(lists, rows)), p[rows], "documents", chosen, int(np.sum(size > 0)),
        normal_quantile(level) * variance**0.5, guessed, level,
    )  # fmt: skip


def _pairs(lists: Candidates, rows: AnyArray) -> tuple[AnyArray, AnyArray]:
    return lists.query_id[lists.owner[rows]], lists.doc_id[rows]


def _spread(
    lists: Candidates, metric: Metric, known: Grades | None, top_grade: float
) -> tuple[float, bool]:
    """Standard deviation of gains, and whether it is a guess: half of their range."""
    if known is not None:
        found = join(lists, known, metric)
        values = found.gain[found.known]
        if len(values) > 1:
            return float(np.std(values, ddof=1)), False
    return float(gains(metric, np.array([top_grade]))[0]) / 2, True


def _whole_queries(
    lists: Candidates, metric: Metric, budget: int, level: float, seed: Seed
) -> LabelPlan:
    """Queries in proportion to their sessions, as many as the budget holds."""
    sizes = np.diff(lists.indptr)
    n = int(np.floor(budget / max(float(lists.weight @ sizes), 1.0)))
    if n < 2:
        raise OptionError(
            f"{budget} grades are fewer than two whole queries ({lists.weight @ sizes:.0f} "
            "candidates each). Raise the budget, or draw documents."
        )
    p = probabilities(lists.weight, min(n, len(sizes)))
    queries = np.sort(draw(p, seed))
    rows = np.flatnonzero(np.isin(lists.owner, queries))
    variance = float(np.sum(lists.weight**2 * (1 - p) / np.where(p > 0, p, 1.0))) / 4
    return LabelPlan(
        *_pairs(lists, rows), p[lists.owner[rows]], "queries", metric, len(lists.doc_id),
        normal_quantile(level) * variance**0.5, True, level,
    )  # fmt: skip


def probabilities(size: FloatArray, n: int) -> FloatArray:
    """min(1, kappa size) with sum n; 1 for all that count where there are at most n.

    >>> probabilities(np.array([8.0, 1.0, 1.0, 0.0]), 2)
    array([1. , 0.5, 0.5, 0. ])
    """
    p = (size > 0).astype(float)
    if n >= p.sum():
        return p
    sure = np.zeros(len(size), dtype=bool)
    while True:
        kappa = (n - sure.sum()) / size[~sure].sum()
        more = ~sure & (kappa * size >= 1)
        if not more.any():
            return np.where(sure, 1.0, kappa * size)
        sure |= more


def draw(p: FloatArray, seed: Seed) -> Any:
    """Rows drawn with exactly these probabilities, round(sum p) of them."""
    random = generator(seed)
    order = random.permutation(np.flatnonzero(p > 0))
    reached = np.cumsum(p[order])
    n = round(float(reached[-1]))
    at = np.searchsorted(reached / reached[-1] * n, random.random() + np.arange(n), side="right")
    return np.sort(order[np.minimum(at, len(order) - 1)])
