"""How much evidence a verdict needs; below these floors the answer is "cannot tell".

An interval is right for many clicks of many queries under a curve that is known well. With few of
them it is too narrow and says so nowhere, so each floor is a number of its own. They are low on
purpose: what passes them can still be undecided. docs/decisions.md has the simulation behind them.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from untilt.auditing.next_step import doubt
from untilt.bias.curve import NOT_KNOWN
from untilt.facts import Command, Fact, Sentence, serious

if TYPE_CHECKING:
    from untilt.evaluation.uncertainty import Support
    from untilt.report.decision import Decision
    from untilt.report.step_results import UsedBias

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

MOST_OF_ONE_QUERY = 0.5
"""Of the variance of the difference: one query would tell more than all others together. Below, the
interval is wide enough for it, and random labels (`untilt.null_tests`) look at it once more."""

LEAST_EFFECTIVE_QUERIES = 3.0
"""Queries of equal traffic, among those in which the two orders differ: with fewer, Student's t has
less than two degrees of freedom, and an answer is one about two queries."""


# What is missing, as a clause; `what_to_do` says what to do about it, once.
CURVE_ASSUMED = serious(
    "run.floor-curve-assumed",
    "the examination curve is assumed: nobody measured it, and another guess can flip the answer "
    "round",
)
LEAKS = serious(
    "run.floor-leaks",
    "rankers were trained on what is known only after the click: {features:all}",
)
NO_INTERVAL = serious(
    "run.floor-no-interval",
    "the examination curve ({method}) is an estimate without an interval: how far it is off is not "
    "known, so the intervals of the rankers leave it out",
)
MISFIT = serious(
    "run.floor-misfit",
    "clicks do not fit the examination curve: position {position} has {ratio:.2f} times the clicks "
    "that it should have (p {p_value:.1g}). People may read in another way than the curve says: "
    "trust in the top, a cascade, devices that differ, or relevance that changes",
)
READING = serious(
    "run.floor-reading", "people do not read as the examination curve says: {finding:clause}"
)
CURVE_CLICKS = serious(
    "run.floor-curve-clicks",
    "only {clicks:,.0f} clicks stand behind the examination curve, and a verdict needs {floor:,}",
)
_CURVE = "at position {position} and others like it, where much of the value is counted, "
CURVE = serious(
    "run.floor-curve",
    _CURVE + "examination is known to within a factor of {factor:.1f}, and a verdict needs a "
    "factor of {most} or better",
)
CURVE_UNKNOWN = serious(
    "run.floor-curve",
    _CURVE + "examination is not known, and a verdict needs it to within a factor of {most}",
)
POSITIONS = serious(
    "run.floor-positions",
    "the examination curve knows {known} of {depth} positions, which hold only {share:.0%} of what "
    "the clicks count, and a verdict needs {floor:.0%}",
)
CLICKS = serious(
    "run.floor-clicks",
    "the {clicks:,.0f} held-out clicks count like {effective_n:,.0f} of equal weight, and a "
    "verdict needs {floor:,}",
)
QUERIES = serious(
    "run.floor-queries",
    "only {queries:,} held-out {queries:query has|queries have} a click, and a verdict needs "
    "{floor:,}",
)
EFFECTIVE_QUERIES = serious(
    "run.floor-effective-queries",
    "a few queries have nearly all of the traffic: those in which the orders differ count like "
    "{effective_queries:.1f} of equal traffic, and a verdict needs {floor:.0f}",
)
CLIPPED = serious(
    "run.floor-clipped",
    "{share:.0%} of the held-out clicks are clipped, and a verdict allows {most:.0%}: the figures "
    "are nearer to raw clicks than to corrected ones",
)
ONE_QUERY = serious(
    "run.floor-one-query",
    "one query makes up {share:.0%} of the spread behind the difference, and a verdict allows "
    "{most:.0%}: it is an answer about that query",
)

# What to do where there is no verdict.
_PLAN = Command("untilt plan LOG")
MEASURE = serious("run.measure-bias-first", "First measure the position bias by swaps.")
MEASURE_TRUST = serious(
    "run.measure-bias-first",
    "First measure the position bias by shuffled lists: trust in the top explains the clicks of "
    "this log, and so does relevance that differs from session to session.",
)
NO_LEAKS = serious(
    "run.leave-leaks-out-first",
    "First leave out what is known only after the click: {features:all}. Figures of rankers that "
    "use it are worth nothing.",
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
_REMEDIES = {
    "estimate.automatic-clicks": PAGE_CLICKS,
    "run.floor-no-interval": _first("First measure the position bias by swaps."),
    "run.floor-curve-clicks": MORE_SESSIONS,
    "run.floor-curve": _first("First measure the position bias by swaps."),
    "run.floor-positions": FURTHER_DOWN,
    "run.floor-clicks": MORE_SESSIONS,
    "run.floor-queries": MORE_QUERIES,
    "run.floor-effective-queries": MORE_QUERIES,
    "run.floor-clipped": LESS_CLIPPING,
    "run.floor-one-query": MORE_QUERIES,
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
    if data.bias is not None and data.bias.kind == "assumed":
        return MEASURE(command=_PLAN)
    check = None if data.held_out is None else data.held_out.check
    if any(each.code == "run.floor-reading" for each in reasons):
        return _about_reading(data)
    if check is not None and not check.fits:
        return FIND_MISFIT()
    if not reasons:
        return None
    remedies = (_REMEDIES[each.code] for each in reasons if each.code in _REMEDIES)
    remedy = next(remedies, NO_DECISION)
    return remedy(command=_PLAN) if "measure" in remedy.template else remedy()


def _about_reading(data: "Decision") -> Fact:
    """The log's next step, where the run has not done it."""
    step = None if data.audit is None else data.audit.next_step
    used = data.bias
    if step is None or used is None or step.rule not in ("time", "clicks-above", "trust-in-top"):
        return FIND_MISFIT()
    if step.rule == "trust-in-top" and used.bias.has_trust:
        return MEASURE_TRUST()
    fact = step.fact
    return Fact(fact.code, fact.severity, fact.template, **fact.fields, command=step.command)


def below_floors(data: "Decision") -> tuple[Fact, ...]:
    """What is missing for a verdict, each with what was found and the floor."""
    support = None if data.held_out is None else data.held_out.support
    facts = [LEAKS(features=data.leaks_used)] if data.leaks_used else []
    facts += [] if data.bias is None else _of_curve(data, data.bias)
    if data.held_out is not None:
        found = data.held_out.warnings
        facts += [each for each in found if each.code == "estimate.automatic-clicks"]
    if support is not None:
        facts += _of_clicks(support)
        facts += [] if data.bias is None else _of_both(support, data.bias)
    return tuple(facts)


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
    """A test of the position-based model that fails so far that a decision may turn."""
    if data.audit is None:
        return
    has_trust, done = used.bias.has_trust, data.audit.interventions
    finding = doubt(data.audit.reading, done, has_trust=has_trust, asked_for=used.asked_for)
    if finding is not None:
        yield READING(finding=finding)


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
        yield CLICKS(
            clicks=support.n_clicks,
            effective_n=equal,
            floor=LEAST_EFFECTIVE_CLICKS,
        )
    if support.clicked_queries < LEAST_CLICKED_QUERIES:
        queries = support.clicked_queries
        yield QUERIES(queries=queries, floor=LEAST_CLICKED_QUERIES)
    if support.clipped_share > MOST_CLIPPED:
        yield CLIPPED(share=support.clipped_share, most=MOST_CLIPPED)
    effective = support.effective_queries
    if effective is not None and 0 < effective < LEAST_EFFECTIVE_QUERIES:
        floor = LEAST_EFFECTIVE_QUERIES
        yield EFFECTIVE_QUERIES(effective_queries=effective, floor=floor)
    if support.largest_query > MOST_OF_ONE_QUERY:
        yield ONE_QUERY(share=support.largest_query, most=MOST_OF_ONE_QUERY)


def _of_both(support: "Support", used: "UsedBias") -> Iterator[Fact]:
    known, depth = support.known_credit, len(support.clicks_at)
    if known < LEAST_KNOWN_CREDIT:
        yield POSITIONS(
            known=min(used.bias.depth, depth),
            depth=depth,
            share=known,
            floor=LEAST_KNOWN_CREDIT,
        )
    position, factor = support.curve_factor(used.bias)
    if used.bias.has_interval and factor > MOST_CURVE_FACTOR:
        named = position if used.bias.layout is None else used.bias.layout.name(position)
        is_known = factor <= NOT_KNOWN
        sentence = CURVE if is_known else CURVE_UNKNOWN
        yield sentence(position=named, factor=factor, most=f"{MOST_CURVE_FACTOR:g}")
