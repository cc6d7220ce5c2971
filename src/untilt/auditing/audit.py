"""What can this log tell about position bias, and what is wrong with it?"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from untilt._core.statistics import check_level
from untilt.auditing import checks
from untilt.auditing.advice import Advice, Interventions, advise, comparable_depth, interventions_of
from untilt.auditing.checks import RelevanceProxy, relevance_proxy
from untilt.bias.curve import PositionBias
from untilt.bias.harvesting.all_pairs import AllPairs
from untilt.bias.position_graph import PositionGraph, position_graph
from untilt.data.clicklog import ClickLog
from untilt.data.counts import position_counts
from untilt.data.rates import ClickRates
from untilt.errors import OptionError

if TYPE_CHECKING:
    from untilt.bias.curve import PositionBias
    from untilt.bias.position_graph import PositionGraph
    from untilt.data.rates import ClickRates


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """Everything that `audit` found. `print(audit)` is readable; `to_dict()` is for machines.

    Parameters
    ----------
    label_name, is_binary : the feedback looked at, and whether it is 0 or 1
    size : counts of everything
    click_rates : by position, with intervals clustered by query
    share_without_click : of the sessions
    positions_without_click, positions_never_shown : of 1..K
    rankers : name -> sessions
    interventions : swaps and shuffles that the rankers' names tell of
    constant_features, missing_features : names; the latter with the share that is missing
    duplicate_impressions : a document that its session already shows higher up
    sessions_with_gaps : sessions that skip a position
    coverage : how much of the candidates was shown
    relevance : correlation of position and a proxy of relevance
    graph : which positions share documents, and how many
    evidence : a curve of `AllPairs` over the positions that can be compared without a model, to
        see how sure the log is; None where there are none, or the label is no click
    advice : which estimator, and why
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
    advice: Advice

    @property
    def is_identified(self) -> bool:
        """Whether all positions 1..K can be compared without a model of relevance."""
        return self.comparable == tuple(range(1, self.graph.depth + 1))

    @property
    def comparable(self) -> tuple[int, ...]:
        """Positions that can be compared with position 1 without a model of relevance."""
        return next((found for found in self.graph.clicked_components if 1 in found), ())

    @property
    def not_comparable(self) -> tuple[int, ...]:
        """Positions that were shown and cannot be compared with position 1 without a model."""
        shown = {k for found in self.graph.components for k in found}
        return tuple(sorted(shown - set(self.comparable)))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth knowing, in sentences."""
        from untilt.auditing.text import notes

        return notes(self)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What can mislead whoever learns from this log, in sentences."""
        from untilt.auditing.text import warnings

        return warnings(self)

    @property
    def verdict(self) -> str:
        """Whether this log can tell position bias, in sentences."""
        from untilt.auditing.text import verdict

        return verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, text, lists and dictionaries; numbers that are not finite stay so."""

        return record(self)

    def __repr__(self) -> str:
        from untilt.auditing.text import text

        return text(self)


def audit(log: ClickLog, *, level: float = 0.95) -> Audit:
    """Look at a log before learning from it.

    Counts, click rates with intervals, what is odd, whether documents that stand at several
    positions join all positions (then examination can be measured without a model of relevance),
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
    cells = position_counts(clicks)
    graph = position_graph(cells)
    rates = log.ctr_by_position(level)
    rankers = checks.sessions_by_ranker(log)
    constant = checks.constant_features(log)
    done = interventions_of(clicks)
    evidence = _evidence(clicks, graph, level)
    return Audit(
        label_name=log.label_name,
        is_binary=log.is_binary,
        size=checks.log_size(log),
        click_rates=rates,
        share_without_click=checks.share_without_click(log),
        positions_without_click=_places(rates, (rates.clicks == 0) & (rates.impressions > 0)),
        positions_never_shown=_places(rates, rates.impressions == 0),
        rankers=rankers,
        interventions=done,
        constant_features=constant,
        missing_features=checks.missing_features(log),
        duplicate_impressions=checks.duplicate_impressions(log),
        sessions_with_gaps=checks.sessions_with_gaps(log),
        coverage=checks.coverage(log),
        relevance=relevance_proxy(log, cells, evidence),
        graph=graph,
        evidence=evidence if log.is_binary else None,
        advice=advise(
            graph,
            done,
            n_rankers=len(rankers),
            usable_features=log.n_features - len(constant),
            clicked=bool(log.label.any()),
        ),
    )


def _check(log: ClickLog) -> None:
    if not isinstance(log, ClickLog):
        raise OptionError(
            f"audit needs a ClickLog. Got {type(log).__name__} instead; untilt.read_log makes one."
        )
    if len(log.document) == 0:
        raise OptionError("this log shows nothing: it has no impression. Check how it was read.")


def _places(rates: ClickRates, which: Any) -> tuple[int, ...]:
    return tuple(rates.position[which].tolist())


def _evidence(log: ClickLog, graph: PositionGraph, level: float) -> PositionBias | None:
    depth = comparable_depth(graph)
    if depth < 2:
        return None
    return AllPairs(depth=depth, level=level).fit(log).bias_


# An audit as plain data, for JSON.


def record(audit: "Audit") -> dict[str, Any]:
    """Every fact under a name of its own."""
    return {
        **asdict(audit.size),
        "label": audit.label_name,
        "click_rates": _rates(audit.click_rates),
        "share_without_click": audit.share_without_click,
        "positions_without_click": list(audit.positions_without_click),
        "positions_never_shown": list(audit.positions_never_shown),
        "rankers": list(audit.rankers),
        "sessions_by_ranker": dict(audit.rankers),
        "shuffled_sessions": audit.interventions.shuffled,
        "swapped_sessions": [
            {"upper": upper, "lower": lower, "sessions": sessions}
            for (upper, lower), sessions in audit.interventions.swapped.items()
        ],
        "constant_features": list(audit.constant_features),
        "missing_features": dict(audit.missing_features),
        "duplicate_impressions": audit.duplicate_impressions,
        "sessions_with_gaps": audit.sessions_with_gaps,
        "candidates": asdict(audit.coverage) | {"share": audit.coverage.share},
        "position_and_relevance": asdict(audit.relevance),
        "identifiability": _identifiability(audit),
        "advice": {
            "estimator": audit.advice.estimator,
            "options": dict(audit.advice.options),
            "call": audit.advice.call,
            "command": audit.advice.command,
            "why": audit.advice.why,
            "believes": list(audit.advice.believes),
        },
        "notes": list(audit.notes),
        "warnings": list(audit.warnings),
    }


def _identifiability(audit: "Audit") -> dict[str, Any]:
    graph = audit.graph
    return {
        "identified": audit.is_identified,
        "verdict": audit.verdict,
        "components": [list(found) for found in graph.components],
        "clicked_components": [list(found) for found in graph.clicked_components],
        "comparable": list(audit.comparable),
        "not_comparable": list(audit.not_comparable),
        "edges": _edges(graph),
        "joining_swaps": [asdict(swap) for swap in graph.swaps],
        "evidence": _evidence_of_audit_record(audit.evidence),
    }


def _edges(graph: "PositionGraph") -> list[dict[str, Any]]:
    return [asdict(edge) for edge in graph.edges]


def _evidence_of_audit_record(bias: "PositionBias | None") -> dict[str, Any] | None:
    if bias is None or bias.low is None or bias.high is None:
        return None
    return {
        "method": bias.method,
        "examination": bias.examination.tolist(),
        "low": bias.low.tolist(),
        "high": bias.high.tolist(),
        "level": bias.level,
        "status": bias.status,
    }


def _rates(rates: "ClickRates") -> dict[str, Any]:
    columns = ("position", "impressions", "clicks", "rate", "std_error", "low", "high")
    return {name: getattr(rates, name).tolist() for name in columns} | {"level": rates.level}
