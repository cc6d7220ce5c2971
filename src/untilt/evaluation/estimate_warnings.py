"""When an estimate should not be trusted, in plain words."""

from untilt.bias.position_bias import PositionBias
from untilt.evaluation.counterfactual_check import CurveCheck
from untilt.evaluation.counterfactual_pool import Pool
from untilt.evaluation.estimate_doubt import Weights

FEW = 100.0  # clicks of equal weight; below that a normal interval is a rough thing
FEW_QUERIES = 30
ONE_QUERY = 0.1  # of the summed squared influence
SOME = 0.01
# Methods that give each session the credit of its own clicks alone.
SESSION_BY_SESSION = ("naive", "ips", "clipped", "snips", "bayes-ips", "affine")


def warnings_of_log(
    method: str, weights: Weights, pool: Pool, bias: PositionBias, check: CurveCheck
) -> tuple[str, ...]:
    """What holds for every system of an evaluation."""
    found = []
    if method == "naive":
        found.append(
            "naive: clicks are counted as they are, so documents that were shown on top look "
            "better, and so do systems that keep them there"
        )
    if method == "direct":
        found.append("direct: the value is the relevance model's; its own error is not in here")
    if pool.n_queries < FEW_QUERIES:
        found.append(f"only {pool.n_queries} queries: intervals rest on few independent units")
    if method in SESSION_BY_SESSION and pool.absent_share > SOME:
        found.append(
            f"sessions of one query show different documents (a document is missing from "
            f"{pool.absent_share:.0%} of its query's sessions), and {method} counts what a session "
            "did not show as irrelevant: systems that move such documents up look worse than they "
            "are, even worse than the shown order. Use method='policy-aware'"
        )
    if method not in ("naive", "direct"):
        found += _about_weights(weights) + _about_curve(bias, check)
    if bias.has_trust and method in ("ips", "clipped", "snips", "bayes-ips"):
        found.append(
            f"the bias knows of trust bias, which {method} does not correct: use method='affine'"
        )
    return tuple(found)


def _about_weights(weights: Weights) -> list[str]:
    found = []
    if weights.effective_n < FEW:
        found.append(
            f"the {weights.n_clicks:,.0f} clicks count like {weights.effective_n:,.0f} of equal "
            f"weight (largest weight {weights.largest:.3g}): clip (method='clipped') or collect "
            "more sessions"
        )
    if weights.unsupported_share > 0:
        found.append(
            f"{weights.unsupported_share:.1%} of the clicks are at positions that the bias does "
            "not know; they were left out, so relevance found only there is missing"
        )
    if weights.clipped_share > SOME:
        found.append(
            f"{weights.clipped_share:.1%} of the clicks are clipped: values lean towards naive; "
            "the interval does not cover this (see ut.clip_curve)"
        )
    return found


def _about_curve(bias: PositionBias, check: CurveCheck) -> list[str]:
    found = []
    if not check.fits:
        found.append(
            f"the bias does not fit this log: {check}. Values and differences are off by as much; "
            "estimate the bias from this log, or use one with trust bias and method='affine'"
        )
    elif not check.possible:
        found.append(f"{check}; the estimate is as right as the curve is")
    if bias.is_known:
        found.append("the bias was given without standard errors; intervals take it as exact")
    return found


def warnings_of_system(
    largest_query: float, unshown_share: float, bias_error: float, sampling_error: float
) -> tuple[str, ...]:
    """What holds for one system."""
    found = []
    if largest_query > ONE_QUERY:
        found.append(f"one query makes up {largest_query:.0%} of the estimate's variance")
    if unshown_share > SOME:
        found.append(
            f"{unshown_share:.1%} of its top places go to documents that nobody was shown: they "
            "count as irrelevant, so the value is a lower bound"
        )
    if bias_error > sampling_error:
        found.append(
            "most of the doubt comes from the bias estimate: more sessions of this kind will not "
            "help, more interventions will"
        )
    return tuple(found)
