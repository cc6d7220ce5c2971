"""Which estimator of position bias: the rule of the audit, as a ladder."""

from _flow import Step, ladder

STEPS = (
    Step(
        "Were some lists shown in random order?",
        "ShuffledTop",
        "assumes: every order was equally likely",
        ("ShuffledTop",),
    ),
    Step(
        "Were two documents swapped\nin some sessions?",
        "PivotSwap or AdjacentSwap",
        "assumes: chance chose the swapped sessions",
        ("PivotSwap", "AdjacentSwap"),
    ),
    Step(
        "Do documents rise on the days\nwhen their features improve?",
        "RegressionEM",
        "on the features of each impression",
        ("RegressionEM",),
    ),
    Step(
        "Were the same documents shown at several\npositions that join all positions?",
        "AllPairs",
        "assumes: relevance did not move the documents",
        ("AllPairs",),
    ),
    Step(
        "Are there features that explain relevance?",
        "RegressionEM",
        "assumes: the old ranker knew nothing else",
        ("RegressionEM",),
    ),
    Step("", "None: every curve fits such a log", "Run a small swap: untilt plan"),
)


def draw():
    """The ladder of `untilt audit`."""
    return ladder(
        STEPS,
        title="Which estimator of position bias?",
        subtitle="untilt audit LOG asks these questions of your log and answers them",
    )
