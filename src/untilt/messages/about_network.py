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
    # What training is stopped by.
    "network.held-out-given": Message("note", "stopped by the held-out data that was given"),
    "network.held-out": Message(
        "note", "{n_queries:,} of the queries, set aside to stop training by"
    ),
    "network.too-few-to-hold-out": Message(
        "warning",
        "none: {n_queries:,} queries with clicks are too few to set some aside ({fewest} are "
        "needed), so that training went on to the last epoch. Give fit(..., valid=...), or fewer "
        "epochs",
    ),
    "network.no-early-stopping": Message("note", "none: early_stopping is off"),
    "network.mini-batch-em": Message("note", "{epochs} epochs of mini-batch EM, {steps} steps"),
    "network.uncorrected": Message("note", "labels as they are, {epochs} epochs"),
    # One of several fits: examination and trust bias, or a column of feedback.
    "network.part": Message("note", "{part}: {status}"),
}
