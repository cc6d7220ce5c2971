"""Messages of no area."""

from untilt.facts import Message

MESSAGES = {
    "general.text": Message("note", "{text}"),
}
