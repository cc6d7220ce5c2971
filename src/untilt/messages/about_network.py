"""Networks: how training ended."""

from untilt.facts import Message

MESSAGES = {
    "network.trained": Message("note", "trained for {epochs} epochs, {steps} steps"),
    "network.trained-best": Message(
        "note", "trained for {epochs} epochs, {steps} steps; best after epoch {best_epoch}"
    ),
    "network.stopped": Message(
        "note", "stopped after {epochs} epochs, {steps} steps; best after epoch {best_epoch}"
    ),
    "network.mini-batch-em": Message("note", "{epochs} epochs of mini-batch EM, {steps} steps"),
    "network.uncorrected": Message("note", "labels as they are, {epochs} epochs"),
    # One of several fits: examination and trust bias, or a column of feedback.
    "network.part": Message("note", "{part}: {status}"),
}
