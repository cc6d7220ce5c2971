"""An audit as plain data, for JSON."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from untilt.bias.audit import Audit
    from untilt.bias.identifiability import PositionGraph
    from untilt.bias.position_bias import PositionBias
    from untilt.logs.rates import ClickRates


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
        "evidence": _evidence(audit.evidence),
    }


def _edges(graph: "PositionGraph") -> list[dict[str, Any]]:
    return [asdict(edge) for edge in graph.edges]


def _evidence(bias: "PositionBias | None") -> dict[str, Any] | None:
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
