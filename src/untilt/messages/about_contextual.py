"""Position bias by context: what its curves assume and how the fit ended."""

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
    "contextual.maximum": Message(
        "note", "converged in {steps} steps, largest gradient {residual:.0e} of all clicks"
    ),
    "contextual.no-maximum": Message(
        "serious",
        "DID NOT CONVERGE in {steps} steps, largest gradient {residual:.0e} of all clicks",
    ),
    "contextual.shared-clicks": Message(
        "note", "{clicks:,.0f} clicks on documents shown at several positions"
    ),
}
