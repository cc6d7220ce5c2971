"""What a run knows, from the log to the answer: the data of one report.

`Decision` holds the results of the steps as they are: an `Audit`, a `PositionBias`, `Estimate`s and
their differences. The page renders these very classes, and JSON holds them exactly. Every part is
optional, because logs differ: one without features has no rankers. Positions are 1-based.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, Literal

from untilt._core import codec
from untilt._core.arrays import FloatArray, IntArray
from untilt._core.files import replacing
from untilt._core.statistics import Interval
from untilt.auditing.audit import Audit
from untilt.bias.curve import PositionBias
from untilt.clickmodels.quality import Measured
from untilt.errors import FileFormatError, OptionError
from untilt.evaluation.clip_curve import ClipCurve
from untilt.evaluation.results import Estimate, Estimates, SystemComparison, SystemDifference
from untilt.evaluation.uncertainty import CurveCheck
from untilt.facts import Fact, as_fact

KIND, VERSION = "untilt decision", 2
AGAIN = "Give the figures.json that this version of untilt run wrote."
Verdict = Literal["better", "worse", "undecided"]
BiasKind = Literal["measured", "modelled", "given", "assumed"]
_GRAVEST_FIRST = ("serious", "warning", "note")


@dataclass(frozen=True)
class LogSource:
    """Where the log came from; `dropped`: rule that was broken -> rows that were left out."""

    source: str
    rows: int
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Split:
    """What was held out; `sessions` and `queries`: "train", "valid" or "test" -> how many."""

    by: Literal["query", "session"]
    sessions: Mapping[str, int]
    queries: Mapping[str, int]
    notes: tuple[Fact, ...] = ()
    warnings: tuple[Fact, ...] = ()


@dataclass(frozen=True, eq=False)
class UsedBias:
    """The examination curve that corrects the clicks, and how far it can be believed.

    kind : "measured", "modelled" (rests on a model of relevance), "given" or "assumed"
    why : why this estimator or curve
    """

    bias: PositionBias
    kind: BiasKind
    why: Fact | None = None
    warnings: tuple[Fact, ...] = ()

    @property
    def is_assumed(self) -> bool:
        """Whether nothing in the curve was estimated from clicks."""
        return self.kind == "assumed" or (self.kind == "given" and self.bias.is_known)


@dataclass(frozen=True)
class TrainingPlan:
    """What is trained; `warnings` say what was left out for lack of time."""

    method: tuple[str, ...]
    trees: int
    warnings: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A trained ranker: its name in figures, its file, and its value on the validation part."""

    method: str
    name: str
    note: str
    file: str
    estimate: Estimate
    within_noise: bool


@dataclass(frozen=True)
class Training:
    """All candidates; `chosen` is the name of the best on the validation part, `clip` that used."""

    candidates: tuple[Candidate, ...] = ()
    chosen: str | None = None
    clip: float | None = None
    warnings: tuple[Fact, ...] = ()

    @property
    def best(self) -> Candidate | None:
        """The chosen candidate."""
        return next((each for each in self.candidates if each.name == self.chosen), None)


@dataclass(frozen=True)
class ClickModelFigures:
    """How well one click model predicts held-out clicks."""

    model: str
    log_likelihood: Measured
    perplexity: Measured
    conditional_perplexity: Measured


@dataclass(frozen=True)
class ClickModels:
    """Click models on held-out sessions, and what follows from them."""

    models: tuple[ClickModelFigures, ...] = ()
    notes: tuple[Fact, ...] = ()


@dataclass(frozen=True, eq=False)
class NewPositions:
    """(K,) average new position of what stood at each old position, with interval ends."""

    position: IntArray
    value: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class MovedDocument:
    """A document of one query: where it stood on average, and where the new ranker puts it.

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

    `change` is the sum over documents of how much 1/log2(1 + position) changes.
    """

    query: str
    documents: tuple[MovedDocument, ...]
    sessions: int | None = None
    change: float | None = None


@dataclass(frozen=True, eq=False)
class PairBias:
    """t+ (clicked) and t- (not clicked) by position, as pairwise debiasing learned them."""

    plus: FloatArray
    minus: FloatArray
    rounds: int


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Orders of documents on sessions that played no part in learning or choosing.

    Parameters
    ----------
    chosen : the system that the answer is about
    estimates, comparison : values, and differences to the logged order
    evaluator, scale, warnings : of the estimates
    check : whether the log's own clicks fit the examination curve
    to_raw : the chosen system minus the same learner on raw clicks
    clip, clip_curve : the clip used, and the estimate of the chosen system at other ones
    new_positions : system -> average new position of what stood at each old position (Figure 1 of
        [hu2019unbiased]_)
    changed : queries whose order changes most, the largest change first
    importances, importance_of : feature -> share, the largest first; what is shared out
    pair_bias : t+ and t- of pairwise debiasing (Figure 2 of the same)
    """

    chosen: str
    estimates: tuple[Estimate, ...]
    comparison: SystemComparison
    evaluator: str
    scale: Fact
    warnings: tuple[Fact, ...] = ()
    check: CurveCheck | None = None
    to_raw: SystemDifference | None = None
    clip: float | None = None
    clip_curve: ClipCurve | None = None
    new_positions: Mapping[str, NewPositions] = field(default_factory=dict)
    changed: tuple[ChangedQuery, ...] = ()
    importances: Mapping[str, float] = field(default_factory=dict)
    importance_of: str = ""
    pair_bias: PairBias | None = None

    @classmethod
    def of(
        cls, estimates: Estimates, chosen: str, *, baseline: str | None = None, **more: Any
    ) -> "HeldOut":
        """From `untilt.estimate`; `baseline` is the logged order, the first where not given."""
        own = {"warnings": estimates.warnings, "check": estimates.check}
        return cls(
            chosen=estimates[chosen].system,
            estimates=estimates.entries,
            comparison=estimates.compare(baseline),
            evaluator=estimates.evaluator,
            scale=estimates.scale,
            **{**own, **more},
        )

    def __getitem__(self, system: str) -> Estimate:
        return next(each for each in self.estimates if each.system == system)


@dataclass(frozen=True)
class Answer:
    """The new order against the logged one, estimated on the same sessions.

    `verdict` is what the interval of the difference says; see `verdict_of`.
    """

    new: Estimate
    shown: Estimate
    difference: SystemDifference
    verdict: Verdict
    higher_is_better: bool
    recommendation: Fact


@dataclass(frozen=True)
class StepTime:
    """One step of the computation; `resumed`: an earlier run had done it."""

    name: str
    seconds: float
    resumed: bool = False


@dataclass(frozen=True)
class Provenance:
    """Enough to do it again. `versions`: of packages; `options`: as text; `sizes`: of the parts."""

    command: str = ""
    finished: str = ""
    seed: int | None = None
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[StepTime, ...] = ()


@dataclass(frozen=True, eq=False)
class Decision:
    """The results of all steps. What is None or empty is left out of the page.

    Parameters
    ----------
    title : of the page, such as the log's name
    source, audit, split, bias, plan, training, click_models, held_out : results of the steps
    provenance : how it was computed
    further_warnings : of your own, added to those of the parts
    """

    title: str
    source: LogSource | None = None
    audit: Audit | None = None
    split: Split | None = None
    bias: UsedBias | None = None
    plan: TrainingPlan | None = None
    training: Training | None = None
    click_models: ClickModels | None = None
    held_out: HeldOut | None = None
    provenance: Provenance | None = None
    further_warnings: tuple[str, ...] = ()
    json_properties: ClassVar[tuple[str, ...]] = ("answer", "no_answer", "notes", "warnings")

    @property
    def answer(self) -> Answer | None:
        """The chosen system against the logged order; None where nothing was compared."""
        part = self.held_out
        if part is None:
            return None
        difference, better = part.comparison[part.chosen], part.comparison.higher_is_better
        verdict = verdict_of(difference.interval, higher_is_better=better)
        return Answer(
            new=part[part.chosen],
            shown=part[part.comparison.baseline],
            difference=difference,
            verdict=verdict,
            higher_is_better=better,
            recommendation=self._recommendation(verdict, difference),
        )

    def _recommendation(self, verdict: Verdict, difference: SystemDifference) -> Fact:
        kind = "given" if self.bias is None else self.bias.kind
        check = self.held_out.check if self.held_out else None
        if kind == "assumed":
            return Fact("run.measure-bias-first")
        if check is not None and not check.fits:
            return Fact("run.find-misfit-first")
        if verdict == "better":
            return Fact("run.try-it" if kind == "measured" else "run.try-if-curve-right")
        if verdict == "worse":
            return Fact("run.keep-order", shown=difference.baseline)
        if 0 < difference.more_sessions < float("inf"):
            return Fact("run.collect-sessions", sessions=difference.more_sessions)
        return Fact("run.do-not-decide")

    @property
    def no_answer(self) -> Fact | None:
        """Why there is no answer; None where there is one."""
        if self.held_out is not None:
            return None
        if self.training is not None and self.training.warnings:
            return Fact("run.nothing-trained", why=self.training.warnings[0])
        return Fact("run.nothing-compared")

    @property
    def notes(self) -> tuple[str, ...]:
        """What speaks for and against the answer."""
        answer, part = self.answer, self.held_out
        if answer is None or part is None:
            return ()
        notes: list[str] = [] if part.check is None else [str(part.check)]
        raw = part.to_raw
        if raw is not None:
            ends = {"low": raw.interval.low, "high": raw.interval.high}
            metric = part.comparison.metric
            notes.append(
                Fact("run.against-raw-clicks", difference=raw.value, metric=metric, **ends)
            )
        if answer.verdict == "undecided" and not isfinite(answer.difference.more_sessions):
            notes.append(Fact("run.sessions-not-enough"))
        return tuple(notes)

    @property
    def warnings(self) -> tuple[Fact, ...]:
        """Every warning of every step, the gravest first, none twice."""
        told: list[str] = []
        for part in (self.bias, self.held_out, self.split, self.training, self.plan):
            told += part.warnings if part is not None else ()
        if self.held_out is not None:
            chosen = self.held_out[self.held_out.chosen]
            told += [
                Fact("run.of-system", system=chosen.system, warning=each)
                for each in chosen.warnings
            ]
        told += [*(self.audit.warnings if self.audit else ()), *self.further_warnings]
        facts = [as_fact(each) for each in dict.fromkeys(told)]
        return tuple(sorted(facts, key=lambda each: _GRAVEST_FIRST.index(each.severity)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with a checksum."""
        return codec.sealed(self, kind=KIND, version=VERSION)

    @classmethod
    def from_dict(cls, plain: Any, *, where: str = "figures") -> "Decision":
        """What `to_dict` wrote, with types, names and checksum checked."""
        if isinstance(plain, dict) and plain.get("format") == KIND:
            raise FileFormatError(
                f"{where} holds the figures of a report in the format of untilt 0.1, which this "
                "version cannot show. Start `untilt run` again with the same folder: trained "
                "rankers are kept."
            )
        return codec.unsealed(
            plain, cls, kind=KIND, version=VERSION, where=where, again=AGAIN, strict=True
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write JSON (`figures.json`), whole or not at all."""
        codec.write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Decision":
        """What `save` wrote."""
        if not Path(path).is_file():
            raise OptionError(f"there is no file {os.fspath(path)}. {AGAIN}")
        return cls.from_dict(codec.read_file(path, again=AGAIN), where=Path(path).name)


def verdict_of(interval: Interval, *, higher_is_better: bool = True) -> Verdict:
    """ "better" or "worse" where the interval of a difference leaves out 0, else "undecided".

    >>> verdict_of(Interval(0.1, 0.3)), verdict_of(Interval(-0.1, 0.5))
    ('better', 'undecided')
    """
    if interval.low > 0:
        return "better" if higher_is_better else "worse"
    if interval.high < 0:
        return "worse" if higher_is_better else "better"
    return "undecided"


def write_report(data: Decision, path: str | os.PathLike[str]) -> Path:
    """Write one HTML file that opens offline; whole or not at all. Returns its path."""
    from untilt.report.page.page import page

    with replacing(path) as temporary:
        temporary.write_text(page(data), encoding="utf-8")
    return Path(path)
