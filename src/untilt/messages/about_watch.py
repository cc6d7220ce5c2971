"""Watching a log: what changed in its last period, and how a new ranker does on live traffic."""

from collections.abc import Sequence

from untilt.facts import Message
from untilt.messages.about_general import listed


def _drifted(features: Sequence[tuple[str, float]], limit: float) -> str:
    named = listed(f"{name} ({index:.2f})" for name, index in features)
    return (
        f"features of shown documents have other values than before: {named}; stability index, "
        f"{limit:g} or more is a change that matters. Look at where they come from, then train anew"
    )


MESSAGES = {
    # Alarms.
    "watch.reading": Message(
        "serious",
        "people read otherwise than before: at equal documents, clicks at position {position} "
        "against position 1 are {ratio:.2f} times what they were (interval {low:.2f} to "
        "{high:.2f}, p {p_value:.2g}). The old position bias no longer holds: estimate it on the "
        "new sessions, then train anew",
    ),
    "watch.clicks": Message(
        "serious",
        "the same documents at position 1 are clicked {ratio:.2f} times as often as before "
        "(interval {low:.2f} to {high:.2f}, p {p_value:.2g}). Look for a change of the page or of "
        "what is counted as a click",
    ),
    "watch.documents": Message(
        "serious",
        "documents are liked otherwise than before, by a factor of {ratio:.2f} from one to the "
        "next (p {p_value:.2g}): what was learned from old clicks is getting old. Train on new "
        "ones",
    ),
    "watch.features": Message("serious", _drifted),
    "watch.unseen": Message(
        "serious",
        "{share:.0%} of what is shown now was never shown before, more than {most:.0%}: nothing "
        "was learned from clicks about it. Train on new sessions",
    ),
    "watch.new-worse": Message(
        "serious",
        "the new ranker {new} does worse than {old}: {text}. This holds at every look. Take it "
        "back",
    ),
    # Notes.
    "watch.quiet": Message("note", "nothing changed by more than chance explains"),
    "watch.new-better": Message(
        "note", "the new ranker {new} does better than {old}: {text}. This holds at every look"
    ),
    "watch.new-open": Message(
        "note", "between the new ranker {new} and {old} nothing is decided yet: {text}"
    ),
    "watch.new-too-early": Message(
        "note",
        "{queries:.0f} effective queries are too few to compare {new} with {old}; from {least} on "
        "it can be watched",
    ),
    "watch.untested": Message(
        "note",
        "whether {asks} could not be tested: no document was shown at the same position before and "
        "now, with clicks",
    ),
    "watch.no-curve": Message("note", "period {period} has no curve: {why}"),
    "watch.no-features": Message("note", "the log has no features, so none was looked at"),
}
