"""The results of a counterfactual evaluation: values of systems, their errors and differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import special

from untilt._core import words
from untilt._core.arrays import FloatArray
from untilt._core.random import Seed
from untilt._core.statistics import Interval, MeanEstimate, check_level, holm
from untilt.errors import OptionError, check_choice
from untilt.evaluation.estimate_view import count_text, difference_figure, estimate_sections
from untilt.evaluation.labels.estimate import LabelEstimates
from untilt.evaluation.pool import Among, Evaluator
from untilt.evaluation.propensities import Balance
from untilt.evaluation.slots import RankMetric
from untilt.evaluation.systems import NOTHING, Inputs, extreme_curves
from untilt.evaluation.uncertainty import (
    ClickWeights,
    CurveCheck,
    Means,
    Sums,
    bootstrap_intervals,
    holding,
)
from untilt.evaluation.unshown import Bound, Unshown, unshown_table
from untilt.facts import Fact, phrase, serious
from untilt.views import Entries, Section, Table, View

if TYPE_CHECKING:
    from untilt.evaluation.sensitivity import Sensitivity

UNSHOWN_DECIDE = serious(
    "estimate.unshown-decide",
    "{system} and {baseline}: documents never shown would fill {share:.0%} of the top {top} "
    "places, and the answer depends on them. If all candidates are ranked, the difference is "
    "between {nothing:+.4f} (they are worth nothing) and {as_shown:+.4f} (as much as shown ones)",
)

CORRECTIONS = ("holm", "bonferroni", "benjamini-hochberg", "none")  # of p-values


@dataclass(frozen=True)
class Estimate:
    """The value of one system, as if it had been deployed.

    `std_error`^2 = `sampling_error`^2 (leaving out each query) + `bias_error`^2 (from the errors of
    the bias). `effective_queries`: as many of equal traffic would tell as much. `clipping_bias`:
    what a clip or a relevance model adds to the value, estimated; errors and interval are those
    without it.
    `unshown_share`: of the top ranks, how many go to documents that nobody was shown where all
    candidates are ranked; `unshown`: the value of that ranking, whatever those may be worth. None
    where the log has no such documents.
    """

    system: str
    metric: str
    evaluator: str
    value: float
    std_error: float
    interval: Interval
    sampling_error: float
    bias_error: float
    effective_n: float
    largest_weight: float
    clipped_share: float
    unsupported_share: float
    unshown_share: float
    n_sessions: int
    n_queries: int
    warnings: tuple[Fact, ...]
    effective_queries: float | None = None
    clipping_bias: float = 0.0
    unshown: Unshown | None = None
    json_renamed: ClassVar[Mapping[str, str]] = {"lean": "clipping_bias"}

    def __repr__(self) -> str:
        return (
            f"{self.system}: {self.metric} {self.value:.4f} +- {self.std_error:.4f} by "
            f"{self.evaluator}, {self.interval.level:.0%} interval {self.interval} over "
            f"{self.n_queries:,} queries (effective: {count_text(self.effective_queries)}), "
            f"{self.n_sessions:,} sessions"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Estimates(Entries[Estimate], View):
    """Several systems on one log: `estimates["new"].interval`, `estimates.compare("shown")`.

    `warnings` hold for all systems; each `Estimate` has its own besides. `scale` says what the
    values are multiples of, `baseline` which sessions the systems would have taken over, `check`
    whether the log's own clicks fit the bias. `clip` is the clip used, `clip_chosen` whether the
    data chose it. `inputs` is what they were computed from, for `sensitivity`. `unbiased` are the
    sums that errors and intervals are made from, those without a clip or with a relevance model
    corrected; None where there is no interval. `also` are the same systems by an evaluator whose
    intervals these hold too. `balance`: where values rest on logged propensities, whether the log
    agrees with these.

    `labels` are values by a sample of grades, all candidates ranked; None without grades.

    `if_nothing` and `if_as_shown` are the same systems ranking *all* candidates of each query, if
    those that nobody was shown are worth nothing, and as much as the shown ones (see
    `untilt.evaluation.slots`); None where the log has no such candidates.
    """

    entries: tuple[Estimate, ...]
    metric: RankMetric
    evaluator: str
    clip: float
    among: Among
    baseline: Fact
    level: float
    scale: Fact
    weights: ClickWeights
    check: CurveCheck
    warnings: tuple[Fact, ...]
    sums: Sums
    clip_chosen: bool = False
    inputs: Inputs | None = None
    unbiased: Sums | None = None
    also: "Estimates | None" = None
    balance: Balance | None = None
    if_nothing: "Estimates | None" = None
    if_as_shown: "Estimates | None" = None
    labels: LabelEstimates | None = None

    @property
    def systems(self) -> tuple[str, ...]:
        """Names, in the order given."""
        return tuple(entry.system for entry in self.entries)

    @property
    def order(self) -> tuple[str, ...]:
        """Names, best first."""
        sign = -1 if self.metric.higher_is_better else 1
        return tuple(e.system for e in sorted(self.entries, key=lambda e: sign * e.value))

    @property
    def best(self) -> Estimate:
        """The system with the best value; `compare` says how sure that is."""
        return self[self.order[0]]

    def compare(
        self,
        baseline: str | None = None,
        *,
        correction: str = "holm",
        power: float = 0.8,
        level: float | None = None,
    ) -> "SystemComparison":
        r"""Paired differences of all systems to one of them.

        Both systems are judged by the same clicks, so most noise cancels: the error of a difference
        is that of the per-query influence differences, plus g' S g with g the *difference* of the
        gradients by theta. Only queries in which the two differ count as effective queries. With
        t = t_level + t_power of these, n sessions and errors s (clicks) and b (bias), the sessions
        needed solve t^2 (s^2 n / needed + b^2) = difference^2; further sessions are taken to be
        like these, new queries among them as here.

        Parameters
        ----------
        baseline : a system's name; the first where not given
        correction : of p-values for the number of systems: "holm" ([holm1979]_), "bonferroni",
            "benjamini-hochberg" ([benjamini1995]_; controls the share of false findings) or "none"
        power : probability with which a true difference of this size should be found
        level : of intervals and decisions; that of the estimates where not given
        """
        level = self.level if level is None else level
        check_level(level)
        check_choice("correction", correction, CORRECTIONS)
        if not 0.5 <= power < 1:
            raise OptionError(f"power must lie between 0.5 and 1. Got {power}; 0.8 is usual.")
        if len(self) < 2:
            raise OptionError(
                "a comparison needs two systems. Estimate both in one call, such as "
                "estimate(log, {'shown': ⟦ut.shown|shown⟧, 'new': ranker}, bias)."
            )
        base = self[self.systems[0] if baseline is None else baseline].system
        if self.if_nothing is not None and self.if_as_shown is not None:
            options: dict[str, Any] = {"correction": correction, "power": power, "level": level}
            shown = replace(self, if_nothing=None, if_as_shown=None).compare(base, **options)
            ends = (each.compare(base, **options) for each in (self.if_nothing, self.if_as_shown))
            return shown.with_unshown(self, *ends)
        if self.also is not None:
            both = (replace(self, also=None), self.also)
            one, other = (
                each.compare(base, correction="none", power=power, level=level) for each in both
            )
            return one.united(other, correction)
        if self.is_bounded:
            return self._compare_within_bounds(base, correction, power, level)
        zero = self.systems.index(base)
        others = [i for i, s in enumerate(self.systems) if s != base]
        now, value = self.entries[0].n_sessions, self.sums.value
        gap = value[others] - value[zero]
        exact = (self.unbiased or self.sums).means(zero)
        exact = (exact if self.unbiased else exact.without_errors()).of(others)
        same = np.all(self.sums.total[:, others] == self.sums.total[:, [zero]], axis=0)
        # The same order is no difference at all, also where a single query gives no error.
        means = [
            MeanEstimate(0.0, 0.0, max(exact.n_queries, 2)) if equal else mean
            for mean, equal in zip(exact, same, strict=True)
        ]
        intervals = holding([mean.interval(level) for mean in means], gap)
        # A clipping bias that turns the sign round leaves nothing to decide, as the interval says.
        p = np.array(
            [m.p_value if m.value * g >= 0 else 1.0 for m, g in zip(means, gap, strict=True)]
        )
        corrected = corrected_p_values(p, correction)
        needed = _sessions_needed(exact, gap, now, level, power)
        return SystemComparison(
            entries=tuple(
                SystemDifference(
                    system=self.systems[other],
                    baseline=base,
                    value=float(gap[i]),
                    std_error=mean.std_error,
                    interval=intervals[i],
                    p_value=float(p[i]),
                    corrected_p=float(corrected[i]),
                    decided=bool(corrected[i] < 1 - level),
                    sessions_needed=float(needed[i]),
                    more_sessions=max(0.0, float(needed[i]) - now),
                    effective_queries=float(exact.effective_queries[i]),
                )
                for i, (other, mean) in enumerate(zip(others, means, strict=True))
            ),
            metric=str(self.metric),
            baseline=base,
            higher_is_better=self.metric.higher_is_better,
            correction=correction,
            power=power,
            level=level,
            warnings=tuple(each for each in self.warnings if each.severity == "serious"),
        )

    @property
    def is_bounded(self) -> bool:
        """Whether the curve has positions whose level is bounded, not measured."""
        if self.inputs is None or self.unbiased is None or self.inputs.bias.bounds is None:
            return False
        return self.inputs.evaluator.unbiased().needs_bias

    def again(self, systems: tuple[str, ...], **changed: Any) -> "Estimates":
        """Two of the systems, had the curve, the evaluator or the clicks been others.

        `changed` is as of `untilt.evaluation.systems.Inputs.sums`; `inputs` takes another log.
        """
        inputs = changed.pop("inputs", self.inputs)
        assert inputs is not None
        first = self.entries[0]
        entries = tuple(
            replace(first, system=name) if name == NOTHING else self[name] for name in systems
        )
        sums = inputs.sums(systems, **changed)
        by = changed.get("evaluator") or inputs.evaluator
        unbiased = sums if self.unbiased is not None else None
        if unbiased is not None and (exact := by.unbiased()) is not by:
            unbiased = inputs.sums(systems, **{**changed, "evaluator": exact})
        return replace(
            self, entries=entries, sums=sums, unbiased=unbiased, inputs=None, also=None,
            if_nothing=None, if_as_shown=None,
        )  # fmt: skip

    def with_intervals_of(self, evaluator: Evaluator) -> "Estimates":
        """The same values with intervals that hold those of another evaluator, too."""
        if self.inputs is None or self.unbiased is None:
            return self
        inputs = self.inputs.on(by=evaluator)
        again = self.again(self.systems, inputs=inputs)
        also = replace(again, inputs=inputs, evaluator=evaluator.name)
        means = (also.unbiased or also.sums).means()
        intervals = holding([each.interval(self.level) for each in means], also.sums.value)
        values = zip(also.entries, also.sums.value, intervals, strict=True)
        entries = tuple(replace(e, value=float(v), interval=i) for e, v, i in values)
        also = replace(also, entries=entries).within_bounds()
        hulls = tuple(
            replace(own, interval=own.interval.hull(other.interval))
            for own, other in zip(self.entries, also.entries, strict=True)
        )
        return replace(self, entries=hulls, also=also)

    def _compare_within_bounds(
        self, base: str, correction: str, power: float, level: float
    ) -> "SystemComparison":
        """Intervals over all curves within the bounds; decided where these agree on the sign."""
        middle = replace(self, inputs=None).compare(base, power=power, level=level)
        now, entries = self.entries[0].n_sessions, []
        for entry in middle:
            ends = self._ends(entry.system, base, level)
            near = _nearest_to_zero(*ends)
            needed = np.inf if near is None else near.sessions_needed
            bounded = replace(
                entry, interval=_around(*ends, level), sessions_needed=needed,
                p_value=1.0 if near is None else near.p_value,
                more_sessions=max(0.0, needed - now),
            )  # fmt: skip
            entries.append(entry if entry.identical else bounded)
        return replace(
            middle, entries=_corrected(entries, correction, level), correction=correction
        )

    def _ends(
        self, system: str, base: str, level: float
    ) -> "tuple[SystemDifference | None, SystemDifference | None]":
        """The difference under the curves that make it least and greatest; None without bound."""
        assert self.inputs is not None
        sign = {base: -1.0, system: 1.0} if base != NOTHING else {system: 1.0}
        without_clipping = replace(self.inputs, evaluator=self.inputs.evaluator.unbiased())
        curves = extreme_curves(without_clipping, sign)
        least, greatest = (
            None
            if curve is None
            else self.again((base, system), bias=curve).compare(base, level=level)[system]
            for curve in curves
        )
        return least, greatest

    def within_bounds(self) -> "Estimates":
        """The values with intervals over all curves within the bounds, where there are any."""
        if not self.is_bounded:
            return self
        level, entries = self.level, []
        for entry in self.entries:
            ends = self._ends(entry.system, NOTHING, level)
            entries.append(replace(entry, interval=_around(*ends, level)))
        return replace(self, entries=tuple(entries))

    def sensitivity(
        self,
        system: str | None = None,
        baseline: str | None = None,
        *,
        factor: float = 1.5,
        trust: float = 0.2,
    ) -> "Sensitivity":
        """What would flip the difference of a system to the baseline: see `Sensitivity`.

        Parameters
        ----------
        system : the best of the others where not given
        baseline : a system's name; the first where not given
        factor : by which the curve may be wrong, at position 10 or at one position alone
        trust : share of the clicks at position 1 that may come from trust in the top alone
        """
        from untilt.evaluation.sensitivity import sensitivity_of

        base = self[self.systems[0] if baseline is None else baseline].system
        others = [name for name in self.order if name != base]
        if not others:
            raise OptionError("sensitivity is that of a difference: estimate two systems.")
        new = others[0] if system is None else self[system].system
        return sensitivity_of(self, new, base, factor=factor, trust=trust)

    def bootstrap(self, *, n_draws: int = 1000, seed: Seed = 0) -> dict[str, Interval]:
        """Bootstrap intervals by query, for each system."""
        if self.unbiased is None:
            return {each.system: each.interval for each in self.entries}
        intervals = bootstrap_intervals(self.unbiased, self.level, n_draws, seed)
        return dict(zip(self.systems, holding(intervals, self.sums.value), strict=True))

    def unshown_table(self) -> Table | None:
        """All candidates ranked: the share of top places, and both values."""
        found = {each.system: each.unshown for each in self if each.unshown is not None}
        return unshown_table(found) if found else None

    def view(self) -> list[Section]:
        """Values, and what to beware of."""
        return [*estimate_sections(self), *(() if self.labels is None else self.labels.view())]

    def notes(self) -> list[str]:
        """All warnings, one a line, those of a system with its name."""
        own = [
            phrase("{system}: {warning}", system=each.system, warning=warning)
            for each in self.entries
            for warning in each.warnings
        ]
        return [*self.warnings, *own]


@dataclass(frozen=True)
class SystemDifference:
    """One system minus the baseline, paired by query.

    `p_value` is two-sided, `corrected_p` takes the number of systems into account. `decided` means
    corrected_p < 1 - level. `sessions_needed` is the size of a log like this one in which a true
    difference of this size would be found with the asked-for power: inf where the error of the bias
    alone is too large, so that no number of sessions is enough. `identical` systems have the same
    value in every query, as with the same order: there is nothing to decide. `effective_queries`
    are those in which the two differ: as many of equal traffic would tell as much. `unshown`: the
    difference where both rank all candidates, whatever those are worth that nobody was shown.
    """

    system: str
    baseline: str
    value: float
    std_error: float
    interval: Interval
    p_value: float
    corrected_p: float
    decided: bool
    sessions_needed: float
    more_sessions: float
    effective_queries: float | None = None
    unshown: Unshown | None = None

    @property
    def identical(self) -> bool:
        """Whether the two systems have the same value, query by query."""
        return self.value == 0 and self.std_error == 0

    def __repr__(self) -> str:
        return (
            f"{self.system} minus {self.baseline}: {self.value:+.4f} +- {self.std_error:.4f}, "
            f"{self.interval.level:.0%} interval {self.interval}, p {self.corrected_p:.2g}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class SystemComparison(Entries[SystemDifference], View):
    """Differences to one baseline: `comparison["new"].interval`.

    `warnings` : those of the estimates that may overturn a difference, whatever its interval says
    """

    entries: tuple[SystemDifference, ...]
    metric: str
    baseline: str
    higher_is_better: bool
    correction: str
    power: float
    level: float
    warnings: tuple[Fact, ...] = ()

    def with_unshown(
        self, of: Estimates, nothing: "SystemComparison", as_shown: "SystemComparison"
    ) -> "SystemComparison":
        """With the differences under both beliefs about candidates that nobody was shown."""
        entries, facts = [], []
        for entry in self:
            pair = [of[name].unshown for name in (self.baseline, entry.system)]
            most = max((each for each in pair if each is not None), key=lambda each: each.share)
            ends = [Bound.of(each[entry.system]) for each in (nothing, as_shown)]
            unshown = replace(most, nothing=ends[0], as_shown=ends[1])
            entries.append(replace(entry, unshown=unshown))
            if unshown.decides(Bound.of(entry).sign):
                facts.append(
                    UNSHOWN_DECIDE(
                        system=entry.system,
                        baseline=self.baseline,
                        share=unshown.share,
                        top=unshown.top,
                        nothing=ends[0].value,
                        as_shown=ends[1].value,
                    )
                )
        return replace(self, entries=tuple(entries), warnings=(*self.warnings, *facts))

    def united(self, other: "SystemComparison", correction: str) -> "SystemComparison":
        """With intervals that hold those of the other too; decided where both are, alike."""
        entries = [
            replace(
                a,
                interval=a.interval.hull(b.interval),
                std_error=max(a.std_error, b.std_error),
                p_value=max(a.p_value, b.p_value) if a.value * b.value > 0 else 1.0,
                sessions_needed=max(a.sessions_needed, b.sessions_needed),
                more_sessions=max(a.more_sessions, b.more_sessions),
            )
            for a, b in ((entry, other[entry.system]) for entry in self)
        ]
        corrected = _corrected(entries, correction, self.level)
        return replace(self, entries=corrected, correction=correction)

    def view(self) -> list[Section]:
        """The differences with their intervals."""
        better = "higher" if self.higher_is_better else "lower"
        baseline = words.quoted(self.baseline)
        return [
            Section(
                "differences",
                f"{words.metric_name(self.metric)} minus that of {baseline} ({better} is better)",
                figures=(difference_figure(self, baseline=baseline),),
                cautions=self.warnings,
            )
        ]


def _nearest_to_zero(
    low: SystemDifference | None, high: SystemDifference | None
) -> SystemDifference | None:
    """Of the least and the greatest difference the one nearer to 0; None where signs differ."""
    if low is not None and low.value > 0:
        return low
    return high if high is not None and high.value < 0 else None


def _around(low: SystemDifference | None, high: SystemDifference | None, level: float) -> Interval:
    """From the lower end of the least to the upper end of the greatest."""
    least = -np.inf if low is None else low.interval.low
    return Interval(least, np.inf if high is None else high.interval.high, level)


def _corrected(
    entries: Sequence[SystemDifference], correction: str, level: float
) -> tuple[SystemDifference, ...]:
    """With p-values that take their number into account, and what these decide."""
    p = corrected_p_values(np.array([each.p_value for each in entries]), correction).tolist()
    return tuple(
        replace(each, corrected_p=own, decided=own < 1 - level)
        for each, own in zip(entries, p, strict=True)
    )


def _sessions_needed(
    means: Means, gap: FloatArray, now: int, level: float, power: float
) -> FloatArray:
    """(systems,) for a difference of this size; see `Estimates.compare`."""
    degrees = means.degrees_of_freedom
    t = special.stdtrit(degrees, 0.5 + level / 2) + special.stdtrit(degrees, power)
    room = gap**2 / t**2 - means.bias_error**2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(room > 0, np.ceil(now * means.sampling_error**2 / room), np.inf)


def corrected_p_values(p: FloatArray, correction: str) -> FloatArray:
    """p-values that take their number into account; NaN stays NaN."""
    m = len(p)
    if correction == "none" or m == 0:
        return p
    if correction == "bonferroni":
        return np.minimum(1.0, m * p)
    if correction == "holm":
        return holm(p)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(m)
    steps = p[order] * m / (1 + np.arange(m))
    corrected[order] = np.minimum.accumulate(steps[::-1])[::-1]
    return np.minimum(1.0, corrected)
