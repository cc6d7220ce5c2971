r"""Which curve fits the clicks on documents that moved?

A click weighted by 1 / theta is worth the more the steeper the curve, so values of rankers cannot
choose between curves. Documents that were shown at several positions can: under the position-based
model the C clicks of such a document fall on its positions in the shares

    pi_k = n_k theta_k / sum_l n_l theta_l,

whatever its relevance. The logarithmic score sum_k c_k log pi_k is largest, in expectation, at the
true curve (up to a factor, which no click can tell), for any relevance, any rate of clicks and any
label that grows with examination. With trust bias n_k theta_k becomes n_k (alpha_k r + beta_k), r
the relevance that the clicks C themselves give; then the score is nearly of that kind.

Two answers from the same clicks: the score of each curve, paired by query, and the power p of each
curve that fits best, pi_k proportional to n_k theta_k^p. p below 1: the curve is too steep.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.ascent import short_steps
from untilt._core.statistics import MeanEstimate, effective_units, jackknife_error, weighted_mean
from untilt.bias.curve import PositionBias
from untilt.bias.given import BiasLike, as_examination, numbered_for
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, position_counts
from untilt.data.layout import Layout
from untilt.errors import OptionError
from untilt.facts import Fact, note, warning
from untilt.views import Entries, Section, Table, View

TOO_FLAT = warning(
    "bias.curve-too-flat",
    "the curve is flatter than the clicks on documents that moved (best-fitting power "
    "{power:.2f} +- {std_error:.2f}, {n_queries:,} queries)",
)

TOO_STEEP = warning(
    "bias.curve-too-steep",
    "the curve is steeper than the clicks on documents that moved (best-fitting power "
    "{power:.2f} +- {std_error:.2f}, {n_queries:,} queries)",
)

AS_STEEP = note(
    "bias.curve-as-steep",
    "the curve's steepness agrees with documents that moved (best-fitting power {power:.2f} +- "
    "{std_error:.2f}, {n_queries:,} queries)",
)

CURVE_NOTHING_MOVED = note(
    "bias.curve-nothing-moved",
    "{n_clicks:,.0f} clicks on documents shown at several positions: too few to test the "
    "steepness of the curve",
)

LEAST_CLICKS = 20.0  # on documents that moved; fewer tell nothing
SMALL = 0.1  # a power this near to 1 changes theta at position 10 by less than a quarter
CLEAR = 2.0  # standard errors


@dataclass(frozen=True)
class CurveEntry:
    """One curve on the clicks of documents that moved.

    Parameters
    ----------
    score : mean of log pi over clicks; higher fits better
    gap : score minus that of the best, paired by query; 0 for the best itself
    power : of the curve that fits best; 1 where the curve is right, below 1 where it is too steep
    """

    name: str
    score: float
    gap: MeanEstimate
    power: MeanEstimate

    @property
    def is_worse(self) -> bool:
        """Whether the best curve is better by more than two standard errors."""
        return bool(self.gap.value < -CLEAR * self.gap.std_error)

    @property
    def is_wrong(self) -> bool:
        """Whether the power is clearly not 1, and not too near to it to matter."""
        away = abs(self.power.value - 1)
        return bool(away > max(CLEAR * self.power.std_error, SMALL))

    @property
    def fact(self) -> Fact:
        """Whether the curve is as steep as the clicks say."""
        told = AS_STEEP
        if self.is_wrong:
            told = TOO_STEEP if self.power.value < 1 else TOO_FLAT
        power, error = self.power.value, self.power.std_error
        return told(power=power, std_error=error, n_queries=self.power.n)


@dataclass(frozen=True, eq=False, repr=False)
class CurveComparison(Entries[CurveEntry], View):
    """Curves compared on the same clicks: `comparison["given"].power`, `comparison.best`.

    Parameters
    ----------
    entries : one for each curve, in the order given; none where nothing can be told
    n_documents, n_clicks : documents shown at several positions, and the clicks on them
    """

    entries: tuple[CurveEntry, ...]
    n_documents: int
    n_clicks: float

    @property
    def possible(self) -> bool:
        """Whether documents moved and were clicked often enough to tell anything."""
        return bool(self.entries)

    @property
    def best(self) -> str | None:
        """The curve with the highest score; None where nothing can be told."""
        if not self.entries:
            return None
        return max(self.entries, key=lambda entry: entry.score).name

    def fact(self, name: str) -> Fact:
        """What the clicks say about one of the curves."""
        if not self.possible:
            return CURVE_NOTHING_MOVED(n_clicks=self.n_clicks)
        return self[name].fact

    def __getitem__(self, name: str) -> CurveEntry:
        return self._named(name, "curve")

    def view(self) -> list[Section]:
        """The scores, best first, and the power of each that would fit."""
        title = f"{self.n_clicks:,.0f} clicks on {self.n_documents:,} documents that moved"
        if not self.possible:
            return [Section("curves", title, (CURVE_NOTHING_MOVED(n_clicks=self.n_clicks),))]
        rows = tuple(
            (each.name, f"{each.score:.5f}", repr(each.gap), repr(each.power))
            for each in sorted(self.entries, key=lambda entry: -entry.score)
        )
        table = Table(("curve", "score", "to best", "power that fits"), rows)
        return [Section("curves", title, tables=(table,))]


def compare_curves(log: ClickLog, curves: Mapping[str, BiasLike]) -> CurveComparison:
    """How well each curve fits the clicks on documents shown at several positions.

    It needs no features and no ranker, and a steeper curve has no advantage: see
    `untilt.bias.compare_curves` for the formulas. All curves are judged by the same clicks, at the
    positions that each of them knows. Standard errors are over queries; the errors of the curves
    themselves are not in them, and where a curve was estimated from this log it has an advantage.

    It is wrong where documents move because their relevance changed.

    >>> from untilt import EyeTracking, PowerLaw, make_judged, simulate
    >>> log = simulate(make_judged(60, 4, seed=0), "harvest", n_sessions=6000, seed=0).log
    >>> found = compare_curves(log, {"flat": PowerLaw(0.2), "right": EyeTracking()})
    >>> found.best, found["flat"].is_worse
    ('right', True)
    """
    if not curves:
        raise OptionError("no curve to compare. Give at least one, such as {'mine': bias}.")
    for bias in curves.values():
        log = numbered_for(log, bias)
    counts = position_counts(log.without_versions())
    known = {name: _affine(bias, counts.depth, log.layout) for name, bias in curves.items()}
    usable = np.all([alpha + beta > 0 for alpha, beta, _ in known.values()], axis=0)
    moved = _moved(counts, usable)
    clicks = float(moved.clicks.sum())
    if clicks < LEAST_CLICKS:
        return CurveComparison((), moved.n_documents, clicks)
    fits = {name: _Shares(moved, *curve) for name, curve in known.items()}
    scores = {name: each.score_by_query() for name, each in fits.items()}
    total = {name: float(score.sum()) for name, score in scores.items()}
    best = max(total, key=lambda name: total[name])
    weight = sum_by(fits[best].query, moved.clicks)
    clicked = weight > 0
    entries = tuple(
        CurveEntry(
            name=name,
            score=total[name] / clicks,
            gap=weighted_mean(
                (scores[name] - scores[best])[clicked] / weight[clicked], weight[clicked]
            ),
            power=each.power(),
        )
        for name, each in fits.items()
    )
    return CurveComparison(entries, moved.n_documents, clicks)


def _affine(
    bias: BiasLike, depth: int, layout: Layout | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(alpha, beta, theta) at positions 1..depth, 0 below the end of the curve.

    A curve of plain positions beside curves by context is the same in all of them.
    """
    examination = as_examination(bias)
    if layout is not None and getattr(examination, "layout", None) is None:
        place = layout.places(depth)
        alpha, beta, theta = _affine(examination, int(place[-1]), None)
        return alpha[place - 1], beta[place - 1], theta[place - 1]
    if not isinstance(examination, PositionBias):
        examination = PositionBias(examination.at(np.arange(1, depth + 1)))
    inside = min(depth, examination.depth)
    curves = (*examination.affine(), examination.examination)
    alpha, beta, theta = (np.pad(each[:inside], (0, depth - inside)) for each in curves)
    return alpha, beta, theta


def _moved(counts: PositionCounts, usable: BoolArray) -> PositionCounts:
    """Documents shown at two or more usable positions, with their cells there alone."""
    kept = usable[counts.position_index]
    n = np.where(kept, counts.impressions, 0.0)
    several = counts.by_document((n > 0).astype(float)) > 1
    part = counts.where(several)
    return part.with_cells(usable[part.position_index])


class _Shares:
    """The shares pi of one curve: cells of documents that moved, and their queries."""

    def __init__(
        self, counts: PositionCounts, alpha: FloatArray, beta: FloatArray, theta: FloatArray
    ) -> None:
        self.counts = counts
        self.owner: IntArray = counts.document_index
        self.query: IntArray = np.unique(counts.query, return_inverse=True)[1][self.owner]
        k, n = counts.position_index, counts.impressions
        corrected, exposure = counts.corrected_sums(alpha, beta)
        # Without clicks a document says nothing; a relevance above 0 keeps its shares defined.
        r = np.clip(corrected / np.maximum(exposure, 1e-300), 1e-6, 1.0)
        self.rate = n * (alpha[k] * r[self.owner] + beta[k])
        self.z = np.log(theta[k] / theta[k].max())
        self.per_document = counts.by_document(counts.clicks)

    def shares(self, power: float = 1.0) -> FloatArray:
        """(cells,) pi with theta to this power."""
        rate = self.rate * np.exp((power - 1) * self.z)
        return rate / self.counts.by_document(rate)[self.owner]

    def score_by_query(self) -> FloatArray:
        """(queries,) sum of c log pi."""
        return sum_by(self.query, self.counts.clicks * np.log(self.shares()))

    def power(self) -> MeanEstimate:
        """The p of the best theta^p; the score is concave in p."""

        def newton_step(p: float) -> float:
            slope, information = self._derivatives(p)
            return float(slope.sum() / max(information.sum(), 1e-300))

        p = short_steps(newton_step, 1.0, largest=1.0, enough=1e-10, max_steps=50)
        slope, information = self._derivatives(p)
        if not information.sum() > 0:
            return MeanEstimate(float("nan"), float("nan"), 0)
        total = information.sum()
        told = information > 0
        error = jackknife_error(slope[told] / total, information[told] / total)
        effective = effective_units(information[told])
        return MeanEstimate(float(p), float(error), int(told.sum()), effective)

    def _derivatives(self, power: float) -> tuple[FloatArray, FloatArray]:
        """(queries,) slope of the score by p, and the information, C Var(log theta) under pi."""
        pi, z, counts = self.shares(power), self.z, self.counts
        mean = counts.by_document(pi * z)
        spread = counts.by_document(pi * (z - mean[self.owner]) ** 2)
        slope = sum_by(self.query, counts.clicks * (z - mean[self.owner]))
        first = self.query[counts.indptr[:-1]]
        information = sum_by(first, self.per_document * spread, len(slope))
        return slope, information
