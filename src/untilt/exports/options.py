"""Options of judgments, each declared once."""

from dataclasses import dataclass
from typing import Annotated, Literal

from untilt._core.declared import EXPERT, Option
from untilt.evaluation.options import LevelOptions


@dataclass(frozen=True, kw_only=True)
class JudgmentOptions(LevelOptions):
    """Options of judgments from clicks."""

    prior: Annotated[
        Literal["rank", "query"],
        Option(
            "Value of a document before its clicks. rank: by its place in the ranker's order; "
            "query: the mean of its query.",
            panel=EXPERT,
        ),
    ] = "rank"
