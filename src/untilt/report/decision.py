"""What a run knows, from the log to the answer: the data of one report.

`Decision` holds the results of the steps as they are: an `Audit`, a `PositionBias`, `Estimate`s and
their differences. The page renders these very classes, and JSON holds them exactly. Every part is
optional, because logs differ: one without features has no rankers. Positions are 1-based.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from untilt._core import codec, words
from untilt._core.files import replacing
from untilt._core.statistics import Interval
from untilt.auditing.audit import Audit
from untilt.auditing.sort_keys import outcome
from untilt.errors import FileFormatError, OptionError
from untilt.evaluation.pool import Among
from untilt.evaluation.results import Estimate, SystemDifference
from untilt.evaluation.sensitivity import FIRM_SHARE
from untilt.facts import Fact, as_fact, codes, note, serious, warning
from untilt.report import step_results
from untilt.report.floors import (
    CURVE_ASSUMED,
    LEAKS,
    LEAST_EFFECTIVE_QUERIES,
    below_floors,
    conditions,
    kind_of_evidence,
    least_attention,
    what_to_do,
)
from untilt.report.step_results import Verdict, verdict_of

if TYPE_CHECKING:
    from untilt.views import Section

_TRY = "Try it on a share of the traffic"
_IF_RIGHT = ", if the examination curve is right"
_WITHIN_LISTS = (
    ": let it reorder what the old ranker shows. Do not let it rank all candidates yet: documents "
    "never shown would fill {share:.0%} of its top {top} places."
)
TRY_WITHIN_LISTS = serious("run.try-within-lists", _TRY + _WITHIN_LISTS)
TRY_WITHIN_LISTS_IF_RIGHT = serious("run.try-within-lists", _TRY + _IF_RIGHT + _WITHIN_LISTS)

IF_WITHIN_LISTS = serious("run.if-within-lists", "if it only reorders documents that were shown")()

IF_UNSHOWN_WORTHLESS = serious(
    "run.if-unshown-worthless", "if documents never shown are worth nothing"
)()

TRY_IF_CURVE_RIGHT = note("run.try-if-curve-right", _TRY + _IF_RIGHT + ".")()

KEEP = note("run.keep-order", "Keep the {shown}.")

TRY_IT = note("run.try-it", _TRY + ".")()

SAME_ORDER = note(
    "run.same-order",
    "There is nothing to decide: in every query it has exactly the value of the {shown}, like an "
    "equal order.",
)
COLLECT_SESSIONS = note(
    "run.collect-sessions", "Collect about {sessions:,.0f} more held-out sessions before deciding."
)
NOTHING_TRAINED = serious("run.nothing-trained", "No ranker could be trained. {why}")
CHOICE_BY_FOLD = note(
    "run.choice-by-fold",
    "The folds chose differently ({chosen:all}), so the answer is about such a choice. All folds "
    "together chose {shipped}.",
)
AGAINST_RAW_CLICKS = note(
    "run.against-raw-clicks",
    "Against the same learner on raw clicks: {difference:+.4f} {metric}, interval [{low:+.4f}, "
    "{high:+.4f}].",
)
SESSIONS_NOT_ENOUGH = note(
    "run.sessions-not-enough",
    "More sessions alone will not decide: the uncertainty of the bias is larger than the "
    "difference.",
)()
OF_SYSTEM = warning("run.of-system", "For {system}: {warning}")

NOT_SHIPPED = note("run.not-shipped", "There is no ranker.untilt: the {old} stays.")
SHIPPED_WHOLE = note("run.shipped", "The file ranker.untilt is candidate.untilt.")
SHIPPED_STEP = note(
    "run.shipped-step",
    "The file ranker.untilt goes {w:.0%} of the way from the {old} (by its {rank}) to "
    "candidate.untilt.",
)

LABELS_SAY = note(
    "run.labels-say",
    "By {grades:,} grades of drawn documents: {value:+.4f}, interval [{low:+.4f}, {high:+.4f}], "
    "whatever the examination curve is; all candidates are ranked there.",
)
CLICKS_SAY = note(
    "run.clicks-say",
    "The verdict is that of the grades, which need no examination curve. By clicks: "
    "{value:+.4f} {metric}, interval [{low:+.4f}, {high:+.4f}].",
)
DISAGREE = serious(
    "run.labels-disagree",
    "clicks and grades disagree: by clicks the new order is {clicks}, by {grades:,} grades it is "
    "{labels}, interval [{low:+.4f}, {high:+.4f}]",
)

KIND, VERSION = "untilt decision", 2
FIGURES, PROVENANCE = "figures.json", "provenance.json"  # in the folder of a run
_PROVENANCE_KIND, _PROVENANCE_VERSION = "untilt provenance", 1
AGAIN = "Give the figures.json that this version of untilt run wrote."
_GRAVEST_FIRST = ("serious", "warning", "note")


@dataclass(frozen=True)
class Answer:
    """The new order against the logged one, estimated on the same sessions.

    `verdict` is what the interval of the difference says (see `verdict_of`), or "cannot tell" where
    there are `reasons` against any verdict: evidence below the floors of `untilt.report.floors`, or
    null tests that failed. `condition` is an "if ..." that belongs to every telling of the verdict:
    there is one where most top places would go to documents that nobody was shown, and the answer
    depends on what these are worth. Where the curve rests on something that the log cannot show,
    the verdict is "cannot tell", and `would_be` what it is `condition`; a "better" that stands
    with less of the curve's steepness has an interval from that for `attention` of it on, without
    an end: production that shows higher what is wanted less makes a curve too flat. `by_labels`:
    clicks do not decide, a sample of grades does, and the figures are those of the grades.
    """

    new: Estimate
    shown: Estimate
    difference: SystemDifference
    verdict: Verdict
    higher_is_better: bool
    recommendation: Fact
    reasons: tuple[Fact, ...] = ()
    condition: Fact | None = None
    would_be: Verdict | None = None
    attention: float = 1.0
    by_labels: bool = False


@dataclass(frozen=True, eq=False)
class Decision:
    """The results of all steps. What is None or empty is left out of the page.

    Parameters
    ----------
    title : of the page, such as the log's name
    source, audit, split, bias, plan, training, candidate, click_models, held_out : results of the
        steps; the candidate is the chosen method, trained again
    provenance : how it was computed
    further_warnings : of your own, added to those of the parts
    kept_out : features that know the click, and old ranks, which were therefore not used
    """

    title: str
    source: step_results.LogSource | None = None
    audit: Audit | None = None
    split: step_results.Split | None = None
    bias: step_results.UsedBias | None = None
    plan: step_results.TrainingPlan | None = None
    training: step_results.Training | None = None
    candidate: step_results.Shipped | None = None
    click_models: step_results.ClickModels | None = None
    held_out: step_results.HeldOut | None = None
    provenance: step_results.Provenance | None = None
    further_warnings: tuple[str, ...] = ()
    kept_out: tuple[str, ...] = ()
    json_properties: ClassVar[tuple[str, ...]] = (
        "answer", "no_answer", "notes", "warnings", "ships",
    )  # fmt: skip
    json_renamed: ClassVar[Mapping[str, str]] = {"shipped": "candidate"}

    @property
    def ships(self) -> float:
        """The step from the old order to the candidate that is shipped; 0 keeps the old order.

        Shipped is a step that is better, also if only the kind of evidence forbids the verdict; a
        curve that is assumed must not be the only one under which it is.
        """
        answer, part = self.answer, self.held_out
        if self.candidate is None or answer is None or part is None:
            return 0.0
        if answer.by_labels:
            return float(answer.verdict == "better")
        if part.step is None:  # figures of untilt 0.2, which shipped in any case
            return 1.0
        assumed = [each.code for each in answer.reasons] == [CURVE_ASSUMED.code]
        better = "better" in (answer.verdict, answer.would_be)
        return part.step.w if better or (assumed and part.step.assumed) else 0.0

    @property
    def shipped(self) -> step_results.Shipped | None:
        """The candidate, where it or a step to it is shipped."""
        return self.candidate if self.ships else None

    @property
    def answer(self) -> Answer | None:
        """The chosen system against the logged order; None where nothing was compared.

        Grades decide where clicks do not, and take a verdict away that they contradict.
        """
        found, part = self._by_clicks(), self.held_out
        if found is None or part is None or part.labels is None:
            return found
        told = part.by_labels
        if told is None or told.interval is None or LEAKS.code in codes(found.reasons):
            return found
        labels = verdict_of(told.interval, higher_is_better=found.higher_is_better)
        clicks = found.would_be or found.verdict
        few = told.effective_queries < LEAST_EFFECTIVE_QUERIES
        if labels == "undecided" or few or clicks == labels == found.verdict:
            return found
        if {clicks, labels} == {"better", "worse"}:
            ends = part.labels.ends(told)
            reason = DISAGREE(clicks=clicks, labels=labels, grades=told.grades, **ends)
            reasons = (reason, *found.reasons)
            return replace(
                found, verdict="cannot tell", would_be=None, condition=None, reasons=reasons,
                recommendation=what_to_do(self, reasons) or found.recommendation,
            )  # fmt: skip
        new, shown = (
            replace(each, value=part.labels[name].value * part.labels.share)
            for each, name in (
                (part[part.chosen], part.chosen),
                (found.shown, part.comparison.baseline),
            )
        )
        ends = part.labels.ends(told)
        interval = replace(told.interval, low=ends["low"], high=ends["high"])
        return replace(
            found, new=new, shown=shown, verdict=labels, reasons=(), condition=None, would_be=None,
            attention=1.0, by_labels=True,
            difference=replace(
                found.difference, system=part.chosen, value=ends["value"], interval=interval,
                unshown=None,
            ),
            recommendation=TRY_IT if labels == "better" else KEEP(shown=found.shown.system),
        )  # fmt: skip

    def _by_clicks(self) -> Answer | None:
        part = self.held_out
        if part is None:
            return None
        difference, better = part.comparison[part.chosen], part.comparison.higher_is_better
        reasons = below_floors(self)
        if part.null_tests is not None:
            reasons += part.null_tests.failures(difference)
        verdict: Verdict = part.verdict
        if part.step is not None:
            difference = part.step.difference(difference)
            if part.step.w == 0 and verdict == "better":
                verdict = "undecided"
            if 0 < part.step.w < 1:
                verdict = "better"
        is_part = difference.system != part.chosen
        difference = replace(difference, baseline=self.old_order)
        verdict = "cannot tell" if reasons else verdict
        condition = None if reasons else _condition(difference, part.among)
        attention = 1.0
        would_be = None
        if verdict in ("better", "worse"):
            reasons = conditions(self, better=verdict == "better", is_part=is_part)
        if reasons and verdict != "cannot tell":
            would_be, verdict, condition = verdict, "cannot tell", reasons[0].fields["condition"]
        least = least_attention(self, is_part=is_part)
        if verdict == "better" and least is not None:
            difference = replace(difference, interval=_away_from_0(difference.interval.hull(least)))
            attention = FIRM_SHARE
        new = part[part.chosen]
        if is_part:
            by, interval = difference.value - part.comparison[part.chosen].value, new.interval
            interval = replace(interval, low=interval.low + by, high=interval.high + by)
            new = replace(new, system=difference.system, value=new.value + by, interval=interval)
        return Answer(
            new=new,
            shown=replace(part[part.comparison.baseline], system=self.old_order),
            difference=difference,
            verdict=verdict,
            higher_is_better=better,
            reasons=reasons,
            recommendation=self._recommendation(
                would_be or verdict, difference, reasons, condition
            ),
            condition=condition,
            would_be=would_be,
            attention=attention,
        )

    def _recommendation(
        self,
        verdict: Verdict,
        difference: SystemDifference,
        reasons: tuple[Fact, ...],
        condition: Fact | None,
    ) -> Fact:
        if verdict == "worse":
            return KEEP(shown=difference.baseline)
        first = what_to_do(self, reasons)
        if first is not None:
            return first
        measured = kind_of_evidence(self) not in (None, "given")
        if verdict == "better" and condition is not None and difference.unshown is not None:
            found = difference.unshown
            told = TRY_WITHIN_LISTS if measured else TRY_WITHIN_LISTS_IF_RIGHT
            return told(share=found.share, top=found.top, measured=measured)
        if verdict == "better":
            return TRY_IT if measured else TRY_IF_CURVE_RIGHT
        return _undecided(difference)

    @property
    def best_logged(self) -> str | None:
        """The best of the logged rankers, whose order is the old one; None without several."""
        step = None if self.held_out is None else self.held_out.step
        return step.rankers[0].name if step is not None and step.rankers else None

    @property
    def old_order(self) -> str:
        """What a new ranker is compared with, in words."""
        shown = "" if self.held_out is None else self.held_out.comparison.baseline
        return shown if self.best_logged is None else f"{shown} of {self.best_logged}"

    @property
    def told_of_file(self) -> Fact | None:
        """What `ranker.untilt` is, or that there is none; None where nothing was trained."""
        part, made = self.held_out, self.candidate
        if part is None or made is None or part.step is None:
            return None
        if not self.ships:
            return NOT_SHIPPED(old=self.old_order)
        if self.ships == 1:
            return SHIPPED_WHOLE()
        return SHIPPED_STEP(w=self.ships, old=self.old_order, rank=part.step.old)

    @property
    def no_answer(self) -> Fact | None:
        """Why there is no answer; None where there is one."""
        if self.held_out is not None:
            return None
        if self.training is not None and self.training.warnings:
            return NOTHING_TRAINED(why=self.training.warnings[0])
        return serious("run.nothing-compared", "Nothing could be compared with the logged order.")()

    @property
    def notes(self) -> tuple[str, ...]:
        """What speaks for and against the answer."""
        answer, part = self.answer, self.held_out
        if answer is None or part is None:
            return ()
        notes: list[str] = [*part.told]
        notes += [] if part.check is None else [str(part.check)]
        if self.training is not None and part.chosen != self.training.chosen:
            folds = self.training.by_fold
            chosen = tuple(f"{name} in {folds.count(name)}" for name in dict.fromkeys(folds))
            notes.append(CHOICE_BY_FOLD(chosen=chosen, shipped=self.training.chosen))
        told = part.by_labels
        if told is not None and part.labels is not None:
            notes.append(LABELS_SAY(grades=told.grades, **part.labels.ends(told)))
        if answer.by_labels:
            clicks = part.comparison[part.chosen]
            ends = {"low": clicks.interval.low, "high": clicks.interval.high}
            notes.append(CLICKS_SAY(value=clicks.value, metric=part.comparison.metric, **ends))
        raw = part.to_raw
        if raw is not None:
            ends = {"low": raw.interval.low, "high": raw.interval.high}
            metric = part.comparison.metric
            notes.append(AGAINST_RAW_CLICKS(difference=raw.value, metric=metric, **ends))
        never = not (isfinite(answer.difference.more_sessions) or answer.difference.identical)
        if answer.verdict == "undecided" and never:
            notes.append(SESSIONS_NOT_ENOUGH)
        return tuple(notes)

    @property
    def warnings(self) -> tuple[Fact, ...]:
        """Every warning of every step, the gravest first, none twice or as part of another."""
        told: list[str] = []
        for part in (self.bias, self.held_out, self.split, self.training, self.plan):
            told += part.warnings if part is not None else ()
        read = () if self.source is None else self.source.notes
        told += [each for each in read if each.severity != "note"]
        made = self.candidate
        if made is not None and made.note is not None and not made.refit:
            told.append(made.note)
        if self.held_out is not None:
            told += self._null_warnings(self.held_out)
            chosen = self.held_out[self.held_out.chosen]
            compared = self.held_out.comparison.warnings
            told += [e for e in compared if e.fields.get("system", chosen.system) == chosen.system]
            told += [OF_SYSTEM(system=chosen.system, warning=each) for each in chosen.warnings]
        audited = [e for e in self.audit.warnings if not self._is_met(e)] if self.audit else []
        told += [*(outcome(each, self.kept_out) for each in audited), *self.further_warnings]
        facts = [as_fact(each) for each in dict.fromkeys(told)]
        quoted = {part for each in facts for part in each.fields.values() if isinstance(part, Fact)}
        facts = [each for each in facts if each not in quoted]
        return tuple(sorted(facts, key=lambda each: _GRAVEST_FIRST.index(each.severity)))

    def _is_met(self, warning: Fact) -> bool:
        """Whether the run did what a warning of the audit asks for: a curve for each context."""
        asks = warning.code == "reading.context"
        return asks and self.bias is not None and bool(self.bias.bias.contexts)

    @property
    def leaks_used(self) -> tuple[str, ...]:
        """Features that know the click and were used all the same, because they were named."""
        leaks = () if self.audit is None else self.audit.leaks
        return tuple(each.feature for each in leaks if each.feature not in self.kept_out)

    @staticmethod
    def _null_warnings(part: step_results.HeldOut) -> tuple[Fact, ...]:
        if part.null_tests is None:
            return ()
        better = part.comparison.higher_is_better
        return part.null_tests.warnings(part.comparison[part.chosen], higher_is_better=better)

    def view(self) -> "list[Section]":
        """The answer, and why; the page has more."""
        from untilt.report.page import run_sections

        return run_sections(self)

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
                "version cannot show. Start `untilt run` again with the same folder."
            )
        read = codec.unsealed(
            plain, cls, kind=KIND, version=VERSION, where=where, again=AGAIN, strict=True
        )
        with _fitting_together(where):
            codec.to_plain(read)  # the answer and the warnings, which are made of all parts
        return read

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write JSON (`figures.json`), whole or not at all."""
        codec.write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Decision":
        """What `save` or a run wrote; raises `FileFormatError` for anything else.

        The checksum has no key: it shows damage, not who wrote the figures.
        """
        figures = Path(path)
        if not figures.is_file():
            raise OptionError(f"there is no file {os.fspath(path)}. {AGAIN}")
        plain = codec.read_file(figures, again=AGAIN)
        decision = cls.from_dict(plain, where=figures.name)
        beside = figures.with_name(PROVENANCE)
        if decision.provenance is not None or not beside.is_file():
            return decision
        return replace(decision, provenance=_provenance_of(beside, plain["sha256"]))


@contextmanager
def _fitting_together(where: str) -> Iterator[None]:
    """What figures raise that somebody put together, as a `FileFormatError`."""
    try:
        yield
    except MemoryError:
        raise
    except codec.DO_NOT_FIT as error:
        told = str(error) or type(error).__name__
        raise FileFormatError(f"the figures of {where} do not fit together: {told}") from error


@dataclass(frozen=True)
class _ProvenanceFile:
    """What `provenance.json` holds; `figures` is the checksum of the figures that it is about."""

    figures: str
    provenance: step_results.Provenance


def _provenance_of(path: Path, figures: str) -> step_results.Provenance | None:
    """How these figures were computed; None where the file is about others."""
    again = f"Start `untilt run` again with the same folder, or delete {path.name}."
    read = codec.unsealed(
        codec.read_file(path, again=again), _ProvenanceFile, kind=_PROVENANCE_KIND,
        version=_PROVENANCE_VERSION, where=path.name, again=again, strict=True,
    )  # fmt: skip
    return read.provenance if read.figures == figures else None


def _away_from_0(interval: Interval) -> Interval:
    """The interval without the end that is farther from 0."""
    return replace(interval, **({"high": inf} if interval.low > 0 else {"low": -inf}))


def _condition(difference: SystemDifference, among: Among) -> Fact | None:
    """What a verdict holds for alone, where documents that nobody was shown may turn it."""
    interval = difference.interval
    sign = int(interval.low > 0) - int(interval.high < 0)
    if difference.unshown is None or not difference.unshown.decides(sign):
        return None
    return IF_UNSHOWN_WORTHLESS if among == "candidates" else IF_WITHIN_LISTS


def _undecided(difference: SystemDifference) -> Fact:
    """What to do where clicks cannot tell."""
    if difference.identical:
        return SAME_ORDER(shown=difference.baseline)
    if 0 < difference.more_sessions < float("inf"):
        return COLLECT_SESSIONS(sessions=difference.more_sessions)
    return note("run.do-not-decide", "Do not decide on these figures alone.")()


def write_figures(data: Decision, path: Path) -> None:
    """Write the figures, and beside them in `provenance.json` how they were computed.

    Times, machine and paths are there alone, so that the same log, options and seed give the same
    bytes of figures. `Decision.load` puts both together again.
    """
    plain = replace(data, provenance=None).to_dict()
    codec.write_json(path, plain)
    if data.provenance is not None:
        record = _ProvenanceFile(plain["sha256"], data.provenance)
        sealed = codec.sealed(record, kind=_PROVENANCE_KIND, version=_PROVENANCE_VERSION)
        codec.write_json(path.with_name(PROVENANCE), sealed)


def write_report(data: Decision, path: str | os.PathLike[str]) -> Path:
    """Write one HTML file that opens offline; whole or not at all. Returns its path."""
    from untilt.report.page import page

    with _fitting_together(f"the report on {data.title[:80]!r}"):
        text = page(data)
    return write_page(text, path)


def write_page(text: str, path: str | os.PathLike[str]) -> Path:
    """Write the text of a page, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")
    return Path(path)


def first_sentence(answer: Answer) -> str:
    """Which verdict, and by how much; no figures where there is no verdict."""
    new, shown = words.quoted(answer.new.system), answer.shown.system
    claim = {
        "better": f"The new ranker {new} would have served readers better than the {shown}",
        "worse": f"The new ranker {new} would have served readers worse than the {shown}",
        "undecided": f"The difference between the new ranker {new} and the {shown} may be chance",
        "cannot tell": f"This log cannot tell whether the new ranker {new} is better than the "
        f"{shown}",
    }[answer.would_be or answer.verdict]
    if answer.verdict == "cannot tell" and answer.would_be is None:
        return f"{claim}."
    if answer.condition is not None:
        claim = f"{claim}, {answer.condition}"
    value, interval = answer.difference.value, answer.difference.interval
    decimals = words.decimals_for([interval])
    change = words.number(value, decimals, signed=True)
    sure = f"{interval.level:.0%} interval {words.ends(interval, decimals, signed=True)}"
    if answer.attention < 1:
        sure += f" if at least {answer.attention:.0%} of the curve's steepness is attention"
    metric = f"{words.metric_name(answer.new.metric)} per session"
    if answer.shown.value > 0 and isfinite(value):
        share = f"{value / answer.shown.value:+.1%}".replace("-", words.MINUS)
        return f"{claim}: {share} {metric} ({change}, {sure})."
    return f"{claim}: {change} {metric} ({sure})."
