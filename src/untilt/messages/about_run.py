"""What a run tells: how far its bias can be believed, what was cut or failed, and what to do."""

from untilt.facts import Message

_SWAPS = "To measure it, swap positions in a share of the sessions: `untilt plan` says how many."


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _collect_sessions(sessions: float) -> str:
    return f"Collect about {sessions:,.0f} more held-out sessions before deciding."


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
            f"guess. {_SWAPS}"
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
        "of training and evaluation.",
    ),
    # What the log allows.
    "run.held-out": Message("note", "Held out for the evaluation: {share:.0%} of the {units}."),
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
        "warning", "For the time limit of {limit} rankers have {trees} trees in place of {wanted}."
    ),
    "run.candidates-dropped": Message(
        "warning",
        lambda limit, candidates: (
            f"For the time limit of {limit} these candidates were not trained: "
            f"{_names(candidates)}."
        ),
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
    # What to do.
    "run.measure-bias-first": Message(
        "serious",
        "First measure the position bias: this figure rests on a curve that is assumed.",
    ),
    "run.find-misfit-first": Message(
        "serious", "First find out why the clicks do not fit the examination curve."
    ),
    "run.try-it": Message("note", "Try it on a share of the traffic."),
    "run.try-if-curve-right": Message(
        "note", "Try it on a share of the traffic, if the examination curve is right."
    ),
    "run.keep-order": Message("note", "Keep the {shown}."),
    "run.collect-sessions": Message("note", _collect_sessions),
    "run.do-not-decide": Message("note", "Do not decide on these figures alone."),
    # A run that goes on.
    "run.step-damaged": Message(
        "warning", "{step}: the file of this step cannot be used, so it is done again ({error})"
    ),
}
