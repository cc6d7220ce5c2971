"""Which weighting: a ladder."""

from _flow import Step, ladder

STEPS = (
    Step(
        "Is there no curve, and no way to get one?",
        "PairwiseDebiasing",
        "learns ratios while it trains; no interval",
        ("PairwiseDebiasing",),
    ),
    Step(
        "Do people stop reading after a good\ndocument? (untilt clickmodels tests it)",
        "ExaminationWeights",
        "examination of each list, from a click model",
        ("ExaminationWeights",),
    ),
    Step(
        "Is one good answer enough?\n(what untilt run does)",
        'LambdaMART("auto", bias=bias)',
        "held-out clicks weigh several methods",
        ("LambdaMART",),
    ),
    Step(
        "Fewer than about 10 sessions per query?",
        'objective="pbm-likelihood"',
        "a likelihood uses every session",
    ),
    Step(
        "Lists cut at k, and several rankers\nin the log?",
        "PolicyAware or DoublyRobust",
        "counts sessions that did not show a document",
        ("PolicyAware", "DoublyRobust"),
    ),
    Step(
        "",
        "Balanced",
        "right in expectation, no weight above 1",
        ("Balanced",),
    ),
)


def draw():
    """From what a log has to a table of pair weights."""
    return ladder(
        STEPS,
        title="Which weighting?",
        subtitle="docs/methods.md says what each assumes and how it fails",
    )
