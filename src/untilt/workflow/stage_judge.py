"""Step 6: would it have been better? On queries that played no part in learning or choosing."""

from pathlib import Path
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.progress import track
from untilt._core.statistics import student_quantile
from untilt.bias.curve import PositionBias
from untilt.catalog import record_of
from untilt.data.clicklog import ClickLog
from untilt.evaluation.clip_curve import clip_curve, clip_curve_evaluator
from untilt.evaluation.credit import parse_evaluator
from untilt.evaluation.estimate import estimate
from untilt.evaluation.results import Estimates
from untilt.evaluation.systems import shown
from untilt.weighting.pairwise_debiasing import PairwiseDebiasing
from untilt.workflow.candidates import RAW, SHOWN, system_name
from untilt.workflow.options import RunOptions

# What a ranker changes: where documents go, and which queries look different afterwards.

EXAMPLES, DOCUMENTS = 6, 12


def mean_ranks(indptr: IntArray, scores: FloatArray) -> FloatArray:
    """(rows,) rank from 1 of each row in its list, highest score first; equal scores share theirs.

    rank_i = 1 + #{j : s_j > s_i} + (#{j : s_j = s_i} - 1) / 2 over the rows j of the same list.

    >>> mean_ranks(np.array([0, 3]), np.array([1.0, 5.0, 1.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    order = ragged.order_within_lists(indptr, -scores)
    owner, sorted_scores = ragged.list_of_row(indptr)[order], scores[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (np.diff(owner) != 0) | (np.diff(sorted_scores) != 0)
    tie = np.cumsum(first) - 1
    place = ragged.place_in_list(indptr) + 1.0
    mean = sum_by(tie, place) / np.bincount(tie)
    ranks = np.empty(len(order))
    ranks[order] = mean[tie]
    return ranks


def moved(log: ClickLog, scores: FloatArray, *, level: float) -> dict[str, Any]:
    """Average new position of what stood at each old position, over sessions.

    Each session's own list is ordered anew (Figure 1 of [hu2019unbiased]_). The interval is
    clustered by query: se^2 = sum_q (sum over q of n (rank - mean))^2 / N^2 * Q / (Q - 1).
    """
    ranks, weight = mean_ranks(log.indptr, scores[log.document]), log.row_count
    place, depth = log.position - 1, log.depth
    shown = sum_by(place, weight, depth)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sum_by(place, weight * ranks, depth) / shown
        error = _clustered(log, weight * (ranks - mean[place]), place) / shown
    queries = len(np.unique(log.query))
    half = student_quantile(level, queries - 1) * error if queries > 1 else np.full(depth, np.nan)
    return {
        "position": np.arange(1, depth + 1),
        "value": mean,
        "low": mean - half,
        "high": mean + half,
    }


def _clustered(log: ClickLog, residual: FloatArray, place: IntArray) -> FloatArray:
    """(K,) root of the summed squares of each query's summed residuals, times Q / (Q - 1)."""
    query = np.repeat(log.query, ragged.lengths(log.indptr)).astype(np.int64)
    cells, owner = np.unique(query * log.depth + place, return_inverse=True)
    by_query = sum_by(owner, residual)
    squares = sum_by(cells % log.depth, by_query**2, log.depth)
    n = np.bincount(cells % log.depth, minlength=log.depth)
    return np.sqrt(squares * n / np.maximum(n - 1, 1))


def changed_queries(log: ClickLog, scores: FloatArray) -> list[dict[str, Any]]:
    """The queries whose order changes most, of those with at least the median of sessions.

    The change of a query is sum_d |1/log2(1 + old_d) - 1/log2(1 + new_d)| over its shown documents,
    old the mean position over sessions: what moves near the top counts most.
    """
    shown = np.unique(log.document)
    shown = shown[np.argsort(log.doc_query[shown], kind="stable")]
    queries, sizes = np.unique(log.doc_query[shown], return_counts=True)
    indptr = ragged.indptr_of(sizes)
    impressions, clicks, old = _totals(log, shown)
    new = mean_ranks(indptr, scores[shown])
    step = np.abs(1 / np.log2(1 + old) - 1 / np.log2(1 + new))
    change = np.add.reduceat(step, indptr[:-1])
    sessions = sum_by(log.query, log.sessions, log.n_queries)[queries]
    enough = sessions >= np.median(sessions)
    order = np.lexsort((queries, -np.where(enough, change, -1.0)))[:EXAMPLES]
    found = []
    for i in order:
        if change[i] <= 0 or not enough[i]:
            continue
        rows = np.arange(indptr[i], indptr[i + 1])
        rows = rows[np.lexsort((old[rows], new[rows]))]
        documents = [
            {
                "document": str(log.doc_id[shown[row]]),
                "old_position": round(float(old[row]), 1),
                "new_position": place,
                "clicks": float(clicks[row]),
                "impressions": int(impressions[row]),
            }
            for place, row in enumerate(rows[:DOCUMENTS], start=1)
        ]
        found.append(
            {
                "query": str(log.query_id[queries[i]]),
                "documents": documents,
                "sessions": int(sessions[i]),
                "change": float(change[i]),
                "note": "the change is the sum over documents of how much 1/log2(1 + position) "
                "changes",
            }
        )
    return found


def _totals(log: ClickLog, shown: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Impressions, clicks and mean position of these documents."""
    weight, n = log.row_count, log.n_documents
    impressions = sum_by(log.document, weight, n)[shown]
    clicks = sum_by(log.document, weight * log.label, n)[shown]
    return (
        impressions,
        clicks,
        sum_by(log.document, weight * log.position, n)[shown] / (impressions),
    )


LEAST_EFFECTIVE = 0.1  # clicks of equal weight, as a share of the clicks


def judge(
    test: ClickLog, bias: PositionBias, options: RunOptions, rankers: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """All candidates against the logged order on the held-out part, and what the chosen changes."""
    from untilt.rankers.persist import load

    fitted = {
        each["name"]: load(folder / each["file"])
        for each in track(rankers["candidates"], "loading rankers")
    }
    chosen = system_name(rankers["chosen"])
    assert test.features is not None
    scores = {name: np.asarray(each.predict(test.features)) for name, each in fitted.items()}
    return {
        **judged(test, scores, bias, options, chosen=chosen, clip=rankers["clip"]),
        "importances": _importances(fitted[chosen]),
        "importance_of": _importance_of(fitted[chosen]),
        "pair_bias": _pair_bias(fitted),
    }


def judged(
    test: ClickLog,
    scores: dict[str, FloatArray],
    bias: PositionBias,
    options: RunOptions,
    *,
    chosen: str,
    clip: float | None,
) -> dict[str, Any]:
    """The part that needs scores alone."""
    found = estimate(
        test, {SHOWN: shown, **scores}, bias, metric=options.metric, evaluator=options.evaluator,
        clip=clip, among=options.among, level=options.level, seed=options.seed,
    )  # fmt: skip
    return {
        "chosen": chosen,
        "estimates": found.to_dict(),
        "higher_is_better": found.metric.higher_is_better,
        "differences": found.compare(SHOWN).to_dict(),
        "to_raw": _to_raw(found, chosen),
        "check": _check(found),
        "clip_curve": {**clips(test, scores[chosen], bias, options), "chosen": clip},
        "moved": {name: moved(test, each, level=options.level) for name, each in scores.items()},
        "changed": changed_queries(test, scores[chosen]),
    }


def _to_raw(found: Estimates, chosen: str) -> dict[str, Any] | None:
    """The chosen against raw clicks, paired."""
    if RAW not in found.systems or chosen == RAW:
        return None
    return found.compare(RAW).to_dict()[chosen]


def _check(found: Estimates) -> dict[str, Any]:
    """Whether held-out clicks fit the curve that corrects them."""
    check = found.check
    return {
        "possible": check.possible,
        "fits": check.fits,
        "p_value": check.p_value,
        "text": str(check),
        "position": check.position,
        "observed": check.observed,
        "expected": check.expected,
        "z": check.z,
    }


def clips(
    part: ClickLog, scores: FloatArray, bias: PositionBias, options: RunOptions
) -> dict[str, Any]:
    """The estimate of one system by clip; `best` has the least estimated squared error."""
    curve = clip_curve(
        part, scores, bias, metric=options.metric, among=options.among, level=options.level,
        evaluator=clip_curve_evaluator(options.evaluator),
    )  # fmt: skip
    names = ("clip", "value", "low", "high", "clipped_share", "mse", "best")
    return {name: getattr(curve, name) for name in names}


def chosen_clip(
    valid: ClickLog, scores: FloatArray, bias: PositionBias, options: RunOptions
) -> float | None:
    """The clip to judge by, from the part that nothing is judged by; None for methods without.

    The least estimated squared error, raised until the clicks count like a tenth of them of equal
    weight: with few queries the error cannot see that single clicks carry the value.
    """
    if not parse_evaluator(options.evaluator).takes("clip"):
        return None
    if options.clip != "auto":
        return float(options.clip)
    found = clips(valid, scores, bias, options)
    rising = [float(clip) for clip in found["clip"] if clip >= found["best"]]
    return next((clip for clip in rising if _even(valid, scores, bias, options, clip)), rising[-1])


def _even(
    valid: ClickLog, scores: FloatArray, bias: PositionBias, options: RunOptions, clip: float
) -> bool:
    weights = estimate(
        valid, scores, bias, metric=options.metric, evaluator=options.evaluator, clip=clip,
        among=options.among,
    ).weights  # fmt: skip
    return weights.effective_n >= LEAST_EFFECTIVE * weights.n_clicks


def _importances(ranker: Any) -> list[dict[str, Any]]:
    shares = sorted(ranker.feature_importances_.items(), key=lambda item: (-item[1], item[0]))
    return [{"name": name, "share": share} for name, share in shares if share > 0]


def _importance_of(ranker: Any) -> str:
    return "gain of all splits" if hasattr(ranker, "booster_") else "size of standardised weights"


def _pair_bias(fitted: dict[str, Any]) -> dict[str, Any] | None:
    """t+ and t- of pairwise debiasing, where it was trained."""
    history = getattr(fitted.get(record_of(PairwiseDebiasing).name), "bias_history_", None)
    if not history:
        return None
    last = history[-1]
    return {"plus": last.plus, "minus": last.minus, "rounds": len(history)}
