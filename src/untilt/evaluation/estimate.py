"""Would the new ranker have been better, by how much, and how sure are we?"""

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.random import Seed
from untilt._core.statistics import check_level
from untilt.bias.curve import PositionBias
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, check_choice
from untilt.evaluation.evaluators import (
    CLIPS,
    METHODS,
    NEEDS_RELEVANCE,
    POOLS_DOCUMENTS,
    Method,
    bias_for,
    credit_of,
    shrunken_relevance,
)
from untilt.evaluation.pool import Among, Pool, pool_of
from untilt.evaluation.rank_metric import as_rank_metric
from untilt.evaluation.results import Estimate, Estimates
from untilt.evaluation.systems import named_systems, scores_of, sums_of_systems
from untilt.evaluation.uncertainty import (
    CurveCheck,
    Sums,
    Weights,
    bias_error,
    bootstrap_intervals,
    check_curve,
    covariance_of,
    sampling_error,
    student_interval,
    weights_of,
)

# When an estimate should not be trusted, in plain words.

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


def estimate(
    log: ClickLog,
    systems: Any,
    bias: Any = None,
    *,
    metric: Any = "dcg@10",
    method: Method = "policy-aware",
    tau: float | Literal["auto"] | None = None,
    relevance: Any = None,
    among: Among = "shown",
    interval: Literal["normal", "bootstrap"] = "normal",
    level: float = 0.95,
    n_draws: int = 1000,
    seed: Seed = 0,
) -> Estimates:
    r"""The value that each system would have had, from clicks on what another one showed.

    For an additive metric the value of a ranker f on one session is sum_i lambda(rank_i) gamma_i.
    Each method puts an estimate from clicks in place of gamma ([oosterhuis2020tutorial]_); with
    c the click, k the position shown, alpha_k = theta_k (eps+_k - eps-_k), beta_k = theta_k eps-_k:

    - "naive": c. Biased: documents count theta_k gamma.
    - "ips": c / theta_k. Unbiased under the position-based model ([joachims2017unbiased]_).
    - "clipped": c / max(tau, theta_k). Less variance, some bias; tau = 1 is naive.
    - "snips": the ips sum over sum c / theta_k, so the metric *per relevant document*: the scale of
      theta cancels, and so does much of the noise ([swaminathan2015selfnormalized]_).
    - "bayes-ips": eps+/(eps+ + eps-) c / theta_k ([agarwal2019trust]_). Not unbiased.
    - "affine": (c - beta_k) / alpha_k. Unbiased under trust bias ([vardasbi2020affine]_).
    - "policy-aware": sum (c - beta_k) / (N_q rho_d), rho_d = sum_k n_dk alpha_k / N_q the mean over
      the query's sessions, 0 where the document was not shown ([oosterhuis2020policy]_): right for
      documents that only some sessions showed, which every method above counts as irrelevant in
      the others. The same as affine (and so as ips) where all sessions showed one list. The default
      for this reason.
    - "direct": a relevance model g_d. No variance from clicks, all of the model's error.
    - "doubly-robust": g_d + sum (c - beta_k - alpha_k g_d) / (N_q max(tau, rho_d))
      ([oosterhuis2023doubly]_): unshown documents get the model, and clipping only costs where the
      model is wrong. The curve theta must be right all the same.

    Standard errors are clustered by query and include the bias's own doubt where it has any. They
    treat the bias as estimated from other sessions.

    Parameters
    ----------
    systems : name -> a ranker (`predict`), an array with one score per document of the log, or
        `untilt.shown`, the logged order. Equal scores share their ranks
    bias : `PositionBias`, a curve, or an array of theta; "naive" and "direct" need none
    metric : "dcg@k", "precision@k", "arp", "reciprocal@k", a `RankMetric` or a function of rank
    tau : the clip, for "clipped", "snips", "policy-aware" and "doubly-robust". "auto" (the default
        of "clipped") chooses it by estimated mean squared error; see `untilt.clip_curve`
    relevance : of "direct" and "doubly-robust": (documents,) probabilities or a model whose
        `predict(features)` gives them; each document's own shrunken clicks where not given
    among : "shown" ranks the documents that the log ever shows for the query, so it asks how well a
        system orders those. "candidates" ranks all documents of the query: those nobody was shown
        can get no click, so values are lower bounds
    interval, n_draws, seed : "normal" (Student's t over queries) or "bootstrap" (percentiles over
        `n_draws` samples of queries)
    level : of the intervals
    """
    _check(log, method, among, interval, level, n_draws)
    rank_metric, named = as_rank_metric(metric), named_systems(systems)
    pool = pool_of(log, among)
    curve = bias_for(bias, method, pool.depth)
    model = _relevance(relevance, method, log, pool, curve)
    clip = _clip(tau, method, log, pool, named, curve, rank_metric)
    credit = credit_of(method, pool, curve, clip, model)
    covariance = None if method in ("naive", "direct") else covariance_of(curve, pool.depth)
    sums, unshown = sums_of_systems(log, pool, named, credit, rank_metric, method, covariance)
    weights, check = weights_of(pool, credit), check_curve(pool, _assumed(curve, method))
    drawn = bootstrap_intervals(sums, level, n_draws, seed) if interval == "bootstrap" else None
    entries = []
    for number, each in enumerate(_entries(named, sums, weights, unshown, level, pool)):
        entries.append(
            Estimate(
                **{**each, "interval": each["interval"] if drawn is None else drawn[number]},
                metric=str(rank_metric),
                method=method,
            )
        )
    return Estimates(
        entries=tuple(entries),
        metric=rank_metric,
        method=method,
        tau=clip,
        among=among,
        level=level,
        scale=_scale(method, curve),
        weights=weights,
        check=check,
        warnings=warnings_of_log(method, weights, pool, curve, check),
        sums=sums,
    )


def _entries(
    named: dict[str, Any], sums: Sums, weights: Weights, unshown: FloatArray, level: float,
    pool: Pool,
) -> list[dict[str, Any]]:  # fmt: skip
    influence, value = sums.influence, sums.value
    spread, doubt = sampling_error(influence), bias_error(sums.gradient, sums.covariance)
    share = np.max(influence**2, axis=0) / np.maximum(np.sum(influence**2, axis=0), 1e-300)
    both = np.hypot(spread, doubt)
    return [
        {
            "system": name,
            "value": float(value[s]),
            "std_error": float(both[s]),
            "interval": student_interval(float(value[s]), float(both[s]), pool.n_queries, level),
            "sampling_error": float(spread[s]),
            "bias_error": float(doubt[s]),
            "effective_n": weights.effective_n,
            "largest_weight": weights.largest,
            "clipped_share": weights.clipped_share,
            "unsupported_share": weights.unsupported_share,
            "unshown_share": float(unshown[s]),
            "n_sessions": int(pool.n_sessions),
            "n_queries": pool.n_queries,
            "warnings": warnings_of_system(share[s], unshown[s], doubt[s], spread[s]),
        }
        for s, name in enumerate(named)
    ]


def _check(
    log: ClickLog, method: str, among: str, interval: str, level: float, n_draws: int
) -> None:
    if not isinstance(log, ClickLog):
        raise OptionError(
            f"estimate needs a ClickLog. Got {type(log).__name__} instead; ut.evaluate is for "
            "judged lists."
        )
    check_choice("method", method, METHODS)
    check_choice("among", among, ("shown", "candidates"))
    check_choice("interval", interval, ("normal", "bootstrap"))
    check_level(level)
    if n_draws < 2:
        raise OptionError(f"n_draws must be at least 2. Got {n_draws} instead; 1000 is usual.")


def _clip(
    tau: Any, method: str, log: ClickLog, pool: Pool, named: dict[str, Any], bias: PositionBias,
    metric: Any,
) -> float:  # fmt: skip
    if tau is None and method == "clipped":
        tau = "auto"
    if tau is None:
        return 0.0
    if method not in CLIPS:
        raise OptionError(
            f"method={method!r} is not clipped. Leave tau out, or use one of: {', '.join(CLIPS)}."
        )
    if tau == "auto" and method == "clipped":
        from untilt.evaluation.clip_curve import best_clip

        return best_clip(log, pool, named, bias, metric)
    if isinstance(tau, str) or not (np.isfinite(tau) and tau >= 0):
        raise OptionError(
            f"tau must be a number of at least 0, or 'auto' with method='clipped'. Got {tau!r} "
            f"with method={method!r}."
        )
    return float(tau)


def _relevance(
    relevance: Any, method: str, log: ClickLog, pool: Pool, bias: PositionBias
) -> FloatArray | None:
    if method not in NEEDS_RELEVANCE:
        if relevance is not None:
            raise OptionError(
                f"relevance is for method='direct' and 'doubly-robust'. Got method={method!r}."
            )
        return None
    if relevance is None:
        return shrunken_relevance(pool, bias)
    g = scores_of(relevance, log, pool, "relevance")
    if g.min(initial=0) < 0 or (log.is_binary and g.max(initial=0) > 1):
        raise OptionError(
            f"relevance must be probabilities. Got values from {g.min():.3g} to {g.max():.3g}: "
            "scores of a ranker are none. Turn them into probabilities, or leave relevance out."
        )
    return g


def _assumed(bias: PositionBias, method: str) -> PositionBias:
    """The bias as the method understands it: most know nothing of trust bias."""
    if method in ("affine", *POOLS_DOCUMENTS):
        return bias
    return replace(bias, eps_plus=None, eps_minus=None)


def _scale(method: str, bias: PositionBias) -> str:
    if method in ("snips",):
        return "per relevant document, whatever the scale of the bias"
    if method == "naive":
        return "in clicks"
    if bias.relative and method != "direct":
        return "relative: relevance counts as the click rate at position 1"
    return "absolute"
