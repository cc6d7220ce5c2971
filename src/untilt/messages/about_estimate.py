"""What counterfactual estimates say: their scale, and when not to trust them."""

from typing import Any

from untilt.facts import Message
from untilt.messages.about_general import positions_text

_CURVE = (
    "position {position} has {ratio:.2f} times the clicks that the curve expects (z {z:+.1f}, "
    "p {p_value:.2g}; {n_documents:,} documents shown at several positions)"
)
_UNCHECKED = "no document was shown at two positions: this log cannot check the curve"


def _baseline(rankers: tuple[str, ...], n_sessions: int, of: int) -> str:
    made_by = f"the sessions of {_listed(rankers)}"
    if n_sessions == of:
        return f"baseline: all {of:,} sessions (rankers: {_listed(rankers)})"
    return f"baseline: {made_by}, {n_sessions:,} of {of:,}; the others are data, not traffic"


def _experiments(rankers: tuple[str, ...], n_sessions: int, of: int) -> str:
    return (
        f"baseline: {n_sessions:,} of {of:,} sessions, all of experiments ({_listed(rankers)}): "
        "this log has no session of production to compare with, so the logged order is the "
        "experiment's. Log production sessions too"
    )


def _listed(names: tuple[str, ...], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _few_clicks(
    n_clicks: float,
    effective_n: float,
    largest_weight: float,
    instead: str | None = None,
    clipped: bool = False,
) -> str:
    """`clipped`: weights are clipped already; `instead`: an evaluator that clips."""
    do = f"clip (evaluator={instead!r}, clip='auto') or " if instead else "clip (clip='auto') or "
    return (
        f"the {n_clicks:,.0f} clicks count like {effective_n:,.0f} of equal weight (largest weight "
        f"{largest_weight:.3g}): {'' if clipped else do}collect more sessions"
    )


def _misfit(instead: str | None, **curve: Any) -> str:
    """`instead`: an evaluator that corrects trust bias, where the one used does not."""
    by = f" and evaluator={instead!r}" if instead else ""
    return (
        f"the bias does not fit this log: {_CURVE.format(**curve)}. Values and differences are off "
        f"by as much; estimate the bias from this log, or use one with trust bias{by}"
    )


MESSAGES = {
    # Of the sessions.
    "estimate.baseline-all": Message(
        "note", "baseline: all {n_sessions:,} sessions (the log names no rankers)"
    ),
    "estimate.baseline-rankers": Message("note", _baseline),
    "estimate.baseline-experiments": Message("warning", _experiments),
    # Of the values: what they are multiples of.
    "estimate.scale-absolute": Message("note", "absolute"),
    "estimate.scale-relative": Message(
        "note", "relative: relevance counts as the click rate at position 1"
    ),
    "estimate.scale-clicks": Message("note", "in clicks"),
    "estimate.scale-per-relevant": Message(
        "note", "per relevant document, whatever the scale of the bias"
    ),
    # Of the evaluator.
    "estimate.clicks-as-they-are": Message(
        "serious",
        "{evaluator}: clicks are counted as they are, so documents that were shown on top look "
        "better, and so do systems that keep them there",
    ),
    "estimate.model-only": Message(
        "warning",
        "{evaluator}: the value is the relevance model's, which no click corrects",
    ),
    "estimate.no-interval": Message(
        "serious",
        "{evaluator}: no interval, because without a position bias nothing tells how far the "
        "relevance model is off. Give the bias",
    ),
    # Of the log.
    "estimate.few-queries": Message(
        "warning", "only {n_queries} queries: intervals rest on few independent units"
    ),
    "estimate.few-effective-queries": Message(
        "warning",
        "the {n_queries:,} queries count like {effective_queries:.1f} of equal traffic: a few have "
        "most of the sessions, so intervals are wide and differences rest on these few",
    ),
    "estimate.documents-absent": Message(
        "serious",
        "sessions of one query show different documents (a document is missing from {share:.0%} "
        "of its query's sessions), and {evaluator} counts what a session did not show as "
        "irrelevant: systems that move such documents up look worse than they are, even worse "
        "than the shown order. Use evaluator={instead!r}",
    ),
    "estimate.few-effective-clicks": Message("warning", _few_clicks),
    "estimate.clicks-unsupported": Message(
        "warning",
        "{share:.1%} of the clicks are at positions that the bias does not know; they were left "
        "out, so relevance found only there is missing",
    ),
    "estimate.clicks-clipped": Message(
        "warning",
        "{share:.1%} of the clicks are clipped: values lean towards those of raw clicks, so errors "
        "and intervals are those without the clip (see ut.clip_curve)",
    ),
    "estimate.automatic-clicks": Message(
        "serious",
        "position {position} is clicked in {share:.1%} of its impressions, whatever stands there: "
        "the page makes such clicks (a video that plays by itself, say), not people. Leave them "
        "out of the label, or name a label that people make",
    ),
    # Of the bias.
    "estimate.curve-check": Message("note", _CURVE),
    "estimate.curve-check-impossible": Message("note", _UNCHECKED),
    "estimate.curve-misfit": Message("serious", _misfit),
    "estimate.curve-unchecked": Message(
        "warning", f"{_UNCHECKED}; the estimate is as right as the curve is"
    ),
    "estimate.bias-without-errors": Message(
        "note", "the bias was given without standard errors; intervals take it as exact"
    ),
    "estimate.bias-doubted": Message("serious", "the bias itself says: {doubt}"),
    "estimate.bias-without-interval": Message(
        "serious",
        "the bias ({method}) was estimated, but its error is not known and is not in these "
        "intervals: they are too short, nobody knows by how much. Use an estimator that gives "
        "intervals, or give a curve that you know",
    ),
    "estimate.bounded-levels": Message(
        "warning",
        lambda positions: (
            f"nothing joins {positions_text(positions)} to position 1: intervals run over all "
            "levels that the bounds of the curve allow there, and the values stand in the middle"
        ),
    ),
    "estimate.trust-ignored": Message(
        "serious",
        "the bias includes trust bias, which {evaluator} does not correct: use "
        "evaluator={instead!r}",
    ),
    # Of one system: what it has learned from.
    "estimate.trained-queries": Message(
        "serious",
        "trained on {n_trained:,} of these {n_queries:,} queries ({share:.0%}): a ranker that "
        "remembers them looks better than it is. Hold queries out before training (log.split(0.8), "
        "`untilt split`), or take the part that it has not seen (held_out=True). Where "
        "these are other sessions of the same queries, the value holds for queries that come again",
    ),
    "estimate.ids-again": Message(
        "note",
        "{n_trained:,} of these {n_queries:,} query ids stood in the training data, with other "
        "documents each: taken as other queries that have the same numbers. If they are the same "
        "queries, the value may be too good",
    ),
    "estimate.validated-queries": Message(
        "warning",
        "chosen or stopped early by {n_validated:,} of these {n_queries:,} queries ({share:.0%}): "
        "the value is a little too good",
    ),
    "estimate.training-unknown": Message(
        "note",
        "does not say which queries it was trained on: see to it that these are others",
    ),
    "estimate.one-query": Message(
        "warning", "one query makes up {share:.0%} of the estimate's variance"
    ),
    "estimate.unshown-documents": Message(
        "warning",
        "{share:.1%} of its top {top} places, in {queries:.0%} of the queries, go to documents "
        "that nobody was shown: they count as irrelevant here. If they were worth as much as the "
        "shown ones, its value would be {as_shown:.4f}",
    ),
    "estimate.unshown-candidates": Message(
        "warning",
        "where it ranks all candidates, {share:.1%} of its top {top} places, in {queries:.0%} of "
        "the queries, go to documents that nobody was shown: its value would then be "
        "{nothing:.4f} if these are worth nothing, and {as_shown:.4f} if as much as the shown ones",
    ),
    "estimate.unshown-judged": Message(
        "warning",
        "{share:.1%} of its top {top} places, in {queries:.0%} of the queries, go to documents "
        "that the log never showed: clicks of that log could not have told their part of the value",
    ),
    "estimate.unshown-decide": Message(
        "serious",
        "{system} and {baseline}: {share:.0%} of the top {top} places would go to documents that "
        "nobody was shown, and the answer depends on them. Where all candidates are ranked the "
        "difference is {nothing:+.4f} if these are worth nothing, and {as_shown:+.4f} if as much "
        "as the shown ones. Order only what the old ranker shows, or show some of them to a share "
        "of the traffic first",
    ),
    "estimate.bias-dominates": Message(
        "warning",
        "most of the uncertainty comes from the bias estimate: more sessions of this kind will "
        "not help, more interventions will",
    ),
}
