"""Would the new ranker have been better, by how much, and how sure are we?"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from untilt._core.random import Seed
from untilt._core.statistics import Interval, check_level, effective_units
from untilt.auditing.variation import CONDITIONS, Assigned, variation_of
from untilt.bias.curve import PositionBias
from untilt.bias.experiments.assignment import Baseline, baseline_lists
from untilt.bias.given import BiasLike, best_cells_first, numbered_for
from untilt.data.clicklog import ClickLog
from untilt.data.grades import Grades
from untilt.data.limits import check_room
from untilt.data.seen import held_out_part
from untilt.errors import OptionError, check_choice, check_least
from untilt.evaluation import uncertainty
from untilt.evaluation.by_default import (
    MOST_UNTESTED,
    UNTESTED,
    evaluators_of,
    queries_with_evidence,
    untested_share,
)
from untilt.evaluation.clip_curve import best_clip, clip_curve_evaluator
from untilt.evaluation.evaluators import LoggedPropensityEvaluator
from untilt.evaluation.judged import memory_facts
from untilt.evaluation.labels.estimate import beside_clicks
from untilt.evaluation.pool import (
    Among,
    Credit,
    Evaluator,
    Pool,
    cells_for,
    parse_evaluator,
    pool_of,
    with_option,
)
from untilt.evaluation.propensities import NOT_USED, Balance, balance_of
from untilt.evaluation.results import Estimate, Estimates
from untilt.evaluation.slots import (
    Discounts,
    MetricLike,
    candidate_scores,
    slots_of,
    unshown_documents,
    with_candidates,
)
from untilt.evaluation.systems import (
    Inputs,
    System,
    Systems,
    believed,
    judged_by,
    named_systems,
    ordered_systems,
    shown,
    sums_of_discounts,
)
from untilt.evaluation.unshown import Bound, Unshown, Worth
from untilt.facts import Fact, note, phrase, serious, warning

CURVE_MISFIT = serious(
    "estimate.curve-misfit",
    "the bias does not fit this log: position {position} has {ratio:.2f} times the clicks that the "
    "curve expects (z {z:+.1f}, p {p_value:.2g}; {n_documents:,} documents shown at several "
    "positions). Values and differences are off by as much. The curve may be wrong for these "
    "lists, readers may trust the top{needs}, or lists may follow what single sessions want",
)

IF_EVIDENCE = serious(
    "estimate.if-evidence",
    "the curve compares each document with itself at other positions, so values hold {condition}",
)

FEW_EFFECTIVE_CLICKS = warning(
    "estimate.few-effective-clicks",
    "the {n_clicks:,.0f} clicks count like {effective_n:,.0f} of equal weight (largest weight "
    "{largest_weight:.3g}): {clip}more sessions would help",
)

UNSHOWN_CANDIDATES = warning(
    "estimate.unshown-candidates",
    "if it may also use documents never shown, they fill {share:.1%} of its top {top} places, in "
    "{queries:.0%} of the queries: its value is then between {nothing:.4f} (they are worth "
    "nothing) and {as_shown:.4f} (as much as shown ones)",
)
DOCUMENTS_ABSENT = serious(
    "estimate.documents-absent",
    "sessions of one query show different documents (a document is missing from {share:.0%} of its "
    "query's sessions), and {evaluator} counts what a session did not show as irrelevant: systems "
    "that move such documents up look worse than they are, even worse than the shown order. "
    "⟦evaluator={instead:r}⟧ does not",
)
BIAS_DOUBTED = serious("estimate.bias-doubted", "about the position bias: {doubt}")
AUTOMATIC_CLICKS = serious(
    "estimate.automatic-clicks",
    "position {position} is clicked in {share:.1%} of its impressions, whatever the document: "
    "the page makes such clicks (an autoplaying video, for example), not people. Figures count "
    "them as long as they are part of the label",
)
UNSHOWN_DOCUMENTS = warning(
    "estimate.unshown-documents",
    "documents never shown fill {share:.1%} of its top {top} places, in {queries:.0%} of the "
    "queries, and count as irrelevant here. If they were worth as much as shown ones, its value "
    "would be {as_shown:.4f}",
)
FEW_QUERIES_SENTENCE = warning(
    "estimate.few-queries", "only {n_queries} queries: intervals come from few independent units"
)
CLICKS_UNSUPPORTED = warning(
    "estimate.clicks-unsupported",
    "{share:.1%} of the clicks are at positions without a bias estimate and are left out, so "
    "relevance found only there is missing",
)
CLICKS_CLIPPED = warning(
    "estimate.clicks-clipped",
    "{share:.1%} of the click weights are capped; intervals account for it⟦ (see ut.clip_curve)| "
    "(the report of `untilt run` and --clip-plot of `untilt evaluate` show how much)⟧",
)
BIAS_WITHOUT_ERRORS = note(
    "estimate.bias-without-errors",
    "the bias was given without standard errors; intervals take it as exact",
)()
BOUNDED_LEVELS = warning(
    "estimate.bounded-levels",
    "no documents connect {positions:positions} to position 1: intervals cover all levels within "
    "the bounds of the curve, and values are in the middle",
)
TRUST_IGNORED = serious(
    "estimate.trust-ignored",
    "the bias includes trust bias, which {evaluator} does not correct and ⟦evaluator={instead:r}⟧ "
    "does",
)
FEW_EFFECTIVE_QUERIES = warning(
    "estimate.few-effective-queries",
    "the {n_queries:,} queries count like {effective_queries:.1f} of equal traffic: a few have "
    "most of the sessions, so intervals are wide and depend on these few",
)
CURVE_UNCHECKED = warning(
    "estimate.curve-unchecked", "{check}; the estimate is as right as the curve is"
)
BIAS_WITHOUT_INTERVAL = serious(
    "estimate.bias-without-interval",
    "the error of the bias estimate ({method}) is unknown and not in these intervals, so they "
    "are too short",
)
ONE_QUERY_SENTENCE = warning(
    "estimate.one-query", "one query makes up {share:.0%} of the estimate's variance"
)
BIAS_DOMINATES = warning(
    "estimate.bias-dominates",
    "most of the uncertainty comes from the bias estimate: more interventions will help, more "
    "sessions of this kind will not",
)()
NO_INTERVAL = serious(
    "estimate.no-interval",
    "{evaluator}: no interval, because without a position bias the error of the relevance model "
    "is unknown",
)

BYTES_PER_ROW = 80  # of working memory, measured on lists that are all different
# Scores and sums by document. Without them 76.5 million rows with 11 million documents passed a
# limit of 8 GiB, of which 80 bytes a row left 0.3 (benchmarks/bench_scale.py one --tail 0.03).
BYTES_PER_DOCUMENT = 64

# When an estimate should not be trusted.
FEW_CLICKS = 100.0  # of equal weight; with fewer a normal interval is only rough
FEW_QUERIES = 30
ONE_QUERY = 0.1  # of the summed squared influence
SOME = 0.01  # share below which nothing is said
AUTOMATIC_CLICK_RATE = 0.99  # above this, clicks are not a choice (autoplay)


def estimate(
    log: ClickLog,
    systems: Systems,
    bias: BiasLike | None = None,
    *,
    metric: MetricLike = "dcg@10",
    evaluator: str | Evaluator | None = None,
    clip: float | Literal["auto"] | None = None,
    relevance: Any = None,
    among: Among = "list",
    baseline: Baseline = None,
    people: str | None = None,
    interval: Literal["normal", "bootstrap"] = "normal",
    level: float = 0.95,
    n_draws: int = 1000,
    seed: Seed = 0,
    held_out: bool = False,
    unshown: bool = True,
    assigned: Assigned = "unknown",
    labels: Grades | None = None,
) -> Estimates:
    r"""The value that each system would have had, from clicks on what another one showed.

    For an additive metric the value of a ranker f on one session is sum_i lambda(rank_i) gamma_i,
    the rank of a document being the slot of the shown list that it would have got: a system with
    the logged order has the value of `untilt.shown` exactly.
    An evaluator puts an estimate from clicks in place of gamma ([oosterhuis2020tutorial]_). The
    formulas stand in `untilt.evaluation.evaluators`; which one to take in docs/counterfactual.md.

    Queries are the independent units: the standard error is that of leaving each one out, with the
    error of the bias where it has any, and intervals are Student's t with as many degrees of
    freedom as the queries in effect, (sum n)^2 / sum n^2 of their sessions n (`Means`). The bias is
    treated as estimated from other sessions. A clip or a relevance model leans: then errors and
    interval are those without it, the interval widened to hold the value; a relevance model without
    a position bias has none.

    Parameters
    ----------
    systems : name -> a ranker (`predict`), an array with one score per document of the log, or
        `untilt.shown`, the logged order. Equal scores share their ranks
    bias : `PositionBias`, a curve, or an array of theta; raw clicks, a relevance model and logged
        propensities need none
    metric : "dcg@k", "precision@k", "arp", "reciprocal@k", a `RankMetric` or a function of rank
    evaluator : such as `ClippedEvaluator(0.1)`, or its text "clipped:clip=0.1". Where not given
        propensities that the log confirms, else what lists are decides: policy-aware, own clicks
        or both (`untilt.evaluation.by_default`)
    clip, relevance : options of the evaluator, for one that is given by its name. The clip is the
        least propensity that a click is divided by; "auto" chooses it by estimated mean squared
        error (see `untilt.clip_curve`). relevance is a relevance model: (documents,) probabilities
        or something whose `predict(features)` gives them
    among : what a system orders. "list": each shown list, whose documents fill the list's own
        positions (its slots, gaps included) in the new order. "shown": all documents that the log
        ever shows for the query, and "candidates": all documents of the query; the first of them
        fill the slots of each list. A document that is not on the page adds no gain, and one that
        nobody was shown can get no click, so values are lower bounds
    baseline : the log's rankers whose sessions are the traffic to improve: a name, several, or text
        such as "ranker=production". Their lists are what systems order and what `untilt.shown` is.
        Where not given: all that are no experiment ("shuffle...", "swap:2-5"). Other sessions
        still tell evaluators that pool documents how relevant these are
    people : the column of the log's context that says whose session each is: then errors also
        allow for what one person's sessions on several queries have in common. It widens values;
        differences of systems hardly, since people who click more do so for all of them
    interval, n_draws, seed : "normal" (Student's t over queries) or "bootstrap" (percentiles over
        `n_draws` samples of queries, widened where these are few or uneven)
    level : of the intervals
    assigned : "random" says that chance drew the ranker of each session, as in an A/B test;
        "other" that something else did, such as a country
    held_out : take only the sessions of queries that no ranker among the systems was trained on, or
        chosen by. Without, an `Estimate` warns where there are others
    unshown : where the log has candidates that nobody was shown, also value each system as if it
        ranked all candidates, under two beliefs about those: `Estimate.unshown`; the formulas are
        in `untilt.evaluation.slots`. False saves the time
    labels : grades of drawn documents: `Estimates.labels` are the values by them, with the clicks
        as a prediction of the others (`untilt.labels.estimate_labels`)
    """
    if not isinstance(log, ClickLog):
        raise OptionError(
            f"estimate needs a ClickLog. Got {type(log).__name__} instead; ut.evaluate is for "
            "judged lists."
        )
    check_room(log, "the evaluation", per_row=BYTES_PER_ROW, per_document=BYTES_PER_DOCUMENT)
    check_choice("interval", interval, ("normal", "bootstrap"))
    check_level(level)
    check_least("n_draws", n_draws, 2, "; 1000 is usual")
    unnamed = evaluator is None
    by, data_choose = _with_clip(parse_evaluator(evaluator), clip)
    by = with_option(by, "relevance", relevance)
    named, bias = named_systems(systems), best_cells_first(bias)
    log = numbered_for(held_out_part(log, named) if held_out else log, bias)
    pool = pool_of(log, among, baseline, people=people)
    balance: Balance | None = None
    said: tuple[Fact, ...] = ()
    if pool.slate_propensity is not None and (by.matches_slots or (unnamed and relevance is None)):
        logged = by if by.matches_slots else LoggedPropensityEvaluator()
        cells, _, rank_metric = judged_by(logged, pool, bias, metric)
        orders, _ = ordered_systems(cells, named, rank_metric)
        balance = balance_of(cells, orders)
        if balance.doubts and unnamed and bias is not None:
            said, balance = (NOT_USED(why=balance.doubts[0]),), None
        else:
            by, data_choose, said = logged, False, balance.doubts
    cells, curve, rank_metric = judged_by(by, pool, bias, metric)
    if data_choose:
        like = clip_curve_evaluator(by)
        by = with_option(by, "clip", best_clip(cells, named, curve, rank_metric, like))
    own: Evaluator | None = None
    used = curve if by.unbiased().needs_bias and bias is not None else None
    if used is not None:
        varies = variation_of(log, assigned, levels=False)
        if used.rests_on == "repeated positions" and varies.source in CONDITIONS:
            said = (*said, IF_EVIDENCE(condition=CONDITIONS[varies.source]))
        if unnamed and among == "list":
            production = log.take(baseline_lists(log, baseline))
            by, own, more = evaluators_of(production, varies, curve, by)
            cells, said = cells_for(by, pool), (*said, *more)
    judge = _Judge(by, curve, used, interval, level, n_draws, seed)
    discounts, scores = ordered_systems(cells, named, rank_metric)
    found = judge.values(cells, discounts)
    each = (uncertainty.click_weights(cells, found.credit, at.cell) for at in discounts.values())
    weights = min(each, key=lambda weights: weights.effective_n)
    check = uncertainty.check_curve(pool, curve)
    of_system = _warnings_of_systems(found)
    of_memory = [memory_facts(log, system) for system in named.values()]
    estimates = Estimates(
        entries=tuple(
            Estimate(
                system=name,
                metric=str(rank_metric),
                evaluator=by.name,
                **found.figures(i),
                effective_n=weights.effective_n,
                largest_weight=weights.largest,
                clipped_share=weights.clipped_share,
                unsupported_share=weights.unsupported_share,
                unshown_share=0.0,
                n_sessions=int(pool.n_sessions),
                n_queries=pool.n_queries,
                warnings=(*of_memory[i], *of_system[i]),
            )
            for i, name in enumerate(named)
        ),
        metric=rank_metric,
        evaluator=by.name,
        clip=getattr(by, "clip", 0.0),
        clip_chosen=data_choose,
        among=among,
        baseline=pool.baseline,
        level=level,
        scale=by.scale(curve),
        weights=weights,
        check=check,
        warnings=(*_warnings_of_log(by, weights, pool, used, check), *said),
        sums=found.sums,
        inputs=Inputs(cells, discounts, scores, by, curve, rank_metric, baseline),
        unbiased=found.unbiased,
        balance=balance,
    ).within_bounds()
    if own is not None:
        estimates = estimates.with_intervals_of(own)
    estimates = _with_untested(estimates, named)
    if labels is not None:
        usual = log.take(baseline_lists(log, baseline))
        by_labels = beside_clicks(usual, named, labels, str(rank_metric), curve, level)
        estimates = replace(estimates, labels=by_labels)
    unshown = unshown and not by.matches_slots  # nothing is known of a place that it never had
    return _with_unshown(estimates, named, judge, pool) if unshown else estimates


def _with_untested(estimates: Estimates, systems: Mapping[str, System]) -> Estimates:
    """Systems that move much where nothing shows how far people read say so."""
    base = next((name for name, system in systems.items() if system is shown), None)
    if base is None or estimates.inputs is None:
        return estimates
    entries, has = [], queries_with_evidence(estimates.inputs)
    for each in estimates:
        share = 0.0 if has.all() else untested_share(estimates.inputs, each.system, base, has)
        told = (UNTESTED(share=share),) if share > MOST_UNTESTED else ()
        entries.append(replace(each, warnings=(*each.warnings, *told)))
    return replace(estimates, entries=tuple(entries))


@dataclass(frozen=True, eq=False)
class _Values:
    """Systems valued under one order of documents; `unbiased` None where there is no interval."""

    credit: Credit
    sums: uncertainty.Sums
    unbiased: uncertainty.Sums | None
    means: uncertainty.Means
    intervals: list[Interval]

    def figures(self, i: int) -> dict[str, Any]:
        """What an `Estimate` holds of them, of one system."""
        value, means = float(self.sums.value[i]), self.means
        return {
            "value": value,
            "std_error": float(means.std_error[i]),
            "interval": self.intervals[i],
            "sampling_error": float(means.sampling_error[i]),
            "bias_error": float(means.bias_error[i]),
            "effective_queries": float(means.effective_queries[i]),
            "clipping_bias": float(value - means.value[i]),
        }


@dataclass(frozen=True)
class _Judge:
    """How systems are valued; `used` is the curve, None where its errors do not count."""

    by: Evaluator
    curve: PositionBias
    used: PositionBias | None
    interval: str
    level: float
    n_draws: int
    seed: Seed

    def values(self, cells: Pool, discounts: Mapping[str, Discounts]) -> _Values:
        """Values and intervals of systems by their discounts."""
        exact, ordered = self.by.unbiased(), list(discounts.values())
        credit = self.by.credit(cells, self.curve)
        sums = sums_of_discounts(cells, ordered, credit, self.used)
        # Without a bias nothing tells what a relevance model is off by: then there is no interval.
        unbiased = None if self.used is None and exact.needs_bias else sums
        if exact is not self.by and unbiased is not None:
            without_clipping = exact.credit(cells, self.curve)
            unbiased = sums_of_discounts(cells, ordered, without_clipping, self.used)
        means = sums.means().without_errors() if unbiased is None else unbiased.means()
        intervals = (
            uncertainty.bootstrap_intervals(unbiased, self.level, self.n_draws, self.seed)
            if self.interval == "bootstrap" and unbiased is not None
            else [mean.interval(self.level) for mean in means]
        )
        return _Values(credit, sums, unbiased, means, uncertainty.holding(intervals, sums.value))


def _with_unshown(
    estimates: Estimates, systems: Mapping[str, System], judge: _Judge, pool: Pool
) -> Estimates:
    """What the systems are worth as rankings of all candidates, where some were never shown."""
    candidates, inputs = with_candidates(pool), estimates.inputs
    if candidates is None or inputs is None:
        return estimates
    cells = cells_for(judge.by, candidates)
    slots, never = slots_of(cells, estimates.metric), unshown_documents(cells)
    scores = {
        name: candidate_scores(system, inputs.scores[name], pool, candidates)
        for name, system in systems.items()
    }
    discounts = {name: slots.discounts(each) for name, each in scores.items()}

    def under(worth: Worth) -> Estimates:
        at = believed(slots, scores, discounts, worth)
        found = judge.values(cells, at)
        entries = [replace(each, **found.figures(i)) for i, each in enumerate(estimates)]
        ranked = replace(inputs, cells=cells, discounts=at, scores=scores, worth=worth)
        return replace(
            estimates,
            entries=tuple(entries),
            among="candidates",
            sums=found.sums,
            unbiased=found.unbiased,
            inputs=ranked,
        ).within_bounds()

    nothing, as_shown = under("nothing"), under("as shown")
    entries = []
    for entry in estimates:
        places = slots.places_of(never, scores[entry.system])
        unshown = Unshown(
            float(pool.sessions @ places) / pool.n_sessions,
            float(np.mean(places > 0)),
            min(slots.top, int(slots.on_page.max())),
            *(Bound.of(each[entry.system]) for each in (nothing, as_shown)),
        )
        facts = _warning_of_unshown(unshown, estimates.among)
        entries.append(
            replace(
                entry,
                unshown_share=unshown.share,
                unshown=unshown,
                warnings=(*entry.warnings, *facts),
            )
        )
    absent = _absence(judge.by, cells) if estimates.among == "list" else []
    return replace(
        estimates,
        entries=tuple(entries),
        warnings=(*estimates.warnings, *absent),
        if_nothing=nothing,
        if_as_shown=as_shown,
    )


def _warning_of_unshown(unshown: Unshown, among: Among) -> list[Fact]:
    if unshown.share <= SOME:
        return []
    fields: dict[str, Any] = {"share": unshown.share, "queries": unshown.queries}
    fields |= {"top": unshown.top, "as_shown": unshown.as_shown.value}
    if among == "candidates":
        return [UNSHOWN_DOCUMENTS(**fields)]
    return [UNSHOWN_CANDIDATES(**fields, nothing=unshown.nothing.value)]


def _absence(evaluator: Evaluator, pool: Pool) -> list[Fact]:
    """Documents that sessions lack, where the evaluator takes them for irrelevant there."""
    by, absent = evaluator.name, pool.absent_share
    if evaluator.pools_documents or evaluator.matches_slots or absent <= SOME:
        return []
    # All advice leads to the default evaluator, which gives none but to clip: it never goes round.
    instead = parse_evaluator(None).name
    return [DOCUMENTS_ABSENT(evaluator=by, share=absent, instead=instead)]


def _with_clip(evaluator: Evaluator, clip: object) -> tuple[Evaluator, bool]:
    """The evaluator with this clip, and whether the data choose it."""
    if clip == "auto" and evaluator.takes("clip"):
        return evaluator, True
    evaluator = with_option(evaluator, "clip", clip)
    return evaluator, getattr(evaluator, "clip", None) == "auto"


def _warnings_of_log(
    evaluator: Evaluator,
    weights: uncertainty.ClickWeights,
    pool: Pool,
    bias: PositionBias | None,
    check: uncertainty.CurveCheck,
) -> tuple[Fact, ...]:
    """What holds for every system of an evaluation; `bias` None where the value needs none."""
    facts = list(evaluator.warnings())
    by, instead = evaluator.name, parse_evaluator(None).name
    if pool.n_queries < FEW_QUERIES:
        facts.append(FEW_QUERIES_SENTENCE(n_queries=pool.n_queries))
    elif (effective := effective_units(pool.sessions)) < FEW_QUERIES:
        fields = {"n_queries": pool.n_queries, "effective_queries": effective}
        facts.append(FEW_EFFECTIVE_QUERIES(**fields))
    facts += _absence(evaluator, pool)
    if bias is None and not evaluator.matches_slots:
        no_interval = evaluator.unbiased().needs_bias
        return (*facts, *([NO_INTERVAL(evaluator=by)] if no_interval else []))
    facts += _automatic_clicks(pool)
    if (evaluator.needs_bias or bias is None) and weights.effective_n < FEW_CLICKS:
        clip: str = phrase("a clip (⟦evaluator={instead:r}, clip='auto'⟧) or ", instead=instead)
        clip = phrase("a clip (⟦clip='auto'⟧) or ") if evaluator.takes("clip") else clip
        clip = "" if weights.clipped_share > SOME or bias is None else clip
        n, effective = weights.n_clicks, weights.effective_n
        told = {"n_clicks": n, "effective_n": effective, "largest_weight": weights.largest}
        facts.append(FEW_EFFECTIVE_CLICKS(clip=clip, **told))
    if weights.unsupported_share > 0:
        facts.append(CLICKS_UNSUPPORTED(share=weights.unsupported_share))
    if weights.clipped_share > SOME:
        facts.append(CLICKS_CLIPPED(share=weights.clipped_share))
    if bias is None:
        return tuple(facts)
    if not check.fits:
        more = phrase(" (a curve of that needs ⟦evaluator={instead:r}⟧)", instead=instead)
        needs = "" if evaluator.corrects_trust else more
        facts.append(CURVE_MISFIT(**check.fact.fields, needs=needs))
    elif not check.possible:
        facts.append(CURVE_UNCHECKED(check=check.fact))
    doubts = (part for part in bias.status.parts if part.severity == "serious")
    facts += [BIAS_DOUBTED(doubt=doubt) for doubt in doubts]
    if bias.is_known:
        facts.append(BIAS_WITHOUT_ERRORS)
    elif not bias.has_interval:
        facts.append(BIAS_WITHOUT_INTERVAL(method=bias.method))
    if bias.bounds is not None:
        bounded = tuple((np.flatnonzero(bias.bounds.bounded) + 1).tolist())
        facts.append(BOUNDED_LEVELS(positions=bounded))
    if bias.has_trust and not evaluator.corrects_trust:
        facts.append(TRUST_IGNORED(evaluator=by, instead=instead))
    return tuple(facts)


def _automatic_clicks(pool: Pool) -> list[Fact]:
    """Positions that are clicked whatever stands there, such as a video that plays by itself.

    Their clicks say nothing about documents, and a curve that takes them for attention is too steep
    by their share: in simulated logs equal rankers came out "better" by four standard errors.
    """
    shown, clicks = pool.by_position(pool.impressions), pool.by_position(pool.clicks)
    always = (shown >= FEW_CLICKS) & (clicks >= AUTOMATIC_CLICK_RATE * shown)
    if not pool.log.is_binary or always.all():
        return []
    return [
        AUTOMATIC_CLICKS(position=int(k) + 1, share=float(clicks[k] / shown[k]))
        for k in np.flatnonzero(always)
    ]


def _warnings_of_systems(found: _Values) -> list[tuple[Fact, ...]]:
    """What holds for each system alone."""
    largest, means = (found.unbiased or found.sums).largest_query(), found.means
    warnings = []
    for i, share in enumerate(largest):
        facts = []
        if share > ONE_QUERY:
            facts.append(ONE_QUERY_SENTENCE(share=float(share)))
        if means.bias_error[i] > means.sampling_error[i]:
            facts.append(BIAS_DOMINATES)
        warnings.append(tuple(facts))
    return warnings
