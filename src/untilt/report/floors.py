"""How much evidence a verdict needs; below these floors the answer is "cannot tell".

An interval is right for many clicks of many queries under a curve that is known well. With few of
them it is too narrow and says so nowhere, so each floor is a number of its own. They are low on
purpose: what passes them can still be undecided. docs/decisions.md has the simulation behind them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from untilt._core.statistics import Interval
from untilt.auditing.next_step import doubt
from untilt.auditing.swap_design import EXPLORED
from untilt.auditing.variation import CONDITIONS
from untilt.bias.curve import NOT_KNOWN
from untilt.evaluation.sensitivity import FIRM_SHARE
from untilt.facts import Command, Fact, Sentence, serious

if TYPE_CHECKING:
    from untilt.evaluation.sensitivity import Cause
    from untilt.evaluation.uncertainty import Support
    from untilt.report.decision import Decision
    from untilt.report.step_results import BiasKind, UsedBias

LEAST_CURVE_CLICKS = 100
"""Clicks behind the examination curve: with fewer, its ratios are known to no better than a third
or so even at the top, and normal errors of logarithms of small counts are too small."""

LEAST_EFFECTIVE_CLICKS = 30
"""Held-out clicks of equal weight: the sum of fewer is not near to normal."""

LEAST_CLICKED_QUERIES = 10
"""Held-out queries with a click: errors are clustered by query, and with fewer clusters they come
out too small more often than the interval allows for."""

LEAST_KNOWN_CREDIT = 0.9
"""Of the credit at positions that the curve knows: a document that is clicked elsewhere alone
counts as irrelevant, so what moves it up looks worse than it is. No interval covers that."""

MOST_CURVE_FACTOR = 3.0
"""Of uncertainty of the curve at the positions that hold most of the credit: errors of the curve
are carried along linearly, which is far off beyond it."""

MOST_CLIPPED = 0.5
"""Of the clicks: where most weights are capped, the estimate is nearer to raw clicks than to a
corrected one, and so favours the order that was shown."""

LEAST_EFFECTIVE_QUERIES = 5.0
"""Queries of equal traffic, without the one that speaks most for the answer: a verdict is that of
the others (docs/decisions.md), and with fewer of them Student's t is not to be trusted."""


@dataclass(frozen=True)
class Evidence:
    """What a curve rests on, in words, and what a verdict by it depends on; None where it is firm.

    A verdict that depends on something is firm too where it stands at `FIRM_SHARE`. A curve `moved`
    is one of documents that production moved: an experiment of the same log may contradict it.
    """

    told: str
    condition: Fact | None = None
    moved: bool = False


EVIDENCE: Mapping["BiasKind", Evidence] = {
    "experiment": Evidence("It was measured by an experiment."),
    "randomised": Evidence(
        "It was measured on documents that rankers showed at several positions. It is right only "
        "if chance drew the ranker of each session; the column `ranker` is taken to mean that.",
        moved=True,
    ),
    "in turn": Evidence(
        "It was measured on documents whose positions changed from one period to the next. It is "
        "right only if they were equally relevant in both.",
        CONDITIONS["in turn"],
        moved=True,
    ),
    "versions": Evidence(
        "It was measured on documents that a few unnamed rankers showed at several positions. It "
        "is right only if chance decided which list a session saw.",
        CONDITIONS["versions"],
        moved=True,
    ),
    "harvested": Evidence(
        "It was measured on documents whose positions vary for reasons that the log does not "
        "name. It is right only if these reasons have nothing to do with relevance.",
        CONDITIONS["harvested"],
        moved=True,
    ),
    "modelled": Evidence(
        "It depends on a model of relevance. It is right only if the features explain relevance.",
        serious("run.if-evidence", "if the features explain what is relevant")(),
    ),
    "labels": Evidence(
        "It was measured on documents of the same grade: it is right only if the old ranker knew "
        "no more of relevance than the grades tell.",
        serious("run.if-evidence", "if the old ranker knew no more than the grades tell")(),
    ),
    "given": Evidence("It was given to the run, not estimated by it."),
    "assumed": Evidence(
        "It is a guess: this log cannot measure its position bias. Every corrected figure "
        "depends on it."
    ),
    "measured": Evidence("It was measured in this log, without a model of relevance."),
    "propensities": Evidence("Values use the probabilities that the lists were drawn with."),
}
"""By kind of curve, and of values without. Runs of untilt 0.2 called the first five "measured"."""

CONDITIONAL = serious(
    "run.conditional",
    "the answer holds {condition}. Otherwise it holds only if at least {stands:.0%~floor} of the "
    "curve's steepness is attention, and a verdict must hold at {floor:.0%}",
)
CONDITIONAL_ALWAYS = serious(
    "run.conditional",
    "the answer holds {condition}. Each session's own clicks do not support it",
)
WORSE_IF = serious("run.conditional", "the answer holds {condition}")

# What is missing, as a clause; `what_to_do` says what to do about it, once.
CURVE_ASSUMED = serious(
    "run.floor-curve-assumed",
    "the examination curve is assumed, not measured, and another guess can flip the answer",
)
LEAKS = serious(
    "run.floor-leaks",
    "rankers were trained on features that are known only after the click: {features:all}",
)
NO_INTERVAL = serious(
    "run.floor-no-interval",
    "the examination curve ({method}) has no interval: its error is unknown, so the intervals of "
    "the rankers leave it out",
)
MISFIT = serious(
    "run.floor-misfit",
    "clicks do not fit the examination curve: position {position} has {ratio:.2f} times the "
    "expected clicks (p {p_value:.1g}). Possible causes: trust in the top, a cascade, devices "
    "that differ, or relevance that changes",
)
READING = serious("run.floor-reading", "clicks contradict the examination curve: {finding:clause}")
CONTRADICTED = serious(
    "run.floor-harvested", "the examination curve comes from documents that moved: {finding:clause}"
)
LIST_EFFECTS = serious(
    "run.floor-reading", "propensities of slots ignore the documents above: {finding:clause}"
)
CURVE_CLICKS = serious(
    "run.floor-curve-clicks",
    "the examination curve comes from only {clicks:,.0f~floor} clicks, and a verdict needs "
    "{floor:,}",
)
_CURVE = "at position {position} and similar ones, which hold much of the value, "
CURVE = serious(
    "run.floor-curve",
    _CURVE + "examination is known only to within a factor of {factor:.1f~most}, and a verdict "
    "needs a factor of {most:g} or better",
)
CURVE_UNKNOWN = serious(
    "run.floor-curve",
    _CURVE + "examination is unknown, and a verdict needs it to within a factor of {most:g}",
)
POSITIONS = serious(
    "run.floor-positions",
    "the examination curve covers {known} of {depth} positions, which hold only "
    "{share:.0%~floor} of what the clicks count, and a verdict needs {floor:.0%}",
)
CLICKS = serious(
    "run.floor-clicks",
    "the {clicks:,.0f} held-out clicks count like {effective_n:,.0f~floor} of equal weight, and a "
    "verdict needs {floor:,}",
)
QUERIES = serious(
    "run.floor-queries",
    "only {queries:,} held-out {queries:query has|queries have} a click, and a verdict needs "
    "{floor:,}",
)
EFFECTIVE_QUERIES = serious(
    "run.floor-effective-queries",
    "without query {query}, which favours the answer most, the queries in which the orders "
    "differ count like {effective_queries:.1f~floor} of equal traffic, and a verdict needs "
    "{floor:.0f}",
)
CLIPPED = serious(
    "run.floor-clipped",
    "{share:.0%~most} of the held-out click weights are capped, and a verdict allows {most:.0%}: "
    "the figures are closer to raw clicks than to corrected ones",
)

# What to do where there is no verdict: rules of the log's next step that say it; then the floors.
_NEXT = ("trust-in-top", "estimators-disagree", "time", "clicks-above")
_PLAN = Command("untilt plan LOG")
MEASURE = serious(
    "run.measure-bias-first",
    "First measure the position bias: swap position 1 with another in {share:.0%} of the "
    "sessions. 300 swapped sessions with a click each can test a curve of documents that moved; "
    "1,000 are enough to replace it.",
)
MEASURE_TRUST = serious(
    "run.measure-bias-first",
    "First measure the position bias with shuffled lists: both trust in the top and relevance "
    "that differs between sessions explain the clicks of this log.",
)
NO_LEAKS = serious(
    "run.leave-leaks-out-first",
    "First leave out features that are known only after the click: {features:all}. Figures of "
    "rankers that use them are worthless.",
)
FIND_MISFIT = serious(
    "run.find-misfit-first", "First find out why the clicks do not fit the examination curve."
)


def _first(text: str) -> Sentence:
    return serious("run.get-evidence-first", text)


NO_DECISION = _first("Do not decide on these figures.")
FURTHER_DOWN = _first("First measure the curve further down.")
PAGE_CLICKS = _first("First leave out the clicks that the page makes.")
MORE_SESSIONS = _first("First collect more sessions.")
MORE_QUERIES = _first("First collect sessions of more queries.")
LESS_CLIPPING = _first("First judge with a lower ⟦clip|--clip⟧.")
EACH_LIST = _first("First order each list on its own (⟦among='list'⟧).")
REMEDIES = {
    "estimate.automatic-clicks": PAGE_CLICKS,
    "run.labels-disagree": _first("First measure the position bias by swaps, or grade more."),
    "run.floor-no-interval": _first("First measure the position bias by swaps."),
    "run.floor-harvested": _first(
        "First use the curve of the experiment (⟦bias='auto'|--bias auto⟧)."
    ),
    "run.floor-curve-clicks": MORE_SESSIONS,
    "run.floor-curve": _first("First measure the position bias by swaps."),
    "run.floor-positions": FURTHER_DOWN,
    "run.floor-clicks": MORE_SESSIONS,
    "run.floor-queries": MORE_QUERIES,
    "run.floor-effective-queries": MORE_QUERIES,
    "run.floor-clipped": LESS_CLIPPING,
    "null.same-order": EACH_LIST,
    "null.permuted": EACH_LIST,
    "null.relabelled": MORE_QUERIES,
    "null.lean": LESS_CLIPPING,
}


def what_to_do(data: "Decision", reasons: Sequence[Fact]) -> Fact | None:
    """What comes before any decision; None where nothing does.

    What the run has not done of the log's own next step goes first, then what the first floor asks.
    """
    if data.leaks_used:
        return NO_LEAKS(features=data.leaks_used)
    conditional = any(each.code == "run.conditional" for each in reasons)
    if conditional or kind_of_evidence(data) == "assumed":
        return MEASURE(command=_PLAN, share=EXPLORED)
    check = None if data.held_out is None else data.held_out.check
    if any(each.code == "run.floor-reading" for each in reasons):
        return _about_reading(data)
    if check is not None and not check.fits:
        return FIND_MISFIT()
    if not reasons:
        return None
    remedies = (REMEDIES[each.code] for each in reasons if each.code in REMEDIES)
    remedy = next(remedies, NO_DECISION)
    return remedy(command=_PLAN) if "measure" in remedy.template else remedy()


def _about_reading(data: "Decision") -> Fact:
    """The log's next step, where the run has not done it."""
    step = None if data.audit is None else data.audit.next_step
    used = data.bias
    if step is None or used is None or step.rule not in _NEXT:
        return FIND_MISFIT()
    if step.rule in _NEXT[:2] and used.bias.has_trust:
        return MEASURE_TRUST()
    fact = step.fact
    return Fact(fact.code, fact.severity, fact.template, **fact.fields, command=step.command)


def below_floors(data: "Decision") -> tuple[Fact, ...]:
    """What is missing for a verdict, each with what was found and the floor."""
    support = None if data.held_out is None else data.held_out.support
    facts = [LEAKS(features=data.leaks_used)] if data.leaks_used else []
    balance = None if data.held_out is None else data.held_out.balance
    facts += () if balance is None else (*balance.doubts, *_of_lists(data))
    used = data.bias if balance is None else None  # propensities need no curve
    facts += [] if used is None else _of_curve(data, used)
    if data.held_out is not None:
        found = data.held_out.warnings
        facts += [each for each in found if each.code == "estimate.automatic-clicks"]
    if support is not None:
        facts += _of_clicks(support)
        facts += [] if used is None else _of_both(support, used)
    return tuple(facts)


def kind_of_evidence(data: "Decision") -> "BiasKind | None":
    """What the values rest on; None where there is no curve."""
    if data.held_out is not None and data.held_out.balance is not None:
        return "propensities"
    return None if data.bias is None else data.bias.kind


def _of_curve(data: "Decision", used: "UsedBias") -> Iterator[Fact]:
    if used.kind == "assumed":
        yield CURVE_ASSUMED()
        return
    if used.bias.estimated and not used.bias.has_interval:
        yield NO_INTERVAL(method=used.bias.method)
    check = None if data.held_out is None else data.held_out.check
    if check is not None and not check.fits:
        worst = check.fact.fields
        fields = {name: worst[name] for name in ("position", "ratio", "p_value")}
        yield MISFIT(**fields)
    yield from _of_reading(data, used)
    clicks = None if used.bias.is_known else curve_clicks(data, used)
    if clicks is not None and clicks < LEAST_CURVE_CLICKS:
        yield CURVE_CLICKS(clicks=clicks, floor=LEAST_CURVE_CLICKS)


def _of_reading(data: "Decision", used: "UsedBias") -> Iterator[Fact]:
    """Tests of the position-based model, and of the curve by an experiment of the same log."""
    if data.audit is None:
        return
    finding = doubt(
        data.audit.reading, data.audit.interventions, explains_trust=used.explains_trust,
        asked_for=used.asked_for,
    )  # fmt: skip
    test = data.audit.estimators
    if finding is None and test is not None and test.rejects and not used.asked_for:
        finding = test.fact
    if finding is not None:
        yield READING(finding=finding)
    experiment = data.audit.harvested
    if experiment is not None and experiment.rejects and EVIDENCE[used.kind].moved:
        yield CONTRADICTED(finding=experiment.fact)


def _of_lists(data: "Decision") -> Iterator[Fact]:
    """Clicks that depend on more than their own slot: no probability of slots corrects that."""
    reading = None if data.audit is None else data.audit.reading
    for test in () if reading is None else reading.failed:
        if test.question == "clicks-above" and test.fact.severity == "serious":
            yield LIST_EFFECTS(finding=test.fact)


def curve_clicks(data: "Decision", used: "UsedBias") -> float | None:
    """Clicks that the curve was estimated from: by its status, else all on its positions."""
    told = [part.fields["clicks"] for part in used.bias.status.parts if "clicks" in part.fields]
    if told:
        return float(min(told))
    if data.audit is None:
        return None
    return float(data.audit.click_rates.clicks[: used.bias.depth].sum())


def _of_clicks(support: "Support") -> Iterator[Fact]:
    # A relevance model alone gives clicks no weight: then all of them stand behind the check.
    equal = support.effective_n if support.credit_at.any() else support.n_clicks
    if equal < LEAST_EFFECTIVE_CLICKS:
        yield CLICKS(clicks=support.n_clicks, effective_n=equal, floor=LEAST_EFFECTIVE_CLICKS)
    if support.clicked_queries < LEAST_CLICKED_QUERIES:
        queries = support.clicked_queries
        yield QUERIES(queries=queries, floor=LEAST_CLICKED_QUERIES)
    if support.clipped_share > MOST_CLIPPED:
        yield CLIPPED(share=support.clipped_share, most=MOST_CLIPPED)
    floor = LEAST_EFFECTIVE_QUERIES
    fewest = min(support.rest, key=lambda each: each.effective_queries, default=None)
    if fewest is not None and 0 < fewest.effective_queries < floor:
        n = fewest.effective_queries
        yield EFFECTIVE_QUERIES(query=fewest.query, effective_queries=n, floor=floor)


def _of_both(support: "Support", used: "UsedBias") -> Iterator[Fact]:
    known, depth = support.known_credit, len(support.clicks_at)
    if known < LEAST_KNOWN_CREDIT:
        yield POSITIONS(
            known=min(used.bias.depth, depth), depth=depth, share=known, floor=LEAST_KNOWN_CREDIT
        )
    position, factor = support.curve_factor(used.bias)
    if used.bias.has_interval and factor > MOST_CURVE_FACTOR:
        named = position if used.bias.layout is None else used.bias.layout.name(position)
        is_known = factor <= NOT_KNOWN
        sentence = CURVE if is_known else CURVE_UNKNOWN
        yield sentence(position=named, factor=factor, most=MOST_CURVE_FACTOR)


def conditions(data: "Decision", *, better: bool, is_part: bool = False) -> tuple[Fact, ...]:
    """Why a verdict is none by itself: what it depends on, where the curve's evidence is not firm.

    A "worse" stands by itself only under firm evidence: production that demotes what readers want
    makes a curve too flat, and no share of its steepness shows that. What is found of the
    steepness is of the whole step, so that a part of it has a bound of its own.
    """
    kind = kind_of_evidence(data)
    condition = None if kind is None else EVIDENCE[kind].condition
    if condition is None:
        return ()
    step = None if data.held_out is None else data.held_out.step
    if is_part and step is not None and (step.attention or 0) > 0:
        return ()
    if not better or is_part:
        return (WORSE_IF(condition=condition),)
    cause = _attention(data)
    stands = None if cause is None else cause.undecided_at or 0.0
    if stands is None or stands >= 1:
        return (CONDITIONAL_ALWAYS(condition=condition),)
    if stands <= FIRM_SHARE:
        return ()
    return (CONDITIONAL(condition=condition, stands=stands, floor=FIRM_SHARE),)


def least_attention(data: "Decision", *, is_part: bool = False) -> "Interval | None":
    """Of the difference with `FIRM_SHARE` of the curve's steepness; None where evidence is firm.

    Of a part of the way the bound alone is known.
    """
    kind, cause = kind_of_evidence(data), _attention(data)
    if kind is None or EVIDENCE[kind].condition is None:
        return None
    if not is_part:
        return None if cause is None else cause.interval
    step = None if data.held_out is None else data.held_out.step
    if step is None or step.attention is None:
        return None
    end = step.attention if step.higher_is_better else -step.attention
    return Interval(end, end, step.level)


def _attention(data: "Decision") -> "Cause | None":
    found = None if data.held_out is None else data.held_out.sensitivity
    return None if found is None else found.cause("attention")
