r"""The value of a ranker from a sample of grades, and predictions of the others.

Survey sampling: the difference estimator with a fitted slope. A metric is theta = sum_i a_i y_i
over all candidates, y_i the gain of a document. Documents were drawn to be graded with known
probabilities p_i; S are those that were. x_i = (1, predictions) is known everywhere.

    omega_i = (1 - p_i) (a_i / p_i)^2
    beta    = (sum_S omega x x')^-1 sum_S omega x y                   the slope of least variance
    f_i     = x_i' beta,   e_i = y_i - f_i,   h_i = omega_i x_i' (sum_S omega x x')^-1 x_i
    theta^  = sum_{not S} a f + sum_S a y + sum_S a (1 - p)/p e / (1 - h)

The last term fits every graded document without its own grade, in closed form: theta^ is unbiased
for any predictions under independent draws. The variance for these queries has g-weights, which
carry the error of beta, and the leverage h, which takes off the optimism of the fit:

    gw_i = a_i / p_i + omega_i x_i' A^-1 gap,    gap = sum_{p<1} a x - sum_S (a / p) x
    V1   = sum_S (1 - p) (gw e / (1 - h))^2,     t with (sum omega)^2 / sum omega^2 - d degrees

For queries like these the labels' shares join each query's own sum, and queries are left out one
at a time, as everywhere else; that interval is at least as wide. Whole queries that were drawn are
the units themselves: then any metric will do, NDCG too. Where documents have several judges and
the mean judge is meant, one grade's noise counts in full: V1 += tau^2 sum_S a^2 / (p J).

[angelopoulos2023]_ ("prediction-powered"), [sarndal1992]_ (g-weights, regression estimator).
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.portable import Portable
from untilt._core.statistics import (
    Interval,
    check_level,
    effective_units,
    jackknife_error,
    student_quantile,
)
from untilt.bias.curve import PositionBias
from untilt.data.clicklog import ClickLog
from untilt.data.counts import corrected_clicks
from untilt.data.grades import Grades
from untilt.data.seen import overlap_of
from untilt.errors import OptionError
from untilt.evaluation.labels.lists import (
    Candidates,
    Data,
    Graded,
    candidates,
    gains,
    is_sum,
    join,
    largest_value,
    part_of_traffic,
    place_weights,
    prediction,
    scores_of,
)
from untilt.evaluation.labels.plan import probabilities
from untilt.evaluation.systems import Systems, named_systems
from untilt.facts import Fact, note, warning
from untilt.metrics.metric import Metric, parse_metric, values_per_list
from untilt.views import Entries, Section, Table, View

# Measured with a prediction that leans (design of the estimator, docs/labels.md): below 30 grades
# a fitted slope covers .82 to .95, below 10 no interval does.
SLOPE_FROM, INTERVAL_FROM, GRADES_A_COLUMN = 30, 10, 15
NOT_COVERED = 0.05  # of sum |a| that the draw may have left out
FEW_QUERIES = 10.0

LEAN = note(
    "labels.lean",
    "the predictions alone give {alone:+.4f} for {name}, outside the interval for these queries: "
    "they are biased, and the grades correct them",
)
UNUSED = note(
    "labels.predictions-unused",
    "predictions are not used for {name}: their slope needs {least} grades of drawn documents "
    "(here {n:,}) and an explained variance above {share:.1%} (here {r2:.1%})",
)
MORE_QUERIES = note(
    "labels.more-queries",
    "more grades of these queries hardly narrow {name}: queries differ more than grades err",
)
FEW_EFFECTIVE = warning(
    "labels.few-queries",
    "{name} has only {effective:.1f} effective queries: its interval holds only for these queries",
)
NOT_ASKED = warning(
    "labels.not-drawn-for",
    "no value for {name}: the draw leaves out {share:.0%} of the weight of its documents",
)
UNMATCHED = warning(
    "labels.unmatched", "{n:,} {n:grade is|grades are} not used: the document is no candidate"
)


@dataclass(frozen=True, eq=False)
class Regressed(Portable):
    """theta^ with V1 and its degrees of freedom; `part` (units,) is what each unit adds."""

    value: float
    variance: float
    degrees: float
    part: FloatArray
    slopes: FloatArray
    r2: float
    drawn: int


def regressed(
    a: FloatArray, y: FloatArray, p: FloatArray, x: FloatArray, noise: FloatArray | None = None
) -> Regressed:
    """The estimate of sum a y from the units whose y is known.

    Parameters
    ----------
    a : (units,) weights
    y : (units,) NaN where not known
    p : (units,) probabilities of the known ones
    x : (units, d) the first column 1
    noise : (units,) variance of each y around what is meant
    """
    known = np.isfinite(y)
    s = np.flatnonzero(known & (p < 1))
    open_ = ~(known & (p >= 1))
    w, rest = a[s] / p[s], 1 - p[s]
    omega = rest * w**2
    d = x.shape[1]
    A = x[s].T @ (omega[:, None] * x[s])
    inverse = np.linalg.pinv(A, hermitian=True) if len(s) else np.zeros((d, d))
    beta = inverse @ (x[s].T @ (omega * y[s]))
    f = x @ beta
    e = y[s] - f[s]
    h = np.minimum(omega * np.einsum("ij,jk,ik->i", x[s], inverse, x[s]), 0.95)
    part = np.where(open_, a * f, a * np.where(known, y, 0.0))
    left_one_out = a[s] * (y[s] - f[s]) + w * rest * e / (1 - h)
    gap = a[open_] @ x[open_] - w @ x[s]
    z = (w + omega * (x[s] @ (inverse @ gap))) * e / (1 - h)
    variance = float(np.sum(rest * z**2))
    if noise is not None:
        variance += float(np.sum((a**2 * noise)[known] / np.where(known, p, 1.0)[known]))
    value = float(part.sum() + left_one_out.sum())
    part[s] += z
    effective = float(omega.sum() ** 2 / max(np.sum(omega**2), 1e-300)) if len(s) else 1e9
    flat = np.sum(omega * (y[s] - np.average(y[s], weights=omega)) ** 2) if omega.sum() > 0 else 0.0
    r2 = 1 - float(np.sum(omega * e**2)) / float(flat) if flat > 0 else 0.0
    return Regressed(value, variance, max(effective - d, 1.0), part, beta, r2, len(s))


@dataclass(frozen=True, eq=False, repr=False)
class LabelEstimate(Portable):
    """A value, or the difference of two, from grades and predictions.

    Parameters
    ----------
    name : the system, or "new - old" for a difference
    value : NaN where the draw does not carry it
    interval : for queries like these; None where nothing carries it
    interval_these : for these queries alone
    alone : the estimate by the grades alone, with its interval for these queries
    predicted : the predictions alone say, on the scale of the grades; None where none is used
    worth : so many grades alone would tell as much about these queries; NaN without predictions
    grades : how many were drawn and count; `effective_queries` as everywhere
    slopes : of the predictions, by name
    """

    name: str
    value: float
    interval: Interval | None
    interval_these: Interval | None
    alone: tuple[float, Interval | None]
    predicted: float | None = None
    worth: float = np.nan
    grades: int = 0
    effective_queries: float = 0.0
    slopes: Mapping[str, float] = field(default_factory=dict)
    r2: float = 0.0
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, eq=False)
class Agreement(Portable):
    """How far a prediction agrees with the grades, in a part of the traffic.

    Weighted as the comparison weighs documents, so that it says how far the prediction can be
    believed about *it*. `kappa` is quadratic-weighted (Lin's concordance for continuous grades).
    """

    name: str
    part: str
    grades: int
    bias: float
    correlation: float
    correlation_interval: Interval | None
    kappa: float
    kappa_interval: Interval | None


@dataclass(frozen=True, eq=False, repr=False)
class LabelEstimates(Entries[LabelEstimate], Portable, View):
    """Values of systems and their differences to the baseline: `estimates["new - shown"]`.

    `share` : divisor of the values where the metric is a sum: its largest value
    """

    entries: tuple[LabelEstimate, ...]
    metric: str
    share: float
    level: float
    agreements: tuple[Agreement, ...]
    facts: tuple[Fact, ...]
    named_by: ClassVar[str] = "name"

    def ends(self, entry: LabelEstimate) -> dict[str, float]:
        """Value and interval for queries like these, on the scale of the metric."""
        assert entry.interval is not None
        names, ends = ("value", "low", "high"), (entry.interval.low, entry.interval.high)
        return dict(zip(names, (self.share * each for each in (entry.value, *ends)), strict=True))

    def view(self) -> list[Section]:
        """The estimates, and how far the predictions agree with the grades."""
        whole = self.metric if self.share == 1 else f"{self.metric}, a share of its largest"
        header = (
            "system", "value", f"{self.level:.0%} interval", "these queries", "grades alone",
            "predictions alone", "worth grades", "queries",
        )  # fmt: skip
        facts = [*self.facts, *(fact for entry in self for fact in entry.facts)]
        estimates = Section(
            "labels", f"{whole}, from {max((e.grades for e in self), default=0):,} grades",
            tables=(Table(header, tuple(map(_row, self))),),
            notes=tuple(fact for fact in facts if fact.severity == "note"),
            cautions=tuple(fact for fact in facts if fact.severity != "note"),
        )  # fmt: skip
        rows = tuple(
            (a.name, a.part, f"{a.grades:,}", f"{a.bias:+.2f}",
             *(f"{value:.2f} " + ("" if ends is None else f"{ends:.2f}") for value, ends in
               ((a.correlation, a.correlation_interval), (a.kappa, a.kappa_interval))))
            for a in self.agreements
        )  # fmt: skip
        named = ("prediction", "queries", "grades", "bias", "correlation", "kappa")
        judges = Table(named, rows, text_columns=(0, 1))
        other = Section("judges", "Predictions against the grades", tables=(judges,))
        return [estimates, other] if rows else [estimates]


def _row(entry: LabelEstimate) -> tuple[str, ...]:
    def number(value: float | None, spec: str = "+.4f", none: str = "") -> str:
        return none if value is None or np.isnan(value) else f"{value:{spec}}"

    def ends(interval: Interval | None) -> str:
        return "not given" if interval is None else f"{interval:+.4f}"

    alone = number(entry.alone[0])
    return (
        entry.name, number(entry.value, none="not given"), ends(entry.interval),
        ends(entry.interval_these), alone and f"{alone} {ends(entry.alone[1])}",
        number(entry.predicted), number(entry.worth, ",.0f"), f"{entry.effective_queries:,.1f}",
    )  # fmt: skip


def estimate_labels(
    data: Data,
    systems: Systems,
    labels: Grades,
    metric: str | Metric = "dcg@10",
    *,
    predictions: Mapping[str, Any] | None = None,
    baseline: str | None = None,
    level: float = 0.95,
    top_grade: float | None = None,
) -> LabelEstimates:
    """Estimate the value of rankers from a sample of grades and a prediction of all grades.

    Parameters
    ----------
    data : a click log with its candidates, or judged lists (their own labels do not count)
    systems : name -> ranker, scores of all documents, or `shown`
    labels : grades with the probability and the unit of their draw (`plan_labels`)
    metric : a sum such as "dcg@10" or "precision@5"; any metric where whole queries were drawn
    predictions : name -> a prediction of every candidate's grade: `click_judgments`, `Grades` of
        another judge, scores or a ranker. None of them may have learned from these labels
    baseline : the system that the others are compared with; the first where not given
    top_grade : the best possible grade, the unit of values of a sum; by default the largest given
    """
    check_level(level)
    chosen, named, lists = parse_metric(metric), named_systems(systems), candidates(data)
    _check_sample(labels, chosen)
    drawn = _queries if labels.drawn == "queries" else _documents
    best = float(labels.grade.max()) if top_grade is None else top_grade
    share = largest_value(chosen, lists, best) if is_sum(chosen) else 1.0
    if not share > 0:
        raise OptionError(f"all grades are {best:g}: they cannot tell one order from another.")
    columns = {name: prediction(lists, given) for name, given in (predictions or {}).items()}
    graded = join(lists, labels, chosen)
    for name, system in named.items():
        if "grades" in getattr(system, "summary_", ()) and overlap_of(data, system).trained:
            raise OptionError(
                f"{name} learned from grades of some of these queries, which would overstate its "
                "value. Evaluate it on queries that it was not trained on."
            )
    first = next(iter(named)) if baseline is None else baseline
    if first not in named:
        raise OptionError(f"there is no system {first!r}. There are: {', '.join(named)}.")
    targets = {name: {name: 1.0} for name in named}
    targets |= {f"{name} - {first}": {name: 1.0, first: -1.0} for name in named if name != first}
    units = drawn(lists, named, graded, chosen, columns)
    entries = [
        _estimated(name, parts, units, lists, list(columns), share, level)
        for name, parts in targets.items()
    ]
    last = units.of(next(reversed(targets.values())))[0]
    agreements = _agreements(lists, graded, columns, last, level)
    facts = (UNMATCHED(n=graded.unmatched),) if graded.unmatched else ()
    return LabelEstimates(tuple(entries), str(chosen), share, level, tuple(agreements), facts)


def beside_clicks(
    log: ClickLog, systems: Systems, labels: Grades, metric: str, curve: PositionBias, level: float
) -> LabelEstimates:
    """`estimate_labels` with clicks over examination as the prediction: (y + g) / (e + 1)."""
    known = log if log.depth <= curve.depth else log.top(curve.depth)
    clicks, exposure = corrected_clicks(known, *curve.affine())
    rate = (clicks + clicks.sum() / max(exposure.sum(), 1e-300)) / (exposure + 1)
    return estimate_labels(
        log, systems, labels, metric, predictions={"corrected clicks": rate}, level=level
    )


def _check_sample(labels: Grades, metric: Metric) -> None:
    if labels.drawn is None or np.isnan(labels.probability).any():
        raise OptionError(
            "these grades do not tell how they were drawn, and picked grades overstate values: "
            "add the columns `probability` and `drawn`. `untilt plan` draws documents; where all "
            "candidates are graded, give probability 1."
        )
    if labels.drawn == "documents" and not is_sum(metric):
        raise OptionError(
            f"{metric} needs queries that are graded whole, because its norm is not linear in the "
            f"grades. Use dcg@{metric.cut or 10}, or draw whole queries."
        )


class _Units(NamedTuple):
    """Units of the draw: documents, or queries. `of` gives a, y and predictions of a target."""

    owner: IntArray
    p: FloatArray
    noise: FloatArray | None
    of: Callable[[Mapping[str, float]], tuple[FloatArray, FloatArray, list[FloatArray]]]


def _documents(
    lists: Candidates, systems: Mapping[str, Any], graded: Graded, metric: Metric,
    columns: Mapping[str, FloatArray],
) -> _Units:  # fmt: skip
    """A target is a sum over documents: its weights differ, what is graded does not."""
    weights = {name: place_weights(lists, system, metric) for name, system in systems.items()}
    x = [gains(metric, column) for column in columns.values()]

    def of(parts: Mapping[str, float]) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
        return _sum(weights, parts), graded.gain, x

    several = np.where(graded.known, graded.noise / np.maximum(graded.judges, 1), 0.0)
    return _Units(lists.owner, graded.probability, several if graded.noise else None, of)


def _queries(
    lists: Candidates, systems: Mapping[str, Any], graded: Graded, metric: Metric,
    columns: Mapping[str, FloatArray],
) -> _Units:  # fmt: skip
    """A target is a mean over queries: its weights are those of queries, its values differ."""
    sizes = np.diff(lists.indptr)
    known = sum_by(lists.owner, graded.known.astype(float), len(sizes))
    partly = int(((known > 0) & (known < sizes)).sum())
    if partly:
        raise OptionError(
            f"{partly:,} of {int((known > 0).sum()):,} graded queries have candidates without a "
            "grade, and queries were drawn whole. Grade all of their candidates, or draw documents."
        )
    scores = {name: scores_of(lists, system) for name, system in systems.items()}

    def values(grade: FloatArray, parts: Mapping[str, float]) -> FloatArray:
        y = np.maximum(np.nan_to_num(grade), 0.0)
        each = {n: values_per_list([metric], scores[n], y, lists.indptr)[:, 0] for n in parts}
        return _sum(each, parts)

    def of(parts: Mapping[str, float]) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
        y = np.where(known > 0, values(graded.grade, parts), np.nan)
        return lists.weight, y, [values(column, parts) for column in columns.values()]

    first = np.minimum(lists.indptr[:-1], len(lists.doc_id) - 1)
    return _Units(np.arange(len(sizes)), graded.probability[first], None, of)


def _sum(values: Mapping[str, FloatArray], parts: Mapping[str, float]) -> FloatArray:
    return np.asarray(sum(sign * values[name] for name, sign in parts.items()))


def _estimated(
    name: str, parts: Mapping[str, float], units: _Units, lists: Candidates, names: Sequence[str],
    share: float, level: float,
) -> LabelEstimate:  # fmt: skip
    a, y, columns = units.of(parts)
    a = a / share
    counts = np.abs(a) > 1e-12 * np.abs(a).max(initial=0.0)
    y = np.where(counts, y, np.nan)
    known = np.isfinite(y)
    n = int(known.sum())
    if not counts.any():
        same = Interval(0.0, 0.0, level)
        return LabelEstimate(name, 0.0, same, same, (0.0, same))
    left_out = _left_out(a, known, units.p)
    if left_out > NOT_COVERED:
        refused = NOT_ASKED(name=name, share=min(left_out, 1.0))
        return LabelEstimate(name, np.nan, None, None, (np.nan, None), grades=n, facts=(refused,))
    one = np.ones((len(a), 1))
    found = alone = regressed(a, y, units.p, one, units.noise)
    predicted, facts, used = None, [], False
    if columns:
        x = np.column_stack([one, *columns[: max(alone.drawn // GRADES_A_COLUMN, 0)]])
        fitted = regressed(a, y, units.p, x, units.noise)
        explains = 1 / max(alone.drawn - 2, 1)
        used = alone.drawn >= SLOPE_FROM and fitted.r2 > explains
        found = fitted if used else alone
        # On the scale of the grades: clicks say 0 to 1, grades 0 to 4.
        predicted = float(a @ (x @ fitted.slopes)) if used else None
        if alone.drawn and not used:
            facts.append(
                UNUSED(name=name, n=alone.drawn, least=SLOPE_FROM, share=explains, r2=fitted.r2)
            )
    these, like, effective = _intervals(found, units, lists.weight, a, level)
    if these is not None and used and predicted is not None and predicted not in these:
        facts.append(LEAN(name=name, alone=predicted))
    if these is not None and like is not None:
        if effective < FEW_QUERIES:
            facts.append(FEW_EFFECTIVE(name=name, effective=effective))
            like = like if effective >= 3 else None
        elif (these.high - these.low) < 0.3 * (like.high - like.low):
            facts.append(MORE_QUERIES(name=name))
    return LabelEstimate(
        name, found.value, like, these,
        (alone.value, _intervals(alone, units, lists.weight, a, level)[0]), predicted,
        _worth(a, alone, found, n) if used else np.nan, n, effective,
        dict(zip(names, found.slopes[1:].tolist(), strict=False)), found.r2 if used else 0.0,
        tuple(facts),
    )  # fmt: skip


def _left_out(a: FloatArray, known: BoolArray, p: FloatArray) -> float:
    """Share of sum |a| that the grades do not stand for, beyond what chance leaves out."""
    total = float(np.abs(a).sum())
    stands = np.abs(a[known]) / p[known]
    chance = float(np.sqrt(np.sum((1 - p[known]) * stands**2)))
    return (abs(total - float(stands.sum())) - 3 * chance) / total


def _intervals(
    found: Regressed, units: _Units, w: FloatArray, a: FloatArray, level: float
) -> tuple[Interval | None, Interval | None, float]:
    """For these queries, for queries like these, and the effective queries of the second."""
    n = len(w)
    part = sum_by(units.owner, found.part, n)
    counts = sum_by(units.owner, (a != 0).astype(float), n) > 0
    effective = effective_units(w[counts])
    if 0 < found.drawn < INTERVAL_FROM:
        return None, None, effective
    half = student_quantile(level, found.degrees) * np.sqrt(found.variance)
    these = Interval(found.value - half, found.value + half, level)
    if n < 2 or effective <= 1:
        return these, None, effective
    error = float(jackknife_error(part - w * part.sum(), w))
    wide = max(student_quantile(level, max(effective - 1, 1.0)) * error, half)
    return these, Interval(found.value - wide, found.value + wide, level), effective


def _worth(a: FloatArray, alone: Regressed, found: Regressed, grades: int) -> float:
    """So many grades alone, drawn in proportion to |a|, have the error of `found`."""
    size = np.abs(a)

    def variance(n: int) -> float:
        p = probabilities(size, n)
        return float(np.sum(a**2 * np.divide(1 - p, p, out=np.zeros(len(p)), where=p > 0)))

    most = int(np.sum(size > 0))
    wanted = variance(grades) * found.variance / max(alone.variance, 1e-300)
    more = bisect_left(range(2, most), -wanted, key=lambda n: -variance(n))
    return float(min(2 + more, most))


def _agreements(
    lists: Candidates, graded: Graded, columns: Mapping[str, FloatArray], weight: FloatArray,
    level: float,
) -> list[Agreement]:  # fmt: skip
    """Of each prediction, in all and in head, torso and tail."""
    parts, part = part_of_traffic(lists.sessions)
    rows = np.flatnonzero(graded.known)
    owner, w = lists.owner[rows], np.ones(len(rows))
    if len(weight) == len(lists.doc_id):
        w = np.abs(weight[rows]) / graded.probability[rows]
    found = []
    for name, column in columns.items():
        for number, called in enumerate(("all", *parts), -1):
            own = (w > 0) & ((number < 0) | (part[owner] == number))
            if own.sum() >= INTERVAL_FROM:
                y, x = graded.grade[rows[own]], column[rows[own]]
                found.append(_agreement(name, called, w[own], y, x, owner[own], level))
    return found


def _agreement(
    name: str, part: str, w: FloatArray, y: FloatArray, x: FloatArray, owner: Any, level: float
) -> Agreement:
    """Bias, correlation and kappa, with intervals by leaving each query out on Fisher's scale."""
    unit = np.unique(owner, return_inverse=True)[1]
    sums = np.stack([sum_by(unit, w * each) for each in (y**0, y, x, y * y, x * x, x * y)], axis=1)
    total, n = sums.sum(axis=0), len(sums)
    (bias, *whole), (_, *left) = _measures(total[None]), _measures(total - sums)
    ends: list[Interval | None] = [None, None]
    for i, both in enumerate(zip(whole, left, strict=True)):
        centre, z = (np.arctanh(np.clip(each, -0.999999, 0.999999)) for each in both)
        if n > 2:
            error = np.sqrt((n - 1) / n * np.sum((z - z.mean()) ** 2))
            half = student_quantile(level, n - 1) * error
            low, high = np.tanh([centre[0] - half, centre[0] + half]).tolist()
            ends[i] = Interval(low, high, level)
    correlation, kappa = (float(each[0]) for each in whole)
    return Agreement(name, part, len(y), float(bias[0]), correlation, ends[0], kappa, ends[1])


def _measures(sums: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean difference, correlation and concordance from weighted sums, row by row."""
    _, my, mx, wyy, wxx, wxy = sums.T / np.maximum(sums[:, 0], 1e-300)
    vy, vx, c = wyy - my**2, wxx - mx**2, wxy - mx * my
    vy, vx = np.maximum(vy, 1e-12), np.maximum(vx, 1e-12)
    return mx - my, c / np.sqrt(vy * vx), 2 * c / (vy + vx + (mx - my) ** 2)
