"""A planned swap experiment: how to run it, and what its numbers are for."""

from untilt.facts import messages

MESSAGES = messages(
    "note",
    {
        "plan.log-swaps": (
            "Log what happened as `ranker`: 'swap:1-5' for a swap of 1 and 5, 'base' otherwise. "
            "Then: untilt.{estimator}.fit(log)."
        ),
        "plan.serve": lambda explore, lost, is_bound: (
            "A server of ours draws and logs them by itself, at a cost of "
            f"{'at most ' * is_bound}{lost:.2g} clicks a session: "
            f"`untilt serve RANKER --explore {explore}`"
        ),
        "plan.mean-width": (
            "The widths are means: all positions are within {width:.0%} with probability "
            "{probability:.0%}. With --assurance 0.9 the plan is for all of them."
        ),
        "plan.assured": (
            "All positions are within {width:.0%} with probability {probability:.0%}, if the "
            "click rates and the guess of the bias are right."
        ),
        "plan.watch-any-time": (
            "The intervals hold once the planned sessions are there. To look at them while the "
            "experiment runs, and to stop on what they say: --option any_time=true."
        ),
        "plan.ends-early": (
            "Planned for positions 1..{depth}: nobody clicked at position {empty} in this log, so "
            "no number of sessions can be promised for it."
        ),
        "plan.by-length": (
            "Swapped lists are compared with others of their length: queries hardly ever repeat "
            "in this log, so the same documents are not shown at two positions."
        ),
        "plan.draw-by-session": (
            "Draw the swap for each session by itself, whatever the query or the reader."
        ),
        "plan.hardest-case": (
            "No guess of the bias was given: the sessions are for the hardest case, and no bias "
            "makes the swaps cost more. With --examination both can be smaller."
        ),
    },
)
