"""What a run tells: how far its bias can be believed, what was cut or failed, and what to do."""

from untilt.facts import Message

_SWAPS = "Swaps of positions in a share of the sessions would measure it."
_BOUNDS = "All pairs with bounds (--bias all-pairs:unjoined=bounds) assume no curve."


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _collect_sessions(sessions: float) -> str:
    return f"Collect about {sessions:,.0f} more held-out sessions before deciding."


def _try_within_lists(share: float, top: int, measured: bool) -> str:
    curve = "" if measured else ", if the examination curve is right"
    return (
        f"Try it on a share of the traffic as an order of what the old ranker shows{curve}; not "
        f"over all candidates, where {share:.0%} of its top {top} places would go to documents "
        "that nobody was shown."
    )


MESSAGES = {
    # Where the position bias came from.
    "run.bias-asked-for": Message("note", "{estimator} was asked for"),
    "run.bias-given": Message("note", "the curve was given"),
    "run.estimator-failed": Message(
        "warning", "{estimator}, which the audit advises, failed: {error}"
    ),
    "run.bias-modelled": Message(
        "serious",
        "The position bias is not measured but modelled by {estimator}: it is right only if "
        "{assumes}. " + _SWAPS,
    ),
    "run.bias-assumed": Message(
        "serious",
        lambda why, curve: (
            f"This log cannot tell its position bias: {why}{'' if why.endswith('.') else '.'} The "
            f"curve {curve} is assumed in its place; every corrected figure is as right as that "
            f"guess. {_SWAPS} {_BOUNDS}"
        ),
    ),
    "run.bias-from-all-queries": Message(
        "warning",
        "The bias was estimated on all queries, those held out for evaluation too: without them "
        "the log is too small for it. Intervals are a little too narrow for that.",
    ),
    "run.bias-ends-early": Message(
        "warning",
        "The bias is known for positions 1..{known} of {depth}: what was shown below is left out "
        f"of training and evaluation. {_BOUNDS}",
    ),
    "run.curve-held-out": Message(
        "note", "The curve was estimated without the sessions that rankers are judged by."
    ),
    "run.curve-of-all": Message(
        "note",
        "The curve was estimated on all sessions, those that rankers are judged by among them.",
    ),
    # What the log allows.
    "run.held-out": Message("note", "Held out for the evaluation: {share:.0%} of the {units}."),
    "run.held-out-latest": Message(
        "note",
        "Held out for the evaluation: the latest {share:.0%} of the sessions, from {begins} on. "
        "The rankers that are judged learned from earlier sessions alone; queries may come again.",
    ),
    "run.folds": Message(
        "note",
        "All {queries:,} queries count: they are divided into {folds} folds, and the queries of "
        "each fold are judged by rankers that were trained on the others.",
    ),
    "run.sessions-held-out": Message(
        "warning",
        "Only {queries} queries have sessions, so that single sessions are held out in place of "
        "whole queries: the figures are about these queries, not new ones.",
    ),
    "run.no-features": Message(
        "serious",
        "This log has no features, so no ranker can be trained that scores new documents or "
        "queries: give --documents TABLE or --features PATTERN. What can be done is to order the "
        "documents that were shown often by their own clicks, corrected for position.",
    ),
    "run.click-models-failed": Message("note", "Click models could not be compared: {error}"),
    # Training, and what a time limit cost.
    "run.candidate-failed": Message(
        "warning", "The candidate {candidate} could not be trained: {error}"
    ),
    "run.candidates-late": Message(
        "warning",
        lambda limit, candidates: (
            f"The time limit of {limit} was over before these candidates were trained: "
            f"{_names(candidates)}."
        ),
    ),
    "run.fewer-trees": Message(
        "warning",
        lambda limit, trees, wanted: (
            f"For the time limit of {limit} rankers have {trees} trees in place of "
            f"{'as many as held-out queries would choose' if wanted == 'auto' else wanted}."
        ),
    ),
    "run.candidates-dropped": Message(
        "warning",
        lambda limit, candidates: (
            f"For the time limit of {limit} these candidates were not trained: "
            f"{_names(candidates)}."
        ),
    ),
    # What was chosen, and what is shipped.
    "run.only-candidate": Message("note", "Only one candidate was trained: {chosen}."),
    "run.default-kept": Message(
        "note",
        "The default, {default}, was kept: no other candidate is better by two standard errors. "
        "The nearest is {other}: {difference:+.4f} {metric}, standard error "
        "{std_error:.4f}.",
    ),
    "run.default-beaten": Message(
        "note",
        "The default, {default}, gave way to {chosen}, which is better by {difference:+.4f} "
        "{metric}, standard error {std_error:.4f}, p {p_value:.1g} after correction for {tried} "
        "comparisons.",
    ),
    "run.choice-by-fold": Message(
        "note",
        lambda chosen, shipped: (
            f"The folds chose differently ({_names(chosen)}), so that the answer is about a choice "
            f"like theirs, in which no query had a say in its own. All folds together chose "
            f"{shipped}."
        ),
    ),
    "run.refit": Message(
        "note",
        "{file} is {system}, trained again on all {queries:,} queries; the figures are those of "
        "the same method, trained without the queries that it was judged by.",
    ),
    "run.refit-late": Message(
        "warning",
        "The time limit of {limit} left no time to train {system} again on all queries: {file} is "
        "the ranker that was judged, trained on {queries:,} queries. Give it more time.",
    ),
    "run.refit-failed": Message(
        "warning",
        "{system} could not be trained again on all queries ({error}): {file} is the ranker that "
        "was judged, trained on {queries:,} queries.",
    ),
    # The answer.
    "run.of-system": Message("warning", "For {system}: {warning}"),
    "run.against-raw-clicks": Message(
        "note",
        "Against the same learner on raw clicks: {difference:+.4f} {metric}, interval [{low:+.4f}, "
        "{high:+.4f}].",
    ),
    "run.sessions-not-enough": Message(
        "note",
        "More sessions alone will not decide it: the uncertainty of the bias is larger than the "
        "difference.",
    ),
    "run.nothing-trained": Message("serious", "No ranker could be trained. {why}"),
    "run.nothing-compared": Message("serious", "Nothing could be compared with the logged order."),
    # What a verdict holds for alone; they follow it after a comma.
    "run.if-within-lists": Message("serious", "if it only reorders documents that were shown"),
    "run.if-unshown-worthless": Message(
        "serious", "if documents that nobody was shown are worth nothing"
    ),
    # What to do.
    "run.try-it": Message("note", "Try it on a share of the traffic."),
    "run.try-if-curve-right": Message(
        "note", "Try it on a share of the traffic, if the examination curve is right."
    ),
    "run.try-within-lists": Message("serious", _try_within_lists),
    "run.keep-order": Message("note", "Keep the {shown}."),
    "run.same-order": Message(
        "note",
        "There is nothing to decide: in every query it has exactly the value of the {shown}, as "
        "with the same order.",
    ),
    "run.collect-sessions": Message("note", _collect_sessions),
    "run.do-not-decide": Message("note", "Do not decide on these figures alone."),
    # A run that goes on.
    "run.step-damaged": Message(
        "warning", "{step}: the file of this step cannot be used, so it is done again ({error})"
    ),
    "run.steps-do-not-fit": Message(
        "warning",
        "What earlier runs left in this folder does not fit together, so every step is done again "
        "({error})",
    ),
    "run.lines-damaged": Message(
        "warning",
        lambda lines, file: (
            f"{lines:,} {'line' if lines == 1 else 'lines'} of {file} cannot be used, cut short or "
            "changed after being written: what they held is run again"
        ),
    ),
    "run.file-damaged": Message(
        "warning",
        "{step}: {file} is gone, or was changed after this step wrote it, so the step is done "
        "again",
    ),
}
