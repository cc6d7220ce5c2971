"""Messages of no area."""

from untilt.facts import Message


def _joined(parts: tuple[str, ...]) -> str:
    return "; ".join(parts)


MESSAGES = {"general.text": Message("note", "{text}"), "general.joined": Message("note", _joined)}
