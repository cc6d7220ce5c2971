"""Does the model of reading fit? What each test found, its likely cause and what to do."""

from collections.abc import Callable, Sequence

from untilt.facts import Texts, messages
from untilt.messages.about_general import listed

ASKS = {
    "relevance": "better and weaker documents",
    "features": "documents that are better and weaker by their features",
    "clicks-above": "clicks above a document",
    "time": "the two halves of the time",
    "ranker": "rankers",
    "context": "contexts",
}
_SERIOUS = " This can turn a decision: no verdict rests on such a curve."


def _asked(asks: str, column: str = "") -> str:
    return f"the values of {column}" if asks == "context" and column else ASKS[asks]


def _fits(asked: Sequence[tuple[str, str]]) -> str:
    return (
        "Clicks fit the position-based model as far as these were compared: "
        f"{listed(_asked(*each) for each in asked)}."
    )


def _times(ratio: float, low: float, high: float) -> str:
    return f"{ratio:.2f} times [{low:.2f}, {high:.2f}]"


def _fall(ratio: float, low: float, high: float, p_value: float, position: int) -> str:
    return (
        f"From position 1 to {position}, clicks of weaker documents fall "
        f"{_times(ratio, low, high)} as much as those of better ones (p {p_value:.1g})"
    )


def _trust(
    ratio: float, low: float, high: float, p_value: float, position: int, estimator: str, name: str
) -> str:
    return (
        f"{_fall(ratio, low, high, p_value, position)}. The likely cause is trust: readers "
        "click the top because it is the top. Other causes are readers that stop at a click, and "
        f"relevance that changes. {estimator} ({name}) knows trust."
    )


def _steeper(
    ratio: float, low: float, high: float, p_value: float, position: int, estimator: str, name: str
) -> str:
    return (
        f"{_fall(ratio, low, high, p_value, position)}, so that no one curve fits both. The "
        "likely cause is relevance that changes over time, or from person to person, and a ranker "
        f"that follows it; it is not trust in the top, so {estimator} (`{name}`) does not "
        "help."
    )


def _fall_by_features(ratio: float, low: float, high: float, p_value: float, position: int) -> str:
    return (
        f"From position 1 to {position}, clicks of documents whose features are weaker fall "
        f"{_times(ratio, low, high)} as much as those of documents with better ones (p "
        f"{p_value:.1g})"
    )


def _trust_by_features(
    ratio: float, low: float, high: float, p_value: float, position: int, estimator: str, name: str
) -> str:
    return (
        f"{_fall_by_features(ratio, low, high, p_value, position)}. The likely cause is trust: "
        "readers click the top because it is the top. Production may also know of relevance what "
        f"the features do not tell. {estimator} ({name}) knows trust."
    )


def _features(
    ratio: float, low: float, high: float, p_value: float, position: int, estimator: str, name: str
) -> str:
    return (
        f"{_fall_by_features(ratio, low, high, p_value, position)}, so that features do not "
        "explain relevance alike at every position. Production may know of it what the features "
        f"do not tell, or relevance changes; it is not trust, so {estimator} (`{name}`) does not "
        "help."
    )


def _clicks_above(ratio: float, low: float, high: float, p_value: float, share: float) -> str:
    return (
        "The same document at the same position is clicked "
        f"{_times(ratio, low, high)} as often where something above it was clicked (p "
        f"{p_value:.1g}; so it is in {share:.0%} of the impressions below the top). The likely "
        "cause is that readers stop after a click: how far they get then depends on the documents "
        "above, not on the position alone."
    )


def _clicks_above_more(ratio: float, low: float, high: float, p_value: float, share: float) -> str:
    return (
        "The same document at the same position is clicked "
        f"{_times(ratio, low, high)} as often where something above it was clicked (p "
        f"{p_value:.1g}; so it is in {share:.0%} of the impressions below the top). The likely "
        "cause is that people differ in how much they click or how far they read. The curve is "
        "their mean and can be right all the same; a column that tells them apart (device, say) "
        "would give each its own as a context."
    )


def _time_spread(ratio: float, low: float, high: float, p_value: float) -> str:
    return (
        "Documents are not clicked alike in the first and the second half of the time: at the same "
        f"position, rates change by a factor of {ratio:.2f} [{low:.2f}, {high:.2f}] or so, up for "
        f"some and down for others (p {p_value:.1g}). The likely cause is relevance that changes."
    )


def _time_slope(ratio: float, low: float, high: float, p_value: float, position: int) -> str:
    return (
        "People read deeper in one half of the time than in the other: relative to position 1, the "
        f"same documents are clicked {_times(ratio, low, high)} as often at position {position} in "
        f"the second half (p {p_value:.1g}). The page or its readers may have changed."
    )


def _ranker_level(ratio: float, low: float, high: float, p_value: float, about: str) -> str:
    return (
        "The same document at the same position is clicked "
        f"{_times(ratio, low, high)} as often in lists of {about!r} as in those of other rankers "
        f"(p {p_value:.1g}). They may serve other people or other times, or know more about a "
        "session than the log. A curve of the lists of one ranker, or one for each context, does "
        "not mix them; nor does one of sessions whose ranker was drawn at random."
    )


def _ranker_slope(
    ratio: float, low: float, high: float, p_value: float, about: str, position: int
) -> str:
    return (
        f"Lists of {about!r} are not read as deep as those of other rankers, or deeper: relative "
        f"to position 1, the same documents are clicked {_times(ratio, low, high)} as often at "
        f"position {position} (p {p_value:.1g}). They may serve other people, or the documents "
        "around may matter. A curve of the lists of one ranker, or one for each context, does not "
        "mix them."
    )


def _context(
    ratio: float, low: float, high: float, p_value: float, position: int, column: str, about: str,
    estimator: str,
) -> str:  # fmt: skip
    return (
        f"Sessions with {column} {about!r} are not read as deep as others, or deeper: relative to "
        f"position 1, the same documents are clicked {_times(ratio, low, high)} as often at "
        f"position {position} (p {p_value:.1g}). One curve is the mean of both and is right only "
        f"where they see the same lists. {estimator} gives each context its own."
    )


def _also(others: Sequence[tuple[str, str, float]]) -> str:
    found = listed(f"{_asked(asks, column)} (p {p:.1g})" for asks, column, p in others)
    return (
        f"Clicks differ from the position-based model in this too: {found}. It may be the same "
        "cause."
    )


_FINDINGS: dict[str, Callable[..., str]] = {
    "reading.trust": _trust,
    "reading.better-fall-steeper": _steeper,
    "reading.trust-by-features": _trust_by_features,
    "reading.features": _features,
    "reading.clicks-above": _clicks_above,
    "reading.time-spread": _time_spread,
    "reading.time-slope": _time_slope,
    "reading.ranker-level": _ranker_level,
    "reading.ranker-slope": _ranker_slope,
}


def _gravely(text: Callable[..., str]) -> Callable[..., str]:
    return lambda **fields: text(**fields) + _SERIOUS


NOTES: Texts = {
    "reading.fits": _fits,
    "reading.passed": lambda asks, column, p_value: (
        f"Compared: {_asked(asks, column)}. Nothing speaks against the position-based model (p "
        f"{p_value:.2g})."
    ),
    "reading.compared": lambda asks, column, about: (
        _asked(asks, column) + (f" ({about} to the others)" if about else "")
    ),
    "reading.untested": lambda asks, why: f"Not compared: {ASKS[asks]}, because {why}.",
    "reading.no-time": "the log does not say when (column `timestamp`)",
    "reading.nothing-moves": (
        "hardly any document with clicks was shown at several positions (it takes two queries)"
    ),
    "reading.nothing-repeats": (
        "hardly any document was shown at the same position both ways, with clicks and without (it "
        "takes two queries)"
    ),
}
WARNINGS: Texts = {
    "reading.also": _also,
    **_FINDINGS,
    "reading.clicks-above-more": _clicks_above_more,
    "reading.context": _context,
}
SERIOUS: Texts = {f"{code}-serious": _gravely(text) for code, text in _FINDINGS.items()}

MESSAGES = messages("note", NOTES) | messages("warning", WARNINGS) | messages("serious", SERIOUS)
