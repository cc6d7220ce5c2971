"""Position bias by context: what its curves assume."""

from untilt.facts import Message

MESSAGES = {
    "contextual.position-based": Message(
        "note", "clicks follow the position-based model: P(click) = theta_k(context) gamma"
    ),
    "contextual.same-relevance": Message(
        "note", "in one context a document is as relevant at one position as at another"
    ),
    "contextual.same-top": Message(
        "note", "for averages over contexts: position 1 is examined alike in all of them"
    ),
}
