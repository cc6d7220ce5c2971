"""Options of judgments, each declared once."""

from dataclasses import dataclass
from typing import Annotated, Literal

from untilt._core.declared import Option
from untilt.evaluation.options import LevelOptions


@dataclass(frozen=True, kw_only=True)
class JudgmentOptions(LevelOptions):
    """Of judgments from clicks."""

    prior: Annotated[
        Literal["rank", "query"],
        Option(
            "Where a document without clicks starts. rank: at what the ranker of the log thought "
            "of it; query: at the mean of its query."
        ),
    ] = "rank"
