"""How a search by expectation maximisation ended."""

from untilt.facts import Message

MESSAGES = {
    "em.converged": Message("note", "converged in {steps} steps"),
    "em.stopped": Message(
        "note", "stopped after {steps} steps: the M step raised the likelihood no further"
    ),
    "em.out-of-steps": Message(
        "warning", "not converged after {steps} steps; allow more, or a larger tolerance"
    ),
}
