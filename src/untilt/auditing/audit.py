"""What a log says about position bias, what is wrong with it, and what to do next."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from untilt import catalog
from untilt._core import codec
from untilt._core.portable import Portable
from untilt._core.statistics import check_level
from untilt.auditing import checks
from untilt.auditing.audit_view import sections_of
from untilt.auditing.checks import RelevanceProxy, Versions, relevance_proxy, versions_of
from untilt.auditing.estimators import EstimatorTest, estimator_test
from untilt.auditing.interventions import Interventions, interventions_of
from untilt.auditing.leaks import LEAK, Leak, leak_fact, leaking_features
from untilt.auditing.next_step import (
    UNTIL_THEN,
    Advice,
    NextStep,
    comparable_depth,
    next_step,
)
from untilt.auditing.reading import ReadingTests, reading_tests
from untilt.auditing.sessions import HarvestedTest, SessionTest, harvested_test, session_test
from untilt.auditing.sort_keys import SortKey, kept_out, sort_keys
from untilt.auditing.variation import Assigned, Variation, variation_of
from untilt.bias.curve import NOT_KNOWN, PositionBias
from untilt.bias.em.regression_em import RegressionEM
from untilt.bias.experiments.assignment import baseline_lists
from untilt.bias.harvesting.harvesting import AllPairs
from untilt.bias.log_ratios import FEWEST_QUERIES
from untilt.bias.position_graph import PositionGraph, position_graph
from untilt.data.clicklog import ClickLog
from untilt.data.counts import FEW_CLICKS, ClickRates, position_counts
from untilt.data.limits import check_room
from untilt.data.shown import ImpressionCheck, examine_impressions
from untilt.data.transform import to_evidence, without_features
from untilt.errors import OptionError, UntiltError
from untilt.facts import Fact, note, notes, phrase, positions_text, serious, warning
from untilt.views import Section, View

NO_PRECISION = note(
    "audit.precision",
    "These sessions do not determine the examination of position {position} relative to position "
    "1 (it has the widest {level:.0%} interval of {estimator:method}).",
)

PRECISION = note(
    "audit.precision",
    "These sessions determine the examination of positions 1..{depth} relative to position 1 to "
    "within a factor of {factor:.2f} or better (position {position} has the widest {level:.0%} "
    "interval of {estimator:method}).",
)

_RATIO = "Some positions have little evidence: the ratio of position {position} to position 1 is "
RATIO_NOT_KNOWN = warning("audit.wide-interval", _RATIO + "unknown.")
WIDE_INTERVAL = warning(
    "audit.wide-interval", _RATIO + "known only to within a factor of {factor:.1f}."
)

_CORRELATED = (
    "Position and relevance have a correlation of {correlation:.2f} +- {std_error:.2f} within "
    "queries, by {proxy}: documents shown higher are "
)
_ORDER = notes(
    "audit.order",
    good=_CORRELATED + "more relevant, so click rates fall by more than the bias.",
    inverted=_CORRELATED + "less relevant, so click rates fall by less than the bias.",
    uninformative=_CORRELATED + "hardly more or less relevant than the rest.",
)

NO_PROXY = note("audit.no-proxy", "Relevance cannot be compared with positions: {why}.")
WITHOUT_CLICK = note("audit.without-click", "{share:.1%} of the sessions have no {label}.")
RANKERS = note("audit.rankers", "Lists come from {n} {n:ranker|rankers}: {named:listed}.")
NO_RANKER = note(
    "audit.no-ranker", "The log does not name the ranker of a list (column `ranker`)."
)()
EXPERIMENT = note("audit.experiment", "An experiment changed lists: {changes:and} sessions.")
VERSIONS = note(
    "audit.versions",
    "Features change between impressions: {features:listed}. Rankers learn from the features of "
    "each impression: {documents:,} documents have {versions:,} versions ({each:.1f} each). "
    "Position bias is estimated per document, over all its versions.",
)
ALL_SHOWN = note(
    "audit.all-shown",
    "The log holds shown documents only, so it says nothing about other candidates. A documents "
    "table with all candidates of each query would.",
)()
COVERAGE = note(
    "audit.coverage",
    "{unshown:,} candidates ({share:.1%}) were never shown, in {queries:.0%} of the queries: of a "
    "query's {candidates:g} candidates {shown:g} were shown (medians).",
)
LABEL_NO_CLICK = warning(
    "audit.label-no-click",
    "The label {label:r} is not a click: it has values other than 0 and 1. Position bias is "
    "estimated from clicks.",
)
ALWAYS_CLICKED = warning(
    "audit.always-clicked",
    "Every session has a {label}. Sessions without one may be missing from this log; then all "
    "rates are too high.",
)
POSITIONS_WITHOUT_CLICK = warning(
    "audit.positions-without-click",
    "There are no clicks at {positions:positions}: their examination cannot be estimated.",
)
FEW_CLICKS_SENTENCE = warning(
    "audit.few-clicks", "There are fewer than {fewer_than} clicks at {positions:positions}."
)
SHUFFLE_UNUSABLE = warning(
    "audit.shuffle-unusable",
    "{sessions:,} sessions were shown in random order and cannot be used: {why}",
)
POSITIONS_NEVER_SHOWN = warning(
    "audit.positions-never-shown", "No list shows {positions:positions}."
)
GAPS = warning(
    "audit.gaps",
    "{sessions:,} sessions ({share:.1%}) skip a position: rows may have been lost, or only some "
    "were logged.",
)
DUPLICATES = warning(
    "audit.duplicates",
    "{impressions:,} impressions repeat a document within a session: a click cannot be assigned "
    "to one of the two with certainty.",
)
FEW_QUERIES = warning(
    "audit.few-queries",
    "There are only {queries} queries. Queries are the independent units, so intervals are wide "
    "and may miss how other queries behave.",
)
NO_FEATURES = warning(
    "audit.no-features",
    "There are no features: position bias can be estimated, but no ranker can be trained.",
)()
CONSTANT_FEATURES = warning(
    "audit.constant-features", "Features with a single value: {features:listed}."
)
MISSING_FEATURES = warning(
    "audit.missing-features", "Features that are missing for some documents: {named:listed}."
)
RELEVANCE_DRIFTS = warning(
    "audit.relevance-drifts",
    "A document's relevance changes with its position: by {drift:+.1%} +- {std_error:.1%} per "
    "position, according to {features:listed}. So its clicks at several positions differ by more "
    "than examination, and a curve from them is too {slope}.",
)
FEATURES_USELESS = serious(
    "audit.features-useless",
    "The features do not predict clicks within a position, so {estimator:method} would attribute "
    "nearly all of the fall of the click rate to position bias. A swap experiment would decide.",
)
FEW_CANDIDATES_SHOWN = warning(
    "audit.few-candidates-shown",
    "Most candidates were never shown. The clicks describe the documents at the top; a ranker "
    "trained on them alone can order the rest worse than production does.",
)()
RATES_MISLEAD = warning(
    "audit.rates-mislead",
    "The click rate by position overstates position bias here, because better documents are "
    "shown higher.",
)()
ONE_POSITION = note(
    "audit.one-position", "There is nothing to compare: every list has position 1 alone."
)()
NOT_IDENTIFIED_DRIFT = warning(
    "audit.not-identified-drift",
    "Not without a model of relevance: documents connect the positions, but they are shown "
    "higher when their features make them more (or less) relevant.",
)()
IDENTIFIED = note(
    "audit.identified",
    "Yes: documents shown at several positions connect positions 1..{depth}, so examination can "
    "be estimated without a model of relevance.",
)
SWAPS_THAT_JOIN = note(
    "audit.swaps-that-join",
    "Swaps that would connect them: positions {swaps}. A swapped session loses at most "
    "{most_lost:.2g} clicks on average.",
)
ON_COMMAND_LINE = note("audit.on-command-line", "On the command line: `{command}`")
CLICKS_FIRST = warning(
    "audit.clicks-first",
    "Estimators need clicks, and the label {label:r} has values other than 0 and 1: they cannot "
    "be fitted until a click column is the label ⟦(log.with_label)|(--label NAME)⟧.",
)
EXPERIMENT_TESTED = note("audit.experiment-tested", "The experiment was tested: {parts:clauses}.")
EXPERIMENT_FAILED = serious(
    "audit.experiment-failed",
    "Sessions named {kind} do not look like it: {parts:clauses}. They are not used as an "
    "experiment until their names match the lists.",
)
EXPERIMENT_DOUBT = warning("audit.experiment-doubt", "About the experiment: {doubt}")
POSITIONS_APART = warning(
    "audit.positions-apart",
    "Not for {positions:positions}: no chain of documents shown at several positions connects "
    "them to position 1. Groups that can be compared within themselves: {groups:clauses}. "
    "Between groups, only a model of relevance can compare.",
)
BELIEVES = note("audit.believes", "It assumes that {belief}.")
LEVELS_APART = warning(
    "audit.levels-apart",
    "Not for {positions:positions}: documents move there only in sessions that leave out other "
    "places (an advertisement above them, for example). Such sessions may click less for other "
    "reasons, and the log cannot separate these from examination.",
)
TOO_FEW_CLICKS = warning(
    "audit.too-few-clicks",
    "Not for {positions:positions}: documents connect all positions, but have too few clicks "
    "there for a ratio to position 1. More sessions may help.",
)
IDENTIFIED_WHERE_SHOWN = note(
    "audit.identified-where-shown",
    "Yes, for the positions with results: documents shown at several of them connect them all. "
    "The curve leaves out {positions:positions}, where the page shows no results or too few to "
    "compare.",
)

WIDE = 1.5  # an interval that reaches beyond a factor of this is called wide
INFORMATIVE = 0.1  # correlation of position and relevance from which the order is informative
BYTES_PER_ROW = 96  # of working memory, measured on lists that are all different


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Portable, View):
    """Everything that `audit` found. `print(audit)` is readable; `to_dict()` is for machines.

    Parameters
    ----------
    label_name, is_binary : the feedback looked at, and whether it is 0 or 1
    size : counts of everything
    click_rates : by position, with intervals clustered by query
    share_without_click : of the sessions
    positions_without_click, positions_never_shown : of 1..K
    rankers : name -> sessions
    interventions : swaps and shuffles, by the names of the rankers
    constant_features, missing_features : names; the latter with the share that is missing
    duplicate_impressions : a document that its session already shows higher up
    sessions_with_gaps : sessions that skip a position
    coverage : how much of the candidates was shown
    relevance : correlation of position and a proxy of relevance
    graph : which positions share documents, and how many
    evidence : a curve of `AllPairs` over the positions that can be compared without a model, to
        see how sure the log is; None where there are none, or the label is no click
    shown : whether the log holds what was shown, or little but clicks
    versions : what changes from impression to impression; None where nothing does
    leaks : features that know the click, with the impressions that show it
    sort_keys : features that sort the lists: old ranks and old scores
    reading : whether people read as the position-based model says; None where the log does not
        hold what was shown
    variation : why positions vary; None where the log does not hold what was shown
    sessions : whether production shows documents to the sessions that want them; None without an
        experiment, whose curve the test needs
    harvested : whether an experiment agrees with a curve of production's lists; None without one
    estimators : whether estimators agree about the curve; None with an experiment, or without a
        curve
    left_out : the deep positions without evidence that were not looked at
    """

    label_name: str
    is_binary: bool
    size: checks.LogSize
    click_rates: ClickRates
    share_without_click: float
    positions_without_click: tuple[int, ...]
    positions_never_shown: tuple[int, ...]
    rankers: Mapping[str, int]
    interventions: Interventions
    constant_features: tuple[str, ...]
    missing_features: Mapping[str, float]
    duplicate_impressions: int
    sessions_with_gaps: int
    coverage: checks.Coverage
    relevance: RelevanceProxy
    graph: PositionGraph
    evidence: PositionBias | None
    versions: Versions | None = None
    leaks: tuple[Leak, ...] = ()
    sort_keys: tuple[SortKey, ...] = ()
    shown: ImpressionCheck | None = None
    reading: ReadingTests | None = None
    variation: Variation | None = None
    sessions: SessionTest | None = None
    harvested: HarvestedTest | None = None
    estimators: EstimatorTest | None = None
    left_out: Fact | None = None
    json_renamed: ClassVar[Mapping[str, str]] = {"position_features": ""}
    json_properties: ClassVar[tuple[str, ...]] = (
        "is_identified", "comparable", "not_comparable", "old_score", "next_step", "advice",
        "verdict", "notes", "warnings",
    )  # fmt: skip

    @cached_property
    def next_step(self) -> NextStep:
        """What to do: the one recommendation, with its command and its reasons."""
        return next_step(self)

    def kept_out(self, named: Collection[str] = ()) -> tuple[str, ...]:
        """The features that a run keeps out of training: those that know the click, old ranks."""
        return kept_out(self.leaks, self.sort_keys, named)

    @property
    def old_score(self) -> str | None:
        """The score that production sorts by, where it is a feature of the log."""
        return next((each.feature for each in self.sort_keys if each.kind == "score"), None)

    @property
    def advice(self) -> Advice:
        """The estimator that `bias="auto"` takes, and why."""
        return self.next_step.advice

    @property
    def is_identified(self) -> bool:
        """Whether all positions with results can be compared without a model of relevance."""
        return not self.not_comparable and not self.drifts

    @property
    def drifts(self) -> bool:
        """Whether documents stand higher when changing features make them better, or worse.

        Their clicks at several positions then differ by more than examination. Lists that an
        experiment changed are right all the same.
        """
        return self.versions is not None and self.versions.drifts and not _experiments(self)

    @property
    def comparable(self) -> tuple[int, ...]:
        """Positions that can be compared with position 1 without a model of relevance."""
        used = self.graph.positions
        parts = self.graph.clicked_components
        joined = next((part for part in parts if used[0] in part), ())
        return tuple(k for k in used if k in joined and k <= self.joined_depth)

    @property
    def joined_depth(self) -> int:
        """Positions 1..n can be told apart from levels of sessions; see `Variation`."""
        if self.variation is None or self.interventions.is_used:
            return self.graph.depth
        return self.variation.joined_depth

    @property
    def not_comparable(self) -> tuple[int, ...]:
        """Positions that were shown and cannot be compared with position 1 without a model."""
        return tuple(sorted(set(self.graph.positions) - set(self.comparable)))

    @property
    def notes(self) -> tuple[Fact, ...]:
        """What is worth knowing, neither good nor bad."""
        return tuple(_notes(self))

    @property
    def warnings(self) -> tuple[Fact, ...]:
        """What can mislead whoever learns from this log."""
        return (
            *_about_clicks(self),
            *_about_experiments(self),
            *(() if self.reading is None else self.reading.facts),
            *_about_variation(self),
            *_about_lists(self),
            *_about_features(self),
            *_about_evidence(self),
        )

    @property
    def verdict(self) -> Fact:
        """Whether this log identifies position bias; its `parts` say where, and how precisely."""
        return note("audit.verdict", "{parts:sentences}")(parts=tuple(_verdict(self)))

    @property
    def next_steps(self) -> tuple[Fact, ...]:
        """The estimator to use, why, what it believes, and how to call it."""
        return tuple(_next_steps(self))

    def to_dict(self, *, said: Callable[[str], str] = str) -> dict[str, Any]:
        """For JSON: the fields by name, and the properties that people look for."""
        plain: dict[str, Any] = codec.to_plain(self, exact=False, said=said)
        return plain

    def view(self) -> list[Section]:
        """What to do, and what it rests on."""
        return sections_of(self)


def audit(
    log: ClickLog,
    *,
    level: float = 0.95,
    assigned: Assigned = "unknown",
    old_score: str | None = None,
    depth: int | None = None,
) -> Audit:
    """Look at a log before learning from it.

    Counts, click rates with intervals, what is odd, whether documents shown at several positions
    join all positions (then examination can be measured without a model of relevance),
    and which estimator to use. Only sums over equal lists are used: a collapsed log gives the same
    audit. `assigned` "random" says that chance drew the ranker of each session, as in an A/B test,
    "other" that something else did. `old_score` names the feature that production sorts by. `depth`
    is the last position to look at; without it the last one with 30 clicks, and at least 20.

    >>> from untilt.simulation.simulate import simulate
    >>> from untilt.simulation.synthetic import make_judged
    >>> found = audit(simulate(make_judged(200), "swap", n_sessions=20_000).log)
    >>> found.is_identified, found.advice.estimator
    (True, 'PivotSwap')
    """
    _check(log)
    check_level(level)
    coverage = checks.coverage(log)
    log, left_out = to_evidence(log, depth)
    clicks = log if log.is_binary else log.with_label((log.label > 0).astype(np.float64))
    done, clicks = interventions_of(clicks), clicks.without_versions()
    cells = position_counts(clicks)
    graph = position_graph(cells)
    rates = log.ctr_by_position(level)
    leaks = leaking_features(log)
    keys = sort_keys(log, old_score)
    dishonest = kept_out(leaks, keys)
    honest = without_features(log, dishonest)
    versions = versions_of(honest)
    drifts = versions is not None and versions.drifts
    shown = examine_impressions(log)
    variation = None if shown.refusal else variation_of(clicks, assigned)
    reach = comparable_depth(graph)
    if variation is not None and not done.is_used:
        reach = min(reach, variation.joined_depth)
    several = sum(k <= reach for k in graph.positions) > 1 and not drifts and variation is not None
    evidence = AllPairs(depth=reach, level=level).fit(clicks).bias_ if several else None
    found = Audit(
        label_name=log.label_name,
        is_binary=log.is_binary,
        size=checks.log_size(log),
        click_rates=rates,
        share_without_click=checks.share_without_click(log),
        positions_without_click=_positions(rates, (rates.clicks == 0) & (rates.impressions > 0)),
        positions_never_shown=_positions(rates, rates.impressions == 0),
        rankers=checks.sessions_by_ranker(log),
        interventions=done,
        constant_features=checks.constant_features(log),
        missing_features=checks.missing_features(log),
        duplicate_impressions=checks.duplicate_impressions(log),
        sessions_with_gaps=checks.sessions_with_gaps(log),
        coverage=coverage,
        relevance=relevance_proxy(honest, cells, evidence),
        graph=graph,
        evidence=evidence if log.is_binary else None,
        left_out=left_out,
        versions=versions,
        leaks=leaks,
        sort_keys=keys,
        shown=shown,
        reading=None
        if shown.refusal
        else reading_tests(without_features(clicks, dishonest), level=level),
        variation=variation,
    )
    return _with_experiment(found, clicks, level)


def _with_experiment(audit: Audit, clicks: ClickLog, level: float) -> Audit:
    """With what an experiment says of production's lists, where it is enough for a curve."""
    production, advice = clicks.take(baseline_lists(clicks)), audit.advice
    if _experiments(audit) and production.n_lists:
        with suppress(UntiltError):
            estimator = catalog.find("bias", advice.estimator).load()(**advice.options)
            wanted = session_test(production, estimator.fit(clicks).bias_)
            audit = replace(audit, sessions=wanted)
    if not audit.interventions.is_used and audit.evidence is not None:
        with suppress(UntiltError):
            audit = replace(audit, estimators=estimator_test(clicks, audit.evidence.depth))
    if audit.interventions.is_used and audit.variation is not None:
        reach = min(comparable_depth(position_graph(production)), audit.variation.joined_depth)
        with suppress(UntiltError):
            curve = AllPairs(depth=reach, level=level).fit(production).bias_
            audit = replace(audit, harvested=harvested_test(clicks, audit.interventions, curve))
    return audit


def _check(log: ClickLog) -> None:
    if not isinstance(log, ClickLog):
        raise OptionError(
            f"audit needs a ClickLog. Got {type(log).__name__} instead; untilt.read_log makes one."
        )
    if len(log.document) == 0:
        raise OptionError("this log shows nothing: it has no impression. Check how it was read.")
    check_room(log, "the audit", per_row=BYTES_PER_ROW)


def _experiments(audit: Audit) -> bool:
    """Whether the advice rests on lists that an experiment changed."""
    name = audit.advice.estimator
    return bool(name) and catalog.find("bias", name).rests_on == "experiment"


def _positions(rates: ClickRates, which: Any) -> tuple[int, ...]:
    return tuple(rates.position[which].tolist())


def _notes(audit: Audit) -> Iterator[Fact]:
    if audit.left_out is not None:
        yield audit.left_out
    if audit.share_without_click:
        share, label = audit.share_without_click, audit.label_name
        yield WITHOUT_CLICK(share=share, label=label)
    if audit.rankers:
        named = [f"{name} ({n:,} sessions)" for name, n in audit.rankers.items()]
        yield RANKERS(sessions=dict(audit.rankers), n=len(audit.rankers), named=named)
    else:
        yield NO_RANKER
    done = audit.interventions
    if done.shuffled or done.swapped:
        total, pairs = sum(done.swapped.values()), tuple(done.swapped)
        done_how = {"shuffled": done.shuffled, "swapped": total, "pairs": pairs}
        changes = [phrase("shuffled in {n:,}", n=done.shuffled)] if done.shuffled else []
        if total:
            changes.append(
                phrase("swapped in {n:,} (positions {pairs:pairs})", n=total, pairs=pairs)
            )
        yield EXPERIMENT(**done_how, changes=changes)
        tests = (*done.shuffle_tests, *done.swap_tests)
        passed = tuple(each for each in tests if each.severity == "note")
        if passed and not done.failed:
            yield EXPERIMENT_TESTED(parts=passed)
    changed = audit.versions
    if changed is not None:
        sizes = {"documents": changed.documents, "versions": changed.versions}
        each = changed.versions / max(1, changed.documents)
        yield VERSIONS(features=changed.features, **sizes, each=each)
    coverage = audit.coverage
    if coverage.shown == coverage.candidates:
        yield ALL_SHOWN
    else:
        queries = audit.size.queries_with_sessions
        yield COVERAGE(
            unshown=coverage.unshown,
            share=coverage.unshown / coverage.candidates,
            queries=1 - coverage.queries_shown_whole / max(1, queries),
            candidates=coverage.median_candidates,
            shown=coverage.median_shown,
        )
    yield _order(audit.relevance)
    yield from (each.fact for each in audit.sort_keys if each.kind == "score")
    about = (audit.variation, audit.sessions, audit.harvested)
    facts = (None if each is None else each.fact for each in about)
    yield from (each for each in facts if each is not None and each.severity == "note")


def _order(proxy: RelevanceProxy) -> Fact:
    """Whether documents shown higher are more relevant."""
    if not proxy.is_known:
        return NO_PROXY(why=proxy.method)
    kind = "uninformative"
    if abs(proxy.correlation) > INFORMATIVE:
        kind = "good" if proxy.correlation < 0 else "inverted"
    fields = {"correlation": proxy.correlation, "std_error": proxy.std_error}
    return _ORDER[kind](**fields, proxy=proxy.method)


def _about_clicks(audit: Audit) -> Iterator[Fact]:
    rates = audit.click_rates
    if audit.shown is not None:
        yield from (each for each in (audit.shown.refusal, *audit.shown.doubts) if each)
    if not audit.is_binary:
        yield LABEL_NO_CLICK(label=audit.label_name)
    if audit.share_without_click == 0:
        yield ALWAYS_CLICKED(label=audit.label_name)
    if audit.positions_without_click:
        yield POSITIONS_WITHOUT_CLICK(positions=audit.positions_without_click)
    few = _positions(rates, (rates.clicks > 0) & (rates.clicks < FEW_CLICKS))
    if few and audit.is_binary:
        yield FEW_CLICKS_SENTENCE(positions=few, fewer_than=FEW_CLICKS)


def _about_experiments(audit: Audit) -> Iterator[Fact]:
    done = audit.interventions
    for kind, tests in (("shuffled", done.shuffle_tests), ("swapped", done.swap_tests)):
        failed = tuple(each for each in tests if each.severity == "serious")
        if failed:
            yield EXPERIMENT_FAILED(kind=kind, parts=failed)
        doubts = (each for each in tests if each.severity == "warning")
        yield from (EXPERIMENT_DOUBT(doubt=doubt) for doubt in doubts)
    if done.unusable:
        yield SHUFFLE_UNUSABLE(sessions=done.shuffled, why=done.unusable)


def _about_variation(audit: Audit) -> Iterator[Fact]:
    """Why positions vary, where a curve from documents that moved would depend on it."""
    found = None if audit.variation is None else audit.variation.fact
    if found is not None and found.severity != "note" and not _experiments(audit):
        yield found
    tests = (audit.sessions, audit.harvested, audit.estimators)
    yield from (each.fact for each in tests if each is not None and each.rejects)


def _about_lists(audit: Audit) -> Iterator[Fact]:
    size = audit.size
    if audit.positions_never_shown:
        yield POSITIONS_NEVER_SHOWN(positions=audit.positions_never_shown)
    if audit.sessions_with_gaps:
        n = audit.sessions_with_gaps
        yield GAPS(sessions=n, share=n / size.sessions)
    if audit.duplicate_impressions:
        yield DUPLICATES(impressions=audit.duplicate_impressions)
    if size.queries_with_sessions < FEWEST_QUERIES:
        yield FEW_QUERIES(queries=size.queries_with_sessions)


def _about_features(audit: Audit) -> Iterator[Fact]:
    if not audit.size.features:
        yield NO_FEATURES
    for leak in audit.leaks:
        yield leak_fact(LEAK, asdict(leak))
    yield from (each.fact for each in audit.sort_keys if each.kind == "rank")
    if audit.constant_features:
        yield CONSTANT_FEATURES(features=audit.constant_features)
    if audit.missing_features:
        named = [f"{name} ({share:.1%})" for name, share in audit.missing_features.items()]
        yield MISSING_FEATURES(shares=dict(audit.missing_features), named=named)
    if audit.versions is not None and audit.versions.drifts:
        drift, error = audit.versions.drift, audit.versions.std_error
        names, slope = audit.versions.features, "steep" if drift < 0 else "flat"
        yield RELEVANCE_DRIFTS(features=names, drift=drift, std_error=error, slope=slope)
    estimator = audit.advice.estimator
    if estimator == RegressionEM.__name__ and not audit.relevance.is_known:
        yield FEATURES_USELESS(estimator=estimator)


def _about_evidence(audit: Audit) -> Iterator[Fact]:
    if audit.coverage.median_share < 0.5:
        yield FEW_CANDIDATES_SHOWN
    position, factor = _widest(audit.evidence)
    if factor > WIDE:
        wide = WIDE_INTERVAL if factor <= NOT_KNOWN else RATIO_NOT_KNOWN
        yield wide(position=position, factor=factor)
    if audit.relevance.is_known and audit.relevance.correlation < -INFORMATIVE:
        yield RATES_MISLEAD


def _verdict(audit: Audit) -> Iterator[Fact]:
    graph = audit.graph
    if not graph.click_rate[np.isfinite(graph.click_rate)].any():
        yield serious("audit.no-clicks-at-all", "No: there is not one click.")()
        return
    if audit.shown is not None and audit.shown.refusal is not None:
        yield serious("audit.nothing-shown", "No: the log does not hold what was shown.")()
        return
    if graph.depth == 1:
        yield ONE_POSITION
        return
    if audit.drifts:
        yield NOT_IDENTIFIED_DRIFT
        return
    if audit.is_identified:
        left_out = tuple((np.flatnonzero(graph.left_out) + 1).tolist())
        yield (
            IDENTIFIED_WHERE_SHOWN(positions=left_out)
            if left_out
            else IDENTIFIED(depth=graph.depth)
        )
    elif audit.joined_depth < graph.depth:
        yield LEVELS_APART(positions=audit.not_comparable)
    elif len(graph.components) > 1:
        apart, components = audit.not_comparable, graph.components
        groups = [positions_text(component) for component in components[:6]]
        groups += [f"and {len(components) - 6} more"] if len(components) > 6 else []
        yield POSITIONS_APART(positions=apart, components=components, groups=groups)
    else:
        yield TOO_FEW_CLICKS(positions=audit.not_comparable)
    position, factor = _widest(audit.evidence)
    if audit.evidence is not None:
        yield (PRECISION if factor <= NOT_KNOWN else NO_PRECISION)(
            depth=audit.evidence.depth,
            position=position,
            factor=factor,
            level=audit.click_rates.level,
            estimator=audit.evidence.method,
        )
    if graph.swaps and not audit.is_identified:
        pairs = tuple((swap.upper, swap.lower) for swap in graph.swaps)
        most_lost = max(swap.most_lost for swap in graph.swaps)
        swaps = ", ".join(f"{upper} and {lower}" for upper, lower in pairs[:10])
        swaps += f" and {len(pairs) - 10} pairs more" if len(pairs) > 10 else ""
        yield SWAPS_THAT_JOIN(pairs=pairs, most_lost=most_lost, swaps=swaps)


def _widest(bias: PositionBias | None) -> tuple[int, float]:
    """The position with the widest interval, and the factor that it spans to either side."""
    if bias is None or bias.low is None or bias.high is None:
        return 1, 1.0
    factor = np.where(bias.holds_results, bias.uncertainty, 1.0)
    k = int(np.argmax(factor))
    return k + 1, float(factor[k])


def _next_steps(audit: Audit) -> Iterator[Fact]:
    step, advice = audit.next_step, audit.advice
    yield step.fact
    if step.fact.code == "audit.use":
        yield from (BELIEVES(belief=belief) for belief in advice.believes)
        yield note("audit.in-python", "In Python: {call}")(call=advice.call)
    elif advice.estimator:
        yield UNTIL_THEN(estimator=advice.estimator)
    if step.command and audit.is_binary:
        yield ON_COMMAND_LINE(command=step.command)
    if advice.estimator and not audit.is_binary:
        yield CLICKS_FIRST(label=audit.label_name)
