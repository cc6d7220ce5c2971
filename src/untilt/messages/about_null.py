"""Null tests: something without a difference came out with one."""

from untilt.facts import Texts, messages

SERIOUS: Texts = {
    "null.same-order": (
        "the order that was shown, compared with itself ({queries:,} of {of:,} queries), differs "
        "by {difference:+.4f}: the evaluation is not neutral on lists like these. Order each list "
        "on its own (--among list), and look for rows that were lost"
    ),
    "null.relabelled": (
        "with the names of the two orders drawn at random for each query, a difference as large "
        "comes up in {p_value:.0%} of the draws: a few queries make it. Collect sessions of more "
        "queries"
    ),
    "null.permuted": (
        "with clicks that changed places within their position, so that no document is better than "
        "another, the difference is still {difference:+.4f} +- {std_error:.4f}: the structure of "
        "the lists makes it, not the documents. Order each list on its own (--among list), and "
        "look for rows that were lost or lists that were cut"
    ),
    "null.lean": (
        "the clip and the end of the examination curve alone change the difference by {lean:+.4f}, "
        "and without that it could be chance ({difference:+.4f} was found). Give a lower --clip, "
        "measure the curve further down (`untilt plan`), or collect more sessions"
    ),
}
WARNINGS: Texts = {
    "null.by-curve": (
        "Most of the difference ({by_curve:+.4f} of {difference:+.4f}) comes from positions, not "
        "from documents: it would be there if every position showed documents of its mean "
        "relevance. A curve that is too steep does that, and so does an order that was worse than "
        "chance. Check the curve with swaps (`untilt plan`)."
    ),
}
MESSAGES = messages("serious", SERIOUS) | messages("warning", WARNINGS)
