"""What a report says, as plain data: from here to a page, or to JSON and back, nothing is computed.

Each part of `Decision` is optional, because logs differ: one without features has no rankers, one
without a second ranker has nothing to compare. Positions are 1-based. Numbers that are not known
are None.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from untilt._core.files import replacing
from untilt.errors import FileFormatError
from untilt.report.plain import from_plain, to_plain

FORMAT, VERSION = "untilt decision", 1
Verdict = Literal["better", "worse", "undecided"]


@dataclass(frozen=True)
class Value:
    """A number and the ends of its interval, where they are known."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class PositionCurve:
    """A value at each of some positions, with interval ends where they are known.

    `note` says in a sentence how it came about ("AllPairs, 95% intervals clustered by query").
    """

    name: str
    position: tuple[int, ...]
    value: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Answer:
    """The new ranker against the logged order on held-out queries, the same sessions for both.

    Parameters
    ----------
    new, shown : names of the two
    metric : what was estimated, such as "dcg@10"
    value, shown_value, difference : of the new one, of the logged order, new minus logged
    verdict : what the interval of the difference says; see `verdict_of`
    level : of the intervals
    scale : what the values are multiples of ("relative: relevance counts as ..."), may be empty
    recommendation : what to do, in a sentence; may be empty
    """

    new: str
    shown: str
    metric: str
    value: Value
    shown_value: Value
    difference: Value
    verdict: Verdict
    higher_is_better: bool = True
    level: float = 0.95
    scale: str = ""
    recommendation: str = ""


@dataclass(frozen=True)
class HowSure:
    """How far the answer can be believed.

    Parameters
    ----------
    sessions, queries : that the answer rests on (held out from training)
    effective_sessions : clicks weigh differently; as many equally heavy ones would tell as much
    largest_weight : of one click
    clipped_share, unshown_share : of the clicks that were clipped; of the top places given to
        documents that nobody was shown
    more_sessions : held-out sessions like these that are still needed to decide, where undecided
    curve_fits : whether the log's own clicks fit the examination curve; None where not tested
    notes : sentences; what speaks for and against the answer
    """

    sessions: int
    queries: int
    effective_sessions: float | None = None
    largest_weight: float | None = None
    clipped_share: float | None = None
    unshown_share: float | None = None
    more_sessions: float | None = None
    curve_fits: bool | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LogShape:
    """What the log holds. `rankers`: name -> sessions; `splits`: name -> queries, such as "train".

    `dropped_rows`: rule that was broken -> rows.
    """

    name: str
    sessions: int
    impressions: int
    clicks: float
    queries: int
    documents: int
    deepest_position: int
    features: int = 0
    distinct_lists: int | None = None
    share_without_click: float | None = None
    label: str = "click"
    rankers: Mapping[str, int] = field(default_factory=dict)
    splits: Mapping[str, int] = field(default_factory=dict)
    dropped_rows: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Examination:
    """Examination curves; the first is the one that was used.

    `relative`: to position 1, as clicks alone can only tell ratios. `assumed`: the curve was given,
    not measured. `why`: why this estimator.
    """

    curves: tuple[PositionCurve, ...]
    relative: bool = True
    level: float = 0.95
    assumed: bool = False
    why: str = ""


@dataclass(frozen=True)
class GraphEdge:
    """Two positions that showed the same documents; `weight` is how much that tells."""

    upper: int
    lower: int
    documents: int
    weight: float


@dataclass(frozen=True)
class Swap:
    """A swap of two positions that would join what is apart, and the most clicks one can lose."""

    upper: int
    lower: int
    most_lost: float | None = None


@dataclass(frozen=True)
class Identifiability:
    """Which positions can be compared without a model of relevance.

    `positions` are those that were shown; `components` those joined by shared documents.
    """

    positions: tuple[int, ...]
    edges: tuple[GraphEdge, ...]
    components: tuple[tuple[int, ...], ...]
    swaps: tuple[Swap, ...] = ()
    identified: bool = True
    verdict: str = ""


@dataclass(frozen=True)
class RankerResult:
    """One ranker on the held-out queries; `difference` is to the baseline, None for itself."""

    name: str
    value: Value
    difference: Value | None = None
    decided: bool | None = None
    chosen: bool = False
    note: str = ""


@dataclass(frozen=True)
class Rankers:
    """All rankers on the same held-out queries. `baseline`: the name the differences are to."""

    metric: str
    baseline: str
    entries: tuple[RankerResult, ...]
    method: str = ""
    higher_is_better: bool = True
    level: float = 0.95


@dataclass(frozen=True)
class ClipCurve:
    """The estimate of one system as a function of the clip tau; `chosen` is the clip used.

    `method`: how the curve was estimated, where it is another one than the answer's.
    """

    system: str
    metric: str
    tau: tuple[float, ...]
    value: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    clipped_share: tuple[float | None, ...] = ()
    chosen: float | None = None
    level: float = 0.95
    method: str = ""


@dataclass(frozen=True)
class FeatureImportance:
    """How much a feature contributes, as a share of all features' contribution."""

    name: str
    share: float


@dataclass(frozen=True)
class MovedDocument:
    """A document of one query: where it stood, where the new ranker puts it, and what it earned.

    `old_position` is None for a document nobody was shown. `label`: a human judgement, if any.
    """

    document: str
    old_position: float | None
    new_position: int
    clicks: float | None = None
    impressions: int | None = None
    label: float | None = None


@dataclass(frozen=True)
class ChangedQuery:
    """A query whose order changes much; documents in the new order.

    `change`: any number by which the queries were sorted; `note` says in a sentence what it is.
    """

    query: str
    documents: tuple[MovedDocument, ...]
    sessions: int | None = None
    change: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Step:
    """One step of the computation and the seconds it took; `note` says what was cut or reused."""

    name: str
    seconds: float | None = None
    note: str = ""


@dataclass(frozen=True)
class HowComputed:
    """Enough to do it again. `versions`: of packages; `options`: as text."""

    command: str = ""
    finished: str = ""
    seed: int | None = None
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Decision:
    """Everything a report says, in its order. What is None or empty is left out of the page.

    Parameters
    ----------
    title : of the page, such as the log's name
    answer, no_answer : the answer, or a sentence that says why there is none
    click_rates : click rate by position, one curve or several (by ranker), with intervals
    moved : average new position of what stood at each old position, one curve per ranker
        (Figure 1 of [hu2019unbiased]_)
    pair_bias : t+ and t- by position (Figure 2 of the same)
    importances : of the chosen ranker; `importance_of` says what is shared out ("gain of splits")
    changed : queries whose order changes most, the largest change first
    warnings : every one, in sentences
    """

    title: str
    answer: Answer | None = None
    no_answer: str = ""
    how_sure: HowSure | None = None
    log: LogShape | None = None
    click_rates: tuple[PositionCurve, ...] = ()
    examination: Examination | None = None
    identifiability: Identifiability | None = None
    rankers: Rankers | None = None
    clip_curve: ClipCurve | None = None
    moved: tuple[PositionCurve, ...] = ()
    pair_bias: tuple[PositionCurve, ...] = ()
    importances: tuple[FeatureImportance, ...] = ()
    importance_of: str = ""
    changed: tuple[ChangedQuery, ...] = ()
    warnings: tuple[str, ...] = ()
    how_computed: HowComputed | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; NumPy's numbers become Python's, what is not finite None."""
        return {"format": FORMAT, "version": VERSION, **to_plain(self)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], *, where: str = "figures") -> "Decision":
        """What `to_dict` wrote, with types and names checked."""
        if not isinstance(plain, Mapping) or plain.get("format") != FORMAT:
            raise FileFormatError(
                f"{where} holds no figures of a report: it has no 'format': '{FORMAT}'. "
                "Give the figures.json that untilt run wrote."
            )
        if plain.get("version") != VERSION:
            raise FileFormatError(
                f"{where} has version {plain.get('version')!r} of the format; this untilt reads "
                f"version {VERSION}. Update untilt, or write it again with untilt run."
            )
        parts = {k: v for k, v in plain.items() if k not in ("format", "version")}
        return from_plain(cls, parts, where=where)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write JSON (`figures.json`), whole or not at all."""
        with replacing(path) as temporary:
            text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
            temporary.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Decision":
        """What `save` wrote."""
        try:
            plain = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise FileFormatError(
                f"{os.fspath(path)} cannot be read as JSON: {error}. "
                "Give the figures.json that untilt run wrote."
            ) from error
        return cls.from_dict(plain, where=Path(path).name)


def verdict_of(difference: Value, *, higher_is_better: bool = True) -> Verdict:
    """ "better" or "worse" where the interval of the difference leaves out 0, else "undecided".

    >>> verdict_of(Value(0.2, 0.1, 0.3)), verdict_of(Value(0.2, -0.1, 0.5))
    ('better', 'undecided')
    """
    if difference.low is None or difference.high is None:
        return "undecided"
    if difference.low > 0:
        return "better" if higher_is_better else "worse"
    if difference.high < 0:
        return "worse" if higher_is_better else "better"
    return "undecided"


def write_report(data: Decision, path: str | os.PathLike[str]) -> Path:
    """Write one HTML file that opens offline; whole or not at all. Returns its path."""
    from untilt.report.page.page import page

    with replacing(path) as temporary:
        temporary.write_text(page(data), encoding="utf-8")
    return Path(path)
