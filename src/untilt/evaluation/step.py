r"""How far to go from the old order towards a new ranker: the step that clicks show to be safe.

In each list, with old rank k (or a logged score s) and the new ranker's score f,

    s_w = (1 - w) z_old + w z_new,    z_old = -log k or s,  z_new = f,    w = .1, .2, .., 1,

each over its spread within lists, the same for all lists, so that s_w can be served. D(w) is the
estimate of s_w minus the old order, from cross-fitted f. Its lower bounds hold for all w at once:

    L(w) = D(w) - c se(w),    c = quantile of max_w Z_w,    Z ~ N(0, correlation of all D(w)),

with the errors of queries and of the curve, c scaled by Student's t, never below that of the plain
two-sided interval, and L(w) also without the query that speaks most for w. Of the w with L(w) > 0
the one with the largest D(w) is taken; w = 1, which is served without the old order, where it is
one of them and none is better by a standard error; w = 0, the old order, where there are none. So
the step is worse than the old order with a probability of at most 1 - level, whichever w is taken,
if the curve is right. Where it is assumed, L(w) is the least of those under theta and theta^.75.

Where several named rankers share the traffic, the old order is that of the best one. Queries count
by their sessions, whoever answered them: ranker r has the value sum_q N_q v_rq / sum_q N_q.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from untilt._core import ragged, words
from untilt._core.arrays import BoolArray, FloatArray, sum_by
from untilt._core.portable import Portable
from untilt._core.statistics import Interval, MeanEstimate, normal_quantile, weighted_mean
from untilt.auditing.variation import LEAST_TURNOVER, Assigned, variation_of
from untilt.bias.experiments.assignment import baseline_lists
from untilt.data.clicklog import ClickLog
from untilt.data.counts import position_counts
from untilt.data.slates import slates_of, slot_discounts
from untilt.evaluation.by_default import own_clicks
from untilt.evaluation.pool import Pool
from untilt.evaluation.results import Estimates, SystemDifference
from untilt.evaluation.sensitivity import FIRM_SHARE
from untilt.evaluation.slots import EXAMINATION, RankMetric, as_rank_metric, slots_of
from untilt.evaluation.systems import Inputs
from untilt.evaluation.uncertainty import Sums
from untilt.facts import note
from untilt.objectives.hierarchical import click_cells, fit_hierarchy
from untilt.views import Section, Table, View

STEPS = tuple(i / 10 for i in range(1, 11))
FLATTER = 0.75  # power of an assumed curve that the bounds must hold under, too
PER = 1000  # sessions that clicks are counted for
LEAST_TRAFFIC = 0.05  # share of production's sessions from which a ranker counts as live
LEAST_SHARED = 0.5  # share of the sessions in queries that all live rankers answered
DRAWS, LIKELIHOOD_QUERIES = 20_000, 2000

SAFE = note(
    "step.safe",
    "The step to take is w = {w:g}: {gain:+.4f} {metric} per session, bound {low:+.4f}.",
)
NO_STEP = note("step.none", "No step has a bound above 0: the old order is kept.")()
ALSO_FLATTER = note(
    "step.also-flatter",
    "The curve is assumed: each bound also holds with the curve to the power {power:g}.",
)
BY_LIKELIHOOD = note("step.by-likelihood", "The clicks are likeliest at w = {w:.2f}.")
BETTER_THAN_ALL = note("step.better-than-all", "The step is better than all {n} logged rankers.")


@dataclass(frozen=True)
class StepPoint:
    """The step w: its gain over the old order per session and its bound, and both in clicks.

    `clicks`, `clicks_low` : more clicks per 1,000 sessions
    """

    w: float
    gain: float
    low: float
    clicks: float | None = None
    clicks_low: float | None = None


@dataclass(frozen=True)
class LoggedRanker:
    """A ranker that is live: its value by the curve, and its clicks per session, without any model.

    low : the bound of the taken step minus this ranker; None without a step
    """

    name: str
    n_sessions: int
    value: float
    interval: Interval
    clicks: float
    clicks_interval: Interval
    low: float | None = None


@dataclass(frozen=True, repr=False)
class SafeStep(View, Portable):
    """The path from the old order to a new ranker; see the module.

    Parameters
    ----------
    w : the step that is taken; 0 keeps the old order
    path : by rising w
    old : what the old order is known by: "rank", or the column of its score
    old_spread : within lists, which the served score divides by
    assumed : whether the bounds hold under the curve to the power .75, too
    likely : the w that the clicks make most likely
    rankers : those that are live, where there are several; the best one first
    attention : the bound of the step if .6 of the curve's steepness is attention, by each session's
        own clicks; None without a step or a curve with errors
    higher_is_better : of the metric; a gain is an improvement in any case
    """

    w: float
    path: tuple[StepPoint, ...]
    metric: str
    level: float
    old: str = "rank"
    old_spread: float = 1.0
    assumed: bool = False
    likely: float | None = None
    rankers: tuple[LoggedRanker, ...] = ()
    attention: float | None = None
    higher_is_better: bool = True

    @property
    def taken(self) -> StepPoint | None:
        """The point of the step; None where the old order is kept."""
        return next((each for each in self.path if each.w == self.w), None)

    def difference(self, whole: SystemDifference) -> SystemDifference:
        """That of the taken step, from the one of w = 1; its interval begins at the bound."""
        point = self.taken
        if point is None or point.w == 1:
            return whole
        half = point.gain - point.low
        value = point.gain if self.higher_is_better else -point.gain
        mean = MeanEstimate(value, half / normal_quantile(self.level), 2**31)
        p, interval = mean.p_value, Interval(value - half, value + half, self.level)
        return replace(
            whole, system=f"{whole.system}, step {point.w:g}", value=value, interval=interval,
            std_error=mean.std_error, p_value=p, corrected_p=p, decided=True, more_sessions=0.0,
        )  # fmt: skip

    def view(self) -> list[Section]:
        """The path, and the logged rankers."""
        point = self.taken
        told = NO_STEP if point is None else SAFE(
            w=point.w, gain=point.gain, low=point.low, metric=words.metric_name(self.metric)
        )  # fmt: skip
        notes = [ALSO_FLATTER(power=FLATTER)] if self.assumed else []
        notes += [] if self.likely is None else [BY_LIKELIHOOD(w=self.likely)]
        if self.rankers and all((each.low or 0) > 0 for each in self.rankers):
            notes.append(BETTER_THAN_ALL(n=len(self.rankers)))
        tables = (self._path_table(), *([self._ranker_table()] if self.rankers else []))
        title = "How far to go from the old order"
        return [Section("step", title, (told,), tables=tables, notes=tuple(notes))]

    def _path_table(self) -> Table:
        rows = tuple(
            (
                f"{each.w:g}",
                *(words.number(x, 4, signed=True) for x in (each.gain, each.low)),
                *(words.number(x, 1, signed=True) for x in (each.clicks, each.clicks_low)),
            )
            for each in self.path
        )  # fmt: skip
        header = ("w", "gain", "bound", f"clicks per {PER:,} sessions", "bound of clicks")
        marked = tuple(i for i, each in enumerate(self.path) if each.w == self.w)
        return Table(header, rows, "Steps from the old order (0) to the new one (1)", (), marked)

    def _ranker_table(self) -> Table:
        rows = tuple(
            (
                each.name, words.whole(each.n_sessions), f"{each.value:.4f}",
                words.ends(each.interval, 4), f"{each.clicks:.4f}",
                words.ends(each.clicks_interval, 4),
                words.UNKNOWN if each.low is None else f"{each.low:+.4f}",
            )
            for each in self.rankers
        )  # fmt: skip
        level = f"{self.level:.0%} interval"
        header = ("logged ranker", "sessions", words.metric_name(self.metric), level,
                  "clicks per session", level, "bound of step")  # fmt: skip
        return Table(header, rows, "Logged rankers, the best one first")


def live_rankers(log: ClickLog, assigned: Assigned) -> tuple[tuple[str, ...], ClickLog]:
    """The named rankers that share production's traffic, and the sessions of queries of them all.

    None where there are not two, or where they may have answered other queries or at other times
    than one another: then their values are not those of the same traffic.
    """
    none = (), log
    if log.ranker is None or any("@" in name for name in log.ranker_names):
        return none
    n, usual = (log.n_queries, len(log.ranker_names)), log.sessions * baseline_lists(log)
    by_both = np.bincount(log.query * n[1] + log.ranker, usual, n[0] * n[1]).reshape(n)
    live = by_both.sum(axis=0) >= LEAST_TRAFFIC * by_both.sum()
    kept = np.all(by_both[:, live] > 0, axis=1)[log.query]
    varies = variation_of(log, assigned, levels=False)
    in_turn = varies.turnover is not None and varies.turnover < LEAST_TURNOVER
    if live.sum() < 2 or in_turn or not varies.balanced or assigned == "other":
        return none
    if log.sessions[kept].sum() < LEAST_SHARED * log.sessions.sum():
        return none
    return tuple(np.array(log.ranker_names)[live].tolist()), log.take(kept)


def safe_step(
    estimates: Estimates,
    new: FloatArray,
    *,
    old: tuple[str, FloatArray] | None = None,
    rankers: Sequence[str] = (),
    steps: Sequence[float] = STEPS,
    assumed: bool = False,
) -> SafeStep | None:
    """The largest gain among the steps whose bound is above 0; None where no path can be judged.

    Parameters
    ----------
    estimates : of any systems, by `untilt.estimate` with among="list"
    new : (documents of the log,) cross-fitted scores of the new ranker
    old : the column of the old ranker's score and its values, (documents of the log,); its ranks
        where not given
    rankers : logged rankers, all of which answered every query of the log
    steps : the w to try
    assumed : whether nobody measured the curve
    """
    inputs, judges = estimates.inputs, (estimates, estimates.also)
    if inputs is None or estimates.unbiased is None or estimates.is_bounded:
        return None
    if estimates.among != "list" or inputs.cells.propensity is not None:
        return None
    names = tuple(rankers) or ("",)
    of_judges = [each.inputs for each in judges if each is not None and each.inputs is not None]
    score = None if old is None else old[1]
    paths = [_Path.of(each, new, score, names, steps, assumed) for each in of_judges]
    best = int(np.argmax(paths[0].logged(inputs.metric).value))
    gain, low, ahead = _ends(paths, inputs.metric, best, estimates.level)
    in_clicks = as_rank_metric(EXAMINATION, inputs.bias)
    clicks, clicks_low, _ = _ends(paths, in_clicks, best, estimates.level)
    points = tuple(
        StepPoint(w, float(gain[i]), float(low[best, i]), PER * float(clicks[i]),
                  PER * float(clicks_low[best, i]))
        for i, w in enumerate(steps)
    )  # fmt: skip
    safe = [i for i, each in enumerate(points) if each.low > 0]
    if (last := len(points) - 1) in safe:
        safe = [i for i in safe if ahead[i]] or [last]
    at = max(safe, key=lambda i: points[i].gain) if safe else None
    logged = _logged(paths[0], names, estimates.level) if rankers else ()
    logged = tuple(
        each if at is None else replace(each, low=float(low[r, at]))
        for r, each in enumerate(logged)
    )
    return SafeStep(
        0.0 if at is None else points[at].w, points, str(inputs.metric), estimates.level,
        "rank" if old is None else old[0], paths[0].old_spread, assumed, _likely(paths[0]),
        higher_is_better=inputs.metric.higher_is_better,
        rankers=tuple(sorted(logged, key=lambda each: each.name != names[best])),
        attention=None if at is None else _attention(paths[0], best, at, estimates.level),
    )  # fmt: skip


def whole_step(estimates: Estimates, system: str, baseline: str) -> SafeStep:
    """The step to the new order, or none: where no path can be judged its interval decides."""
    found = estimates.compare(baseline)[system]
    higher = estimates.metric.higher_is_better
    low = found.interval.low if higher else -found.interval.high
    point = StepPoint(1.0, found.value if higher else -found.value, low)
    name, level = str(estimates.metric), estimates.level
    return SafeStep(float(low > 0), (point,), name, level, higher_is_better=higher)


@dataclass(frozen=True, eq=False)
class _Path:
    """The lists of one judge: scores of their rows, and the part of each row in each ranker's."""

    inputs: Inputs
    old: FloatArray
    new: FloatArray
    old_spread: float
    share: Mapping[str, FloatArray]
    steps: Sequence[float]
    assumed: bool

    @classmethod
    def of(
        cls, inputs: Inputs, new: FloatArray, old: FloatArray | None, names: Sequence[str],
        steps: Sequence[float], assumed: bool,
    ) -> "_Path":  # fmt: skip
        cells = inputs.cells
        slates, document = cells.slates, cells.document[cells.slates.document]
        rank = ragged.index_in_list(slates.indptr) + 1.0
        before = -np.log(rank) if old is None else np.asarray(old, dtype=float)[document]
        after, spread = np.asarray(new, dtype=float)[document], slates.spread(before)
        after = after / slates.spread(after)
        share = {each: _share(cells, each) for each in names}
        return cls(inputs, before / spread, after, spread, share, steps, assumed)

    def logged(self, metric: RankMetric) -> Sums:
        """Totals of the logged rankers."""
        return self._sums(metric, self._shown(metric))[0]

    def judged(self, metric: RankMetric, best: int) -> list[Sums]:
        """Totals of the logged rankers, then of the steps from the best one, under each curve."""
        slates, weights = self.inputs.cells.slates, slots_of(self.inputs.cells, metric).weights
        alone = replace(slates, document=np.arange(len(slates.document)))
        part = list(self.share.values())[best]
        blends = ((1 - w) * self.old + w * self.new for w in self.steps)
        orders = (slot_discounts(alone, scores, weights) * part for scores in blends)
        return self._sums(metric, [*self._shown(metric), *orders])

    def _shown(self, metric: RankMetric) -> list[FloatArray]:
        cells = self.inputs.cells
        shown = slots_of(cells, metric).weights[cells.slates.position_index]
        return [shown * part for part in self.share.values()]

    def _sums(self, metric: RankMetric, orders: Sequence[FloatArray]) -> list[Sums]:
        """Of orders by lambda at each row; a metric of which less is better counts below 0."""
        inputs, sign = self.inputs, 1.0 if metric.higher_is_better else -1.0
        slots, bias = slots_of(inputs.cells, metric), inputs.bias
        discounts = {str(i): slots.of_rows(sign * rows) for i, rows in enumerate(orders)}
        found, exact = replace(inputs, discounts=discounts), inputs.evaluator.unbiased()
        curves = [bias]
        if self.assumed:
            curves.append(bias.scaled(bias.examination ** (FLATTER - 1)))
        return [found.sums(discounts, bias=each, evaluator=exact) for each in curves]


def _share(cells: Pool, name: str) -> FloatArray:
    """(rows of the slates,) 1; of a logged ranker its part in them, every query weighing as much.

    n_lr N_q / (n_l n_rq) for list l: sessions of the list, those of them by r, and of the query.
    """
    slates = cells.slates
    if not name:
        return np.ones(len(slates.document))
    part = cells.log.take(baseline_lists(cells.log))
    assert part.ranker is not None
    slate = ragged.list_of_row(slates.indptr)[slates_of(part)[1][part.indptr[:-1]]]
    own = part.sessions * (part.ranker == part.ranker_names.index(name))
    sessions = sum_by(slate, own, slates.n_slates)
    of_query = sum_by(slates.query, sessions, cells.n_queries)
    weight = sessions / slates.count * (cells.sessions / of_query)[slates.query]
    return np.repeat(weight, ragged.lengths(slates.indptr))


def _ends(
    paths: Sequence[_Path], metric: RankMetric, best: int, level: float
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """(steps,) gains over the best ranker; (rankers, steps) least bounds over judges and curves.

    And (steps,) whether a step is better than the last one by more than an error.
    """
    n = len(paths[0].share)
    sums = [each for path in paths for each in path.judged(metric, best)]
    value, last = sums[0].value, sums[0].means(-1)
    low = [[lower_bounds(each, base, n, level) for base in range(n)] for each in sums]
    ahead = last.value[n:] > np.nan_to_num(last.std_error[n:], nan=np.inf)
    return value[n:] - value[best], np.min(low, axis=0), ahead


def _attention(path: _Path, best: int, at: int, level: float) -> float | None:
    """The bound of a step with as little of the curve's steepness as a firm answer needs."""
    inputs, bias = path.inputs, path.inputs.bias
    if bias.is_known or not inputs.evaluator.needs_bias:
        return None
    own = inputs.on(by=own_clicks(inputs.evaluator, bias))
    less = bias.scaled(bias.examination ** (FIRM_SHARE - 1))
    of_own = replace(path, inputs=replace(own, bias=less), assumed=False)
    n = len(path.share)
    return float(lower_bounds(of_own.judged(inputs.metric, best)[0], best, n, level)[at])


def lower_bounds(sums: Sums, base: int, first: int, level: float) -> FloatArray:
    """(steps,) L of the systems from `first` on, minus `base`, at once; 0 for an equal order."""
    means, moved = sums.means(base), sums.left_out(base)
    gradient = sums.gradient - sums.gradient[[base]]
    square = moved.T @ moved
    if sums.covariance is not None:
        square = square + gradient @ sums.covariance @ gradient.T
    spread = np.sqrt(np.diag(square))
    apart = spread > 0
    apart[:first] = False
    most = _largest(square[np.ix_(apart, apart)] / np.outer(spread[apart], spread[apart]), level)
    degrees = means.degrees_of_freedom
    student = most * special.stdtrit(degrees, level) / special.ndtri(level)
    c = np.maximum(student, special.stdtrit(degrees, 0.5 + level / 2))
    low = np.full(len(spread), 0.0)
    for i in np.flatnonzero(apart):
        rest = sums.without(int(np.argmax(moved[:, i]))).means(base)
        ends = [each.value[i] - c[i] * each.std_error[i] for each in (means, rest)]
        low[i] = min(ends) if np.all(np.isfinite(ends)) else -np.inf
    return low[first:]


def _largest(correlation: FloatArray, level: float) -> float:
    """The quantile of the largest of normal variables with unit variance."""
    if len(correlation) < 2:
        return float(special.ndtri(level))
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0))
    drawn = np.random.default_rng(0).standard_normal((DRAWS, len(values))) @ root.T
    return float(np.quantile(drawn.max(axis=1), level))


def _logged(path: _Path, names: Sequence[str], level: float) -> tuple[LoggedRanker, ...]:
    log, cells = path.inputs.cells.log, path.inputs.cells
    means = path.logged(path.inputs.metric).means()
    sign = 1 if path.inputs.metric.higher_is_better else -1
    of_list = ragged.sums_by_list(log.indptr, log.label * log.row_count)
    asked = np.unique(log.query)
    found = []
    for name, mean in zip(names, means, strict=True):
        assert log.ranker is not None
        own = log.ranker == log.ranker_names.index(name)
        clicks, sessions = (
            np.bincount(log.query, each * own, minlength=log.n_queries)[asked]
            for each in (of_list, log.sessions)
        )
        rate = weighted_mean(clicks / sessions, cells.sessions)
        value = mean.interval(level)
        if sign < 0:
            value = Interval(-value.high, -value.low, level)
        found.append(
            LoggedRanker(name, int(sessions.sum()), sign * mean.value, value, rate.value,
                         rate.interval(level))
        )  # fmt: skip
    return tuple(found)


def _likely(path: _Path) -> float | None:
    """w = k / (b + k) of the likeliest clicks with logit base + b z_old + k z_new + effects."""
    cells, bias = path.inputs.cells, path.inputs.bias
    if not cells.log.is_binary:
        return None
    counts, slates = position_counts(cells.log), cells.slates
    n, shown = len(cells.document), sum_by(slates.document, slates.row_count, len(cells.document))
    z = [sum_by(slates.document, slates.row_count * each, n) for each in (path.old, path.new)]
    number = np.zeros(cells.log.n_documents, dtype=np.int64)
    number[cells.document] = np.arange(n)
    own = number[counts.document]
    inside = min(counts.depth, bias.depth)
    curve = [np.pad(each[:inside], (0, counts.depth - inside)) for each in bias.affine()]
    whole = click_cells(
        counts.query, counts.document_index, counts.position_index, counts.impressions,
        counts.clicks, *curve,
    )  # fmt: skip
    some, kept = whole.of_some_queries(LIKELIHOOD_QUERIES)
    columns = [np.ones(len(kept))]
    columns += [some.centred((each / np.maximum(shown, 1))[own[kept]]) for each in z]
    _, b, k = fit_hierarchy(some, np.column_stack(columns), low=(-np.inf, 0.0, 0.0)).weights
    return float(k / (b + k)) if b + k > 0 else None
