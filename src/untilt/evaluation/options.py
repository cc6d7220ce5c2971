"""Options of judging rankers by clicks, each declared once for commands and `untilt.run`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from untilt._core.declared import Option


@dataclass(frozen=True, kw_only=True)
class LevelOptions:
    """Of commands and functions that give intervals."""

    level: Annotated[
        float,
        Option(
            "Of the intervals.",
            must="lie between 0 and 1", hint="0.95 is usual.", fits=lambda level: 0 < level < 1,
        ),
    ] = 0.95  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AssignedOptions:
    """Of commands that ask why positions vary."""

    assigned: Annotated[
        Literal["unknown", "random", "other"],
        Option(
            "What drew the ranker of each session. random: chance, as in an A/B test; needed where "
            "no timestamp shows that rankers answer side by side. other: the country or taste of "
            "a session, say."
        ),
    ] = "unknown"


@dataclass(frozen=True, kw_only=True)
class OldScoreOptions:
    """Of commands that look for what production sorts by."""

    old_score: Annotated[
        str | None,
        Option(
            "The feature with the score that production sorts by. Not given: the feature that "
            "sorts the lists, if one does.",
            metavar="COLUMN",
        ),
    ] = None  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JudgingOptions(AssignedOptions):
    """What rankers are judged by, and what they order."""

    metric: Annotated[str, Option("dcg@k, precision@k, arp or reciprocal@k.")] = "dcg@10"
    evaluator: Annotated[
        str | None,
        Option(
            "How position bias is taken out to judge by: {evaluator}. Not given: propensities that "
            "the log has and confirms; {default evaluator} where each query and ranker has one "
            "list, else its interval and that of each session's own clicks together.",
            metavar="NAME",
        ),
    ] = None
    among: Annotated[
        Literal["list", "shown", "candidates"],
        Option(
            "Order each shown list anew, all documents that the log shows for a query, or all its "
            "candidates."
        ),
    ] = "list"
