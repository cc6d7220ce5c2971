"""Options of judging rankers by clicks, each declared once for commands and `untilt.run`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from untilt._core.declared import EXPERT, READING, Option


@dataclass(frozen=True, kw_only=True)
class LevelOptions:
    """Of commands and functions that give intervals."""

    level: Annotated[
        float,
        Option(
            "Confidence level of the intervals.", panel=EXPERT,
            must="lie between 0 and 1", hint="0.95 is usual.", fits=lambda level: 0 < level < 1,
        ),
    ] = 0.95  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AssignedOptions:
    """Of commands that ask why positions vary."""

    assigned: Annotated[
        Literal["unknown", "random", "other"],
        Option(
            "How sessions got their ranker: by chance as in an A/B test (random; say so if no "
            "timestamp shows that rankers ran at the same time), by country or the like (other), "
            "or unknown.",
            metavar="CHOICE",
            panel=EXPERT,
        ),
    ] = "unknown"


@dataclass(frozen=True, kw_only=True)
class OldScoreOptions:
    """Of commands that look for what production sorts by."""

    old_score: Annotated[
        str | None,
        Option(
            "The feature that holds the score production sorts by (default: the feature that "
            "sorts the lists, if there is one).",
            metavar="COLUMN", panel=READING,
        ),
    ] = None  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JudgingOptions(AssignedOptions):
    """What rankers are judged by, and what they order."""

    metric: Annotated[str, Option("Metric: dcg@k, precision@k, arp or reciprocal@k.")] = "dcg@10"
    evaluator: Annotated[
        str | None,
        Option(
            "Estimator that corrects the judging clicks for position bias: {evaluator} (default: "
            "chosen from the log).",
            metavar="NAME",
            panel=EXPERT,
        ),
    ] = None
    among: Annotated[
        Literal["list", "shown", "candidates"],
        Option(
            "What rankers reorder: each shown list (list), all documents the log shows for a query "
            "(shown), or all its candidates (candidates).",
            metavar="CHOICE",
            panel=EXPERT,
        ),
    ] = "list"
