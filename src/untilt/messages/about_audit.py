"""An audit: what a log contains, what can mislead, what it identifies and what to do next."""

from collections.abc import Mapping, Sequence

from untilt.facts import Message
from untilt.messages.phrases import listed, positions_text

Pairs = Sequence[tuple[int, int]]


def _sentences(parts: Sequence[str]) -> str:
    return " ".join(parts)


def _rankers(sessions: Mapping[str, int]) -> str:
    names = [f"{name} ({n:,} sessions)" for name, n in sessions.items()]
    return f"Lists come from {len(names)} ranker{'s' * (len(names) > 1)}: {listed(names)}."


def _experiment(shuffled: int, swapped: int, pairs: Pairs) -> str:
    parts = [f"shuffled in {shuffled:,}"] if shuffled else []
    if swapped:
        positions = listed(f"{upper}-{lower}" for upper, lower in pairs)
        parts.append(f"swapped in {swapped:,} (positions {positions})")
    return f"An experiment changed lists: {' and '.join(parts)} sessions."


def _order(meaning: str) -> str:
    return (
        "Position and relevance have a correlation of {correlation:.2f} +- {std_error:.2f} within "
        f"queries, by {{proxy}}: {meaning}."
    )


def _apart(positions: Sequence[int], components: Sequence[Sequence[int]]) -> str:
    groups = "; ".join(positions_text(component) for component in components[:6])
    more = f"; and {len(components) - 6} more" if len(components) > 6 else ""
    return (
        f"Not for {positions_text(positions)}: no chain of documents shown at several positions "
        "leads from there to position 1. Groups that can be compared within themselves: "
        f"{groups}{more}. Between groups only a model of relevance can compare."
    )


def _pairs(pairs: Pairs, most: int) -> str:
    text = ", ".join(f"{upper} and {lower}" for upper, lower in pairs[:most])
    return f"{text} and {len(pairs) - most} pairs more" if len(pairs) > most else text


_NOTES = {
    "audit.without-click": Message("note", "{share:.1%} of the sessions have no {label}."),
    "audit.no-ranker": Message(
        "note", "The log does not say which ranker made a list (column `ranker`)."
    ),
    "audit.rankers": Message("note", _rankers),
    "audit.experiment": Message("note", _experiment),
    "audit.all-shown": Message(
        "note",
        "Every document of the table was shown. Candidates that were never shown are not in it, or "
        "there were none.",
    ),
    "audit.coverage": Message(
        "note",
        "{share:.1%} of the candidates were ever shown: of a query's {candidates:g} candidates "
        "{shown:g} (medians).",
    ),
    "audit.no-proxy": Message(
        "note", "There is no proxy of relevance to compare positions with: {why}."
    ),
    "audit.order-good": Message(
        "note",
        _order(
            "documents shown higher are more relevant, so click rates fall by more than the bias"
        ),
    ),
    "audit.order-inverted": Message(
        "note",
        _order(
            "documents shown higher are less relevant, so click rates fall by less than the bias"
        ),
    ),
    "audit.order-uninformative": Message(
        "note", _order("documents shown higher are hardly more or less relevant than the rest")
    ),
}

# What a proxy of relevance was made of, and why there is none.
_PROXIES = {
    "audit.proxy-clicks": Message("note", "clicks of documents that change positions"),
    "audit.proxy-features": Message(
        "note", "a prediction of clicks within positions from the features"
    ),
    "audit.proxy-too-few": Message("note", "too few documents change positions"),
    "audit.proxy-no-difference": Message(
        "note", "documents do not differ in relevance beyond chance"
    ),
    "audit.proxy-no-prediction": Message(
        "note", "the features do not predict clicks within a position beyond chance"
    ),
    "audit.proxy-nothing-within": Message("note", "there is nothing to compare within queries"),
}

_WARNINGS = {
    "audit.label-no-click": Message(
        "warning",
        "The label {label!r} is no click: it has other values than 0 and 1. Position bias is "
        "estimated from clicks.",
    ),
    "audit.always-clicked": Message(
        "warning",
        "Every session has a {label}: those without may have been left out of this log, which "
        "makes all rates too high.",
    ),
    "audit.positions-without-click": Message(
        "warning",
        lambda positions: (
            f"Nobody clicked at position {listed(positions)}: nothing can be learned "
            "about examination there."
        ),
    ),
    "audit.few-clicks": Message(
        "warning",
        lambda positions, fewer_than: (
            f"There are fewer than {fewer_than} clicks at position {listed(positions)}."
        ),
    ),
    "audit.positions-never-shown": Message(
        "warning", lambda positions: f"No list shows position {listed(positions)}."
    ),
    "audit.gaps": Message(
        "warning",
        "{sessions:,} sessions ({share:.1%}) skip a position: rows may have been lost, or only "
        "some were logged.",
    ),
    "audit.duplicates": Message(
        "warning",
        "{impressions:,} impressions show a document again that the same session already shows: a "
        "click cannot be credited to one of the two with certainty.",
    ),
    "audit.few-queries": Message(
        "warning",
        "There are only {queries} queries. Queries are the independent units; intervals from so "
        "few say little about others.",
    ),
    "audit.no-features": Message(
        "warning", "There are no features: the log can be measured, but no ranker trained on it."
    ),
    "audit.constant-features": Message(
        "warning", lambda features: f"Features with a single value: {listed(features)}."
    ),
    "audit.missing-features": Message(
        "warning",
        lambda shares: (
            "Features that are missing for some documents: "
            + listed(f"{name} ({share:.1%})" for name, share in shares.items())
            + "."
        ),
    ),
    "audit.features-useless": Message(
        "serious",
        "The features do not predict clicks within a position, so {estimator} would take nearly "
        "all of the fall of the click rates for position bias. A swap experiment would decide.",
    ),
    "audit.few-candidates-shown": Message(
        "warning",
        "Most candidates were never shown. What is learned is about the documents on top; a ranker "
        "trained on them alone can be worse on the rest than the one in production.",
    ),
    "audit.wide-interval": Message(
        "warning",
        "Little evidence joins some positions: at position {position} the ratio to position 1 is "
        "only known to within a factor of {factor:.1f}.",
    ),
    "audit.rates-mislead": Message(
        "warning",
        "Click rate by position is no estimate of position bias here: better documents are shown "
        "higher, so it makes the bias look stronger than it is.",
    ),
}

_VERDICT = {
    "audit.verdict": Message("note", _sentences),
    "audit.no-clicks-at-all": Message("serious", "No: there is not one click."),
    "audit.one-position": Message(
        "note", "There is nothing to compare: every list has position 1 alone."
    ),
    "audit.identified": Message(
        "note",
        "Yes: documents shown at several positions join all positions 1..{depth}, so examination "
        "can be compared without a model of relevance.",
    ),
    "audit.positions-apart": Message("warning", _apart),
    "audit.too-few-clicks": Message(
        "warning",
        lambda positions: (
            f"Not for {positions_text(positions)}: documents join all positions, but "
            "they have too few clicks there for a ratio to position 1. More sessions may help."
        ),
    ),
    "audit.identified-where-shown": Message(
        "note",
        lambda positions: (
            f"For all positions that were shown; {positions_text(positions)} never was."
        ),
    ),
    "audit.precision": Message(
        "note",
        "From these sessions the examination of each position, relative to position 1, is known to "
        "within a factor of {factor:.2f} or better (the widest is position {position}, {level:.0%} "
        "interval of {estimator}).",
    ),
    "audit.swaps-that-join": Message(
        "note",
        lambda pairs, most_lost: (
            f"The cheapest swaps that would join them: positions {_pairs(pairs, 10)}. A swapped "
            f"session loses at most {most_lost:.2g} clicks on average."
        ),
    ),
}

_ADVICE = {
    "audit.use": Message("note", "Use {estimator}: {why}."),
    "audit.use-none": Message("warning", "No estimator helps here: {why}."),
    "audit.believes": Message("note", "It believes that {belief}."),
    "audit.in-python": Message("note", "In Python: {call}"),
    "audit.on-command-line": Message("note", "On the command line: {command}"),
    "audit.clicks-first": Message(
        "warning",
        "Estimators need clicks: the label {label!r} has other values than 0 and 1. Choose or make "
        "a click column first (log.with_label).",
    ),
    "audit.nobody-clicked": Message(
        "serious", "nobody clicked in this log, so there is nothing to learn from"
    ),
    "audit.no-bias": Message(
        "note", "lists have a single position, so there is no bias to estimate"
    ),
    "audit.shuffled": Message(
        "note",
        "{sessions:,} sessions were shown in random order: there the click rate by position falls "
        "by examination alone",
    ),
    "audit.pivot-swaps": Message(
        "note",
        "{sessions:,} sessions swapped position {pivot} with another, down to position {depth}: "
        "the two documents change positions and nothing else does",
    ),
    "audit.adjacent-swaps": Message(
        "note",
        "{sessions:,} sessions swapped neighbours, down to position {depth}: the two documents "
        "change positions and nothing else does",
    ),
    "audit.queries-do-not-repeat": Message(
        "note",
        "queries hardly repeat, so that swapped lists are compared with others of their length "
        "instead of with the same documents",
    ),
    "audit.repeated-positions": Message(
        "note",
        lambda n_rankers, positions: (
            (f"{n_rankers} rankers disagree" if n_rankers > 1 else "ranks vary by themselves")
            + ", so that documents are shown at several positions: their clicks there differ by "
            f"examination alone, and {positions_text(positions)} are joined by such documents"
        ),
    ),
    "audit.needs-model": Message(
        "warning",
        "the positions fall apart into {groups} groups that share too few documents, so only a "
        "model of relevance can compare them, and there are {features} features to build one on",
    ),
    "audit.check-with": Message(
        "note", "check it with {estimator} on positions 1..{depth}, which are joined"
    ),
    "audit.otherwise": Message("note", "without that belief, {do}"),
    "audit.any-curve-fits": Message(
        "serious",
        "each position shows documents of its own (the positions fall apart into {groups} groups) "
        "and there are no features to model relevance with: any curve fits this log",
    ),
    "audit.below": Message(
        "warning", "below position {depth} the log says nothing without a model"
    ),
    "audit.swap-positions": Message(
        "note",
        lambda pairs: (
            f"swap positions {_pairs(pairs, 3)} in a share of the sessions; `untilt plan` "
            "says how many it takes"
        ),
    ),
    "audit.collect-sessions": Message(
        "note", "collect more sessions: positions share documents, but too few clicks on them"
    ),
    "audit.random-order": Message(
        "note", "every order of the shuffled documents was equally likely"
    ),
    "audit.random-swaps": Message("note", "which sessions were swapped was left to chance"),
    "audit.same-relevance": Message(
        "note", "a document is as relevant on the days and to the people that saw it higher"
    ),
    "audit.features-explain": Message(
        "note", "the features explain relevance, the same way at every position"
    ),
    "audit.nothing-hidden": Message(
        "note",
        "the production ranker used nothing about relevance beyond the features: it would count as "
        "position bias",
    ),
}

MESSAGES = _NOTES | _PROXIES | _WARNINGS | _VERDICT | _ADVICE
