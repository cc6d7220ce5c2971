"""The rankers that a run trains and chooses from."""

from typing import Any

from untilt.bias.curve import PositionBias

RAW = "raw clicks"
SHOWN = "logged order"

# What each one is, for the report.
NOTES = {
    "clicks": "LambdaMART on clicks as they are, the position bias left in",
    "balanced": "LambdaMART on clicks, pairs weighted by min(theta_k, theta_l) / theta_k",
    "prs": "LambdaMART on clicks with propensity ratios",
    "ips": "LambdaMART on clicks with inverse propensities",
    "auto": "LambdaMART whose objective held-out clicks of the training queries chose",
    "linear": "a linear score on the same pairs as 'balanced'",
    "pairwise-debiasing": "LambdaMART that learns the bias of clicks and no-clicks along with the "
    "ranker, and is given no curve",
    "pbm-likelihood": "boosted trees on the likelihood of clicks under the position-based model",
    "posterior-label": "LambdaMART on relevance as the position-based model sees it after the "
    "clicks",
}
# Relative cost in trainings of n_trees trees, measured at 50,000 sessions: the posterior label is
# cross-fitted, and "auto" does so twice.
COST = dict.fromkeys(NOTES, 1.0) | {"auto": 11.0, "posterior-label": 5.0}
# What goes first where time is short: dear ones, then those that others stand for.
DROPPED_FIRST = (
    "auto",
    "posterior-label",
    "pairwise-debiasing",
    "ips",
    "linear",
    "pbm-likelihood",
    "prs",
    "balanced",
)


def system_name(method: str) -> str:
    """What a method is called in figures."""
    return RAW if method == "clicks" else method


def make_candidate(
    method: str, bias: PositionBias, *, trees: int, threads: int | None, seed: int
) -> Any:
    """The unfitted ranker of a method."""
    from untilt.rankers.linear.linear import LinearRanker
    from untilt.rankers.trees.lambdamart import LambdaMART
    from untilt.weighting import IPS, PRS, Balanced, PairwiseDebiasing

    if method == "linear":
        return LinearRanker(Balanced(bias))
    shared: dict[str, Any] = {"n_trees": trees, "n_threads": threads, "seed": seed}
    if method == "auto":
        return LambdaMART("auto", bias=bias, **shared)
    if method in ("pbm-likelihood", "posterior-label"):
        return LambdaMART(objective=method, bias=bias, **shared)
    if method == "clicks":
        return LambdaMART(None, **shared)
    if method == "pairwise-debiasing":
        return LambdaMART(PairwiseDebiasing(), **shared)
    tables: dict[str, Any] = {"balanced": Balanced, "prs": PRS, "ips": IPS}
    return LambdaMART(tables[method](bias), **shared)
