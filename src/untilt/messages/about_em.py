"""How a search by expectation maximisation ended."""

from untilt.facts import Texts, messages

NOTES: Texts = {
    "em.converged": "converged in {steps} steps",
    "em.stopped": "stopped after {steps} steps: the M step raised the likelihood no further",
}
WARNINGS: Texts = {
    "em.out-of-steps": "not converged after {steps} steps; allow more, or a larger tolerance"
}

MESSAGES = messages("note", NOTES) | messages("warning", WARNINGS)
