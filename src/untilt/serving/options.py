"""The options of a server, each declared once: `untilt serve` and its workers follow."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from untilt._core.declared import EXPERT, Option

_FILE: dict[str, Any] = {"typed": Path, "parse": str}


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What `untilt serve` may be asked for, as text and numbers that workers can be handed.

    `watch_seconds` says how often the files of the rankers are looked at; 0 for never.
    """

    documents: Annotated[
        str | None,
        Option(
            "Features of documents, for requests that send none: doc_id, optionally query_id, "
            "then numbers (default: requests bring features).",
            metavar="TABLE", **_FILE,
        ),
    ] = None  # fmt: skip
    unknown: Annotated[
        Literal["refuse", "last"],
        Option("What to do with documents that the table lacks.", metavar="refuse|last"),
    ] = "refuse"
    explore: Annotated[
        str,
        Option(
            "Exploration and its share of the sessions: pivot:0.02 (swaps position 1 with "
            "another), swap-adjacent:0.05, shuffle-top-3:0.01, swaps:1-2=0.01,... or off.",
            metavar="KIND:SHARE",
        ),
    ] = "off"
    most_lost: Annotated[
        float | None,
        Option(
            "Most clicks a session that exploration may cost; costlier lists are not changed "
            "(default: no limit).",
            metavar="CLICKS",
            panel=EXPERT,
        ),
    ] = None
    curve: Annotated[
        str | None,
        Option(
            "Examination by position, to compute what exploration costs (for --most-lost).",
            metavar="FILE|CURVE",
            panel=EXPERT,
        ),
    ] = None
    calibrate: Annotated[
        str | None,
        Option(
            "Log used to turn scores into click probabilities (for --most-lost).",
            metavar="LOG", panel=EXPERT, **_FILE,
        ),
    ] = None  # fmt: skip
    salt: Annotated[
        str | None,
        Option("Salt for the random assignment (default: one per log folder).", panel=EXPERT),
    ] = None
    candidate: Annotated[
        str | None, Option("A second ranker to compare with.", metavar="RANKER", **_FILE)
    ] = None
    share: Annotated[
        float, Option("Share of the sessions that the candidate answers.", least=0, most=1)
    ] = 0.0
    interleave: Annotated[
        float, Option("Share of the sessions that get an interleaved list.", least=0, most=1)
    ] = 0.0
    shadow: Annotated[bool, Option("Log the candidate's scores without showing its lists.")] = False
    token_file: Annotated[
        str | None,
        Option(
            "File with the bearer token that requests must carry (default: $UNTILT_TOKEN).",
            metavar="FILE", **_FILE,
        ),
    ] = None  # fmt: skip
    cors: Annotated[
        tuple[str, ...],
        Option(
            "Origin whose pages may call the server (default: none). May be repeated.",
            metavar="ORIGIN",
            panel=EXPERT, parse=tuple,
        ),
    ] = ()  # fmt: skip
    labels: Annotated[
        tuple[str, ...],
        Option(
            "Label that feedback may have (default: any). May be repeated.",
            flag="--label",
            metavar="NAME",
            panel=EXPERT, parse=tuple,
        ),
    ] = ()  # fmt: skip
    most_body: Annotated[int, Option(least=1024)] = 8 << 20
    most_documents: Annotated[
        int, Option("Largest number of candidates of a request.", panel=EXPERT, least=1)
    ] = 1000
    timeout: Annotated[
        float, Option("Seconds until a request is given up.", panel=EXPERT, least=0.1)
    ] = 5.0
    at_once: Annotated[int, Option(least=1)] = 64
    watch_seconds: float = 2.0


@dataclass(frozen=True)
class Settings(ServeOptions):
    """What a server is started with: its ranker, the folder of its log, and the options.

    loopback : no other machine reaches it
    """

    ranker: str
    log: str
    loopback: bool = False
