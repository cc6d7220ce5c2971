"""Position bias: what a curve assumes, how its fit ended and where its errors come from."""

from collections.abc import Mapping

from untilt.facts import Texts, messages
from untilt.messages.about_general import positions_text as _at


def _rates(relevant: float, irrelevant: float, position: int) -> str:
    return (
        f"relevant documents are clicked with probability {relevant:.4g} at position {position}, "
        f"irrelevant ones with {irrelevant:.4g}"
    )


def _tested(p_values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} p {p_value:.2g}" for name, p_value in p_values.items())


def _spread(n_resamples: int, n_queries: int, deviation: tuple[float, ...]) -> str:
    """`deviation`: standard deviation of log(theta_k / theta_1) over the resamples."""
    k = max(range(len(deviation)), key=deviation.__getitem__)
    return (
        f"over {n_resamples} resamples of {n_queries:,} queries the curve moved by up to "
        f"{deviation[k]:.0%} (one standard deviation, position {k + 1}), which is only a part of "
        "its error"
    )


def _queries(n_queries: int, effective: float | None) -> str:
    worth = "" if effective is None else f", worth {effective:,.1f} with even traffic"
    return f"{n_queries:,} queries{worth}"


NOTES: Texts = {
    # What a curve assumes.
    "bias.curve-is-right": "the curve is right",
    "bias.position-based": "clicks follow the position-based model: P(click) = theta_k gamma",
    "bias.labels-position-based": "labels above 0 follow the position-based model",
    "bias.features-identify": "the features separate relevance from position",
    "bias.clicks-proportional": "clicks are proportional to relevance at each position",
    "bias.no-clicks-proportional": "no-clicks are proportional to irrelevance at each position",
    "bias.trust-model": "clicks follow P(click) = theta_k (eps+_k gamma + eps-_k (1 - gamma))",
    "bias.same-relevance": "a document is as relevant at one position as at another",
    "bias.features-explain": (
        "position depends on relevance through the features alone: whoever ordered the lists knew "
        "nothing else about it"
    ),
    "bias.random-order": "the top {top} were in random order, all orders equally likely",
    "bias.random-swaps": "whether a list was swapped was drawn at random",
    "bias.lists-alike": "lists of one length are alike, swapped or not",
    "bias.power-law": "theta_k = (1/k)^eta",
    "bias.never-rises": "examination never rises with the position",
    "bias.slopes": (
        "where it is not measured, examination falls as position^-slope with a slope from "
        "{least:g} to {steepest:g}"
    ),
    "bias.quadratic": "examination is quadratic in the position",
    "bias.constant-below": "constant below position {position}",
    "bias.scale-given": lambda **rates: f"given: {_rates(**rates)}",
    "bias.scale-convention": lambda **rates: (
        "a convention: gamma 0 and 1 are the documents at the 1% and 99% quantile "
        f"of relevance, so that {_rates(**rates)}"
    ),
    "bias.even-eps-plus": "a convention: eps+ is the same at all positions",
    "bias.examination-given": "examination as given",
    # How a fit ended.
    "bias.given": "given",
    "bias.truth": "the truth of a simulation",
    "bias.boosting-rounds": "after {rounds} boosting rounds",
    "bias.epochs": "after {epochs} epochs",
    "bias.maximum": "converged in {steps} steps, largest gradient {residual:.0e} of all clicks",
    "bias.shared-clicks": "{clicks:,.0f} clicks on documents shown at several positions",
    "bias.shuffled": "{sessions:,} shuffled sessions, {clicks:,.0f} clicks",
    "bias.left-out": lambda first, last: (
        f"position {first} left out" if first == last else f"positions {first}..{last} left out"
    ),
    "bias.shuffle-passed": lambda p_values: f"random order tested: {_tested(p_values)}",
    "bias.shuffle-untested": (
        "random order believed: no two sessions show the same documents, and there is nothing else "
        "to test it by"
    ),
    "bias.shuffle-clicked-only": (
        "nearly every shuffled session has a click, others were left out: tested for large "
        "departures alone"
    ),
    "bias.cut-at-no-click": (
        "positions 1..{top} alone: position {position} has no click to compare in these lists"
    ),
    "bias.swaps-passed": lambda p_values: f"swaps tested: {_tested(p_values)}",
    "bias.swaps-untested": (
        "swaps believed: queries do not repeat, and there is nothing else to test them by"
    ),
    "bias.swapped": "{sessions:,} sessions, swapped or not",
    "bias.eta": "eta {eta:.3f}",
    "bias.eta-fitted": "eta {eta:.3f} +- {std_error:.3f}; fits with p {p_value:.2g}",
    "bias.smoothed": lambda flat, steps: (
        f"{flat} of {steps} steps held flat" if flat else "never rose"
    ),
    "bias.quadratic-fitted": lambda p_value, outliers: (
        f"fits with p {p_value:.2g}"
        + (f"; left out as outliers: {_at(outliers)}" if outliers else "")
    ),
    "bias.trees": "{n_trees} trees per fold, where held-out clicks are most likely",
    "bias.networks": "networks of epoch {best} of {epochs}, where held-out clicks are most likely",
    "bias.strata": "{n_strata} strata",
    "bias.trust-found": (
        "trust bias found: clicks are no product of position and relevance "
        "(p {p_value:.2g}, {n_queries:,} queries)"
    ),
    "bias.trust-untold": (
        "no trust bias to be seen (p {p_value:.2g}, {n_queries:,} queries); shifts "
        "of the curves may also mean that queries differ in examination"
    ),
    "bias.trust-untested": (
        "trust bias not tested: {n_queries:,} queries showed documents at several positions, too "
        "few to compare them"
    ),
    # Where errors come from.
    "bias.errors-by-query": lambda n_queries, effective=None: (
        f"errors the larger of clustered by query ({_queries(n_queries, effective)}) and session "
        "noise"
    ),
    "bias.spread-resampled": _spread,
    "bias.any-time": (
        "intervals hold at every look while the experiment runs, so they may be watched"
    ),
    "bias.errors-resampled": "errors from {n_resamples} resamples of {n_queries:,} queries",
    "bias.errors-bootstrapped": "errors from {n_samples} bootstrap samples of queries",
    "bias.errors-incidental": (
        "errors include what the relevance of single documents, fitted to few clicks, may change"
    ),
    "bias.errors-coarser-strata": "errors include what coarser strata change",
    # A given curve against the clicks on documents that moved.
    "bias.curve-as-steep": (
        "as steep as the clicks on documents that moved say: its power {power:.2f} +- "
        "{std_error:.2f} fits best, {n_queries:,} queries"
    ),
    "bias.curve-nothing-moved": (
        "{n_clicks:,.0f} clicks on documents shown at several positions: too few to tell a steep "
        "curve from a flat one"
    ),
}
WARNINGS: Texts = {
    "bias.bounded": lambda positions, level: (
        f"nothing joins {_at(positions)} to position 1: bounds there, which hold with {level:.0%}, "
        "in place of an estimate"
    ),
    # How a fit ended.
    "bias.not-examined": lambda positions: (
        f"no click at {_at(positions)}: next to nothing is examined there"
    ),
    "bias.shuffle-reloads": (
        "the same orders come back a little too often ({orders:,} different ones in {sessions:,} "
        "sessions, where random order gives about {expected:,.0f}): pages that were loaded again?"
    ),
    "bias.few-clicks": lambda positions, fewer_than: (
        f"fewer than {fewer_than} clicks at {_at(positions)}: rough intervals there"
    ),
    "bias.gap": lambda positions: (
        f"nothing was shown at {_at(positions)}: a guess between the neighbours there"
    ),
    "bias.no-clicks": lambda positions: f"no click at {_at(positions)}: only an upper bound there",
    "bias.few-impressions": (
        "a document was shown only {mean:.0f} times on average: expect a curve that is too flat, "
        "see AllPairs"
    ),
    "bias.trust-contrary": (
        "clicks are no product of position and relevance (p {p_value:.2g}, "
        "{n_queries:,} queries), but not as trust in the top makes them: look at `untilt audit`"
    ),
    "bias.too-few-impressions": (
        "a document was shown only {mean:.1f} times on average: trust bias cannot be told from "
        "relevance, and the curve has no interval. Learn relevance from features, or see AllPairs"
    ),
    "bias.no-interval-few-documents": (
        "only {n_documents:,} documents, and strata of like ones need {least:,}: the curve has no "
        "interval. Take a log of more queries, or see AllPairs"
    ),
    "bias.no-interval-all-clicked": (
        "{share:.0%} of what was shown belongs to documents that are always clicked: their clicks "
        "tell no position from another, and the curve has no interval"
    ),
    "bias.trees-used-up": (
        "all {n_trees} trees per fold grown; more could fit held-out clicks better"
    ),
    "bias.epochs-used-up": (
        "networks of epoch {best} of all {epochs}; more could fit held-out clicks better"
    ),
    # Whether an experiment is what it is called.
    "bias.swap-share-differs": (
        "the share of swapped sessions differs between queries or lists: right only because "
        "documents are compared with themselves"
    ),
    # Where errors come from.
    "bias.errors-one-query": "errors from session noise: one query alone",
    "bias.errors-few-queries": lambda n_queries, effective=None: (
        f"errors the larger of clustered by query ({_queries(n_queries, effective)}: few) and "
        "session noise"
    ),
    "bias.errors-unknown": "errors not known: set n_bootstrap=20",
    # A given curve against the clicks on documents that moved.
    "bias.curve-too-steep": (
        "the curve is steeper than the clicks on documents that moved say: its power {power:.2f} "
        "+- {std_error:.2f} fits best ({n_queries:,} queries). Estimate the curve from this log: "
        "`untilt bias`"
    ),
    "bias.curve-too-flat": (
        "the curve is flatter than the clicks on documents that moved say: its power {power:.2f} "
        "+- {std_error:.2f} fits best ({n_queries:,} queries). Estimate the curve from this log: "
        "`untilt bias`"
    ),
    "bias.smooth-grid": "neighbouring cells of the grid are examined much alike",
    "bias.grid-step": (
        "smooth over the grid: neighbours differ by about {step:.2g} on the log scale"
    ),
    "bias.no-interval-smoothed": (
        "no interval: in one part of the contexts a network is off by as much as it smooths over "
        "its neighbours, and no resampling shows how much; the average over all contexts has one"
    ),
    "bias.no-interval-learned": (
        "no interval: the curve was learned along with a ranker, so what the ranker does not know "
        "of relevance counts as examination, and no resampling shows how much"
    ),
}
SERIOUS: Texts = {
    # Whether an experiment is what it is called.
    "bias.shuffle-positions": (
        "documents keep to their positions: two sessions with the same documents show {mean:.3f} "
        "of them at the same position on average, where random order gives 1 (z {z:.1f}, "
        "p {p_value:.1g})"
    ),
    "bias.shuffle-orders": (
        "the same orders come back: {orders:,} different ones in {sessions:,} sessions, where "
        "random order gives about {expected:,.0f} (p {p_value:.1g})"
    ),
    "bias.shuffle-usual-order": (
        "positions follow those of the same documents in other sessions: correlation "
        "{correlation:.3f}, where random order gives 0 (z {z:.1f}, p {p_value:.1g})"
    ),
    "bias.swap-arms-by-query": (
        "the share of swapped sessions differs between queries: chi-square {statistic:,.0f}, where "
        "a random draw gives about {expected:,.0f} (p {p_value:.1g})"
    ),
    "bias.swap-arms-by-list": (
        "whether a list is swapped depends on its documents: chi-square {statistic:,.0f}, where a "
        "random draw gives about {expected:,.0f} (p {p_value:.1g})"
    ),
    "bias.swap-lists": (
        "swapped lists are not the usual ones with two documents exchanged: swapped back, "
        "{matched:.1%} are a list that the query shows without a swap, where at least "
        "{expected:.1%} should be; {unchanged:.1%} show the usual list unchanged (z {z:.1f}, "
        "p {p_value:.1g})"
    ),
    "bias.swap-feature": (
        "whether positions {upper} and {lower} are swapped depends on the documents: correlation "
        "{correlation:.3f} with the feature {feature}, where a random draw gives 0 (z {z:.1f}, "
        "p {p_value:.1g})"
    ),
    "bias.shuffle-feature": (
        "positions follow the feature {feature}: correlation {correlation:.3f}, where random order "
        "gives 0 (z {z:.1f}, p {p_value:.1g})"
    ),
    # How a fit ended.
    "bias.no-maximum": (
        "NOT CONVERGED after {steps} steps, largest gradient {residual:.0e} of all clicks"
    ),
}

MESSAGES = messages("note", NOTES) | messages("warning", WARNINGS) | messages("serious", SERIOUS)
