"""What a log says about position bias, what is wrong with it, and what to do next."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
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
from untilt.auditing.interventions import Interventions, interventions_of
from untilt.auditing.leaks import Leak, leaking_features, position_features
from untilt.auditing.next_step import (
    UNTIL_THEN,
    Advice,
    Findings,
    NextStep,
    comparable_depth,
    next_step,
)
from untilt.auditing.reading import ReadingTests, reading_tests
from untilt.bias.curve import PositionBias
from untilt.bias.em.regression_em import RegressionEM
from untilt.bias.harvesting.harvesting import AllPairs
from untilt.bias.log_ratios import FEWEST_QUERIES
from untilt.bias.position_graph import PositionGraph, position_graph
from untilt.data.clicklog import ClickLog
from untilt.data.counts import position_counts
from untilt.data.footprint import check_room
from untilt.data.rates import FEW_CLICKS, ClickRates
from untilt.data.shown import ImpressionCheck, examine_impressions
from untilt.data.transform import without_features
from untilt.errors import OptionError
from untilt.facts import Fact
from untilt.views import Section, View

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
    position_features : features that are the position where a document was shown
    reading : whether people read as the position-based model says; None where the log does not
        hold what was shown
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
    position_features: tuple[str, ...] = ()
    shown: ImpressionCheck | None = None
    reading: ReadingTests | None = None
    json_properties: ClassVar[tuple[str, ...]] = (
        "is_identified", "comparable", "not_comparable", "next_step", "advice", "verdict", "notes",
        "warnings",
    )  # fmt: skip

    @cached_property
    def next_step(self) -> NextStep:
        """What to do: the one recommendation, with its command and its reasons."""
        useless = {*self.constant_features, *(leak.feature for leak in self.leaks)}
        return next_step(
            Findings(
                self.graph,
                self.interventions,
                n_rankers=len(self.rankers),
                usable_features=self.size.features - len(useless),
                clicked=self.size.clicks != 0,
                drifts=self.versions is not None and self.versions.drifts,
                refused=self.shown is not None and self.shown.refusal is not None,
                reading=self.reading,
            )
        )

    @property
    def advice(self) -> Advice:
        """The estimator that `bias="auto"` takes, and why."""
        return self.next_step.advice

    @property
    def is_identified(self) -> bool:
        """Whether all positions 1..K can be compared without a model of relevance."""
        return self.comparable == tuple(range(1, self.graph.depth + 1)) and not self.drifts

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
        return next((part for part in self.graph.clicked_components if 1 in part), ())

    @property
    def not_comparable(self) -> tuple[int, ...]:
        """Positions that were shown and cannot be compared with position 1 without a model."""
        shown = {k for part in self.graph.components for k in part}
        return tuple(sorted(shown - set(self.comparable)))

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
            *_about_lists(self),
            *_about_features(self),
            *_about_evidence(self),
        )

    @property
    def verdict(self) -> Fact:
        """Whether this log identifies position bias; its `parts` say where, and how precisely."""
        return Fact("audit.verdict", parts=tuple(_verdict(self)))

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


def audit(log: ClickLog, *, level: float = 0.95) -> Audit:
    """Look at a log before learning from it.

    Counts, click rates with intervals, what is odd, whether documents shown at several positions
    join all positions (then examination can be measured without a model of relevance),
    and which estimator to use. Only sums over equal lists are used: a collapsed log gives the same
    audit.

    >>> from untilt.simulation.simulate import simulate
    >>> from untilt.simulation.synthetic import make_judged
    >>> found = audit(simulate(make_judged(200), "swap", n_sessions=20_000).log)
    >>> found.is_identified, found.advice.estimator
    (True, 'PivotSwap')
    """
    _check(log)
    check_level(level)
    clicks = log if log.is_binary else log.with_label((log.label > 0).astype(np.float64))
    done, clicks = interventions_of(clicks), clicks.without_versions()
    cells = position_counts(clicks)
    graph = position_graph(cells)
    rates = log.ctr_by_position(level)
    rankers = checks.sessions_by_ranker(log)
    constant = checks.constant_features(log)
    leaks = leaking_features(log)
    knowing = [leak.feature for leak in leaks]
    honest = without_features(log, knowing)
    versions = versions_of(honest)
    drifts = versions is not None and versions.drifts
    shown = examine_impressions(log)
    evidence = None if drifts or shown.refusal else _evidence(clicks, graph, level)
    return Audit(
        label_name=log.label_name,
        is_binary=log.is_binary,
        size=checks.log_size(log),
        click_rates=rates,
        share_without_click=checks.share_without_click(log),
        positions_without_click=_positions(rates, (rates.clicks == 0) & (rates.impressions > 0)),
        positions_never_shown=_positions(rates, rates.impressions == 0),
        rankers=rankers,
        interventions=done,
        constant_features=constant,
        missing_features=checks.missing_features(log),
        duplicate_impressions=checks.duplicate_impressions(log),
        sessions_with_gaps=checks.sessions_with_gaps(log),
        coverage=checks.coverage(log),
        relevance=relevance_proxy(honest, cells, evidence),
        graph=graph,
        evidence=evidence if log.is_binary else None,
        versions=versions,
        leaks=leaks,
        position_features=position_features(log),
        shown=shown,
        reading=None if shown.refusal else reading_tests(clicks, level=level),
    )


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


def _evidence(log: ClickLog, graph: PositionGraph, level: float) -> PositionBias | None:
    depth = comparable_depth(graph)
    if depth < 2:
        return None
    return AllPairs(depth=depth, level=level).fit(log).bias_


def _notes(audit: Audit) -> Iterator[Fact]:
    if audit.share_without_click:
        share, label = audit.share_without_click, audit.label_name
        yield Fact("audit.without-click", share=share, label=label)
    if audit.rankers:
        yield Fact("audit.rankers", sessions=dict(audit.rankers))
    else:
        yield Fact("audit.no-ranker")
    done = audit.interventions
    if done.shuffled or done.swapped:
        total, pairs = sum(done.swapped.values()), tuple(done.swapped)
        yield Fact("audit.experiment", shuffled=done.shuffled, swapped=total, pairs=pairs)
        tests = (*done.shuffle_tests, *done.swap_tests)
        passed = tuple(each for each in tests if each.severity == "note")
        if passed and not done.failed:
            yield Fact("audit.experiment-tested", parts=passed)
    changes = audit.versions
    if changes is not None:
        sizes = {"documents": changes.documents, "versions": changes.versions}
        yield Fact("audit.versions", features=changes.features, **sizes)
    coverage = audit.coverage
    if coverage.shown == coverage.candidates:
        yield Fact("audit.all-shown")
    else:
        queries = audit.size.queries_with_sessions
        yield Fact(
            "audit.coverage",
            unshown=coverage.unshown,
            share=coverage.unshown / coverage.candidates,
            queries=1 - coverage.queries_shown_whole / max(1, queries),
            candidates=coverage.median_candidates,
            shown=coverage.median_shown,
        )
    yield _order(audit.relevance)


def _order(proxy: RelevanceProxy) -> Fact:
    """Whether documents shown higher are more relevant."""
    if not proxy.is_known:
        return Fact("audit.no-proxy", why=proxy.method)
    kind = "uninformative"
    if abs(proxy.correlation) > INFORMATIVE:
        kind = "good" if proxy.correlation < 0 else "inverted"
    fields = {"correlation": proxy.correlation, "std_error": proxy.std_error}
    return Fact(f"audit.order-{kind}", **fields, proxy=proxy.method)


def _about_clicks(audit: Audit) -> Iterator[Fact]:
    rates = audit.click_rates
    if audit.shown is not None:
        yield from (each for each in (audit.shown.refusal, *audit.shown.doubts) if each)
    if not audit.is_binary:
        yield Fact("audit.label-no-click", label=audit.label_name)
    if audit.share_without_click == 0:
        yield Fact("audit.always-clicked", label=audit.label_name)
    if audit.positions_without_click:
        yield Fact("audit.positions-without-click", positions=audit.positions_without_click)
    few = _positions(rates, (rates.clicks > 0) & (rates.clicks < FEW_CLICKS))
    if few and audit.is_binary:
        yield Fact("audit.few-clicks", positions=few, fewer_than=FEW_CLICKS)


def _about_experiments(audit: Audit) -> Iterator[Fact]:
    done = audit.interventions
    for kind, tests in (("shuffled", done.shuffle_tests), ("swapped", done.swap_tests)):
        failed = tuple(each for each in tests if each.severity == "serious")
        if failed:
            yield Fact("audit.experiment-failed", kind=kind, parts=failed)
        doubts = (each for each in tests if each.severity == "warning")
        yield from (Fact("audit.experiment-doubt", doubt=doubt) for doubt in doubts)
    if done.unusable:
        yield Fact("audit.shuffle-unusable", sessions=done.shuffled, why=done.unusable)


def _about_lists(audit: Audit) -> Iterator[Fact]:
    size = audit.size
    if audit.positions_never_shown:
        yield Fact("audit.positions-never-shown", positions=audit.positions_never_shown)
    if audit.sessions_with_gaps:
        n = audit.sessions_with_gaps
        yield Fact("audit.gaps", sessions=n, share=n / size.sessions)
    if audit.duplicate_impressions:
        yield Fact("audit.duplicates", impressions=audit.duplicate_impressions)
    if size.queries_with_sessions < FEWEST_QUERIES:
        yield Fact("audit.few-queries", queries=size.queries_with_sessions)


def _about_features(audit: Audit) -> Iterator[Fact]:
    if not audit.size.features:
        yield Fact("audit.no-features")
    for leak in audit.leaks:
        yield Fact("audit.leak", **asdict(leak))
    if audit.position_features:
        yield Fact("audit.position-features", features=audit.position_features)
    if audit.constant_features:
        yield Fact("audit.constant-features", features=audit.constant_features)
    if audit.missing_features:
        yield Fact("audit.missing-features", shares=dict(audit.missing_features))
    if audit.versions is not None and audit.versions.drifts:
        drift, error = audit.versions.drift, audit.versions.std_error
        names = audit.versions.features
        yield Fact("audit.relevance-drifts", features=names, drift=drift, std_error=error)
    estimator = audit.advice.estimator
    if estimator == RegressionEM.__name__ and not audit.relevance.is_known:
        yield Fact("audit.features-useless", estimator=estimator)


def _about_evidence(audit: Audit) -> Iterator[Fact]:
    if audit.coverage.median_share < 0.5:
        yield Fact("audit.few-candidates-shown")
    position, factor = _widest(audit.evidence)
    if factor > WIDE:
        yield Fact("audit.wide-interval", position=position, factor=factor)
    if audit.relevance.is_known and audit.relevance.correlation < -INFORMATIVE:
        yield Fact("audit.rates-mislead")


def _verdict(audit: Audit) -> Iterator[Fact]:
    graph = audit.graph
    if not graph.click_rate[np.isfinite(graph.click_rate)].any():
        yield Fact("audit.no-clicks-at-all")
        return
    if audit.shown is not None and audit.shown.refusal is not None:
        yield Fact("audit.nothing-shown")
        return
    if graph.depth == 1:
        yield Fact("audit.one-position")
        return
    if audit.drifts:
        yield Fact("audit.not-identified-drift")
        return
    if audit.is_identified:
        yield Fact("audit.identified", depth=graph.depth)
    elif len(graph.components) > 1:
        apart, components = audit.not_comparable, graph.components
        yield Fact("audit.positions-apart", positions=apart, components=components)
    elif audit.not_comparable:
        yield Fact("audit.too-few-clicks", positions=audit.not_comparable)
    else:
        yield Fact("audit.identified-where-shown", positions=audit.positions_never_shown)
    position, factor = _widest(audit.evidence)
    if audit.evidence is not None:
        yield Fact(
            "audit.precision",
            depth=audit.evidence.depth,
            position=position,
            factor=factor,
            level=audit.click_rates.level,
            estimator=audit.evidence.method,
        )
    if graph.swaps and not audit.is_identified:
        pairs = tuple((swap.upper, swap.lower) for swap in graph.swaps)
        most_lost = max(swap.most_lost for swap in graph.swaps)
        yield Fact("audit.swaps-that-join", pairs=pairs, most_lost=most_lost)


def _widest(bias: PositionBias | None) -> tuple[int, float]:
    """The position with the widest interval, and the factor that it spans to either side."""
    if bias is None or bias.low is None or bias.high is None:
        return 1, 1.0
    factor = bias.uncertainty
    k = int(np.argmax(factor))
    return k + 1, float(factor[k])


def _next_steps(audit: Audit) -> Iterator[Fact]:
    step, advice = audit.next_step, audit.advice
    yield step.fact
    if step.fact.code == "audit.use":
        yield from (Fact("audit.believes", belief=belief) for belief in advice.believes)
        yield Fact("audit.in-python", call=advice.call)
    elif advice.estimator:
        yield UNTIL_THEN(estimator=advice.estimator)
    if step.command:
        yield Fact("audit.on-command-line", command=step.command)
    if advice.estimator and not audit.is_binary:
        yield Fact("audit.clicks-first", label=audit.label_name)
