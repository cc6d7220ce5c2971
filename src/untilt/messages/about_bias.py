"""Position bias: what a curve assumes, how its fit ended and where its errors come from."""

from collections.abc import Sequence

from untilt.facts import Message


def _at(positions: Sequence[int]) -> str:
    return f"position {', '.join(map(str, positions))}"


def _rates(relevant: float, irrelevant: float, position: int) -> str:
    return (
        f"relevant documents are clicked with probability {relevant:.4g} at position {position}, "
        f"irrelevant ones with {irrelevant:.4g}"
    )


_ASSUMPTIONS = {
    "bias.curve-is-right": Message("note", "the curve is right"),
    "bias.position-based": Message(
        "note", "clicks follow the position-based model: P(click) = theta_k gamma"
    ),
    "bias.labels-position-based": Message("note", "labels above 0 follow the position-based model"),
    "bias.features-identify": Message("note", "the features separate relevance from position"),
    "bias.clicks-proportional": Message(
        "note", "clicks are proportional to relevance at each position"
    ),
    "bias.no-clicks-proportional": Message(
        "note", "no-clicks are proportional to irrelevance at each position"
    ),
    "bias.trust-model": Message(
        "note", "clicks follow P(click) = theta_k (eps+_k gamma + eps-_k (1 - gamma))"
    ),
    "bias.same-relevance": Message(
        "note", "a document is as relevant at one position as at another"
    ),
    "bias.features-explain": Message(
        "note",
        "position depends on relevance through the features alone: whoever ordered the lists knew "
        "nothing else about it",
    ),
    "bias.random-order": Message(
        "note", "the top {top} were in random order, all orders equally likely"
    ),
    "bias.random-swaps": Message("note", "whether a list was swapped was drawn at random"),
    "bias.lists-alike": Message("note", "lists of one length are alike, swapped or not"),
    "bias.power-law": Message("note", "theta_k = (1/k)^eta"),
    "bias.never-rises": Message("note", "examination never rises with the position"),
    "bias.quadratic": Message("note", "examination is quadratic in the position"),
    "bias.constant-below": Message("note", "constant below position {position}"),
    "bias.scale-given": Message("note", lambda **rates: f"given: {_rates(**rates)}"),
    "bias.scale-convention": Message(
        "note",
        lambda **rates: (
            "a convention: gamma 0 and 1 are the documents at the 1% and 99% quantile "
            f"of relevance, so that {_rates(**rates)}"
        ),
    ),
    "bias.even-eps-plus": Message("note", "a convention: eps+ is the same at all positions"),
    "bias.examination-given": Message("note", "examination as given"),
}

_STATUS = {
    "bias.given": Message("note", "given"),
    "bias.truth": Message("note", "the truth of a simulation"),
    "bias.boosting-rounds": Message("note", "after {rounds} boosting rounds"),
    "bias.epochs": Message("note", "after {epochs} epochs"),
    "bias.not-examined": Message(
        "warning",
        lambda positions: f"no click at {_at(positions)}: next to nothing is examined there",
    ),
    "bias.maximum": Message(
        "note", "converged in {steps} steps, largest gradient {residual:.0e} of all clicks"
    ),
    "bias.no-maximum": Message(
        "serious",
        "NOT CONVERGED after {steps} steps, largest gradient {residual:.0e} of all clicks",
    ),
    "bias.shared-clicks": Message(
        "note", "{clicks:,.0f} clicks on documents shown at several positions"
    ),
    "bias.few-clicks": Message(
        "warning",
        lambda positions, fewer_than: (
            f"fewer than {fewer_than} clicks at {_at(positions)}: rough intervals there"
        ),
    ),
    "bias.no-clicks": Message(
        "warning", lambda positions: f"no click at {_at(positions)}: only an upper bound there"
    ),
    "bias.few-impressions": Message(
        "warning",
        "a document was shown only {mean:.0f} times on average: expect a curve that is too flat, "
        "see AllPairs",
    ),
    "bias.shuffled": Message("note", "{sessions:,} shuffled sessions, {clicks:,.0f} clicks"),
    "bias.left-out": Message(
        "note",
        lambda first, last: (
            f"position {first} left out" if first == last else f"positions {first}..{last} left out"
        ),
    ),
    "bias.swapped": Message("note", "{sessions:,} sessions, swapped or not"),
    "bias.eta": Message("note", "eta {eta:.3f}"),
    "bias.eta-fitted": Message(
        "note", "eta {eta:.3f} +- {std_error:.3f}; fits with p {p_value:.2g}"
    ),
    "bias.smoothed": Message(
        "note",
        lambda flat, steps: f"{flat} of {steps} steps held flat" if flat else "never rose",
    ),
    "bias.quadratic-fitted": Message(
        "note",
        lambda p_value, outliers: (
            f"fits with p {p_value:.2g}"
            + (f"; left out as outliers: {_at(outliers)}" if outliers else "")
        ),
    ),
    "bias.trees": Message(
        "note", "{n_trees} trees per fold, where held-out clicks are most likely"
    ),
    "bias.trees-used-up": Message(
        "warning", "all {n_trees} trees per fold grown; more could fit held-out clicks better"
    ),
    "bias.networks": Message(
        "note", "networks of epoch {best} of {epochs}, where held-out clicks are most likely"
    ),
    "bias.epochs-used-up": Message(
        "warning",
        "networks of epoch {best} of all {epochs}; more could fit held-out clicks better",
    ),
    "bias.strata": Message("note", "{n_strata} strata"),
}

_ERRORS = {
    "bias.errors-one-query": Message("warning", "errors from session noise: one query alone"),
    "bias.errors-by-query": Message(
        "note",
        "errors the larger of clustered by query ({n_queries:,} queries) and session noise",
    ),
    "bias.errors-few-queries": Message(
        "warning",
        "errors the larger of clustered by query ({n_queries:,} queries, too few to trust) and "
        "session noise",
    ),
    "bias.errors-resampled": Message(
        "note", "errors from {n_resamples} resamples of {n_queries:,} queries"
    ),
    "bias.errors-bootstrapped": Message(
        "note", "errors from {n_samples} bootstrap samples of queries"
    ),
    "bias.errors-given-relevance": Message("note", "the learned relevance taken as given"),
    "bias.errors-unknown": Message("warning", "errors not known: set n_bootstrap=20"),
    "bias.errors-coarser-strata": Message("note", "errors include what coarser strata change"),
}

MESSAGES = _ASSUMPTIONS | _STATUS | _ERRORS
