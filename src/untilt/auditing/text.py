"""An audit in words."""

from collections.abc import Iterable, Iterator
from itertools import islice
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from untilt.bias.log_ratios import FEWEST_QUERIES
from untilt.bias.position_graph import positions_text

if TYPE_CHECKING:
    from untilt.auditing.audit import Audit

FEW_CLICKS = 30  # at a position; below, its click rate is known to no better than a third or so
WIDE = 1.5  # an interval that reaches beyond a factor of this is called wide
TILTED = 0.1  # correlation of position and relevance from which the order is called informative


def text(audit: "Audit") -> str:
    """The whole audit, as it is printed."""
    parts = [
        *_part("size and shape", _size(audit)),
        *repr(audit.click_rates).splitlines(),
        "",
        *_part("worth knowing", audit.notes),
        *_part("warnings", audit.warnings),
        *_part("can position bias be told?", (audit.verdict, *joined(audit))),
        *_part("what to do", advice_lines(audit)),
    ]
    return "\n".join(parts).rstrip()


def verdict(audit: "Audit") -> str:
    """Which positions can be compared without a model of relevance."""
    graph = audit.graph
    if not graph.click_rate[np.isfinite(graph.click_rate)].any():
        return "Nothing can be told: there is not one click."
    if graph.depth == 1:
        return "There is nothing to compare: every list has position 1 alone."
    if audit.is_identified:
        return (
            f"Yes: documents shown at several positions join all positions 1..{graph.depth}, so "
            f"examination can be compared without a model of relevance.{_how_sure(audit)}"
        )
    return f"{_apart(audit)}{_how_sure(audit)}{_joining(audit)}"


def joined(audit: "Audit", *, most: int = 25) -> Iterator[str]:
    """One line per position that shares documents: with how many others, and with which most."""
    graph = audit.graph
    shared = graph.documents - np.diag(np.diag(graph.documents))
    places = np.flatnonzero(shared.any(axis=1))
    for k in islice(places, most):
        best = int(np.argmax(graph.weight[k]))
        yield (
            f"position {k + 1}: joined with {np.count_nonzero(shared[k])} others, most strongly "
            f"with {best + 1} ({shared[k, best]:,} documents, weight {graph.weight[k, best]:,.0f})"
        )
    if len(places) > most:
        yield f"and so on for {len(places) - most} positions more"


def advice_lines(audit: "Audit") -> tuple[str, ...]:
    """The estimator, why, what it believes, and the call."""
    advice = audit.advice
    head = f"Use {advice.estimator}" if advice.estimator else "No estimator helps here"
    lines = [f"{head}: {advice.why}."]
    lines += [f"It believes that {belief}." for belief in advice.believes]
    lines += [f"In Python: {advice.call}"] if advice.call else []
    lines += [f"On the command line: {advice.command}"] if advice.command else []
    if advice.estimator and not audit.is_binary:
        lines.append(
            f"Estimators need clicks: the label {audit.label_name!r} has other values than 0 "
            "and 1. Choose or make a click column first (log.with_label)."
        )
    return tuple(lines)


def notes(audit: "Audit") -> tuple[str, ...]:
    """Facts that are neither good nor bad."""
    return tuple(
        sentence
        for sentence in (
            _without_click(audit),
            _rankers(audit),
            _changed(audit),
            _coverage(audit),
            _relevance(audit),
        )
        if sentence
    )


def warnings(audit: "Audit") -> tuple[str, ...]:
    """What can mislead."""
    return (
        *_about_clicks(audit),
        *_about_lists(audit),
        *_about_features(audit),
        *_about_candidates(audit),
        *_about_sureness(audit),
    )


def _size(audit: "Audit") -> Iterator[str]:
    size = audit.size
    yield (
        f"{size.sessions:,} sessions in {size.distinct_lists:,} distinct lists, "
        f"{size.queries_with_sessions:,} queries"
    )
    what = f"rows with {audit.label_name}" if audit.is_binary else f"in all of {audit.label_name}"
    yield (
        f"{size.impressions:,} impressions of {size.documents:,} documents, {size.clicks:,.10g} "
        + ("clicks" if audit.label_name == "click" else what)
    )
    yield (
        f"positions 1..{size.deepest_position}, lists of {size.median_list:g} in the middle, the "
        f"shortest of {size.shortest_list}; {size.features or 'no'} features"
    )


# ---- the verdict


def _apart(audit: "Audit") -> str:
    apart = positions_text(audit.not_comparable)
    if len(audit.graph.components) > 1:
        groups = "; ".join(positions_text(found) for found in audit.graph.components[:6])
        more = len(audit.graph.components) - 6
        groups += f"; and {more} more" if more > 0 else ""
        return (
            f"Not for {apart}: no chain of documents shown at several positions leads from there "
            f"to position 1. Groups that can be compared within themselves: {groups}. Between "
            "groups only a model of relevance can tell."
        )
    if audit.not_comparable:
        return (
            f"Not for {apart}: documents join all positions, but they have too few clicks there "
            "for a ratio to position 1. More sessions may mend that."
        )
    missing = positions_text(audit.positions_never_shown)
    return f"For all positions that were shown; {missing} never was."


def _joining(audit: "Audit") -> str:
    if not audit.graph.swaps:
        return ""
    pairs = ", ".join(f"{swap.upper} and {swap.lower}" for swap in audit.graph.swaps[:10])
    more = len(audit.graph.swaps) - 10
    tail = f" and {more} more" if more > 0 else ""
    dearest = max(swap.most_lost for swap in audit.graph.swaps)
    return (
        f" The cheapest swaps that would join them: positions {pairs}{tail}. A swapped session "
        f"loses at most {dearest:.2g} clicks on average."
    )


def _how_sure(audit: "Audit") -> str:
    widest = _widest(audit)
    if widest is None:
        return ""
    k, factor = widest
    return (
        f" From these sessions the examination of each position, relative to position 1, is known "
        f"to within a factor of {factor:.2f} or better (the widest is position {k}, "
        f"{audit.click_rates.level:.0%} interval of AllPairs)."
    )


def _widest(audit: "Audit") -> tuple[int, float] | None:
    """The position with the widest interval, and the factor that it spans to either side."""
    bias = audit.evidence
    if bias is None or bias.low is None or bias.high is None:
        return None
    factor = np.sqrt(bias.high / bias.low)
    k = int(np.nanargmax(factor))
    return k + 1, float(factor[k])


# ---- notes


def _without_click(audit: "Audit") -> str:
    share, label = audit.share_without_click, audit.label_name
    return f"{share:.1%} of the sessions have no {label}." if share else ""


def _rankers(audit: "Audit") -> str:
    if not audit.rankers:
        return "The log does not say which ranker made a list (column `ranker`)."
    noun = "ranker" if len(audit.rankers) == 1 else "rankers"
    names = [f"{name} ({sessions:,} sessions)" for name, sessions in audit.rankers.items()]
    return f"Lists come from {len(names)} {noun}: {listed(names)}."


def _changed(audit: "Audit") -> str:
    done = audit.interventions
    parts = []
    if done.shuffled:
        parts.append(f"shuffled in {done.shuffled:,}")
    if done.swapped:
        total = sum(done.swapped.values())
        pairs = listed([f"{a}-{b}" for a, b in done.swapped])
        parts.append(f"swapped in {total:,} (positions {pairs})")
    return f"Lists were changed on purpose: {' and '.join(parts)} sessions." if parts else ""


def _coverage(audit: "Audit") -> str:
    found = audit.coverage
    if found.shown == found.candidates:
        return (
            "Every document of the table was shown. Candidates that were never shown are not in "
            "it, or there were none."
        )
    return (
        f"{found.share:.1%} of the candidates were ever shown: of a query's "
        f"{found.median_candidates:g} candidates {found.median_shown:g} (medians)."
    )


def _relevance(audit: "Audit") -> str:
    found = audit.relevance
    if not found.is_known:
        return f"Position and relevance cannot be told apart by a proxy: {found.method}."
    meaning = "what stands higher is hardly more or less relevant than the rest"
    if found.correlation < -TILTED:
        meaning = "what stands higher is more relevant, so click rates fall by more than the bias"
    elif found.correlation > TILTED:
        meaning = "what stands higher is less relevant, so click rates fall by less than the bias"
    return (
        f"Position and relevance have a correlation of {found.correlation:.2f} +- "
        f"{found.std_error:.2f} within queries, by {found.method}: {meaning}."
    )


# ---- warnings


def _about_clicks(audit: "Audit") -> Iterator[str]:
    rates = audit.click_rates
    if not audit.is_binary:
        yield (
            f"The label {audit.label_name!r} is no click: it has other values than 0 and 1. "
            "Position bias is estimated from clicks."
        )
    if audit.share_without_click == 0:
        yield (
            f"Every session has a {audit.label_name}: those without may have been left out of this "
            "log, which makes all rates too high."
        )
    if audit.positions_without_click:
        yield (
            f"Nobody clicked at position {listed(audit.positions_without_click)}: nothing can be "
            "learned about examination there."
        )
    few = rates.position[(rates.clicks > 0) & (rates.clicks < FEW_CLICKS)]
    if len(few) and audit.is_binary:
        yield f"There are fewer than {FEW_CLICKS} clicks at position {listed(few.tolist())}."


def _about_lists(audit: "Audit") -> Iterator[str]:
    if audit.positions_never_shown:
        yield f"No list shows position {listed(audit.positions_never_shown)}."
    if audit.sessions_with_gaps:
        share = audit.sessions_with_gaps / audit.size.sessions
        yield (
            f"{audit.sessions_with_gaps:,} sessions ({share:.1%}) skip a position: rows may have "
            "been lost, or only some were logged."
        )
    if audit.duplicate_impressions:
        yield (
            f"{audit.duplicate_impressions:,} impressions show a document again that the same "
            "session already shows: a click cannot be credited to one of the two with certainty."
        )
    if audit.size.queries_with_sessions < FEWEST_QUERIES:
        yield (
            f"There are only {audit.size.queries_with_sessions} queries. Queries are the "
            "independent units; intervals from so few say little about others."
        )


def _about_features(audit: "Audit") -> Iterator[str]:
    if not audit.size.features:
        yield "There are no features: the log can be measured, but no ranker trained on it."
    if audit.constant_features:
        yield f"Features with a single value: {listed(audit.constant_features)}."
    if audit.missing_features:
        shares = [f"{name} ({share:.1%})" for name, share in audit.missing_features.items()]
        yield f"Features that are missing for some documents: {listed(shares)}."
    if audit.advice.estimator == "RegressionEM" and not audit.relevance.is_known:
        yield (
            "The features do not foresee clicks within a position, so RegressionEM would take "
            "nearly all of the fall of the click rates for position bias. A swap would tell."
        )


def _about_candidates(audit: "Audit") -> Iterator[str]:
    if audit.coverage.median_share < 0.5:
        yield (
            "Most candidates were never shown. What is learned is about the documents on top; a "
            "ranker trained on them alone can be worse on the rest than the one in production."
        )


def _about_sureness(audit: "Audit") -> Iterator[str]:
    widest = _widest(audit)
    if widest is not None and widest[1] > WIDE:
        yield (
            f"Positions are joined by thin evidence: at position {widest[0]} the ratio to position "
            f"1 is only known to within a factor of {widest[1]:.1f}."
        )
    if audit.relevance.is_known and audit.relevance.correlation < -TILTED:
        yield (
            "Click rate by position is no estimate of position bias here: better documents stand "
            "higher, so it makes the bias look stronger than it is."
        )


def listed(values: Iterable[object], *, most: int = 10) -> str:
    """The first of the values, and how many more there are."""
    found = [str(value) for value in values]
    shown = ", ".join(found[:most])
    return shown if len(found) <= most else f"{shown} and {len(found) - most:,} more"


def _part(heading: str, lines: Iterable[str]) -> list[str]:
    found = [
        fill(f"- {line}", 100, initial_indent="  ", subsequent_indent="    ") for line in lines
    ]
    return [heading, *found, ""] if found else []
