"""What each step of a run knows: small frozen classes around the results of the other packages.

A step returns one of these (or an `Audit`), its file holds it, and the page renders it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal

from untilt._core.arrays import FloatArray, IntArray, check_same_shape
from untilt._core.portable import Portable
from untilt._core.statistics import Interval
from untilt.bias.curve import PositionBias
from untilt.clickmodels.compare import Measured
from untilt.errors import OptionError
from untilt.evaluation.clip_curve import ClipCurve
from untilt.evaluation.labels.estimate import LabelEstimate, LabelEstimates
from untilt.evaluation.null_tests import NullTests
from untilt.evaluation.pool import Among
from untilt.evaluation.propensities import Balance
from untilt.evaluation.results import Estimate, Estimates, SystemComparison, SystemDifference
from untilt.evaluation.sensitivity import Sensitivity
from untilt.evaluation.step import SafeStep
from untilt.evaluation.uncertainty import CurveCheck, Support, support_of
from untilt.facts import Fact, note, warning

WITHOUT_QUERY = note(
    "run.without-query",
    "Without query {query}, which favours it most ({share:.1%} of the sessions): {value:+.4f} "
    "[{low:+.4f}, {high:+.4f}]. The verdict is that of the other queries.",
)
JUDGED_PART = warning(
    "run.judged-part",
    "Judged in the {queries:,} of {of:,} queries whose lists vary ({share:.0%} of the sessions). "
    "The other queries would add {untested:.0%} of the difference, but do not show how far "
    "people read.",
)

Verdict = Literal["better", "worse", "undecided", "cannot tell"]
BiasKind = Literal[
    "experiment", "randomised", "in turn", "versions", "harvested", "modelled", "given", "assumed",
    "measured", "propensities", "labels",
]  # fmt: skip


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


@dataclass(frozen=True)
class LogSource:
    """Where the log came from; `dropped`: rule that was broken -> rows that were left out.

    `begins`: where it is split by time, when the parts to choose by and to judge by begin.
    `notes` say how it was understood, where there was something to understand. `turnover`: that of
    the log, which the kept copy has no times to tell from.
    """

    source: str
    rows: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    begins: tuple[str, ...] = ()
    notes: tuple[Fact, ...] = ()
    turnover: float | None = None


@dataclass(frozen=True)
class Split:
    """What was held out; `sessions` and `queries`: "train", "valid" or "test" -> how many.

    With several `folds` these are "fold 1", "fold 2", ...: each is judged by rankers that were
    trained on the others, so that all queries count.
    """

    by: Literal["query", "session", "time"]
    sessions: Mapping[str, int]
    queries: Mapping[str, int]
    notes: tuple[Fact, ...] = ()
    warnings: tuple[Fact, ...] = ()
    folds: int = 1


@dataclass(frozen=True, eq=False)
class UsedBias:
    """The examination curve that corrects the clicks, and how far it can be believed.

    kind : what the curve rests on: an "experiment"; documents that moved because "randomised"
        rankers shared the traffic, lists changed "in turn", unnamed "versions" of them exist, or
        for reasons unknown ("harvested"); a model of relevance ("modelled"); or it was "given", or
        "assumed". Runs of untilt 0.2 called the first five "measured"
    why : why this estimator or curve
    sessions : which sessions it was estimated on; None where it was not estimated
    context : whether contexts are read differently; None where none was named
    explains_trust : whether it is a curve of trust that the clicks of better and of weaker
        documents agree with
    """

    bias: PositionBias
    kind: BiasKind
    why: Fact | None = None
    warnings: tuple[Fact, ...] = ()
    sessions: Fact | None = None
    context: Fact | None = None
    explains_trust: bool = False

    @property
    def asked_for(self) -> bool:
        """Whether somebody named this curve or its estimator."""
        named = ("run.bias-asked-for", "run.bias-given")
        return self.kind == "given" or (
            self.why is not None and any(self.why.part(code) is not None for code in named)
        )

    @property
    def is_assumed(self) -> bool:
        """Whether nothing in the curve was estimated from clicks."""
        return self.kind == "assumed" or (self.kind == "given" and self.bias.is_known)


@dataclass(frozen=True)
class TrainingPlan:
    """What is trained; `warnings` say what was left out for lack of time.

    `trees` "auto" means as many as queries held out of each training choose.
    """

    method: tuple[str, ...]
    trees: int | Literal["auto"]
    warnings: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class TrainedCandidate:
    """A candidate: its name in figures, the file of its ranker, its value where it was chosen.

    `more_files` are the rankers of the folds after the first. `within_noise` says that clicks
    cannot tell it from the chosen one.
    """

    method: str
    name: str
    note: str
    file: str
    estimate: Estimate
    within_noise: bool
    more_files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for file in self.files:
            if PurePath(file).name != file:
                raise OptionError(f"file must be the name of a file, no path. Got {file!r}.")

    @property
    def files(self) -> tuple[str, ...]:
        """The file of each fold's ranker; one where there are no folds."""
        return (self.file, *self.more_files)


@dataclass(frozen=True)
class Training:
    """All candidates, and the one that was chosen.

    Parameters
    ----------
    chosen : the name of the chosen candidate
    clip : the clip that they were compared with
    default : the candidate that is kept unless another is better by two standard errors
    comparison : paired differences to the default; None where it is alone
    why : why this one was chosen
    by_fold : for each fold, the name of the candidate that the other folds choose
    """

    candidates: tuple[TrainedCandidate, ...] = ()
    chosen: str | None = None
    clip: float | None = None
    warnings: tuple[Fact, ...] = ()
    default: str | None = None
    comparison: SystemComparison | None = None
    why: Fact | None = None
    by_fold: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = [each.name for each in self.candidates]
        if (self.best is None) != (self.chosen is None):
            raise OptionError(f"the chosen {self.chosen!r} is not one of the candidates.")
        for name in (*self.by_fold, *(() if self.default is None else (self.default,))):
            if name not in known:
                raise OptionError(f"{name!r} is not one of the candidates: {', '.join(known)}.")

    @property
    def best(self) -> TrainedCandidate | None:
        """The chosen candidate."""
        return next((each for each in self.candidates if each.name == self.chosen), None)


@dataclass(frozen=True)
class TreeValues:
    """A value on held-out queries by the number of trees; `best` of them were taken."""

    trees: tuple[int, ...]
    values: tuple[float, ...]
    best: int

    def __post_init__(self) -> None:
        if len(self.trees) != len(self.values):
            raise OptionError(
                f"there must be a value for each number of trees. Got {len(self.values)} values "
                f"for {len(self.trees)} numbers."
            )


@dataclass(frozen=True)
class Learned:
    """What the stacked learner saw in the log: see `untilt.rankers.stacked.ranker.AutoChoice`.

    Parameters
    ----------
    reason : what it learned from, in a sentence
    weights : share of each part in the score
    trees : of each part, with the held-out value by the number of trees
    stacking : what held-out clicks say of the parts
    support : candidates that were shown and that never were
    curve : whether the curve is as steep as clicks on documents that moved say
    """

    reason: Fact
    weights: Mapping[str, float]
    trees: Mapping[str, TreeValues] = field(default_factory=dict)
    stacking: Mapping[str, float] = field(default_factory=dict)
    support: Mapping[str, float] = field(default_factory=dict)
    curve: Fact | None = None


@dataclass(frozen=True)
class Shipped:
    """The candidate of a run, `candidate.untilt`: what it was trained on, what figures are of.

    `refit` means that it was trained again on all queries; else it is the one that was judged.
    `learned` is what a learner of many parts saw.
    """

    method: str
    refit: bool
    queries: int
    sessions: int
    note: Fact | None = None
    learned: Learned | None = None


@dataclass(frozen=True)
class ShippedFile:
    """What `ranker.untilt` holds: the step w towards the candidate; 0 for no such file."""

    w: float


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
class NewPositions(Portable):
    """(K,) average new position of what stood at each old position, with interval ends."""

    position: IntArray
    value: FloatArray
    low: FloatArray
    high: FloatArray

    def __post_init__(self) -> None:
        check_same_shape(self, "position", "value", "low", "high")


@dataclass(frozen=True)
class MovedDocument:
    """A document of one query: where it stood and where the new ranker puts it, on average.

    `old_position` is None for a document nobody was shown. `label`: a human judgement, if any.
    """

    document: str
    old_position: float | None
    new_position: float
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
class PairBias(Portable):
    """t+ (clicked) and t- (not clicked) by position, as pairwise debiasing learned them."""

    plus: FloatArray
    minus: FloatArray
    rounds: int

    def __post_init__(self) -> None:
        check_same_shape(self, "plus", "minus")


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Orders of documents on sessions that played no part in learning or choosing.

    Parameters
    ----------
    chosen : the system that the answer is about
    estimates, comparison : values, and differences to the logged order
    evaluator, scale, baseline, warnings : of the estimates; `baseline` says which sessions count
    check : whether the log's own clicks fit the examination curve
    support : the evidence behind the chosen system's difference to the logged order
    sensitivity : what would flip the chosen system's difference to the logged order
    null_tests : whether something without a difference comes out with one here
    to_raw : the chosen system minus the same learner on raw clicks
    clip, clip_curve : the clip used, and the estimate of the chosen system at other ones
    new_positions : system -> average new position of what stood at each old position (Figure 1 of
        [hu2019unbiased]_)
    changed : queries whose order changes most, the largest change first
    importances, importance_of : feature -> share, the largest first; what is shared out
    pair_bias : t+ and t- of pairwise debiasing (Figure 2 of the same)
    balance : whether logged propensities agree with the log, where values rest on them
    among : what the systems order: each shown list, or more
    labels : the logged order and the chosen system by a sample of grades; None without grades
    step : how far to go from the old order to the chosen system; None for orders of documents by
        their own clicks
    """

    chosen: str
    estimates: tuple[Estimate, ...]
    comparison: SystemComparison
    evaluator: str
    scale: Fact
    baseline: Fact | None = None
    warnings: tuple[Fact, ...] = ()
    check: CurveCheck | None = None
    support: Support | None = None
    null_tests: NullTests | None = None
    to_raw: SystemDifference | None = None
    clip: float | None = None
    clip_curve: ClipCurve | None = None
    new_positions: Mapping[str, NewPositions] = field(default_factory=dict)
    changed: tuple[ChangedQuery, ...] = ()
    importances: Mapping[str, float] = field(default_factory=dict)
    importance_of: str = ""
    pair_bias: PairBias | None = None
    sensitivity: Sensitivity | None = None
    balance: Balance | None = None
    among: Among = "list"
    step: SafeStep | None = None
    labels: LabelEstimates | None = None

    def __post_init__(self) -> None:
        known = [each.system for each in self.estimates]
        compared = [self.comparison.baseline, *(each.system for each in self.comparison)]
        for name in (self.chosen, *compared):
            if name not in known:
                raise OptionError(f"{name!r} has no estimate. There are: {', '.join(known)}.")

    @classmethod
    def of(
        cls, estimates: Estimates, chosen: str, *, baseline: str | None = None, **more: Any
    ) -> "HeldOut":
        """From `untilt.estimate`; `baseline` is the logged order, the first where not given."""
        comparison = estimates.compare(baseline)
        own = {
            "warnings": estimates.warnings,
            "check": estimates.check if estimates.balance is None else None,
            "balance": estimates.balance,
            "support": support_of(estimates, chosen, comparison.baseline),
        }
        return cls(
            chosen=estimates[chosen].system, estimates=estimates.entries, comparison=comparison,
            evaluator=estimates.evaluator, scale=estimates.scale, baseline=estimates.baseline,
            among=estimates.among, **{**own, **more},
        )  # fmt: skip

    def __getitem__(self, system: str) -> Estimate:
        return next(each for each in self.estimates if each.system == system)

    @property
    def verdict(self) -> Verdict:
        """What intervals say of all queries but the one that speaks most for the answer.

        So one query makes no verdict, and one that speaks more for an answer takes none away.
        """
        rest = () if self.support is None else self.support.rest
        intervals = [each.interval for each in rest] or [self.comparison[self.chosen].interval]
        better = self.comparison.higher_is_better
        found = {verdict_of(each, higher_is_better=better) for each in intervals}
        return found.pop() if len(found) == 1 else "undecided"

    @property
    def by_labels(self) -> LabelEstimate | None:
        """The chosen system minus the logged order by grades, for queries like these."""
        if self.labels is None:
            return None
        found = self.labels[f"{self.chosen} - {self.comparison.baseline}"]
        return None if found.interval is None else found

    @property
    def told(self) -> tuple[Fact, ...]:
        """What the verdict is about, and what one query does to it."""
        rest = None if self.support is None else min(
            self.support.rest, key=lambda each: abs(each.value), default=None
        )  # fmt: skip
        if rest is None:
            return ()
        ends = {"low": rest.interval.low, "high": rest.interval.high}
        return (WITHOUT_QUERY(query=rest.query, share=rest.share, value=rest.value, **ends),)


@dataclass(frozen=True)
class StepTime:
    """One step of the computation; `resumed`: by an earlier run; `of`: part of that step."""

    name: str
    seconds: float
    resumed: bool = False
    of: str = ""


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
