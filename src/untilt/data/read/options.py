"""The options of reading a log, each declared once.

`read_log`, `read_ubi`, every command that reads a log, `untilt.run` with its TOML files and the
workers of a cluster take them from here. What an option does stands in the docstring of `read_log`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from untilt._core.addresses import place
from untilt._core.declared import EXPERT, READING, Option, as_number
from untilt.data.limits import DEEPEST
from untilt.errors import OptionError

Collapse = bool | Literal["halves"]
Features = str | Sequence[str] | Callable[[str], bool] | None


def columns_of(pairs: Sequence[str]) -> dict[str, str | None]:
    """NAME=COLUMN pairs as the mapping that `read_log` takes; NAME= leaves a column out."""
    mapping: dict[str, str | None] = {}
    for pair in pairs:
        name, equals, column = pair.partition("=")
        if not (name and equals):
            raise OptionError(
                f"--column needs NAME=COLUMN, such as query_id=srch_id. Got {pair!r} instead."
            )
        if name in mapping:
            raise OptionError(f"--column names {name!r} twice: {mapping[name]!r} and {column!r}.")
        mapping[name] = column or None
    return mapping


def _check_missing(missing: object) -> None:
    from untilt._core.arrays import check_missing

    check_missing(missing)


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """What the columns mean, and which rows are bad."""

    columns: Annotated[
        Mapping[str, str | None] | None,
        Option(
            "The name of a column in your log, as in query_id=srch_id. Further names: random (a "
            "flag for lists in random order), person (whose session it is). May be repeated.",
            flag="--column", metavar="NAME=COLUMN", typed=list[str], parse=columns_of,
            panel=READING,
            must="map our names to yours, such as {'query_id': 'srch_id'}",
        ),
    ] = None  # fmt: skip
    on_bad: Annotated[
        Literal["raise", "drop"],
        Option("Refuse a log with bad rows, or drop and count them.", panel=READING),
    ] = "raise"
    positions_from: Annotated[
        Literal[0, 1] | None,
        Option(
            "The number of the first position in the log (default: 1).",
            metavar="0|1", panel=READING, typed=int, least=0, most=1, must="be 0 or 1",
            hint="Positions of a later page begin elsewhere: number positions continuously over "
            "all pages.",
        ),
    ] = None  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ClickOptions(RowOptions):
    """Which lists of the log are read, and how their positions are laid out."""

    grid: Annotated[
        tuple[int, int] | None,
        Option(
            must="be (rows, columns), such as (6, 4)",
            plain=lambda grid: tuple(grid) if isinstance(grid, list) else grid,
        ),
    ] = None  # fmt: skip
    sample_queries: Annotated[
        float | None,
        Option(
            "Read only about this share of the queries, with all their sessions, when the log does "
            "not fit into memory (default: all).",
            metavar="SHARE", panel=EXPERT, must="be a share above 0 and at most 1",
            fits=lambda share: 0 < share <= 1,
        ),
    ] = None  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DepthOptions:
    """How far down lists are judged."""

    depth: Annotated[
        int | None,
        Option(
            "Look at positions 1..N (default: down to the last position with 30 clicks, and at "
            "least 20).",
            metavar="N", least=1, most=DEEPEST,
        ),
    ] = None  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FeatureOptions:
    """Which columns are features."""

    features: Annotated[
        Features,
        Option(
            "Feature columns of the log or of --documents: names and patterns such as 'f_*', "
            "separated by commas (default: all numbers of --documents). May be repeated.",
            metavar="PATTERN", typed=list[str], panel=READING,
            must="be names or patterns of columns, or a function of the name",
        ),
    ] = None  # fmt: skip
    missing: Annotated[
        float | Literal["keep"] | None,
        Option(
            "The value of a missing feature; keep: trees learn from the gap (default: a missing "
            "feature is a bad row).",
            metavar="VALUE|keep", panel=READING, typed=str, parse=as_number, check=_check_missing,
        ),
    ] = None  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DocumentOptions(FeatureOptions):
    """Where features are."""

    documents: Annotated[
        Any,
        Option(
            "A table with the features of each document: query_id, doc_id, then numbers.",
            metavar="TABLE", typed=Path, panel=READING, more={"parser": place},
        ),
    ] = None  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Which columns are feedback. Commands have one option, --label, for all of them."""

    label: Annotated[str, Option(must="be the name of a column")] = "click"
    labels: Annotated[Sequence[str], Option()] = ()


@dataclass(frozen=True, kw_only=True)
class WorkerOptions(LabelOptions, FeatureOptions, RowOptions):
    """Options of `read_log` that the workers of a cluster are told."""

    text_ids: bool = False

    def __post_init__(self) -> None:
        if "page" in (self.columns or {}):
            raise OptionError(
                "a worker reads only a part of the log, and the page size needs the whole log. "
                "Number positions continuously over all pages (docs/preparing-a-log.md)."
            )


@dataclass(frozen=True, kw_only=True)
class ReadOptions(LabelOptions, DocumentOptions, ClickOptions):
    """The options of `read_log`."""

    FIRST: ClassVar[tuple[str, ...]] = (
        "source", "documents", "columns", "label", "labels", "context", "features",
        "positions_from", "grid", "missing", "text_ids", "collapse", "on_bad",
    )  # fmt: skip

    context: Annotated[Sequence[str], Option()] = ()
    text_ids: bool = False
    collapse: Annotated[Collapse, Option(must="be True, False or 'halves'")] = True
    memory_limit: str | int | None = None
    temp_directory: str | os.PathLike[str] | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Request(ReadOptions):
    """What `read_log` was asked for."""

    source: Any

    @property
    def label_names(self) -> tuple[str, ...]:
        """All labels, the main one first."""
        return (self.label, *self.labels)


@dataclass(frozen=True)
class UbiRequest(ReadOptions):
    """What `read_ubi` was asked for."""

    queries: Any
    events: Any
    hits_shown: int | None = field(default=None, kw_only=True)
