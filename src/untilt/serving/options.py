"""The options of a server, each declared once: `untilt serve` and its workers follow."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from untilt._core.declared import Option

_FILE: dict[str, Any] = {"typed": Path, "parse": str}


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What `untilt serve` may be asked for, as text and numbers that workers can be handed.

    `watch_seconds` says how often the files of the rankers are looked at; 0 for never.
    """

    documents: Annotated[
        str | None,
        Option(
            "Features of documents, for requests without: doc_id, perhaps query_id, numbers.",
            metavar="TABLE", **_FILE,
        ),
    ] = None  # fmt: skip
    unknown: Annotated[
        Literal["refuse", "last"],
        Option("Documents that the table does not have.", metavar="refuse|last"),
    ] = "refuse"
    explore: Annotated[
        str,
        Option(
            "pivot:0.02 (position 1 with another), swap-adjacent:0.05, shuffle-top-3:0.01, "
            "swaps:1-2=0.01,... or off.",
            metavar="KIND:SHARE",
        ),
    ] = "off"
    most_lost: Annotated[
        float | None,
        Option(
            "Clicks a session that exploration may be expected to cost; a list where it would "
            "cost more is left alone.",
            metavar="CLICKS",
        ),
    ] = None
    curve: Annotated[
        str | None,
        Option("Examination by position, for what exploration costs.", metavar="FILE|CURVE"),
    ] = None
    calibrate: Annotated[
        str | None,
        Option(
            "A log to learn the relevance behind a score from, for the same.",
            metavar="LOG", **_FILE,
        ),
    ] = None  # fmt: skip
    salt: Annotated[
        str | None, Option("Salt for the random assignment (default: one per log folder).")
    ] = None
    candidate: Annotated[
        str | None, Option("A second ranker beside the first.", metavar="RANKER", **_FILE)
    ] = None
    share: Annotated[
        float, Option("Of the sessions that the candidate answers.", least=0, most=1)
    ] = 0.0
    interleave: Annotated[
        float,
        Option("Of the sessions with a list of both rankers, by team draft.", least=0, most=1),
    ] = 0.0
    shadow: Annotated[bool, Option("The candidate scores and is logged, not shown.")] = False
    token_file: Annotated[
        str | None,
        Option("Ask for this bearer token (or set UNTILT_TOKEN).", metavar="FILE", **_FILE),
    ] = None
    cors: Annotated[
        tuple[str, ...],
        Option("Pages of this origin may call. May be repeated.", metavar="ORIGIN", parse=tuple),
    ] = ()
    labels: Annotated[
        tuple[str, ...],
        Option(
            "Take feedback of this label alone. May be repeated.",
            flag="--label",
            metavar="NAME",
            parse=tuple,
        ),
    ] = ()
    most_body: Annotated[int, Option("Bytes of a request.", least=1024)] = 8 << 20
    most_documents: Annotated[int, Option("Candidates of a request.", least=1)] = 1000
    timeout: Annotated[float, Option("Seconds for a request.", least=0.1)] = 5.0
    at_once: Annotated[int, Option("Requests under way, in each worker.", least=1)] = 64
    watch_seconds: float = 2.0


@dataclass(frozen=True)
class Settings(ServeOptions):
    """What a server is started with: its ranker, the folder of its log, and the options.

    loopback : no other machine reaches it
    """

    ranker: str
    log: str
    loopback: bool = False
