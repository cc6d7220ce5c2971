"""How much evidence a verdict needs; below these floors the answer is "cannot tell".

An interval is right for many clicks of many queries under a curve that is known well. With few of
them it is too narrow and says so nowhere, so each floor is a number of its own. They are low on
purpose: what passes them can still be undecided. docs/decisions.md has the simulation behind them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from untilt.auditing.next_step import doubt
from untilt.facts import Fact

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


def below_floors(data: "Decision") -> tuple[Fact, ...]:
    """What is missing for a verdict, each with what was found and the floor."""
    support = None if data.held_out is None else data.held_out.support
    facts = [Fact("run.floor-leaks", features=data.leaks_used)] if data.leaks_used else []
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
        yield Fact("run.floor-curve-assumed")
        return
    if used.bias.estimated and not used.bias.has_interval:
        yield Fact("run.floor-no-interval", method=used.bias.method)
    check = None if data.held_out is None else data.held_out.check
    if check is not None and not check.fits:
        worst = check.fact.fields
        fields = {name: worst[name] for name in ("position", "ratio", "p_value")}
        yield Fact("run.floor-misfit", **fields)
    yield from _of_reading(data, used)
    clicks = None if used.bias.is_known else curve_clicks(data, used)
    if clicks is not None and clicks < LEAST_CURVE_CLICKS:
        yield Fact("run.floor-curve-clicks", clicks=clicks, floor=LEAST_CURVE_CLICKS)


def _of_reading(data: "Decision", used: "UsedBias") -> Iterator[Fact]:
    """A test of the position-based model that fails so far that a decision may turn."""
    if data.audit is None:
        return
    has_trust, done = used.bias.has_trust, data.audit.interventions
    finding = doubt(data.audit.reading, done, has_trust=has_trust, asked_for=used.asked_for)
    if finding is not None:
        yield Fact("run.floor-reading", finding=finding)


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
        yield Fact(
            "run.floor-clicks",
            clicks=support.n_clicks,
            effective_n=equal,
            floor=LEAST_EFFECTIVE_CLICKS,
        )
    if support.clicked_queries < LEAST_CLICKED_QUERIES:
        queries = support.clicked_queries
        yield Fact("run.floor-queries", queries=queries, floor=LEAST_CLICKED_QUERIES)
    if support.clipped_share > MOST_CLIPPED:
        yield Fact("run.floor-clipped", share=support.clipped_share, most=MOST_CLIPPED)
    effective = support.effective_queries
    if effective is not None and 0 < effective < LEAST_EFFECTIVE_QUERIES:
        floor = LEAST_EFFECTIVE_QUERIES
        yield Fact("run.floor-effective-queries", effective_queries=effective, floor=floor)
    if support.largest_query > MOST_OF_ONE_QUERY:
        yield Fact("run.floor-one-query", share=support.largest_query, most=MOST_OF_ONE_QUERY)


def _of_both(support: "Support", used: "UsedBias") -> Iterator[Fact]:
    known, depth = support.known_credit, len(support.clicks_at)
    if known < LEAST_KNOWN_CREDIT:
        yield Fact(
            "run.floor-positions",
            known=min(used.bias.depth, depth),
            depth=depth,
            share=known,
            floor=LEAST_KNOWN_CREDIT,
        )
    position, factor = support.curve_factor(used.bias)
    if used.bias.has_interval and factor > MOST_CURVE_FACTOR:
        named = position if used.bias.layout is None else used.bias.layout.name(position)
        yield Fact("run.floor-curve", position=named, factor=factor, most=MOST_CURVE_FACTOR)
