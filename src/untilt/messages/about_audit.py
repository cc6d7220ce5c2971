"""An audit: what a log contains, what can mislead, what it identifies and what to do next."""

from collections.abc import Callable, Mapping, Sequence

from untilt.facts import Texts, messages
from untilt.messages.about_general import NOT_KNOWN, known_to, listed, positions_text

Pairs = Sequence[tuple[int, int]]


def _sentences(parts: Sequence[str]) -> str:
    return " ".join(parts)


def _small_share(share: float) -> str:
    return f"{share:.1%}" if share >= 0.0005 else "under 0.1%"


def _rankers(sessions: Mapping[str, int]) -> str:
    names = [f"{name} ({n:,} sessions)" for name, n in sessions.items()]
    return f"Lists come from {len(names)} ranker{'s' * (len(names) > 1)}: {listed(names)}."


def _experiment(shuffled: int, swapped: int, pairs: Pairs) -> str:
    parts = [f"shuffled in {shuffled:,}"] if shuffled else []
    if swapped:
        positions = listed(f"{upper}-{lower}" for upper, lower in pairs)
        parts.append(f"swapped in {swapped:,} (positions {positions})")
    return f"An experiment changed lists: {' and '.join(parts)} sessions."


def _failed(kind: str, parts: Sequence[str]) -> str:
    return (
        f"Sessions that are called {kind} are not what they are called: {'; '.join(parts)}. They "
        "are not used as an experiment. Find out what it did, and name its sessions by that."
    )


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


def _versions(features: Sequence[str], documents: int, versions: int) -> str:
    return (
        f"Features change from impression to impression: {listed(features)}. Every impression is "
        f"learned from with the features it had: {documents:,} documents have {versions:,} "
        f"versions ({versions / max(1, documents):.1f} each). Position bias is measured by "
        "document, whatever its version."
    )


_WHERE = {
    "above": "above {value:g}",
    "below": "below {value:g}",
    "unlike": "other than {value:g}",
    "missing": "missing",
    "present": "not missing",
    "above-list": "more than {value:g} above the lowest of its list",
    "below-list": "more than {value:g} below the highest of its list",
}


def _leak(then: str) -> Callable[..., str]:
    def told(
        *, feature: str, where: str, value: float | None, impressions: int, click_rate: float,
        rate_elsewhere: float,
    ) -> str:  # fmt: skip
        return (
            f"The feature {feature} knows the click: it is {_WHERE[where].format(value=value)} in "
            f"{impressions:,} impressions, and {click_rate:.1%} of these were clicked, against "
            f"{rate_elsewhere:.1%} elsewhere. {then}"
        )

    return told


NOTES: Texts = {
    "audit.versions": _versions,
    "audit.without-click": "{share:.1%} of the sessions have no {label}.",
    "audit.no-ranker": "The log does not say which ranker made a list (column `ranker`).",
    "audit.rankers": _rankers,
    "audit.experiment": _experiment,
    "audit.experiment-tested": lambda parts: f"It was put to the test: {'; '.join(parts)}.",
    "audit.all-shown": (
        "The log holds shown documents only, so nothing can be said of other candidates. If there "
        "are any, give a documents table with all candidates of each query."
    ),
    "audit.coverage": (
        "{unshown:,} candidates ({share:.1%}) were never shown, in {queries:.0%} of the queries: "
        "of a query's {candidates:g} candidates {shown:g} were shown (medians)."
    ),
    "audit.no-proxy": "There is no proxy of relevance to compare positions with: {why}.",
    "audit.order-good": _order(
        "documents shown higher are more relevant, so click rates fall by more than the bias"
    ),
    "audit.order-inverted": _order(
        "documents shown higher are less relevant, so click rates fall by less than the bias"
    ),
    "audit.order-uninformative": _order(
        "documents shown higher are hardly more or less relevant than the rest"
    ),
    # What a proxy of relevance was made of, and why there is none.
    "audit.proxy-clicks": "clicks of documents that change positions",
    "audit.proxy-features": "a prediction of clicks within positions from the features",
    "audit.proxy-too-few": "too few documents change positions",
    "audit.proxy-no-difference": "documents do not differ in relevance beyond chance",
    "audit.proxy-no-prediction": (
        "the features do not predict clicks within a position beyond chance"
    ),
    "audit.proxy-nothing-within": "there is nothing to compare within queries",
    # Is position bias identified?
    "audit.verdict": _sentences,
    "audit.one-position": "There is nothing to compare: every list has position 1 alone.",
    "audit.identified": (
        "Yes: documents shown at several positions join all positions 1..{depth}, so examination "
        "can be compared without a model of relevance."
    ),
    "audit.identified-where-shown": lambda positions: (
        f"For all positions that were shown; {positions_text(positions)} never was."
    ),
    "audit.precision": lambda depth, position, factor, level, estimator: (
        f"From these sessions the examination of {positions_text(range(1, depth + 1))}, relative "
        f"to position 1, is known to within a factor of {factor:.2f} or better (the widest is "
        f"position {position}, {level:.0%} interval of {estimator})."
        if factor <= NOT_KNOWN
        else f"From these sessions the examination of position {position}, relative to position "
        f"1, is not known (it has the widest {level:.0%} interval of {estimator})."
    ),
    "audit.positions-not-shown": lambda first, last, share, clicks: (
        f"{positions_text(range(first, last + 1))} {'hold' if last > first else 'holds'} "
        f"{_small_share(share)} of the impressions and {clicks:,.0f} click{'s' * (clicks != 1)}: "
        "not shown"
    ),
    "audit.swaps-that-join": lambda pairs, most_lost: (
        f"The cheapest swaps that would join them: positions {_pairs(pairs, 10)}. A swapped "
        f"session loses at most {most_lost:.2g} clicks on average."
    ),
    # What to do.
    "audit.believes": "It assumes that {belief}.",
    "audit.in-python": "In Python: {call}",
    "audit.on-command-line": "On the command line: `{command}`",
}
WARNINGS: Texts = {
    "audit.label-no-click": (
        "The label {label!r} is no click: it has other values than 0 and 1. Position bias is "
        "estimated from clicks."
    ),
    "audit.always-clicked": (
        "Every session has a {label}: those without may have been left out of this log, which "
        "makes all rates too high."
    ),
    "audit.experiment-doubt": "About the experiment: {doubt}",
    "audit.shuffle-unusable": (
        "{sessions:,} sessions were shown in random order and cannot be used: {why}"
    ),
    "audit.positions-without-click": lambda positions: (
        f"Nobody clicked at {positions_text(positions)}: nothing can be learned "
        "about examination there."
    ),
    "audit.few-clicks": lambda positions, fewer_than: (
        f"There are fewer than {fewer_than} clicks at {positions_text(positions)}."
    ),
    "audit.positions-never-shown": lambda positions: f"No list shows {positions_text(positions)}.",
    "audit.gaps": (
        "{sessions:,} sessions ({share:.1%}) skip a position: rows may have been lost, or only "
        "some were logged."
    ),
    "audit.duplicates": (
        "{impressions:,} impressions show a document again that the same session already shows: a "
        "click cannot be credited to one of the two with certainty."
    ),
    "audit.few-queries": (
        "There are only {queries} queries. Queries are the independent units; intervals from so "
        "few say little about others."
    ),
    "audit.no-features": (
        "There are no features: the log can be measured, but no ranker trained on it."
    ),
    "audit.leak-kept-out": _leak(
        "It is kept out of training. To use it all the same, name it among the features."
    ),
    "audit.position-features": lambda features: (
        f"Features that are the position where a document was shown: {listed(features)}. A ranker "
        "does not know it when it ranks, and learns to repeat the shown order from it."
    ),
    "audit.constant-features": lambda features: (
        f"Features with a single value: {listed(features)}."
    ),
    "audit.missing-features": lambda shares: (
        "Features that are missing for some documents: "
        + listed(f"{name} ({share:.1%})" for name, share in shares.items())
        + "."
    ),
    "audit.relevance-drifts": lambda features, drift, std_error: (
        f"A document's relevance changes with the position it has: by {drift:+.1%} +- "
        f"{std_error:.1%} from one position to the next, by {listed(features)}. Clicks of one "
        "document at several positions then differ by more than examination: a curve from them "
        f"is too {'steep' if drift < 0 else 'flat'}."
    ),
    "audit.few-candidates-shown": (
        "Most candidates were never shown. What is learned is about the documents on top; a "
        "ranker trained on them alone can be worse on the rest than the one in production."
    ),
    "audit.wide-interval": lambda position, factor: (
        f"Little evidence joins some positions: at position {position} the ratio to position 1 is "
        f"{'only ' if factor <= NOT_KNOWN else ''}{known_to(factor)}."
    ),
    "audit.rates-mislead": (
        "Click rate by position is no estimate of position bias here: better documents are shown "
        "higher, so it makes the bias look stronger than it is."
    ),
    # Is position bias identified?
    "audit.positions-apart": _apart,
    "audit.too-few-clicks": lambda positions: (
        f"Not for {positions_text(positions)}: documents join all positions, but "
        "they have too few clicks there for a ratio to position 1. More sessions may help."
    ),
    "audit.not-identified-drift": (
        "Not without a model of relevance: documents join the positions, but they stand higher "
        "when their features make them more relevant, or less."
    ),
    # What to do.
    "audit.clicks-first": (
        "Estimators need clicks: the label {label!r} has other values than 0 and 1. Choose or "
        "make a click column first (log.with_label)."
    ),
}
SERIOUS: Texts = {
    "audit.leak": _leak("Leave it out, unless it is known before the list is shown."),
    "audit.leak-used": _leak(
        "It was named among the features, so it is used: figures of rankers that have it may be "
        "worth nothing."
    ),
    "audit.features-useless": (
        "The features do not predict clicks within a position, so {estimator} would take nearly "
        "all of the fall of the click rates for position bias. A swap experiment would decide."
    ),
    "audit.experiment-failed": _failed,
    "audit.clicks-only": (
        "The log holds clicks alone: none of its {sessions:,} sessions has a row that was not "
        "clicked. Nothing was logged about what was shown, so that neither position bias nor a "
        "ranker can be judged. Log every result that was shown, with 0 where it was not clicked."
    ),
    "audit.mostly-clicks-only": (
        "{share:.1%} of the sessions with a click hold clicked rows alone: what else they showed "
        "was not logged, and estimates would take these documents for clicked whenever shown. Log "
        "every result that was shown, or leave such sessions out."
    ),
    "audit.cut-at-last-click": (
        "{share:.1%} of the sessions with a click end with it: what stood below the last click was "
        "not logged, so that low positions seem to be clicked far too often. Log every result that "
        "was shown."
    ),
    "audit.partly-clicks-only": (
        "{share:.1%} of the sessions with a click hold clicked rows alone: part of the log does "
        "not hold what was shown, which makes position bias look weaker than it is. Find out where "
        "they come from, and leave them out."
    ),
    "audit.rows-missing": (
        "{share:.1%} of the positions above a session's lowest row have none. If rows without a "
        "click were left out, or only a sample of them was kept, position bias looks far weaker "
        "than it is: log every result that was shown."
    ),
    "audit.nothing-shown": "No: the log does not hold what was shown.",
    # Is position bias identified?
    "audit.no-clicks-at-all": "No: there is not one click.",
    # What to do.
}

MESSAGES = messages("note", NOTES) | messages("warning", WARNINGS) | messages("serious", SERIOUS)
