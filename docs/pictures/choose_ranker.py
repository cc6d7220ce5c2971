"""Which ranker: a ladder."""

from _flow import Step, ladder

STEPS = (
    Step(
        "Do you keep your own LightGBM\nor XGBoost pipeline?",
        "ut.objective(log, weighting)",
        "an objective to plug in; the rest stays yours",
        ("objective",),
    ),
    Step(
        "Is the feedback a number, such as dwell\ntime, or are there several kinds?",
        "PairwiseTrustRanker or FeedbackTowers",
        "needs only which of two labels is larger",
        ("PairwiseTrustRanker", "FeedbackTowers"),
    ),
    Step(
        "Must it be small, easy to explain,\nor learned from very few queries?",
        "LinearRanker or RankSVM",
        "one weight per feature",
        ("LinearRanker", "RankSVM"),
    ),
    Step(
        "Are the features embeddings, or is there\na GPU and much data?",
        "NeuralRanker",
        "JAX to train, NumPy to score",
        ("NeuralRanker",),
    ),
    Step("", "LambdaMART", "boosted trees: the default of untilt run", ("LambdaMART",)),
)


def draw():
    """From what is to be ranked to a class."""
    return ladder(
        STEPS,
        title="Which ranker?",
        subtitle="untilt run trains several of them and chooses by held-out clicks",
    )
